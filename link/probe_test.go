package link

import (
	"net/netip"
	"testing"

	"ibnetworkd/ib"
)

func TestProbedAddresses(t *testing.T) {
	const (
		unit   = "[Network]\nAddress=10.0.0.1/24\nDuplicateAddressDetection=both\n"
		add    = "ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n"
		then   = "#   then: ip address add 10.0.0.1/24 broadcast 10.0.0.255 dev ib0\n"
		remove = "#   next: remove the address from the other host, or choose another one\n"
	)
	by := ib.MustParseHWAddr("80:00:02:09:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d9")
	probed := func(p Probe) func(*Snapshot, *Record) {
		return func(s *Snapshot, _ *Record) {
			p.Address = netip.MustParseAddr("10.0.0.1")
			s.Links[1].Probes = []Probe{p}
		}
	}
	linkLocal := func(p Probe) func(*Snapshot, *Record) {
		return func(s *Snapshot, _ *Record) {
			p.Address, p.LinkLocal = netip.MustParseAddr("169.254.7.9"), true
			s.Links[1].Probes = []Probe{p}
		}
	}
	lastRun := func(a string) func(*Snapshot, *Record) {
		return ours([]Address{{Prefix: prefix(a), Scope: ScopeLink, Metric: 2048, Valid: Forever, Preferred: Forever}}, nil)
	}
	taken := Probe{State: ProbeConflict, By: by}
	testPlans(t, []planCase{
		{name: "OK free", unit: unit, sys: probed(Probe{State: ProbeFree}), want: add},
		{name: "OK not yet asked", unit: unit, want: "" +
			"# waiting: ib0: ARP probes show whether another host uses 10.0.0.1\n" + then},
		{name: "OK asked", unit: unit, sys: probed(Probe{State: ProbeProbing}), want: "" +
			"# waiting: ib0: ARP probes show whether another host uses 10.0.0.1\n" + then},
		{name: "bad another host's", unit: unit, sys: probed(taken), want: "" +
			"# blocked: ib0: another host uses 10.0.0.1: " + by.String() + "\n" + then + remove},
		{name: "bad no packet sockets", unit: unit, sys: probed(Probe{State: ProbeProbing, Trouble: "operation not permitted"}), want: "" +
			"# blocked: ib0: 10.0.0.1 cannot be probed: operation not permitted\n" + then +
			"#   next: systemctl start ibnetworkd-packet.socket; or run ibnetworkd with CAP_NET_RAW; or remove DuplicateAddressDetection=\n"},
		{name: "bad another host's, which is on the link", unit: unit, sys: func(s *Snapshot, r *Record) {
			ours([]Address{{Prefix: prefix("10.0.0.1/24"), Valid: Forever, Preferred: Forever}}, nil)(s, r)
			probed(taken)(s, r)
		}, want: "# blocked: ib0: another host uses 10.0.0.1: " + by.String() + "\n" + remove},
		{name: "OK only the section that says so", sys: probed(taken), want: add,
			unit: "[Network]\nDuplicateAddressDetection=yes\n[Address]\nAddress=10.0.0.1/24\nDuplicateAddressDetection=ipv6\n"},
		{name: "OK no carrier, on Ethernet", unit: unit, sys: func(s *Snapshot, _ *Record) {
			l := &s.Links[1]
			l.Type, l.IPoIB, l.Kind, l.Flags = 1, nil, "", l.Flags&^FlagLowerUp
		}, want: "# waiting: ib0: 10.0.0.1 is probed by ARP when ib0 has a carrier\n" + then},
		{name: "OK a set address gets another label", unit: "[Network]\nDuplicateAddressDetection=yes\n" +
			"[Address]\nAddress=10.0.0.1/24\nLabel=ib0:2\n", sys: func(s *Snapshot, r *Record) {
			ours([]Address{{Prefix: prefix("10.0.0.1/24"), Valid: Forever, Preferred: Forever}}, nil)(s, r)
			probed(Probe{State: ProbeProbing})(s, r)
		}, want: "ip address delete 10.0.0.1/24 dev ib0\nip address add 10.0.0.1/24 broadcast 10.0.0.255 label ib0:2 dev ib0\n"},
		{name: "bad routes over another host's address", unit: unit + "Gateway=10.0.0.254\n" +
			"[Route]\nDestination=10.9.0.0/16\nPreferredSource=10.0.0.1\nScope=link\n", sys: probed(taken), want: "" +
			"# blocked: ib0: another host uses 10.0.0.1: " + by.String() + "\n" + then + remove +
			"# blocked: ib0: another host uses 10.0.0.1: " + by.String() + "\n" +
			"#   then: ip route add default via 10.0.0.254 dev ib0 proto static\n" + remove +
			"# blocked: ib0: another host uses 10.0.0.1: " + by.String() + "\n" +
			"#   then: ip route add 10.9.0.0/16 dev ib0 proto static scope link src 10.0.0.1\n" + remove},
		{name: "OK one address with two peers, probed for both", sys: probed(Probe{State: ProbeProbing}),
			unit: "[Address]\nAddress=10.0.0.1/32\nPeer=10.0.0.2/32\n" +
				"[Address]\nAddress=10.0.0.1/32\nPeer=10.0.0.3/32\nDuplicateAddressDetection=ipv4\n", want: "" +
				"# waiting: ib0: ARP probes show whether another host uses 10.0.0.1\n" +
				"#   then: ip address add 10.0.0.1 peer 10.0.0.2/32 dev ib0\n" +
				"# waiting: ib0: ARP probes show whether another host uses 10.0.0.1\n" +
				"#   then: ip address add 10.0.0.1 peer 10.0.0.3/32 dev ib0\n"},
		{name: "OK a link without ARP", unit: unit, sys: func(s *Snapshot, r *Record) {
			probed(taken)(s, r)
			s.Links[1].Flags |= FlagNoARP
		}, want: add},
		{name: "OK link-local", unit: "[Network]\nLinkLocalAddressing=ipv4\n", sys: linkLocal(Probe{State: ProbeFree}), want: "" +
			"sysctl -w net.ipv6.conf.ib0.addr_gen_mode=1\n" +
			"ip address add 169.254.7.9/16 broadcast 169.254.255.255 scope link metric 2048 dev ib0\n"},
		{name: "OK link-local, not chosen", unit: "[Network]\nLinkLocalAddressing=yes\n", want: "" +
			"sysctl -w net.ipv6.conf.ib0.addr_gen_mode=0\n" +
			"# waiting: ib0: ARP probes show which link-local address is free on ib0\n"},
		{name: "OK link-local, of the last run", unit: "[Network]\nLinkLocalAddressing=yes\n", sys: lastRun("169.254.7.9/16"),
			want: "sysctl -w net.ipv6.conf.ib0.addr_gen_mode=0\n"},
		{name: "OK link-local, another one is chosen", unit: "[Network]\nLinkLocalAddressing=yes\n", sys: func(s *Snapshot, r *Record) {
			lastRun("169.254.8.8/16")(s, r)
			linkLocal(Probe{State: ProbeFree})(s, r)
		}, want: "" +
			"ip address delete 169.254.8.8/16 dev ib0\n" +
			"sysctl -w net.ipv6.conf.ib0.addr_gen_mode=0\n" +
			"ip address add 169.254.7.9/16 broadcast 169.254.255.255 scope link metric 2048 dev ib0\n"},
		{name: "OK link-local no more", unit: "[Network]\nAddress=10.0.0.1/24\n", sys: func(s *Snapshot, r *Record) {
			lastRun("169.254.8.8/16")(s, r)
			linkLocal(Probe{State: ProbeFree})(s, r)
		}, want: "ip address delete 169.254.8.8/16 dev ib0\n" + add},
		{name: "bad link-local without ARP", unit: "[Network]\nLinkLocalAddressing=yes\n", sys: func(s *Snapshot, _ *Record) {
			s.Links[1].Flags |= FlagNoARP
		}, want: "" +
			"sysctl -w net.ipv6.conf.ib0.addr_gen_mode=0\n" +
			"# blocked: ib0: IPv4 link-local addresses need ARP, which is for InfiniBand and Ethernet links\n" +
			"#   next: write LinkLocalAddressing=ipv6\n"},
		{name: "OK IPv6 is the kernel's", unit: "[Network]\nAddress=fd00::1/64\nAddress=fd00::2/64\nDuplicateAddressDetection=ipv4\n", want: "" +
			"ip address add fd00::1/64 nodad dev ib0\nip address add fd00::2/64 nodad dev ib0\n"},
	})
}

