package lab_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

// A two-level fat tree with parallel links: opensm routes it, hosts on different
// leaves reach each other, and ibnetdiscover finds what was asked for.
func TestTopology(t *testing.T) {
	t.Parallel()
	f := gen.FatTree2(8, 4)
	topo := gen.Text(f)
	lab.Run(t, lab.Config{Userland: lab.Debian, Topology: topo}, func(g *lab.G) {
		hosts, switches := 0, len(f.Switches)
		hosts = len(f.Nodes) - switches
		g.Opensm(lab.SM{})
		g.Logf("%d hosts, %d switches active at %v", hosts, switches, lab.Uptime())
		a, b := g.Host("a"), g.Host("b")
		a.Take("ib0", "10.9.0.1/24")
		b.Take(fmt.Sprintf("ib%d", hosts-1), "10.9.0.2/24")
		a.Ping("10.9.0.2")
		found, err := fabric.ReadText("ibnetdiscover", strings.NewReader(g.Exec("ibnetdiscover", "-C", "swib0")))
		testkit.NoError(g, err)
		if len(found.Nodes) != len(f.Nodes) || found.Links() != f.Links() {
			g.Errorf("found %d nodes and %d links, want %d and %d", len(found.Nodes), found.Links(), len(f.Nodes), f.Links())
		}
	})
}

