package route

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
	queue []int32
}

func newUpDown(g *graph, pos []int32) *upDown {
	return &upDown{g: g, pos: pos, dist: make([]int32, g.n), down: make([]bool, g.n), used: make([]bool, g.n)}
}

func (u *upDown) towards(d int32, c *candidates) {
	g, pos, dist := u.g, u.pos, u.dist
	q := u.reach(d)
	u.queue = q
	// A switch that no switch above sends packets down to may go up as well where
	// that is as short. The farthest first: the switches that send to it are farther.
	clear(u.used)
	for i := len(q) - 1; i > 0; i-- {
		s := q[i]
		if !u.down[s] {
			continue
		}
		a, b := g.neighbours(s)
		if !u.used[s] {
			for i := a; i < b; i++ {
				if t := g.peer[i]; dist[t] == dist[s]-g.step(i) && pos[t] < pos[s] {
					u.down[s] = false
					break
				}
			}
		}
		for i := a; i < b; i++ {
			if t := g.peer[i]; dist[t] == dist[s]-g.step(i) && pos[s] < pos[t] && u.down[t] {
				u.used[t] = true
			}
		}
	}
	for _, s := range q[1:] {
		c.begin(s)
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			t := g.peer[i]
			if dist[t] != dist[s]-g.step(i) {
				continue
			}
			if pos[s] < pos[t] && u.down[t] || pos[t] < pos[s] && !u.down[s] {
				c.addGroup(g, i)
			}
		}
		c.end(s)
	}
	c.lost += g.n - len(q)
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
			for _, s := range g.peer[a:b] {
				descends := pos[s] < pos[t]
				if descends && !u.down[t] {
					continue
				}
				switch dist[s] {
				case -1:
					dist[s], u.down[s] = k, descends
					q = append(q, s)
				case k:
					u.down[s] = u.down[s] || descends
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
