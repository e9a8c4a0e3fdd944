package program_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/lid"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
)

func all(s smp.Source) (out []smp.Request) {
	for r, ok := s.Next(); ok; r, ok = s.Next() {
		out = append(out, r)
	}
	return out
}

// Applying the blocks that differ to what a switch has gives what it should
// have, and then nothing differs.
func TestLFT(t *testing.T) {
	f := gen.FatTree2(8, 4)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		row := func(n int) []uint8 {
			x := make([]uint8, n)
			for i := range x {
				x[i] = uint8(r.IntN(3))
			}
			return x
		}
		have, want := make([][]uint8, len(f.Switches)), make([][]uint8, len(f.Switches))
		for i := range have {
			n := 1 + r.IntN(300)
			want[i] = row(n)
			switch r.IntN(3) {
			case 0: // unknown
			case 1:
				have[i] = slices.Clone(want[i][:r.IntN(n)])
			case 2:
				have[i] = row(1 + r.IntN(300))
			}
		}
		reqs := all(&program.LFT{Fabric: f, Have: have, Want: want})
		for _, q := range reqs {
			if q.Method != mad.MethodSet || !slices.Equal(q.Path, f.Nodes[f.Switches[q.Tag].Node].Path) {
				t.Fatalf("%+v", q)
			}
			have[q.Tag] = program.PutLFT(slices.Clone(have[q.Tag]), &q)
		}
		for i := range want {
			if d := cmp.Diff(want[i], have[i][:len(want[i])]); d != "" {
				t.Fatal(d)
			}
		}
		if again := all(&program.LFT{Fabric: f, Have: have, Want: want}); len(again) != 0 {
			t.Fatalf("%d blocks differ after all were written", len(again))
		}
	}
}

func TestReadLFT(t *testing.T) {
	f := gen.Star(2, 8).Clone()
	f.Switches[0].Info.SetLinearFDBTop(130)
	l := program.ReadLFT{Fabric: f, Skip: func(int) bool { return false }}
	n := 0
	for r, ok := l.Next(); ok; r, ok = l.Next() {
		rep := smp.Reply{Request: r}
		rep.Data[0] = uint8(10 + r.Mod)
		l.Step(&rep)
		n++
	}
	if n != 3 || l.Rows[0][0] != 10 || l.Rows[0][64] != 11 || l.Rows[0][128] != 12 || len(l.Rows[0]) != 192 {
		t.Errorf("%d blocks, %v", n, l.Rows[0])
	}
	l = program.ReadLFT{Fabric: f, Skip: func(int) bool { return false }}
	r, _ := l.Next()
	l.Step(&smp.Reply{Request: r, Timeout: true})
	if rest := all(&l); len(rest) != 0 || l.Rows[0] != nil {
		t.Error("goes on reading a switch that does not answer")
	}
}

func TestMFT(t *testing.T) {
	f := gen.FatTree2(8, 4)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		tables := func() mcast.Tables {
			x := make(mcast.Tables, len(f.Switches))
			for i := range x {
				for l := range 70 {
					if r.IntN(10) == 0 {
						e := mcast.Entry{MLID: ib.LIDMulticastMin + ib.LID(l)}
						e.Ports.Add(uint8(1 + r.IntN(8)))
						x[i] = append(x[i], e)
					}
				}
			}
			return x
		}
		have, want := tables(), tables()
		type key struct {
			sw  uint64
			mod uint32
		}
		got := map[key][32]uint16{}
		for _, q := range program.MFT(f, have, want, make([]bool, len(f.Switches))) {
			var b mad.MFTBlock
			if err := b.Decode(q.Data[:]); err != nil {
				t.Fatal(err)
			}
			got[key{q.Tag, q.Mod}] = b
		}
		for i := range f.Switches {
			for block := range 3 {
				w := want.Block(int32(i), block, 0)
				b, sent := got[key{uint64(i), mad.MFTMod(0, uint16(block))}]
				if !sent {
					b = have.Block(int32(i), block, 0)
				} else if b == have.Block(int32(i), block, 0) {
					t.Fatal("a block was sent that the switch has")
				}
				if b != w {
					t.Fatalf("switch %d block %d", i, block)
				}
			}
		}
		if n := len(program.MFT(f, want, want, make([]bool, len(f.Switches)))); n != 0 {
			t.Fatalf("%d blocks for nothing", n)
		}
	}
}

