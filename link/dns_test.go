package link

import (
	"net/netip"
	"testing"

	"ibnetworkd/units"
)

// What routers advertise follows what the unit has, where the unit uses it.
func TestAdvertisedDNS(t *testing.T) {
	heard := func(resolved string, had ...string) func(*Snapshot, *Record) {
		return func(s *Snapshot, r *Record) {
			s.Host.Resolved = resolved
			l, _ := s.LinkByName("ib0")
			l.Sysctl = map[string]string{"ipv6/accept_ra": "2"}
			l.Advertised = &Advertised{Servers: []Lasting{{"fd00::53", 90}, {"fd00::54", 0}}, Domains: []Lasting{{"ra.example", 90}}}
			if had != nil {
				r.Links = []*LinkRecord{{Ifindex: 4, Name: "ib0", Activated: true, DNS: &DNSRecord{Servers: had, Resolved: resolved}}}
			}
		}
	}
	const accept = "[Network]\nIPv6AcceptRA=yes\n"
	testPlans(t, []planCase{
		{name: "OK servers by default", unit: accept, sys: heard(":1.7"), want: "resolvectl dns ib0 fd00::53 fd00::54\n"},
		{name: "OK it has them", unit: accept, sys: heard(":1.7", "fd00::53", "fd00::54")},
		{name: "OK one is over", unit: accept, sys: heard(":1.7", "fd00::53", "fd00::54", "fd00::55"),
			want: "resolvectl dns ib0 fd00::53 fd00::54\n"},
		{name: "OK the unit's come first", unit: accept + "DNS=fd00::54 10.0.0.53\nDomains=site.example\n[IPv6AcceptRA]\nUseDomains=yes\n",
			sys:  heard(":1.7"),
			want: "resolvectl dns ib0 fd00::54 10.0.0.53 fd00::53 && resolvectl domain ib0 site.example ra.example\n"},
		{name: "OK domains to route by", unit: accept + "[IPv6AcceptRA]\nUseDNS=no\nUseDomains=route\n", sys: heard(":1.7"),
			want: "resolvectl dns ib0 && resolvectl domain ib0 ~ra.example\n"},
		{name: "OK not used", unit: accept + "[IPv6AcceptRA]\nUseDNS=no\n", sys: heard(":1.7")},
		{name: "OK the unit accepts no advertisements", unit: "[Network]\nIPv6MTUBytes=1280\n", sys: heard(":1.7"),
			want: "sysctl -w net.ipv6.conf.ib0.mtu=1280\n"},
		{name: "bad systemd-resolved does not run", unit: accept, sys: heard(""), want: "" +
			"# blocked: ib0: systemd-resolved does not run: what routers advertise for name resolution (fd00::53, fd00::54) has no " +
			"effect\n#   then: resolvectl dns ib0 fd00::53 fd00::54\n" +
			"#   next: ln -sf /run/ibnetworkd/resolv.conf /etc/resolv.conf; or systemctl enable --now systemd-resolved; " +
			"or write UseDNS=no in [IPv6AcceptRA]\n"},
	})
}

