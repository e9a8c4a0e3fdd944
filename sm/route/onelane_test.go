package route_test

import (
	"math"
	"slices"
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// oneLane searches for the least flows over the busiest link that tables without a
// credit loop on one lane can have, one flow for each pair of switches. Such tables
// leave out at least one turn (of a link into another) of each cycle of turns: all
// choices are tried, but for those with which the busiest link has too many flows
// whatever the paths.
type oneLane struct {
	n        int
	from, to []int   // by link, one for each direction
	turns    [][]int // by link: those that follow it
	state    [][]int // by link and place in turns: open, left out, or used
	best     float64
	tried    int
}

const (
	openTurn = iota
	leftOut
	inUse
)

func newOneLane(f *fabric.Fabric, best float64) *oneLane {
	x := &oneLane{n: len(f.Switches), best: best}
	for i := range f.Ports {
		if p := &f.Ports[i]; p.Peer != fabric.None {
			if a, b := f.Nodes[p.Node].Switch, f.Nodes[f.Ports[p.Peer].Node].Switch; a != fabric.None && b != fabric.None {
				x.from, x.to = append(x.from, int(a)), append(x.to, int(b))
			}
		}
	}
	for a := range x.from {
		var next []int
		for b := range x.from {
			if x.from[b] == x.to[a] && x.to[b] != x.from[a] {
				next = append(next, b)
			}
		}
		x.turns, x.state = append(x.turns, next), append(x.state, make([]int, len(next)))
	}
	return x
}

// distances adds up the shortest paths between all switches by the lengths of the links, and
// counts the paths over each link.
func (x *oneLane) distances(length, paths []float64) (sum float64) {
	clear(paths)
	dist, before, done := make([]float64, len(x.from)), make([]int, len(x.from)), make([]bool, len(x.from))
	for s := range x.n {
		for l := range dist {
			dist[l], before[l], done[l] = math.Inf(1), -1, false
			if x.from[l] == s {
				dist[l] = length[l]
			}
		}
		reached := make([]bool, x.n)
		reached[s] = true
		for {
			a := -1
			for l := range dist {
				if !done[l] && (a < 0 || dist[l] < dist[a]) {
					a = l
				}
			}
			if a < 0 || math.IsInf(dist[a], 1) {
				break
			}
			done[a] = true
			if d := x.to[a]; !reached[d] {
				reached[d] = true
				sum += dist[a]
				for l := a; l >= 0; l = before[l] {
					paths[l]++
				}
			}
			for i, b := range x.turns[a] {
				if v := dist[a] + length[b]; x.state[a][i] != leftOut && v < dist[b] {
					dist[b], before[b] = v, a
				}
			}
		}
		if slices.Contains(reached, false) {
			return math.Inf(1)
		}
	}
	return sum
}

// least is what the busiest link has at least with the turns that are not left out: whatever
// the lengths of the links, flows times their length add up to no more than that times the
// length of all links. The lengths are better ones from step to step, for as long as the
// least is below enough.
func (x *oneLane) least(length []float64, steps int, enough float64) (most float64) {
	paths := make([]float64, len(length))
	for step := range steps {
		sum, all := x.distances(length, paths), 0.0
		for _, v := range length {
			all += v
		}
		if most = max(most, math.Ceil(sum/all-1e-6)); most >= enough {
			return most
		}
		top := slices.Max(paths)
		for l, n := range paths {
			length[l] *= math.Exp(n / top / (2 + float64(step)/4))
		}
	}
	return most
}

// cycle is the cycle of turns with the fewest that are open, each as a link and a place, or nil.
func (x *oneLane) cycle() (best [][2]int) {
	fewest := math.MaxInt
	for start := range x.from {
		dist, before := slices.Repeat([]int{math.MaxInt}, len(x.from)), make([][2]int, len(x.from))
		queue := []int{start}
		for len(queue) > 0 {
			at := slices.MinFunc(queue, func(a, b int) int {
				if a == start || b == start {
					return 0
				}
				return dist[a] - dist[b]
			})
			queue = slices.DeleteFunc(queue, func(l int) bool { return l == at })
			d := dist[at]
			if at == start {
				if d != math.MaxInt {
					break
				}
				d = 0
			}
			for i, b := range x.turns[at] {
				v := d
				if x.state[at][i] == openTurn {
					v++
				}
				if x.state[at][i] != leftOut && v < dist[b] {
					dist[b], before[b] = v, [2]int{at, i}
					queue = append(queue, b)
				}
			}
		}
		if dist[start] < fewest {
			fewest, best = dist[start], nil
			for l := start; len(best) == 0 || l != start; l = before[l][0] {
				best = append(best, before[l])
			}
		}
	}
	return best
}

// search tries all ways to break the cycles of turns.
func (x *oneLane) search(length []float64, tries int) bool {
	if x.tried++; x.tried > tries {
		return false
	}
	length = slices.Clone(length)
	if x.least(length, 8, x.best) >= x.best {
		return true
	}
	cycle := x.cycle()
	if cycle == nil {
		x.best = min(x.best, x.least(length, 300, x.best))
		return true
	}
	var used [][2]int
	all := true
	for _, t := range cycle {
		if x.state[t[0]][t[1]] != openTurn {
			continue
		}
		x.state[t[0]][t[1]] = leftOut
		all = all && x.search(length, tries)
		x.state[t[0]][t[1]] = inUse
		used = append(used, t)
	}
	for _, t := range used {
		x.state[t[0]][t[1]] = openTurn
	}
	return all
}

// On small graphs the least flows that any tables without a credit loop on one lane can have
// are more than those that any tables can have: on rings, and so on tori in dimension order.
func TestOneLane(t *testing.T) {
	for _, c := range []struct {
		name   string
		f      *fabric.Fabric
		least  float64 // of tables without a loop
		engine string
		flows  float64
	}{
		{"ring of 5", gen.Ring(5, 1), 4, route.DOR, 4},
		{"ring of 6", gen.Ring(6, 1), 6, route.DOR, 6},
		{"ring of 7", gen.Ring(7, 1), 9, route.DOR, 9},
		{"ring of 8", gen.Ring(8, 1), 12, route.DOR, 12},
		{"ring of 10", gen.Ring(10, 1), 20, route.DOR, 20},
		{"torus 4x4", gen.Torus([]int{4, 4}, 1), 8, route.DOR, 8},
		{"8 switches at random", gen.RandomRegular(1, 8, 3, 1), 5, route.UpDown, 7},
	} {
		r, l := build(t, c.name, gen.LIDs(c.f, 0), route.Options{})
		x := newOneLane(c.f, l.Worst)
		length := slices.Repeat([]float64{1}, len(x.from))
		any := x.least(slices.Clone(length), 300, math.Inf(1))
		if !x.search(length, 100_000) {
			t.Fatalf("%s: not done", c.name)
		}
		t.Logf("%s: any tables %.0f flows on a link or more, without a loop on one lane %.0f or more (%d sets of turns), %s has %.0f", c.name,
			any, x.best, x.tried, r.Engine, l.Worst)
		if x.best != c.least || r.Engine != c.engine || l.Worst > c.flows {
			t.Errorf("%s: tables without a loop have %.0f flows or more, want %.0f; %s has %.0f, want %s and %.0f", c.name, x.best, c.least,
				r.Engine, l.Worst, c.engine, c.flows)
		}
	}
}
