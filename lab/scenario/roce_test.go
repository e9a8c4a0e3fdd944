package scenario

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

const roceUnit = `[Match]
IBDevice=swib0
Port=1
[Port]
Type=eth
NodeDescription=%H %d
[RoCE]
Version=2
DSCP=26
Priority=3
PFC=3
ETS=0:40 3:60
[Network]
Address=10.7.1.1/24
`

// dcbHas returns what iproute2's dcb does not show, "" if it shows all.
func dcbHas(g *lab.G, dev, what string, words ...string) string {
	out, err := g.Try("dcb", what, "show", "dev", dev)
	if err != nil {
		return out
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			return fmt.Sprintf("dcb %s show dev %s has no %q:\n%s", what, dev, w, out)
		}
	}
	return ""
}

// A two-port card: port 1 becomes Ethernet, port 2 stays InfiniBand. One unit
// each, from cold, and again after the driver was rebound.
func TestCardOfTwoKinds(t *testing.T) {
	reports(t)
	withAndWithoutUdev(t, lab.Config{HCAs: 2, Ports: 2, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-eth.ibnetwork": roceUnit,
		unitDir + "20-ib.ibnetwork":  "[Match]\nIBDevice=swib0\nPort=2\n[IPoIB]\nMode=connected\n[Network]\nAddress=10.7.2.1/24\n",
	}}, func(g *lab.G) {
		// Under udevd it starts with a device, and the node description is left to it.
		_, _ = g.Try("systemctl", "mask", "--now", "rdma-ndd.service")
		// Not on the adapter that goes and comes.
		g.SM(lab.SM{Dev: "swib1", NoWait: true})
		d := startDaemon(g)
		former := 0 // the interface before the driver's restart, which a report may still tell of
		check := func() {
			g.Helper()
			var eth string
			g.WaitFor(20*time.Second, func() string {
				for _, s := range d.report().Links {
					if s.IBDevice == "swib0" && s.Port == 1 && s.Ifindex != former && s.State == link.StateConfigured && s.Carrier &&
						attr(s, "PFC").OK() && attr(s, "PFC").Wanted == "3" && attr(s, "GIDIndexIPv4").Actual != "" {
						eth, former = s.Name, s.Ifindex
						return ""
					}
				}
				return "the Ethernet port is not configured:\n" + tail(d.p.Output(), 30)
			})
			st := d.status(eth)
			for name, want := range map[string]string{"Type": "eth", "Version": "2", "TypeOfService": "104 (DSCP 26)", "PFC": "3",
				"DSCPToPriority": "26:3", "NodeDescription": ""} {
				a := attr(st, name)
				if !a.OK() || want != "" && a.Actual != want {
					g.Errorf("%s: %+v", name, a)
				}
			}
			for what, words := range map[string][]string{"pfc": {"3:on", "4:off"}, "app": {"AF31:3"}, "ets": {"0:40", "3:60"}, "dcbx": {"host"}} {
				g.WaitFor(10*time.Second, func() string { return dcbHas(g, eth, what, words...) })
			}
			if s := g.Read("/sys/class/infiniband/swib0/node_desc"); !strings.HasSuffix(strings.TrimSpace(s), " swib0") {
				g.Errorf("node description %q", s)
			}
			// The file says the index that the table has.
			g.WaitFor(5*time.Second, func() string {
				b, _ := os.ReadFile("/run/ibnetworkd/links/" + eth + ".env")
				if err := rightIndex(string(b), "swib0", 1, "0a07:0101"); err != nil {
					return err.Error()
				}
				return ""
			})
			var ib string
			g.Wait("the link of port 2", 10*time.Second, func() bool {
				for _, s := range d.report().Links {
					if s.IBDevice == "swib0" && s.Port == 2 {
						ib = s.Name
					}
				}
				return ib != ""
			})
			d.configured(ib, 20*time.Second)
			if m := mode(g, ib); m != "connected" {
				g.Errorf("%s is in mode %s", ib, m)
			}
		}
		check()
		out := g.Exec("ibnetctl", "plan")
		if strings.Contains(out, "dcb ") || strings.Contains(out, "devlink ") {
			g.Errorf("something is left to plan:\n%s", out)
		}
		giveReport(g, "two-kinds")
		// The node description follows the host's name.
		g.Exec("hostname", "renamed")
		g.Wait("the new name", 10*time.Second, func() bool {
			return strings.TrimSpace(g.Read("/sys/class/infiniband/swib0/node_desc")) == "renamed swib0"
		})
		// A driver restart takes all of it away.
		restartDriver(g, "swib0")
		check()

		// Drift is corrected, and left to a program that does not give up.
		eth := ""
		for _, s := range d.report().Links {
			if s.IBDevice == "swib0" && s.Port == 1 {
				eth = s.Name
			}
		}
		// The first setting counts if this interface got it from us: it is not
		// our doing if it was there when the interface was first read.
		corrected := 0
		for fought := false; !fought; {
			// dcb takes the acknowledgement of its question for that of its change, and fails if a
			// second ended in between, as it numbers its messages by the second: what it sets is
			// set all the same, and if it is not, the corrections below have no end.
			_, _ = g.Try("dcb", "pfc", "set", "dev", eth, "prio-pfc", "3:off")
			g.WaitFor(10*time.Second, func() string {
				if st := d.status(eth); attr(st, "PFC").Why.Code == "changed-by-other" {
					fought = true
					g.Logf("%+v", attr(st, "PFC"))
					return ""
				}
				return dcbHas(g, eth, "pfc", "3:on")
			})
			if !fought {
				corrected++
			}
			if corrected > 4 {
				g.Fatalf("%d corrections and no end", corrected)
			}
		}
		if corrected < 3 {
			g.Errorf("given up after %d corrections", corrected)
		}
		if s := dcbHas(g, eth, "pfc", "3:off"); s != "" {
			g.Error(s)
		}
		g.Exec("ibnetctl", "plan") // the same planner, without the daemon's memory, must not fail
	})
}

