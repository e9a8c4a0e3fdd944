package route_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/route"
)

// tops are the switches without hosts on them and on their neighbours, indices.
func tops(f *fabric.Fabric) (out []int32) {
	leaves := bare(f)
	for _, s := range leaves {
		first, count := f.PortRange(f.Switches[s].Node)
		top := true
		for p := first + 1; p < first+count; p++ {
			if q := f.Ports[p].Peer; q != fabric.None {
				top = top && slices.Contains(leaves, f.Nodes[f.Ports[q].Node].Switch)
			}
		}
		if top {
			out = append(out, s)
		}
	}
	return out
}

// bare are the switches without hosts.
func bare(f *fabric.Fabric) (out []int32) {
	hosts := make([]int, len(f.Switches))
	for _, e := range f.EndPorts {
		if s, port := f.SwitchOf(e); s != fabric.None && port != 0 {
			hosts[s]++
		}
	}
	for s, n := range hosts {
		if n == 0 {
			out = append(out, int32(s))
		}
	}
	return out
}

// The roots of a tree, named, give what is found without them; an order with other
// roots than those in force comes into force.
func TestRoots(t *testing.T) {
	f := gen.LIDs(gen.FatTree3(16, 8, 512), 0)
	var roots []ib.GUID
	for _, s := range tops(f) {
		roots = append(roots, f.Nodes[f.Switches[s].Node].GUID)
	}
	if len(roots) == 0 {
		t.Fatal("no cores")
	}
	found, l := build(t, "found", f, route.Options{})
	named, m := build(t, "named", f, route.Options{Roots: roots})
	if named.Engine != route.FatTree || m.Worst > l.Worst {
		t.Errorf("%s with %v, without roots %s with %v", named.Engine, m.Worst, found.Engine, l.Worst)
	}
	// From the other side: a leaf as root.
	leaf, _ := f.SwitchOf(f.EndPorts[len(f.EndPorts)-1])
	guid := f.Nodes[f.Switches[leaf].Node].GUID
	other, _ := build(t, "a leaf", f, route.Options{Roots: []ib.GUID{guid}, Previous: named.LFT, Order: named.Order})
	if other.Order[0] != guid {
		t.Errorf("the leaf is at %d", slices.Index(other.Order, guid))
	}
	// A host stands for the switch that it is on.
	by, _ := build(t, "by a host", f, route.Options{Roots: []ib.GUID{f.Ports[f.EndPorts[len(f.EndPorts)-1]].GUID}})
	if !slices.Equal(by.Order, other.Order) {
		t.Error("by the GUID of a host the order is another")
	}
	// Routes stay with a cable out.
	n := 0
	cut := gen.LIDs(gen.Unplug(f, func(a, b *fabric.Port) bool {
		if f.Nodes[a.Node].Switch == fabric.None || f.Nodes[b.Node].Switch == fabric.None {
			return false
		}
		n++
		return n == 7
	}), 0)
	after, _ := build(t, "cut", cut, route.Options{Roots: roots, Previous: named.LFT, Order: named.Order})
	moved := 0
	for s, row := range after.LFT {
		for lid, p := range row {
			if named.LFT[s][lid] != p {
				moved++
			}
		}
	}
	if all := len(named.LFT) * len(named.LFT[0]); cut.Links() != f.Links()-1 || after.Engine != route.FatTree || moved*100 > all {
		t.Errorf("%d links of %d, %s: %d of %d entries moved", cut.Links(), f.Links(), after.Engine, moved, all)
	}
}

