package route

import (
	"cmp"
	"slices"

	"ibnetworkd/sm/fabric"
)

const (
	// maxRows is the number of dimensions up to which a graph counts as a product of rows.
	maxRows = 6
	// rowsWork bounds the search for them, in pairs of links of a switch.
	rowsWork = 2_000_000
	// rowsNear is how many times the least load of the busiest link, or score, counts as the
	// same.
	rowsNear = 1.05
	// rowsLater is how many times the flows over the busiest link tables in force may have that
	// stay, and rowsSame the part of the entries by which their order is known.
	rowsLater = 1.1
	rowsSame  = 0.8
	// rowsAlike is how much smaller that part may be with classes of another kind.
	rowsAlike = 0.1
	// endOfRows is above the classes of all links.
	endOfRows uint8 = 255
)

// rows is dimension order on a HyperX, whose switches form a product of rows, in each of
// which nearly every switch is joined to every other. A path goes through one dimension
// after the other, and within a row up to switches earlier in an order, then down. So it
// gets around links that are missing.
//
// Each link has a class: those up in the first dimension, those down, those up in the
// second and so on. No class along a path is below one before it, and within one the
// switches come ever earlier or ever later in the order, so no credit loop can close.
//
// Where switches or cables are missing, some links have classes of their own, above others,
// so that paths may take dimensions in another order (see late and withEnds).
type rows struct {
	g     *graph
	class []uint8 // by group of links, from 1
	dist  []int32
	// of the current destination, by switch: the highest class that its path can begin with,
	// and the highest of the links by which others reach it
	begins, needs []uint8
	queue         []int32
}

// dimensions puts the groups of links into the rows' dimensions, numbered from 0, and
// returns how many there are; 0 if the graph is no product of rows.
//
// Three switches joined to each other are in one row, and opposite sides of a square whose
// corners are not joined are in one dimension. Links that are missing hide some of these,
// but make none that is wrong.
func (g *graph) dimensions() (dim []uint8, count int) {
	work := 0
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		work += int(b-a) * int(b-a)
	}
	if work > rowsWork {
		return nil, 0
	}
	class := newClasses(len(g.peer))
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			class.join(i, g.edge(g.peer[i], s))
		}
	}
	// Triangles take less work, and with these a square or two often show that there is one
	// class, as on a tree with a cable between leaves.
	g.angles(class, func(_, i, j, side int32) {
		if side != fabric.None {
			class.join(i, j)
			class.join(i, side)
		}
	})
	g.angles(class, func(s, i, j, side int32) {
		if side == fabric.None {
			g.squares(class, s, i, j)
		}
	})
	if class.one() {
		return nil, 0
	}
	number := map[int32]uint8{}
	dim = make([]uint8, len(g.peer))
	for i := range dim {
		root := class.find(int32(i))
		n, ok := number[root]
		if !ok {
			if len(number) == maxRows {
				return nil, 0
			}
			n = uint8(len(number))
			number[root] = n
		}
		dim[i] = n
	}
	return dim, len(number)
}

// angles calls f with each switch, each two of its edges and that between the switches that
// they lead to, None if these are not joined, until there is one class.
func (g *graph) angles(class classes, f func(s, i, j, side int32)) {
	for s := range int32(g.n) {
		if class.one() {
			return
		}
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			for j := i + 1; j < b; j++ {
				f(s, i, j, g.edge(g.peer[i], g.peer[j]))
			}
		}
	}
}

// one reports whether all edges are in one class.
func (c classes) one() bool {
	return !slices.ContainsFunc(c, func(i int32) bool { return c.find(i) != 0 })
}

// squares joins the opposite sides of each square that edges i and j of switch s span.
func (g *graph) squares(class classes, s, i, j int32) {
	k, lastOfT := g.neighbours(g.peer[i])
	l, lastOfU := g.neighbours(g.peer[j])
	for k < lastOfT && l < lastOfU {
		switch v, w := g.peer[k], g.peer[l]; {
		case v < w:
			k++
		case v > w:
			l++
		default:
			if w != s && g.edge(w, s) == fabric.None {
				class.join(i, l)
				class.join(j, k)
			}
			k, l = k+1, l+1
		}
	}
}

