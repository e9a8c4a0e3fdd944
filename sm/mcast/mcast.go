// Package mcast routes multicast: it computes multicast forwarding tables from
// groups and their members.
//
// It has the spanning tree of each multicast LID. It does not know MGIDs, who may
// join, or the switches' contents: sa keeps the groups, program compares tables.
// The subnet manager's engine calls it after each sweep and each change of
// membership.
//
// A tree is the union of fixed paths from the members' switches to a root. The
// root and the paths depend on the multicast LID and the graph alone, never on
// the other members, so a join or leave changes only the entries on its own path.
// Different LIDs get different roots and links, which spreads the load.
package mcast

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// PortSet is a set of switch port numbers 0 to 255.
type PortSet [4]uint64

// Add puts a port into the set.
func (s *PortSet) Add(p uint8) { s[p>>6] |= 1 << (p & 63) }

// Has reports whether the port is in the set.
func (s *PortSet) Has(p uint8) bool { return s[p>>6]&(1<<(p&63)) != 0 }

// IsEmpty reports whether the set has no port.
func (s *PortSet) IsEmpty() bool { return *s == PortSet{} }

// Len is the number of ports in the set.
func (s *PortSet) Len() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Position gives the 16 ports of one port mask as the wire has them: position
// n covers ports 16n to 16n+15, port 16n in the lowest bit (IBA vol 1,
// 14.2.5.10 MulticastForwardingTable).
func (s *PortSet) Position(n int) uint16 {
	if n < 0 || n > 15 {
		return 0
	}
	return uint16(s[n/4] >> (16 * (n % 4)))
}

// Member is an end port in a group.
type Member struct {
	Port int32 // index into Fabric.Ports
	// SendOnly members send to the group and get nothing from it.
	SendOnly bool
}

// Group is everything that is sent to one multicast LID.
type Group struct {
	MLID    ib.LID
	Members []Member
}

// Entry is a row of a switch's table: where a multicast LID goes. A switch
// never sends a packet back to the port it came from (IBA vol 1, 18.2.4.3.3),
// so one set serves all directions.
type Entry struct {
	MLID  ib.LID
	Ports PortSet
}

// Tables has the rows of each switch, by switch index, sorted by MLID; a LID
// without a row goes nowhere.
type Tables [][]Entry

// Ports is the set of a switch for a LID.
func (t Tables) Ports(sw int32, mlid ib.LID) PortSet {
	if int(sw) >= len(t) {
		return PortSet{}
	}
	if i, ok := slices.BinarySearchFunc(t[sw], mlid, byMLID); ok {
		return t[sw][i].Ports
	}
	return PortSet{}
}

func byMLID(e Entry, l ib.LID) int { return cmp.Compare(e.MLID, l) }

// Block is one block of a switch's table as it is written: the masks of 32 LIDs
// from 0xc000+32*block for the 16 ports of a position.
func (t Tables) Block(sw int32, block, position int) (b [32]uint16) {
	if int(sw) >= len(t) || block < 0 {
		return b
	}
	first := int(ib.LIDMulticastMin) + 32*block
	rows := t[sw]
	i, _ := slices.BinarySearchFunc(rows, first, func(e Entry, l int) int { return cmp.Compare(int(e.MLID), l) })
	for ; i < len(rows) && int(rows[i].MLID) < first+32; i++ {
		b[int(rows[i].MLID)-first] = rows[i].Ports.Position(position)
	}
	return b
}

// Planner builds trees on one fabric. It remembers what it found out about the
// graph, so that one join costs the length of a path. It is not safe for
// concurrent use.
type Planner struct {
	f       *fabric.Fabric
	n       int
	first   []int32 // n+1: neighbours of each switch in peer
	peer    []int32
	via     []uint8 // port towards peer
	centres []int32
	trees   map[int32]*tree
}

// tree is the paths of all switches to a root.
type tree struct {
	parent []int32 // None at the root and where there is no path
	up     []uint8 // port towards the parent
	down   []uint8 // the parent's port towards the switch
}

