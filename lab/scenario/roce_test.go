package scenario

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/lab"
	"ibnetworkd/link"
	"ibnetworkd/roce"
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

// dcbHas says what iproute2's dcb does not show, "" if all is there.
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
// each, from cold, and again after the driver was bound anew.
func TestCardOfTwoKinds(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2, Ports: 2, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-eth.ibnetwork": roceUnit,
		unitDir + "20-ib.ibnetwork":  "[Match]\nIBDevice=swib0\nPort=2\n[IPoIB]\nMode=connected\n[Network]\nAddress=10.7.2.1/24\n",
	}}, func(g *lab.G) {
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
		// The node description follows the host's name.
		g.Exec("hostname", "renamed")
		g.Wait("the new name", 10*time.Second, func() bool {
			return strings.TrimSpace(g.Read("/sys/class/infiniband/swib0/node_desc")) == "renamed swib0"
		})
		// A driver restart takes all of it away.
		restartDriver(g, "swib0")
		check()

		// Drift is put right, and left to whoever does not give up.
		eth := ""
		for _, s := range d.report().Links {
			if s.IBDevice == "swib0" && s.Port == 1 {
				eth = s.Name
			}
		}
		// The first setting counts if this interface got it from us: it is not
		// our doing if it was there when the interface was first looked at.
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
	if err != nil {
		g.Fatal(err)
	}
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

// Soft RoCE on a laptop's link with one file, a VLAN beside it, rping over it,
// and the index right over flaps and reloads.
func TestSoftRoCE(t *testing.T) {
	t.Parallel()
	unit := func(n int) string {
		return fmt.Sprintf("[Match]\nName=v%d\n[SoftRoCE]\nDriver=rxe\n[RoCE]\nVersion=2\nDSCP=26\n[VLAN]\nId=7\nName=storage%d\n"+
			"[Network]\nAddress=10.8.0.%d/24\n", n, n, n)
	}
	policy, _ := os.ReadFile("../../dist/dbus/org.ibnetwork1.conf") // not there in the guest, where the file is
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-a.ibnetwork": unit(1), "/usr/share/dbus-1/system.d/org.ibnetwork1.conf": string(policy),
	}}, func(g *lab.G) {
		g.Sh("mkdir -p /run/dbus && dbus-daemon --system --fork")
		g.Exec("ip", "link", "add", "v1", "type", "veth", "peer", "name", "v2")
		g.Exec("ip", "link", "set", "v2", "up")
		d := startDaemon(g)
		st := d.wait("v1", "configured with its RDMA device", 20*time.Second, func(s link.Status) bool {
			return s.State == link.StateConfigured && attr(s, "SoftRoCE").OK() && attr(s, "SoftRoCE").Actual != "" &&
				attr(s, "GIDIndexIPv4").Actual != "" && attr(s, "Version").Actual == "2"
		})
		for _, name := range []string{"SoftRoCE", "VLAN", "TypeOfService"} {
			if a := attr(st, name); !a.OK() || a.Wanted == "" {
				g.Errorf("%s: %+v", name, a)
			}
		}
		if out := g.Exec("ip", "-d", "link", "show", "dev", "storage1"); !strings.Contains(out, "id 7") {
			g.Error(out)
		}
		if out := g.Exec("rdma", "link"); !strings.Contains(out, "rxe_v1/1") || !strings.Contains(out, "netdev v1") {
			g.Error(out)
		}
		env := func() string {
			b, _ := os.ReadFile("/run/ibnetworkd/links/v1.env")
			return string(b)
		}
		g.Wait("the index in the file", 5*time.Second, func() bool { return rightIndex(env(), "rxe_v1", 1, "0a08:0001") == nil })
		first := env()
		// Status and bus say the index that the file has.
		said := func() string {
			index := ""
			for line := range strings.Lines(env()) {
				if v, ok := strings.CutPrefix(line, "IBNET_GID_INDEX_IPV4="); ok {
					index = strings.TrimSpace(v)
				}
			}
			s := d.status("v1")
			if a := attr(s, "GIDIndexIPv4"); index == "" || a.Actual != index {
				return fmt.Sprintf("the file has the index %q, the status %+v", index, a)
			}
			out, err := g.Try("busctl", "get-property", "org.ibnetwork1", api.LinkPath(s.Ifindex), "org.ibnetwork1.Link", "Settings")
			if err != nil || !strings.Contains(out, fmt.Sprintf(`"GIDIndexIPv4" "" %q`, index)) {
				return fmt.Sprintf("the file has the index %q, the bus: %v\n%s", index, err, out)
			}
			return ""
		}
		g.WaitFor(20*time.Second, said)
		// The daemon's doings and those of others, as fast as requests go.
		c, err := rtnl.Dial()
		if err != nil {
			g.Fatal(err)
		}
		v1, err := c.LinkByName("v1", false)
		if err != nil {
			g.Fatal(err)
		}
		v2, err := c.LinkByName("v2", false)
		if err != nil {
			g.Fatal(err)
		}
		up := func(v bool) rtnl.Request { return rtnl.SetLink(v2.Index, rtnl.LinkChange{Up: &v}) }
		other := func(i int) rtnl.Address {
			return rtnl.Address{Index: v1.Index, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), 1}), 24)}
		}
		for i := range 100 {
			var r rtnl.Request
			switch i % 4 {
			case 0:
				r = up(false)
			case 1:
				r = rtnl.AddAddress(other(i))
			case 2:
				r = up(true)
			case 3:
				r = rtnl.DelAddress(other(i - 2))
			}
			if err := c.Do(r); err != nil {
				g.Fatal(err)
			}
			if i%25 == 0 {
				d.p.Signal(syscall.SIGHUP)
			}
			// Reading the table takes longer than the changes.
			if i%10 == 9 {
				if err := rightIndex(env(), "rxe_v1", 1, "0a08:0001"); err != nil {
					g.Fatalf("after change %d: %v", i+1, err)
				}
			}
		}
		g.WaitFor(10*time.Second, said)
		// 100 flaps of the cable, and as many times everything taken off by
		// somebody and put back by the unit.
		g.Exec("ip", "link", "set", "v2", "up")
		for i := range 100 {
			for _, v := range []bool{false, true} {
				if err := c.Do(up(v)); err != nil {
					g.Fatal(err)
				}
			}
			if i%10 == 0 {
				d.p.Signal(syscall.SIGHUP)
			}
			// Reading the table takes longer than a flap.
			if i%20 == 19 {
				if err := rightIndex(env(), "rxe_v1", 1, "0a08:0001"); err != nil {
					g.Fatalf("after flap %d: %v", i+1, err)
				}
			}
		}
		g.WaitFor(10*time.Second, said)
		if now := env(); now != first {
			g.Errorf("the file changed:\n%s\nwas\n%s", now, first)
		}
		// An address that is taken off and comes again may get another index:
		// what is published follows.
		for i := range 3 {
			g.Exec("ip", "address", "del", "10.8.0.1/24", "dev", "v1")
			if i%2 == 0 {
				g.Exec("ip", "address", "add", fmt.Sprintf("10.9.200.%d/24", i+1), "dev", "v1")
			}
			g.WaitFor(10*time.Second, func() string {
				// The old index is right until the kernel's work queue takes it off.
				if out := g.Exec("ip", "-4", "address", "show", "dev", "v1"); !strings.Contains(out, "10.8.0.1/24") {
					return "the address is not there again:\n" + out
				}
				if err := rightIndex(env(), "rxe_v1", 1, "0a08:0001"); err != nil {
					return err.Error()
				}
				return said()
			})
		}
		// rping over the link and its device, to itself.
		g.Exec("ip", "link", "set", "v2", "up")
		rping(g, "10.8.0.1", "10.8.0.1", "-C", "3")

		// What the unit made goes with it, also after a kill; what others made
		// stays.
		g.Exec("rdma", "link", "add", "foreign", "type", "siw", "netdev", "v2")
		g.Exec("ip", "link", "add", "link", "v1", "name", "foreign7", "type", "vlan", "id", "9")
		d.kill()
		d.start()
		d.configured("v1", 20*time.Second)
		if err := os.Remove(unitDir + "10-a.ibnetwork"); err != nil {
			g.Fatal(err)
		}
		d.p.Signal(syscall.SIGHUP)
		g.WaitFor(10*time.Second, func() string {
			// rdma fails if a device goes between its list and the look at it.
			devs, err := g.Try("rdma", "link")
			if err != nil {
				return err.Error()
			}
			links := g.Exec("ip", "-o", "link")
			if strings.Contains(devs, "rxe_v1") || strings.Contains(links, "storage1") {
				return "still there:\n" + devs + links + tail(d.p.Output(), 10)
			}
			if !strings.Contains(devs, "foreign") || !strings.Contains(links, "foreign7") {
				g.Fatalf("foreign things are gone:\n%s%s", devs, links)
			}
			return ""
		})
		g.Wait("the environment file is gone", 5*time.Second,
			func() bool { _, err := os.Stat("/run/ibnetworkd/links/v1.env"); return err != nil })
	})
}

