package route_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// walk follows the tables from an end port to a LID. hops are the ports that a
// packet leaves by, indices into f.Ports, the end port itself first. ok is
// false when the packet is dropped, loops, or ends at a port that does not own
// the LID.
func walk(f *fabric.Fabric, lft [][]uint8, from int32, dlid ib.LID) (hops []int32, ok bool) {
	owns := func(p int32) bool {
		q := &f.Ports[p]
		return q.LID != 0 && dlid >= q.LID && int(dlid) < int(q.LID)+q.LMC.Count()
	}
	at := from
	for range len(f.Switches) + 2 {
		if owns(at) {
			return hops, true
		}
		s := f.Nodes[f.Ports[at].Node].Switch
		var out int32
		if s == fabric.None {
			if at != from {
				return hops, false
			}
			out = at
		} else {
			if int(s) >= len(lft) || int(dlid) >= len(lft[s]) || lft[s][dlid] == route.NoPort {
				return hops, false
			}
			p := lft[s][dlid]
			if out = f.Port(f.Switches[s].Node, p); out == fabric.None {
				return hops, false
			}
			if p == 0 {
				return hops, owns(out)
			}
		}
		if f.Ports[out].Peer == fabric.None {
			return hops, false
		}
		hops = append(hops, out)
		at = f.Ports[out].Peer
	}
	return hops, false
}

// allPairs walks from every end port to every LID, with maxHops at most to the first of each port;
// to the others there are longer paths that have no switch in common with those.
func allPairs(t *testing.T, f *fabric.Fabric, r route.Result, maxHops int) {
	t.Helper()
	for _, a := range f.EndPorts {
		if s, _ := f.SwitchOf(a); s == fabric.None {
			continue
		}
		for _, b := range f.EndPorts {
			if s, _ := f.SwitchOf(b); s == fabric.None {
				continue
			}
			for l := range f.Ports[b].LMC.Count() {
				hops, ok := walk(f, r.LFT, a, f.Ports[b].LID+ib.LID(l))
				if !ok || l == 0 && maxHops > 0 && len(hops) > maxHops {
					t.Fatalf("%s: from %s to LID %d of %s: %d hops, arrives %v", r.Engine, f.PortName(a), f.Ports[b].LID, f.PortName(b), len(hops), ok)
				}
			}
		}
	}
}

func TestEngines(t *testing.T) {
	for _, tt := range []struct {
		name    string
		f       *fabric.Fabric
		engine  string
		layers  int
		maxHops int
	}{
		{"pair", gen.Pair(), route.Direct, 1, 0},
		{"star", gen.Star(5, 8), route.MinHop, 1, 2},
		{"fat-tree of two levels", gen.FatTree2(8, 4), route.FatTree, 1, 5},
		{"fat-tree of three levels", gen.FatTree3(8, 4, 64), route.FatTree, 1, 8},
		{"ring of three", gen.Ring(3, 2), route.MinHop, 1, 3},
		{"ring of four is two by two", gen.Ring(4, 2), route.DOR, 1, 4},
		{"ring of seven", gen.Ring(7, 2), route.DOR, 2, 5},
		{"mesh", gen.Mesh([]int{4, 3}, 2), route.DOR, 1, 7},
		{"mesh of three dimensions", gen.Mesh([]int{3, 4, 3}, 1), route.DOR, 1, 9},
		{"torus", gen.Torus([]int{5, 6}, 2), route.DOR, 4, 7},
		{"torus with a ring of four", gen.Torus([]int{4, 5}, 2), route.DOR, 2, 6},
		{"torus with a ring of three", gen.Torus([]int{3, 5}, 2), route.DOR, 2, 5},
		{"torus of three dimensions", gen.Torus([]int{4, 4, 4}, 1), route.DOR, 1, 8},
		{"line", gen.Mesh([]int{5}, 1), route.MinHop, 1, 6},
		{"random", gen.Random(3, 12, 14, 20), route.UpDown, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for lmc := range ib.LMC(2) {
				f := gen.LIDs(tt.f, lmc)
				r, err := route.Build(f, route.Options{Layers: 8})
				testkit.NoError(t, err)
				if r.Engine != tt.engine || r.NumLayers != tt.layers || len(r.Warnings) > 0 {
					t.Errorf("engine %s with %d layers, want %s with %d; warnings %v", r.Engine, r.NumLayers, tt.engine, tt.layers, r.Warnings)
				}
				if loop := route.CreditLoop(f, r.LFT, r.SL); loop != nil {
					t.Errorf("credit loop %v", loop)
				}
				if tt.engine != route.Direct {
					allPairs(t, f, r, tt.maxHops)
				}
				for a := range r.SL {
					for b := range r.SL {
						if r.SL[a][b] != r.SL[b][a] {
							t.Fatalf("SL from %d to %d is %d, back %d", a, b, r.SL[a][b], r.SL[b][a])
						}
					}
				}
			}
		})
	}
}

