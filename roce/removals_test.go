package roce

import (
	"fmt"
	"slices"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// What was made for a unit goes with it; what others made stays; a link whose
// unit is not known yet keeps all.
func TestRemovals(t *testing.T) {
	s, _ := system()
	s.Devices = append(s.Devices, link.Device{Name: "rxe_eth0", Index: 9, Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerEthernet,
		Netdev: 2}}},
		link.Device{Name: "foreign0", Index: 10})
	s.Links = append(s.Links, link.Link{Index: 7, Name: "eth0.7", Kind: "vlan", Parent: 2}, link.Link{Index: 8, Name: "eth0.8",
		Kind: "vlan", Parent: 2})
	rec := &link.Record{}
	for _, op := range []link.Op{AddSoft{On: link.Target{Link: "eth0", Ifindex: 2}, Name: "rxe_eth0"},
		AddVLAN{On: link.Target{Link: "eth0", Ifindex: 2}, Name: "eth0.7"}, AddVLAN{On: link.Target{Link: "eth0", Ifindex: 2}, Name: "gone"}} {
		rec.Intend(op)
	}
	ops := func(text string, settled bool) (out []string) {
		var u *units.Unit
		if text != "none" {
			u = unit(t, text)
		}
		b := link.NewBuilder(s, rec, nil)
		PlanRemovals(b, func(int) (*units.Unit, bool) { return u, settled })
		for _, x := range b.Plan.Steps {
			out = append(out, x.Op.String())
		}
		return out
	}
	for _, tt := range []struct {
		name, text string
		settled    bool
		want       []string
	}{
		{"OK wanted", "[SoftRoCE]\nDriver=rxe\n[VLAN]\nId=7\n", true, nil},
		{"OK one wanted", "[SoftRoCE]\nDriver=rxe\n", true, []string{"ip link delete eth0.7"}},
		{"OK unit gone", "none", true, []string{"rdma link delete rxe_eth0", "ip link delete eth0.7"}},
		{"OK not settled", "none", false, nil},
	} {
		testkit.Diff(t, tt.name, tt.want, ops(tt.text, tt.settled))
	}
	// What is removed and made again in one plan is recorded after it.
	again := []link.Op{DelVLAN{On: link.Target{Ifindex: 2}, Name: "eth0.7"}, AddVLAN{On: link.Target{Ifindex: 2}, Name: "eth0.7"}}
	for _, op := range again {
		rec.Intend(op)
	}
	for _, op := range again {
		rec.Done(op)
	}
	rec.Done(DelSoft{On: link.Target{Ifindex: 2}, Name: "rxe_eth0"})
	rec.Failed(AddVLAN{On: link.Target{Ifindex: 2}, Name: "gone"})
	testkit.Diff(t, "record", []link.Made{{Kind: "vlan", Name: "eth0.7", On: 2}}, rec.Made)
}

