package link

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/units"
)

// PlanRoutesOver plans the routes of one link's unit that lead over several links, or
// over nexthop objects. It comes when all links and nexthops have been planned.
func PlanRoutesOver(b *Builder, index int, u *units.Unit) {
	over := func(r units.Route) bool { return len(r.MultiPathRoute) > 0 || r.NextHop.Set }
	if u == nil || !u.ConfiguresIP() || !slices.ContainsFunc(u.Routes, over) {
		return
	}
	b.For(u)
	var h *deferral
	if wait, waits := addressWait(b, index, u); waits {
		h = &deferral{why: wait, wait: true}
	}
	var apart *deferral // a route over a nexthop only needs its link to be in its VRF
	if why := vrfWait(b, b.Link(index), u); why != (Reason{}) {
		apart = &deferral{why: why, wait: true}
	}
	for _, r := range wantedRoutes(b.Link(index), b.Model.snap, u) {
		if !r.overOthers() {
			continue
		}
		k := h
		if r.NextHopID != 0 {
			k = apart
		}
		if k == nil && (r.NextHopID != 0 || missingHop(b, r) == "") {
			if why := b.claimRoute(b.Link(index), r); why != (Reason{}) {
				k = &deferral{why: why}
			}
		}
		planRoute(b, index, r, b.Record.Of(b.Link(index)), k)
	}
}

// overOthers reports a route that may lead over other links than that of its unit.
func (r Route) overOthers() bool { return len(r.NextHops) > 0 || r.NextHopID != 0 }

// deferral is why something is not set; wait says that this ends by itself.
type deferral struct {
	why  Reason
	wait bool
}

// deferrals are the addresses of a link that are not set yet; routes that need them wait.
type deferrals []deferredAddress

type deferredAddress struct {
	address netip.Prefix
	*deferral
}

func (h deferrals) of(r Route) *deferral {
	for _, x := range h {
		if r.PrefSrc == x.address.Addr() || r.Gateway.IsValid() && x.address.Contains(r.Gateway) {
			return x.deferral
		}
	}
	return nil
}

// PlanOrphans removes recorded routes whose links are gone, unless the unit of
// another link wants them, or partial is set: some units are not known yet.
func PlanOrphans(b *Builder, unitOf func(index int) *units.Unit, partial bool) {
	if b.Record == nil || partial {
		return
	}
	ours := slices.Clone(b.Record.Routes)
	for _, e := range b.Record.Links {
		if !e.Keep && b.Now(e.Ifindex) != nil && b.Link(e.Ifindex) == nil {
			ours = append(ours, e.outliving()...) // deleted by this plan
		}
	}
	if len(ours) == 0 {
		return
	}
	b.For(nil)
	var wanted []Route
	for i := range b.Model.snap.Links {
		l := &b.Model.snap.Links[i]
		if u := unitOf(l.Index); u != nil && u.ConfiguresIP() && !vrfMissing(b.Model.snap, u) {
			wanted = append(wanted, wantedRoutes(l, b.Model.snap, u)...)
		}
	}
	for _, r := range ours {
		if slices.ContainsFunc(wanted, func(w Route) bool { return sameRoute(w, r) }) {
			continue
		}
		if l, now := b.Model.snap.linkWith(r); l != nil {
			b.Do(DelRoute{On: b.Model.Target(l), Route: now})
		}
	}
}

