package plan

import (
	"fmt"
	"slices"

	"ibnetworkd/ipoib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// ManagerID is the value of the udev property ID_NET_MANAGED_BY that hands a
// link to this program.
const ManagerID = "org.ibnetwork1"

// NetworkdID is systemd-networkd's.
const NetworkdID = "io.systemd.Network"

// Names of other programs in link.Link.OtherManagers.
const (
	Networkd       = "systemd-networkd"
	NetworkManager = "NetworkManager"
)

// unitOf finds the unit of any link, also of one that is still to be made.
func (p *planner) unitOf() func(*link.Link) *units.Unit {
	known := map[string]*units.Unit{}
	return func(l *link.Link) *units.Unit {
		u, ok := known[l.Name]
		if !ok {
			u = link.Govern(p.b.Model.Snapshot(), p.in.Units, l).Unit
			known[l.Name] = u
		}
		return u
	}
}

// applied is the unit of a link if it is applied there.
func (p *planner) applied(index int) *units.Unit {
	if !p.applies(index) {
		return nil
	}
	return p.units[index]
}

// decide finds the unit of a link and whether it is applied.
func (p *planner) decide(index int, parent *units.Unit) {
	l := p.b.Link(index)
	if l == nil || l.Type == link.ARPHRDLoopback {
		return
	}
	n := p.govern(l, parent)
	p.notes[index] = n
	p.order = append(p.order, index)
	if n.unit != nil {
		p.units[index] = n.unit
	}
}

// govern returns the note of a link before anything is planned for it.
func (p *planner) govern(l *link.Link, parent *units.Unit) *note {
	n := &note{parent: parent}
	g := link.Govern(p.in.Snapshot, p.in.Units, l)
	if g.NotYet {
		n.pending, n.notYet = true, true
		return n
	}
	n.unit = g.Unit
	if l.IsChild() {
		if n.part = ipoib.PartitionOf(l, parent); n.part != nil && !p.in.Record.MadeChild(l) {
			// Someone else's interface is the one asked for if it has the name
			// asked for; any other is left alone.
			if up := p.b.Link(l.Parent); up == nil || n.part.ChildName(up.Name) != l.Name {
				n.part = nil
			}
		}
		if n.leaves = ipoib.Leaves(p.b, l, n.part); n.leaves {
			n.unit = nil
		}
	}
	if n.unit == nil && n.part == nil {
		if !p.in.Record.Owns(l) {
			n.ignored = noUnit(l, p.in.Units)
		}
		return n
	}
	if n.ignored = ignored(l, n.unit); n.ignored == (link.Reason{}) {
		n.pending = unready(p.in.Snapshot, l)
	}
	return n
}

// noUnit is the reason of a link that no unit matches. The unit of an RDMA device's link may
// be in a file that cannot be used.
func noUnit(l *link.Link, set *units.Set) link.Reason {
	why := link.Reason{Code: link.CodeNoUnit, Text: "no unit matches " + l.Name}
	if path := set.Unusable(); path != "" && l.IBDevice != "" {
		why.Text += ", and " + path + " cannot be used"
		why.Next = "ibnetctl verify " + path
	}
	return why
}

// settled is the unit of a link, and whether it is known for certain: of a link
// that waits for udev, or that another program manages, it is not.
func (p *planner) settled(index int) (*units.Unit, bool) {
	n := p.notes[index]
	if n == nil {
		u, ok := p.units[index]
		return u, ok && p.applies(index)
	}
	known := !n.pending && (n.ignored == link.Reason{} || n.ignored.Code == link.CodeNoUnit)
	return n.unit, known
}

// applies reports whether the unit of a link is applied there: not while udev is
// at work on it, nor where it is another program's.
func (p *planner) applies(index int) bool {
	l := p.b.Link(index)
	if l == nil {
		return false
	}
	if n := p.notes[index]; n != nil {
		return !n.pending && n.ignored == link.Reason{}
	}
	return !unready(p.in.Snapshot, l) && ignored(l, p.units[index]) == link.Reason{} // out of scope
}

// Served is the unit that is applied to a link, nil for none: none before udev has
// finished with the link.
func Served(s *link.Snapshot, g link.Governing, l *link.Link) *units.Unit {
	u := g.UnitOf(l)
	if u == nil || unready(s, l) || ignored(l, u) != (link.Reason{}) {
		return nil
	}
	return u
}

// unready reports that udev has not finished with a link.
func unready(s *link.Snapshot, l *link.Link) bool {
	return s.Host.Udev && !l.Udev.Initialized || l.Udev.Renaming
}

// owner is the unit whose [Partition] sections count for a link's children: none
// for a child that shares its unit with its parent (Name=ib*).
func (n *note) owner() *units.Unit {
	if n.unit == n.parent {
		return nil
	}
	return n.unit
}

// ignored returns why a link is left alone although a unit matches it, zero if it
// is not. u may be nil for a P_Key child that its parent's unit asks for.
func ignored(l *link.Link, u *units.Unit) link.Reason {
	if u != nil && u.Unmanaged() {
		return link.Reason{Code: link.CodeUnmanaged, Text: "Unmanaged=yes in " + u.Path}
	}
	ip := u != nil && u.ConfiguresIP()
	other := func(who, next string) link.Reason {
		return link.Reason{Code: link.CodeOtherManager, Text: fmt.Sprintf("%s manages %s: it is left alone", who, l.Name), Next: next}
	}
	switch by := l.Udev.ManagedBy; {
	case by == "" || by == ManagerID:
	case by == NetworkdID && !ip:
	default:
		return other(by+" (udev's ID_NET_MANAGED_BY)", "set ID_NET_MANAGED_BY="+ManagerID+" by a udev rule, or remove the unit")
	}
	if slices.Contains(l.OtherManagers, NetworkManager) {
		return other(NetworkManager, "nmcli device set "+l.Name+" managed no, or remove the unit")
	}
	if ip && slices.Contains(l.OtherManagers, Networkd) {
		return other(Networkd,
			"remove [Network] from the unit to configure the InfiniBand part only, or give networkd's .network file Unmanaged=yes")
	}
	return link.Reason{}
}

// governed are the units of the links that exist.
func (p *planner) governed() map[int]link.Governed {
	out := make(map[int]link.Governed, len(p.units))
	for i := range p.in.Snapshot.Links {
		n := p.in.Snapshot.Links[i].Index
		switch u, x := p.units[n], p.notes[n]; {
		case u != nil:
			out[n] = link.Governed{Unit: u}
		case x != nil && x.notYet || x == nil && p.in.Prev[n].NotYet:
			out[n] = link.Governed{NotYet: true}
		}
	}
	return out
}
