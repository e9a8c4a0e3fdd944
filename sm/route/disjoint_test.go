package route_test

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// disjointCase is a fabric with what its tables have to reach for pairs of hosts whose switches are
// not joined: the share that has two disjoint paths, and the mean of how many are disjoint.
type disjointCase struct {
	gen.Case
	lmc        ib.LMC
	layers     int
	share, sum float64
	worst      float64 // 1.05 times the load of the busiest link without regard to disjoint paths
	large      bool
}

func disjointCases() []disjointCase {
	hyperX := gen.Case{Name: "HyperX 6x6", Fabric: gen.HyperX([]int{6, 6}, 4)}
	torus := gen.Case{Name: "torus 8x8", Fabric: gen.Torus([]int{8, 8}, 2)}
	mesh := gen.Case{Name: "mesh 6x6", Fabric: gen.Mesh([]int{6, 6}, 2)}
	dragonFly := gen.Case{Name: "DragonFly", Fabric: gen.DragonFly(9, 4, 2)}
	dragonFlyPlus := gen.Case{Name: "DragonFly+", Fabric: gen.DragonFlyPlus(9, 4, 4, 2)}
	random := gen.Case{Name: "64 switches at random", Fabric: gen.RandomRegular(1, 64, 8, 4)}
	cube := gen.Case{Name: "HyperX 4x4x4", Fabric: gen.HyperX([]int{4, 4, 4}, 2)}
	tree := gen.Case{Name: "tree, 10 % of the cables out", Fabric: gen.CutCables(gen.FatTree3(16, 8, 8), 1, 10)}
	return []disjointCase{
		{hyperX, 1, 0, 17.4, 1.16, 1.05 * 192, false}, {hyperX, 2, 0, 27, 1.28, 1.05 * 384, true},
		{cube, 1, 0, 22.2, 1.21, 1.05 * 128, true}, {cube, 2, 0, 33.4, 1.38, 1.05 * 256, true},
		{torus, 1, 0, 36.5, 1.36, 1.05 * 768, false}, {torus, 2, 0, 48.4, 1.71, 1.05 * 1536, true},
		{torus, 1, 8, 40.6, 1.4, 1.05 * 576, true}, {torus, 2, 8, 56.4, 1.82, 1.05 * 1152, true},
		{mesh, 1, 0, 27, 1.26, 1.05 * 432, false}, {mesh, 2, 0, 41.7, 1.44, 1.05 * 864, false},
		{dragonFlyPlus, 1, 0, 99.6, 1.99, 1.05 * 320, false}, {dragonFlyPlus, 2, 0, 99.9, 2.57, 1.05 * 664, true},
		{dragonFly, 1, 0, 64.9, 1.64, 1.05 * 304, false}, {dragonFly, 2, 0, 86.4, 2.24, 1.05 * 610, false},
		{dragonFly, 1, 8, 65, 1.64, 1.05 * 176, false}, {dragonFly, 2, 8, 89.3, 2.36, 1.05 * 376, true},
		{random, 1, 0, 87.6, 1.87, 1.05 * 1032, true}, {random, 2, 0, 96.1, 3.04, 1.05 * 2080, true},
		{random, 1, 8, 89.5, 1.89, 1.05 * 612, true}, {random, 2, 8, 98, 3.05, 1.05 * 1332, true},
		{tree, 1, 0, 100, 2, 1.05 * 1616, true},
	}
}

