package link

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// PlanLink plans the part of [Link] that every kind of link has, after the
// InfiniBand part and before the IP part: the flags, and up or down.
func PlanLink(b *Builder, index int, u *units.Unit) {
	b.For(u)
	l := b.Link(index)
	t := b.Model.Target(l)
	for _, f := range []struct {
		name string
		want units.Value[bool]
		bit  uint32
		not  bool
	}{{"AllMulticast", u.Link.AllMulticast, FlagAllMulti, false}, {"Multicast", u.Link.Multicast, FlagMulti, false}, {"Promiscuous", u.Link.Promiscuous, FlagPromisc, false}, {"ARP", u.Link.ARP, FlagNoARP, true}} {
		want, ok := f.want.Get()
		if !ok {
			continue
		}
		a := Attribute{Name: f.name, Wanted: yesNo(want), Actual: yesNo(nowFlags(b, index)&f.bit != 0 != f.not)}
		if l.Flags&f.bit != 0 != f.not != want {
			op := SetFlag{On: t, Flag: f.bit, Set: want != f.not}
			if !b.Do(op) {
				a.Why = b.Held[HoldKey(op)]
			}
		}
		b.Attr(index, a)
	}
	if g, ok := u.Link.Group.Get(); ok {
		a := Attribute{Name: "Group", Wanted: strconv.Itoa(int(g)), Actual: "-"}
		if now := b.Now(index); now != nil {
			a.Actual = strconv.Itoa(int(now.Group))
		}
		if l.Group != g {
			op := SetGroup{On: t, Group: g}
			if !b.Do(op) {
				a.Why = b.Held[HoldKey(op)]
			}
		}
		b.Attr(index, a)
	}
	if u.Activation() == units.ActivationBound {
		planBound(b, index, u)
		return
	}
	PlanActivation(b, index, u.Activation())
}

// planBound takes a link up and down with the carriers of others.
func planBound(b *Builder, index int, u *units.Unit) {
	l := b.Link(index)
	var names, with []string
	for i := range b.Base.Links {
		x := &b.Base.Links[i]
		// A P_Key child has carrier only while its parent is up, and two links
		// that follow each other would never come to rest.
		if x.Index == index || !bindsTo(u, x) || x.IsChild() && x.Parent == index || b.Bound[x.Index] {
			continue
		}
		names = append(names, x.Name)
		if x.Up() && x.Carrier() {
			with = append(with, x.Name)
		}
	}
	a := Attribute{Name: "ActivationPolicy", Wanted: "bound", Actual: upDown(nowFlags(b, index)&FlagUp != 0)}
	defer func() { b.Attr(index, a) }()
	on := b.Model.Target(l)
	if len(names) == 0 {
		var want []string
		for _, p := range u.Network.BindCarrier {
			want = append(want, p.V.Glob)
		}
		a.Why = Reason{Code: CodeNoCarrier, Text: fmt.Sprintf("no link of BindCarrier=%s is there to follow: %s stays %s", strings.Join(want, " "), l.Name, a.Actual), Next: "compare BindCarrier= with: ip -br link"}
		if len(want) == 0 {
			a.Why = Reason{Code: CodeNoCarrier, Text: "ActivationPolicy=bound names no links to follow: " + l.Name + " stays " + a.Actual, Next: "write BindCarrier= below [Network]"}
		}
		b.Block(on, nil, len(want) > 0, a.Why)
		return
	}
	up := len(with) > 0
	if !up {
		a.Why = Reason{Code: CodeLinkDown, Text: fmt.Sprintf("%s is kept down while no link of BindCarrier= has carrier (%s)", l.Name, strings.Join(names, ", ")), Next: "ip -br link show; bring one of them up"}
	}
	if l.Up() != up {
		op := SetUp{On: on, Up: up}
		if !b.Do(op) {
			a.Why = b.Held[HoldKey(op)]
		}
	}
}

// bindsTo reports whether a unit's BindCarrier= names a link.
func bindsTo(u *units.Unit, l *Link) bool {
	for _, p := range u.Network.BindCarrier {
		if p.V.Hits(l.Name) || slices.ContainsFunc(l.AltNames, p.V.Hits) {
			return true
		}
	}
	return false
}

func nowFlags(b *Builder, index int) uint32 {
	if l := b.Now(index); l != nil {
		return l.Flags
	}
	return 0
}

// PlanActivation brings a link up or down as ActivationPolicy= asks.
func PlanActivation(b *Builder, index int, p units.ActivationPolicy) {
	l := b.Link(index)
	rec := b.Record.Of(l)
	activated := rec != nil && rec.Activated
	a := Attribute{Name: "ActivationPolicy", Wanted: p.String(), Actual: upDown(nowFlags(b, index)&FlagUp != 0)}
	do := func(up bool) {
		op := SetUp{On: b.Model.Target(l), Up: up}
		if !b.Do(op) {
			a.Why = b.Held[HoldKey(op)]
		}
	}
	switch p {
	case units.ActivationUp:
		if !l.Up() {
			if activated {
				a.Why = Reason{Code: CodeLinkDown, Text: "the link was taken down by hand; ActivationPolicy=up brings it up once only",
					Next: "ibnetctl up " + l.Name + ", or ActivationPolicy=always-up"}
				break
			}
			do(true)
		}
	case units.ActivationAlwaysUp:
		if !l.Up() {
			do(true)
		}
	case units.ActivationDown:
		if l.Up() && !activated && !recordKnows(rec) {
			do(false)
		}
	case units.ActivationAlwaysDown:
		if l.Up() {
			do(false)
		}
	}
	b.Attr(index, a)
}

