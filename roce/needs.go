package roce

import (
	"reflect"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Needs is what has to be read of a link's card to plan for a unit.
type Needs struct {
	Sections  bool // some section of this package is present: Snapshot.Card is not nil
	PortType  bool
	NodeDesc  bool
	Defaults  bool // of RDMA-CM
	DCB       bool
	ECN       bool
	Modprobe  bool
	Functions bool // virtual functions
	Soft      bool
	Ethtool   bool
}

// NeedsOf is what has to be read for a unit, nothing for nil.
func NeedsOf(u *units.Unit) (n Needs) {
	if u == nil {
		return n
	}
	n = Needs{
		PortType:  u.Port.Type.Set,
		NodeDesc:  u.Port.NodeDescription.Set,
		Functions: u.VirtualFunctions.Present || len(u.VFs) > 0,
		Soft:      u.SoftRoCE.Present,
		Ethtool:   len(u.Link.Ethtool) > 0,
	}
	if u.RoCE.Present {
		n.Defaults = u.RoCE.Version.Set || u.RoCE.ToS().Set
		n.DCB = wantsDCB(&u.RoCE)
		n.ECN = u.RoCE.ECN.Set
		n.Modprobe = u.RoCE.WriteModprobeFile.V
	}
	n.Sections = u.Port.Present || u.RoCE.Present || len(u.VLANs) > 0 || n.Functions || n.Soft || n.Ethtool
	return n
}

// NeedsLink reports whether anything has to be read of a link's card: what its
// unit asks for, or the GIDs of an Ethernet port.
func NeedsLink(s *link.Snapshot, l *link.Link, u *units.Unit) bool {
	switch {
	case u == nil || l.IsChild():
		return false
	case !link.IsVLAN(l.Kind) && NeedsOf(u).Sections:
		return true
	}
	_, ports := PortsOn(s, l)
	return slices.ContainsFunc(ports, func(p *link.Port) bool { return p.Layer == ib.LinkLayerEthernet })
}

// NeedsPort reports whether anything has to be read of a port without a link.
func NeedsPort(u *units.Unit) bool { return u != nil && u.Port.Present }

// NeedsCards reports whether any card has to be read: a unit asks for something of
// one, or there is an Ethernet port, whose GIDs are in the status. s may be nil.
func NeedsCards(s *link.Snapshot, us []*units.Unit) bool {
	if slices.ContainsFunc(us, func(u *units.Unit) bool { return NeedsOf(u).Sections }) {
		return true
	}
	return s != nil && slices.ContainsFunc(s.Devices, func(d link.Device) bool {
		return slices.ContainsFunc(d.Ports, func(p link.Port) bool { return p.Layer == ib.LinkLayerEthernet })
	})
}

// Changed gives the links for which two states differ, and whether they differ for
// ports without a link. Either state may be nil.
func Changed(old, now *State) (links map[int]bool, ports bool) {
	if old == now {
		return nil, false
	}
	a, b := deref(old), deref(now)
	links = map[int]bool{}
	restA, restB := a, b
	restA.Links, restB.Links = nil, nil
	ports = !reflect.DeepEqual(restA, restB)
	for _, s := range []State{a, b} {
		for i := range s.Links {
			if ports || !reflect.DeepEqual(a.Links[i], b.Links[i]) {
				links[i] = true
			}
		}
	}
	return links, ports
}

func deref(s *State) (out State) {
	if s != nil {
		out = *s
	}
	return out
}
