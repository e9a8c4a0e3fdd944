package route

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

const (
	// disjointLoad is by which part, as a divisor, the busiest link may get more flows for
	// disjoint paths, disjointHot the part below that from which on a path moves for less.
	disjointLoad, disjointHot = 20, 20
	// disjointPairs is up to how many pairs of a switch and a LID there is a search for such
	// paths, disjointWork bounds it, in links visited; one takes about four nanoseconds.
	disjointPairs, disjointWork = 4_000_000, 200_000_000
	// disjointPasses bounds the passes at each price, disjointFew is the part of the LIDs, as a
	// divisor, below which changes are too few for another one.
	disjointPasses, disjointFew = 12, 100
	// disjointPower is the power of the load that a link costs.
	disjointPower = 64
	// disjointSame is the part of the entries, as a divisor, in which tables that stay as they are
	// may differ from those of the engine.
	disjointSame = 50
	// disjointLess is the part of the pairs of paths, as a divisor, by which fewer must have a
	// switch in common than in the tables of the engine for tables in force to be followed, or
	// more may than in new ones.
	disjointLess = 20
)

// disjoint leads the LIDs of a port but the first, which has the paths of the engine, over
// switches that the paths to the others do not pass.
//
// It begins with the tables of the engine and changes single entries. The turns of all paths are
// known, so a path may take any that closes no cycle, and be longer than the shortest. A link
// costs the more the nearer its load is to the limit, and a switch that two paths have in common
// costs more from pass to pass, so that paths move first where it burdens the links least.
// Switches beside the destination keep their link to it.
type disjoint struct {
	*layered
	others  [][]ib.LID // by LID: those of the same port, nil where it has one
	limit   int64
	worth   float64 // what a path costs for each other with a switch in common
	mark    []int32 // by switch: the last call of crossings for which it is on the path
	calls   int32
	behind  []int32 // switches whose paths to a LID pass one of them, itself first
	was     []int32 // the path of that one
	changes int
	still   bool      // paths with no switch in common stay
	kept    [][]uint8 // ways whose entries stay, nil for none
}

// disjoin changes the tables of r so that the paths to LIDs of one port are disjoint as far as
// the cabling, the lanes and the limit for the busiest link allow it. It follows tables in force,
// and reports whether these lead everywhere, without a credit loop.
func (b *builder) disjoin(r *Result, opt *Options) (whole bool) {
	if b.hop != nil || r.LFT == nil || b.pairs() > disjointPairs || !b.several() {
		return false
	}
	t := newTurns(b.graph)
	made := b.newDisjoint(r, b.waysOf(r.LFT), t)
	if made == nil {
		return false
	}
	limit := made.worst() + made.worst()/disjointLoad
	before := made.crossing()
	made.search(made.seconds(), limit)
	best := made
	if len(b.prev) == b.n {
		old, little := b.waysOf(b.prev), made.pairsOfPaths()/disjointLess
		near := func(y *disjoint) bool {
			n := y.crossing()
			return y.worst() <= limit+limit/disjointLoad && (n <= before-little || n <= made.crossing()+little)
		}
		y := b.newDisjoint(r, old, t)
		whole = y != nil
		if y == nil || !near(y) || len(opt.Order) > 0 && !slices.Equal(r.Order, opt.Order) || !y.stays(b.waysOf(r.LFT)) ||
			y.lacks(made.assignment) {
			y = b.newDisjoint(r, b.waysOf(r.LFT), t)
			broken := y.follow(old)
			y.kept = old
			if y.search(broken, limit); !near(y) {
				y.kept = nil
				y.search(broken, limit)
			}
		}
		if near(y) {
			best = y
		}
	}
	r.LFT, r.Worst = best.tables(), float64(best.worst())/16
	return whole
}

// several reports whether a port has several LIDs.
func (g *graph) several() bool {
	for _, dests := range g.dests {
		for i := 1; i < len(dests); i++ {
			if dests[i-1].port == dests[i].port {
				return true
			}
		}
	}
	return false
}