// VLANs on a RoCE link: what a unit says of them holds also when it is edited, a
// VLAN's own unit gives it an address, and the index of that address' GID, which is
// in the table of the port below, is published for the VLAN.
func TestVLANOfRoCE(t *testing.T) {
	t.Parallel()
	unit := func(vlan string) string {
		return "[Match]\nName=v1\n[SoftRoCE]\n[Network]\nAddress=10.8.0.1/24\n[VLAN]\nId=7\nName=storage\n" + vlan
	}
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
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
			g.Errorf("the interface was made anew for its flags")
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

		// One that somebody else made is told of.
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
		if err := os.Remove(unitDir + "10-a.ibnetwork"); err != nil {
			g.Fatal(err)
		}
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

// Each key of [Port], [RoCE], [SoftRoCE] and [VirtualFunctions] as a user tries
// them, one unit after the other on one port: what is set is in the kernel, and
// what cannot be is told in a sentence.
func TestKeysOfRoCE(t *testing.T) {
	t.Parallel()
	const match = "[Match]\nIBDevice=swib0\nPort=1\n[Port]\nType=eth\n"
	type want struct{ key, actual, why string } // of a key that stands for several the text is a part
	lab.Run(t, lab.Config{Userland: lab.Debian, Ports: 2, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-eth.ibnetwork": match,
		unitDir + "20-ib.ibnetwork":  "[Match]\nIBDevice=swib0\nPort=2\n[SoftRoCE]\n[VLAN]\nId=7\n[RoCE]\nPFC=3\n",
	}}, func(g *lab.G) {
		d := startDaemon(g)
		eth, other := "", ""
		g.Wait("the Ethernet port", 20*time.Second, func() bool {
			for _, s := range d.report().Links {
				if s.IBDevice == "swib0" && s.Port == 1 && s.Kind == "ether" {
					eth = s.Name
				}
				if s.IBDevice == "swib0" && s.Port == 2 && s.Kind == "ipoib" {
					other = s.Name
				}
			}
			return eth != "" && other != ""
		})
		check := func(name, text string, wants []want, shows map[string][]string) {
			g.Helper()
			g.WaitFor(15*time.Second, func() string {
				st := d.status(name)
				for _, w := range wants {
					found := false
					var have []link.Attribute
					for _, a := range st.Attributes {
						if a.Name != w.key {
							continue
						}
						have = append(have, a)
						if w.why == "" && a.OK() && strings.Contains(a.Actual, w.actual) || w.why != "" && strings.Contains(a.Why.Text, w.why) &&
							a.Why.Next != "" {
							found = true
						}
					}
					if !found {
						return fmt.Sprintf("%s\nwith\n%s: %+v, want %+v\n%s", name, text, have, w, tail(d.p.Output(), 10))
					}
				}
				for what, words := range shows {
					if s := dcbHas(g, eth, what, words...); s != "" {
						return text + s
					}
				}
				return ""
			})
		}
		long := strings.Repeat("x", 70)
		for _, tt := range []struct {
			text  string
			wants []want
			shows map[string][]string
		}{
			{"NodeDescription=%H on %d %%\n", []want{{"NodeDescription", " on swib0 %", ""}, {"Type", "eth", ""}}, nil},
			{"NodeDescription=" + long + "\n", []want{{"NodeDescription", long[:64], ""}}, nil},
			{"[RoCE]\nVersion=2\nDSCP=26\n", []want{{"Version", "2", ""}, {"TypeOfService", "104 (DSCP 26)", ""}}, nil},
			{"[RoCE]\nVersion=1\nTypeOfService=106\nDSCP=3\n", []want{{"TypeOfService", "106 (DSCP 26)", ""}}, nil},
			{"[RoCE]\nPFC=3 5\n", []want{{"PFC", "3,5", ""}}, map[string][]string{"pfc": {"3:on", "4:off", "5:on"}}},
			{"[RoCE]\nPFC=0-7\n", []want{{"PFC", "0,1,2,3,4,5,6,7", ""}}, map[string][]string{"pfc": {"0:on", "7:on"}}},
			{"[RoCE]\nPFC=none\n", []want{{"PFC", "none", ""}}, map[string][]string{"pfc": {"3:off", "7:off"}}},
			{"[RoCE]\nETS=0:30% 3:70% 5:strict\nPriorityToClass=3:3 5:3\n", []want{{"ETS", "0:30", ""}},
				map[string][]string{"ets": {"0:30", "3:70", "5:strict", "prio-tc 0:0 1:0 2:0 3:3 4:0 5:3"}}},
			{"[RoCE]\nETS=1:10\n", []want{{"ETS", "", "would add up to 110, not 100"}}, nil},
			{"[RoCE]\nBufferSize=0:100000 1:50000\nPriorityToBuffer=3:1\n", []want{{"BufferSize", "1:50000", ""}},
				map[string][]string{"buffer": {"0:100000", "1:50000", "3:1"}}},
			{"[RoCE]\nBufferSize=0:1G\n", []want{{"BufferSize", "", "bytes, it has 262016"}}, nil},
			{"[RoCE]\nCableLength=5\n", []want{{"CableLength", "", "has no setting for the length of the cable"}}, nil},
			{"[RoCE]\nECN=3\n", []want{{"ECN", "", "has no files for ECN"}}, nil},
			{"[RoCE]\nDSCPToPriority=26:3 48:6\n", []want{{"DSCPToPriority", "26:3", ""}, {"DSCPToPriority", "48:6", ""}},
				map[string][]string{"app": {"AF31:3", "CS6:6"}}},
			{"[RoCE]\nPriority=5\nDSCP=26\nTrust=dscp\n", []want{{"DSCPToPriority", "26:5", ""}, {"Trust", "dscp", ""}},
				map[string][]string{"app": {"AF31:5", "CS6:6"}}},
			{"[RoCE]\nTrust=pcp\nPriority=5\nDSCP=26\n", []want{{"Trust", "", "exclude each other"}}, nil},
			{"[RoCE]\nTrust=pcp\n", []want{{"Trust", "pcp", ""}}, nil},
			{"[RoCE]\nTrust=dscp\n", []want{{"Trust", "dscp", ""}}, map[string][]string{"app": {"0:0"}}},
			{"[RoCE]\nPFC=3\nWriteModprobeFile=yes\n", []want{{"PFC", "3", ""}, {"WriteModprobeFile", "", "there is no module option"}}, nil},
			{"[SoftRoCE]\nDriver=siw\nName=iwarp0\n", []want{{"SoftRoCE", "siw iwarp0", ""}}, nil},
			{"[SoftRoCE]\nDriver=siw\nName=iwarp1\n", []want{{"SoftRoCE", "siw iwarp1", ""}}, nil},
			{"[SoftRoCE]\nDriver=rxe\nName=iwarp1\n", []want{{"SoftRoCE", "rxe iwarp1", ""}}, nil},
			{"[SoftRoCE]\nName=swib1\n", []want{{"SoftRoCE", "", "an RDMA device swib1 exists"}}, nil},
			{"[VirtualFunctions]\nCount=1\nAutoprobe=no\nNodeGUID=auto\n[VF]\nVirtualFunction=3\n",
				[]want{{"Count", "1", ""}, {"Autoprobe", "no", ""}, {"VF 0 NodeGUID", "", "no GUIDs"},
					{"VF 3", "", "has no virtual function 3, it has 1"}}, nil},
			{"[VirtualFunctions]\nCount=0\n", []want{{"Count", "0", ""}}, nil},
		} {
			g.Write(unitDir+"10-eth.ibnetwork", match+tt.text)
			d.p.Signal(syscall.SIGHUP)
			check(eth, tt.text, tt.wants, tt.shows)
		}
		check(other, "", []want{{"RoCE", "", "is an InfiniBand link: [RoCE]"}, {"SoftRoCE", "", "is an InfiniBand link: [SoftRoCE]"},
			{"VLAN", "", "is an InfiniBand link: [VLAN]"}}, nil)
		if out := g.Exec("rdma", "link"); strings.Contains(out, "iwarp") {
			g.Errorf("a soft device is left behind:\n%s", out)
		}
		// Values that cannot be: each is told with its place, and what is right
		// among them is done.
		bad := "[RoCE]\nVersion=3\nDSCP=64\nTypeOfService=256\nPriority=8\nPFC=3 8\nTrust=vlan\nETS=8:10 " +
			"0:110\nPriorityToClass=1:9\nDSCPToPriority=64:1 " +
			"1:8\nBufferSize=9:1\nPriorityToBuffer=0:8\nCableLength=0\nECN=x\n[SoftRoCE]\nDriver=x\n[VirtualFunctions]\nCount=-1\n" +
			"NodeGUID=1\n[VF]\nVirtualFunction=0\nMaxRate=x\nVLANId=5000\nMACAddress=1\n"
		g.Write(unitDir+"10-eth.ibnetwork", match+bad)
		d.p.Signal(syscall.SIGHUP)
		check(eth, bad, []want{{"PFC", "3", ""}}, map[string][]string{"pfc": {"3:on", "4:off"}})
		out, err := g.Try("ibnetctl", "verify", unitDir+"10-eth.ibnetwork")
		n := 0
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, unitDir+"10-eth.ibnetwork:") {
				n++
			}
		}
		if err == nil || n != 21 {
			g.Errorf("%d problems of 21, %v:\n%s", n, err, out)
		}
		// The RDMA device gets another name, as udev gives it: all goes on.
		g.Write(unitDir+"10-eth.ibnetwork", "[Match]\nName="+eth+"\n[RoCE]\nVersion=2\nPFC=4\n")
		d.p.Signal(syscall.SIGHUP)
		check(eth, "", []want{{"PFC", "4", ""}, {"Version", "2", ""}}, nil)
		g.Exec("rdma", "dev", "set", "swib0", "name", "rocep1")
		g.WaitFor(10*time.Second, func() string {
			if s := d.status(eth); s.IBDevice != "rocep1" || attr(s, "Version").Actual != "2" || !attr(s, "Version").OK() {
				return fmt.Sprintf("%+v\n%s", s, tail(d.p.Output(), 5))
			}
			return ""
		})
	})
}

