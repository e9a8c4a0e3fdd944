package daemon

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/link/cardstate"
)

// moving has its child moved to another network namespace just before the next look.
type moving struct {
	*memory
	next   bool
	events Scope
}

func (m *moving) Observe(sc Scope, n Needs) (*link.Snapshot, error) {
	if m.next {
		m.next = false
		m.change(func(s *link.Snapshot) {
			i := slices.IndexFunc(s.Links, func(l link.Link) bool { return l.Name == "ib0.8001" })
			l := s.Links[i]
			m.events.Moved = []link.MoveEvent{{Index: l.Index, Name: l.Name, Parent: l.Parent}}
			m.events.link(l.Index)
			s.Links = slices.Delete(s.Links, i, i+1)
		})
	}
	return m.memory.Observe(sc, n)
}

func (m *moving) Take() Scope {
	s := m.events
	m.events = Scope{}
	return s
}

func (*moving) Ready() {}

// nothing is done within a minute of a change.
func nothing(t *testing.T, r *rig, when string, done func() []string, change func()) {
	t.Helper()
	testkit.NoError(t, r.ask(t.Context(), func(context.Context) error { change(); return nil }))
	r.Wake(Scope{All: true})
	time.Sleep(time.Minute)
	synctest.Wait()
	if got := done(); len(got) > 0 {
		t.Errorf("%s: %s", when, strings.Join(got, "\n"))
	}
}

// A child that is moved to another network namespace between the events that a cycle
// takes and its look is not made again.
func TestMovedBeforeTheLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &moving{memory: system(t, 1)}
		r := startWith(t, Config{System: sys, Events: sys}, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}},
			func(w func(Scope)) { sys.wake = w })
		if got := strings.Join(sys.take(), "\n"); !strings.Contains(got, "name ib0.8001 type ipoib") {
			t.Fatalf("no child was made: %s", got)
		}
		nothing(t, r, "after the move", sys.take, func() { sys.next = true })
		if why := r.link("ib0").Reason(); why.Code != link.CodeMoved {
			t.Errorf("ib0 says %q", why)
		}
		r.stop()
	})
}

// A link that was moved to another network namespace and came back between two looks is down
// and without addresses, and is configured as before: it was not brought down here. The events may be taken
// before the look, or after it.
func TestBackBeforeTheLook(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sys := &moving{memory: system(t, 1)}
			r := startWith(t, Config{System: sys, Events: sys}, &notes{}, &files{m: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Network]\nAddress=10.0.0.1/24\n"}}, func(w func(Scope)) { sys.wake = w })
			sys.take()
			testkit.NoError(t, r.ask(t.Context(), func(context.Context) error {
				sys.change(func(s *link.Snapshot) {
					l := &s.Links[0]
					l.Flags &^= link.FlagUp | link.FlagLowerUp
					l.Addresses, l.Routes = nil, nil
				})
				return nil
			}))
			if late {
				r.Wake(Scope{All: true})
				time.Sleep(time.Second)
				synctest.Wait()
			}
			testkit.NoError(t, r.ask(t.Context(), func(context.Context) error {
				sys.events.Moved = []link.MoveEvent{{Index: 10, Name: "ib0", NSID: 3}}
				sys.events.link(10)
				return nil
			}))
			r.Wake(Scope{Events: true})
			time.Sleep(time.Minute)
			synctest.Wait()
			if st := r.link("ib0"); st.State != link.StateConfigured {
				t.Errorf("events late %v: ib0 is %s: %q", late, st.State, st.Reasons)
			}
			r.stop()
		})
	}
}

