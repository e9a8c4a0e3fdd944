package route

import (
	"cmp"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

const (
	// patchSlack is how much busier, as a divisor, the busiest link of patched tables may be than
	// that of tables from nothing, patchSlackDOR that of dimension order.
	patchSlack, patchSlackDOR = 10, 20
	// patchTurns bounds the turns of a graph whose tables are patched.
	patchTurns = 20_000_000
	// patchHops is how many links more than before a path may have that relieves another.
	patchHops = 2
	// patchWork bounds the search for such paths, in links visited.
	patchWork = 20_000_000
)

// patched is tables in force of which single entries change, whatever engine made them: first
// those that lead nowhere, then such that relieve the busiest links. No change closes a cycle of
// all turns, so no credit loop can close.
type patched struct {
	*assignment
	turns *acyclic
	part  classes // by switch: the switches that links join
	dist  []int32 // to the current destination
	queue []int32
	moves []move
	into  []int32
}

// move is another link of a switch to a LID, with the flows that it takes along.
type move struct {
	d, s, link int32
	to         dest
	flows      int64
	cost       int64
}

// patched adopts the tables in force, and gives the entries that lead nowhere other links. It
// returns nil where that closes a loop, where the tables have one, or where too much of the
// fabric is new. Of a torus that lacks cables, whole is that with them.
func (b *builder) patched(whole *grid) *patched {
	empty, turns := 0, 0
	for _, row := range b.prev {
		if len(row) == 0 {
			empty++
		}
	}
	for s := range int32(b.n) {
		first, end := b.linksOf(s)
		turns += int(end-first) * int(end-first)
	}
	if len(b.prev) != b.n || b.hop != nil || slices.Contains(b.kind, server) || b.passWork() > localWork ||
		empty*resumedNew > b.n || turns > patchTurns {
		return nil
	}
	y := b.newPatched()
	if y.adopt() && y.complete() {
		return y
	}
	if whole == nil {
		return nil
	}
	if y = b.newPatched(); y.turnBack(whole) && y.adopt() && y.complete() {
		return y
	}
	return nil
}

func (b *builder) newPatched() *patched {
	y := &patched{assignment: newAssignment(b.graph, &minHop{g: b.graph}, 0), part: make(classes, b.n), dist: make([]int32, b.n),
		turns: newAcyclic(newTurns(b.graph), make([]float64, b.n))}
	for s := range y.part {
		y.part[s] = int32(s)
	}
	for s := range int32(b.n) {
		first, end := b.neighbours(s)
		for _, t := range b.peer[first:end] {
			y.part.join(s, t)
		}
	}
	y.way = y.waysOf(b.prev)
	return y
}

// irregular makes tables of up/down or, on a torus that lacks cables, by dimension order around
// these where no link is busier then.
func (b *builder) irregular(r *Result, opt Options) {
	// With several LIDs for a port disjoin follows tables in force, on those of up/down.
	if len(b.roots) > 0 || b.several() {
		b.upDown(r)
		return
	}
	whole := b.holed()
	best := func(one Result) Result {
		if y := b.around(whole); y != nil && y.worst() <= int64(one.Worst*16) {
			return y.result(DOR, nil, b.bound())
		}
		return one
	}
	switch {
	case b.prior != nil:
		r.Engine = UpDown
	case b.keepsDOR(whole, opt):
		r.Engine = DOR
	default:
		b.upDown(r)
		*r = best(*r)
		return
	}
	b.keep(r, whole, func() Result { return best(b.fresh()) })
}

// keepsDOR reports whether the tables in force are by dimension order.
func (b *builder) keepsDOR(whole *grid, opt Options) bool {
	return opt.SL == nil && b.prior == nil && b.inForce() && (opt.Before == DOR || b.along(whole))
}

// keep makes tables that follow those in force where these are nearly as good, else those of
// fresh. They have the order of those in force.
func (b *builder) keep(r *Result, whole *grid, fresh func() Result) {
	bound := b.bound()
	slack := int64(patchSlack)
	if r.Engine == DOR {
		slack = patchSlackDOR
	}
	within := func(worst int64) int64 { return worst + worst/slack }
	y := b.patched(whole)
	if y == nil {
		*r = fresh()
		return
	}
	open := y.worst() > within(bound) || slices.Contains(y.load, 0) // whether fresh ones may be better
	if open && !b.early {
		made := fresh()
		limit := max(bound, within(int64(made.Worst*16)))
		y.fill(made.LFT)
		if y.worst() > limit && !y.relieve(limit) && !y.relieved(limit) {
			*r = made
			return
		}
	}
	var order []ib.GUID
	if b.prior != nil {
		order = b.named(b.connectedOrder(b.prior))
	}
	*r = y.result(r.Engine, order, bound)
	r.Early = open && b.early
}

func (y *patched) result(engine string, order []ib.GUID, bound int64) (r Result) {
	r = Result{Engine: engine, Order: order, LFT: y.tables(), NumLayers: 1, Worst: float64(y.worst()) / 16, Bound: float64(bound) / 16}
	y.unjoined(&r, y.lost)
	return r
}

// adopt counts the turns of the tables, without entries that lead in a circle or to a part that is
// cut off. It returns false if they have a cycle.
func (y *patched) adopt() bool {
	seen := make([]int32, y.n)
	for d, dests := range y.dests {
		for _, to := range dests {
			row := y.way[to.lid]
			for s := range row {
				if s == d || y.part.find(int32(s)) != y.part.find(int32(d)) {
					row[s] = NoPort
				}
			}
			clear(seen)
			for s := range int32(y.n) {
				for at := s; seen[at] == 0; {
					seen[at] = s + 1
					l := y.linkAt(at, row[at])
					if l == fabric.None {
						break
					}
					if at = y.linkTo[l]; seen[at] == s+1 {
						row[at] = NoPort
					}
				}
			}
			for s, place := range row {
				if l := y.linkAt(int32(s), place); l != fabric.None {
					if next := y.onward(l, row); next != fabric.None {
						y.turns.count[y.turns.at(l, next)]++
					}
				}
			}
		}
	}
	return y.turns.sort()
}

// onward is the link that follows one, None at the end.
func (y *patched) onward(l int32, row []uint8) int32 {
	t := y.linkTo[l]
	return y.linkAt(t, row[t])
}

// complete gives the entries that lead nowhere other links.
func (y *patched) complete() bool {
	var broken []goal
	for d, dests := range y.dests {
		for s := range y.part {
			if len(dests) > 0 && y.part.find(int32(s)) != y.part.find(int32(d)) {
				y.lost++
			}
		}
		for _, to := range dests {
			if len(y.gaps(int32(d), to)) > 0 {
				broken = append(broken, goal{int32(d), to})
			} else {
				y.bear(int32(d), to, 1)
			}
		}
	}
	y.sharpen(y.worst())
	for _, g := range broken {
		if !y.mend(g.d, g.to) {
			return false
		}
		y.bear(g.d, g.to, 1)
	}
	y.sharpen(0)
	return true
}

// gaps is the switches without an entry for a LID of d, the nearest first.
func (y *patched) gaps(d int32, to dest) (out []int32) {
	part := y.part.find(d)
	for s, place := range y.way[to.lid] {
		if place == NoPort && int32(s) != d && y.part.find(int32(s)) == part {
			out = append(out, int32(s))
		}
	}
	if len(out) > 0 {
		y.queue = y.bfs(y.dist, y.queue, d)
		slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(y.dist[a], y.dist[b]) })
	}
	return out
}

