package route

import (
	"bytes"
	"math"
	"slices"

	"ibnetworkd/sm/fabric"
)

// stemSurveys is how often the cheapest ways to a switch are found again because those
// found before have become full, on average at most; firstSurveys are besides.
const stemSurveys, firstSurveys = 8, 500

// stemsWork is from which passWork on the tables of trees whose links have one speed are made by
// stems: where assign has no time for several variants.
const stemsWork = assignWork / 4

// stems makes the tables of trees that are too large for assignment. Each LID has a stem: the
// least loaded way down to it from the top. From all other switches flows go up until they meet
// the stem, so those to one LID come together as early as they can, and no switch has to
// compare its links. Where links are missing or would get more than limit, the flows of
// single switches take the cheapest way that was found for all LIDs of the destination.
type stems struct {
	*assignment
	level   []int32
	prev    [][]uint8 // tables in force, whose entries stay if they can; nil for none
	placeOf []uint8   // with prev, by switch and port: the place of the link among those of the switch
	unled   [][]int32 // with prev, by switch: links that no entry leads to
	lft     [][]uint8
	none    []uint8 // NoPort by switch
	limit   int64
	above   [][]step // by switch: the links to it from switches above it
	under   [][]step // by switch: those from switches under it
	listed  []uint64 // by link, a bit: candidates of switches that have not only consecutive ones
	into    []int64  // by switch: the loads of the links to it from above, or of all if there are none
	ports   []int64  // by switch: how many those are
	round   int32    // counts LIDs
	queue   []int32  // switches with a way to the current LID, each after the one that it leads to
	grown   []int32  // memory for that
	spare   []int32  // by switch: the place in the candidates of the next one for LIDs without flows there
	used    []bool   // by switch: whether flows to the current LID that have their way pass it
	loaded  []int32  // switches with flows to the current LID, the farthest first
	astray  []int32  // switches with hosts whose flows have no way yet
	rest    int64    // hosts that have a way to the current switch
	// Of the way down to each switch from the top, by switch: the last link and its switch, the load
	// of the way, and the LID that it is for.
	last   []int32
	upper  []int32
	least  []int64
	climbs []int32
	// By switch: the link of the cheapest way to the current switch when last surveyed, and how many surveys are left.
	other   []int32
	surveys int
	known   bool
}

// step is the parallel links by which a switch leads to another.
type step struct{ from, first, count int32 }

func (b *builder) newStems(e engine, prev [][]uint8, limit int64) *stems {
	lft := newTables(b.graph)
	e = &columns{e, b.graph, prev, lft}
	y := &stems{assignment: bareAssignment(b.graph, e, 0), level: b.level, prev: prev, lft: lft, limit: limit,
		none:  bytes.Repeat([]byte{NoPort}, b.n),
		above: make([][]step, b.n), under: make([][]step, b.n), listed: make([]uint64, len(b.port)/64+1), into: make([]int64, b.n),
		ports: make([]int64, b.n), used: make([]bool, b.n), spare: make([]int32, b.n),
		last: make([]int32, b.n), upper: make([]int32, b.n), least: make([]int64, b.n), climbs: make([]int32, b.n), other: make([]int32, b.n),
		surveys: firstSurveys}
	y.price, y.ahead = y.load, y.procs > 1
	for s := range int32(b.n) {
		first, end := b.neighbours(s)
		for i := first; i < end; i++ {
			l, n := b.link[i], b.link[i+1]-b.link[i]
			if t := b.peer[i]; b.level[s] > b.level[t] {
				y.above[t] = append(y.above[t], step{s, l, n})
			} else {
				y.under[t] = append(y.under[t], step{s, l, n})
			}
		}
	}
	for t, above := range y.above {
		from := above
		if len(above) == 0 {
			from = y.under[t]
		}
		for _, e := range from {
			y.ports[t] += int64(e.count)
		}
	}
	return y
}

// large reports whether stems makes better tables for a tree than assign has time for.
func (b *builder) large() bool {
	return b.level != nil && b.passWork() > stemsWork && !b.several()
}

