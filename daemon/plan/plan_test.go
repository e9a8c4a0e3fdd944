package plan_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// load makes units of texts by file name.
func load(t testing.TB, files map[string]string) *units.Set {
	t.Helper()
	fs := fstest.MapFS{}
	for n, text := range files {
		fs[n] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fs}})
}

const (
	cmAddr = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01"
	udAddr = "00:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01"
)

// oneLink is a host with one port and its interface ib0.
func oneLink(t testing.TB) *link.Snapshot {
	return &link.Snapshot{
		Schema: 1,
		Devices: []link.Device{{Name: "mlx5_0", NodeGUID: 1, Ports: []link.Port{{
			Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive, Phys: ib.PhysLinkUp, GUID: 0x0002c90300000001, LID: 3, SMLID: 1,
			PKeys: []ib.PKey{0xffff},
		}}}},
		Links: []link.Link{{
			Index: 4, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: link.FlagMulti, MTU: 4092, MaxMTU: 65520,
			HWAddr: ib.MustParseHWAddr(cmAddr),
			IPoIB:  &link.IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1,
		}},
	}
}

const wiki = "[Match]\nName=ib0\n[Link]\nMTUBytes=65520\n[IPoIB]\nMode=connected\n[Network]\nAddress=192.168.151.1/24\n"

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name  string
		units map[string]string
		sys   func(*link.Snapshot)
		rec   *link.Record
		want  string
	}{
		{
			name: "OK the wiki page's link", units: map[string]string{"10-ib0.ibnetwork": wiki},
			want: `ip link set ib0 type ipoib mode connected
ip link set ib0 mtu 65520
ip link set ib0 up
ip address add 192.168.151.1/24 broadcast 192.168.151.255 dev ib0
`,
		},
		{
			name: "OK children with their parent's unit, and one with a unit of its own",
			units: map[string]string{
				"10-ib0.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n[Partition]\nPartitionKey=2\nName=storage\nMode=connected\n",
				"20-p1.ibnetwork":  "[Match]\nPartitionKey=0x8001\n[Network]\nAddress=10.1.0.1/16\n",
			},
			sys: func(s *link.Snapshot) { s.Devices[0].Ports[0].PKeys = []ib.PKey{0xffff, 0x8001} },
			want: `ip link set ib0 up
ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001
ip link add link ib0 name storage type ipoib pkey 0x8002
ip link set ib0.8001 up
ip address add 10.1.0.1/16 broadcast 10.1.255.255 dev ib0.8001
ip link set storage type ipoib mode connected
ip link set storage up
`,
		},
		{
			name: "OK a child for another network namespace, and a unit for it",
			units: map[string]string{
				"10-ib0.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\nNetworkNamespace=job\nMTUBytes=1500\n",
				"20-p1.ibnetwork":  "[Match]\nPartitionKey=0x8001\n[Network]\nAddress=10.1.0.1/16\n",
			},
			sys: func(s *link.Snapshot) { s.Namespaces = []link.Namespace{{Path: "/run/netns/job", ID: -1}} },
			want: `ip link set ib0 up
ip link add link ib0 name ib0.8001 type ipoib pkey 0x8001
ip link set ib0.8001 mtu 1500
# blocked: ib0.8001: /etc/systemd/network/20-p1.ibnetwork matches ib0.8001, which is for network namespace job: the unit is not applied
#   next: write Mode= and MTUBytes= in [Partition]; for addresses: ip -n job address add ADDRESS dev ib0.8001, or an ibnetworkd there
`,
		},
		{
			name: "OK its MTU is known, and it goes to the namespace",
			units: map[string]string{
				"10-ib0.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\nNetworkNamespace=job\nMTUBytes=1500\n",
			},
			sys: func(s *link.Snapshot) {
				s.Namespaces = []link.Namespace{{Path: "/run/netns/job", ID: -1}}
				c := link.ChildOf(&s.Links[0], "ib0.8001", 0x8001)
				c.Index, c.MTU = 9, 1500
				s.Links[0].Flags |= link.FlagUp
				s.Links = append(s.Links, c)
			},
			rec: &link.Record{Links: []*link.LinkRecord{{Ifindex: 9, Name: "ib0.8001", Child: true, Parent: 2, PKey: 0x8001,
				AskedMTU: 1500}}},
			want: "ip link set ib0.8001 netns job up\n",
		},
		{
			name: "OK without a subnet manager the address waits", units: map[string]string{"10-ib0.ibnetwork": wiki},
			sys: func(s *link.Snapshot) {
				p := &s.Devices[0].Ports[0]
				p.State, p.SMLID, p.LID = ib.PortInit, 0, 0
			},
			want: `ip link set ib0 type ipoib mode connected
ip link set ib0 mtu 65520
ip link set ib0 up
# waiting: ib0: port mlx5_0/1 is Initializing: no subnet manager has answered (SM LID 0)
#   then: ip address add 192.168.151.1/24 broadcast 192.168.151.255 dev ib0
#   next: start a subnet manager on one node of this fabric: ibnetctl sm start, or systemctl start opensm
`,
		},
		{
			name:  "bad a link that NetworkManager manages",
			units: map[string]string{"10-ib0.ibnetwork": wiki},
			sys:   func(s *link.Snapshot) { s.Links[0].OtherManagers = []string{plan.NetworkManager} },
		},
		{
			name:  "OK beside networkd the InfiniBand part alone",
			units: map[string]string{"10-ib0.ibnetwork": "[Match]\nName=ib0\n[IPoIB]\nMode=connected\n"},
			sys:   func(s *link.Snapshot) { s.Links[0].OtherManagers = []string{plan.Networkd} },
			want:  "ip link set ib0 type ipoib mode connected\nip link set ib0 up\n",
		},
		{
			name:  "OK udev comes first",
			units: map[string]string{"10-ib0.ibnetwork": wiki},
			sys:   func(s *link.Snapshot) { s.Host.Udev = true },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := oneLink(t)
			if tt.sys != nil {
				tt.sys(s)
			}
			r := plan.Make(plan.Input{Snapshot: s, Units: load(t, tt.units), Record: tt.rec})
			testkit.Diff(t, "plan", tt.want, r.Plan.String())
		})
	}
}