// Links have the speed and width of the text, everywhere where Linux and
// infiniband-diags show them, whichever subnet manager brings them up.
func TestLinkSpeeds(t *testing.T) {
	t.Parallel()
	links := []struct{ sw, host, want, rate string }{ // what both ends say, what comes of it
		{"4xHDR", "4xHDR", "4xHDR", "200 Gb/sec (4X HDR)"},
		{"1xSDR", "1xSDR", "1xSDR", "2.5 Gb/sec (1X SDR)"},
		{"4xEDR", "4xEDR", "4xEDR", "100 Gb/sec (4X EDR)"},
		{"4xQDR", "4xQDR", "4xQDR", "40 Gb/sec (4X QDR)"},
		{"4xFDR", "4xFDR", "4xFDR", "56 Gb/sec (4X FDR)"},
		{"8xDDR", "8xDDR", "8xDDR", "40 Gb/sec (8X DDR)"},
		{"12xNDR", "12xNDR", "12xNDR", "1200 Gb/sec (12X NDR)"},
		{"4xHDR", "4xEDR", "4xEDR", "100 Gb/sec (4X EDR)"},
		{"4xQDR", "4xHDR", "4xQDR", "40 Gb/sec (4X QDR)"},
		{"4xHDR", "2xHDR", "2xHDR", "100 Gb/sec (2X HDR)"},
		{"1xNDR", "12xSDR", "1xSDR", "2.5 Gb/sec (1X SDR)"},
	}
	var topo strings.Builder
	fmt.Fprintf(&topo, "Switch\t36 \"S-0000000000000010\"\t\t# \"left\" base port 0 lid 0 lmc "+
		"0\n[36]\t\"S-0000000000000020\"[36]\t\t# \"right\" lid 0 4xNDR\n")
	for i, l := range links {
		fmt.Fprintf(&topo, "[%d]\t\"H-%016x\"[1](%x)\t\t# \"h\" lid 0 %s\n", i+1, 0x1000+16*i, 0x1001+16*i, l.sw)
	}
	topo.WriteString("Switch\t36 \"S-0000000000000020\"\t\t# \"right\" base port 0 lid 0 lmc " +
		"0\n[36]\t\"S-0000000000000010\"[36]\t\t# \"left\" lid 0 4xNDR\n")
	for i, l := range links {
		fmt.Fprintf(&topo, "Ca\t1 \"H-%016x\"\t\t# \"h\"\n[1](%x)\t\"S-0000000000000010\"[%d]\t\t# lid 0 lmc 0 \"left\" lid 0 %s\n",
			0x1000+16*i, 0x1001+16*i, i+1, l.host)
	}
	lab.Run(t, lab.Config{Userland: lab.Debian, Topology: topo.String(), Bins: []string{"ibnetworkd/cmd/ibnetsm"}}, func(g *lab.G) {
		rate := func(i int, want string) {
			g.Helper()
			if s := g.PortFile(fmt.Sprintf("swib%d", i), 1, "rate"); s != want {
				g.Errorf("swib%d: rate %q, want %q", i, s, want)
			}
		}
		check := func(g *lab.G) {
			for i, l := range links {
				rate(i, l.rate)
				gbits := strings.Fields(l.rate)[0]
				if out := g.Exec("ibstat", fmt.Sprintf("swib%d", i), "1"); !strings.Contains(out, "\nRate: "+gbits+"\n") {
					g.Errorf("want rate %s of %s\n%s", gbits, l.want, out)
				}
			}
			out := g.Exec("ibnetdiscover", "-C", "swib0")
			found, err := fabric.ReadText("ibnetdiscover", strings.NewReader(out))
			testkit.NoError(g, err)
			seen := 0
			for _, p := range found.Ports {
				if p.Peer == fabric.None {
					continue
				}
				want := "4xNDR"
				for _, e := range []fabric.Port{p, found.Ports[p.Peer]} {
					if n := found.Nodes[e.Node]; n.Type == ib.NodeCA {
						want = links[(n.GUID-0x1000)/16].want
					}
				}
				if got := p.Info.WidthName() + p.Info.SpeedName(); got != want {
					g.Errorf("ibnetdiscover: port %d of %v is %s, want %s", p.Num, found.Nodes[p.Node].GUID, got, want)
				}
				seen++
			}
			if seen != 2*(len(links)+1) {
				g.Errorf("ibnetdiscover found %d ends of links\n%s", seen, out)
			}
		}
		for _, sm := range []struct {
			name  string
			start func(lab.SM) *lab.Proc
		}{{"opensm", g.Opensm}, {"ibnetsm", g.SM}} {
			g.Run(sm.name, func(g *lab.G) {
				p := sm.start(lab.SM{})
				check(g)
				g.Ctl("speed h0/1 4xDDR")
				g.WaitPort("swib0", 1, "ACTIVE", 30*time.Second)
				rate(0, "20 Gb/sec (4X DDR)")
				g.Ctl("speed h0/1 4xHDR")
				g.WaitPort("swib0", 1, "ACTIVE", 30*time.Second)
				rate(0, links[0].rate)
				p.Kill()
				// The next one finds ports that are not up yet.
				for i := range links {
					g.Ctl("link h%d/1 flap 1 1", i)
					g.WaitPort(fmt.Sprintf("swib%d", i), 1, "INIT", 5*time.Second)
				}
			})
		}
		for _, bad := range []string{"speed h0/1", "speed h0/1 4x", "speed h0/1 3xQDR", "speed h0/1 4xFDR10", "speed h0/1 QDR",
			"speed h0/1 4xQDR x", "speed h0/1 16xQDR", "speed s0/99 4xQDR"} {
			if err := g.TryWrite("/sys/kernel/debug/swib/ctl", bad+"\n"); err == nil {
				g.Errorf("%q is taken", bad)
			}
		}
	})
}

