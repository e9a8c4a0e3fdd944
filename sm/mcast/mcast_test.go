package mcast_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mcast"
)

// deliver sends a packet from an end port and counts where it arrives, as
// switches do it: to all ports of the set but the one it came by. It fails on
// a packet that goes round.
func deliver(t *testing.T, f *fabric.Fabric, tab mcast.Tables, from int32, mlid ib.LID) map[int32]int {
	t.Helper()
	got := map[int32]int{}
	type hop struct {
		sw int32
		in uint8
	}
	s, in := f.SwitchOf(from)
	work := []hop{{s, in}}
	for n := 0; len(work) > 0; n++ {
		if n > 4*len(f.Ports)+10 {
			t.Fatalf("a packet from %s to %v goes round", f.PortName(from), mlid)
		}
		h := work[0]
		work = work[1:]
		ports := tab.Ports(h.sw, mlid)
		for p := range 256 {
			if !ports.Has(uint8(p)) || uint8(p) == h.in {
				continue
			}
			out := f.Port(f.Switches[h.sw].Node, uint8(p))
			if p == 0 {
				got[out]++
				continue
			}
			peer := f.Ports[out].Peer
			if peer == fabric.None {
				t.Fatalf("%v goes out of %s, which has no link", mlid, f.PortName(out))
			}
			if sw := f.Nodes[f.Ports[peer].Node].Switch; sw != fabric.None {
				work = append(work, hop{sw, f.Ports[peer].Num})
			} else {
				got[peer]++
			}
		}
	}
	return got
}

func checkGroup(t *testing.T, f *fabric.Fabric, tab mcast.Tables, g mcast.Group) {
	t.Helper()
	for _, from := range g.Members {
		if s, _ := f.SwitchOf(from.Port); s == fabric.None {
			continue
		}
		want := map[int32]int{}
		for _, m := range g.Members {
			if s, _ := f.SwitchOf(m.Port); s != fabric.None && !m.SendOnly && m.Port != from.Port {
				want[m.Port] = 1
			}
		}
		if d := cmp.Diff(want, deliver(t, f, tab, from.Port, g.MLID)); d != "" {
			t.Fatalf("%v from %s (send-only %v), members %v: (-want +got)\n%s", g.MLID, f.PortName(from.Port), from.SendOnly, g.Members, d)
		}
	}
}

// Whatever the graph and the members: each full member gets each packet of
// every other member once, and no other port gets any.
func TestRandomGroups(t *testing.T) {
	count := graphs
	if testing.Short() {
		count = min(count, 500)
	}
	for seed := range count {
		rnd := rand.New(rand.NewPCG(uint64(seed), 3))
		var f *fabric.Fabric
		switch rnd.IntN(5) {
		case 0:
			f = gen.FatTree3(4, 4, 2)
		case 1:
			f = gen.FatTree2(8, 4)
		case 2:
			f = gen.Torus([]int{2 + rnd.IntN(4), 2 + rnd.IntN(4)}, 1)
		default:
			n := 1 + rnd.IntN(14)
			f = gen.Random(rnd.Uint64(), n, rnd.IntN(2*n), rnd.IntN(20))
		}
		var groups []mcast.Group
		for i := range 1 + rnd.IntN(4) {
			g := mcast.Group{MLID: ib.LID(0xc000 + i*7 + rnd.IntN(5))}
			if rnd.IntN(4) == 0 { // a few on one switch
				for _, e := range f.EndPorts {
					if s, _ := f.SwitchOf(e); s == 0 {
						g.Members = append(g.Members, mcast.Member{Port: e, SendOnly: rnd.IntN(4) == 0})
					}
				}
			}
			for _, e := range f.EndPorts {
				if rnd.IntN(4) == 0 {
					g.Members = append(g.Members, mcast.Member{Port: e, SendOnly: rnd.IntN(3) == 0})
				}
			}
			seen := map[int32]bool{}
			one := g.Members[:0]
			for _, m := range g.Members {
				if !seen[m.Port] {
					one = append(one, m)
				}
				seen[m.Port] = true
			}
			g.Members = one
			groups = append(groups, g)
		}
		p := mcast.NewPlanner(f)
		tab := p.Build(groups)
		for _, g := range groups {
			checkGroup(t, f, tab, g)
		}
		// The order of groups and members does not show.
		rnd.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
		for _, g := range groups {
			rnd.Shuffle(len(g.Members), func(i, j int) { g.Members[i], g.Members[j] = g.Members[j], g.Members[i] })
		}
		if d := cmp.Diff(tab, mcast.Build(f, groups)); d != "" {
			t.Fatalf("seed %d: another order gives other tables:\n%s", seed, d)
		}
	}
}