// crossed is, of pairs of hosts whose switches are not joined, the share for which the paths to two
// LIDs have no switch in common but those at the ends, how many paths to LIDs have none, and how many
// paths can have none by the cabling, both on average.
func crossed(t *testing.T, f *fabric.Fabric, lft [][]uint8, lmc ib.LMC) (share, mean, most float64) {
	t.Helper()
	joined := neighbours(f)
	by := map[int32][]int32{} // by switch: ports of hosts
	for _, e := range f.EndPorts {
		if s, out := f.SwitchOf(e); s != fabric.None && out != 0 {
			by[s] = append(by[s], e)
		}
	}
	pairs := 0.0
	for a := range int32(len(f.Switches)) {
		for b, hosts := range by {
			if len(by[a]) == 0 || a == b || slices.Contains(joined[a], b) {
				continue
			}
			weight := float64(len(by[a]))
			for _, host := range hosts {
				var paths []map[int32]bool
				for l := range lmc.Count() {
					hops, ok := walk(f, lft, by[a][0], f.Ports[host].LID+ib.LID(l))
					if !ok {
						t.Fatalf("no path from %s to %s", f.PortName(by[a][0]), f.PortName(host))
					}
					path := map[int32]bool{}
					for _, h := range hops[2:] {
						path[f.Ports[h].Node] = true
					}
					delete(path, f.Switches[b].Node)
					paths = append(paths, path)
				}
				n := together(paths)
				pairs, mean = pairs+weight, mean+weight*float64(n)
				if n > 1 {
					share += weight
				}
			}
			most += weight * float64(len(hosts)*separate(joined, a, b, lmc.Count()))
		}
	}
	return share / pairs, mean / pairs, most / pairs
}

// neighbours are the switches that each is joined to.
func neighbours(f *fabric.Fabric) [][]int32 {
	out := make([][]int32, len(f.Switches))
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Num != 0 && p.Peer != fabric.None {
			s, t := f.Nodes[p.Node].Switch, f.Nodes[f.Ports[p.Peer].Node].Switch
			if s != fabric.None && t != fabric.None && s != t && !slices.Contains(out[s], t) {
				out[s] = append(out[s], t)
			}
		}
	}
	return out
}

// together is the largest number of paths of which no two have a switch in common.
func together(paths []map[int32]bool) (most int) {
	for set := range uint(1) << len(paths) {
		seen, ok := map[int32]bool{}, true
		for i, path := range paths {
			for s := range path {
				if set>>i&1 != 0 {
					ok = ok && !seen[s]
					seen[s] = true
				}
			}
		}
		if ok {
			most = max(most, bits.OnesCount(set))
		}
	}
	return most
}

// separate is how many paths, up to count, there can be between two switches that are not joined
// without another switch in common: the flow from one to the other where each switch has an entry
// and an exit with a capacity of one between them.
func separate(joined [][]int32, a, b int32, count int) int {
	entry, exit := func(s int32) int32 { return 2 * s }, func(s int32) int32 { return 2*s + 1 }
	used := map[[2]int32]bool{} // arcs with flow
	for n := range count {
		from := slices.Repeat([]int32{-1}, 2*len(joined))
		from[exit(a)] = exit(a)
		queue := []int32{exit(a)}
		for i := 0; i < len(queue) && from[entry(b)] < 0; i++ {
			x := queue[i]
			visit := func(y int32, forward bool) {
				if free := forward && !used[[2]int32{x, y}] || !forward && used[[2]int32{y, x}]; free && from[y] < 0 {
					from[y] = x
					queue = append(queue, y)
				}
			}
			s := x / 2
			visit(x^1, x == entry(s))
			for _, t := range joined[s] {
				if x == exit(s) {
					visit(entry(t), true)
				} else {
					visit(exit(t), false)
				}
			}
		}
		if from[entry(b)] < 0 {
			return n
		}
		for y := entry(b); y != exit(a); y = from[y] {
			if x := from[y]; used[[2]int32{y, x}] {
				delete(used, [2]int32{y, x})
			} else {
				used[[2]int32{x, y}] = true
			}
		}
	}
	return count
}

