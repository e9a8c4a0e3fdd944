package rtnl

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/testkit"
)

func dial(t testing.TB) *Conn {
	t.Helper()
	kerneltest.Isolate(t)
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// veth is a request for a pair of links.
func veth(a, b string) Request {
	return encode("add veth "+a, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, &rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
		Name: a,
		Info: &rtnetlink.LinkInfo{Kind: "veth",
			Data: &driver.Veth{PeerInfo: &rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{Name: b}}}},
	}}, nil)
}

func do(t testing.TB, c *Conn, rs ...Request) {
	t.Helper()
	for i, err := range c.DoAll(rs) {
		if err != nil {
			t.Fatalf("%s: %v", rs[i].What, err)
		}
	}
}

func pair(t testing.TB, c *Conn) (a, b Link) {
	t.Helper()
	if err := c.Do(veth("va", "vb")); err != nil {
		t.Skipf("the kernel has no veth: %v", err)
	}
	a, err := c.LinkByName("va", false)
	if err != nil {
		t.Fatal(err)
	}
	b, err = c.LinkByName("vb", false)
	if err != nil {
		t.Fatal(err)
	}
	do(t, c, SetLink(a.Index, LinkChange{Up: new(true)}), SetLink(b.Index, LinkChange{Up: new(true)}))
	return a, b
}

// altName changes a link's alternative names.
func altName(typ uint16, flags netlink.HeaderFlags, index int, name string) Request {
	return encode("change alternative names", typ, flags, &rtnetlink.LinkMessage{Index: uint32(index)}, func(w *nl.Builder) {
		w.Nest(unix.IFLA_PROP_LIST|nl.Nested, func(w *nl.Builder) { w.String(unix.IFLA_ALT_IFNAME, name) })
	})
}

func TestLinkChanges(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	addr, _ := ib.ParseHWAddr("02:00:00:00:00:07")
	for _, tt := range []struct {
		name   string
		change LinkChange
		check  func(Link) bool
	}{
		{"OK MTU", LinkChange{MTU: 1400}, func(l Link) bool { return l.MTU == 1400 }},
		{"OK address", LinkChange{Address: addr}, func(l Link) bool { return l.Address == addr }},
		{"OK allmulti", LinkChange{AllMulti: new(true)}, func(l Link) bool { return l.Flags&unix.IFF_ALLMULTI != 0 }},
		{"OK allmulti off", LinkChange{AllMulti: new(false)}, func(l Link) bool { return l.Flags&unix.IFF_ALLMULTI == 0 }},
		{"OK multicast off", LinkChange{Multicast: new(false)}, func(l Link) bool { return l.Flags&unix.IFF_MULTICAST == 0 }},
		{"OK promisc", LinkChange{Promisc: new(true)}, func(l Link) bool { return l.Flags&unix.IFF_PROMISC != 0 }},
		{"OK ARP off", LinkChange{ARP: new(false)}, func(l Link) bool { return l.Flags&unix.IFF_NOARP != 0 }},
		{"OK down", LinkChange{Up: new(false)}, func(l Link) bool { return !l.Up() && !l.Carrier }},
		{"OK up", LinkChange{Up: new(true)}, func(l Link) bool { return l.Up() }},
	} {

		if err := c.Do(SetLink(a.Index, tt.change)); err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		l, err := c.LinkByIndex(a.Index, false)
		if err != nil {
			t.Fatal(err)
		}
		if !tt.check(l) {
			t.Errorf("%s: not as asked for: %+v", tt.name, l)
		}
	}

	long := strings.Repeat("long-", 12)
	addAlt := func(name string) Request {
		return altName(unix.RTM_NEWLINKPROP, netlink.Create|netlink.Excl|netlink.Append, a.Index, name)
	}
	do(t, c, addAlt("alt0"), addAlt(long))
	l, err := c.LinkByName(long, false)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Diff(t, "alternative names", []string{"alt0", long}, l.AltNames)
	do(t, c, altName(unix.RTM_DELLINKPROP, 0, a.Index, "alt0"))
	do(t, c, DelLink(a.Index))
	if _, err := c.LinkByIndex(a.Index, false); !errors.Is(err, unix.ENODEV) {
		t.Errorf("after delete: %v, want ENODEV", err)
	}
}

