package build

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Suite is the Debian release of the kernels, and of the userland unless $IBNET_LAB_SUITE
// names another ("trixie").
const Suite = "bookworm"

// suite is the release of the userland.
func suite() string { return cmp.Or(os.Getenv("IBNET_LAB_SUITE"), Suite) }

// Packages is the userland of the guests: the InfiniBand tools, the network
// managers that are compared with ours, and what a person wants at a prompt.
var Packages = []string{
	"systemd", "systemd-sysv", "systemd-resolved", "libpam-systemd", "dbus", "udev", "kmod", "procps", "polkitd",
	"iproute2", "iputils-ping", "ethtool", "tcpdump", "iperf3", "strace", "less", "bash-completion",
	"rdma-core", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "infiniband-diags", "opensm", "ibutils",
	"network-manager", "ifupdown", "isc-dhcp-client",
}

// recipe changes whenever the folder must be rebuilt although the package
// list is the same.
const recipe = "2"

// Rootfs makes the Debian userland and returns its folder.  Nothing may write
// to it afterwards: guests see it through an overlay.
func (b *Builder) Rootfs(ctx context.Context) (string, error) {
	pkgs := append([]string{}, Packages...)
	slices.Sort(pkgs)
	suite := suite()
	dir := filepath.Join(b.Cache, "rootfs", suite+"-"+key("rootfs", suite, recipe, strings.Join(pkgs, ",")))
	err := b.once(ctx, "Debian userland", dir, func(tmp string) error {
		if err := b.need(ctx, map[string]string{"mmdebstrap": "mmdebstrap"}); err != nil {
			return err
		}
		b.say("Debian userland: %d packages and what they need, about two minutes", len(pkgs))
		mode := "root"
		if os.Geteuid() != 0 {
			mode = "unshare"
		}
		log := filepath.Join(b.Cache, "rootfs.log")
		os.Remove(log)
		s := step{what: "Debian userland", log: log}
		if err := b.run(ctx, s, "mmdebstrap", "--variant=minbase", "--mode="+mode,
			`--aptopt=APT::Install-Recommends "false"`,
			`--dpkgopt=path-exclude=/usr/share/doc/*`, `--dpkgopt=path-exclude=/usr/share/locale/*`,
			"--include="+strings.Join(pkgs, ","),
			"--customize-hook=chroot \"$1\" passwd -d root",
			suite, tmp); err != nil {
			return fmt.Errorf("%w: %w", ErrUnavailable, err) // mostly the mirror
		}
		return prepareRootfs(tmp)
	})
	if err != nil {
		return "", err
	}
	return dir, nil
}

// prepareRootfs makes the differences between a machine and a guest: the
// services that would touch the links stay off until a scenario starts them.
func prepareRootfs(root string) error {
	for _, f := range []struct{ path, text string }{
		{"etc/hostname", "lab\n"},
		{"etc/hosts", "127.0.0.1 localhost lab\n::1 localhost\n"},
		{"etc/machine-id", "b08dfa6083e7567a1921a715000001fb\n"},
		{"etc/fstab", ""},
		{"etc/systemd/system-preset/00-lab.preset", "disable *\n"},
	} {
		p := filepath.Join(root, f.path)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(f.text), 0o644); err != nil {
			return err
		}
	}
	for _, unit := range []string{
		"NetworkManager.service", "NetworkManager-wait-online.service", "NetworkManager-dispatcher.service",
		"networking.service", "systemd-networkd.service", "systemd-networkd.socket", "opensm.service",
		"systemd-networkd-wait-online.service", "systemd-timesyncd.service", "apt-daily.timer",
		"apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
		"fstrim.timer", "getty@.service", "iwpmd.service", "wpa_supplicant.service", "systemd-resolved.service",
	} {
		for _, wants := range []string{"multi-user.target.wants", "network-online.target.wants", "sockets.target.wants",
			"sysinit.target.wants", "timers.target.wants", "default.target.wants"} {
			os.Remove(filepath.Join(root, "etc/systemd/system", wants, unit))
		}
	}
	os.Remove(filepath.Join(root, "etc/systemd/system/getty.target.wants/getty@tty1.service"))
	return nil
}
