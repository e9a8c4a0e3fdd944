package link

import (
	"net/netip"
	"slices"
	"testing"

	"ibnetworkd/units"
)

func TestNextHops(t *testing.T) {
	const net = "[Network]\nAddress=10.0.0.1/24\n"
	const seven = net + "[NextHop]\nId=7\nGateway=10.0.0.254\n"
	const group = seven + "[NextHop]\nId=20\nGroup=7 8:3\n[Route]\nDestination=10.9.0.0/16\nNextHop=20\n"
	addrs := []Address{{Prefix: prefix("10.0.0.1/24"), Broadcast: netip.MustParseAddr("10.0.0.255"), Valid: Forever, Preferred: Forever}}
	gw := func(id uint32, a, dev string, index int) NextHopObject {
		return NextHopObject{ID: id, Family: 4, Gateway: netip.MustParseAddr(a), Dev: dev, Ifindex: index, Proto: ProtoStatic}
	}
	ib0, eth0 := gw(7, "10.0.0.254", "ib0", 4), gw(8, "10.7.0.254", "eth0", 9)
	both := NextHopObject{ID: 20, Group: []GroupMember{{8, 3}, {7, 1}}, Proto: ProtoStatic}
	over := func(id uint32) Route {
		return Route{Dst: prefix("10.9.0.0/16"), Table: TableMain, Type: RouteUnicast, Protocol: ProtoStatic, NextHopID: id,
			NextHops: []NextHop{{Gateway: ib0.Gateway, Ifindex: 4, Dev: "ib0", Weight: 1}}}
	}
	have := func(routes []Route, made []uint32, hops ...NextHopObject) func(*Snapshot, *Record) {
		return func(s *Snapshot, r *Record) {
			ours(addrs, routes)(s, r)
			s.NextHops = hops
			for _, n := range hops {
				if slices.Contains(made, n.ID) {
					r.Links[0].NextHops = append(r.Links[0].NextHops, n)
				}
			}
		}
	}
	testPlans(t, []planCase{
		{name: "OK none there", unit: seven + "[NextHop]\nId=8\nGateway=10.7.0.1\nOnLink=yes\n[NextHop]\nId=9\nBlackhole=yes\n" +
			"[NextHop]\nId=10\nFamily=ipv6\n[Route]\nDestination=10.9.0.0/16\nNextHop=7\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"ip nexthop add id 7 via 10.0.0.254 dev ib0 proto static\n" +
			"ip nexthop add id 8 via 10.7.0.1 dev ib0 onlink proto static\n" +
			"ip nexthop add id 9 blackhole proto static\n" +
			"ip -6 nexthop add id 10 dev ib0 proto static\n" +
			"ip route add 10.9.0.0/16 nhid 7 proto static\n"},
		{name: "OK it is as wanted", unit: group, sys: have([]Route{over(20)}, []uint32{7, 20}, ib0, eth0, both)},
		{name: "OK a group of what exists", unit: group, sys: have(nil, nil), want: "" +
			"ip nexthop add id 7 via 10.0.0.254 dev ib0 proto static\n" +
			"ip nexthop add id 20 group 7 proto static\n" +
			"ip route add 10.9.0.0/16 nhid 20 proto static\n" +
			"# waiting: ib0: nexthop group 20 is without nexthop 8, which does not exist\n" +
			"#   next: ip nexthop show; ibnetctl status\n"},
		{name: "OK the kernel took a member out, which is here again", unit: group,
			sys: have([]Route{over(20)}, []uint32{7, 20}, ib0, eth0,
				NextHopObject{ID: 20, Group: []GroupMember{{7, 1}}, Proto: ProtoStatic}), want: "" +
				"ip nexthop replace id 20 group 7/8,3 proto static\n"},
		{name: "OK the link lost its carrier for a moment", unit: group, sys: have(nil, nil, eth0), want: "" +
			"ip nexthop add id 7 via 10.0.0.254 dev ib0 proto static\n" +
			"ip nexthop add id 20 group 7/8,3 proto static\n" +
			"ip route add 10.9.0.0/16 nhid 20 proto static\n"},
		{name: "OK another gateway", unit: seven, sys: have(nil, []uint32{7}, gw(7, "10.0.0.9", "ib0", 4)), want: "" +
			"ip nexthop replace id 7 via 10.0.0.254 dev ib0 proto static\n"},
		{name: "OK a group becomes a nexthop", unit: seven + "[Route]\nDestination=10.9.0.0/16\nNextHop=7\n",
			sys: have([]Route{over(7)}, []uint32{7}, eth0, NextHopObject{ID: 7, Group: []GroupMember{{8, 1}}, Proto: ProtoStatic}), want: "" +
				"ip nexthop delete id 7\n" +
				"ip nexthop add id 7 via 10.0.0.254 dev ib0 proto static\n" +
				"ip route add 10.9.0.0/16 nhid 7 proto static\n"},
		{name: "OK the route gets a gateway of its own", unit: net + "[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.254\n",
			sys: have([]Route{over(7)}, []uint32{7}, ib0), want: "" +
				"ip route replace 10.9.0.0/16 via 10.0.0.254 dev ib0 proto static\n" +
				"ip nexthop delete id 7\n"},
		{name: "OK the route leads over another link until now", unit: net + "[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.254\n",
			sys: func(s *Snapshot, r *Record) {
				have([]Route{over(8)}, nil, eth0)(s, r)
				s.Links[1].Routes, s.Links[2].Routes = nil, s.Links[1].Routes
			}, want: "ip route replace 10.9.0.0/16 via 10.0.0.254 dev ib0 proto static\n"},
		{name: "OK the sections went", unit: net, sys: have([]Route{over(20)}, []uint32{7, 20}, ib0, eth0, both), want: "" +
			"ip route delete 10.9.0.0/16 nhid 20 proto static\n" +
			"ip nexthop delete id 20\n" +
			"ip nexthop delete id 7\n"},
		{name: "OK the unit went", sys: have([]Route{over(20)}, []uint32{7, 20}, ib0, eth0, both), want: "" +
			"ip route delete 10.9.0.0/16 nhid 20 proto static\n" +
			"ip address delete 10.0.0.1/24 dev ib0\n" +
			"ip nexthop delete id 20\n" +
			"ip nexthop delete id 7\n"},
		{name: "OK the unit of a link that is gone", unit: net, sys: func(s *Snapshot, r *Record) {
			nine := NextHopObject{ID: 9, Family: 4, Blackhole: true, Proto: ProtoStatic}
			have(nil, nil, nine)(s, r)
			r.NextHops = []NextHopObject{nine}
		}, want: "ip nexthop delete id 9\n"},
		{name: "OK another program's that is as wanted", unit: seven, sys: have(nil, nil, ib0)},
		{name: "OK another program's stays", unit: net, sys: have(nil, nil, ib0, both)},
		{name: "bad another program's", unit: seven, sys: have(nil, nil, gw(7, "10.0.0.9", "ib0", 4)), want: "" +
			"# blocked: ib0: a nexthop with ID 7 exists already (id 7 via 10.0.0.9 dev ib0), and was not made by ibnetworkd\n" +
			"#   then: ip nexthop add id 7 via 10.0.0.254 dev ib0 proto static\n" +
			"#   next: write another Id=, or ip nexthop delete id 7\n"},
		{name: "bad a gateway in no subnet", unit: net + "[NextHop]\nId=7\nGateway=10.77.0.1\n", sys: have(nil, nil), want: "" +
			"# waiting: ib0: gateway 10.77.0.1 of nexthop 7 is in no subnet of ib0\n" +
			"#   then: ip nexthop add id 7 via 10.77.0.1 dev ib0 proto static\n" +
			"#   next: give the link an address of the gateway's subnet, or write OnLink=yes\n"},
		{name: "bad no member", unit: net + "[NextHop]\nId=20\nGroup=7 8\n", sys: have(nil, nil), want: "" +
			"# waiting: ib0: no nexthop of group 20 exists (7, 8)\n" +
			"#   then: ip nexthop add id 20 group 7/8 proto static\n" +
			"#   next: write [NextHop] with that Id=, or correct Group=\n"},
		{name: "bad a member of the same unit in no subnet", unit: net + "[NextHop]\nId=7\nGateway=10.77.0.1\n[NextHop]\nId=20\nGroup=6 7\n" +
			"[Route]\nDestination=10.9.0.0/16\nNextHop=20\n", sys: have(nil, nil), want: "" +
			"# waiting: ib0: gateway 10.77.0.1 of nexthop 7 is in no subnet of ib0\n" +
			"#   then: ip nexthop add id 7 via 10.77.0.1 dev ib0 proto static\n" +
			"#   next: give the link an address of the gateway's subnet, or write OnLink=yes\n" +
			"# waiting: ib0: no nexthop of group 20 exists (6, 7): gateway 10.77.0.1 of nexthop 7 is in no subnet of ib0\n" +
			"#   then: ip nexthop add id 20 group 6/7 proto static\n" +
			"#   next: give the link an address of the gateway's subnet, or write OnLink=yes\n" +
			"# waiting: ib0: the route to 10.9.0.0/16 leads over nexthop 20, which does not exist: no nexthop of group 20 exists (6, 7): " +
			"gateway 10.77.0.1 of nexthop 7 is in no subnet of ib0\n" +
			"#   then: ip route add 10.9.0.0/16 nhid 20 proto static\n" +
			"#   next: give the link an address of the gateway's subnet, or write OnLink=yes\n"},
		{name: "bad a group without a member of the same unit", unit: net + "[NextHop]\nId=7\nGateway=10.77.0.1\n[NextHop]\nId=20\nGroup=7 8\n",
			sys: have(nil, nil, eth0), want: "" +
				"ip nexthop add id 20 group 8 proto static\n" +
				"# waiting: ib0: gateway 10.77.0.1 of nexthop 7 is in no subnet of ib0\n" +
				"#   then: ip nexthop add id 7 via 10.77.0.1 dev ib0 proto static\n" +
				"#   next: give the link an address of the gateway's subnet, or write OnLink=yes\n" +
				"# waiting: ib0: nexthop group 20 is without nexthop 7, which does not exist: gateway 10.77.0.1 of nexthop 7 is in no subnet of ib0\n" +
				"#   next: give the link an address of the gateway's subnet, or write OnLink=yes\n"},
		{name: "bad a group of another program's group", unit: net + "[NextHop]\nId=21\nGroup=20\n", sys: have(nil, nil, eth0, both), want: "" +
			"# blocked: ib0: nexthop 20 cannot be in group 21: it is id 20 group 8,3/7\n" +
			"#   then: ip nexthop add id 21 group 20 proto static\n" +
			"#   next: write the members of that group into Group=\n"},
		{name: "bad a route over none", unit: net + "[Route]\nDestination=10.9.0.0/16\nNextHop=99\n", sys: have(nil, nil), want: "" +
			"# waiting: ib0: the route to 10.9.0.0/16 leads over nexthop 99, which does not exist\n" +
			"#   then: ip route add 10.9.0.0/16 nhid 99 proto static\n" +
			"#   next: ip nexthop show; write [NextHop] with that Id=, or correct NextHop=\n"},
		{name: "bad an IPv6 route over IPv4", unit: net + "[Route]\nDestination=fd01::/64\nNextHop=8\n", sys: have(nil, nil, eth0), want: "" +
			"# blocked: ib0: the IPv6 route to fd01::/64 cannot lead over nexthop 8, which is IPv4 (id 8 via 10.7.0.254 dev eth0)\n" +
			"#   then: ip route add fd01::/64 nhid 8 proto static metric 1024\n" +
			"#   next: give that nexthop an IPv6 gateway, or correct NextHop=\n"},
		{name: "bad the link is down", unit: "[Link]\nActivationPolicy=manual\n[NextHop]\nId=7\n", sys: down, want: "" +
			"# waiting: ib0 is down: a nexthop needs it up\n" +
			"#   then: ip nexthop add id 7 dev ib0 proto static\n" +
			"#   next: ip link set ib0 up\n"},
		{name: "bad the loopback is down", unit: net + "[NextHop]\nId=9\nBlackhole=yes\n", sys: func(s *Snapshot, r *Record) {
			have(nil, nil)(s, r)
			s.Links[0].Flags = 0
		}, want: "" +
			"# waiting: ib0: lo is down: nexthop 9, which discards packets, needs it up\n" +
			"#   then: ip nexthop add id 9 blackhole proto static\n" +
			"#   next: ip link set lo up\n"},
		{name: "bad no carrier", unit: "[Link]\nActivationPolicy=manual\n[NextHop]\nId=7\n", sys: func(s *Snapshot, _ *Record) {
			s.Links[1].Flags &^= FlagLowerUp
			s.Devices[0].Ports[0].State, s.Devices[0].Ports[0].SMLID = 2, 0
		}, want: "" +
			"# waiting: ib0: port mlx5_0/1 is Initializing: no subnet manager has answered (SM LID 0)\n" +
			"#   then: ip nexthop add id 7 dev ib0 proto static\n" +
			"#   next: start a subnet manager on one node of this fabric: ibnetctl sm start, or systemctl start opensm\n"},
	})
}