// What an SMP enables counts from the next time that the link comes up.
func TestLinkSpeedEnabled(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Commands: []string{"speed h1/1 4xHDR", "speed s0/2 4xHDR"}}, func(g *lab.G) {
		const path = "0,1,2" // without a subnet manager: opensm enables all that is supported
		set := func(what, to, want string) {
			g.Helper()
			g.Exec("ibportstate", "-C", "swib0", "-D", path, "1", what, to)
			g.Ctl("link h1/1 down")
			g.Ctl("link h1/1 up")
			if s := g.PortFile("swib1", 1, "rate"); s != want {
				g.Errorf("%s %s: rate %q, want %q", what, to, s, want)
			}
		}
		if out := g.Exec("smpquery", "-C", "swib0", "-D", "portinfo", path, "1"); !strings.Contains(out, "HDR") {
			g.Errorf("no HDR in\n%s", out)
		}
		set("espeed", "2", "100 Gb/sec (4X EDR)")
		set("espeed", "30", "40 Gb/sec (4X QDR)")
		set("speed", "1", "10 Gb/sec (4X SDR)")
		set("width", "1", "2.5 Gb/sec (1X SDR)")
		set("espeed", "31", "50 Gb/sec (1X HDR)")
		set("width", "255", "200 Gb/sec (4X HDR)")
		g.Exec("ibportstate", "-C", "swib0", "-D", "0,1", "2", "width", "2")
		g.Exec("ibportstate", "-C", "swib0", "-D", path, "1", "width", "1")
		g.WaitPort("swib1", 1, "INIT", time.Second)
		g.Ctl("link h1/1 down")
		g.Ctl("link h1/1 up")
		if s := g.PortFile("swib1", 1, "phys_state"); s != "2: Polling" {
			g.Errorf("4x on one end and 1x on the other: physical state %q", s)
		}
		g.Exec("ibportstate", "-C", "swib0", "-D", "0,1", "2", "width", "255")
		g.WaitPort("swib1", 1, "INIT", time.Second)
		g.Ctl("speed h1/1 8xEDR")
		g.WaitPort("swib1", 1, "INIT", time.Second)
		if s := g.PortFile("swib1", 1, "rate"); s != "100 Gb/sec (4X EDR)" {
			g.Errorf("rate %q", s)
		}
	})
}

