package route

import (
	"slices"

	"ibnetworkd/sm/fabric"
)

const (
	// holesMost is how many cables may be missing for a torus to be recognized, holesTries how
	// often a set of them is tried.
	holesMost  = 16
	holesTries = 200
)

// holed finds the torus that the graph is without some cables, nil if it is none.
func (g *graph) holed() *grid {
	count := make([]int32, g.n)
	for s := range count {
		a, b := g.neighbours(int32(s))
		count[s] = b - a
	}
	most := slices.Max(count)
	var open []int32 // switches that lack a cable, once for each
	for s, n := range count {
		for ; n < most; n++ {
			if open = append(open, int32(s)); len(open) > 2*holesMost {
				return nil
			}
		}
	}
	if most < 4 || len(open) == 0 || len(open)%2 != 0 {
		return nil
	}
	tries := 0
	t := g.plugged(g.f.Clone(), open, &tries)
	if t != nil {
		t.open = true
	}
	return t
}

// plugged finds cables between open switches that make a fabric a torus.
func (g *graph) plugged(f *fabric.Fabric, open []int32, tries *int) *grid {
	if len(open) == 0 {
		*tries++
		return newHinted(f, slices.Clone(g.kind)).grid()
	}
	s := open[0]
	for i, t := range open[1:] {
		if *tries >= holesTries || t == s || slices.Contains(open[1:1+i], t) || g.edge(s, t) != fabric.None || !g.opposite(s, t) {
			continue
		}
		p, q := g.freePort(f, s), g.freePort(f, t)
		if p == fabric.None || q == fabric.None {
			return nil
		}
		f.Ports[p].Peer, f.Ports[q].Peer = q, p
		rest := slices.Concat(open[1:1+i], open[2+i:])
		if t := g.plugged(f, rest, tries); t != nil {
			return t
		}
		f.Ports[p].Peer, f.Ports[q].Peer = fabric.None, fabric.None
	}
	return nil
}

// opposite reports whether a cable between two switches would be a side of a square.
func (g *graph) opposite(s, t int32) bool {
	a, b := g.neighbours(s)
	for _, u := range g.peer[a:b] {
		c, d := g.neighbours(t)
		for _, v := range g.peer[c:d] {
			if u != v && g.edge(u, v) != fabric.None {
				return true
			}
		}
	}
	return false
}

// freePort is a port of a switch without a cable, None if there is none.
func (g *graph) freePort(f *fabric.Fabric, s int32) int32 {
	first, count := f.PortRange(f.Switches[s].Node)
	for p := first; p < first+count; p++ {
		if f.Ports[p].Num != 0 && f.Ports[p].Peer == fabric.None {
			return p
		}
	}
	return fabric.None
}

// around are tables of the whole torus, patched, with the busiest links relieved; nil where that
// closes a loop.
func (b *builder) around(whole *grid) *patched {
	if whole == nil || b.hop != nil {
		return nil
	}
	var r Result
	(&builder{graph: whole.g}).dor(&r, whole)
	y := (&builder{graph: b.graph, prev: r.LFT}).patched(whole)
	if y != nil {
		y.relieved(b.bound())
	}
	return y
}

// along reports whether the tables in force are by dimension order nearly everywhere.
func (b *builder) along(whole *grid) bool {
	if whole == nil {
		return false
	}
	all, same := 0, 0
	e, c := &dimensionOrder{t: whole}, newCandidates(whole.g)
	for d, dests := range whole.g.dests {
		c.reset()
		e.towards(int32(d), c)
		n, k := whole.g.following(c, dests[:min(1, len(dests))], b.prev) // the switch itself
		all, same = all+n, same+k
	}
	return float64(same) > rowsSame*float64(all)
}

// turnBack lets paths around a ring that lacks one cable go the other way round where they led
// over it: of such a ring is left a line, on which no loop can close. It reports whether there
// is such a ring.
func (y *patched) turnBack(whole *grid) (some bool) {
	for k, dm := range whole.dims {
		for s := range int32(y.n) {
			if whole.at[s][k] != 0 {
				continue
			}
			ring, gaps, gap := make([]int32, dm.size), 0, int32(0)
			for c := range dm.size {
				ring[c] = whole.move(s, k, c)
			}
			for c, t := range ring {
				if y.edge(t, ring[(c+1)%len(ring)]) == fabric.None {
					gaps, gap = gaps+1, int32(c)
				}
			}
			if gaps == 1 && dm.size > 2 {
				some = true
				y.straighten(whole, k, ring, gap)
			}
		}
	}
	return some
}

// straighten turns the paths back that lead from a switch of a ring to the next one or from
// that to it, and those that come to these.
func (y *patched) straighten(whole *grid, k int, ring []int32, gap int32) {
	size := int32(len(ring))
	// The place on the line that begins behind the gap.
	place := func(c int32) int32 { return (c - gap - 1 + size) % size }
	for d, dests := range y.dests {
		same := true
		for i := range k {
			same = same && whole.at[d][i] == whole.at[ring[0]][i]
		}
		if !same {
			continue
		}
		to := place(whole.at[d][k])
		for c, s := range ring {
			at := place(int32(c))
			if at == to {
				continue
			}
			step := int32(1)
			if to < at {
				step = -1
			}
			next := ring[(int32(c)+step+size)%size]
			group := y.edge(s, next)
			for _, dest := range dests {
				if l := y.linkTowards(s, dest.lid); l == fabric.None || y.linkTo[l] != next {
					links := y.link[group+1] - y.link[group]
					y.direct(s, dest.lid, y.link[group]+int32(dest.lid)%links)
				}
			}
		}
	}
}
