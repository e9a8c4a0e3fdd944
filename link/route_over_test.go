package link

import (
	"net/netip"
	"slices"
	"testing"

	"ibnetworkd/units"
)

// Routes over nexthops and over several links, where they meet others.
func TestRoutesOver(t *testing.T) {
	const net = "[Network]\nAddress=10.0.0.1/24\n"
	gw := netip.MustParseAddr("10.0.0.254")
	addrs := []Address{{Prefix: prefix("10.0.0.1/24"), Broadcast: netip.MustParseAddr("10.0.0.255"), Valid: Forever, Preferred: Forever}}
	hop := func(id uint32, family uint8) NextHopObject {
		return NextHopObject{ID: id, Family: family, Dev: "eth0", Ifindex: 9, Proto: ProtoStatic}
	}
	over := func(dst string, id uint32) Route {
		return Route{Dst: prefix(dst), Table: TableMain, Type: RouteUnicast, Protocol: ProtoStatic, NextHopID: id}
	}
	plain := Route{Dst: prefix("10.9.0.0/16"), Table: TableMain, Type: RouteUnicast, Protocol: ProtoStatic, Gateway: gw}
	testPlans(t, []planCase{
		{name: "bad the VRF is missing", unit: net + "VRF=red\n[Route]\nDestination=10.9.0.0/16\nNextHop=8\n",
			sys: func(s *Snapshot, r *Record) { s.NextHops = []NextHopObject{hop(8, 4)} }, want: "" +
				"# waiting: ib0 is not in the VRF red\n" +
				"#   then: ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
				"# waiting: ib0 is not in the VRF red\n" +
				"#   then: ip route add 10.9.0.0/16 nhid 8 proto static\n"},
		{name: "OK the link is down, and the route leads over another", unit: "[Link]\nActivationPolicy=manual\n[Route]\n" +
			"Destination=10.9.0.0/16\nNextHop=8\n", sys: func(s *Snapshot, r *Record) {
			down(s, r)
			s.NextHops = []NextHopObject{hop(8, 4)}
		}, want: "ip route add 10.9.0.0/16 nhid 8 proto static\n"},
		{name: "OK a gateway becomes several, the first on another link",
			unit: net + "[Route]\nDestination=10.9.0.0/16\nMultiPathRoute=10.7.0.254@eth0\nMultiPathRoute=10.0.0.254\n",
			sys:  ours(addrs, []Route{plain}), want: "ip route replace 10.9.0.0/16 proto static " +
				"nexthop via 10.7.0.254 dev eth0 weight 1 nexthop via 10.0.0.254 dev ib0 weight 1\n"},
		{name: "bad another program's with a gateway, and the first of several on another link",
			unit: net + "[Route]\nDestination=10.9.0.0/16\nMultiPathRoute=10.7.0.254@eth0\nMultiPathRoute=10.0.0.254\n",
			sys: func(s *Snapshot, r *Record) {
				ours(addrs, []Route{plain})(s, r)
				r.Links[0].Routes = nil
			}, want: "" +
				"# waiting: ib0: a route to 10.9.0.0/16 with metric 0 leads over ib0 already\n" +
				"#   then: ip route add 10.9.0.0/16 proto static " +
				"nexthop via 10.7.0.254 dev eth0 weight 1 nexthop via 10.0.0.254 dev ib0 weight 1\n" +
				"#   next: give one of the two another Metric=\n"},
		{name: "bad another program's on another link", unit: net + "[Route]\nDestination=10.9.0.0/16\nNextHop=8\n",
			sys: func(s *Snapshot, r *Record) {
				ours(addrs, nil)(s, r)
				s.Links[2].Routes = []Route{{Dst: plain.Dst, Table: TableMain, Type: RouteUnicast, Gateway: netip.MustParseAddr("10.7.0.9")}}
				s.NextHops = []NextHopObject{hop(8, 4)}
			}, want: "" +
				"# blocked: ib0: a route to 10.9.0.0/16 with metric 0 is on eth0 already, and was not made by ibnetworkd\n" +
				"#   then: ip route add 10.9.0.0/16 nhid 8 proto static\n" +
				"#   next: ip route delete 10.9.0.0/16 via 10.7.0.9 dev eth0\n"},
		{name: "bad another unit's", unit: net + "[Route]\nDestination=10.9.0.0/16\nNextHop=8\n",
			sys: func(s *Snapshot, r *Record) {
				ours(addrs, nil)(s, r)
				s.Links[2].Routes = []Route{plain}
				r.Links = append(r.Links, &LinkRecord{Ifindex: 9, Name: "eth0", Routes: []Route{plain}})
				s.NextHops = []NextHopObject{hop(8, 4)}
			}, want: "" +
				"# blocked: ib0: the unit of eth0 has another route to 10.9.0.0/16 with metric 0\n" +
				"#   then: ip route add 10.9.0.0/16 nhid 8 proto static\n" +
				"#   next: give one of the two another Metric=\n"},
		{name: "OK recorded of the link of another unit that has the same", unit: net + "[Route]\nDestination=10.9.0.0/16\nNextHop=8\n",
			sys: func(s *Snapshot, r *Record) {
				ours(addrs, nil)(s, r)
				s.NextHops = []NextHopObject{hop(7, 4), hop(8, 4)}
				s.Links[2].Routes = []Route{over("10.9.0.0/16", 7)}
				r.Links = append(r.Links, &LinkRecord{Ifindex: 9, Name: "eth0", Routes: s.Links[2].Routes})
			}, want: "ip route replace 10.9.0.0/16 nhid 8 proto static\n"},
		{name: "OK another route is recorded than there is", unit: net, sys: func(s *Snapshot, r *Record) {
			ours(addrs, []Route{over("10.9.0.0/16", 8)})(s, r)
			s.NextHops = []NextHopObject{hop(8, 4)}
			r.Links[0].Routes = []Route{over("10.9.0.0/16", 20)}
		}, want: "ip route delete 10.9.0.0/16 nhid 8 proto static\n"},
		{name: "bad an IPv4 member of a group with an IPv6 route", unit: net + "[NextHop]\nId=20\nGroup=6 8\n",
			sys: func(s *Snapshot, r *Record) {
				ours(addrs, nil)(s, r)
				group := NextHopObject{ID: 20, Group: []GroupMember{{6, 1}}, Proto: ProtoStatic}
				s.NextHops = []NextHopObject{hop(6, 6), hop(8, 4), group}
				s.Links[2].Routes = []Route{over("fd01::/64", 20)}
				r.Links[0].NextHops = []NextHopObject{group}
			}, want: "" +
				"# blocked: ib0: nexthop 8 is IPv4 and cannot be in group 20, over which the IPv6 route to fd01::/64 leads\n" +
				"#   then: ip nexthop add id 20 group 6/8 proto static\n" +
				"#   next: give nexthop 8 an IPv6 gateway, or remove it from Group=\n"},
		{name: "OK the preferred source comes", unit: net + "[Route]\nDestination=10.9.0.0/16\nNextHop=8\nPreferredSource=10.0.0.1\n",
			sys: func(s *Snapshot, r *Record) { s.NextHops = []NextHopObject{hop(8, 4)} }, want: "" +
				"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
				"ip route add 10.9.0.0/16 nhid 8 proto static src 10.0.0.1\n"},
		{name: "bad no preferred source", unit: net + "[Route]\nDestination=10.9.0.0/16\nNextHop=8\nPreferredSource=10.0.0.7\n",
			sys: func(s *Snapshot, r *Record) {
				ours(addrs, nil)(s, r)
				s.NextHops = []NextHopObject{hop(8, 4)}
			}, want: "" +
				"# waiting: ib0: no link has the address 10.0.0.7, the preferred source of the route to 10.9.0.0/16\n" +
				"#   then: ip route add 10.9.0.0/16 nhid 8 proto static src 10.0.0.7\n" +
				"#   next: write Address= of it in [Network] of a link, or correct PreferredSource=\n"},
	})
}

