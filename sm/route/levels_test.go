package route_test

import (
	"slices"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// plugged is a fabric with further end nodes on switches, on ports behind their last.
func plugged(t *testing.T, f *fabric.Fabric, desc string, count func(s int) int) *fabric.Fabric {
	t.Helper()
	b := fabric.NewBuilder()
	more := func(n *fabric.Node) uint8 {
		if n.Switch == fabric.None {
			return 0
		}
		return uint8(count(int(n.Switch)))
	}
	add := func(n fabric.Node) int {
		k, err := b.AddNode(n)
		testkit.NoError(t, err)
		return k
	}
	link := func(n int, p uint8, m int, q uint8) {
		testkit.NoError(t, b.Link(n, p, m, q))
	}
	for i := range f.Nodes {
		n := f.Nodes[i]
		n.NumPorts += more(&n)
		add(n)
		first, num := f.PortRange(int32(i))
		for p := first; p < first+num; p++ {
			q := b.Port(i, f.Ports[p].Num)
			q.Info, q.Known, q.GUID = f.Ports[p].Info, true, f.Ports[p].GUID
		}
		if n.Switch != fabric.None {
			b.SetSwitchInfo(i, f.Switches[n.Switch].Info)
		}
	}
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer > int32(i) {
			q := &f.Ports[p.Peer]
			link(int(p.Node), p.Num, int(q.Node), q.Num)
		}
	}
	for i := range f.Nodes {
		for k := range more(&f.Nodes[i]) {
			guid := f.Nodes[i].GUID + ib.GUID(k+1)<<32
			n := add(fabric.Node{GUID: guid, Type: ib.NodeCA, NumPorts: 1, Desc: desc})
			b.Port(n, 1).GUID, b.Port(n, 1).Info = guid, f.Ports[f.EndPorts[0]].Info
			at := f.Nodes[i].NumPorts + k + 1
			b.Port(i, at).Info = b.Port(n, 1).Info
			link(i, at, n, 1)
		}
	}
	return gen.LIDs(b.Build(), 0)
}

// End nodes on upper switches leave a tree a tree. The aggregation nodes of switches are no
// hosts: the busiest link is the same as without.
func TestEndNodesAbove(t *testing.T) {
	const aggregation = "Mellanox Technologies Aggregation Node"
	one := func(int) int { return 1 }
	for name, f := range map[string]*fabric.Fabric{"two levels": gen.FatTree2(16, 8), "three levels": gen.FatTree3(12, 6, 6),
		"most hosts off": gen.HostsOff(gen.FatTree3(12, 6, 6), 1, 15)} {
		_, bare := build(t, name, gen.LIDs(f, 0), route.Options{})
		leaf := make([]bool, len(f.Switches))
		for _, e := range f.EndPorts {
			if s, out := f.SwitchOf(e); s != fabric.None && out != 0 {
				leaf[s] = true
			}
		}
		top := slices.Index(leaf, false)
		for _, c := range []struct {
			what  string
			desc  string
			count func(int) int
		}{{"aggregation nodes", aggregation, one}, {"a node on each", "gateway", one},
			{"storage on a spine", "storage", func(s int) int { return 5 * max(0, 1-max(s-top, top-s)) }}} {
			if name == "most hosts off" && c.desc != aggregation {
				continue // then most end nodes are above
			}
			g := plugged(t, f, c.desc, c.count)
			r, l := build(t, name+", "+c.what, g, route.Options{})
			if r.Engine != route.FatTree || c.desc == aggregation && l.Worst != bare.Worst {
				t.Errorf("%s, %s: %s, %.0f flows on a link, %.0f without", name, c.what, r.Engine, l.Worst, bare.Worst)
			}
			if loop := route.CreditLoop(g, r.LFT, r.SL); loop != nil {
				t.Errorf("%s, %s: credit loop %v", name, c.what, loop)
			}
		}
	}
}

// What keeps switches from being a tree is named.
func TestNoTree(t *testing.T) {
	g := plugged(t, gen.FatTree3(12, 6, 6), "host", func(int) int { return 6 })
	r, _ := build(t, "hosts everywhere", g, route.Options{Engine: route.FatTree})
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "hosts at several levels, as on S-") {
		t.Errorf("%q", r.Warnings)
	}
}

// The reason is also named where other tables follow those of ftree, however good they are.
func TestNoTreeAfterFatTree(t *testing.T) {
	g := plugged(t, gen.FatTree3(12, 6, 6), "host", func(int) int { return 6 })
	if r, _ := build(t, "at first", g, route.Options{}); r.NoTree != "" || r.Engine == route.FatTree {
		t.Fatalf("%s, %q", r.Engine, r.NoTree)
	}
	r, _ := build(t, "after ftree", g, route.Options{Before: route.FatTree})
	if !strings.Contains(r.NoTree, "hosts at several levels") {
		t.Errorf("%s: %q", r.Engine, r.NoTree)
	}
}

// Hosts that are off leave a tree with I/O nodes on its spines a tree.
func TestFewHostsOn(t *testing.T) {
	const leaves, spines, hosts, servers = 16, 8, 8, 3
	m := gen.New()
	for range leaves {
		leaf := m.Switch(spines + hosts)
		for h := range hosts {
			m.Link(m.Host(1), 1, leaf, spines+1+h)
		}
	}
	for i := range spines {
		spine := m.Switch(leaves + servers)
		for k := range leaves {
			m.Link(spine, k+1, k*(hosts+1), i+1)
		}
		for h := range servers {
			m.Link(m.Host(1), 1, spine, leaves+1+h)
		}
	}
	f := gen.LIDs(m.Done(1), 0)
	for percent := 100; percent >= 5; percent -= 5 {
		n := 0
		g := gen.Unplug(f, func(a, b *fabric.Port) bool {
			sw := max(f.Nodes[a.Node].Switch, f.Nodes[b.Node].Switch)
			between := f.Nodes[a.Node].Switch != fabric.None && f.Nodes[b.Node].Switch != fabric.None
			if between || f.Nodes[f.Switches[sw].Node].NumPorts != spines+hosts || n == 0 {
				n++
				return false
			}
			n++
			return n*7919%100 >= percent
		})
		if r, l := build(t, "few on", g, route.Options{}); r.Engine != route.FatTree || l.Worst > 2*r.Bound {
			t.Errorf("%d %% of the hosts on leaves on: %s, %.0f flows on a link, the bound is %.0f", percent, r.Engine, l.Worst, r.Bound)
		}
	}
}
