package scenario

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A bond whose slaves have RDMA devices of their own: the device of the active
// slave serves the bond, by the bond's addresses, also after a failover.
func TestBondOfRoCE(t *testing.T) {
	t.Parallel()
	withAndWithoutUdev(t, lab.Config{Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-bond.ibnetwork":  "[Match]\nName=bond0\n[RoCE]\nVersion=2\nDSCP=26\nPFC=3\n[Network]\nAddress=10.8.0.1/24\n",
		unitDir + "20-vlan.ibnetwork":  "[Match]\nName=bond0.7\n[Network]\nAddress=10.8.7.1/24\n",
		unitDir + "30-slave.ibnetwork": "[Match]\nName=v1 v3\n[RoCE]\nVersion=1\n",
	}}, func(g *lab.G) {
		g.Sh(`ip link add v1 type veth peer name v2; ip link add v3 type veth peer name v4; ip link set v2 up; ip link set v4 up
			test -e /sys/class/net/bond0 || ip link add bond0 type bond; echo active-backup > /sys/class/net/bond0/bonding/mode
			echo 50 > /sys/class/net/bond0/bonding/miimon
			ip link set v1 master bond0; ip link set v3 master bond0; ip link set bond0 up
			ip link add link bond0 name bond0.7 type vlan id 7; echo v1 > /sys/class/net/bond0/bonding/active_slave`)
		d := startDaemon(g)
		a := attr(d.wait("bond0", "without a device", 20*time.Second,
			func(s link.Status) bool { return attr(s, "Version").Why.Text != "" }), "Version")
		if !strings.Contains(a.Why.Text, "none of the slaves of bond0 (v1 v3)") {
			g.Errorf("without a device: %+v", a.Why)
		}
		g.Exec("rdma", "link", "add", "mlx5_bond_0", "type", "rxe", "netdev", "v1")
		g.Exec("rdma", "link", "add", "second_0", "type", "rxe", "netdev", "v3")
		serves := func(dev string) func() string {
			return func() string {
				s := d.status("bond0")
				b, _ := os.ReadFile("/run/ibnetworkd/links/bond0.env")
				v, _ := os.ReadFile("/run/ibnetworkd/links/bond0.7.env")
				for _, x := range []struct {
					text []byte
					addr string
				}{{b, "0a08:0001"}, {v, "0a08:0701"}} {
					if err := rightIndex(string(x.text), dev, 1, x.addr); err != nil {
						return fmt.Sprintf("%v\n%s\n%+v\n%s", err, x.text, s, tail(d.p.Output(), 5))
					}
				}
				for name, want := range map[string]string{"RDMADevice": dev + "/1", "Version": "2", "TypeOfService": "104 (DSCP 26)"} {
					if a := attr(s, name); a.Actual != want || !a.OK() {
						return fmt.Sprintf("%s: %+v", name, a)
					}
				}
				if s.State != link.StateConfigured || attr(s, "GIDIndexIPv4").Actual == "" {
					return fmt.Sprintf("%+v", s)
				}
				return ""
			}
		}
		g.WaitFor(20*time.Second, serves("mlx5_bond_0"))
		if a := attr(d.status("bond0"), "DCB"); !strings.Contains(a.Why.Text, "settings of its slaves (v1 v3)") {
			g.Errorf("DCB of a bond: %+v", a)
		}
		for _, name := range []string{"v1", "v3"} {
			if a := attr(d.status(name), "Version"); !strings.Contains(a.Why.Text, name+" is a slave of bond0") ||
				!strings.Contains(a.Why.Next, "unit of bond0") {
				g.Errorf("the slave %s: %+v", name, a)
			}
			if _, err := os.Stat("/run/ibnetworkd/links/" + name + ".env"); err == nil {
				g.Errorf("the slave %s has an environment file", name)
			}
		}
		g.Exec("ip", "link", "set", "v2", "down")
		g.WaitFor(20*time.Second, serves("second_0"))
		g.Exec("ip", "link", "set", "v2", "up")
		g.Wait("the bond to use v1 again", 10*time.Second,
			func() bool { return g.TryWrite("/sys/class/net/bond0/bonding/active_slave", "v1") == nil })
		g.WaitFor(20*time.Second, serves("mlx5_bond_0"))
		if out := g.Exec("ibnetctl", "--no-bus", "status", "bond0", "v1", "v3"); strings.Contains(out, "SoftRoCE") {
			g.Errorf("soft RoCE is advised beside a device:\n%s", out)
		}
	})
}