// world is a kernel in memory with a record beside it.
type world struct {
	m   *link.Model
	rec *link.Record
	got []string
}

func (w *world) fabric(r *rand.Rand) {
	w.m.Truth = &link.Truth{
		AdapterMTU: pick(r, 4092, 2044), ConnectedMTU: pick(r, 65520, 32752), Asked: map[int]int{},
		GroupMTU: map[ib.PKey]int{0x7fff: pick(r, 4092, 2044), 1: pick(r, 2044, 4092), 2: 2044, 3: 2044, 4: 0},
	}
	for k, v := range w.m.Truth.GroupMTU {
		w.m.Truth.GroupMTU[k] = min(v, w.m.Truth.AdapterMTU)
	}
	for i := range w.m.Snapshot().Links {
		l := &w.m.Snapshot().Links[i]
		l.MTU = min(l.MTU, w.m.Truth.AdapterMTU) // ipoib_ndo_init starts with it
	}
}

func pick[T any](r *rand.Rand, v ...T) T { return v[r.IntN(len(v))] }

func randomSnapshot(t testing.TB, r *rand.Rand) *link.Snapshot {
	s := &link.Snapshot{Schema: 1, NextHops: []link.NextHopObject{{ID: foreignNextHop, Family: 4, Blackhole: true}}}
	index := 2
	for d := range 1 + r.IntN(3) {
		dev := link.Device{Name: fmt.Sprintf("mlx5_%d", d), NodeGUID: ib.GUID(100 + d)}
		for p := 1; p <= 1+r.IntN(2); p++ {
			port := link.Port{Num: p, Layer: ib.LinkLayerInfiniBand, GUID: ib.GUID(1000*d + p + 1), State: pick(r, ib.PortActive,
				ib.PortActive, ib.PortInit, ib.PortDown), Phys: ib.PhysLinkUp, PKeys: []ib.PKey{0xffff}}
			for k := ib.PKey(1); k <= 4; k++ {
				if r.IntN(2) == 0 {
					port.PKeys = append(port.PKeys, pick(r, k|0x8000, k))
				}
			}
			dev.Ports = append(dev.Ports, port)
			l := link.Link{
				Index: index, Name: fmt.Sprintf("ib%d", index-2), Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: link.FlagMulti | pick(r,
					0, link.FlagUp), MTU: pick(r, 2044, 4092),
				HWAddr: ib.MustParseHWAddr(pick(r, cmAddr, cmAddr, udAddr)), IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: dev.Name, Port: p,
				Sysctl: map[string]string{},
			}
			if r.IntN(4) == 0 {
				l.Udev.ManagedBy = pick(r, plan.NetworkdID, "other")
			}
			for range r.IntN(3) {
				l.Addresses = append(l.Addresses, foreign(r, len(l.Addresses)))
			}
			s.Links = append(s.Links, l)
			index++
		}
		s.Devices = append(s.Devices, dev)
	}
	if r.IntN(2) == 0 {
		s.Namespaces = []link.Namespace{{Path: units.NamespaceDir + "job", ID: -1}}
	}
	// A child that someone else made.
	if r.IntN(2) == 0 {
		p := s.Links[r.IntN(len(s.Links))]
		p.Index, p.Parent, p.Name, p.Addresses = index, p.Index, p.Name+".8001", nil
		p.IPoIB = &link.IPoIB{PKey: 0x8001}
		s.Links = append(s.Links, p)
	}
	return s
}