// The checker must see loops where there are some.
func TestCreditLoopIsFound(t *testing.T) {
	f := gen.LIDs(gen.Ring(6, 1), 0)
	r, err := route.Build(f, route.Options{Engine: route.MinHop})
	testkit.NoError(t, err)
	loop := route.CreditLoop(f, r.LFT, nil)
	if len(loop) != 6 {
		t.Errorf("loop of a ring of 6: %v", loop)
	}
	if len(r.Warnings) != 1 {
		t.Errorf("warnings %v", r.Warnings)
	}
	if r, _ := route.Build(f, route.Options{Engine: route.DOR}); r.Engine != route.DOR || r.NumLayers != 1 || len(r.Warnings) != 0 {
		t.Errorf("dimension order on a ring without service levels: %s, %q", r.Engine, r.Warnings)
	}
	if r, _ := route.Build(f, route.Options{}); r.Engine != route.DOR || r.NumLayers != 1 {
		t.Errorf("a ring without service levels: %s", r.Engine)
	}
	r, _ = route.Build(f, route.Options{Engine: route.DOR, Layers: 2})
	if route.CreditLoop(f, r.LFT, nil) == nil || route.CreditLoop(f, r.LFT, r.SL) != nil {
		t.Errorf("a ring by dimension order has a loop in one layer and none in two")
	}
}

// Dimension order without service levels is free of deadlocks on every torus,
// and no link of it carries much more than under up/down, whose order of the
// switches is searched for.
func TestTorusWithoutLevels(t *testing.T) {
	for i, dims := range [][]int{{5, 5}, {8, 8}, {12, 4}, {5, 6}, {5, 2}, {4, 5, 6}, {5, 5, 5}, {3, 7}} {
		if i%every != 0 {
			continue
		}
		f := gen.LIDs(gen.Torus(dims, 1), 0)
		r, err := route.Build(f, route.Options{})
		if err != nil || r.Engine != route.DOR || r.NumLayers != 1 || r.SL != nil || len(r.Warnings) > 0 {
			t.Errorf("%v: %s with %d levels, %q, %v", dims, r.Engine, r.NumLayers, r.Warnings, err)
			continue
		}
		if loop := route.CreditLoop(f, r.LFT, nil); loop != nil || naiveLoop(f, r.LFT) {
			t.Errorf("%v: credit loop %v", dims, loop)
		}
		allPairs(t, f, r, 0)
		u, err := route.Build(f, route.Options{Engine: route.UpDown})
		testkit.NoError(t, err)
		dor, updn := slices.Max(slices.Collect(maps.Values(loads(f, r.LFT)))), slices.Max(slices.Collect(maps.Values(loads(f, u.LFT))))
		t.Logf("%v: most flows on a link: dor %d, updn %d", dims, dor, updn)
		if 20*dor > 21*updn {
			t.Errorf("%v: a link carries %d flows, under up/down %d", dims, dor, updn)
		}
	}
	f := gen.LIDs(gen.Ring(9, 2), 0)
	if r, _ := route.Build(f, route.Options{}); r.Engine != route.DOR || route.CreditLoop(f, r.LFT, nil) != nil ||
		naiveLoop(f, r.LFT) {
		t.Errorf("a ring by dimension order: %s", r.Engine)
	}
}

