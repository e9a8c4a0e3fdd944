package route

import (
	"fmt"
	"math"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

const (
	// maxPasses is how often the tables are gone through to even them out, sharpPasses
	// how often with links near the load of the busiest one dearer than others.
	maxPasses, sharpPasses = 6, 24
	// assignWork bounds the passes after the first and the second variant of
	// the tables, in links visited; one takes two to three nanoseconds.
	assignWork = 60_000_000
	// shared is added to the load of a link to a switch that another LID of
	// the same port is reached by from there; it is above all sums of loads.
	shared = 1 << 44
	// crowded is added to that of a link to be relieved.
	crowded = 1 << 40
	// merging is by how many mean loads of a link a way is cheaper that all
	// other hosts take to the destination as well.
	merging = 8
)

// assign fills the tables. Each destination takes, from each switch, the way on
// which the loads that the others left add up to the least, a load being pairs
// of hosts over the speed of the link. All destinations are gone through again,
// the flows of each taken off first, for as long as that relieves the busiest
// link.
//
// The flows to one host do not share links with those to others if they come
// together early, which serves hosts that each send to one other at a time. So
// tables are made a second time with such ways preferred, and considered if the
// busiest link is not busier; in a tree, where it gains most, by a sixteenth.
//
// From both, further tables are made that relieve the busiest links. That takes
// something from hosts that each send to one other: score weighs the two.
//
// Tables in force are followed, so that a cut link rewrites few blocks, unless
// that leaves a link busier by more than a tenth than the busiest one of tables
// made from nothing.
//
// Tables for I/O nodes are made first, as if there were no others.
func (b *builder) assign(r *Result, e engine) {
	bound := b.bound()
	t := b.balance(e, r.Engine == FatTree, bound)
	r.LFT, r.Bound = t.lft, float64(bound)/16
	if len(t.load) > 0 {
		r.Worst = float64(slices.Max(t.load)) / 16
	}
	b.unjoined(r, t.lost)
}

// unjoined warns of pairs of switches that have no path.
func (g *graph) unjoined(r *Result, lost int) {
	if n := lost - g.apart; n > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d pairs of switches have no path between them", n))
	}
}

// variants are tables made in several ways, and which of them has the least score.
type variants struct {
	all   []*assignment
	found []*scored
}

// scored is ways and their score.
type scored struct {
	of    *assignment
	way   [][]uint8
	load  []int64
	score float64
	share float64
	done  chan struct{} // closed when score is known
}

// variants makes tables without regard to those in force: with and, where that is
// affordable, without flows that come together early. On a large tree with links of several
// speeds they are made as if these had one, which spread has no time for there.
func (b *builder) variants(e engine, tree bool, bound int64) *variants {
	if tree && b.mixed() && 4*b.workOf(e) >= assignWork {
		a := b.even(e)
		v := &variants{all: []*assignment{a}}
		w := a.worst()
		v.judge(a, w+w/16) // of about the same score those that are relieved
		return v
	}
	a, worst := b.balanced(e, 0, bound)
	v := &variants{all: []*assignment{a}}
	if 4*a.work < assignWork {
		m, w := b.balanced(e, merging, bound)
		v.all = []*assignment{m, a}
		if w <= worst || tree && w <= worst+worst/16 {
			v.judge(m, w)
		}
	}
	v.judge(a, worst)
	return v
}

// judge finds the score of tables, on large graphs on another processor.
func (v *variants) judge(a *assignment, worst int64) {
	s := &scored{of: a, way: a.copied(a.way), load: slices.Clone(a.load), done: make(chan struct{})}
	v.found = append(v.found, s)
	find := func() {
		s.score, s.share = a.score(s.way, worst)
		close(s.done)
	}
	if a.hostSum < shiftAhead {
		find()
	} else {
		go find()
	}
}

// best is the tables with the least score, of the same the first.
func (v *variants) best() *scored {
	best := v.found[0]
	for _, s := range v.found {
		if <-s.done; s.score < best.score {
			best = s
		}
	}
	v.found = []*scored{best}
	return best
}

// relieved relieves the busiest links of all, and returns the best that comes of it. On
// large graphs it gains enough for its work in trees only.
func (v *variants) relieved(tree bool, bound int64) *assignment {
	if len(v.all) == 1 && !tree {
		return v.best().of
	}
	for _, a := range v.all {
		a.tree = tree
		for worst := a.worst(); ; {
			now := a.relieved(a.sharpened(worst, bound), bound)
			if now >= worst {
				break
			}
			worst = now
			v.judge(a, now)
		}
	}
	if s := v.best(); s.of.mixed() && len(v.all) > 1 {
		s.of.revert(s.of.copied(s.way), slices.Clone(s.load))
		v.spread(s.of, bound)
	}
	s := v.touchedUp(bound)
	s.of.revert(s.way, s.load)
	return s.of
}

