package route

import (
	"cmp"
	"fmt"
	"slices"

	"ibnetworkd/sm/fabric"
)

// upDown builds tables for an order of the switches: a link goes up to the
// switch that stands earlier. It reports false, with r undefined, when some
// switches that are connected get no path or a credit loop is left; of a tree
// only what serves says counts.
func (b *builder) upDown(r *Result, pos []int32, tree bool) bool {
	*r = Result{Engine: UpDown, NumLayers: 1}
	e := &upDown{g: b.graph, pos: pos, dist: make([]int32, b.n)}
	if !e.findTurn() {
		return false
	}
	if turns := e.needsTurn(); e.failed || turns && !b.safe(e) || e.failed {
		// Without turns there is no loop, and what they are for may be needed by
		// nobody: in a tree, a way from one switch's own port to another's.
		if e.straight = true; !tree || !b.serves(r, e) {
			return false
		}
	}
	w := r.Warnings
	b.assign(r, e)
	if e.straight {
		r.Warnings = w
	}
	return true
}

// manySwitches is from where on one link that is missing in a tree is no reason
// to give up its other roots.
const manySwitches = 64

// serves reports whether up/down without turns does for the hosts: each reaches
// each, and every switch the manager. Hosts reach the switches' own ports too;
// of a large tree in which a link is missing a few may be left out, which a
// warning says.
func (b *builder) serves(r *Result, e *upDown) bool {
	g := b.graph
	sm := fabric.None
	if g.f.SMPort != fabric.None {
		sm, _ = g.f.SwitchOf(g.f.SMPort)
	}
	c := newCandidates(g.n)
	lost, name := 0, ""
	for d := range int32(g.n) {
		if len(g.dests[d]) == 0 {
			continue
		}
		c.reset()
		e.plain(d, c)
		for s := range int32(g.n) {
			if e.dist[s] >= 0 || e.reach[s] != e.reach[d] || d != sm && g.hosts[s] == 0 {
				continue
			}
			if d == sm || g.hosts[d] > 0 {
				return false
			}
			if lost++; name == "" {
				name = fmt.Sprintf("%s from hosts at %s", g.f.Nodes[g.f.Switches[d].Node].Name(), g.f.Nodes[g.f.Switches[s].Node].Name())
			}
		}
	}
	if lost == 0 {
		return true
	}
	if g.n < manySwitches || lost > g.n {
		return false
	}
	r.Warnings = append(r.Warnings, fmt.Sprintf("links are missing in the tree: the own ports of switches are not reached from some hosts, in %d pairs of switches (%s); hosts reach each other and the subnet manager", lost, name))
	return true
}

// needsTurn reports whether some switch has no legal path to another. Without
// turns the order itself proves that there is no credit loop.
func (u *upDown) needsTurn() bool {
	c := newCandidates(u.g.n)
	for d := range int32(u.g.n) {
		c.reset()
		if u.towards(d, c); u.turned || u.failed {
			return true
		}
	}
	return false
}

// upDown allows paths that go up first and down after that. A table entry
// cannot tell where a packet came from, so a switch that can reach the
// destination by going down only always does: then whoever comes down to it is
// still on a legal path.
//
// With several roots there is no legal path from one root to another, yet a
// root has a port 0 that others want to reach. Such packets go to one chosen
// switch at the bottom, which alone may turn them up again. The turns all lie
// on the way to that one switch; CreditLoop decides whether they are safe.
type upDown struct {
	g      *graph
	pos    []int32 // place in the order, lower is nearer to the roots
	dist   []int32
	level  [2][]int32
	down   []int32
	reach  []int32 // connected component
	turn   int32
	toTurn []int32 // by switch: a link on the way to turn
	tdist  []int32
	turned bool
	failed bool
	// straight leaves away turns, and with them the ways that need one.
	straight bool
}

