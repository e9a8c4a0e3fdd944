#!/bin/sh
[ -e /run/ibnetworkd/initramfs.started ]
