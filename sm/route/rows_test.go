package route_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/explain"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/route"
)

// On a whole HyperX no tables have fewer flows on the busiest link. With a few cables out,
// tables have no loop, a cut changes few entries, and all entries are among the choices.
func TestHyperX(t *testing.T) {
	for _, c := range []struct {
		gen.Case
		most float64 // flows on the busiest link over the bound
		cuts uint64
	}{
		{gen.Case{Name: "6x6", Fabric: gen.HyperX([]int{6, 6}, 4)}, 1, 3},
		{gen.Case{Name: "12x12", Fabric: gen.HyperX([]int{12, 12}, 36)}, 1, 0},
		{gen.Case{Name: "3x3", Fabric: gen.HyperX([]int{3, 3}, 2)}, 1, 0},
		{gen.Case{Name: "4x4x4", Fabric: gen.HyperX([]int{4, 4, 4}, 1)}, 1, 0},
		{gen.Case{Name: "5x5, two out", Fabric: gen.CutCables(gen.HyperX([]int{5, 5}, 2), 1, 2)}, 1.5, 0},
		{gen.Case{Name: "8x8, three out", Fabric: gen.CutCables(gen.HyperX([]int{8, 8}, 4), 1, 0.7)}, 1.25, 3},
	} {
		f := gen.LIDs(c.Fabric, 0)
		r, l := build(t, c.Name, f, route.Options{})
		updn, _ := route.Build(f, route.Options{Engine: "updn"})
		t.Logf("%s: %s, %.0f flows on a link, the bound is %.0f; %.0f with updn", c.Name, r.Engine, l.Worst, r.Bound, updn.Worst)
		if r.Engine != route.DOR || l.Worst > c.most*r.Bound+1e-9 || len(f.EndPorts) < 150 && naiveLoop(f, r.LFT) {
			t.Errorf("%s: %s, %.0f flows on a link, the bound is %.0f", c.Name, r.Engine, l.Worst, r.Bound)
		}
		if named, _ := route.Build(f, route.Options{Engine: "dor"}); named.Engine != route.DOR || len(named.Warnings) > 0 {
			t.Errorf("%s by name: %s, %q", c.Name, named.Engine, named.Warnings)
		}
		for seed := range c.cuts {
			g := cut(f, rand.New(rand.NewPCG(seed, 3)), 1)
			after, full := build(t, c.Name, g, route.Options{Previous: r.LFT})
			fresh, least := build(t, c.Name, g, route.Options{})
			must, changed, redone := 0, 0, 0
			for s := range after.LFT {
				for lid, p := range r.LFT[s] {
					if q := g.Port(g.Switches[s].Node, p); p != 0 && q != fabric.None && g.Ports[q].Peer == fabric.None {
						must++
					}
					if after.LFT[s][lid] != p {
						changed++
					}
					if fresh.LFT[s][lid] != p {
						redone++
					}
				}
			}
			t.Logf("%s, cut %d: %s, %d entries led over the cable, %d change, %d from nothing; %.0f flows on a link, %.0f from nothing", c.Name,
				seed, after.Engine, must, changed, redone, full.Worst, least.Worst)
			if after.Engine != route.DOR || changed < must || changed > 4*must+20 || full.Worst > 1.1*least.Worst {
				t.Errorf("%s, cut %d: %s, %d entries led over the cable, %d change", c.Name, seed, after.Engine, must, changed)
			}
			if seed > 0 {
				continue
			}
			v := route.NewView(g, g, nil, &after)
			for s := range g.Switches {
				for _, e := range g.EndPorts {
					d, _ := g.SwitchOf(e)
					legal, _ := v.Choices(int32(s), g.Ports[e].LID)
					if d != int32(s) && !slices.Contains(legal, after.LFT[s][g.Ports[e].LID]) {
						t.Fatalf("%s: port %d of switch %d is not among its choices %v", c.Name, after.LFT[s][g.Ports[e].LID], s, legal)
					}
				}
			}
		}
	}
}

