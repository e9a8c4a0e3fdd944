package fabric

import (
	"fmt"
	"slices"

	"ibnetworkd/ib"
)

// Builder collects nodes, ports and links in any order and makes a Fabric.
// A node is named by the number AddNode returned until Build sorts them.
type Builder struct {
	nodes  []Node
	sw     []SwitchInfo
	ports  [][]Port // per node, by port number; Peer is unused here
	links  [][4]int32
	byGUID map[ib.GUID]int
	sm     [2]int32
	prefix uint64
}

// NewBuilder starts an empty fabric with the default subnet prefix.
func NewBuilder() *Builder {
	return &Builder{byGUID: map[ib.GUID]int{}, sm: [2]int32{None, 0}, prefix: ib.DefaultPrefix}
}

// Grow makes place for n more nodes.
func (b *Builder) Grow(n int) {
	b.nodes, b.sw, b.ports = slices.Grow(b.nodes, n), slices.Grow(b.sw, n), slices.Grow(b.ports, n)
}

// SetPrefix sets the subnet prefix.
func (b *Builder) SetPrefix(p uint64) { b.prefix = p }

// AddNode adds a node and returns its number. A second node of the same GUID
// is refused.
func (b *Builder) AddNode(n Node) (int, error) {
	n.Desc = ib.Printable(n.Desc)
	if n.GUID == 0 {
		return 0, fmt.Errorf("node %q has GUID 0", n.Desc)
	}
	if i, ok := b.byGUID[n.GUID]; ok {
		return 0, fmt.Errorf("node GUID %v of %q is taken by %q", n.GUID, n.Name(), b.nodes[i].Name())
	}
	if n.NumPorts == 0 || n.NumPorts == 255 {
		return 0, fmt.Errorf("node %q has %d ports, want 1 to 254", n.Name(), n.NumPorts)
	}
	i := len(b.nodes)
	b.byGUID[n.GUID] = i
	b.nodes = append(b.nodes, n)
	b.sw = append(b.sw, SwitchInfo{})
	ports := make([]Port, int(n.NumPorts)+1)
	for p := range ports {
		ports[p].Num = uint8(p)
	}
	b.ports = append(b.ports, ports)
	return i, nil
}

// Node gives the node to be changed before Build.
func (b *Builder) Node(n int) *Node { return &b.nodes[n] }

// SetSwitchInfo records a switch's SwitchInfo.
func (b *Builder) SetSwitchInfo(n int, si SwitchInfo) { b.sw[n] = si }

// Port gives port num of a node to be filled in before Build, nil when there
// is none. Node, Num and Peer are set by Build.
func (b *Builder) Port(n int, num uint8) *Port {
	if int(num) >= len(b.ports[n]) {
		return nil
	}
	return &b.ports[n][num]
}

// Link joins two ports. A port that already has a link is refused.
func (b *Builder) Link(n int, p uint8, m int, q uint8) error {
	for _, e := range [2][2]int{{n, int(p)}, {m, int(q)}} {
		if e[1] == 0 || e[1] >= len(b.ports[e[0]]) {
			return fmt.Errorf("%s has no port %d", b.nodes[e[0]].Name(), e[1])
		}
		if b.ports[e[0]][e[1]].Peer != 0 {
			return fmt.Errorf("port %s[%d] already has a link", b.nodes[e[0]].Name(), e[1])
		}
	}
	b.ports[n][p].Peer, b.ports[m][q].Peer = 1, 1
	b.links = append(b.links, [4]int32{int32(n), int32(p), int32(m), int32(q)})
	return nil
}

// SetSM names the port that the subnet manager runs on.
func (b *Builder) SetSM(n int, port uint8) { b.sm = [2]int32{int32(n), int32(port)} }

// Build sorts everything by GUID and makes the Fabric. The builder is spent.
func (b *Builder) Build() *Fabric {
	order := make([]int, len(b.nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return cmpGUID(b.nodes[x].GUID, b.nodes[y].GUID) })
	f := &Fabric{SMPort: None, Prefix: b.prefix, Nodes: make([]Node, 0, len(b.nodes))}
	total, ends := 0, 0
	for _, p := range b.ports {
		total += len(p)
	}
	f.Ports = make([]Port, 0, total)
	place := make([]int32, len(b.nodes)) // old number -> new index
	for _, o := range order {
		n := b.nodes[o]
		place[o] = int32(len(f.Nodes))
		n.Switch = None
		first := 1
		if n.Type == ib.NodeSwitch {
			n.Switch = int32(len(f.Switches))
			f.Switches = append(f.Switches, Switch{Node: place[o], Info: b.sw[o]})
			first = 0
		}
		n.ports = int32(len(f.Ports) - first)
		for i := range b.ports[o] {
			if i < first {
				continue
			}
			p := b.ports[o][i]
			p.Node, p.Num, p.Peer = place[o], uint8(i), None
			if p.GUID != 0 && (i == 0 || n.Switch == None) {
				ends++
			}
			f.Ports = append(f.Ports, p)
		}
		f.Nodes = append(f.Nodes, n)
	}
	for _, l := range b.links {
		x := f.Nodes[place[l[0]]].ports + l[1]
		y := f.Nodes[place[l[2]]].ports + l[3]
		f.Ports[x].Peer, f.Ports[y].Peer = y, x
	}
	f.EndPorts = make([]int32, 0, ends)
	for i := range f.Ports {
		if f.IsEndPort(int32(i)) {
			f.EndPorts = append(f.EndPorts, int32(i))
		}
	}
	slices.SortStableFunc(f.EndPorts, func(x, y int32) int { return cmpGUID(f.Ports[x].GUID, f.Ports[y].GUID) })
	if b.sm[0] != None {
		f.SMPort = f.Port(place[b.sm[0]], uint8(b.sm[1]))
	}
	return f
}
