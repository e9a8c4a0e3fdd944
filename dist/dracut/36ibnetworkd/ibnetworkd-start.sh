#!/bin/sh
# Starts ibnetworkd in the initramfs, waits for its links, and has dracut go on with a root over the network. dracut sources it,
# until the root device is found.
if [ ! -e /run/ibnetworkd/initramfs.pid ]; then
	modprobe -q ib_ipoib 2>/dev/null
	mkdir -p /run/ibnetworkd
	ibnetworkd --no-watch --metrics no >>/run/ibnetworkd/initramfs.log 2>&1 &
	echo $! >/run/ibnetworkd/initramfs.pid
	ibnetctl wait-online --timeout 120s || ibnetctl status
	for _ib in /sys/class/net/*; do
		_ib=${_ib##*/}
		ibnetctl wait-online --quiet --timeout 1s "$_ib" 2>/dev/null || continue
		source_hook initqueue/online "$_ib"
		[ ! -x /sbin/netroot ] || /sbin/netroot "$_ib"
	done
	: >/run/ibnetworkd/initramfs.started
fi