// Up/down loads no link between two groups of a DragonFly+ more than those of its hosts do,
// also where the switches are too many to search for an order.
func TestLargeDragonFlyPlus(t *testing.T) {
	n := 12
	if testing.Short() {
		n = 8
	}
	f := gen.LIDs(gen.DragonFlyPlus(n+1, n, n, 1), 0)
	r, l := build(t, "DragonFly+", f, route.Options{})
	if r.Engine != route.UpDown || l.Worst > r.Bound {
		t.Errorf("%s, %.0f flows on a link, the bound is %.0f", r.Engine, l.Worst, r.Bound)
	}
}

// A grid with rows of two or three is routed by dimension order with any number of dimensions,
// and with hop weights too.
func TestShortRows(t *testing.T) {
	weights := func(f *fabric.Fabric) []guidfile.Weight {
		return []guidfile.Weight{{Switch: f.Nodes[f.Switches[0].Node].GUID, Port: 1, Hops: 3}}
	}
	for name, f := range map[string]*fabric.Fabric{
		"seven dimensions": gen.Mesh([]int{2, 2, 2, 2, 2, 2, 2}, 2), "torus 4x4x4x4": gen.Torus([]int{4, 4, 4, 4}, 1),
		"three dimensions": gen.Mesh([]int{2, 2, 2}, 2)} {
		f = gen.LIDs(f, 0)
		for _, opt := range []route.Options{{}, {HopWeights: weights(f)}} {
			if r, l := build(t, name, f, opt); r.Engine != route.DOR || l.Worst > r.Bound {
				t.Errorf("%s: %s, %.0f flows on a link, the bound is %.0f", name, r.Engine, l.Worst, r.Bound)
			}
		}
	}
}

// Where the engine is named, hop weights have no effect on a HyperX, which is reported.
func TestHyperXHopWeights(t *testing.T) {
	f := gen.LIDs(gen.HyperX([]int{4, 4}, 2), 0)
	p := &f.Ports[cables(f)[0]]
	w := []guidfile.Weight{{Switch: f.Nodes[p.Node].GUID, Port: p.Num, Hops: 3}}
	r, err := route.Build(f, route.Options{Engine: route.DOR, HopWeights: w})
	if err != nil || r.Engine != route.DOR || r.Worst > r.Bound || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "no effect") {
		t.Errorf("%s, %.0f flows on a link, the bound is %.0f; %q, %v", r.Engine, r.Worst, r.Bound, r.Warnings, err)
	}
	if r, _ = route.Build(f, route.Options{HopWeights: w}); r.Engine != route.UpDown {
		t.Errorf("chosen: %s", r.Engine)
	}
}

// To see that a graph is no HyperX takes little of the time of its tables: here a tree of two
// levels with a cable between two leaves.
func TestRowsSoon(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const leaves, spines, hosts = 120, 60, 10
	m := gen.New()
	for i := range leaves {
		leaf := m.Switch(spines + hosts + 1)
		for h := range hosts {
			m.Link(m.Host(1), 1, leaf, spines+1+h)
		}
		if i == leaves-1 {
			m.Link(leaf, spines+hosts+1, leaf-hosts-1, spines+hosts+1)
		}
	}
	for i := range spines {
		spine := m.Switch(leaves)
		for k := range leaves {
			m.Link(spine, k+1, k*(hosts+1), i+1)
		}
	}
	f := gen.LIDs(m.Done(1), 0)
	at := spent()
	updn, _ := route.Build(f, route.Options{Engine: route.UpDown})
	alone := spent() - at
	at = spent()
	r, _ := route.Build(f, route.Options{})
	took := spent() - at
	t.Logf("%s in %v of CPU, %v by name", r.Engine, took, alone)
	if r.Engine != route.UpDown || r.Worst != updn.Worst || took > alone*8/5 {
		t.Errorf("%s in %v of CPU, %v by name", r.Engine, took, alone)
	}
}

