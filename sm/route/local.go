package route

import (
	"slices"

	"ibnetworkd/sm/fabric"
)

// localWork is from how many links visited in a pass (destinations times links) on
// tables are made by local, in half a second for each thousand million.
const localWork = 700_000_000

// local fills the tables of subnets that are too large for assign: for each
// destination, from the far switches to the near ones, each takes the link of
// its own that carries the fewest flows so far, and adds the flows of all behind
// it. In whole trees that is as even as assign is. An entry in force stays unless
// its link has twice the flows of the best one and a bit.
func (b *builder) local(e engine) tables {
	g := b.graph
	lft, lost := newTables(g), 0
	load := g.loads()
	var flow []int64 // by switch and destination LID of the current switch
	c := newCandidates(g)
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
			for j, to := range dests {
				best, least := links[j%len(links)], int64(0)
				if mine[j] > 0 {
					best, least = links[0], load[links[0]]
					for _, l := range links[1:] {
						if v := load[l]; v < least {
							best, least = l, v
						}
					}
				}
				if int(to.lid) < len(prev) && prev[to.lid] != g.port[best] && prev[to.lid] != NoPort {
					old := g.linkOf[int(s)<<8|int(prev[to.lid])]
					if old != fabric.None && (mine[j] == 0 || load[old] <= 2*least+slack) && slices.Contains(links, old) {
						best = old
					}
				}
				row[to.lid] = g.port[best]
				load[best] += mine[j] * g.cost[best]
				flow[int(g.linkTo[best])*k+j] += mine[j]
			}
		}
	}
	return tables{lft, load, lost}
}
