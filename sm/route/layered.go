package route

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

const (
	// layeredWork bounds the search for tables in layers, in turns of paths that are
	// visited; one takes about three nanoseconds.
	layeredWork = 200_000_000
	// layeredGain is what the busiest link must be relieved to for layers to be used
	// where they are not in force.
	layeredGain = 0.9
	// layeredLater is the same after tables on one lane that are in force, for all levels
	// change with it.
	layeredLater = 0.75
	// sharedPairs is the number of pairs of a switch and a LID to which a graph with more than
	// stackedPairs is reduced for the search, and sharedMost that up to which there is one.
	sharedPairs = 100_000
	sharedMost  = 1_200_000
	// sharedWork bounds that search, as layeredWork does.
	sharedWork = 100_000_000
	// layeredPasses bounds each of the ways that layered.search goes.
	layeredPasses = 8
)

// layered is tables for the shortest paths with the busiest link relieved. The paths
// between two switches, in both directions and to all LIDs, are in one layer, and the
// turns of all paths of a layer, with those of multicast, close no cycle.
//
// It begins with up/down: whatever layers its paths are spread over, none has a cycle.
// From there each LID is routed again and again, each switch by the cheapest link
// whose path fits into the layer of the pair, or with which the paths of the pair fit
// into another one. Tables and layers are free of loops at every moment of the search.
type layered struct {
	*assignment
	layers  []*acyclic
	of      Layers
	eager   bool // a pair rather changes its layer than takes the next link
	frozen  bool // no pair changes its layer
	settled []bool
	path    []int32
	offers  []offer
	was     []entry
}

type offer struct {
	link int32
	cost int64
}

// entry is what a switch had for a LID.
type entry struct {
	way, layer uint8
}

// stretch is the path from a switch to a LID of another.
type stretch struct {
	from, to int32
	lid      ib.LID
}

func newLayered(b *builder, t *turns, order []ib.GUID, trunk []uint8, count int) *layered {
	y := &layered{assignment: newAssignment(b.graph, &minHop{g: b.graph}, 0), settled: make([]bool, b.n), was: make([]entry, b.n)}
	flat := make([]uint8, b.n*b.n)
	for s := range b.n {
		y.of = append(y.of, flat[s*b.n:(s+1)*b.n])
	}
	place := b.placesOf(order)
	for range count {
		a := newAcyclic(t, place)
		a.addTree(trunk)
		y.layers = append(y.layers, a)
	}
	return y
}

// layersFor is how many layers tables may have, or why there are none.
func (b *builder) layersFor(opt Options) (int, error) {
	count := min(b.lanes(), opt.Layers)
	switch {
	case opt.Layers < 2:
		return 0, errors.New("routing engine layered needs service levels, which QoS gives it")
	case count < 2:
		return 0, errors.New("routing engine layered: a link between switches has one virtual lane, two are needed at least")
	case b.n*b.top > layeredWork/8:
		return 0, fmt.Errorf("routing engine layered: %d switches and LIDs up to %d are too many to search for layers", b.n, b.top)
	}
	return count, nil
}

// layered makes tables from those of base, which are of up/down. Tables in force have
// no influence: a manager that takes over has to find the levels that hosts have.
func (b *builder) layered(base *Result, count, work int) Result {
	t, trunk := newTurns(b.graph), b.trunk(base.Order)
	bound := b.bound()
	var best *layered
	left := work
	for _, region := range [][]int32{b.cells(count), b.blocks(count)} {
		y := newLayered(b, t, base.Order, trunk, count)
		y.begin(base.LFT, region)
		y.search(bound, left)
		if best == nil || y.worst() < best.worst() {
			best = y
		}
		if left -= y.visited(); left < work/2 {
			break
		}
	}
	return best.result(base.Order, trunk, bound)
}

func (y *layered) result(order []ib.GUID, trunk []uint8, bound int64) Result {
	return Result{Engine: Layered, LFT: y.tables(), SL: y.of, NumLayers: y.used(), Order: order, Trunk: trunk,
		Worst: float64(y.worst()) / 16, Bound: float64(bound) / 16}
}

