package fabric

import (
	"fmt"
	"iter"
	"runtime"
	"slices"

	"ibnetworkd/ib"
)

// None is the index of what is not there: no peer, no switch.
const None int32 = -1

// Node is a channel adapter, switch or router.
type Node struct {
	GUID       ib.GUID
	SystemGUID ib.GUID
	Type       ib.NodeType
	NumPorts   uint8 // external ports; ports are numbered from 1, a switch has port 0 too
	Base       uint8 // MAD base version
	Class      uint8 // SMP class version
	DeviceID   uint16
	PKeyCap    uint16 // NodeInfo:PartitionCap, P_Key table entries of a CA port or switch port 0
	VendorID   uint32 // 24 bits
	Revision   uint32
	Desc       string // NodeDescription without trailing NULs

	Switch int32 // index into Fabric.Switches, None for the others
	ports  int32 // index of port 0 in Fabric.Ports (of a CA: one before port 1)

	// Path is the directed route from the subnet manager's port: the output
	// port of each hop, empty for the manager's own node. Entry is the port
	// of this node that the route ends at.
	Path  []uint8
	Entry uint8

	// NoExtendedSpeeds reports that the node refuses PortInfo from managers that
	// say they know extended link speeds.
	NoExtendedSpeeds bool
}

// Aggregates reports whether a node is the aggregation node of a switch (SHARP): it is
// plugged into the last port of it, and no host.
func (n *Node) Aggregates() bool {
	return n.Type == ib.NodeCA && n.Desc == "Mellanox Technologies Aggregation Node"
}

// Port is one port of a node. Switch port 0 and every CA port that was reached
// are end ports: they own a GUID and a LID. External switch ports own neither.
type Port struct {
	GUID ib.GUID // end ports only
	Node int32   // index into Fabric.Nodes
	Peer int32   // index into Fabric.Ports of the other end of the link, or None
	LID  ib.LID  // the LID in force, as assigned (end ports only)
	LMC  ib.LMC
	Num  uint8
	// Known is whether Info is the port's answer. It is not set for an unreached CA
	// port (a second port on another subnet) and a port that never answered.
	Known bool
	// LinkNamed is whether the text that ReadText read has the width and the
	// speed of the link in the line of this port; others have a default in Info.
	LinkNamed bool
	Info      PortInfo
}

// LIDs are the unicast LIDs of an end port, from LID on.
func (p *Port) LIDs() iter.Seq[ib.LID] {
	return func(yield func(ib.LID) bool) {
		for l := range p.LMC.Count() {
			if lid := p.LID + ib.LID(l); !p.LID.IsUnicast() || !lid.IsUnicast() || !yield(lid) {
				return
			}
		}
	}
}

// Switch is the switch part of a node of type switch.
type Switch struct {
	Node int32
	Info SwitchInfo
}

// Fabric is a subnet. All slices are read-only after Build.
type Fabric struct {
	Nodes    []Node   // by node GUID
	Ports    []Port   // by node, then port number
	Switches []Switch // by node GUID
	EndPorts []int32  // indices into Ports, by port GUID
	SMPort   int32    // the manager's own port, None when unknown
	Prefix   uint64   // subnet prefix of the GIDs
}

// Port gives the index in Ports of port num of a node, or None when the node
// has no such port.
func (f *Fabric) Port(node int32, num uint8) int32 {
	n := &f.Nodes[node]
	if num > n.NumPorts || num == 0 && n.Switch == None {
		return None
	}
	return n.ports + int32(num)
}

// PortRange gives the index in Ports of the first of the node's ports and their
// number; for a switch the first is port 0.
func (f *Fabric) PortRange(node int32) (first, count int32) {
	n := &f.Nodes[node]
	if n.Switch == None {
		return n.ports + 1, int32(n.NumPorts)
	}
	return n.ports, int32(n.NumPorts) + 1
}

// SwitchGUIDs are the node GUIDs of the switches, by index.
func (f *Fabric) SwitchGUIDs() []ib.GUID {
	out := make([]ib.GUID, len(f.Switches))
	for i := range out {
		out[i] = f.Nodes[f.Switches[i].Node].GUID
	}
	return out
}

// NodeByGUID finds a node index, or None.
func (f *Fabric) NodeByGUID(g ib.GUID) int32 {
	i, ok := slices.BinarySearchFunc(f.Nodes, g, func(n Node, g ib.GUID) int { return cmpGUID(n.GUID, g) })
	if !ok {
		return None
	}
	return int32(i)
}

