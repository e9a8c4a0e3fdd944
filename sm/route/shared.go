package route

import "ibnetworkd/ib"

// shared returns the graph with about pairs pairs of a switch and a LID at most. A switch
// with hosts shares their paths.
func (g *graph) shared(pairs int) *graph {
	size := (g.pairs() + pairs - 1) / pairs
	p := g.grouped(func(_, n int, _, _ []dest) bool { return n < size })
	for d, all := range p.dests {
		own := 0
		for own < len(all) && all[own].port == 0 {
			own++
		}
		if rest := all[own:]; own > 0 && len(rest) >= own && rest[own-1].port == rest[0].port {
			for i, to := range all[:own] {
				p.first[to.lid] = rest[i].lid
			}
			p.dests[d] = rest
		}
	}
	return p
}

// sharedIn returns the graph with the ports of a switch grouped that tables have on the same
// paths.
func (g *graph) sharedIn(lft [][]uint8) *graph {
	entry := func(row []uint8, to dest) uint8 {
		if int(to.lid) < len(row) {
			return row[to.lid]
		}
		return NoPort
	}
	return g.grouped(func(d, _ int, first, next []dest) bool {
		for s, row := range lft {
			if s == d || len(row) == 0 {
				continue
			}
			for i := range next {
				// New hosts have no path yet, and get one each.
				if port := entry(row, next[i]); port == NoPort || port != entry(row, first[i]) {
					return false
				}
			}
		}
		return true
	})
}

// grouped returns the graph with the ports of each switch grouped: the LIDs of the first port
// of a group represent the group. joins decides whether one more port joins a group of n.
func (g *graph) grouped(joins func(d, n int, first, next []dest) bool) *graph {
	p := *g
	p.dests, p.first = make([][]dest, g.n), make([]ib.LID, g.top+1)
	for d, all := range g.dests {
		var lead []dest // of the first port
		ports := 0
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].port == all[0].port {
				n++
			}
			if len(lead) != n || lead[0].kind != all[0].kind || !joins(d, ports, lead, all[:n]) {
				p.dests[d] = append(p.dests[d], all[:n]...)
				lead, ports = p.dests[d][len(p.dests[d])-n:], 0
				for i := range lead {
					lead[i].ports = 0
				}
			}
			for i, to := range all[:n] {
				lead[i].ports += to.ports
				p.first[to.lid] = lead[i].lid
			}
			ports++
			all = all[n:]
		}
	}
	return &p
}

// pairs is the number of pairs of a switch and a LID.
func (g *graph) pairs() (n int) {
	for _, all := range g.dests {
		n += g.n * len(all)
	}
	return n
}

// spread adds the LIDs that only g has to the tables of a shared graph.
func (g *graph) spread(p *graph, lft [][]uint8) {
	for d, all := range g.dests {
		for _, to := range all {
			if first := p.first[to.lid]; first != to.lid {
				for _, row := range lft {
					row[to.lid] = row[first]
				}
				lft[d][to.lid] = to.port
			}
		}
	}
}