// RoCE LAG as mlx5 does it: the two ports of a card have one device while they are
// in a bond, whose interface is the active slave; the devices of the ports are
// gone meanwhile.
func TestRoCELAG(t *testing.T) {
	t.Parallel()
	withAndWithoutUdev(t, lab.Config{HCAs: 2, Bins: []string{ibnetworkd, ibnetctl}, Commands: []string{
		"type h0/1 eth", "type h1/1 eth", "driver h0 mlx5_core", "driver h1 mlx5_core", "lag h0 h1",
	}, Files: map[string]string{
		unitDir + "10-bond.ibnetwork":  "[Match]\nName=bond0\n[RoCE]\nVersion=2\nDSCP=26\n[Network]\nAddress=10.8.0.1/24\n",
		unitDir + "20-slave.ibnetwork": "[Match]\nDriver=mlx5_core\n[RoCE]\nPFC=3\nDSCPToPriority=26:3\n",
	}}, func(g *lab.G) {
		devices := func() string { return strings.Join(strings.Fields(g.Exec("ls", "/sys/class/infiniband")), " ") }
		g.Wait("a device for each port", 20*time.Second, func() bool { return devices() == "swib0 swib1" })
		d := startDaemon(g)
		g.Sh(`ip link set eth0 down; ip link set eth1 down; test -e /sys/class/net/bond0 || ip link add bond0 type bond
			echo active-backup > /sys/class/net/bond0/bonding/mode
			echo 50 > /sys/class/net/bond0/bonding/miimon
			ip link set eth0 master bond0; ip link set eth1 master bond0; ip link set bond0 up; echo eth0 > /sys/class/net/bond0/bonding/primary`)
		serves := func(slave string) func() string {
			return func() string {
				if devices() != "swib_bond_0" {
					return "the devices are " + devices()
				}
				if out := g.Exec("rdma", "link"); !strings.Contains(out, "netdev "+slave+" ") {
					return "the device is not on " + slave + ": " + out
				}
				s := d.status("bond0")
				b, _ := os.ReadFile("/run/ibnetworkd/links/bond0.env")
				if err := rightIndex(string(b), "swib_bond_0", 1, "0a08:0001"); err != nil {
					return fmt.Sprintf("%v\n%s\n%+v\n%s", err, b, s, tail(d.p.Output(), 8))
				}
				for name, want := range map[string]string{"RDMADevice": "swib_bond_0/1", "Version": "2", "TypeOfService": "104 (DSCP 26)"} {
					if a := attr(s, name); a.Actual != want || !a.OK() {
						return fmt.Sprintf("%s: %+v", name, a)
					}
				}
				for _, name := range []string{"eth0", "eth1"} {
					if a := attr(d.status(name), "PFC"); a.Actual != "3" || !a.OK() {
						return fmt.Sprintf("PFC of %s: %+v", name, a)
					}
				}
				if s.State != link.StateConfigured {
					return fmt.Sprintf("%+v", s)
				}
				return ""
			}
		}
		g.WaitFor(20*time.Second, serves("eth0"))
		g.Ctl("link h0/1 down")
		g.WaitFor(20*time.Second, serves("eth1"))
		g.Ctl("link h0/1 up")
		g.WaitFor(20*time.Second, serves("eth0"))
		g.Sh("ip link set eth0 nomaster; ip link set eth1 nomaster")
		g.Wait("a device for each port again", 20*time.Second, func() bool { return devices() == "swib0 swib1" })
	})
}

