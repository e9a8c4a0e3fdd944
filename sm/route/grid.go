package route

import (
	"slices"

	"ibnetworkd/sm/fabric"
)

// grid is a graph that is a mesh or torus: the product of paths and rings.
type grid struct {
	g    *graph
	dims []dim
	at   [][]int32        // by switch: its coordinates
	of   map[string]int32 // switch by coordinates
	// open says that there are no service levels for the date lines. Then the
	// link between the ends of a long ring is taken by those only that are
	// at an end: a packet travelling the ring never waits for that link, so
	// no loop closes.
	open bool
}

type dim struct {
	size int32
	ring bool // the ends are joined
}

// dated reports whether paths of a dimension can close a loop: a ring of four is
// the product of two paths, and on a ring of three no path has two hops.
func (d dim) dated() bool { return d.ring && d.size > 4 }

// layers is the number of service levels that keep the grid free of deadlock:
// one bit for each long ring is set if the path crosses its date line, the link
// between its ends.
func (t *grid) layers() int {
	n := 1
	if t.open {
		return n
	}
	for _, d := range t.dims {
		if d.dated() {
			n *= 2
		}
	}
	return n
}

// full reports whether all switches of each row are joined to each other, so that the grid is
// a HyperX too; not with more dimensions than those are routed with, or with hop weights.
func (t *grid) full() bool {
	more := func(d dim) bool { return d.size > 3 || d.size == 3 && !d.ring }
	return len(t.dims) <= maxRows && t.g.hop == nil && !slices.ContainsFunc(t.dims, more)
}

// lanes is the number of data lanes that all links between switches have.
func (g *graph) lanes() int {
	lanes := 15
	for s := range g.n {
		first, count := g.f.PortRange(g.f.Switches[s].Node)
		for i := first; i < first+count; i++ {
			p := &g.f.Ports[i]
			if p.Num == 0 || g.linkOf[s<<8|int(p.Num)] == fabric.None {
				continue
			}
			switch g.f.LinkVLCap(i) {
			case 2:
				lanes = min(lanes, 2)
			case 3:
				lanes = min(lanes, 4)
			case 4:
				lanes = min(lanes, 8)
			case 5:
			default:
				lanes = 1
			}
		}
	}
	return lanes
}

// grid finds the coordinates of a mesh or torus, nil when the graph is none.
func (g *graph) grid() *grid {
	class := g.factors()
	if class == nil {
		return nil
	}
	var roots []int32
	for i := range class {
		if class.find(int32(i)) == int32(i) {
			roots = append(roots, int32(i))
		}
	}
	t := &grid{g: g, at: make([][]int32, g.n), of: make(map[string]int32, g.n)}
	flat := make([]int32, g.n*len(roots))
	for s := range t.at {
		t.at[s] = flat[s*len(roots) : (s+1)*len(roots)]
	}
	total := 1
	for k, root := range roots {
		size, ring := t.coordinates(k, func(i int32) bool { return class.find(i) == root })
		if size == 0 {
			return nil
		}
		t.dims = append(t.dims, dim{size, ring})
		if total *= int(size); total > g.n {
			return nil
		}
	}
	if total != g.n || !t.whole() {
		return nil
	}
	return t
}

// classes is a union-find: of each element the parent, itself for a root.
type classes []int32

// newClasses is n elements, each in a class of its own.
func newClasses(n int) classes {
	c := make(classes, n)
	for i := range c {
		c[i] = int32(i)
	}
	return c
}

func (c classes) find(i int32) int32 {
	for c[i] != i {
		c[i] = c[c[i]]
		i = c[i]
	}
	return i
}

// join makes one class of those of a and b, with the lower root.
func (c classes) join(a, b int32) {
	if a, b = c.find(a), c.find(b); a != b {
		c[max(a, b)] = min(a, b)
	}
}

// edge is the group of links from s to t, fabric.None when there is none.
func (g *graph) edge(s, t int32) int32 {
	a, b := g.neighbours(s)
	if i, ok := slices.BinarySearch(g.peer[a:b], t); ok {
		return a + int32(i)
	}
	return fabric.None
}