// A unit for several links has a nexthop on the first of them, each time, and says so.
func TestNextHopOfTwoLinks(t *testing.T) {
	const text = "[NextHop]\nId=7\n[NextHop]\nId=9\nBlackhole=yes\n"
	for name, second := range map[string]*units.Unit{
		"nexthop 7 of this unit is on ib0, the first of its links: the host has one for each ID": unit(t, text),
		"nexthop 7 is another one by the unit of ib0 (id 7 dev ib0): the host has one for each ID": func() *units.Unit {
			u := *unit(t, text)
			u.Path = "/etc/systemd/network/20.ibnetwork"
			return &u
		}(),
	} {
		s := host(t)
		for range 2 {
			b := NewBuilder(s, &Record{}, nil)
			PlanNextHops(b, 4, unit(t, text), false)
			PlanNextHops(b, 9, second, false)
			if len(b.Plan.Blocked) != 1 || b.Plan.Blocked[0].On.Link != "eth0" || b.Plan.Blocked[0].Reason.Text != name {
				t.Errorf("blocked: %+v", b.Plan.Blocked)
			}
			if n := b.Model.snap.NextHop(7); n == nil || n.Dev != "ib0" {
				t.Errorf("%+v", n)
			}
			s = b.Model.snap
		}
	}
}