// foreignNextHop is one of another program.
const foreignNextHop = 30

func foreign(r *rand.Rand, n int) link.Address {
	return link.Address{Prefix: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.%d/16", r.IntN(3), 200+n)), Valid: link.Forever,
		Preferred: link.Forever}
}

func randomUnits(r *rand.Rand) map[string]string {
	out := map[string]string{}
	for i := range 1 + r.IntN(4) {
		var b strings.Builder
		switch r.IntN(4) {
		case 0:
			fmt.Fprintf(&b, "[Match]\nName=ib%d\n", i)
		case 1:
			fmt.Fprintf(&b, "[Match]\nName=ib*\n")
		case 2:
			fmt.Fprintf(&b, "[Match]\nPartitionKey=0x%04x\n", pick(r, 0x8001, 0x8002, 0x8004))
		case 3:
			fmt.Fprintf(&b, "[Match]\nIBDevice=mlx5_%d\nPort=%d\n", i, 1+r.IntN(2))
		}
		b.WriteString("[Link]\n")
		if r.IntN(2) == 0 {
			fmt.Fprintf(&b, "MTUBytes=%s\n", pick(r, "max", "2044", "4092", "65520", "1500", "1000"))
		}
		if r.IntN(4) == 0 {
			fmt.Fprintf(&b, "GUID=0x%d\n", 1+r.IntN(2))
		}
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, "ActivationPolicy=%s\n", pick(r, "up", "always-up", "manual", "down", "always-down"))
		}
		if r.IntN(6) == 0 {
			b.WriteString("AllMulticast=yes\n")
		}
		if r.IntN(8) == 0 {
			b.WriteString("Unmanaged=yes\n")
		}
		if r.IntN(2) == 0 {
			fmt.Fprintf(&b, "[IPoIB]\nMode=%s\n", pick(r, "connected", "datagram", "auto"))
		}
		for range r.IntN(3) {
			fmt.Fprintf(&b, "[Partition]\nPartitionKey=%s\n", pick(r, "0x8001", "2", "0x8003", "0x7fff", "0", "4"))
			if r.IntN(3) == 0 {
				fmt.Fprintf(&b, "Name=%s\n", pick(r, "one", "two", "ib0", "averyveryverylongname"))
			}
			if r.IntN(3) == 0 {
				fmt.Fprintf(&b, "Mode=%s\nMTUBytes=%s\n", pick(r, "connected", "auto"), pick(r, "max", "4092", "30000"))
			}
		}
		if r.IntN(3) > 0 {
			b.WriteString("[Network]\n")
			for range r.IntN(3) {
				fmt.Fprintf(&b, "Address=%s\n", pick(r, "10.0.0.1/16", "10.1.0.1/16", "10.1.0.200/16", "10.1.0.2/24", "2001:db8::1/64",
					"2001:db8::2/64"))
			}
			if r.IntN(3) == 0 {
				fmt.Fprintf(&b, "Gateway=%s\n", pick(r, "10.0.0.254", "10.9.9.9", "2001:db8::ff"))
			}
			if r.IntN(3) == 0 {
				fmt.Fprintf(&b, "LinkLocalAddressing=%s\nIPv6AcceptRA=%s\n", pick(r, "no", "ipv6"), pick(r, "no", "yes"))
			}
			if r.IntN(4) == 0 {
				b.WriteString("ConfigureWithoutCarrier=yes\n")
			}
			if r.IntN(4) == 0 {
				b.WriteString("[Route]\nDestination=172.16.0.0/12\nGateway=10.0.0.3\nMetric=7\n")
			}
			if r.IntN(4) == 0 {
				b.WriteString("[Route]\nDestination=172.32.0.0/12\nMultiPathRoute=10.0.0.3@ib1\nMultiPathRoute=10.0.0.4 5\n")
			}
			if r.IntN(3) == 0 {
				fmt.Fprintf(&b, "[NextHop]\nId=%d\nGateway=10.0.0.%d\n", 7+r.IntN(2), 3+r.IntN(2))
			}
			if r.IntN(6) == 0 {
				b.WriteString("[NextHop]\nId=20\nGroup=7 8:3\n")
			}
			if r.IntN(4) == 0 {
				fmt.Fprintf(&b, "[Route]\nDestination=172.48.0.0/12\nNextHop=%d\n", pick(r, 7, 8, 20, foreignNextHop))
			}
			if r.IntN(8) == 0 {
				b.WriteString("[Network]\nVRF=red\n") // which does not exist
			}
			if r.IntN(4) == 0 {
				b.WriteString("[RoutingPolicyRule]\nFrom=10.0.0.0/8\nTable=7\nPriority=100\n")
			}
		}
		out[fmt.Sprintf("%02d.ibnetwork", i)] = b.String()
	}
	return out
}

