package link

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/units"
)

// forOps is a system on which the sample operations of Ops do something: net7 is
// down where the operation needs it, and has what it deletes.
func forOps(t testing.TB, op Op) *Snapshot {
	t.Helper()
	s := host(t)
	l := &s.Links[1]
	l.Index, l.Name = 7, "net7"
	l.MTU = 2044
	v4 := prefix("10.1.0.1/24")
	switch o := op.(type) {
	case SetUp, SetGUID:
		l.Flags = FlagMulti
	case SetMaster:
		s.Links[2].Kind, s.Links[2].Bond = "bond", &Bond{BondOptions: BondOptions{Mode: 1, MIIMon: 20}}
		l.Flags = FlagMulti
		if o.Release {
			l.Master = 9
		}
	case SetBond, SetPrimary:
		l.Kind, l.IPoIB, l.Bond = "bond", nil, &Bond{BondOptions: BondOptions{Mode: 1, MIIMon: 20}}
	case DelLink:
		l.Parent = 9
	case DelAddress:
		l.Addresses = []Address{{Prefix: v4}}
	case DelRoute:
		l.Routes = []Route{o.Route}
	case DelNeighbor:
		l.Neighbors = []Neighbor{o.Neighbor}
	case SetNextHop:
		l.Flags |= FlagUp | FlagLowerUp
	case DelNextHop:
		s.NextHops = []NextHopObject{o.NextHop}
	case MoveLink:
		s.Namespaces = []Namespace{{Path: o.Namespace, ID: -1}}
	case DelMoved:
		s.Moved = []MovedLink{{Made: o.Moved.Made, Index: 8}}
	case DelRule:
		s.Rules = []Rule{o.Rule}
	}
	slices.SortFunc(s.Links, func(a, b Link) int { return a.Index - b.Index })
	return s
}

// Every operation is a command of a shell, is about something, and does
// something in the model: else a plan with it would be planned again for ever.
func TestOps(t *testing.T) {
	for _, op := range Ops() {
		t.Run(fmt.Sprintf("%T %s", op, op), func(t *testing.T) {
			word, _, _ := strings.Cut(op.String(), " ")
			if !slices.Contains([]string{"ip", "sysctl", "resolvectl"}, word) {
				t.Errorf("%q is not a command", op)
			}
			switch op.(type) {
			case AddRule, DelRule:
				if op.Target() != (Target{}) {
					t.Errorf("a rule is the host's, not of %s", op.Target())
				}
			case DelNextHop: // the ID is of the host
			default:
				if !strings.Contains(op.String(), op.Target().Link) || op.Target().Link == "" {
					t.Errorf("%q does not name %s", op, op.Target())
				}
			}
			s := forOps(t, op)
			before, err := json.Marshal(s)
			testkit.NoError(t, err)
			m := NewModel(s)
			testkit.NoError(t, m.Apply(op))
			after, err := json.Marshal(m.Snapshot())
			testkit.NoError(t, err)
			_, dns := op.(SetDNS) // it is the record that has it
			if changed := string(before) != string(after); changed == dns {
				t.Errorf("changes the model: %v", changed)
			}
			if again, _ := json.Marshal(s); string(again) != string(before) {
				t.Error("changes the snapshot")
			}
		})
	}
}

