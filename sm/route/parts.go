package route

import (
	"slices"

	"ibnetworkd/ib"
)

// kind is how the flows to an end port count in the balance.
type kind uint8

const (
	uncounted kind = iota // not at all, nor those from it
	ordinary
	server // an I/O node: apart from those to others
)

// tables are forwarding tables, the loads that they give, and the number of switch pairs
// without a way.
type tables struct {
	lft  [][]uint8
	load []int64
	lost int
}

// balance makes the tables, first those for I/O nodes if there are such.
func (b *builder) balance(e engine, tree bool, bound int64) tables {
	made := func(g *graph, bound int64) tables {
		p := builder{graph: g, prev: b.prev, level: b.level}
		switch work := b.passWork(); {
		case b.level != nil && work > localWork || b.large() && !b.mixed():
			return p.byStems(e, bound)
		case work > localWork:
			return p.local(e)
		}
		if !tree || !g.several() {
			return p.whole(e, tree, bound)
		}
		first, others := g.byLID()
		p.graph = first
		t := p.whole(e, tree, first.bound())
		others.base, others.leadLFT = t.load, t.lft
		p.graph = others
		u := p.whole(e, tree, bound)
		t.load = u.load
		t.add(u.lft)
		return t
	}
	if !slices.Contains(b.kind, server) {
		return made(b.graph, bound)
	}
	io, rest := b.part(server), b.part(ordinary)
	servers := made(io, io.bound())
	rest.base = servers.load
	t := made(rest, bound) // with the LIDs of all switches, so its lost is that of all
	t.add(servers.lft)
	return t
}

// whole makes the tables for all destinations at once.
func (b *builder) whole(e engine, tree bool, bound int64) tables {
	a := b.kept(b.remember(e), tree, bound)
	return tables{a.tables(), a.load, a.lost}
}

// add adds the entries of other tables.
func (t *tables) add(lft [][]uint8) {
	for s, row := range lft {
		for lid, port := range row {
			if port != NoPort {
				t.lft[s][lid] = port
			}
		}
	}
}

// byLID splits a graph whose ports have several LIDs in two: the one with the first LID of each
// port, which most software uses, is balanced as if there were no others; the second has the others.
func (g *graph) byLID() (first, others *graph) {
	p, q := *g, *g
	p.dests, p.pull, q.dests, q.pull = make([][]dest, g.n), make([]int64, g.n), make([][]dest, g.n), make([]int64, g.n)
	q.lead = make([]ib.LID, g.top+1)
	for s, all := range g.dests {
		var lead dest
		for i, to := range all {
			part := &q
			if i == 0 || all[i-1].port != to.port {
				lead, part = to, &p
			}
			q.lead[to.lid] = lead.lid
			part.dests[s] = append(part.dests[s], to)
			if to.kind != uncounted {
				part.pull[s]++
			}
		}
	}
	return &p, &q
}

// part is the graph with only the destinations that are servers, or without them.
func (g *graph) part(k kind) *graph {
	p := *g
	p.only, p.dests, p.pull = k, make([][]dest, g.n), make([]int64, g.n)
	for s, all := range g.dests {
		for _, to := range all {
			if (to.kind == server) != (k == server) {
				continue
			}
			p.dests[s] = append(p.dests[s], to)
			if to.kind != uncounted {
				p.pull[s]++
			}
		}
	}
	return &p
}

// aims reports whether flows to an end port, by index of Fabric.EndPorts, are of this part.
func (g *graph) aims(i int) bool {
	return g.kind[i] != uncounted && (g.only == 0 || g.kind[i] == g.only)
}

// loads are those that links have before any flow of this part.
func (g *graph) loads() []int64 {
	if g.base != nil {
		return slices.Clone(g.base)
	}
	return make([]int64, len(g.port))
}