// A port whose interface is elsewhere, or not there at all, gets its type by its
// own facts, and what the card refuses is in its status.
func TestPortTypeWithoutLink(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Ports: 2, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-port.ibnetwork":  "[Match]\nIBDevice=swib0\nPort=1\nLinkLayer=InfiniBand\n[Port]\nType=eth\n",
		unitDir + "20-other.ibnetwork": "[Match]\nIBDevice=swib1\nPort=1\n[Port]\nType=eth\n",
	}}, func(g *lab.G) {
		g.Ctl("types h1 ordered")
		h := g.Host("elsewhere")
		for _, n := range []string{"ib0", "ib1", "ib2", "ib3"} {
			h.Give(n)
		}
		d := startDaemon(g)
		g.WaitFor(15*time.Second, func() string {
			if l := g.PortFile("swib0", 1, "link_layer"); l != "Ethernet" {
				return "swib0/1 is " + l + "\n" + tail(d.p.Output(), 10)
			}
			return ""
		})
		// The other card does not take Ethernet on port 1 beside InfiniBand on
		// port 2.
		port := func() (p link.PortStatus) {
			for _, x := range d.report().Ports {
				if x.IBDevice == "swib1" && x.Port == 1 {
					p = x
				}
			}
			return p
		}
		g.WaitFor(10*time.Second, func() string {
			p := port()
			if len(p.Attributes) != 1 || p.Attributes[0].Wanted != "eth" || p.Attributes[0].Actual != "ib" ||
				p.Attributes[0].Why.Code != link.CodeRefused {
				return fmt.Sprintf("the status of the port is %+v", p)
			}
			return ""
		})
		for _, args := range [][]string{{"status", "swib1/1"}, {"plan"}} {
			if out, _ := g.Try("ibnetctl", args...); !strings.Contains(out, "does not take type eth on port 1") && args[0] == "status" ||
				!strings.Contains(out, "eth") {
				g.Errorf("ibnetctl %v:\n%s", args, out)
			}
		}
		g.Log(port().Attributes[0].Why.Text + "; " + port().Attributes[0].Why.Next)
		// It is tried again when the unit changes.
		g.Ctl("types h1 any")
		g.Write(unitDir+"20-other.ibnetwork", "# looked at again\n[Match]\nIBDevice=swib1\nPort=1\n[Port]\nType=eth\n")
		g.WaitFor(15*time.Second, func() string {
			if l := g.PortFile("swib1", 1, "link_layer"); l != "Ethernet" {
				return "swib1/1 is " + l + "\n" + tail(d.p.Output(), 10)
			}
			return ""
		})
		g.WaitFor(10*time.Second, func() string {
			if p := port(); len(p.Attributes) > 0 && !p.Attributes[0].OK() {
				return fmt.Sprintf("the status of the port is %+v", p)
			}
			return ""
		})
	})
}