func TestHotplug(t *testing.T) {
	t.Parallel()
	// Not opensm: after a port has flapped it ignores the switch's trap for a
	// while, and with it the next change.
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3, Ports: 2, Bins: []string{"ibnetworkd/cmd/ibnetsm"}}, func(g *lab.G) {
		g.Start("ibnetsm", "run", "--device", "swib0/1")
		g.WaitActive(10 * time.Second)
		g.Run("link", func(g *lab.G) {
			g.Ctl("link h2/1 down")
			if s := g.PortFile("swib2", 1, "phys_state"); s != "2: Polling" {
				g.Errorf("physical state %q", s)
			}
			g.Ctl("link h2/1 up")
			g.WaitPort("swib2", 1, "ACTIVE", 10*time.Second)
			g.Ctl("link s0/5 stuck")
			g.WaitPort("swib2", 1, "DOWN", time.Second)
			g.Ctl("link h2/1 up")
			if s := g.PortFile("swib2", 1, "state"); s != "1: DOWN" {
				g.Errorf("stuck, but %q", s)
			}
			g.Ctl("link s0/5 up")
			g.WaitPort("swib2", 1, "ACTIVE", 10*time.Second)
			downed := func() (n int) {
				_, _ = fmt.Sscan(g.PortFile("swib2", 1, "counters/link_downed"), &n)
				return n
			}
			before := downed()
			g.Ctl("link h2/1 flap 3 20")
			g.Wait("the link to be downed 3 times", time.Second, func() bool { return downed() == before+3 })
			g.WaitPort("swib2", 1, "ACTIVE", 20*time.Second)
		})
		g.Run("device", func(g *lab.G) {
			g.Ctl("del 2")
			if s := g.PortFile("swib2", 1, "state"); s != "" {
				g.Errorf("removed, but %q", s)
			}
			g.Ctl("add 2 ports=1 pkeys=128 cm=0 desc=a new one")
			g.WaitPort("swib2", 1, "ACTIVE", 15*time.Second)
			if s := g.Read("/sys/class/infiniband/swib2/node_desc"); s != "a new one" {
				g.Errorf("node description %q", s)
			}
			if n := len(g.Exec("ls", "/sys/class/infiniband/swib2/ports/1/pkeys")); n < 128 {
				g.Errorf("P_Key table lists %d bytes", n)
			}
			dev := g.Exec("ls", "/sys/class/infiniband/swib2/device/net")
			if out, err := g.Try("ip", "link", "set", dev, "type", "ipoib", "mode", "connected"); err == nil {
				g.Errorf("connected mode accepted without the RC flag: %s", out)
			}
			if a := g.Read("/sys/class/net/" + dev + "/address"); !strings.HasPrefix(a, "00:") {
				g.Errorf("hardware address %s has the RC flag", a)
			}
			g.Exec("ip", "link", "add", "link", dev, "name", "child", "type", "ipoib", "pkey", "0x8001")
			if a := g.Read("/sys/class/net/child/address"); !strings.HasPrefix(a, "00:") {
				g.Errorf("hardware address %s of the child has the RC flag", a)
			}
		})
		g.Run("driver", func(g *lab.G) {
			g.Write("/sys/bus/platform/drivers/swib/unbind", "swib.1")
			if s := g.PortFile("swib1", 1, "state"); s != "" {
				g.Errorf("unbound, but %q", s)
			}
			g.Write("/sys/bus/platform/drivers/swib/bind", "swib.1")
			g.WaitPort("swib1", 2, "ACTIVE", 15*time.Second)
			// A type that is set without a driver waits for it.
			g.Write("/sys/bus/platform/drivers/swib/unbind", "swib.1")
			g.Ctl("type h1/2 eth")
			if s := g.PortFile("swib1", 2, "link_layer"); s != "" {
				g.Errorf("no driver, but link layer %q", s)
			}
			g.Write("/sys/bus/platform/drivers/swib/bind", "swib.1")
			if s := g.PortFile("swib1", 2, "link_layer"); s != "Ethernet" {
				g.Errorf("link layer %q", s)
			}
			g.Ctl("type h1/2 ib")
			g.WaitPort("swib1", 2, "ACTIVE", 15*time.Second)
		})
		g.Run("type", func(g *lab.G) {
			const file = "/sys/devices/platform/swib.1/swib_port2"
			g.Write(file, "eth\n")
			if s := g.PortFile("swib1", 2, "link_layer"); s != "Ethernet" {
				g.Errorf("link layer %q", s)
			}
			g.WaitPort("swib1", 1, "ACTIVE", 15*time.Second)
			dev := ""
			for d := range strings.FieldsSeq(g.Exec("ls", "/sys/devices/platform/swib.1/net")) {
				if g.Read("/sys/class/net/"+d+"/type") == "1" {
					dev = d
				}
			}
			g.Exec("ip", "link", "set", dev, "up")
			g.Exec("ip", "addr", "add", "192.0.2.1/24", "dev", dev)
			g.WaitPort("swib1", 2, "ACTIVE", time.Second)
			changes := func() (n int) {
				_, _ = fmt.Sscan(g.Read("/sys/class/net/"+dev+"/carrier_changes"), &n)
				return n
			}
			before := changes()
			g.Ctl("link h1/2 flap 2 20")
			g.Wait("the Ethernet port to flap", 5*time.Second, func() bool { return changes() == before+4 })
			g.Wait("RoCE GID of 192.0.2.1", 5*time.Second, func() bool {
				return strings.Contains(g.Sh("cat /sys/class/infiniband/swib1/ports/2/gids/* 2>/dev/null || true"),
					"0000:0000:0000:0000:0000:ffff:c000:0201")
			})
			if out := g.Exec("devlink", "port", "show", "platform/swib.1/2"); !strings.Contains(out, "type eth netdev "+dev) {
				g.Errorf("devlink says %q", out)
			}
			g.Exec("devlink", "port", "set", "platform/swib.1/2", "type", "ib")
			if s := g.Read(file); s != "ib" {
				g.Errorf("port type %q after devlink set ib", s)
			}
			g.Exec("devlink", "port", "set", "platform/swib.1/2", "type", "eth")
			g.Write(file, "auto\n")
			if s := g.Read(file); s != "auto (ib)" {
				g.Errorf("port type %q", s)
			}
			g.WaitPort("swib1", 2, "ACTIVE", 15*time.Second)
		})
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3}, func(g *lab.G) {
		g.Ctl("silent h2 on")
		g.Ctl("slow h1 20")
		sm := g.Opensm(lab.SM{NoWait: true})
		g.WaitPort("swib1", 1, "ACTIVE", 20*time.Second)
		if s := g.PortFile("swib2", 1, "state"); s != "2: INIT" {
			g.Errorf("silent adapter is %q", s)
		}
		g.Ctl("silent h2 off")
		g.WaitPort("swib2", 1, "ACTIVE", 20*time.Second)
		sm.Kill()

		query := func() error {
			_, err := g.Try("smpquery", "-C", "swib0", "-t", "200", "-e", "nodedesc", g.Read("/sys/class/infiniband/swib2/ports/1/lid"))
			return err
		}
		if err := query(); err != nil {
			g.Error(err)
		}
		g.Ctl("fault h2/1 drop attr=0x10")
		if query() == nil {
			g.Error("all NodeDescription answers are dropped, but one came")
		}
		g.Ctl("fault clear")
		g.Ctl("fault all dup")
		if err := query(); err != nil {
			g.Error(err)
		}
		g.Ctl("fault clear")
		g.Ctl("fault h2/1 delay ms=50")
		start := lab.Uptime()
		if err := query(); err != nil || lab.Uptime()-start < 50*time.Millisecond {
			g.Errorf("with 50 ms delay: %v after %v", err, lab.Uptime()-start)
		}
		g.Ctl("fault clear")
		g.Ctl("slow h2 120")
		start = lab.Uptime()
		if err := query(); err != nil || lab.Uptime()-start < 120*time.Millisecond {
			g.Errorf("with a node that takes 120 ms: %v after %v", err, lab.Uptime()-start)
		}
		g.Ctl("slow h2 0")
		// One attribute is damaged, another is not.
		desc := func() string {
			out, _ := g.Try("smpquery", "-C", "swib0", "-t", "200", "-e", "nodedesc", g.Read("/sys/class/infiniband/swib2/ports/1/lid"))
			_, text, _ := strings.Cut(out, "...")
			return strings.Trim(text, ".")
		}
		right := desc()
		g.Ctl("fault h2/1 corrupt attr=0x11")
		if got := desc(); got != right || got == "" {
			g.Errorf("node description %q, want %q", got, right)
		}
		g.Ctl("fault clear")
		// Any bit of the attribute; a description ends at its first zero.
		g.Ctl("fault h2/1 corrupt attr=0x10 count=200")
		g.Wait("a damaged node description", 20*time.Second, func() bool { return desc() != right })
		g.Ctl("fault clear")
		if got := desc(); got != right {
			g.Errorf("after the damaged packets: %q, want %q", got, right)
		}
		g.Ctl("mkey h2/1 1234 2")
		if query() == nil {
			g.Error("an SMP without the M_Key was answered")
		}
		// A violation starts the lease; when it is over, the key may be read, which is
		// how a new manager gets it, and still nothing is set without it.
		g.Ctl("mkey h2/1 1234 2 1")
		if query() == nil {
			g.Error("an SMP without the M_Key was answered")
		}
		time.Sleep(1100 * time.Millisecond)
		if out, err := g.Try("ibportstate", "-C", "swib0", "-t", "200", g.Read("/sys/class/infiniband/swib2/ports/1/lid"), "1",
			"enable"); err == nil {
			g.Errorf("the port was set without the M_Key:\n%s", out)
		}
		if err := query(); err != nil {
			g.Errorf("after the lease: %v", err)
		}
		g.Ctl("fault  all\tdrop  attr=0x10\tcount=1")
	})
}