// What is re-created under another name, number, tag or kind finds its place free: each
// edit of a unit takes one plan.
func TestEdits(t *testing.T) {
	s, st := system()
	rec := &link.Record{}
	settle := func(text string, delayed map[string]link.Reason) (out []string) {
		t.Helper()
		s.Card = st
		u := unit(t, text)
		b := link.NewBuilder(s, rec, delayed)
		PlanRemovals(b, func(i int) (*units.Unit, bool) { return u, i == 2 })
		Plan(b, 2, u)
		for _, x := range b.Plan.Steps {
			rec.Intend(x.Op)
		}
		for _, x := range b.Plan.Steps {
			switch o := x.Op.(type) {
			case AddVLAN:
				if slices.ContainsFunc(s.Links, func(l link.Link) bool {
					return l.Name == o.Name || l.Kind == "vlan" && o.VLAN.Kind == units.KindVLAN &&
						l.VLAN.ID == o.VLAN.Id.V && l.VLAN.Protocol == uint16(o.VLAN.Protocol.Or(units.VLAN8021Q))
				}) {
					t.Errorf("%s: file exists", o)
				}
			case AddSoft:
				if slices.ContainsFunc(st.Links[2].Soft, func(d SoftDevice) bool { return d.Name == o.Name || d.Driver == o.Driver }) {
					t.Errorf("%s: file exists", o)
				}
				s.Devices = append(s.Devices, link.Device{Name: o.Name, Index: 9})
			case DelSoft:
				s.Devices = slices.DeleteFunc(s.Devices, func(d link.Device) bool { return d.Name == o.Name })
			}
			apply(t, s, st, nil, x.Op)
			rec.Done(x.Op)
			out = append(out, x.Op.String())
		}
		return out
	}
	const soft, vlan = "[SoftRoCE]\nDriver=%s\nName=%s\n", "[VLAN]\nName=%s\nId=%d\n%s"
	two := func(a string, ida int, b string, idb int) string {
		return fmt.Sprintf(vlan+vlan, a, ida, "", b, idb, "")
	}
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"OK begin", two("a", 7, "b", 8), []string{"ip link add link eth0 name a type vlan id 7", "ip link add link eth0 name b type vlan id 8"}},
		{"OK another name", two("c", 7, "b", 8), []string{"ip link delete a", "ip link add link eth0 name c type vlan id 7"}},
		{"OK numbers swap", two("c", 8, "b", 7), []string{"ip link delete b", "ip link delete c", "ip link add link eth0 name c " +
			"type vlan id 8", "ip link add link eth0 name b type vlan id 7"}},
		{"OK names swap", two("b", 8, "c", 7), []string{"ip link delete c", "ip link delete b", "ip link add link eth0 name b type " +
			"vlan id 8", "ip link add link eth0 name c type vlan id 7"}},
		{"OK another tag", fmt.Sprintf(vlan, "b", 8, "Protocol=802.1ad\n"), []string{"ip link delete b", "ip link delete c",
			"ip link add link eth0 name b type vlan protocol 802.1ad id 8"}},
		{"OK a macvlan of its name", "[MACVLAN]\nName=b\nMode=passthru\n", []string{"ip link delete b",
			"ip link add link eth0 name b type macvlan mode passthru"}},
		{"OK another mode", "[MACVLAN]\nName=b\nMode=bridge\n", []string{"ip link delete b",
			"ip link add link eth0 name b type macvlan mode bridge"}},
		{"OK an ipvlan of its name", "[IPVLAN]\nName=b\n", []string{"ip link delete b",
			"ip link add link eth0 name b type ipvlan mode l2 bridge"}},
		{"OK a soft device", fmt.Sprintf(soft, "rxe", "r"), []string{"ip link delete b", "rdma link add r type rxe netdev eth0"}},
		{"OK its name", fmt.Sprintf(soft, "rxe", "q"), []string{"rdma link delete r", "rdma link add q type rxe netdev eth0"}},
		{"OK its driver", fmt.Sprintf(soft, "siw", "q"), []string{"rdma link delete q", "rdma link add q type siw netdev eth0"}},
		{"OK nothing more", "", []string{"rdma link delete q"}},
	} {
		testkit.Diff(t, tt.name, tt.want, settle(tt.text, nil))
		if again := settle(tt.text, nil); again != nil {
			t.Errorf("%s: a second plan has %q", tt.name, again)
		}
	}
	// What cannot go now keeps what is to come in its place from being tried.
	settle(fmt.Sprintf(vlan, "a", 7, ""), nil)
	delayed := map[string]link.Reason{link.DelayKey(DelVLAN{On: link.Target{Link: "eth0", Ifindex: 2},
		Name: "a"}): {Code: link.CodeRetry, Text: "busy"}}
	if got := settle(fmt.Sprintf(vlan, "a", 8, ""), delayed); got != nil {
		t.Errorf("made although the old one stays: %q", got)
	}
}

// A port without an interface gets its type and description.
func TestPorts(t *testing.T) {
	s, st := system()
	s.Links = s.Links[:1]
	s.Card = st
	u := unit(t, "[Port]\nType=eth\n")
	b := link.NewBuilder(s, nil, nil)
	PlanPorts(b, func(d *link.Device, _ *link.Port) *units.Unit {
		if d.Name == "mlx4_0" {
			return u
		}
		return nil
	})
	if len(b.Plan.Steps) != 1 || b.Plan.Steps[0].Op.String() != "devlink port set pci/0000:03:00.0/1 type eth" || b.Plan.Steps[0].Unit == "" {
		t.Errorf("%+v %+v", b.Plan.Steps, b.Plan.Blocked)
	}
}