// newDisjoint takes over ways, and the levels of r. It is nil if they do not lead everywhere
// or have a credit loop.
func (b *builder) newDisjoint(r *Result, way [][]uint8, t *turns) *disjoint {
	order := r.Order
	if len(order) != b.n {
		order = b.named(places(b.n, func(_, _ int32) int { return 0 }))
	}
	y := &disjoint{layered: newLayered(b, t, order, r.Trunk, max(1, r.NumLayers)), others: make([][]ib.LID, b.top+1), mark: make([]int32, b.n)}
	if r.SL != nil {
		y.of = r.SL
	}
	y.way = way
	reached := b.waysOf(r.LFT)
	for d, dests := range y.dests {
		for i, to := range dests {
			for j, other := range dests {
				if i != j && other.port == to.port {
					y.others[to.lid] = append(y.others[to.lid], other.lid)
				}
			}
			for s := range int32(y.n) {
				p := stretch{s, int32(d), to.lid}
				if int(s) == d || reached[to.lid][s] == NoPort {
					way[to.lid][s] = NoPort
					continue
				}
				if !y.leads(p) {
					return nil
				}
				path, a := y.links(p), y.layers[y.of[s][d]]
				for k := 1; k < len(path); k++ {
					a.count[a.at(path[k-1], path[k])]++
				}
				y.carryOn(p, to, 1)
			}
		}
	}
	if slices.ContainsFunc(y.layers, func(a *acyclic) bool { return !a.sort() }) {
		return nil
	}
	return y
}

// leads reports whether there is a path.
func (y *disjoint) leads(p stretch) bool {
	at := p.from
	for range y.n {
		l := y.linkTowards(at, p.lid)
		if l == fabric.None {
			return false
		}
		if at = y.linkTo[l]; at == p.to {
			return true
		}
	}
	return false
}

// carryOn adds the flows of the hosts of a switch to the loads of their path, or takes them off.
func (y *disjoint) carryOn(p stretch, to dest, sign int64) {
	if to.kind == uncounted || y.hosts[p.from] == 0 {
		return
	}
	for _, l := range y.links(p) {
		y.add(l, sign*y.hosts[p.from]*to.ports)
	}
}

