package link

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/units"
)

// NextHopObject is a nexthop object of the kernel, which routes name by its ID.
type NextHopObject struct {
	ID      uint32     `json:"id"`
	Family  uint8      `json:"family,omitempty"` // 4 or 6, 0 of a group
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Ifindex and Dev are the link, 0 and "" of a group and with Blackhole.
	Ifindex   int           `json:"ifindex,omitempty"`
	Dev       string        `json:"dev,omitempty"`
	OnLink    bool          `json:"onlink,omitempty"`
	Blackhole bool          `json:"blackhole,omitempty"`
	Group     []GroupMember `json:"group,omitempty"`
	// Proto is what made it, an RTPROT_* of linux/rtnetlink.h: ProtoStatic for ours.
	Proto uint8 `json:"protocol,omitempty"`
	// Other reports one that no unit can make: a resilient group, or one of a VXLAN's
	// forwarding database.
	Other bool `json:"other,omitempty"`
}

// GroupMember is a nexthop object in a group, with a weight from 1.
type GroupMember struct {
	ID     uint32 `json:"id"`
	Weight int    `json:"weight"`
}

// String prints the object as ip nexthop takes it, without who made it.
func (n NextHopObject) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "id %d", n.ID)
	switch {
	case len(n.Group) > 0:
		b.WriteString(" group ")
		for i, m := range n.Group {
			if i > 0 {
				b.WriteByte('/')
			}
			fmt.Fprint(&b, m.ID)
			if m.Weight != 1 {
				fmt.Fprintf(&b, ",%d", m.Weight)
			}
		}
		if n.Other {
			b.WriteString(" type resilient")
		}
		return b.String()
	case n.Blackhole:
		b.WriteString(" blackhole")
	}
	if n.Gateway.IsValid() {
		b.WriteString(" via " + n.Gateway.String())
	}
	if n.Dev != "" {
		b.WriteString(" dev " + n.Dev)
	}
	if n.OnLink {
		b.WriteString(" onlink")
	}
	if n.Other {
		b.WriteString(" fdb")
	}
	return b.String()
}

// command is what ip takes: it cannot know the family of one without a gateway.
func (n NextHopObject) command(verb string) string {
	family := ""
	if n.Family == 6 && !n.Gateway.IsValid() {
		family = "-6 "
	}
	return "ip " + family + "nexthop " + verb + " " + n.String() + " proto static"
}

// equal compares what a unit can set.
func (n NextHopObject) equal(o NextHopObject) bool {
	return n.ID == o.ID && n.Family == o.Family && n.Gateway == o.Gateway && n.Ifindex == o.Ifindex && n.OnLink == o.OnLink &&
		n.Blackhole == o.Blackhole && n.Other == o.Other && sameGroup(n.Group, o.Group)
}

// sameGroup compares members in any order, which the kernel gives no meaning.
func sameGroup(a, b []GroupMember) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(m GroupMember) bool { return !slices.Contains(b, m) })
}

// remade reports that the kernel does not replace one by the other, or refuses to while
// a route or group needs the old one.
func (n NextHopObject) remade(o NextHopObject) bool {
	return n.Other || o.Other || n.Family != o.Family || n.Blackhole != o.Blackhole
}

// NextHop is the nexthop object with an ID, nil if there is none or none that any unit
// names.
func (s *Snapshot) NextHop(id uint32) *NextHopObject {
	for i := range s.NextHops {
		if s.NextHops[i].ID == id {
			return &s.NextHops[i]
		}
	}
	return nil
}

// nextHopsOf are the nexthops that a unit wants of a link, without those of other links
// that have the same ID.
func nextHopsOf(l *Link, u *units.Unit) (out []NextHopObject) {
	for i := range u.NextHops {
		x := &u.NextHops[i]
		n := NextHopObject{ID: x.ID.V, Proto: ProtoStatic}
		for _, m := range x.Group {
			n.Group = append(n.Group, GroupMember{m.V.ID, m.V.Weight})
		}
		if len(n.Group) == 0 {
			n.Family, n.Gateway, n.OnLink, n.Blackhole = 4, x.Gateway.V, x.OnLink.V, x.Blackhole.V
			if x.Is6() {
				n.Family = 6
			}
			if !n.Blackhole {
				n.Ifindex, n.Dev = l.Index, l.Name
			}
		}
		out = append(out, n)
	}
	return out
}

