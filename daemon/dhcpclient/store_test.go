package dhcpclient

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// What is kept is read again; a file that is anything else is as none.
func TestStore(t *testing.T) {
	s := store{filepath.Join(t.TempDir(), "leases"), false}
	if got := s.load(); len(got) != 0 {
		t.Errorf("%+v of no directory", got)
	}
	x := saved{Link: "ib0", Ifindex: 4, ClientID: []byte{32, 1}, ByRouter: true,
		Lease: link.Lease{Address: netip.MustParsePrefix("10.11.0.100/24"),
			Server: netip.MustParseAddr("10.11.0.1"), Lifetime: 3600, Granted: 7, Renew: 8, Rebind: 9}}
	testkit.NoError(t, s.save(x))
	for name, text := range map[string]string{"ib1": "", "ib2": "{", "ib3": `{"link":"ib0"}`, "ib4": `{"link":"ib4","lease":{"address":"x"}}`,
		"ib5": `{"link":"ib5"}`, "ib6": strings.Repeat(" ", mostSaved+1)} {
		testkit.WriteFile(t, s.path(name), text)
	}
	testkit.NoError(t, os.Mkdir(s.path("ib7"), 0o755))
	if got := s.load(); !reflect.DeepEqual(got, map[string]saved{"ib0": x}) {
		t.Errorf("%+v", got)
	}
	if err := s.save(saved{Link: "../x"}); err == nil {
		t.Error("a name with a slash is a file")
	}
	for range 2 {
		if err := s.remove("ib0"); err != nil {
			t.Error(err)
		}
	}
}

// Leases of IPv6 need a server's DUID, and may be without an address.
func TestStore6(t *testing.T) {
	s := store{t.TempDir(), true}
	server := netip.MustParseAddr("fe80::1")
	whole := link.Lease{Address: netip.MustParsePrefix("fd00:11::100/128"), Server: server, ServerID: "0003", Lifetime: 3600}
	for name, change := range map[string]func(*link.Lease){
		"ib0": func(*link.Lease) {}, "ib1": func(l *link.Lease) { l.Address = netip.Prefix{} }, "bad0": func(l *link.Lease) { l.ServerID = "" },
		"bad1": func(l *link.Lease) { l.ServerID = "x" }, "bad2": func(l *link.Lease) { l.Address = netip.MustParsePrefix("10.0.0.1/24") },
		"bad3": func(l *link.Lease) { l.Server = netip.Addr{} },
	} {
		l := whole
		change(&l)
		testkit.NoError(t, s.save(saved{Link: name, Ifindex: 4, Lease: l}))
	}
	got := s.load()
	if len(got) != 2 || !reflect.DeepEqual(got["ib0"].Lease, whole) || got["ib1"].Lease.Address.IsValid() {
		t.Errorf("%+v", got)
	}
}

// A client that a router has begun for an address goes on whatever routers say next.
func TestStart6(t *testing.T) {
	u, problems := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nIPv6AcceptRA=yes\n"))
	if u == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	l := &link.Link{Name: "ib0", Type: link.ARPHRDInfiniBand}
	all := &Clients{}
	for i, c := range []struct {
		flags link.RouterFlags
		want  units.DHCPv6Start
	}{
		{link.RouterFlags{}, units.DHCPv6None},
		{link.RouterFlags{Other: true}, units.DHCPv6Information},
		{link.RouterFlags{}, units.DHCPv6Information},
		{link.RouterFlags{Managed: true}, units.DHCPv6Solicit},
		{link.RouterFlags{Other: true}, units.DHCPv6Solicit},
		{link.RouterFlags{}, units.DHCPv6Solicit},
	} {
		l.Router = c.flags
		got, byRouter := start6(l, u, all.began(l))
		if got != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
		if got != units.DHCPv6None {
			all.want = map[key]wanted{{l.Index, true}: wanted6(&link.Snapshot{}, l, u, identity{}, got, byRouter)}
		}
	}
	// One that the unit itself has begun ends with DHCP=.
	asks, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nIPv6AcceptRA=yes\nDHCP=ipv6\n"))
	l.Router = link.RouterFlags{}
	start, byRouter := start6(l, asks, units.DHCPv6None)
	own := &Clients{want: map[key]wanted{{l.Index, true}: wanted6(&link.Snapshot{}, l, asks, identity{}, start, byRouter)}}
	if got, _ := start6(l, u, own.began(l)); start != units.DHCPv6Solicit || got != units.DHCPv6None {
		t.Errorf("%s with DHCP=ipv6, then %s", start, got)
	}
	// So does one of before the daemon was started again, if the link is the same.
	address := netip.MustParsePrefix("fd00:11::100/128")
	for _, x := range []struct {
		index    int
		address  netip.Prefix
		lifetime uint32
		byRouter bool
		want     units.DHCPv6Start
	}{
		{0, address, link.Forever, true, units.DHCPv6Solicit}, {0, netip.Prefix{}, link.Forever, true, units.DHCPv6Information},
		{7, address, link.Forever, true, units.DHCPv6None}, {0, address, link.Forever, false, units.DHCPv6None},
		{0, address, 0, true, units.DHCPv6None},
	} {
		c := &Clients{saved: map[savedKey]saved{{"ib0", true}: {Ifindex: x.index, ByRouter: x.byRouter,
			Lease: link.Lease{Address: x.address, Lifetime: x.lifetime}}}}
		if got, _ := start6(l, u, c.began(l)); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
	}
}

