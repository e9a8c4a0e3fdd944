package diagnose

import (
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// A port without a cable is a failure where a unit wants it, and where all
// ports must be connected.
func TestSpare(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(*Input)
		want  Result
	}{
		{"no unit", func(*Input) {}, Spare},
		{"no unit, a link without one", func(in *Input) { in.Report.Links[0].Unit = "" }, Spare},
		{"disabled", func(in *Input) { in.Snapshot.Devices[0].Ports[0].Phys = ib.PhysDisabled }, Spare},
		{"all", func(in *Input) { in.All = true }, Fail},
		{"a unit for the port", func(in *Input) { in.Report.Ports[0].Unit = "/etc/systemd/network/10-ib0.ibnetwork" }, Fail},
		{"a unit for the link", func(in *Input) { in.Report.Links = good().Report.Links }, Fail},
		{"in use, a cable that does not train", func(in *Input) { in.Snapshot.Devices[0].Ports[0].Phys = ib.PhysTraining }, Fail},
		{"Ethernet", func(in *Input) { in.Snapshot.Devices[0].Ports[0].Layer = ib.LinkLayerEthernet }, Spare},
	} {
		in := good()
		in.Report.Links[0].Unit, in.Report.Ports[0].Unit = "", ""
		in.Units = &units.Set{Units: []*units.Unit{verified("10-ib0.ibnetwork", "[Match]\nName=ib0\n")}}
		p := &in.Snapshot.Devices[0].Ports[0]
		p.State, p.Phys = ib.PortDown, ib.PhysPolling
		tc.spoil(&in)
		c := Run(in, "")
		last := c[len(c)-1].Checks
		if got := last[len(last)-1]; got.Result != tc.want || got.Name != "cable" || c[len(c)-1].Blocked() != (tc.want == Fail) {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if c := Run(in, "mlx5_0/1"); !c[0].Blocked() {
			t.Errorf("%s, asked for by name: %+v", tc.name, c)
		}
	}
}

// What no unit applies to fails where it is in use, asked for by name, or with all.
func TestUnused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(*Input)
		check string
		want  Result
	}{
		{"link down", func(in *Input) { in.Snapshot.Links[0].Flags = 0 }, "interface", Spare},
		{"link down, a child that a unit has made", func(in *Input) { in.Snapshot.Links[0].Flags, in.Report.Links[0].MadeByUs = 0, true },
			"interface", Fail},
		{"link down, another one of the port has a unit", func(in *Input) {
			in.Snapshot.Links[0].Flags = 0
			in.Snapshot.Links = append(in.Snapshot.Links, good().Snapshot.Links[0])
			in.Snapshot.Links[1].Name, in.Snapshot.Links[1].Index = "ib0.8001", 5
			in.Report.Links = append(in.Report.Links, link.Status{Name: "ib0.8001", Ifindex: 5, Unit: "10-child.ibnetwork", IBDevice: "mlx5_0",
				Port: 1, Addresses: []string{"10.1.0.1/24"}})
		}, "interface", Spare},
		{"link down, no subnet manager", func(in *Input) {
			in.Snapshot.Links[0].Flags, in.Snapshot.Devices[0].Ports[0].State = 0, ib.PortInit
		}, "subnet manager", Warn},
		{"link down, the subnet manager is dead", func(in *Input) { in.Snapshot.Links[0].Flags, in.Asked["mlx5_0/1"] = 0, Asked{} },
			"subnet manager", Warn},
		{"link down, the cable does not train", func(in *Input) {
			p := &in.Snapshot.Devices[0].Ports[0]
			in.Snapshot.Links[0].Flags, p.State, p.Phys = 0, ib.PortDown, ib.PhysTraining
		}, "cable", Warn},
		{"no interface", func(in *Input) { in.Snapshot.Links = nil }, "interface", Warn},
		{"link up, no subnet manager", func(in *Input) { in.Snapshot.Devices[0].Ports[0].State = ib.PortInit }, "subnet manager", Fail},
		{"link up, the subnet manager is dead", func(in *Input) { in.Asked["mlx5_0/1"] = Asked{} }, "subnet manager", Fail},
	} {
		input := func() Input {
			in := good()
			in.Report.Links[0].Unit, in.Report.Ports = "", nil
			tc.spoil(&in)
			return in
		}
		find := func(cs []Chain) (out Check) {
			for _, k := range cs[0].Checks {
				if out.Name == "" && k.Result != OK {
					out = k
				}
			}
			return out
		}
		got := Run(input(), "")
		if k := find(got); k.Name != tc.check || k.Result != tc.want || k.Next == "" || got[0].Blocked() != (tc.want == Fail) {
			t.Errorf("%s: %+v", tc.name, k)
		}
		all := input()
		all.All = true
		for how, cs := range map[string][]Chain{"by name": Run(input(), "mlx5_0/1"), "all": Run(all, "")} {
			if k := find(cs); k.Name != tc.check || k.Result != Fail || !cs[0].Blocked() {
				t.Errorf("%s, %s: %+v", tc.name, how, k)
			}
		}
	}
}

func verified(name, text string) *units.Unit {
	u, _ := units.VerifyFile(name, []byte(text))
	return u
}

// A mistake in a unit is named and blocks nothing by itself; a named unit
// leaves the rest out.
func TestUnits(t *testing.T) {
	a := verified("10-ib0.ibnetwork", "[Match]\nName=ib0\n[IPoIB]\nMode=conected\n")
	b := verified("20-other.ibnetwork", "[Match]\nName=ib7\n")
	in := good()
	in.Units = &units.Set{Units: []*units.Unit{a, b}, Problems: a.Problems}
	c := Run(in, "")
	if len(c) != 2 || c[0].On != "10-ib0.ibnetwork" || !c[0].Mistaken() || c[0].Blocked() || c[1].Mistaken() {
		t.Fatalf("%+v", c)
	}
	if k := c[0].Checks[0]; !strings.HasPrefix(k.Text, "10-ib0.ibnetwork:4:") || k.Name != "Mode" ||
		k.Next != "ibnetctl edit 10-ib0.ibnetwork" {
		t.Errorf("%+v", k)
	}
	if c := Run(in, "mlx5_0/1"); len(c) != 1 {
		t.Errorf("the checks of a port: %+v", c)
	}
	in.Unit = "20-other"
	if c := Run(in, ""); len(c) != 1 || c[0].Mistaken() || c[0].Checks[0].Result != OK {
		t.Errorf("a unit that applies to nothing: %+v", c)
	}
	in.Unit = "10-ib0"
	if c := Run(in, ""); len(c) != 2 || !c[0].Mistaken() || c[1].On != "mlx5_0/1" {
		t.Errorf("a unit that applies: %+v", c)
	}
	in.Report.Links[0].Unit, in.Report.Ports[0].Unit = "", ""
	if c := Run(in, ""); len(c) != 1 {
		t.Errorf("the port has no unit: %+v", c)
	}
	if got := editCommand("/etc/systemd/network/10-ib0.ibnetwork.d/a.conf"); got != "ibnetctl edit 10-ib0.ibnetwork --drop-in a.conf" {
		t.Error(got)
	}
}
