package link

import (
	"slices"
	"testing"
)

// What was moved for a unit is known by what was read there: found, deleted there, or of a
// namespace that ends.
func TestAway(t *testing.T) {
	s := host(t)
	parent := s.Links[1].Index
	move := MoveLink{On: Target{Link: "ib0.8001", Ifindex: 21}, Parent: parent, PKey: 0x8001, Namespace: "/run/netns/job"}
	read := func(index int) *Snapshot {
		c := *s
		c.Away = []AwayLink{{Made: move.away().Made, ID: 3, Index: index}}
		return &c
	}
	moved := func() *Record {
		r := &Record{Links: []*LinkRecord{{Ifindex: 21, Name: "ib0.8001", Child: true, Parent: parent, PKey: 0x8001, AskedMTU: 1500}}}
		r.Intend(move)
		here := *s
		here.Links = append(slices.Clone(s.Links), Link{Index: 21, Name: "ib0.8001", Type: ARPHRDInfiniBand, Kind: "ipoib", Parent: parent,
			IPoIB: &IPoIB{PKey: 0x8001}})
		if c := r.Clone(); !c.Reconcile(&here) || len(c.Away) != 0 || len(c.Links) != 1 || c.Links[0].AskedMTU != 1500 {
			t.Errorf("killed before the move: %+v", c)
		}
		r.Done(move)
		if r.Leave(Moved{21, parent, "ib0.8001", 3}) || !r.Reconcile(s) || len(r.Away) != 1 || len(r.Links) != 0 {
			t.Fatalf("the kernel's message: %+v", r)
		}
		return r
	}
	r := moved()
	if !r.Reconcile(read(21)) || r.Away[0].ID != 3 || r.Away[0].Index != 21 || r.Reconcile(read(21)) {
		t.Errorf("found: %+v", r.Away)
	}
	if r.Return(parent, read(21)); len(r.Away) != 1 || !r.Holds(&s.Links[1]) {
		t.Error("what is where it should be is made again by request")
	}
	if r.Reconcile(s) || len(r.Away) != 1 {
		t.Errorf("not read: %+v", r.Away)
	}
	if c := r.Clone(); !c.Reconcile(read(0)) || len(c.Away) != 0 {
		t.Errorf("deleted there: %+v", c.Away)
	}
	if r.Return(parent, s); len(r.Away) != 0 {
		t.Error("what is lost is not made again by request")
	}
}