// restartDriver takes the driver of an adapter away and gives it back: what was set on
// its ports and functions is forgotten.
func restartDriver(g *lab.G, dev string) {
	g.Helper()
	x, err := sysfs.New("/").IBDevice(dev)
	testkit.NoError(g, err)
	there := func() bool { _, err := os.Stat("/sys/class/infiniband/" + dev); return err == nil }
	g.Write("/sys/bus/platform/drivers/swib/unbind", x.Bus.Name)
	g.Wait("the device is gone", 5*time.Second, func() bool { return !there() })
	g.Write("/sys/bus/platform/drivers/swib/bind", x.Bus.Name)
	g.Wait("the device is back", 5*time.Second, there)
}

// rightIndex checks an environment file against the GID table.
func rightIndex(env, dev string, port int, suffix string) error {
	var index int
	found := false
	for line := range strings.Lines(env) {
		if n, err := fmt.Sscanf(line, "NCCL_IB_GID_INDEX=%d", &index); n == 1 && err == nil {
			found = true
		}
	}
	if !found {
		return errors.New("no index in\n" + env)
	}
	gids, err := sysfs.New("/").GIDs(dev, port)
	if err != nil {
		return err
	}
	for _, e := range gids {
		if e.Index == index {
			if e.Type != "RoCE v2" || !strings.HasSuffix(e.GID.String(), suffix) {
				return fmt.Errorf("index %d is %v of type %q", index, e.GID, e.Type)
			}
			return nil
		}
	}
	return fmt.Errorf("index %d is not in the table", index)
}