func TestPKeys(t *testing.T) {
	f := gen.Pair()
	want := [][]ib.PKey{{0xffff}, nil}
	if n := len(program.PKeys(f, nil, want)); n != 0 {
		t.Errorf("%d Sets for ports out of reset that should have the default P_Key", n)
	}
	long := make([]ib.PKey, 40)
	for i := range long {
		long[i] = ib.PKey(0x8001 + i)
	}
	reqs := program.PKeys(f, [][]ib.PKey{long}, [][]ib.PKey{{0xffff, 0x8001}})
	if len(reqs) != 2 || reqs[0].Data[0] != 0xff || reqs[1].Mod != 1 || reqs[1].Data != [64]byte{} {
		t.Errorf("%+v", reqs)
	}
}

// A port is armed with everything in one Set, activated with another, and then
// there is nothing to set.
func TestPorts(t *testing.T) {
	a := lid.Assign(gen.FatTree2(8, 4), nil, lid.Options{})
	f := a.Fabric
	pol := program.DefaultPolicy()
	pol.SMLID = f.Ports[f.SMPort].LID
	declined := make(program.Declined, len(f.Ports))
	linked := 0
	for i := range f.Ports {
		if f.Ports[i].Peer != fabric.None {
			linked++
		}
	}
	answer := func(st program.Stage) int {
		reqs := ports(f, pol, declined, st)
		for _, q := range reqs {
			i := mad.PortInfoOf(&q.Data)
			if i.State() == 0 { // no change
				i.SetState(f.Ports[q.Tag].Info.State())
			}
			i.SetClientReregister(false)
			program.Answered(f, declined, &smp.Reply{Request: q, Data: i.Wire()})
		}
		return len(reqs)
	}
	if n := answer(program.Configure); n != len(f.Switches) {
		t.Errorf("%d Sets of ports 0, want %d", n, len(f.Switches))
	}
	if n := answer(program.Activate); n != 0 {
		t.Errorf("%d ports are activated that are not armed", n)
	}
	if n := answer(program.Arm); n != linked {
		t.Errorf("%d ports are armed, want %d", n, linked)
	}
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer == fabric.None {
			continue
		}
		if p.Info.State() != ib.PortArmed || p.Info.NeighborMTU() != ib.MTU4096 || p.Info.OperVLs() == 0 {
			t.Fatalf("%s: %v MTU %v VLs %d", f.PortName(int32(i)), p.Info.State(), p.Info.NeighborMTU(), p.Info.OperVLs())
		}
		if f.IsEndPort(int32(i)) && (p.Info.LID() != p.LID || p.Info.MasterSMLID() != pol.SMLID || p.Info.SubnetTimeout() != pol.SubnetTimeout) {
			t.Fatalf("%s: %v", f.PortName(int32(i)), p.Info.LID())
		}
	}
	ends := false // ports of hosts, which send at once, come last
	for _, q := range ports(f, pol, declined, program.Activate) {
		if end := f.IsEndPort(int32(q.Tag)); ends && !end {
			t.Fatalf("%s becomes Active after ports of hosts", f.PortName(int32(q.Tag)))
		} else if end {
			ends = true
		}
	}
	if n := answer(program.Activate); n != linked {
		t.Errorf("%d ports are activated, want %d", n, linked)
	}
	for _, st := range []program.Stage{program.Configure, program.Arm, program.Activate} {
		if n := answer(st); n != 0 {
			t.Errorf("stage %d again: %d Sets", st, n)
		}
	}
	// A port that declines a value gets it only once.
	pol.HOQLife = 9
	n := len(ports(f, pol, declined, program.Configure))
	for _, q := range ports(f, pol, declined, program.Configure) {
		program.Answered(f, declined, &smp.Reply{Request: q, Data: f.Ports[q.Tag].Info.Wire()})
	}
	if m := len(ports(f, pol, declined, program.Configure)); n == 0 || m != 0 {
		t.Errorf("%d Sets, then %d", n, m)
	}
}

