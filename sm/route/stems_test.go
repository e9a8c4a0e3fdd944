package route_test

import (
	"math/rand/v2"
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// On trees of thousands of hosts the busiest link has at most 1.1 times the flows that no tables can
// be below, also after a change, which changes few entries beyond those that must. Tables are
// the same on one processor.
func TestLargeTrees(t *testing.T) {
	whole := gen.LIDs(gen.FatTree3(36, 16, 18), 0)
	cases := []struct {
		gen.Case
		share float64 // in shift permutations, at least
		more  int     // entries that change for each one that must, at most
	}{
		{gen.Case{Name: "whole", Fabric: whole}, 0.92, 0},
		{gen.Case{Name: "a host off", Fabric: gen.EmptyLeaf(whole, 5, 17)}, 0.91, 0},
		{gen.Case{Name: "a cable out", Fabric: cut(whole, rand.New(rand.NewPCG(1, 3)), 1)}, 0.84, 7},
		{gen.Case{Name: "the first cable out", Fabric: cableOut(whole)}, 0.84, 12},
		{gen.Case{Name: "1 % of the cables out", Fabric: gen.CutCables(whole, 1, 1)}, 0.79, 2},
		{gen.Case{Name: "70 % of the hosts on", Fabric: gen.HostsOff(whole, 1, 70)}, 0.96, 0},
	}
	if testing.Short() || every > 1 {
		cases = cases[2:4]
	}
	before, _ := route.Build(whole, route.Options{})
	force := route.Options{Previous: before.LFT, Order: before.Order, Before: before.Engine}
	for _, c := range cases {
		f := c.Fabric
		r, l := build(t, c.Name, f, route.Options{})
		share, _ := route.Shift(f, r.LFT)
		after, kept := build(t, c.Name, f, force)
		left, _ := route.Shift(f, after.LFT)
		must, changed := entriesBetween(whole, f, before.LFT, after.LFT)
		t.Logf("%s: %s, %.0f flows on a link, none can have less than %.0f, and a share of %.3f; after the whole tree %.0f and %.3f; "+
			"%d entries must change, %d do", c.Name, r.Engine, l.Worst, r.Bound, share, kept.Worst, left, must, changed)
		if r.Engine != route.FatTree || l.Worst > 1.1*r.Bound+1 || l.Worst != r.Worst || share < c.share {
			t.Errorf("%s: %s, %.0f flows on a link, the result says %.0f, none can have less than %.0f, and a share of %.3f", c.Name, r.Engine,
				l.Worst, r.Worst, r.Bound, share)
		}
		if kept.Worst > 1.1*l.Worst+1 || changed > (1+c.more)*must+20 {
			t.Errorf("%s: %.0f flows on a link after the whole tree, %.0f from nothing; %d entries must change, %d do", c.Name, kept.Worst,
				l.Worst, must, changed)
		}
		in := route.Options{Previous: after.LFT, Order: after.Order}
		if again, _ := build(t, c.Name, f, in); blocks(after.LFT, again.LFT) > 0 {
			t.Errorf("%s: a second sweep without a change rewrites %d blocks", c.Name, blocks(after.LFT, again.LFT))
		}
		back, l := build(t, c.Name, whole, in)
		if l.Worst > 1.1*before.Worst+1 {
			t.Errorf("%s, then whole again: %.0f flows on a link, %.0f before", c.Name, l.Worst, before.Worst)
		}
		if n, all := idle(whole, f, back.LFT); 20*n > all {
			t.Errorf("%s, then whole again: no entry leads to %d of %d links that came back", c.Name, n, all)
		}
		both := force
		both.Processors = 2
		two, _ := route.Build(f, both)
		if n := blocks(two.LFT, after.LFT); n > 0 {
			t.Errorf("%s: on two processors %d blocks differ", c.Name, n)
		}
	}
}

// A cut next to the leaf that the order of the switches begins with leaves it the first, and the tables
// balanced as those from nothing.
func TestFirstCable(t *testing.T) {
	whole := gen.LIDs(gen.FatTree3(18, 6, 9), 0)
	before, _ := build(t, "whole", whole, route.Options{})
	f := cableOut(whole)
	_, l := build(t, "from nothing", f, route.Options{})
	after, kept := build(t, "after the whole tree", f, hinted(route.Options{}, &before))
	must, changed := entriesBetween(whole, f, before.LFT, after.LFT)
	if kept.Worst > 1.05*l.Worst || changed > 3*must {
		t.Errorf("%.0f flows on a link after the whole tree, %.0f from nothing; %d entries must change, %d do", kept.Worst, l.Worst, must,
			changed)
	}
}

// So it is with many cables out, where only few leaves can lead from roots to others without more flows
// than all links of a leaf should have.
func TestLargeTreesManyOut(t *testing.T) {
	whole := gen.LIDs(gen.FatTree3(36, 16, 18), 0)
	before, _ := route.Build(whole, route.Options{})
	for _, c := range []struct {
		seed    uint64
		percent float64
	}{{1, 2}, {1, 3}, {1, 5}, {2, 5}, {2, 8}, {3, 8}} {
		if c.percent > 2 && (testing.Short() || every > 1) {
			continue
		}
		f := gen.CutCables(whole, c.seed, c.percent)
		r, l := build(t, "from nothing", f, route.Options{})
		after, kept := build(t, "after the whole tree", f, hinted(route.Options{}, &before))
		again, _ := build(t, "a second sweep", f, hinted(route.Options{}, &after))
		n := blocks(after.LFT, again.LFT)
		t.Logf("%.0f %% of the cables out: %.0f flows on a link, none can have less than %.0f; %.0f after the whole tree", c.percent, l.Worst,
			r.Bound, kept.Worst)
		if n > 0 || max(l.Worst, kept.Worst) > 1.1*r.Bound+1 {
			t.Errorf("more than a tenth above what none can have less than, or a second sweep without a change rewrites blocks: %d", n)
		}
	}
}

// idle counts ports with a link to another that a part of the fabric lacks, and those that no entry leads to.
func idle(whole, part *fabric.Fabric, lft [][]uint8) (n, all int) {
	for s := range whole.Switches {
		first, count := whole.PortRange(whole.Switches[s].Node)
		var led [256]bool
		for _, p := range lft[s] {
			led[p] = true
		}
		for p := first + 1; p < first+count; p++ {
			num := whole.Ports[p].Num
			q := part.Port(part.Switches[s].Node, num)
			if whole.Ports[p].Peer == fabric.None || q != fabric.None && part.Ports[q].Peer != fabric.None {
				continue
			}
			if all++; !led[num] {
				n++
			}
		}
	}
	return n, all
}

// The same with as many hosts as there are LIDs.
func TestLargestTree(t *testing.T) {
	if testing.Short() || every > 1 {
		t.Skip("takes half a minute")
	}
	whole := gen.LIDs(gen.FatTree3(128, 12, 61), 0)
	before, l := build(t, "whole", whole, route.Options{})
	if t.Logf("whole: %.0f flows on a link, none can have less than %.0f", l.Worst, before.Bound); l.Worst > 1.1*before.Bound+1 {
		t.Errorf("whole: %.0f flows on a link, none can have less than %.0f", l.Worst, before.Bound)
	}
	force := route.Options{Previous: before.LFT, Order: before.Order, Before: before.Engine}
	for _, c := range []gen.Case{{Name: "a cable out", Fabric: cableOut(whole)},
		{Name: "1 % of the cables out", Fabric: gen.CutCables(whole, 1, 1)}} {
		f := c.Fabric
		r, l := build(t, c.Name, f, route.Options{})
		after, kept := build(t, c.Name, f, force)
		must, changed := entriesBetween(whole, f, before.LFT, after.LFT)
		t.Logf("%s: %.0f flows on a link, %.0f after the whole tree, none can have less than %.0f; %d entries must change, %d do", c.Name,
			l.Worst, kept.Worst, r.Bound, must, changed)
		if l.Worst > 1.1*r.Bound+1 || kept.Worst > 1.1*l.Worst+1 || changed > 8*must {
			t.Errorf("%s: %.0f flows on a link, %.0f after the whole tree, none can have less than %.0f; %d entries must change, %d do", c.Name,
				l.Worst, kept.Worst, r.Bound, must, changed)
		}
	}
}
