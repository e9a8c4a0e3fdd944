package link

import (
	"slices"
	"testing"
)

// What was made and moved to another network namespace is left there: until it comes back,
// its parent is gone, it is deleted with the namespace, or it is asked for again.
func TestMoved(t *testing.T) {
	s := host(t)
	parent := s.Links[1]
	child := Link{Index: 21, Name: "ib0.8001", Type: ARPHRDInfiniBand, Kind: "ipoib", Parent: parent.Index, IPoIB: &IPoIB{PKey: 0x8001}}
	vlan := Link{Index: 23, Name: "v7", Type: 1, Kind: "vlan", Parent: 9}
	without, with := s, &Snapshot{Links: append(slices.Clone(s.Links), child, vlan)}
	r := &Record{Links: []*LinkRecord{{Ifindex: 21, Name: child.Name, Child: true, Parent: parent.Index, PKey: 0x8001}},
		Made: []Made{{Kind: "vlan", Name: "v7", On: 9}}}
	if r.Leave(MoveEvent{22, parent.Index, "theirs", 5}) || r.Leave(MoveEvent{23, 0, "v7", 5}) {
		t.Error("another program's link counts as made")
	}
	leave := func() {
		t.Helper()
		if !r.Leave(MoveEvent{21, parent.Index, "ib0.8001", 5}) || !r.Leave(MoveEvent{23, 9, "v7", 5}) || !r.Reconcile(without) ||
			len(r.Moved) != 2 || len(r.Links) != 0 || len(r.Made) != 0 {
			t.Fatalf("%+v", r)
		}
	}
	leave()
	if r.Reconcile(without) || len(r.Clone().Moved) != 2 {
		t.Errorf("forgotten: %+v", r)
	}
	if !r.Reconcile(with) || len(r.Moved) != 0 || !r.MadeChild(&child) || !r.Notes(Made{Kind: "vlan", Name: "v7", On: 9}) {
		t.Errorf("back: %+v", r)
	}
	leave()
	gone := &Snapshot{Links: slices.DeleteFunc(slices.Clone(s.Links), func(l Link) bool { return l.Index == parent.Index })}
	if !r.Reconcile(gone) || len(r.Moved) != 1 || r.Moved[0].Name != "v7" {
		t.Errorf("the parent is gone: %+v", r.Moved)
	}
	// Not seen yet since it was made.
	fresh := &Record{Links: []*LinkRecord{{Name: "ib0.8001", Child: true, Parent: parent.Index, PKey: 0x8001}}}
	if !fresh.Leave(MoveEvent{31, parent.Index, "ib0.8001", -1}) {
		t.Error("a new one is not known")
	}
	// The kernel moves a child back and deletes a VLAN.
	ended, asVLAN := r.Clone(), *without
	asVLAN.Moved = []MovedLink{{Made: ended.Moved[0].Made, NSID: 5}}
	ended.Moved = append(ended.Moved, Moved{Made: Made{Kind: "ipoib", Name: "ib0.8001", On: parent.Index}, NSID: 5})
	if !ended.Reconcile(&asVLAN) || len(ended.Moved) != 1 || ended.Moved[0].Kind != "ipoib" {
		t.Errorf("after the end of the namespace: %+v", ended.Moved)
	}
	r.Return(9, with)
	if len(r.Moved) != 0 {
		t.Errorf("asked for again: %+v", r.Moved)
	}
}

// A link in another network namespace is taken for the one that was made only if it has the kind, the
// parent and what else identifies it: an index may be that of another link by now.
func TestFits(t *testing.T) {
	tag := VLANTag{ID: 7, Protocol: 0x8100}
	macvlan, vlan := Moved{Made: Made{Kind: "macvlan", Name: "m", On: 9}}, Moved{Made: Made{Kind: "vlan", Name: "v", On: 9}, Tag: tag}
	child := Moved{Made: Made{Kind: "ipoib", Name: "ib0.8001", On: 9}, PKey: 0x8001}
	for _, tt := range []struct {
		m      Moved
		kind   string
		parent int
		ipoib  *IPoIB
		vlan   *VLAN
		want   bool
	}{
		{macvlan, "macvlan", 9, nil, &VLAN{Mode: 4}, true},
		{macvlan, "ipvlan", 9, nil, &VLAN{}, false},
		{macvlan, "macvlan", 8, nil, &VLAN{Mode: 4}, false},
		{vlan, "vlan", 9, nil, &VLAN{ID: 7}, true},
		{vlan, "vlan", 9, nil, &VLAN{ID: 8}, false},
		{vlan, "macvlan", 9, nil, &VLAN{}, false},
		{child, "ipoib", 9, &IPoIB{PKey: 0x0001}, nil, true},
		{child, "ipoib", 9, &IPoIB{PKey: 0x8002}, nil, false},
	} {
		if got := tt.m.Fits(tt.kind, tt.parent, tt.ipoib, tt.vlan); got != tt.want {
			t.Errorf("%s, a %s below %d: %v", tt.m.Name, tt.kind, tt.parent, got)
		}
	}
}
