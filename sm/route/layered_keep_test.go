package route_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// onLanes are fabrics that layers are chosen for, smallest first.
func onLanes() []gen.Case {
	return []gen.Case{
		{Name: "torus 5x5 with holes", Fabric: gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)},
		{Name: "HyperX 5x5", Fabric: gen.HyperX([]int{5, 5}, 2)},
		{Name: "40 switches at random", Fabric: gen.RandomRegular(1, 40, 6, 2)},
		{Name: "torus 8x8 with holes", Fabric: gen.CutCables(gen.Torus([]int{8, 8}, 2), 2, 2)},
		{Name: "DragonFly", Fabric: gen.DragonFly(9, 4, 2)},
	}
}

// toLayers are options with eight levels. On a HyperX the automatic choice takes no layers.
func toLayers(c gen.Case) route.Options {
	if strings.HasPrefix(c.Name, "HyperX") {
		return route.Options{Layers: 8, Engine: route.Layered}
	}
	return route.Options{Layers: 8}
}

// hinted is opt with a result in force.
func hinted(opt route.Options, r *route.Result) route.Options {
	opt.Previous, opt.SL, opt.Order, opt.Trunk, opt.Before = r.LFT, r.SL, r.Order, r.Trunk, r.Engine
	return opt
}

// levelsChanged counts the pairs of switches with hosts whose level differs, and all.
func levelsChanged(f *fabric.Fabric, a, b *route.Result) (changed, all int) {
	hosts := map[int32]bool{}
	for _, e := range f.EndPorts {
		if s, out := f.SwitchOf(e); s != fabric.None && out != 0 {
			hosts[s] = true
		}
	}
	for s := range int32(len(f.Switches)) {
		for d := range int32(len(f.Switches)) {
			if s != d && hosts[s] && hosts[d] {
				if all++; a.SL.SL(s, d) != b.SL.SL(s, d) {
					changed++
				}
			}
		}
	}
	return changed, all
}

// cables are the links between switches, by the lower of their ports.
func cables(f *fabric.Fabric) (out []int32) {
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Num != 0 && p.Peer > int32(i) && f.Nodes[p.Node].Switch != fabric.None &&
			f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None {
			out = append(out, int32(i))
		}
	}
	return out
}

// Hosts keep the level of a connection for as long as it lasts. So whichever cable goes,
// next to no level changes, whatever busier links that costs; and none when it returns.
// On a large torus with few lanes a few cables are excepted. -long cuts each of all fabrics.
func TestEveryCutKeepsLevels(t *testing.T) {
	list, step := onLanes(), every
	switch {
	case testing.Short():
		list = list[:2]
	case !*long:
		step *= 5
	}
	for _, c := range list {
		f := onLayers(c.Fabric, 3)
		opt := toLayers(c)
		before, _ := route.Build(f, opt)
		if before.Engine != route.Layered {
			t.Errorf("%s: %s", c.Name, before.Engine)
			continue
		}
		total, most, all, many, busy := 0, 0, 0, 0, 0.0
		for i, p := range cables(f) {
			if i%step != 0 {
				continue
			}
			g := f.Clone()
			g.Ports[g.Ports[p].Peer].Peer, g.Ports[p].Peer = fabric.None, fabric.None
			r, _ := route.Build(g, hinted(opt, &before))
			checkLayers(t, c.Name, g, &r, 4)
			n := 0
			n, all = levelsChanged(g, &before, &r)
			total, most, busy = total+n, max(most, n), max(busy, r.Worst)
			if n*20 > all {
				many++
				t.Logf("%s: without %s, %d of %d levels change", c.Name, f.PortName(p), n, all)
			}
			if n*50 > all && all < 1000 || r.Engine != route.Layered {
				t.Errorf("%s: without %s, %s and %d of %d levels change", c.Name, f.PortName(p), r.Engine, n, all)
			}
			back, _ := route.Build(f, hinted(opt, &r))
			checkLayers(t, c.Name, f, &back, 4)
			if n, _ := levelsChanged(f, &r, &back); n > 0 || back.Engine != route.Layered {
				t.Errorf("%s: with %s again, %s and %d of %d levels change", c.Name, f.PortName(p), back.Engine, n, all)
			}
		}
		if many*8*step > len(cables(f)) {
			t.Errorf("%s: many levels change by %d cuts of %d", c.Name, many, len(cables(f)))
		}
		t.Logf("%s: %d levels change by %d cuts, %d of %d by one at most; %.0f flows on a link, %.0f before", c.Name, total,
			(len(cables(f))+step-1)/step, most, all, busy, before.Worst)
	}
}