func TestRefusalsKeepTheKernelsWords(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	err := c.Do(SetLink(a.Index, LinkChange{MTU: 1 << 20}))
	if !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "mtu greater than device maximum") {
		t.Errorf("MTU of 1 MiB: %v; want EINVAL and the extended acknowledgement", err)
	}
	// A refusal in the middle of a pipeline is its own only.
	addr := Address{Index: a.Index, Prefix: netip.MustParsePrefix("10.9.0.1/24")}
	errs := c.DoAll([]Request{AddAddress(addr), AddAddress(addr),
		AddAddress(Address{Index: a.Index, Prefix: netip.MustParsePrefix("10.9.0.2/24")}), AddAddress(Address{})})
	if errs[0] != nil || !errors.Is(errs[1], unix.EEXIST) || errs[2] != nil || errs[3] == nil {
		t.Errorf("got %v; want only the second and the last refused", errs)
	}
}

func TestAddresses(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	do(t, c, SetLink(a.Index, LinkChange{Up: new(false)}))
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+a.Name+"/addr_gen_mode", []byte("1"), 0); err != nil { // none
		t.Fatal(err)
	}
	do(t, c, SetLink(a.Index, LinkChange{Up: new(true)}))
	want := []Address{
		{Index: a.Index, Prefix: netip.MustParsePrefix("192.168.151.1/24"), Broadcast: netip.MustParseAddr("192.168.151.255"),
			Label: "va:x", Valid: Forever, Preferred: Forever, Flags: unix.IFA_F_PERMANENT, Protocol: 66},
		{Index: a.Index, Prefix: netip.MustParsePrefix("10.0.0.1/32"), Peer: netip.MustParseAddr("10.0.0.2"), Label: "va",
			Scope: unix.RT_SCOPE_LINK, Valid: Forever, Preferred: Forever, Flags: unix.IFA_F_PERMANENT, Metric: 77},
		{Index: a.Index, Prefix: netip.MustParsePrefix("fd00::1/64"), Valid: 5000, Preferred: 3000,
			Flags: unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE},
		{Index: a.Index, Prefix: netip.MustParsePrefix("fd01::1/128"), Peer: netip.MustParseAddr("fd01::2"), Valid: Forever, Preferred: 0,
			Flags: unix.IFA_F_NODAD | unix.IFA_F_PERMANENT | unix.IFA_F_DEPRECATED},
	}
	for _, w := range want {
		do(t, c, AddAddress(w))
	}
	read := func() []Address {
		all, err := c.Addresses()
		if err != nil {
			t.Fatal(err)
		}
		var got []Address
		for _, g := range all {
			if g.Index == a.Index {
				g.Flags &^= unix.IFA_F_TENTATIVE
				if g.Prefix.Addr().IsLinkLocalUnicast() {
					continue
				}
				got = append(got, g)
			}
		}
		return got
	}
	byAddr := cmp.Transformer("byAddr", func(as []Address) map[string]Address {
		m := map[string]Address{}
		for _, a := range as {
			m[a.Prefix.String()] = a
		}
		return m
	})
	opts := []cmp.Option{byAddr, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
	testkit.Diff(t, "addresses", want, read(), opts...)
	want[2].Valid, want[2].Preferred = 9000, 8000
	do(t, c, ReplaceAddress(want[2]))
	testkit.Diff(t, "after replace", want, read(), opts...)
	for _, w := range want {
		do(t, c, DelAddress(w))
	}
	if got := read(); len(got) != 0 {
		t.Errorf("left over: %+v", got)
	}
	if err := c.Do(DelAddress(want[0])); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("second delete: %v, want EADDRNOTAVAIL", err)
	}
}