// firstHasRoute checks that of two units with one route that of ib0 has it, in each of two
// plans, and that of eth0 is blocked.
func firstHasRoute(t *testing.T, s *Snapshot, r *Record, ib0, eth0 *units.Unit) {
	t.Helper()
	for round := range 2 {
		b := NewBuilder(s, r, nil)
		PlanRoutesOver(b, 4, ib0)
		PlanRoutesOver(b, 9, eth0)
		if len(b.Plan.Steps) != 1-round || len(b.Plan.Blocked) != 1 || b.Plan.Blocked[0].On.Link != "eth0" ||
			b.Plan.Blocked[0].Reason.Text != "the unit of ib0 has another route to 10.9.0.0/16 with metric 0" {
			t.Errorf("round %d:\n%s", round, b.Plan.String())
		}
		for _, x := range b.Plan.Steps {
			r.Intend(x.Op)
			r.Done(x.Op)
		}
		s = b.Model.snap
	}
}

// Of two units with one route over different nexthops the first has it, each time.
func TestRouteOverOfTwoLinks(t *testing.T) {
	s, r := host(t), &Record{}
	s.NextHops = []NextHopObject{{ID: 7, Family: 4, Ifindex: 9, Dev: "eth0"}, {ID: 8, Family: 4, Ifindex: 9, Dev: "eth0"}}
	firstHasRoute(t, s, r, unit(t, "[Route]\nDestination=10.9.0.0/16\nNextHop=7\n"), unit(t, "[Route]\nDestination=10.9.0.0/16\nNextHop=8\n"))
}