// factors puts the groups of links that belong to the same dimension into one
// class, nil when the graph is no product of paths and rings.
//
// In a product of graphs two edges of one switch that belong to different
// factors span exactly one square, and opposite edges of that square belong to
// the same factor; edges of the same factor span none (in a path or a ring of
// five and more). Joining edges by these two rules leaves one class for each
// dimension, and the caller verifies everything at the end.
func (g *graph) factors() classes {
	const maxDegree = 16
	if g.n < 4 {
		return nil
	}
	for s := range int32(g.n) {
		if a, b := g.neighbours(s); b-a > maxDegree || b == a {
			return nil
		}
	}
	class := newClasses(len(g.peer)) // both directions of a link are one
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			back := g.edge(g.peer[i], s)
			if back == fabric.None {
				return nil
			}
			class.join(i, back)
			for j := i + 1; j < b; j++ {
				if !g.square(class, s, i, j) {
					return nil
				}
			}
		}
	}
	return class
}

// square joins edges i and j of switch s with what they span; false when they
// span more than one square.
func (g *graph) square(class classes, s, i, j int32) bool {
	t, u := g.peer[i], g.peer[j]
	if g.edge(t, u) != fabric.None { // a triangle is a ring of three
		class.join(i, j)
		return true
	}
	corner, n := fabric.None, 0
	a, b := g.neighbours(t)
	for _, w := range g.peer[a:b] {
		if w != s && g.edge(w, u) != fabric.None {
			corner = w
			n++
		}
	}
	switch n {
	case 0:
		class.join(i, j)
	case 1:
		class.join(i, g.edge(u, corner))
		class.join(j, g.edge(t, corner))
	}
	return n < 2
}

// whole fills t.of and says that each place has one switch, each edge is one step
// in one dimension, and each step an edge.
func (t *grid) whole() bool {
	g := t.g
	for s := range int32(g.n) {
		key := t.key(t.at[s])
		if _, dup := t.of[key]; dup {
			return false
		}
		t.of[key] = s
	}
	for s := range int32(g.n) {
		want := 0
		for k, d := range t.dims {
			for _, step := range []int32{-1, 1} {
				v, ok := d.step(t.at[s][k], step)
				if !ok || d.size == 2 && step < 0 && t.at[s][k] == 0 {
					continue
				}
				if g.edge(s, t.move(s, k, v)) == fabric.None {
					return false
				}
				want++
			}
		}
		if a, b := g.neighbours(s); int(b-a) != want {
			return false
		}
	}
	return true
}

// step is the coordinate one step up or down, if there is one.
func (d dim) step(c, step int32) (int32, bool) {
	v := c + step
	switch {
	case v >= 0 && v < d.size:
		return v, true
	case d.ring:
		return (v + d.size) % d.size, true
	}
	return 0, false
}

func (t *grid) key(c []int32) string {
	b := make([]byte, 0, 2*len(c))
	for _, v := range c {
		b = append(b, byte(v), byte(v>>8))
	}
	return string(b)
}

// move is the switch with coordinate k changed to v.
func (t *grid) move(s int32, k int, v int32) int32 {
	c := slices.Clone(t.at[s])
	c[k] = v
	if w, ok := t.of[t.key(c)]; ok {
		return w
	}
	return s
}

