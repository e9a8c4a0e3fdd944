package link

import (
	"net/netip"
	"testing"
)

func TestRoutes(t *testing.T) {
	const net = "[Network]\nAddress=10.0.0.1/24\n"
	have := []Address{{Prefix: prefix("10.0.0.1/24"), Broadcast: netip.MustParseAddr("10.0.0.255"), Valid: Forever, Preferred: Forever}}
	route := func(dst string) Route {
		return Route{Dst: prefix(dst), Table: TableMain, Type: RouteUnicast, Protocol: ProtoStatic, Scope: ScopeLink}
	}
	testPlans(t, []planCase{
		{name: "OK a gateway", unit: net + "Gateway=10.0.0.254\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"ip route add default via 10.0.0.254 dev ib0 proto static\n"},
		{name: "OK a default route without one", unit: "[Network]\nDefaultRouteOnDevice=yes\n", want: "ip route add default dev ib0 " +
			"proto static scope link\n"},
		{name: "OK every key", unit: net + "[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.3\nPreferredSource=10.0.0.1\nMetric=7\n" +
			"Table=9\nMTUBytes=1500\nTCPAdvertisedMaximumSegmentSize=1400\n" +
			"HopLimit=9\nInitialCongestionWindow=11\nInitialAdvertisedReceiveWindow=12\nTCPRetransmissionTimeoutSec=1s\n" +
			"TCPCongestionControlAlgorithm=dctcp\nQuickAck=yes\nFastOpenNoCookie=yes\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"ip route add 10.9.0.0/16 via 10.0.0.3 dev ib0 table 9 proto static src 10.0.0.1 metric 7 mtu 1500 advmss 1400 " +
			"hoplimit 9 initcwnd 11 initrwnd 12 rto_min 1000ms congctl dctcp quickack 1 fastopen_no_cookie 1\n"},
		{name: "OK IPv6", unit: "[Network]\nAddress=fd00::1/64\n[Route]\nDestination=fd01::/64\nGateway=fd00::2\nSource=fd00::/64\n" +
			"IPv6Preference=high\n", want: "" +
			"ip address add fd00::1/64 dev ib0\n" +
			"ip route add fd01::/64 from fd00::/64 via fd00::2 dev ib0 proto static metric 1024 pref high\n"},
		{name: "OK a gateway declared to be there", unit: "[Route]\nGateway=10.7.0.1\nGatewayOnLink=yes\n", want: "ip route add " +
			"default via 10.7.0.1 dev ib0 proto static onlink\n"},
		{name: "OK routes that lead nowhere", unit: net + "[Route]\nDestination=10.8.0.0/16\nType=blackhole\n[Route]\n" +
			"Destination=10.9.0.0/16\nType=prohibit\n[Route]\nDestination=10.7.0.1/32\nType=local\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"ip route add blackhole 10.8.0.0/16 proto static\n" +
			"ip route add prohibit 10.9.0.0/16 proto static\n" +
			"ip route add local 10.7.0.1/32 dev ib0 table 255 proto static scope host\n"},
		{name: "OK over two links", unit: net + "[Route]\nDestination=10.9.0.0/16\nMultiPathRoute=10.0.0.3 5\n" +
			"MultiPathRoute=10.0.0.4@eth0\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"ip route add 10.9.0.0/16 proto static nexthop via 10.0.0.3 dev ib0 weight 5 nexthop via 10.0.0.4 dev eth0 weight 1\n"},
		{name: "bad over a link that is not there", unit: net + "[Route]\nDestination=10.9.0.0/16\nMultiPathRoute=10.0.0.3\n" +
			"MultiPathRoute=10.0.0.4@none\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"# waiting: ib0: the route to 10.9.0.0/16 leads over none, which does not exist or is down\n" +
			"#   then: ip route add 10.9.0.0/16 proto static nexthop via 10.0.0.3 dev ib0 weight 1 nexthop via 10.0.0.4 dev " +
			"none weight 1\n" +
			"#   next: ip link show; correct MultiPathRoute=, or bring that link up\n"},
		{name: "bad a gateway in no subnet", unit: net + "[Route]\nDestination=10.9.0.0/16\nGateway=10.77.0.1\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"# waiting: ib0: gateway 10.77.0.1 is in no subnet of ib0\n" +
			"#   then: ip route add 10.9.0.0/16 via 10.77.0.1 dev ib0 proto static\n" +
			"#   next: give the link an address of the gateway's subnet, or write GatewayOnLink=yes\n"},
		{name: "OK the section went", unit: net, sys: ours(have, []Route{route("10.9.0.0/16")}), want: "ip route delete 10.9.0.0/16 " +
			"dev ib0 proto static scope link\n"},
		{name: "OK the unit went", sys: ours(have, []Route{route("10.9.0.0/16")}), want: "" +
			"ip route delete 10.9.0.0/16 dev ib0 proto static scope link\n" +
			"ip address delete 10.0.0.1/24 dev ib0\n"},
		{name: "OK another metric is another " +
			"route", unit: net + "[Route]\nDestination=10.9.0.0/16\nMetric=5\n", sys: ours(have, []Route{route("10.9.0.0/16")}), want: "" +
			"ip route delete 10.9.0.0/16 dev ib0 proto static scope link\n" +
			"ip route add 10.9.0.0/16 dev ib0 proto static scope link metric 5\n"},
		{name: "OK another gateway replaces " +
			"ours", unit: net + "[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.9\n", sys: ours(have, []Route{route("10.9.0.0/16")}),
			want: "ip route replace 10.9.0.0/16 via 10.0.0.9 dev ib0 proto static\n"},
		{name: "OK ours led over another link", unit: net + "[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.9\n",
			sys: func(s *Snapshot, r *Record) {
				r0 := route("10.9.0.0/16")
				r0.NextHops = []NextHop{{Ifindex: 9, Dev: "eth0", Weight: 1}, {Ifindex: 4, Dev: "ib0", Weight: 1}}
				ours(have, []Route{r0})(s, r)
				s.Links[1].Routes, s.Links[2].Routes = nil, []Route{r0}
			}, want: "ip route replace 10.9.0.0/16 via 10.0.0.9 dev ib0 proto static\n"},
		{name: "bad another program's route", unit: net + "[Route]\nDestination=10.9.0.0/16\nGateway=10.0.0.9\n",
			sys: func(s *Snapshot, r *Record) {
				ours(have, []Route{route("10.9.0.0/16")})(s, r)
				r.Links[0].Routes = nil
			}, want: "" +
				"# blocked: ib0: a route to 10.9.0.0/16 with metric 0 is on ib0 already, and was not made by ibnetworkd\n" +
				"#   then: ip route add 10.9.0.0/16 via 10.0.0.9 dev ib0 proto static\n" +
				"#   next: ip route delete 10.9.0.0/16 dev ib0 proto static scope link\n"},
		{name: "bad on another link already", unit: net + "[Route]\nDestination=10.9.0.0/16\n", sys: func(s *Snapshot, _ *Record) {
			s.Links[2].Routes = []Route{route("10.9.0.0/16")}
		}, want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"# waiting: ib0: a route to 10.9.0.0/16 with metric 0 leads over eth0 already\n" +
			"#   then: ip route add 10.9.0.0/16 dev ib0 proto static scope link\n" +
			"#   next: give one of the two another Metric=\n"},
		{name: "bad the link is down", unit: "[Link]\nActivationPolicy=manual\n[Route]\nDestination=10.9.0.0/16\n", sys: down, want: "" +
			"# waiting: ib0 is down: a route needs it up\n" +
			"#   then: ip route add 10.9.0.0/16 dev ib0 proto static scope link\n" +
			"#   next: ip link set ib0 up\n"},
		{name: "bad an MTU below that of IPv6", unit: "[Route]\nDestination=fd01::/64\n", sys: func(s *Snapshot,
			_ *Record) {
			s.Links[1].MTU = 1000
		}, want: "" +
			"# blocked: ib0: IPv6 needs an MTU of 1280, ib0 has 1000\n" +
			"#   then: ip route add fd01::/64 dev ib0 proto static metric 1024\n" +
			"#   next: raise MTUBytes=\n"},
		{name: "bad IPv6 is disabled on the link", unit: "[Route]\nDestination=fd01::/64\n[Route]\nDestination=fd02::/64\nType=blackhole\n",
			sys: func(s *Snapshot, _ *Record) { s.Links[1].Sysctl = map[string]string{disableIPv6: "1"} }, want: "" +
				"ip route add blackhole fd02::/64 proto static metric 1024\n" +
				"# blocked: ib0: IPv6 is disabled on ib0\n" +
				"#   then: ip route add fd01::/64 dev ib0 proto static metric 1024\n" +
				"#   next: sysctl -w net.ipv6.conf.ib0.disable_ipv6=0\n"},
		{name: "bad no IPv6", unit: "[Route]\nDestination=fd01::/64\n", sys: func(s *Snapshot, _ *Record) { s.Host.NoIPv6 = true }, want: "" +
			"# blocked: ib0: this kernel has no IPv6\n" +
			"#   then: ip route add fd01::/64 dev ib0 proto static metric 1024\n"},
		{name: "OK a route whose link went before it", sys: func(s *Snapshot, r *Record) {
			hole := Route{Dst: prefix("10.8.0.0/16"), Table: TableMain, Type: RouteBlackhole, Protocol: ProtoStatic}
			s.Links[0].Routes, r.Routes = []Route{hole}, []Route{hole}
		}, want: "ip route delete blackhole 10.8.0.0/16 proto static\n"},
	})
}

func TestRouteText(t *testing.T) {
	for want, r := range map[string]Route{
		"fd00::/64 via fe80::1 dev ib0 tos 0x10 table 9 proto ra src fd00::1 rto_min 40ms congctl bbr quickack 1 pref low onlink": {
			Dst: prefix("fd00::/64"), Gateway: netip.MustParseAddr("fe80::1"), TOS: 0x10, Table: 9, Protocol: ProtoRA,
			PrefSrc: netip.MustParseAddr("fd00::1"),
			RTOMin:  40, Congestion: "bbr", QuickAck: true, Pref: 3, OnLink: true},
		"throw 10.0.0.0/8 proto kernel scope site":  {Dst: prefix("10.0.0.0/8"), Type: RouteThrow, Protocol: ProtoKernel, Scope: ScopeSite},
		"::/0 from fd00::/64 dev ib0 proto dhcp":    {Dst: prefix("::/0"), Src: prefix("fd00::/64"), Protocol: ProtoDHCP},
		"77 10.0.0.0/8 dev ib0 proto boot scope 99": {Dst: prefix("10.0.0.0/8"), Type: 77, Protocol: ProtoBoot, Scope: 99},
		"default dev ib0 proto redirect scope host": {Dst: prefix("0.0.0.0/0"), Protocol: ProtoRedirect, Scope: ScopeHost},
		"10.0.0.0/8 dev ib0 proto 99 scope link":    {Dst: prefix("10.0.0.0/8"), Protocol: 99, Scope: ScopeLink},
	} {
		if got := r.text("ib0"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
