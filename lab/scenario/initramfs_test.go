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

// initramfsPackages make an initramfs, each of the two in its way.
var initramfsPackages = []string{"initramfs-tools-core", "klibc-utils", "libklibc", "cpio", "busybox", "dracut-core"}

// initramfsFiles are the hooks and scripts of the package, by their names in a system.
func initramfsFiles() map[string]string {
	files := map[string]string{}
	for from, to := range map[string]string{"initramfs-tools": "/usr/share/initramfs-tools", "dracut": "/usr/lib/dracut/modules.d"} {
		err := fs.WalkDir(dist.Files, from, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := dist.Files.ReadFile(name)
			files[to+strings.TrimPrefix(name, from)] = string(text)
			return err
		})
		if err != nil {
			panic(err) // it is embedded
		}
	}
	return files
}

// An initramfs of initramfs-tools and one of dracut, each as root of a process tree: without systemd, D-Bus and udev. Its
// daemon gets the address that the firmware got, and that of the system goes on with the lease. Nothing is
// added where there are no units for it.
func initramfsLeases(g *lab.G, d *service, address string) {
	const units = "/etc/ibnetworkd/initramfs/"
	g.Sh("%s", "chmod 755 "+strings.Join(slices.Sorted(maps.Keys(initramfsFiles())), " ")+
		"; mkdir -p /lib/modules/$(uname -r) /boot; cd /lib/modules/$(uname -r); touch modules.order modules.builtin modules.builtin.modinfo\n"+
		"echo CONFIG_RD_GZIP=y >/boot/config-$(uname -r); sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=gzip/' "+
		"/etc/initramfs-tools/initramfs.conf; cp $(command -v ibnetworkd) /usr/sbin; cp $(command -v ibnetctl) /usr/bin")
	if out := g.Sh("rm -rf /tmp/hook; mkdir /tmp/hook; cd /; DESTDIR=/tmp/hook __MODULES_TO_ADD=/tmp/hook/modules verbose=n " +
		"version=$(uname -r) /usr/share/initramfs-tools/hooks/ibnetworkd; find /tmp/hook -name '*ibnet*'"); out != "" {
		g.Errorf("without units for the initramfs the hook adds %s", out)
	}
	included := func() string {
		return g.Sh("bash -c '. /usr/lib/dracut/modules.d/36ibnetworkd/module-setup.sh; check; echo $?'")
	}
	if out := included(); strings.TrimSpace(out) != "1" {
		g.Errorf("without units for the initramfs dracut's module has %s", out)
	}
	unit := "[Match]\nName=ib0\n[Network]\nDHCP=ipv4\n[DHCPv4]\nClientIdentifier=flexboot\n"
	g.Sh("mkdir -p " + units)
	g.Write(units+"10-ib0.ibnetwork", unit)
	if out := included(); strings.TrimSpace(out) != "0" {
		g.Errorf("with a unit for the initramfs dracut's module has %s", out)
	}
	// All modules take minutes on a busy machine.
	const dracut = "dracut --no-hostonly --no-kernel --no-compress --force --kver $(uname -r) -m 'base ibnetworkd' /tmp/initrd"
	for _, x := range []struct{ name, image, start, stop string }{
		{"initramfs-tools", "mkinitramfs -o /tmp/initrd $(uname -r)", "/scripts/init-premount/ibnetworkd", "/scripts/init-bottom/ibnetworkd"},
		{"dracut", dracut, ". /lib/dracut-lib.sh; if check_finished; then echo finished too early; fi; " +
			"source_hook initqueue/settled; check_finished || echo not finished", ". /lib/dracut-lib.sh; source_hook cleanup"},
	} {
		g.Sh("rm -f /tmp/initrd; %s >/tmp/image.log 2>&1", x.image)
		d.kill()
		inInitramfs(g, "/run/"+x.name, address, x.start, x.stop)
		_, mark := served(g, 0)
		g.Write(unitDir+"20-ib0.ibnetwork", unit)
		d.start()
		d.leased("ib0", address, 40*time.Second)
		if text, _ := served(g, mark); strings.Contains(text, "DHCP") {
			g.Errorf("the daemon of the system asked again for the lease of the initramfs of %s:\n%s", x.name, text)
		}
	}
}

// inInitramfs runs what starts and what stops the daemon in the initramfs /tmp/initrd.
func inInitramfs(g *lab.G, root, address, start, stop string) {
	g.Helper()
	g.Sh("rm -rf %s*.ibnetwork /run/ibnetworkd; for l in ib0 ib1; do ip address flush dev $l; ip link set $l down; done", unitDir)
	g.Sh("mkdir -p %[1]s && cd %[1]s && (zcat -f /tmp/initrd | cpio -idu --quiet) && mkdir -p proc sys dev run && mount -t proc proc proc && "+
		"mount -t sysfs sys sys && mount --bind /dev dev && mount -t tmpfs run run", root)
	script := func(text string) {
		g.Helper()
		out := g.Sh("env -i PATH=/sbin:/usr/sbin:/bin:/usr/bin chroot %s /bin/sh -c '%s' 2>&1", root, text)
		if g.Logf("%s: %s", text, out); strings.Contains(out, "finished") {
			g.Errorf("in %s: %s", root, out)
		}
	}
	script(start)
	if got := leasedAddress(g, "ib0"); got != address {
		g.Errorf("in %s ib0 has %q, reserved is %s:\n%s", root, got, address, g.Sh("cat %s/run/ibnetworkd/initramfs.log || true", root))
	}
	script(stop)
	if out, err := g.Try("pgrep", "-x", "ibnetworkd"); err == nil {
		g.Errorf("in %s a daemon still runs after its end: %s", root, out)
	}
	g.Sh("(trap '' TERM; exec sleep 600) >/dev/null 2>&1 & echo $! >%s/run/ibnetworkd/initramfs.pid", root)
	script(stop) // it ends what does not end by itself
	// The initramfs hands its /run on.
	g.Sh("umount %[1]s/proc %[1]s/sys %[1]s/dev; mkdir /run/ibnetworkd; cp -a %[1]s/run/ibnetworkd/. /run/ibnetworkd; umount %[1]s/run", root)
}
