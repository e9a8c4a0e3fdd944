package daemon

import (
	"os/exec"
	"strings"
	"testing"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Only what units and the record name is read, with the members of groups: a router has
// many others.
func TestObserveNextHops(t *testing.T) {
	kerneltest.Isolate(t)
	ip := func(c string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			t.Skipf("ip %s: %s %v", c, out, err)
		}
	}
	for _, c := range []string{"link set lo up", "link add va type veth peer name vb", "link set va up", "link set vb up",
		"address add 10.0.0.1/24 dev va", "nexthop add id 7 via 10.0.0.254 dev va", "nexthop add id 8 blackhole proto bird",
		"-6 nexthop add id 9 dev va", "nexthop add id 20 group 7,3/9", "nexthop add id 30 via 10.7.0.1 dev va onlink",
		"route add 10.9.0.0/16 nhid 8", "route add 10.8.0.0/16 nhid 20"} {
		ip(c)
	}
	rt, err := rtnl.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rt.Close() }()
	set := (&files{m: map[string]string{"10.ibnetwork": "[Match]\nName=va\n[NextHop]\nId=20\nGroup=99\n" +
		"[Route]\nDestination=10.9.0.0/16\nNextHop=8\n"}}).load()
	rec := &link.Record{NextHops: []link.NextHopObject{{ID: 98}}, Links: []*link.LinkRecord{{Ifindex: 1,
		NextHops: []link.NextHopObject{{ID: 97}}}}}
	want := nextHopsOf(set, rec)
	if len(want) != 5 || nextHopsOf(set, nil)[98] || nextHopsOf(&units.Set{}, nil) != nil {
		t.Errorf("wanted: %v", want)
	}
	o, va := &Observer{rt: rt}, kerneltest.InterfaceIndex("va")
	s := &link.Snapshot{Links: []link.Link{{Index: va, Name: "va"}}}
	if err := o.observeNextHops(s, want); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range s.NextHops {
		got = append(got, n.String())
	}
	if text := strings.Join(got, "; "); text != "id 7 via 10.0.0.254 dev va; id 8 blackhole; id 9 dev va; id 20 group 7,3/9" ||
		s.NextHops[2].Family != 6 || s.NextHops[1].Proto != 12 || s.NextHops[0].Proto != 0 {
		t.Errorf("read: %s", text)
	}
	if err := o.observeRoutes(s); err != nil {
		t.Fatal(err)
	}
	hops := map[uint32]uint8{}
	for _, l := range s.Links {
		for _, r := range l.Routes {
			hops[r.NextHopID] = r.Type
		}
	}
	if hops[20] != link.RouteUnicast {
		t.Errorf("routes by nexthop: %v", hops)
	}
	if err := o.observeNextHops(s, nil); err != nil || s.NextHops != nil {
		t.Errorf("%v, %v without a unit that names one", s.NextHops, err)
	}
}

// What the kernel deletes of nexthops has the links planned again whose units have some.
func TestNextHopsAreFollowed(t *testing.T) {
	f := &files{m: map[string]string{"10.ibnetwork": "[Match]\nName=ib0\n[NextHop]\nId=7\n"}}
	d := New(Config{System: system(t, 1), Store: &notes{}, Load: f.load})
	d.rec = &link.Record{}
	if err := d.cycle(t.Context(), everything); err != nil {
		t.Fatal(err)
	}
	if w := d.needs(Scope{Routes: true}); !w.Routes || !w.NextHops[7] {
		t.Errorf("%+v", w)
	}
	s := *d.snap
	s.NextHops = append(s.NextHops, link.NextHopObject{ID: 9})
	var changed dirty
	d.adopt(&s, &changed)
	if !changed.links[s.Links[0].Index] {
		t.Errorf("not planned again: %+v", changed)
	}
}
