package plan_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/link/cardstate"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// kernel is a RoCE port eth0 with a VLAN eth0.7 as ib_core has it: a port of
// find_gid, __ib_cache_gid_add and del_gid (cache.c, Linux 6.12), with entries that
// are pending deletion as long as something refers to them.
type kernel struct {
	versions []int
	slots    []slot
	addrs    map[string][]link.Address // by interface
	held     map[string]bool           // addresses, with their interface, that something refers to
	users    []cardstate.GIDUser
	dhcp     *link.DHCP // of eth0
}

type slot struct {
	state   int // 0 free, 1 valid, 2 pending
	ip      netip.Addr
	netdev  string
	version int
}

func newKernel(versions ...int) *kernel {
	k := &kernel{versions: versions, slots: make([]slot, 64), addrs: map[string][]link.Address{}, held: map[string]bool{}}
	for i, v := range versions {
		k.slots[i] = slot{1, netip.MustParseAddr("fe80::1"), "eth0", v}
	}
	return k
}

func (k *kernel) find(s slot) int {
	return slices.IndexFunc(k.slots, func(x slot) bool {
		return x.state == 1 && x.ip == s.ip && x.netdev == s.netdev && x.version == s.version
	})
}

func (k *kernel) add(netdev string, a link.Address) {
	k.addrs[netdev] = append(k.addrs[netdev], a)
	for _, v := range k.versions {
		s := slot{1, a.Prefix.Addr(), netdev, v}
		if k.find(s) >= 0 {
			continue
		}
		for i := len(k.versions); i < len(k.slots); i++ {
			if k.slots[i].state == 0 {
				k.slots[i] = s
				break
			}
		}
	}
}

func (k *kernel) del(netdev string, a link.Address) bool {
	i := slices.IndexFunc(k.addrs[netdev], func(x link.Address) bool { return x.Prefix == a.Prefix })
	if i < 0 {
		return false
	}
	k.addrs[netdev] = slices.Delete(slices.Clone(k.addrs[netdev]), i, i+1)
	for _, v := range k.versions {
		i := k.find(slot{1, a.Prefix.Addr(), netdev, v})
		if i < len(k.versions) {
			continue
		}
		k.slots[i].state = 0
		if v == 2 && k.held[netdev+" "+a.Prefix.Addr().String()] {
			k.slots[i].state = 2
		}
	}
	return true
}

// release has everything end that referred to an entry.
func (k *kernel) release() {
	clear(k.held)
	k.users = nil
	for i := range k.slots {
		if k.slots[i].state == 2 {
			k.slots[i] = slot{}
		}
	}
}

func (k *kernel) snapshot() *link.Snapshot {
	p := cardstate.Port{GIDSlots: len(k.slots), GIDUsers: k.users}
	for i, s := range k.slots {
		if s.state == 1 {
			p.GIDs = append(p.GIDs, cardstate.GID{Index: i, GID: ib.GID(s.ip.As16()), Version: s.version, Netdev: s.netdev})
		}
	}
	sys := map[string]string{"ipv4/promote_secondaries": "1"}
	return &link.Snapshot{
		Schema:  1,
		Devices: []link.Device{{Name: "mlx5_0", Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerEthernet, State: ib.PortActive, Netdev: 2}}}},
		Links: []link.Link{
			{Index: 2, Name: "eth0", Type: 1, Flags: link.FlagUp | link.FlagLowerUp, MTU: 1500,
				Addresses: slices.Clone(k.addrs["eth0"]), Sysctl: sys, DHCP: k.dhcp},
			{Index: 3, Name: "eth0.7", Type: 1, Kind: "vlan", Parent: 2, Flags: link.FlagUp | link.FlagLowerUp, MTU: 1500,
				Addresses: slices.Clone(k.addrs["eth0.7"]), Sysctl: sys},
		},
		Card: &cardstate.State{Devices: map[string]cardstate.Device{"mlx5_0": {Ports: map[int]cardstate.Port{1: p}}},
			Links: map[int]cardstate.Link{2: {}, 3: {}}},
	}
}

// apply carries out what a plan asks for.
func (k *kernel) apply(t *testing.T, op link.Op) {
	t.Helper()
	switch o := op.(type) {
	case link.AddAddress:
		k.add(o.On.Link, o.Address)
	case link.DelAddress:
		k.del(o.On.Link, o.Address)
	case interface{ Steps() []link.Op }:
		for _, s := range o.Steps() {
			k.apply(t, s)
			has := slices.ContainsFunc(k.addrs["eth0"], func(a link.Address) bool { return a.Prefix.Addr().Is4() })
			if _, del := s.(link.DelAddress); del && !has && s.Target().Link == "eth0" {
				t.Errorf("eth0 has no IPv4 address within %s", op)
			}
		}
	case link.SetSysctl, link.SetUp:
	default:
		t.Fatalf("%T: %s", op, op)
	}
}