// Both ports of a card change, in the order that the card accepts: one card
// takes the same type on both ports only, the other not Ethernet on port 1 while
// port 2 is InfiniBand. Then back.
func TestPortTypesInOrder(t *testing.T) {
	t.Parallel()
	unit := func(dev string, port int, typ string) string {
		return fmt.Sprintf("[Match]\nIBDevice=%s\nPort=%d\n[Port]\nType=%s\nChangeWhileInUse=yes\n", dev, port, typ)
	}
	name := func(dev string, port int) string { return fmt.Sprintf("%s1%d-%s.ibnetwork", unitDir, port, dev) }
	lab.Run(t, lab.Config{Userland: lab.Debian, Ports: 2, Bins: []string{ibnetworkd, ibnetctl}}, func(g *lab.G) {
		g.Ctl("types h0 equal")
		g.Ctl("types h1 ordered")
		d := startDaemon(g)
		g.Wait("the daemon", 10*time.Second, func() bool { return strings.Contains(d.p.Output(), "ibnetworkd starts") })
		for _, typ := range []string{"eth", "ib"} {
			for _, dev := range []string{"swib0", "swib1"} {
				for port := 1; port <= 2; port++ {
					g.Write(name(dev, port), unit(dev, port, typ))
				}
			}
			d.p.Signal(syscall.SIGHUP)
			want := map[string]string{"eth": "Ethernet", "ib": "InfiniBand"}[typ]
			g.WaitFor(20*time.Second, func() string {
				for _, dev := range []string{"swib0", "swib1"} {
					for port := 1; port <= 2; port++ {
						if l := g.PortFile(dev, port, "link_layer"); l != want {
							return fmt.Sprintf("%s/%d is %s, want %s\n%s", dev, port, l, want, tail(d.p.Output(), 20))
						}
					}
				}
				n := 0
				for _, s := range d.report().Links {
					if a := attr(s, "Type"); a.Wanted == typ && a.Actual == typ && a.OK() {
						n++
					}
				}
				if n != 4 {
					return fmt.Sprintf("%d of 4 links say that they have type %s", n, typ)
				}
				return ""
			})
		}
		// One of each is more than the card of equal ports can do.
		g.Write(name("swib0", 1), unit("swib0", 1, "eth"))
		d.p.Signal(syscall.SIGHUP)
		g.WaitFor(10*time.Second, func() string {
			for _, s := range d.report().Links {
				if a := attr(s, "Type"); s.IBDevice == "swib0" && s.Port == 1 && a.Wanted == "eth" && a.Why.Code == link.CodeRefused {
					g.Log(a.Why.Text + "; " + a.Why.Next)
					return ""
				}
			}
			return "that the card refuses it is not said\n" + tail(d.p.Output(), 10)
		})
	})
}