// byStems makes tables for a tree: those in force, repaired, or new ones if the busiest link would
// otherwise have more than a tenth more flows than with these. Those in force stay as they are if all
// entries lead somewhere and no link is new.
func (b *builder) byStems(e engine, bound int64) tables {
	limit := bound + bound/10
	if !b.inForce() {
		return b.stemsFor(e, nil, limit).made()
	}
	y := b.newStems(e, b.prev, limit)
	settled := !y.compare()
	if settled {
		y.limit = math.MaxInt64
	}
	y.fill()
	if y.worst() <= limit {
		return y.made()
	}
	fresh := b.stemsFor(e, nil, limit)
	if w := fresh.worst(); limit < w+w/10 {
		limit = w + w/10
	}
	if settled && y.worst() <= limit {
		return y.made()
	}
	if again := b.stemsFor(e, b.prev, limit); again.worst() <= limit {
		return again.made()
	}
	if y.worst() <= limit {
		return y.made()
	}
	return fresh.made()
}

// stemsFor makes the tables with a limit, which follow prev if it is not nil.
func (b *builder) stemsFor(e engine, prev [][]uint8, limit int64) *stems {
	y := b.newStems(e, prev, limit)
	if prev != nil {
		y.compare()
	}
	y.fill()
	return y
}

func (y *stems) made() tables { return tables{y.lft, y.load, y.lost} }

// fill makes the tables.
func (y *stems) fill() {
	var list []int32
	for d, dests := range y.dests {
		if len(dests) > 0 {
			list = append(list, int32(d))
		}
	}
	y.towards(list, func(d int32) bool {
		y.lost += y.c.lost
		y.visit(d)
		return true
	})
	write := func(c *candidates) { c.write(y.lft, y.dests) }
	write(y.c)
	for _, batch := range y.batches {
		for _, c := range batch {
			write(c)
		}
	}
}

// visit makes the entries for the LIDs of a switch.
func (y *stems) visit(d int32) {
	clear(y.listed)
	y.known, y.surveys, y.rest = false, y.surveys+stemSurveys, 0
	for _, s := range y.c.order {
		y.rest += y.hosts[s]
		y.spare[s] = y.c.first[s] + d%(y.c.last[s]-y.c.first[s])
		if y.c.last[s] > y.c.all {
			for _, l := range y.c.of(s) {
				y.listed[l>>6] |= 1 << (l & 63)
			}
		}
	}
	for k, to := range y.dests[d] {
		ports := y.c.entries[k*y.n:][:y.n]
		if y.round++; y.prev == nil || !y.adopt(ports) {
			y.grow(d)
		}
		if to.kind != uncounted && !y.fits(d, to) {
			y.divide(d, to)
		}
		copy(ports, y.none)
		for _, s := range y.c.order {
			l := y.next[s]
			if l == fabric.None {
				l = y.c.links[y.spare[s]]
				if y.spare[s]++; y.spare[s] == y.c.last[s] {
					y.spare[s] = y.c.first[s]
				}
			}
			ports[s] = y.port[l]
		}
		ports[d] = to.port
	}
}

// columns are the entries of tables for the LIDs of one switch after the other, which are found and written
// with the candidates, maybe on another processor.
type columns struct {
	engine
	g         *graph
	prev, lft [][]uint8
}

func (e *columns) towards(d int32, c *candidates) {
	c.write(e.lft, e.g.dests)
	e.engine.towards(d, c)
	c.gather(d, e.g.n, e.prev, e.g.dests[d])
}

// gather sets entries to those in force for the LIDs of a switch, NoPort where there are none.
func (c *candidates) gather(d int32, n int, prev [][]uint8, dests []dest) {
	c.goal = d
	c.entries = slices.Grow(c.entries[:0], len(dests)*n)[:len(dests)*n]
	for s, row := range prev {
		for k, to := range dests {
			port := NoPort
			if int(to.lid) < len(row) {
				port = row[to.lid]
			}
			c.entries[k*n+s] = port
		}
	}
}

// write puts the entries of the switch that gather was called for last into tables.
func (c *candidates) write(lft [][]uint8, dests [][]dest) {
	if len(c.entries) == 0 {
		return
	}
	for s, row := range lft {
		for k, to := range dests[c.goal] {
			row[to.lid] = c.entries[k*len(lft)+s]
		}
	}
	c.entries = c.entries[:0]
}

// candidate reports whether a link is a candidate of its switch.
func (y *stems) candidate(s, l int32) bool {
	if y.c.last[s] <= y.c.all {
		return y.c.first[s] <= l && l < y.c.last[s]
	}
	return y.listed[l>>6]>>(l&63)&1 != 0
}

