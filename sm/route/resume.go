package route

import (
	"math/rand/v2"
	"slices"

	"ibnetworkd/sm/fabric"
)

const (
	// resumedWorst is how many times the flows of tables on one lane the busiest link may
	// have for layers in force to stay: a host goes on with the level it has, and is free of
	// deadlock only as long as that is the one of its path.
	resumedWorst = 2
	// resumedNew is the part of the switches, as a divisor, that may be without tables for
	// the others to be followed; with more, a fabric is being switched on.
	resumedNew = 4
	// frozenTries is how often a LID may find no way before levels change.
	frozenTries = 20
	// resumedTries is how often other ways are searched for that change fewer levels.
	resumedTries = 16
)

// goal is a LID with its switch.
type goal struct {
	d  int32
	to dest
}

// resumed gives tables that follow those in force on layers: other ways for what has none
// any more, and other levels only where no way fits into the level of a pair.
func (b *builder) resumed(opt Options) (r Result, ok bool) {
	count, err := b.layersFor(opt)
	if err != nil || len(opt.SL) != b.n || len(b.prev) != b.n {
		return r, false
	}
	if b.first == nil && b.pairs() > stackedPairs {
		from := *b
		from.graph = b.sharedIn(b.prev)
		if r, ok = from.resumed(opt); ok {
			b.spread(from.graph, r.LFT)
		}
		return r, ok
	}
	empty := 0
	for _, row := range b.prev {
		if len(row) == 0 {
			empty++
		}
	}
	if empty*resumedNew > b.n {
		return r, false
	}
	one := Result{Engine: UpDown}
	if b.prior == nil {
		one = b.fresh()
	} else {
		one.Order = b.named(b.connectedOrder(b.prior))
	}
	// On demand: with many hosts these tables take longer than the search for paths.
	worst := func() int64 {
		if one.LFT == nil {
			from := builder{graph: b.graph}
			from.ordered(&one, b.connectedOrder(b.prior))
		}
		return int64(one.Worst * 16)
	}
	bound := b.bound()
	t := newTurns(b.graph)
	tree := b.forest(t, opt.Trunk)
	if !tree.whole() {
		y := newLayered(b, t, one.Order, tree.trunk(opt.Trunk), count)
		if !y.takeOver(b.prev, opt.SL) || !y.mend(tree) {
			return r, false
		}
	}
	trunk := tree.trunk(opt.Trunk)
	var best *layered
	least, left := 0, layeredWork
	for try := 0; try < resumedTries && left > layeredWork/2; try++ {
		y := newLayered(b, t, one.Order, trunk, count)
		ok := y.resume(b.prev, opt.SL, func() int64 { return max(bound, worst()) }, try)
		left -= y.visited()
		if !ok || y.worst() > resumedWorst*worst() {
			// On a large torus mostly no ways are found, and what is from nothing waits for that.
			if b.first != nil || best == nil && b.n > 128 && left < layeredWork*7/8 {
				break
			}
			continue
		}
		if n := y.changed(opt.SL); best == nil || n < least {
			best, least = y, n
		}
		if least == 0 || b.first != nil {
			break
		}
	}
	if best == nil {
		return r, false
	}
	return best.result(one.Order, trunk, bound), true
}

// changed counts the pairs of switches with another level than before.
func (y *layered) changed(of Layers) (n int) {
	for s, row := range y.of {
		for d, k := range row[:s] {
			if k != of[s][d] && len(y.dests[s]) > 0 && len(y.dests[d]) > 0 {
				n++
			}
		}
	}
	return n
}

// takeOver adopts the paths and layers in force, as far as they lead to their ends and
// fit: the tree of multicast may have changed. It is false if that is too much work.
func (y *layered) takeOver(lft [][]uint8, of Layers) bool {
	y.each(func(d int32, to dest) {
		for _, s := range y.c.order {
			if y.whole(lft, stretch{s, d, to.lid}) {
				y.direct(s, to.lid, y.linkOf[int(s)<<8|int(lft[s][to.lid])])
			}
		}
	})
	if y.first != nil {
		return y.takeAll(of)
	}
	for s := range int32(y.n) {
		for d := range s {
			k := of[s][d] % uint8(len(y.layers))
			y.of[s][d], y.of[d][s] = k, k
			for _, p := range y.others(stretch{s, d, 0}) {
				if !y.put(k, p) {
					y.drop(p, s, d)
				}
			}
		}
		if y.visited() > layeredWork/2 {
			return false
		}
	}
	y.forgive()
	return true
}

// takeAll puts all paths into their layers and sorts each layer once, which is much less work
// than to add turn after turn. It returns false if a layer has a cycle.
func (y *layered) takeAll(of Layers) bool {
	for s := range int32(y.n) {
		for d := range s {
			k := of[s][d] % uint8(len(y.layers))
			y.of[s][d], y.of[d][s] = k, k
			a := y.layers[k]
			for _, p := range y.others(stretch{s, d, 0}) {
				path := y.links(p)
				for i := 1; i < len(path); i++ {
					a.count[a.at(path[i-1], path[i])]++
				}
			}
		}
	}
	return !slices.ContainsFunc(y.layers, func(a *acyclic) bool { return !a.sort() })
}