// Flows to I/O nodes are balanced by themselves: no link to a spine has more of them
// than it must, with an uneven number of them on the leaves too.
func TestIONodes(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(36, 18), 0)
	var io []ib.GUID
	count := make([]int, len(f.Switches)) // hosts, then I/O nodes
	for _, e := range f.EndPorts {
		if s, out := f.SwitchOf(e); out != 0 {
			if count[s]++; count[s]%6 == 1+int(s)%6 && s%3 != 0 {
				io = append(io, f.Ports[e].GUID)
			}
		}
	}
	most := func(r route.Result) (worst int) {
		load := map[int32]int{}
		for _, e := range f.EndPorts {
			if !slices.Contains(io, f.Ports[e].GUID) {
				continue
			}
			for s := range f.Switches {
				hops, _ := walk(f, r.LFT, f.Port(f.Switches[s].Node, 0), f.Ports[e].LID)
				if count[s] == 0 || len(hops) < 2 {
					continue
				}
				for _, p := range hops[:len(hops)-1] {
					load[p] += count[s]
					worst = max(worst, load[p])
				}
			}
		}
		return worst
	}
	without, l := build(t, "without", f, route.Options{})
	with, m := build(t, "with", f, route.Options{IO: io})
	if most(with)*2 > most(without) || m.Worst > l.Worst*1.2 {
		t.Errorf("%d I/O nodes: %d on a link, %d without a list; all flows %v and %v", len(io), most(with), most(without), m.Worst, l.Worst)
	}
	t.Logf("%d I/O nodes: %d on a link, %d without a list; all flows %v and %v", len(io), most(with), most(without), m.Worst, l.Worst)
}

// Compute nodes are balanced as if there were no others.
func TestComputeNodes(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(36, 18), 0)
	var cn []ib.GUID
	keep := map[ib.GUID]bool{}
	for i, e := range f.EndPorts {
		if s, out := f.SwitchOf(e); out != 0 && i%3 == 0 {
			cn, keep[f.Nodes[f.Ports[e].Node].GUID] = append(cn, f.Ports[e].GUID), true
		} else if out == 0 {
			keep[f.Nodes[f.Switches[s].Node].GUID] = true
		}
	}
	r, _ := build(t, "with", f, route.Options{Compute: cn})
	alone := gen.Unplug(f, func(a, b *fabric.Port) bool { return !keep[f.Nodes[a.Node].GUID] || !keep[f.Nodes[b.Node].GUID] })
	best, l := build(t, "alone", alone, route.Options{})
	if with := route.Measure(alone, r.LFT); with.Worst > l.Worst || r.Worst != with.Worst {
		t.Errorf("%d compute nodes: %v (said to be %v) on the busiest link, %v without others (bound %v)", len(cn), with.Worst, r.Worst, l.Worst,
			best.Bound)
	}
}

// A hop weight keeps paths off a cable as long as there are others.
func TestHopWeights(t *testing.T) {
	for _, engine := range []string{"", route.FatTree, route.MinHop} {
		f := gen.LIDs(gen.FatTree2(8, 4), 0)
		spine := f.Switches[bare(f)[0]].Node
		var w []guidfile.Weight
		heavy := map[int32]bool{}
		first, count := f.PortRange(spine)
		for p := first + 1; p < first+count; p++ {
			if q := f.Ports[p].Peer; q != fabric.None { // towards the spine
				w, heavy[q] = append(w, guidfile.Weight{Switch: f.Nodes[f.Ports[q].Node].GUID, Port: f.Ports[q].Num, Hops: 3}), true
			}
		}
		r, _ := build(t, "weights", f, route.Options{Engine: engine, HopWeights: w})
		for _, a := range f.EndPorts {
			for _, b := range f.EndPorts {
				hops, ok := walk(f, r.LFT, a, f.Ports[b].LID)
				if !ok {
					t.Fatalf("%s: no path from %s to %s", engine, f.PortName(a), f.PortName(b))
				}
				if f.Ports[b].Node != spine && slices.ContainsFunc(hops, func(p int32) bool { return heavy[p] }) {
					t.Fatalf("%s: %s to %s over the spine", engine, f.PortName(a), f.PortName(b))
				}
			}
		}
	}
}

// Weights that no link gets change nothing.
func TestHopWeightsWithoutEffect(t *testing.T) {
	for seed := range uint64(15) {
		f := gen.LIDs(gen.Random(seed, 16, 24, 2), 0)
		sw := f.Nodes[f.Switches[0].Node].GUID
		want, _ := build(t, "without", f, route.Options{Engine: route.UpDown})
		for name, w := range map[string]guidfile.Weight{"of an unknown switch": {Switch: 0x55, Port: 1, Hops: 9},
			"of 1": {Switch: sw, Port: 1, Hops: 1}, "of a port that is down": {Switch: sw, Port: 250, Hops: 9}} {
			got, _ := build(t, name, f, route.Options{Engine: route.UpDown, HopWeights: []guidfile.Weight{w}})
			if !slices.Equal(got.Order, want.Order) || !slices.EqualFunc(got.LFT, want.LFT, slices.Equal) {
				t.Errorf("seed %d: a weight %s changes the tables", seed, name)
			}
		}
	}
}