// A damaged multicast packet is damaged where it crosses the bad cable, nowhere else.
func TestFaultyBranch(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3}, func(g *lab.G) {
		g.Opensm(lab.SM{})
		var h [3]*lab.Host
		for i, name := range []string{"a", "b", "c"} {
			h[i] = g.Host(name)
			h[i].Take(fmt.Sprintf("ib%d", i))
		}
		answers := func(limit time.Duration) bool {
			for end := time.Now().Add(limit); time.Now().Before(end); {
				if _, err := h[0].Try("ping", "-n", "-L", "-c", "1", "-W", "1", "-s", "200", "ff02::1%ib0"); err == nil {
					return true
				}
			}
			return false
		}
		g.Ctl("fault s0/2 corrupt kind=data")
		if !answers(time.Minute) {
			g.Error("nobody answers a multicast packet that only one of two gets damaged")
		}
		g.Ctl("fault s0/3 corrupt kind=data")
		if answers(2 * time.Second) {
			g.Error("a damaged packet is answered")
		}
	})
}

// Two ports of one kernel, joined by network devices. One that gets smaller than a
// packet, or goes away, is a bad cable and nothing worse.
func TestWireDevice(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Swib: "topo=2"}, func(g *lab.G) {
		g.Sh("ip link add va type veth peer name vb; ip link set va up; ip link set vb up")
		g.Ctl("wire h0/1 va")
		g.Ctl("wire h1/1 vb")
		g.WaitPort("swib1", 1, "INIT", 10*time.Second)
		g.Opensm(lab.SM{})
		a, b := g.Host("a"), g.Host("b")
		a.Take("ib0", "10.9.0.1/24")
		b.Take("ib1", "10.9.0.2/24")
		a.Ping("10.9.0.2", "-s", "1400")
		g.Exec("ip", "link", "set", "va", "mtu", "100")
		_, _ = a.Try("ping", "-n", "-c", "2", "-i", "0.2", "-W", "1", "-s", "1400", "10.9.0.2")
		g.Exec("ip", "link", "set", "va", "mtu", "1500")
		a.Ping("10.9.0.2", "-s", "1400")
		g.Exec("timeout", "20", "ip", "link", "del", "va")
		for _, dev := range []string{"swib0", "swib1"} {
			g.WaitPort(dev, 1, "DOWN", 5*time.Second)
		}
		g.Ctl("unwire h0/1")
		g.Sh("ip link add va type veth peer name vb; ip link set va up; ip link set vb up")
		g.Ctl("wire h0/1 va")
		g.Ctl("unwire h1/1")
		g.Ctl("wire h1/1 vb")
		a.Ping("10.9.0.2", "-s", "1400")
	})
}