// What an operation that makes something adds to the record goes again when it
// fails, and when the operation that takes it away is done.
func TestRecordOps(t *testing.T) {
	text := func(r *Record) string {
		r.Links = slices.DeleteFunc(r.Links, func(e *LinkRecord) bool {
			return !e.Child && !e.Bond && e.Enslaved == "" && !e.Activated && !e.Deactivated &&
				len(e.Addresses)+len(e.Routes)+len(e.Neighbors)+len(e.NextHops)+len(e.Tokens) == 0 && e.DNS == nil && e.AskedMTU == 0
		})
		b, err := r.Encode()
		testkit.NoError(t, err)
		return string(b)
	}
	undo := map[string]Op{}
	for _, op := range Ops() {
		switch o := op.(type) {
		case SetToken:
			undo[op.String()] = SetToken{On: o.On, Token: netip.IPv6Unspecified()}
		case AddAddress:
			undo[op.String()] = DelAddress{On: o.On, Address: o.Address}
		case AddRoute:
			undo[op.String()] = DelRoute{On: o.On, Route: o.Route}
		case SetNeighbor:
			undo[op.String()] = DelNeighbor{On: o.On, Neighbor: o.Neighbor}
		case SetNextHop:
			undo[op.String()] = DelNextHop{On: o.On, NextHop: o.NextHop}
		case AddRule:
			undo[op.String()] = DelRule{Rule: o.Rule}
		case MoveLink:
			undo[op.String()] = DelMoved{Moved: first(o.Sends())}
		case AddBond:
			undo[op.String()] = DelLink{On: o.On}
		case SetMaster:
			undo[op.String()] = SetMaster{On: o.On, Master: o.Master, Release: true}
			if o.Release {
				delete(undo, op.String())
			}
		case SetDNS:
			undo[op.String()] = SetDNS{On: o.On, Revert: true}
		}
	}
	for _, op := range Ops() {
		r := &Record{}
		empty := text(r)
		before := r.Clone()
		r.Intend(op)
		if r.Failed(op); text(r) != empty {
			t.Errorf("%s fails, and leaves %s", op, text(r))
		}
		r.Intend(op)
		r.Done(op)
		if text(before) != empty {
			t.Errorf("%s changes a clone", op)
		}
		if back := undo[op.String()]; back != nil {
			if text(r) == empty {
				t.Errorf("%s is not recorded", op)
			}
			r.Intend(back)
			if r.Done(back); text(r) != empty {
				t.Errorf("%s leaves %s", back, text(r))
			}
		}
	}
}

// The record of a deleted child goes; its routes without a device stay recorded.
func TestRecordOfChild(t *testing.T) {
	s := host(t)
	hole := Route{Dst: prefix("10.8.0.0/16"), Table: TableMain, Type: RouteBlackhole}
	c := s.Links[1]
	c.Index, c.Name, c.Parent, c.IPoIB = 12, "ib0.8001", 4, &IPoIB{PKey: 0x8001}
	s.Links[0].Routes = []Route{hole}
	s.Links = append(s.Links, c)
	r := &Record{}
	r.Intend(AddChild{On: Target{Link: c.Name}, Parent: Target{Link: "ib0", Ifindex: 4}, PKey: 0x8001})
	r.Reconcile(s)
	if !r.MadeChild(&c) || !r.Owns(&c) || !r.Owns(&s.Links[1]) || r.Owns(&s.Links[3-1]) {
		t.Errorf("%+v", r.Links[0])
	}
	r.Links[0].Routes = []Route{hole}
	if !r.Remember(map[int]bool{4: true, 12: false, 99: true}, s) || r.Remember(map[int]bool{4: true, 12: false}, s) {
		t.Error("what a unit keeps is not remembered once")
	}
	r.Done(DelLink{On: TargetOf(&c)})
	if r.MadeChild(&c) || len(r.Routes) != 1 {
		t.Errorf("%+v", r)
	}
	if (*Record)(nil).Owns(&c) || (*Record)(nil).MadeChild(&c) {
		t.Error("no record holds something")
	}
}