// The same for routes over several links that both units had made, one after the other.
func TestRouteOverSeveralOfTwoLinks(t *testing.T) {
	s, r := host(t), &Record{}
	way := func(dev string) *units.Unit {
		return unit(t, "[Network]\nConfigureWithoutCarrier=yes\n[Route]\nDestination=10.9.0.0/16\n"+
			"MultiPathRoute=10.0.0.254@eth0\nMultiPathRoute=10.0.0.253@"+dev+"\n")
	}
	for i := range s.Links {
		s.Links[i].Flags |= FlagUp | FlagLowerUp
	}
	b := NewBuilder(s, r, nil)
	PlanRoutesOver(b, 9, way("eth0"))
	r.Intend(b.Plan.Steps[0].Op)
	r.Done(b.Plan.Steps[0].Op)
	firstHasRoute(t, s, r, way("ib0"), way("eth0"))
}

// A nexthop of a link that the plan takes down and up waits for its carrier, which comes
// back later.
func TestNextHopOfALinkThatIsCycled(t *testing.T) {
	u := unit(t, "[NextHop]\nId=7\n")
	s := host(t)
	b := NewBuilder(s, &Record{}, nil)
	b.Do(SetUp{On: TargetOf(&s.Links[1])})
	b.Do(SetUp{On: TargetOf(&s.Links[1]), Up: true})
	b.Model.write(4).Flags |= FlagLowerUp
	PlanNextHops(b, 4, u, false)
	if len(b.Plan.Steps) != 2 || len(b.Plan.Blocked) != 1 || !b.Plan.Blocked[0].Wait ||
		b.Plan.Blocked[0].Reason.Text != "ib0 has no carrier yet: a nexthop needs it" {
		t.Errorf("planned:\n%s", b.Plan.String())
	}
	b = NewBuilder(b.Model.snap, &Record{}, nil)
	PlanNextHops(b, 4, u, false)
	if !slices.ContainsFunc(b.Plan.Steps, func(x Step) bool { return x.Op.String() == "ip nexthop add id 7 dev ib0 proto static" }) {
		t.Errorf("then:\n%s", b.Plan.String())
	}
}

// A route is recorded for the link whose unit made it last: otherwise the removal of what the
// unit of another link had made would remove it.
func TestRouteOfAnotherLinkIsForgotten(t *testing.T) {
	s := host(t)
	r := &Record{}
	route := Route{Dst: prefix("10.9.0.0/16"), Table: TableMain, Type: RouteBlackhole, Protocol: ProtoStatic}
	for _, i := range []int{2, 1} {
		op := AddRoute{On: TargetOf(&s.Links[i]), Route: route}
		r.Intend(op)
		r.Done(op)
	}
	s.Links[0].Routes = []Route{route}
	r.Reconcile(s)
	b := NewBuilder(s, r, nil)
	PlanRemovals(b, 9, unit(t, "[Network]\nIPv6AcceptRA=no\n"))
	PlanRemovals(b, 4, unit(t, "[Route]\nDestination=10.9.0.0/16\nType=blackhole\n"))
	if len(b.Plan.Steps) > 0 {
		t.Errorf("%s", b.Plan.String())
	}
}