// settle plans and applies until nothing is left, as the daemon's cycle does:
// what the kernel refuses is delayed. The number of plans needed is returned.
func (w *world) settle(t testing.TB, set *units.Set, delayed map[string]link.Reason) int {
	t.Helper()
	since := 0      // plans since the kernel last refused something
	before := false // whether it refused something of the previous plan
	for n := 1; ; n++ {
		w.rec.Reconcile(w.m.Snapshot())
		r := plan.Make(plan.Input{Snapshot: w.m.Snapshot(), Units: set, Record: w.rec, Delayed: delayed, NoPorts: true})
		if r.Plan.Empty() {
			return n
		}
		if n > 9 {
			t.Fatalf("does not converge; still planned:\n%s\napplied:\n%s", r.Plan.String(), strings.Join(w.got, "\n"))
		}
		for _, s := range r.Plan.Steps {
			w.rec.Intend(s.Op)
		}
		refused := false
		for _, s := range r.Plan.Steps {
			w.got = append(w.got, s.Op.String())
			w.joinsBelow(t, s.Op)
			if err := w.m.Apply(s.Op); err != nil {
				w.rec.Failed(s.Op)
				delayed[link.DelayKey(s.Op)] = link.Reason{Code: link.CodeRefused, Text: err.Error()}
				refused = true
				continue
			}
			w.rec.Done(s.Op)
		}
		w.check(t)
		if since++; refused {
			since = 0
		}
		if overNextHops := slices.ContainsFunc(r.Plan.Steps, needsNextHop); since > 2 && overNextHops && !follows(set) {
			t.Fatalf("plan %d after the last refusal has nexthops again:\n%s\napplied:\n%s", since, r.Plan.String(), strings.Join(w.got, "\n"))
		}
		if n >= 2 && !(before && refused) && !onlyMTU(r.Plan) && !follows(set) {
			t.Fatalf("plan %d is not empty although nothing of it or of the one before was refused:\n%s\napplied:\n%s",
				n, r.Plan.String(), strings.Join(w.got, "\n"))
		}
		before = refused
	}
}

