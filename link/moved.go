package link

import (
	"cmp"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Moved is a link that this daemon made and that is in another network namespace now.
type Moved struct {
	Made
	// NSID is the number by which this network namespace knows that one, -1 for none.
	NSID int `json:"nsid"`
	// Namespace is its path if the unit asked for the move. A link that others moved stays
	// there and is not made again.
	Namespace string `json:"namespace,omitempty"`
	// PKey of a P_Key child and Index, the index of the link there, are set for one that was
	// moved for a unit. Until Index is known, NSID is unknown too.
	PKey  ib.PKey `json:"pkey,omitempty"`
	Index int     `json:"index,omitempty"`
	// File is what identifies the Namespace in which Index was found.
	File string `json:"file,omitempty"`
	// Tag is set for a VLAN that was made there for a unit.
	Tag VLANTag `json:"tag,omitzero"`
}

// KindVLAN is IFLA_INFO_KIND of a VLAN.
const KindVLAN = "vlan"

// IsVLAN reports whether a kind is that of interfaces which a unit makes on an Ethernet link:
// a VLAN, a macvlan or an ipvlan. Their GIDs are in the table of that link's port, and the kernel
// deletes them with their network namespace.
func IsVLAN(kind string) bool { return kind == KindVLAN || kind == "macvlan" || kind == "ipvlan" }

// VLANTag is what cannot be changed of a VLAN.
type VLANTag struct {
	ID       uint16 `json:"id"`
	Protocol uint16 `json:"protocol"` // EtherType
}

// Tag is the VLAN's.
func (v *VLAN) Tag() VLANTag { return VLANTag{v.ID, cmp.Or(v.Protocol, uint16(units.VLAN8021Q))} }

// MovedLink is what was observed of a Moved.
type MovedLink struct {
	Made
	NSID  int    `json:"nsid"`
	File  string `json:"file,omitempty"`  // as in Moved
	Index int    `json:"index,omitempty"` // 0 if it is not there
	MTU   int    `json:"mtu,omitempty"`
	Up    bool   `json:"up,omitempty"`
	// Called is its name there, empty for that of Made.
	Called string `json:"called,omitempty"`
	// Lost is set for one that is not there and of which it is not known that it was deleted.
	Lost *Lost `json:"lost,omitempty"`
	// VLAN is nil but for a VLAN, macvlan or ipvlan that is there for its unit.
	VLAN *VLAN `json:"vlan,omitempty"`
}

// Lost is where a link is that another program moved on from the network namespace of its
// unit.
type Lost struct {
	Path  string `json:"path,omitempty"`  // of that network namespace, empty if it has none
	NSID  int    `json:"nsid,omitempty"`  // its number here
	Index int    `json:"index,omitempty"` // of the link there, 0 if it was not found
	Name  string `json:"name,omitempty"`  // of the link there
}

// MoveEvent is the kernel's message that a link has moved to another network namespace,
// with its former index, name and parent.
type MoveEvent struct {
	Index, Parent int // interface indexes; Parent is 0 for none
	Name          string
	NSID          int // the number that its namespace has here, -1 for none
}

// Leave records that a link was moved, and reports whether another program moved one that this daemon made.
// What was done to the link is forgotten: if it comes back, perhaps with the same index, it is down, and
// systemd-resolved has no settings of it.
func (r *Record) Leave(e MoveEvent) bool {
	for _, x := range r.Links {
		if x.Ifindex == e.Index {
			x.Activated, x.Deactivated, x.DNS = false, false, nil
		}
	}
	if slices.ContainsFunc(r.Moved, func(x Moved) bool { return x.Namespace != "" && x.Name == e.Name && x.On == e.Parent }) {
		return false
	}
	made := Made{Kind: "ipoib", Name: e.Name, On: e.Parent}
	child := func(x *LinkRecord) bool {
		return x.Child && x.Parent == e.Parent && (x.Ifindex == e.Index || x.Ifindex == 0 && x.Name == e.Name)
	}
	if e.Parent == 0 || !slices.ContainsFunc(r.Links, child) {
		i := slices.IndexFunc(r.Made, func(x Made) bool { return x.Name == e.Name && x.On == e.Parent })
		if i < 0 {
			return false
		}
		made = r.Made[i]
	}
	r.Moved = append(slices.Clone(r.Moved), Moved{Made: made, NSID: e.NSID})
	return true
}

// Missing reports that a link that was made is not in a snapshot: it may have been moved
// to another network namespace, or deleted with another link.
func (r *Record) Missing(s *Snapshot) bool {
	gone := func(m Made) bool { _, there := s.LinkByName(m.Name); return !there && m.On != 0 }
	return slices.ContainsFunc(r.Made, gone) || slices.ContainsFunc(r.Links, func(e *LinkRecord) bool {
		_, there := s.Link(e.Ifindex)
		if e.Ifindex == 0 {
			_, there = s.LinkByName(e.Name)
		}
		return (e.Child || e.master()) && !there
	})
}

// MovedFrom are the children of a link that were moved for its unit.
func (r *Record) MovedFrom(parent int) (out []Moved) {
	if r == nil {
		return nil
	}
	for _, m := range r.Moved {
		if m.Namespace != "" && m.On == parent {
			out = append(out, m)
		}
	}
	return out
}

// send notes a link that is sent to another network namespace, unless one is known to be
// there, which the same plan deletes first.
func (r *Record) send(m Moved) {
	if !slices.ContainsFunc(r.Moved, func(x Moved) bool { return x.Made == m.Made && x.Index != 0 }) {
		r.removeMoved(m.Made)
		r.Moved = append(r.Moved, m)
	}
}

func (r *Record) removeMoved(made Made) {
	r.Moved = slices.DeleteFunc(slices.Clone(r.Moved), func(m Moved) bool { return m.Made == made })
}

// reconcileMoved records links that came back from another network namespace as made by this
// daemon, and forgets those that no longer exist or whose parents do not. A link that others
// moved is also forgotten if its name is in use again, one that they moved on is not.
func (r *Record) reconcileMoved(s *Snapshot) (changed bool) {
	stay := r.Moved[:0:0]
	for _, m := range r.Moved {
		_, parent := s.Link(m.On)
		l, taken := s.LinkByName(m.Name)
		x := s.moved(m.Made)
		switch {
		case taken && m.is(l):
			if l.IPoIB == nil {
				r.make(m.Made)
			} else if e := r.of(TargetOf(l)); !e.Child { // else it was not moved
				*e = LinkRecord{Ifindex: l.Index, Name: l.Name, Child: true, Parent: l.Parent, PKey: l.IPoIB.PKey.AsFull()}
			}
		case !parent, x != nil && x.Index == 0 && x.Lost == nil, taken && m.Namespace == "":
		case x != nil && x.Lost == nil && (m.NSID != x.NSID || m.Index != x.Index || m.File != x.File):
			m.NSID, m.Index, m.File = x.NSID, x.Index, x.File
			stay = append(stay, m)
		default:
			stay = append(stay, m)
			continue
		}
		changed = true
	}
	r.Moved = stay
	return changed
}

// is reports whether a link is the one that was moved.
func (m Moved) is(l *Link) bool { return m.Fits(l.Kind, l.Parent, l.IPoIB, l.VLAN) }

// Fits reports whether a link of a kind below another one has what identifies the one that was
// moved; of macvlans and ipvlans, which have nothing but their names, there may be several.
func (m Moved) Fits(kind string, parent int, i *IPoIB, v *VLAN) bool {
	return kind == m.Kind && parent == m.On && (m.PKey == 0 || i != nil && i.PKey.Base() == m.PKey.Base()) &&
		(m.Tag == VLANTag{} || v != nil && v.Tag() == m.Tag)
}

// Return forgets the children of a link that were moved, except those known to be in the
// network namespace of their unit: the others are made again.
func (r *Record) Return(parent int, s *Snapshot) {
	r.Moved = slices.DeleteFunc(slices.Clone(r.Moved), func(m Moved) bool {
		x := (*MovedLink)(nil)
		if s != nil {
			x = s.moved(m.Made)
		}
		return m.On == parent && (x == nil || x.Index == 0)
	})
}

func (s *Snapshot) moved(m Made) *MovedLink {
	if i := slices.IndexFunc(s.Moved, func(x MovedLink) bool { return x.Made == m }); i >= 0 {
		return &s.Moved[i]
	}
	return nil
}