// Virtual functions with GUIDs made from the card's, which a driver restart
// forgets and the daemon sets again.
func TestVirtualFunctions(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-pf.ibnetwork": "[Match]\nName=ib0\n[VirtualFunctions]\nCount=2\nNodeGUID=auto\nPortGUID=auto\nLinkState=enable\n" +
			"[VF]\nVirtualFunction=1\nPortGUID=0x0002c903000abcde\nLinkState=disable\n",
	}}, func(g *lab.G) {
		g.SM(lab.SM{Dev: "swib1", NoWait: true})
		d := startDaemon(g)
		f := sysfs.New("/")
		check := func() {
			g.Helper()
			g.WaitFor(15*time.Second, func() string {
				c, err := rtnl.Dial()
				if err != nil {
					return err.Error()
				}
				defer func() { _ = c.Close() }()
				l, err := c.LinkByName("ib0", true)
				if err != nil {
					return err.Error()
				}
				pf := l.Address.GUID()
				if len(l.VFs) != 2 {
					return fmt.Sprintf("%d virtual functions\n%s", len(l.VFs), tail(d.p.Output(), 10))
				}
				for i, want := range []struct {
					node, port ib.GUID
					state      rtnl.VFLinkState
				}{{roce.NodeGUIDFor(pf, 0), roce.PortGUIDFor(pf, 0), rtnl.VFEnable}, {roce.NodeGUIDFor(pf, 1), 0x0002c903000abcde, rtnl.VFDisable}} {
					v := l.VFs[i]
					if v.NodeGUID == nil || *v.NodeGUID != want.node || v.PortGUID == nil || *v.PortGUID != want.port || v.LinkState == nil ||
						*v.LinkState != want.state {
						return fmt.Sprintf("function %d is %+v, want %+v", i, v, want)
					}
					// What the function says of itself.
					n, err := f.Net("ib0")
					if err != nil || n.SRIOV == nil || len(n.SRIOV.VFs) != 2 {
						return fmt.Sprint(n.SRIOV, err)
					}
					devs, err := f.IBDevices()
					if err != nil {
						return err.Error()
					}
					own := ib.GUID(0)
					for _, x := range devs {
						if x.Bus.Name == n.SRIOV.VFs[i] {
							own = x.NodeGUID
						}
					}
					if own != want.node {
						return fmt.Sprintf("function %d (%s) says it is %v, want %v", i, n.SRIOV.VFs[i], own, want.node)
					}
				}
				return ""
			})
		}
		check()
		st := d.wait("ib0", "content with its virtual functions", 10*time.Second,
			func(s link.Status) bool { return attr(s, "VF 1 LinkState").Actual == "disable" })
		for _, name := range []string{"Count", "VF 0 NodeGUID", "VF 1 PortGUID", "VF 1 LinkState"} {
			if a := attr(st, name); !a.OK() || a.Wanted == "" {
				g.Errorf("%s: %+v", name, a)
			}
		}
		// Somebody sets one to nothing.
		g.Exec("ip", "link", "set", "dev", "ib0", "vf", "0", "node_guid", "00:00:00:00:00:00:00:01")
		d.p.Signal(syscall.SIGHUP)
		check()
		restartDriver(g, "swib0")
		check()
	})
}