// settle plans until nothing is left to plan, and gives the attribute GIDIndex of eth0
// and what is reported of its reason.
func (k *kernel) settle(t *testing.T, set *units.Set, rec *link.Record) link.Attribute {
	t.Helper()
	for range 4 {
		s := k.snapshot()
		rec.Reconcile(s)
		r := plan.Make(plan.Input{Snapshot: s, Units: set, Record: rec})
		if len(r.Plan.Steps) == 0 {
			for _, st := range r.Links {
				for _, a := range st.Attributes {
					if st.Name == "eth0" && a.Name == "GIDIndex" {
						return a
					}
				}
			}
			t.Fatal("eth0 has no GIDIndex")
		}
		// The law: the planner's model of the table agrees with the kernel's, so that the
		// plan is complete.
		for _, x := range r.Plan.Steps {
			rec.Intend(x.Op)
			k.apply(t, x.Op)
			rec.Done(x.Op)
		}
	}
	t.Fatal("plans have no end")
	return link.Attribute{}
}

func (k *kernel) String() string {
	var out []string
	for i, s := range k.slots {
		if s.state != 0 {
			out = append(out, fmt.Sprintf("%d: %s v%d %s %s", i, s.ip, s.version, s.netdev, map[int]string{1: "", 2: "(pending)"}[s.state]))
		}
	}
	return strings.Join(out, "\n")
}

var (
	address = func(s string) link.Address {
		return link.Address{Prefix: netip.MustParsePrefix(s), Valid: link.Forever, Preferred: link.Forever, Protocol: 0}
	}
	kernelLL = link.Address{Prefix: netip.MustParsePrefix("fe80::7/64"), Valid: link.Forever, Preferred: link.Forever, Protocol: 3}
)

func gidUnits(t *testing.T, index int, more string) *units.Set {
	return load(t, map[string]string{
		"10-eth.ibnetwork":  fmt.Sprintf("[Match]\nName=eth0\n[RoCE]\nGIDIndex=%d\n[Network]\nAddress=10.0.0.1/24\n%s", index, more),
		"20-vlan.ibnetwork": "[Match]\nName=eth0.7\n[Network]\nAddress=10.7.0.1/24\n"})
}

func TestGIDIndex(t *testing.T) {
	const users = `kept for a removed address; 10.0.0.1 is not moved there while these exist: mpirun (process 77) with 1 queue pair`
	for _, tt := range []struct {
		name   string
		index  int
		more   string
		kernel *kernel
		before func(k *kernel)
		ours   string // an address that the record has
		want   string // actual value, or a part of the reason
		next   string // the next step
		none   bool   // nothing may change
	}{
		{name: "OK on an empty table", index: 3, want: "3"},
		{name: "OK with a filler", index: 5, want: "5"},
		{name: "OK with two fillers", index: 7, want: "7"},
		{name: "OK without RoCE v1", index: 1, kernel: newKernel(2), want: "1"},
		{name: "OK without RoCE v1, with fillers", index: 4, kernel: newKernel(2), want: "4"},
		{name: "OK behind a link-local address of the kernel", index: 3, want: "3", before: func(k *kernel) {
			k.add("eth0", kernelLL)
		}},
		{name: "OK behind the VLAN's address that is ours", index: 3, want: "3", ours: "10.7.0.1/24", before: func(k *kernel) {
			k.add("eth0.7", address("10.7.0.1/24"))
		}},
		{name: "OK two addresses in the unit", index: 5, more: "Address=10.0.0.2/24\n", want: "5"},
		{name: "OK the address of another program is there already and has it", index: 3, want: "3", none: true, before: func(k *kernel) {
			k.add("eth0", address("10.0.0.1/24"))
		}},
		{name: "bad the address of another program is elsewhere", index: 5, want: "10.0.0.1 was set by another program", before: func(k *kernel) {
			k.add("eth0", address("10.0.0.1/24"))
		}},
		{name: "bad occupied by another program", index: 3, want: "index 3 of mlx5_0/1 is that of 10.9.0.1 of eth0, which another program set",
			before: func(k *kernel) { k.add("eth0", address("10.9.0.1/24")) }},
		{name: "bad a default GID", index: 1, want: "belongs to a default GID"},
		{name: "bad RoCE v1", index: 4, want: "index 4 of mlx5_0/1 has entries of RoCE v1", next: "write GIDIndex=3 or 5"},
		{name: "bad RoCE v1 behind the default GIDs", index: 2, want: "index 2 of mlx5_0/1 has entries of RoCE v1", next: "write GIDIndex=3"},
		{name: "bad beyond the table", index: 65, want: "ends at index 63, wanted 65"},
		{name: "bad no RoCE v2", index: 3, kernel: newKernel(1), want: "mlx5_0/1 has no RoCE v2"},
		{name: "bad a queue pair has it", index: 3, want: users, before: func(k *kernel) {
			k.add("eth0", address("10.9.0.1/24"))
			k.held["eth0 10.9.0.1"] = true
			k.users = []cardstate.GIDUser{{PID: 77, Program: "mpirun", QueuePairs: 1}}
			k.add("eth0", address("10.0.0.1/24"))
			k.del("eth0", address("10.9.0.1/24"))
		}, ours: "10.0.0.1/24", none: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := tt.kernel
			if k == nil {
				k = newKernel(1, 2)
			}
			rec := &link.Record{}
			if tt.before != nil {
				tt.before(k)
			}
			own := slot{1, netip.MustParseAddr("10.0.0.1"), "eth0", 2}
			before := k.find(own)
			if tt.ours != "" {
				for _, n := range []string{"eth0", "eth0.7"} {
					if slices.ContainsFunc(k.addrs[n], func(a link.Address) bool { return a.Prefix.String() == tt.ours }) {
						rec.Links = []*link.LinkRecord{{Ifindex: map[string]int{"eth0": 2, "eth0.7": 3}[n], Name: n,
							Addresses: []link.Address{address(tt.ours)}}}
					}
				}
			}
			a := k.settle(t, gidUnits(t, tt.index, tt.more), rec)
			if tt.want != a.Actual && !strings.Contains(a.Why.Text, tt.want) || !a.OK() && a.Actual == tt.want {
				t.Errorf("%+v\n%s", a, k)
			}
			if tt.next != "" && a.Why.Next != tt.next {
				t.Errorf("next step %q, want %q", a.Why.Next, tt.next)
			}
			if a.OK() != (a.Actual == a.Wanted) {
				t.Errorf("%+v", a)
			}
			if now := k.find(own); tt.none && now != before {
				t.Errorf("moved from %d to %d", before, now)
			}
			for _, x := range slices.Concat(k.addrs["eth0"], k.addrs["eth0.7"]) {
				if x.Protocol == 95 {
					t.Errorf("%s was left", x.Prefix)
				}
			}
		})
	}
}