// The kernel removes nexthops with their links: also groups that are empty then, and
// the routes over what went.
func TestModelNextHops(t *testing.T) {
	s := host(t)
	gw := netip.MustParseAddr("10.0.0.254")
	s.Links[1].Addresses = []Address{{Prefix: prefix("10.0.0.1/24")}}
	s.Links[2].Addresses = []Address{{Prefix: prefix("10.0.0.2/24")}}
	m := NewModel(s)
	ib0, eth0 := TargetOf(&s.Links[1]), TargetOf(&s.Links[2])
	route := func(dst string, id uint32) Op {
		return AddRoute{On: ib0, Route: Route{Dst: prefix(dst), Table: TableMain, Type: RouteUnicast, NextHopID: id}}
	}
	for _, x := range []struct {
		op   Op
		want error
	}{
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 7, Family: 4, Gateway: gw}}, nil},
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 7, Family: 4}}, errExist},
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 7, Family: 6}, Replace: true}, errInvalid},
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 6, Family: 4, Gateway: netip.MustParseAddr("10.9.0.1")}}, errUnreach},
		{SetNextHop{On: eth0, NextHop: NextHopObject{ID: 8, Family: 4, Gateway: gw}}, nil},
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 20, Group: []GroupMember{{7, 1}, {8, 1}}}}, nil},
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 21, Group: []GroupMember{{7, 1}}}}, nil},
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 22, Group: []GroupMember{{20, 1}}}}, errInvalid},
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 23, Group: []GroupMember{{99, 1}}}}, errInvalid},
		{SetNextHop{On: ib0}, errInvalid},
		{route("10.20.0.0/16", 20), nil}, {route("10.21.0.0/16", 21), nil}, {route("10.7.0.0/16", 7), nil},
		{route("10.7.0.0/16", 8), errExist},
		{route("10.99.0.0/16", 99), errInvalid},
		{route("fd01::/64", 20), errInvalid},
		{SetUp{On: ib0, Up: false}, nil},
		{SetNextHop{On: ib0, NextHop: NextHopObject{ID: 7, Family: 4, Gateway: gw}}, errDown},
		{DelNextHop{NextHop: NextHopObject{ID: 7}}, errNotFound},
	} {
		if err := m.Apply(x.op); err != x.want {
			t.Errorf("%s: %v, want %v", x.op, err, x.want)
		}
	}
	var ids []uint32
	for _, n := range m.snap.NextHops {
		ids = append(ids, n.ID)
	}
	if !slices.Equal(ids, []uint32{8, 20}) || len(m.snap.NextHop(20).Group) != 1 {
		t.Errorf("left: %v", m.snap.NextHops)
	}
	l, _ := m.snap.Link(4)
	if len(l.Routes) != 1 || l.Routes[0].NextHopID != 20 {
		t.Errorf("routes: %v", l.Routes)
	}
	if len(s.NextHops) != 0 {
		t.Error("the snapshot has changed")
	}
}