// EndPortByGUID finds the index in Ports of the end port with that port GUID, or None.
func (f *Fabric) EndPortByGUID(g ib.GUID) int32 {
	i, ok := slices.BinarySearchFunc(f.EndPorts, g, func(p int32, g ib.GUID) int { return cmpGUID(f.Ports[p].GUID, g) })
	if !ok {
		return None
	}
	return f.EndPorts[i]
}

// IsEndPort reports whether the port owns a GUID and a LID.
func (f *Fabric) IsEndPort(port int32) bool {
	p := &f.Ports[port]
	return p.GUID != 0 && (p.Num == 0 || f.Nodes[p.Node].Switch == None)
}

// LIDs maps every unicast LID in use to the index in Ports of the end port that owns
// it (with its LMC range), other LIDs to None; it ends at the highest LID in use.
func (f *Fabric) LIDs() []int32 {
	top := 0
	for _, p := range f.EndPorts {
		if pt := &f.Ports[p]; pt.LID.IsUnicast() {
			top = max(top, int(pt.LID)+pt.LMC.Count()-1)
		}
	}
	t := make([]int32, top+1)
	for i := range t {
		t[i] = None
	}
	for _, p := range f.EndPorts {
		for lid := range f.Ports[p].LIDs() {
			t[lid] = p
		}
	}
	return t
}

// SwitchOf gives the switch index an end port is attached to and the switch's port
// towards it: the switch itself and port 0 for switch port 0, None when the
// port's peer is not a switch or there is no link.
func (f *Fabric) SwitchOf(port int32) (sw int32, out uint8) {
	p := &f.Ports[port]
	if s := f.Nodes[p.Node].Switch; s != None {
		return s, 0
	}
	if p.Peer == None {
		return None, 0
	}
	q := &f.Ports[p.Peer]
	return f.Nodes[q.Node].Switch, q.Num
}

// ends are the ends of the link at a port that answered PortInfo: both, one, or
// the port itself where none did.
func (f *Fabric) ends(port int32) (a, b *Port) {
	a = &f.Ports[port]
	if a.Peer == None {
		return a, a
	}
	switch b = &f.Ports[a.Peer]; {
	case a.Known == b.Known:
		return a, b
	case a.Known:
		return a, a
	}
	return b, b
}

// LinkRate is the rate of the link at a port: the lower of what its ends report.
func (f *Fabric) LinkRate(port int32) ib.Rate {
	a, b := f.ends(port)
	x, y := a.Info.Rate(), b.Info.Rate()
	if y.Less(x) {
		return y
	}
	return x
}

// LinkVLCap is the VLCap code of the link at a port: the lower of what its ends report.
func (f *Fabric) LinkVLCap(port int32) uint8 {
	a, b := f.ends(port)
	return min(a.Info.VLCap(), b.Info.VLCap())
}

// Clone copies the fabric so that the copy's ports, nodes and switches can be
// changed. Directed routes are shared: replace them, never write into them.
func (f *Fabric) Clone() *Fabric {
	c := *f
	c.Nodes = clone(f.Nodes)
	c.Ports = clone(f.Ports)
	c.Switches = clone(f.Switches)
	c.EndPorts = clone(f.EndPorts)
	return &c
}

// clone copies in parts. A goroutine does not stop for the garbage collector within a
// copy, and with tens of megabytes everything else would wait for that.
func clone[T any](s []T) []T {
	out := make([]T, 0, len(s))
	for part := range slices.Chunk(s, 4096) {
		out = append(out, part...)
		runtime.Gosched()
	}
	return out
}

// Links counts the links, each once.
func (f *Fabric) Links() int {
	n := 0
	for i := range f.Ports {
		if p := f.Ports[i].Peer; p != None && (p > int32(i) || p == int32(i)) {
			n++
		}
	}
	return n
}

// Name is the node's description, or its GUID when it has none.
func (n *Node) Name() string {
	if n.Desc != "" {
		return n.Desc
	}
	return n.GUID.String()
}

// PortName names a port for a log line or an error: description[port].
func (f *Fabric) PortName(port int32) string {
	p := &f.Ports[port]
	return fmt.Sprintf("%s[%d]", f.Nodes[p.Node].Name(), p.Num)
}

func cmpGUID(a, b ib.GUID) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
