package route

import (
	"slices"

	"ibnetworkd/sm/fabric"
)

const (
	// maxRelief is how often the busiest links are relieved without a gain.
	maxRelief = 3
	// reliefWork bounds that, in links visited.
	reliefWork = 4_000_000
)

// relieved relieves the busiest links for as long as that makes the worst smaller,
// which it returns.
func (a *assignment) relieved(worst, bound int64) int64 {
	stale := 0
	var lft [][]uint8
	var load []int64
	for worst > bound && stale < maxRelief && a.spent < reliefWork {
		if stale == 0 {
			lft, load = cloneTables(a.lft), slices.Clone(a.load)
		}
		a.sharpen(worst)
		a.relieve(worst-worst>>(3+stale)-1, true)
		if now := a.worst(); now < worst {
			worst, stale = now, 0
		} else {
			stale++
		}
	}
	if stale > 0 {
		a.revert(lft, load)
	}
	a.sharpen(0)
	return worst
}

// relieve takes flows off the links with more than limit.
func (a *assignment) relieve(limit int64, wide bool) {
	a.spent += a.n * (len(a.port) + a.top)
	a.each(func(d int32, to dest) {
		if to.kind == uncounted {
			return
		}
		over := false
		a.through(a.lft, to, func(l int32, _ int64) bool {
			if a.load[l] > limit {
				a.busy[l], over = true, true
			}
			return true
		})
		if over {
			a.carry(to, -1)
			a.mend(d, to, limit, wide)
		}
	})
}

// mend sets the entries for a LID of switch d that lead nowhere or to a busy
// link, for one switch with hosts after the other, and adds the flows: what went
// one way is spread over several that have capacity for a part each.
func (a *assignment) mend(d int32, to dest, limit int64, wide bool) {
	open := a.open
	open[d] = false
	for _, s := range a.c.order {
		l := a.linkOf[int(s)<<8|int(a.lft[s][to.lid])]
		// Where the next switch has no choice, the one before it has; a choice
		// of the next is for all flows through it, one of those before is not.
		open[s] = l == fabric.None || a.busy[l] || open[a.linkTo[l]] && (wide || len(a.c.of(a.linkTo[l])) == 1)
	}
	clear(a.busy)
	way := func(n int64) {
		a.spent += len(a.c.links)
		a.value[d] = 0
		for _, s := range a.c.order {
			if open[s] {
				a.next[s], a.value[s] = a.cheapest(s, d, n, limit)
			} else {
				a.next[s] = a.linkOf[int(s)<<8|int(a.lft[s][to.lid])]
				a.value[s] = a.price[a.next[s]] + a.value[a.linkTo[a.next[s]]]
			}
		}
	}
	// With wide, the ways found for one switch serve the next ones while their
	// links have the capacity.
	ready := false
	fits := func(at int32, n int64) bool {
		for at != d {
			l := a.next[at]
			if !open[at] {
				l = a.linkOf[int(at)<<8|int(a.lft[at][to.lid])]
			}
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
			at = a.linkTo[a.linkOf[int(at)<<8|int(a.lft[at][to.lid])]]
		}
		if at != d && (!ready || !fits(at, n)) {
			way(n)
			ready = wide
		}
		for at := s; at != d; {
			if open[at] {
				open[at] = false
				a.lft[at][to.lid] = a.port[a.next[at]]
			}
			l := a.linkOf[int(at)<<8|int(a.lft[at][to.lid])]
			a.add(l, n)
			at = a.linkTo[l]
		}
	}
	way(0)
	for _, s := range a.c.order {
		a.lft[s][to.lid] = a.port[a.next[s]]
	}
}