// allRows returns the orders of dimensions in which all switches are reached, with classes
// for whole rows and for those that lack something.
func (g *graph) allRows() (list []*rows) {
	dim, count := g.dimensions()
	if count < 2 {
		return nil
	}
	links := func(s int32) int32 { first, end := g.linksOf(s); return end - first }
	pos := places(g.n, func(s, t int32) int { return cmp.Compare(links(t), links(s)) })
	for _, order := range orders(count) {
		add := func(r *rows) bool {
			if r == nil || !r.whole() {
				return false
			}
			list = append(list, r)
			return true
		}
		var late [][]uint8
		for k := range count - 1 {
			late = append(late, g.late(dim, order, k, false))
		}
		whole := add(g.rows(dim, order, pos, nil))
		if whole || !add(g.rows(dim, order, pos, [][]uint8{g.late(dim, order, 0, true)})) && g.inAll(dim, count) {
			add(g.rows(dim, order, pos, late))
			add(g.withEnds(dim, order, pos))
		}
	}
	return list
}

// inAll reports whether a switch has links in all dimensions: on a long ring, where each link
// is a dimension, none has.
func (g *graph) inAll(dim []uint8, count int) bool {
	for s := range int32(g.n) {
		first, end := g.neighbours(s)
		var in uint
		for _, d := range dim[first:end] {
			in |= 1 << d
		}
		if in == 1<<count-1 {
			return true
		}
	}
	return false
}

// rows gives links their classes by an order of dimensions and the places of switches. late
// is by dimension in order, nil for none. It returns nil if no plane is late, or too many.
func (g *graph) rows(dim, order []uint8, pos []int32, late [][]uint8) *rows {
	// By dimension in order: the classes of links within a plane of it and those after it.
	width, some := slices.Repeat([]int{2}, len(order)), late == nil
	for k := len(order) - 2; k >= 0; k-- {
		width[k] = 2 + width[k+1]
		if k < len(late) {
			most := int(slices.Max(late[k]))
			width[k], some = width[k]*(1+most), some || most > 0
		}
	}
	if !some || width[0] >= int(endOfRows) {
		return nil
	}
	return g.classed(dim, order, pos, func(_, t int32, k int) int {
		class := 2 * k
		for n := range min(k+1, len(late)) {
			class += int(late[n][t]) * (2 + width[n+1])
		}
		return class
	})
}

// classed makes rows of the classes that links between two switches in a dimension, counted
// in order, have if they lead up.
func (g *graph) classed(dim, order []uint8, pos []int32, class func(s, t int32, k int) int) *rows {
	r := &rows{g: g, class: make([]uint8, len(dim)), dist: make([]int32, g.n), begins: make([]uint8, g.n), needs: make([]uint8, g.n)}
	for s := range int32(g.n) {
		first, end := g.neighbours(s)
		for i := first; i < end; i++ {
			t := g.peer[i]
			r.class[i] = uint8(1 + class(s, t, int(order[dim[i]])))
			if pos[t] > pos[s] {
				r.class[i]++
			}
		}
	}
	return r
}

// late numbers the planes of a dimension that lack links, or switches, by switch from 1, 0 for
// the others.
// A plane is the switches that the dimensions after this one join. Links into late planes, and
// within them, are above all others, those of higher numbers above the rest: a path from
// another plane may enter it last. Numbers count within the plane of the dimension before.
func (g *graph) late(dim, order []uint8, k int, switches bool) []uint8 {
	outer, plane := newClasses(g.n), newClasses(g.n)
	each := func(f func(s, t int32, at int)) {
		for s := range int32(g.n) {
			first, end := g.neighbours(s)
			for i := first; i < end; i++ {
				f(s, g.peer[i], int(order[dim[i]]))
			}
		}
	}
	each(func(s, t int32, at int) {
		if at >= k {
			outer.join(s, t)
		}
		if at > k {
			plane.join(s, t)
		}
	})
	size := make([]int, g.n)
	if switches {
		for s := range int32(g.n) {
			size[plane.find(s)]++
		}
	} else {
		each(func(s, _ int32, at int) {
			if at > k {
				size[plane.find(s)]++
			}
		})
	}
	var lack []int32
	for s, whole := int32(0), slices.Max(size); int(s) < g.n; s++ {
		if plane.find(s) == s && size[s] < whole {
			lack = append(lack, s)
		}
	}
	slices.SortStableFunc(lack, func(x, y int32) int { return cmp.Compare(size[y], size[x]) })
	number, count := make([]uint8, g.n), make([]uint8, g.n)
	for _, s := range lack {
		o := outer.find(s)
		count[o] = min(count[o]+1, endOfRows)
		number[s] = count[o]
	}
	for s := range number {
		number[s] = number[plane.find(int32(s))]
	}
	return number
}

