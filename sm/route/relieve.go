package route

import (
	"slices"

	"ibnetworkd/sm/fabric"
)

const (
	// maxRelief is how often the busiest links are relieved without a gain.
	maxRelief = 3
	// reliefWork bounds that, in links visited; on larger graphs a pass does, up to assignWork.
	reliefWork = 4_000_000
)

// relieved relieves the busiest links for as long as that makes the worst smaller,
// which it returns.
func (a *assignment) relieved(worst, bound int64) int64 {
	stale, step := 0, 3
	var way [][]uint8
	var load []int64
	for worst > bound && stale < maxRelief && a.spent < a.most() {
		if stale == 0 {
			way, load = a.copied(a.way), slices.Clone(a.load)
		}
		a.sharpen(worst)
		a.relieve(worst-worst>>(step+stale)-1, true)
		if now := a.worst(); now < worst {
			worst, step, stale = now, min(step+stale, 5), 0
		} else {
			stale++
		}
	}
	if stale > 0 {
		a.revert(way, load)
	}
	a.sharpen(0)
	return worst
}

// most is what the relief may cost.
func (a *assignment) most() int {
	if !a.tree {
		return reliefWork
	}
	return max(reliefWork, min(a.work, assignWork))
}

// sharpens reports whether there is work left for a pass by sharp prices. In a tree the
// relief alone gains more for less.
func (a *assignment) sharpens() bool {
	if a.tree {
		return a.spent+4*a.work <= a.most()
	}
	return a.spent < a.most()
}

// relieve takes flows off the links with more than limit, as far as the work goes.
func (a *assignment) relieve(limit int64, wide bool) {
	if !a.tree {
		a.spent += a.n * (len(a.port) + a.top) // other ways are long there, and gain little
	}
	last := fabric.None
	a.some(a.passing(limit), func(d int32, to dest) bool {
		if d != last {
			last, a.spent = d, a.spent+a.c.count/4
		}
		a.spent += a.n
		if a.tree && a.spent >= a.most() {
			return false
		}
		if to.kind == uncounted {
			return true
		}
		a.ways(to)
		if a.over(limit) {
			a.flows(to, -1)
			a.mend(d, to, limit, wide)
		}
		return true
	})
}

// passing has the LIDs to which a link with more than limit leads.
func (a *assignment) passing(limit int64) []bool {
	out := make([]bool, a.top+1)
	over := make([]bool, len(a.port))
	var from []int32 // switches with such a link
	for s := range int32(a.n) {
		first, end := a.linksOf(s)
		for l := first; l < end; l++ {
			over[l] = a.load[l] > limit
		}
		if slices.Contains(over[first:end], true) {
			from = append(from, s)
			a.spent += len(out) / 8
		}
	}
	for lid, row := range a.way {
		out[lid] = row != nil && slices.ContainsFunc(from, func(s int32) bool {
			l := a.linkAt(s, row[s])
			return l != fabric.None && over[l]
		})
	}
	return out
}

// mend sets the entries for a LID of switch d that by next lead nowhere or to a busy
// link, for one switch with hosts after the other, and adds the flows: what went
// one way is spread over several that have capacity for a part each.
func (a *assignment) mend(d int32, to dest, limit int64, wide bool) {
	open := a.open
	open[d] = false
	for _, s := range a.c.order {
		l := a.next[s]
		// Where the next switch has no choice, the one before it has; a choice
		// of the next is for all flows through it, one of those before is not.
		open[s] = l == fabric.None || a.busy[l] || open[a.linkTo[l]] && (wide || len(a.c.of(a.linkTo[l])) == 1)
	}
	clear(a.busy)
	// way finds the cheapest link of a switch, and of those that it may lead to.
	var way func(s int32, n int64)
	way = func(s int32, n int64) {
		if a.found[s] == a.search {
			return
		}
		a.found[s] = a.search
		if s == d {
			a.value[d] = 0
		} else if open[s] {
			a.spent += 4 * len(a.c.of(s))
			for _, l := range a.c.of(s) {
				if t := a.linkTo[l]; a.found[t] != a.search {
					way(t, n)
				}
			}
			a.next[s], a.value[s] = a.cheapest(s, d, n, limit)
		} else {
			a.spent += 4
			way(a.linkTo[a.next[s]], n)
			a.value[s] = a.price[a.next[s]] + a.value[a.linkTo[a.next[s]]]
		}
	}
	// With wide, the ways found for one switch serve the next ones while their
	// links have the capacity.
	ready := false
	fits := func(at int32, n int64) bool {
		for at != d {
			way(at, n)
			l := a.next[at]
			if a.load[l]+n*a.cost[l] > limit {
				return false
			}
			at = a.linkTo[l]
		}
		return true
	}
	for i := len(a.c.order) - 1; i >= 0; i-- {
		s := a.c.order[i]
		n := a.hosts[s]
		if to.kind == uncounted || n == 0 {
			continue
		}
		at := s
		for at != d && !open[at] {
			at = a.linkTo[a.next[at]]
		}
		if at != d && (!ready || !fits(at, n)) {
			a.search++
			way(at, n)
			ready = wide
		}
		for at := s; at != d; {
			if open[at] {
				open[at] = false
				a.direct(at, to.lid, a.next[at])
			}
			l := a.next[at]
			a.add(l, n)
			at = a.linkTo[l]
		}
	}
	a.search++
	for _, s := range a.c.order {
		if open[s] {
			way(s, 0)
			a.direct(s, to.lid, a.next[s])
		}
	}
}
