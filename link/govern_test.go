package link

import (
	"slices"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// The record has the unit that each InfiniBand port had last, also of ports that are
// absent, up to a bound, and gives it back after a restart.
func TestRememberPorts(t *testing.T) {
	s := &Snapshot{Devices: []Device{{Name: "mlx5_0", Ports: []Port{
		{Num: 1, GUID: 1, Layer: ib.LinkLayerInfiniBand}, {Num: 2, GUID: 2, Layer: ib.LinkLayerEthernet}, {Num: 3, Layer: ib.LinkLayerInfiniBand},
	}}}}
	unit := func(name string) Governed { return Governed{Unit: &units.Unit{Name: name}} }
	all := func(g Governed) map[PortName]Governed {
		return map[PortName]Governed{{"mlx5_0", 1}: g, {"mlx5_0", 2}: g, {"mlx5_0", 3}: g}
	}
	r := &Record{Ports: []PortRecord{{GUID: 9, Unit: "absent.ibnetwork"}}}
	for _, step := range []struct {
		name    string
		ports   Governed
		changed bool
		want    []PortRecord
	}{
		{"a unit", unit("a.ibnetwork"), true, []PortRecord{{1, "a.ibnetwork"}, {9, "absent.ibnetwork"}}},
		{"the same", unit("a.ibnetwork"), false, []PortRecord{{1, "a.ibnetwork"}, {9, "absent.ibnetwork"}}},
		{"another", unit("b.ibnetwork"), true, []PortRecord{{1, "b.ibnetwork"}, {9, "absent.ibnetwork"}}},
		{"not yet", Governed{NotYet: true}, false, []PortRecord{{1, "b.ibnetwork"}, {9, "absent.ibnetwork"}}},
		{"none", Governed{}, true, []PortRecord{{9, "absent.ibnetwork"}}},
		{"none again", Governed{}, false, []PortRecord{{9, "absent.ibnetwork"}}},
	} {
		if changed := r.RememberPorts(s, all(step.ports)); changed != step.changed || !slices.Equal(r.Ports, step.want) {
			t.Errorf("%s: changed %v, record %v, want %v", step.name, changed, r.Ports, step.want)
		}
		text, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := DecodeRecord(text); err != nil || !slices.Equal(again.Ports, step.want) || !slices.Equal(r.Clone().Ports, step.want) {
			t.Errorf("%s: read back %v, %v", step.name, again, err)
		}
	}
	for i := range 2 * maxPorts {
		r.Ports = append(r.Ports, PortRecord{GUID: ib.GUID(100 + i), Unit: "gone.ibnetwork"})
	}
	if !r.RememberPorts(s, all(unit("a.ibnetwork"))) || !slices.Equal(r.Ports, []PortRecord{{1, "a.ibnetwork"}}) {
		t.Errorf("%d absent ports are kept", len(r.Ports)-1)
	}
}

// The main interface of a port speaks for it: that of the kernel where it names one,
// else the first that is no child.
func TestGovernPorts(t *testing.T) {
	set := &units.Set{}
	a, b := &units.Unit{Name: "a.ibnetwork"}, &units.Unit{Name: "b.ibnetwork"}
	s := &Snapshot{
		Devices: []Device{{Name: "mlx5_0", Ports: []Port{{Num: 1, GUID: 1, Layer: ib.LinkLayerInfiniBand}}},
			{Name: "mlx5_1", Ports: []Port{{Num: 1, Layer: ib.LinkLayerEthernet, Netdev: 5}}}},
		Links: []Link{{Index: 2, Name: "ib0.8001", Type: ARPHRDInfiniBand, Kind: "ipoib", Parent: 3,
			IBDevice: "mlx5_0", Port: 1, IPoIB: &IPoIB{PKey: 0x8001}},
			{Index: 3, Name: "ib0", Type: ARPHRDInfiniBand, Kind: "ipoib", IBDevice: "mlx5_0", Port: 1, IPoIB: &IPoIB{PKey: 0xffff}},
			{Index: 4, Name: "eth0", Type: 1, IBDevice: "mlx5_1", Port: 1}, {Index: 5, Name: "eth1", Type: 1, IBDevice: "mlx5_1", Port: 1}},
	}
	got := GovernPorts(s, set, map[int]Governed{2: {Unit: b}, 3: {Unit: a}, 4: {Unit: a}, 5: {Unit: b}}, nil)
	if got[PortName{"mlx5_0", 1}].Unit != a || got[PortName{"mlx5_1", 1}].Unit != b {
		t.Errorf("got %+v", got)
	}
	got = GovernPorts(&Snapshot{Devices: s.Devices[:1]}, set, nil, nil)
	if g := got[PortName{"mlx5_0", 1}]; g != (Governed{}) {
		t.Errorf("no unit at all: %+v", g)
	}
	if (Governed{Unit: a}).Last() != a || (Governed{NotYet: true, Before: b}).Last() != b || (Governed{}).Last() != nil {
		t.Error("the unit that counts")
	}
}
