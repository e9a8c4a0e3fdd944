package route

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
)

// kindsOf are the kinds of the end ports by the lists of compute and I/O nodes, nil without
// any. Where the fabric has a compute node, only those and I/O nodes count.
func kindsOf(f *fabric.Fabric, opt *Options) (out []kind, warnings []string) {
	if len(opt.Compute)+len(opt.IO) == 0 {
		return nil, nil
	}
	out = make([]kind, len(f.EndPorts))
	mark := func(list []ib.GUID, what string, k kind) (some bool) {
		missing := unknown{what: what, all: len(list)}
		for _, g := range list {
			i, ok := slices.BinarySearchFunc(f.EndPorts, g, func(p int32, g ib.GUID) int { return cmp.Compare(f.Ports[p].GUID, g) })
			if !ok || f.Nodes[f.Ports[f.EndPorts[i]].Node].Switch != fabric.None {
				missing.add(g)
				continue
			}
			out[i], some = k, true
		}
		warnings = missing.warn(warnings, "no port of an adapter or router of the fabric")
		return some
	}
	if !mark(opt.Compute, "compute nodes", ordinary) {
		for i := range out {
			out[i] = ordinary
		}
	}
	mark(opt.IO, "I/O nodes", server)
	return out, warnings
}

// unknown gathers the GUIDs of a list that the fabric does not have.
type unknown struct {
	what   string
	all, n int
	first  ib.GUID
}

func (u *unknown) add(g ib.GUID) {
	if u.n++; u.n == 1 {
		u.first = g
	}
}

func (u *unknown) warn(warnings []string, why string) []string {
	switch {
	case u.n == 0:
		return warnings
	case u.all == 1:
		return append(warnings, fmt.Sprintf("%s: %v is %s", u.what, u.first, why))
	}
	return append(warnings, fmt.Sprintf("%s: %d of the %d GUIDs, such as %v, are %s", u.what, u.n, u.all, u.first, why))
}

// rootsOf are the switches that a list names: by their own GUIDs, or by those of
// adapters or ports on them, as opensm takes them.
func rootsOf(f *fabric.Fabric, list []ib.GUID) (roots []int32, warnings []string) {
	missing := unknown{what: "roots", all: len(list)}
	for _, g := range list {
		at := fabric.None
		if n := f.NodeByGUID(g); n != fabric.None && f.Nodes[n].Switch != fabric.None {
			at = f.Nodes[n].Switch
		} else if n != fabric.None {
			first, count := f.PortRange(n)
			for p := first; p < first+count && at == fabric.None; p++ {
				at, _ = f.SwitchOf(p)
			}
		} else if p := f.EndPortByGUID(g); p != fabric.None {
			at, _ = f.SwitchOf(p)
		}
		if at == fabric.None {
			missing.add(g)
		} else {
			roots = append(roots, at)
		}
	}
	slices.Sort(roots)
	why := "neither a switch of the fabric nor on one"
	if len(roots) == 0 {
		why += "; roots are found instead"
	}
	return slices.Compact(roots), missing.warn(warnings, why)
}

// rooted builds tables for an order by the distance from roots. The switch that leads
// from one root to the others may be any; of these the best is taken, that of the tables
// in force while it is nearly as good. Engine is ftree if the roots make a tree.
func (b *builder) rooted(r *Result, roots []int32) {
	g := b.graph
	rank := b.from(roots...)
	last := 0.0
	for _, d := range rank {
		if int(d) < g.n { // reached
			last = max(last, d)
		}
	}
	level := make([]int32, g.n)
	for s := range level {
		level[s] = int32(last - rank[s])
	}
	if r.Engine == "" {
		if r.Engine = UpDown; last > 0 && g.isTree(level) {
			r.Engine = FatTree
		}
	}
	if r.Engine == FatTree && g.isTree(level) {
		b.level = level
	}
	f := newFluid(g)
	var pos []int32
	least := 0.0
	tries := max(1, min(64, searchWork/max(1, f.work)))
	for first := -1; first < g.n && tries > 0 && (first < 0 || len(roots) > 1); first++ {
		try := rank
		if first >= 0 {
			if rank[first] < last {
				continue
			}
			try = slices.Clone(rank)
			try[first] = -1
		}
		tries--
		p := g.connectedOrder(try)
		if v := f.score(newUpDown(g, p)); pos == nil || v < least {
			pos, least = p, v
		}
	}
	if b.prior != nil {
		old := g.connectedOrder(b.prior)
		if g.against(rank, old) <= g.against(rank, pos) && f.score(newUpDown(g, old)) <= 1.05*least {
			pos = old
		}
	}
	b.ordered(r, pos)
}