// mend gives entries to the switches that have none for a LID. Where none fits, the switches
// that lead to one of them get others too.
func (y *patched) mend(d int32, to dest) bool {
	for again := true; ; {
		gaps := y.gaps(d, to)
		if len(gaps) == 0 {
			return true
		}
		some := false
		for _, s := range gaps {
			some = y.attach(s, d, to) || some
		}
		for _, s := range gaps {
			if some {
				break
			}
			for _, l := range y.from(s, to) {
				some = true
				y.drop(y.linkTo[y.turns.back[l]], to)
			}
		}
		if some {
			continue
		}
		if !again {
			return false
		}
		again = false
		for s, place := range y.way[to.lid] {
			if place != NoPort {
				y.drop(int32(s), to)
			}
		}
	}
}

// fill moves flows to links that have none, but have some in other tables, where that makes
// their paths shorter.
func (y *patched) fill(others [][]uint8) {
	way := y.waysOf(others)
	for s := range int32(y.n) {
		first, end := y.linksOf(s)
		for l := first; l < end; l++ {
			if y.load[l] > 0 {
				continue
			}
			for d, dests := range y.dests {
				for _, to := range dests {
					if y.linkAt(s, way[to.lid][s]) == l && y.hops(s, int32(d), to) > 1+y.hops(y.linkTo[l], int32(d), to) {
						y.move(move{int32(d), s, l, to, y.behind(s, to) * to.ports, 0})
					}
				}
			}
		}
	}
}

