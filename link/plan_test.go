package link

import (
	"net/netip"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// unit reads the text of a unit for the link ib0, nil for an empty one.
func unit(t testing.TB, text string) *units.Unit {
	t.Helper()
	if text == "" {
		return nil
	}
	fs := fstest.MapFS{"10.ibnetwork": {Data: []byte("[Match]\nName=ib0\n" + text)}}
	set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fs}})
	if len(set.Units) != 1 {
		t.Fatalf("%v", set.Problems)
	}
	return set.Units[0]
}

// host is a system with one port and its interface ib0, which is up and has
// carrier, and an Ethernet link eth0.
func host(t testing.TB) *Snapshot {
	t.Helper()
	hw := ib.MustParseHWAddr("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01")
	return &Snapshot{
		Schema: SnapshotSchema,
		Devices: []Device{{Name: "mlx5_0", NodeGUID: 1, Ports: []Port{{
			Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp,
			GUID: 0x0002c90300000001, LID: 3, SMLID: 1, PKeys: []ib.PKey{0xffff},
		}}}},
		Links: []Link{
			{Index: LoopbackIndex, Name: "lo", Type: ARPHRDLoopback, Flags: FlagUp | FlagLowerUp},
			{Index: 4, Name: "ib0", Type: ARPHRDInfiniBand, Kind: "ipoib", Flags: FlagUp | FlagLowerUp | FlagMulti, MTU: 2044, MaxMTU: 65520,
				HWAddr: hw, IPoIB: &IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1},
			{Index: 9, Name: "eth0", Type: 1, Flags: FlagUp | FlagLowerUp | FlagMulti, MTU: 1500},
		},
	}
}

// What a copy of a plan makes has the index of no link that is.
func TestForkIndex(t *testing.T) {
	s := host(t)
	s.Links = append(s.Links, Link{Index: 10, Name: "blue", Kind: KindVRF, VRF: &VRF{Table: 7}})
	b := NewBuilder(s, &Record{}, nil)
	b.Do(DelLink{On: TargetOf(&s.Links[3])})
	f := b.Fork()
	f.Do(AddVRF{On: Target{Link: "red"}, Table: 8})
	if l, ok := f.Model.snap.LinkByName("red"); !ok || b.Now(l.Index) != nil {
		t.Errorf("%+v", l)
	}
}

// down takes ib0 down.
func down(s *Snapshot, _ *Record) { s.Links[1].Flags &^= FlagUp | FlagLowerUp }

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// ours gives ib0 addresses and routes and records them.
func ours(as []Address, rs []Route) func(*Snapshot, *Record) {
	return func(s *Snapshot, r *Record) {
		s.Links[1].Addresses, s.Links[1].Routes = as, rs
		r.Links = []*LinkRecord{{Ifindex: 4, Name: "ib0", Activated: true, Addresses: as, Routes: rs}}
	}
}

// planIB0 plans everything of this package for ib0 alone.
func planIB0(s *Snapshot, u *units.Unit, rec *Record, delayed map[string]Reason) *Builder {
	b := NewBuilder(s, rec, delayed)
	PlanRemovals(b, 4, u)
	var rules []Rule
	if u != nil {
		PlanSettings(b, 4, u)
		PlanLink(b, 4, u)
		rules = WantedRules(u)
	}
	PlanNetwork(b, 4, u)
	PlanNextHops(b, 4, u, false)
	PlanNextHops(b, 4, u, true)
	PlanRoutesOver(b, 4, u)
	unitOf := func(i int) *units.Unit {
		if i == 4 {
			return u
		}
		return nil
	}
	PlanNextHopRemovals(b, func(i int) (*units.Unit, bool) { return unitOf(i), true }, false)
	PlanOrphans(b, unitOf, false)
	PlanRules(b, rules, false)
	return b
}

// planCase is a system, a unit for ib0 and the plan. Whatever is planned, the
// kernel's model accepts it, and then nothing is left to plan.
type planCase struct {
	name string
	unit string
	sys  func(*Snapshot, *Record)
	want string
}

func testPlans(t *testing.T, cases []planCase) {
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			s, rec, u := host(t), &Record{}, unit(t, tt.unit)
			if tt.sys != nil {
				tt.sys(s, rec)
			}
			p := planIB0(s, u, rec, nil).Plan
			if d := cmp.Diff(tt.want, p.String()); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
			if len(p.Steps) > 0 {
				failed := rec.Clone()
				failed.Intend(p.Steps[0].Op)
				failed.Failed(p.Steps[0].Op)
				if d := cmp.Diff(p.String(), planIB0(s, u, failed, nil).Plan.String()); d != "" {
					t.Errorf("plan after the first operation has failed (-before +after):\n%s", d)
				}
			}
			m := NewModel(s)
			m.Truth = &Truth{AdapterMTU: 4092, ConnectedMTU: 65520, GroupMTU: map[ib.PKey]int{0x7fff: 2044}, Asked: map[int]int{4: s.Links[1].MTU}}
			for _, step := range p.Steps {
				rec.Intend(step.Op)
				if err := m.Apply(step.Op); err != nil {
					t.Fatalf("%s: %v", step.Op, err)
				}
				rec.Done(step.Op)
			}
			rec.Reconcile(m.Snapshot())
			if again := planIB0(m.Snapshot(), u, rec, nil).Plan; !again.Empty() {
				t.Errorf("applied, there is left:\n%s", again)
			}
		})
	}
}