// against counts the links that an order leads up, against the ranks.
func (g *graph) against(rank []float64, pos []int32) (n int) {
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for _, t := range g.peer[a:b] {
			if rank[s] < rank[t] && pos[s] > pos[t] {
				n++
			}
		}
	}
	return n
}

// weighHops sets the lengths of hops; parallel links of another length than the
// shortest are not used.
func (g *graph) weighHops(list []guidfile.Weight) (warnings []string) {
	if len(list) == 0 {
		return nil
	}
	missing := unknown{what: "hop weights", all: len(list)}
	g.hop = slices.Repeat([]int32{1}, len(g.port))
	for _, w := range list {
		l := fabric.None
		if n := g.f.NodeByGUID(w.Switch); n != fabric.None && g.f.Nodes[n].Switch != fabric.None {
			l = g.linkOf[int(g.f.Nodes[n].Switch)<<8|int(w.Port)]
		} else {
			missing.add(w.Switch)
		}
		if l != fabric.None { // a port that is down, or leads to a host, has no hop
			g.hop[l] = int32(w.Hops)
		}
	}
	if !slices.ContainsFunc(g.hop, func(n int32) bool { return n != 1 }) {
		g.hop = nil // an order is judged by lengths only where they differ
		return missing.warn(nil, "no switch of the fabric")
	}
	g.hops, g.back = make([]int32, len(g.peer)), make([]int32, len(g.peer))
	for i := range g.peer {
		g.hops[i] = slices.Min(g.hop[g.link[i]:g.link[i+1]])
	}
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for i := a; i < b; i++ {
			c, d := g.neighbours(g.peer[i])
			j, _ := slices.BinarySearch(g.peer[c:d], s)
			g.back[i] = c + int32(j)
		}
	}
	return missing.warn(nil, "no switch of the fabric")
}

// orderHosts puts the destinations of each switch in the order of a list of end ports.
func (g *graph) orderHosts(list []ib.GUID) (warnings []string) {
	if len(list) == 0 {
		return nil
	}
	missing := unknown{what: "order of hosts", all: len(list)}
	place := make([]int, len(g.f.Ports))
	for i, guid := range list {
		p := g.f.EndPortByGUID(guid)
		if p == fabric.None || g.f.Nodes[g.f.Ports[p].Node].Switch != fabric.None {
			missing.add(guid)
		} else if place[p] == 0 {
			place[p] = i + 1
		}
	}
	byPlace := func(p, q int32) int { return cmp.Compare(uint(place[p]-1), uint(place[q]-1)) } // 0 comes last
	g.ends = make([]int32, len(g.f.EndPorts))
	for i := range g.ends {
		g.ends[i] = int32(i)
	}
	slices.SortStableFunc(g.ends, func(a, b int32) int { return byPlace(g.f.EndPorts[a], g.f.EndPorts[b]) })
	owner := g.f.LIDs()
	for _, d := range g.dests {
		slices.SortStableFunc(d, func(a, b dest) int { return byPlace(owner[a.lid], owner[b.lid]) })
	}
	return missing.warn(nil, "no port of an adapter or router of the fabric")
}

// step is the length of a hop by a group.
func (g *graph) step(group int32) int32 {
	if g.hops == nil {
		return 1
	}
	return g.hops[group]
}

// nearest gives the switches in the order of their distance to d, and leaves that in dist,
// -1 without a way. take decides whether s may send over t, whose distance is final; dist
// has the best length so far, k is that of the way over t.
func (g *graph) nearest(d int32, dist, queue []int32, take func(s, t, k int32) bool) []int32 {
	for i := range dist {
		dist[i] = -1
	}
	dist[d] = 0
	queue = queue[:0]
	done := make([]bool, g.n)
	q := &distHeap{{0, d}}
	for q.Len() > 0 {
		t := heap.Pop(q).(distance).at
		if done[t] {
			continue
		}
		done[t] = true
		queue = append(queue, t)
		a, b := g.neighbours(t)
		for i := a; i < b; i++ {
			s, k := g.peer[i], dist[t]+g.hops[g.back[i]]
			if !done[s] && take(s, t, k) && (dist[s] < 0 || k < dist[s]) {
				dist[s] = k
				heap.Push(q, distance{k, s})
			}
		}
	}
	return queue
}

type distance struct{ dist, at int32 }

// distHeap is a heap of switches, the nearest first, ties by index.
type distHeap []distance

func (h distHeap) Len() int { return len(h) }
func (h distHeap) Less(i, j int) bool {
	return h[i].dist < h[j].dist || h[i].dist == h[j].dist && h[i].at < h[j].at
}
func (h distHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *distHeap) Push(x any)   { *h = append(*h, x.(distance)) }
func (h *distHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}
