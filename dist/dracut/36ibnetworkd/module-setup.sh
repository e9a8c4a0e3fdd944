#!/bin/bash
# Copies ibnetworkd into the initramfs if there are units for it in /etc/ibnetworkd/initramfs.

program() {
	PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/local/bin command -v "$1"
}

check() {
	compgen -G '/etc/ibnetworkd/initramfs/*.ibnetwork' >/dev/null || return 1
	local p
	for p in ibnetworkd ibnetctl; do
		program $p >/dev/null || { derror "ibnetworkd: $p is not installed, but there are units for it in /etc/ibnetworkd/initramfs"; return 1; }
	done
}

depends() {
	return 0
}

installkernel() {
	instmods ib_ipoib
	local d
	for d in /sys/class/infiniband/*/device/driver/module; do
		[[ ! -e $d ]] || instmods "$(basename "$(readlink -f "$d")")"
	done
}

install() {
	local p u
	inst_multiple kill mkdir modprobe rm sleep
	for p in ibnetworkd ibnetctl; do
		inst "$(program $p)" /usr/bin/$p
	done
	for u in /etc/ibnetworkd/initramfs/*.ibnetwork; do
		inst_simple "$u" "/etc/systemd/network/${u##*/}"
	done
	inst_hook initqueue/settled 60 "$moddir/ibnetworkd-start.sh"
	inst_hook initqueue/finished 60 "$moddir/ibnetworkd-started.sh"
	inst_hook cleanup 60 "$moddir/ibnetworkd-stop.sh"
	dracut_need_initqueue
}