func TestRoutes(t *testing.T) {
	c := dial(t)
	a, b := pair(t, c)
	do(t, c,
		AddAddress(Address{Index: a.Index, Prefix: netip.MustParsePrefix("192.168.7.1/24")}),
		AddAddress(Address{Index: b.Index, Prefix: netip.MustParsePrefix("192.168.8.1/24")}),
		AddAddress(Address{Index: a.Index, Prefix: netip.MustParsePrefix("fd07::1/64"), Flags: unix.IFA_F_NODAD}),
	)
	const table = 1000 // above 255: the attribute, not the header
	want := []Route{
		{Dst: netip.MustParsePrefix("10.1.0.0/16"), Gateway: netip.MustParseAddr("192.168.7.2"), OutIf: a.Index, Metric: 512,
			Proto: unix.RTPROT_STATIC, PrefSrc: netip.MustParseAddr("192.168.7.1"), TOS: 0x10,
			Metrics: Metrics{MTU: 1300, MTULocked: true, AdvMSS: 1200, InitCwnd: 20, InitRwnd: 30, RTOMin: 50, QuickAck: true,
				FastOpenNoCookie: true, HopLimit: 9, CongestionControl: "reno"}},
		{Family: unix.AF_INET, Gateway: netip.MustParseAddr("10.99.0.1"), OutIf: a.Index, Metric: 7, Proto: unix.RTPROT_STATIC,
			Flags: unix.RTNH_F_ONLINK},
		{Dst: netip.MustParsePrefix("10.2.0.0/16"), OutIf: a.Index, Scope: unix.RT_SCOPE_LINK, Proto: unix.RTPROT_BOOT},
		{Dst: netip.MustParsePrefix("10.3.0.0/16"), Type: unix.RTN_UNREACHABLE, Metric: 9, Proto: unix.RTPROT_STATIC},
		{Dst: netip.MustParsePrefix("10.4.0.0/16"), Gateway: netip.MustParseAddr("fd07::2"), OutIf: a.Index, Proto: unix.RTPROT_STATIC},
		{Dst: netip.MustParsePrefix("10.5.0.0/16"), Proto: unix.RTPROT_STATIC, NextHops: []NextHop{
			{OutIf: a.Index, Gateway: netip.MustParseAddr("192.168.7.9"), Weight: 1},
			{OutIf: b.Index, Gateway: netip.MustParseAddr("192.168.8.9"), Weight: 200},
		}},
		{Dst: netip.MustParsePrefix("fd08::/64"), Gateway: netip.MustParseAddr("fd07::2"), OutIf: a.Index, Metric: 300,
			Proto: unix.RTPROT_STATIC, Pref: 1, Metrics: Metrics{MTU: 1280}},
		{Dst: netip.MustParsePrefix("fd09::/64"), OutIf: a.Index, Metric: 1024, Proto: unix.RTPROT_STATIC, Expires: 600},
	}
	for i := range want {
		want[i].Table = table
		do(t, c, AddRoute(want[i]))
		if want[i].Family == 0 {
			want[i].Family = family(want[i].Dst.Addr())
		}
		if want[i].Type == 0 {
			want[i].Type = unix.RTN_UNICAST
		}
	}
	read := func() map[string]Route {
		all, err := c.Routes()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]Route{}
		for _, g := range all {
			if g.Table == table {
				got[g.Dst.String()] = g
			}
		}
		return got
	}
	got := read()
	for _, w := range want {
		if w.Dst.String() == "fd09::/64" { // the clock may have ticked
			g := got[w.Dst.String()]
			if g.Expires < 590 || g.Expires > 600 {
				t.Errorf("expires in %d s, want 600", g.Expires)
			}
			g.Expires = 600
			got[w.Dst.String()] = g
		}
		if diff := cmp.Diff(w, got[w.Dst.String()], cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
			cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", w.Dst, diff)
		}
	}
	want[0].Gateway = netip.MustParseAddr("192.168.7.3")
	do(t, c, ReplaceRoute(want[0]))
	if g := read()["10.1.0.0/16"].Gateway; g != want[0].Gateway {
		t.Errorf("gateway after replace: %s", g)
	}
	for _, w := range want {
		do(t, c, DelRoute(w))
	}
	if left := read(); len(left) != 0 {
		t.Errorf("left over: %+v", left)
	}
}

