package link

import (
	"net/netip"
	"strings"
	"testing"

	"ibnetworkd/units"
)

func TestPlanVRF(t *testing.T) {
	makes := &units.Unit{VRF: units.VRF{Name: units.Some("red"), Table: units.Some(uint32(100))}}
	join := &units.Unit{Network: units.Network{Section: units.Section{Present: true}, VRF: units.Some("red")}}
	there := func(table uint32, up bool) func(*Snapshot) {
		return func(s *Snapshot) {
			l := Link{Index: 20, Name: "red", Type: 1, Kind: KindVRF, VRF: &VRF{Table: table}}
			if up {
				l.Flags = FlagUp
			}
			s.Links = append(s.Links, l)
		}
	}
	for _, tt := range []struct {
		name string
		unit *units.Unit
		sys  func(*Snapshot)
		made bool
		want string
		code Code
	}{
		{"OK made", makes, nil, false, "ip link add name red type vrf table 100\nip link set red up\nip link set ib0 master red", ""},
		{"OK there already", makes, func(s *Snapshot) { there(100, true)(s); s.Links[1].Master = 20 }, true, "", ""},
		{"OK another program's, up or not", join, there(7, false), false, "ip link set ib0 master red", ""},
		{"OK another table", makes, there(7, true), true,
			"ip link delete red\nip link add name red type vrf table 100\nip link set red up\nip link set ib0 master red", ""},
		{"OK in another link", makes, func(s *Snapshot) { there(100, true)(s); s.Links[1].Master = 9 }, true, "", CodeRefused},
		{"bad another program's table", makes, there(7, true), false, "", CodeNameTaken},
		{"bad none to join", join, nil, false, "", CodeNoDevice},
		{"bad a macvlan on the VRF", join, func(s *Snapshot) {
			there(7, true)(s)
			s.Links[1].Kind, s.Links[1].Parent = "macvlan", 20
		}, false, "", CodeUnsupported},
		{"bad not a VRF", join, func(s *Snapshot) { there(7, true)(s); s.Links[len(s.Links)-1].VRF = nil }, false, "", CodeNameTaken},
	} {
		s := host(t)
		if tt.sys != nil {
			tt.sys(s)
		}
		rec := &Record{}
		if tt.made {
			rec.Links = append(rec.Links, &LinkRecord{Ifindex: 20, Name: "red", VRF: true})
		}
		b := NewBuilder(s, rec, nil)
		PlanVRF(b, 4, tt.unit, func(i int) *units.Unit {
			if i == 4 {
				return tt.unit
			}
			return nil
		})
		var code Code
		for _, x := range b.Plan.Blocked {
			code = x.Reason.Code
		}
		if got := strings.Join(b.Plan.Commands(), "\n"); got != tt.want || code != tt.code {
			t.Errorf("%s:\n%s\nblocked %q", tt.name, b.Plan, code)
		}
	}
}

// The table is that of the first link's unit: a unit with another one is refused by name.
func TestVRFTablesDiffer(t *testing.T) {
	of := func(table uint32) *units.Unit {
		return &units.Unit{Path: "/etc/systemd/network/a.ibnetwork", VRF: units.VRF{Name: units.Some("red"), Table: units.Some(table)}}
	}
	s := bonded(t)
	s.Links[4] = Link{Index: 12, Name: "red", Type: 1, Kind: KindVRF, Flags: FlagUp, VRF: &VRF{Table: 100}}
	s.Links[2].Master = 0
	b := NewBuilder(s, &Record{Links: []*LinkRecord{{Ifindex: 12, Name: "red", VRF: true}}}, nil)
	PlanVRF(b, 5, of(7), func(i int) *units.Unit { return of(map[int]uint32{4: 100, 5: 7}[i]) })
	if len(b.Plan.Steps) != 0 || len(b.Plan.Blocked) != 1 || !strings.Contains(b.Plan.Blocked[0].Reason.Text, "as the unit of ib0 has it") {
		t.Errorf("%s", b.Plan)
	}
}

// What a unit without Table= puts into routes follows its VRF, and nothing is set before
// the link is in it.
func TestVRFOfRoutes(t *testing.T) {
	u := &units.Unit{
		VRF:     units.VRF{Name: units.Some("red"), Table: units.Some(uint32(100))},
		Network: units.Network{Section: units.Section{Present: true}},
		Routes: []units.Route{
			{Destination: units.Some(netip.MustParsePrefix("10.9.0.0/16"))},
			{Destination: units.Some(netip.MustParsePrefix("10.8.0.0/16")), Table: units.Some(uint32(7))},
		},
	}
	s := host(t)
	got := wantedRoutes(&s.Links[1], s, u)
	if len(got) != 2 || got[0].Table != 100 || got[1].Table != 7 {
		t.Errorf("routes %+v", got)
	}
	b := NewBuilder(s, nil, nil)
	if why, wait := addressWait(b, 4, u); !wait || !strings.Contains(why.Text, "ib0 is not in the VRF red") {
		t.Errorf("%v %+v", wait, why)
	}
	PlanVRF(b, 4, u, func(int) *units.Unit { return nil })
	if why, wait := addressWait(b, 4, u); wait {
		t.Errorf("waits in the VRF: %+v", why)
	}
}