func TestBadEngines(t *testing.T) {
	f := gen.LIDs(gen.Random(3, 12, 14, 20), 0)
	for _, tt := range []struct {
		engine, want string
		warnings     int
	}{{"dor", route.UpDown, 1}, {"ftree", route.UpDown, 1}, {"nonesuch", route.UpDown, 1}, {"ftree, nonesuch,updn", route.UpDown, 2},
		{"auto", route.UpDown, 0},
		// The names of opensm's configuration.
		{"UPDN", route.UpDown, 0}, {"dnup", route.UpDown, 0}, {"sssp", route.MinHop, 1}, {"torus-2QoS", route.UpDown, 1},
		{"(null)", route.UpDown, 0},
		{"lash", route.UpDown, 1}, {"dfsssp,no_fallback", route.UpDown, 2}, {"nue", route.UpDown, 1}, {"file,minhop", route.MinHop, 2}} {
		r, err := route.Build(f, route.Options{Engine: tt.engine})
		if err != nil || r.Engine != tt.want || len(r.Warnings) != tt.warnings {
			t.Errorf("engine %s on a random graph: %s, %q, %v", tt.engine, r.Engine, r.Warnings, err)
		}
		allPairs(t, f, r, 0)
		t.Log(r.Warnings)
	}
	if _, err := route.Build(gen.Ring(4, 1), route.Options{}); err != route.ErrNoLIDs {
		t.Errorf("without LIDs: %v", err)
	}
	r, err := route.Build(f, route.Options{Engine: route.UpDown, Roots: []ib.GUID{f.Nodes[f.Switches[4].Node].GUID, 0x1234}})
	if err != nil || len(r.Warnings) != 1 {
		t.Errorf("roots: %v, %v", err, r.Warnings)
	}
}

// naiveLoop is the checker as the definition has it: packets from everywhere
// to everywhere, and a depth-first search.
func naiveLoop(f *fabric.Fabric, lft [][]uint8) bool {
	dep := map[int32]map[int32]bool{}
	for i := range f.Switches {
		sw := f.Port(f.Switches[i].Node, 0)
		for lid := range lft[i] {
			hops, _ := walk(f, lft, sw, ib.LID(lid))
			for j := 1; j < len(hops); j++ {
				if f.Nodes[f.Ports[f.Ports[hops[j]].Peer].Node].Switch == fabric.None {
					continue
				}
				if dep[hops[j-1]] == nil {
					dep[hops[j-1]] = map[int32]bool{}
				}
				dep[hops[j-1]][hops[j]] = true
			}
		}
	}
	return gen.Cyclic(dep)
}

func randomFabric(rnd *rand.Rand) *fabric.Fabric {
	switch rnd.IntN(8) {
	case 0:
		return gen.FatTree2(8, 2<<rnd.IntN(3))
	case 1:
		return gen.Torus([]int{2 + rnd.IntN(5), 2 + rnd.IntN(5)}, rnd.IntN(3))
	case 2:
		return gen.Ring(3+rnd.IntN(7), 1+rnd.IntN(2))
	case 3:
		return cut(gen.FatTree2(8, 4), rnd, 1+rnd.IntN(4))
	case 4:
		return cut(gen.Torus([]int{4, 5}, 1), rnd, 1+rnd.IntN(3))
	}
	n := 1 + rnd.IntN(12)
	return gen.Random(rnd.Uint64(), n, rnd.IntN(2*n), rnd.IntN(20))
}

