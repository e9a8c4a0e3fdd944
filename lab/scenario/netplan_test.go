package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// What netplan made of its YAML, through systemd-networkd or NetworkManager,
// ibnetworkd makes of its import; and the GID index of a port is held beside them.
func TestImportLikeNetplan(t *testing.T) {
	t.Parallel()
	// second separates two files that netplan merges.
	const second = "---\n"
	const head = "network:\n  version: 2\n  renderer: "
	// instead is what must be there where netplan's backend does not do what the
	// file says: Debian 12's systemd-networkd has no [IPoIB] section
	// for links.
	cases := []struct{ name, instead, backend, yaml string }{
		{"connected", "mode connected, mtu 65520, addresses [10.0.0.1/24], routes \"\"", "systemd-networkd", head +
			"networkd\n  ethernets:\n    ib1:\n      infiniband-mode: connected\n      mtu: 65520\n      link-local: []\n      addresses: " +
			"[10.0.0.1/24]\n"},
		{"routes", "", "systemd-networkd", head + "networkd\n  ethernets:\n    ib1:\n      infiniband-mode: datagram\n      mtu: 2044\n " +
			"     link-local: []\n      addresses: [10.0.0.1/24, 10.7.0.1/16]\n" +
			"      routes:\n        - to: 10.9.0.0/16\n          via: 10.0.0.9\n          metric: 50\n        - to: 10.8.0.0/16\n          " +
			"via: 10.7.0.9\n          table: 100\n"},
		{"gateway", "", "systemd-networkd", head + "networkd\n  ethernets:\n    fabric:\n      match: {name: ib1}\n      mtu: 1500\n    " +
			"  link-local: []\n      addresses:\n        - 10.0.0.1/24\n      routes:\n        - to: default\n          via: 10.0.0.254\n"},
		{"merged", "", "systemd-networkd", head + "networkd\n  ethernets:\n    ib1:\n      mtu: 2044\n      link-local: []\n      " +
			"addresses: [10.0.0.1/24]\n" + second +
			"network:\n  ethernets:\n    ib1:\n      mtu: 1500\n      addresses:\n        - 10.7.0.1/16: {label: \"ib1:x\"}\n      routes: " +
			"[{to: 10.9.0.0/16, via: 10.0.0.9, metric: 50}]\n"},
		{"by NetworkManager", "", "NetworkManager", head + "NetworkManager\n  ethernets:\n    ib1:\n      infiniband-mode: connected\n  " +
			"    mtu: 65520\n      link-local: []\n      addresses: [10.0.0.1/24]\n"},
	}
	c := lab.Config{Userland: lab.Systemd, HCAs: 2, Bins: []string{ibnetworkd, ibnetctl},
		Files: map[string]string{"/etc/NetworkManager/conf.d/lab.conf": "[main]\nno-auto-default=*\n"}}
	c.Bins = append(c.Bins, debs(t, netplanPackages...)...)
	lab.Run(t, c, func(g *lab.G) {
		unpack(g)
		manage(g, defaultPartition)
		fresh := func() {
			g.Helper()
			g.Ctl("del 1")
			g.Ctl("add 1")
			g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
		}
		state := func() string {
			return kernelState(g, "ib1") + ", table 100 " + g.Exec("sh", "-c", "ip -4 route show table 100 dev ib1 2>/dev/null || true")
		}
		const path, more = "/etc/netplan/10-fabric.yaml", "/etc/netplan/20-more.yaml"
		for _, x := range cases {
			g.Run(x.name, func(g *lab.G) {
				first, rest, merged := strings.Cut(x.yaml, second)
				paths := []string{path}
				g.Write(path, first)
				if merged {
					g.Write(more, rest)
					paths = append(paths, more)
				}
				g.Exec("chmod", append([]string{"600"}, paths...)...)
				g.Exec("/usr/libexec/netplan/generate")
				g.Exec("systemctl", "start", x.backend)
				// Mode, MTU and address come one after the other.
				theirs := ""
				same := unchanged(3*time.Second, func() string { theirs = state(); return theirs })
				g.Wait("netplan's state to be there", 60*time.Second, func() bool { return same() == "" && strings.Contains(theirs, "10.0.0.1/24") })
				_, _ = g.Try("systemctl", "stop", x.backend+".socket")
				g.Exec("systemctl", "stop", x.backend)
				if x.instead != "" {
					if out := g.Exec("journalctl", "--no-pager", "-o", "cat", "-u", x.backend); strings.Contains(out, "Unknown section 'IPoIB'") {
						g.Logf("netplan made %s: its backend does not know the mode", theirs)
						theirs = x.instead + ", table 100 "
					}
				}
				g.Sh("rm -rf /run/systemd/network/*netplan* /run/NetworkManager/system-connections/*netplan* /run/udev/rules.d/*netplan* "+
					"%s*.ibnetwork /run/ibnetworkd", unitDir)
				fresh()
				g.Log(g.Exec("ibnetctl", append([]string{"import", "--write"}, paths...)...))
				d := startDaemon(g)
				d.configured("ib1", 30*time.Second)
				if ours := state(); ours != theirs {
					g.Errorf("netplan made\n%s\nthe import makes\n%s", theirs, ours)
				} else {
					g.Logf("both: %s", ours)
				}
				d.kill()
				g.Exec("rm", paths...)
				g.Sh("rm -rf %s*.ibnetwork /run/ibnetworkd", unitDir)
				fresh()
			})
		}
		g.Run("GID index", func(g *lab.G) {
			b := newGIDBeside(g)
			defer b.end()
			b.netplan()
			b.networkManager("netplan-mgmt0")
		})
	})
}