// VLANs on a RoCE link: what a unit says of them holds also when it is edited, a
// VLAN's own unit gives it an address, and the index of that address' GID, which is
// in the table of the port below, is published for the VLAN.
func TestVLANOfRoCE(t *testing.T) {
	t.Parallel()
	unit := func(vlan string) string {
		return "[Match]\nName=v1\n[SoftRoCE]\n[Network]\nAddress=10.8.0.1/24\n[VLAN]\nId=7\nName=storage\n" + vlan
	}
	withAndWithoutUdev(t, lab.Config{Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-a.ibnetwork": unit("MTUBytes=1400\nGVRP=yes\nEgressQOSMaps=3-3\n"),
		unitDir + "20-v.ibnetwork": "[Match]\nName=storage\n[Network]\nAddress=10.8.7.1/24\nAddress=fd00:7::1/64\n",
	}}, func(g *lab.G) {
		g.Exec("ip", "link", "add", "v1", "type", "veth", "peer", "name", "v2")
		g.Exec("ip", "link", "set", "v2", "up")
		d := startDaemon(g)
		vlan := func(words ...string) {
			g.Helper()
			g.WaitFor(15*time.Second, func() string {
				out, err := g.Try("ip", "-d", "link", "show", "dev", "storage")
				for _, w := range words {
					if no, not := strings.CutPrefix(w, "!"); err != nil || strings.Contains(out, no) == not {
						return fmt.Sprintf("storage is not %q: %v\n%s\n%s", w, err, out, tail(d.p.Output(), 10))
					}
				}
				if a := attr(d.status("v1"), "VLAN"); a.Wanted == "" || !a.OK() || a.Wanted != a.Actual {
					return fmt.Sprintf("the status says %+v", a)
				}
				return ""
			})
		}
		index := func() string {
			g.Helper()
			b, err := os.ReadFile("/run/ibnetworkd/links/storage.env")
			if err != nil {
				return err.Error()
			}
			if !strings.Contains(string(b), "IBNET_LINK=storage\n") || !strings.Contains(string(b), "NCCL_IB_HCA=\"=rxe_v1:1\"") {
				return string(b)
			}
			if err := rightIndex(string(b), "rxe_v1", 1, "0a08:0701"); err != nil {
				return err.Error()
			}
			gids, err := sysfs.New("/").GIDs("rxe_v1", 1)
			if err != nil {
				return err.Error()
			}
			s := d.status("storage")
			for _, e := range gids {
				want := map[string]string{"0000:0000:0000:0000:0000:ffff:0a08:0701": "GIDIndexIPv4",
					"fd00:0007:0000:0000:0000:0000:0000:0001": "GIDIndexIPv6"}[e.GID.String()]
				if want != "" && e.Type == "RoCE v2" && (e.Netdev != "storage" || attr(s, want).Actual != fmt.Sprint(e.Index)) {
					return fmt.Sprintf("the table has %+v, the status %+v", e, attr(s, want))
				}
			}
			return ""
		}
		vlan("id 7", "mtu 1400", "GVRP", "egress-qos-map { 3:3 }", "802.1Q")
		g.WaitFor(20*time.Second, index)
		g.WaitFor(5*time.Second, func() string {
			b, _ := os.ReadFile("/run/ibnetworkd/links/v1.env")
			if err := rightIndex(string(b), "rxe_v1", 1, "0a08:0001"); err != nil {
				return fmt.Sprintf("the parent's index is not its own address': %v\n%s", err, b)
			}
			return ""
		})

		// Flags and maps change in place, and are put right.
		before := g.Read("/sys/class/net/storage/ifindex")
		g.Write(unitDir+"10-a.ibnetwork", unit("GVRP=no\nReorderHeader=yes\nEgressQOSMaps=4-4 5-5\nIngressQOSMaps=6-2\n"))
		d.p.Signal(syscall.SIGHUP)
		vlan("!GVRP", "REORDER_HDR", "egress-qos-map { 4:4 5:5 }", "ingress-qos-map { 6:2 }")
		g.Exec("ip", "link", "set", "dev", "storage", "type", "vlan", "gvrp", "on", "egress-qos-map", "4:0", "3:1")
		d.p.Signal(syscall.SIGHUP)
		vlan("!GVRP", "egress-qos-map { 4:4 5:5 }")
		if now := g.Read("/sys/class/net/storage/ifindex"); now != before {
			g.Errorf("the interface was re-created for its flags")
		}
		// The address of the VLAN comes and goes, and its index with it.
		g.Exec("ip", "address", "del", "10.8.7.1/24", "dev", "storage")
		g.Wait("the address", 20*time.Second, func() bool {
			return strings.Contains(g.Exec("ip", "-4", "address", "show", "dev", "storage"), "10.8.7.1/24")
		})
		g.WaitFor(20*time.Second, index)

		// The tag is fixed for the life of the interface.
		g.Write(unitDir+"10-a.ibnetwork", unit("Protocol=802.1ad\n"))
		d.p.Signal(syscall.SIGHUP)
		vlan("802.1ad", "id 7")
		g.WaitFor(20*time.Second, index)

		// Under another name it comes at once: the former one goes first.
		g.Write(unitDir+"10-a.ibnetwork", strings.Replace(unit("Protocol=802.1ad\n"), "storage", "archive", 1))
		d.p.Signal(syscall.SIGHUP)
		g.WaitFor(10*time.Second, func() string {
			if links := g.Exec("ip", "-o", "link"); !strings.Contains(links, "archive@v1") || strings.Contains(links, "storage") {
				return links + tail(d.p.Output(), 10)
			}
			return ""
		})
		if strings.Contains(d.p.Output(), "there already") {
			g.Errorf("made before the former one was removed:\n%s", tail(d.p.Output(), 20))
		}

		// One that another program created is reported.
		g.Exec("ip", "link", "add", "link", "v1", "name", "theirs", "type", "vlan", "id", "9")
		g.Write(unitDir+"10-a.ibnetwork", unit("Protocol=802.1ad\n[VLAN]\nId=9\nName=theirs\nProtocol=802.1ad\n[VLAN]\nId=10\nName=v2\n"+
			"[VLAN]\nId=9\nName=other\n"))
		d.p.Signal(syscall.SIGHUP)
		said := map[string]bool{}
		d.wait("v1", "told of the VLANs that cannot be", 10*time.Second, func(s link.Status) bool {
			for _, a := range s.Attributes {
				if a.Name == "VLAN" && !a.OK() {
					said[a.Why.Text] = true
				}
			}
			return len(said) == 3
		})
		for text := range said {
			g.Log(text)
		}
		// Without its unit it goes, and its file.
		testkit.NoError(g, os.Remove(unitDir+"10-a.ibnetwork"))
		d.p.Signal(syscall.SIGHUP)
		g.WaitFor(10*time.Second, func() string {
			if _, err := os.Stat("/run/ibnetworkd/links/storage.env"); err == nil || strings.Contains(g.Exec("ip", "-o", "link"), "storage") {
				return "storage is there"
			}
			return ""
		})
		if !strings.Contains(g.Exec("ip", "-o", "link"), "theirs") {
			g.Error("a VLAN of somebody else is gone")
		}
	})
}

