package route

import (
	"cmp"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// NoPort is the entry of an LFT for a LID that goes nowhere (IBA vol 1,
// 14.2.5.6 LinearForwardingTable: 255 means drop).
const NoPort uint8 = 255

// graph is the switches of a fabric and the links among them, in compressed
// rows. A group is all parallel links from one switch to another; links of a
// group are in the order of port numbers, groups in the order of the peer.
type graph struct {
	f       *fabric.Fabric
	procs   int // processors that may be taken
	n       int
	group   []int32 // n+1: first group of each switch
	peer    []int32 // by group: the other switch
	link    []int32 // len(peer)+1: first link of each group
	port    []uint8 // by link: output port
	linkTo  []int32 // by link: the other switch
	cost    []int64 // by link: what a flow costs, more on slower links
	linkOf  []int32 // n*256: link by switch and port, None for others
	start   []int32 // by switch: its first link
	hop     []int32 // by link: length of a hop, nil where all are 1
	hops    []int32 // by group: that of its shortest links, with hop
	back    []int32 // by group: the group of the other direction, with hops
	hosts   []int64 // by switch: end ports of adapters and routers behind it that count
	pull    []int64 // by switch: the LIDs of those of them that are destinations, of this part
	dests   [][]dest
	kind    []kind    // by index of Fabric.EndPorts
	only    kind      // of the destinations that are in dests, 0 for all
	base    []int64   // by link: the load of other destinations, nil for none
	top     int       // highest LID
	leadLFT [][]uint8 // tables for the first LIDs of ports, where dests has the others
	lead    []ib.LID  // by LID: the first of the port, with leadLFT
	first   []ib.LID  // by LID: the LID in dests that represents it, nil if dests has all
	ends    []int32   // indices of Fabric.EndPorts in the order of hosts, nil for their own
	apart   int       // pairs of switches without a way because one is pendant
	// mostHosts is the largest of hosts.
	mostHosts int64
	hostSum   int64
}

// dest is a LID that some switch delivers.
type dest struct {
	lid  ib.LID
	port uint8 // the delivering switch's port, 0 for itself
	kind kind
	// ports is the number of ports that it represents: its own and those that have no LID in
	// this graph.
	ports int64
}

func newGraph(f *fabric.Fabric) *graph { return newHinted(f, nil) }

// newHinted is newGraph with the kinds of the end ports, nil for ordinary ones.
func newHinted(f *fabric.Fabric, kinds []kind) *graph {
	n := len(f.Switches)
	if kinds == nil {
		kinds = slices.Repeat([]kind{ordinary}, len(f.EndPorts))
	}
	g := &graph{f: f, n: n, group: make([]int32, 1, n+1), link: []int32{0},
		linkOf: make([]int32, n*256), hosts: make([]int64, n), pull: make([]int64, n), dests: make([][]dest, n), kind: kinds}
	for i := range g.linkOf {
		g.linkOf[i] = fabric.None
	}
	type edge struct {
		peer int32
		port uint8
	}
	var row []edge
	for s := range n {
		row = row[:0]
		first, count := f.PortRange(f.Switches[s].Node)
		for i := first; i < first+count; i++ {
			p := &f.Ports[i]
			if p.Num == 0 || p.Peer == fabric.None {
				continue
			}
			q := &f.Ports[p.Peer]
			// A loop back to the same switch carries no traffic.
			if t := f.Nodes[q.Node].Switch; t != fabric.None && int(t) != s {
				row = append(row, edge{t, p.Num})
			}
		}
		slices.SortFunc(row, func(a, b edge) int {
			return cmp.Or(cmp.Compare(a.peer, b.peer), cmp.Compare(a.port, b.port))
		})
		for i, e := range row {
			if i == 0 || row[i-1].peer != e.peer {
				if i > 0 {
					g.link = append(g.link, int32(len(g.port)))
				}
				g.peer = append(g.peer, e.peer)
			}
			g.linkOf[s<<8|int(e.port)] = int32(len(g.port))
			g.port = append(g.port, e.port)
			g.linkTo = append(g.linkTo, e.peer)
		}
		if len(row) > 0 {
			g.link = append(g.link, int32(len(g.port)))
		}
		g.group = append(g.group, int32(len(g.peer)))
	}
	g.start = make([]int32, n)
	for s := range g.start {
		g.start[s] = g.link[g.group[s]]
	}
	g.weigh()
	for i, e := range f.EndPorts {
		p := &f.Ports[e]
		s, out := f.SwitchOf(e)
		if s == fabric.None {
			continue
		}
		k := uncounted
		if kinds[i] == ordinary && f.Nodes[p.Node].Aggregates() {
			kinds[i] = uncounted
		}
		if out != 0 && kinds[i] != uncounted {
			k = kinds[i]
			g.hosts[s]++
			g.hostSum++
			g.mostHosts = max(g.mostHosts, g.hosts[s])
			g.pull[s] += int64(p.LMC.Count())
		}
		for lid := range p.LIDs() {
			g.dests[s] = append(g.dests[s], dest{lid, out, k, 1})
			g.top = max(g.top, int(lid))
		}
	}
	for _, d := range g.dests {
		slices.SortFunc(d, func(a, b dest) int { return cmp.Or(cmp.Compare(a.port, b.port), cmp.Compare(a.lid, b.lid)) })
	}
	return g
}

// weigh sets the costs of links in proportion to the fastest, 16 for that one.
func (g *graph) weigh() {
	g.cost = make([]int64, len(g.port))
	fastest := 0
	for s := range int32(g.n) {
		a, b := g.neighbours(s)
		for l := g.link[a]; l < g.link[b]; l++ {
			n := max(1, g.f.LinkRate(g.f.Port(g.f.Switches[s].Node, g.port[l])).Tenths())
			g.cost[l] = int64(n)
			fastest = max(fastest, n)
		}
	}
	for l, n := range g.cost {
		g.cost[l] = 16 * int64(fastest) / n
	}
}

// neighbours gives the group range of a switch.
func (g *graph) neighbours(s int32) (a, b int32) { return g.group[s], g.group[s+1] }

// bfs fills dist with the hops from any of the sources, -1 where there is no
// way, and returns the switches in the order they were reached.
func (g *graph) bfs(dist []int32, queue []int32, sources ...int32) []int32 {
	for i := range dist {
		dist[i] = -1
	}
	queue = queue[:0]
	for _, s := range sources {
		if dist[s] < 0 {
			dist[s] = 0
			queue = append(queue, s)
		}
	}
	for i := 0; i < len(queue); i++ {
		s := queue[i]
		a, b := g.neighbours(s)
		for _, t := range g.peer[a:b] {
			if dist[t] < 0 {
				dist[t] = dist[s] + 1
				queue = append(queue, t)
			}
		}
	}
	return queue
}