// The virtual functions of an Ethernet port: rates, VLANs, addresses, trust and
// spoof check, as asked, back after a driver restart and after somebody else's
// change, and as they were where the card refuses or makes another value of it.
func TestVirtualFunctionsOfEthernet(t *testing.T) {
	t.Parallel()
	unit := func(rate string, count int) string {
		return fmt.Sprintf(`[Match]
IBDevice=swib0
Port=1
[Port]
Type=eth
[VirtualFunctions]
Count=%d
Trust=yes
LinkState=enable
[VF]
VirtualFunction=0
MACAddress=02:00:00:00:aa:01
VLANId=100
QualityOfService=3
MinRate=1G
MaxRate=%s
MACSpoofCheck=yes
Trust=no
LinkState=auto
[VF]
VirtualFunction=1
VLANId=7
VLANProtocol=802.1ad
MaxRate=2G
`, count, rate)
	}
	policy, _ := os.ReadFile("../../dist/dbus/org.ibnetwork1.conf") // not there in the guest, where the file is
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-pf.ibnetwork": unit("10G", 2), "/usr/share/dbus-1/system.d/org.ibnetwork1.conf": string(policy),
	}}, func(g *lab.G) {
		g.Sh("mkdir -p /run/dbus && dbus-daemon --system --fork")
		d := startDaemon(g)
		var eth string
		vfs := func() []rtnl.VF {
			c, err := rtnl.Dial()
			if err != nil {
				g.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			l, err := c.LinkByName(eth, true)
			if err != nil {
				return nil
			}
			return l.VFs
		}
		mac, err := ib.ParseHWAddr("02:00:00:00:aa:01")
		if err != nil {
			g.Fatal(err)
		}
		// right holds what the kernel tells of the functions against the unit.
		right := func(rate, count int) {
			g.Helper()
			yes, no, auto, enable := true, false, rtnl.VFAuto, rtnl.VFEnable
			want := []rtnl.VF{
				{Index: 0, MAC: mac, VLAN: 100, QoS: 3, VLANProto: 0x8100, MinTxRate: 1000, MaxTxRate: rate, Trust: &no, SpoofCheck: &yes,
					LinkState: &auto},
				{Index: 1, VLAN: 7, VLANProto: 0x88a8, MaxTxRate: 2000, Trust: &yes, SpoofCheck: &no, LinkState: &enable},
				{Index: 2, Trust: &yes, SpoofCheck: &no, LinkState: &enable},
			}[:count]
			g.WaitFor(20*time.Second, func() string {
				eth = ""
				for _, s := range d.report().Links {
					if s.IBDevice == "swib0" && s.Port == 1 && s.Kind == "ether" {
						eth = s.Name
					}
				}
				got := vfs()
				for i := range got {
					if !got[i].MAC.IsValid() || got[i].MAC.String() == "00:00:00:00:00:00" {
						got[i].MAC = ib.HWAddr{}
					}
				}
				if !reflect.DeepEqual(got, want) {
					return fmt.Sprintf("%s has\n%+v, want\n%+v\n%s", eth, got, want, tail(d.p.Output(), 15))
				}
				return ""
			})
		}
		right(10000, 2)
		st := d.wait(eth, "content with its virtual functions", 10*time.Second,
			func(s link.Status) bool { return attr(s, "VF 1 MaxRate").Actual == "0-2000" })
		for _, name := range []string{"Count", "VF 0 MACAddress", "VF 0 VLANId", "VF 0 MaxRate", "VF 0 Trust", "VF 0 MACSpoofCheck",
			"VF 0 LinkState", "VF 1 VLANId", "VF 1 Trust"} {
			if a := attr(st, name); !a.OK() || a.Wanted == "" || a.Wanted != a.Actual {
				g.Errorf("%s: %+v", name, a)
			}
		}
		g.WaitFor(10*time.Second, func() string { // it hears of it after the file
			if out, err := g.Try("busctl", "get-property", "org.ibnetwork1", api.LinkPath(st.Ifindex), "org.ibnetwork1.Link",
				"Settings"); !strings.Contains(out, `"VF 0 VLANId" "vlan 100 qos 3" "vlan 100 qos 3"`) {
				return fmt.Sprintf("the bus says %v\n%s", err, out)
			}
			return ""
		})
		if out := g.Exec("ibnetctl", "plan"); strings.Contains(out, " vf ") {
			g.Errorf("something is left to plan:\n%s", out)
		}

		// Somebody else sets things; a look puts them right.
		g.Exec("ip", "link", "set", "dev", eth, "vf", "0", "trust", "on")
		g.Exec("ip", "link", "set", "dev", eth, "vf", "1", "vlan", "0")
		g.Exec("ip", "link", "set", "dev", eth, "vf", "0", "max_tx_rate", "5000", "min_tx_rate", "0")
		d.p.Signal(syscall.SIGHUP)
		right(10000, 2)

		// A rate that the card refuses, and one of which it makes another.
		for rate, words := range map[string]string{"40G": "refuses max_tx_rate 40000 min_tx_rate 1000",
			"5M": "did not take max_tx_rate 5 min_tx_rate 0"} {
			text := unit(rate, 2)
			if rate == "5M" {
				text = strings.ReplaceAll(text, "MinRate=1G", "MinRate=0")
			}
			g.Write(unitDir+"10-pf.ibnetwork", text)
			d.p.Signal(syscall.SIGHUP)
			st := d.wait(eth, "told that the card does not take the rate", 15*time.Second,
				func(s link.Status) bool { return strings.Contains(attr(s, "VF 0 MaxRate").Why.Text, words) })
			g.Log(attr(st, "VF 0 MaxRate").Why.Text + "; " + attr(st, "VF 0 MaxRate").Why.Next)
			right(10000, 2)
			if a := attr(d.status(eth), "VF 1 MaxRate"); !a.OK() {
				g.Errorf("the other function is to blame too: %+v", a)
			}
		}

		// Another number: all that is asked of the functions is there on the new
		// ones; a number that there is no room for leaves those that were there,
		// without an end of tries.
		g.Write(unitDir+"10-pf.ibnetwork", unit("10G", 3))
		d.p.Signal(syscall.SIGHUP)
		right(10000, 3)
		g.Ctl("vf h0 room 3")
		g.Write(unitDir+"10-pf.ibnetwork", unit("10G", 5))
		d.p.Signal(syscall.SIGHUP)
		st = d.wait(eth, "told that there is no room", 15*time.Second,
			func(s link.Status) bool { return attr(s, "Count").Why.Code == link.CodeRefused })
		if why := attr(st, "Count").Why; !strings.Contains(why.Text, "did not make 5 virtual functions") ||
			!strings.Contains(why.Text, "the former number 3 is back") {
			g.Errorf("%+v", why)
		}
		right(10000, 3)
		g.Write(unitDir+"10-pf.ibnetwork", unit("10G", 99))
		d.p.Signal(syscall.SIGHUP)
		d.wait(eth, "told how many there can be", 10*time.Second,
			func(s link.Status) bool { return strings.Contains(attr(s, "Count").Why.Text, "at most 8") })
		right(10000, 3)

		// A driver restart takes all of it away.
		g.Write(unitDir+"10-pf.ibnetwork", unit("10G", 2))
		d.p.Signal(syscall.SIGHUP)
		right(10000, 2)
		restartDriver(g, "swib0")
		right(10000, 2)
	})
}

