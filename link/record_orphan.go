package link

import "slices"

// orphan keeps the routes and nexthops that survive a link that is gone.
func (r *Record) orphan(e *LinkRecord) {
	routes := e.outliving()
	if !e.Keep {
		for _, o := range routes {
			r.Routes = append(removeRoute(r.Routes, o), o)
		}
		r.NextHops = append(slices.Clone(r.NextHops), e.NextHops...)
		return
	}
	if len(routes) > 0 || len(e.NextHops) > 0 {
		r.Kept = append(slices.Clone(r.Kept), &LinkRecord{Name: e.Name, Keep: true, Routes: routes, NextHops: e.NextHops})
	}
}

// outliving are the routes that do not go with their link.
func (e *LinkRecord) outliving() (out []Route) {
	for _, o := range e.Routes {
		if o.nowhere() || o.overOthers() {
			out = append(out, o)
		}
	}
	return out
}

// reconcileKept gives a link that is here again what was kept of it, and forgets what is
// gone of the others.
func (r *Record) reconcileKept(s *Snapshot) (changed bool) {
	gone := func(o Route) bool { return !s.hasAnywhere(o) }
	var left []*LinkRecord
	for _, k := range r.Kept {
		if slices.ContainsFunc(k.Routes, gone) {
			k.Routes, changed = slices.DeleteFunc(slices.Clone(k.Routes), gone), true
		}
		l, here := s.LinkByName(k.Name)
		switch {
		case here:
			e := r.Of(l)
			if e == nil {
				e = r.of(TargetOf(l))
				e.Keep = true
			}
			for _, o := range k.Routes {
				e.Routes = append(removeRoute(e.Routes, o), o)
			}
			e.NextHops = append(slices.Clone(e.NextHops), k.NextHops...)
			changed = true
		case len(k.Routes) > 0 || len(k.NextHops) > 0:
			left = append(left, k)
		default:
			changed = true
		}
	}
	r.Kept = left
	return changed
}

// links are all parts of links, also of those that are gone.
func (r *Record) links() []*LinkRecord {
	if r == nil {
		return nil
	}
	return append(slices.Clone(r.Links), r.Kept...)
}

// dropRoute forgets a route, whichever link's unit made it: the host has one for each key.
func (r *Record) dropRoute(o Route) {
	r.Routes = removeRoute(r.Routes, o)
	for _, e := range r.links() {
		e.Routes = removeRoute(e.Routes, o)
	}
}

// madeRoute reports that the unit of a link, whose part is given, or of one that is gone
// made a route; of one over a nexthop the unit of any link.
func (r *Record) madeRoute(own *LinkRecord, o Route) bool {
	same := func(x Route) bool { return sameRoute(x, o) }
	if r == nil || own != nil && slices.ContainsFunc(own.Routes, same) || slices.ContainsFunc(r.Routes, same) {
		return r != nil
	}
	return slices.ContainsFunc(r.Kept, func(e *LinkRecord) bool { return slices.ContainsFunc(e.Routes, same) }) ||
		o.NextHopID != 0 && slices.ContainsFunc(r.Links, func(e *LinkRecord) bool {
			return slices.ContainsFunc(e.Routes, func(x Route) bool { return x.NextHopID != 0 && same(x) })
		})
}

// NextHopIDs are the nexthop objects that are recorded, by ID.
func (r *Record) NextHopIDs() (out []uint32) {
	if r == nil {
		return nil
	}
	for _, x := range r.NextHops {
		out = append(out, x.ID)
	}
	for _, e := range r.links() {
		for _, x := range e.NextHops {
			out = append(out, x.ID)
		}
	}
	return out
}

// shrunkFrom reports an object that is as it was set, or a group of which the kernel has
// removed members since.
func (n NextHopObject) shrunkFrom(set NextHopObject) bool {
	if n.Proto != ProtoStatic {
		return false
	}
	return n.equal(set) || n.ID == set.ID && !n.Other && len(n.Group) > 0 &&
		!slices.ContainsFunc(n.Group, func(m GroupMember) bool { return !slices.Contains(set.Group, m) })
}

// madeNextHop reports that we made a nexthop that exists.
func (r *Record) madeNextHop(n NextHopObject) bool {
	return r != nil && (slices.ContainsFunc(r.NextHops, n.shrunkFrom) ||
		slices.ContainsFunc(r.links(), func(e *LinkRecord) bool { return slices.ContainsFunc(e.NextHops, n.shrunkFrom) }))
}

// dropNextHop forgets a nexthop, whichever link's unit made it.
func (r *Record) dropNextHop(id uint32) {
	r.filterNextHops(func(x NextHopObject) bool { return x.ID == id })
}

// failedNextHop takes back the intention of setting a nexthop. As it was before it stays.
func (r *Record) failedNextHop(o SetNextHop) {
	n := 0
	for _, id := range r.NextHopIDs() {
		if id == o.NextHop.ID {
			n++
		}
	}
	if n > 1 || !o.Replace {
		e := r.of(o.On)
		e.NextHops = slices.DeleteFunc(slices.Clone(e.NextHops), o.NextHop.equal)
	}
}

// reconcileNextHops forgets those that are gone, and those with whose ID another program
// made one.
func (r *Record) reconcileNextHops(s *Snapshot) (changed bool) {
	return r.filterNextHops(func(x NextHopObject) bool {
		n := s.NextHop(x.ID)
		return n == nil || !n.shrunkFrom(x)
	})
}

func (r *Record) filterNextHops(drop func(NextHopObject) bool) (changed bool) {
	filter := func(list []NextHopObject) []NextHopObject {
		if !slices.ContainsFunc(list, drop) {
			return list
		}
		changed = true
		return slices.DeleteFunc(slices.Clone(list), drop)
	}
	r.NextHops = filter(r.NextHops)
	for _, e := range r.links() {
		e.NextHops = filter(e.NextHops)
	}
	return changed
}