// The address of a lease has its index too, and keeps its lifetime; without a lease the next
// step is not another address.
func TestGIDIndexOfLease(t *testing.T) {
	set := load(t, map[string]string{"10-eth.ibnetwork": "[Match]\nName=eth0\n[RoCE]\nGIDIndex=5\n[Network]\nDHCP=ipv4\n"})
	k, rec := newKernel(1, 2), &link.Record{}
	k.dhcp = &link.DHCP{}
	if a := k.settle(t, set, rec); a.OK() || a.Why.Code != roce.CodeGIDPending || a.Why.Next != "" {
		t.Errorf("without a lease: %+v", a)
	}
	k.dhcp = &link.DHCP{Lease: &link.Lease{Address: netip.MustParsePrefix("10.0.0.7/24"), Lifetime: 3600}}
	if a := k.settle(t, set, rec); !a.OK() || a.Actual != "5" {
		t.Errorf("with a lease: %+v\n%s", a, k)
	}
	if as := k.addrs["eth0"]; len(as) != 1 || as[0].Valid == link.Forever || as[0].Valid == 0 {
		t.Errorf("%+v", as)
	}
}

// Whatever happens to the table, the address has its index when nothing of others is
// in the way, and no address of others is ever removed.
func TestGIDIndexAgainstKernel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	held, occupied, reached := 0, 0, 0
	for seq := range 100 {
		k := newKernel([][]int{{1, 2}, {2}}[seq%2]...)
		first := len(k.versions)
		want := first + len(k.versions) - 1 + len(k.versions)*r.IntN(3)
		set := gidUnits(t, want, []string{"", "Address=10.0.0.2/24\n", "Address=fd00::1/64\n"}[r.IntN(3)])
		rec := &link.Record{}
		foreign := map[string][]string{}
		for range 30 {
			n := []string{"eth0", "eth0.7"}[r.IntN(2)]
			other := fmt.Sprintf("10.9.%d.1/24", r.IntN(4))
			if r.IntN(4) == 0 {
				other = "10.0.0.9/24"
			}
			switch r.IntN(8) {
			case 0, 1:
				if !slices.Contains(foreign[n], other) {
					k.add(n, address(other))
					foreign[n] = append(foreign[n], other)
				}
			case 2, 3:
				if i := slices.Index(foreign[n], other); i >= 0 {
					k.del(n, address(other))
					foreign[n] = slices.Delete(foreign[n], i, i+1)
				}
			case 4: // a flush by another program
				for _, a := range slices.Clone(k.addrs[n]) {
					k.del(n, a)
				}
				foreign[n] = nil
			case 5: // a flap: IPv6 addresses go, and the kernel's comes first
				for _, a := range slices.Clone(k.addrs["eth0"]) {
					if a.Prefix.Addr().Is6() {
						k.del("eth0", a)
					}
				}
				k.add("eth0", kernelLL)
			case 6: // queue pairs on an address
				if as := k.addrs[n]; len(as) > 0 {
					k.held[n+" "+as[r.IntN(len(as))].Prefix.Addr().String()] = true
					k.users = []cardstate.GIDUser{{PID: 9, Program: "x", QueuePairs: 1}}
				}
			case 7:
				k.release()
			}
			before := k.String()
			a := k.settle(t, set, rec)
			for n, list := range foreign {
				for _, f := range list {
					if !slices.ContainsFunc(k.addrs[n], func(a link.Address) bool { return a.Prefix.String() == f }) {
						t.Fatalf("%s of another program on %s is gone", f, n)
					}
				}
			}
			at := k.find(slot{1, netip.MustParseAddr("10.0.0.1"), "eth0", 2})
			s := k.slots[want]
			switch {
			case at == want:
				if !a.OK() || a.Actual != fmt.Sprint(want) {
					t.Fatalf("%+v", a)
				}
				reached++
			case len(k.users) > 0:
				held++
			case s.state == 1 && slices.Contains(foreign[s.netdev], s.ip.String()+"/24"):
				occupied++
			case s.state == 0 || s.ip.Is6() || s.ip.String() == "10.0.0.2" || s.ip.String() == "10.7.0.1":
				// The foreign entries may leave no arrangement: of those below the index, only
				// pairs can be filled.
				if a.Why.Code != "gid-index-occupied" || len(foreign["eth0"])+len(foreign["eth0.7"]) == 0 {
					t.Fatalf("10.0.0.1 has %d, wanted %d: %+v\nbefore\n%s\nnow\n%s", at, want, a, before, k)
				}
				occupied++
			default:
				t.Fatalf("10.0.0.1 has %d, wanted %d: %+v\nbefore\n%s\nnow\n%s", at, want, a, before, k)
			}
			if a.OK() != (at == want) {
				t.Fatalf("%+v, the table has %d", a, at)
			}
		}
	}
	t.Logf("in place %d times, occupied %d times, in use %d times", reached, occupied, held)
	if reached < 300 || occupied < 30 || held < 30 {
		t.Error("too few of one kind")
	}
}

