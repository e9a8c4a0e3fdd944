package route

// minHop takes every link that leads one hop nearer.
type minHop struct {
	g     *graph
	dist  []int32
	queue []int32
}

func (m *minHop) towards(d int32, c *candidates) {
	if m.dist == nil {
		m.dist = make([]int32, m.g.n)
	}
	if m.g.hops == nil {
		m.queue = m.g.bfs(m.dist, m.queue, d)
	} else {
		m.queue = m.g.nearest(d, m.dist, m.queue, func(_, _, _ int32) bool { return true })
	}
	for _, s := range m.queue[1:] {
		c.begin(s)
		a, b := m.g.neighbours(s)
		for i := a; i < b; i++ {
			if m.dist[m.g.peer[i]] == m.dist[s]-m.g.step(i) {
				c.addGroup(m.g, i)
			}
		}
		c.end(s)
	}
	c.lost += m.g.n - len(m.queue)
}

// safe reports whether no choice among the engine's candidates can leave a
// credit loop. Judging the candidates, not one set of tables, keeps the choice
// of the engine from depending on the tables in force.
func (b *builder) safe(e engine) bool {
	g := b.graph
	dep := make([][4]uint64, len(g.port))
	out := make([][4]uint64, g.n)
	c := newCandidates(g)
	for d := range int32(g.n) {
		if len(g.dests[d]) == 0 {
			continue
		}
		c.reset()
		e.towards(d, c)
		out[d] = [4]uint64{}
		for _, s := range c.order {
			var set [4]uint64
			for _, l := range c.of(s) {
				q := g.port[l]
				set[q>>6] |= 1 << (q & 63)
			}
			out[s] = set
		}
		for _, s := range c.order {
			for _, l := range c.of(s) {
				next, have := &out[g.linkTo[l]], &dep[l]
				for i := range next {
					have[i] |= next[i]
				}
			}
		}
	}
	return g.cycle(dep) == nil
}
