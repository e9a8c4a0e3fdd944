package link

import (
	"slices"
	"testing"

	"ibnetworkd/internal/testkit"
)

// What was moved for a unit is known by what was read there: found, deleted there, or of a
// namespace that ends.
func TestMovedForUnit(t *testing.T) {
	s := host(t)
	parent := s.Links[1].Index
	move := MoveLink{On: Target{Link: "ib0.8001", Ifindex: 21}, Parent: parent, PKey: 0x8001, Namespace: "/run/netns/job"}
	read := func(index int) *Snapshot {
		c := *s
		c.Moved = []MovedLink{{Made: first(move.Sends()).Made, NSID: 3, Index: index, File: "a"}}
		return &c
	}
	moved := func() *Record {
		r := &Record{Links: []*LinkRecord{{Ifindex: 21, Name: "ib0.8001", Child: true, Parent: parent, PKey: 0x8001, AskedMTU: 1500}}}
		r.Intend(move)
		here := *s
		here.Links = append(slices.Clone(s.Links), Link{Index: 21, Name: "ib0.8001", Type: ARPHRDInfiniBand, Kind: "ipoib", Parent: parent,
			IPoIB: &IPoIB{PKey: 0x8001}})
		if c := r.Clone(); !c.Reconcile(&here) || len(c.Moved) != 0 || len(c.Links) != 1 || c.Links[0].AskedMTU != 1500 {
			t.Errorf("killed before the move: %+v", c)
		}
		r.Done(move)
		if r.Leave(MoveEvent{21, parent, "ib0.8001", 3}) || !r.Reconcile(s) || len(r.Moved) != 1 || len(r.Links) != 0 {
			t.Fatalf("the kernel's message: %+v", r)
		}
		return r
	}
	r := moved()
	if !r.Reconcile(read(21)) || r.Moved[0].NSID != 3 || r.Moved[0].Index != 21 || r.Moved[0].File != "a" || r.Reconcile(read(21)) {
		t.Errorf("found: %+v", r.Moved)
	}
	if r.Return(parent, read(21)); len(r.Moved) != 1 || !r.Owns(&s.Links[1]) {
		t.Error("what is where it should be is made again by request")
	}
	if r.Reconcile(s) || len(r.Moved) != 1 {
		t.Errorf("not read: %+v", r.Moved)
	}
	if c := r.Clone(); !c.Reconcile(read(0)) || len(c.Moved) != 0 {
		t.Errorf("deleted there: %+v", c.Moved)
	}
	if r.Return(parent, s); len(r.Moved) != 0 {
		t.Error("what is lost is not made again by request")
	}
}

// A record that was written before 0.1 has two lists.
func TestMovedInOldRecord(t *testing.T) {
	r, err := DecodeRecord([]byte(`{"schema":1,"moved":[{"kind":"vlan","name":"v7","on":9,"nsid":5}],
		"away":[{"kind":"ipoib","name":"ib0.8001","on":7,"namespace":"/run/netns/job","pkey":"0x8001","id":3,"index":21},
		{"kind":"ipoib","name":"ib0.8002","on":7,"namespace":"/run/netns/job","pkey":"0x8002"}]}`))
	testkit.NoError(t, err)
	want := []Moved{{Made: Made{"vlan", "v7", 9}, NSID: 5},
		{Made: Made{"ipoib", "ib0.8001", 7}, NSID: 3, Namespace: "/run/netns/job", PKey: 0x8001, Index: 21},
		{Made: Made{"ipoib", "ib0.8002", 7}, Namespace: "/run/netns/job", PKey: 0x8002}}
	if !slices.Equal(r.Moved, want) {
		t.Errorf("%+v", r.Moved)
	}
	b, err := r.Encode()
	testkit.NoError(t, err)
	if again, err := DecodeRecord(b); err != nil || !slices.Equal(again.Moved, want) {
		t.Errorf("%s: %v", b, err)
	}
}

func first(m Moved, _ bool) Moved { return m }