// joinsBelow holds the law that no link is to be a slave of one that it is on.
func (w *world) joinsBelow(t testing.TB, op link.Op) {
	t.Helper()
	o, ok := op.(link.SetMaster)
	if !ok || o.Release {
		return
	}
	s := w.m.Snapshot()
	l, _ := s.LinkByName(o.On.Link)
	m, _ := s.LinkByName(o.Master.Link)
	if l != nil && m != nil && s.Above(l, m) {
		t.Fatalf("%s, but %s is on it", o, l.Name)
	}
}

// narrow holds the law that the scope does not matter: what is settled is so
// for every part of it.
func (w *world) narrow(t testing.TB, set *units.Set, delayed map[string]link.Reason) {
	t.Helper()
	s := w.m.Snapshot()
	full := plan.Make(plan.Input{Snapshot: s, Units: set, Record: w.rec, Delayed: delayed, NoPorts: true})
	for i := range s.Links {
		n := s.Links[i].Index
		r := plan.Make(plan.Input{Snapshot: s, Units: set, Record: w.rec, Delayed: delayed,
			Scope: map[int]bool{n: true}, Prev: full.Governing.Links, NoPorts: true})
		if !r.Plan.Empty() {
			t.Fatalf("nothing is left to plan, but for %s alone there is:\n%s", s.Links[i].Name, r.Plan.String())
		}
	}
}