// Two adapters with one GUID: both are there, with the same GUIDs, and a subnet
// manager that meets them survives.
func TestDuplicateGUID(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2, Bins: []string{"ibnetworkd/cmd/ibnetsm"}}, func(g *lab.G) {
		guid := func(dev string) string { return g.Read("/sys/class/infiniband/" + dev + "/node_guid") }
		g.Ctl("add 2 guid=%s", strings.ReplaceAll(guid("swib1"), ":", ""))
		if a, b := guid("swib1"), guid("swib2"); a != b || a == "" {
			g.Fatalf("node GUIDs %q and %q, want the same", a, b)
		}
		if a, b := g.PortFile("swib1", 1, "gids/0"), g.PortFile("swib2", 1, "gids/0"); a != b {
			g.Errorf("GIDs %q and %q, want the same", a, b)
		}
		sm := g.Start("ibnetsm", "run", "--device", "swib0/1")
		g.WaitPort("swib0", 1, "ACTIVE", 20*time.Second)
		g.Ctl("del 2")
		g.WaitPort("swib1", 1, "ACTIVE", 20*time.Second)
		select {
		case <-sm.Done():
			g.Error("the subnet manager has ended")
		default:
		}
		g.Ctl("guid h1/1 0002c90300001234")
		if s := g.FabricPort("hca1", 1)["guid"]; !strings.HasSuffix(s, "0002c90300001234") {
			g.Errorf("GUID %q after the port got another", s)
		}
	})
}

// The limits: 254 switch ports, P_Key tables of 128, connected mode off.
func TestMany(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 64, Ports: 2, PKeys: 128, Swib: "cm=0", Memory: 1536}, func(g *lab.G) {
		g.Logf("64 adapters at %v", lab.Uptime())
		g.Opensm(lab.SM{NoWait: true})
		g.WaitActive(time.Minute)
		g.Logf("128 ports active at %v", lab.Uptime())
	})
}

// Hundreds of adapters behind three dozen switches.
func TestHundreds(t *testing.T) {
	t.Parallel()
	f := gen.FatTree2(24, 24)
	topo := gen.Text(f)
	lab.Run(t, lab.Config{Userland: lab.Debian, Topology: topo, Memory: 2048}, func(g *lab.G) {
		hosts := len(f.Nodes) - len(f.Switches)
		g.Logf("%d adapters, %d switches at %v", hosts, len(f.Switches), lab.Uptime())
		g.Opensm(lab.SM{NoWait: true})
		g.WaitActive(90 * time.Second)
		g.Logf("all active at %v", lab.Uptime())
		a, b := g.Host("a"), g.Host("b")
		a.Take("ib0", "10.9.0.1/24")
		b.Take(fmt.Sprintf("ib%d", hosts-1), "10.9.0.2/24")
		a.Ping("10.9.0.2")
	})
}

