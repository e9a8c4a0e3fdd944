package link

import (
	"net/netip"
	"strings"
	"testing"

	"ibnetworkd/units"
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
		{name: "bad answers that cannot be used", unit: unit, sys: func(s *Snapshot, _ *Record) {
			s.Links[1].DHCP = &DHCP{State: DHCPSelecting, Tries: 4, Drops: DHCPDrops{Contradictory: 4, Last: "a mask with holes"}}
		}, want: "" +
			"# waiting: ib0: DHCP answers for ib0 cannot be used (a mask with holes)\n" +
			"#   next: correct the configuration of the DHCP server\n"},
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

// leased6 gives the DHCPv6 client of ib0 a lease.
func leased6(change func(*DHCP)) func(*Snapshot, *Record) {
	return func(s *Snapshot, _ *Record) {
		d := &DHCP{State: DHCPBound, Lease: &Lease{Address: prefix("fd00:11::100/128"), Server: netip.MustParseAddr("fe80::1"), ServerID: "0003",
			DNS: []netip.Addr{netip.MustParseAddr("fd00:11::53")}, Search: []string{"ib.example"},
			Lifetime: 3600, Preferred: 1800, Granted: 1000, Renew: 1900, Rebind: 2440}}
		if change != nil {
			change(d)
		}
		s.Links[1].DHCP6 = d
		s.Host.Resolved = ":1.7"
	}
}

// set6 has the address of leased6 set, with flags.
func set6(flags uint32) func(*Snapshot, *Record) {
	return func(s *Snapshot, r *Record) {
		a := Address{Prefix: prefix("fd00:11::100/128"), Flags: AddrNoPrefixRoute | flags, Valid: Forever, Preferred: Forever}
		ours([]Address{a}, nil)(s, r)
		s.Links[1].Addresses = []Address{a}
		leased6(nil)(s, r)
	}
}

func TestLease6(t *testing.T) {
	const (
		unit    = "[Network]\nDHCP=ipv6\n"
		address = "ip address add fd00:11::100/128 noprefixroute dev ib0\n"
		dns     = "resolvectl dns ib0 fd00:11::53\n"
	)
	without := func(d *DHCP) { d.State, d.Lease = DHCPSelecting, nil }
	testPlans(t, []planCase{
		{name: "OK address and name server", unit: unit, sys: leased6(nil), want: address + dns},
		{name: "OK not the address", unit: unit + "[DHCPv6]\nUseAddress=no\nUseDNS=no\nUseDomains=yes\n", sys: leased6(nil),
			want: "resolvectl dns ib0 && resolvectl domain ib0 ib.example\n"},
		{name: "OK information alone", unit: unit, sys: leased6(func(d *DHCP) { d.Lease.Address = netip.Prefix{} }), want: dns},
		{name: "OK by a router", unit: "[Network]\nIPv6AcceptRA=yes\n", sys: leased6(nil), want: "" +
			"sysctl -w net.ipv6.conf.ib0.accept_ra=2\n" + address + dns},
		{name: "OK no router is waited for", unit: "[Network]\nIPv6AcceptRA=yes\n", sys: leased6(without), want: "" +
			"sysctl -w net.ipv6.conf.ib0.accept_ra=2\n# blocked: ib0: searching for a DHCPv6 server\n" +
			"#   next: check that a DHCPv6 server serves partition 0xffff, and its log\n"},
		{name: "OK no unit, or none that asks: a lease is not used", unit: "[Network]\nDescription=x\n", sys: leased6(nil)},
		{name: "bad no answer", unit: unit, sys: leased6(func(d *DHCP) { without(d); d.Tries = 4 }), want: "" +
			"# waiting: ib0: no answer from a DHCPv6 server on 4 tries; the group is joined, so it is the server or the P_Key\n" +
			"#   next: check that a DHCPv6 server serves partition 0xffff, and its log\n"},
		{name: "bad no answer to a renewal", unit: unit + "[DHCPv6]\nUseDNS=no\n", sys: func(s *Snapshot, r *Record) {
			set6(0)(s, r)
			s.Links[1].Addresses[0].Valid, s.Links[1].DHCP6.Tries = 2700, 1
			r.Links[0].Addresses[0].Until = 4600
		}, want: "" +
			"# blocked: ib0: no answer from a DHCPv6 server on 1 try to renew the lease; it is used until it ends\n" +
			"#   next: check that a DHCPv6 server serves partition 0xffff, and its log\n"},
		{name: "bad no renewal", unit: unit + "[DHCPv6]\nUseDNS=no\n", sys: func(s *Snapshot, r *Record) {
			set6(0)(s, r)
			s.Links[1].Addresses[0].Valid, r.Links[0].Addresses[0].Until = 2700, 4600
			s.Links[1].DHCP6.Refused, s.Links[1].DHCP6.Refusal = netip.MustParseAddr("fe80::2"), "NoAddrsAvail"
		}, want: "" +
			"# blocked: ib0: DHCPv6 server fe80::2 does not renew the lease of ib0 (NoAddrsAvail); it is used until it ends\n" +
			"#   next: check that a DHCPv6 server serves partition 0xffff, and its log\n"},
		{name: "bad no address", unit: unit, want: "" +
			"# waiting: ib0: DHCPv6 server fe80::1 gives ib0 no address (NoAddrsAvail)\n" +
			"#   next: check that a DHCPv6 server serves partition 0xffff, and its log\n",
			sys: leased6(func(d *DHCP) { without(d); d.Refused, d.Refusal = netip.MustParseAddr("fe80::1"), "NoAddrsAvail" })},
		{name: "bad a conflict", unit: unit, want: "" +
			"# waiting: ib0: another host uses fd00:11::100, which the DHCPv6 server gave: it was declined\n" +
			"#   next: find the host with: ip neighbour show to fd00:11::100; exclude its address on the server\n",
			sys: leased6(func(d *DHCP) { without(d); d.Conflict = netip.MustParseAddr("fd00:11::100") })},
		{name: "bad no router", unit: unit + "[DHCPv6]\nWithoutRA=no\n", sys: func(*Snapshot, *Record) {}, want: "" +
			"# waiting: ib0: no router advertisement asks for DHCPv6\n" +
			"#   next: set the managed or the other flag on the router; or remove WithoutRA=no\n"},
		{name: "bad no router may", unit: unit + "IPv6AcceptRA=no\n[DHCPv6]\nWithoutRA=no\n", sys: func(*Snapshot, *Record) {}, want: "" +
			"sysctl -w net.ipv6.conf.ib0.accept_ra=0\n" +
			"# blocked: ib0: no DHCPv6 client ever runs on ib0: WithoutRA=no leaves it to router advertisements, which IPv6AcceptRA=no ignores\n" +
			"#   next: remove WithoutRA=no or IPv6AcceptRA=no\n"},
		{name: "bad the link-local address is another host's", unit: unit, sys: func(s *Snapshot, _ *Record) {
			s.Links[1].DHCP6 = &DHCP{State: DHCPStopped}
			s.Links[1].Addresses = []Address{{Prefix: prefix("fe80::7/64"), Flags: AddrTentative | AddrDADFailed}}
		}, want: "# waiting: ib0: another host uses fe80::7 (duplicate address detection failed)\n" +
			"#   next: find the other host: two ports have one GUID, or two links one hardware address\n"},
		{name: "bad IPv6 is disabled", unit: unit, sys: func(s *Snapshot, _ *Record) {
			s.Links[1].Sysctl = map[string]string{"ipv6/disable_ipv6": "1"}
		}, want: "# blocked: ib0: IPv6 is disabled on ib0\n#   next: sysctl -w net.ipv6.conf.ib0.disable_ipv6=0\n"},
		{name: "bad MTU", unit: unit, sys: func(s *Snapshot, _ *Record) { s.Links[1].MTU = 1024 },
			want: "# blocked: ib0: IPv6 needs an MTU of 1280, ib0 has 1024\n#   next: raise MTUBytes=\n"},
		{name: "bad no link-local address", unit: unit, sys: func(*Snapshot, *Record) {}, want: "" +
			"# waiting: ib0: the DHCPv6 client begins when the link is ready and its link-local address may be used\n" +
			"#   next: ip -6 address show dev ib0 scope link; if it has none, write LinkLocalAddressing=ipv6\n"},
		{name: "OK one lease of two", unit: "[Network]\nDHCP=yes\n", want: address + dns +
			"# blocked: ib0: the DHCP client begins when the link is ready\n" +
			"#   next: ibnetctl diagnose ib0\n", sys: leased6(nil)},
		{name: "bad information alone, and no address", unit: "[Network]\nDHCP=yes\n[DHCPv6]\nWithoutRA=information-request\n", want: dns +
			"# waiting: ib0: searching for a DHCP server\n" +
			"#   next: check that a DHCP server serves partition 0xffff, and its log\n",
			sys: func(s *Snapshot, r *Record) {
				leased6(func(d *DHCP) { d.Lease.Address = netip.Prefix{} })(s, r)
				s.Links[1].DHCP = &DHCP{State: DHCPSelecting}
			}},
		{name: "OK the lifetimes are set when no other host has the address", unit: unit + "[DHCPv6]\nUseDNS=no\n", want: "" +
			"ip address replace fd00:11::100/128 noprefixroute valid_lft 3600 preferred_lft 1800 dev ib0\n", sys: set6(AddrPermanent)},
		{name: "OK not before that", unit: unit + "[DHCPv6]\nUseDNS=no\n", sys: set6(AddrPermanent | AddrTentative)},
		{name: "bad another host has it", unit: unit + "[DHCPv6]\nUseDNS=no\n", want: "" +
			"# blocked: ib0: another host uses fd00:11::100 (duplicate address detection failed)\n" +
			"#   next: remove the address from the other host, or choose another one\n",
			sys: set6(AddrPermanent | AddrTentative | AddrDADFailed)},
		{name: "OK without a detection", unit: unit + "DuplicateAddressDetection=none\n[DHCPv6]\nUseDNS=no\n", sys: leased6(nil), want: "" +
			"ip address add fd00:11::100/128 nodad noprefixroute valid_lft 3600 preferred_lft 1800 dev ib0\n"},
		{name: "OK a renewal sets the lifetimes again", unit: unit + "[DHCPv6]\nUseDNS=no\n", sys: func(s *Snapshot, r *Record) {
			a := Address{Prefix: prefix("fd00:11::100/128"), Flags: AddrNoPrefixRoute, Valid: 2700, Preferred: 900, Until: 4600}
			ours([]Address{a}, nil)(s, r)
			s.Links[1].Addresses = []Address{a}
			leased6(func(d *DHCP) { d.Lease.Granted = 1900 })(s, r)
		}, want: "ip address replace fd00:11::100/128 noprefixroute valid_lft 3600 preferred_lft 1800 dev ib0\n"},
		{name: "OK preferred for a while, without an end", unit: unit + "[DHCPv6]\nUseDNS=no\n", want: "" +
			"ip address add fd00:11::100/128 noprefixroute preferred_lft 1800 dev ib0\n",
			sys: leased6(func(d *DHCP) { d.Lease.Lifetime = Forever })},
		{name: "OK that is set again by a renewal", unit: unit + "[DHCPv6]\nUseDNS=no\n", sys: func(s *Snapshot, r *Record) {
			set6(0)(s, r)
			s.Links[1].Addresses[0].Preferred, r.Links[0].Addresses[0].Until = 900, 2800
			leased6(func(d *DHCP) { d.Lease.Lifetime, d.Lease.Granted = Forever, 1900 })(s, r)
		}, want: "ip address replace fd00:11::100/128 noprefixroute preferred_lft 1800 dev ib0\n"},
		{name: "OK the lifetimes of a lease, not of the unit", sys: func(s *Snapshot, r *Record) {
			a := Address{Prefix: prefix("fd00:11::100/128"), Flags: AddrNoPrefixRoute | AddrDeprecated, Valid: 1700, Until: 4600}
			ours([]Address{a}, nil)(s, r)
			s.Links[1].Addresses = []Address{a}
			leased6(nil)(s, r)
		}, unit: unit + "[DHCPv6]\nUseDNS=no\n[Address]\nAddress=fd00:11::100/128\nAddPrefixRoute=no\nPreferredLifetime=forever\n"},
		{name: "OK a lease that is gone", unit: unit, sys: func(s *Snapshot, r *Record) {
			ours([]Address{{Prefix: prefix("fd00:11::100/128"), Valid: 2700, Preferred: 900, Until: 4600}}, nil)(s, r)
			leased6(without)(s, r)
		}, want: "ip address delete fd00:11::100/128 dev ib0\n# waiting: ib0: searching for a DHCPv6 server\n" +
			"#   next: check that a DHCPv6 server serves partition 0xffff, and its log\n"},
	})
}

// Router advertisements begin a client as their flags and the unit say.
func TestDHCPv6Start(t *testing.T) {
	none, managed, other, both := RouterFlags{Seen: true}, RouterFlags{Seen: true, Managed: true}, RouterFlags{Seen: true, Other: true},
		RouterFlags{Seen: true, Managed: true, Other: true}
	const info, solicit = units.DHCPv6Information, units.DHCPv6Solicit
	for unitText, want := range map[string][4]units.DHCPv6Start{ // of none, managed, other, both
		"":                 {},
		"IPv6AcceptRA=no":  {},
		"IPv6AcceptRA=yes": {0, solicit, info, solicit},
		"DHCP=ipv6":        {solicit, solicit, solicit, solicit},
		"DHCP=ipv4":        {},
		"DHCP=yes\n[DHCPv6]\nWithoutRA=information-request":                  {info, info, info, info},
		"DHCP=yes\n[DHCPv6]\nWithoutRA=no":                                   {0, solicit, info, solicit},
		"DHCP=yes\nIPv6AcceptRA=no\n[DHCPv6]\nWithoutRA=no":                  {},
		"IPv6AcceptRA=yes\n[IPv6AcceptRA]\nDHCPv6Client=no":                  {},
		"IPv6AcceptRA=yes\n[IPv6AcceptRA]\nDHCPv6Client=always":              {solicit, solicit, solicit, solicit},
		"DHCP=ipv6\n[DHCPv6]\nWithoutRA=no\n[IPv6AcceptRA]\nDHCPv6Client=no": {},
	} {
		u := unit(t, "[Network]\nDescription=x\n"+unitText+"\n")
		for i, r := range []RouterFlags{none, managed, other, both} {
			if got, _ := DHCPv6Start(&Link{Router: r}, u); got != want[i] {
				t.Errorf("%q with %+v: %s, want %s", unitText, r, got, want[i])
			}
		}
	}
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
