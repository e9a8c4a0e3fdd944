package roce

import (
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// PlanPorts plans what belongs to no link's unit: type and node description of ports
// that have no network interface. Then it puts all changes of types, those of
// links too, in an order that cards accept. port gives the unit that matches a
// port without an interface.
func PlanPorts(b *link.Builder, port func(d *link.Device, p *link.Port) *units.Unit) {
	st := b.Base.Card
	if st == nil {
		return
	}
	for d, p := range b.Base.Ports() {
		if _, looked := st.Devices[d.Name].Ports[p.Num]; !looked || HasLink(b.Base, d, p) {
			continue
		}
		if u := port(d, p); u != nil && !u.Unmanaged() {
			b.For(u)
			planPort(b, st, d, p, u)
		}
	}
	orderTypes(b.Plan.Steps)
}

// HasLink reports whether a network interface is on a port; its unit then speaks
// for the port.
func HasLink(s *link.Snapshot, d *link.Device, p *link.Port) bool {
	if _, ok := s.Link(p.Netdev); ok && p.Netdev != 0 {
		return true
	}
	for i := range s.Links {
		if l := &s.Links[i]; l.IBDevice == d.Name && l.Port == p.Num {
			return true
		}
	}
	return false
}
