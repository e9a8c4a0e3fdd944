package route_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// A torus without a cable keeps dimension order unless up/down is better: few entries change
// beyond those that led over the cable, a second sweep changes none, and with the cable back no
// link is busier than before.
func TestTorusCut(t *testing.T) {
	for _, c := range []struct {
		dims []int
		most float64 // entries that change, over those that must
		left float64 // part of the cables without which up/down is better
	}{{[]int{5, 5}, 2, 0}, {[]int{6, 6}, 3, 0.6}, {[]int{8, 8}, 3, 0}} {
		f := gen.LIDs(gen.Torus(c.dims, 2), 0)
		if testing.Short() && len(f.Switches) > 36 {
			continue
		}
		whole, _ := build(t, "whole", f, route.Options{})
		cut, left, must, changed, redone := 0, 0, 0, 0, 0
		most, least := 0.0, 0.0
		list := cables(f)
		for i := 0; i < len(list); i += 1 + 22*every {
			name := fmt.Sprintf("%v without cable %d", c.dims, i)
			g := f.Clone()
			p := list[i]
			q := g.Ports[p].Peer
			g.Ports[p].Peer, g.Ports[q].Peer = fabric.None, fabric.None
			r, l := build(t, name, g, route.Options{Previous: whole.LFT})
			fresh, full := build(t, name, g, route.Options{})
			updn, _ := route.Build(g, route.Options{Engine: route.UpDown})
			m, n := entriesBetween(f, g, whole.LFT, r.LFT)
			_, all := entriesBetween(f, g, whole.LFT, fresh.LFT)
			cut++
			if r.Engine == route.DOR {
				must, changed, redone = must+m, changed+n, redone+all
			} else {
				left++
			}
			most, least = max(most, l.Worst), max(least, full.Worst)
			if l.Worst > 1.05*updn.Worst || l.Worst > 1.05*full.Worst || naiveLoop(g, r.LFT) {
				t.Errorf("%s: %s, %.0f flows on a link, %.0f from nothing, %.0f with updn", name, r.Engine, l.Worst, full.Worst, updn.Worst)
			}
			next, _ := build(t, name, g, route.Options{Previous: r.LFT, Order: r.Order})
			if blocks(r.LFT, next.LFT) > 0 || next.Engine != r.Engine {
				t.Errorf("%s: a second sweep changes %d blocks", name, blocks(r.LFT, next.LFT))
			}
			back, _ := build(t, name, f, route.Options{Previous: r.LFT})
			_, again := entriesBetween(f, f, r.LFT, back.LFT)
			if back.Engine != route.DOR || back.Worst > whole.Worst || again > 2*n+20 {
				t.Errorf("%s: %s at the repair, %.0f flows on a link, %.0f before; %d entries change", name, back.Engine, back.Worst,
					whole.Worst, again)
			}
		}
		t.Logf("%v: without %d cables of %d it is updn; else %d entries led over the cables, %d change, %d from nothing; up to %.0f flows "+
			"on a link, %.0f from nothing, %.0f before", c.dims, left, cut, must, changed, redone, most, least, whole.Worst)
		if float64(changed) > c.most*float64(must) || float64(left) > c.left*float64(cut) {
			t.Errorf("%v: without %d cables of %d it is updn; else %d entries led over the cables, %d change", c.dims, left, cut, must, changed)
		}
	}
}

// When more and more cables of a torus go, tables stay within a tenth of those from nothing
// after each, and change few entries while they keep dimension order.
func TestTorusCuts(t *testing.T) {
	for seed := range uint64(1 + 1/every) {
		f := gen.LIDs(gen.Torus([]int{6, 6}, 2), 0)
		r, _ := build(t, "whole", f, route.Options{})
		rnd := rand.New(rand.NewPCG(seed, 5))
		for n := range 6 {
			g := cut(f, rnd, 1)
			if !gen.Whole(g) {
				break
			}
			name := fmt.Sprintf("seed %d, %d out", seed, n+1)
			next, l := build(t, name, g, route.Options{Previous: r.LFT, Order: r.Order, Before: r.Engine})
			fresh, full := build(t, name, g, route.Options{})
			must, changed := entriesBetween(f, g, r.LFT, next.LFT)
			t.Logf("%s: %s, %d entries led over the cable, %d change; %.0f flows on a link, %s %.0f from nothing", name, next.Engine, must,
				changed, l.Worst, fresh.Engine, full.Worst)
			if l.Worst > 1.1*full.Worst+1 || naiveLoop(g, next.LFT) {
				t.Errorf("%s: %.0f flows on a link, %.0f from nothing", name, l.Worst, full.Worst)
			}
			f, r = g, next
		}
	}
}