// What a unit has set does not stay in the main table if its VRF is gone and cannot be made
// again, or does not take the link.
func TestVRFNotMadeAgain(t *testing.T) {
	u := &units.Unit{
		VRF:       units.VRF{Name: units.Some("red"), Table: units.Some(uint32(100))},
		Network:   units.Network{Section: units.Section{Present: true}},
		Addresses: []units.Address{{Address: units.Some(netip.MustParsePrefix("10.6.0.1/24"))}},
	}
	vrf := func(name string, table uint32) Link {
		return Link{Index: 20, Name: name, Type: 1, Kind: KindVRF, Flags: FlagUp, VRF: &VRF{Table: table}}
	}
	refused := func(op Op) map[string]Reason {
		return map[string]Reason{DelayKey(op): {Code: CodeRefused, Text: "refused"}}
	}
	const again = "ip link add name red type vrf table 100\nip link set red up\nip link set ib0 master red"
	for _, tt := range []struct {
		name    string
		links   []Link
		delayed map[string]Reason
		want    string
	}{
		{"OK made again", nil, nil, again},
		{"bad refused", nil, refused(AddVRF{On: Target{Link: "red"}, Table: 100}), "ip address delete 10.6.0.1/24 dev ib0"},
		{"bad table taken", []Link{vrf("blue", 100)}, nil, "ip address delete 10.6.0.1/24 dev ib0"},
		{"bad not taken in", []Link{vrf("red", 100)}, refused(SetMaster{On: Target{Ifindex: 4, Link: "ib0"},
			Master: Target{Ifindex: 20, Link: "red"}, VRF: true}), "ip address delete 10.6.0.1/24 dev ib0"},
	} {
		s := host(t)
		s.Links = append(s.Links, tt.links...)
		a := wantedAddresses(&s.Links[1], u, u.Addresses)[0].Address
		s.Links[1].Addresses = []Address{a}
		b := NewBuilder(s, &Record{Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", Addresses: []Address{a}}}}, tt.delayed)
		PlanRemovals(b, 4, u)
		PlanVRF(b, 4, u, func(i int) *units.Unit { return map[int]*units.Unit{4: u}[i] })
		PlanNetwork(b, 4, u)
		if got := strings.Join(b.Plan.Commands(), "\n"); got != tt.want {
			t.Errorf("%s:\n%s", tt.name, b.Plan)
		}
	}
}

// A link whose unit names no VRF any more leaves it, and the VRF that was made goes.
func TestVRFRemoval(t *testing.T) {
	s := host(t)
	s.Links = append(s.Links, Link{Index: 20, Name: "red", Type: 1, Kind: KindVRF, Flags: FlagUp, VRF: &VRF{Table: 100}})
	s.Links[1].Master, s.Links[1].SlaveKind = 20, KindVRF
	if got := operOf(&s.Links[1]); got == units.OperEnslaved {
		t.Errorf("a link in a VRF is %v", got)
	}
	rec := &Record{Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", Enslaved: "red"}, {Ifindex: 20, Name: "red", VRF: true}}}
	b := NewBuilder(s, rec, nil)
	PlanMasterRemoval(b, 4, &units.Unit{}, &units.Unit{})
	PlanMasterOrphan(b, 20, func(string) bool { return false })
	if got := strings.Join(b.Plan.Commands(), "\n"); got != "ip link set ib0 nomaster\nip link delete red" {
		t.Errorf("%s", got)
	}
}

// A VRF whose table the unit of any link in it asks for is not made again for another's.
func TestVRFKeptByAnyUnit(t *testing.T) {
	of := func(table uint32) *units.Unit {
		return &units.Unit{VRF: units.VRF{Name: units.Some("red"), Table: units.Some(table)}}
	}
	s := bonded(t)
	s.Links[4] = Link{Index: 12, Name: "red", Type: 1, Kind: KindVRF, Flags: FlagUp, VRF: &VRF{Table: 100}}
	join := &units.Unit{Network: units.Network{VRF: units.Some("red")}}
	rec := &Record{Links: []*LinkRecord{{Ifindex: 12, Name: "red", VRF: true}}}
	b := NewBuilder(s, rec, nil)
	PlanVRF(b, 9, of(7), func(i int) *units.Unit { return map[int]*units.Unit{4: join, 5: of(100), 9: of(7)}[i] })
	if len(b.Plan.Steps) != 0 || len(b.Plan.Blocked) != 1 || !strings.Contains(b.Plan.Blocked[0].Reason.Text, "as the unit of ib1 has it") {
		t.Errorf("%s", b.Plan)
	}
	// Nor is a second VRF with the same table.
	blue := &units.Unit{VRF: units.VRF{Name: units.Some("blue"), Table: units.Some(uint32(100))}}
	b = NewBuilder(s, rec, nil)
	PlanVRF(b, 9, blue, func(i int) *units.Unit { return map[int]*units.Unit{4: of(100), 5: of(100), 9: blue}[i] })
	if len(b.Plan.Steps) != 0 || len(b.Plan.Blocked) != 1 || !strings.Contains(b.Plan.Blocked[0].Reason.Text, "red already uses table 100") {
		t.Errorf("%s", b.Plan)
	}
}

// While the VRF of a unit does not exist, its addresses are not left outside of it.
func TestVRFGone(t *testing.T) {
	s := host(t)
	a := Address{Prefix: netip.MustParsePrefix("10.6.0.1/24")}
	s.Links[1].Addresses = []Address{a}
	rec := &Record{Links: []*LinkRecord{{Ifindex: 4, Name: "ib0", Addresses: []Address{a}}}}
	u := &units.Unit{Network: units.Network{Section: units.Section{Present: true}, VRF: units.Some("blue")},
		Addresses: []units.Address{{Address: units.Some(a.Prefix)}}}
	b := NewBuilder(s, rec, nil)
	PlanRemovals(b, 4, u)
	if got := strings.Join(b.Plan.Commands(), "\n"); !strings.HasPrefix(got, "ip address delete 10.6.0.1/24") {
		t.Errorf("%q", got)
	}
}

// Where the link cannot enter, nothing is set outside of the VRF.
func TestVRFRefused(t *testing.T) {
	s := host(t)
	s.Links = append(s.Links, Link{Index: 20, Name: "red", Type: 1, Kind: KindVRF, VRF: &VRF{Table: 7}})
	u := &units.Unit{VRF: units.VRF{Name: units.Some("red"), Table: units.Some(uint32(100))},
		Network:   units.Network{Section: units.Section{Present: true}},
		Addresses: []units.Address{{Address: units.Some(netip.MustParsePrefix("10.6.0.1/24"))}},
		Routes:    []units.Route{{Destination: units.Some(netip.MustParsePrefix("10.9.0.0/16"))}},
		Neighbors: []units.Neighbor{{Address: units.Some(netip.MustParseAddr("10.6.0.2")), LinkLayerAddress: units.Some(s.Links[1].HWAddr)}}}
	b := NewBuilder(s, &Record{}, nil)
	PlanVRF(b, 4, u, func(int) *units.Unit { return nil })
	PlanNetwork(b, 4, u)
	if len(b.Plan.Steps) != 0 || len(b.Plan.Blocked) != 4 {
		t.Errorf("%s", b.Plan)
	}
	for _, x := range b.Plan.Blocked {
		if x.Reason.Code != CodeNameTaken {
			t.Errorf("%+v", x)
		}
	}
}

// What is recorded of a master follows what was done last, and ends with another's doing.
func TestRecordOfMaster(t *testing.T) {
	on, red, blue := Target{Link: "ib0", Ifindex: 4}, Target{Link: "red", Ifindex: 20}, Target{Link: "blue", Ifindex: 21}
	r := &Record{}
	enter, leave := SetMaster{On: on, Master: blue, VRF: true}, SetMaster{On: on, Master: red, VRF: true, Release: true}
	r.Intend(leave)
	r.Intend(enter)
	r.Done(leave)
	r.Done(enter)
	s := host(t)
	s.Links = append(s.Links, Link{Index: 21, Name: "blue", VRF: &VRF{Table: 7}})
	s.Links[1].Master = 21
	if r.Reconcile(s); r.Of(&s.Links[1]).Enslaved != "blue" {
		t.Errorf("%+v", r.Of(&s.Links[1]))
	}
	s.Links[1].Master = 0
	if r.Reconcile(s); r.Of(&s.Links[1]).Enslaved != "" {
		t.Errorf("%+v", r.Of(&s.Links[1]))
	}
}

// An address of another program is not changed, and so not adopted, on a link that waits
// for its VRF.
func TestVRFWaitAdoptsNothing(t *testing.T) {
	s := host(t)
	s.Links[1].Addresses = []Address{{Prefix: prefix("10.0.0.1/24"), Valid: Forever, Preferred: Forever}}
	b := NewBuilder(s, &Record{}, nil)
	PlanNetwork(b, 4, unit(t, "[Network]\nVRF=red\n[Address]\nAddress=10.0.0.1/24\nRouteMetric=7\n"))
	if len(b.Plan.Steps) != 0 || len(b.Plan.Blocked) != 1 || b.Plan.Blocked[0].Reason.Text != "ib0 is not in the VRF red" {
		t.Errorf("%s", b.Plan.String())
	}
}