// A manager that takes over reads the tables from the switches and has no levels: what
// it computes must be those that hosts have, by whatever tables it finds.
func TestTakeoverGivesTheSameLevels(t *testing.T) {
	list := onLanes()
	if testing.Short() {
		list = list[:2]
	}
	for _, c := range list {
		f := onLayers(c.Fabric, 3)
		opt := toLayers(c)
		before, _ := route.Build(f, opt)
		opt.Previous = before.LFT
		after, _ := route.Build(f, opt)
		if n, all := levelsChanged(f, &before, &after); n > 0 || !sameTables(&before, &after) || after.Engine != route.Layered {
			t.Errorf("%s: %s, and %d of %d levels differ", c.Name, after.Engine, n, all)
		}
	}
}

// Tables on one lane that are in force give way to layers for a larger gain only, for all
// levels change with that.
func TestLayersEnterLate(t *testing.T) {
	entered, list := 0, onLanes()
	list = slices.Delete(list, 2, 4)
	for _, c := range list {
		f := onLayers(c.Fabric, 2)
		one, _ := route.Build(f, route.Options{})
		fresh, _ := route.Build(f, route.Options{Layers: 8})
		opt := hinted(route.Options{Layers: 8}, &one)
		r, _ := route.Build(f, opt)
		t.Logf("%s: %.0f flows on one lane, %.0f with %s from nothing, %.0f with %s after %s", c.Name, one.Worst, fresh.Worst, fresh.Engine,
			r.Worst, r.Engine, one.Engine)
		if want := fresh.Engine == route.Layered && fresh.Worst <= 0.75*one.Worst; (r.Engine == route.Layered) != want {
			t.Errorf("%s: %s", c.Name, r.Engine)
		}
		if r.Engine == route.Layered {
			entered++
		} else if !sameTables(&r, &one) {
			t.Errorf("%s: the tables on one lane change", c.Name)
		}
	}
	if entered == 0 || entered == len(list) {
		t.Errorf("layers on %d of %d", entered, len(list))
	}
}

// Where service levels are chosen for something else, the automatic choice takes no layers,
// but the name does.
func TestLayersGiveWayToPolicy(t *testing.T) {
	f := onLayers(onLanes()[0].Fabric, 3)
	opt := route.Options{Layers: 8, OwnLevels: true}
	if r, _ := route.Build(f, opt); r.Engine == route.Layered || r.SL != nil {
		t.Errorf("automatic choice: %s", r.Engine)
	}
	opt.Engine = route.Layered
	if r, _ := route.Build(f, opt); r.Engine != route.Layered {
		t.Errorf("by name: %s, %q", r.Engine, r.Warnings)
	}
}

// Tables cut short for a switch whose table is small are no reason to panic.
func TestCreditLoopShortRows(t *testing.T) {
	f := onLayers(onLanes()[0].Fabric, 3)
	r, _ := route.Build(f, route.Options{Layers: 8})
	for s := range r.LFT {
		r.LFT[s] = r.LFT[s][:s%5]
	}
	if loop := route.CreditLoop(f, r.LFT, r.SL); loop != nil {
		t.Errorf("credit loop %v", loop)
	}
}

// With several LIDs for each port, layers in force are followed after cuts, one LID after the
// other: one that has no path yet takes no link from the next.
func TestLayersWithLMCAfterCuts(t *testing.T) {
	for seed := range uint64(4) {
		for _, c := range []gen.Case{
			{Name: "torus 5x5", Fabric: gen.Torus([]int{5, 5}, 1)},
			{Name: "16 switches at random", Fabric: gen.RandomRegular(seed, 16, 4, 1)}} {
			f := gen.LIDs(c.Fabric, 1)
			for i := range f.Ports {
				f.Ports[i].Info.SetVLCap(2)
			}
			rnd := rand.New(rand.NewPCG(seed, 1))
			var r route.Result
			for n := 0; n < 5 && gen.Whole(f); n++ {
				var err error
				if r, err = route.Build(f, hinted(route.Options{Layers: 2, Engine: route.Layered}, &r)); err != nil {
					t.Fatal(err)
				}
				checkLayers(t, fmt.Sprintf("%s, seed %d, %d cuts", c.Name, seed, n), f, &r, 2)
				f = cut(f, rnd, 1)
			}
		}
	}
}
