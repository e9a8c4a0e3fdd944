package route

import "slices"

// engine gives the candidates for next hops towards one switch.
type engine interface {
	// towards fills c for the destination switch d. Whatever candidates are
	// chosen, and for whichever destination, no credit loop closes.
	towards(d int32, c *candidates)
}

// candidates are the links that a packet to one switch may take. The switch at
// the far end of each is nearer to the destination.
type candidates struct {
	order []int32 // switches with a way, nearest first, without the destination itself
	first []int32 // by switch: where its links start in links
	last  []int32
	links []int32 // at first all of the graph, for switches whose links are consecutive
	all   int32   // how many those are
	count int     // links of all switches
	lost  int     // switches without a way
}

func newCandidates(g *graph) *candidates {
	n := len(g.port)
	c := &candidates{first: make([]int32, g.n), last: make([]int32, g.n), all: int32(n), links: make([]int32, n, 2*n)}
	for l := range c.links {
		c.links[l] = int32(l)
	}
	return c
}

func (c *candidates) reset() {
	c.order, c.links, c.count, c.lost = c.order[:0], c.links[:c.all], 0, 0
	clear(c.first)
	clear(c.last)
}

// begin and end bracket the links of one switch.
func (c *candidates) begin(s int32) { c.first[s] = int32(len(c.links)) }
func (c *candidates) end(s int32) {
	c.last[s] = int32(len(c.links))
	if n := c.last[s] - c.first[s]; n > 0 {
		c.order = append(c.order, s)
		c.count += int(n)
	} else {
		c.lost++
	}
}

// run is begin and end around consecutive links, at least one.
func (c *candidates) run(s, first, end int32) {
	c.first[s], c.last[s] = first, end
	c.order = append(c.order, s)
	c.count += int(end - first)
}

// addGroup adds the parallel links of a group, those by which the hop is the shortest.
func (c *candidates) addGroup(g *graph, group int32) {
	for l := g.link[group]; l < g.link[group+1]; l++ {
		if g.hop == nil || g.hop[l] == g.hops[group] {
			c.links = append(c.links, l)
		}
	}
}

// has reports whether a link is one of a switch.
func (c *candidates) has(s, l int32) bool {
	if c.last[s] <= c.all {
		return c.first[s] <= l && l < c.last[s]
	}
	return slices.Contains(c.of(s), l)
}

// of are the links of one switch.
func (c *candidates) of(s int32) []int32 { return c.links[c.first[s]:c.last[s]] }
