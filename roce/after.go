package roce

import (
	"slices"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// After plans what belongs to no link's unit: type and node description of ports
// that have no network interface. Then it puts all changes of types, those of
// links too, in an order that cards accept. port gives the unit that matches a
// port without an interface.
func After(b *link.Builder, port func(d *link.Device, p *link.Port) *units.Unit) {
	st, err := decodeOnce(b.Base.Card)
	if err != nil || st == nil {
		return
	}
	for i := range b.Base.Devices {
		d := &b.Base.Devices[i]
		for k := range d.Ports {
			p := &d.Ports[k]
			if _, looked := st.Devices[d.Name].Ports[p.Num]; !looked || HasLink(b.Base, d, p) {
				continue
			}
			if u := port(d, p); u != nil && !u.Unmanaged() {
				b.For(u)
				planPort(b, st, d, p, u)
			}
		}
	}
	orderTypes(b.Plan.Steps)
}

// orderTypes puts the changes of both ports of a card in the order that all cards
// accept: some do not take Ethernet on port 1 beside InfiniBand on port 2, not
// even on the way.
func orderTypes(steps []link.Step) {
	at := map[string][]int{}
	for i, s := range steps {
		if p, ok := s.Op.(SetPortType); ok {
			card := p.Port.Bus + "/" + p.Port.Dev
			at[card] = append(at[card], i)
		}
	}
	for _, places := range at {
		var all []link.Step
		for _, i := range places {
			all = append(all, steps[i])
		}
		slices.SortStableFunc(all, func(a, b link.Step) int {
			x, y := a.Op.(SetPortType), b.Op.(SetPortType)
			switch {
			case x.Type != y.Type:
				return 0
			case x.Type == units.PortTypeEth:
				return y.On.Port - x.On.Port
			}
			return x.On.Port - y.On.Port
		})
		for k, i := range places {
			steps[i] = all[k]
		}
	}
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

// planPort plans [Port] for a port without an interface: nothing is lost there
// by a change of its type.
func planPort(b *link.Builder, st *State, d *link.Device, p *link.Port, u *units.Unit) {
	l := &link.Link{Driver: d.Driver, Type: link.ARPHRDInfiniBand, IBDevice: d.Name, Port: p.Num}
	if layerOf(p) == units.PortTypeEth {
		l.Type = 1
	}
	x := &planner{b: b, st: st, l: l, u: u, on: link.Target{IBDevice: d.Name, Port: p.Num}, port: p}
	x.note = b.Port(link.PortName{IBDevice: d.Name, Port: p.Num})
	steps, blocked := len(b.Plan.Steps), len(b.Plan.Blocked)
	if !x.portType() {
		x.nodeDesc()
	}
	for _, s := range b.Plan.Steps[steps:] {
		x.note.Pending = append(x.note.Pending, s.Op.String())
	}
	for _, w := range b.Plan.Blocked[blocked:] {
		x.note.Reasons = append(x.note.Reasons, w.Reason)
	}
}
