package link

import "testing"

func TestAddresses(t *testing.T) {
	lasting := func(s string) Address { return Address{Prefix: prefix(s), Valid: Forever, Preferred: Forever} }
	testPlans(t, []planCase{
		{name: "OK both families", unit: "[Network]\nAddress=10.0.0.1/24\nAddress=fd00::1/64\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"ip address add fd00::1/64 dev ib0\n"},
		{name: "OK every key", unit: "[Address]\nAddress=10.0.0.1/24\nBroadcast=10.0.0.254\nLabel=ib0:1\nScope=link\nRouteMetric=7\n" +
			"AddPrefixRoute=no\nPreferredLifetime=0\n" +
			"[Address]\nAddress=10.9.0.1/32\nPeer=10.9.0.2/32\n[Address]\nAddress=fd00::1/64\nDuplicateAddressDetection=none\n" +
			"HomeAddress=yes\nManageTemporaryAddress=yes\nAutoJoin=yes\n", want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.254 label ib0:1 scope link metric 7 noprefixroute preferred_lft 0 dev " +
			"ib0\n" +
			"ip address add 10.9.0.1 peer 10.9.0.2/32 dev ib0\n" +
			"ip address add fd00::1/64 nodad home mngtmpaddr autojoin dev ib0\n"},
		{name: "OK a host's loopback address", unit: "[Network]\nAddress=127.0.0.9/8\nAddress=127.0.0.9/8\n", want: "ip address add " +
			"127.0.0.9/8 broadcast 127.255.255.255 scope host dev ib0\n"},
		{name: "OK the unit went", sys: ours([]Address{lasting("10.0.0.1/24")}, nil), want: "ip address delete 10.0.0.1/24 dev ib0\n"},
		{name: "OK another's stays", sys: func(s *Snapshot, _ *Record) { s.Links[1].Addresses = []Address{lasting("10.0.0.1/24")} }},
		{name: "OK the unit went and keeps", sys: func(s *Snapshot, r *Record) {
			ours([]Address{lasting("10.0.0.1/24")}, nil)(s, r)
			r.Links[0].Keep = true
		}},
		{name: "OK edited, whatever it keeps", unit: "[Network]\nAddress=10.0.0.2/24\nKeepConfiguration=yes\n", sys: func(s *Snapshot,
			r *Record) {
			ours([]Address{lasting("10.0.0.1/24")}, nil)(s, r)
			r.Links[0].Keep = true
		}, want: "" +
			"ip address delete 10.0.0.1/24 dev ib0\n" +
			"ip address add 10.0.0.2/24 broadcast 10.0.0.255 dev ib0\n"},
		{name: "OK a secondary address stays when its primary goes", unit: "[Network]\nAddress=10.0.0.2/24\n", sys: func(s *Snapshot, r *Record) {
			second := lasting("10.0.0.2/24")
			second.Flags = AddrSecondary
			ours([]Address{lasting("10.0.0.1/24"), second}, nil)(s, r)
		}, want: "" +
			"ip address delete 10.0.0.1/24 dev ib0\n" +
			"ip address replace 10.0.0.2/24 dev ib0\n"},
		{name: "OK another's secondary address comes back", sys: func(s *Snapshot, r *Record) {
			ours([]Address{lasting("10.0.0.1/24")}, nil)(s, r)
			theirs := lasting("10.0.0.9/24")
			theirs.Flags = AddrSecondary
			s.Links[1].Addresses = append(s.Links[1].Addresses, theirs)
		}, want: "" +
			"ip address delete 10.0.0.1/24 dev ib0\n" +
			"ip address replace 10.0.0.9/24 dev ib0\n"},
		{name: "OK another label needs another " +
			"address", unit: "[Address]\nAddress=10.0.0.1/24\nLabel=ib0:2\n", sys: ours([]Address{lasting("10.0.0.1/24")}, nil), want: "" +
			"ip address delete 10.0.0.1/24 dev ib0\n" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 label ib0:2 dev ib0\n"},
		{name: "OK a metric changes in place", unit: "[Address]\nAddress=10.0.0.1/24\nRouteMetric=9\n",
			sys: ours([]Address{lasting("10.0.0.1/24")}, nil), want: "ip address replace 10.0.0.1/24 broadcast 10.0.0.255 metric 9 dev ib0\n"},
		{name: "OK a lifetime ends", unit: "[Address]\nAddress=fd00::1/64\nPreferredLifetime=0\n",
			sys: ours([]Address{lasting("fd00::1/64")}, nil), want: "ip address replace fd00::1/64 preferred_lft 0 dev ib0\n"},
		{name: "bad another's of another form", unit: "[Address]\nAddress=10.0.0.1/24\nLabel=ib0:2\n", sys: func(s *Snapshot, _ *Record) {
			s.Links[1].Addresses = []Address{lasting("10.0.0.1/24")}
		}, want: "" +
			"# blocked: ib0: 10.0.0.1/24 is on ib0 already in another form, and was not made by ibnetworkd\n" +
			"#   then: ip address add 10.0.0.1/24 broadcast 10.0.0.255 label ib0:2 dev ib0\n" +
			"#   next: ip address delete 10.0.0.1/24 dev ib0\n"},
		{name: "bad a duplicate in the network", unit: "[Network]\nAddress=fd00::1/64\n", sys: func(s *Snapshot, r *Record) {
			a := lasting("fd00::1/64")
			a.Flags = AddrDADFailed
			ours([]Address{a}, nil)(s, r)
		}, want: "" +
			"# blocked: ib0: another host uses fd00::1 (duplicate address detection failed)\n" +
			"#   next: remove the address from the other host, or choose another one\n"},
		{name: "bad no IPv6", unit: "[Network]\nAddress=fd00::1/64\n", sys: func(s *Snapshot, _ *Record) { s.Host.NoIPv6 = true }, want: "" +
			"# blocked: ib0: this kernel has no IPv6\n" +
			"#   then: ip address add fd00::1/64 dev ib0\n"},
		{name: "bad IPv6 disabled", unit: "[Network]\nAddress=fd00::1/64\n", sys: func(s *Snapshot, _ *Record) {
			s.Links[1].Sysctl = map[string]string{"ipv6/disable_ipv6": "1"}
		}, want: "" +
			"# blocked: ib0: IPv6 is disabled on ib0\n" +
			"#   then: ip address add fd00::1/64 dev ib0\n" +
			"#   next: sysctl -w net.ipv6.conf.ib0.disable_ipv6=0\n"},
		{name: "bad an MTU below that of IPv6", unit: "[Network]\nAddress=fd00::1/64\n", sys: func(s *Snapshot,
			_ *Record) {
			s.Links[1].MTU = 1000
		}, want: "" +
			"# blocked: ib0: IPv6 needs an MTU of 1280, ib0 has 1000\n" +
			"#   then: ip address add fd00::1/64 dev ib0\n" +
			"#   next: raise MTUBytes=\n"},
		{name: "OK down, and brought up first", unit: "[Network]\nAddress=10.0.0.1/24\n", sys: down, want: "" +
			"ip link set ib0 up\n" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n"},
		{name: "OK down and without carrier", unit: "[Link]\nActivationPolicy=manual\n[Network]\nAddress=10.0.0.1/24\n" +
			"ConfigureWithoutCarrier=yes\n", sys: down, want: "ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n"},
		{name: "bad down, and not ours to bring up", unit: "[Link]\nActivationPolicy=manual\n[Network]\nAddress=10.0.0.1/24\n",
			sys: down, want: "" +
				"# waiting: ib0 is down\n" +
				"#   then: ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
				"#   next: ip link set ib0 up\n"},
	})
}

// A derived address waits for what it is derived from, follows it, and stays where that
// is gone.
func TestDerivedAddresses(t *testing.T) {
	lasting := func(s string) Address { return Address{Prefix: prefix(s), Valid: Forever, Preferred: Forever} }
	eth0 := func(addrs ...string) func(*Snapshot, *Record) {
		return func(s *Snapshot, _ *Record) {
			s.Host.Facts.Hostname = "node17"
			for _, a := range addrs {
				s.Links[2].Addresses = append(s.Links[2].Addresses, lasting(a))
			}
		}
	}
	had := func(f func(*Snapshot, *Record), addrs ...string) func(*Snapshot, *Record) {
		return func(s *Snapshot, r *Record) {
			f(s, r)
			var as []Address
			for _, a := range addrs {
				as = append(as, lasting(a))
			}
			ours(as, nil)(s, r)
		}
	}
	const octets = "[Network]\nAddress=10.3.{eth0.3}.{eth0.4}/16\n"
	const waiting = "# waiting: ib0: eth0 has no IPv4 address yet to derive the address from\n#   next: ip address show eth0\n"
	testPlans(t, []planCase{
		{name: "OK octets", unit: octets, sys: eth0("192.168.5.17/24"), want: "ip address add 10.3.5.17/16 broadcast 10.3.255.255 dev ib0\n"},
		{name: "OK link-local does not count", unit: octets, sys: eth0("169.254.1.1/16", "192.168.5.17/24"),
			want: "ip address add 10.3.5.17/16 broadcast 10.3.255.255 dev ib0\n"},
		{name: "OK the host's number", unit: "[Address]\nAddress=10.3.0.0+{host}/16\nRouteMetric=7\n", sys: eth0(),
			want: "ip address add 10.3.0.17/16 broadcast 10.3.255.255 metric 7 dev ib0\n"},
		{name: "OK the link's own address is no source", unit: "[Network]\nAddress=10.3.0.{*.4}/16\n",
			sys: had(eth0("10.0.0.9/8"), "10.3.0.9/16")},
		{name: "bad no address yet", unit: octets, sys: eth0(), want: waiting},
		{name: "bad the source is gone, the address stays", unit: octets, sys: had(eth0(), "10.3.5.17/16"), want: waiting},
		{name: "bad the source is gone, what the unit does not give goes", unit: octets,
			sys: had(eth0(), "10.4.5.17/16", "10.3.5.17/24"), want: "" +
				"ip address delete 10.4.5.17/16 dev ib0\nip address delete 10.3.5.17/24 dev ib0\n" + waiting},
		{name: "OK the source changed", unit: octets, sys: had(eth0("192.168.5.18/24"), "10.3.5.17/16"), want: "" +
			"ip address delete 10.3.5.17/16 dev ib0\n" +
			"ip address add 10.3.5.18/16 broadcast 10.3.255.255 dev ib0\n"},
		{name: "bad two addresses", unit: octets, sys: had(eth0("192.168.5.18/24", "10.1.1.1/8"), "10.3.5.17/16"), want: "" +
			"# waiting: ib0: eth0 has 2 IPv4 addresses (10.1.1.1/8 and 192.168.5.18/24): which one to derive from is not known\n" +
			"#   next: remove one, or use {host} or AddressTable=\n"},
		{name: "bad no table was read", unit: "[Network]\nAddressTable=/t\n", sys: had(eth0(), "10.3.5.17/16"),
			want: "# waiting: ib0: /t has not been read\n"},
	})
}
