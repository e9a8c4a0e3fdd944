package daemon

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
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
	testkit.NoError(t, err)
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
	testkit.NoError(t, o.observeNextHops(s, want))
	var got []string
	for _, n := range s.NextHops {
		got = append(got, n.String())
	}
	if text := strings.Join(got, "; "); text != "id 7 via 10.0.0.254 dev va; id 8 blackhole; id 9 dev va; id 20 group 7,3/9" ||
		s.NextHops[2].Family != 6 || s.NextHops[1].Proto != 12 || s.NextHops[0].Proto != 0 {
		t.Errorf("read: %s", text)
	}
	testkit.NoError(t, o.observeRoutes(s))
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
	testkit.NoError(t, d.cycle(t.Context(), everything))
	if w := d.needs(Scope{Routes: true}); !w.Routes || !w.NextHops[7] {
		t.Errorf("%+v", w)
	}
	s := *d.snap
	s.NextHops = append(s.NextHops, link.NextHopObject{ID: 9})
	on := link.TargetOf(&s.Links[0])
	ops := []link.Op{link.SetNextHop{On: on, NextHop: link.NextHopObject{ID: 7}},
		link.AddRoute{On: on, Route: link.Route{Dst: netip.MustParsePrefix("10.8.0.0/16")}},
		link.SetNextHop{On: on, NextHop: link.NextHopObject{ID: 20, Group: []link.GroupMember{{ID: 7, Weight: 1}}}},
		link.AddRoute{On: on, Route: link.Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), NextHopID: 20}}}
	for _, op := range ops {
		d.delayed.add(op, link.Reason{Code: link.CodeRefused}, true, linkState{}, time.Now())
	}
	var changed dirty
	d.adopt(&s, &changed, time.Now())
	if !changed.links[s.Links[0].Index] {
		t.Errorf("not planned again: %+v", changed)
	}
	// What may have been refused for what other nexthops were is retried.
	for i, op := range ops {
		if _, delayed := d.delayed.reasons()[link.DelayKey(op)]; delayed != (i < 2) {
			t.Errorf("%s: delayed %v", op, delayed)
		}
	}
}

// A kernel that refuses a nexthop, or a route over one, for what it is about says so:
// a link without IPv6 is no lack of a capability.
func TestNextHopRefusals(t *testing.T) {
	on := link.Target{Link: "ib0", Ifindex: 4}
	refused := &nl.Error{What: "what", Errno: unix.EACCES, Err: unix.EACCES, Message: "IPv6 is disabled on nexthop device."}
	v, why := classify(link.SetNextHop{On: on, NextHop: link.NextHopObject{ID: 7, Family: 6}}, refused)
	if v != verdictGiveUp || !strings.Contains(why.Next, "net.ipv6.conf.ib0.disable_ipv6") {
		t.Errorf("%d %+v", v, why)
	}
	v, why = classify(link.SetNextHop{On: on, NextHop: link.NextHopObject{ID: 7, Family: 4}}, refused)
	if !strings.Contains(why.Next, "CAP_NET_ADMIN") {
		t.Errorf("%d %+v", v, why)
	}
	invalid := &nl.Error{What: "what", Errno: unix.EINVAL, Err: unix.EINVAL}
	v, why = classify(link.AddRoute{On: on, Route: link.Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), NextHopID: 20}}, invalid)
	if v != verdictRetry || !strings.Contains(why.Next, "NextHop=") || !strings.Contains(why.Text, "over nexthop 20") {
		t.Errorf("%d %+v", v, why)
	}
}

// The step for a route that is refused is about what the kernel names.
func TestRouteRefusals(t *testing.T) {
	on := link.Target{Link: "ib0", Ifindex: 4}
	route := link.AddRoute{On: on, Route: link.Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), Congestion: "bbr"}}
	for message, next := range map[string]string{
		"Unknown tcp congestion algorithm": "modprobe tcp_bbr, or ", "Invalid prefsrc address": "check Gateway="} {
		v, why := classify(route, &nl.Error{What: "what", Errno: unix.EINVAL, Err: unix.EINVAL, Message: message})
		if v != verdictRetry || !strings.HasPrefix(why.Next, next) || !strings.Contains(why.Text, message) {
			t.Errorf("%s: %d %+v", message, v, why)
		}
	}
}

// A nexthop that could not be deleted, and so not be set, stays ours.
func TestRefusedDeleteDisownsNothing(t *testing.T) {
	on := link.Target{Link: "ib0", Ifindex: 10}
	old := link.NextHopObject{ID: 7, Group: []link.GroupMember{{ID: 8, Weight: 1}}, Proto: link.ProtoStatic}
	d := New(Config{System: system(t, 1), Store: &notes{}})
	d.rec = &link.Record{Links: []*link.LinkRecord{{Ifindex: on.Ifindex, Name: on.Link, NextHops: []link.NextHopObject{old}}}}
	del := link.DelNextHop{On: on, NextHop: old}
	set := link.SetNextHop{On: on, NextHop: link.NextHopObject{ID: 7, Family: 4, Ifindex: on.Ifindex, Dev: on.Link, Proto: link.ProtoStatic}}
	d.intend(del)
	d.intend(set)
	d.result(del, "", unix.EBUSY)
	d.result(set, "", unix.EEXIST)
	now := &link.Snapshot{Links: []link.Link{{Index: 10, Name: "ib0"}}, NextHops: []link.NextHopObject{old}}
	if d.rec.Reconcile(now) || len(d.rec.NextHopIDs()) != 1 {
		t.Errorf("the record: %+v", d.rec.Links[0])
	}
}