// switchInfo is what the first of some requests sets.
func switchInfo(r []smp.Request) *fabric.SwitchInfo {
	i := mad.SwitchInfoOf(&r[0].Data)
	return &i
}

// A switch that shows no multicast group up to its top gets all of its table;
// what it answers then is kept, whether it has such a limit or not.
func TestMulticastTop(t *testing.T) {
	for _, tt := range []struct{ shows, answers uint16 }{{0xbfff, 0xc3ff}, {0, 0xc3ff}, {0, 0}} {
		f := gen.Star(2, 8).Clone()
		s := &f.Switches[0].Info
		s.SetMulticastFDBTop(tt.shows)
		r := program.Switches(f, program.DefaultPolicy(), 3)
		if len(r) != 1 || switchInfo(r).MulticastFDBTop() != 0xc3ff {
			t.Fatalf("top 0x%x: %v", tt.shows, r)
		}
		*s = *switchInfo(r)
		s.SetMulticastFDBTop(tt.answers)
		if r := program.Switches(f, program.DefaultPolicy(), 3); len(r) != 0 {
			t.Errorf("top 0x%x, answered 0x%x: told again", tt.shows, tt.answers)
		}
	}
}

// The ports were read before this: a change since then must go on showing, but
// that a switch was turned on is known.
func TestPortStateChange(t *testing.T) {
	f := gen.Star(2, 8).Clone()
	s := &f.Switches[0].Info
	s.SetPortStateChange(true)
	r := program.Switches(f, program.DefaultPolicy(), 3)
	if len(r) != 1 || switchInfo(r).LinearFDBTop() != 3 || !switchInfo(r).PortStateChange() {
		t.Fatalf("a new switch: %v", r)
	}
	*s = *switchInfo(r)
	s.SetPortStateChange(true)
	if r := program.Switches(f, program.DefaultPolicy(), 3); len(r) != 0 {
		t.Errorf("told again: %v", r)
	}
	if r := program.Switches(f, program.DefaultPolicy(), 4); len(r) != 1 || switchInfo(r).LinearFDBTop() != 4 ||
		switchInfo(r).PortStateChange() {
		t.Errorf("another LID: %v", r)
	}
}

// A link in use keeps its lanes; one in Initializing gets all that both ends have.
func TestLanesOfActiveLinks(t *testing.T) {
	f := gen.Star(2, 8).Clone()
	host := f.EndPorts[slices.IndexFunc(f.EndPorts, func(e int32) bool { return f.Ports[e].Num == 1 })]
	for _, tt := range []struct {
		state    ib.PortState
		at, peer uint8
		want     uint8 // 0: not set
	}{{ib.PortInit, 1, 1, 4}, {ib.PortActive, 1, 1, 0}, {ib.PortActive, 1, 2, 4}} {
		for k, p := range []int32{host, f.Ports[host].Peer} {
			i := &f.Ports[p].Info
			i.SetState(tt.state)
			i.SetVLCap(4)
			i.SetOperVLs([]uint8{tt.at, tt.peer}[k])
		}
		// Everything else is as wanted.
		stage := program.Configure
		if tt.state == ib.PortInit {
			stage = program.Arm
		}
		pol := program.DefaultPolicy()
		for _, r := range ports(f, pol, make(program.Declined, len(f.Ports)), stage) {
			if got := r.Data[43] >> 4; int32(r.Tag) == host && tt.want != 0 && got != tt.want || int32(r.Tag) == host && tt.want == 0 &&
				got != tt.at {
				t.Errorf("%v, lanes %d and %d: told %d, want %d", tt.state, tt.at, tt.peer, got, tt.want)
			}
		}
	}
}

