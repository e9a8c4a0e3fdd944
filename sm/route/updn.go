package route

import "slices"

// upDown allows paths that go up first and down after that, where up is towards the
// switch that comes earlier in an order. Of these it takes the shortest.
//
// A table entry does not depend on where a packet came from, so a switch either
// goes down to a destination, and then any neighbour may send packets for it there,
// or it goes up, and then only those below it may. The shortest way decides,
// the way down among equal ones.
//
// No credit loop can close: along one, some link down would have to be followed
// by a link up. And every switch is reached if each, but the first, has a
// neighbour before it in the order. For let P be a switch on such a chain from
// the destination to the first that goes down to it or is it: the next on the
// chain may go down to P. If it goes up instead, its path goes down from some
// switch that is still earlier in the order; go on from there. That ends at the
// first switch, from which all others reach the destination by going up.
type upDown struct {
	g     *graph
	pos   []int32 // place in the order, lower is nearer to the roots
	dist  []int32 // hops to the current destination, -1 without a way
	down  []bool  // by switch: whether its path goes down
	used  []bool  // by switch: whether one above sends packets down to it
	both  []bool  // by switch: whether its paths go up or down
	queue []int32
	// The groups of each switch again, with their peers: first those up, then, from below on,
	// those down.
	sorted, peer []int32
	below        []int32
	ups          []int32 // by switch: switches above it that are nearer to the destination
	upLinks      []span  // by switch: all links up in the graph, empty where others are between
}

// span is consecutive links.
type span struct{ first, end int32 }

func newUpDown(g *graph, pos []int32) *upDown {
	u := &upDown{g: g, pos: pos, dist: make([]int32, g.n), down: make([]bool, g.n), used: make([]bool, g.n), both: make([]bool, g.n),
		sorted: make([]int32, 0, len(g.peer)), peer: make([]int32, 0, len(g.peer)), below: make([]int32, g.n),
		ups: make([]int32, g.n), upLinks: make([]span, g.n)}
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for _, up := range []bool{true, false} {
			for i := a; i < b; i++ {
				if t := g.peer[i]; pos[t] < pos[s] == up {
					u.sorted, u.peer = append(u.sorted, i), append(u.peer, t)
				}
			}
			if up {
				u.below[s] = int32(len(u.peer))
			}
		}
		if up := u.sorted[a:u.below[s]]; len(up) > 0 && up[len(up)-1]-up[0] == int32(len(up)-1) {
			u.upLinks[s] = span{g.link[up[0]], g.link[up[len(up)-1]+1]}
		}
	}
	return u
}

func (u *upDown) towards(d int32, c *candidates) {
	g, dist := u.g, u.dist
	q := u.reach(d)
	u.queue = q
	// A switch that no switch above sends packets down to may go up as well where
	// that is as short. The farthest first: the switches that send to it are farther.
	clear(u.used)
	clear(u.both)
	for i := len(q) - 1; i > 0; i-- {
		s := q[i]
		if !u.down[s] {
			continue
		}
		a, b := g.neighbours(s)
		below := u.below[s]
		if !u.used[s] {
			for k, t := range u.peer[a:below] {
				if dist[t] == dist[s]-g.step(u.sorted[int(a)+k]) {
					u.down[s], u.both[s] = false, true
					break
				}
			}
		}
		for k, t := range u.peer[below:b] {
			if u.down[t] && dist[t] == dist[s]-g.step(u.sorted[int(below)+k]) {
				u.used[t] = true
			}
		}
	}
	for _, s := range q[1:] {
		a, b := g.neighbours(s)
		if up := u.upLinks[s]; g.hops == nil && up.end > 0 && !u.down[s] && !u.both[s] && u.ups[s] == u.below[s]-a {
			c.run(s, up.first, up.end)
			continue
		}
		c.begin(s)
		switch {
		case u.down[s]:
			u.link(s, u.below[s], b, c)
		case u.both[s]:
			u.link(s, a, b, c)
			slices.Sort(c.links[c.first[s]:])
		default:
			u.link(s, a, u.below[s], c)
		}
		c.end(s)
	}
	c.lost += g.n - len(q)
}

// link adds the links of some groups of a switch, by their places in sorted: those to nearer
// switches, down only to those that go down themselves.
func (u *upDown) link(s, from, to int32, c *candidates) {
	g, links, near := u.g, c.links, u.dist[s]-1
	for k, t := range u.peer[from:to] {
		i := u.sorted[int(from)+k]
		if g.hops != nil {
			near = u.dist[s] - g.hops[i]
		}
		if u.dist[t] != near || !u.down[t] && u.pos[t] > u.pos[s] {
			continue
		}
		if first := g.link[i]; g.link[i+1] == first+1 {
			links = append(links, first)
		} else {
			c.links = links
			c.addGroup(g, i)
			links = c.links
		}
	}
	c.links = links
}

// reach finds the distances to d and which switches go down, and gives the switches, the
// nearest first.
func (u *upDown) reach(d int32) []int32 {
	g, pos, dist := u.g, u.pos, u.dist
	if g.hops != nil {
		u.down[d] = true
		return g.nearest(d, dist, u.queue, func(s, t, k int32) bool {
			descends := pos[s] < pos[t]
			if descends && !u.down[t] {
				return false
			}
			if dist[s] < 0 || k < dist[s] {
				u.down[s] = descends
			} else if k == dist[s] {
				u.down[s] = u.down[s] || descends
			}
			return true
		})
	}
	for i := range dist {
		dist[i] = -1
	}
	dist[d], u.down[d] = 0, true
	q := append(u.queue[:0], d)
	for i := 0; i < len(q); {
		k := dist[q[i]] + 1
		for end := len(q); i < end; i++ {
			t := q[i]
			a, b := g.neighbours(t)
			if !u.down[t] {
				for _, s := range u.peer[u.below[t]:b] {
					switch dist[s] {
					case -1:
						dist[s], u.down[s], u.ups[s] = k, false, 1
						q = append(q, s)
					case k:
						u.ups[s]++
					}
				}
				continue
			}
			// A switch above t goes down to it, one below goes up.
			for _, s := range g.peer[a:b] {
				descends := pos[s] < pos[t]
				switch dist[s] {
				case -1:
					dist[s], u.down[s], u.ups[s] = k, descends, 0
					q = append(q, s)
				case k:
					u.down[s] = u.down[s] || descends
				default:
					continue
				}
				if !descends {
					u.ups[s]++
				}
			}
		}
	}
	return q
}

// centre is the switch with the smallest sum of distances, of the largest
// number of switches reached; on big graphs a sample of candidates must do.
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
