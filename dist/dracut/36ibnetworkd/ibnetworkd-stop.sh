#!/bin/sh
# Ends the ibnetworkd of the initramfs: its addresses stay, and that of the system takes its leases from /run/ibnetworkd. dracut sources it.
if [ -e /run/ibnetworkd/initramfs.pid ]; then
	read -r _ib </run/ibnetworkd/initramfs.pid
	kill "$_ib" 2>/dev/null
	_ibn=0
	while kill -0 "$_ib" 2>/dev/null; do # the boot does not wait for it longer than 10 s
		[ $((_ibn += 1)) -le 100 ] || kill -9 "$_ib"
		sleep 0.1
	done
	rm -f /run/ibnetworkd/initramfs.pid /run/ibnetworkd/initramfs.started
fi