// touchWeight is how many percent less load are worth one percent less of the share (see
// score) when the best tables are touched up: four times as many as before.
const touchWeight = 20

// touchedUp takes single destinations off the busiest links of the best tables, for as long
// as hosts that each send to one other hardly lose by it.
func (v *variants) touchedUp(bound int64) *scored {
	best := v.best()
	a := best.of
	a.revert(a.copied(best.way), slices.Clone(best.load))
	for worst := a.worst(); worst > bound && a.spent < a.most(); {
		a.relieve(worst-1, false)
		was, now := worst, a.worst()
		if now >= was {
			break
		}
		worst = now
		v.judge(a, now)
		s := v.found[len(v.found)-1]
		<-s.done
		if a.base == nil && float64(now)/math.Pow(s.share, touchWeight) >= float64(was)/math.Pow(best.share, touchWeight) {
			break
		}
		best = s
	}
	v.found = []*scored{best}
	return best
}

// score weighs the load of the busiest link and the share of the bandwidth that hosts
// get that each send to one other at a time: one percent less of the share is as bad
// as five percent more load. Beside the load of I/O nodes the busiest link alone counts.
func (a *assignment) score(way [][]uint8, worst int64) (score, share float64) {
	if a.base != nil {
		return float64(worst), 0
	}
	share, _ = a.shift(way, 64)
	return float64(worst) / math.Pow(max(share, 1e-3), 5), share
}

// balanced makes tables without regard to those in force, and says what load is
// the largest.
func (b *builder) balanced(e engine, merging, bound int64) (*assignment, int64) {
	a := newAssignment(b.graph, e, merging)
	a.ahead = a.procs > 1
	a.pass()
	worst := a.worst()
	for n := 1; n < maxPasses && n*a.work < assignWork && worst > bound; n++ {
		way, load := a.copied(a.way), slices.Clone(a.load)
		a.pass()
		now := a.worst()
		if now >= worst {
			a.revert(way, load)
			break
		}
		worst = now
	}
	return a, worst
}

// sharpened goes through the tables with links near the load of the busiest one dearer
// than others, for as long as that makes the worst smaller, which it returns.
func (a *assignment) sharpened(worst, bound int64) int64 {
	for n := 0; n < sharpPasses && a.sharpens() && worst > bound; n++ {
		a.spent += 2 * a.work
		way, load := a.copied(a.way), slices.Clone(a.load)
		a.sharpen(worst)
		a.pass()
		now := a.worst()
		if now >= worst {
			a.revert(way, load)
			break
		}
		worst = now
	}
	a.sharpen(0)
	return worst
}

// assignment is tables in the making and the loads that they give.
type assignment struct {
	*graph
	engine  engine
	merging int64
	c       *candidates
	ahead   bool            // whether candidates may be found on another processor
	batches [][]*candidates // for that
	// way has by LID and switch the place of the link to the LID among those of the switch,
	// NoPort where there is none.
	way      [][]uint8
	placed   bool      // there is a way for each destination
	tree     bool      // the switches form levels
	grown    bool      // of tables that follow others: hosts have come
	load     []int64   // by link: flows times the cost of the link
	price    []int64   // by link: what one more flow costs; load itself without a peak
	dear     []int64   // what price is with a peak
	peak     int64     // the load that all are to be below, 0 if prices do not regard it
	total    int64     // sum of load
	value    []int64   // by switch: loads on the way to the current destination
	flow     []int64   // by switch: flows to the current destination through it
	alone    []int64   // by link: what it costs for not being on the way of others to the destination
	busy     []bool    // by link: whether flows to the destination left it for its load
	next     []int32   // by switch: the link to the current destination
	open     []bool    // by switch: whether mend has to choose
	found    []int32   // by switch: the search of mend that found its value and next
	above    []int32   // switches with a link above the limit of relieve, and maybe others
	isAbove  []bool    // by switch: whether it is in above
	before   [][]int32 // of other LIDs of the current port: the link by switch
	lost     int       // switch pairs without a way
	work     int       // links visited in a pass
	spent    int       // links visited by mend
	searches int32
}

func newAssignment(g *graph, e engine, merging int64) *assignment {
	a := bareAssignment(g, e, merging)
	a.revert(g.newWays(), a.load)
	return a
}

// bareAssignment has no memory for ways.
func bareAssignment(g *graph, e engine, merging int64) *assignment {
	return &assignment{graph: g, engine: e, merging: merging, c: newCandidates(g),
		load: g.loads(), dear: make([]int64, len(g.port)), alone: make([]int64, len(g.port)),
		busy: make([]bool, len(g.port)), value: make([]int64, g.n), flow: make([]int64, g.n), next: make([]int32, g.n),
		open: make([]bool, g.n), found: make([]int32, g.n), isAbove: make([]bool, g.n)}
}