// KeepConfiguration=, and a link whose unit is not known yet, keep nexthops.
func TestNextHopsStay(t *testing.T) {
	s := host(t)
	hop := func(id uint32, dev string, index int) NextHopObject {
		return NextHopObject{ID: id, Family: 4, Dev: dev, Ifindex: index, Blackhole: dev == "", Proto: ProtoStatic}
	}
	seven, eight, nine := hop(7, "ib0", 4), hop(8, "eth0", 9), hop(9, "", 0)
	s.NextHops = []NextHopObject{seven, eight, nine}
	r := &Record{NextHops: []NextHopObject{nine, hop(99, "", 0)}, Links: []*LinkRecord{
		{Ifindex: 4, Name: "ib0", Keep: true, NextHops: []NextHopObject{seven}},
		{Ifindex: 9, Name: "eth0", NextHops: []NextHopObject{eight, hop(98, "", 0)}}}}
	if !r.Reconcile(s) || r.Reconcile(s) || !slices.Equal(r.NextHopIDs(), []uint32{9, 7, 8}) || !r.madeNextHop(nine) {
		t.Errorf("%+v", r)
	}
	unitOf := func(i int) (*units.Unit, bool) { return nil, i == 4 }
	for _, partial := range []bool{true, false} {
		b := NewBuilder(s, r, nil)
		PlanNextHopRemovals(b, unitOf, partial)
		want := "ip nexthop delete id 9\n"
		if partial {
			want = ""
		}
		if got := b.Plan.String(); got != want {
			t.Errorf("partial %v: %s", partial, got)
		}
	}
	// The link is gone: what stays of it goes with its record.
	s.Links = slices.DeleteFunc(slices.Clone(s.Links), func(l Link) bool { return l.Index == 9 })
	if r.Reconcile(s); !slices.Equal(r.NextHopIDs(), []uint32{9, 8, 7}) || len(r.NextHops) != 2 {
		t.Errorf("%+v", r)
	}
}