// rping pings from one address to the other. A server takes one client only, which may
// come before it listens or be given up on a busy machine: then both start again.
func rping(g *lab.G, to, from string, args ...string) {
	g.Helper()
	g.WaitFor(20*time.Second, func() string {
		server := g.Start("rping", append([]string{"-s", "-a", to}, args...)...)
		defer server.Kill()
		if out, err := g.Try("timeout", append([]string{"20", "rping", "-c", "-v", "-a", to, "-I", from}, args...)...); err != nil {
			return "rping: " + out
		}
		return ""
	})
}

// Two two-port cards of which port 1 is Ethernet and port 2 InfiniBand, one unit
// each, cold: RoCE between the cards' own Ethernet ports, with rping, and IPoIB
// between the others; and again after the driver was rebound. The RDMA of the
// Ethernet ports is soft RoCE, which programs can use.
func TestRPingBetweenCards(t *testing.T) {
	t.Parallel()
	eth := func(n int) string {
		peer := fmt.Sprintf("10.7.1.%d/32", 3-n)
		return fmt.Sprintf(`[Match]
IBDevice=swib%d
Port=1
[Port]
Type=eth
[SoftRoCE]
Name=rxe%d
[RoCE]
Version=2
DSCP=26
PFC=3
[Network]
Address=10.7.1.%d/24
IPv4AcceptLocal=yes
IPv4ReversePathFilter=no
[Route]
Destination=%s
Table=10%d
[RoutingPolicyRule]
To=%s
From=10.7.1.%d/32
IncomingInterface=lo
Table=10%d
Priority=10
[RoutingPolicyRule]
To=%s
OutgoingInterface=eth%d
Table=10%d
Priority=11
`, n-1, n, n, peer, n, peer, n, n, peer, n-1, n)
	}
	ipoib := func(n int) string {
		return fmt.Sprintf("[Match]\nIBDevice=swib%d\nPort=2\n[IPoIB]\nMode=connected\n[Network]\nAddress=10.7.2.%d/24\n"+
			"IPv4AcceptLocal=yes\nIPv4ReversePathFilter=no\n"+
			"[Route]\nDestination=10.7.2.%d/32\nTable=20%d\n[RoutingPolicyRule]\nTo=10.7.2.%d/32\nFrom=10.7.2.%d/32\nIncomingInterface=lo\n"+
			"Table=20%d\nPriority=10\n", n-1, n, 3-n, n, 3-n, n, n)
	}
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3, Ports: 2, Swib: "roce=N", Bins: []string{ibnetworkd, ibnetctl},
		Files: map[string]string{
			unitDir + "10-eth1.ibnetwork": eth(1), unitDir + "10-eth2.ibnetwork": eth(2), unitDir + "20-ib1.ibnetwork": ipoib(1), unitDir +
				"20-ib2.ibnetwork": ipoib(2),
		}}, func(g *lab.G) {
		g.Opensm(lab.SM{Dev: "swib2", NoWait: true})
		// Both ends are in one kernel: what is local is asked for after our
		// rules, so that packets really leave by one card and come by the other.
		g.Sh("ip rule add pref 200 lookup local; ip rule del pref 0; sysctl -qw net.ipv4.conf.all.rp_filter=0")
		d := startDaemon(g)
		former := map[string]link.Status{} // of before the driver's restart, which a report may still tell of
		check := func() {
			g.Helper()
			links, names := map[string]link.Status{}, map[string]string{}
			g.WaitFor(30*time.Second, func() string {
				clear(links)
				clear(names)
				for _, s := range d.report().Links {
					if p := fmt.Sprintf("%s/%d", s.IBDevice, s.Port); s.State == link.StateConfigured && s.Carrier && s.Ifindex != former[p].Ifindex {
						links[p], names[p] = s, s.Name
					}
				}
				if names["swib0/1"] == "" || names["swib1/1"] == "" || names["swib0/2"] == "" || names["swib1/2"] == "" {
					return fmt.Sprintf("configured are %v\n%s", names, tail(d.p.Output(), 20))
				}
				for n, dev := range map[string]string{names["swib0/1"]: "rxe1", names["swib1/1"]: "rxe2"} {
					b, _ := os.ReadFile("/run/ibnetworkd/links/" + n + ".env")
					if err := rightIndex(string(b), dev, 1, "0a07:010"+dev[3:]); err != nil {
						return err.Error() + "\n" + tail(d.p.Output(), 10)
					}
				}
				return ""
			})
			former = links
			for _, p := range []string{"swib0/1", "swib1/1"} {
				for _, a := range []string{"Type", "SoftRoCE", "Version", "TypeOfService", "PFC"} {
					if x := attr(links[p], a); !x.OK() || x.Wanted != x.Actual {
						g.Errorf("%s: %+v", names[p], x)
					}
				}
			}
			count := func() (n int) {
				for _, p := range []string{"swib0/1", "swib1/1"} {
					var x int
					if _, err := fmt.Sscan(g.Read("/sys/class/net/"+names[p]+"/statistics/tx_bytes"), &x); err != nil {
						g.Fatal(err)
					}
					n += x
				}
				return n
			}
			before := count()
			rping(g, "10.7.1.2", "10.7.1.1", "-C", "20", "-S", "4000")
			if n := count() - before; n < 20*4000 {
				g.Errorf("rping moved %d bytes over the cards' ports, which is less than it says", n)
			} else {
				g.Logf("rping moved %d bytes from card to card", n)
			}
			if m := mode(g, names["swib0/2"]); m != "connected" {
				g.Errorf("%s is in mode %s", names["swib0/2"], m)
			}
			g.WaitFor(10*time.Second, func() string {
				if out, err := g.Try("ping", "-c", "1", "-W", "1", "-s", "60000", "-I", "10.7.2.1", "10.7.2.2"); err != nil {
					return "IPoIB: " + out
				}
				return ""
			})
		}
		check()
		for _, dev := range []string{"swib0", "swib1"} {
			restartDriver(g, dev)
		}
		check()
	})
}

