package plan_test

import (
	"testing"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/link"
)

// A child that came back when its network namespace was deleted is not configured while it
// waits for another one of that name.
func TestChildWaitsForItsNamespace(t *testing.T) {
	s := oneLink(t)
	c := link.ChildOf(&s.Links[0], "ib0.8001", 0x8001)
	c.Index, c.MTU = 9, 1500
	s.Links[0].Flags |= link.FlagUp
	s.Links = append(s.Links, c)
	r := plan.Make(plan.Input{Snapshot: s,
		Units: load(t, map[string]string{
			"10-ib0.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\nNetworkNamespace=job\nMTUBytes=1500\n"}),
		Record: &link.Record{Links: []*link.LinkRecord{{Ifindex: 9, Name: "ib0.8001", Child: true, Parent: 4, PKey: 0x8001, AskedMTU: 1500}}}})
	for _, l := range r.Links {
		if l.Name == "ib0.8001" && (l.State != link.StateConfiguring || l.Reason().Code != link.CodeNoNamespace || l.Required) {
			t.Errorf("%s is %s, required %v: %+v", l.Name, l.State, l.Required, l.Reasons)
		}
	}
	if len(r.Links) != 2 {
		t.Errorf("%d links", len(r.Links))
	}
}