// Hosts that go off one after the other never change the engine, however much better the other
// one would be.
func TestHyperXHostsOff(t *testing.T) {
	engines := map[string]int{}
	for seed := range uint64(12) {
		f := gen.LIDs(gen.CutCables(gen.HyperX([]int{5, 5}, 2), seed, float64(seed)), 0)
		r, _ := build(t, "all on", f, route.Options{})
		engines[r.Engine]++
		for percent := 90.0; percent >= 10; percent -= 20 {
			after, _ := build(t, "some off", gen.HostsOff(f, seed, percent), route.Options{Previous: r.LFT, Order: r.Order})
			if after.Engine != r.Engine {
				t.Errorf("seed %d, %.0f %% of the hosts on: %s instead of %s", seed, percent, after.Engine, r.Engine)
			}
			r = after
		}
	}
	if engines[route.DOR] == 0 || engines[route.UpDown] == 0 {
		t.Errorf("with all hosts on: %v", engines)
	}
}

// Where switches of a HyperX go off, and cables besides, dimension order stays, few entries
// change beyond those that led over them, and the busiest link is not much busier. So it is
// when all come back.
func TestHyperXSwitchesOff(t *testing.T) {
	for _, c := range []struct {
		name   string
		dims   []int
		off    []int // by index of Fabric.Switches
		cables int   // out besides
		flows  float64
		more   int // entries that change beyond those that must
	}{
		{"6x6, one off", []int{6, 6}, []int{14}, 0, 96, 0},
		{"6x6, two of a row off", []int{6, 6}, []int{14, 16}, 0, 96, 0},
		{"6x6, two of a column off", []int{6, 6}, []int{14, 20}, 0, 96, 0},
		{"6x6, two off", []int{6, 6}, []int{14, 27}, 0, 116, 0},
		{"6x6, three off", []int{6, 6}, []int{1, 14, 27}, 0, 124, 0},
		{"6x6, one off and two cables out", []int{6, 6}, []int{14}, 2, 120, 0},
		{"6x6, two off and two cables out", []int{6, 6}, []int{14, 27}, 2, 120, 99},
		{"8x8, one off", []int{8, 8}, []int{9}, 0, 128, 0},
		{"4x4x4, one off", []int{4, 4, 4}, []int{21}, 0, 292, 135},
		{"4x4x4, two off", []int{4, 4, 4}, []int{21, 42}, 0, 400, 270},
	} {
		f := gen.LIDs(gen.HyperX(c.dims, 4), 0)
		before, _ := build(t, c.name, f, route.Options{})
		var nodes []int32
		for _, s := range c.off {
			nodes = append(nodes, f.Switches[s].Node)
		}
		g := cut(explain.Without(f, nodes, nil), rand.New(rand.NewPCG(0, 3)), c.cables)
		after, l := build(t, c.name, g, route.Options{Previous: carried(f, g, before.LFT)})
		back, _ := build(t, c.name, f, route.Options{Previous: carried(g, f, after.LFT)})
		must, changed := entriesBetween(f, g, before.LFT, after.LFT)
		_, again := entriesBetween(g, f, after.LFT, back.LFT)
		fresh, least := build(t, c.name, g, route.Options{})
		updn, _ := route.Build(g, route.Options{Engine: "updn"})
		t.Logf("%s: %s, %.0f flows on a link, %s %.0f from nothing, %.0f before, %.0f with updn, the bound is %.0f", c.name, after.Engine,
			l.Worst, fresh.Engine, least.Worst, before.Worst, updn.Worst, after.Bound)
		t.Logf("%d entries must change, %d do, %d at the repair", must, changed, again)
		if after.Engine != route.DOR || back.Engine != route.DOR || back.Worst > before.Worst {
			t.Errorf("%s: %s, then %s with %.0f flows on a link", c.name, after.Engine, back.Engine, back.Worst)
		}
		if l.Worst > c.flows || l.Worst > 1.1*least.Worst || changed < must || changed > must+c.more || again > changed {
			t.Errorf("%s: %.0f flows on a link, want %.0f; %d entries must change, %d do, %d at the repair", c.name, l.Worst, c.flows, must,
				changed, again)
		}
		if naiveLoop(g, after.LFT) || naiveLoop(f, back.LFT) {
			t.Errorf("%s: a credit loop", c.name)
		}
	}
}