// A table that is read before the kernel has applied a move agrees with the addresses: nothing is moved again, and if
// that lasts, the reason says so.
func TestGIDIndexPending(t *testing.T) {
	set := gidUnits(t, 3, "")
	k, rec := newKernel(1, 2), &link.Record{}
	for i, n := range []string{"eth0.7", "eth0"} {
		a := address([]string{"10.7.0.1/24", "10.0.0.1/24"}[i])
		k.add(n, a)
		rec.Links = append(rec.Links, &link.LinkRecord{Ifindex: 3 - i, Name: n, Addresses: []link.Address{a}})
	}
	make := func(s *link.Snapshot) (a link.Attribute, moves []roce.MoveGID) {
		r := plan.Make(plan.Input{Snapshot: s, Units: set, Record: rec})
		for _, x := range r.Plan.Steps {
			if m, ok := x.Op.(roce.MoveGID); ok {
				moves = append(moves, m)
			}
		}
		for _, st := range r.Links {
			for _, x := range st.Attributes {
				if st.Name == "eth0" && x.Name == "GIDIndex" {
					a = x
				}
			}
		}
		return a, moves
	}
	table := func(s *link.Snapshot) cardstate.Port { return s.Card.Devices["mlx5_0"].Ports[1] }
	before := table(k.snapshot())
	_, moves := make(k.snapshot())
	if len(moves) != 1 || moves[0].From != 5 || moves[0].Index != 3 {
		t.Fatalf("%+v", moves)
	}
	k.apply(t, moves[0])
	if a, again := make(k.snapshot()); !a.OK() || a.Actual != "3" || len(again) > 0 {
		t.Errorf("when it is applied: %+v, %v", a, again)
	}
	for _, tt := range []struct {
		pending bool
		stuck   []int
		code    link.Code
		text    string
	}{
		{true, nil, roce.CodeGIDPending, "the kernel is still changing the GID table of mlx5_0/1"},
		{false, []int{3}, roce.CodeGIDPending, "index 3 of mlx5_0/1 is still that of 10.7.0.1: " +
			"the kernel has not changed the table since 10.0.0.1 was moved"},
	} {
		s := k.snapshot()
		p := before
		p.GIDPending, p.GIDStuck = tt.pending, tt.stuck
		s.Card.Devices["mlx5_0"].Ports[1] = p
		if a, again := make(s); a.Actual != "5" || a.Why.Code != tt.code || a.Why.Text != tt.text || len(again) > 0 {
			t.Errorf("%+v, %v", a, again)
		}
	}
}