// The model refuses what the kernel refuses, in its words.
func TestModelRefuses(t *testing.T) {
	on := Target{Link: "ib0", Ifindex: 4}
	parent := func(i int) Target { return Target{Ifindex: i} }
	child := func(name string, key ib.PKey, of int) Op {
		return AddChild{On: Target{Link: name}, Parent: parent(of), PKey: key}
	}
	v4, v6 := Address{Prefix: prefix("10.0.0.1/24")}, Address{Prefix: prefix("fd00::1/64")}
	route := Route{Dst: prefix("10.9.0.0/16"), Table: TableMain, Type: RouteUnicast}
	for _, tt := range []struct {
		op   Op
		sys  func(*Snapshot)
		want error
	}{
		{SetMTU{On: on, MTU: 60}, nil, errInvalid},
		{SetMTU{On: on, MTU: 65520}, nil, errInvalid},
		{SetMTU{On: on, MTU: 65521}, func(s *Snapshot) { s.Links[1].IPoIB.Mode = ib.ModeConnected }, errInvalid},
		{SetMTU{On: Target{Ifindex: 9}, MTU: 9001}, func(s *Snapshot) { s.Links[2].MaxMTU = 9000 }, errInvalid},
		{SetMode{On: Target{Ifindex: 9}, Mode: ib.ModeConnected}, nil, errInvalid},
		{SetMode{On: on, Mode: ib.ModeConnected}, func(s *Snapshot) { s.Links[1].HWAddr = ib.HWAddr{} }, errInvalid},
		{SetUmcast{On: Target{Ifindex: 9}}, nil, errInvalid},
		{SetGUID{On: on}, nil, errBusy},
		{SetGUID{On: on}, func(s *Snapshot) { s.Links[1].Flags = 0 }, errInvalid},
		{child("c", 0x8001, 77), nil, errNoDev},
		{child("c", 0x8001, 9), nil, errNoDev},
		{child("c", 0x8000, 4), nil, errInvalid},
		{child("a-name-of-16-char", 0x8001, 4), nil, errInvalid},
		{child("eth0", 0x8001, 4), nil, errExist},
		{AddAddress{On: on, Address: v4}, func(s *Snapshot) { s.Links[1].Addresses = []Address{v4} }, errExist},
		{AddAddress{On: on, Address: v6}, func(s *Snapshot) { s.Links[1].MTU = 1000 }, errInvalid},
		{DelAddress{On: on, Address: v4}, nil, errNoAddr},
		{AddRoute{On: on, Route: route}, func(s *Snapshot) { s.Links[1].Flags = 0 }, errDown},
		{AddRoute{On: on, Route: route}, func(s *Snapshot) { s.Links[1].Routes = []Route{route} }, errExist},
		{DelRoute{On: on, Route: route}, nil, errNoRoute},
		{DelRule{}, nil, errNotFound},
		{AddRule{}, func(s *Snapshot) { s.Rules = []Rule{{Priority: 32765}} }, nil},
	} {
		s := host(t)
		if tt.sys != nil {
			tt.sys(s)
		}
		if err := NewModel(s).Apply(tt.op); err != tt.want {
			t.Errorf("%T %s: %v, want %v", tt.op, tt.op, err, tt.want)
		}
	}
	if err := NewModel(host(t)).Apply(SetUp{On: Target{Link: "none"}}); err == nil {
		t.Error("a link that does not exist comes up")
	}
}