// recordKnows reports that the link has been taken down once already.
func recordKnows(e *LinkRecord) bool { return e != nil && e.Deactivated }

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

// PlanGoing takes back what is ours on a link and no longer wanted: all of it
// for a unit that has no IP part, or none at all (u nil). It comes before
// anything is made on any link, because an address or a route may move from one
// link to another.
func PlanGoing(b *Builder, index int, u *units.Unit) {
	b.For(u)
	var wantA []wantedAddress
	var wantR []Route
	if u != nil && u.ConfiguresIP() {
		wantA = wantedAddresses(u)
		wantR = wantedRoutes(b.Link(index), b.Model.snap, u)
	}
	planGoing(b, index, u != nil, wantA, wantR)
}

// PlanNetwork plans addresses, routes and name servers of one link. u
// is nil where no unit applies any more.
func PlanNetwork(b *Builder, index int, u *units.Unit) {
	b.For(u)
	if u != nil && !u.ConfiguresIP() {
		u = nil
	}
	if u != nil {
		planComing(b, index, u)
	}
	planDNS(b, index, u)
}

// PlanRoutesOver plans the routes of one link's unit that lead over several links.
// It comes when all links have been planned, because they must be up.
func PlanRoutesOver(b *Builder, index int, u *units.Unit) {
	over := func(r units.Route) bool { return len(r.MultiPathRoute) > 0 }
	if u == nil || !u.ConfiguresIP() || !slices.ContainsFunc(u.Routes, over) {
		return
	}
	b.For(u)
	wait, waits := addressWait(b, index, u)
	for _, r := range wantedRoutes(b.Link(index), b.Model.snap, u) {
		if len(r.NextHops) > 0 {
			planRoute(b, index, r, b.Record.Of(b.Link(index)), wait, waits)
		}
	}
}

// PlanOutlived takes away routes that outlived their links, unless a unit of
// another wants them, or partial says that there are units of which nothing is
// known yet.
func PlanOutlived(b *Builder, unitOf func(index int) *units.Unit, partial bool) {
	if b.Record == nil || partial {
		return
	}
	ours := slices.Clone(b.Record.Routes)
	for _, e := range b.Record.Links {
		if b.Now(e.Ifindex) != nil && b.Link(e.Ifindex) == nil {
			ours = append(ours, e.outliving()...) // it goes by this plan
		}
	}
	if len(ours) == 0 {
		return
	}
	b.For(nil)
	var wanted []Route
	for i := range b.Model.snap.Links {
		l := &b.Model.snap.Links[i]
		if u := unitOf(l.Index); u != nil && u.ConfiguresIP() {
			wanted = append(wanted, wantedRoutes(l, b.Model.snap, u)...)
		}
	}
	for _, r := range ours {
		if slices.ContainsFunc(wanted, func(w Route) bool { return sameRoute(w, r) }) {
			continue
		}
		if l := b.Model.snap.linkWith(r); l != nil {
			b.Do(DelRoute{On: b.Model.Target(l), Route: r})
		}
	}
}

// PlanSettings plans the sysctls of a link. It comes before the link is brought
// up, when the kernel makes link-local addresses and asks for routers.
func PlanSettings(b *Builder, index int, u *units.Unit) {
	b.For(u)
	planSysctls(b, index, u)
}

// Sysctls lists the settings that a unit cares about, as keys of Link.Sysctl,
// so that an observer reads no others.
func Sysctls(u *units.Unit) []string {
	var out []string
	for _, s := range wantedSysctls(u) {
		out = append(out, s.key)
		if s.key == acceptRA && !u.Network.IPv6Forwarding.Set {
			out = append(out, forwarding6) // shown beside it
		}
	}
	return out
}

const (
	acceptRA    = "ipv6/accept_ra"
	forwarding6 = "ipv6/forwarding"
)

type sysctl struct {
	name, key, value string
	flag             bool // yes or no in the unit
}

// show is a value as a status has it: in the unit's words where it has some. now is
// the link that has the value, nil for a value that is wanted.
func (s *sysctl) show(now *Link, value string) string {
	switch {
	case s.key == acceptRA && now == nil:
		return yesNo(value != "0")
	case s.key == acceptRA && value != "":
		f := now.Sysctl[forwarding6]
		return fmt.Sprintf("%s (accept_ra=%s, forwarding=%s)", yesNo(value == "2" || value == "1" && f == "0"), value, f)
	case s.flag && value == "0":
		return "no"
	case s.flag && value == "1":
		return "yes"
	}
	return s.key + "=" + value
}

