package plan_test

import (
	"testing"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// A bond that is made in the plan which sets connected mode gets its slaves also where the
// adapter takes less than the largest MTU of that mode.
func TestBondOfASmallConnectedMTU(t *testing.T) {
	for _, more := range []string{"", "[Link]\nMTUBytes=max\n"} {
		s := oneLink(t)
		second := s.Links[0]
		second.Index, second.Name, second.IPoIB = 5, "ib1", &link.IPoIB{PKey: 0xffff}
		s.Links = append(s.Links, second)
		set := load(t, map[string]string{"10.ibnetwork": "[Match]\nName=ib*\n[IPoIB]\nMode=connected\n[Bond]\nName=bond0\n" + more})
		m, rec, delayed := link.NewModel(s), &link.Record{}, map[string]link.Reason{}
		m.Truth = &link.Truth{AdapterMTU: 4092, ConnectedMTU: 32752, GroupMTU: map[ib.PKey]int{0x7fff: 2044}, Asked: map[int]int{}}
		log := ""
		for range 6 {
			rec.Reconcile(m.Snapshot())
			r := plan.Make(plan.Input{Snapshot: m.Snapshot(), Units: set, Record: rec, Delayed: delayed})
			log += r.Plan.String() + "--\n"
			for _, x := range r.Plan.Steps {
				rec.Intend(x.Op)
				if err := m.Apply(x.Op); err != nil {
					rec.Failed(x.Op)
					delayed[link.DelayKey(x.Op)] = link.Reason{Code: link.CodeRefused, Text: err.Error()}
					continue
				}
				rec.Done(x.Op)
			}
		}
		bond, ok := m.Snapshot().LinkByName("bond0")
		if !ok || bond.MTU != 32752 || len(m.Snapshot().Slaves(bond.Index)) != 2 {
			t.Errorf("bond %+v:\n%s", bond, log)
		}
		for _, l := range m.Snapshot().Slaves(bond.Index) {
			if l.MTU != 32752 {
				t.Errorf("%s has an MTU of %d:\n%s", l.Name, l.MTU, log)
			}
		}
	}
}

// The MTU of a bond's own unit holds where the adapter refuses that of connected mode.
func TestBondOfASmallConnectedMTUWithAUnit(t *testing.T) {
	for mtu, want := range map[string]int{"2044": 2044, "max": 32752} {
		s := oneLink(t)
		set := load(t, map[string]string{"10.ibnetwork": "[Match]\nName=ib0\n[IPoIB]\nMode=connected\n[Bond]\nName=bond0\n",
			"20.ibnetwork": "[Match]\nName=bond0\n[Link]\nMTUBytes=" + mtu + "\n"})
		m, rec := link.NewModel(s), &link.Record{}
		m.Truth = &link.Truth{AdapterMTU: 4092, ConnectedMTU: 32752, GroupMTU: map[ib.PKey]int{0x7fff: 4092}, Asked: map[int]int{}}
		(&world{m: m, rec: rec}).settle(t, set, map[string]link.Reason{})
		if bond, ok := m.Snapshot().LinkByName("bond0"); !ok || bond.MTU != want {
			t.Errorf("MTUBytes=%s: %+v", mtu, bond)
		}
	}
}

// A bond gets its slaves in the plan that makes it where the adapter takes less than the unit
// asks for: nothing of a child is set again, which goes down and up with its parent.
func TestBondOfARefusedMTU(t *testing.T) {
	s := oneLink(t)
	s.Links[0].MTU = 2044
	set := load(t, map[string]string{
		"10.ibnetwork": "[Match]\nName=ib0\n[Link]\nMTUBytes=max\n[Partition]\nPartitionKey=0x8001\n[Bond]\nName=bond0\n",
		"20.ibnetwork": "[Match]\nPartitionKey=0x8001\n[Neighbor]\nAddress=10.0.0.9\nLinkLayerAddress=" + udAddr + "\n",
	})
	for _, adapter := range []int{2044, 4092} {
		m, rec, delayed := link.NewModel(s), &link.Record{}, map[string]link.Reason{}
		m.Truth = &link.Truth{AdapterMTU: adapter, GroupMTU: map[ib.PKey]int{0x7fff: adapter, 1: adapter}, Asked: map[int]int{}}
		(&world{m: m, rec: rec}).settle(t, set, delayed)
		bond, ok := m.Snapshot().LinkByName("bond0")
		if !ok || bond.MTU != adapter || len(m.Snapshot().Slaves(bond.Index)) != 1 {
			t.Errorf("an adapter that takes %d: %+v", adapter, bond)
		}
	}
}