func TestDNS(t *testing.T) {
	const text = "[Network]\nDNS=10.0.0.53\nDomains=~. site.example\nDNSDefaultRoute=yes\nLLMNR=no\nMulticastDNS=resolve\n" +
		"DNSOverTLS=opportunistic\nDNSSEC=no\nDNSSECNegativeTrustAnchors=a.example b.example\n"
	resolved := func(name string) func(*Snapshot, *Record) {
		return func(s *Snapshot, r *Record) {
			s.Host.Resolved = ":1.7"
			r.Links = []*LinkRecord{{Ifindex: 4, Name: "ib0", Activated: true,
				DNS: &DNSRecord{Servers: []string{"10.0.0.53"}, Resolve: Resolve{LLMNR: "no"}, Resolved: name}}}
		}
	}
	testPlans(t, []planCase{
		{name: "OK every key", unit: text, sys: func(s *Snapshot, _ *Record) { s.Host.Resolved = ":1.7" }, want: "" +
			"resolvectl dns ib0 10.0.0.53 && resolvectl domain ib0 ~. site.example && resolvectl default-route ib0 yes && " +
			"resolvectl llmnr ib0 no && resolvectl mdns ib0 resolve && resolvectl dnsovertls ib0 opportunistic && resolvectl " +
			"dnssec ib0 no && resolvectl nta ib0 a.example b.example\n"},
		{name: "bad systemd-resolved does not run", unit: text, want: "" +
			"# blocked: ib0: systemd-resolved does not run: DNS=, Domains= and the keys that belong to them have no effect\n" +
			"#   then: resolvectl dns ib0 10.0.0.53 && resolvectl domain ib0 ~. site.example && resolvectl default-route ib0 " +
			"yes && resolvectl llmnr ib0 no && resolvectl mdns ib0 resolve && resolvectl dnsovertls ib0 opportunistic && " +
			"resolvectl dnssec ib0 no && resolvectl nta ib0 a.example b.example\n" +
			"#   next: ln -sf /run/ibnetworkd/resolv.conf /etc/resolv.conf; or systemctl enable --now systemd-resolved\n"},
		{name: "OK the file is used", unit: "[Network]\nDNS=10.0.0.53\nDomains=site.example ~.\n",
			sys: func(s *Snapshot, _ *Record) { s.Host.ResolvConf = true }},
		{name: "bad the file is used, and a key of systemd-resolved", unit: "[Network]\nDNS=10.0.0.53\nLLMNR=no\n",
			sys: func(s *Snapshot, _ *Record) { s.Host.ResolvConf = true }, want: "" +
				"# blocked: ib0: systemd-resolved does not run: only name servers and search domains have an effect, by " +
				"/run/ibnetworkd/resolv.conf\n" +
				"#   then: resolvectl dns ib0 10.0.0.53 && resolvectl llmnr ib0 no\n" +
				"#   next: systemctl enable --now systemd-resolved; or remove routing domains, ports, names of servers, and the keys " +
				"that belong to DNS=\n"},
		{name: "OK it has the same", unit: "[Network]\nDNS=10.0.0.53\nLLMNR=no\n", sys: resolved(":1.7")},
		{name: "OK it has been started again", unit: "[Network]\nDNS=10.0.0.53\nLLMNR=no\n", sys: resolved(":1.6"),
			want: "resolvectl dns ib0 10.0.0.53 && resolvectl llmnr ib0 no\n"},
		{name: "OK a key went", unit: "[Network]\nDNS=10.0.0.53\n", sys: resolved(":1.7"), want: "resolvectl revert ib0 && " +
			"resolvectl dns ib0 10.0.0.53\n"},
		{name: "OK all went", unit: "[Network]\nAddress=10.0.0.1/24\n", sys: resolved(":1.7"), want: "" +
			"ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n" +
			"resolvectl revert ib0\n"},
		{name: "OK the unit went", sys: resolved(":1.7"), want: "resolvectl revert ib0\n"},
	})
}

// The file has what can be said there, of links that have a carrier, each once.
func TestResolvConf(t *testing.T) {
	texts := map[string]string{
		"ib0": "[Network]\nDHCP=ipv4\nDNS=10.0.0.53\nDomains=site.example ~routed.example\nDNS=10.0.0.54:5353 fe80::1\n",
		"ib1": "[Network]\nDNS=10.0.0.53:53 10.0.0.55%ib1#name 10.0.0.56 fe80::1%ib0\nDomains=site.example other.example\n",
		"ib2": "[Network]\nDNS=10.0.0.57\nDNSDefaultRoute=no\n",
		"ib3": "[Network]\nDNS=10.0.0.58\n",
	}
	s, of := &Snapshot{}, map[string]*units.Unit{}
	for i, name := range []string{"ib0", "ib1", "ib2", "ib3", "ib4"} {
		s.Links = append(s.Links, Link{Index: i + 1, Name: name, Type: ARPHRDInfiniBand, Flags: FlagUp | FlagLowerUp})
		if text := texts[name]; text != "" {
			u, problems := units.VerifyFile("10-x.ibnetwork", []byte("[Match]\nName="+name+"\n"+text))
			if u == nil || len(problems) > 0 {
				t.Fatal(problems)
			}
			of[name] = u
		}
	}
	s.Links[3].Flags = FlagUp // no carrier
	s.Links[0].DHCP = &DHCP{Lease: &Lease{DNS: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Domain: "lease.example"}}
	got := ResolvConf(s, func(l *Link) *units.Unit { return of[l.Name] })
	const first = "# Written by ibnetworkd, for hosts without systemd-resolved.\n"
	want := first + "nameserver 10.0.0.53\nnameserver fe80::1%ib0\nnameserver 10.0.0.1\n" +
		"# More name servers, which the C library does not use:\nnameserver 10.0.0.55\nnameserver 10.0.0.56\n" +
		"search site.example other.example\n"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := ResolvConf(&Snapshot{}, func(*Link) *units.Unit { return nil }); got != first {
		t.Error(got)
	}
}