// A join changes the entries on its own path only.
func TestJoinIsLocal(t *testing.T) {
	f := gen.FatTree3(8, 4, 4)
	g := mcast.Group{MLID: 0xc005}
	p := mcast.NewPlanner(f)
	before := p.Build(nil)
	for i, e := range f.EndPorts {
		if f.Nodes[f.Ports[e].Node].Switch != fabric.None || i%3 != 0 {
			continue
		}
		g.Members = append(g.Members, mcast.Member{Port: e})
		after := p.Build([]mcast.Group{g})
		n := 0
		for s := range after {
			if after.Ports(int32(s), g.MLID) != before.Ports(int32(s), g.MLID) {
				n++
			}
		}
		if n > 5 {
			t.Errorf("join %d changes %d switches", len(g.Members), n)
		}
		checkGroup(t, f, after, g)
		before = after
	}
}

// Trees of different LIDs use different tops.
func TestTreesSpread(t *testing.T) {
	f := gen.FatTree2(8, 8)
	var all []mcast.Member
	for _, e := range f.EndPorts {
		if f.Nodes[f.Ports[e].Node].Switch == fabric.None {
			all = append(all, mcast.Member{Port: e})
		}
	}
	tops := map[int]int{}
	var groups []mcast.Group
	for i := range 16 {
		groups = append(groups, mcast.Group{MLID: ib.LID(0xc000 + i), Members: all})
	}
	tab := mcast.Build(f, groups)
	for s := range tab {
		tops[len(tab[s])]++
	}
	// 8 leaves carry all 16 trees, 4 spines four each.
	if d := cmp.Diff(map[int]int{16: 8, 4: 4}, tops); d != "" {
		t.Error(d)
	}
}

func TestBlock(t *testing.T) {
	f := gen.Star(20, 36)
	g := mcast.Group{MLID: 0xc021}
	for _, e := range f.EndPorts {
		if _, p := f.SwitchOf(e); p == 1 || p == 17 || p == 0 {
			g.Members = append(g.Members, mcast.Member{Port: e})
		}
	}
	tab := mcast.Build(f, []mcast.Group{g})
	if b := tab.Block(0, 1, 0); b[1] != 1<<1|1 || b[0] != 0 {
		t.Errorf("block 1 position 0: %#x", b)
	}
	if b := tab.Block(0, 1, 1); b[1] != 1<<1 {
		t.Errorf("block 1 position 1: %#x", b)
	}
	if b := tab.Block(0, 0, 0); b != [32]uint16{} {
		t.Errorf("block 0: %#x", b)
	}
}

func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a big fabric")
	}
	f := gen.FatTree3(36, 16, 18)
	g := mcast.Group{MLID: 0xc000}
	for _, e := range f.EndPorts {
		g.Members = append(g.Members, mcast.Member{Port: e})
	}
	start := time.Now()
	p := mcast.NewPlanner(f)
	planned := time.Since(start)
	start = time.Now()
	tab := p.Build([]mcast.Group{g})
	t.Logf("%d members on %d switches: planner %v, tree %v", len(g.Members), len(f.Switches), planned, time.Since(start))
	if ports := tab.Ports(0, 0xc000); ports.IsEmpty() {
		t.Error("switch 0 has no entry")
	}
}

// On a trunk all groups take its links alone, whatever their MLID is.
func TestTrunk(t *testing.T) {
	f := gen.Torus([]int{4, 4}, 1)
	at := func(s int32, to int32) uint8 {
		first, count := f.PortRange(f.Switches[s].Node)
		for p := first + 1; p < first+count; p++ {
			if q := f.Ports[p].Peer; q != fabric.None && f.Nodes[f.Ports[q].Node].Switch == to {
				return f.Ports[p].Num
			}
		}
		return 0
	}
	trunk := make([]uint8, len(f.Switches)) // a comb: along a column, then along its rows
	for s := range int32(16) {
		switch {
		case s%4 != 0:
			trunk[s] = at(s, s-1)
		case s != 0:
			trunk[s] = at(s, s-4)
		}
	}
	var members []mcast.Member
	for _, e := range f.EndPorts {
		if f.Ports[e].Num != 0 {
			members = append(members, mcast.Member{Port: e})
		}
	}
	var groups []mcast.Group
	for l := range ib.LID(5) {
		groups = append(groups, mcast.Group{MLID: 0xc000 + l, Members: members})
	}
	tab := mcast.BuildOn(f, trunk, groups)
	for s := range int32(16) {
		for _, g := range groups {
			ports := tab.Ports(s, g.MLID)
			want := 1 // the host
			for other := range int32(16) {
				p := at(s, other)
				on := p != 0 && (trunk[s] == p || trunk[other] != 0 && trunk[other] == at(other, s))
				if p != 0 && ports.Has(p) != on {
					t.Fatalf("switch %d, group %v: link to %d in the table %v, on the trunk %v", s, g.MLID, other, ports.Has(p), on)
				}
				if on {
					want++
				}
			}
			if ports.Len() != want {
				t.Errorf("switch %d, group %v: %d ports, want %d", s, g.MLID, ports.Len(), want)
			}
		}
	}
}