// revert goes back to ways and the loads that they give.
func (a *assignment) revert(way [][]uint8, load []int64) {
	a.way, a.load, a.total = way, load, 0
	for _, n := range load {
		a.total += n
	}
	a.sharpen(0)
}

func (a *assignment) worst() int64 {
	if len(a.load) == 0 {
		return 0
	}
	return slices.Max(a.load)
}

// each calls f for the LIDs of every switch, with c its candidates.
func (a *assignment) each(f func(d int32, to dest)) {
	a.lost, a.work = 0, 0
	a.some(nil, func(d int32, to dest) bool {
		if to == a.dests[d][0] {
			a.lost += a.c.lost
		}
		a.work += a.c.count
		f(d, to)
		return true
	})
}

// some is each for those LIDs that are set in which, all if it is nil, until f is false.
func (a *assignment) some(which []bool, f func(d int32, to dest) bool) {
	isOne := func(to dest) bool { return which == nil || which[to.lid] }
	var list []int32
	for d, dests := range a.dests {
		if slices.ContainsFunc(dests, isOne) {
			list = append(list, int32(d))
		}
	}
	a.towards(list, func(d int32) bool {
		dests := a.dests[d]
		for i, to := range dests {
			if i == 0 || dests[i-1].port != to.port {
				a.before = a.before[:0]
				if a.leadLFT != nil {
					a.before = append(a.before, a.leading(to.lid))
				}
			}
			if isOne(to) && !f(d, to) {
				return false
			}
			if i+1 < len(dests) && dests[i+1].port == to.port {
				next := make([]int32, a.n)
				for _, s := range a.c.order {
					next[s] = a.linkTowards(s, to.lid)
				}
				a.before = append(a.before, next)
			}
		}
		return true
	})
}

// leading returns, by switch, the link to the first LID of the port that has the LID.
func (a *assignment) leading(lid ib.LID) []int32 {
	next := make([]int32, a.n)
	for s, row := range a.leadLFT {
		next[s] = a.linkOf[s<<8|int(row[a.lead[lid]])]
	}
	return next
}

// pass routes every LID by the loads of all others.
func (a *assignment) pass() {
	a.each(func(d int32, to dest) {
		if a.placed {
			a.carry(to, -1)
		}
		a.place(d, to)
	})
	a.placed = true
}

// place routes a LID of switch d by the loads of all others and adds its flows.
func (a *assignment) place(d int32, to dest) {
	a.choose(d, to, false)
	if a.merging > 0 && to.kind != uncounted && len(a.load) > 0 {
		a.merge(to)
		a.choose(d, to, false)
		clear(a.alone)
	}
	a.flows(to, 1)
}

// choose sets the entries for a LID of switch d, all at once. With keep, an
// entry stays unless its way has twice the load of the best and a bit: a link
// that came back gets its share, and nothing else moves.
func (a *assignment) choose(d int32, to dest, keep bool) {
	slack := 32 * a.mostHosts * 16
	row := a.way[to.lid]
	a.value[d] = 0
	for _, s := range a.c.order {
		var best int32
		var least int64
		if len(a.before) == 0 {
			best, least = a.lightest(s)
		} else {
			best, least = a.cheapest(s, d, 0, math.MaxInt64)
		}
		if keep {
			if old := a.linkAt(s, row[s]); old != best {
				if v := a.price[old] + a.value[a.linkTo[old]] + a.sharing(s, old, d); v <= 2*least+slack {
					best, least = old, v
				}
			}
		}
		a.value[s], a.next[s] = least, best
		row[s] = uint8(best - a.start[s])
	}
}

// lightest is the first candidate of a switch with the least load on the way, and that load.
func (a *assignment) lightest(s int32) (best int32, least int64) {
	// The place in links is the low byte, so that a minimum without a branch finds it.
	key := int64(math.MaxInt64)
	first, last := a.c.first[s], a.c.last[s]
	if last <= a.c.all {
		price, to, value := a.price[first:last], a.linkTo[first:last], a.value
		if a.merging == 0 {
			for i, p := range price {
				key = min(key, (p+value[to[i]])<<8|int64(i))
			}
		} else {
			alone := a.alone[first:last]
			for i, p := range price {
				key = min(key, (p+alone[i]+value[to[i]])<<8|int64(i))
			}
		}
		return first + int32(key&0xff), key >> 8
	}
	links := a.c.links[first:last]
	if a.merging == 0 {
		for i, l := range links {
			key = min(key, (a.price[l]+a.value[a.linkTo[l]])<<8|int64(i))
		}
	} else {
		for i, l := range links {
			key = min(key, (a.price[l]+a.alone[l]+a.value[a.linkTo[l]])<<8|int64(i))
		}
	}
	return links[key&0xff], key >> 8
}

