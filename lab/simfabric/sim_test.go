package simfabric

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// ask sends one directed-route SMP and returns what came back.
func ask(t testing.TB, tr transport.Transport, m mad.Method, a mad.AttrID, mod uint32, path []uint8, data []byte) transport.Packet {
	t.Helper()
	var p transport.Packet
	p.LID, p.Timeout = ib.LIDPermissive, time.Second
	mad.PutDR(&p.MAD, m, a, mod, 7, 0, path, data)
	testkit.NoError(t, tr.Send(&p))
	var in [1]transport.Packet
	for {
		if _, err := tr.Recv(context.Background(), in[:]); err != nil {
			t.Fatal(err)
		}
		if mad.MethodOf(&in[0].MAD) != mad.MethodTrap {
			return in[0]
		}
	}
}

func portInfo(t testing.TB, p transport.Packet) (i mad.PortInfo) {
	t.Helper()
	if p.Err != nil || mad.StatusOf(&p.MAD) != 0 {
		t.Fatalf("%v, status 0x%x", p.Err, mad.StatusOf(&p.MAD))
	}
	_ = i.Decode(p.MAD[64:128])
	return i
}

func star(t testing.TB, opt Options) (*Sim, transport.Transport, []EndPort) {
	s := New(gen.Star(3, 8), opt)
	t.Cleanup(s.Close)
	tr, err := s.Open(gen.HostGUID + 1)
	testkit.NoError(t, err)
	return s, tr, s.EndPorts()
}

// setUp gives every port of a star its LID and brings the links to Active, as
// the crudest subnet manager would.
func setUp(t testing.TB, s *Sim, tr transport.Transport) {
	t.Helper()
	set := func(path []uint8, num uint32, lid ib.LID, st ib.PortState) {
		i := portInfo(t, ask(t, tr, mad.MethodGet, mad.AttrPortInfo, num, path, nil))
		if lid != 0 {
			i.SetLID(lid)
			i.SetMasterSMLID(1)
		}
		i.SetState(st)
		i.SetPhysState(0)
		portInfo(t, ask(t, tr, mad.MethodSet, mad.AttrPortInfo, num, path, i.Append(nil)))
	}
	var lft mad.LFTBlock
	for i := range lft {
		lft[i] = 255
	}
	lft[1], lft[2], lft[3], lft[4] = 1, 2, 3, 0
	ask(t, tr, mad.MethodSet, mad.AttrLFT, 0, []uint8{1}, lft.Append(nil))
	var si mad.SwitchInfo
	si.SetLinearFDBTop(4)
	si.SetPortStateChange(true)
	ask(t, tr, mad.MethodSet, mad.AttrSwitchInfo, 0, []uint8{1}, si.Append(nil))
	set([]uint8{1}, 0, 4, 0)
	for _, st := range []ib.PortState{ib.PortArmed, ib.PortActive} {
		set(nil, 1, 1, st)
		set([]uint8{1, 2}, 1, 2, st)
		set([]uint8{1, 3}, 1, 3, st)
		for p := uint32(1); p <= 3; p++ {
			set([]uint8{1}, p, 0, st)
		}
	}
	if !s.AllActive() {
		t.Fatal("not all ports are active")
	}
}

func TestDirectedRoute(t *testing.T) { synctest.Test(t, testDirectedRoute) }