// findTurn finds a bottom switch that everybody connected to it has a legal
// path to.
func (u *upDown) findTurn() bool {
	g := u.g
	c := newCandidates(g.n)
	u.turn = fabric.None
	u.reach = components(g)
	sizes := map[int32]int{}
	for _, k := range u.reach {
		sizes[k]++
	}
	// The main component is the one to serve; others are left to plain
	// rules, which reach everything with a single root each.
	main := u.reach[0]
	for _, k := range u.reach {
		if sizes[k] > sizes[main] {
			main = k
		}
	}
	tried := 0
	for s := int32(g.n) - 1; s >= 0; s-- {
		at := u.at(s)
		if u.reach[at] != main {
			continue
		}
		c.reset()
		u.plain(at, c)
		if len(c.order)+1 == sizes[main] {
			u.turn = at
			u.toTurn = make([]int32, g.n)
			u.tdist = slices.Clone(u.dist)
			for i := range u.toTurn {
				u.toTurn[i] = fabric.None
			}
			for _, v := range c.order {
				u.toTurn[v] = c.links[c.first[v]]
			}
			return true
		}
		if tried++; tried == 8 {
			return false
		}
	}
	return false
}

// at is the switch at place i of the order.
func (u *upDown) at(i int32) int32 {
	if u.down == nil {
		u.down = make([]int32, u.g.n)
		for s, p := range u.pos {
			u.down[p] = int32(s)
		}
	}
	return u.down[i]
}

func (u *upDown) towards(d int32, c *candidates) {
	u.plain(d, c)
	if c.lost == 0 || u.straight {
		return
	}
	var left []int32
	for s := range int32(u.g.n) {
		if u.dist[s] < 0 && u.reach[s] == u.reach[d] {
			left = append(left, s)
		}
	}
	c.lost -= len(left)
	if len(left) == 0 {
		return
	}
	if u.reach[d] != u.reach[u.turn] || u.turn != d && u.dist[u.turn] < 0 {
		u.failed = true
		return
	}
	u.turned = true
	// Nearest to the turn first: assign goes through the order backwards.
	slices.SortFunc(left, func(a, b int32) int { return cmp.Or(cmp.Compare(u.tdist[a], u.tdist[b]), cmp.Compare(a, b)) })
	for _, s := range left {
		c.begin(s)
		c.links = append(c.links, u.toTurn[s])
		c.end(s)
	}
}

// plain fills c with legal next hops towards d. dist is then the length of the
// path that the rules give, -1 where there is none.
func (u *upDown) plain(d int32, c *candidates) {
	g, pos, dist := u.g, u.pos, u.dist
	for i := range dist {
		dist[i] = -1
	}
	// Switches above d, by ways that only go down.
	dist[d] = 0
	q := append(u.level[0][:0], d)
	for i := 0; i < len(q); i++ {
		s := q[i]
		a, b := g.neighbours(s)
		for _, t := range g.peer[a:b] {
			if dist[t] < 0 && pos[t] < pos[s] {
				dist[t] = dist[s] + 1
				q = append(q, t)
			}
		}
	}
	above := len(q)
	for _, s := range q[1:] {
		c.begin(s)
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			t := g.peer[i]
			if dist[t] == dist[s]-1 && pos[t] > pos[s] {
				c.addGroup(g, i)
			}
		}
		c.end(s)
	}
	// All others go up to the nearest of them. q has the switches above by
	// distance; the rest join behind as their distance comes up.
	u.level[0] = q
	rest := u.level[1][:0]
	i, j := 0, 0
	for k := int32(0); i < above || j < len(rest); k++ {
		expand := func(s int32) {
			a, b := g.neighbours(s)
			for _, t := range g.peer[a:b] {
				if dist[t] < 0 && pos[t] > pos[s] {
					dist[t] = k + 1
					rest = append(rest, t)
				}
			}
		}
		end := len(rest)
		for ; i < above && dist[q[i]] == k; i++ {
			expand(q[i])
		}
		for ; j < end && dist[rest[j]] == k; j++ {
			expand(rest[j])
		}
	}
	u.level[1] = rest
	for _, s := range rest {
		c.begin(s)
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			t := g.peer[i]
			if dist[t] >= 0 && dist[t] == dist[s]-1 && pos[t] < pos[s] {
				c.addGroup(g, i)
			}
		}
		c.end(s)
	}
	c.lost += g.n - above - len(rest)
	// assign needs nearest first over both kinds.
	slices.SortStableFunc(c.order, func(a, b int32) int { return cmp.Compare(dist[a], dist[b]) })
}