// A lease that DHCP=ipv6 has brought is not used after a restart without it, though a router might
// bring another.
func TestForget(t *testing.T) {
	lease := link.Lease{Address: netip.MustParsePrefix("fd00:11::100/128"), Server: netip.MustParseAddr("fe80::1"), ServerID: "0003",
		Lifetime: link.Forever}
	for byRouter, want := range map[bool]bool{false: false, true: true} {
		u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nIPv6AcceptRA=yes\n"))
		s := &link.Snapshot{Links: []link.Link{{Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand}}}
		l, woken := &s.Links[0], 0
		c := New(slog.New(slog.DiscardHandler), t.TempDir(), "", func(links map[int]bool) { woken++ })
		c.saved[savedKey{"ib0", true}] = saved{Link: "ib0", Ifindex: 4, ByRouter: byRouter, Lease: lease}
		testkit.NoError(t, c.store(true).save(c.saved[savedKey{"ib0", true}]))
		if c.of(l, true) == nil {
			t.Error("the kept lease is not used before the loop has observed the units")
		}
		c.Update(daemon.View{Snapshot: s, Governing: link.Governing{Links: map[int]link.Governed{4: {Unit: u}}}})
		if got := c.of(l, true) != nil; got != want || (woken == 0) != want || len(c.want) != len(c.saved) {
			t.Errorf("by a router %t: lease %t, woken %d times, want %+v", byRouter, got, woken, c.want)
		}
		if !want {
			c.reconcile()
		}
		if got := len(c.store(true).load()) == 1; got != want {
			t.Errorf("by a router %t: file %t", byRouter, got)
		}
	}
}

// Without UseAddress= the name servers of a lease count over a restart, though its address is not set.
func TestInUse(t *testing.T) {
	l := &link.Link{Name: "ib0", Type: link.ARPHRDInfiniBand}
	lease := &link.Lease{Address: netip.MustParsePrefix("fd00:11::100/128")}
	for text, want := range map[string]bool{"": false, "[DHCPv6]\nUseAddress=yes\n": false, "[DHCPv6]\nUseAddress=no\n": true} {
		u, _ := units.VerifyFile("10-ib0.ibnetwork", []byte("[Match]\nName=ib0\n[Network]\nDHCP=ipv6\n"+text))
		w := wanted6(&link.Snapshot{}, l, u, identity{}, units.DHCPv6Solicit, false)
		if w.inUse(lease) != want {
			t.Errorf("%q: %t", text, !want)
		}
		if w.addrs = []link.Address{{Prefix: lease.Address}}; !w.inUse(lease) {
			t.Errorf("%q: not in use with its address set", text)
		}
	}
}

// The source of DHCPv6 is a link-local address that no other host has.
func TestLinkLocal(t *testing.T) {
	address := func(s string, flags uint32) link.Address {
		return link.Address{Prefix: netip.MustParsePrefix(s), Flags: flags}
	}
	addrs := []link.Address{address("169.254.1.1/16", 0), address("fd00::1/64", link.AddrDADFailed), address("fe80::1/64", link.AddrTentative)}
	if got := linkLocal(addrs); got.IsValid() {
		t.Errorf("%s", got)
	}
	if got := failed(addrs); len(got) != 1 || got[0] != netip.MustParseAddr("fd00::1") {
		t.Errorf("%s", got)
	}
	if got := linkLocal(append(addrs, address("fe80::2/64", link.AddrPermanent))); got != netip.MustParseAddr("fe80::2") {
		t.Errorf("%s", got)
	}
}

func TestHostname(t *testing.T) {
	for name, want := range map[string]string{"node17": "node17", "node17.example": "node17.example",
		"localhost": "", "localhost.localdomain": "",
		"(none)": "", "": "", "a..b": "", strings.Repeat("a", 64): ""} {
		if got := hostname(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}