// PlanNextHops plans the nexthop objects of one link's unit: groups, or all else. It
// comes when all links have been planned, groups after their members.
func PlanNextHops(b *Builder, index int, u *units.Unit, groups bool) {
	if u == nil || !u.ConfiguresIP() || len(u.NextHops) == 0 {
		return
	}
	b.For(u)
	l := b.Link(index)
	if why := vrfWait(b, l, u); why != (Reason{}) && !groups {
		for _, n := range nextHopsOf(l, u) {
			b.unmake(n.ID, why)
			b.Block(b.Model.Target(l), SetNextHop{On: b.Model.Target(l), NextHop: n}, true, why)
		}
		return
	} else if why != (Reason{}) {
		return
	}
	for _, n := range nextHopsOf(l, u) {
		if (len(n.Group) > 0) == groups {
			planNextHop(b, index, n)
		}
	}
}

func planNextHop(b *Builder, index int, n NextHopObject) {
	l := b.Link(index)
	t := b.Model.Target(l)
	a := Attribute{Name: "NextHop", Wanted: n.String()}
	if now := b.Base.NextHop(n.ID); now != nil {
		if a.Actual = now.String(); now.equal(n) {
			a.Wanted = a.Actual // whatever the order of its members
		}
	}
	defer func() { b.Attr(index, a) }()
	op := SetNextHop{On: t, NextHop: n}
	block := func(wait bool, why Reason) {
		a.Why = why
		b.unmake(n.ID, why)
		b.Block(t, op, wait, why)
	}
	if why := b.claimNextHop(l, n); why != (Reason{}) {
		block(false, why)
		return
	}
	var missing uint32
	if len(n.Group) > 0 {
		have, without, wait, why := members(b, n)
		if why != (Reason{}) {
			block(wait, why)
			return
		}
		op.NextHop.Group, missing = have, without
	}
	have := b.Model.snap.NextHop(n.ID)
	switch {
	case have != nil && have.equal(op.NextHop):
	case have != nil && !b.Record.madeNextHop(*have):
		block(false, Reason{Code: CodeAddressConflict,
			Text: fmt.Sprintf("a nexthop with ID %d exists already (%s), and was not made by ibnetworkd", n.ID, have),
			Next: fmt.Sprintf("write another Id=, or ip nexthop delete id %d", n.ID)})
		return
	default:
		if wait, why := nextHopWait(b, l, n); why != (Reason{}) {
			block(wait, why)
			return
		}
		if have != nil && have.remade(op.NextHop) && !b.Do(DelNextHop{On: t, NextHop: *have}) {
			a.Why = b.Delayed[DelayKey(DelNextHop{On: t, NextHop: *have})]
			return
		}
		op.Replace = b.Model.snap.NextHop(n.ID) != nil
		if !b.DoFor(op, &a.Why) {
			b.unmake(n.ID, cmp.Or(a.Why, Reason{Text: fmt.Sprintf("nexthop %d of %s was refused", n.ID, l.Name)}))
			return
		}
	}
	if missing != 0 {
		a.Why = b.noNextHop(missing, fmt.Sprintf("nexthop group %d is without nexthop %d, which does not exist", n.ID, missing),
			"ip nexthop show; ibnetctl status")
		b.Block(t, nil, true, a.Why)
	}
}

// claim is a nexthop or route over one, of which the host has one for each key, and the
// link whose unit wants it first.
type claim struct {
	link, unit string
	hop        NextHopObject
	route      Route
}

// claimNextHop refuses a nexthop if the unit of a link planned before has another one with
// the same ID.
func (b *Builder) claimNextHop(l *Link, n NextHopObject) Reason {
	first, taken := b.nextHops[n.ID]
	switch {
	case !taken:
		if b.nextHops == nil {
			b.nextHops = map[uint32]claim{}
		}
		b.nextHops[n.ID] = claim{link: l.Name, unit: b.unit, hop: n}
		return Reason{}
	case first.hop.equal(n):
		return Reason{}
	case first.unit == b.unit:
		return Reason{Code: CodeAddressConflict,
			Text: fmt.Sprintf("nexthop %d of this unit is on %s, the first of its links: the host has one for each ID", n.ID, first.link),
			Next: "write a unit for each link, with an Id= of its own"}
	}
	return Reason{Code: CodeAddressConflict,
		Text: fmt.Sprintf("nexthop %d is another one by the unit of %s (%s): the host has one for each ID", n.ID, first.link, first.hop),
		Next: "write another Id= into the unit of one of the links"}
}

// unmake notes why a nexthop that a unit wants is not made.
func (b *Builder) unmake(id uint32, why Reason) {
	if b.unmade == nil {
		b.unmade = map[uint32]Reason{}
	}
	if _, known := b.unmade[id]; !known {
		b.unmade[id] = why
	}
}

// noNextHop is the reason of what needs a nexthop that does not exist. next is the next
// step where no unit wants it; where one does, it is that of the nexthop.
func (b *Builder) noNextHop(id uint32, text, next string) Reason {
	if why, wanted := b.unmade[id]; wanted {
		text, next = text+": "+why.Text, cmp.Or(why.Next, "ibnetctl status")
	}
	return Reason{Code: CodeGatewayUnreached, Text: text, Next: next}
}