// ports are the Sets of a stage, before any of them is answered.
func ports(f *fabric.Fabric, pol program.Policy, declined program.Declined, st program.Stage) []smp.Request {
	return all(&program.Ports{Fabric: f, Policy: pol, Declined: declined, Stage: st})
}

// Adapter ports that were configured before are declined for every block of their
// table, others and those that are known are not; what comes in any order is put
// together, and half a table is none.
func TestReadPKeys(t *testing.T) {
	f := gen.Star(4, 8)
	hosts := gen.Hosts(f)
	for _, h := range hosts[1:] {
		f.Ports[h].Info.SetLID(5)
	}
	known := []ib.PKey{0x8001}
	src := program.ReadPKeys{Fabric: f, Tables: make([][]ib.PKey, len(f.Ports))}
	src.Tables[hosts[1]] = known
	declined := map[uint64][]smp.Request{}
	for _, r := range all(&src) {
		declined[r.Tag] = append(declined[r.Tag], r)
	}
	if len(declined) != 2 || len(declined[uint64(hosts[2])]) != 2 || len(declined[uint64(hosts[3])]) != 2 {
		t.Fatalf("declined %v", declined)
	}
	for k := 1; k >= 0; k-- {
		ok := smp.Reply{Request: declined[uint64(hosts[2])][k]}
		ok.Data[1] = byte(k + 1)
		src.Step(&ok)
		src.Step(&smp.Reply{Request: declined[uint64(hosts[3])][k], Timeout: k == 0})
	}
	want := make([]ib.PKey, 64)
	want[0], want[32] = 1, 2
	if got := src.Tables; !slices.Equal(got[hosts[2]], want) || got[hosts[3]] != nil || got[hosts[0]] != nil ||
		!slices.Equal(got[hosts[1]], known) {
		t.Errorf("tables %v", got)
	}
	if !slices.Equal(src.Failed, hosts[3:]) {
		t.Errorf("failed %v, want %v", src.Failed, hosts[3:])
	}
}

// A search compares a part of the tables, and the requests are those of Next alone.
func TestSearch(t *testing.T) {
	f := gen.LIDs(gen.FatTree3(36, 6, 27), 0)
	const n = 1 << 15
	have, want := make([][]uint8, len(f.Switches)), make([][]uint8, len(f.Switches))
	for i := range have {
		have[i], want[i] = make([]uint8, n), make([]uint8, n)
	}
	last := len(want) - 1
	want[0][70], want[last][n-1] = 1, 1
	for i := range f.Ports {
		f.Ports[i].Known = true
	}
	end := f.EndPorts[len(f.EndPorts)-1]
	for name, tt := range map[string]struct {
		make func() smp.Searcher
		reqs int
	}{
		"LFT": {func() smp.Searcher { return &program.LFT{Fabric: f, Have: have, Want: want} }, 2},
		"Ports": {func() smp.Searcher {
			return &program.Ports{Fabric: f, Policy: program.DefaultPolicy(), Skip: func(i int32) bool { return i != end }}
		}, 1},
	} {
		plain := all(tt.make())
		var reqs []smp.Request
		searches := 0
		for s := tt.make(); ; {
			for searches++; !s.Search(); searches++ {
			}
			r, ok := s.Next()
			if !ok {
				break
			}
			reqs = append(reqs, r)
		}
		if len(reqs) != tt.reqs || cmp.Diff(plain, reqs) != "" || searches < len(reqs)+3 {
			t.Errorf("%s: %d requests in %d searches, %d of Next alone", name, len(reqs), searches, len(plain))
		}
	}
}