// A VLAN is made again when the kernel has deleted it with the network namespace that
// it was moved to, which shows at its parent as an event without a change.
func TestNamespaceOfVLANEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 1)
		sys.change(func(s *link.Snapshot) {
			s.Links = append(s.Links, link.Link{Index: 50, Name: "eth0", Type: 1, Flags: link.FlagUp | link.FlagLowerUp,
				Sysctl: map[string]string{}})
			s.Card = &cardstate.State{}
		})
		rec := &link.Record{Schema: link.RecordSchema,
			Moved: []link.Moved{{Made: link.Made{Kind: "vlan", Name: "v7", On: 50}, NSID: 3}}}
		n := &notes{}
		testkit.NoError(t, n.SaveRecord(rec))
		r := startWith(t, Config{System: sys}, n, &files{m: map[string]string{
			"10.ibnetwork": "[Match]\nName=eth0\n[VLAN]\nId=7\nName=v7\n"}}, func(func(Scope)) {})
		if why := r.link("eth0").Reason(); why.Code != link.CodeMoved {
			t.Errorf("eth0 says %q", why)
		}
		if got := strings.Join(sys.take(), "\n"); strings.Contains(got, "v7") {
			t.Errorf("before the end: %s", got)
		}
		sys.change(func(s *link.Snapshot) { s.Moved = []link.MovedLink{{Made: rec.Moved[0].Made, NSID: 3}} })
		r.Wake(Scope{Links: map[int]bool{50: true}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := strings.Join(sys.take(), "\n"); !strings.Contains(got, "ip link add link eth0 name v7 type vlan id 7") {
			t.Errorf("after the end: %s", got)
		}
		r.stop()
	})
}

// A child that another program moved on from the network namespace of its unit is made again by request alone, also if
// that it is away is seen with the request.
func TestMovedOn(t *testing.T) {
	for _, seen := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			sys := system(t, 1)
			made := link.Made{Kind: "ipoib", Name: "ib0.8001", On: sys.m.Snapshot().Links[0].Index}
			there := link.MovedLink{Made: made, NSID: 3, Index: 21, Up: true}
			sys.change(func(s *link.Snapshot) {
				s.Namespaces, s.Moved = []link.Namespace{{Path: "/run/netns/job", ID: 3}}, []link.MovedLink{there}
			})
			n := &notes{}
			testkit.NoError(t, n.SaveRecord(&link.Record{Moved: []link.Moved{{Made: made, NSID: 3, Namespace: "/run/netns/job", Index: 21,
				PKey: 0x8001}}}))
			r := startWith(t, Config{System: sys}, n, &files{m: map[string]string{
				"10.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\nNetworkNamespace=job\n"}}, func(func(Scope)) {})
			sys.take()
			lost := func() {
				sys.change(func(s *link.Snapshot) {
					s.Moved = []link.MovedLink{{Made: made, NSID: 3, Lost: &link.Lost{Path: "/run/netns/two", NSID: 5, Index: 30}}}
				})
			}
			if seen {
				nothing(t, r, "after it was moved on", sys.take, lost)
				if why := r.link("ib0").Reason(); why.Code != link.CodeMoved || !strings.Contains(why.Text, "network namespace two") {
					t.Errorf("ib0 says %q", why)
				}
			} else {
				lost()
			}
			testkit.NoError(t, r.Reconfigure(t.Context(), "ib0"))
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := strings.Join(sys.take(), "\n"); !strings.Contains(got, "name ib0.8001 type ipoib") ||
				!strings.Contains(got, "ip link set ib0.8001 netns job up") {
				t.Errorf("seen before %v: by request: %s", seen, got)
			}
			r.stop()
		})
	}
}

// A VLAN for another network namespace than before is recorded before it is made there: after a kill it is known.
func TestOtherNamespaceIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 1)
		made, tag := link.Made{Kind: link.KindVLAN, Name: "v7", On: 50}, link.VLANTag{ID: 7, Protocol: 0x8100}
		sys.change(func(s *link.Snapshot) {
			s.Links = append(s.Links, link.Link{Index: 50, Name: "eth0", Type: 1, Flags: link.FlagUp | link.FlagLowerUp,
				Sysctl: map[string]string{}})
			s.Card = &cardstate.State{}
			s.Namespaces = []link.Namespace{{Path: "/run/netns/a", ID: 3}, {Path: "/run/netns/b", ID: 4}}
			s.Moved = []link.MovedLink{{Made: made, NSID: 3, Index: 21, Up: true, VLAN: &link.VLAN{ID: 7, Protocol: 0x8100}}}
		})
		n := &notes{}
		before := link.Moved{Made: made, NSID: 3, Namespace: "/run/netns/a", Index: 21, Tag: tag}
		testkit.NoError(t, n.SaveRecord(&link.Record{Moved: []link.Moved{before}}))
		tried := false
		sys.fail = func(op link.Op) error {
			if m, ok := link.Sent(op); ok {
				tried = true
				if rec, err := n.LoadRecord(); err != nil || !slices.Equal(rec.Moved, []link.Moved{m}) {
					t.Errorf("recorded before %q: %+v, %v", op, rec.Moved, err)
				}
			}
			return nil
		}
		r := startWith(t, Config{System: sys}, n, &files{m: map[string]string{
			"10.ibnetwork": "[Match]\nName=eth0\n[VLAN]\nId=7\nName=v7\nNetworkNamespace=b\n"}}, func(func(Scope)) {})
		if got := strings.Join(sys.take(), "\n"); !tried || !strings.Contains(got, "ip -n a link delete v7") {
			t.Errorf("done: %s", got)
		}
		r.stop()
	})
}