// better replaces the result, which is on one lane, by one with layers where that relieves
// the busiest link by enough, or else by that of up/down where no tables are in force. It
// reports whether it did; tables of dor are replaced by layers only.
func (b *builder) better(r *Result, opt Options) bool {
	// Levels without a tree for multicast are those of a torus.
	if opt.Trunk == nil {
		if y, ok := b.resumed(opt); ok {
			*r = y
			return true
		}
	}
	count, err := b.layersFor(opt)
	if err != nil {
		return false
	}
	gain, whole := layeredGain, b.holed()
	switch {
	case opt.SL != nil:
		gain = 1
	case len(opt.Order) > 0, opt.Before == DOR && opt.SL == nil && b.inForce() && b.along(whole):
		gain = layeredLater
	}
	if r.Engine == DOR && float64(b.bound())/16 > gain*r.Worst {
		return false
	}
	y, base := b.inLayers(count, gain, false)
	relieved := base == nil
	switch {
	case r.Engine == DOR:
		relieved = y.Worst <= gain*r.Worst
	case base != nil:
		relieved = y.Worst <= gain*base.Worst
	}
	if relieved && r.Engine != DOR {
		if one := b.around(whole); one != nil {
			most := float64(one.worst()) / 16
			if gain == layeredLater {
				most *= gain
			}
			relieved = y.Worst <= most
		}
	}
	switch {
	case relieved:
		*r = y
	case r.Engine != DOR && b.prior == nil && !b.inForce() && whole == nil:
		*r = *base
	default:
		return false
	}
	return true
}

// inLayers returns tables in layers, which depend on the graph and count alone, and those of
// up/down. The latter are nil if the tables in layers are clearly better than these can be
// with gain. Without must, the former have no table if a search would take long.
func (b *builder) inLayers(count int, gain float64, must bool) (y Result, base *Result) {
	if b.pairs() <= stackedPairs {
		one := b.fresh()
		return b.layered(&one, count, layeredWork), &one
	}
	y.Worst = math.Inf(1)
	search := true
	if b.near() {
		quick := 0.0
		y, quick = b.stacked(count)
		search = y.Worst > stackedClear*layeredGain*quick
		if !search && y.Worst <= stackedClear*gain*quick {
			return y, nil
		}
	}
	one := b.fresh()
	if search {
		if z := b.sharing(&one, count); z.Worst < y.Worst {
			y = z
		}
	}
	if must && y.LFT == nil {
		y = b.layered(&one, count, layeredWork)
	}
	return y, &one
}

// sharing is layered with the LIDs of several ports of a switch on the same paths. It returns
// no tables if there are too many switches for that.
func (b *builder) sharing(base *Result, count int) Result {
	s := builder{graph: b.shared(sharedPairs)}
	if s.pairs() > sharedMost {
		return Result{Worst: math.Inf(1)}
	}
	r := s.layered(base, count, sharedWork)
	b.spread(s.graph, r.LFT)
	return r
}

// fresh is the tables of up/down without regard to those in force.
func (b *builder) fresh() (r Result) {
	from := *b
	from.prev, from.prior = nil, nil
	r.NumLayers = 1
	from.upDown(&r)
	return r
}

// begin takes over tables without a credit loop, with the pairs spread over the layers
// by the regions of their switches.
func (y *layered) begin(lft [][]uint8, region []int32) {
	y.way = y.waysOf(lft)
	for s := range y.of {
		for d := range s {
			k := uint8(int(region[s]+region[d]) % len(y.layers))
			y.of[s][d], y.of[d][s] = k, k
		}
	}
	y.each(func(d int32, to dest) {
		for _, s := range y.c.order {
			y.put(y.of[s][d], stretch{s, d, to.lid})
		}
		y.bear(d, to, 1)
	})
}