// seconds are the LIDs that are not the first of their port, in an order that is none of
// the switches.
func (y *disjoint) seconds() (list []goal) {
	for d, dests := range y.dests {
		for _, to := range dests {
			if o := y.others[to.lid]; len(o) > 0 && o[0] < to.lid {
				list = append(list, goal{int32(d), to})
			}
		}
	}
	rnd := rand.New(rand.NewPCG(1, uint64(y.n)))
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// stays reports whether tables that lead everywhere need no change: to the first LIDs nearly all
// entries are those of the engine, and switches beside a destination have a link to it.
func (y *disjoint) stays(made [][]uint8) bool {
	all, other := 0, 0
	for d, dests := range y.dests {
		for _, to := range dests {
			isFirst := len(y.others[to.lid]) == 0 || y.others[to.lid][0] > to.lid
			for s, place := range y.way[to.lid] {
				if s == d || place == NoPort {
					continue
				}
				if y.linkTo[y.linkAt(int32(s), place)] != int32(d) && y.edge(int32(s), int32(d)) != fabric.None {
					return false
				}
				if all++; isFirst && place != made[to.lid][s] {
					other++
				}
			}
		}
	}
	return other*disjointSame <= all
}

// follow takes over the ways in force to all LIDs but the first of each port, and returns those
// with entries that lead nowhere or do not fit. Only paths that have a switch in common move later.
func (y *disjoint) follow(old [][]uint8) (broken []goal) {
	y.still = true
	list, made := y.seconds(), y.copied(y.way)
	for _, g := range list {
		for s, place := range y.way[g.to.lid] {
			if p := (stretch{int32(s), g.d, g.to.lid}); place != NoPort {
				y.take(y.of[s][g.d], p)
				y.carryOn(p, g.to, -1)
			}
		}
	}
	for _, g := range list {
		if !y.adoptWays(g, old[g.to.lid], made[g.to.lid]) {
			broken = append(broken, g)
		}
	}
	return broken
}

// adoptWays gives a LID the ways in force, and others to switches for which these do not fit. It
// reports whether all fit.
func (y *disjoint) adoptWays(g goal, old, made []uint8) (all bool) {
	row, first := y.way[g.to.lid], y.way[y.others[g.to.lid][0]]
	var rest []int32
	for s, place := range first {
		if row[s] = NoPort; place != NoPort {
			rest = append(rest, int32(s))
		}
	}
	clear(y.settled)
	y.settled[g.d] = true
	join := func(s int32, place uint8) bool {
		l := y.linkAt(s, place)
		if l == fabric.None || !y.settled[y.linkTo[l]] {
			return false
		}
		row[s] = place
		if y.settled[s] = y.put(y.of[s][g.d], stretch{s, g.d, g.to.lid}); !y.settled[s] {
			row[s] = NoPort
		}
		return y.settled[s]
	}
	settle := func(joins func(s int32) bool) {
		for n := -1; n != len(rest); {
			n = len(rest)
			rest = slices.DeleteFunc(rest, joins)
		}
	}
	settle(func(s int32) bool { return join(s, old[s]) })
	all = len(rest) == 0
	settle(func(s int32) bool { return join(s, made[s]) || join(s, first[s]) })
	if len(rest) > 0 {
		for s, place := range row {
			if place != NoPort {
				y.take(y.of[s][g.d], stretch{int32(s), g.d, g.to.lid})
			}
		}
		copy(row, first)
		for s, place := range row {
			if place != NoPort {
				y.put(y.of[s][g.d], stretch{int32(s), g.d, g.to.lid})
			}
		}
	}
	for s, place := range row {
		if place != NoPort {
			y.carryOn(stretch{int32(s), g.d, g.to.lid}, g.to, 1)
		}
	}
	return all
}

// crossings counts the other LIDs of a port whose path from a switch has a switch in common with
// that to a LID.
func (y *disjoint) crossings(p stretch) (n int64) {
	y.calls++
	for at := y.after(p.from, p.lid); at != p.to; at = y.after(at, p.lid) {
		y.mark[at] = y.calls
		y.spent++
	}
	for _, lid := range y.others[p.lid] {
		for at := y.after(p.from, lid); at != p.to; at = y.after(at, lid) {
			y.spent++
			if y.mark[at] == y.calls {
				n++
				break
			}
		}
	}
	return n
}

// after is the switch to which one sends packets to a LID.
func (y *disjoint) after(s int32, lid ib.LID) int32 { return y.linkTo[y.linkTowards(s, lid)] }

// crossing counts the pairs of paths from a host to two LIDs of a port, each twice, that have a
// switch in common; pairsOfPaths counts all between switches that are not neighbours.
func (y *disjoint) crossing() int64 { return y.sum(y.crossings) }

func (y *disjoint) pairsOfPaths() int64 {
	return y.sum(func(p stretch) int64 { return int64(len(y.others[p.lid])) })
}

func (y *disjoint) sum(f func(p stretch) int64) (n int64) {
	for d, dests := range y.dests {
		for _, to := range dests {
			for s, place := range y.way[to.lid] {
				if y.hosts[s] > 0 && len(y.others[to.lid]) > 0 && place != NoPort && y.edge(int32(s), int32(d)) == fabric.None {
					n += y.hosts[s] * to.ports * f(stretch{int32(s), int32(d), to.lid})
				}
			}
		}
	}
	return n
}

// search changes entries for some LIDs until that gains little.
func (y *disjoint) search(list []goal, limit int64) {
	if y.limit = limit; len(list) == 0 || limit == 0 || y.crossing() == 0 {
		return
	}
	for price := 0.25; price <= 8; price *= 2 {
		y.worth = price * disjointPower * 16 / float64(limit)
		y.changes = len(list)
		for n := 0; n < disjointPasses && y.changes > len(list)/disjointFew; n++ {
			y.forgive()
			y.changes = 0
			for _, g := range list {
				for s, place := range y.way[g.to.lid] {
					if y.visited() > disjointWork {
						return
					}
					stays := y.kept != nil && place == y.kept[g.to.lid][s]
					if int32(s) != g.d && place != NoPort && !stays && y.edge(int32(s), g.d) == fabric.None {
						y.improve(int32(s), g)
					}
				}
			}
		}
	}
}

// height is what a load costs.
func (y *disjoint) height(load int64) float64 {
	x := float64(load) / float64(y.limit)
	for n := 1; n < disjointPower; n *= 2 {
		x *= x
	}
	return x
}

// improve gives a switch the link to a LID that costs least with all the paths behind it.
func (y *disjoint) improve(s int32, g goal) {
	lid := g.to.lid
	p := stretch{s, g.d, lid}
	y.was = append(y.was[:0], y.links(p)...)
	hot := func(l int32) bool { return y.load[l] > y.limit-y.limit/disjointHot }
	if y.hosts[s] > 0 && y.crossings(p) == 0 && (y.still || !slices.ContainsFunc(y.was, hot)) {
		return
	}
	hosts := y.passing(s, lid)
	if hosts == 0 {
		return
	}
	flows, had := hosts*g.to.ports, y.crossingsBehind(g)
	if g.to.kind == uncounted {
		flows = 0
	}
	old := y.was[0]
	y.offers = y.offers[:0]
	first, end := y.linksOf(s)
	for l := first; l < end; l++ {
		t := y.linkTo[l]
		if l == old || t != g.d && (y.way[lid][t] == NoPort || slices.Contains(y.behind, t)) {
			continue
		}
		y.direct(s, lid, l)
		if more, ok := y.burden(y.links(p), flows); ok {
			if more += y.worth * float64(y.crossingsBehind(g)-had); more < -1e-6 {
				y.offers = append(y.offers, offer{l, int64(more * 1e6)})
			}
		}
	}
	y.direct(s, lid, old)
	slices.SortFunc(y.offers, func(a, b offer) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.link, b.link)) })
	for _, o := range y.offers {
		if y.turn(s, g, o.link) {
			y.changes++
			return
		}
	}
}