// hops is the length of the path from a switch to a LID of d.
func (y *patched) hops(s, d int32, to dest) (n int) {
	for ; s != d && n < y.n; n++ {
		s = y.linkTo[y.linkTowards(s, to.lid)]
	}
	return n
}

// behind is the flows to a LID through a switch.
func (y *patched) behind(s int32, to dest) (flows int64) {
	flows = y.hosts[s]
	for _, l := range slices.Clone(y.from(s, to)) {
		flows += y.behind(y.linkTo[y.turns.back[l]], to)
	}
	return flows
}

// from is the links by which others lead to a LID through a switch.
func (y *patched) from(s int32, to dest) []int32 {
	y.into = y.into[:0]
	first, end := y.linksOf(s)
	for l := first; l < end; l++ {
		if back := y.turns.back[l]; y.linkTowards(y.linkTo[l], to.lid) == back {
			y.into = append(y.into, back)
		}
	}
	return y.into
}

// attach gives a switch the cheapest link to a LID that fits, nearer ones first.
func (y *patched) attach(s, d int32, to dest) bool {
	y.moves = y.moves[:0]
	first, end := y.linksOf(s)
	for l := first; l < end; l++ {
		cost, ok := y.price[l], true
		at := y.linkTo[l]
		for at != d && ok {
			next := y.linkTowards(at, to.lid)
			if ok = next != fabric.None; ok {
				cost, at = cost+y.price[next], y.linkTo[next]
			}
		}
		if ok {
			if y.dist[y.linkTo[l]] >= y.dist[s] {
				cost += crowded
			}
			y.moves = append(y.moves, move{d: d, s: s, to: to, link: l, cost: cost + y.meeting(s, l, d, to)})
		}
	}
	slices.SortFunc(y.moves, func(a, b move) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.link, b.link)) })
	return slices.ContainsFunc(y.moves, func(m move) bool { return y.enter(s, m.link, to) })
}

// meeting is the cost of a link to a switch that other LIDs of the same port go through.
func (y *patched) meeting(s, l, d int32, to dest) (cost int64) {
	for _, other := range y.dests[d] {
		if other.port != to.port || other.lid == to.lid || y.linkTo[l] == d {
			continue
		}
		if next := y.linkTowards(s, other.lid); next != fabric.None && y.linkTo[next] == y.linkTo[l] {
			cost += shared
		}
	}
	return cost
}

// enter gives a switch without an entry for a LID a link, if no cycle closes.
func (y *patched) enter(s, l int32, to dest) bool {
	row := y.way[to.lid]
	next := y.onward(l, row)
	if next != fabric.None && !y.turns.add(l, next) {
		return false
	}
	into := y.from(s, to)
	for i, in := range into {
		if !y.turns.add(in, l) {
			for _, in := range into[:i] {
				y.turns.remove(in, l)
			}
			if next != fabric.None {
				y.turns.remove(l, next)
			}
			return false
		}
	}
	y.direct(s, to.lid, l)
	return true
}

// drop removes the entry of a switch for a LID, and returns the link that it had.
func (y *patched) drop(s int32, to dest) int32 {
	row := y.way[to.lid]
	l := y.linkAt(s, row[s])
	if next := y.onward(l, row); next != fabric.None {
		y.turns.remove(l, next)
	}
	first, end := y.linksOf(s)
	for k := first; k < end; k++ {
		if in := y.turns.back[k]; y.linkTowards(y.linkTo[k], to.lid) == in {
			y.turns.remove(in, l)
		}
	}
	row[s] = NoPort
	return l
}

