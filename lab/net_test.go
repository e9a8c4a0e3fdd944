package lab_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab"
	"ibnetworkd/lab/gen"
)

// Two hosts with one cable, as in a home lab: each is a kernel of its own, one
// runs the subnet manager, and IPoIB works in both modes.
func TestNetCable(t *testing.T) {
	t.Parallel()
	connected := func(g *lab.G) {
		g.Exec("ip", "link", "set", "ib0", "type", "ipoib", "mode", "connected")
		g.Exec("ip", "link", "set", "ib0", "mtu", "65520")
	}
	lab.RunNet(t, lab.Net{
		Cables: []string{"a/1 b/1"},
		Nodes: []lab.Node{
			{Name: "a", Config: lab.Config{Userland: lab.Debian}, Body: func(g *lab.G) {
				g.WaitPort("swib0", 1, "INIT", 20*time.Second)
				g.Opensm(lab.SM{})
				g.Sh("ip addr add 10.9.0.1/24 dev ib0; ip link set ib0 up")
				g.Await("b-up", 30*time.Second)
				g.Ping("10.9.0.2", "-s", "4000")
				connected(g)
				g.Await("b-connected", 30*time.Second)
				g.Ping("10.9.0.2", "-s", "65000")
				if n := g.FabricPort("hca0", 1).Int("rcmax"); n < 65000 {
					g.Errorf("longest connected mode message: %d bytes", n)
				}
			}},
			{Name: "b", Config: lab.Config{Userland: lab.Debian}, Body: func(g *lab.G) {
				g.WaitPort("swib0", 1, "ACTIVE", 30*time.Second)
				g.Sh("ip addr add 10.9.0.2/24 dev ib0; ip link set ib0 up")
				g.Post("b-up", "")
				connected(g)
				g.Post("b-connected", "")
			}},
		},
	})
}

// Two hosts at a switch; the one with the master subnet manager dies, the other
// takes over, and the first comes back into the running fabric.
func TestNetSwitch(t *testing.T) {
	t.Parallel()
	host := func(addr string, prio string) func(g *lab.G) {
		return func(g *lab.G) {
			linked(g, "a", "c")
			g.Opensm(lab.SM{NoWait: true, Args: []string{"-p", prio}})
			g.WaitPort("swib0", 1, "ACTIVE", 40*time.Second)
			g.Sh("ip addr add %s/24 dev ib0; ip link set ib0 up", addr)
			g.Post("up-"+g.Node(), "")
			if g.Node() == "c" {
				g.Await("back", 80*time.Second)
				g.Ping("10.9.0.1")
				return
			}
			g.Await("up-c", 30*time.Second)
			g.Ping("10.9.0.3")
			g.Post("pinged", "")
			if g.Posted("reborn") == "" {
				select {} // until the plug is pulled
			}
			g.Post("back", "")
		}
	}
	lab.RunNet(t, lab.Net{
		Cables: []string{"a/1 sw/1", "c/1 sw/3"},
		Nodes: []lab.Node{
			{Name: "a", Config: lab.Config{Userland: lab.Debian}, Body: host("10.9.0.1", "9")},
			{Name: "c", Config: lab.Config{Userland: lab.Debian}, Body: host("10.9.0.3", "3")},
			{Name: "sw", Switch: 8},
		},
		Script: func(t *testing.T, r *lab.NetRun) {
			r.Await("pinged", 60*time.Second)
			r.Kill("a")
			r.Post("reborn", "yes")
			r.Boot("a")
		},
	})
}

// linked waits until all these hosts have a link: opensm misses one that comes up
// while it reads that switch for the first time.
func linked(g *lab.G, hosts ...string) {
	g.Helper()
	if g.Posted("linked-"+g.Node()) != "" {
		return // booted again into a fabric that runs
	}
	g.WaitPort("swib0", 1, "INIT", 30*time.Second)
	g.Post("linked-"+g.Node(), "yes")
	for _, h := range hosts {
		g.Await("linked-"+h, 30*time.Second)
	}
}

