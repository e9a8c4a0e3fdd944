package route

import (
	"slices"

	"ibnetworkd/sm/fabric"
)

// acyclic is a channel dependency graph that stays without a cycle: the links in an
// order in which each comes before those that packets wait for while they occupy it,
// kept up to date as dependencies are added (Pearce and Kelly, 2007).
type acyclic struct {
	*turns
	count []int32 // by turn: paths that make it
	pos   []int32 // by link: its place in the order
	// bar has by turn the epoch in which it closed a cycle. It is not tried again in that
	// epoch, though turns that were removed since may have opened the cycle.
	bar   []int32
	epoch int32
	free  bool // bar does not count
	// of one call of add
	mark           []bool
	ahead, behind  []int32
	places, merged []int32
	work           int // turns visited
}

// turns are the pairs of a link and one that a packet may take next.
type turns struct {
	g    *graph
	back []int32 // by link: the link of the other direction
	turn []int32 // by link: its first turn, one for each link of the far switch
}

func newTurns(g *graph) *turns {
	t := &turns{g: g, back: make([]int32, len(g.port)), turn: make([]int32, len(g.port)+1)}
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for l := g.link[a]; l < g.link[b]; l++ {
			q := &g.f.Ports[g.f.Ports[g.f.Port(g.f.Switches[s].Node, g.port[l])].Peer]
			t.back[l] = g.linkOf[int(g.linkTo[l])<<8|int(q.Num)]
			first, end := g.linksOf(g.linkTo[l])
			t.turn[l+1] = t.turn[l] + end - first
		}
	}
	return t
}

// linksOf is the range of the links of a switch.
func (g *graph) linksOf(s int32) (first, end int32) { return g.link[g.group[s]], g.link[g.group[s+1]] }

// at is the turn from one link to the next.
func (t *turns) at(from, to int32) int32 {
	first, _ := t.g.linksOf(t.g.linkTo[from])
	return t.turn[from] + to - first
}

// newAcyclic is a graph without turns, with the links in the order that paths of up/down
// take them in, by the places of the switches: first those up, then those down.
func newAcyclic(t *turns, place []float64) *acyclic {
	n := len(t.g.port)
	a := &acyclic{turns: t, count: make([]int32, t.turn[n]), pos: make([]int32, n), mark: make([]bool, n),
		bar: make([]int32, t.turn[n]), epoch: 1}
	next := int32(0)
	order := byPlace(place)
	for _, up := range []bool{true, false} {
		if up {
			slices.Reverse(order)
		}
		for _, s := range order {
			first, end := t.g.linksOf(s)
			for l := first; l < end; l++ {
				if (place[t.g.linkTo[l]] < place[s]) == up {
					a.pos[l] = next
					next++
				}
			}
		}
		if up {
			slices.Reverse(order)
		}
	}
	return a
}

// add counts a turn. It reports false, and changes nothing, if that would close a cycle.
func (a *acyclic) add(from, to int32) bool {
	i := a.at(from, to)
	n := &a.count[i]
	if *n == 0 {
		if lower, upper := a.pos[to], a.pos[from]; upper > lower {
			if a.bar[i] == a.epoch && !a.free {
				return false
			}
			if !a.reach(from, to, upper) {
				a.bar[i] = a.epoch
				return false
			}
			a.before(from, lower)
			a.reorder()
		}
	}
	*n++
	return true
}

// addTree adds the turns of multicast on a tree, by switch the port towards its root, 0 at
// a root: from each link of a switch on to each other one.
func (a *acyclic) addTree(trunk []uint8) {
	tree := make([][]int32, a.g.n) // by switch: the links out of it
	for s, p := range trunk {
		if l := a.g.linkOf[s<<8|int(p)]; l != fabric.None {
			tree[s] = append(tree[s], l)
			tree[a.g.linkTo[l]] = append(tree[a.g.linkTo[l]], a.back[l])
		}
	}
	for _, links := range tree {
		for _, in := range links {
			for _, out := range links {
				if in != out {
					a.add(a.back[in], out)
				}
			}
		}
	}
}

// remove takes a turn out again; the order holds without it too.
func (a *acyclic) remove(from, to int32) { a.count[a.at(from, to)]-- }

// reach fills ahead with the links that packets on to wait for, as far as they come
// before upper, the place of from. It is false if from is one of them.
func (a *acyclic) reach(from, to, upper int32) bool {
	a.ahead = append(a.ahead[:0], to)
	a.mark[to] = true
	ok := true
	for i := 0; ok && i < len(a.ahead); i++ {
		e := a.ahead[i]
		first, end := a.g.linksOf(a.g.linkTo[e])
		a.work += int(end - first)
		for k, n := range a.count[a.turn[e]:a.turn[e+1]] {
			if n == 0 {
				continue
			}
			next := first + int32(k)
			if next == from {
				ok = false
			}
			if !a.mark[next] && a.pos[next] < upper {
				a.mark[next] = true
				a.ahead = append(a.ahead, next)
			}
		}
	}
	for _, e := range a.ahead {
		a.mark[e] = false
	}
	return ok
}

// before fills behind with the links on which packets wait for from, as far as they
// come after lower.
func (a *acyclic) before(from, lower int32) {
	a.behind = append(a.behind[:0], from)
	a.mark[from] = true
	for i := 0; i < len(a.behind); i++ {
		e := a.behind[i]
		first, end := a.g.linksOf(a.g.linkTo[a.back[e]])
		a.work += int(end - first)
		for l := first; l < end; l++ {
			before := a.back[l]
			if !a.mark[before] && a.pos[before] > lower && a.count[a.turn[before]+e-first] > 0 {
				a.mark[before] = true
				a.behind = append(a.behind, before)
			}
		}
	}
	for _, e := range a.behind {
		a.mark[e] = false
	}
}

// reorder gives the places of the links behind and ahead to them, those behind first.
func (a *acyclic) reorder() {
	byPlace := func(x, y int32) int { return int(a.pos[x] - a.pos[y]) }
	slices.SortFunc(a.behind, byPlace)
	slices.SortFunc(a.ahead, byPlace)
	a.merged = append(append(a.merged[:0], a.behind...), a.ahead...)
	a.places = a.places[:0]
	a.work += 8 * len(a.merged)
	for _, e := range a.merged {
		a.places = append(a.places, a.pos[e])
	}
	slices.Sort(a.places)
	for i, e := range a.merged {
		a.pos[e] = a.places[i]
	}
}

// sort orders the links for turns that were counted without add. It returns false if they
// have a cycle.
func (a *acyclic) sort() bool {
	n := int32(len(a.pos))
	in, queue := make([]int32, n), make([]int32, 0, n)
	next := func(e int32, yield func(int32)) {
		first, _ := a.g.linksOf(a.g.linkTo[e])
		for k, count := range a.count[a.turn[e]:a.turn[e+1]] {
			if count > 0 {
				yield(first + int32(k))
			}
		}
	}
	for e := range n {
		next(e, func(t int32) { in[t]++ })
	}
	for e := range n {
		if in[e] == 0 {
			queue = append(queue, e)
		}
	}
	for i := 0; i < len(queue); i++ {
		a.pos[queue[i]] = int32(i)
		next(queue[i], func(t int32) {
			if in[t]--; in[t] == 0 {
				queue = append(queue, t)
			}
		})
	}
	a.work += len(a.count)
	return len(queue) == len(a.pos)
}
