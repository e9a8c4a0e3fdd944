package link

import (
	"fmt"
	"slices"

	"ibnetworkd/units"
)

// PlanRemovals removes what is recorded of a link and no longer wanted: all of it
// for a unit without an IP part, or for no unit (u nil). It comes before anything
// is made on any link, because an address or a route may move between links.
func PlanRemovals(b *Builder, index int, u *units.Unit) {
	b.For(u)
	var w wantedIP
	if u != nil && u.ConfiguresIP() {
		w.token = wantedToken(u).Set
		if vrfMissing(b.Model.snap, u) {
			planRemovals(b, index, true, w)
			return
		}
		addrs, not := b.addresses(index, u)
		w = wantedIP{wantedAddresses(b.Link(index), u, addrs), not, wantedRoutes(b.Link(index), b.Model.snap, u), u.Neighbors,
			w.token}
	}
	planRemovals(b, index, u != nil, w)
}

// PlanNetwork plans addresses, routes, neighbours and name servers of one link. u
// is nil where no unit applies any more.
func PlanNetwork(b *Builder, index int, u *units.Unit) {
	b.For(u)
	if u != nil && !u.ConfiguresIP() {
		u = nil
	}
	if u != nil {
		switch {
		case vrfWait(b, b.Link(index), u) != (Reason{}):
			planRemovals(b, index, true, wantedIP{token: wantedToken(u).Set}) // without its VRF the link is in the main table
		case u.FollowsLinks():
			PlanRemovals(b, index, u) // of what another link's new address, in this plan, has replaced
		}
		planAdditions(b, index, u)
	}
	planDNS(b, index, u)
	planTimeServers(b, index, u)
	planHostname(b, index, u)
}

// wantedIP is what a unit wants on a link.
type wantedIP struct {
	addrs     []wantedAddress
	underived []units.Underived
	routes    []Route
	neighbors []units.Neighbor
	token     bool
}

// planRemovals removes routes first, because they may depend on the addresses,
// then addresses.
func planRemovals(b *Builder, index int, applies bool, want wantedIP) {
	l := b.Link(index)
	rec := b.Record.Of(l)
	if rec == nil || rec.Keep && !applies {
		return
	}
	for _, r := range rec.Routes {
		if slices.ContainsFunc(want.routes, func(w Route) bool { return sameRoute(w, r) }) {
			continue
		}
		at, now := b.Model.findRoute(b.Link(index), r)
		if at == nil && r.overOthers() {
			at, now = b.Model.snap.linkWith(r)
		}
		if at == nil {
			continue
		}
		if now.overOthers() || now.nowhere() {
			at = b.Link(index)
		}
		b.Do(DelRoute{On: b.Model.Target(at), Route: now}) // as it is: a replacement that is recorded may have been refused
	}
	planNeighborRemovals(b, index, rec, want.neighbors)
	planTokenRemoval(b, index, rec, want.token)
	for _, a := range rec.Addresses {
		if kept(want.underived, a) ||
			slices.ContainsFunc(want.addrs, func(w wantedAddress) bool { return sameAddress(w.Address, a) && !mustRemake(w, b.Link(index)) }) {
			continue
		}
		deleteAddress(b, index, a, want.addrs)
	}
}