// Four hosts at two switches.  The cable between the switches is cut: each half
// goes on with a master of its own; it is put in again: one fabric, one master.
// Each host pings all others all the time.
func TestNetPartition(t *testing.T) {
	t.Parallel()
	hosts := []string{"a", "b", "c", "d"}
	body := func(g *lab.G) {
		me := 0
		for i, h := range hosts {
			if h == g.Node() {
				me = i
			}
		}
		switch g.Node() {
		case "a":
			g.SM(lab.SM{NoWait: true, Args: []string{"--priority=9"}})
		case "c":
			g.SM(lab.SM{NoWait: true, Args: []string{"--priority=5"}})
		}
		role := func(phase, of, want string) {
			if g.Node() == of {
				g.Wait(phase+": "+of+" to be "+want, 60*time.Second, func() bool { return g.SMRole("swib0", 1) == want })
			}
		}
		g.WaitPort("swib0", 1, "ACTIVE", 40*time.Second)
		g.Sh("ip addr add 10.9.0.%d/24 dev ib0; ip link set ib0 up", me+1)
		all := func(reach func(other int) bool, phase string) {
			for i := range hosts {
				if i == me || !reach(i) {
					continue
				}
				addr := fmt.Sprintf("10.9.0.%d", i+1)
				g.Wait(phase+": answer of "+hosts[i], 60*time.Second, func() bool {
					_, err := g.Try("ping", "-n", "-c", "1", "-W", "1", addr)
					return err == nil
				})
			}
			g.Post(phase+"-"+g.Node(), "")
		}
		for i := range hosts {
			if i != me {
				defer g.Pings(fmt.Sprintf("10.9.0.%d", i+1), 200*time.Millisecond)()
			}
		}
		role("whole", "c", "STANDBY")
		all(func(int) bool { return true }, "whole")
		g.Await("cut", 60*time.Second)
		role("halves", "a", "MASTER")
		role("halves", "c", "MASTER")
		all(func(i int) bool { return i/2 == me/2 }, "halves")
		for i := range hosts {
			if i/2 != me/2 {
				g.Wait("silence of "+hosts[i], 20*time.Second, func() bool {
					_, err := g.Try("ping", "-n", "-c", "1", "-W", "0.3", fmt.Sprintf("10.9.0.%d", i+1))
					return err != nil
				})
			}
		}
		g.Post("cut-seen-"+g.Node(), "")
		g.Await("healed", 60*time.Second)
		role("healed", "a", "MASTER")
		role("healed", "c", "STANDBY")
		all(func(int) bool { return true }, "again")
	}
	n := lab.Net{
		Cables: []string{"a/1 left/1", "b/1 left/2", "c/1 right/1", "d/1 right/2", "left/8 right/8"},
		Nodes:  []lab.Node{{Name: "left", Switch: 8}, {Name: "right", Switch: 8}},
		Script: func(t *testing.T, r *lab.NetRun) {
			await := func(phase string) {
				for _, h := range hosts {
					r.Await(phase+"-"+h, 100*time.Second)
				}
			}
			await("whole")
			r.Ctl("left", "link s0/8 down")
			r.Post("cut", "")
			await("halves")
			await("cut-seen")
			r.Ctl("left", "link s0/8 up")
			r.Post("healed", "")
			await("again")
		},
	}
	for _, h := range hosts {
		n.Nodes = append(n.Nodes, lab.Node{Name: h, Config: lab.Config{Userland: lab.Debian}, Body: body})
	}
	lab.RunNet(t, n)
}

// Two kernels at switches of a simulated fat tree of a thousand hosts, as far from
// each other as can be.  A subnet manager in one of them brings all of it up, over
// the kernel's own MAD interface; IPoIB goes through the simulated switches by the
// forwarding tables that it programmed: unicast, multicast and connections.
func TestNetThousand(t *testing.T) {
	t.Parallel()
	f := gen.FatTree2(64, 32)
	last := f.Nodes[len(f.Nodes)-1]
	for i := range f.Nodes {
		if f.Nodes[i].Type == ib.NodeCA {
			last = f.Nodes[i]
		}
	}
	host := func(g *lab.G, n int, other string) {
		g.Sh("ip addr add 10.9.0.%d/24 dev ib0; ip link set ib0 up", n)
		g.Post("up-"+g.Node(), "")
		g.Await("up-"+other, 60*time.Second)
		addr := fmt.Sprintf("10.9.0.%d", 3-n)
		g.Ping(addr, "-s", "1400")
		g.Logf("datagram ping at %v", lab.Uptime())
		g.Ping("ff02::1%ib0", "-L")
		g.Exec("ip", "link", "set", "ib0", "type", "ipoib", "mode", "connected")
		g.Exec("ip", "link", "set", "ib0", "mtu", "65520")
		g.Post("connected-"+g.Node(), "")
		g.Await("connected-"+other, 60*time.Second)
		g.Ping(addr, "-s", "65000")
		if n := g.FabricPort("hca0", 1).Int("rcmax"); n < 65000 {
			g.Errorf("longest connected mode message: %d bytes", n)
		}
	}
	lab.RunNet(t, lab.Net{
		Fabric: gen.Text(f),
		Cables: []string{gen.HostGUID.String() + "/1 a/1", "b/1 " + last.GUID.String() + "/1"},
		Nodes: []lab.Node{
			{Name: "a", Config: lab.Config{Userland: lab.Debian, Bins: []string{"ibnetworkd/cmd/ibnetsm"}}, Body: func(g *lab.G) {
				g.WaitPort("swib0", 1, "INIT", 20*time.Second)
				start := lab.Uptime()
				g.Start("ibnetsm", "run", "--device", "swib0/1")
				g.WaitPort("swib0", 1, "ACTIVE", 3*time.Minute)
				g.Await("all-active", 3*time.Minute)
				g.Logf("%d nodes active %v after the start of the manager", len(f.Nodes), lab.Uptime()-start)
				host(g, 1, "b")
			}},
			{Name: "b", Config: lab.Config{Userland: lab.Debian}, Body: func(g *lab.G) {
				g.WaitPort("swib0", 1, "ACTIVE", 3*time.Minute)
				host(g, 2, "a")
			}},
		},
		Script: func(t *testing.T, r *lab.NetRun) {
			for end := time.Now().Add(lab.Patience(3 * time.Minute)); !r.Fabric().AllActive() && time.Now().Before(end); {
				time.Sleep(20 * time.Millisecond)
			}
			if !r.Fabric().AllActive() {
				t.Error("ports of the simulated fabric are not Active")
			}
			r.Post("all-active", "")
		},
	})
}