// components numbers the connected parts of the graph by their lowest switch.
func components(g *graph) []int32 {
	part := make([]int32, g.n)
	for i := range part {
		part[i] = -1
	}
	var queue []int32
	for s := range int32(g.n) {
		if part[s] >= 0 {
			continue
		}
		part[s] = s
		queue = append(queue[:0], s)
		for i := 0; i < len(queue); i++ {
			a, b := g.neighbours(queue[i])
			for _, t := range g.peer[a:b] {
				if part[t] < 0 {
					part[t] = s
					queue = append(queue, t)
				}
			}
		}
	}
	return part
}

// rawLevels is the distance of each switch from the hosts' switches. Switches
// with far fewer hosts than the fullest, as a spine with the manager's host on
// it, do not count as such.
func (g *graph) rawLevels() []int32 {
	most := slices.Max(g.hosts)
	var leaves []int32
	for s, h := range g.hosts {
		if h > 0 && h*4 >= most {
			leaves = append(leaves, int32(s))
		}
	}
	if len(leaves) == 0 {
		leaves = []int32{0}
	}
	dist := make([]int32, g.n)
	g.bfs(dist, nil, leaves...)
	for i, d := range dist {
		if d < 0 {
			dist[i] = 0
		}
	}
	return dist
}

// levels is rawLevels of a fat-tree: links join neighbouring levels only, and
// there is more than one level.
func (g *graph) levels() ([]int32, bool) {
	level := g.rawLevels()
	if slices.Max(level) == 0 {
		return nil, false
	}
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for _, t := range g.peer[a:b] {
			if d := level[s] - level[t]; d != 1 && d != -1 {
				return nil, false
			}
		}
	}
	return level, true
}

// orderByLevel puts the highest level first.
func (g *graph) orderByLevel(level []int32) []int32 {
	return places(g.n, func(a, b int32) int { return cmp.Compare(level[b], level[a]) })
}

// orderFrom puts the roots first and the others by distance from them. What no
// root reaches gets a root of its own.
func (g *graph) orderFrom(roots []int32) []int32 {
	dist := make([]int32, g.n)
	var queue []int32
	for {
		queue = g.bfs(dist, queue, roots...)
		if len(queue) == g.n {
			break
		}
		roots = append(slices.Clip(roots), int32(slices.Index(dist, -1)))
	}
	return places(g.n, func(a, b int32) int { return cmp.Compare(dist[a], dist[b]) })
}

// places turns an order, ties by index, into each switch's place in it.
func places(n int, order func(a, b int32) int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i)
	}
	slices.SortStableFunc(all, order)
	pos := make([]int32, n)
	for i, s := range all {
		pos[s] = int32(i)
	}
	return pos
}

// centre is the switch with the smallest sum of distances, of the largest
// number of hosts served; on big graphs a sample of candidates must do.
func (g *graph) centre() int32 {
	step := 1 + g.n/512
	dist := make([]int32, g.n)
	var queue []int32
	best, bestReach, bestSum := int32(0), -1, int64(0)
	for s := 0; s < g.n; s += step {
		queue = g.bfs(dist, queue, int32(s))
		sum := int64(0)
		for _, t := range queue {
			sum += int64(dist[t])
		}
		if len(queue) > bestReach || len(queue) == bestReach && sum < bestSum {
			best, bestReach, bestSum = int32(s), len(queue), sum
		}
	}
	return best
}