func planAdditions(b *Builder, index int, u *units.Unit) {
	addrs, not := b.addresses(index, u)
	l := b.Link(index)
	wantA := wantedAddresses(l, u, addrs)
	planUnderived(b, index, not)
	t := b.Model.Target(l)
	rec := b.Record.Of(l)
	wait, waits := addressWait(b, index, u)
	planLeases(b, index, u, wait, waits)
	planLinkLocal(b, index, u)
	var deferred deferrals
	for _, w := range wantA {
		l = b.Link(index)
		sameIP := func(x Address) bool { return x.Prefix.Addr() == w.Prefix.Addr() }
		now, had := b.Now(index), slices.ContainsFunc(l.Addresses, sameIP)
		a := Attribute{Name: "Address", Wanted: w.text()}
		if now != nil {
			for _, x := range now.Addresses {
				had = had || sameIP(x)
				if sameAddress(x, w.Address) {
					a.Actual = wantedAddress{Address: x}.text()
					if x.Flags&AddrDADFailed != 0 {
						a.Why = duplicate(x, "remove the address from the other host, or choose another one")
						b.Block(t, nil, false, a.Why)
					}
				}
			}
		}
		is6 := w.Prefix.Addr().Is6()
		i := slices.IndexFunc(l.Addresses, func(x Address) bool { return sameAddress(x, w.Address) })
		op := AddAddress{On: t, Address: w.Address}
		probe, no6 := l.probe(w.Prefix.Addr()), noIPv6(b.Base.Host.NoIPv6, l)
		switch {
		case is6 && no6 != (Reason{}):
			a.Why = no6
			b.Block(t, op, false, a.Why)
		case i < 0 && waits:
			a.Why = wait
			b.Block(t, op, true, wait)
		case i < 0 && w.probe && probe.State != ProbeFree && !had:
			h := probe.deferral(l)
			deferred = append(deferred, deferredAddress{w.Prefix, h})
			a.Why = h.why
			b.Block(t, op, h.wait, a.Why)
		case i < 0:
			if w.detected() {
				// The kernel removes an address with an end when another host has it. One
				// without an end stays, with a flag; it gets its end when it is found free.
				op.Address.Valid, op.Address.Preferred, op.Address.Until = Forever, Forever, 0
				op.Address.Flags |= AddrTentative
			}
			b.DoFor(op, &a.Why)
		case mustRemake(w, l) && (rec == nil || !slices.ContainsFunc(rec.Addresses, func(r Address) bool { return sameAddress(r, w.Address) })):
			a.Why = Reason{
				Code: CodeAddressConflict,
				Text: fmt.Sprintf("%s is on %s already in another form, and was not made by ibnetworkd", w.Prefix, l.Name),
				Next: DelAddress{On: t, Address: l.Addresses[i]}.String(),
			}
			b.Block(t, op, false, a.Why)
		case w.detected() && l.Addresses[i].Flags&AddrTentative != 0:
		case addressDiffers(w, l.Addresses[i]) || w.Until != rec.until(w.Address):
			op.Replace = true
			if a.Why = vrfWait(b, l, u); a.Why != (Reason{}) {
				b.Block(t, op, true, a.Why)
			} else {
				b.DoFor(op, &a.Why)
			}
		}
		if i >= 0 && probe.State == ProbeConflict && a.Why.Code == CodeNone {
			a.Why = probe.deferral(l).why
			b.Block(t, nil, false, a.Why)
		}
		b.Attr(index, a)
	}
	for _, r := range wantedRoutes(b.Link(index), b.Model.snap, u) {
		if r.overOthers() {
			continue
		}
		h := deferred.of(r)
		if waits {
			h = &deferral{why: wait, wait: true}
		}
		planRoute(b, index, r, rec, h)
	}
	planNeighbors(b, index, u, rec)
}

// noIPv6 returns why a link can have no IPv6 address or route, nothing where it can.
func noIPv6(kernel bool, l *Link) Reason {
	why := noInet6(kernel, l)
	if why == (Reason{}) && l.Sysctl[disableIPv6] == "1" {
		return Reason{Code: CodeNoIPv6, Text: "IPv6 is disabled on " + l.Name,
			Next: "sysctl -w " + sysctlName(l.Name, disableIPv6) + "=0"}
	}
	return why
}

// noInet6 returns why a link has no IPv6 settings and neighbours (inet6_dev of the kernel), nothing where it has.
func noInet6(kernel bool, l *Link) Reason {
	switch {
	case kernel:
		return Reason{Code: CodeNoIPv6, Text: "this kernel has no IPv6"}
	case l.MTU != 0 && l.MTU < 1280:
		return Reason{Code: CodeIPv6MTU, Text: fmt.Sprintf("IPv6 needs an MTU of 1280, %s has %d", l.Name, l.MTU), Next: "raise MTUBytes="}
	}
	return Reason{}
}

// duplicate is the reason of an address that another host has.
func duplicate(a Address, next string) Reason {
	return Reason{Code: CodeAddressConflict, Next: next,
		Text: fmt.Sprintf("another host uses %s (duplicate address detection failed)", a.Prefix.Addr())}
}
