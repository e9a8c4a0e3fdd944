package link

import "slices"

// setNextHop does what rtm_new_nexthop does (net/ipv4/nexthop.c).
func (m *Model) setNextHop(l *Link, o SetNextHop) error {
	n, old := o.NextHop, m.snap.NextHop(o.NextHop.ID)
	switch {
	case n.ID == 0:
		return errInvalid
	case len(n.Group) > 0:
		for _, g := range n.Group {
			x := m.snap.NextHop(g.ID)
			if x == nil || len(x.Group) > 0 || x.Other || x.Blackhole && len(n.Group) > 1 {
				return errInvalid
			}
		}
		if m.snap.route6Over(n.ID).Dst.IsValid() && m.snap.hasIPv4(n) {
			return errInvalid // fib6_check_nh_list
		}
	case n.Family == 6 && !n.Blackhole && l.Sysctl[disableIPv6] == "1":
		return errPermission
	case n.Family == 6 && (m.snap.Host.NoIPv6 || !n.Blackhole && l.MTU < 1280):
		return errInvalid
	case n.Blackhole && m.snap.loopbackDown():
		return errDown
	case n.Blackhole:
	case !l.Up() || !l.Carrier():
		return errDown
	case !gatewayReachable(l, Route{Gateway: n.Gateway, OnLink: n.OnLink}):
		return errUnreach
	default:
		n.Ifindex, n.Dev = l.Index, l.Name
	}
	if old != nil {
		switch {
		case !o.Replace:
			return errExist
		case old.remade(n):
			return errInvalid
		}
	}
	m.snap.NextHops = slices.DeleteFunc(slices.Clone(m.snap.NextHops), func(x NextHopObject) bool { return x.ID == n.ID })
	m.snap.NextHops = append(m.snap.NextHops, n)
	m.snap.sortNextHops()
	return nil
}

// dropNextHops removes nexthops as remove_nexthop does: from their groups too, groups
// without a member, and the routes over what went.
func (m *Model) dropNextHops(drop func(NextHopObject) bool) {
	gone := map[uint32]bool{}
	var left []NextHopObject
	for _, n := range m.snap.NextHops {
		if drop(n) {
			gone[n.ID] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, n := range m.snap.NextHops {
		if g := slices.DeleteFunc(slices.Clone(n.Group), func(x GroupMember) bool { return gone[x.ID] }); len(g) < len(n.Group) {
			n.Group = g
			gone[n.ID] = gone[n.ID] || len(g) == 0
		}
		if !gone[n.ID] {
			left = append(left, n)
		}
	}
	m.snap.NextHops = left
	over := func(r Route) bool { return gone[r.NextHopID] }
	for i := range m.snap.Links {
		if slices.ContainsFunc(m.snap.Links[i].Routes, over) {
			w := m.write(m.snap.Links[i].Index)
			w.Routes = slices.DeleteFunc(w.Routes, over)
		}
	}
}

// nextHopsLeave removes those of a link that is down, has no carrier or is gone.
func (m *Model) nextHopsLeave(index int) {
	m.dropNextHops(func(n NextHopObject) bool { return n.Ifindex == index })
}