// cut takes links between switches out; parts that fall off stay in the
// fabric.
func cut(f *fabric.Fabric, rnd *rand.Rand, n int) *fabric.Fabric {
	f = f.Clone()
	for range n {
		for range 50 {
			i := rnd.IntN(len(f.Ports))
			p := &f.Ports[i]
			if p.Peer == fabric.None || f.Nodes[p.Node].Switch == fabric.None {
				continue
			}
			q := &f.Ports[p.Peer]
			if f.Nodes[q.Node].Switch == fabric.None {
				continue
			}
			p.Peer, q.Peer = fabric.None, fabric.None
			break
		}
	}
	return f
}

// connected gives each switch the number of its connected part.
func connected(f *fabric.Fabric) []int {
	part := make([]int, len(f.Switches))
	n := 0
	var visit func(s int32)
	visit = func(s int32) {
		part[s] = n
		first, count := f.PortRange(f.Switches[s].Node)
		for p := first; p < first+count; p++ {
			if q := f.Ports[p].Peer; q != fabric.None {
				if t := f.Nodes[f.Ports[q].Node].Switch; t != fabric.None && part[t] == 0 {
					visit(t)
				}
			}
		}
	}
	for s := range part {
		if part[s] == 0 {
			n++
			visit(int32(s))
		}
	}
	return part
}

// On thousands of random graphs, with every engine that fits: all connected
// pairs are reached, there is no credit loop by either checker, and the same
// fabric gives the same bytes, also with the tables in force as a hint.
func TestRandomFabrics(t *testing.T) {
	count := graphs
	if testing.Short() {
		count = min(count, 500)
	}
	engines := map[string]int{}
	for seed := range count {
		rnd := rand.New(rand.NewPCG(uint64(seed), 7))
		f := gen.LIDs(randomFabric(rnd), ib.LMC(rnd.IntN(2)))
		if len(f.Switches) == 0 {
			continue
		}
		opt := route.Options{Layers: 8 * rnd.IntN(2)}
		if rnd.IntN(3) == 0 {
			opt.Engine = route.UpDown
		}
		r, err := route.Build(f, opt)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		engines[r.Engine]++
		part := connected(f)
		for _, a := range f.EndPorts {
			sa, _ := f.SwitchOf(a)
			for _, b := range f.EndPorts {
				sb, _ := f.SwitchOf(b)
				if sa == fabric.None || sb == fabric.None {
					continue
				}
				_, ok := walk(f, r.LFT, a, f.Ports[b].LID)
				if ok != (part[sa] == part[sb]) {
					t.Fatalf("seed %d, %s: from %s to %s: arrives %v, connected %v", seed, r.Engine, f.PortName(a), f.PortName(b), ok,
						part[sa] == part[sb])
				}
			}
		}
		if loop := route.CreditLoop(f, r.LFT, r.SL); loop != nil {
			t.Fatalf("seed %d, %s: credit loop %v", seed, r.Engine, loop)
		}
		if r.SL == nil && naiveLoop(f, r.LFT) || r.SL != nil && naiveLoops(f, &r) {
			t.Fatalf("seed %d, %s: the naive checker finds a credit loop", seed, r.Engine)
		}
		m, _ := route.Build(f, route.Options{Engine: route.MinHop})
		if naive, fast := naiveLoop(f, m.LFT), route.CreditLoop(f, m.LFT, nil) != nil; naive != fast {
			t.Fatalf("seed %d: minimum hop: naive checker %v, ours %v", seed, naive, fast)
		}
		again, _ := route.Build(f.Clone(), opt)
		opt.Previous, opt.SL = r.LFT, r.SL
		if r.Engine == route.Layered {
			opt.Order, opt.Trunk = r.Order, r.Trunk
		}
		hinted, _ := route.Build(f, opt)
		for s := range r.LFT {
			if !slices.Equal(r.LFT[s], again.LFT[s]) {
				t.Fatalf("seed %d: a second run gives other tables", seed)
			}
			if !slices.Equal(r.LFT[s], hinted.LFT[s]) {
				t.Fatalf("seed %d: the tables in force as a hint give other tables", seed)
			}
		}
	}
	t.Log(engines)
}

