package fabric

import (
	"slices"

	"ibnetworkd/ib"
)

// Drain is what becomes of a switch that routes are to avoid.
type Drain struct {
	GUID ib.GUID
	Node int32 // None if it is not in the fabric
	// Via is the neighbour by whose links alone the switch and what is on it are
	// reached, None if there is none.
	Via int32
	// Hosts are the end ports of adapters on the switch: nothing else leads to them.
	Hosts []int32
	// Behind are end ports to which nothing but the switch leads, so that routes
	// go through it as before.
	Behind []int32
}

// Drained is the fabric as routes are to see it that avoid some switches: these keep the
// links to one neighbour, so that nothing passes through them. A switch that alone
// connects others is left as it is. Indices are those of f.
func (f *Fabric) Drained(switches []ib.GUID) (*Fabric, []Drain) {
	if len(switches) == 0 {
		return f, nil
	}
	g := f.Clone()
	out := make([]Drain, 0, len(switches))
	avoid := map[int32]bool{}
	for _, guid := range slices.Sorted(slices.Values(switches)) {
		d := Drain{GUID: guid, Node: f.NodeByGUID(guid), Via: None}
		if d.Node != None && f.Nodes[d.Node].Switch == None {
			d.Node = None
		}
		if d.Node != None {
			avoid[d.Node] = true
		}
		out = append(out, d)
	}
	whole := len(g.switchesFrom())
	for i := range out {
		d := &out[i]
		if d.Node == None {
			continue
		}
		d.Via = f.bestNeighbour(d.Node, avoid)
		var cut [][2]int32
		first, count := f.PortRange(d.Node)
		for p := first; p < first+count; p++ {
			q := g.Ports[p].Peer
			switch {
			case q == None:
			case g.Nodes[g.Ports[q].Node].Switch == None:
				d.Hosts = append(d.Hosts, q)
			case g.Ports[q].Node != d.Via:
				cut = append(cut, [2]int32{p, q})
				g.Ports[p].Peer, g.Ports[q].Peer = None, None
			}
		}
		if seen := g.switchesFrom(); len(seen) < whole {
			for _, e := range f.EndPorts {
				if s, _ := f.SwitchOf(e); s != None && f.Ports[e].Num != 0 && f.Nodes[f.Ports[e].Node].Switch == None && !seen[f.Switches[s].Node] {
					d.Behind = append(d.Behind, e)
				}
			}
			for _, c := range cut {
				g.Ports[c[0]].Peer, g.Ports[c[1]].Peer = c[1], c[0]
			}
			d.Via = None
			if len(d.Behind) == 0 { // switches without adapters
				for n := range f.Nodes {
					if f.Nodes[n].Switch != None && !seen[int32(n)] {
						d.Behind = append(d.Behind, f.Port(int32(n), 0))
					}
				}
			}
		}
	}
	return g, out
}

// bestNeighbour is the neighbouring switch with the most links, rather one that is not
// avoided itself.
func (f *Fabric) bestNeighbour(n int32, avoid map[int32]bool) int32 {
	links := map[int32]int{}
	first, count := f.PortRange(n)
	for p := first; p < first+count; p++ {
		if q := f.Ports[p].Peer; q != None && f.Nodes[f.Ports[q].Node].Switch != None && f.Ports[q].Node != n {
			links[f.Ports[q].Node]++
		}
	}
	best := None
	for m := range int32(len(f.Nodes)) {
		if k := links[m]; k > 0 && (best == None || avoid[best] && !avoid[m] || avoid[best] == avoid[m] && k > links[best]) {
			best = m
		}
	}
	return best
}

// switchesFrom finds the switches that are connected with the manager's port, or with
// the first switch.
func (f *Fabric) switchesFrom() map[int32]bool {
	seen := map[int32]bool{}
	if len(f.Switches) == 0 {
		return seen
	}
	start := f.Switches[0].Node
	if f.SMPort != None {
		if s, _ := f.SwitchOf(f.SMPort); s != None {
			start = f.Switches[s].Node
		}
	}
	seen[start] = true
	for queue := []int32{start}; len(queue) > 0; queue = queue[1:] {
		first, count := f.PortRange(queue[0])
		for p := first; p < first+count; p++ {
			q := f.Ports[p].Peer
			if q == None {
				continue
			}
			if m := f.Ports[q].Node; f.Nodes[m].Switch != None && !seen[m] {
				seen[m] = true
				queue = append(queue, m)
			}
		}
	}
	return seen
}