func testDirectedRoute(t *testing.T) {
	s, tr, _ := star(t, Options{})
	var ni mad.NodeInfo
	p := ask(t, tr, mad.MethodGet, mad.AttrNodeInfo, 0, nil, nil)
	_ = ni.Decode(p.MAD[64:])
	if ni.NodeType != ib.NodeCA || ni.LocalPortNum != 1 || ni.PortGUID != gen.HostGUID+1 || p.MAD[6] != 0 {
		t.Errorf("local node: %+v", ni)
	}
	p = ask(t, tr, mad.MethodGet, mad.AttrNodeInfo, 0, []uint8{1}, nil)
	_ = ni.Decode(p.MAD[64:])
	if ni.NodeType != ib.NodeSwitch || ni.LocalPortNum != 1 || ni.NumPorts != 8 || p.MAD[192+1] != 1 {
		t.Errorf("switch: %+v", ni)
	}
	p = ask(t, tr, mad.MethodGet, mad.AttrNodeInfo, 0, []uint8{1, 3}, nil)
	_ = ni.Decode(p.MAD[64:])
	if ni.NodeType != ib.NodeCA || p.MAD[192+2] != 1 {
		t.Errorf("host: %+v", ni)
	}
	for _, path := range [][]uint8{{2}, {1, 0}, {1, 5}, {1, 200}, {1, 3, 1}} {
		if p = ask(t, tr, mad.MethodGet, mad.AttrNodeInfo, 0, path, nil); !errors.Is(p.Err, transport.ErrTimeout) {
			t.Errorf("path %v leads somewhere", path)
		}
	}
	if c := s.Counters(); c.SMPs[mad.AttrNodeInfo].Get != 8 || c.Total != 8 {
		t.Errorf("%+v", c)
	}
}

func TestBringUpAndReach(t *testing.T) {
	s, tr, eps := star(t, Options{})
	setUp(t, s, tr)
	if g := s.Reaches(eps[0].PortGUID, 3); g != eps[2].PortGUID {
		t.Errorf("LID 3 ends at %s", g)
	}
	if g := s.Reaches(eps[0].PortGUID, 9); g != 0 {
		t.Errorf("LID 9 ends at %s", g)
	}
	// LID-routed, and the answer of a host without a subnet manager.
	var p transport.Packet
	p.LID, p.Timeout = 2, time.Second
	mad.PutLR(&p.MAD, mad.MethodGet, mad.AttrSMInfo, 0, 1, 0, nil)
	testkit.NoError(t, tr.Send(&p))
	var in [1]transport.Packet
	if _, err := tr.Recv(t.Context(), in[:]); err != nil || mad.StatusOf(&in[0].MAD) != mad.StatusBadAttr || in[0].LID != 2 {
		t.Errorf("%v %+v", err, in[0])
	}
	// ACTIVE before ARMED is refused.
	testkit.NoError(t, s.Flap(eps[1].NodeGUID, 1))
	i, _ := s.PortInfo(eps[1].NodeGUID, 1)
	if i.State() != ib.PortInit {
		t.Fatal(i.State())
	}
	i.SetState(ib.PortActive)
	i.SetPhysState(0)
	r := ask(t, tr, mad.MethodSet, mad.AttrPortInfo, 1, []uint8{1, 2}, i.Append(nil))
	if mad.StatusOf(&r.MAD) != mad.StatusInvalidField && r.Err == nil && mad.MethodOf(&r.MAD) == mad.MethodGetResp {
		t.Errorf("status 0x%x", mad.StatusOf(&r.MAD))
	}
}

func TestTrapRepeatsUntilRepressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tr, eps := star(t, Options{TrapRepeats: 5})
		setUp(t, s, tr)
		testkit.NoError(t, s.Cut(eps[2].NodeGUID, 1))
		var in [8]transport.Packet
		for round := range 2 {
			n, err := tr.Recv(t.Context(), in[:1])
			if err != nil || n != 1 || mad.MethodOf(&in[0].MAD) != mad.MethodTrap {
				t.Fatalf("round %d: %v %v", round, err, in[0])
			}
		}
		var n mad.Notice
		_ = n.Decode(in[0].MAD[64:128])
		if n.TrapNumber != mad.TrapLinkStateChange || n.DetailSwitchLID() != 4 || in[0].LID != 4 {
			t.Errorf("%+v from %s", n, in[0].LID)
		}
		r := in[0]
		r.MAD[3] = uint8(mad.MethodTrapRepress)
		testkit.NoError(t, tr.Send(&r))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n, err := tr.Recv(ctx, in[:]); err == nil {
			t.Errorf("%d traps after the TrapRepress", n)
		}
		i, _ := s.PortInfo(gen.SwitchGUID, 3)
		sw, _, _, _ := s.SwitchTables(gen.SwitchGUID)
		if i.State() != ib.PortDown || !sw.PortStateChange() {
			t.Errorf("port %v, PortStateChange %v", i.State(), sw.PortStateChange())
		}
	})
}

func TestMKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tr, eps := star(t, Options{TrapRepeats: -1})
		setUp(t, s, tr)
		i, _ := s.PortInfo(eps[1].NodeGUID, 1)
		i.SetMKey(0x1234)
		i.SetMKeyProtect(2)
		i.SetMKeyLease(10)
		i.SetState(0)
		i.SetPhysState(0)
		path := []uint8{1, 2}
		portInfo(t, ask(t, tr, mad.MethodSet, mad.AttrPortInfo, 1, path, i.Append(nil)))
		var p transport.Packet
		get := func(key ib.MKey) transport.Packet {
			p.LID, p.Timeout = ib.LIDPermissive, time.Second
			mad.PutDR(&p.MAD, mad.MethodGet, mad.AttrPortInfo, 1, 9, key, path, nil)
			testkit.NoError(t, tr.Send(&p))
			var in [1]transport.Packet
			for {
				if _, err := tr.Recv(t.Context(), in[:]); err != nil {
					t.Fatal(err)
				}
				if mad.MethodOf(&in[0].MAD) != mad.MethodTrap {
					return in[0]
				}
				var n mad.Notice
				_ = n.Decode(in[0].MAD[64:])
				if v := n.DetailMKeyViolation(); n.TrapNumber != mad.TrapBadMKey || v.MKey != key || !v.DR {
					t.Errorf("%+v", v)
				}
			}
		}
		if r := get(0x1234); r.Err != nil {
			t.Error("the right key:", r.Err)
		}
		if r := get(1); !errors.Is(r.Err, transport.ErrTimeout) {
			t.Error("a wrong key is answered")
		}
		time.Sleep(11 * time.Second)
		if r := get(1); r.Err != nil {
			t.Error("after the lease:", r.Err)
		}
	})
}

func TestRebootAndPower(t *testing.T) {
	s, tr, eps := star(t, Options{})
	setUp(t, s, tr)
	other, err := s.Open(eps[1].PortGUID)
	testkit.NoError(t, err)
	testkit.NoError(t, other.SetIsSM(true))
	testkit.NoError(t, s.Reboot(eps[1].NodeGUID))
	var in [1]transport.Packet
	if _, err := other.Recv(t.Context(), in[:]); !errors.Is(err, transport.ErrGone) {
		t.Errorf("transport of a rebooted host: %v", err)
	}
	i, _ := s.PortInfo(eps[1].NodeGUID, 1)
	if i.LID() != 0 || i.State() != ib.PortInit || i.CapMask()&mad.CapIsSM != 0 {
		t.Errorf("%+v", i)
	}
}

func TestLossDelayDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tr, _ := star(t, Options{Seed: 5, Loss: 0.2, Duplicate: 0.2, DelayMin: time.Millisecond, DelayMax: 50 * time.Millisecond})
		const n = 500
		for i := range uint64(n) {
			var p transport.Packet
			p.LID, p.Timeout, p.Retries = ib.LIDPermissive, 200*time.Millisecond, 10
			mad.PutDR(&p.MAD, mad.MethodGet, mad.AttrNodeInfo, 0, i, 0, []uint8{1, 2}, nil)
			testkit.NoError(t, tr.Send(&p))
		}
		seen := map[uint32]int{}
		in := make([]transport.Packet, 64)
		for got := 0; got < n; {
			k, err := tr.Recv(t.Context(), in)
			testkit.NoError(t, err)
			for _, p := range in[:k] {
				if p.Err != nil {
					t.Error(p.Err)
				}
				seen[uint32(mad.TIDOf(&p.MAD))]++
			}
			got += k
		}
		for tid, c := range seen {
			if c != 1 {
				t.Errorf("request %d has %d answers", tid, c)
			}
		}
		if c := s.Counters(); c.Lost == 0 {
			t.Error("nothing was lost")
		}
	})
}

