package route

import (
	"cmp"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// trunk is the tree that multicast takes, by switch the port towards its root, 0 at a
// root: from each switch to a neighbour before it in the order, by which up/down with
// multicast closes no loop.
func (b *builder) trunk(order []ib.GUID) []uint8 {
	g := b.graph
	place := g.placesOf(order)
	port, depth := make([]uint8, g.n), make([]int32, g.n)
	for _, s := range byPlace(place) {
		best := fabric.None
		first, end := g.neighbours(s)
		for i := first; i < end; i++ {
			if t := g.peer[i]; place[t] < place[s] && (best == fabric.None || depth[t] < depth[g.peer[best]]) {
				best = i
			}
		}
		if best != fabric.None {
			port[s], depth[s] = g.port[g.link[best]], depth[g.peer[best]]+1
		}
	}
	return port
}

// forest is a tree for multicast of which links may be missing.
type forest struct {
	*turns
	out  [][]int32 // by switch: the links of the tree out of it
	part []int32   // by switch: the same for those that links join
}

// forest is what is left of a tree in force.
func (b *builder) forest(t *turns, trunk []uint8) *forest {
	f := &forest{turns: t, out: make([][]int32, b.n), part: make([]int32, b.n)}
	for s := range f.part {
		f.part[s] = int32(s)
	}
	for s, p := range trunk {
		if l := b.linkOf[s<<8|int(p)]; p != 0 && l != fabric.None {
			f.join(int32(s), l)
		}
	}
	return f
}

// join adds a link out of a switch, unless that closes a ring.
func (f *forest) join(s, l int32) {
	t := f.g.linkTo[l]
	a, b := f.part[s], f.part[t]
	if a == b {
		return
	}
	for i, p := range f.part {
		if p == a {
			f.part[i] = b
		}
	}
	f.out[s] = append(f.out[s], l)
	f.out[t] = append(f.out[t], f.back[l])
}

// between calls yield for the links between parts, from a switch.
func (f *forest) between(yield func(s, l int32) bool) {
	for s := range int32(f.g.n) {
		first, end := f.g.linksOf(s)
		for l := first; l < end; l++ {
			if t := f.g.linkTo[l]; s < t && f.part[s] != f.part[t] && !yield(s, l) {
				return
			}
		}
	}
}

func (f *forest) whole() bool {
	for range f.between {
		return false
	}
	return true
}

// trunk gives the port of each switch towards the root of its part: one of the roots of
// the old tree where it has one.
func (f *forest) trunk(old []uint8) []uint8 {
	port, seen := make([]uint8, f.g.n), make([]bool, f.g.n)
	for _, any := range []bool{false, true} {
		for s := range int32(f.g.n) {
			if seen[s] || !any && (int(s) >= len(old) || old[s] != 0) {
				continue
			}
			seen[s] = true
			queue := []int32{s}
			for i := 0; i < len(queue); i++ {
				for _, l := range f.out[queue[i]] {
					if t := f.g.linkTo[l]; !seen[t] {
						seen[t], port[t] = true, f.g.port[f.back[l]]
						queue = append(queue, t)
					}
				}
			}
		}
	}
	return port
}

// mend joins what is left of a tree by links whose turns fit with the paths of all layers,
// as far as there are such. It is false if that is too much work.
func (y *layered) mend(f *forest) bool {
	for !f.whole() {
		from, best, least := fabric.None, fabric.None, 0
		for s, l := range f.between {
			if n := y.misfits(f, s, l, true); best == fabric.None || n < least {
				from, best, least = s, l, n
			}
			if least == 0 {
				break
			}
		}
		y.misfits(f, from, best, false)
		f.join(from, best)
		if y.visited() > layeredWork/2 {
			return false
		}
	}
	return true
}

// misfits adds the turns of multicast between a link out of a switch and the tree to all
// layers, or tries that, and counts those that close a cycle.
func (y *layered) misfits(f *forest, s, l int32, try bool) (n int) {
	var added [][2]int32
	for _, a := range y.layers {
		added, a.free = added[:0], true
		add := func(from, to int32) {
			if a.work++; a.add(from, to) {
				added = append(added, [2]int32{from, to})
			} else {
				n++
			}
		}
		for _, o := range f.out[s] {
			add(f.back[o], l)
			add(f.back[l], o)
		}
		for _, o := range f.out[f.g.linkTo[l]] {
			add(l, o)
			add(f.back[o], f.back[l])
		}
		for _, t := range added {
			if try {
				a.remove(t[0], t[1])
			}
		}
		a.free = false
	}
	return n
}

func byPlace(place []float64) []int32 {
	out := make([]int32, len(place))
	for s := range out {
		out[s] = int32(s)
	}
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(place[a], place[b]) })
	return out
}

// blocks and cells put switches that are near to each other into one of some regions:
// by their numbers, and by the nearest of switches far from each other.
func (g *graph) blocks(count int) []int32 {
	out := make([]int32, g.n)
	for s := range out {
		out[s] = int32(s * count / g.n)
	}
	return out
}

func (g *graph) cells(count int) []int32 {
	out := slices.Repeat([]int32{-1}, g.n)
	var queue []int32
	for i, s := range g.seeds(count) {
		if out[s] < 0 {
			out[s] = int32(i)
			queue = append(queue, s)
		}
	}
	for i := 0; i < len(queue); i++ {
		a, b := g.neighbours(queue[i])
		for _, t := range g.peer[a:b] {
			if out[t] < 0 {
				out[t] = out[queue[i]]
				queue = append(queue, t)
			}
		}
	}
	for s := range out {
		out[s] = max(out[s], 0)
	}
	return out
}

// seeds are switches far from each other.
func (g *graph) seeds(count int) []int32 {
	dist, seeds := make([]int32, g.n), []int32{0}
	var queue []int32
	for len(seeds) < count {
		queue = g.bfs(dist, queue, seeds...)
		seeds = append(seeds, queue[len(queue)-1])
	}
	return seeds
}