// RoCE LAG by [Bond]: the slaves are matched by addresses that they lose to the bond,
// which a VLAN on it has too; the RDMA side of both is followed, the driver's restart is
// survived, the mode is changed, and all is as before when the section goes.
func TestRoCELAGByUnit(t *testing.T) {
	t.Parallel()
	const (
		wide   = "[Match]\nMACAddress=02:53:57:49:00:01 02:53:57:49:01:01\nKind=!bond\n[RoCE]\nPFC=3\n"
		slaves = "[Match]\nPermanentMACAddress=02:53:57:49:00:01 02:53:57:49:01:01\n[RoCE]\nPFC=3\n"
		tag    = "[VLAN]\nId=7\nName=storage\n"
		cards  = "type h0/1 eth; type h1/1 eth; driver h0 mlx5_core; driver h1 mlx5_core; lag h0 h1"
	)
	withAndWithoutUdev(t, lab.Config{HCAs: 2, Commands: strings.Split(cards, "; "),
		Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
			unitDir + "10-bond.ibnetwork":  "[Match]\nName=bond7\n[RoCE]\nVersion=2\nDSCP=26\n[Network]\nAddress=10.8.0.1/24\n" + tag,
			unitDir + "20-slave.ibnetwork": wide + "[Bond]\nName=bond7\nUpDelaySec=35ms\n",
			unitDir + "30-vlan.ibnetwork":  "[Match]\nName=storage\n[Network]\nAddress=10.8.7.1/24\n",
			// udevd gives the bond an address of its own if it comes before the first slave.
			unitDir + "05-bond.link": "[Match]\nOriginalName=bond7\n[Link]\nMACAddressPolicy=none\n",
		}}, func(g *lab.G) {
		d := startDaemon(g)
		devices := func() string { return strings.Join(strings.Fields(g.Exec("ls", "/sys/class/infiniband")), " ") }
		card := func(nic string) string { // the adapter's number: its device is mlx5_core.N
			dev, _ := os.Readlink("/sys/class/net/" + nic + "/device")
			return dev[strings.LastIndexByte(dev, '.')+1:]
		}
		env := func(name, gid string) string {
			s := d.status(name)
			b, _ := os.ReadFile("/run/ibnetworkd/links/" + name + ".env")
			if err := rightIndex(string(b), "swib_bond_0", 1, gid); err != nil {
				return fmt.Sprintf("%v\n%s\n%+v", err, b, s)
			}
			if s.State != link.StateConfigured {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		}
		vlan := func() string { return env("storage", "0a08:0701") }
		serves := func(mode string) func() string {
			return func() string {
				if got := devices(); got != "swib_bond_0" {
					return "the devices are " + got + "\n" + tail(d.p.Output(), 8)
				}
				if why := env("bond7", "0a08:0001"); why != "" {
					return why
				}
				if a := attr(d.status("bond7"), "RDMADevice"); a.Actual != "swib_bond_0/1" {
					return fmt.Sprintf("%+v", a)
				}
				got, _ := os.ReadFile("/sys/class/net/bond7/bonding/mode")
				in, _ := os.ReadFile("/sys/class/net/bond7/bonding/slaves")
				if !strings.HasPrefix(string(got), mode+" ") || len(strings.Fields(string(in))) != 2 {
					return fmt.Sprintf("mode %s, slaves %s", got, in)
				}
				return ""
			}
		}
		g.WaitFor(60*time.Second, serves("active-backup"))
		if up := strings.TrimSpace(g.Read("/sys/class/net/bond7/bonding/updelay")); up != "30" {
			g.Errorf("updelay %s, want 35 rounded down to a multiple of 10", up)
		}

		// The VLAN gets the unit of the slaves, and is never taken down for it.
		g.WaitFor(20*time.Second, func() string {
			if a := attr(d.status("storage"), "Bond"); !strings.Contains(a.Why.Text, "storage is on bond7") {
				return fmt.Sprintf("%+v", a)
			}
			return ""
		})
		changes := g.Read("/sys/class/net/storage/carrier_changes")
		time.Sleep(3 * time.Second)
		if now := g.Read("/sys/class/net/storage/carrier_changes"); now != changes || strings.Contains(d.p.Output(), "ip link set storage down") {
			g.Errorf("storage had %s changes of its carrier and has %s\n%s", changes, now, tail(d.p.Output(), 20))
		}
		g.Write(unitDir+"20-slave.ibnetwork", slaves+"[Bond]\nName=bond7\nUpDelaySec=35ms\n")
		g.WaitFor(20*time.Second, vlan)
		active := func() string { return strings.TrimSpace(g.Read("/sys/class/net/bond7/bonding/active_slave")) }
		first := active()
		down := card(first)
		g.Ctl("link h%s/1 down", down)
		g.WaitFor(20*time.Second, func() string {
			if now := active(); now == first || now == "" || !strings.Contains(g.Exec("rdma", "link"), "netdev "+now+" ") {
				return "active slave " + now + "\n" + g.Exec("rdma", "link")
			}
			return serves("active-backup")()
		})
		g.Ctl("link h%s/1 up", down)

		// The driver is restarted.
		g.Ctl("del 0")
		g.Ctl("del 1")
		g.Ctl("add 0")
		g.Ctl("add 1")
		for _, c := range strings.Split(cards, "; ") {
			g.Ctl("%s", c)
		}
		begin := time.Now()
		g.WaitFor(60*time.Second, serves("active-backup"))
		g.WaitFor(20*time.Second, vlan)
		g.Logf("whole again %v after a restart of the driver", time.Since(begin).Round(time.Millisecond))

		// Another mode, whose switch does not take part.
		g.Write(unitDir+"20-slave.ibnetwork", slaves+"[Bond]\nName=bond7\nMode=802.3ad\nLACPTransmitRate=fast\n")
		g.WaitFor(60*time.Second, serves("802.3ad"))
		g.WaitFor(20*time.Second, vlan)
		if rate := g.Read("/sys/class/net/bond7/bonding/lacp_rate"); !strings.HasPrefix(rate, "fast") {
			g.Errorf("lacp_rate %s", rate)
		}
		g.WaitFor(30*time.Second, func() string {
			if a := attr(d.status("bond7"), "LACPPartner"); !strings.Contains(a.Why.Text, "no switch answers LACP on the slaves of bond7") {
				return fmt.Sprintf("%+v", a)
			}
			return ""
		})
		g.Write(unitDir+"20-slave.ibnetwork", slaves)
		g.WaitFor(60*time.Second, func() string {
			if got := devices(); got != "swib0 swib1" {
				return "the devices are " + got
			}
			if _, err := os.Stat("/sys/class/net/bond7"); err == nil {
				return "bond7 exists"
			}
			return ""
		})
	})
}
