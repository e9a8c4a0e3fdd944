package route

import (
	"cmp"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// trunk is the tree that multicast takes, by switch the port towards its root, 0 at a
// root: from each switch to a neighbour before it in the order, by which up/down with
// multicast closes no loop. Links of an old tree stay in it.
func (b *builder) trunk(order []ib.GUID, old []uint8) []uint8 {
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
		if int(s) < len(old) && old[s] != 0 {
			if l := g.linkOf[int(s)<<8|int(old[s])]; l != fabric.None && place[g.linkTo[l]] < place[s] {
				port[s], depth[s] = old[s], depth[g.linkTo[l]]+1
				continue
			}
		}
		if best != fabric.None {
			port[s], depth[s] = g.port[g.link[best]], depth[g.peer[best]]+1
		}
	}
	return port
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
	out, dist := slices.Repeat([]int32{-1}, g.n), make([]int32, g.n)
	seeds := []int32{0}
	var queue []int32
	for len(seeds) < count {
		queue = g.bfs(dist, queue, seeds...)
		seeds = append(seeds, queue[len(queue)-1])
	}
	queue = queue[:0]
	for i, s := range seeds {
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
