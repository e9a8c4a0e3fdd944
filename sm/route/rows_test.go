package route_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
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