func TestRules(t *testing.T) {
	c := dial(t)
	want := []Rule{
		{Family: unix.AF_INET, Priority: 100, HasPriority: true, From: netip.MustParsePrefix("10.0.0.0/8"), Table: 500, Action: frActToTable},
		{Family: unix.AF_INET, Priority: 101, HasPriority: true, To: netip.MustParsePrefix("10.1.0.0/16"), Table: 7, Action: frActToTable,
			Invert: true, IIF: "ib0", OIF: "ib1", TOS: 0x10},
		{Family: unix.AF_INET6, Priority: 102, HasPriority: true, From: netip.MustParsePrefix("fd00::/8"), Table: 500,
			Action: frActToTable, FwMark: 5, FwMask: 0xff},
		{Family: unix.AF_INET, Priority: 103, HasPriority: true, Table: 254, Action: frActToTable, SuppressPrefixLen: Optional{0, true}},
		{Family: unix.AF_INET, Priority: 104, HasPriority: true, Action: 8, IPProto: unix.IPPROTO_TCP, SPort: PortRange{1000, 2000},
			DPort: PortRange{22, 22}},
		{Family: unix.AF_INET, Priority: 105, HasPriority: true, Table: 9, Action: frActToTable, UID: UIDRange{0, 100000, true}},
		{Family: unix.AF_INET, Priority: 106, HasPriority: true, Action: 2, Goto: 32766},
	}
	for i := range want {
		want[i].Proto = unix.RTPROT_STATIC
		do(t, c, AddRule(want[i]))
	}
	all, err := c.Rules()
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint32]Rule{}
	for _, r := range all {
		got[r.Priority] = r
	}
	for _, w := range want {
		g := got[w.Priority]
		if diff := cmp.Diff(w, g, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Errorf("rule %d (-want +got):\n%s", w.Priority, diff)
		}
		do(t, c, DelRule(w))
	}
}

// TestVLAN needs the 8021q module.
func TestVLAN(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	if err := c.Do(NewVLAN(VLANSpec{Parent: a.Index, Name: "va.7", ID: 7, GVRP: new(false), Egress: []QoSMap{{3, 3}}})); errors.Is(err,
		unix.EOPNOTSUPP) {
		t.Skipf("the kernel has no VLANs: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	l, err := c.LinkByName("va.7", false)
	if err != nil {
		t.Fatal(err)
	}
	if l.VLAN == nil || l.VLAN.ID != 7 || l.Parent != a.Index {
		t.Errorf("got %+v", l)
	}
	if err := c.Do(NewVLAN(VLANSpec{Parent: a.Index, Name: "x", ID: 4095})); err == nil {
		t.Error("VLAN 4095 was sent")
	}
}

// TestMACVLAN needs the macvlan and ipvlan modules; both kinds refuse a link that has the other.
func TestMACVLAN(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	addr, _ := ib.ParseHWAddr("02:00:00:00:00:07")
	mode := func(n uint16) *uint16 { return &n }
	m := VLANSpec{Parent: a.Index, Name: "m7", Kind: "macvlan", Address: addr, Mode: mode(4)}
	i := VLANSpec{Parent: a.Index, Name: "i7", Kind: "ipvlan", Mode: mode(0), Flags: mode(1)}
	for _, v := range []VLANSpec{m, i} {
		if err := c.Do(NewVLAN(v)); errors.Is(err, unix.EOPNOTSUPP) {
			t.Skipf("the kernel has no %ss: %v", v.Kind, err)
		} else if err != nil {
			t.Fatal(err)
		}
		is := func(want VLAN) Link {
			t.Helper()
			l, err := c.LinkByName(v.Name, false)
			if err != nil || l.Kind != v.Kind || l.Parent != a.Index || l.VLAN == nil || !cmp.Equal(*l.VLAN, want) {
				t.Fatalf("%+v, %v, want %+v", l, err, want)
			}
			return l
		}
		if v.Kind == "macvlan" {
			if l := is(VLAN{Mode: 4}); l.Address != addr {
				t.Errorf("its address is %s", l.Address)
			}
			if err := c.Do(NewVLAN(i)); !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EOPNOTSUPP) {
				t.Errorf("an ipvlan beside a macvlan: %v", err)
			}
			v.Mode = mode(1)
		} else {
			is(VLAN{Flags: 1})
			v.Mode, v.Flags = mode(1), mode(2)
		}
		l, _ := c.LinkByName(v.Name, false)
		do(t, c, SetVLAN(l.Index, v))
		if v.Kind == "macvlan" {
			is(VLAN{Mode: 1})
		} else {
			is(VLAN{Mode: 1, Flags: 2})
		}
		do(t, c, DelLink(l.Index))
	}
}

func listen(t *testing.T, buffer int) *Events {
	t.Helper()
	ev, err := Listen(buffer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ev.Close() })
	return ev
}

