package sa

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// index is what answers are found by in a fabric, in little memory: a query for a path
// follows the tables of ten switches.
type index struct {
	owner    []int32   // LID to port index
	ends     []ib.GUID // of Fabric.EndPorts, in their order, which is that of the GUIDs
	hops     []hop     // by port
	switches []indexedSwitch
}

type hop struct {
	peer int32 // the port at the other end of its link, or None
	sw   int32 // the switch which that port is of, or None
	attr pathAttr
}

type indexedSwitch struct {
	port0 int32 // index into Fabric.Ports
	ports uint8 // the highest port number
}

// Indexed does the part of SetState that takes long on a large subnet, and may run while a
// Service answers. The fabric must not change from then on to SetState.
func (st State) Indexed() State {
	f := st.Fabric
	x := &index{owner: f.LIDs(), ends: make([]ib.GUID, len(f.EndPorts)), hops: make([]hop, len(f.Ports)),
		switches: make([]indexedSwitch, len(f.Switches))}
	for i, e := range f.EndPorts {
		x.ends[i] = f.Ports[e].GUID
	}
	for i := range f.Ports {
		h := hop{peer: f.Ports[i].Peer, sw: fabric.None, attr: findLink(f, int32(i))}
		if h.peer != fabric.None {
			h.sw = f.Nodes[f.Ports[h.peer].Node].Switch
		}
		x.hops[i] = h
	}
	for i := range f.Switches {
		n := f.Switches[i].Node
		x.switches[i] = indexedSwitch{f.Port(n, 0), f.Nodes[n].NumPorts}
	}
	st.index = x
	return st
}

// Answered has paths regard what a port of a fabric has answered, if the fabric is that of
// the last SetState.
func (s *Service) Answered(f *fabric.Fabric, port int32) {
	if s.f != f {
		return
	}
	for _, i := range [...]int32{port, f.Ports[port].Peer} {
		if i != fabric.None {
			s.hops[i].attr = findLink(f, i)
		}
	}
}

// linkAttr is what the link at a port can carry.
func (x *index) linkAttr(port int32) pathAttr { return x.hops[port].attr }

// findLink works out linkAttr.
func findLink(f *fabric.Fabric, port int32) pathAttr {
	p := &f.Ports[port]
	a := pathAttr{p.Info.MTUCap(), f.LinkRate(port)}
	if p.Peer != fabric.None {
		if q := &f.Ports[p.Peer]; q.Known && q.Info.MTUCap().IsValid() && (q.Info.MTUCap() < a.mtu || !a.mtu.IsValid()) {
			a.mtu = q.Info.MTUCap()
		}
	}
	if !a.mtu.IsValid() {
		a.mtu = ib.MTU2048
	}
	return a
}
