package route

import (
	"math"
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
		if to.kind == uncounted || !a.crowds(a.way[to.lid], limit) {
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

// passing has the LIDs to which a link with more than limit leads, and sets above.
func (a *assignment) passing(limit int64) []bool {
	out := make([]bool, a.top+1)
	over := make([]bool, len(a.port))
	clear(a.isAbove)
	a.above = a.above[:0]
	for s := range int32(a.n) {
		first, end := a.linksOf(s)
		for l := first; l < end; l++ {
			over[l] = a.load[l] > limit
		}
		if slices.Contains(over[first:end], true) {
			a.above, a.isAbove[s] = append(a.above, s), true
			a.spent += len(out) / 8
		}
	}
	for lid, row := range a.way {
		out[lid] = row != nil && slices.ContainsFunc(a.above, func(s int32) bool {
			l := a.linkAt(s, row[s])
			return l != fabric.None && over[l]
		})
	}
	return out
}

// crowds reports whether flows to a LID with some ways pass a link with more than limit.
func (a *assignment) crowds(row []uint8, limit int64) bool {
	for _, s := range a.above {
		if l := a.linkAt(s, row[s]); l != fabric.None && a.load[l] > limit && a.carries(row, s) {
			return true
		}
	}
	return false
}

// carries reports whether flows by some ways pass a switch that has a way.
func (g *graph) carries(row []uint8, s int32) bool {
	if g.hosts[s] > 0 {
		return true
	}
	first, end := g.neighbours(s)
	for _, t := range g.peer[first:end] {
		if l := g.linkAt(t, row[t]); l != fabric.None && g.linkTo[l] == s && g.carries(row, t) {
			return true
		}
	}
	return false
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
	// With wide, the ways found for one switch serve the next ones while their
	// links have the capacity.
	ready := false
	fits := func(at int32, n int64) bool {
		for at != d {
			a.search(at, d, n, limit)
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
			a.searches++
			a.search(at, d, n, limit)
			ready = wide
		}
		for at := s; at != d; {
			if open[at] {
				open[at] = false
				a.direct(at, to.lid, a.next[at])
			}
			l := a.next[at]
			a.add(l, n)
			if a.load[l] > limit && !a.isAbove[at] {
				a.above, a.isAbove[at] = append(a.above, at), true
			}
			at = a.linkTo[l]
		}
	}
	a.searches++
	for _, s := range a.c.order {
		if open[s] {
			a.search(s, d, 0, limit)
			a.direct(s, to.lid, a.next[s])
		}
	}
}

// search finds the cheapest link of a switch for n flows to d, and of those that it may lead
// to, where mend has to choose. Links that they bring above limit are the last choice.
func (a *assignment) search(s, d int32, n, limit int64) {
	if a.found[s] == a.searches {
		return
	}
	a.found[s] = a.searches
	if s == d {
		a.value[d] = 0
		return
	}
	if !a.open[s] {
		a.spent += 4
		l := a.next[s]
		t := a.linkTo[l]
		a.search(t, d, n, limit)
		a.value[s] = a.price[l] + a.value[t]
		return
	}
	links := a.c.of(s)
	a.spent += 4 * len(links)
	for _, l := range links {
		if t := a.linkTo[l]; a.found[t] != a.searches {
			a.search(t, d, n, limit)
		}
	}
	if len(a.before) > 0 {
		a.next[s], a.value[s] = a.cheapest(s, d, n, limit)
		return
	}
	// As in lightest, without a branch: crowded if the limit less the load is negative.
	key := int64(math.MaxInt64)
	for i, l := range links {
		full := (limit - a.load[l] - n*a.cost[l]) >> 63 & crowded
		key = min(key, (a.price[l]+a.value[a.linkTo[l]]+full)<<8|int64(i))
	}
	a.next[s], a.value[s] = links[key&0xff], key>>8
}