// claimRoute refuses a route if the unit of a link planned before has another one with the
// same key over a nexthop.
func (b *Builder) claimRoute(l *Link, r Route) Reason {
	key := routeKey{r.Dst, r.Src, r.Table, r.Metric, r.TOS}
	first, taken := b.routesOver[key]
	switch {
	case !taken:
		if b.routesOver == nil {
			b.routesOver = map[routeKey]claim{}
		}
		b.routesOver[key] = claim{link: l.Name, route: r}
	case !routeEqual(first.route, r):
		return Reason{Code: CodeAddressConflict, Next: "give one of the two another Metric=",
			Text: fmt.Sprintf("the unit of %s has another route to %s with metric %d", first.link, r.Dst, r.Metric)}
	}
	return Reason{}
}

// members are those of a group that exist, and one that does not, which is the first whose
// cause is known; a reason why it cannot be made of them, and whether that ends by itself.
func members(b *Builder, n NextHopObject) (have []GroupMember, missing uint32, wait bool, why Reason) {
	var ids []string
	for _, m := range n.Group {
		ids = append(ids, strconv.FormatUint(uint64(m.ID), 10))
		x := b.Model.snap.NextHop(m.ID)
		switch {
		case x == nil:
			_, known := b.unmade[missing]
			if _, wanted := b.unmade[m.ID]; missing == 0 || wanted && !known {
				missing = m.ID
			}
			continue
		case len(x.Group) > 0 || x.Other:
			return nil, 0, false, Reason{Code: CodeRefused, Next: "write the members of that group into Group=",
				Text: fmt.Sprintf("nexthop %d cannot be in group %d: it is %s", m.ID, n.ID, x)}
		case x.Blackhole && len(n.Group) > 1:
			return nil, 0, false, Reason{Code: CodeRefused, Next: "remove the others from Group=",
				Text: fmt.Sprintf("nexthop %d discards packets: the group %d with it has no other member", m.ID, n.ID)}
		}
		have = append(have, m)
	}
	if r := b.Model.snap.route6Over(n.ID); r.Dst.IsValid() {
		for _, m := range have {
			if x := b.Model.snap.NextHop(m.ID); x.Family == 4 {
				return nil, 0, false, Reason{Code: CodeRefused, Next: fmt.Sprintf("give nexthop %d an IPv6 gateway, or remove it from Group=", m.ID),
					Text: fmt.Sprintf("nexthop %d is IPv4 and cannot be in group %d, over which the IPv6 route to %s leads", m.ID, n.ID, r.Dst)}
			}
		}
	}
	if len(have) == 0 {
		why = b.noNextHop(missing, fmt.Sprintf("no nexthop of group %d exists (%s)", n.ID, strings.Join(ids, ", ")),
			"write [NextHop] with that Id=, or correct Group=")
	}
	return have, missing, true, why
}

// nextHopWait returns why the kernel would refuse a nexthop now, and whether that ends by
// itself.
func nextHopWait(b *Builder, l *Link, n NextHopObject) (wait bool, why Reason) {
	now := b.Now(l.Index)
	switch {
	case n.Family == 6 && b.Base.Host.NoIPv6:
		return false, Reason{Code: CodeNoIPv6, Text: "this kernel has no IPv6"}
	case n.Blackhole && b.Model.snap.loopbackDown():
		return true, Reason{Code: CodeLinkDown, Next: "ip link set lo up",
			Text: fmt.Sprintf("lo is down: nexthop %d, which discards packets, needs it up", n.ID)}
	case len(n.Group) > 0 || n.Blackhole:
		return false, Reason{}
	case !l.Up():
		return true, Reason{Code: CodeLinkDown, Text: l.Name + " is down: a nexthop needs it up", Next: "ip link set " + l.Name + " up"}
	case now == nil || !now.Carrier() || !l.Carrier() || b.Model.cycled[l.Index]:
		// The carrier of IPoIB comes some time after the link is brought up.
		if why = carrierReason(b.Base, l); why == (Reason{}) {
			why = Reason{Code: CodeNoCarrier, Text: l.Name + " has no carrier yet: a nexthop needs it"}
		}
		return true, why
	case n.Family == 6:
		if why := noIPv6(false, l); why != (Reason{}) {
			return false, why
		}
	}
	if !gatewayReachable(l, Route{Gateway: n.Gateway, OnLink: n.OnLink}) {
		return true, Reason{Code: CodeGatewayUnreached,
			Text: fmt.Sprintf("gateway %s of nexthop %d is in no subnet of %s", n.Gateway, n.ID, l.Name),
			Next: "give the link an address of the gateway's subnet, or write OnLink=yes"}
	}
	return false, Reason{}
}

