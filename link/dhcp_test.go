package link

import (
	"net/netip"
	"strings"
	"testing"
)

// leased gives the client of ib0 a lease.
func leased(change func(*Lease)) func(*Snapshot, *Record) {
	return func(s *Snapshot, _ *Record) {
		l := &Lease{Address: prefix("10.11.0.100/24"), Server: netip.MustParseAddr("10.11.0.1"), Gateway: netip.MustParseAddr("10.11.0.254"),
			DNS: []netip.Addr{netip.MustParseAddr("10.11.0.53")}, Domain: "ib.example", Lifetime: 3600, Granted: 1000, Renew: 2800, Rebind: 4150}
		if change != nil {
			change(l)
		}
		s.Links[1].DHCP = &DHCP{State: DHCPBound, Lease: l}
		s.Host.Resolved = ":1.7"
	}
}

func TestLease(t *testing.T) {
	const (
		unit    = "[Network]\nDHCP=ipv4\n"
		address = "ip address add 10.11.0.100/24 broadcast 10.11.0.255 metric 1024 valid_lft 3600 preferred_lft 3600 dev ib0\n"
		gateway = "ip route add default via 10.11.0.254 dev ib0 proto dhcp src 10.11.0.100 metric 1024\n"
		dns     = "resolvectl dns ib0 10.11.0.53\n"
	)
	classless := leased(func(l *Lease) {
		l.Gateway = netip.Addr{}
		l.Routes = []LeaseRoute{{prefix("10.99.0.0/16"), netip.MustParseAddr("10.11.0.7")}, {prefix("10.98.0.0/16"), netip.IPv4Unspecified()},
			{prefix("0.0.0.0/0"), netip.MustParseAddr("192.0.2.1")}}
	})
	testPlans(t, []planCase{
		{name: "OK address, gateway and name server", unit: unit, sys: leased(nil), want: address + gateway + dns},
		{name: "OK without an end", unit: unit, sys: leased(func(l *Lease) { l.Lifetime = Forever }), want: "" +
			"ip address add 10.11.0.100/24 broadcast 10.11.0.255 metric 1024 dev ib0\n" + gateway + dns},
		{name: "OK nothing but the address", unit: unit + "[DHCPv4]\nUseRoutes=no\nUseDNS=no\nRouteMetric=7\n", sys: leased(nil), want: "" +
			"ip address add 10.11.0.100/24 broadcast 10.11.0.255 metric 7 valid_lft 3600 preferred_lft 3600 dev ib0\n"},
		{name: "OK domains", unit: unit + "[DHCPv4]\nUseGateway=no\nUseDomains=route\n", sys: leased(nil), want: address +
			"resolvectl dns ib0 10.11.0.53 && resolvectl domain ib0 ~ib.example\n"},
		{name: "OK classless routes, a gateway outside of the subnet", unit: unit + "[DHCPv4]\nUseDNS=no\n", sys: classless, want: address +
			"ip route add 10.99.0.0/16 via 10.11.0.7 dev ib0 proto dhcp src 10.11.0.100 metric 1024\n" +
			"ip route add 10.98.0.0/16 dev ib0 proto dhcp scope link src 10.11.0.100 metric 1024\n" +
			"ip route add default via 192.0.2.1 dev ib0 proto dhcp src 10.11.0.100 metric 1024 onlink\n"},
		{name: "OK another table", unit: unit + "[DHCPv4]\nUseDNS=no\nRouteTable=100\n", sys: leased(nil), want: "" +
			"ip address add 10.11.0.100/24 broadcast 10.11.0.255 metric 1024 noprefixroute valid_lft 3600 preferred_lft 3600 dev ib0\n" +
			"ip route add 10.11.0.0/24 dev ib0 table 100 proto dhcp scope link src 10.11.0.100 metric 1024\n" +
			"ip route add default via 10.11.0.254 dev ib0 table 100 proto dhcp src 10.11.0.100 metric 1024 onlink\n"},
		{name: "bad no answer", unit: unit, sys: func(s *Snapshot, _ *Record) {
			s.Links[1].DHCP = &DHCP{State: DHCPSelecting, Tries: 4}
		}, want: "" +
			"# waiting: ib0: no answer from a DHCP server on 4 tries; the group is joined, so it is the server or the P_Key\n" +
			"#   next: check that a DHCP server serves partition 0xffff, and its log\n"},
		{name: "bad a conflict", unit: unit, sys: func(s *Snapshot, _ *Record) {
			s.Links[1].DHCP = &DHCP{State: DHCPWaiting, Conflict: netip.MustParseAddr("10.11.0.100")}
		}, want: "" +
			"# waiting: ib0: another host uses 10.11.0.100, which the DHCP server gave: it was declined\n" +
			"#   next: find the host with: ip neighbour show to 10.11.0.100; exclude its address on the server\n"},
		{name: "bad a route that leads over another link", unit: unit + "[DHCPv4]\nUseDNS=no\n", sys: func(s *Snapshot, r *Record) {
			leased(nil)(s, r)
			s.Links[2].Routes = []Route{{Dst: prefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("10.0.0.1"), Table: TableMain, Metric: 1024,
				Type: RouteUnicast}}
		}, want: address + "# blocked: ib0: a route to 0.0.0.0/0 with metric 1024 leads over eth0 already\n" +
			"#   then: ip route add default via 10.11.0.254 dev ib0 proto dhcp src 10.11.0.100 metric 1024\n" +
			"#   next: write another RouteMetric= into [DHCPv4] of one of the two, or UseGateway=no and UseRoutes=no\n"},
		{name: "OK no unit: a lease is not used", sys: leased(nil)},
		{name: "OK a renewal sets the lifetime again", unit: unit + "[DHCPv4]\nUseDNS=no\nUseRoutes=no\n", sys: func(s *Snapshot, r *Record) {
			a := Address{Prefix: prefix("10.11.0.100/24"), Broadcast: netip.MustParseAddr("10.11.0.255"), Metric: 1024, Valid: 1700,
				Preferred: 1700, Until: 4600}
			ours([]Address{a}, nil)(s, r)
			s.Links[1].Addresses = []Address{a}
			leased(func(l *Lease) { l.Granted = 2900 })(s, r)
		}, want: "ip address replace 10.11.0.100/24 broadcast 10.11.0.255 metric 1024 valid_lft 3600 preferred_lft 3600 dev ib0\n"},
		{name: "OK another address", unit: unit + "[DHCPv4]\nUseDNS=no\nUseRoutes=no\n", sys: func(s *Snapshot, r *Record) {
			ours([]Address{{Prefix: prefix("10.11.0.99/24"), Valid: 1700, Preferred: 1700, Until: 4600}}, nil)(s, r)
			leased(nil)(s, r)
		}, want: "ip address delete 10.11.0.99/24 dev ib0\n" + address},
	})
}

// MTU and name servers of a lease are used as the unit says.
func TestLeaseUse(t *testing.T) {
	s := host(t)
	leased(func(l *Lease) { l.MTU = 1500 })(s, nil)
	l := &s.Links[1]
	for text, want := range map[string]int{"": 0, "[DHCPv4]\nUseMTU=yes\n": 1500} {
		if got := LeaseMTU(l, unit(t, "[Network]\nDHCP=ipv4\n"+text)); got.V.Bytes != want {
			t.Errorf("%q: %d, want %d", text, got.V.Bytes, want)
		}
	}
	l.DHCP.Lease.MTU = 68
	if LeaseMTU(l, unit(t, "[Network]\nDHCP=ipv4\n[DHCPv4]\nUseMTU=yes\n")).Set {
		t.Error("an MTU of 68 is used")
	}
	s.Host.Resolved = ""
	p := planIB0(s, unit(t, "[Network]\nDHCP=ipv4\n"), &Record{}, nil).Plan
	if !strings.Contains(p.String(), "the name servers and domains of the lease (10.11.0.53) have no effect") {
		t.Errorf("%s", p)
	}
}