func wantedRoutes(l *Link, s *Snapshot, u *units.Unit) []Route {
	var out []Route
	table := tableOf(s, u)
	if u.Network.DefaultRouteOnDevice.Or(false) {
		out = append(out,
			Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Table: table, Type: RouteUnicast, Protocol: ProtoStatic, Scope: ScopeLink})
	}
	for _, r := range leaseRoutes(l, u, table) {
		if !slices.ContainsFunc(out, func(o Route) bool { return sameRoute(o, r) }) {
			out = append(out, r)
		}
	}
	for i := range u.Routes {
		x := &u.Routes[i]
		is6 := x.Is6()
		r := Route{
			Gateway:          x.Gateway.Or(netip.Addr{}),
			PrefSrc:          x.PreferredSource.Or(netip.Addr{}),
			Metric:           x.Metric.Or(0),
			Type:             uint8(x.Type.Or(units.RouteUnicast)),
			Protocol:         x.Protocol.Or(ProtoStatic),
			OnLink:           x.GatewayOnLink.Or(false),
			MTU:              uint32(x.MTUBytes.Or(0)),
			AdvMSS:           uint32(x.TCPAdvertisedMaximumSegmentSize.Or(0)),
			HopLimit:         uint32(x.HopLimit.Or(0)),
			InitCwnd:         uint32(x.InitialCongestionWindow.Or(0)),
			InitRwnd:         uint32(x.InitialAdvertisedReceiveWindow.Or(0)),
			RTOMin:           uint32(x.TCPRetransmissionTimeoutSec.Or(0).Milliseconds()),
			Congestion:       x.TCPCongestionControlAlgorithm.Or(""),
			QuickAck:         x.QuickAck.Or(false),
			FastOpenNoCookie: x.FastOpenNoCookie.Or(false),
			NextHopID:        x.NextHop.Or(0),
			Dst:              netip.PrefixFrom(netip.IPv4Unspecified(), 0),
		}
		if is6 {
			r.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			r.Pref = uint8(x.IPv6Preference.Or(units.PreferenceMedium))
			if src, ok := x.Source.Get(); ok {
				r.Src = src.Masked()
			}
			if r.Metric == 0 {
				r.Metric = 1024 // IP6_RT_PRIO_USER, what the kernel makes of 0
			}
		}
		if d, ok := x.Destination.Get(); ok {
			r.Dst = d.Masked()
		}
		r.Table = table
		if table == TableMain && (r.Type == RouteLocal || r.Type == RouteBroadcast || r.Type == RouteAnycast) {
			r.Table = TableLocal
		}
		r.Table = x.Table.Or(r.Table)
		for _, h := range x.MultiPathRoute {
			n := NextHop{Gateway: h.V.Gateway, Weight: max(h.V.Weight, 1), Dev: h.V.Interface}
			if n.Dev == "" {
				n.Dev, n.Ifindex = l.Name, l.Index
			} else if k, ok := s.LinkByName(n.Dev); ok {
				n.Dev, n.Ifindex = k.Name, k.Index
			}
			r.NextHops = append(r.NextHops, n)
		}
		if !is6 {
			switch {
			case x.Scope.Set:
				r.Scope = uint8(x.Scope.V)
			case r.Type == RouteLocal || r.Type == 10:
				r.Scope = ScopeHost
			case r.Type == RouteBroadcast || r.Type == RouteMulticast || r.Type == RouteAnycast,
				r.Type == RouteUnicast && !r.Gateway.IsValid() && !r.overOthers():
				r.Scope = ScopeLink
			}
		}
		if slices.ContainsFunc(out, func(o Route) bool { return sameRoute(o, r) }) {
			continue
		}
		out = append(out, r)
	}
	return out
}

func planRoute(b *Builder, index int, r Route, rec *LinkRecord, h *deferral) {
	l := b.Link(index)
	t := b.Model.Target(l)
	a := Attribute{Name: "Route", Wanted: r.text(l.Name)}
	if now := b.Now(index); now != nil {
		for _, x := range b.Model.routesLike(now, r) {
			if sameRoute(x, r) {
				a.Actual = x.text(l.Name)
			}
		}
	}
	at, now := b.Model.findRoute(l, r)
	other := (*Link)(nil) // with a route of the same key, which this one is to replace
	if at == nil {
		other, _ = b.Model.snap.linkWith(r)
	}
	ours := b.Record.madeRoute(rec, r)
	op := AddRoute{On: t, Route: r, Replace: (at != nil || other != nil) && ours}
	block := func(wait bool, why Reason) {
		a.Why = why
		b.Block(t, op, wait, why)
	}
	no6 := noInet6(b.Base.Host.NoIPv6, l)
	if !r.overOthers() && !r.nowhere() {
		no6 = noIPv6(b.Base.Host.NoIPv6, l)
	}
	switch {
	case at != nil && routeEqual(now, r):
		a.Wanted = a.Actual
	case r.NextHopID != 0 && h != nil:
		block(h.wait, h.why)
	case at != nil && !ours:
		block(false, b.routeConflict(at, now))
	case r.NextHopID != 0:
		if wait, why := planRouteOver(b, r); why != (Reason{}) {
			block(wait, why)
		} else {
			b.DoFor(op, &a.Why)
		}
	case !l.Up():
		block(true, Reason{Code: CodeLinkDown, Text: l.Name + " is down: a route needs it up", Next: "ip link set " + l.Name + " up"})
	case r.Dst.Addr().Is6() && no6 != (Reason{}):
		block(false, no6)
	case h != nil:
		block(h.wait, h.why)
	case missingHop(b, r) != "":
		block(true, Reason{
			Code: CodeGatewayUnreached,
			Text: fmt.Sprintf("the route to %s leads over %s, which does not exist or is down", r.Dst, missingHop(b, r)),
			Next: "ip link show; correct MultiPathRoute=, or bring that link up",
		})
	case !gatewayReachable(l, r):
		block(true, Reason{Code: CodeGatewayUnreached, Text: fmt.Sprintf("gateway %s is in no subnet of %s", r.Gateway, l.Name),
			Next: "give the link an address of the gateway's subnet, or write GatewayOnLink=yes"})
	case other != nil && !ours:
		why := Reason{Code: CodeAddressConflict,
			Text: fmt.Sprintf("a route to %s with metric %d leads over %s already", r.Dst, r.Metric, other.Name),
			Next: "give one of the two another Metric="}
		if r.Protocol == ProtoDHCP {
			why.Next = "write another RouteMetric= into [DHCPv4] of one of the two, or UseGateway=no and UseRoutes=no"
		}
		block(r.Protocol != ProtoDHCP, why)
	default:
		b.DoFor(op, &a.Why)
	}
	b.Attr(index, a)
}