// coordinates numbers dimension k: what hangs together without its edges has
// one coordinate, and those parts must form a path or a ring. size 0 means
// they do not.
func (t *grid) coordinates(k int, isEdge func(int32) bool) (size int32, ring bool) {
	g := t.g
	part := make([]int32, g.n)
	for i := range part {
		part[i] = -1
	}
	var queue []int32
	for s := range int32(g.n) {
		if part[s] >= 0 {
			continue
		}
		part[s] = size
		queue = append(queue[:0], s)
		for i := 0; i < len(queue); i++ {
			a, b := g.neighbours(queue[i])
			for j := a; j < b; j++ {
				if p := g.peer[j]; !isEdge(j) && part[p] < 0 {
					part[p] = size
					queue = append(queue, p)
				}
			}
		}
		size++
	}
	if size < 2 || size > 1<<15 {
		return 0, false
	}
	next := make([][]int32, size)
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for j := a; j < b; j++ {
			if x, y := part[s], part[g.peer[j]]; isEdge(j) && !slices.Contains(next[x], y) {
				if x == y || len(next[x]) == 2 {
					return 0, false
				}
				next[x] = append(next[x], y)
			}
		}
	}
	start := int32(0)
	ring = size > 2
	for x, n := range next {
		if len(n) == 1 {
			if ring || size == 2 {
				start = int32(x)
			}
			ring = false
			break
		}
	}
	place := make([]int32, size)
	for i := range place {
		place[i] = -1
	}
	at := start
	for i := int32(0); ; i++ {
		place[at] = i
		slices.Sort(next[at])
		n := slices.IndexFunc(next[at], func(y int32) bool { return place[y] < 0 })
		if n < 0 {
			if i != size-1 {
				return 0, false
			}
			break
		}
		at = next[at][n]
	}
	for s := range t.at {
		t.at[s][k] = place[part[s]]
	}
	return size, ring
}

// toward is the direction, -1 or 1, from coordinate a to b by the shorter way,
// and whether that way goes over the date line. Both ways of a pair agree on
// the date line, so that an answer may use the service level of its request.
func (d dim) toward(a, b int32) (step int32, over bool) {
	direct := int32(1)
	if b < a {
		direct = -1
	}
	if !d.ring {
		return direct, false
	}
	n := max(a, b) - min(a, b)
	switch {
	case 2*n > d.size, 2*n == d.size && min(a, b)%2 == 1:
		return -direct, true
	}
	return direct, false
}

// toward is that of dimension k.
func (t *grid) toward(k int, a, b int32) (step int32, over bool) {
	d := t.dims[k]
	if !t.open || !d.dated() {
		return d.toward(a, b)
	}
	n := max(a, b) - min(a, b)
	step = 1
	if b < a {
		step = -1
	}
	if (a == 0 || a == d.size-1) && 2*n >= d.size {
		return -step, true
	}
	return step, false
}

func (b *builder) dor(r *Result, t *grid) {
	*r = Result{Engine: DOR, NumLayers: t.layers()}
	b.assign(r, &dimensionOrder{t: t})
	if r.NumLayers == 1 {
		return
	}
	r.SL = make(Layers, b.n)
	flat := make([]uint8, b.n*b.n)
	for s := range b.n {
		r.SL[s] = flat[s*b.n : (s+1)*b.n]
		for d := range b.n {
			bit := uint8(1)
			for k, dm := range t.dims {
				if !dm.dated() {
					continue
				}
				if x, y := t.at[s][k], t.at[d][k]; x != y {
					if _, over := dm.toward(x, y); over {
						r.SL[s][d] |= bit
					}
				}
				bit <<= 1
			}
		}
	}
}

// dimensionOrder corrects one coordinate after the other.
type dimensionOrder struct {
	t    *grid
	dist []int32
}

func (o *dimensionOrder) towards(d int32, c *candidates) {
	t := o.t
	g := t.g
	if o.dist == nil {
		o.dist = make([]int32, g.n)
	}
	for s := range int32(g.n) {
		o.dist[s] = 0
		next := fabric.None
		for k, dm := range t.dims {
			a, b := t.at[s][k], t.at[d][k]
			if a == b {
				continue
			}
			step, over := t.toward(k, a, b)
			n := max(a, b) - min(a, b)
			if over {
				n = dm.size - n
			}
			o.dist[s] += n
			if next == fabric.None {
				v, _ := dm.step(a, step)
				next = t.move(s, k, v)
			}
		}
		if s == d {
			continue
		}
		c.begin(s)
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			if g.peer[i] == next {
				c.addGroup(g, i)
			}
		}
		c.end(s)
	}
	slices.SortStableFunc(c.order, func(a, b int32) int { return int(o.dist[a] - o.dist[b]) })
}
