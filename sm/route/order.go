package route

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// connectedOrder puts the switches in an order in which each, but the first of
// its connected part, has a neighbour before it; those of low rank come as
// early as that allows. Such an order gives up/down a path between any two
// switches of a part (see upDown). The order of an order is itself.
func (g *graph) connectedOrder(rank []float64) []int32 {
	return orderOf(rank, func(s int32) []int32 { return g.peer[g.group[s]:g.group[s+1]] })
}

// orderOf is connectedOrder for given neighbours of each switch.
func orderOf(rank []float64, neighbours func(s int32) []int32) []int32 {
	n := len(rank)
	pos := make([]int32, n)
	queued := make([]bool, n)
	q := &rankHeap{rank: rank}
	starts := places(n, func(a, b int32) int { return cmp.Compare(rank[a], rank[b]) })
	byRank := make([]int32, n)
	for s, p := range starts {
		byRank[p] = int32(s)
	}
	next := int32(0)
	for _, first := range byRank {
		if queued[first] {
			continue
		}
		queued[first] = true
		heap.Push(q, first)
		for q.Len() > 0 {
			s := heap.Pop(q).(int32)
			pos[s] = next
			next++
			for _, t := range neighbours(s) {
				if !queued[t] {
					queued[t] = true
					heap.Push(q, t)
				}
			}
		}
	}
	return pos
}

// rankHeap is a heap of switches, the lowest rank first, ties by index.
type rankHeap struct {
	rank []float64
	at   []int32
}

func (h *rankHeap) Len() int { return len(h.at) }
func (h *rankHeap) Less(i, j int) bool {
	a, b := h.at[i], h.at[j]
	return h.rank[a] < h.rank[b] || h.rank[a] == h.rank[b] && a < b
}
func (h *rankHeap) Swap(i, j int) { h.at[i], h.at[j] = h.at[j], h.at[i] }
func (h *rankHeap) Push(x any)    { h.at = append(h.at, x.(int32)) }
func (h *rankHeap) Pop() any {
	last := len(h.at) - 1
	x := h.at[last]
	h.at = h.at[:last]
	return x
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

// remoteness is the mean distance of each switch from those at the edge, itself
// left out: the switches with hosts, and those that have no more links to others
// than the one with hosts that has most. So hosts that go off change nothing: a
// core of a tree is nearer to the leaves than any leaf is.
func (g *graph) remoteness() []float64 {
	links := func(s int) int32 { return g.link[g.group[s+1]] - g.link[g.group[s]] }
	most := int32(0)
	for s, h := range g.hosts {
		if h*4 >= g.mostHosts {
			most = max(most, links(s))
		}
	}
	sum, count := make([]float64, g.n), make([]float64, g.n)
	dist := make([]int32, g.n)
	var queue []int32
	// On large graphs a sample will do; the step is odd to miss no regular
	// part of the numbering.
	step := 1 + g.n/512*2
	for s := 0; s < g.n; s += step {
		if g.hosts[s] == 0 && links(s) > most {
			continue
		}
		queue = g.bfs(dist, queue, int32(s))
		for _, t := range queue[1:] {
			sum[t] += float64(dist[t])
			count[t]++
		}
	}
	for i := range sum {
		sum[i] /= max(1, count[i])
	}
	return sum
}

// levels is the distance of each switch from the leaves of a tree, and whether
// it is one: links join neighbouring levels only, and there is more than one.
//
// Leaves are the switches with hosts, but for those with far fewer than the
// fullest, or none: they are leaves if they are about as remote as the leaves
// are, as a rack that is off or has the login hosts, and not if they are nearer
// to all, as a spine with the manager's host.
func (g *graph) levels() (level []int32, tree bool) {
	most := g.mostHosts
	level = make([]int32, g.n)
	if most == 0 {
		return level, false
	}
	remote := g.remoteness()
	nearest, far, full := math.Inf(1), 0.0, 0
	for s, h := range g.hosts {
		if remote[s] > 0 {
			nearest = min(nearest, remote[s])
		}
		if h*4 >= most {
			far += remote[s]
			full++
		}
	}
	edge := (nearest + 2*far/float64(full)) / 3
	var leaves []int32
	for s, h := range g.hosts {
		if h*4 >= most || remote[s] >= edge && g.n > 1 {
			leaves = append(leaves, int32(s))
		}
	}
	g.bfs(level, nil, leaves...)
	for i, d := range level {
		level[i] = max(d, 0)
	}
	if slices.Max(level) > 0 && g.isTree(level) {
		return level, true
	}
	// Few hosts may be on: then what counts is how many there could be.
	for _, hosts := range [][]int64{g.hosts, g.room()} {
		if odd := g.oddLevels(hosts); odd != nil {
			return odd, true
		}
	}
	return level, false
}

// room is by switch how many ports have no link to another switch.
func (g *graph) room() []int64 {
	room := make([]int64, g.n)
	for s := range room {
		first, end := g.linksOf(int32(s))
		room[s] = max(0, int64(g.f.Nodes[g.f.Switches[s].Node].NumPorts)-int64(end-first))
	}
	return room
}

// oddLevels are the levels of a tree that has as many hosts on some upper switches as on
// leaves, a few on all of them, or both: leaves are then the switches that are remote from
// most hosts. It is nil if more than a quarter of the hosts is on others.
func (g *graph) oddLevels(on []int64) []int32 {
	sum := make([]float64, g.n)
	dist := make([]int32, g.n)
	var queue []int32
	step := 1 + g.n/512*2 // see remoteness
	for s := 0; s < g.n; s += step {
		if on[s] == 0 {
			continue
		}
		queue = g.bfs(dist, queue, int32(s))
		for _, t := range queue {
			sum[t] += float64(int64(dist[t]) * on[s])
		}
	}
	edge := (slices.Min(sum) + 2*slices.Max(sum)) / 3
	var leaves []int32
	var hosts, all int64
	for s := range sum {
		all += on[s]
		if sum[s] >= edge {
			leaves = append(leaves, int32(s))
			hosts += on[s]
		}
	}
	level := make([]int32, g.n)
	g.bfs(level, nil, leaves...)
	if hosts*4 < all*3 || slices.Min(level) < 0 || slices.Max(level) == 0 || !g.isTree(level) {
		return nil
	}
	return level
}

// noTree is why levels are not those of a tree.
func (g *graph) noTree(level []int32) string {
	name := func(s int32) string { return g.f.Nodes[g.f.Switches[s].Node].Name() }
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for _, t := range g.peer[a:b] {
			switch {
			case level[s]-level[t] == 1 || level[t]-level[s] == 1:
			case g.hosts[s] > 0 && g.hosts[t] > 0:
				return fmt.Sprintf("hosts at several levels, as on %s and %s, which have a link", name(s), name(t))
			default:
				return fmt.Sprintf("links within a level, as from %s to %s", name(s), name(t))
			}
		}
	}
	return "all switches are at one level"
}