func wantedSysctls(u *units.Unit) []sysctl {
	if u == nil || !u.ConfiguresIP() {
		return nil
	}
	var out []sysctl
	n := &u.Network
	flag := func(name, key string, v units.Value[bool]) {
		if x, ok := v.Get(); ok {
			out = append(out, sysctl{name, key, oneZero(x), true})
		}
	}
	number := func(name, key string, set bool, v int) {
		if set {
			out = append(out, sysctl{name, key, strconv.Itoa(v), false})
		}
	}
	if ll, ok := n.LinkLocalAddressing.Get(); ok {
		mode := int(AddrGenOf(n))
		if !ll.IPv6() {
			mode = int(units.AddrGenNone)
		}
		number("LinkLocalAddressing", "ipv6/addr_gen_mode", true, mode)
	} else {
		number("IPv6LinkLocalAddressGenerationMode", "ipv6/addr_gen_mode", n.IPv6LinkLocalAddressGeneration.Set, int(n.IPv6LinkLocalAddressGeneration.V))
	}
	flag("IPv4Forwarding", "ipv4/forwarding", n.IPv4Forwarding)
	flag("IPv6Forwarding", "ipv6/forwarding", n.IPv6Forwarding)
	if ra, ok := n.IPv6AcceptRA.Get(); ok {
		// 2 also where nothing is forwarded: with 1 the kernel ignores
		// advertisements, and drops the routes of past ones, as soon as anything
		// on the host turns forwarding on (ipv6_accept_ra, rt6_purge_dflt_routers).
		v := 0
		if ra {
			v = 2
		}
		number("IPv6AcceptRA", acceptRA, true, v)
	}
	if p, ok := n.IPv6PrivacyExtensions.Get(); ok && p != units.PrivacyKernel {
		number("IPv6PrivacyExtensions", "ipv6/use_tempaddr", true, int(p))
	}
	number("IPv6DuplicateAddressDetection", "ipv6/dad_transmits", n.IPv6DuplicateAddressDetection.Set, n.IPv6DuplicateAddressDetection.V)
	number("IPv6HopLimit", "ipv6/hop_limit", n.IPv6HopLimit.Set, n.IPv6HopLimit.V)
	number("IPv6MTUBytes", "ipv6/mtu", n.IPv6MTUBytes.Set, n.IPv6MTUBytes.V)
	number("IPv4ReversePathFilter", "ipv4/rp_filter", n.IPv4ReversePathFilter.Set, int(n.IPv4ReversePathFilter.V))
	flag("IPv4AcceptLocal", "ipv4/accept_local", n.IPv4AcceptLocal)
	flag("IPv4RouteLocalnet", "ipv4/route_localnet", n.IPv4RouteLocalnet)
	flag("IPv4ProxyARP", "ipv4/proxy_arp", n.IPv4ProxyARP)
	flag("IPv4ProxyARPPrivateVLAN", "ipv4/proxy_arp_pvlan", n.IPv4ProxyARPPrivateVLAN)
	flag("IPv6ProxyNDP", "ipv6/proxy_ndp", n.IPv6ProxyNDP)
	return out
}

// AddrGenOf is the generation mode of IPv6 link-local addresses that a unit
// asks for; without a word it is EUI-64, which for IPoIB is the port GUID.
func AddrGenOf(n *units.Network) units.AddrGen {
	return n.IPv6LinkLocalAddressGeneration.Or(units.AddrGenEUI64)
}

func oneZero(v bool) string {
	if v {
		return "1"
	}
	return "0"
}

func planSysctls(b *Builder, index int, u *units.Unit) {
	for _, s := range wantedSysctls(u) {
		l := b.Link(index)
		a := Attribute{Name: s.name, Wanted: s.show(nil, s.value)}
		if now := b.Now(index); now != nil && now.Sysctl[s.key] != "" {
			a.Actual = s.show(now, now.Sysctl[s.key])
		}
		switch {
		case strings.HasPrefix(s.key, "ipv6/") && b.Base.Host.NoIPv6:
			a.Why = Reason{Code: CodeNoIPv6, Text: "this kernel has no IPv6"}
			b.Block(b.Model.Target(l), nil, false, a.Why)
		case s.key == "ipv6/mtu" && atoi(s.value) > l.MTU:
			a.Why = Reason{Code: CodeMTUAdapter, Text: fmt.Sprintf("IPv6MTUBytes=%s is more than the link's MTU %d", s.value, l.MTU)}
			b.Block(b.Model.Target(l), nil, false, a.Why)
		case l.Sysctl[s.key] != s.value:
			op := SetSysctl{On: b.Model.Target(l), Key: s.key, Value: s.value}
			if !b.Do(op) {
				a.Why = b.Held[HoldKey(op)]
			}
		}
		b.Attr(index, a)
	}
	if u.ConfiguresIP() && u.Network.LinkLocalAddressing.Or(units.LinkLocalIPv6).IPv4() {
		b.Attr(index, Attribute{Name: "LinkLocalAddressing", Wanted: "ipv4", Why: Reason{Code: CodeUnsupported,
			Text: "no IPv4 link-local address is made here (systemd-networkd makes them on Ethernet links only)",
			Next: "write a fixed Address=169.254.x.y/16, and LinkLocalAddressing=ipv6"}})
	}
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

type wantedAddress struct {
	Address
	// explicit parts are compared, the others are left as they are
	labelSet, broadcastSet, lifetimeSet bool
	pos                                 units.Position
}

func wantedAddresses(u *units.Unit) []wantedAddress {
	var out []wantedAddress
	for i := range u.Addresses {
		x := &u.Addresses[i]
		if !x.Address.Set {
			continue
		}
		p := x.Address.V
		is6 := p.Addr().Is6()
		w := wantedAddress{Address: Address{Prefix: p, Valid: Forever, Preferred: Forever}, pos: x.Address.Pos}
		w.Peer = x.Peer.Or(netip.Prefix{})
		w.Label, w.labelSet = x.Label.Get()
		if is6 {
			w.Label, w.labelSet = "", false
		}
		if lt, ok := x.PreferredLifetime.Get(); ok {
			w.Preferred, w.lifetimeSet = uint32(lt), true
		}
		w.Scope = scopeOfAddress(p.Addr(), x.Scope)
		w.Metric = x.RouteMetric.Or(0)
		if !is6 {
			br := x.Broadcast.Or(units.Broadcast{Derive: true})
			w.broadcastSet = x.Broadcast.Set
			switch {
			case br.Addr.IsValid():
				w.Broadcast = br.Addr
			case br.Derive && p.Bits() <= 30 && !w.Peer.IsValid():
				w.Broadcast = lastAddr(p)
			}
		}
		bit := func(v bool, f uint32) {
			if v {
				w.Flags |= f
			}
		}
		bit(x.HomeAddress.Or(false), AddrHome)
		bit(x.ManageTemporaryAddress.Or(false), AddrManageTemp)
		bit(!x.AddPrefixRoute.Or(true), AddrNoPrefixRoute)
		bit(x.AutoJoin.Or(false), AddrMulticastJoin)
		if dad, ok := x.DuplicateAddressDetection.Get(); ok && is6 {
			bit(dad == units.DADNone || dad == units.DADIPv4, AddrNoDAD)
		}
		if slices.ContainsFunc(out, func(o wantedAddress) bool { return sameAddress(o.Address, w.Address) }) {
			continue
		}
		out = append(out, w)
	}
	return out
}

func scopeOfAddress(a netip.Addr, v units.Value[units.Scope]) uint8 {
	if s, ok := v.Get(); ok && a.Is4() {
		return uint8(s)
	}
	if a.Is6() {
		return ScopeGlobal // the kernel derives it from the address
	}
	if a.IsLoopback() {
		return ScopeHost
	}
	return ScopeGlobal
}

func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(b)
}

