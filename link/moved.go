package link

import "slices"

// Moved is a link that is in another network namespace, as it was here.
type Moved struct {
	Index, Parent int // interface indexes; Parent is 0 for none
	Name          string
	NSID          int // the number that its namespace has here, -1 for none
}

// Left is what was made and is in another network namespace.
type Left struct {
	Made
	NSID int `json:"nsid"` // as of Moved
}

// Gone reports that it does not exist any more: the kernel deletes a VLAN with its
// namespace, and moves a P_Key child back.
func (m Left) Gone(s *Snapshot) bool { return m.Kind == "vlan" && slices.Contains(s.GoneNSIDs, m.NSID) }

// NSIDs are the numbers of the network namespaces of what was moved.
func (r *Record) NSIDs() (ids []int) {
	for _, m := range r.Moved {
		if m.NSID >= 0 && !slices.Contains(ids, m.NSID) {
			ids = append(ids, m.NSID)
		}
	}
	return ids
}

// Leave notes that a link was moved by others, if it was made. It reports whether so.
func (r *Record) Leave(m Moved) bool {
	if slices.ContainsFunc(r.Away, func(x Away) bool { return x.Name == m.Name && x.On == m.Parent }) {
		return false
	}
	left := Made{Kind: "ipoib", Name: m.Name, On: m.Parent}
	child := func(e *LinkRecord) bool {
		return e.Child && e.Parent == m.Parent && (e.Ifindex == m.Index || e.Ifindex == 0 && e.Name == m.Name)
	}
	if m.Parent == 0 || !slices.ContainsFunc(r.Links, child) {
		i := slices.IndexFunc(r.Made, func(x Made) bool { return x.Name == m.Name && x.On == m.Parent })
		if i < 0 {
			return false
		}
		left = r.Made[i]
	}
	r.Moved = append(slices.Clone(r.Moved), Left{left, m.NSID})
	return true
}

// Missing reports that a link that was made and can be moved to another network
// namespace is not in a snapshot.
func (r *Record) Missing(s *Snapshot) bool {
	gone := func(m Made) bool { _, there := s.LinkByName(m.Name); return !there && m.On != 0 }
	return slices.ContainsFunc(r.Made, gone) || slices.ContainsFunc(r.Links, func(e *LinkRecord) bool {
		_, there := s.Link(e.Ifindex)
		if e.Ifindex == 0 {
			_, there = s.LinkByName(e.Name)
		}
		return e.Child && !there
	})
}

// reconcileMoved has links that came back from another network namespace as ours again,
// and forgets those that are gone, or whose parents are, or whose names are taken.
func (r *Record) reconcileMoved(s *Snapshot) (changed bool) {
	stay := r.Moved[:0:0]
	for _, m := range r.Moved {
		_, parent := s.Link(m.On)
		l, back := s.LinkByName(m.Name)
		switch {
		case parent && !back && !m.Gone(s):
			stay = append(stay, m)
			continue
		case !back || l.Parent != m.On || l.Kind != m.Kind:
		case l.IPoIB != nil:
			*r.of(TargetOf(l)) = LinkRecord{Ifindex: l.Index, Name: l.Name, Child: true, Parent: l.Parent, PKey: l.IPoIB.PKey.AsFull()}
		default:
			r.make(m.Made)
		}
		changed = true
	}
	r.Moved = stay
	return changed
}

// Return forgets what was moved of a link: it is made again, if it is not known to be in
// the network namespace of its unit.
func (r *Record) Return(parent int, s *Snapshot) {
	r.returnAway(parent, s)
	r.Moved = slices.DeleteFunc(slices.Clone(r.Moved), func(m Left) bool { return m.On == parent })
}
