package diagnose

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// bonded is good with ib0 as the active slave of bond0, whose status has the attributes.
func bonded(as ...link.Attribute) Input {
	in := good()
	s := in.Snapshot
	s.Links[0].Master, s.Links[0].Addresses = 9, nil
	s.Links = append(s.Links, link.Link{Index: 9, Name: "bond0", Type: link.ARPHRDInfiniBand, Kind: "bond", MTU: 2044,
		Flags: link.FlagUp | link.FlagLowerUp, Bond: &link.Bond{Active: 4},
		Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/24")}}})
	in.Report.Links = append(in.Report.Links, link.Status{Name: "bond0", Ifindex: 9, State: link.StateConfigured, Attributes: as,
		Unit: "/etc/systemd/network/20-bond.ibnetwork"})
	return in
}

// A bond that the units of its slaves made stays down without a unit of its own: its status
// and the diagnosis of the host say so.
func TestBondWithoutUnit(t *testing.T) {
	in := bonded()
	l, st := &in.Snapshot.Links[1], &in.Report.Links[1]
	l.Flags, l.Addresses = 0, nil
	*st = link.BuildStatus(link.StatusInput{Snapshot: in.Snapshot, Link: l, Made: true})
	r := st.Reason()
	if !strings.HasPrefix(r.Text, "no unit matches bond0, ") || r.Next != "ibnetctl edit 10-bond0" || st.Online || !st.Required {
		t.Errorf("%+v", st)
	}
	for _, only := range []string{"", "bond0"} {
		chains := Run(in, only)
		c := chains[len(chains)-1]
		if c.On != "bond0" || !c.Failed() || c.Checks[0].Next != "ibnetctl edit 10-bond0" ||
			!strings.HasPrefix(c.Checks[0].Text, "bond0 is administratively down: no unit matches bond0") {
			t.Errorf("%q: %+v", only, c)
		}
	}
	*st = link.BuildStatus(link.StatusInput{Snapshot: in.Snapshot, Link: &in.Snapshot.Links[0], Made: true})
	if len(st.Reasons) > 0 {
		t.Errorf("a slave: %+v", st.Reasons)
	}
}

// A bond with a unit comes up with the daemon.
func TestBondWithoutDaemon(t *testing.T) {
	for _, start := range []string{"", "systemctl start ibnetworkd"} {
		in := bonded()
		in.Snapshot.Links[1].Flags, in.StartDaemon = 0, start
		want := cmp.Or(start, "ibnetctl up bond0")
		cs := Run(in, "bond0")
		if k := cs[len(cs)-1].Checks[0]; k.Result != Fail || k.Next != want {
			t.Errorf("%+v, want %q", k, want)
		}
	}
}

// What the status of a bond warns of is a note of its diagnosis with the next step, and
// does not block the way.
func TestBond(t *testing.T) {
	why := func(code link.Code) link.Reason { return link.Reason{Code: code, Text: "the reason", Next: "the step"} }
	for _, tt := range []struct {
		name, check string
		a           link.Attribute
		want        Check
	}{
		{"failover fails", "failover", link.Attribute{Name: "Backup", Wanted: "ib1 ready", Actual: "ib1 not ready", Why: why(link.CodeFailover)},
			Check{Result: Warn, Code: link.CodeFailover, Text: "the reason", Next: "the step"}},
		{"failover works", "failover", link.Attribute{Name: "Backup", Wanted: "ib1 ready", Actual: "ib1 ready"},
			Check{Result: OK, Text: "ib1 ready"}},
		{"one switch", "switches", link.Attribute{Name: "Switches", Wanted: "two", Actual: "one", Why: why(link.CodeSameSwitch)},
			Check{Result: Warn, Code: link.CodeSameSwitch, Text: "the reason", Next: "the step"}},
		{"two switches", "switches", link.Attribute{Name: "Switches", Wanted: "two", Actual: "two"},
			Check{Result: OK, Text: "the slaves are cabled to two or more switches"}},
		{"not known", "switches", link.Attribute{Name: "Switches", Actual: "not checked"},
			Check{Result: Unchecked, Text: "not checked"}},
		{"no LACP", "LACP", link.Attribute{Name: "LACPPartner", Wanted: "a switch that answers", Actual: "none", Why: why(link.CodeFailover)},
			Check{Result: Warn, Code: link.CodeFailover, Text: "the reason", Next: "the step"}},
	} {
		chains := Run(bonded(tt.a), "")
		c := chains[len(chains)-1]
		if c.On != "bond0" || c.Failed() || len(c.Checks) != 3 {
			t.Errorf("%s: %+v", tt.name, c)
			continue
		}
		if tt.want.Name = tt.check; c.Checks[1] != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, c.Checks[1], tt.want)
		}
		if k := c.Checks[2]; k.Name != "address" || k.Text != "10.0.0.1/24" {
			t.Errorf("%s: %+v", tt.name, k)
		}
	}
}