// vanishing has the bond of its link removed with it: the message about the link comes
// when the bond has been observed.
type vanishing struct {
	moving
	bond, link bool
}

func (v *vanishing) Observe(sc Scope, n Needs) (*link.Snapshot, error) {
	remove := func(name string) {
		v.change(func(s *link.Snapshot) {
			s.Links = slices.DeleteFunc(s.Links, func(l link.Link) bool { return l.Name == name })
			for i := range s.Links {
				s.Links[i].Master = 0
			}
		})
	}
	switch {
	case v.bond:
		v.bond, v.link = false, true
		remove("bond0")
		v.change(func(s *link.Snapshot) {
			l, _ := s.LinkByName("ib0")
			v.events.link(l.Index)
		})
	case v.link:
		v.link = false
		remove("ib0")
	}
	return v.memory.Observe(sc, n)
}

// A bond that the kernel removes with its last slave is not made again for a link that is
// going.
func TestBondGoesBeforeItsSlave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &vanishing{moving: moving{memory: system(t, 1)}}
		r := startWith(t, Config{System: sys, Events: sys}, &notes{}, &files{m: map[string]string{
			"10.ibnetwork": "[Match]\nName=ib0\n[Bond]\nName=bond0\n"}}, func(w func(Scope)) { sys.wake = w })
		if got := strings.Join(sys.take(), "\n"); !strings.Contains(got, "ip link set ib0 master bond0") {
			t.Fatalf("no bond was made: %s", got)
		}
		nothing(t, r, "after the link went", sys.take, func() { sys.bond = true })
		r.stop()
	})
}

// A P_Key child whose parent is in another network namespace has no device in sysfs: its
// port is the one whose GUID it has.
func TestPortOfChildWithoutParent(t *testing.T) {
	hw, err := ib.ParseHWAddr("80:00:00:49:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:df")
	testkit.NoError(t, err)
	o := &Observer{root: t.TempDir(), static: map[int]staticLink{}}
	s := &link.Snapshot{Devices: []link.Device{{Name: "mlx5_0", Driver: "mlx5_core",
		Ports: []link.Port{{Num: 1, GUID: 1}, {Num: 2, GUID: hw.GUID()}}}}}
	r := &rtnl.Link{Index: 15, Name: "ib1.8001", Kind: "ipoib", Type: link.ARPHRDInfiniBand, Parent: 13, Address: hw, IPoIB: &rtnl.IPoIB{}}
	if st := o.staticLink(s, r); st.ibdev != "mlx5_0" || st.port != 2 || st.driver != "mlx5_core" {
		t.Errorf("%+v", st)
	}
	o.static[13] = staticLink{ibdev: "mlx5_1", port: 1}
	if st := o.staticLink(s, r); st.ibdev != "mlx5_1" {
		t.Errorf("with its parent: %+v", st)
	}
}

// A VLAN or the like in another network namespace is the one that was made only if its parent is not in that
// namespace: links of both can have one index.
func TestFitsElsewhere(t *testing.T) {
	for _, kind := range []string{"vlan", "macvlan", "ipvlan"} {
		m := link.Moved{Made: link.Made{Kind: kind, Name: "job0", On: 2}, NSID: 3, Namespace: "/run/netns/job"}
		for _, elsewhere := range []bool{false, true} {
			l := rtnl.Link{Index: 5, Name: "job0", Kind: kind, Parent: 2, ParentElsewhere: elsewhere, VLAN: &rtnl.VLAN{}}
			if got := fits(m, &l); got != elsewhere {
				t.Errorf("%s, parent elsewhere %v: %v", kind, elsewhere, got)
			}
		}
	}
}