// A parent takes its children along, and a link that goes down loses its routes
// and IPv6 addresses.
func TestModelUpAndDown(t *testing.T) {
	s := host(t)
	s.Links[1].Addresses = []Address{{Prefix: prefix("10.0.0.1/24")}, {Prefix: prefix("fd00::1/64")}}
	over := Route{Dst: prefix("10.9.0.0/16"), NextHops: []NextHop{{Ifindex: 4}}}
	s.Links[1].Routes = []Route{{Dst: prefix("10.8.0.0/16")}, over}
	m := NewModel(s)
	m.Truth = &Truth{AdapterMTU: 4092, ConnectedMTU: 65520, GroupMTU: map[ib.PKey]int{0x7fff: 2044}, Asked: map[int]int{}}
	on := TargetOf(&s.Links[1])
	for _, op := range []Op{
		AddChild{On: Target{Link: "c"}, Parent: on, PKey: 0xffff}, SetUp{On: on, Up: false}, SetMode{On: on, Mode: ib.ModeConnected},
		SetMTU{On: on, MTU: 40000},
	} {
		if err := m.Apply(op); err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
	l, _ := m.Snapshot().LinkByName("ib0")
	if l.Up() || len(l.Routes) != 0 || len(l.Addresses) != 1 || l.MTU != 40000 {
		t.Errorf("down: %+v", l)
	}
	for _, op := range []Op{SetMode{On: on, Mode: ib.ModeDatagram}, SetUp{On: on, Up: true}} {
		if err := m.Apply(op); err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
	m.Settle()
	c, _ := m.Snapshot().LinkByName("c")
	if l, _ = m.Snapshot().LinkByName("ib0"); !l.Carrier() || l.MTU != 2044 || !c.Up() || !c.Carrier() {
		t.Errorf("up: %+v, %+v", l, c)
	}
	m.Snapshot().Devices[0].Ports[0].State = ib.PortInit
	if m.Settle(); l.Carrier() {
		t.Error("the port is gone and the carrier stays")
	}
}

// An operation that was refused is not planned, and its reason is the attribute's.
func TestDelayed(t *testing.T) {
	s, u := host(t), unit(t, "[Link]\nGroup=7\nAllMulticast=yes\n[Network]\nAddress=10.0.0.1/24\nGateway=10.0.0.254\nIPv4Forwarding=yes\n")
	down(s, nil)
	delayed := map[string]Reason{}
	for range 9 {
		b := planIB0(s, u, nil, delayed)
		if b.Plan.Empty() {
			break
		}
		for _, step := range b.Plan.Steps {
			delayed[DelayKey(step.Op)] = Reason{Code: CodeRefused, Text: "refused"}
		}
	}
	b := planIB0(s, u, nil, delayed)
	if !b.Plan.Empty() {
		t.Fatalf("planned although refused:\n%s", b.Plan)
	}
	refused := 0
	for _, a := range b.Attributes(4) {
		if a.Why.Code == CodeRefused {
			refused++
		}
		if a.OK() {
			t.Errorf("%+v is fine", a)
		}
	}
	if refused < 4 {
		t.Errorf("%+v", b.Attributes(4))
	}
	st := BuildStatus(StatusInput{Snapshot: s, Link: &s.Links[1], Unit: u, Attributes: b.Attributes(4), Blocked: b.Plan.Blocked,
		Failed: []Reason{b.Plan.Blocked[0].Reason}})
	if st.State != StateFailed || st.Reason().Code != CodeRefused {
		t.Errorf("%+v", st)
	}
}

func TestPortStatus(t *testing.T) {
	s := host(t)
	s.Devices[0].Ports[0].SubnetPrefix = 0xfe80000000000000
	s.Devices[0].Ports = append(s.Devices[0].Ports, Port{Num: 2, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive}, Port{Num: 3,
		Layer: ib.LinkLayerEthernet})
	b := NewBuilder(s, nil, nil)
	b.Port(PortName{"mlx5_0", 2}).Reasons = []Reason{{Code: CodeUnsupported, Text: "why"}}
	ports := BuildPortStatus(s, map[PortName]Governed{{"mlx5_0", 2}: {Unit: &units.Unit{Path: "u"}}}, b.Ports())
	if len(ports) != 3 || ports[0].Links[0] != "ib0" || ports[0].Reason != (Reason{}) ||
		ports[1].Reason.Code != CodeUnsupported || ports[1].Unit != "u" || ports[2].Reason != (Reason{}) {
		t.Errorf("%+v", ports)
	}
	s.Host.NoIPoIB = true
	if p := BuildPortStatus(s, nil, nil)[1]; p.Reason.Code != CodeNoModule || p.Reason.Next != "modprobe ib_ipoib" {
		t.Errorf("%+v", p)
	}
}

// A change of the MTU of enhanced IPoIB interrupts the link.
func TestEffect(t *testing.T) {
	s := host(t)
	op := SetMTU{On: TargetOf(&s.Links[1]), MTU: 1500}
	if op.Effect(s) != "" {
		t.Error(op.Effect(s))
	}
	s.Links[1].Driver = "mlx5_core"
	s.Links[1].HWAddr, _ = ib.ParseHWAddr("00:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01")
	if op.Effect(s) == "" {
		t.Error("no effect of enhanced IPoIB")
	}
	// udev's word decides where there is one: a kernel without connected mode, and another driver.
	s.Links[1].NetDriver = "ib_ipoib"
	if op.Effect(s) != "" {
		t.Error(op.Effect(s))
	}
	s.Links[1].Driver, s.Links[1].NetDriver = "swib", "swib[ib_ipoib]"
	if op.Effect(s) == "" {
		t.Error("no effect of enhanced IPoIB of another driver")
	}
}
