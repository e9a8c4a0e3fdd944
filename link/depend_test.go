package link

import (
	"net/netip"
	"testing"

	"ibnetworkd/units"
)

// An operation depends on those that make its link, put it where it belongs, or make what it names.
func TestDepends(t *testing.T) {
	on, other := Target{Link: "ib0", Ifindex: 4}, Target{Link: "ib1", Ifindex: 5}
	vrf, child := Target{Link: "red"}, Target{Link: "ib0.8001"}
	address := func(t Target) Op {
		return AddAddress{On: t, Address: Address{Prefix: netip.MustParsePrefix("10.0.0.1/24")}}
	}
	enter, hop := SetMaster{On: on, Master: vrf, VRF: true}, SetNextHop{On: on, NextHop: NextHopObject{ID: 7}}
	over := func(id uint32) Op { return AddRoute{On: on, Route: Route{NextHopID: id}} }
	move := MoveLink{On: child, Parent: 4, PKey: 0x8001, Namespace: units.NamespaceDir + "job"}
	gone := DelMoved{On: on, Moved: Moved{Made: Made{Kind: "ipoib", Name: "storage", On: 4}, PKey: 0x8001, Index: 7}}
	for _, tt := range []struct {
		failed, op Op
		want       bool
	}{
		{AddVRF{On: vrf, Table: 7}, enter, true},
		{AddVRF{On: vrf, Table: 7}, SetUp{On: vrf, Up: true}, true},
		{AddVRF{On: vrf, Table: 7}, SetMaster{On: on, Master: Target{Link: "blue"}, VRF: true}, false},
		{AddBond{On: vrf}, SetPrimary{On: vrf, Slave: on}, true},
		{enter, address(on), true},
		{enter, address(other), false},
		{enter, AddRoute{On: on}, true},
		{enter, SetNeighbor{On: on}, true},
		{enter, hop, true},
		{enter, SetUp{On: on, Up: true}, false},
		{enter, DelAddress{On: on}, false},
		{SetMaster{On: on, Master: vrf, Release: true}, address(on), true},
		{SetMaster{On: on, Master: vrf}, SetPrimary{On: vrf, Slave: on}, true},
		{SetMaster{On: on, Master: vrf}, SetPrimary{On: vrf, Slave: other}, false},
		{AddChild{On: child, Parent: on, PKey: 0x8001}, address(child), true},
		{AddChild{On: child, Parent: on, PKey: 0x8001}, move, true},
		{AddChild{On: child, Parent: on, PKey: 0x8001}, SetMaster{On: child, Master: vrf}, true},
		{AddChild{On: child, Parent: on, PKey: 0x8001}, AddRoute{On: on, Route: Route{NextHops: []NextHop{{Dev: child.Link}}}}, true},
		{AddChild{On: child, Parent: on, PKey: 0x8001}, address(on), false},
		{AddVRF{On: on, Table: 7}, AddChild{On: child, Parent: on}, true},
		{AddVRF{On: on, Table: 7}, SetPrimary{On: vrf, Slave: on}, true},
		{move, address(child), true},
		{move, address(on), false},
		{gone, AddChild{On: child, Parent: on, PKey: 0x0001}, true},
		{gone, AddChild{On: Target{Link: "storage"}, Parent: on, PKey: 0x8002}, true},
		{gone, AddChild{On: child, Parent: on, PKey: 0x8002}, false},
		{gone, AddChild{On: child, Parent: other, PKey: 0x8001}, false},
		{gone, address(on), false},
		{SetMode{On: on}, SetMTU{On: on, MTU: 65520}, true},
		{SetMode{On: on}, SetMTU{On: other, MTU: 65520}, false},
		{SetMode{On: on}, address(on), false},
		{SetSysctl{On: on, Key: acceptRA}, SetToken{On: on}, true},
		{SetSysctl{On: on, Key: forwarding6}, SetToken{On: on}, false},
		{SetSysctl{On: on, Key: acceptRA}, SetToken{On: other}, false},
		{hop, over(7), true},
		{hop, over(8), false},
		{hop, SetNextHop{On: on, NextHop: NextHopObject{ID: 9, Group: []GroupMember{{ID: 8}, {ID: 7}}}}, true},
		{hop, SetNextHop{On: on, NextHop: NextHopObject{ID: 9, Group: []GroupMember{{ID: 8}}}}, false},
		{hop, address(on), false},
		{address(on), over(7), false}, // the kernel knows better: it may be there
	} {
		if got := Depends(tt.op, tt.failed); got != tt.want {
			t.Errorf("%q after %q has failed: held back %t", tt.op, tt.failed, got)
		}
	}
}