// What outlives a link whose unit has KeepConfiguration= is its own again when it
// returns, and is removed neither before nor after.
func TestKeptOfALinkThatIsGone(t *testing.T) {
	s := host(t)
	lo, ib0, eth0 := s.Links[0], s.Links[1], s.Links[2]
	seven := NextHopObject{ID: 7, Family: 4, Dev: "ib0", Ifindex: 4, Proto: ProtoStatic}
	eight := NextHopObject{ID: 8, Family: 4, Dev: "eth0", Ifindex: 9, Proto: ProtoStatic}
	group := NextHopObject{ID: 20, Group: []GroupMember{{7, 1}, {8, 1}}, Proto: ProtoStatic}
	over := Route{Dst: prefix("10.9.0.0/16"), Table: TableMain, Type: RouteUnicast, Protocol: ProtoStatic, NextHopID: 20}
	nowhere := Route{Dst: prefix("10.8.0.0/16"), Table: TableMain, Type: RouteBlackhole, Protocol: ProtoStatic}
	r := &Record{Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", Keep: true, Routes: []Route{over, nowhere},
		NextHops: []NextHopObject{seven, group}}}}
	group.Group = group.Group[1:]
	eth0.Routes, lo.Routes = []Route{over}, []Route{nowhere}
	s.Links, s.NextHops = []Link{lo, eth0}, []NextHopObject{eight, group}
	for range 2 {
		changed := r.Reconcile(s)
		b := NewBuilder(s, r, nil)
		PlanNextHopRemovals(b, func(int) (*units.Unit, bool) { return nil, true }, false)
		PlanOrphans(b, func(int) *units.Unit { return nil }, false)
		if !b.Plan.Empty() || r.Reconcile(s) || !r.Clone().madeNextHop(group) || !r.madeRoute(nil, nowhere) {
			t.Errorf("changed %v, planned:\n%s", changed, b.Plan.String())
		}
	}
	ib0.Index = 12
	s.Links = append(s.Links, ib0)
	if !r.Reconcile(s) || r.Reconcile(s) || len(r.Kept) != 0 || len(r.Links) != 1 || !r.Links[0].Keep ||
		!slices.Equal(r.NextHopIDs(), []uint32{20}) || len(r.Links[0].Routes) != 2 {
		t.Errorf("%+v", r)
	}
	b := NewBuilder(s, r, nil)
	PlanRemovals(b, 12, unit(t, "[Network]\nAddress=10.0.0.1/24\n"))
	PlanNextHopRemovals(b, func(int) (*units.Unit, bool) { return unit(t, "[Network]\nAddress=10.0.0.1/24\n"), true }, false)
	want := "ip route delete 10.9.0.0/16 nhid 20 proto static\nip route delete blackhole 10.8.0.0/16 proto static\nip nexthop delete id 20\n"
	if got := b.Plan.String(); got != want {
		t.Errorf("a unit without them: %s", got)
	}
}

