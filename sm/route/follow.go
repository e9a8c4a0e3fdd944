package route

import (
	"slices"

	"ibnetworkd/sm/fabric"
)

// inForce reports whether the tables of the last sweep lead to any host: those of
// switches that were just found are empty.
func (b *builder) inForce() bool {
	for s, row := range b.prev {
		for d, dests := range b.dests {
			for _, to := range dests {
				if s != d && to.port != 0 && int(to.lid) < len(row) && row[to.lid] != NoPort {
					return true
				}
			}
		}
	}
	return false
}

// kept are the tables in force, followed, or else the best from nothing. Those from
// nothing are made only as well as is needed to know that.
func (b *builder) kept(e engine, tree bool, bound int64) *assignment {
	if !b.inForce() {
		return b.variants(e, tree, bound).relieved(tree, bound)
	}
	f := b.follower(e)
	limit := bound + bound/10
	var v *variants
	var h *assignment
	if f.grown() {
		v = b.variants(e, tree, bound)
		h = f.mended(v.best().of.merging, limit)
	} else {
		h = f.mended(0, limit)
	}
	fits := h.worst() <= limit
	if fits && !slices.Contains(h.load, 0) {
		return h
	}
	if v == nil {
		v = b.variants(e, tree, bound)
	}
	if fits && !h.lacks(v.best().of) {
		return h
	}
	made := v.relieved(tree, bound)
	limit = made.worst() + made.worst()/10
	h = f.mended(made.merging, limit)
	h.fill(made)
	h.tree = tree
	for n := 0; n < 2*maxRelief && h.worst() > limit; n++ {
		// Where hosts come, tables from nothing let flows come together earlier.
		if n >= maxRelief {
			h.sharpen(h.worst())
		}
		h.relieve(limit, n >= maxRelief && !h.grown)
	}
	if h.worst() <= limit {
		return h
	}
	return made
}

// whole is what adopt says of a LID all of whose entries remain.
const whole = -1

// follower makes tables from those in force.
type follower struct {
	*assignment
	broken []int // see adopt
}

func (b *builder) follower(e engine) follower {
	a := newAssignment(b.graph, e, 0)
	a.ahead = a.procs > 1
	return follower{a, a.adopt(b.prev)}
}

// grown reports whether there are LIDs of hosts that no entries lead to.
func (f follower) grown() bool {
	for _, dests := range f.dests {
		for _, to := range dests {
			if to.kind != uncounted && f.broken[to.lid] == 0 {
				return true
			}
		}
	}
	return false
}

// mended changes entries that lead nowhere any more, over links with no more than limit
// if there are such. What is new gets ways as tables from nothing with merging have.
func (f follower) mended(merging, limit int64) *assignment {
	a := newAssignment(f.graph, f.engine, merging)
	a.revert(f.copied(f.way), slices.Clone(f.load))
	a.lost, a.work, a.ahead, a.batches = f.lost, f.work, f.ahead, f.batches
	which := make([]bool, len(f.broken))
	for lid, kept := range f.broken {
		which[lid] = kept != whole
	}
	a.some(which, func(d int32, to dest) bool {
		if f.broken[to.lid] == 0 {
			a.grown = a.grown || to.port != 0
			a.place(d, to)
			return true
		}
		a.ways(to)
		a.mend(d, to, limit, false)
		return true
	})
	return a
}

// idle is the switches with links without any flow.
func (a *assignment) idle() (from []int32) {
	for s := range int32(a.n) {
		if first, end := a.linksOf(s); slices.Contains(a.load[first:end], 0) {
			from = append(from, s)
		}
	}
	return from
}

// uses reports whether other ways to a LID put flows on a link without any of some switches.
func (a *assignment) uses(row []uint8, from []int32) bool {
	return slices.ContainsFunc(from, func(s int32) bool {
		l := a.linkAt(s, row[s])
		return l != fabric.None && a.load[l] == 0 && a.carries(row, s)
	})
}

// lacks reports whether a link has no flow that has some in other tables.
func (a *assignment) lacks(others *assignment) bool {
	from := a.idle()
	return slices.ContainsFunc(others.way, func(row []uint8) bool { return row != nil && a.uses(row, from) })
}

// fill changes entries that leave a link without any flow that has some in other tables.
func (a *assignment) fill(others *assignment) {
	from := a.idle()
	if len(from) == 0 {
		return
	}
	a.each(func(d int32, to dest) {
		if a.uses(others.way[to.lid], from) {
			a.carry(to, -1)
			a.choose(d, to, true)
			a.carry(to, 1)
			from = a.idle()
		}
	})
}

// adopt takes over the entries of tables that are candidates, with the flows to
// the LIDs for which all are. It returns the other LIDs, with how many of their
// entries remain.
func (a *assignment) adopt(lft [][]uint8) (broken []int) {
	old := a.waysOf(lft)
	broken = slices.Repeat([]int{whole}, a.top+1)
	a.each(func(d int32, to dest) {
		kept, row, was := 0, a.way[to.lid], old[to.lid]
		for _, s := range a.c.order {
			a.next[s] = fabric.None
			if l := a.linkAt(s, was[s]); l != fabric.None && a.c.has(s, l) {
				row[s], a.next[s] = was[s], l
				kept++
			}
		}
		if kept < len(a.c.order) {
			broken[to.lid] = kept
		} else {
			a.flows(to, 1)
		}
	})
	return broken
}