// routeConflict is the reason for a route that was found on a link and is not of the unit that is
// planned: it is of another unit, or of another program.
func (b *Builder) routeConflict(at *Link, now Route) Reason {
	why := Reason{Code: CodeAddressConflict,
		Text: fmt.Sprintf("a route to %s with metric %d is on %s already, and was not made by ibnetworkd", now.Dst, now.Metric, at.Name),
		Next: DelRoute{On: b.Model.Target(at), Route: now}.String()}
	for _, e := range b.Record.links() {
		if slices.ContainsFunc(e.Routes, func(x Route) bool { return sameRoute(x, now) }) {
			why.Text = fmt.Sprintf("the unit of %s has another route to %s with metric %d", e.Name, now.Dst, now.Metric)
			why.Next = "give one of the two another Metric="
		}
	}
	return why
}

// missingHop is a link that a route leads over and cannot, "" if there is none.
func missingHop(b *Builder, r Route) string {
	for _, h := range r.NextHops {
		if x := b.Link(h.Ifindex); x == nil || !x.Up() {
			return h.Dev
		}
	}
	return ""
}

// routeEqual compares what a unit can set.
func routeEqual(x, w Route) bool {
	if len(w.NextHops) == 1 && len(x.NextHops) == 0 {
		// One next hop is no multipath route to the kernel.
		w.Gateway, w.NextHops = w.NextHops[0].Gateway, nil
	}
	if x.NextHopID != w.NextHopID {
		return false
	}
	if w.NextHopID != 0 {
		x.Gateway, x.NextHops, x.OnLink = w.Gateway, w.NextHops, w.OnLink
	}
	if x.Gateway != w.Gateway || x.PrefSrc != w.PrefSrc && w.PrefSrc.IsValid() || x.Type != w.Type || x.Protocol != w.Protocol {
		return false
	}
	if !w.Dst.Addr().Is6() && x.Scope != w.Scope || w.Pref != 0 && x.Pref != w.Pref {
		return false
	}
	if x.OnLink != w.OnLink || x.FastOpenNoCookie != w.FastOpenNoCookie || x.MTU != w.MTU || x.AdvMSS != w.AdvMSS ||
		x.HopLimit != w.HopLimit || x.InitCwnd != w.InitCwnd || x.InitRwnd != w.InitRwnd ||
		x.RTOMin != w.RTOMin ||
		x.Congestion != w.Congestion ||
		x.QuickAck != w.QuickAck {
		return false
	}
	return slices.EqualFunc(x.NextHops, w.NextHops, func(a, b NextHop) bool {
		return a.Gateway == b.Gateway && a.Ifindex == b.Ifindex && a.Weight == b.Weight
	})
}

// LeadsNowhere reports a route without a link: blackhole, unreachable, prohibit
// or throw.
func (r Route) LeadsNowhere() bool { return r.nowhere() }