// loads counts the flows between all pairs of hosts over each link between
// switches, both directions apart, by the level of the switch it leaves.
func loads(f *fabric.Fabric, lft [][]uint8) map[int32]int {
	n := map[int32]int{}
	for _, a := range f.EndPorts {
		for _, b := range f.EndPorts {
			if f.Nodes[f.Ports[a].Node].Switch != fabric.None || f.Nodes[f.Ports[b].Node].Switch != fabric.None || a == b {
				continue
			}
			hops, _ := walk(f, lft, a, f.Ports[b].LID)
			for i, h := range hops {
				if i > 0 && i < len(hops)-1 {
					n[h]++
				}
			}
		}
	}
	return n
}

// A full fat-tree gives every link of a level the same load.
func TestFatTreeBalance(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{"two levels": gen.FatTree2(12, 6), "three levels": gen.FatTree3(8, 4, 64)} {
		f = gen.LIDs(f, 0)
		r, err := route.Build(f, route.Options{})
		testkit.NoError(t, err)
		least, most, sum := 1<<60, 0, 0
		ours := loads(f, r.LFT)
		for _, v := range ours {
			least, most, sum = min(least, v), max(most, v), sum+v
		}
		// The naive way: the first shortest link.
		worst := 0
		for _, v := range loads(f, naive(f)) {
			worst = max(worst, v)
		}
		t.Logf("%s: flows a link %d to %d, mean %d; first-link routing at most %d", name, least, most, sum/len(ours), worst)
		if most > 2*sum/len(ours) || worst < 2*most {
			t.Errorf("%s: loads from %d to %d, mean %d, naive %d", name, least, most, sum/len(ours), worst)
		}
	}
}

// A link that came up at a quarter of its width gets about a quarter of the
// flows.
func TestSlowLink(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(16, 8), 0)
	var slow int32
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer != fabric.None && f.Nodes[p.Node].Switch == 0 && f.Nodes[f.Ports[p.Peer].Node].Switch != fabric.None {
			slow = int32(i)
		}
	}
	for _, i := range []int32{slow, f.Ports[slow].Peer} {
		f.Ports[i].Info.SetWidthActive(1)
	}
	r, err := route.Build(f, route.Options{})
	testkit.NoError(t, err)
	ours := loads(f, r.LFT)
	other := f.Ports[slow].Node
	sum, n := 0, 0
	for p, v := range ours {
		if f.Ports[p].Node == other && p != slow {
			sum, n = sum+v, n+1
		}
	}
	t.Logf("slow link %d flows, others %d", ours[slow], sum/n)
	if ours[slow]*5 > 2*sum/n || ours[slow] == 0 {
		t.Errorf("the slow link carries %d flows, the others %d", ours[slow], sum/n)
	}
}

// naive routes each LID over the first of the shortest links.
func naive(f *fabric.Fabric) [][]uint8 {
	r, _ := route.Build(f, route.Options{Engine: route.MinHop})
	lft := make([][]uint8, len(r.LFT))
	for s := range lft {
		lft[s] = slices.Clone(r.LFT[s])
		seen := map[int32]uint8{}
		for _, e := range f.EndPorts {
			sw, _ := f.SwitchOf(e)
			if int(sw) == s {
				continue
			}
			if p, ok := seen[sw]; ok {
				lft[s][f.Ports[e].LID] = p
			} else {
				seen[sw] = lft[s][f.Ports[e].LID]
			}
		}
	}
	return lft
}

func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	f := gen.LIDs(gen.FatTree3(36, 16, 5184), 0)
	start := time.Now()
	r, err := route.Build(f, route.Options{})
	testkit.NoError(t, err)
	took := time.Since(start)
	start = time.Now()
	loop := route.CreditLoop(f, r.LFT, nil)
	t.Logf("%d end ports, %d switches: %s in %v, checked in %v", len(f.EndPorts), len(f.Switches), r.Engine, took, time.Since(start))
	if r.Engine != route.FatTree || loop != nil {
		t.Errorf("engine %s, loop %v", r.Engine, loop)
	}
	up := fmt.Sprint(r.Warnings)
	if up != "[]" {
		t.Error(up)
	}
}