// bear adds the flows to a LID of d to the loads, or takes them off.
func (y *patched) bear(d int32, to dest, sign int64) {
	if to.kind == uncounted {
		return
	}
	for s, n := range y.hosts {
		if n > 0 {
			y.carryFrom(int32(s), d, to, sign*n)
		}
	}
}

// carryFrom adds flows on the way from a switch to a LID of d.
func (y *patched) carryFrom(s, d int32, to dest, n int64) {
	for s != d {
		l := y.linkTowards(s, to.lid)
		if l == fabric.None {
			return
		}
		y.add(l, n*to.ports)
		s = y.linkTo[l]
	}
}

// relieved moves flows off the busiest links, step by step, for as long as that makes the worst
// smaller and that is above limit. It returns false if it still is.
func (y *patched) relieved(limit int64) bool {
	for y.worst() > limit && y.relieve(y.worst()-1) {
	}
	return y.worst() <= limit
}

// relieve moves flows off links with more than limit. It returns false if some has still more.
func (y *patched) relieve(limit int64) bool {
	y.sharpen(limit)
	defer y.sharpen(0)
	for y.spent < patchWork {
		busiest := int32(0)
		for l, n := range y.load {
			if n > y.load[busiest] {
				busiest = int32(l)
			}
		}
		if y.load[busiest] <= limit {
			return true
		}
		if !y.unload(busiest, limit) {
			return false
		}
	}
	return false
}

// unload moves flows off a link, with as few entries as it can.
func (y *patched) unload(busy int32, limit int64) bool {
	s := y.linkTo[y.turns.back[busy]]
	y.moves = y.moves[:0]
	y.spent += (y.top + len(y.load)) / 4
	for d, dests := range y.dests {
		for _, to := range dests {
			if to.kind != uncounted && y.linkTowards(s, to.lid) == busy {
				y.offer(s, int32(d), to, busy, limit)
			}
		}
	}
	slices.SortFunc(y.moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(b.flows, a.flows), cmp.Compare(a.cost, b.cost), cmp.Compare(a.to.lid, b.to.lid), cmp.Compare(a.link, b.link))
	})
	for _, m := range y.moves {
		if y.move(m) {
			return true
		}
	}
	return false
}

// offer adds the moves that take the flows through a switch, or through one that leads to it,
// off a busy link, and returns how many there are.
func (y *patched) offer(s, d int32, to dest, busy int32, limit int64) (flows int64) {
	flows = y.hosts[s]
	for _, l := range slices.Clone(y.from(s, to)) {
		flows += y.offer(y.linkTo[y.turns.back[l]], d, to, busy, limit)
	}
	if flows == 0 {
		return 0
	}
	n, hops := flows*to.ports, 0
	for at := s; at != d; hops++ {
		l := y.linkTowards(at, to.lid)
		y.load[l] -= n * y.cost[l]
		at = y.linkTo[l]
	}
	first, end := y.linksOf(s)
	y.spent += int(end-first) * (hops + patchHops)
	for l := first; l < end; l++ {
		cost, ok, at := int64(0), true, s
		for e, k := l, 0; ok; k++ {
			ok = e != busy && k < hops+patchHops && y.load[e]+n*y.cost[e] <= limit
			cost += y.price[e]
			if at = y.linkTo[e]; at == s {
				ok = false
			}
			if at == d || !ok {
				break
			}
			e = y.linkTowards(at, to.lid)
		}
		if ok && at == d {
			y.moves = append(y.moves, move{d, s, l, to, n, cost + y.meeting(s, l, d, to)})
		}
	}
	for at := s; at != d; {
		l := y.linkTowards(at, to.lid)
		y.load[l] += n * y.cost[l]
		at = y.linkTo[l]
	}
	return flows
}

// move makes a move, if no cycle closes.
func (y *patched) move(m move) bool {
	n := m.flows / m.to.ports
	old := y.drop(m.s, m.to)
	fits := y.enter(m.s, m.link, m.to)
	if fits {
		y.direct(m.s, m.to.lid, old)
		y.carryFrom(m.s, m.d, m.to, -n)
		y.direct(m.s, m.to.lid, m.link)
		y.carryFrom(m.s, m.d, m.to, n)
		return true
	}
	y.turns.free = true
	y.enter(m.s, old, m.to)
	y.turns.free = false
	return false
}