// onlyMTU lets pass what only applying shows: which of the MTUs the adapter and
// the group take, whether IPv6 finds room in them, and carriers that nexthops need.
func onlyMTU(p link.Plan) bool {
	moved := map[string]bool{} // by name, which another link gets then
	for i, s := range p.Steps {
		if moved[s.Op.Target().Link] {
			continue
		}
		switch o := s.Op.(type) {
		case link.SetMTU:
		case link.MoveLink: // a child is moved when its MTU is known
			moved[o.On.Link] = true
		case link.DelNextHop: // that another one replaces
			if !slices.ContainsFunc(p.Steps[i:], func(s link.Step) bool {
				x, ok := s.Op.(link.SetNextHop)
				return ok && x.NextHop.ID == o.NextHop.ID
			}) {
				return false
			}
		case link.SetSysctl:
			if o.Key != "ipv6/mtu" {
				return false
			}
		case link.AddAddress:
			if o.Address.Prefix.Addr().Is4() {
				return false
			}
		case link.SetNeighbor:
			if o.Neighbor.IP.Is4() {
				return false
			}
		case link.SetNextHop: // its link has a carrier some time after it is up
		case link.AddRoute:
			if o.Route.Dst.Addr().Is4() && o.Route.NextHopID == 0 {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// needsNextHop reports an operation that waits for carriers, and so comes in the second
// plan, but in no later one.
func needsNextHop(s link.Step) bool {
	switch o := s.Op.(type) {
	case link.SetNextHop, link.DelNextHop:
		return true
	case link.AddRoute:
		return o.Route.NextHopID != 0
	}
	return false
}

// follows reports that a link waits for the carrier of another, which comes by
// what is done for that one.
func follows(set *units.Set) bool {
	return slices.ContainsFunc(set.Units, func(u *units.Unit) bool { return len(u.Network.BindCarrier) > 0 })
}

// check holds what must be true of every system that was planned for.
func (w *world) check(t testing.TB) {
	t.Helper()
	seen := map[string]bool{}
	s := w.m.Snapshot()
	for i := range s.Links {
		l := &s.Links[i]
		if l.IPoIB == nil {
			continue
		}
		if l.IsChild() {
			if p, _ := s.Link(l.Parent); p == nil || p.IsChild() {
				t.Fatalf("%s is a child of a child", l.Name)
			}
		}
		key := fmt.Sprintf("%s/%d %v", l.IBDevice, l.Port, l.IPoIB.PKey.Base())
		if seen[key] {
			t.Fatalf("partition %s has two interfaces", key)
		}
		seen[key] = true
	}
}

func foreignAddresses(s *link.Snapshot) string {
	var b strings.Builder
	for i := range s.Links {
		for _, a := range s.Links[i].Addresses {
			if n := a.Prefix.Addr().As16()[15]; a.Prefix.Addr().Is4() && n >= 200 && a.Prefix.Addr().String() != "10.1.0.200" {
				fmt.Fprintf(&b, "%s %s\n", s.Links[i].Name, a.Prefix)
			}
		}
	}
	return b.String()
}

// TestLaws checks on random systems and units: a plan that is applied leaves
// nothing to plan, planning twice gives the same bytes, the order of the input
// does not matter, foreign things stay
// through edits, and when the units go everything of ours goes.
func TestLaws(t *testing.T) {
	n := 1200
	if testing.Short() {
		n = 200
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		s := randomSnapshot(t, r)
		w := &world{m: link.NewModel(s), rec: &link.Record{}}
		w.fabric(r)
		w.m.Settle()
		start := w.m.Snapshot()
		before, _ := json.Marshal(start)
		foreignBefore := foreignAddresses(start)
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			texts := randomUnits(r)
			set := load(t, texts)
			first := plan.Make(plan.Input{Snapshot: start, Units: set, Record: w.rec})
			if again := plan.Make(plan.Input{Snapshot: start, Units: load(t, texts),
				Record: w.rec.Clone()}); again.Plan.String() != first.Plan.String() {
				t.Fatalf("planning twice differs:\n%s\n---\n%s", first.Plan.String(), again.Plan.String())
			}
			shuffled := *start
			shuffled.Links = append([]link.Link(nil), start.Links...)
			r.Shuffle(len(shuffled.Links), func(i, j int) { shuffled.Links[i], shuffled.Links[j] = shuffled.Links[j], shuffled.Links[i] })
			text, err := json.Marshal(&shuffled)
			testkit.NoError(t, err)
			decoded := &link.Snapshot{}
			testkit.NoError(t, errors.Join(json.Unmarshal(text, decoded), decoded.Check()))
			if again := plan.Make(plan.Input{Snapshot: decoded, Units: set, Record: w.rec}); again.Plan.String() != first.Plan.String() {
				t.Fatalf("the order of the input matters:\n%s", cmp.Diff(first.Plan.String(), again.Plan.String()))
			}
			if after, _ := json.Marshal(start); !bytes.Equal(before, after) {
				t.Fatal("planning changed its snapshot")
			}
			for range 3 {
				delayed := map[string]link.Reason{}
				w.settle(t, set, delayed)
				w.narrow(t, set, delayed)
				if got := foreignAddresses(w.m.Snapshot()); got != foreignBefore {
					t.Fatalf("foreign addresses (-before +after):\n%s\n%s", cmp.Diff(foreignBefore, got), strings.Join(w.got, "\n"))
				}
				// The fabric changes, then the units do.
				p := &w.m.Snapshot().Devices[0].Ports[0]
				p.State = pick(r, ib.PortActive, ib.PortInit)
				w.m.Settle()
				w.settle(t, set, map[string]link.Reason{})
				set = load(t, randomUnits(r))
			}
			w.settle(t, &units.Set{}, map[string]link.Reason{})
			for i := range w.m.Snapshot().Links {
				l := &w.m.Snapshot().Links[i]
				for _, a := range l.Addresses {
					if a.Prefix.Addr().Is6() || a.Prefix.Addr().As4()[3] < 200 {
						t.Fatalf("%s keeps %s after all units went", l.Name, a.Prefix)
					}
				}
				if w.rec.MadeChild(l) {
					t.Fatalf("%s stays after all units went", l.Name)
				}
				if len(l.Routes) > 0 {
					t.Fatalf("%s keeps %v after all units went\n%s", l.Name, l.Routes, strings.Join(w.got, "\n"))
				}
			}
			if n := w.m.Snapshot().NextHops; len(n) != 1 || n[0].ID != foreignNextHop {
				t.Fatalf("nexthops that stay: %v", n)
			}
			if len(w.m.Snapshot().Rules) != 0 {
				t.Fatalf("rules stay: %v", w.m.Snapshot().Rules)
			}
		}()
	}
}