// text prints the route as ip route replace takes it.
func (r Route) text(dev string) string {
	var b strings.Builder
	if r.Type != 0 && r.Type != RouteUnicast {
		b.WriteString(routeTypeName(r.Type) + " ")
	}
	if r.Dst.Bits() == 0 {
		if r.Dst.Addr().Is6() {
			b.WriteString("::/0")
		} else {
			b.WriteString("default")
		}
	} else {
		b.WriteString(r.Dst.String())
	}
	if r.Src.IsValid() {
		b.WriteString(" from " + r.Src.String())
	}
	if r.NextHopID != 0 {
		fmt.Fprintf(&b, " nhid %d", r.NextHopID)
		r.Gateway, r.NextHops, r.OnLink, dev = netip.Addr{}, nil, false, ""
	}
	if r.Gateway.IsValid() {
		if r.Gateway.Is6() != r.Dst.Addr().Is6() {
			b.WriteString(" via inet6 " + r.Gateway.String())
		} else {
			b.WriteString(" via " + r.Gateway.String())
		}
	}
	if dev != "" && !r.nowhere() && len(r.NextHops) == 0 {
		b.WriteString(" dev " + dev)
	}
	if r.TOS != 0 {
		fmt.Fprintf(&b, " tos 0x%02x", r.TOS)
	}
	if r.Table != 0 && r.Table != TableMain {
		fmt.Fprintf(&b, " table %d", r.Table)
	}
	if r.Protocol != 0 {
		b.WriteString(" proto " + protocolName(r.Protocol))
	}
	if r.Scope != 0 {
		b.WriteString(" scope " + scopeName(r.Scope))
	}
	if r.PrefSrc.IsValid() {
		b.WriteString(" src " + r.PrefSrc.String())
	}
	if r.Metric != 0 {
		fmt.Fprintf(&b, " metric %d", r.Metric)
	}
	for _, m := range []struct {
		word string
		v    uint32
	}{{"mtu", r.MTU}, {"advmss", r.AdvMSS}, {"hoplimit", r.HopLimit}, {"initcwnd", r.InitCwnd}, {"initrwnd", r.InitRwnd}} {
		if m.v != 0 {
			fmt.Fprintf(&b, " %s %d", m.word, m.v)
		}
	}
	if r.RTOMin != 0 {
		fmt.Fprintf(&b, " rto_min %dms", r.RTOMin)
	}
	if r.Congestion != "" {
		b.WriteString(" congctl " + r.Congestion)
	}
	if r.QuickAck {
		b.WriteString(" quickack 1")
	}
	if r.FastOpenNoCookie {
		b.WriteString(" fastopen_no_cookie 1")
	}
	if r.Pref != 0 {
		b.WriteString(" pref " + map[uint8]string{1: "high", 3: "low"}[r.Pref])
	}
	for _, h := range r.NextHops {
		b.WriteString(" nexthop")
		if h.Gateway.IsValid() {
			b.WriteString(" via " + h.Gateway.String())
		}
		if h.Dev != "" {
			b.WriteString(" dev " + h.Dev)
		}
		fmt.Fprintf(&b, " weight %d", h.Weight)
	}
	if r.OnLink {
		b.WriteString(" onlink")
	}
	return b.String()
}

func (r Route) nowhere() bool {
	return r.Type == RouteBlackhole || r.Type == RouteUnreachable || r.Type == RouteProhibit || r.Type == RouteThrow
}

// scopeName is ip's word for a scope, the number where it has none.
func scopeName(s uint8) string {
	switch s {
	case ScopeGlobal:
		return "global"
	case ScopeSite:
		return "site"
	case ScopeLink:
		return "link"
	case ScopeHost:
		return "host"
	}
	return fmt.Sprint(s)
}

// routeTypeName is ip's word for a route type, the number where it has none.
func routeTypeName(t uint8) string {
	names := [...]string{
		"none",
		"unicast",
		"local",
		"broadcast",
		"anycast",
		"multicast",
		"blackhole",
		"unreachable",
		"prohibit",
		"throw",
		"nat",
		"xresolve",
	}
	if int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprint(t)
}

// protocolName is ip's word for a routing protocol, the number where it has
// none.
func protocolName(p uint8) string {
	switch p {
	case ProtoRedirect:
		return "redirect"
	case ProtoKernel:
		return "kernel"
	case ProtoBoot:
		return "boot"
	case ProtoStatic:
		return "static"
	case ProtoRA:
		return "ra"
	case ProtoDHCP:
		return "dhcp"
	}
	return fmt.Sprint(p)
}
