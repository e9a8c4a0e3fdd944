package link

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// bonded is a host with ib0 and ib1, both slaves of bond0; ib0 is active.
func bonded(t testing.TB) *Snapshot {
	s := host(t)
	second := s.Links[1]
	second.Index, second.Name, second.IBDevice = 5, "ib1", "mlx5_1"
	d := s.Devices[0]
	d.Name, d.Ports = "mlx5_1", []Port{d.Ports[0]}
	s.Devices = append(s.Devices, d)
	bond := Link{Index: 12, Name: "bond0", Type: ARPHRDInfiniBand, Kind: "bond", Flags: FlagUp | FlagLowerUp, MTU: 2044,
		Bond: &Bond{BondOptions: BondOptions{Mode: 1, MIIMon: 10, FailOverMAC: 1}, Active: 4}}
	s.Links = []Link{s.Links[0], s.Links[1], second, s.Links[2], bond}
	s.Links[1].Master, s.Links[2].Master = 12, 12
	return s
}

func TestFailover(t *testing.T) {
	for _, tt := range []struct {
		name string
		sys  func(*Snapshot)
		want string
	}{
		{"OK", func(*Snapshot) {}, ""},
		{"bad Initializing", func(s *Snapshot) {
			s.Devices[1].Ports[0].State, s.Devices[1].Ports[0].SMLID = ib.PortInit, 0
			s.Links[2].Flags &^= FlagLowerUp
		}, "a failover of bond0 to ib1 would fail: port mlx5_1/1 is Initializing"},
		{"bad no P_Key", func(s *Snapshot) {
			s.Devices[1].Ports[0].PKeys = []ib.PKey{0x8001}
			s.Links[2].Flags &^= FlagLowerUp
		}, "P_Key 0xffff is not in the table of port mlx5_1/1"},
		{"bad MTU", func(s *Snapshot) { s.Links[4].MTU = 4092 }, "its MTU is 2044, that of the bond 4092"},
		{"bad another fabric", func(s *Snapshot) {
			s.Devices[0].Ports[0].SubnetPrefix, s.Devices[1].Ports[0].SubnetPrefix = 1, 2
		}, "it is on another fabric"},
		{"bad LACP without a switch", func(s *Snapshot) { s.Links[4].Bond.Mode = 4 }, "no switch answers LACP on the slaves of bond0 (ib0, ib1)"},
		{"OK LACP", func(s *Snapshot) { s.Links[4].Bond.Mode, s.Links[4].Bond.Partner = 4, true }, ""},
		{"bad one slave", func(s *Snapshot) { s.Links[2].Master = 0 }, "bond0 has 1 slaves"},
	} {
		s := bonded(t)
		tt.sys(s)
		b := NewBuilder(s, nil, nil)
		PlanFailover(b, 12)
		got := ""
		for _, a := range b.Attributes(12) {
			got += a.Why.Text
		}
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A bond without slaves has no cable to check.
func TestCarrierOfBond(t *testing.T) {
	for slaves, want := range map[int]string{0: "bond0 has no carrier, because it has no slaves", 12: "bond0 has no carrier"} {
		s := bonded(t)
		s.Links[1].Master, s.Links[2].Master = slaves, slaves
		s.Links[4].Flags &^= FlagLowerUp
		if got := carrierReason(s, &s.Links[4]).Text; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Whether the slaves are attached to several switches is known when all of them were asked.
func TestSwitches(t *testing.T) {
	sw := func(node ib.GUID, port int) Remote {
		return Remote{Node: node, Switch: true, Name: "leaf1", Port: port}
	}
	for _, tt := range []struct {
		name         string
		a, b         Remote
		actual, text string
	}{
		{"two", sw(1, 3), sw(2, 3), "two", ""},
		{"one", sw(1, 3), sw(1, 4), "one", "all slaves of bond0 are on one switch, leaf1 0x0000000000000001 (ib0 on port 3, ib1 on port 4)"},
		{"not all asked", sw(1, 3), Remote{}, "not checked", ""},
		{"a host", sw(1, 3), Remote{Node: 5, Port: 1}, "ib1 is cabled to a host, 0x0000000000000005", ""},
	} {
		s := bonded(t)
		s.Devices[0].Ports[0].Remote, s.Devices[1].Ports[0].Remote = tt.a, tt.b
		b := NewBuilder(s, nil, nil)
		PlanFailover(b, 12)
		found := false
		for _, a := range b.Attributes(12) {
			if a.Name == "Switches" {
				found = true
				if a.Actual != tt.actual || !strings.Contains(a.Why.Text, tt.text) || (tt.text == "") != (a.Why == Reason{}) {
					t.Errorf("%s: %+v", tt.name, a)
				}
			}
		}
		if !found {
			t.Errorf("%s: no attribute", tt.name)
		}
	}
}

func TestPlanBond(t *testing.T) {
	name := units.Some("bond0")
	// own makes the bond one of Ethernet links.
	own := func(s *Snapshot) {
		for _, i := range []int{1, 2, 4} {
			s.Links[i].Type, s.Links[i].IPoIB = 1, nil
		}
	}
	// on adds the link x, index 20, whose parent is another one.
	on := func(kind string, parent int) func(*Snapshot) {
		return func(s *Snapshot) {
			own(s)
			s.Links = append(s.Links, Link{Index: 20, Name: "x", Type: 1, Kind: kind, Parent: parent, Flags: FlagUp | FlagLowerUp, MTU: 2044})
		}
	}
	primary := &units.Unit{Bond: units.Bond{Name: name, Primary: units.Some("ib1")}}
	join := &units.Unit{Network: units.Network{Bond: name}}
	for _, tt := range []struct {
		name string
		unit *units.Unit
		sys  func(*Snapshot)
		on   int
		want string
		code Code
	}{
		{"OK there already", join, nil, 4, "", ""},
		{"OK the primary", primary, nil, 4, "ip link set bond0 type bond primary ib1", ""},
		{"OK one came back", join, func(s *Snapshot) { s.Links[2].Master = 0 }, 5,
			"ip link set ib1 down\nip link set ib1 master bond0\nip link set ib1 up", ""},
		{"OK the bond is made", primary, func(s *Snapshot) { s.Links = s.Links[:4]; s.Links[1].Master = 0 }, 4,
			"ip link add name bond0 mtu 2044 type bond mode active-backup miimon 10 fail_over_mac active\n" +
				"ip link set ib0 down\nip link set ib0 master bond0\nip link set ib0 up", ""},
		{"OK the one of the module bonding", primary, func(s *Snapshot) {
			s.Links[4].Bond.BondOptions, s.Links[4].Flags, s.Links[1].Master, s.Links[2].Master = BondOptions{}, 0, 0, 0
		}, 4, "ip link delete bond0\nip link add name bond0 mtu 2044 type bond mode active-backup miimon 10 fail_over_mac active\n" +
			"ip link set ib0 down\nip link set ib0 master bond0\nip link set ib0 up", ""},
		{"bad one of another program that is up", primary, func(s *Snapshot) {
			s.Links[4].Bond.BondOptions, s.Links[1].Master, s.Links[2].Master = BondOptions{}, 0, 0
		}, 4, "", CodeUnsupported},
		{"OK live settings", &units.Unit{Bond: units.Bond{Name: name, UpDelaySec: units.Some(125 * time.Millisecond)}}, nil, 4,
			"ip link set bond0 type bond updelay 120", ""},
		{"bad a mode of RoCE", &units.Unit{Bond: units.Bond{Name: name, Mode: units.Some(units.Bond8023AD)}}, nil, 4, "", CodeUnsupported},
		{"bad another program's policy", &units.Unit{Bond: units.Bond{Name: name, FailOverMACPolicy: units.Some(units.FailOverMAC(2))}}, own, 9,
			"", CodeNameTaken},
		{"bad no bond to join", join, func(s *Snapshot) { s.Links = s.Links[:4]; s.Links[1].Master = 0 }, 4, "", CodeNoDevice},
		{"bad another master", join, func(s *Snapshot) { s.Links[1].Master = 9 }, 4, "", CodeRefused},
		{"bad not a bond", join, func(s *Snapshot) { s.Links[4].Bond, s.Links[1].Master = nil, 0 }, 4, "", CodeNameTaken},
		{"bad another mode", join, func(s *Snapshot) { s.Links[4].Bond.Mode, s.Links[1].Master = 0, 0 }, 4, "", CodeUnsupported},
		{"bad Ethernet among InfiniBand", join, nil, 9, "", CodeUnsupported},
		{"bad MTU of connected mode", join, func(s *Snapshot) { s.Links[4].MTU, s.Links[2].Master = 65520, 0 }, 5, "", CodeMTUMode},
		{"bad the bond itself", join, nil, 12, "", CodeUnsupported},
		{"bad a VLAN on the bond", primary, on("vlan", 12), 20, "", CodeUnsupported},
		{"bad a VLAN on the bond, which exists already", join, on("vlan", 12), 20, "", CodeUnsupported},
		{"bad a macvlan on a bond over that bond", join, func(s *Snapshot) {
			on("macvlan", 13)(s)
			s.Links = slices.Insert(s.Links, 5, Link{Index: 13, Name: "over", Type: 1, Kind: "bond", Bond: &Bond{}})
			s.Links[4].Master = 13
		}, 20, "", CodeUnsupported},
		{"bad a link with a macvlan", join, func(s *Snapshot) {
			s.Links[2].Master = 0
			on("macvlan", 5)(s)
		}, 5, "", CodeRefused},
		{"OK the peer of a veth in the bond", join, func(s *Snapshot) {
			s.Links[2].Kind, s.Links[2].Parent = "veth", 20
			on("veth", 5)(s)
		}, 20, "ip link set x down\nip link set x master bond0\nip link set x up", ""},
	} {
		s := bonded(t)
		if tt.sys != nil {
			tt.sys(s)
		}
		b := NewBuilder(s, nil, nil)
		PlanBond(b, tt.on, tt.unit, func(int) *units.Unit { return tt.unit })
		var code Code
		for _, x := range b.Plan.Blocked {
			code = x.Reason.Code
		}
		if got := strings.Join(b.Plan.Commands(), "\n"); got != tt.want || code != tt.code {
			t.Errorf("%s:\n%s\nblocked %q", tt.name, b.Plan, code)
		}
	}
}

// A bond that was made for another mode is made again, once, whatever the units of its
// other slaves say.
func TestRemakeBond(t *testing.T) {
	s := bonded(t)
	for _, i := range []int{1, 2, 4} {
		s.Links[i].Type, s.Links[i].IPoIB, s.Links[i].MTU = 1, nil, 1500
	}
	r := &Record{Links: []*LinkRecord{{Ifindex: 12, Name: "bond0", Bond: true}}}
	lacp := &units.Unit{Name: "10-a.ibnetwork", Bond: units.Bond{Name: units.Some("bond0"), Mode: units.Some(units.Bond8023AD),
		LACPTransmitRate: units.Some(units.LACPRate(1))}}
	other := &units.Unit{Name: "20-b.ibnetwork", Bond: units.Bond{Name: units.Some("bond0")}}
	unit := func(index int) *units.Unit { return map[int]*units.Unit{4: lacp, 5: other}[index] }
	b := NewBuilder(s, r, nil)
	PlanBond(b, 4, lacp, unit)
	PlanBond(b, 5, other, unit)
	want := "ip link delete bond0\nip link add name bond0 mtu 1500 type bond mode 802.3ad miimon 10 lacp_rate fast\n" +
		"ip link set ib0 master bond0\nip link set ib0 up\nip link set ib1 master bond0\nip link set ib1 up"
	if got := strings.Join(b.Plan.Commands(), "\n"); got != want || len(b.Plan.Blocked) > 0 {
		t.Errorf("%s\n%v", got, b.Plan.Blocked)
	}
}

// A bond that carries traffic is not deleted for another mode that the unit of a link
// asks for which is not in it, or while it is not known what the unit of a slave asks for.
func TestBondKept(t *testing.T) {
	name := units.Some("bond0")
	lacp := &units.Unit{Name: "10-a.ibnetwork", Bond: units.Bond{Name: name, Mode: units.Some(units.Bond8023AD)}}
	backup := &units.Unit{Name: "20-b.ibnetwork", Bond: units.Bond{Name: name}}
	for _, tt := range []struct {
		name    string
		of      map[int]*units.Unit
		masters [2]int
		mode    uint8
		remade  bool
	}{
		{"the unit of a slave is not known", map[int]*units.Unit{5: backup}, [2]int{12, 12}, 4, false},
		{"a link is in another bond", map[int]*units.Unit{4: lacp, 5: backup}, [2]int{99, 12}, 1, false},
		{"a link has not joined", map[int]*units.Unit{4: lacp, 5: backup}, [2]int{0, 12}, 1, true}, // it joins, and its unit counts
		{"no link can join", map[int]*units.Unit{4: lacp, 5: backup}, [2]int{98, 99}, 1, false},
		{"all ask for it", map[int]*units.Unit{4: lacp, 5: lacp}, [2]int{12, 12}, 1, true},
	} {
		s := bonded(t)
		for i, l := range []int{1, 2, 4} {
			s.Links[l].Type, s.Links[l].IPoIB, s.Links[l].MTU = 1, nil, 1500
			if i < 2 {
				s.Links[l].Master = tt.masters[i]
			}
		}
		s.Links[4].Bond.Mode, s.Links[4].Bond.FailOverMAC = tt.mode, 0
		b := NewBuilder(s, &Record{Links: []*LinkRecord{{Ifindex: 12, Name: "bond0", Bond: true}}}, nil)
		for range 2 {
			for _, i := range []int{4, 5} {
				if u := tt.of[i]; u != nil {
					PlanBond(b, i, u, func(index int) *units.Unit { return tt.of[index] })
				}
			}
		}
		got := strings.Join(b.Plan.Commands(), "\n")
		if n := strings.Count(got, "link delete"); n > 1 || (n == 1) != tt.remade {
			t.Errorf("%s:\n%s", tt.name, got)
		}
	}
}

// Of units that differ the one whose file comes first holds, with any of the links as
// the only slave, in a second plan too.
func TestBondOfUnitsThatDiffer(t *testing.T) {
	name := units.Some("bond0")
	first := &units.Unit{Name: "10-ib1.ibnetwork", Bond: units.Bond{Name: name, UpDelaySec: units.Some(200 * time.Millisecond)}}
	second := &units.Unit{Name: "20-ib0.ibnetwork", Bond: units.Bond{Name: name, DownDelaySec: units.Some(50 * time.Millisecond)}}
	mode := &units.Unit{Name: "05-ib0.ibnetwork", Bond: units.Bond{Name: name, Mode: units.Some(units.Bond8023AD)}}
	for _, of := range []map[int]*units.Unit{{4: second, 5: first}, {4: mode, 5: first}, {4: first, 5: second}} {
		for _, slaves := range [][]int{{4}, {5}, {4, 5}} {
			s := bonded(t)
			s.Links[1].Master, s.Links[2].Master = 0, 0
			for _, i := range slaves {
				s.Links[i-3].Master = 12
			}
			unit := func(index int) *units.Unit { return of[index] }
			b := NewBuilder(s, nil, nil)
			for range 2 {
				PlanBond(b, 4, of[4], unit)
				PlanBond(b, 5, of[5], unit)
			}
			got := strings.Join(b.Plan.Commands(), "\n")
			if strings.Count(got, "type bond") != 1 || !strings.Contains(got, "ip link set bond0 type bond updelay 200\n") &&
				!strings.HasSuffix(got, "updelay 200") {
				t.Errorf("%v slaves %v:\n%s", of[4].Name, slaves, got)
			}
		}
	}
}

// What was put into a bond is released, and the bond that was made for it goes, when
// no unit asks for them.
func TestBondRemoval(t *testing.T) {
	s := bonded(t)
	r := &Record{Links: []*LinkRecord{
		{Ifindex: 4, Name: "ib0", Enslaved: "bond0"}, {Ifindex: 5, Name: "ib1", Enslaved: "bond0"}, {Ifindex: 12, Name: "bond0", Bond: true},
	}}
	b := NewBuilder(s, r, nil)
	for _, i := range []int{4, 5} {
		PlanMasterRemoval(b, i, nil, nil)
	}
	PlanMasterOrphan(b, 12, func(string) bool { return false })
	want := "ip link set ib0 nomaster\nip link set ib0 up\nip link set ib1 nomaster\nip link set ib1 up\nip link delete bond0"
	if got := strings.Join(b.Plan.Commands(), "\n"); got != want {
		t.Errorf("%s", got)
	}
	b = NewBuilder(s, &Record{Links: r.Links[:2]}, nil)
	if PlanMasterOrphan(b, 12, func(string) bool { return false }); len(b.Plan.Steps) > 0 {
		t.Errorf("another program's bond: %s", b.Plan)
	}
}

// A refused MTU of a bond changes none of its slaves (bond_change_mtu).
func TestModelBondMTURefused(t *testing.T) {
	s := bonded(t)
	s.Links[1].IPoIB = &IPoIB{PKey: 0xffff, Mode: ib.ModeConnected}
	m := NewModel(s)
	if err := m.Apply(SetMTU{On: TargetOf(&s.Links[4]), MTU: 9000}); err != errInvalid {
		t.Errorf("%v", err)
	}
	for i := range m.Snapshot().Links {
		if l := &m.Snapshot().Links[i]; l.Master == 12 && l.MTU != 2044 {
			t.Errorf("%s has an MTU of %d", l.Name, l.MTU)
		}
	}
}
