package scenario

import (
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"ibnetworkd/dist"
	"ibnetworkd/lab"
)

// initramfsPackages make an initramfs.
var initramfsPackages = []string{"initramfs-tools-core", "klibc-utils", "libklibc", "cpio", "busybox"}

// initramfsFiles are the hook and the scripts of the package, by their names in a system.
func initramfsFiles() map[string]string {
	files := map[string]string{}
	err := fs.WalkDir(dist.Files, "initramfs-tools", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := dist.Files.ReadFile(name)
		files["/usr/share/"+name] = string(text)
		return err
	})
	if err != nil {
		panic(err) // it is embedded
	}
	return files
}

// An initramfs of initramfs-tools, as root of a process tree: without systemd, D-Bus and udev. Its daemon gets
// the address that the firmware got, and that of the system goes on with the lease. The
// hook adds nothing where there are no units for it.
func initramfsLeases(g *lab.G, d *service, address string) {
	const root = "/run/initramfs"
	const unit = "[Match]\nName=ib0\n[Network]\nDHCP=ipv4\n[DHCPv4]\nClientIdentifier=flexboot\n"
	d.kill()
	g.Sh("rm -rf %s*.ibnetwork /run/ibnetworkd; for l in ib0 ib1; do ip address flush dev $l; ip link set $l down; done", unitDir)
	g.Sh("%s", "chmod 755 "+strings.Join(slices.Sorted(maps.Keys(initramfsFiles())), " ")+
		"; mkdir -p /lib/modules/$(uname -r) /boot; cd /lib/modules/$(uname -r); touch modules.order modules.builtin modules.builtin.modinfo\n"+
		"echo CONFIG_RD_GZIP=y >/boot/config-$(uname -r); sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=gzip/' "+
		"/etc/initramfs-tools/initramfs.conf")
	hook := func() string {
		return g.Sh("rm -rf /tmp/hook; mkdir /tmp/hook; cd /; DESTDIR=/tmp/hook __MODULES_TO_ADD=/tmp/hook/modules verbose=n " +
			"version=$(uname -r) /usr/share/initramfs-tools/hooks/ibnetworkd; find /tmp/hook -name '*ibnet*'")
	}
	if out := hook(); out != "" {
		g.Errorf("without units for the initramfs the hook adds %s", out)
	}
	g.Sh("mkdir -p /etc/ibnetworkd/initramfs; cp $(command -v ibnetworkd) /usr/sbin; cp $(command -v ibnetctl) /usr/bin")
	g.Write("/etc/ibnetworkd/initramfs/10-ib0.ibnetwork", unit)
	g.Sh("mkinitramfs -o /tmp/initrd $(uname -r) && mkdir -p %[1]s && cd %[1]s && zcat /tmp/initrd | cpio -idu --quiet && mkdir -p proc "+
		"sys dev run && mount -t proc proc proc && mount -t sysfs sys sys && mount --bind /dev dev && mount -t tmpfs run run", root)
	script := func(name string) {
		g.Helper()
		g.Logf("%s: %s", name, g.Sh("env -i PATH=/sbin:/usr/sbin:/bin:/usr/bin chroot %s /bin/sh -c '/scripts/%s/ibnetworkd' 2>&1", root, name))
	}
	script("init-premount")
	if got := leasedAddress(g, "ib0"); got != address {
		g.Errorf("in the initramfs ib0 has %q, reserved is %s:\n%s", got, address, g.Sh("cat %s/run/ibnetworkd/initramfs.log || true", root))
	}
	script("init-bottom")
	if out, err := g.Try("pgrep", "-x", "ibnetworkd"); err == nil {
		g.Errorf("a daemon still runs after init-bottom: %s", out)
	}
	g.Sh("(trap '' TERM; exec sleep 600) >/dev/null 2>&1 & echo $! >%s/run/ibnetworkd/initramfs.pid", root)
	script("init-bottom") // it ends what does not end by itself
	// The initramfs hands its /run on.
	g.Sh("umount %[1]s/proc %[1]s/sys %[1]s/dev; mkdir /run/ibnetworkd; cp -a %[1]s/run/ibnetworkd/. /run/ibnetworkd; umount %[1]s/run", root)
	_, mark := served(g, 0)
	g.Write(unitDir+"20-ib0.ibnetwork", unit)
	d.start()
	d.leased("ib0", address, 40*time.Second)
	if text, _ := served(g, mark); strings.Contains(text, "DHCP") {
		g.Errorf("the daemon of the system asked again for the lease of the initramfs:\n%s", text)
	}
}
