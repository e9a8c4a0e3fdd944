package route

import "ibnetworkd/ib"

// shared returns the graph with about pairs pairs of a switch and a LID at most: the ports of
// a switch are grouped, and the LIDs of the first port of a group represent the group.
func (g *graph) shared(pairs int) *graph {
	size := (g.pairs() + pairs - 1) / pairs // of a group
	p := *g
	p.dests, p.first = make([][]dest, g.n), make([]ib.LID, g.top+1)
	for s, all := range g.dests {
		var lead []dest // of the first port of the group
		ports := 0
		for len(all) > 0 {
			n := 1
			for n < len(all) && all[n].port == all[0].port {
				n++
			}
			if ports%size == 0 || len(lead) != n || lead[0].kind != all[0].kind {
				p.dests[s] = append(p.dests[s], all[:n]...)
				lead, ports = p.dests[s][len(p.dests[s])-n:], 0
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