// newTrunk plans all groups on one tree, by switch index the port towards its root, 0 at a
// root. The root is that of the manager's switch.
func newTrunk(f *fabric.Fabric, trunk []uint8) *Planner {
	p := NewPlanner(f)
	t := &tree{parent: make([]int32, p.n), up: make([]uint8, p.n), down: make([]uint8, p.n)}
	for s := range p.n {
		t.parent[s] = fabric.None
		if s >= len(trunk) || trunk[s] == 0 {
			continue
		}
		if up := f.Port(f.Switches[s].Node, trunk[s]); up != fabric.None && f.Ports[up].Peer != fabric.None {
			q := &f.Ports[f.Ports[up].Peer]
			t.parent[s], t.up[s], t.down[s] = f.Nodes[q.Node].Switch, trunk[s], q.Num
		}
	}
	root, _ := f.SwitchOf(f.SMPort)
	if root == fabric.None {
		return p
	}
	for n := 0; n < p.n && t.parent[root] != fabric.None; n++ {
		root = t.parent[root]
	}
	p.centres = []int32{root}
	p.trees[root] = t
	return p
}

// NewPlanner studies the graph of a fabric.
func NewPlanner(f *fabric.Fabric) *Planner {
	p := &Planner{f: f, n: len(f.Switches), first: []int32{0}, trees: map[int32]*tree{}}
	hosts := make([]int32, 0, p.n)
	for s := range f.Switches {
		first, count := f.PortRange(f.Switches[s].Node)
		host := false
		for i := first; i < first+count; i++ {
			q := &f.Ports[i]
			if q.Num == 0 || q.Peer == fabric.None {
				continue
			}
			t := f.Nodes[f.Ports[q.Peer].Node].Switch
			if t == fabric.None {
				host = true
			} else if int(t) != s {
				p.peer = append(p.peer, t)
				p.via = append(p.via, q.Num)
			}
		}
		p.first = append(p.first, int32(len(p.peer)))
		if host {
			hosts = append(hosts, int32(s))
		}
	}
	p.findCentres(hosts)
	return p
}

// findCentres takes the switches whose farthest host is nearest: the top of a
// fat-tree, the middle of anything else. A sample of the hosts' switches keeps
// this fast on big fabrics.
func (p *Planner) findCentres(hosts []int32) {
	if p.n == 0 {
		return
	}
	if len(hosts) == 0 {
		hosts = []int32{0}
	}
	const sample = 24
	far, sum := make([]int32, p.n), make([]int32, p.n)
	dist := make([]int32, p.n)
	for i := range min(sample, len(hosts)) {
		p.bfs(hosts[i*len(hosts)/min(sample, len(hosts))], dist)
		for s, d := range dist {
			if d < 0 {
				d = 1 << 20
			}
			far[s] = max(far[s], d)
			sum[s] += d
		}
	}
	best := 0
	for s := range p.n {
		if far[s] < far[best] || far[s] == far[best] && sum[s] < sum[best] {
			best = s
		}
	}
	for s := range p.n {
		if far[s] == far[best] && sum[s] == sum[best] {
			p.centres = append(p.centres, int32(s))
		}
	}
}

// bfs sets the distances of all switches from root, -1 for those without a path.
func (p *Planner) bfs(root int32, dist []int32) {
	for i := range dist {
		dist[i] = -1
	}
	dist[root] = 0
	queue := append(make([]int32, 0, p.n), root)
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		for _, t := range p.peer[p.first[s]:p.first[s+1]] {
			if dist[t] < 0 {
				dist[t] = dist[s] + 1
				queue = append(queue, t)
			}
		}
	}
}

// tree gives the paths to a root.
func (p *Planner) tree(root int32) *tree {
	if t := p.trees[root]; t != nil {
		return t
	}
	t := &tree{parent: make([]int32, p.n), up: make([]uint8, p.n), down: make([]uint8, p.n)}
	dist := make([]int32, p.n)
	p.bfs(root, dist)
	var nearer []int32
	for s := range int32(p.n) {
		t.parent[s] = fabric.None
		nearer = nearer[:0]
		for i := p.first[s]; i < p.first[s+1]; i++ {
			if dist[s] > 0 && dist[p.peer[i]] == dist[s]-1 {
				nearer = append(nearer, i)
			}
		}
		if len(nearer) == 0 {
			continue
		}
		i := nearer[int(root)%len(nearer)]
		t.parent[s], t.up[s] = p.peer[i], p.via[i]
		port := p.f.Port(p.f.Switches[s].Node, p.via[i])
		t.down[s] = p.f.Ports[p.f.Ports[port].Peer].Num
	}
	p.trees[root] = t
	return t
}

// branch is a switch's part in one tree.
type branch struct {
	ports    PortSet // where packets go, apart from up
	children int
	upward   bool // packets go on to the parent
	full     bool // the way up leads from a member that also receives
}

