package route_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// naiveLoops is naiveLoop for each service level by itself, with multicast on the
// trunk beside the paths: from each of its links on to each other at the same switch.
func naiveLoops(f *fabric.Fabric, r *route.Result) bool {
	for level := range ib.SL(r.NumLayers) {
		dep := map[int32]map[int32]bool{}
		depend := func(a, b int32) {
			if dep[a] == nil {
				dep[a] = map[int32]bool{}
			}
			dep[a][b] = true
		}
		for s := range int32(len(f.Switches)) {
			for _, e := range f.EndPorts {
				d, _ := f.SwitchOf(e)
				if d == fabric.None || r.SL.SL(s, d) != level {
					continue
				}
				for l := range f.Ports[e].LMC.Count() {
					hops, _ := walk(f, r.LFT, f.Port(f.Switches[s].Node, 0), f.Ports[e].LID+ib.LID(l))
					for j := 1; j < len(hops); j++ {
						depend(hops[j-1], hops[j])
					}
				}
			}
		}
		tree := map[int32][]int32{} // by node: its ports on the trunk
		for s, p := range r.Trunk {
			if p != 0 {
				up := f.Port(f.Switches[s].Node, p)
				down := f.Ports[up].Peer
				tree[f.Ports[up].Node] = append(tree[f.Ports[up].Node], up)
				tree[f.Ports[down].Node] = append(tree[f.Ports[down].Node], down)
			}
		}
		for _, ports := range tree {
			for _, in := range ports {
				for _, out := range ports {
					if in != out {
						depend(f.Ports[in].Peer, out)
					}
				}
			}
		}
		if gen.Cyclic(dep) {
			return true
		}
	}
	return false
}

// onLayers is a fabric whose links have that code of virtual lanes.
func onLayers(f *fabric.Fabric, code uint8) *fabric.Fabric {
	f = gen.LIDs(f, 0)
	for i := range f.Ports {
		f.Ports[i].Info.SetVLCap(code)
	}
	return f
}

// checkLayers verifies tables on layers: all pairs are reached, both directions of a pair
// are on one level of those there are, and no level has a loop by either checker.
func checkLayers(t *testing.T, name string, f *fabric.Fabric, r *route.Result, lanes int) {
	t.Helper()
	if r.NumLayers < 1 || r.NumLayers > lanes || r.SL != nil && len(r.SL) != len(f.Switches) {
		t.Fatalf("%s: %s on %d layers of %d", name, r.Engine, r.NumLayers, lanes)
	}
	for a := range r.SL {
		for b := range r.SL {
			if r.SL[a][b] != r.SL[b][a] || int(r.SL[a][b]) >= r.NumLayers {
				t.Fatalf("%s: the level from %d to %d is %d of %d, back %d", name, a, b, r.SL[a][b], r.NumLayers, r.SL[b][a])
			}
		}
	}
	if l := route.Measure(f, r.LFT); l.Lost > 0 {
		t.Fatalf("%s: %d pairs without a path", name, l.Lost)
	}
	if loop := route.CreditLoop(f, r.LFT, r.SL); loop != nil || naiveLoops(f, r) {
		t.Fatalf("%s: %s with %d layers: credit loop %v", name, r.Engine, r.NumLayers, loop)
	}
}