// passing sets behind, and returns how many hosts these switches have.
func (y *disjoint) passing(s int32, lid ib.LID) (hosts int64) {
	y.behind = append(y.behind[:0], s)
	for i := 0; i < len(y.behind); i++ {
		at := y.behind[i]
		hosts += y.hosts[at]
		first, end := y.neighbours(at)
		for _, t := range y.peer[first:end] {
			if l := y.linkTowards(t, lid); l != fabric.None && y.linkTo[l] == at {
				y.behind = append(y.behind, t)
			}
		}
	}
	return hosts
}

// crossingsBehind counts the crossings of the paths of hosts behind.
func (y *disjoint) crossingsBehind(g goal) (n int64) {
	for _, u := range y.behind {
		if y.hosts[u] > 0 {
			n += y.hosts[u] * y.crossings(stretch{u, g.d, g.to.lid})
		}
	}
	return n
}

// burden is what flows cost more on a path than on the one that they are on. It is false if a
// link gets more than the limit.
func (y *disjoint) burden(path []int32, flows int64) (more float64, ok bool) {
	for _, l := range path {
		if !slices.Contains(y.was, l) {
			now := y.load[l] + flows*y.cost[l]
			if now > y.limit && flows > 0 {
				return 0, false
			}
			more += y.height(now) - y.height(y.load[l])
		}
	}
	for _, l := range y.was {
		if !slices.Contains(path, l) {
			more += y.height(y.load[l]-flows*y.cost[l]) - y.height(y.load[l])
		}
	}
	return more, true
}

// turn gives a switch another link to a LID, if the paths behind it then fit.
func (y *disjoint) turn(s int32, g goal, l int32) bool {
	lid := g.to.lid
	for _, u := range y.behind {
		p := stretch{u, g.d, lid}
		y.take(y.of[u][g.d], p)
		y.carryOn(p, g.to, -1)
	}
	y.direct(s, lid, l)
	ok := true
	for i, u := range y.behind {
		if ok = y.put(y.of[u][g.d], stretch{u, g.d, lid}); ok {
			continue
		}
		for _, v := range y.behind[:i] {
			y.take(y.of[v][g.d], stretch{v, g.d, lid})
		}
		y.direct(s, lid, y.was[0])
		y.putBack(g)
		break
	}
	for _, u := range y.behind {
		y.carryOn(stretch{u, g.d, lid}, g.to, 1)
	}
	return ok
}

// putBack adds the turns of the paths behind, which fitted before.
func (y *disjoint) putBack(g goal) {
	for _, a := range y.layers {
		a.free = true
	}
	for _, u := range y.behind {
		y.put(y.of[u][g.d], stretch{u, g.d, g.to.lid})
	}
	for _, a := range y.layers {
		a.free = false
	}
}