// withEnds gives links at switches that lack links classes of their own: those that lead to
// such a switch are above the others of their dimension. In the last dimension but one they
// are above all others, so that paths may enter the row of the switch by the last dimension;
// and from there links of the last dimension lead on. It returns nil if no switch lacks links.
func (g *graph) withEnds(dim, order []uint8, pos []int32) *rows {
	links := make([]int32, g.n)
	for s := range int32(g.n) {
		first, end := g.neighbours(s)
		links[s] = end - first
	}
	full, last := slices.Max(links), len(order)-1
	if slices.Min(links) == full || 4*last+6 >= int(endOfRows) {
		return nil
	}
	return g.classed(dim, order, pos, func(s, t int32, k int) int {
		lacks := links[t] < full
		class := 4 * k
		switch {
		case k == last && links[s] < full:
			class += 4
		case k == last && lacks:
			class += 6
		case k == last:
			class -= 2
		case k == last-1 && lacks:
			class += 4
		case lacks:
			class += 2
		}
		return class
	})
}

// followedBy returns those of some rows that tables follow nearly everywhere, those first that
// they follow most.
func (g *graph) followedBy(list []*rows, lft [][]uint8) (followed []*rows) {
	share := map[*rows]float64{}
	for _, e := range list {
		all, same := 0, 0
		c := newCandidates(g)
		for d := range int32(g.n) {
			if len(g.dests[d]) == 0 {
				continue
			}
			c.reset()
			e.towards(d, c)
			a, n := g.following(c, g.dests[d][:1], lft) // the switch itself
			all, same = all+a, same+n
		}
		if share[e] = float64(same) / float64(max(1, all)); share[e] > rowsSame {
			followed = append(followed, e)
		}
	}
	slices.SortStableFunc(followed, func(x, y *rows) int { return cmp.Compare(share[y], share[x]) })
	return slices.DeleteFunc(followed, func(e *rows) bool { return share[e] < share[followed[0]]-rowsAlike })
}

// following counts the entries for destinations of one switch, and those that are among
// the candidates.
func (g *graph) following(c *candidates, dests []dest, lft [][]uint8) (all, same int) {
	for _, to := range dests {
		for _, s := range c.order {
			all++
			if int(s) >= len(lft) || int(to.lid) >= len(lft[s]) {
				continue
			}
			if slices.Contains(c.of(s), g.linkOf[int(s)<<8|int(lft[s][to.lid])]) {
				same++
			}
		}
	}
	return all, same
}

// follow reports whether tables have no entry on the way to the first LID of each port but
// those that an engine allows.
func (g *graph) follow(e engine, lft [][]uint8) bool {
	c := newCandidates(g)
	for d, dests := range g.dests {
		c.reset()
		e.towards(int32(d), c)
		var first []dest
		for i, to := range dests {
			if i == 0 || dests[i-1].port != to.port {
				first = append(first, to)
			}
		}
		if all, same := g.following(c, first, lft); same < all {
			return false
		}
	}
	return true
}

// product makes tables for a product of rows: through these, or by up/down if that is better.
// Tables in force of either kind stay unless the other one is much better, or while no switch,
// cable or host has come and no cable is out. On large graphs the scores decide, for tables made
// in several ways take long.
func (b *builder) product(r *Result, list []*rows, settled bool) {
	if settled && b.prior != nil {
		b.upDown(r)
		return
	}
	score, inForce := b.through(r, list, settled)
	if inForce && settled || r.Worst <= rowsNear*r.Bound {
		return
	}
	updn, stays := *b, 1.0
	switch {
	case inForce:
		updn.prev, stays = nil, rowsLater
	case b.prior != nil:
		stays = 1 / rowsLater
	}
	large := b.pairs() > stackedPairs
	if !large && updn.prev != nil && b.prior != nil && !b.several() {
		y := Result{NumLayers: 1}
		if updn.upDown(&y); r.Worst > stays*y.Worst {
			*r = y
		}
		return
	}
	pos := updn.searched()
	if large && score <= stays*newFluid(b.graph).score(newUpDown(b.graph, pos)) {
		return
	}
	y := Result{Engine: UpDown, NumLayers: 1}
	if updn.ordered(&y, pos); large || r.Worst > stays*y.Worst {
		*r = y
	}
}