// On seeded degradations of all kinds of fabrics, layers have no credit loop, also with
// multicast, whether they are chosen or named; the busiest link is never busier than on
// one lane; and the same fabric gives the same bytes, also with those in force as a hint.
func TestLayersOnDegraded(t *testing.T) {
	count := 42
	if testing.Short() {
		count = 14
	}
	engines := map[string]int{}
	degraded(count, func(seed uint64, c gen.Case) {
		code := 2 + uint8(seed/7%3)
		f := onLayers(c.Fabric, code)
		opt := route.Options{Layers: 8}
		one, err := route.Build(f, route.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if seed%2 == 1 && one.Engine != route.FatTree {
			opt.Engine = route.Layered
			one, _ = route.Build(f, route.Options{Engine: route.UpDown})
		}
		r, err := route.Build(f, opt)
		if err != nil || len(r.Warnings) > 0 || opt.Engine != "" && r.Engine != opt.Engine {
			t.Fatalf("%s: %s, %v, %q", c.Name, r.Engine, err, r.Warnings)
		}
		engines[r.Engine]++
		checkLayers(t, c.Name, f, &r, 1<<(code-1))
		if r.Worst > one.Worst {
			t.Errorf("%s: %.0f flows on a link with %s, %.0f on one lane with %s", c.Name, r.Worst, r.Engine, one.Worst, one.Engine)
		}
		if m := route.Measure(f, r.LFT); m.Worst > r.Worst+1 || m.Worst < r.Worst-1 {
			t.Errorf("%s: %.1f flows on a link, the result says %.1f", c.Name, m.Worst, r.Worst)
		}
		again, _ := route.Build(f.Clone(), opt)
		opt.Previous, opt.SL, opt.Order, opt.Trunk = r.LFT, r.SL, r.Order, r.Trunk
		hinted, _ := route.Build(f, opt)
		if !sameTables(&r, &again) {
			t.Errorf("%s: a second run gives other tables", c.Name)
		}
		if r.Engine == route.Layered && !sameTables(&r, &hinted) {
			t.Errorf("%s: the tables in force as a hint give other tables", c.Name)
		}
	})
	t.Log(engines)
	if engines[route.Layered] < count/every/4 {
		t.Errorf("layers on %d of the fabrics", engines[route.Layered])
	}
}

func sameTables(a, b *route.Result) bool {
	rows := func(x, y []uint8) bool { return slices.Equal(x, y) }
	return slices.EqualFunc(a.LFT, b.LFT, rows) && slices.EqualFunc(a.SL, b.SL, rows) && slices.Equal(a.Trunk, b.Trunk)
}

// A cable that goes leaves most entries and the levels of most pairs as they are.
func TestCutOnLayers(t *testing.T) {
	for _, c := range []struct {
		gen.Case
		code uint8
	}{
		{gen.Case{Name: "torus with holes", Fabric: gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)}, 3},
		{gen.Case{Name: "random", Fabric: gen.RandomRegular(1, 40, 6, 2)}, 3},
		{gen.Case{Name: "HyperX", Fabric: gen.HyperX([]int{5, 5}, 2)}, 3},
	} {
		f := onLayers(c.Fabric, c.code)
		opt := toLayers(c.Case)
		before, _ := route.Build(f, opt)
		if before.Engine != route.Layered {
			t.Errorf("%s: %s", c.Name, before.Engine)
			continue
		}
		g := cut(f, rand.New(rand.NewPCG(uint64(len(f.Nodes)), 3)), 1)
		r, _ := route.Build(g, hinted(opt, &before))
		checkLayers(t, c.Name, g, &r, 1<<(c.code-1))
		fresh, _ := route.Build(g, opt)
		entries, levels, redone := 0, 0, 0
		for s := range r.LFT {
			for i := range r.LFT[s] {
				if r.LFT[s][i] != before.LFT[s][i] {
					entries++
				}
				if fresh.LFT[s][i] != before.LFT[s][i] {
					redone++
				}
			}
			for d := range r.SL[s] {
				if r.SL[s][d] != before.SL[s][d] {
					levels++
				}
			}
		}
		n := len(r.SL)
		t.Logf("%s: %d entries and %d of %d levels change, %d entries from nothing; %.0f flows on a link, %.0f before, %.0f from nothing", c.Name,
			entries, levels, n*n, redone, r.Worst, before.Worst, fresh.Worst)
		if r.Engine != route.Layered || entries*4 > redone || levels*10 > n*n || r.Worst > 1.25*fresh.Worst+1 {
			t.Errorf("%s: %s", c.Name, r.Engine)
		}
	}
}

// Where levels have lanes, layers relieve the busiest link of what is no tree, but for a
// HyperX, on which one lane is as good.
func TestLayersBalance(t *testing.T) {
	for i, c := range []struct {
		gen.Case
		limits [2]float64 // flows on the busiest link with four lanes and with eight
		engine string
	}{
		{gen.Case{Name: "torus 8x8, 2 % out", Fabric: gen.CutCables(gen.Torus([]int{8, 8}, 2), 2, 2)}, [2]float64{400, 360}, route.Layered},
		{gen.Case{Name: "64 switches at random", Fabric: gen.RandomRegular(1, 64, 8, 4)}, [2]float64{320, 310}, route.Layered},
		{gen.Case{Name: "HyperX 6x6", Fabric: gen.HyperX([]int{6, 6}, 4)}, [2]float64{96, 96}, route.DOR},
		{gen.Case{Name: "DragonFly", Fabric: gen.DragonFly(9, 4, 2)}, [2]float64{84, 80}, route.Layered},
	} {
		if i%every != 0 {
			continue
		}
		for k, limit := range c.limits {
			f := onLayers(c.Fabric, uint8(3+k))
			r, _ := route.Build(f, route.Options{Layers: 8})
			checkLayers(t, c.Name, f, &r, 4<<k)
			share, _ := route.Shift(f, r.LFT)
			t.Logf("%s, %d lanes: %s, %.0f flows on a link, a share of %.3f", c.Name, 4<<k, r.Engine, r.Worst, share)
			if r.Engine != c.engine || r.Worst > limit {
				t.Errorf("%s, %d lanes: %s, %.0f flows on a link, want %.0f", c.Name, 4<<k, r.Engine, r.Worst, limit)
			}
		}
	}
}

// Without levels, or where a link has one lane, the name is passed over with a reason.
func TestLayersRefused(t *testing.T) {
	f := gen.LIDs(gen.RandomRegular(1, 20, 4, 1), 0)
	for _, name := range []string{"layered", "dfsssp", "nue", "lash"} {
		if r, _ := route.Build(f, route.Options{Engine: name}); r.Engine == route.Layered || len(r.Warnings) != 1 {
			t.Errorf("%s without levels: %s, %q", name, r.Engine, r.Warnings)
		}
		if r, _ := route.Build(f, route.Options{Engine: name, Layers: 8}); r.Engine != route.Layered || len(r.Warnings) != 0 {
			t.Errorf("%s: %s, %q", name, r.Engine, r.Warnings)
		}
		if r, _ := route.Build(onLayers(f, 1), route.Options{Engine: name, Layers: 8}); r.Engine == route.Layered || len(r.Warnings) != 1 {
			t.Errorf("%s on one lane: %s, %q", name, r.Engine, r.Warnings)
		}
	}
}
