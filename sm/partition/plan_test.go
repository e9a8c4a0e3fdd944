package partition

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric/gen"
)

func TestTables(t *testing.T) {
	f := gen.Star(3, 8)
	plan := Tables(f, Default(), nil)
	for i, k := range plan.Keys {
		if k != nil {
			t.Errorf("the power-on state needs a write to port %d: %v", i, k)
		}
	}
	if len(plan.Groups) != 1 || plan.Groups[0].Rate != 16 || plan.Groups[0].MTU != ib.MTU4096 || len(plan.Warnings) > 0 {
		t.Errorf("groups %+v, warnings %v", plan.Groups, plan.Warnings)
	}
	cfg, err := Parse("f", []byte("a=1:SELF=full;Default=0x7fff:ALL=full;"))
	if err != nil {
		t.Fatal(err)
	}
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
	if d := cmp.Diff(want, plan.Keys); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]ib.PKey{0xffff, 0x8001}, plan.Members[f.SMPort]); d != "" {
		t.Error(d)
	}
	g := f.Clone()
	g.Nodes[g.Ports[g.SMPort].Node].PKeyCap = 1
	if plan = Tables(g, cfg, nil); len(plan.Warnings) != 1 || plan.Keys[g.SMPort] != nil {
		t.Errorf("a table of one: %v %v", plan.Warnings, plan.Keys[g.SMPort])
	}
}