// settled reports whether tables in force lead everywhere, and to each neighbour directly: then
// nothing has changed since they were made but that hosts may have gone.
func (b *builder) settled() bool {
	if len(b.prev) != b.n {
		return false
	}
	for s, row := range b.prev {
		for d, dests := range b.dests {
			near := b.edge(int32(s), int32(d)) != fabric.None
			for _, to := range dests {
				if s == d {
					break
				}
				if int(to.lid) >= len(row) {
					return false
				}
				if l := b.linkOf[s<<8|int(row[to.lid])]; l == fabric.None || near && b.linkTo[l] != int32(d) {
					return false
				}
			}
		}
	}
	return true
}

// through makes tables through rows, in the best order of dimensions, or that in force while
// it is nearly as good. It returns the least score, and whether such tables are in force. Tables
// that are settled are by the rows that they follow everywhere.
func (b *builder) through(r *Result, list []*rows, settled bool) (score float64, inForce bool) {
	f := newFluid(b.graph)
	scores := map[*rows]float64{}
	for _, e := range list {
		scores[e] = f.score(e)
	}
	slices.SortStableFunc(list, func(x, y *rows) int { return cmp.Compare(scores[x], scores[y]) })
	score = scores[list[0]]
	large := b.pairs() > stackedPairs
	followed := b.followedBy(list, b.prev)
	if large && !settled {
		slices.SortStableFunc(followed, func(x, y *rows) int { return cmp.Compare(scores[x], scores[y]) })
	}
	for _, e := range followed {
		if inForce && (large || settled || r.Worst <= rowsNear*r.Bound) {
			break
		}
		if settled && !b.follow(e, b.prev) || large && scores[e] > rowsLater*score {
			continue
		}
		y := Result{Engine: DOR, NumLayers: 1}
		if b.assign(&y, e); !inForce || rowsNear*y.Worst < r.Worst {
			*r, inForce = y, true
		}
	}
	from, kept := builder{graph: b.graph}, inForce
	for i, e := range list {
		if scores[e] > rowsNear*score || (i > 0 || kept) && (large || r.Worst <= rowsNear*r.Bound) {
			break
		}
		y, stays := Result{Engine: DOR, NumLayers: 1}, 1.0
		if kept {
			stays = rowsLater
		}
		if from.assign(&y, e); i == 0 && !kept || stays*y.Worst < r.Worst {
			*r, kept = y, false
		}
	}
	return score, inForce
}

// orders are orders of dimensions: all of two or three, of more those that rotate into each
// other.
func orders(count int) (out [][]uint8) {
	for first := range count {
		var up, down []uint8
		for k := range count {
			up = append(up, uint8((first+k)%count))
			down = append(down, uint8((first+count-k)%count))
		}
		out = append(out, up)
		if count > 2 {
			out = append(out, down)
		}
	}
	return out
}

// whole reports whether each switch is reached from all others, those without any link left out.
func (r *rows) whole() bool {
	linked := 0
	for s := range int32(r.g.n) {
		if first, end := r.g.neighbours(s); end > first {
			linked++
		}
	}
	for d := range int32(r.g.n) {
		if n := len(r.reach(d)); n > 1 && n < linked {
			return false
		}
	}
	return true
}

// reach finds the distances to d and the classes that paths can begin with, and returns the
// switches, the nearest first.
func (r *rows) reach(d int32) []int32 {
	g, dist := r.g, r.dist
	for i := range dist {
		dist[i] = -1
	}
	dist[d], r.begins[d] = 0, endOfRows
	q := append(r.queue[:0], d)
	for i := 0; i < len(q); {
		k := dist[q[i]] + 1
		for end := len(q); i < end; i++ {
			t := q[i]
			a, b := g.neighbours(t)
			for j := a; j < b; j++ {
				s := g.peer[j]
				if dist[s] >= 0 && dist[s] < k {
					continue
				}
				c := r.class[g.edge(s, t)]
				switch {
				case c > r.begins[t]:
				case dist[s] < 0:
					dist[s], r.begins[s] = k, c
					q = append(q, s)
				default:
					r.begins[s] = max(r.begins[s], c)
				}
			}
		}
	}
	r.queue = q
	return q
}

func (r *rows) towards(d int32, c *candidates) {
	g := r.g
	q := r.reach(d)
	clear(r.needs)
	for _, s := range slices.Backward(q[1:]) {
		// The farthest first: the switches that send to it are farther.
		c.begin(s)
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			t := g.peer[i]
			if k := r.class[i]; r.dist[t] == r.dist[s]-1 && k <= r.begins[t] && k >= r.needs[s] {
				c.addGroup(g, i)
				r.needs[t] = max(r.needs[t], k)
			}
		}
		c.end(s)
	}
	slices.Reverse(c.order)
	c.lost += g.n - len(q)
}