// Virtual functions: a port stays down until it has a GUID and its driver has
// been started again.  The kernels are those that list them: Debian's 6.12 does not.
func TestVirtualFunctions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]lab.Config{
		"UML": {Userland: lab.Debian},
		"6.1": {Userland: lab.Debian, Machine: lab.QEMU, Series: "6.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testVirtualFunctions(t, c)
		})
	}
}

func testVirtualFunctions(t *testing.T, c lab.Config) {
	lab.Run(t, c, func(g *lab.G) {
		g.Opensm(lab.SM{})
		const pf, drv = "/sys/devices/platform/swib.0", "/sys/bus/platform/drivers/swib"
		g.Write(pf+"/sriov_numvfs", "2")
		if err := g.TryWrite(pf+"/sriov_numvfs", "1"); err == nil {
			g.Error("the number of functions changed from 2 to 1 without 0 between")
		}
		dev := func(v string) string { return g.Exec("ls", pf+"/"+v+"/infiniband") }
		if s := g.PortFile(dev("virtfn1"), 1, "state"); s != "1: DOWN" {
			g.Errorf("without a GUID %q", s)
		}
		g.Exec("ip", "link", "set", "ib0", "vf", "1", "node_guid", "02:00:00:00:00:00:00:11")
		g.Exec("ip", "link", "set", "ib0", "vf", "1", "port_guid", "02:00:00:00:00:00:00:12")
		if out := g.Exec("ip", "link", "show", "ib0"); !strings.Contains(out, "02:00:00:00:00:00:00:12") {
			g.Errorf("ip does not show the GUID:\n%s", out)
		}
		target, err := os.Readlink(pf + "/virtfn1")
		testkit.NoError(g, err)
		name := target[strings.LastIndex(target, "/")+1:]
		g.Write(drv+"/unbind", name)
		g.Write(drv+"/bind", name)
		g.WaitPort(dev("virtfn1"), 1, "ACTIVE", 15*time.Second)
		if s := g.Read("/sys/class/infiniband/" + dev("virtfn1") + "/node_guid"); s != "0200:0000:0000:0011" {
			g.Errorf("node GUID %q", s)
		}
		refused(g, "del h512", unix.EBUSY)
		left := func() {
			g.Helper()
			if _, err := os.Stat(pf + "/virtfn0"); err == nil {
				g.Error("a function is left")
			}
			if n := g.Exec("ls", "/sys/class/infiniband"); strings.Count(n, "\n") != 1 {
				g.Errorf("there are the adapters\n%s", n)
			}
		}
		g.Write(pf+"/sriov_numvfs", "0")
		left()
		// They go with the driver of the physical function, and do not come back with it.
		g.Write(pf+"/sriov_numvfs", "2")
		g.Write(drv+"/unbind", "swib.0")
		g.Write(drv+"/bind", "swib.0")
		if n := g.Read(pf + "/sriov_numvfs"); n != "0" {
			g.Errorf("%s virtual functions outlive the driver", n)
		}
		left()
	})
}

// A changed node description reaches a subnet manager that does not sweep, by
// trap 144; an SMP with a wrong M_Key is reported by trap 256.
func TestTraps(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3}, func(g *lab.G) {
		g.Opensm(lab.SM{Args: []string{"-s", "0", "-D", "0x43"}})
		g.Write("/sys/class/infiniband/swib2/node_desc", "renamed")
		g.Wait("the new description in the SA", 20*time.Second, func() bool {
			out, _ := g.Try("saquery", "-C", "swib0", "-N")
			return strings.Contains(out, "renamed")
		})
		g.Ctl("mkey h2/1 77 2")
		_, _ = g.Try("smpquery", "-C", "swib1", "-t", "100", "-e", "nodedesc", g.Read("/sys/class/infiniband/swib2/ports/1/lid"))
		g.Wait("the notice in opensm's log", 20*time.Second, func() bool {
			return strings.Contains(g.Read("/tmp/opensm-swib0.log"), "num:256")
		})
	})
}