func TestBondBlocked(t *testing.T) {
	bond := func(in *Input) *link.Link { return &in.Snapshot.Links[1] }
	for _, tt := range []struct {
		name  string
		spoil func(*Input)
		words string
	}{
		{"down", func(in *Input) { bond(in).Flags = 0 }, "bond0 is administratively down"},
		{"no carrier", func(in *Input) { bond(in).Flags = link.FlagUp }, "without a carrier: none of its slaves has one"},
		{"address refused", func(in *Input) {
			st := &in.Report.Links[1]
			st.Attributes = append(st.Attributes, link.Attribute{Name: "Address", Wanted: "10.0.0.9/24",
				Why: link.Reason{Code: link.CodeRefused, Text: "no"}})
		}, "10.0.0.9/24 is not set: no"},
	} {
		in := bonded()
		tt.spoil(&in)
		chains := Run(in, "bond0")
		if len(chains) != 1 || !chains[0].Blocked() {
			t.Errorf("%s: %+v", tt.name, chains)
			continue
		}
		if !slices.ContainsFunc(chains[0].Checks, func(k Check) bool { return k.Result == Fail && strings.Contains(k.Text, tt.words) }) {
			t.Errorf("%s: %+v, want %q", tt.name, chains[0], tt.words)
		}
	}
}

// A bond is diagnosed where a unit applies to it or to a slave, or by its name; a slave
// needs no address.
func TestBondChosen(t *testing.T) {
	set := &units.Set{}
	for _, n := range []string{"10-ib0.ibnetwork", "20-bond.ibnetwork", "30-x.ibnetwork"} {
		u, _ := units.VerifyFile("/etc/systemd/network/"+n, []byte("[Match]\nName=x\n"))
		set.Units = append(set.Units, u)
	}
	for _, tt := range []struct {
		only, unit string
		foreign    bool // no unit applies to the bond
		want       string
	}{
		{"", "", false, "mlx5_0/1 bond0"}, {"", "", true, "mlx5_0/1"}, {"bond0", "", true, "bond0"}, {"ib0", "", false, "mlx5_0/1"},
		{"", "20-bond", false, "20-bond.ibnetwork bond0"}, {"", "10-ib0", false, "10-ib0.ibnetwork mlx5_0/1 bond0"},
		{"", "30-x", false, "30-x.ibnetwork"},
	} {
		in := bonded()
		in.Unit, in.Units = tt.unit, set
		if tt.foreign {
			in.Report.Links[1].Unit = ""
		}
		var on []string
		for _, c := range Run(in, tt.only) {
			on = append(on, c.On)
			for _, k := range c.Checks {
				if c.On == "mlx5_0/1" && k.Name == "address" && (k.Result != OK || !strings.Contains(k.Text, "slave of bond0")) {
					t.Errorf("%+v: %+v", tt, k)
				}
			}
		}
		if got := strings.Join(on, " "); got != tt.want {
			t.Errorf("%+v: chains of %s", tt, got)
		}
	}
}