// A virtual function that does not take its GUIDs keeps those it had.
func TestVirtualFunctionRollsBack(t *testing.T) {
	t.Parallel()
	unit := func(guid string) string {
		return "[Match]\nName=ib0\n[VirtualFunctions]\nCount=1\n[VF]\nVirtualFunction=0\nNodeGUID=" + guid + "\nPortGUID=" + guid + "\n"
	}
	const good, refused, ignored = ib.GUID(0x0002c903000abc01), ib.GUID(0x0002c903000abc02), ib.GUID(0x0002c903000abc03)
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl},
		Files: map[string]string{unitDir + "10-pf.ibnetwork": unit(good.String())}}, func(g *lab.G) {
		g.Opensm(lab.SM{Dev: "swib1", NoWait: true})
		g.Ctl("vf h0 refuse %016x", uint64(refused))
		g.Ctl("vf h0 ignore %016x", uint64(ignored))
		d := startDaemon(g)
		f := sysfs.New("/")
		// has says what the physical function and the virtual one tell.
		has := func() (pf ib.GUID, vf ib.GUID, err error) {
			c, err := rtnl.Dial()
			if err != nil {
				return 0, 0, err
			}
			defer func() { _ = c.Close() }()
			l, err := c.LinkByName("ib0", true)
			if err != nil || len(l.VFs) != 1 || l.VFs[0].NodeGUID == nil {
				return 0, 0, fmt.Errorf("functions %+v, %w", l.VFs, err)
			}
			n, err := f.Net("ib0")
			if err != nil || n.SRIOV == nil || len(n.SRIOV.VFs) != 1 {
				return 0, 0, fmt.Errorf("%+v, %w", n.SRIOV, err)
			}
			devs, err := f.IBDevices()
			for _, x := range devs {
				if x.Bus.Name == n.SRIOV.VFs[0] {
					vf = x.NodeGUID
				}
			}
			return *l.VFs[0].NodeGUID, vf, err
		}
		both := func(want ib.GUID) {
			g.Helper()
			g.WaitFor(15*time.Second, func() string {
				if pf, vf, err := has(); err != nil || pf != want || vf != want {
					return fmt.Sprintf("the card says %v, the function %v, want %v (%v)\n%s", pf, vf, want, err, tail(d.p.Output(), 10))
				}
				return ""
			})
		}
		both(good)
		for _, bad := range []ib.GUID{refused, ignored} {
			g.Write(unitDir+"10-pf.ibnetwork", unit(bad.String()))
			d.p.Signal(syscall.SIGHUP)
			st := d.wait("ib0", "told that the function does not take its GUID", 15*time.Second, func(s link.Status) bool {
				a := attr(s, "VF 0 NodeGUID")
				return a.Wanted == bad.String() && a.Actual == good.String() && a.Why.Code == link.CodeRefused
			})
			why := attr(st, "VF 0 NodeGUID").Why
			g.Logf("%s; %s", why.Text, why.Next)
			if !strings.Contains(why.Text, "is back") || !strings.Contains(why.Text, "did not take node_guid 00:02:c9:03:00:0a:bc:0") {
				g.Errorf("%q does not tell what was done", why.Text)
			}
			both(good)
		}
		g.Write(unitDir+"10-pf.ibnetwork", unit("0x0002c903000abc04"))
		d.p.Signal(syscall.SIGHUP)
		both(0x0002c903000abc04)
	})
}

