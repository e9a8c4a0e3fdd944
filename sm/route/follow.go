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
	v := b.variants(e, tree, bound)
	if !b.inForce() {
		return v.relieved(tree, bound)
	}
	f := b.follower(e)
	limit := bound + bound/10
	if h, filled := f.followed(v.best().of, limit); !filled && h.worst() <= limit {
		return h
	}
	made := v.relieved(tree, bound)
	limit = made.worst() + made.worst()/10
	h, _ := f.followed(made, limit)
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
	a.ahead = true
	return follower{a, a.adopt(b.prev)}
}

// followed changes entries that lead nowhere any more, over links with no more than limit
// if there are such, and those that leave a link without any flow that made, tables from
// nothing, gives some. It reports whether there was such a link.
func (f follower) followed(made *assignment, limit int64) (a *assignment, filled bool) {
	a = newAssignment(f.graph, f.engine, made.merging)
	a.revert(cloneTables(f.lft), slices.Clone(f.load))
	a.lost, a.work, a.ahead, a.batches = f.lost, f.work, true, f.batches
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
	if !slices.Contains(a.load, 0) {
		return a, false
	}
	a.each(func(d int32, to dest) {
		idle := false
		a.through(made.lft, to, func(l int32, _ int64) bool {
			idle = a.load[l] == 0
			return !idle
		})
		if idle {
			filled = true
			a.carry(to, -1)
			a.choose(d, to, true)
			a.carry(to, 1)
		}
	})
	return a, filled
}

// adopt takes over the entries of tables that are candidates, with the flows to
// the LIDs for which all are. It returns the other LIDs, with how many of their
// entries remain.
func (a *assignment) adopt(lft [][]uint8) (broken []int) {
	broken = slices.Repeat([]int{whole}, a.top+1)
	a.each(func(d int32, to dest) {
		a.lft[d][to.lid] = to.port
		kept := 0
		for _, s := range a.c.order {
			a.next[s] = fabric.None
			if int(s) >= len(lft) || int(to.lid) >= len(lft[s]) {
				continue
			}
			if l := a.linkOf[int(s)<<8|int(lft[s][to.lid])]; l != fabric.None && a.c.has(s, l) {
				a.lft[s][to.lid], a.next[s] = a.port[l], l
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