// cheapest is the candidate of switch s with the least load on the way to d, and
// that load. Links that n more flows bring above limit are the last choice.
func (a *assignment) cheapest(s, d int32, n, limit int64) (best int32, least int64) {
	least = math.MaxInt64
	for _, l := range a.c.of(s) {
		v := a.price[l] + a.alone[l] + a.value[a.linkTo[l]]
		if len(a.before) > 0 {
			v += a.sharing(s, l, d)
		}
		if a.load[l]+n*a.cost[l] > limit {
			v += crowded
		}
		if v < least {
			best, least = l, v
		}
	}
	return best, least
}

// sharing is the cost of a link to a switch that other LIDs of the current port go
// through.
func (a *assignment) sharing(s, l, d int32) (cost int64) {
	to := a.linkTo[l]
	if to == d {
		return 0
	}
	for _, next := range a.before {
		if l := next[s]; l != fabric.None && a.linkTo[l] == to {
			cost += shared
		}
	}
	return cost
}

// through goes over the links that the flows to a LID take, with the number of
// flows on each, until yield is false. c has the candidates for its switch.
func (a *assignment) through(way [][]uint8, to dest, yield func(l int32, flows int64) bool) {
	copy(a.flow, a.hosts)
	row := way[to.lid]
	for i := len(a.c.order) - 1; i >= 0; i-- {
		s := a.c.order[i]
		if n := a.flow[s]; n > 0 {
			l := a.linkAt(s, row[s])
			if l == fabric.None {
				continue
			}
			if !yield(l, n) {
				return
			}
			a.flow[a.linkTo[l]] += n
		}
	}
}

// carry adds the flows to a LID to the loads, or takes them off. Those to a
// switch are management and do not count.
func (a *assignment) carry(to dest, sign int64) {
	if to.kind != uncounted {
		a.ways(to)
		a.flows(to, sign)
	}
}

// ways sets next to the links that lead to a LID.
func (a *assignment) ways(to dest) {
	row := a.way[to.lid]
	for _, s := range a.c.order {
		a.next[s] = a.linkAt(s, row[s])
	}
}

// flows is carry where next has the links.
func (a *assignment) flows(to dest, sign int64) {
	if to.kind == uncounted {
		return
	}
	copy(a.flow, a.hosts)
	sign *= to.ports
	for _, s := range slices.Backward(a.c.order) {
		l := a.next[s]
		n := a.flow[s]
		if n == 0 || l == fabric.None {
			continue
		}
		a.flow[a.linkTo[l]] += n
		a.add(l, sign*n)
	}
}

// over marks the links with more than limit that flows to a LID take by next as busy,
// and reports whether there are any.
func (a *assignment) over(limit int64) (some bool) {
	copy(a.flow, a.hosts)
	for _, s := range slices.Backward(a.c.order) {
		l := a.next[s]
		n := a.flow[s]
		if n == 0 || l == fabric.None {
			continue
		}
		a.flow[a.linkTo[l]] += n
		if a.load[l] > limit {
			a.busy[l], some = true, true
		}
	}
	return some
}

// add puts flows on a link.
func (a *assignment) add(l int32, flows int64) {
	flows *= a.cost[l]
	a.load[l] += flows
	a.total += flows
	if a.peak > 0 {
		a.setPrice(l)
	}
}

// setPrice makes a link as dear as what it adds to the sum of the eighth powers of all
// loads: the nearer to the peak, the dearer.
func (a *assignment) setPrice(l int32) {
	x := float64(a.load[l]) / float64(a.peak)
	cube := x * x * x
	a.price[l] = int64((cube*cube*x+x/64)*(1<<28)) * a.cost[l] / 16
}

// sharpen sets the peak, 0 for prices that are the loads.
func (a *assignment) sharpen(peak int64) {
	if a.peak = peak; peak == 0 {
		a.price = a.load
		return
	}
	a.price = a.dear
	for l := range a.price {
		a.setPrice(int32(l))
	}
}

// merge makes links cheaper for a LID the more of its flows take them.
func (a *assignment) merge(to dest) {
	most := a.total
	if a.peak > 0 {
		most = 0
		for _, p := range a.price {
			most += p
		}
	}
	most = a.merging * most / int64(len(a.load))
	for l := range a.alone {
		a.alone[l] = most
	}
	a.through(a.way, to, func(l int32, n int64) bool {
		a.alone[l] -= most * n / a.hostSum
		return true
	})
}