// Tables that are only repaired lead everywhere without a credit loop, and a build from them gives
// what one from the tables before gives.
func TestEarly(t *testing.T) {
	for name, whole := range map[string]*fabric.Fabric{"torus": gen.Torus([]int{6, 6}, 2), "random": gen.RandomRegular(1, 32, 6, 4),
		"DragonFly": gen.DragonFly(9, 4, 2)} {
		f := gen.LIDs(whole, 0)
		before, _ := build(t, name, f, route.Options{})
		some := false
		for seed := range uint64(4) {
			g := cut(f, rand.New(rand.NewPCG(seed, 3)), 1)
			full, _ := build(t, name, g, hinted(route.Options{}, &before))
			early, _ := build(t, name, g, hinted(route.Options{Early: true}, &before))
			must, changed := entriesBetween(f, g, before.LFT, early.LFT)
			t.Logf("%s, seed %d: %d entries led over the cable, %d change early; %.0f flows on a link, then %.0f", name, seed, must, changed,
				early.Worst, full.Worst)
			if err := route.Verify(g, early.LFT, early.SL, false); err != nil || naiveLoop(g, early.LFT) || changed > must+50 {
				t.Errorf("%s, seed %d: %d entries led over the cable, %d change; %v", name, seed, must, changed, err)
			}
			later, _ := build(t, name, g, hinted(route.Options{}, &early))
			if later.Early || full.Early || later.Worst > 1.02*full.Worst {
				t.Errorf("%s, seed %d: %.0f flows on a link after early tables, %.0f without", name, seed, later.Worst, full.Worst)
			}
			some = some || early.Early
		}
		if !some {
			t.Errorf("%s: no tables are early", name)
		}
	}
}

// Tables of a fabric that falls in two have no entries to the other part, and those within a
// part are relieved.
func TestPatchedParts(t *testing.T) {
	for seed := range uint64(6) {
		f := gen.LIDs(gen.RandomRegular(seed, 16, 4, 2), 0)
		before, _ := route.Build(f, route.Options{})
		half := func(p *fabric.Port) bool { s := f.Nodes[p.Node].Switch; return s != fabric.None && s < 8 }
		g := gen.Unplug(f, func(a, b *fabric.Port) bool {
			return f.Nodes[a.Node].Switch != fabric.None && f.Nodes[b.Node].Switch != fabric.None && half(a) != half(b)
		})
		for _, early := range []bool{true, false} {
			r, err := route.Build(g, hinted(route.Options{Early: early}, &before))
			if err != nil || naiveLoop(g, r.LFT) || route.Verify(g, r.LFT, r.SL, false) != nil {
				t.Errorf("seed %d: %v, or a loop", seed, err)
			}
			for _, e := range g.EndPorts {
				d, _ := g.SwitchOf(e)
				for s, row := range r.LFT {
					if (s < 8) != (d < 8) && row[g.Ports[e].LID] != route.NoPort {
						t.Fatalf("seed %d, early %v: switch %d has an entry to switch %d, which is cut off", seed, early, s, d)
					}
				}
			}
		}
	}
}

func blocks(a, b [][]uint8) (n int) {
	for s := range a {
		for i := 0; i < len(a[s]); i += 64 {
			e := min(i+64, len(a[s]))
			if !slices.Equal(a[s][i:e], b[s][i:e]) {
				n++
			}
		}
	}
	return n
}

// After a link between two switches is cut, and after it is back, only a small
// part of the tables changes.
func TestIncremental(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(36, 6), 0)
	before, _ := route.Build(f, route.Options{})
	all := 0
	for range before.LFT {
		all += (len(before.LFT[0]) + 63) / 64
	}
	rnd := rand.New(rand.NewPCG(5, 5))
	c := cut(f, rnd, 1)
	after, _ := route.Build(c, route.Options{Previous: before.LFT})
	allPairs(t, c, after, 5)
	entries := 0
	for s := range after.LFT {
		for i := range after.LFT[s] {
			if after.LFT[s][i] != before.LFT[s][i] {
				entries++
			}
		}
	}
	back, _ := route.Build(f, route.Options{Previous: after.LFT})
	allPairs(t, f, back, 5)
	t.Logf("of %d blocks a cut changes %d (%d entries), its repair %d", all, blocks(before.LFT, after.LFT), entries,
		blocks(after.LFT, back.LFT))
	if n := blocks(before.LFT, after.LFT); n == 0 || n > all/2 || entries > 40 {
		t.Errorf("a cut changes %d of %d blocks, %d entries", n, all, entries)
	}
	if n := blocks(after.LFT, back.LFT); n == 0 {
		t.Errorf("a link that came back is not used")
	}
}