// The LIDs of a port are reached through different switches, as far as one lane, or those
// that the engine uses, and the limit for the busiest link allow it.
func TestLMCDisjointShare(t *testing.T) {
	for _, c := range disjointCases() {
		if c.large && testing.Short() {
			continue
		}
		f := gen.LIDs(c.Fabric, c.lmc)
		for i := range f.Ports {
			f.Ports[i].Info.SetVLCap(4)
		}
		r, err := route.Build(f, route.Options{Layers: c.layers})
		if err != nil {
			t.Fatal(err)
		}
		if loop := route.CreditLoop(f, r.LFT, r.SL); loop != nil || r.SL == nil && naiveLoop(f, r.LFT) || r.SL != nil && naiveLoops(f, &r) {
			t.Errorf("%s, LMC %d: credit loop %v", c.Name, c.lmc, loop)
		}
		share, mean, most := crossed(t, f, r.LFT, c.lmc)
		t.Logf("%s, LMC %d, %s on %d lanes: %.1f %% have disjoint paths, %.2f on average of %.2f by the cabling; %.0f flows on the busiest link",
			c.Name, c.lmc, r.Engine, r.NumLayers, 100*share, mean, most, r.Worst)
		if 100*share < c.share || mean < c.sum || r.Worst > c.worst {
			t.Errorf("%s, LMC %d: %.1f %% have disjoint paths, %.2f on average, and the busiest link has %.0f flows; want %.1f, %.2f and %.0f",
				c.Name, c.lmc, 100*share, mean, r.Worst, c.share, c.sum, c.worst)
		}
		again, _ := route.Build(f, hinted(route.Options{Layers: c.layers}, &r))
		if n := blocks(r.LFT, again.LFT); n > 0 {
			t.Errorf("%s, LMC %d: a second sweep without a change rewrites %d blocks", c.Name, c.lmc, n)
		}
	}
}

// The paths to the first LID of a port, which most software uses, are those that they are where
// ports have one, and so is the load on the busiest link.
func TestLMCFirstPaths(t *testing.T) {
	for _, whole := range []*fabric.Fabric{gen.HyperX([]int{4, 5}, 2), gen.Torus([]int{5, 6}, 2), gen.Mesh([]int{4, 4}, 1),
		gen.FatTree2(12, 6), gen.FatTree3(8, 4, 4), gen.Uneven(1, 40, 5, 2, 96)} {
		one, two := gen.LIDs(whole, 0), gen.LIDs(whole, 1)
		r, _ := build(t, "LMC 0", one, route.Options{})
		s, _ := build(t, "LMC 1", two, route.Options{})
		for _, a := range one.EndPorts {
			for _, b := range one.EndPorts {
				p, _ := walk(one, r.LFT, a, one.Ports[b].LID)
				q, _ := walk(two, s.LFT, a, two.Ports[b].LID)
				if !slices.Equal(p, q) {
					t.Fatalf("%s: from %s to %s another path than with LMC 0", s.Engine, one.PortName(a), one.PortName(b))
				}
			}
		}
	}
}

// A cut changes few of the paths to further LIDs, and a sweep after it none.
func TestLMCCutChangesLittle(t *testing.T) {
	for name, c := range map[string]struct {
		whole *fabric.Fabric
		most  int // percent of the entries that change
	}{"HyperX": {gen.HyperX([]int{6, 6}, 4), 2}, "random": {gen.RandomRegular(1, 32, 6, 4), 15},
		"dragonfly+": {gen.DragonFlyPlus(5, 4, 4, 1), 15}, "tree": {gen.FatTree3(12, 6, 6), 1}} {
		f := gen.LIDs(c.whole, 1)
		before, _ := build(t, name, f, route.Options{})
		for seed := range uint64(2) {
			g := cut(f, rand.New(rand.NewPCG(seed, 3)), 1)
			r, _ := build(t, name, g, hinted(route.Options{}, &before))
			changed, all := 0, 0
			for s, row := range before.LFT {
				for lid, p := range row {
					if p == route.NoPort {
						continue
					}
					if all++; r.LFT[s][lid] != p {
						changed++
					}
				}
			}
			t.Logf("%s, seed %d: %d of %d entries change", name, seed, changed, all)
			if changed*100 > c.most*all {
				t.Errorf("%s, seed %d: %d of %d entries change", name, seed, changed, all)
			}
			again, _ := build(t, name, g, hinted(route.Options{}, &r))
			if n := blocks(r.LFT, again.LFT); n > 0 {
				t.Errorf("%s, seed %d: a second sweep without a change rewrites %d blocks", name, seed, n)
			}
		}
	}
}