// Two two-port cards of which port 1 is Ethernet and port 2 InfiniBand, one unit
// each, cold: RoCE between the cards' own Ethernet ports, with rping, and IPoIB
// between the others; and again after the driver was bound anew. The RDMA of the
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
// netlink that tells of devices. Debian's own kernel, PCI adapters.
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
		if err != nil {
			g.Fatal(err)
		}
		defer func() { _ = rd.Close() }()
		sys, err := rd.System()
		if err != nil || !sys.Monitor {
			g.Errorf("Linux 6.12 tells of RDMA devices, and this says %+v, %v", sys, err)
		}
		ev, err := rd.Listen(0)
		if err != nil {
			g.Fatal(err)
		}
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
			if err != nil {
				g.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			st, err := c.Get(eth)
			if err != nil || !slices.Equal(st.Trust, order) {
				g.Errorf("the kernel has %v, %v, want %v", st.Trust, err, order)
			}
		}
		trusts("dscp", dcb.DSCP)
		g.Write(unitDir+"10-eth.ibnetwork", unit("pcp"))
		trusts("pcp", dcb.PCP)
		seen := map[rdmanl.EventType]bool{}
		if _, err := ev.Read(func(e rdmanl.Event) { seen[e.Type] = true }); err != nil {
			g.Error(err)
		}
		// The change of the port's type took the device away and brought it back.
		if !seen[rdmanl.Register] || !seen[rdmanl.Unregister] {
			g.Errorf("events seen: %v", seen)
		}
		g.Logf("%s trusts what its unit says; RDMA events: %v", eth, seen)
	})
}
