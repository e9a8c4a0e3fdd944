package pkey

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
)

func TestTables(t *testing.T) {
	f := gen.Star(3, 8)
	plan := Tables(f, partition.Default(), nil)
	for i, k := range plan.Keys {
		if k != nil {
			t.Errorf("the power-on state needs a write to port %d: %v", i, k)
		}
	}
	if len(plan.Groups) != 1 || plan.Groups[0].Rate != 16 || plan.Groups[0].MTU != ib.MTU4096 || len(plan.Warnings) > 0 {
		t.Errorf("groups %+v, warnings %v", plan.Groups, plan.Warnings)
	}
	cfg, err := partition.Parse("f", []byte("a=1:SELF=full;Default=0x7fff:ALL=full;"))
	testkit.NoError(t, err)
	have := make([][]ib.PKey, len(f.Ports))
	other := f.EndPorts[1]
	if other == f.SMPort {
		other = f.EndPorts[0]
	}
	have[other] = []ib.PKey{0xffff, 0x8009, 0, 0}
	plan = Tables(f, cfg, have)
	want := make([][]ib.PKey, len(f.Ports))
	want[f.SMPort] = []ib.PKey{0xffff, 0x8001}
	want[other] = []ib.PKey{0xffff, 0, 0, 0}
	testkit.Diff(t, "", want, plan.Keys)
	testkit.Diff(t, "", []ib.PKey{0xffff, 0x8001}, plan.Members[f.SMPort])
	g := f.Clone()
	g.Nodes[g.Ports[g.SMPort].Node].PKeyCap = 1
	if plan = Tables(g, cfg, nil); len(plan.Warnings) != 1 || plan.Keys[g.SMPort] != nil {
		t.Errorf("a table of one: %v %v", plan.Warnings, plan.Keys[g.SMPort])
	}
}

// The MTU of a group is that of the slowest link its packets may cross, and a
// requested value that a member cannot meet is reported.
func TestSlowestLink(t *testing.T) {
	f := gen.FatTree2(8, 4).Clone()
	var inner int32
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Num > 0 && p.Peer >= 0 && f.Nodes[p.Node].Switch >= 0 && f.Nodes[f.Ports[p.Peer].Node].Switch >= 0 {
			inner = int32(i)
		}
	}
	f.Ports[inner].Info.SetMTUCap(ib.MTU2048)
	plan := Tables(f, partition.Default(), nil)
	if g := plan.Groups[0]; g.MTU != ib.MTU2048 || len(plan.Warnings) > 0 {
		t.Errorf("group %+v, warnings %v", g, plan.Warnings)
	}
	cfg, err := partition.Parse("f", []byte("Default=0x7fff,ipoib,mtu=4096,rate=200Gb/s:ALL=full;"))
	testkit.NoError(t, err)
	plan = Tables(f, cfg, nil)
	if plan.Groups[0].MTU != ib.MTU4096 || len(plan.Warnings) != 2 {
		t.Errorf("group %+v, warnings %q", plan.Groups[0], plan.Warnings)
	}
}
