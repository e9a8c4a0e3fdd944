package rtnl

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

func TestNextHopBytes(t *testing.T) {
	gw := netip.MustParseAddr("10.0.0.254")
	for name, tt := range map[string]struct {
		r    Request
		typ  uint16
		fl   netlink.HeaderFlags
		head [8]byte
		want func(w *nl.Builder)
	}{
		"OK ip nexthop add via": {
			AddNextHop(NextHopObject{ID: 7, Family: unix.AF_INET, Proto: 4, Flags: unix.RTNH_F_ONLINK, OutIf: 3, Gateway: gw}),
			unix.RTM_NEWNEXTHOP, netlink.Create | netlink.Excl, [8]byte{unix.AF_INET, 0, 4, 0, unix.RTNH_F_ONLINK}, func(w *nl.Builder) {
				w.Uint32(unix.NHA_ID, 7).Uint32(unix.NHA_OIF, 3).Raw(unix.NHA_GATEWAY, gw.AsSlice())
			}},
		"OK ip nexthop replace group": {
			ReplaceNextHop(NextHopObject{ID: 9, Family: unix.AF_INET, Proto: 4, Group: []GroupMember{{7, 1}, {8, 5}}}),
			unix.RTM_NEWNEXTHOP, netlink.Create | netlink.Replace, [8]byte{0, 0, 4}, func(w *nl.Builder) {
				w.Uint32(unix.NHA_ID, 9).Raw(unix.NHA_GROUP, []byte{7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0, 0, 0})
			}},
		"OK ip nexthop add blackhole": {AddNextHop(NextHopObject{ID: 7, Family: unix.AF_INET6, Proto: 4, Blackhole: true}),
			unix.RTM_NEWNEXTHOP, netlink.Create | netlink.Excl, [8]byte{unix.AF_INET6, 0, 4}, func(w *nl.Builder) {
				w.Uint32(unix.NHA_ID, 7).Flag(unix.NHA_BLACKHOLE)
			}},
		"OK ip nexthop delete": {DelNextHop(7), unix.RTM_DELNEXTHOP, 0, [8]byte{}, func(w *nl.Builder) { w.Uint32(unix.NHA_ID, 7) }},
	} {
		if tt.r.Err != nil || tt.r.Type != tt.typ || tt.r.Flags != tt.fl {
			t.Errorf("%s: type %d flags %#x error %v", name, tt.r.Type, tt.r.Flags, tt.r.Err)
		}
		if diff := cmp.Diff(build(t, sizeNhMsg, func(h []byte) { copy(h, tt.head[:]) }, tt.want), tt.r.Data); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if r := AddNextHop(NextHopObject{Family: unix.AF_INET, OutIf: 3}); r.Err == nil {
		t.Error("a nexthop without an ID is sent, to which the kernel would give one")
	}
}

// What the kernel has is what was asked; it removes a nexthop, its routes and its place
// in groups with the link.
func TestNextHops(t *testing.T) {
	c := dial(t)
	a, b := pair(t, c)
	if _, err := c.NextHopObjects([]uint32{7}); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("the kernel has no nexthop objects")
	}
	hops := []NextHopObject{
		{ID: 7, Family: unix.AF_INET, Proto: 4, OutIf: a.Index, Gateway: netip.MustParseAddr("10.0.0.254")},
		{ID: 8, Family: unix.AF_INET, Proto: 4, Flags: unix.RTNH_F_ONLINK, OutIf: b.Index, Gateway: netip.MustParseAddr("10.7.0.254")},
		{ID: 9, Proto: 4, Group: []GroupMember{{7, 1}, {8, 255}}},
		{ID: 10, Family: unix.AF_INET6, Proto: 4, Blackhole: true},
		{ID: 11, Family: unix.AF_INET6, Proto: 4, OutIf: a.Index},
	}
	route := Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), NextHopID: 9, Proto: 4}
	do(t, c, SetLink(1, LinkChange{Up: new(true)}), AddAddress(Address{Index: a.Index, Prefix: netip.MustParsePrefix("10.0.0.1/24")}),
		AddNextHop(hops[0]), AddNextHop(hops[1]), AddNextHop(hops[2]), AddNextHop(hops[3]), AddNextHop(hops[4]), AddRoute(route))
	got, err := c.NextHopObjects([]uint32{6, 7, 8, 9, 10, 11, 99})
	if diff := cmp.Diff(hops, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := c.Do(AddNextHop(hops[3])); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a second one with the same ID: %v", err)
	}
	routes, err := c.Routes()
	over := 0
	for _, r := range routes {
		if r.NextHopID == 9 {
			over = len(r.NextHops)
		}
	}
	if err != nil || over != 2 {
		t.Errorf("%v, the route leads over %d links: %+v", err, over, routes)
	}
	do(t, c, SetLink(a.Index, LinkChange{Up: new(false)}))
	got, err = c.NextHopObjects([]uint32{11, 10, 9, 8, 7})
	if err != nil || slices.ContainsFunc(got, func(n NextHopObject) bool {
		return n.OutIf == a.Index || slices.Contains(n.Group, GroupMember{7, 1})
	}) || !slices.ContainsFunc(got, func(n NextHopObject) bool { return n.Blackhole }) {
		t.Errorf("after the link went down: %+v, %v", got, err)
	}
	ev := listen(t, 0)
	do(t, c, DelNextHop(10))
	wait(t, ev, func(all []Event, _ bool) bool { return slices.Contains(all, Event{Type: RouteChanged}) })
	if err := c.Do(DelNextHop(10)); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a second removal: %v", err)
	}
}

func FuzzDecodeNextHop(f *testing.F) {
	f.Add(AddNextHop(NextHopObject{ID: 7, Family: unix.AF_INET, OutIf: 3, Gateway: netip.MustParseAddr("10.0.0.254")}).Data)
	f.Add(AddNextHop(NextHopObject{ID: 9, Group: []GroupMember{{7, 1}, {8, 5}}}).Data)
	f.Add(AddNextHop(NextHopObject{ID: 7, Family: unix.AF_INET6, Blackhole: true}).Data)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeNextHop(b)
		if err != nil || n.ID == 0 {
			return
		}
		if len(n.Group) > maxNextHops {
			t.Fatalf("%d members", len(n.Group))
		}
		for _, m := range n.Group {
			if m.Weight > 255 {
				return // Linux 6.13 has greater ones than can be asked for
			}
		}
		// What was understood can be asked for again.
		again, err := decodeNextHop(AddNextHop(n).Data)
		if err != nil || again.ID != n.ID || again.Blackhole != (n.Blackhole && len(n.Group) == 0) || len(again.Group) != len(n.Group) {
			t.Errorf("%+v becomes %+v, %v", n, again, err)
		}
	})
}