// isTree reports whether links join neighbouring levels only.
func (g *graph) isTree(level []int32) bool {
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for _, t := range g.peer[a:b] {
			if d := level[s] - level[t]; d != 1 && d != -1 {
				return false
			}
		}
	}
	return true
}

// above ranks the highest level first.
func above(level []int32) []float64 {
	rank := make([]float64, len(level))
	for s, l := range level {
		rank[s] = -float64(l)
	}
	return rank
}

// from ranks switches by their distance from the roots; what no root reaches
// comes last.
func (g *graph) from(roots ...int32) []float64 {
	dist := make([]int32, g.n)
	g.bfs(dist, nil, roots...)
	rank := make([]float64, g.n)
	for s, d := range dist {
		rank[s] = float64(d)
		if d < 0 {
			rank[s] = float64(g.n)
		}
	}
	return rank
}

// edgeLast ranks switches without hosts first: on a DragonFly+ those that lead to other groups.
func (g *graph) edgeLast() []float64 {
	rank := make([]float64, g.n)
	for s, n := range g.hosts {
		if n > 0 {
			rank[s] = 1
		}
	}
	return rank
}

const (
	// searchWork bounds what the search for an order may cost, in links visited;
	// one takes two to three nanoseconds.
	searchWork = 100_000_000
	// searchSteps bounds it for small graphs, for each switch.
	searchSteps = 20
	// orderClear is the ratio of scores from which one is clearly better.
	orderClear = 0.9
	// scoreWork is that of judging one order: on large graphs a part of the
	// destinations must do.
	scoreWork = 10_000_000
)

// bestOrder searches for the order of the switches that distributes the flows
// between hosts most evenly. It tries the ranks first, then moves single switches
// about, until it has spent searchWork or an order is as good as bound, a score
// (0 if none is known). The rank other, if any, is taken if it is clearly better: than the
// others on graphs that are too large to move each switch often, else than what is found.
// The order of the tables in force stays while it is nearly as good as what is found from
// it, so that the tables stay too; if a cut has changed it on a tree, see priorByLevel. The same graph and arguments give the same order.
func (b *builder) bestOrder(bound float64, other []float64, ranks ...[]float64) []int32 {
	g := b.graph
	f := newFluid(g)
	judge := func(rank []float64) ([]int32, float64) {
		p := g.connectedOrder(rank)
		return p, f.score(newUpDown(g, p))
	}
	var pos []int32
	score := math.Inf(1)
	bound *= 1.005
	for _, rank := range ranks {
		if p, v := judge(rank); v < score {
			pos, score = p, v
		}
		if score <= bound {
			break
		}
	}
	clearly := func() {
		if other != nil {
			if p, v := judge(other); v < orderClear*score {
				pos, score = p, v
			}
		}
	}
	steps := min(searchSteps*g.n, searchWork/f.work) - len(ranks)
	if steps < searchSteps*g.n-len(ranks) {
		clearly()
		other = nil
	}
	var old []int32
	oldScore := math.Inf(1)
	if b.prior != nil {
		old, oldScore = judge(b.prior)
		if b.level != nil && !follows(old, b.prior) {
			if p, v := judge(b.priorByLevel()); v <= oldScore {
				old, oldScore = p, v
			}
		}
		if oldScore <= score {
			pos, score = old, oldScore
		}
		steps /= 4
	}
	// Places, so that a switch can move to between any two.
	rank := make([]float64, g.n)
	for s, at := range pos {
		rank[s] = float64(at)
	}
	rnd := rand.New(rand.NewPCG(uint64(g.n), uint64(len(g.port))))
	for ; steps > 0 && score > bound; steps-- {
		s := rnd.IntN(g.n)
		was := rank[s]
		rank[s] = rnd.Float64() * float64(g.n)
		if p, v := judge(rank); v < score {
			pos, score = p, v
		} else {
			rank[s] = was
		}
	}
	clearly()
	if oldScore <= 1.05*score {
		return old
	}
	return pos
}