// compare finds the links that no entry in force leads to, and reports whether there are any, or
// entries that lead nowhere.
func (y *stems) compare() (differ bool) {
	y.placeOf, y.unled = bytes.Repeat([]byte{NoPort}, y.n<<8), make([][]int32, y.n)
	of := slices.Repeat([]int32{fabric.None}, y.top+1)
	for d, dests := range y.dests {
		for _, to := range dests {
			of[to.lid] = int32(d)
		}
	}
	for s := range int32(y.n) {
		first, end := y.linksOf(s)
		for l := first; l < end; l++ {
			y.placeOf[s<<8|int32(y.port[l])] = uint8(l - first)
		}
		places := y.placeOf[s<<8:][:256]
		var led [256]bool
		for lid, d := range of {
			if d == fabric.None || d == s {
				continue
			}
			place := NoPort
			if lid < len(y.prev[s]) {
				place = places[y.prev[s][lid]]
			}
			led[place] = true
		}
		for l := first; l < end; l++ {
			if !led[l-first] {
				y.unled[s] = append(y.unled[s], l)
			}
		}
		differ = differ || led[NoPort] || len(y.unled[s]) > 0
	}
	return differ
}

// adopt sets next to the entries in force for a LID that are candidates, and reports whether there are any.
func (y *stems) adopt(ports []uint8) (some bool) {
	for _, s := range y.c.order {
		y.next[s] = fabric.None
		if place := y.placeOf[int(s)<<8|int(ports[s])]; place != NoPort {
			if l := y.start[s] + int32(place); y.candidate(s, l) {
				y.next[s], some = l, true
			}
		}
	}
	y.queue = y.c.order
	return some
}

// grow sets next to a stem, and to links that lead to it.
func (y *stems) grow(d int32) {
	for _, s := range y.c.order {
		y.next[s] = fabric.None
	}
	y.climb(d)
	q := y.grown[:0]
	for s := d; y.last[s] != fabric.None; {
		l := y.last[s]
		s = y.upper[s]
		y.next[s] = l
		q = append(q, s)
	}
	q = y.below(d, d, q)
	for i := 0; i < len(q); i++ {
		q = y.below(q[i], d, q)
	}
	y.grown, y.queue = q, q
}

// below gives the switches below one, if they have no way to d yet, one through it.
func (y *stems) below(t, d int32, q []int32) []int32 {
	for _, e := range y.under[t] {
		if y.next[e.from] != fabric.None || e.from == d {
			continue
		}
		if l := y.leastOf(e); l != fabric.None {
			y.next[e.from] = l
			q = append(q, e.from)
		}
	}
	return q
}

// leastOf is the candidate with the least load of a step, None if it has none.
func (y *stems) leastOf(e step) int32 {
	if e.count == 1 {
		if y.candidate(e.from, e.first) {
			return e.first
		}
		return fabric.None
	}
	best := fabric.None
	for l := e.first; l < e.first+e.count; l++ {
		if (best == fabric.None || y.load[l] < y.load[best]) && y.candidate(e.from, l) {
			best = l
		}
	}
	return best
}

// climb finds the least loaded way from the top down to a switch, and returns its load.
func (y *stems) climb(t int32) int64 {
	if y.climbs[t] == y.round {
		return y.least[t]
	}
	y.climbs[t] = y.round
	best, least, from := fabric.None, int64(0), fabric.None
	for _, e := range y.above[t] {
		l := y.leastOf(e)
		if l == fabric.None {
			continue
		}
		v := y.load[l] + y.climb(e.from) + y.mean(e.from)
		if y.load[l]+y.rest*y.cost[l] > y.limit {
			v += crowded
		}
		if best == fabric.None || v < least {
			best, least, from = l, v, e.from
		}
	}
	y.last[t], y.upper[t], y.least[t] = best, from, least
	return least
}

// mean is the mean load of the links from above to a switch, from below where there is none above.
func (y *stems) mean(s int32) int64 { return y.into[s] / max(1, y.ports[s]) }

// fits finds the flows to a LID of d, and adds them if all have a way, which it reports. No link on it
// gets more than limit.
func (y *stems) fits(d int32, to dest) bool {
	copy(y.flow, y.hosts)
	y.loaded = y.loaded[:0]
	fits := true
	for _, s := range slices.Backward(y.queue) {
		n := y.flow[s]
		if n == 0 {
			continue
		}
		y.loaded = append(y.loaded, s)
		l := y.next[s]
		if l == fabric.None {
			fits = false
			continue
		}
		if y.unled != nil && len(y.unled[s]) > 0 {
			l = y.renewed(s, l)
			y.next[s] = l
		}
		fits = fits && y.load[l]+n*to.ports*y.cost[l] <= y.limit
		y.flow[y.linkTo[l]] += n
	}
	if !fits || y.flow[d] < y.rest+y.hosts[d] {
		return false
	}
	for _, s := range y.loaded {
		y.put(s, y.next[s], y.flow[s]*to.ports)
	}
	return true
}

