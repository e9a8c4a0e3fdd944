package route_test

import (
	"math"
	"math/bits"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// heaviest is the largest load that the flows between a set of switches and the others give
// the links between these, of all sets; links are all of one speed.
func heaviest(f *fabric.Fabric) (most float64) {
	n := len(f.Switches)
	hosts := make([]int, n)
	for _, e := range f.EndPorts {
		if s, out := f.SwitchOf(e); s != fabric.None && out != 0 {
			hosts[s]++
		}
	}
	all := 0
	for _, h := range hosts {
		all += h
	}
	var links [][2]int32
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer > int32(i) {
			if a, b := f.Nodes[p.Node].Switch, f.Nodes[f.Ports[p.Peer].Node].Switch; a != fabric.None && b != fabric.None {
				links = append(links, [2]int32{a, b})
			}
		}
	}
	for set := uint(1); set < 1<<n-1; set++ {
		inside, cut := 0, 0
		for s := set; s != 0; s &= s - 1 {
			inside += hosts[bits.TrailingZeros(s)]
		}
		for _, l := range links {
			if set>>l[0]&1 != set>>l[1]&1 {
				cut++
			}
		}
		if cut > 0 {
			most = max(most, float64(inside*(all-inside))/float64(cut))
		}
	}
	return most
}

// What no tables can be below is never more than the worst of all sets of switches
// gives, nor than what tables have.
func TestBound(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{
		"DragonFly+": gen.DragonFlyPlus(3, 2, 3, 1), "torus": gen.Torus([]int{4, 3}, 2), "random": gen.RandomRegular(1, 12, 3, 2),
		"tree": gen.FatTree2(8, 4), "HyperX": gen.HyperX([]int{3, 3}, 2), "ring": gen.Ring(7, 3),
	} {
		r, l := build(t, name, gen.LIDs(f, 0), route.Options{})
		if n := heaviest(f); r.Bound > math.Floor(n)+1 || r.Bound > l.Worst+1 {
			t.Errorf("%s: a bound of %.0f, the worst set gives %.0f, tables have %.0f", name, r.Bound, n, l.Worst)
		} else {
			t.Logf("%s: a bound of %.0f, the worst set gives %.0f, tables have %.0f", name, r.Bound, n, l.Worst)
		}
	}
	// 16 hosts of a group send to 128 others over its eight links.
	if r, l := build(t, "DragonFly+", gen.LIDs(gen.DragonFlyPlus(9, 4, 4, 1), 0), route.Options{}); r.Bound != 256 || l.Worst != 256 {
		t.Errorf("DragonFly+: a bound of %.0f, %.0f flows on a link", r.Bound, l.Worst)
	}
	for seed := range uint64(140 / every) {
		c := gen.Degraded(seed)
		r, err := route.Build(gen.LIDs(c.Fabric, 0), route.Options{})
		if err == nil && r.Worst < r.Bound-1 {
			t.Errorf("%s: a bound of %.0f, %.0f flows on a link", c.Name, r.Bound, r.Worst)
		}
	}
}

// With several LIDs a port has as many flows to it, and the bound counts them too.
func TestBoundWithLMC(t *testing.T) {
	one, err := route.Build(gen.LIDs(gen.FatTree2(12, 6), 0), route.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for lmc := range ib.LMC(4) {
		r, err := route.Build(gen.LIDs(gen.FatTree2(12, 6), lmc), route.Options{})
		if err != nil || r.Bound != one.Bound*float64(lmc.Count()) || r.Worst < r.Bound || r.Worst > 1.2*r.Bound {
			t.Errorf("LMC %d: %.0f flows on a link, a bound of %.0f; %.0f with one LID; %v", lmc, r.Worst, r.Bound, one.Bound, err)
		}
	}
}

// Where cables cut off a part of the fabric, no flows go there.
func TestBoundOfParts(t *testing.T) {
	r, err := route.Build(gen.LIDs(gen.Uneven(2, 40, 5, 2, 96), 0), route.Options{})
	if err != nil || r.Bound > r.Worst {
		t.Errorf("a bound of %.0f, %.0f flows on a link, %v", r.Bound, r.Worst, err)
	}
}