// follows reports whether an order is that of a rank.
func follows(pos []int32, rank []float64) bool {
	by := make([]float64, len(pos))
	for s, at := range pos {
		by[at] = rank[s]
	}
	return slices.IsSorted(by)
}

// priorByLevel ranks the first leaf of the order in force first, because it leads from roots to others, and
// then the switches of a tree by level, within one as in that order. Where a cut has left some of them
// without a neighbour before them, leaves that take their places would not reach each other through all roots.
func (b *builder) priorByLevel() []float64 {
	rank := above(b.level)
	first, most := -1, slices.Max(b.prior)
	for s, at := range b.prior {
		rank[s] += at / (most + 1)
		if b.level[s] == 0 && (first < 0 || at < b.prior[first]) {
			first = s
		}
	}
	rank[first] -= float64(b.n)
	return rank
}

// firstOrder is the best of the orders by some ranks.
func (b *builder) firstOrder(ranks ...[]float64) (pos []int32) {
	f, score := newFluid(b.graph), math.Inf(1)
	for _, rank := range ranks {
		p := b.connectedOrder(rank)
		if v := f.score(newUpDown(b.graph, p)); v < score {
			pos, score = p, v
		}
	}
	return pos
}

// treeOrder is the order of a tree, its highest level first. Somewhere it has to
// put a leaf and what leads to it before other roots, or those would have no
// neighbour before them; where links are missing some leaves cost less than
// others. The order by levels alone, which leads from hosts to hosts but not between
// roots, bounds how good an order can be.
func (b *builder) treeOrder(level []int32) []int32 {
	g := b.graph
	rank := above(level)
	ranks := [][]float64{rank}
	for s := range g.n {
		if level[s] == 0 && len(ranks) < 64 {
			r := slices.Clone(rank)
			r[s] -= float64(g.n)
			ranks = append(ranks, r)
		}
	}
	pure := places(g.n, func(a, b int32) int { return cmp.Compare(level[b], level[a]) })
	return b.bestOrder(newFluid(g).score(newUpDown(g, pure)), nil, ranks...)
}

// fluid judges candidates by the load of flows that split evenly over them.
type fluid struct {
	g    *graph
	c    *candidates
	load []float64
	flow []float64
	step int32 // every how many switches count as destinations
	work int   // links visited by score, about
}

func newFluid(g *graph) *fluid {
	f := &fluid{g: g, c: newCandidates(g), load: make([]float64, len(g.port)), flow: make([]float64, g.n)}
	each := 1 + 2*len(g.port) + 4*g.n
	f.work = 64 * g.n // finding the order itself
	f.step = int32(1 + g.n*each/scoreWork)
	if f.step > 1 {
		f.step |= 1 // to miss no regular part of the numbering
	}
	for d := int32(0); int(d) < g.n; d += f.step {
		if g.pull[d] > 0 {
			f.work += each
		}
	}
	return f
}

// score is the 8-norm of the loads: near the largest of them, but it falls too
// when any other large one does. With hop weights it is that times the square of the sum of
// the lengths of all paths: ten percent more load is as bad as paths that are five percent
// longer. Lower is better.
func (f *fluid) score(e engine) float64 {
	g := f.g
	length := 0.0
	clear(f.load)
	for d := int32(0); int(d) < g.n; d += f.step {
		if g.pull[d] == 0 {
			continue
		}
		f.c.reset()
		e.towards(d, f.c)
		for s, h := range g.hosts {
			f.flow[s] = float64(h * g.pull[d])
		}
		for i := len(f.c.order) - 1; i >= 0; i-- {
			s := f.c.order[i]
			if f.flow[s] == 0 {
				continue
			}
			links := f.c.of(s)
			part := f.flow[s] / float64(len(links))
			for _, l := range links {
				load := part * float64(g.cost[l])
				if g.linkTo[l] != d { // the flows on it are to d alone, others stand for those to all
					load *= float64(f.step)
				}
				f.load[l] += load
				if g.hop != nil {
					length += part * float64(g.hop[l])
				}
				f.flow[g.linkTo[l]] += part
			}
		}
	}
	sum := 0.0
	for _, v := range f.load {
		v *= v
		v *= v
		sum += v * v
	}
	sum = math.Sqrt(math.Sqrt(math.Sqrt(sum)))
	if g.hop != nil {
		sum *= length * length
	}
	return sum
}