// What Linux has had since 6.2 and 6.12: a table of what is trusted, and RDMA
// netlink that reports devices. Debian's own kernel, PCI adapters.
func TestTrustTable(t *testing.T) {
	t.Parallel()
	unit := func(trust string) string {
		return "[Match]\nIBDevice=swib0\n[Port]\nType=eth\n[RoCE]\nTrust=" + trust + "\nPFC=3\n[Network]\nAddress=10.7.3.1/24\n"
	}
	lab.Run(t, lab.Config{Machine: lab.QEMU, Series: "6.12", Userland: lab.Debian, Swib: "pci=1 apptrust=1",
		Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
			unitDir + "10-eth.ibnetwork": unit("dscp"),
		}}, func(g *lab.G) {
		rd, err := rdmanl.Dial()
		testkit.NoError(g, err)
		defer func() { _ = rd.Close() }()
		sys, err := rd.System()
		if err != nil || !sys.Monitor {
			g.Errorf("Linux 6.12 tells of RDMA devices, and this says %+v, %v", sys, err)
		}
		ev, err := rd.Listen(0)
		testkit.NoError(g, err)
		defer func() { _ = ev.Close() }()
		d := startDaemon(g)
		var eth string
		trusts := func(want string, order ...dcb.Selector) {
			g.Helper()
			g.WaitFor(60*time.Second, func() string {
				for _, s := range d.report().Links {
					if a := attr(s, "Trust"); s.IBDevice == "swib0" && s.State == link.StateConfigured && a.Wanted == want && a.Actual == want && a.OK() {
						eth = s.Name
						return ""
					}
				}
				return "nothing trusts " + want + ":\n" + tail(d.p.Output(), 20)
			})
			c, err := dcb.Dial()
			testkit.NoError(g, err)
			defer func() { _ = c.Close() }()
			st, err := c.Get(eth)
			if err != nil || !slices.Equal(st.Trust, order) {
				g.Errorf("the kernel has %v, %v, want %v", st.Trust, err, order)
			}
		}
		trusts("dscp", dcb.DSCP)
		g.Write(unitDir+"10-eth.ibnetwork", unit("pcp"))
		trusts("pcp", dcb.PCP)
		seen := 0
		if _, err := ev.Read(func(rdmanl.Event) { seen++ }); err != nil {
			g.Error(err)
		}
		// The change of the port's type took the device away and brought it back.
		if seen < 2 {
			g.Errorf("%d events of RDMA devices, want those of the two", seen)
		}
		g.Logf("%s trusts what its unit says; %d RDMA events", eth, seen)
	})
}