// Hosts that jobs number in another order than that of their ports on each switch get the
// whole bandwidth in shifts of that order, as they do in the order of ports without a list.
func TestHostOrder(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{"two levels": gen.FatTree2(36, 18), "three levels": gen.FatTree3(16, 8, 512)} {
		f := gen.LIDs(f, 0)
		rnd := rand.New(rand.NewPCG(7, 7))
		on := make([][]ib.GUID, len(f.Switches))
		for _, e := range f.EndPorts {
			if s, out := f.SwitchOf(e); out != 0 {
				on[s] = append(on[s], f.Ports[e].GUID)
			}
		}
		for _, l := range on {
			rnd.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		}
		order := slices.Concat(on...)
		without, l := build(t, name, f, route.Options{})
		with, m := build(t, name, f, route.Options{HostOrder: order[:len(order)-1]})
		a, _ := route.Shift(f, without.LFT, order...)
		b, _ := route.Shift(f, with.LFT, order...)
		if a > 0.95 || b < 0.999 || m.Worst > l.Worst {
			t.Errorf("%s: %.3f of the bandwidth, %.3f without the order; %v on the busiest link, %v without", name, b, a, m.Worst, l.Worst)
		}
		t.Logf("%s: %.3f of the bandwidth, %.3f without the order", name, b, a)
	}
}

// lengths is the sum of the lengths of all paths between hosts by hop weights.
func lengths(f *fabric.Fabric, lft [][]uint8, weights []guidfile.Weight) (sum int) {
	type port struct {
		guid ib.GUID
		num  uint8
	}
	of := map[port]int{}
	for _, w := range weights {
		of[port{w.Switch, w.Port}] = int(w.Hops)
	}
	for _, a := range f.EndPorts {
		for _, b := range f.EndPorts {
			if f.Ports[a].Num == 0 || f.Ports[b].Num == 0 {
				continue
			}
			hops, _ := walk(f, lft, a, f.Ports[b].LID)
			for _, p := range hops {
				sum += max(1, of[port{f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num}])
			}
		}
	}
	return sum
}

// Up/down orders the switches so that heavy links need not be used: on a ring, the cable
// at the switch through which nothing passes is the one that can stay idle.
func TestHopWeightsOrder(t *testing.T) {
	f := gen.LIDs(gen.Ring(6, 1), 0)
	for s := range f.Switches {
		sw := f.Switches[s].Node
		first, count := f.PortRange(sw)
		for p := first + 1; p < first+count; p++ {
			q := f.Ports[p].Peer
			if q == fabric.None || f.Nodes[f.Ports[q].Node].Switch == fabric.None {
				continue
			}
			w := []guidfile.Weight{{Switch: f.Nodes[sw].GUID, Port: f.Ports[p].Num, Hops: 9},
				{Switch: f.Nodes[f.Ports[q].Node].GUID, Port: f.Ports[q].Num, Hops: 9}}
			r, l := build(t, "ring", f, route.Options{Engine: route.UpDown, HopWeights: w})
			if v := route.NewView(f, f, w, &r); r.Engine != route.UpDown || l.Lost > 0 {
				t.Fatalf("%s, %d lost", r.Engine, l.Lost)
			} else if n := v.Flows(p); n > 0 {
				t.Errorf("%d flows from %s to %s, with a way around", n, f.PortName(p), f.PortName(q))
			}
		}
	}
}