// search goes through the tables for as long as that makes the worst smaller, first by
// loads, then with links near the load of the busiest one dearer, then eagerly, and
// keeps the best.
func (y *layered) search(bound int64, work int) {
	type state struct {
		way   [][]uint8
		of    Layers
		load  []int64
		worst int64
	}
	save := func() state { return state{y.copied(y.way), cloneTables(y.of), slices.Clone(y.load), y.worst()} }
	best := save()
	for way := range 3 {
		for n, stale := 0, 0; n < layeredPasses && stale < 2 && best.worst > bound && y.visited() < work; n++ {
			y.sharpen(0)
			if way > 0 {
				y.sharpen(y.worst())
			}
			y.eager = way == 2
			y.again(work, 0)
			if y.worst() < best.worst {
				best, stale = save(), 0
			} else {
				stale++
			}
		}
	}
	y.of = best.of
	y.revert(best.way, best.load)
}

// visited counts the work done.
func (y *layered) visited() (n int) {
	for _, a := range y.layers {
		n += a.work
	}
	return n + y.spent
}

// passes reports whether flows to a LID of d pass a link with more than limit.
func (y *layered) passes(d int32, to dest, limit int64) bool {
	for _, s := range y.c.order {
		if y.hosts[s] == 0 || to.kind == uncounted {
			continue
		}
		for _, l := range y.links(stretch{s, d, to.lid}) {
			if y.load[l] > limit {
				return true
			}
		}
	}
	return false
}

// again routes every LID by the loads of all others, until the work is done, or those
// whose flows pass a link with more than limit, if that is not 0.
func (y *layered) again(work int, limit int64) {
	y.forgive()
	y.each(func(d int32, to dest) {
		if y.visited() > work || limit > 0 && !y.passes(d, to, limit) {
			return
		}
		y.bear(d, to, -1)
		y.release(d, to)
		if !y.lead(d, to) {
			y.restore(d, to)
		}
		y.bear(d, to, 1)
	})
}

// release takes the paths to a LID of d out of their layers.
func (y *layered) release(d int32, to dest) {
	clear(y.settled)
	for _, s := range y.c.order {
		y.was[s] = entry{y.way[to.lid][s], y.of[s][d]}
		y.take(y.of[s][d], stretch{s, d, to.lid})
	}
}

// lead finds the ways to a LID of d from all switches that have none, by links whose
// paths fit. It is false where some switch has none.
func (y *layered) lead(d int32, to dest) bool {
	y.settled[d], y.value[d] = true, 0
	var rest []int32
	for _, s := range y.c.order {
		if !y.settled[s] && !y.join(s, d, to, y.c.of(s)) {
			rest = append(rest, s)
		}
	}
	// Where no shortest path fits, a longer one does.
	var links []int32
	for left := -1; len(rest) > 0 && len(rest) != left; {
		left = len(rest)
		now := rest
		rest = rest[:0]
		for _, s := range now {
			links = links[:0]
			first, end := y.linksOf(s)
			for l := first; l < end; l++ {
				links = append(links, l)
			}
			if !y.join(s, d, to, links) {
				rest = append(rest, s)
			}
		}
	}
	return len(rest) == 0
}

// join gives a switch the cheapest of some links that fits.
func (y *layered) join(s, d int32, to dest, links []int32) bool {
	y.offers = y.offers[:0]
	for _, l := range links {
		if t := y.linkTo[l]; y.settled[t] {
			y.offers = append(y.offers, offer{l, y.price[l] + y.value[t] + y.sharing(s, l, d)})
		}
	}
	slices.SortFunc(y.offers, func(a, b offer) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.link, b.link)) })
	own := y.of[s][d]
	path := stretch{s, d, to.lid}
	for _, o := range y.offers {
		y.direct(s, to.lid, o.link)
		if y.put(own, path) || y.eager && y.elsewhere(path) {
			y.settled[s], y.value[s] = true, o.cost
			return true
		}
	}
	for _, o := range y.offers {
		if y.eager || y.frozen {
			break
		}
		y.direct(s, to.lid, o.link)
		if y.elsewhere(path) {
			y.settled[s], y.value[s] = true, o.cost
			return true
		}
	}
	y.way[to.lid][s] = NoPort
	return false
}

