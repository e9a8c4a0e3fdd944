package route

import (
	"math"
	"slices"

	"ibnetworkd/sm/fabric"
)

const (
	// spreadCells bounds the pairs of a link and a distance that spreader counts flows for,
	// spreadWork the visits to them for one set of tables.
	spreadCells = 8_000_000
	spreadWork  = 45_000_000
	// spreadMost is how much flows may take more to leave a busy link, in 64ths of the
	// bandwidth of a host.
	spreadMost = 100
)

// mixed reports whether links have several speeds.
func (g *graph) mixed() bool {
	return slices.ContainsFunc(g.cost, func(n int64) bool { return n != g.cost[0] })
}

// even are tables made as if all links had one speed: those on which flows of hosts that
// each send to one other meet the least.
func (b *builder) even(e engine) *assignment {
	g := *b.graph
	g.cost = slices.Repeat([]int64{16}, len(b.port))
	made, _ := (&builder{graph: &g}).balanced(e, merging, g.bound())
	a := newAssignment(b.graph, e, merging)
	a.way = made.way
	a.each(func(_ int32, to dest) { a.carry(to, 1) })
	return a
}

// workOf is about how many links a pass visits, by the first destination.
func (b *builder) workOf(e engine) int {
	c, lids := newCandidates(b.graph), 0
	for d, all := range b.dests {
		if lids == 0 && len(all) > 0 {
			c.reset()
			e.towards(int32(d), c)
		}
		lids += len(all)
	}
	return c.count * lids
}

// spread moves flows off the busiest links with regard to the permutations, where links have
// several speeds: in the best tables, and in such as are even. A slow link gets fewer flows
// than others only if some flows of a permutation meet on another one.
func (v *variants) spread(best *assignment, bound int64) {
	most := best.worst()
	for i, a := range []*assignment{(&builder{graph: best.graph}).even(best.engine), best} {
		work := spreadWork / (1 + 2*i)
		y := newSpreader(a)
		if y == nil {
			v.judge(a, a.worst())
			continue
		}
		y.begin()
		for step, stale := 5, 0; step < 8 && stale < 4; {
			w := a.worst()
			least := v.best().score
			v.judge(a, w)
			if stale++; v.best().score < least || w > most {
				stale = 0
			}
			if w <= bound || y.work >= work {
				break
			}
			limit := w - w>>step - 1
			if w > most {
				limit = max(most, w-w>>3)
			}
			for extra := int64(0); extra < spreadMost && a.worst() > limit && y.work < work; {
				y.pass(limit, extra, false)
				extra = max(extra+8, y.lacks+1)
			}
			if a.worst() > limit {
				step++
			}
			y.pass(max(limit, a.worst()), 0, true)
		}
	}
}

// spreader moves flows to other links with regard to what hosts get that each send to one
// other at a time, in the permutations of Shift: flows of one permutation shall not meet.
type spreader struct {
	*assignment
	hosts  int       // ports of hosts that count
	at     [][]int32 // by switch: places in the order of hosts of those behind it
	place  []int32   // by LID: place of its host, -1 for others
	met    []uint16  // by link and distance in the order: flows
	behind [][]int32 // by switch: places of the hosts whose flows to the current LID pass it
	path   []int32
	lacks  int64 // the least more that a flow that stays on a busy link would take elsewhere
	work   int   // cells of met visited
}

// newSpreader returns nil for graphs that are too large.
func newSpreader(a *assignment) *spreader {
	y := &spreader{assignment: a, at: make([][]int32, a.n), place: slices.Repeat([]int32{-1}, a.top+1), behind: make([][]int32, a.n)}
	for i := range a.f.EndPorts {
		if a.ends != nil {
			i = int(a.ends[i])
		}
		e := a.f.EndPorts[i]
		s, out := a.f.SwitchOf(e)
		if s == fabric.None || out == 0 || a.kind[i] == uncounted {
			continue
		}
		y.at[s] = append(y.at[s], int32(y.hosts))
		if p := &a.f.Ports[e]; a.aims(i) && p.LMC == 0 && p.LID.IsUnicast() {
			y.place[p.LID] = int32(y.hosts)
		}
		y.hosts++
	}
	if y.hosts*len(a.port) > spreadCells {
		return nil
	}
	y.met = make([]uint16, y.hosts*len(a.port))
	return y
}

// begin counts the flows of the tables.
func (y *spreader) begin() {
	clear(y.met)
	y.each(func(d int32, to dest) {
		if y.place[to.lid] < 0 {
			return
		}
		for _, s := range y.c.order {
			if len(y.at[s]) > 0 {
				y.put(y.walk(s, d, to), y.at[s], to, 1)
			}
		}
	})
}