// On irregular graphs the paths are at most an eighth longer than the shortest, which minhop
// takes and which close loops; with an order that does not regard the weights, a fifth.
func TestHopWeightsLength(t *testing.T) {
	sum, least := 0, 0
	for seed := range uint64(5) {
		f := gen.LIDs(gen.RandomRegular(seed+1, 30, 4, 2), 0)
		rnd := rand.New(rand.NewPCG(seed, 3))
		var w []guidfile.Weight
		for s := range f.Switches {
			sw := f.Switches[s].Node
			first, count := f.PortRange(sw)
			for p := first + 1; p < first+count; p++ {
				q := f.Ports[p].Peer
				if q == fabric.None || q < p || f.Nodes[f.Ports[q].Node].Switch == fabric.None || rnd.IntN(5) > 0 {
					continue
				}
				w = append(w, guidfile.Weight{Switch: f.Nodes[sw].GUID, Port: f.Ports[p].Num, Hops: 4},
					guidfile.Weight{Switch: f.Nodes[f.Ports[q].Node].GUID, Port: f.Ports[q].Num, Hops: 4})
			}
		}
		r, l := build(t, "random", f, route.Options{Engine: route.UpDown, HopWeights: w})
		m, err := route.Build(f, route.Options{Engine: route.MinHop, HopWeights: w})
		if err != nil {
			t.Fatal(err)
		}
		long, short := lengths(f, r.LFT, w), lengths(f, m.LFT, w)
		t.Logf("seed %d: %v on the busiest link, length of all paths %d, %d the shortest", seed, l.Worst, long, short)
		sum, least = sum+long, least+short
	}
	if 8*sum > 9*least {
		t.Errorf("length of all paths %d, %d the shortest", sum, least)
	}
}

// Whatever the hints, every host reaches every other without a credit loop, by both
// checkers, and the same hints give the same tables.
func TestAnyHints(t *testing.T) {
	degraded(60, func(seed uint64, c gen.Case) {
		f := gen.LIDs(c.Fabric, 0)
		if len(f.Switches) > 100 {
			return
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		opt := route.Options{Engine: []string{"", route.UpDown, route.FatTree}[rnd.IntN(3)]}
		some := func(n int) (out []ib.GUID) {
			for range rnd.IntN(n) {
				out = append(out, f.Ports[f.EndPorts[rnd.IntN(len(f.EndPorts))]].GUID)
			}
			return out
		}
		opt.Roots, opt.Compute, opt.IO, opt.HostOrder = some(4), some(len(f.EndPorts)), some(9), some(len(f.EndPorts))
		for range rnd.IntN(3 * len(f.Switches)) {
			sw := &f.Nodes[f.Switches[rnd.IntN(len(f.Switches))].Node]
			opt.HopWeights = append(opt.HopWeights, guidfile.Weight{Switch: sw.GUID, Port: uint8(1 + rnd.IntN(int(sw.NumPorts))),
				Hops: uint8(1 + rnd.IntN(5))})
		}
		r, _ := build(t, c.Name, f, opt)
		allPairs(t, f, r, 0)
		if naiveLoop(f, r.LFT) {
			t.Errorf("%s: the second checker finds a loop", c.Name)
		}
		if again, _ := route.Build(f, opt); !slices.EqualFunc(r.LFT, again.LFT, slices.Equal) {
			t.Errorf("%s: other tables the second time", c.Name)
		}
	})
}

// What the fabric does not have is a warning with a number and an example.
func TestUnknownHints(t *testing.T) {
	f := gen.LIDs(gen.FatTree2(8, 4), 0)
	sw := f.Nodes[f.Switches[0].Node].GUID
	r, _ := build(t, "unknown", f, route.Options{Roots: []ib.GUID{0x9999}, Compute: []ib.GUID{0x77, 0x78, f.Ports[f.EndPorts[9]].GUID},
		IO: []ib.GUID{sw}, HostOrder: []ib.GUID{sw},
		HopWeights: []guidfile.Weight{{Switch: 0x55, Port: 1, Hops: 2}, {Switch: sw, Port: 250, Hops: 2}}})
	for i, want := range []string{
		"compute nodes: 2 of the 3 GUIDs, such as 0x0000000000000077, are no port of an adapter or router of the fabric",
		"I/O nodes: " + sw.String() + " is no port",
		"roots: 0x0000000000009999 is neither a switch of the fabric nor on one; roots are found instead",
		"hop weights: 1 of the 2 GUIDs, such as 0x0000000000000055, are no switch of the fabric",
		"order of hosts: " + sw.String() + " is no port",
	} {
		if len(r.Warnings) != 5 || !strings.HasPrefix(r.Warnings[i], want) {
			t.Fatalf("%q, want %q", r.Warnings, want)
		}
	}
}