// renewed is a link of a switch to take instead of one in force: one that was idle, if that has
// less than half of the load.
func (y *stems) renewed(s, l int32) int32 {
	for _, k := range y.unled[s] {
		if y.load[l] > 2*y.load[k]+32*y.mostHosts*16 && y.candidate(s, k) {
			l = k
		}
	}
	return l
}

// put adds flows to a link of a switch.
func (y *stems) put(s, l int32, n int64) {
	n *= y.cost[l]
	y.load[l] += n
	if t := y.linkTo[l]; y.level[s] > y.level[t] || len(y.above[t]) == 0 {
		y.into[t] += n
	}
}

// divide adds the flows to a LID of d where they have a way on which no link gets more than limit by
// all of them, then those of one switch after the other, the farthest first, where this is so by these alone,
// and then the others, by the cheapest way.
func (y *stems) divide(d int32, to dest) {
	clear(y.used)
	y.used[d] = true
	for _, s := range slices.Backward(y.loaded) {
		l := y.next[s]
		y.used[s] = l != fabric.None && y.used[y.linkTo[l]] && y.load[l]+y.flow[s]*to.ports*y.cost[l] <= y.limit
	}
	copy(y.flow, y.hosts)
	for _, s := range y.loaded {
		if y.used[s] = y.used[s] && y.flow[s] > 0; y.used[s] {
			l := y.next[s]
			y.put(s, l, y.flow[s]*to.ports)
			y.flow[y.linkTo[l]] += y.flow[s]
		}
	}
	y.astray = y.astray[:0]
	for _, s := range slices.Backward(y.c.order) {
		if y.hosts[s] > 0 && !y.used[s] {
			y.astray = append(y.astray, s)
		}
	}
	rest := y.astray
	y.astray = y.astray[:0]
	for _, s := range rest {
		if n := y.hosts[s] * to.ports; y.passes(s, d, n) {
			y.send(s, d, n)
		} else {
			y.astray = append(y.astray, s)
		}
	}
	full := false
	for _, s := range y.astray {
		n := y.hosts[s] * to.ports
		if !y.known {
			y.survey(d)
		}
		y.turn(s, n)
		if !full && y.surveys > 0 && !y.passes(s, d, n) {
			y.survey(d)
			y.turn(s, n)
			full = !y.passes(s, d, n)
		}
		y.send(s, d, n)
	}
}

// passes reports whether a switch has a way to d on which no link gets more than limit by n flows.
func (y *stems) passes(s, d int32, n int64) bool {
	for s != d {
		l := y.next[s]
		if l == fabric.None || y.load[l]+n*y.cost[l] > y.limit {
			return false
		}
		s = y.linkTo[l]
	}
	return true
}

// send adds n flows on the way from a switch to d.
func (y *stems) send(s, d int32, n int64) {
	for s != d {
		l := y.next[s]
		y.used[s] = true
		y.put(s, l, n)
		s = y.linkTo[l]
	}
}

// turn sets next to the cheapest way of a switch, as far as no other flows take it.
func (y *stems) turn(s int32, n int64) {
	if !y.used[s] {
		best, least := fabric.None, int64(math.MaxInt64)
		for _, l := range y.c.of(s) {
			v := y.load[l] + y.value[y.linkTo[l]]
			if y.load[l]+n*y.cost[l] > y.limit {
				v += crowded
			}
			if v < least {
				best, least = l, v
			}
		}
		y.next[s] = best
		s = y.linkTo[best]
	}
	for !y.used[s] && y.other[s] != fabric.None {
		y.next[s] = y.other[s]
		s = y.linkTo[y.next[s]]
	}
}

// survey finds the cheapest ways to d for a switch with hosts.
func (y *stems) survey(d int32) {
	y.known, y.surveys = true, y.surveys-1
	y.value[d], y.other[d] = 0, fabric.None
	n := y.mostHosts
	for _, s := range y.c.order {
		links := y.c.of(s)
		if y.used[s] {
			links = []int32{y.next[s]}
		}
		key := int64(math.MaxInt64)
		for i, l := range links {
			full := (y.limit - y.load[l] - n*y.cost[l]) >> 63 & crowded
			key = min(key, (y.load[l]+y.value[y.linkTo[l]]+full)<<8|int64(i))
		}
		y.other[s], y.value[s] = links[key&0xff], key>>8
	}
}