// Tree gives the entries of one group by switch, sorted by switch index.
func (p *Planner) Tree(g Group) []SwitchEntry {
	if p.n == 0 {
		return nil
	}
	root := p.centres[int(g.MLID)%len(p.centres)]
	t := p.tree(root)
	at := map[int32]*branch{}
	get := func(s int32) *branch {
		b := at[s]
		if b == nil {
			b = &branch{}
			at[s] = b
		}
		return b
	}
	receivers := 0
	for _, m := range g.Members {
		s, out := p.f.SwitchOf(m.Port)
		if s == fabric.None || m.SendOnly {
			continue
		}
		b := get(s)
		if !b.ports.Has(out) {
			b.ports.Add(out)
			receivers++
		}
		for !b.full && s != root && t.parent[s] != fabric.None {
			b.full, b.upward = true, true
			up := get(t.parent[s])
			up.ports.Add(t.down[s])
			up.children++
			s, b = t.parent[s], up
		}
	}
	if receivers == 0 {
		return nil
	}
	// The root may be above all members: go down to where the tree branches, so
	// that packets do not climb needlessly.
	top := root
	for {
		b := at[top]
		if b == nil || b.children != 1 || b.ports.Len() != 1 {
			break
		}
		next := fabric.None
		for i := p.first[top]; i < p.first[top+1]; i++ {
			if b.ports.Has(p.via[i]) {
				next = p.peer[i]
			}
		}
		if next == fabric.None {
			break
		}
		delete(at, top)
		top = next
		at[top].upward = false
	}
	// A member that only sends needs a way into the tree and none out of it.
	for _, m := range g.Members {
		s, _ := p.f.SwitchOf(m.Port)
		if s == fabric.None || !m.SendOnly {
			continue
		}
		p.enter(t, at, top, s)
	}
	out := make([]SwitchEntry, 0, len(at))
	for s, b := range at {
		if b.upward {
			b.ports.Add(t.up[s])
		}
		if !b.ports.IsEmpty() {
			out = append(out, SwitchEntry{s, b.ports})
		}
	}
	slices.SortFunc(out, func(a, b SwitchEntry) int { return cmp.Compare(a.Switch, b.Switch) })
	return out
}

// enter leads the packets of a switch that no receiver's path crosses up to the
// tree. Where the tree was cut below the root, the way goes up to the cut part
// of the path and down again.
func (p *Planner) enter(t *tree, at map[int32]*branch, top, s int32) {
	var way []int32
	for s != fabric.None && at[s] == nil {
		way = append(way, s)
		s = t.parent[s]
	}
	if s != fabric.None {
		for _, w := range way {
			at[w] = &branch{upward: true}
		}
		return
	}
	// No tree above: the way meets the path from the root down to top.
	var down []int32
	for v := top; v != fabric.None; v = t.parent[v] {
		down = append(down, v)
	}
	for _, w := range way {
		if j := slices.Index(down, w); j > 0 {
			for ; j > 0; j-- {
				b := &branch{}
				b.ports.Add(t.down[down[j-1]])
				at[down[j]] = b
			}
			return
		}
		at[w] = &branch{upward: true}
	}
}

// SwitchEntry is the part of one switch in a tree.
type SwitchEntry struct {
	Switch int32
	Ports  PortSet
}

// Build makes the tables of all groups. Groups with the same MLID share a tree.
func (p *Planner) Build(groups []Group) Tables {
	byLID := map[ib.LID][]Member{}
	for _, g := range groups {
		if g.MLID.IsMulticast() {
			byLID[g.MLID] = append(byLID[g.MLID], g.Members...)
		}
	}
	t := make(Tables, p.n)
	for _, l := range slices.Sorted(maps.Keys(byLID)) {
		for _, e := range p.Tree(Group{l, byLID[l]}) {
			t[e.Switch] = append(t[e.Switch], Entry{l, e.Ports})
		}
	}
	return t
}

// Build makes the tables of all groups on a fabric.
func Build(f *fabric.Fabric, groups []Group) Tables { return NewPlanner(f).Build(groups) }

// BuildOn is Build with all groups on one tree if trunk has one (see newTrunk).
func BuildOn(f *fabric.Fabric, trunk []uint8, groups []Group) Tables {
	if len(trunk) == 0 {
		return Build(f, groups)
	}
	return newTrunk(f, trunk).Build(groups)
}