// elsewhere moves a pair of switches to the first other layer that a new path between
// them fits into with all others.
func (y *layered) elsewhere(p stretch) bool {
	for k := range y.layers {
		if uint8(k) != y.of[p.from][p.to] && y.move(uint8(k), p) {
			return true
		}
	}
	return false
}

func (y *layered) move(k uint8, p stretch) bool {
	if !y.put(k, p) {
		return false
	}
	others := y.others(p)
	for i, q := range others {
		if y.put(k, q) {
			continue
		}
		for _, q := range others[:i] {
			y.take(k, q)
		}
		y.take(k, p)
		return false
	}
	old := y.of[p.from][p.to]
	for _, q := range others {
		y.take(old, q)
	}
	y.of[p.from][p.to], y.of[p.to][p.from] = k, k
	return true
}

// others are the paths between the two switches of a path, without it.
func (y *layered) others(p stretch) (out []stretch) {
	for _, to := range y.dests[p.to] {
		if to.lid != p.lid {
			out = append(out, stretch{p.from, p.to, to.lid})
		}
	}
	for _, to := range y.dests[p.from] {
		out = append(out, stretch{p.to, p.from, to.lid})
	}
	return out
}

// forgive lets all turns be tried again that closed a cycle.
func (y *layered) forgive() {
	for _, a := range y.layers {
		a.epoch++
	}
}

// restore puts back the paths to a LID of d as they were before lead.
func (y *layered) restore(d int32, to dest) {
	for _, a := range y.layers {
		a.free = true
		defer func() { a.free = false }()
	}
	for _, s := range y.c.order {
		y.take(y.of[s][d], stretch{s, d, to.lid})
		if y.of[s][d] != y.was[s].layer {
			for _, q := range y.others(stretch{s, d, to.lid}) {
				y.take(y.of[s][d], q)
			}
		}
	}
	for _, s := range y.c.order {
		y.way[to.lid][s] = y.was[s].way
	}
	for _, s := range y.c.order {
		p, k := stretch{s, d, to.lid}, y.was[s].layer
		if y.of[s][d] != k {
			y.of[s][d], y.of[d][s] = k, k
			for _, q := range y.others(p) {
				y.put(k, q)
			}
		}
		y.put(k, p)
	}
}

// links are those of a path, none where there is no path.
func (y *layered) links(p stretch) []int32 {
	y.path = y.path[:0]
	for at := p.from; at != p.to; {
		l := y.linkTowards(at, p.lid)
		if l == fabric.None {
			return nil
		}
		y.path = append(y.path, l)
		at = y.linkTo[l]
	}
	y.spent += len(y.path)
	return y.path
}

// put adds the turns of a path to a layer, or none if they do not fit.
func (y *layered) put(k uint8, p stretch) bool {
	path, a := y.links(p), y.layers[k]
	for i := 1; i < len(path); i++ {
		if a.add(path[i-1], path[i]) {
			continue
		}
		for i--; i > 0; i-- {
			a.remove(path[i-1], path[i])
		}
		return false
	}
	return true
}

func (y *layered) take(k uint8, p stretch) {
	path, a := y.links(p), y.layers[k]
	for i := 1; i < len(path); i++ {
		a.remove(path[i-1], path[i])
	}
}

// bear adds the flows to a LID of d to the loads, or takes them off. A path may be
// longer than the shortest, so that the order of the candidates is none of the flows.
func (y *layered) bear(d int32, to dest, sign int64) {
	if to.kind == uncounted {
		return
	}
	for _, s := range y.c.order {
		if y.hosts[s] == 0 {
			continue
		}
		for _, l := range y.links(stretch{s, d, to.lid}) {
			y.add(l, sign*y.hosts[s]*to.ports)
		}
	}
}

// used is the number of layers up to the last that has a pair.
func (y *layered) used() int {
	most := uint8(0)
	for s, row := range y.of {
		for d, k := range row {
			if s != d && len(y.dests[s])+len(y.dests[d]) > 0 {
				most = max(most, k)
			}
		}
	}
	return int(most) + 1
}