// walk is the path from a switch to a LID of d.
func (y *spreader) walk(s, d int32, to dest) []int32 {
	y.path = y.path[:0]
	for s != d {
		l := y.linkTowards(s, to.lid)
		y.path = append(y.path, l)
		s = y.linkTo[l]
	}
	return y.path
}

// put adds the flows of hosts to a LID to those that meet on a path, or takes them off.
func (y *spreader) put(path, hosts []int32, to dest, by int) {
	y.work += len(path) * len(hosts)
	for _, l := range path {
		row := y.met[int(l)*y.hosts:][:y.hosts]
		for _, h := range hosts {
			row[y.distance(h, to)] += uint16(by)
		}
	}
}

// distance is that of the permutation with the flow of a host to a LID.
func (y *spreader) distance(host int32, to dest) int32 {
	k := y.place[to.lid] - host
	if k < 0 {
		k += int32(y.hosts)
	}
	return k
}

// move puts flows on a path, or takes them off it.
func (y *spreader) move(path, hosts []int32, to dest, by int) {
	y.put(path, hosts, to, by)
	for _, l := range path {
		y.add(l, int64(by*len(hosts))*to.ports)
	}
}

// alone reports whether flows meet no others on their path.
func (y *spreader) alone(path, hosts []int32, to dest) bool {
	y.work += len(path) * len(hosts)
	for _, l := range path {
		row := y.met[int(l)*y.hosts:][:y.hosts]
		for _, h := range hosts {
			if row[y.distance(h, to)] > 1 {
				return false
			}
		}
	}
	return true
}

// taken is what flows would take on a path from others and from themselves, in 64ths of
// the bandwidth of a host, or enough if it is more. Where they meet others on two links,
// these are mostly the same.
func (y *spreader) taken(path, hosts []int32, to dest, enough int64) (sum int64) {
	y.work += len(path) * len(hosts)
	for _, h := range hosts {
		k := int(y.distance(h, to))
		most, all := int64(0), int64(0)
		for _, l := range path {
			v := 64 - 64*16/y.cost[l]
			if n := int64(y.met[int(l)*y.hosts+k]); n > 0 {
				v = 64 + 2*n
			}
			most, all = max(most, v), all+v
		}
		if sum += most + (all-most)/4; sum >= enough {
			return enough
		}
	}
	return sum
}

// pass moves flows off links with more than limit, for as much as extra in 64ths of the
// bandwidth of a host each, and with all those that meet others, for less than they take
// where they are.
func (y *spreader) pass(limit, extra int64, all bool) {
	var which []bool
	y.lacks = spreadMost
	if !all {
		which = y.passing(limit)
	}
	y.some(which, func(d int32, to dest) bool {
		if y.place[to.lid] < 0 {
			return true
		}
		for _, s := range y.c.order {
			y.behind[s] = append(y.behind[s][:0], y.at[s]...)
		}
		for _, s := range slices.Backward(y.c.order) {
			if len(y.behind[s]) > 0 {
				if len(y.c.of(s)) > 1 {
					y.better(s, d, to, limit, extra, all)
				}
				t := y.linkTo[y.linkTowards(s, to.lid)]
				if t != d {
					y.behind[t] = append(y.behind[t], y.behind[s]...)
				}
			}
		}
		return true
	})
}

// better gives a switch another link to a LID of d if flows then take less.
func (y *spreader) better(s, d int32, to dest, limit, extra int64, all bool) {
	hosts := y.behind[s]
	n := int64(len(hosts)) * to.ports
	path := y.walk(s, d, to)
	over := slices.ContainsFunc(path, func(l int32) bool { return y.load[l] > limit })
	if !over && (!all || y.alone(path, hosts, to)) {
		return
	}
	y.move(path, hosts, to, -1)
	old := y.linkTowards(s, to.lid)
	was := y.taken(path, hosts, to, math.MaxInt64)
	best, least := old, int64(math.MaxInt64)
	if !over {
		least = was - was/64
	}
	for _, l := range y.c.of(s) {
		if l == old {
			continue
		}
		y.direct(s, to.lid, l)
		path := y.walk(s, d, to)
		if slices.ContainsFunc(path, func(e int32) bool { return y.load[e]+n*y.cost[e] > limit }) {
			continue
		}
		if v := y.taken(path, hosts, to, least); v < least {
			best, least = l, v
		}
	}
	if over && best != old && least >= was+extra*n {
		best, y.lacks = old, min(y.lacks, (least-was)/n)
	}
	y.direct(s, to.lid, best)
	y.move(y.walk(s, d, to), hosts, to, 1)
}
