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
	// With columns: the entries in force, then those made, for the LIDs of switch goal, by LID and switch.
	entries []uint8
	goal    int32
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

// rememberMost is how much memory candidates may take to be remembered.
const rememberMost = 16 << 20

// remembered is an engine that finds the candidates for each switch once.
type remembered struct {
	engine
	of   []*candidates // by destination, nil for one that is not known
	left int           // bytes of memory for more
}

// remember makes an engine remember its candidates, as far as they fit into memory.
func (g *graph) remember(e engine) engine {
	return &remembered{e, make([]*candidates, g.n), rememberMost}
}

func (r *remembered) towards(d int32, c *candidates) {
	if old := r.of[d]; old != nil {
		c.order = append(c.order, old.order...)
		c.links = append(c.links, old.links...)
		copy(c.first, old.first)
		copy(c.last, old.last)
		c.count, c.lost = old.count, old.lost
		return
	}
	r.engine.towards(d, c)
	links := c.links[c.all:]
	if n := 4 * (len(c.order) + 2*len(c.first) + len(links)); n <= r.left {
		r.left -= n
		r.of[d] = &candidates{order: slices.Clone(c.order), first: slices.Clone(c.first), last: slices.Clone(c.last), links: slices.Clone(links),
			count: c.count, lost: c.lost}
	}
}

// knows reports whether the candidates for all switches of a list are remembered.
func (r *remembered) knows(list []int32) bool {
	return !slices.ContainsFunc(list, func(d int32) bool { return r.of[d] == nil })
}