// resume is takeOver with ways for all that has none, then with the busiest links relieved
// down to limit, or less if they had less. It is false where some LID has no way.
func (y *layered) resume(lft [][]uint8, of Layers, limit func() int64, try int) bool {
	if !y.takeOver(lft, of) {
		return false
	}
	y.each(func(d int32, to dest) { y.bear(d, to, 1) })
	had := y.worst() + y.worst()/4
	y.frozen = true
	var all, lacking []goal
	y.each(func(d int32, to dest) {
		all = append(all, goal{d, to})
		if y.settle(d, to) {
			return
		}
		y.bear(d, to, -1)
		if !y.lead(d, to) {
			lacking = append(lacking, goal{d, to})
		}
		y.bear(d, to, 1)
	})
	if !y.place(lacking, all, try) {
		return false
	}
	y.ease(min(limit(), had))
	return y.visited() <= layeredWork
}

// settle marks the switches that have a path to a LID of d, and reports whether all have.
func (y *layered) settle(d int32, to dest) bool {
	clear(y.settled)
	all := true
	for _, s := range y.c.order {
		path := y.links(stretch{s, d, to.lid})
		if all = all && len(path) > 0; len(path) == 0 {
			continue
		}
		y.settled[s], y.value[s] = true, 0
		for _, l := range path {
			y.value[s] += y.price[l]
		}
	}
	return all
}

// place leads to the LIDs that some switches have no way to in the level of the pair. Where
// that closes a cycle, some other LIDs make way and are routed after it; if all that
// is to no avail for long, pairs change their levels.
func (y *layered) place(lacking, all []goal, try int) bool {
	rnd := rand.New(rand.NewPCG(uint64(try), uint64(len(all))))
	tries := try % 2 * frozenTries
	limit := y.visited() + layeredWork>>max(3, 6-try/4)
	for failed := 0; len(lacking) > 0; {
		if y.visited() > limit {
			return false
		}
		if y.reroute(lacking[0], failed < tries) {
			lacking = lacking[1:]
			continue
		}
		failed++
		// The LIDs of a switch that has no way hold its pair in its level.
		v := all[rnd.IntN(len(all))]
		if stuck := y.stuck(lacking[0]); failed%4 != 0 {
			if failed%2 != 0 || len(y.dests[stuck]) == 0 {
				stuck = lacking[0].d
			}
			v = goal{stuck, y.dests[stuck][rnd.IntN(len(y.dests[stuck]))]}
		}
		if !slices.Contains(lacking, v) {
			y.evict(v)
			lacking = append(lacking, v)
		}
	}
	return true
}

// visit makes d the switch that candidates lead to.
func (y *layered) visit(d int32) {
	y.c.reset()
	y.engine.towards(d, y.c)
	y.before = y.before[:0]
}

// reroute leads to a LID by other ways, or else, if levels may change, those that have none
// by other levels, and at last all.
func (y *layered) reroute(g goal, frozen bool) bool {
	y.visit(g.d)
	y.bear(g.d, g.to, -1)
	defer y.bear(g.d, g.to, 1)
	defer func() { y.frozen = true }()
	y.forgive()
	leadAll := func() bool {
		y.release(g.d, g.to)
		if y.lead(g.d, g.to) {
			return true
		}
		y.restore(g.d, g.to)
		return false
	}
	if leadAll() {
		return true
	}
	if frozen {
		return false
	}
	y.frozen = false
	y.settle(g.d, g.to)
	return y.lead(g.d, g.to) || leadAll()
}

// stuck is a switch that has no way to a LID.
func (y *layered) stuck(g goal) int32 {
	y.visit(g.d)
	for _, s := range y.c.order {
		if y.way[g.to.lid][s] == NoPort {
			return s
		}
	}
	return g.d
}

// evict removes all paths to a LID.
func (y *layered) evict(g goal) {
	y.visit(g.d)
	y.bear(g.d, g.to, -1)
	y.release(g.d, g.to)
	for _, s := range y.c.order {
		y.way[g.to.lid][s] = NoPort
	}
}

// ease routes the LIDs again whose flows pass links with more than limit, and keeps that
// if it relieves the busiest link by a tenth at least.
func (y *layered) ease(limit int64) {
	was, way, load := y.worst(), y.copied(y.way), slices.Clone(y.load)
	for n := 0; n < layeredPasses && y.worst() > limit; n++ {
		y.sharpen(y.worst())
		y.again(layeredWork/2, limit)
	}
	y.sharpen(0)
	if y.worst()*10 > was*9 {
		y.revert(way, load)
	}
}

// drop removes the paths to the LID of a path that does not fit which lead through its
// switch; those of the pairs before s and d are in their layers.
func (y *layered) drop(p stretch, s, d int32) {
	var through []int32
	for x := range int32(y.n) {
		if x == p.from || slices.ContainsFunc(y.links(stretch{x, p.to, p.lid}), func(l int32) bool { return y.linkTo[l] == p.from }) {
			through = append(through, x)
			if hi, lo := max(x, p.to), min(x, p.to); hi < s || hi == s && lo < d {
				y.take(y.of[x][p.to], stretch{x, p.to, p.lid})
			}
		}
	}
	for _, x := range through {
		y.way[p.lid][x] = NoPort
	}
}

// whole reports whether tables lead over links that exist to a LID.
func (y *layered) whole(lft [][]uint8, p stretch) bool {
	at := p.from
	for range y.n {
		if at == p.to {
			return true
		}
		if int(p.lid) >= len(lft[at]) {
			return false
		}
		y.spent++
		l := y.linkOf[int(at)<<8|int(lft[at][p.lid])]
		if l == fabric.None {
			return false
		}
		at = y.linkTo[l]
	}
	return false
}
