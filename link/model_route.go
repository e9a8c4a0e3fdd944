package link

import "slices"

// dropRoutes removes routes over several links from each of them.
func (m *Model) dropRoutes(drop func(Route) bool) {
	for i := range m.snap.Links {
		multi := func(r Route) bool { return len(r.NextHops) > 0 && r.NextHopID == 0 && drop(r) }
		if slices.ContainsFunc(m.snap.Links[i].Routes, multi) {
			w := m.write(m.snap.Links[i].Index)
			w.Routes = slices.DeleteFunc(w.Routes, multi)
		}
	}
}

// leadsOver reports whether a next hop is on a link.
func (r Route) leadsOver(index int) bool {
	return slices.ContainsFunc(r.NextHops, func(h NextHop) bool { return h.Ifindex == index })
}

// LoopbackIndex is the index of lo in every network namespace.
const LoopbackIndex = 1

// routesLike are the routes among which one that a link's unit asks for is found:
// those of the link, or of one that it leads over; for a route that leads nowhere
// those of the loopback, with which an observer keeps all of that kind.
func (m *Model) routesLike(l *Link, r Route) []Route {
	return m.at(l, r)[0].Routes
}

// findRoute is the route with the key of one that a link's unit asks for, and the link with
// which it is listed; nil where that is expected to be and is not.
func (m *Model) findRoute(l *Link, r Route) (*Link, Route) {
	at := m.at(l, r)[0]
	for _, x := range at.Routes {
		if sameRoute(x, r) {
			return at, x
		}
	}
	return nil, Route{}
}

// at are the links that have a route which the unit of l asks for, one at least.
func (m *Model) at(l *Link, r Route) (out []*Link) {
	add := func(index int) {
		if x, ok := m.snap.Link(index); ok && !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	switch {
	case r.NextHopID != 0:
		for i := range m.snap.Links {
			if slices.ContainsFunc(m.snap.Links[i].Routes, func(x Route) bool { return sameRoute(x, r) }) {
				add(m.snap.Links[i].Index)
			}
		}
	case r.nowhere():
		add(LoopbackIndex)
	case len(r.NextHops) > 0:
		for _, h := range r.NextHops {
			add(h.Ifindex)
		}
	}
	if len(out) == 0 {
		out = append(out, l)
	}
	return out
}

// homes are the same to be written to.
func (m *Model) homes(l *Link, r Route) []*Link {
	out := m.at(l, r)
	for i := range out {
		out[i] = m.write(out[i].Index)
	}
	return out
}

func (m *Model) addRoute(l *Link, o AddRoute) error {
	if o.Route.NextHopID != 0 {
		return m.addRouteOver(l, o)
	}
	if !l.Up() {
		return errDown
	}
	if o.Route.Dst.Addr().Is6() && (m.snap.Host.NoIPv6 || l.MTU < 1280) {
		return errInvalid
	}
	if o.Route.Dst.Addr().Is6() && !o.Route.overOthers() && !o.Route.nowhere() && l.Sysctl[disableIPv6] == "1" {
		return errPermission // fib6_nh_init
	}
	if !gatewayReachable(l, o.Route) {
		return errUnreach
	}
	if err := m.replaceRoute(o); err != nil {
		return err
	}
	for _, h := range o.Route.NextHops {
		switch x, ok := m.snap.Link(h.Ifindex); {
		case !ok:
			return errNoDev
		case !x.Up():
			return errDown
		}
	}
	for _, l := range m.homes(l, o.Route) {
		l.Routes = append(l.Routes, o.Route)
	}
	return nil
}

// replaceRoute makes room for a route.
func (m *Model) replaceRoute(o AddRoute) error {
	for i := range m.snap.Links {
		k := &m.snap.Links[i]
		for _, x := range k.Routes {
			if !sameRoute(x, o.Route) {
				continue
			}
			if !o.Replace {
				return errExist
			}
			w := m.write(k.Index)
			w.Routes = removeRoute(w.Routes, o.Route)
		}
	}
	return nil
}

// addRouteOver adds a route over a nexthop object, which is all that it needs.
func (m *Model) addRouteOver(l *Link, o AddRoute) error {
	n := m.snap.NextHop(o.Route.NextHopID)
	switch {
	case n == nil || o.Route.Dst.Addr().Is6() && (m.snap.hasIPv4(*n) || o.Route.Src.IsValid()):
		return errInvalid
	case o.Route.Dst.Addr().Is6() && m.snap.Host.NoIPv6:
		return errInvalid
	case o.Route.PrefSrc.IsValid() && !m.snap.hasAddress(o.Route.PrefSrc): // fib_valid_prefsrc
		return errInvalid
	}
	if err := m.replaceRoute(o); err != nil {
		return err
	}
	for _, l := range m.homes(l, o.Route) {
		l.Routes = append(l.Routes, o.Route)
	}
	return nil
}

// gatewayReachable reports whether the kernel would find the gateways of a
// route on the link: in the subnet of an address or behind an on-link route, or
// link-local, or declared on-link.
func gatewayReachable(l *Link, r Route) bool {
	if !r.Gateway.IsValid() || r.OnLink || r.Gateway.IsLinkLocalUnicast() && r.Gateway.Is6() {
		return true
	}
	for _, a := range l.Addresses {
		if a.Peer.IsValid() {
			if a.Peer.Contains(r.Gateway) {
				return true
			}
			continue
		}
		if a.Prefix.Contains(r.Gateway) && a.Prefix.Addr() != r.Gateway && a.Flags&AddrNoPrefixRoute == 0 {
			return true
		}
	}
	for _, x := range l.Routes {
		if !x.Gateway.IsValid() && len(x.NextHops) == 0 && x.NextHopID == 0 && !x.nowhere() && x.Dst.Bits() > 0 && x.Dst.Contains(r.Gateway) {
			return true
		}
	}
	return false
}
