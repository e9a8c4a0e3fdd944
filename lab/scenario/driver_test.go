package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// examples is where exampleFiles puts the examples of the documentation.
const examples = "/usr/share/examples/"

func exampleFiles(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	if lab.InGuest() {
		return out
	}
	files, err := filepath.Glob("../../docs/examples/*")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, f := range files {
		b := testkit.ReadFile(t, f)
		out[examples+filepath.Base(f)] = string(b)
	}
	return out
}

// withAndWithoutUdev runs a scenario where nothing but the test runs, and where udevd
// initialises links first, gives them properties and another driver's name.
func withAndWithoutUdev(t *testing.T, c lab.Config, body func(*lab.G)) {
	for _, u := range []lab.Userland{lab.Debian, lab.Systemd} {
		t.Run(u.String(), func(t *testing.T) {
			c.Userland = u
			lab.Run(t, c, body)
		})
	}
}

// The examples of the documentation, each alone on a host with udevd and cards
// of mlx5 and mlx4, and what [Match] Driver= means there: udev's word for the
// interface and the driver of the card.
func TestExamplesUnderUdev(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{HCAs: 3, Ports: 2, PKeys: 32,
		Commands: []string{"driver h0 mlx5_core", "driver h1 mlx4_core", "type h1/1 eth", "type h2/1 eth", "type h2/2 eth"},
		Files:    exampleFiles(t)}, nil)
	c.Files["/etc/hostname"] = "node17\n" // the number in derived addresses, the line in the table
	c.Units = []string{"ibnetworkd.service"}
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.SM(lab.SM{Partitions: "Default=0x7fff,ipoib:ALL=full;\nStorage=0x1,ipoib:ALL=full;\nCompute=0x2,ipoib:ALL=full;\n", NoWait: true})
		g.WaitPort("swib0", 1, "ACTIVE", time.Minute)
		on := func(dev string, port int) (name string) {
			g.Wait("the link of "+dev, 20*time.Second, func() bool {
				for _, l := range describe(g).Links {
					if l.IBDevice == dev && l.Port == port && l.Kind != "vlan" && !strings.Contains(l.Name, ".") {
						name = l.Name
					}
				}
				return name != ""
			})
			return name
		}
		ib, second, eth, other := on("swib0", 1), on("swib0", 2), on("swib1", 1), on("swib1", 2)
		for name, want := range map[string]string{ib: "ib_ipoib", eth: "mlx4_en"} {
			g.WaitFor(20*time.Second, func() string {
				out, _ := g.Try("udevadm", "info", "-q", "property", "/sys/class/net/"+name)
				if !strings.Contains(out, "ID_NET_DRIVER="+want+"\n") {
					return "udev's driver of " + name + " is not " + want + ":\n" + out
				}
				return ""
			})
		}
		// The modules of InfiniBand are for devices that have such a port.
		for dev, want := range map[string]bool{"swib0": true, "swib1": true, "swib2": false} {
			g.WaitFor(20*time.Second, func() string {
				out, _ := g.Try("udevadm", "info", "-q", "property", "/sys/class/infiniband/"+dev)
				if !strings.Contains(out, "DEVPATH=") || strings.Contains(out, "modprobe@ib_ipoib.service") != want {
					return fmt.Sprintf("%s, ib_ipoib wanted %v:\n%s", dev, want, out)
				}
				return ""
			})
		}
		// use makes units the only ones; link states are waited for by name.
		use := func(texts map[string]string, check func() string) {
			g.Helper()
			old, _ := filepath.Glob(unitDir + "*.ibnetwork")
			for _, f := range old {
				testkit.NoError(g, os.Remove(f))
			}
			for name, text := range texts {
				g.Write(unitDir+name, text)
			}
			g.Exec("ibnetctl", "reload")
			g.WaitFor(20*time.Second, check)
		}
		state := func(name string) link.Status {
			for _, l := range describe(g).Links {
				if l.Name == name {
					return l
				}
			}
			return link.Status{}
		}
		has := func(name, addr string) func() string {
			return func() string {
				st := state(name)
				out, _ := g.Try("ip", "-o", "address", "show", "dev", name)
				if st.State != link.StateConfigured || !strings.Contains(out, addr) {
					return name + " is " + string(st.State) + " (" + st.Reason().Text + "), without " + addr + "\n" + out
				}
				return ""
			}
		}
		used := map[string]bool{}
		example := func(name string, replace ...string) map[string]string {
			used[examples+name] = true
			return map[string]string{name: strings.NewReplacer(replace...).Replace(g.Read(examples + name))}
		}
		use(example("10-back-to-back.ibnetwork", "Name=ib0", "Name="+ib), has(ib, "192.168.151.1/24"))
		use(example("20-cluster-node.ibnetwork"), has(ib, "10.20.0.17/16"))
		// The host part is that of the Ethernet link, the network that of the rail.
		rail := strings.TrimLeft(ib, "abcdefghijklmnopqrstuvwxyz")
		n, err := strconv.Atoi(rail)
		if err != nil {
			g.Fatalf("the link %s has no number", ib)
		}
		g.Sh("ip link add eno1 type dummy && ip address add 192.168.5.17/16 dev eno1 && ip link set eno1 up")
		use(example("21-every-node.ibnetwork", "Name=ib0 ib1", "Name="+ib), has(ib, fmt.Sprintf("10.%d.5.17/16", n+3)))
		// No DHCP server answers here.
		for _, name := range []string{"22-dhcp.ibnetwork", "23-dhcpv6.ibnetwork"} {
			use(example(name, "Name=ib0", "Name="+ib), func() string {
				if st := state(ib); st.Reason().Code != link.CodeNoLease {
					return ib + " is " + string(st.State) + " (" + st.Reason().Text + ")"
				}
				return ""
			})
		}
		use(example("30-by-guid.ibnetwork", "0x0002c903000abcdf", g.PortGUID("swib0", 2)), has(second, "10.40.0.1/24"))
		partitions := example("40-partitions.ibnetwork", "Name=ib0", "Name="+ib)
		partitions["41-storage.ibnetwork"] = example("41-storage.ibnetwork")["41-storage.ibnetwork"]
		use(partitions, has("storage", "10.50.1.1/24"))
		if out := g.Exec("ip", "-d", "link", "show", "storage"); !strings.Contains(out, "mode connected") || mtu(g, "storage") != "65520" {
			g.Errorf("storage: %s", out)
		}
		use(example("50-plugin.ibnetwork"), func() string {
			if mode(g, ib) != "connected" || mtu(g, ib) != "65520" {
				return ib + " is " + mode(g, ib) + ", mtu " + mtu(g, ib)
			}
			return ""
		})
		use(example("60-roce.ibnetwork", "ens1f0np0", eth), func() string {
			out, _ := g.Try("ip", "-o", "address", "show", "dev", eth)
			st := state(eth)
			if !strings.Contains(out, "10.60.0.1/24") || attr(st, "PFC").Actual != "3" {
				return st.Reason().Text + "\n" + out
			}
			return ""
		})
		trials{g: g, ib: ib, second: second, rail: n, use: use, example: example, has: has, state: state}.run(eth)
		all, _ := filepath.Glob(examples + "*")
		for _, f := range all {
			if !used[f] {
				g.Errorf("%s is not tried", f)
			}
		}
		// Either word matches, and either excludes.
		for _, tt := range []struct{ match, name, addr string }{
			{"Driver=mlx5_core\nPort=2", second, "10.9.0.1/24"},
			{"Driver=ib_ipoib\nName=" + second, second, "10.9.1.1/24"},
			{"Driver=mlx4_en", eth, "10.9.2.1/24"},
			{"Driver=mlx4_core\nLinkLayer=Ethernet", eth, "10.9.3.1/24"},
			{"Driver=mlx4_core\nDriver=!mlx4_en", other, "10.9.4.1/24"},
			{"Driver=mlx*_core\nDriver=!mlx5_core\nDriver=!mlx4_en", other, "10.9.5.1/24"},
		} {
			use(map[string]string{"10-x.ibnetwork": "[Match]\n" + tt.match + "\n[Network]\nAddress=" + tt.addr +
				"\nConfigureWithoutCarrier=yes\n"}, func() string {
				out, _ := g.Try("ip", "-o", "address", "show", "dev", tt.name)
				if !strings.Contains(out, tt.addr) {
					return tt.match + " does not match " + tt.name + ": " + g.Exec("ibnetctl", "status", tt.name)
				}
				return ""
			})
			if all := g.Exec("ip", "-o", "-4", "address"); strings.Count(all, tt.addr) != 1 {
				g.Errorf("%s matches more than %s:\n%s", tt.match, tt.name, all)
			}
		}
	})
}