func TestSmallTable(t *testing.T) {
	f := gen.LIDs(gen.Star(5, 8), 0)
	f.Switches[0].Info.SetCaps(4, 1024, 64)
	r, err := route.Build(f, route.Options{})
	if err != nil || len(r.Warnings) != 1 || len(r.LFT[0]) != 4 {
		t.Errorf("%v, %q, %v", err, r.Warnings, r.LFT)
	}
	if r, err = route.Build(f, route.Options{Previous: r.LFT}); err != nil || len(r.Warnings) != 1 {
		t.Errorf("again: %v, %q", err, r.Warnings)
	}
}

// A host on a spine, as the manager's often is, does not turn a fat-tree into
// another topology, and reaches all.
func TestHostOnSpine(t *testing.T) {
	m := gen.New()
	var spine, leaf []int
	for range 3 {
		spine = append(spine, m.Switch(12))
	}
	first := m.Host(1)
	m.Link(spine[1], 12, first, 1)
	for l := range 6 {
		leaf = append(leaf, m.Switch(12))
		for s := range spine {
			m.Link(leaf[l], 10+s, spine[s], l+1)
		}
		for h := range 6 {
			m.Link(leaf[l], h+1, m.Host(1), 1)
		}
	}
	f := gen.LIDs(m.Done(first), 0)
	r, err := route.Build(f, route.Options{})
	if err != nil || r.Engine != route.FatTree || len(r.Warnings) > 0 {
		t.Errorf("%s, %v, %v", r.Engine, r.Warnings, err)
	}
	allPairs(t, f, r, 5)
	if loop := route.CreditLoop(f, r.LFT, nil); loop != nil {
		t.Errorf("credit loop %v", loop)
	}
}

// A tree whose middle switches share cores with their neighbours: the ways from
// one switch's own port to another's would close loops. They are left out, not
// the other roots of the tree. With a link cut, hosts still use the whole tree.
func TestTreeOfUnevenCores(t *testing.T) {
	f := gen.LIDs(gen.FatTree3(12, 3, 6), 0)
	big := gen.LIDs(gen.FatTree3(24, 3, 12), 0)
	for _, f := range []*fabric.Fabric{f, big} {
		for _, cut := range []bool{false, true} {
			g := f
			if cut {
				g = f.Clone()
				first, count := g.PortRange(g.Switches[0].Node)
				for p := first + 1; p < first+count; p++ {
					if q := g.Ports[p].Peer; q != fabric.None && g.Nodes[g.Ports[q].Node].Switch != fabric.None {
						g.Ports[p].Peer, g.Ports[q].Peer = fabric.None, fabric.None
						break
					}
				}
			}
			r, err := route.Build(g, route.Options{})
			testkit.NoError(t, err)
			if loop := route.CreditLoop(g, r.LFT, r.SL); loop != nil || naiveLoop(g, r.LFT) {
				t.Errorf("credit loop %v", loop)
			}
			for _, a := range g.EndPorts {
				for _, b := range g.EndPorts {
					if _, ok := walk(g, r.LFT, a, g.Ports[b].LID); !ok {
						t.Fatalf("%s: no way from %s to %s", r.Engine, g.PortName(a), g.PortName(b))
					}
				}
			}
			l := loads(g, r.LFT)
			sum, most := 0, 0
			for _, v := range l {
				sum, most = sum+v, max(most, v)
			}
			t.Logf("%d switches, cut %v: %s, %d links carry %d flows on average, %d at most; %q", len(g.Switches), cut, r.Engine, len(l),
				sum/len(l), most, r.Warnings)
			if r.Engine != route.FatTree || most > 4*sum/len(l) {
				t.Errorf("%s, %d flows on a link, %d on average", r.Engine, most, sum/len(l))
			}
		}
	}
}