func BenchmarkSMP(b *testing.B) {
	s := New(gen.FatTree3(36, 3, 18), Options{})
	defer s.Close()
	tr, err := s.Open(gen.HostGUID + 1)
	testkit.NoError(b, err)
	var p transport.Packet
	in := make([]transport.Packet, 64)
	b.ReportAllocs()
	for i := range b.N {
		p.LID, p.Timeout = ib.LIDPermissive, time.Second
		mad.PutDR(&p.MAD, mad.MethodGet, mad.AttrPortInfo, 1, uint64(i), 0, []uint8{1, 19, 20}, nil)
		_ = tr.Send(&p)
		_, _ = tr.Recv(context.Background(), in)
	}
}

// FuzzMAD gives any 256 bytes to a subnet that is up: nothing may panic, and
// every request with a timeout comes back once.
func FuzzMAD(f *testing.F) {
	var b mad.Buf
	for a := range mad.AttrID(0x22) {
		mad.PutDR(&b, mad.MethodGet, a, 1, 5, 0, []uint8{1, 2}, nil)
		f.Add(b[:], uint16(0xffff))
		mad.PutLR(&b, mad.MethodSet, a, 1, 5, 0, []byte{1, 2, 3})
		f.Add(b[:], uint16(4))
	}
	s, tr, _ := star(f, Options{TrapRepeats: -1})
	setUp(f, s, tr)
	f.Fuzz(func(t *testing.T, in []byte, lid uint16) {
		var p transport.Packet
		copy(p.MAD[:], in)
		p.LID = ib.LID(lid)
		if !mad.ClassOf(&p.MAD).IsSMP() {
			p.QPN = 1
		}
		testkit.NoError(t, tr.Send(&p))
		q := p
		mad.PutDR(&q.MAD, mad.MethodGet, mad.AttrNodeInfo, 0, 4711, 0, nil, nil)
		q.LID, q.QPN, q.Timeout = ib.LIDPermissive, 0, time.Second
		testkit.NoError(t, tr.Send(&q))
		in2 := make([]transport.Packet, 8)
		for {
			n, err := tr.Recv(t.Context(), in2)
			testkit.NoError(t, err)
			for i := range in2[:n] {
				if uint32(mad.TIDOf(&in2[i].MAD)) == 4711 && mad.MethodOf(&in2[i].MAD) == mad.MethodGetResp {
					return
				}
			}
		}
	})
}

func TestMulticastAndPKeys(t *testing.T) {
	s, tr, eps := star(t, Options{TrapRepeats: -1})
	setUp(t, s, tr)
	var m mad.MFTBlock
	m[1] = 1<<1 | 1<<2 | 1<<3 // MLID 0xc001 at ports 1, 2, 3
	p := ask(t, tr, mad.MethodSet, mad.AttrMFT, mad.MFTMod(0, 0), []uint8{1}, m.Append(nil))
	if p.Err != nil || mad.StatusOf(&p.MAD) != 0 {
		t.Fatal(p.Err, mad.StatusOf(&p.MAD))
	}
	got := s.Multicast(eps[0].PortGUID, 0xc001)
	if len(got) != 2 || got[0] != eps[1].PortGUID || got[1] != eps[2].PortGUID {
		t.Errorf("reached %v", got)
	}
	if got := s.Multicast(eps[0].PortGUID, 0xc002); len(got) != 0 {
		t.Errorf("a group without members reaches %v", got)
	}
	// A host outside the default partition gets nothing on QP1, and says so.
	var k mad.PKeyBlock
	k[0] = 0x8001
	ask(t, tr, mad.MethodSet, mad.AttrPKeyTable, 0, []uint8{1, 2}, k.Append(nil))
	var q transport.Packet
	q.LID, q.QPN, q.Timeout = 2, 1, 20*time.Millisecond
	h := mad.NewSA(mad.MethodGet, mad.AttrClassPortInfo, 9, 0)
	q.SetMessage(h.Append(nil), false)
	testkit.NoError(t, tr.Send(&q))
	trap, timeout := false, false
	for !trap || !timeout {
		var in [1]transport.Packet
		if _, err := tr.Recv(t.Context(), in[:]); err != nil {
			t.Fatal(err)
		}
		var n mad.Notice
		_ = n.Decode(in[0].MAD[64:])
		switch {
		case errors.Is(in[0].Err, transport.ErrTimeout):
			timeout = true
		case mad.MethodOf(&in[0].MAD) == mad.MethodTrap && n.TrapNumber == mad.TrapBadPKey:
			v := n.DetailKeyViolation()
			trap = v.LID1 == 1 && v.LID2 == 2 && v.Key == 0xffff
		default:
			t.Fatalf("%+v", in[0])
		}
	}
	if i, _ := s.PortInfo(eps[1].NodeGUID, 1); i.PKeyViolations() != 1 {
		t.Errorf("%d violations counted", i.PKeyViolations())
	}
}