func wantedRoutes(l *Link, s *Snapshot, u *units.Unit) []Route {
	var out []Route
	if u.Network.DefaultRouteOnDevice.Or(false) {
		out = append(out, Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Table: TableMain, Type: RouteUnicast, Protocol: ProtoStatic, Scope: ScopeLink})
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
		r.Table = TableMain
		if r.Type == RouteLocal || r.Type == RouteBroadcast || r.Type == RouteAnycast {
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
				r.Type == RouteUnicast && !r.Gateway.IsValid() && len(r.NextHops) == 0:
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

// planGoing takes away what is ours and no longer wanted: routes first, because
// they may lean on the addresses, then addresses.
func planGoing(b *Builder, index int, applies bool, wantA []wantedAddress, wantR []Route) {
	l := b.Link(index)
	rec := b.Record.Of(l)
	if rec == nil || rec.Keep && !applies {
		return
	}
	for _, r := range rec.Routes {
		if slices.ContainsFunc(wantR, func(w Route) bool { return sameRoute(w, r) }) {
			continue
		}
		if slices.ContainsFunc(b.Model.routesLike(b.Link(index), r), func(x Route) bool { return sameRoute(x, r) }) {
			b.Do(DelRoute{On: b.Model.Target(b.Link(index)), Route: r})
		}
	}
	for _, a := range rec.Addresses {
		if slices.ContainsFunc(wantA, func(w wantedAddress) bool { return sameAddress(w.Address, a) && !mustRemake(w, b.Link(index)) }) {
			continue
		}
		deleteAddress(b, index, a, wantA)
	}
}

// mustRemake reports that a part of the address that the kernel does not change
// in place differs.
func mustRemake(w wantedAddress, l *Link) bool {
	for _, x := range l.Addresses {
		if !sameAddress(x, w.Address) {
			continue
		}
		if w.labelSet && x.Label != w.Label || w.broadcastSet && x.Broadcast != w.Broadcast {
			return true
		}
		if x.Prefix.Addr().Is6() {
			return x.Prefix.Bits() != w.Prefix.Bits()
		}
		const fixed = AddrNoPrefixRoute | AddrMulticastJoin
		return x.Flags&fixed != w.Flags&fixed || x.Scope != w.Scope
	}
	return false
}

// deleteAddress deletes an address of ours, and puts back the addresses of the
// same subnet that the kernel may take along with a primary one.
func deleteAddress(b *Builder, index int, a Address, wantA []wantedAddress) {
	l := b.Link(index)
	i := slices.IndexFunc(l.Addresses, func(x Address) bool { return sameAddress(x, a) })
	if i < 0 {
		return
	}
	now := l.Addresses[i]
	rec := b.Record.Of(l)
	var along []Address
	if now.Flags&AddrSecondary == 0 && l.Sysctl["ipv4/promote_secondaries"] != "1" {
		for _, x := range l.Addresses {
			ours := rec != nil && slices.ContainsFunc(rec.Addresses, func(r Address) bool { return sameAddress(r, x) })
			wanted := slices.ContainsFunc(wantA, func(w wantedAddress) bool { return sameAddress(w.Address, x) })
			if !sameAddress(x, a) && sameSubnet(x, now) && (!ours || wanted) {
				along = append(along, x)
			}
		}
	}
	if !b.Do(DelAddress{On: b.Model.Target(l), Address: now}) {
		return
	}
	for _, x := range along {
		x.Flags &^= AddrSecondary
		op := RestoreAddress{On: b.Model.Target(l), Address: x}
		b.Do(op)
	}
}

// RestoreAddress puts an address back, if it is away, that goes along with its
// primary one. It does not become ours by that.
type RestoreAddress struct {
	On      Target
	Address Address
}

// Target implements Op.
func (o RestoreAddress) Target() Target { return o.On }

// String prints ip address replace ADDRESS dev NAME.
func (o RestoreAddress) String() string {
	return "ip address replace " + o.Address.String() + " dev " + o.On.Link
}

// ApplyTo carries the operation out on a model.
func (o RestoreAddress) ApplyTo(m *Model) error {
	l, err := m.find(o.On)
	if err != nil {
		return err
	}
	return m.addAddress(l, AddAddress{On: o.On, Address: o.Address, Replace: true})
}

func planComing(b *Builder, index int, u *units.Unit) {
	wantA := wantedAddresses(u)
	l := b.Link(index)
	t := b.Model.Target(l)
	rec := b.Record.Of(l)
	wait, waits := addressWait(b, index, u)
	for _, w := range wantA {
		l = b.Link(index)
		a := Attribute{Name: "Address", Wanted: w.text()}
		if now := b.Now(index); now != nil {
			for _, x := range now.Addresses {
				if sameAddress(x, w.Address) {
					a.Actual = wantedAddress{Address: x}.text()
					if x.Flags&AddrDADFailed != 0 {
						a.Why = Reason{Code: CodeAddressConflict, Text: fmt.Sprintf("another host uses %s (duplicate address detection failed)", x.Prefix.Addr()),
							Next: "take the address away from the other host, or choose another one"}
						b.Block(t, nil, false, a.Why)
					}
				}
			}
		}
		is6 := w.Prefix.Addr().Is6()
		i := slices.IndexFunc(l.Addresses, func(x Address) bool { return sameAddress(x, w.Address) })
		op := AddAddress{On: t, Address: w.Address}
		switch {
		case is6 && b.Base.Host.NoIPv6:
			a.Why = Reason{Code: CodeNoIPv6, Text: "this kernel has no IPv6"}
			b.Block(t, op, false, a.Why)
		case is6 && l.MTU != 0 && l.MTU < 1280:
			a.Why = Reason{Code: CodeIPv6MTU, Text: fmt.Sprintf("IPv6 needs an MTU of 1280, %s has %d", l.Name, l.MTU), Next: "raise MTUBytes="}
			b.Block(t, op, false, a.Why)
		case is6 && l.Sysctl["ipv6/disable_ipv6"] == "1":
			a.Why = Reason{Code: CodeNoIPv6, Text: "IPv6 is disabled on " + l.Name, Next: "sysctl -w " + sysctlName(l.Name, "ipv6/disable_ipv6") + "=0"}
			b.Block(t, op, false, a.Why)
		case i < 0 && waits:
			a.Why = wait
			b.Block(t, op, true, wait)
		case i < 0:
			if !b.Do(op) {
				a.Why = b.Held[HoldKey(op)]
			}
		case mustRemake(w, l) && (rec == nil || !slices.ContainsFunc(rec.Addresses, func(r Address) bool { return sameAddress(r, w.Address) })):
			a.Why = Reason{Code: CodeAddressConflict, Text: fmt.Sprintf("%s is on %s already in another form, and was not made by ibnetworkd", w.Prefix, l.Name),
				Next: DelAddress{On: t, Address: l.Addresses[i]}.String()}
			b.Block(t, op, false, a.Why)
		case addressDiffers(w, l.Addresses[i]):
			op.Replace = true
			if !b.Do(op) {
				a.Why = b.Held[HoldKey(op)]
			}
		}
		b.Attr(index, a)
	}
	for _, r := range wantedRoutes(b.Link(index), b.Model.snap, u) {
		if len(r.NextHops) == 0 {
			planRoute(b, index, r, rec, wait, waits)
		}
	}
}

func (w wantedAddress) text() string {
	if w.Peer.IsValid() {
		return w.Prefix.Addr().String() + " peer " + w.Peer.String()
	}
	return w.Prefix.String()
}

// addressDiffers compares what the kernel changes in place.
func addressDiffers(w wantedAddress, x Address) bool {
	// Of an IPv4 address without an end the kernel says that it is preferred
	// for ever, and by the flag that it is not (inet_fill_ifaddr).
	if w.lifetimeSet && (w.Preferred == 0) != (x.Preferred == 0 || x.Flags&AddrDeprecated != 0) {
		return true
	}
	if w.Metric != 0 && x.Metric != w.Metric {
		return true
	}
	if x.Valid != Forever && x.Valid != 0 {
		return true
	}
	if w.Prefix.Addr().Is6() {
		const live = AddrManageTemp | AddrNoPrefixRoute
		return x.Flags&live != w.Flags&live
	}
	return false
}

// addressWait says why addresses are not set yet.
func addressWait(b *Builder, index int, u *units.Unit) (Reason, bool) {
	l := b.Link(index)
	if !l.Up() {
		return Reason{Code: CodeLinkDown, Text: l.Name + " is down", Next: "ip link set " + l.Name + " up"}, !withoutCarrier(u)
	}
	if l.IPoIB == nil || l.Carrier() || withoutCarrier(u) {
		return Reason{}, false
	}
	if PortReady(b.Base, l) {
		return Reason{}, false
	}
	// What is set already stays when the port goes; nothing new comes.
	return CarrierReason(b.Base, l), true
}

func withoutCarrier(u *units.Unit) bool {
	return u.Network.ConfigureWithoutCarrier.Or(u.Link.ActivationPolicy.Or(units.ActivationUp) == units.ActivationAlwaysUp)
}

func planRoute(b *Builder, index int, r Route, rec *LinkRecord, wait Reason, waits bool) {
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
	routes := b.Model.routesLike(l, r)
	i := slices.IndexFunc(routes, func(x Route) bool { return sameRoute(x, r) })
	same := func(x Route) bool { return sameRoute(x, r) }
	ours := rec != nil && slices.ContainsFunc(rec.Routes, same) || b.Record != nil && slices.ContainsFunc(b.Record.Routes, same)
	op := AddRoute{On: t, Route: r, Replace: i >= 0 && ours}
	block := func(wait bool, why Reason) {
		a.Why = why
		b.Block(t, op, wait, why)
	}
	switch {
	case i >= 0 && routeEqual(routes[i], r):
		a.Wanted = a.Actual
	case i >= 0 && !ours:
		block(false, Reason{Code: CodeAddressConflict, Text: fmt.Sprintf("a route to %s with metric %d is on %s already, and was not made by ibnetworkd", r.Dst, r.Metric, l.Name),
			Next: DelRoute{On: t, Route: routes[i]}.String()})
	case !l.Up():
		block(true, Reason{Code: CodeLinkDown, Text: l.Name + " is down: a route needs it up", Next: "ip link set " + l.Name + " up"})
	case r.Dst.Addr().Is6() && b.Base.Host.NoIPv6:
		block(false, Reason{Code: CodeNoIPv6, Text: "this kernel has no IPv6"})
	case r.Dst.Addr().Is6() && l.MTU != 0 && l.MTU < 1280:
		block(false, Reason{Code: CodeIPv6MTU, Text: fmt.Sprintf("IPv6 needs an MTU of 1280, %s has %d", l.Name, l.MTU), Next: "raise MTUBytes="})
	case waits:
		block(true, wait)
	case missingHop(b, r) != "":
		block(true, Reason{Code: CodeGatewayUnreached, Text: fmt.Sprintf("the route to %s leads over %s, which is not there or is down", r.Dst, missingHop(b, r)),
			Next: "ip link show; correct MultiPathRoute=, or bring that link up"})
	case !GatewayReachable(l, r):
		block(true, Reason{Code: CodeGatewayUnreached, Text: fmt.Sprintf("gateway %s is in no subnet of %s", r.Gateway, l.Name),
			Next: "give the link an address of the gateway's subnet, or write GatewayOnLink=yes"})
	default:
		for k := range b.Model.snap.Links {
			o := &b.Model.snap.Links[k]
			if o.Index != index && slices.ContainsFunc(o.Routes, func(x Route) bool { return sameRoute(x, r) }) {
				block(true, Reason{Code: CodeAddressConflict, Text: fmt.Sprintf("a route to %s with metric %d leads over %s already", r.Dst, r.Metric, o.Name),
					Next: "give one of the two another Metric="})
				b.Attr(index, a)
				return
			}
		}
		if !b.Do(op) {
			a.Why = b.Held[HoldKey(op)]
		}
	}
	b.Attr(index, a)
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
	if x.Gateway != w.Gateway || x.PrefSrc != w.PrefSrc && w.PrefSrc.IsValid() || x.Type != w.Type || x.Protocol != w.Protocol {
		return false
	}
	if !w.Dst.Addr().Is6() && x.Scope != w.Scope || w.Pref != 0 && x.Pref != w.Pref {
		return false
	}
	if x.OnLink != w.OnLink || x.FastOpenNoCookie != w.FastOpenNoCookie || x.MTU != w.MTU || x.AdvMSS != w.AdvMSS || x.HopLimit != w.HopLimit || x.InitCwnd != w.InitCwnd || x.InitRwnd != w.InitRwnd ||
		x.RTOMin != w.RTOMin || x.Congestion != w.Congestion || x.QuickAck != w.QuickAck {
		return false
	}
	return slices.EqualFunc(x.NextHops, w.NextHops, func(a, b NextHop) bool {
		return a.Gateway == b.Gateway && a.Ifindex == b.Ifindex && a.Weight == b.Weight
	})
}

// wantedDNS is what a unit wants of systemd-resolved for its link, and whether it
// wants anything.
func wantedDNS(u *units.Unit) (op SetDNS, wanted bool) {
	if u == nil {
		return op, false
	}
	for _, d := range u.Network.DNS {
		op.Servers = append(op.Servers, d.V.String())
	}
	for _, d := range u.Network.Domains {
		op.Domains = append(op.Domains, d.V.String())
	}
	if v, ok := u.Network.DNSDefaultRoute.Get(); ok {
		op.Default = TristateOf(&v)
	}
	op.Resolve = wantedResolve(&u.Network)
	return op, len(op.Servers)+len(op.Domains) > 0 || op.Default != Unset || len(op.Words()) > 0
}

// NeedsResolved reports whether a unit has settings for systemd-resolved.
func NeedsResolved(u *units.Unit) bool {
	_, wanted := wantedDNS(u)
	return wanted
}

// NoResolved is why settings for systemd-resolved have no effect where it does not
// run. The link is configured all the same, as under systemd-networkd.
func NoResolved() Reason {
	return Reason{Code: CodeNoResolved, Text: "systemd-resolved does not run: DNS=, Domains= and the keys that belong to them have no effect",
		Next: "systemctl enable --now systemd-resolved; or remove the keys and write the name servers into /etc/resolv.conf"}
}

func planDNS(b *Builder, index int, u *units.Unit) {
	l := b.Link(index)
	rec := b.Record.Of(l)
	var had *DNSRecord
	if rec != nil {
		had = rec.DNS
	}
	op, wanted := wantedDNS(u)
	op.On, op.Resolved = b.Model.Target(l), b.Base.Host.Resolved
	if !wanted {
		if had != nil && !(u == nil && rec.Keep) && had.Resolved == op.Resolved && op.Resolved != "" {
			op.Revert = true
			b.Do(op)
		}
		return
	}
	a := Attribute{Name: "DNS", Wanted: dnsText(op.Servers, op.Domains, op.Resolve)}
	if had != nil && had.Resolved == op.Resolved {
		a.Actual = dnsText(had.Servers, had.Domains, had.Resolve)
		op.Afresh = had.Default != Unset && op.Default == Unset || lacks(op.Resolve, had.Resolve)
	}
	switch {
	case op.Resolved == "":
		a.Why = NoResolved()
		b.Block(op.On, op, false, a.Why)
	case had == nil || had.Resolved != op.Resolved || !slices.Equal(had.Servers, op.Servers) || !slices.Equal(had.Domains, op.Domains) || had.Default != op.Default ||
		!slices.Equal(had.Words(), op.Words()):
		if !b.Do(op) {
			a.Why = b.Held[HoldKey(op)]
		}
	}
	b.Attr(index, a)
}

func wantedResolve(n *units.Network) (r Resolve) {
	word := func(v units.Value[units.Support]) string {
		if x, ok := v.Get(); ok {
			return x.String()
		}
		return ""
	}
	r = Resolve{LLMNR: word(n.LLMNR), MulticastDNS: word(n.MulticastDNS), DNSOverTLS: word(n.DNSOverTLS), DNSSEC: word(n.DNSSEC)}
	for _, d := range n.DNSSECNegativeTrustAnchors {
		r.NTA = append(r.NTA, d.V.String())
	}
	return r
}

// lacks reports that something was set that is not to be set any more.
func lacks(now, had Resolve) bool {
	return slices.ContainsFunc(had.Words(), func(w [2]string) bool {
		return !slices.ContainsFunc(now.Words(), func(x [2]string) bool { return x[0] == w[0] })
	})
}

func dnsText(servers, domains []string, r Resolve) string {
	parts := slices.Concat(servers, domains)
	for _, w := range r.Words() {
		parts = append(parts, w[0]+":"+w[1])
	}
	return strings.Join(parts, " ")
}

// WantedRules are the routing policy rules of a unit, those of both families
// where it says so.
func WantedRules(u *units.Unit) []Rule {
	var out []Rule
	for i := range u.Rules {
		x := &u.Rules[i]
		r := Rule{
			Priority: x.Priority.Or(0), Invert: x.InvertRule.Or(false),
			From: maskedOr(x.From), To: maskedOr(x.To), TOS: x.TypeOfService.Or(0),
			IIF: x.IncomingInterface.Or(""), OIF: x.OutgoingInterface.Or(""),
			Table: x.Table.Or(TableMain), L3MDev: x.L3MasterDevice.Or(false), IPProto: x.IPProtocol.Or(0),
			SuppressPrefix: int32(x.SuppressPrefixLength.Or(-1)), SuppressIfGroup: int32(x.SuppressInterfaceGroup.Or(-1)),
			Type: uint8(x.Type.Or(units.RuleTable)), Protocol: ProtoStatic,
		}
		if m, ok := x.FirewallMark.Get(); ok {
			r.FWMark, r.FWMask = m.Value, m.Mask
		}
		if g, ok := x.GoTo.Get(); ok {
			r.Type, r.Goto = RuleGoto, g
		}
		if r.Type != RuleToTable || r.L3MDev {
			r.Table = 0
		}
		if p, ok := x.SourcePort.Get(); ok {
			r.SrcPort = [2]uint16{p.First, p.Last}
		}
		if p, ok := x.DestinationPort.Get(); ok {
			r.DstPort = [2]uint16{p.First, p.Last}
		}
		if v, ok := x.User.Get(); ok {
			r.UIDRange, r.HasUIDRange = [2]uint32{v.First, v.Last}, true
		}
		v4, v6 := x.Families()
		if v4 {
			r.Family = 4
			out = append(out, r)
		}
		if v6 {
			r.Family = 6
			out = append(out, r)
		}
	}
	return out
}

func maskedOr(v units.Value[netip.Prefix]) netip.Prefix {
	if p, ok := v.Get(); ok {
		return p.Masked()
	}
	return netip.Prefix{}
}

// PlanRules plans the host's routing policy rules: those wanted by any link's
// unit come, those of ours that none wants go, unless partial says that there are
// units of which nothing is known yet.
func PlanRules(b *Builder, wanted []Rule, partial bool) {
	b.For(nil)
	for _, r := range b.Record.rules() {
		if partial || slices.ContainsFunc(wanted, func(w Rule) bool { return SameRule(w, r) }) {
			continue
		}
		// Another's rule of the same sort stays.
		if k := slices.IndexFunc(b.Model.snap.Rules, func(x Rule) bool { return r.Fits(x) && x.Protocol == r.Protocol }); k >= 0 {
			b.Do(DelRule{Rule: b.Model.snap.Rules[k]})
		}
	}
	for i, w := range wanted {
		if slices.ContainsFunc(wanted[:i], func(x Rule) bool { return SameRule(x, w) }) {
			continue
		}
		if !slices.ContainsFunc(b.Model.snap.Rules, w.Fits) {
			if w.Family == 6 && b.Base.Host.NoIPv6 {
				b.Block(Target{}, AddRule{Rule: w}, false, Reason{Code: CodeNoIPv6, Text: "this kernel has no IPv6"})
				continue
			}
			b.Do(AddRule{Rule: w})
		}
	}
}

func (r *Record) rules() []Rule {
	if r == nil {
		return nil
	}
	return r.Rules
}

// CarrierReason says why an IPoIB link that is up has no carrier, with the next
// step. It is zero for a link that has, and for one of another kind whose port
// says nothing.
func CarrierReason(s *Snapshot, l *Link) Reason {
	if l.Carrier() {
		return Reason{}
	}
	d, p := s.PortOf(l)
	if p == nil || l.IPoIB == nil {
		return Reason{Code: CodeNoCarrier, Text: l.Name + " has no carrier", Next: "look at the cable and the other end"}
	}
	if r := PortReason(d, p); r != (Reason{}) {
		return r
	}
	port := fmt.Sprintf("%s/%d", d.Name, p.Num)
	key := l.IPoIB.PKey
	if !p.HasPKey(key) {
		var have []string
		for _, k := range p.PKeys {
			have = append(have, k.String())
		}
		return Reason{Code: CodePKeyMissing,
			Text: fmt.Sprintf("P_Key %s is not in the table of port %s (it has %s): the subnet manager has not made the port a member of partition 0x%04x", key, port, strings.Join(have, ", "), uint16(key.Base())),
			Next: p.MemberStep(key)}
	}
	if !l.Up() {
		return Reason{Code: CodeLinkDown, Text: l.Name + " is down", Next: "ip link set " + l.Name + " up"}
	}
	what := fmt.Sprintf("port %s is Active and has P_Key %s, but the broadcast group of partition 0x%04x is not joined: ", port, key, uint16(key.Base()))
	if p.Manager.Silent {
		return Reason{Code: CodeNoSM, Text: what + fmt.Sprintf("the subnet manager at LID %d does not answer", uint16(p.SMLID)),
			Next: fmt.Sprintf("start a subnet manager: ibnetctl sm start %s; ibnetctl diagnose %s asks it again", port, port)}
	}
	return Reason{Code: CodeJoin, Text: what + "the subnet manager has not answered yet, has no such group, or refused the join",
		Next: fmt.Sprintf("ibnetctl diagnose %s asks whether it lives; if it does: %s; dmesg | grep 'multicast join' has the status", port, p.GroupStep(key))}
}

// PortReason says why an InfiniBand port is not Active, zero if it is (or if it
// is none).
func PortReason(d *Device, p *Port) Reason {
	if p.Layer != ib.LinkLayerInfiniBand {
		return Reason{}
	}
	port := fmt.Sprintf("%s/%d", d.Name, p.Num)
	switch p.State {
	case ib.PortActive, ib.PortActiveDefer:
		return Reason{}
	case ib.PortInit, ib.PortArmed:
		if p.Phys != ib.PhysLinkUp && p.Phys != 0 {
			break
		}
		if d.OmniPath() {
			return Reason{Code: CodeNoSM, Text: fmt.Sprintf("port %s is %s: the fabric manager of Omni-Path has not activated it", port, p.State),
				Next: "systemctl start opafm on one node of this fabric: InfiniBand's subnet managers cannot run it"}
		}
		if p.SMLID == 0 {
			return Reason{Code: CodeNoSM, Text: fmt.Sprintf("port %s is %s: no subnet manager has answered (SM LID 0)", port, p.State),
				Next: "start a subnet manager on one node of this fabric: ibnetctl sm start, or systemctl start opensm"}
		}
		return Reason{Code: CodeSMBusy, Text: fmt.Sprintf("port %s is %s: the subnet manager at LID %d has not activated it yet", port, p.State, uint16(p.SMLID)),
			Next: "if this lasts, look at the subnet manager's log; sminfo shows whether it still answers"}
	}
	switch p.Phys {
	case ib.PhysPolling:
		return Reason{Code: CodeCable, Text: fmt.Sprintf("port %s is %s and Polling: no cable, or nothing alive at its other end", port, p.State),
			Next: "plug the cable in, or look at the switch port: iblinkinfo from another node"}
	case ib.PhysDisabled:
		return Reason{Code: CodePortDisabled, Text: fmt.Sprintf("port %s is disabled", port),
			Next: fmt.Sprintf("ibportstate -C %s -P %d -D 0 %d enable", d.Name, p.Num, p.Num)}
	case ib.PhysTraining, ib.PhysLinkRecovery:
		return Reason{Code: CodeTraining, Text: fmt.Sprintf("port %s is %s (%s): the two ends are negotiating", port, p.State, p.Phys),
			Next: "if this lasts, the cable or the transceiver is bad"}
	case ib.PhysSleep:
		return Reason{Code: CodePortDisabled, Text: fmt.Sprintf("port %s is asleep", port), Next: fmt.Sprintf("ibportstate -C %s -P %d -D 0 %d enable", d.Name, p.Num, p.Num)}
	}
	return Reason{Code: CodePortDown, Text: fmt.Sprintf("port %s is %s (%s)", port, p.State, p.Phys), Next: "ibstat " + d.Name}
}

// LeadsNowhere reports a route without a link: blackhole, unreachable, prohibit
// or throw.
func (r Route) LeadsNowhere() bool { return r.nowhere() }
