package route

import (
	"container/heap"
	"slices"

	"ibnetworkd/sm/fabric"
)

const (
	// boundStarts is from how many switches sets are grown for bound; boundWork bounds it on
	// large graphs, in links.
	boundStarts = 8
	boundWork   = 100_000
)

// bound is a load that some link has at least: all flows between a set of switches and
// the others of its connected part have to pass the links between these. The sets are single switches, and what
// grows from some by the switch that has the largest part of its links into the set: so a
// group of a DragonFly is whole before another one begins.
func (g *graph) bound() (most int64) {
	in := make([]bool, g.n)
	part, all := g.parts()
	var hosts, pull int64
	var share float64 // of the links between the set and the rest, in those of the fastest
	add := func(s int32) {
		in[s] = true
		hosts, pull = hosts+g.hosts[s], pull+g.pull[s]
		a, b := g.neighbours(s)
		for l := g.link[a]; l < g.link[b]; l++ {
			if in[g.linkTo[l]] {
				share -= 1 / float64(g.cost[l])
			} else {
				share += 1 / float64(g.cost[l])
			}
		}
		if p := all[part[s]]; share > 1e-6 {
			most = max(most, int64(float64(max(hosts*(p.pull-pull), pull*(p.hosts-hosts)))/share))
		}
	}
	var starts []int32
	for s := range int32(g.n) {
		if g.hosts[s] > 0 {
			starts = append(starts, s)
			add(s)
			in[s], hosts, pull, share = false, 0, 0, 0
		}
	}
	count := min(boundStarts, len(starts), max(1, boundWork/max(1, len(g.port))))
	for i := range count {
		for _, s := range g.grown(starts[i*len(starts)/count]) {
			add(s)
		}
		clear(in)
		hosts, pull, share = 0, 0, 0
	}
	return most
}

// population is how many hosts a connected part of the graph has, and how many flows each
// host sends to it.
type population struct{ hosts, pull int64 }

// parts returns the connected part of each switch.
func (g *graph) parts() (part []int32, all []population) {
	part = slices.Repeat([]int32{fabric.None}, g.n)
	var queue []int32
	for first := range int32(g.n) {
		if part[first] != fabric.None {
			continue
		}
		p := int32(len(all))
		all = append(all, population{})
		part[first] = p
		for queue = append(queue[:0], first); len(queue) > 0; {
			s := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			all[p].hosts += g.hosts[s]
			all[p].pull += g.pull[s]
			a, b := g.neighbours(s)
			for _, t := range g.peer[a:b] {
				if part[t] == fabric.None {
					part[t] = p
					queue = append(queue, t)
				}
			}
		}
	}
	return part, all
}

// grown is the order in which a set grows from a switch.
func (g *graph) grown(start int32) (order []int32) {
	links := func(s int32) int32 {
		a, b := g.neighbours(s)
		return g.link[b] - g.link[a]
	}
	done, into := make([]bool, g.n), make([]int32, g.n)
	q := &rankHeap{rank: make([]float64, g.n)}
	heap.Push(q, start)
	for q.Len() > 0 {
		s := heap.Pop(q).(int32)
		if done[s] {
			continue
		}
		done[s] = true
		order = append(order, s)
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			if t := g.peer[i]; !done[t] {
				into[t] += g.link[i+1] - g.link[i]
				q.rank[t] = -float64(into[t]) / float64(links(t))
				heap.Push(q, t)
			}
		}
	}
	return order
}