// loopbackDown reports that the loopback is down, on which the kernel has nexthops that
// discard packets.
func (s *Snapshot) loopbackDown() bool {
	lo, ok := s.Link(LoopbackIndex)
	return ok && !lo.Up()
}

// planRouteOver returns why a route over a nexthop object cannot be set, and whether that
// ends by itself.
func planRouteOver(b *Builder, r Route) (wait bool, why Reason) {
	n := b.Model.snap.NextHop(r.NextHopID)
	switch {
	case n == nil:
		return true, b.noNextHop(r.NextHopID, fmt.Sprintf("the route to %s leads over nexthop %d, which does not exist", r.Dst, r.NextHopID),
			"ip nexthop show; write [NextHop] with that Id=, or correct NextHop=")
	case r.Dst.Addr().Is6() && b.Model.snap.hasIPv4(*n):
		return false, Reason{Code: CodeRefused,
			Text: fmt.Sprintf("the IPv6 route to %s cannot lead over nexthop %d, which is IPv4 (%s)", r.Dst, r.NextHopID, n),
			Next: "give that nexthop an IPv6 gateway, or correct NextHop="}
	case r.PrefSrc.IsValid() && !b.Model.snap.hasAddress(r.PrefSrc):
		return true, Reason{Code: CodeGatewayUnreached,
			Text: fmt.Sprintf("no link has the address %s, the preferred source of the route to %s", r.PrefSrc, r.Dst),
			Next: "write Address= of it in [Network] of a link, or correct PreferredSource="}
	}
	return false, Reason{}
}

// routeKey identifies a route in the kernel, as sameRoute compares it.
type routeKey struct {
	dst, src      netip.Prefix
	table, metric uint32
	tos           uint8
}

// hasAddress reports that any link has an address.
func (s *Snapshot) hasAddress(a netip.Addr) bool {
	return slices.ContainsFunc(s.Links, func(l Link) bool {
		return slices.ContainsFunc(l.Addresses, func(x Address) bool { return x.Prefix.Addr() == a })
	})
}

// route6Over is an IPv6 route over a nexthop object, zero if there is none.
func (s *Snapshot) route6Over(id uint32) Route {
	for i := range s.Links {
		for _, r := range s.Links[i].Routes {
			if r.NextHopID == id && r.Dst.Addr().Is6() {
				return r
			}
		}
	}
	return Route{}
}

// hasIPv4 reports a nexthop that is IPv4, or a group with such a one.
func (s *Snapshot) hasIPv4(n NextHopObject) bool {
	return n.Family == 4 || slices.ContainsFunc(n.Group, func(m GroupMember) bool {
		x := s.NextHop(m.ID)
		return x != nil && x.Family == 4
	})
}

// PlanNextHopRemovals removes recorded nexthops that no unit wants any more: groups
// before members, after the routes. settled gives the unit of a link and whether that is
// known for certain; partial says that some units are not known yet.
func PlanNextHopRemovals(b *Builder, settled func(index int) (*units.Unit, bool), partial bool) {
	if b.Record == nil || partial {
		return
	}
	b.For(nil)
	kept := map[uint32]bool{}
	var gone []uint32
	for _, x := range b.Record.NextHops {
		gone = append(gone, x.ID)
	}
	on := map[uint32]Target{}
	for _, e := range b.Record.Links {
		l := b.Link(e.Ifindex)
		u, known := (*units.Unit)(nil), true
		if l != nil {
			u, known = settled(l.Index)
		}
		for _, x := range e.NextHops {
			id := x.ID
			if !known || e.Keep && u == nil {
				kept[id] = true
				continue
			}
			gone = append(gone, id)
			if l != nil {
				on[id] = b.Model.Target(l)
			}
		}
	}
	for _, e := range b.Record.Kept {
		for _, x := range e.NextHops {
			kept[x.ID] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	wanted := map[uint32]bool{}
	for i := range b.Model.snap.Links {
		if u, known := settled(b.Model.snap.Links[i].Index); known && u != nil && u.ConfiguresIP() && !vrfMissing(b.Model.snap, u) {
			for k := range u.NextHops {
				wanted[u.NextHops[k].ID.V] = true
			}
		}
	}
	slices.Sort(gone)
	for _, groups := range []bool{true, false} {
		for _, id := range slices.Compact(slices.Clone(gone)) {
			n := b.Model.snap.NextHop(id)
			if n != nil && (len(n.Group) > 0) == groups && !wanted[id] && !kept[id] && b.Record.madeNextHop(*n) {
				b.Do(DelNextHop{On: on[id], NextHop: *n})
			}
		}
	}
}
