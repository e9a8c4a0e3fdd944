package link

import (
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Governed is the unit that governs a link or an RDMA port.
type Governed struct {
	// Unit is nil for none, and while NotYet.
	Unit *units.Unit
	// NotYet reports that a unit that would win asks for a fact that is not known
	// yet, as udev's properties of a new link.
	NotYet bool
	// Before is the unit that governed a port last, with NotYet; nil for none.
	Before *units.Unit
}

// Last is the unit that counts for what goes on while it is not decided, as a
// running subnet manager: Unit, or Before with NotYet.
func (g Governed) Last() *units.Unit {
	if g.NotYet {
		return g.Before
	}
	return g.Unit
}

// Governing maps each link, by index, and each RDMA port to the unit that governs it. What
// no unit governs may be left out.
type Governing struct {
	Links map[int]Governed
	Ports map[PortName]Governed
}

// UnitOf is the unit of a link, nil for none.
func (g Governing) UnitOf(l *Link) *units.Unit { return g.Links[l.Index].Unit }

// Govern finds the unit of a link: the first that matches it.
func Govern(s *Snapshot, set *units.Set, l *Link) Governed {
	f := factsOf(s, l)
	return verdict(set.Find(&f))
}

// GovernPort finds the unit that matches a port by itself: that of a port without a
// network interface.
func GovernPort(s *Snapshot, set *units.Set, d *Device, p *Port) Governed {
	f := factsOfPort(s, d, p)
	return verdict(set.Find(&f))
}

func verdict(u *units.Unit, v units.Verdict, _ string) Governed {
	switch v {
	case units.Yes:
		return Governed{Unit: u}
	case units.NotYet:
		return Governed{NotYet: true}
	}
	return Governed{}
}

// Matches reports whether one unit matches a link, whatever other units do.
func Matches(s *Snapshot, u *units.Unit, l *Link) units.Verdict {
	f := factsOf(s, l)
	v, _ := u.Match.Matches(&f)
	return v
}

// GovernPorts finds the unit of every RDMA port, given those of the links. The unit
// of a port's main interface governs the port too; a port without one is matched by
// itself, because a subnet manager must not wait for ib_ipoib. rec knows the units
// that ports had before: an interface that udev has not seen yet, or that is in
// another network namespace, leaves its port with that one.
func GovernPorts(s *Snapshot, set *units.Set, links map[int]Governed, rec *Record) map[PortName]Governed {
	main := make(map[PortName]int, len(s.Links))
	for i := range s.Links {
		l := &s.Links[i]
		n := PortName{IBDevice: l.IBDevice, Port: l.Port}
		if _, has := main[n]; !has && l.IBDevice != "" && !l.IsChild() {
			main[n] = l.Index
		}
	}
	out := map[PortName]Governed{}
	for d, p := range s.Ports() {
		n := PortName{IBDevice: d.Name, Port: p.Num}
		index, has := main[n]
		if _, ok := s.Link(p.Netdev); ok && p.Netdev != 0 {
			index, has = p.Netdev, true
		}
		g := links[index]
		if !has {
			g = GovernPort(s, set, d, p)
		}
		if g.NotYet {
			if name := rec.portUnit(p.GUID); name != "" {
				g.Before = set.Unit(name)
			}
		}
		out[n] = g
	}
	return out
}

// PortRecord is the unit that governed an InfiniBand port last.
type PortRecord struct {
	GUID ib.GUID `json:"guid"`
	Unit string  `json:"unit"` // its name
}

// maxPorts bounds how many ports that are absent are remembered.
const maxPorts = 1024

func (r *Record) portUnit(g ib.GUID) string {
	if r == nil || g.IsZero() {
		return ""
	}
	for _, p := range r.Ports {
		if p.GUID == g {
			return p.Unit
		}
	}
	return ""
}

// RememberPorts notes the units of InfiniBand ports, for GovernPorts. It reports
// whether anything changed.
func (r *Record) RememberPorts(s *Snapshot, ports map[PortName]Governed) (changed bool) {
	now := make(map[ib.GUID]string, len(r.Ports))
	for _, p := range r.Ports {
		now[p.GUID] = p.Unit
	}
	present := map[ib.GUID]bool{}
	for d, p := range s.Ports() {
		if p.Layer != ib.LinkLayerInfiniBand || p.GUID.IsZero() {
			continue
		}
		present[p.GUID] = true
		switch g := ports[PortName{IBDevice: d.Name, Port: p.Num}]; {
		case g.Unit != nil:
			changed = changed || now[p.GUID] != g.Unit.Name
			now[p.GUID] = g.Unit.Name
		case !g.NotYet && now[p.GUID] != "":
			changed = true
			delete(now, p.GUID)
		}
	}
	if !changed {
		return false
	}
	var list []PortRecord
	for g, u := range now {
		if present[g] || len(now) <= maxPorts {
			list = append(list, PortRecord{g, u})
		}
	}
	slices.SortFunc(list, func(a, b PortRecord) int { return strings.Compare(a.GUID.String(), b.GUID.String()) })
	r.Ports = list
	return true
}
