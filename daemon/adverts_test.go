package daemon

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
)

// What routers advertise holds for as long as they say, and changes once a second
// at most.
func TestAdverts(t *testing.T) {
	table := adverts{}
	server := func(lifetime uint32, s ...string) (a rtnl.Advert) {
		a = rtnl.Advert{Index: 4, Lifetime: lifetime}
		for _, x := range s {
			a.Servers = append(a.Servers, netip.MustParseAddr(x))
		}
		return a
	}
	check := func(now uint64, want string, next uint64) {
		t.Helper()
		a, again := table.of(4, now)
		var got []string
		if a != nil {
			for _, x := range append(a.Servers, a.Domains...) {
				got = append(got, fmt.Sprintf("%s/%d", x.Name, x.Until))
			}
		}
		if s := strings.Join(got, " "); s != want || again != next {
			t.Errorf("at %d: %q, again at %d; not %q, %d", now, s, again, want, next)
		}
	}
	add := func(now uint64, a rtnl.Advert, changed bool) {
		t.Helper()
		if got := table.add(now, a); got != changed {
			t.Errorf("at %d: %+v changes %v", now, a, got)
		}
	}
	check(100, "", 0)
	add(100, server(0, "fd00::1"), false)
	add(100, server(60, "fd00::1", "fd00::2"), true)
	check(100, "fd00::1/160 fd00::2/160", 160)
	add(100, server(60, "fd00::1"), false)
	add(100, server(rtnl.Forever, "fd00::2"), true)
	check(100, "fd00::1/160 fd00::2/160", 101) // not yet
	check(101, "fd00::1/160 fd00::2/0", 160)
	add(110, rtnl.Advert{Index: 4, Lifetime: 10, Domains: []string{"a.example"}}, true)
	check(110, "fd00::1/160 fd00::2/0 a.example/120", 120)
	check(120, "fd00::1/160 fd00::2/0", 160)
	add(130, server(0, "fd00::2"), true)
	check(130, "fd00::1/160", 160)
	check(160, "", 0)

	// A daemon that is started again has what has not ended meanwhile.
	table.restore(200, 4, link.Advertised{Servers: []link.Lasting{
		{Name: "fd00::1", Until: 200}, {Name: "fd00::2", Until: 201}, {Name: "fd00::3"}}})
	check(200, "fd00::2/201 fd00::3/0", 201)
}

// A router that advertises ever new servers and domains fills the list once.
func TestAdvertsAreBounded(t *testing.T) {
	table := adverts{}
	table.add(1, rtnl.Advert{Index: 4, Lifetime: 1000, Servers: []netip.Addr{netip.MustParseAddr("fd00::53")}})
	changes := 0
	for i := range 10000 {
		a := rtnl.Advert{Index: 4, Lifetime: 60, Servers: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("fd01::%x", i+1))},
			Domains: []string{fmt.Sprintf("d%d.example", i)}}
		if table.add(10+uint64(i)/1000, a) {
			changes++
		}
	}
	a, _ := table.of(4, 20)
	if len(a.Servers) != mostAdvertised || len(a.Domains) != mostAdvertised || a.Servers[0].Name != "fd00::53" || changes > 2*mostAdvertised {
		t.Errorf("%d servers, %d domains after %d changes; the first is %v", len(a.Servers), len(a.Domains), changes, a.Servers[0])
	}
}
