package route

import (
	"math"
	"math/rand/v2"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

const (
	// stackedPairs is the number of pairs of a switch and a LID above which layers are
	// stacked, and to which the graph is reduced for that.
	stackedPairs = 300_000
	// stackedPasses bounds the passes over their tables.
	stackedPasses = 16
	// stackedSharp is the first pass in which links near the load of the busiest one cost
	// more, and in which only flows over such links move.
	stackedSharp = 2
	// stackedClear is the least ratio, as measured, of the flows over the busiest link in the
	// best tables on one lane to those in tables from a single pass.
	stackedClear = 0.8
	// stackedHops is the mean distance of switches up to which layers are stacked.
	stackedHops = 4
)

// stacked computes tables of short paths. Each layer has its own order of the switches, and
// its paths are up/down by that order, so that no layer has a cycle. The layers that a path
// fits into follow from those of the rest of the path.
//
// A path is checked by two bit operations, where layered searches for a cycle. But the orders
// are chosen before the paths: where paths are long, as on a torus, layered finds better
// tables.
type stacked struct {
	*assignment
	all  uint16     // a bit for each layer
	up   []uint16   // by link: the layers in which it goes up
	fits [][]uint16 // by LID of dests and switch: the layers that the path fits into
	pair [][]uint16 // by destination and switch: those for the paths to all of its LIDs
	// order has the switches, nearest first, for LIDs with paths that are not the shortest.
	order map[ib.LID][]int32
	// of the current switch, by switch: those for the LIDs before and, by index, after one
	front []uint16
	later [][]uint16
	at    int32
	index int
	// of the current LID, by switch: the layers in which the path only goes down, what it
	// was, and whether it stays
	falls []uint16
	was   []fitting
	stays []bool
}

// fitting is the way to a LID and the layers that the path fits into.
type fitting struct {
	way  uint8
	fits uint16
}

// stack returns the layers in which each link goes up. The first layer has the order of
// pos. The others begin at switches far from each other and continue along the multicast
// tree, whose paths are therefore up/down in all of them.
func (b *builder) stack(pos []int32, trunk []uint8, count int) []uint16 {
	up := make([]uint16, len(b.port))
	tree := make([][]int32, b.n)
	for s, p := range trunk {
		if l := b.linkOf[s<<8|int(p)]; l != fabric.None {
			t := b.linkTo[l]
			tree[s], tree[t] = append(tree[s], t), append(tree[t], int32(s))
		}
	}
	dist, rank := make([]int32, b.n), make([]float64, b.n)
	for k, seed := range b.seeds(count) {
		if k > 0 {
			b.bfs(dist, nil, seed)
			rnd := rand.New(rand.NewPCG(uint64(k), uint64(b.n)))
			for s := range rank {
				rank[s] = float64(dist[s]) + rnd.Float64()
			}
			pos = orderOf(rank, func(s int32) []int32 { return tree[s] })
		}
		for s := range int32(b.n) {
			first, end := b.linksOf(s)
			for l := first; l < end; l++ {
				if pos[b.linkTo[l]] < pos[s] {
					up[l] |= 1 << k
				}
			}
		}
	}
	return up
}

func newStacked(g *graph, up []uint16, count int) *stacked {
	y := &stacked{assignment: newAssignment(g, &minHop{g: g}, 0), all: 1<<count - 1, up: up, order: map[ib.LID][]int32{},
		front: make([]uint16, g.n), at: fabric.None,
		falls: make([]uint16, g.n), was: make([]fitting, g.n), stays: make([]bool, g.n)}
	row := func() []uint16 { return slices.Repeat([]uint16{y.all}, g.n) }
	y.fits, y.pair, y.later = make([][]uint16, g.top+1), make([][]uint16, g.n), [][]uint16{row()}
	for d, dests := range g.dests {
		y.pair[d] = row()
		for _, to := range dests {
			y.fits[to.lid] = row()
		}
		for len(y.later) <= len(dests) {
			y.later = append(y.later, row())
		}
	}
	return y
}

// begin takes over tables of up/down by the order of the first layer.
func (y *stacked) begin(e engine, way [][]uint8) {
	short := y.engine
	y.engine, y.way = e, way
	var order []int32
	y.each(func(d int32, to dest) {
		if d != y.at {
			y.at, order = d, slices.Clone(y.c.order)
		}
		y.order[to.lid], y.falls[d] = order, y.all
		fits := y.fits[to.lid]
		for _, s := range order {
			l := y.linkTowards(s, to.lid)
			fits[s], y.falls[s] = y.onward(l, fits)
			y.pair[d][s] &= fits[s]
		}
		y.carry(to, 1)
	})
	y.engine, y.at = short, fabric.None
}

// onward gives the layers that a path over a link and on from there fits into, and those
// in which it only goes down.
func (y *stacked) onward(l int32, fits []uint16) (in, falls uint16) {
	t, up := y.linkTo[l], y.up[l]
	return up&fits[t] | y.falls[t]&^up, y.falls[t] &^ up
}

// pass routes every LID by the loads of all others or, if limit is not 0, only the LIDs with
// flows over a link whose load is above it.
func (y *stacked) pass(limit int64) {
	y.each(func(d int32, to dest) {
		if d != y.at {
			y.visit(d)
		}
		short, fits := y.c.order, y.fits[to.lid]
		order, ok := y.order[to.lid]
		if !ok {
			order = short
		}
		y.c.order = order
		over := limit == 0
		y.through(y.way, to, func(l int32, _ int64) bool {
			over = over || y.load[l] > limit
			return !over
		})
		if over {
			y.carry(to, -1)
			for s, place := range y.way[to.lid] {
				y.was[s] = fitting{place, fits[s]}
			}
			y.c.order = y.lead(d, to, short, order)
			y.carry(to, 1)
		}
		for s, in := range fits {
			y.front[s] &= in
		}
		if y.index++; y.index == len(y.dests[d]) {
			copy(y.pair[d], y.front)
		}
		y.c.order = short
	})
	y.at = fabric.None
}

// visit begins with the LIDs of a switch.
func (y *stacked) visit(d int32) {
	y.at, y.index = d, 0
	dests := y.dests[d]
	for s := range y.front {
		y.front[s], y.later[len(dests)][s] = y.all, y.all
	}
	for i := len(dests) - 1; i > 0; i-- {
		for s, in := range y.fits[dests[i].lid] {
			y.later[i][s] = y.later[i+1][s] & in
		}
	}
}

// lead finds the shortest paths to a LID of d, with the switches in the order of short, and
// returns the switches in the order of these paths. A switch for which none fits keeps the
// path that it had, in the order of before.
func (y *stacked) lead(d int32, to dest, short, before []int32) []int32 {
	fits := y.fits[to.lid]
	clear(y.stays)
	fits[d], y.falls[d], y.value[d] = y.all, y.all, 0
	for {
		var order []int32
		for _, s := range before {
			if y.stays[s] {
				order = append(order, s)
				y.way[to.lid][s] = y.was[s].way
				l := y.linkAt(s, y.was[s].way)
				fits[s], y.falls[s] = y.onward(l, fits)
				y.value[s] = y.price[l] + y.value[y.linkTo[l]]
			}
		}
		kept, fit := len(order), true
		for _, s := range short {
			if y.stays[s] {
				continue
			}
			if y.join(s, d, to) {
				order = append(order, s)
				continue
			}
			fit, fits[s] = false, 0
			for at := s; !y.stays[at] && at != d; at = y.linkTo[y.linkAt(at, y.was[at].way)] {
				y.stays[at] = true
			}
		}
		switch {
		case !fit:
		case kept == 0:
			delete(y.order, to.lid)
			return short
		default:
			y.order[to.lid] = order
			return order
		}
	}
}

// join gives a switch the cheapest candidate whose path fits into a layer of the pair.
func (y *stacked) join(s, d int32, to dest) bool {
	fits := y.fits[to.lid]
	need := y.front[s] & y.later[y.index+1][s] & y.pair[s][d]
	best, least := fabric.None, int64(math.MaxInt64)
	for _, l := range y.c.of(s) {
		if in, _ := y.onward(l, fits); fits[y.linkTo[l]] == 0 || in&need == 0 {
			continue
		}
		v := y.price[l] + y.value[y.linkTo[l]]
		if len(y.before) > 0 {
			v += y.sharing(s, l, d)
		}
		if v < least {
			best, least = l, v
		}
	}
	if best == fabric.None {
		return false
	}
	y.direct(s, to.lid, best)
	y.value[s] = least
	fits[s], y.falls[s] = y.onward(best, fits)
	return true
}

// layers puts each pair into one of the layers that all of its paths fit into.
func (y *stacked) layers(count int) Layers {
	of, flat := make(Layers, y.n), make([]uint8, y.n*y.n)
	for s := range of {
		of[s] = flat[s*y.n : (s+1)*y.n]
		for d := range s {
			k, in := (s+d)%count, y.pair[s][d]&y.pair[d][s]
			for in>>k&1 == 0 {
				k = (k + 1) % count
			}
			of[s][d], of[d][s] = uint8(k), uint8(k)
		}
	}
	return of
}

// near reports whether the switches are near enough to each other for layers to be stacked.
func (b *builder) near() bool {
	dist, sum, count := make([]int32, b.n), 0, 0
	for s := 0; s < b.n; s += 1 + b.n/64 {
		for _, t := range b.bfs(dist, nil, int32(s)) {
			sum += int(dist[t])
			count++
		}
	}
	return sum <= stackedHops*count
}

// stacked returns tables, and the load of the busiest link in tables on one lane from a
// single pass. If these have nearly as few flows as any, it returns no tables.
func (b *builder) stacked(count int) (r Result, one float64) {
	s := builder{graph: b.shared(stackedPairs)}
	levels, _ := s.levels()
	pos := s.firstOrder(above(levels), s.remoteness(), s.from(s.centre()))
	f := newFluid(s.graph)
	if p := s.connectedOrder(s.edgeLast()); f.score(newUpDown(s.graph, p)) < orderClear*f.score(newUpDown(s.graph, pos)) {
		pos = p
	}
	order, e := s.named(pos), newUpDown(s.graph, pos)
	trunk, bound := s.trunk(order), s.bound()
	base := newAssignment(s.graph, e, 0)
	base.pass()
	if quick := base.worst(); float64(bound) > layeredGain*float64(quick) {
		return Result{Worst: math.Inf(1)}, float64(quick) / 16
	}
	y := newStacked(s.graph, s.stack(pos, trunk, count), count)
	y.begin(e, base.way)
	var best Result
	worst := int64(math.MaxInt64)
	for n, stale := 0, 0; n < stackedPasses && stale < 2 && worst > bound; n++ {
		limit := int64(0)
		if n >= stackedSharp {
			y.sharpen(worst)
			limit = worst * 3 / 4
		}
		y.pass(limit)
		if w := y.worst(); w < worst {
			best, worst, stale = Result{LFT: y.tables(), SL: y.layers(count)}, w, 0
		} else {
			stale++
		}
	}
	b.spread(s.graph, best.LFT)
	for _, row := range best.SL {
		best.NumLayers = max(best.NumLayers, int(slices.Max(row))+1)
	}
	best.Engine, best.Order, best.Trunk = Layered, order, trunk
	best.Worst, best.Bound = float64(worst)/16, float64(bound)/16
	return best, float64(base.worst()) / 16
}
