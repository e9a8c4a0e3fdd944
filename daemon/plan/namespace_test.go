package plan_test

import (
	"strings"
	"testing"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/link"
	"ibnetworkd/link/cardstate"
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

// A link that is kept out of its bond is not where its unit wants it, and not configured;
// one whose child waits for a network namespace is.
func TestNotConfigured(t *testing.T) {
	for unit, want := range map[string]link.State{
		"[Link]\nDescription=x\n": link.StateConfigured,
		"[Bond]\nName=lo\n":       link.StateConfiguring,
		"[Partition]\nPartitionKey=0x8001\nNetworkNamespace=job\nName=storage\n": link.StateConfigured,
	} {
		s := oneLink(t)
		s.Links[0].Flags |= link.FlagUp | link.FlagLowerUp
		s.Links = append(s.Links, link.Link{Index: 1, Name: "lo", Type: link.ARPHRDLoopback})
		r := plan.Make(plan.Input{Snapshot: s, Units: load(t, map[string]string{"10-ib0.ibnetwork": "[Match]\nName=ib0\n" + unit}),
			Record: &link.Record{}})
		for _, l := range r.Links {
			if l.Name == "ib0" && l.State != want {
				t.Errorf("%q: %s, want %s: %+v, %v", unit, l.State, want, l.Attributes, r.Plan.Commands())
			}
		}
	}
}

// A unit that matches a VLAN for another network namespace is refused, with what becomes of
// its [RoCE]; one that matches the VLAN by the same pattern as its parent is not.
func TestUnitOfVLANElsewhere(t *testing.T) {
	const roceChild = "[Match]\nKind=vlan\n[RoCE]\nGIDIndex=3\n[Network]\nAddress=10.7.0.1/24\n"
	for name, c := range map[string]struct {
		also, child, text, next string
		exclusive               bool
	}{
		"an address": {child: "[Match]\nName=eth0.7\n[Network]\nAddress=10.7.0.1/24\n",
			text: "20-vlan.ibnetwork matches eth0.7, which is for network namespace job: the unit is not applied",
			next: "write MTUBytes= and the maps in [VLAN]; for addresses: ip -n job address add ADDRESS dev eth0.7, or an ibnetworkd there"},
		"RoCE": {child: roceChild, text: "20-vlan.ibnetwork matches eth0.7, which is for network namespace job: the unit is not applied, " +
			"nor is its [RoCE]",
			next: "write MTUBytes= and the maps in [VLAN]; for addresses: ip -n job address add ADDRESS dev eth0.7, or an ibnetworkd there; " +
				"its addresses have GIDs at the RDMA device of eth0, which programs in that namespace can use"},
		"RoCE, exclusive": {exclusive: true, child: roceChild, text: ", nor is its [RoCE]", next: "write MTUBytes= and the maps in [VLAN]; " +
			"for addresses: ip -n job address add ADDRESS dev eth0.7, or an ibnetworkd there; its addresses have GIDs at the RDMA device " +
			"of eth0, which programs in that namespace cannot use while \"rdma system\" has netns exclusive"},
		"the same unit": {also: " eth0.7", child: "[Match]\nName=eth0.7\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := oneLink(t)
			s.Links = append(s.Links, link.Link{Index: 12, Name: "eth0", Type: 1, Flags: link.FlagUp, MTU: 1500, MaxMTU: 9000})
			s.Host.RDMAExclusive = c.exclusive
			s.Card = &cardstate.State{Links: map[int]cardstate.Link{}}
			r := plan.Make(plan.Input{Snapshot: s, Record: &link.Record{}, Units: load(t, map[string]string{
				"10-eth0.ibnetwork": "[Match]\nName=eth0" + c.also + "\n[VLAN]\nId=7\nNetworkNamespace=job\n", "20-vlan.ibnetwork": c.child})})
			var got []link.Reason
			for _, l := range r.Links {
				for _, x := range l.Reasons {
					if x.Code == link.CodeOtherNamespace {
						got = append(got, x)
					}
				}
			}
			switch {
			case c.text == "":
				if len(got) > 0 {
					t.Errorf("%+v", got)
				}
			case len(got) != 1 || !strings.HasSuffix(got[0].Text, c.text) || got[0].Next != c.next:
				t.Errorf("%+v", got)
			}
		})
	}
}