// The list of links is shared between snapshots until a value differs.
func TestSetEach(t *testing.T) {
	old := host(t)
	field := func(l *Link) *string { return &l.Kind }
	same := func(a, b string) bool { return a == b }
	s := *old
	SetEach(&s, field, func(l *Link) string { return l.Kind }, same)
	if &s.Links[0] != &old.Links[0] {
		t.Error("a copy without a change")
	}
	was := old.Links[1].Kind
	SetEach(&s, field, func(l *Link) string {
		if l.Name == "ib0" {
			return "other"
		}
		return l.Kind
	}, same)
	if old.Links[1].Kind != was || s.Links[1].Kind != "other" || s.Links[0].Kind != old.Links[0].Kind {
		t.Errorf("%q, %q", old.Links[1].Kind, s.Links[1].Kind)
	}
}

// What only the daemon knows keeps a plan made elsewhere from removing what it gave.
func TestInform(t *testing.T) {
	s := host(t)
	lease := &DHCP{State: DHCPBound, Lease: &Lease{Address: prefix("10.11.0.100/24")}}
	probes := []Probe{{Address: netip.MustParseAddr("10.0.0.1"), State: ProbeFree}}
	r := Report{Links: []Status{{Ifindex: s.Links[1].Index, Name: "ib0", DHCP: lease, Probes: probes},
		{Ifindex: s.Links[2].Index, Name: "another", DHCP: lease}}}
	r.Inform(s)
	if s.Links[1].DHCP != lease || len(s.Links[1].Probes) != 1 || s.Links[2].DHCP != nil {
		t.Errorf("%+v", s.Links)
	}
}