// Another program that took the ID of one that the kernel has deleted owns it, whatever
// the record says; a group that the kernel has shrunk stays ours.
func TestNextHopOfAnotherProgram(t *testing.T) {
	set := NextHopObject{ID: 7, Family: 4, Gateway: netip.MustParseAddr("10.0.0.254"), Dev: "ib0", Ifindex: 4, Proto: ProtoStatic}
	group := NextHopObject{ID: 20, Group: []GroupMember{{7, 1}, {8, 3}}, Proto: ProtoStatic}
	for _, tt := range []struct {
		name   string
		change func(hop, group *NextHopObject)
		want   []uint32
	}{
		{"OK as it was set", func(*NextHopObject, *NextHopObject) {}, []uint32{7, 20}},
		{"OK a member went", func(_, g *NextHopObject) { g.Group = g.Group[1:] }, []uint32{7, 20}},
		{"bad protocols", func(h, g *NextHopObject) { h.Proto, g.Proto = 0, 11 }, nil},
		{"bad another gateway", func(h, _ *NextHopObject) { h.Gateway = netip.MustParseAddr("10.0.0.9") }, []uint32{20}},
		{"bad another link", func(h, _ *NextHopObject) { h.Ifindex = 9 }, []uint32{20}},
		{"bad another member", func(_, g *NextHopObject) { g.Group = []GroupMember{{7, 1}, {9, 1}} }, []uint32{7}},
		{"bad another weight", func(_, g *NextHopObject) { g.Group = []GroupMember{{7, 1}, {8, 2}} }, []uint32{7}},
		{"bad no group", func(_, g *NextHopObject) { *g = NextHopObject{ID: 20, Family: 4, Blackhole: true, Proto: ProtoStatic} }, []uint32{7}},
	} {
		s, h, g := host(t), set, group
		tt.change(&h, &g)
		s.NextHops = []NextHopObject{h, g}
		r := &Record{Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", NextHops: []NextHopObject{set, group}}}}
		b := NewBuilder(s, r, nil)
		PlanNextHopRemovals(b, func(int) (*units.Unit, bool) { return nil, true }, false)
		if len(b.Plan.Steps) != len(tt.want) {
			t.Errorf("%s: before the record knows: %s", tt.name, b.Plan.String())
		}
		if r.Reconcile(s); !slices.Equal(r.NextHopIDs(), tt.want) {
			t.Errorf("%s: %v", tt.name, r.NextHopIDs())
		}
	}
}

// A refusal to replace or to delete one leaves the record of it as it is.
func TestRefusedNextHop(t *testing.T) {
	s := host(t)
	on := TargetOf(&s.Links[1])
	old := NextHopObject{ID: 7, Group: []GroupMember{{8, 1}}, Proto: ProtoStatic}
	now := NextHopObject{ID: 7, Family: 4, Dev: "ib0", Ifindex: 4, Proto: ProtoStatic}
	s.NextHops = []NextHopObject{old}
	for _, ops := range [][]Op{
		{DelNextHop{On: on, NextHop: old}, SetNextHop{On: on, NextHop: now}},
		{SetNextHop{On: on, NextHop: now, Replace: true}},
		{SetNextHop{On: on, NextHop: old, Replace: true}},
	} {
		r := &Record{Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", NextHops: []NextHopObject{old}}}}
		for _, o := range ops {
			r.Intend(o)
		}
		stopped := r.Clone() // before the effect
		if stopped.Reconcile(s); !stopped.madeNextHop(old) {
			t.Errorf("%v: stopped: %+v", ops, stopped.Links[0])
		}
		for _, o := range ops {
			r.Failed(o)
		}
		if r.Reconcile(s) || !r.madeNextHop(old) {
			t.Errorf("%v: %+v", ops, r.Links[0])
		}
	}
}
