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