// Where a few cables of a HyperX are out, two of one switch among them, dimension order stays on
// one lane, no link is busier than with up/down, and few entries change beyond those that led
// over the cables.
func TestHyperXCablesOut(t *testing.T) {
	for _, c := range []struct {
		dims  []int
		hosts int
		out   []int // seeds, by how many cables are out
		most  int   // entries that change
	}{
		{[]int{8, 4}, 4, []int{4, 9, 5, 6}, 260},
		{[]int{6, 6}, 4, []int{0, 1, 8, 6}, 260},
		{[]int{4, 4, 4}, 2, []int{0, 4, 2}, 320},
	} {
		f := gen.LIDs(gen.HyperX(c.dims, c.hosts), 0)
		before, _ := build(t, "whole", f, route.Options{})
		for i, seed := range c.out {
			name := fmt.Sprintf("%v, %d out", c.dims, i+1)
			g := cut(f, rand.New(rand.NewPCG(uint64(seed), 77)), i+1)
			after, l := build(t, name, g, route.Options{Previous: before.LFT})
			updn, _ := build(t, name, g, route.Options{Engine: "updn"})
			must, changed := entriesBetween(f, g, before.LFT, after.LFT)
			t.Logf("%s: %s, %.0f flows on a link, %.0f with updn, the bound is %.0f; %d entries must change, %d do", name, after.Engine,
				l.Worst, updn.Worst, after.Bound, must, changed)
			if after.Engine != route.DOR || l.Worst > updn.Worst || changed > c.most {
				t.Errorf("%s: %s, %.0f flows on a link, %.0f with updn; %d entries must change, %d do", name, after.Engine, l.Worst,
					updn.Worst, must, changed)
			}
			if route.CreditLoop(g, after.LFT, nil) != nil || naiveLoop(g, after.LFT) {
				t.Errorf("%s: a credit loop", name)
			}
		}
	}
}

// carried is tables by the switches of another fabric.
func carried(from, to *fabric.Fabric, lft [][]uint8) [][]uint8 {
	out := make([][]uint8, len(to.Switches))
	for s := range out {
		if n := from.NodeByGUID(to.Nodes[to.Switches[s].Node].GUID); n != fabric.None {
			out[s] = lft[from.Nodes[n].Switch]
		}
	}
	return out
}

// entriesBetween counts, of the entries for LIDs of both fabrics on switches of both, those of
// the first tables that lead over a link that the second fabric lacks, and those that differ.
func entriesBetween(f, g *fabric.Fabric, first, second [][]uint8) (must, changed int) {
	known, both := map[ib.LID]bool{}, []ib.LID(nil)
	for _, e := range f.EndPorts {
		known[f.Ports[e].LID] = true
	}
	for _, e := range g.EndPorts {
		if d, _ := g.SwitchOf(e); d != fabric.None && known[g.Ports[e].LID] {
			both = append(both, g.Ports[e].LID)
		}
	}
	for s, old := range carried(f, g, first) {
		if old == nil {
			continue
		}
		var gone [256]bool
		for p := range gone {
			q := g.Port(g.Switches[s].Node, uint8(p))
			gone[p] = p != 0 && p != int(route.NoPort) && (q == fabric.None || g.Ports[q].Peer == fabric.None)
		}
		for _, lid := range both {
			p := old[lid]
			if gone[p] {
				must++
			}
			if second[s][lid] != p {
				changed++
			}
		}
	}
	return must, changed
}
