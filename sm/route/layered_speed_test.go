package route_test

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/route"
)

// spent is the CPU time that this process has used.
func spent() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// With 5,184 hosts, tables in layers are computed in a fraction of the time of tables on one
// lane, and the busiest link has a fraction of the flows. After a cut nearly all levels stay.
func TestLayeredSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, c := range []struct {
		gen.Case
		flows float64 // the most on a link, as a part of those on one lane
	}{
		{gen.Case{Name: "288 switches at random", Fabric: gen.RandomRegular(1, 288, 18, 18)}, 0.3},
		{gen.Case{Name: "DragonFly", Fabric: gen.DragonFly(36, 12, 12)}, 0.6},
		{gen.Case{Name: "HyperX 12x12", Fabric: gen.HyperX([]int{12, 12}, 36)}, 0.72},
	} {
		f := onLayers(c.Fabric, 4)
		at := spent()
		one, _ := route.Build(f, route.Options{Engine: route.UpDown})
		single := spent() - at
		at = spent()
		opt := toLayers(c.Case)
		r, err := route.Build(f, opt)
		took := spent() - at
		if err != nil {
			t.Fatal(err)
		}
		g := cut(f, rand.New(rand.NewPCG(1, 1)), 1)
		at = spent()
		after, _ := route.Build(g, hinted(opt, &r))
		cutTook := spent() - at
		n, all := levelsChanged(g, &r, &after)
		t.Logf("%s: %s in %v of CPU, %.0f flows on a link; %s on one lane in %v, %.0f flows", c.Name, r.Engine, took, r.Worst, one.Engine, single,
			one.Worst)
		t.Logf("after a cut: %s in %v, %.0f flows, %d of %d levels change", after.Engine, cutTook, after.Worst, n, all)
		if loop := route.CreditLoop(g, after.LFT, after.SL); loop != nil || route.Measure(g, after.LFT).Lost > 0 {
			t.Errorf("%s: after a cut, paths are lost or loop: %v", c.Name, loop)
		}
		if cutTook > 3*took || n*1000 > all {
			t.Errorf("%s: after a cut %.2f of the time, and %d of %d levels change", c.Name, cutTook.Seconds()/took.Seconds(), n, all)
		}
		if r.Engine != route.Layered || took > single*2/3 || r.Worst > c.flows*one.Worst {
			t.Errorf("%s: %.2f of the time and %.2f of the flows of one lane", c.Name, took.Seconds()/single.Seconds(), r.Worst/one.Worst)
		}
	}
}

// Where paths are long, the search follows with the LIDs of several ports on one path: it finds
// better tables than up/down without much more time. There is none where the switches are too
// many for it, or where one lane is as good as any.
func TestLayeredFar(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, c := range []struct {
		gen.Case
		flows float64 // the most on a link, as a part of those on one lane; 1 for no layers
		time  float64 // the most CPU time in that of one lane
	}{
		{gen.Case{Name: "torus 6x6x6 with holes", Fabric: gen.CutCables(gen.Torus([]int{6, 6, 6}, 24), 2, 2)}, 0.65, 5},
		{gen.Case{Name: "torus 18x18 with holes", Fabric: gen.CutCables(gen.Torus([]int{18, 18}, 16), 2, 2)}, 0.8, 5},
		{gen.Case{Name: "torus 12x12x12 with holes", Fabric: gen.CutCables(gen.Torus([]int{12, 12, 12}, 3), 2, 2)}, 1, 1.5},
		{gen.Case{Name: "DragonFly+ of 18 groups", Fabric: gen.DragonFlyPlus(18, 17, 17, 1)}, 1, 3},
	} {
		f := onLayers(c.Fabric, 4)
		at := spent()
		one, _ := route.Build(f, route.Options{Engine: route.UpDown})
		single := spent() - at
		at = spent()
		r, _ := route.Build(f, route.Options{Layers: 8})
		took := spent() - at
		t.Logf("%s: %s in %v of CPU, %.0f flows on a link; %s on one lane in %v, %.0f flows", c.Name, r.Engine, took, r.Worst, one.Engine, single,
			one.Worst)
		if loop := route.CreditLoop(f, r.LFT, r.SL); loop != nil || route.Measure(f, r.LFT).Lost > 0 {
			t.Errorf("%s: paths are lost or loop: %v", c.Name, loop)
		}
		if (r.Engine == route.Layered) != (c.flows < 1) || r.Worst > c.flows*one.Worst || took.Seconds() > c.time*single.Seconds() {
			t.Errorf("%s: %s, %.2f of the time and %.2f of the flows of one lane", c.Name, r.Engine, took.Seconds()/single.Seconds(),
				r.Worst/one.Worst)
		}
	}
}

// Where switches have many hosts, each layer has its own order: there is no loop, every LID
// is reached, and a second run, with or without the tables in force, gives the same tables.
func TestStackedLayers(t *testing.T) {
	for _, c := range []struct {
		gen.Case
		code uint8
		lmc  ib.LMC
	}{
		{gen.Case{Name: "random", Fabric: gen.RandomRegular(1, 128, 10, 18)}, 4, 0},
		{gen.Case{Name: "random, two lanes, a third of the hosts off", Fabric: gen.HostsOff(gen.RandomRegular(2, 128, 12, 30), 1, 66)}, 2, 0},
		{gen.Case{Name: "HyperX, cables out, LMC 1", Fabric: gen.CutCables(gen.HyperX([]int{9, 9}, 24), 1, 3)}, 4, 1},
		{gen.Case{Name: "torus with holes", Fabric: gen.CutCables(gen.Torus([]int{10, 10}, 30), 2, 2)}, 3, 0},
	} {
		f := gen.LIDs(c.Fabric, c.lmc)
		for i := range f.Ports {
			f.Ports[i].Info.SetVLCap(c.code)
		}
		opt := route.Options{Engine: route.Layered, Layers: 8}
		r, err := route.Build(f, opt)
		if err != nil || len(r.Warnings) > 0 {
			t.Fatalf("%s: %v, %q", c.Name, err, r.Warnings)
		}
		checkLayers(t, c.Name, f, &r, 1<<(c.code-1))
		if m := route.Measure(f, r.LFT); c.lmc == 0 && (m.Worst > r.Worst+1 || m.Worst < r.Worst-1) {
			t.Errorf("%s: %.1f flows on a link, the result says %.1f", c.Name, m.Worst, r.Worst)
		}
		again, _ := route.Build(f.Clone(), opt)
		kept, _ := route.Build(f, hinted(opt, &r))
		if !sameTables(&r, &again) || !sameTables(&r, &kept) {
			t.Errorf("%s: a second run, or one that follows, gives other tables", c.Name)
		}
		t.Logf("%s: %d layers, %.0f flows on a link", c.Name, r.NumLayers, r.Worst)
	}
}