func wait(t *testing.T, ev *Events, ok func(all []Event, lost bool) bool) {
	t.Helper()
	if err := kerneltest.Until(ev, ok); err != nil {
		t.Fatal(err)
	}
}

func TestEvents(t *testing.T) {
	c := dial(t)
	a, b := pair(t, c)
	ev := listen(t, 0)
	do(t, c, SetLink(a.Index, LinkChange{MTU: 1300}),
		AddAddress(Address{Index: a.Index, Prefix: netip.MustParsePrefix("10.0.0.1/24")}),
		AddRule(Rule{Family: unix.AF_INET, Priority: 5, HasPriority: true, Table: 9}),
		DelAddress(Address{Index: a.Index, Prefix: netip.MustParsePrefix("10.0.0.1/24")}),
		SetLink(b.Index, LinkChange{Up: new(false)}),
		DelLink(a.Index))
	wait(t, ev, func(all []Event, lost bool) bool {
		if lost {
			t.Fatal("overrun with a large buffer")
		}
		for _, w := range []Event{
			{Type: LinkChanged, Index: a.Index, Carrier: true}, {Type: LinkChanged, Index: a.Index}, {Type: AddressChanged},
			{Type: AddressGone, Index: a.Index},
			{Type: RouteChanged}, {Type: RuleChanged}, {Type: LinkGone, Index: a.Index},
		} {
			if !slices.Contains(all, w) {
				return false
			}
		}
		return true
	})
}

// TestOverrun provokes ENOBUFS: the socket is not read while notifications arrive.
func TestOverrun(t *testing.T) {
	c := dial(t)
	a, _ := pair(t, c)
	ev := listen(t, 1)
	var rs []Request
	for i := range 256 {
		rs = append(rs, SetLink(a.Index, LinkChange{MTU: 1200 + i}))
	}
	do(t, c, rs...)
	wait(t, ev, func(_ []Event, lost bool) bool { return lost })
	// It goes on after an overrun.
	do(t, c, DelLink(a.Index))
	wait(t, ev, func(all []Event, lost bool) bool {
		return slices.Contains(all, Event{Type: LinkGone, Index: a.Index}) || lost
	})
}

func manyLinks(b testing.TB, n int) *Conn {
	c := dial(b)
	var rs []Request
	for i := range n / 2 {
		rs = append(rs, veth(fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)))
	}
	for _, err := range c.DoAll(rs) {
		if err != nil {
			b.Skipf("no veth: %v", err)
		}
	}
	ls, err := c.Links(false)
	if err != nil {
		b.Fatal(err)
	}
	rs = rs[:0]
	for i, l := range ls {
		rs = append(rs, SetLink(l.Index, LinkChange{Up: new(true)}),
			AddAddress(Address{Index: l.Index, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), 24)}))
	}
	do(b, c, rs...)
	return c
}

// BenchmarkObserve reads everything of 900 links that have an IPv4 and an IPv6
// address each.
func BenchmarkObserve(b *testing.B) {
	c := manyLinks(b, 900)
	b.ReportAllocs()
	b.ResetTimer()
	var links, addrs, routes int
	for range b.N {
		ls, err := c.Links(false)
		if err != nil {
			b.Fatal(err)
		}
		as, err := c.Addresses()
		if err != nil {
			b.Fatal(err)
		}
		rs, err := c.Routes()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Rules(); err != nil {
			b.Fatal(err)
		}
		links, addrs, routes = len(ls), len(as), len(rs)
	}
	b.ReportMetric(float64(links), "links")
	b.ReportMetric(float64(addrs), "addresses")
	b.ReportMetric(float64(routes), "routes")
}

func BenchmarkLinks(b *testing.B) {
	c := manyLinks(b, 900)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := c.Links(false); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLibraryLinks is the same dump through the rtnetlink library, for
// comparison.
func BenchmarkLibraryLinks(b *testing.B) {
	manyLinks(b, 900)
	c, err := rtnetlink.Dial(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if _, err := c.Link.List(); err != nil {
			b.Fatal(err)
		}
	}
}