// Debian's own kernels with two CPUs, 6.1 and 6.12, at a simulated switch with a
// UML host: the wire is the same.
func TestNetMachines(t *testing.T) {
	t.Parallel()
	hosts := []string{"uml", "q1", "q12"}
	body := func(n int) func(g *lab.G) {
		return func(g *lab.G) {
			if n == 0 {
				g.WaitPort("swib0", 1, "INIT", 40*time.Second)
				g.SM(lab.SM{NoWait: true})
			}
			g.WaitPort("swib0", 1, "ACTIVE", 3*time.Minute)
			g.Sh("ip addr add 10.9.0.%d/24 dev ib0; ip link set ib0 up", n+1)
			g.Post("up-"+g.Node(), "")
			for i, h := range hosts {
				if i != n {
					g.Await("up-"+h, 120*time.Second)
					g.Ping(fmt.Sprintf("10.9.0.%d", i+1), "-s", "1400")
				}
			}
			g.Exec("ip", "link", "set", "ib0", "type", "ipoib", "mode", "connected")
			g.Exec("ip", "link", "set", "ib0", "mtu", "65520")
			g.Post("connected-"+g.Node(), "")
			for i, h := range hosts {
				if i != n {
					g.Await("connected-"+h, 60*time.Second)
					g.Ping(fmt.Sprintf("10.9.0.%d", i+1), "-s", "65000")
				}
			}
			g.Logf("kernel %s, done at %v", g.Read("/proc/sys/kernel/osrelease"), lab.Uptime())
		}
	}
	f := gen.Star(4, 8)
	lab.RunNet(t, lab.Net{
		Fabric: gen.Text(f),
		Cables: []string{"uml/1 S-0001/6", "q1/1 S-0001/7", "q12/1 S-0001/8"},
		Nodes: []lab.Node{
			{Name: "uml", Config: lab.Config{Userland: lab.Debian}, Body: body(0)},
			{Name: "q1", Config: lab.Config{Userland: lab.Debian, Machine: lab.QEMU}, Body: body(1)},
			{Name: "q12", Config: lab.Config{Userland: lab.Debian, Machine: lab.QEMU, Series: "6.12"}, Body: body(2)},
		},
	})
}

// A simulated switch between two kernels that are switches, with a host at each:
// directed routes and data cross the border in the middle of their way.
func TestNetMixed(t *testing.T) {
	t.Parallel()
	lab.RunNet(t, lab.Net{
		Fabric: gen.Text(gen.Star(2, 8)),
		Cables: []string{"a/1 left/1", "left/2 S-0001/6", "S-0001/7 right/5", "right/1 b/1"},
		Nodes: []lab.Node{
			{Name: "left", Switch: 4}, {Name: "right", Switch: 8},
			{Name: "a", Config: lab.Config{Userland: lab.Debian}, Body: func(g *lab.G) {
				g.WaitPort("swib0", 1, "INIT", 20*time.Second)
				g.SM(lab.SM{})
				g.Sh("ip addr add 10.9.0.1/24 dev ib0; ip link set ib0 up")
				g.Await("b", 60*time.Second)
				g.Ping("10.9.0.2", "-s", "4000")
			}},
			{Name: "b", Config: lab.Config{Userland: lab.Debian}, Body: func(g *lab.G) {
				g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second)
				g.Sh("ip addr add 10.9.0.2/24 dev ib0; ip link set ib0 up")
				// Two hosts, three switches, and the two simulated hosts.
				if n := len(strings.Split(strings.TrimSpace(g.Exec("ibnodes", "-C", "swib0")), "\n")); n != 7 {
					g.Errorf("%d nodes, want 7", n)
				}
				g.Post("b", "")
			}},
		},
	})
}
