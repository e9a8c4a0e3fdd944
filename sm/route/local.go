package route

import (
	"math"
	"math/bits"
	"slices"

	"ibnetworkd/sm/fabric"
)

// localWork is from which passWork on tables are made by local, in half a second for each
// thousand million, or by stems for a tree.
const localWork = 700_000_000

// passWork is the number of links visited in a pass: destinations times links.
func (g *graph) passWork() int { return g.top * len(g.port) / 2 }

// local fills the tables of subnets that are too large for assign and are not trees: for each
// destination, from the far switches to the near ones, each takes the link of
// its own that carries the fewest flows so far, and adds the flows of all behind
// it. An entry in force stays unless its link has twice the flows of the best one and a bit.
func (b *builder) local(e engine) tables {
	g := b.graph
	lft, lost := newTables(g), 0
	load := g.loads()
	var flow []int64 // by switch and destination LID of the current switch
	c := newCandidates(g)
	var least lightest
	slack := 32 * g.mostHosts
	for d := range int32(g.n) {
		dests := g.dests[d]
		if len(dests) == 0 {
			continue
		}
		c.reset()
		e.towards(d, c)
		lost += c.lost
		k := len(dests)
		flow = slices.Grow(flow[:0], g.n*k)[:g.n*k]
		for s, h := range g.hosts {
			for i, to := range dests {
				if flow[s*k+i] = h; to.kind == uncounted {
					flow[s*k+i] = 0
				}
			}
		}
		for _, to := range dests {
			lft[d][to.lid] = to.port
		}
		for i := len(c.order) - 1; i >= 0; i-- {
			s := c.order[i]
			links := c.of(s)
			row := lft[s]
			var prev []uint8
			if int(s) < len(b.prev) {
				prev = b.prev[s]
			}
			mine := flow[int(s)*k : int(s)*k+k]
			if slices.Max(mine) > 0 {
				least.of(links, load)
			}
			for j, to := range dests {
				at, most := j%len(links), int64(0)
				if mine[j] > 0 {
					at, most = least.first()
				}
				best := links[at]
				if int(to.lid) < len(prev) && prev[to.lid] != g.port[best] && prev[to.lid] != NoPort {
					old := g.linkOf[int(s)<<8|int(prev[to.lid])]
					if old != fabric.None && (mine[j] == 0 || load[old] <= 2*most+slack) {
						if i := slices.Index(links, old); i >= 0 {
							at, best = i, old
						}
					}
				}
				row[to.lid] = g.port[best]
				if mine[j] > 0 {
					load[best] += mine[j] * g.cost[best]
					least.set(at, load[best])
					flow[int(g.linkTo[best])*k+j] += mine[j]
				}
			}
		}
	}
	return tables{lft, load, lost}
}

// lightest finds the first of some links with the least load: a tree in which each node has
// the smaller of the two below it, the root at 1. The place of a link is the low byte.
type lightest struct {
	node []int64
	half int // where the links begin
}

// of takes some links.
func (t *lightest) of(links []int32, load []int64) {
	t.half = 1 << bits.Len(uint(len(links)-1))
	t.node = slices.Grow(t.node[:0], 2*t.half)[:2*t.half]
	for i := range t.half {
		t.node[t.half+i] = math.MaxInt64
	}
	for i, l := range links {
		t.node[t.half+i] = load[l]<<8 | int64(i)
	}
	for i := t.half - 1; i > 0; i-- {
		t.node[i] = min(t.node[2*i], t.node[2*i+1])
	}
}

// first is the place and the load of the link.
func (t *lightest) first() (place int, load int64) { return int(t.node[1] & 0xff), t.node[1] >> 8 }

// set changes the load of the link at a place.
func (t *lightest) set(place int, load int64) {
	i := t.half + place
	t.node[i] = load<<8 | int64(place)
	for i >>= 1; i > 0; i >>= 1 {
		t.node[i] = min(t.node[2*i], t.node[2*i+1])
	}
}