func TestViolations(t *testing.T) {
	s, tr, eps := star(t, Options{TrapRepeats: -1})
	setUp(t, s, tr)
	wait := func(trap uint16) mad.KeyViolation {
		t.Helper()
		var in [1]transport.Packet
		for {
			if _, err := tr.Recv(t.Context(), in[:]); err != nil {
				t.Fatal(err)
			}
			var n mad.Notice
			_ = n.Decode(in[0].MAD[64:])
			if mad.MethodOf(&in[0].MAD) == mad.MethodTrap && n.TrapNumber == trap {
				return n.DetailKeyViolation()
			}
		}
	}
	var q transport.Packet
	q.LID, q.QPN, q.QKey = 2, 1, 0x1234
	h := mad.NewSA(mad.MethodGet, mad.AttrClassPortInfo, 9, 0)
	q.SetMessage(h.Append(nil), false)
	testkit.NoError(t, tr.Send(&q))
	if v := wait(mad.TrapBadQKey); v.Key != 0x1234 || v.LID1 != 1 || v.LID2 != 2 {
		t.Errorf("%+v", v)
	}
	// The switch's port 2 lets only partition 1 out.
	testkit.NoError(t, s.SetPortInfo(gen.SwitchGUID, 2, func(i *mad.PortInfo) { i.SetEnforcement(mad.EnforceOutbound) }))
	var k mad.PKeyBlock
	k[0] = 0x8001
	ask(t, tr, mad.MethodSet, mad.AttrPKeyTable, mad.PKeyMod(2, 0), []uint8{1}, k.Append(nil))
	if g := s.Reaches(eps[0].PortGUID, 2); g != 0 {
		t.Errorf("the packet reaches %s", g)
	}
	q.QKey = 0
	testkit.NoError(t, tr.Send(&q))
	if v := wait(mad.TrapSwitchBadPKey); v.Key != 0xffff || v.SwitchLID != 4 || v.Port != 2 || v.LID2 != 2 {
		t.Errorf("%+v", v)
	}
}

func TestMove(t *testing.T) {
	s, tr, eps := star(t, Options{TrapRepeats: -1})
	setUp(t, s, tr)
	testkit.NoError(t, s.Move(gen.SwitchGUID, 3, gen.SwitchGUID, 7))
	var ni mad.NodeInfo
	p := ask(t, tr, mad.MethodGet, mad.AttrNodeInfo, 0, []uint8{1, 7}, nil)
	if _ = ni.Decode(p.MAD[64:]); ni.PortGUID != eps[2].PortGUID {
		t.Errorf("port 7 leads to %+v", ni)
	}
	if p, _ := s.PortInfo(gen.SwitchGUID, 3); p.State() != ib.PortDown {
		t.Errorf("the old port is %v", p.State())
	}
	if err := s.Move(gen.SwitchGUID, 3, gen.SwitchGUID, 8); err == nil {
		t.Error("an empty port was moved")
	}
}
