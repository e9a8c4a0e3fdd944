package link

import (
	"net/netip"
	"testing"
)

func TestTokens(t *testing.T) {
	const (
		ra  = "[Network]\nIPv6AcceptRA=yes\n"
		one = ra + "[IPv6AcceptRA]\nToken=::1\n"
	)
	at := func(token string, made bool, sysctl ...string) func(*Snapshot, *Record) {
		return func(s *Snapshot, r *Record) {
			l := &s.Links[1]
			l.Token = netip.MustParseAddr(token)
			l.Sysctl = map[string]string{acceptRA: "2"}
			for i := 0; i+1 < len(sysctl); i += 2 {
				l.Sysctl[sysctl[i]] = sysctl[i+1]
			}
			if made {
				r.Links = []*LinkRecord{{Ifindex: 4, Name: "ib0", Activated: true, Tokens: []netip.Addr{l.Token}}}
			}
		}
	}
	off := func(f func(*Snapshot)) func(*Snapshot, *Record) {
		return func(s *Snapshot, r *Record) {
			s.Links[1].Sysctl = map[string]string{acceptRA: "2"}
			f(s)
		}
	}
	testPlans(t, []planCase{
		{name: "OK after accept_ra and before the link comes up", unit: one, sys: down,
			want: "sysctl -w net.ipv6.conf.ib0.accept_ra=2\nip token set ::1 dev ib0\nip link set ib0 up\n"},
		{name: "OK it is set", unit: one, sys: at("::1", false)},
		{name: "OK another value", unit: one, sys: at("::2", false), want: "ip token set ::1 dev ib0\n"},
		{name: "OK eui64 removes another program's", unit: ra + "[IPv6AcceptRA]\nToken=eui64\n", sys: at("::2", false),
			want: "ip token set :: dev ib0\n"},
		{name: "OK eui64 without one", unit: ra + "[IPv6AcceptRA]\nToken=eui64\n", sys: off(func(*Snapshot) {})},
		{name: "OK another program's stays without Token=", unit: ra, sys: at("::2", false)},
		{name: "OK Token= went", unit: ra, sys: at("::1", true), want: "ip token set :: dev ib0\n"},
		{name: "OK router advertisements are not accepted any more", unit: "[Network]\nIPv6AcceptRA=no\n[IPv6AcceptRA]\nToken=::1\n",
			sys: at("::1", true), want: "ip token set :: dev ib0\nsysctl -w net.ipv6.conf.ib0.accept_ra=0\n"},
		{name: "OK the unit went", sys: at("::1", true), want: "ip token set :: dev ib0\n"},
		{name: "OK removed when the kernel takes it", sys: at("::1", true, acceptRA, "0")},
		{name: "OK changed by another program since", sys: func(s *Snapshot, r *Record) {
			at("::1", true)(s, r)
			s.Links[1].Token = netip.MustParseAddr("::3")
		}},
		{name: "OK no token without IPv6AcceptRA=", unit: "[IPv6AcceptRA]\nToken=::1\n"},
		{name: "OK ARP comes back first", unit: "[Link]\nARP=yes\n" + one, sys: off(func(s *Snapshot) { s.Links[1].Flags |= FlagNoARP }),
			want: "ip link set ib0 arp on\nip token set ::1 dev ib0\n"},
		{name: "bad without ARP", unit: one, sys: off(func(s *Snapshot) { s.Links[1].Flags |= FlagNoARP }), want: "" +
			"# blocked: ib0: a token needs neighbour discovery, which is off on ib0\n" +
			"#   then: ip token set ::1 dev ib0\n#   next: ip link set ib0 arp on, or write ARP=yes in [Link]\n"},
		{name: "bad a small MTU", unit: one, sys: off(func(s *Snapshot) { s.Links[1].MTU = 1000 }), want: "" +
			"# blocked: ib0: IPv6 needs an MTU of 1280, ib0 has 1000\n#   next: raise MTUBytes=\n" +
			"# blocked: ib0: IPv6 needs an MTU of 1280, ib0 has 1000\n" +
			"#   then: ip token set ::1 dev ib0\n#   next: raise MTUBytes=\n"},
		{name: "bad a kernel without IPv6", unit: one, sys: off(func(s *Snapshot) { s.Host.NoIPv6 = true }), want: "" +
			"# blocked: ib0: this kernel has no IPv6\n# blocked: ib0: this kernel has no IPv6\n#   then: ip token set ::1 dev ib0\n"},
	})
}

// The kernel drops a token with the link's IPv6 part, and refuses one where it has no use for it.
func TestTokenModel(t *testing.T) {
	on, one := Target{Link: "ib0", Ifindex: 4}, netip.MustParseAddr("::1")
	set := SetToken{On: on, Token: one}
	for _, tt := range []struct {
		name string
		sys  func(l *Link)
		want error
	}{
		{"OK", func(*Link) {}, nil},
		{"OK advertisements of a host that does not forward", func(l *Link) { l.Sysctl[acceptRA], l.Sysctl[forwarding6] = "1", "0" }, nil},
		{"bad a host that forwards", func(l *Link) { l.Sysctl[acceptRA], l.Sysctl[forwarding6] = "1", "1" }, errInvalid},
		{"bad no advertisements", func(l *Link) { l.Sysctl[acceptRA] = "0" }, errInvalid},
		{"bad no ARP", func(l *Link) { l.Flags |= FlagNoARP }, errInvalid},
		{"bad loopback", func(l *Link) { l.Type = ARPHRDLoopback }, errInvalid},
		{"bad a small MTU", func(l *Link) { l.MTU = 1279 }, errNoFamily},
	} {
		s := host(t)
		l := &s.Links[1]
		l.Sysctl = map[string]string{}
		tt.sys(l)
		if err := NewModel(s).Apply(set); err != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	m := NewModel(host(t))
	for _, op := range []Op{set, SetMTU{On: on, MTU: 1000}} {
		if err := m.Apply(op); err != nil {
			t.Fatal(err)
		}
	}
	if l, _ := m.Snapshot().LinkByName("ib0"); l.Token.IsValid() {
		t.Errorf("the token %s outlives the link's IPv6 part", l.Token)
	}
}

// A token that could not be replaced stays ours.
func TestTokenRecord(t *testing.T) {
	s := host(t)
	on, one, two := TargetOf(&s.Links[1]), netip.MustParseAddr("::1"), netip.MustParseAddr("::2")
	r := &Record{}
	r.Intend(SetToken{On: on, Token: one})
	r.Done(SetToken{On: on, Token: one})
	s.Links[1].Token = one
	r.Intend(SetToken{On: on, Token: two})
	r.Failed(SetToken{On: on, Token: two})
	if r.Reconcile(s); !r.Owns(&s.Links[1]) {
		t.Error("a failed replacement loses the token")
	}
	r.Intend(SetToken{On: on, Token: two})
	r.Done(SetToken{On: on, Token: two})
	s.Links[1].Token = two
	if r.Reconcile(s) || !r.Owns(&s.Links[1]) {
		t.Errorf("%+v", r.Links[0])
	}
	s.Links[1].Token = netip.MustParseAddr("::3")
	if !r.Reconcile(s) || r.Owns(&s.Links[1]) {
		t.Error("another program's token is ours")
	}
}
