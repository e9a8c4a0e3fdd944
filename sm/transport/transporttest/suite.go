// Package transporttest is the suite that every implementation of
// transport.Transport passes: what its contract says, proved on a fabric.
package transporttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Config describes what the implementation under test can show.
type Config struct {
	// Open connects to the port where the suite plays the subnet manager. Each
	// call is a new connection after the last one was closed.
	Open func(t *testing.T) transport.Transport
	// Path is a directed route to another node that answers NodeInfo, NoPath
	// one that leads to nothing.
	Path, NoPath []uint8
	// Peer, where set, connects to a second port; PeerPath leads from the first
	// port to it. The suite gives both ports LIDs 1 and 2 and uses them.
	Peer     func(t *testing.T) transport.Transport
	PeerPath []uint8
	// SetUp makes LIDs 1 (Open's port) and 2 (Peer's) reach each other with
	// links Active; nil uses a plain cable or switch at hop 1 of the path.
	SetUp func(t *testing.T, tr transport.Transport)
	// SilentOnUnknown: a node does not answer for attributes that do not exist.
	SilentOnUnknown bool
	// Lossy: single MADs get lost on the way.
	Lossy bool
	// Flood is how many requests are sent without a Recv in between.
	Flood int
	// Gone, where set, makes the device of the connection disappear.
	Gone func(t *testing.T)
}

// Run runs the suite.
func Run(t *testing.T, c Config) {
	c.Flood = cmp.Or(c.Flood, 2000)
	open := func(t *testing.T) transport.Transport {
		t.Helper()
		tr := c.Open(t)
		t.Cleanup(func() { tr.Close() })
		return tr
	}
	t.Run("Port", func(t *testing.T) { testPort(t, open(t)) })
	t.Run("LocalNode", func(t *testing.T) { testLocal(t, open(t)) })
	t.Run("DirectedRoute", func(t *testing.T) { testDirected(t, open(t), c.Path, c.SilentOnUnknown) })
	t.Run("Timeout", func(t *testing.T) { testTimeout(t, open(t), c.NoPath) })
	t.Run("TIDs", func(t *testing.T) { testTIDs(t, open(t), c.Path) })
	t.Run("FloodWithoutRecv", func(t *testing.T) { testFlood(t, open(t), c.Path, c.Flood) })
	t.Run("RecvWaitsAndCancels", func(t *testing.T) { testCancel(t, open(t)) })
	t.Run("IsSM", func(t *testing.T) { testIsSM(t, open(t)) })
	t.Run("Close", func(t *testing.T) { testClose(t, open(t)) })
	t.Run("Reopen", func(t *testing.T) {
		for range 3 {
			tr := c.Open(t)
			testLocal(t, tr)
			if err := tr.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
	if c.Peer != nil {
		t.Run("Peer", func(t *testing.T) { testPeer(t, open(t), c) })
	}
	if c.Gone != nil {
		t.Run("Gone", func(t *testing.T) {
			tr := open(t)
			testLocal(t, tr)
			c.Gone(t)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var in [8]transport.Packet
			for {
				if _, err := tr.Recv(ctx, in[:]); err != nil {
					if !errors.Is(err, transport.ErrGone) {
						t.Errorf("Recv after the device is gone: %v, want ErrGone", err)
					}
					return
				}
			}
		})
	}
}

// Request makes a directed-route Get.
func Request(a mad.AttrID, mod uint32, tid uint32, path []uint8) (p transport.Packet) {
	p.LID, p.Timeout, p.Retries = ib.LIDPermissive, 500*time.Millisecond, 3
	mad.PutDR(&p.MAD, mad.MethodGet, a, mod, uint64(tid), 0, path, nil)
	return p
}

// recv returns the next packet that is not a trap or another sender's request.
func recv(t *testing.T, tr transport.Transport) transport.Packet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var in [1]transport.Packet
	for {
		n, err := tr.Recv(ctx, in[:])
		if err != nil || n != 1 {
			t.Fatalf("Recv: %d, %v", n, err)
		}
		if in[0].Err != nil || mad.MethodOf(&in[0].MAD).IsResponse() {
			return in[0]
		}
	}
}

func ask(t *testing.T, tr transport.Transport, p transport.Packet) transport.Packet {
	t.Helper()
	if err := tr.Send(&p); err != nil {
		t.Fatalf("Send: %v", err)
	}
	return recv(t, tr)
}

func testPort(t *testing.T, tr transport.Transport) {
	p, err := tr.Port()
	if err != nil {
		t.Fatal(err)
	}
	if p.PortGUID == 0 || p.NodeGUID == 0 || p.Device == "" || p.LinkLayer != ib.LinkLayerInfiniBand || p.NodeType == 0 {
		t.Errorf("%+v", p)
	}
}

func testLocal(t *testing.T, tr transport.Transport) {
	t.Helper()
	r := ask(t, tr, Request(mad.AttrNodeInfo, 0, 11, nil))
	port, err := tr.Port()
	if err != nil {
		t.Fatal(err)
	}
	var ni mad.NodeInfo
	_ = ni.Decode(r.MAD[64:])
	if r.Err != nil || mad.StatusOf(&r.MAD) != 0 || ni.NodeGUID != port.NodeGUID || ni.PortGUID != port.PortGUID ||
		ni.LocalPortNum != port.Num {
		t.Errorf("local NodeInfo: %v, %+v, port %+v", r.Err, ni, port)
	}
}

func testDirected(t *testing.T, tr transport.Transport, path []uint8, silent bool) {
	r := ask(t, tr, Request(mad.AttrNodeInfo, 0, 12, path))
	var s mad.SMP
	s.Decode(&r.MAD)
	if r.Err != nil || mad.StatusOf(&r.MAD) != 0 || s.Method != mad.MethodGetResp || uint32(s.TID) != 12 || r.LID != ib.LIDPermissive {
		t.Fatalf("%v %+v", r.Err, s.Header)
	}
	if s.HopPtr != 0 || int(s.HopCount) != len(path) || !bytes.Equal(s.Path(), path) {
		t.Errorf("hop pointer %d, count %d, path %v", s.HopPtr, s.HopCount, s.Path())
	}
	for i := 1; i <= len(path); i++ {
		if s.Return[i] == 0 {
			t.Errorf("return path %v", s.Return[:len(path)+1])
		}
	}
	r = ask(t, tr, Request(0x7abc, 0, 13, path))
	if !silent && (r.Err != nil || mad.StatusOf(&r.MAD)&0x1c == 0) {
		t.Errorf("an attribute that does not exist: %v, status 0x%x", r.Err, mad.StatusOf(&r.MAD))
	}
}

func testTimeout(t *testing.T, tr transport.Transport, path []uint8) {
	p := Request(mad.AttrNodeInfo, 0, 14, path)
	p.Timeout, p.Retries = 50*time.Millisecond, 2
	start := time.Now()
	r := ask(t, tr, p)
	if !errors.Is(r.Err, transport.ErrTimeout) || uint32(mad.TIDOf(&r.MAD)) != 14 || mad.MethodOf(&r.MAD) != mad.MethodGet {
		t.Fatalf("%v, TID %x, method %v", r.Err, mad.TIDOf(&r.MAD), mad.MethodOf(&r.MAD))
	}
	if d := time.Since(start); d < 100*time.Millisecond || d > 5*time.Second {
		t.Errorf("three times 50 ms took %v", d)
	}
	testLocal(t, tr)
}

func testTIDs(t *testing.T, tr transport.Transport, path []uint8) {
	for _, tid := range []uint32{0, 1, 0x7fffffff, 0x80000000, 0xffffffff} {
		p := Request(mad.AttrNodeDescription, 0, tid, path)
		mad.SetTID(&p.MAD, 0xdeadbeef00000000|uint64(tid))
		if r := ask(t, tr, p); r.Err != nil || uint32(mad.TIDOf(&r.MAD)) != tid {
			t.Errorf("TID %x: %v, %x", tid, r.Err, mad.TIDOf(&r.MAD))
		}
	}
}

func testFlood(t *testing.T, tr transport.Transport, path []uint8, n int) {
	done := make(chan error, 1)
	go func() {
		for i := range n {
			p := Request(mad.AttrNodeInfo, 0, uint32(1000+i), path)
			p.Timeout, p.Retries = time.Second, 20
			if err := tr.Send(&p); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("Send waits for Recv")
	}
	seen := make([]bool, n)
	for range n {
		r := recv(t, tr)
		i := int(uint32(mad.TIDOf(&r.MAD))) - 1000
		if r.Err != nil || i < 0 || i >= n || seen[i] {
			t.Fatalf("%v, request %d", r.Err, i)
		}
		seen[i] = true
	}
}

func testCancel(t *testing.T, tr transport.Transport) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var in [4]transport.Packet
	for {
		_, err := tr.Recv(ctx, in[:])
		if err == nil {
			continue // a trap
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Recv ends with %v, want the context's error", err)
		}
		break
	}
	testLocal(t, tr)
}

func testIsSM(t *testing.T, tr transport.Transport) {
	issm := func() bool {
		r := ask(t, tr, Request(mad.AttrPortInfo, 0, 15, nil))
		var pi mad.PortInfo
		_ = pi.Decode(r.MAD[64:])
		return pi.CapMask()&mad.CapIsSM != 0
	}
	for _, on := range []bool{true, true, false, true, false} {
		if err := tr.SetIsSM(on); err != nil {
			t.Fatalf("SetIsSM(%v): %v", on, err)
		}
		if issm() != on {
			t.Errorf("IsSM is %v after SetIsSM(%v)", !on, on)
		}
	}
}

func testClose(t *testing.T, tr transport.Transport) {
	done := make(chan error, 1)
	go func() {
		var in [4]transport.Packet
		for {
			if _, err := tr.Recv(context.Background(), in[:]); err != nil {
				done <- err
				return
			}
		}
	}()
	time.Sleep(20 * time.Millisecond) // let Recv wait; the test is valid either way
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, transport.ErrClosed) {
			t.Errorf("Recv ends with %v, want ErrClosed", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Close does not end Recv")
	}
	if err := tr.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	p := Request(mad.AttrNodeInfo, 0, 16, nil)
	if err := tr.Send(&p); err == nil {
		t.Error("Send after Close")
	}
}

// SetUpSwitch gives the two ports LIDs 1 and 2 and brings the links between
// them to Active. path leads to the peer over at most one switch.
func SetUpSwitch(t *testing.T, tr transport.Transport, path []uint8) {
	t.Helper()
	set := func(at []uint8, num uint32, lid ib.LID, st ib.PortState) {
		t.Helper()
		r := ask(t, tr, Request(mad.AttrPortInfo, num, 20, at))
		var pi mad.PortInfo
		_ = pi.Decode(r.MAD[64:])
		if st != 0 && pi.State() == ib.PortActive {
			st = 0
		}
		if lid != 0 {
			pi.SetLID(lid)
			pi.SetMasterSMLID(1)
		}
		pi.SetState(st)
		pi.SetPhysState(0)
		p := Request(mad.AttrPortInfo, num, 21, at)
		p.MAD[3] = uint8(mad.MethodSet)
		pi.Append(p.MAD[64:64])
		if r = ask(t, tr, p); r.Err != nil || mad.StatusOf(&r.MAD) != 0 {
			t.Fatalf("PortInfo of port %d at %v: %v, status 0x%x", num, at, r.Err, mad.StatusOf(&r.MAD))
		}
	}
	var in uint32 // port of the switch that we are connected to
	if len(path) == 2 {
		sw := path[:1]
		ni := ask(t, tr, Request(mad.AttrNodeInfo, 0, 22, sw))
		in = uint32(ni.MAD[64+36])
		p := Request(mad.AttrLFT, 0, 23, sw)
		p.MAD[3] = uint8(mad.MethodSet)
		for i := range 64 {
			p.MAD[64+i] = mad.LFTDrop
		}
		p.MAD[64+1], p.MAD[64+2], p.MAD[64+3] = uint8(in), path[1], 0
		ask(t, tr, p)
		r := ask(t, tr, Request(mad.AttrSwitchInfo, 0, 24, sw))
		var si mad.SwitchInfo
		_ = si.Decode(r.MAD[64:])
		si.SetLinearFDBTop(3)
		p = Request(mad.AttrSwitchInfo, 0, 25, sw)
		p.MAD[3] = uint8(mad.MethodSet)
		si.Append(p.MAD[64:64])
		ask(t, tr, p)
		set(sw, 0, 3, 0)
	}
	// All ports of the way to one state before any goes on to the next.
	for _, st := range []ib.PortState{ib.PortArmed, ib.PortActive} {
		set(nil, 0, 1, st)
		if len(path) == 2 {
			set(path[:1], in, 0, st)
			set(path[:1], uint32(path[1]), 0, st)
		}
		set(path, 0, 2, st)
	}
}

// testPeer runs what needs a second port: requests from one to the other, long
// messages both ways, SMInfo, answers that come late.
func testPeer(t *testing.T, a transport.Transport, c Config) {
	b := c.Peer(t)
	t.Cleanup(func() { b.Close() })
	for _, x := range []transport.Transport{a, b} {
		if err := x.SetIsSM(true); err != nil {
			t.Fatal(err)
		}
	}
	if c.SetUp != nil {
		c.SetUp(t, a)
	} else {
		SetUpSwitch(t, a, c.PeerPath)
	}
	// serve answers what reaches b: SMInfo, and SA GetTable with as many bytes
	// as the modifier says, all of the value of the low byte of the TID, twice
	// if there is an SM_Key.
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	long := make(chan []byte, 4)
	go func() {
		defer close(stopped)
		in := make([]transport.Packet, 16)
		for {
			n, err := b.Recv(ctx, in)
			if err != nil {
				return
			}
			for i := range in[:n] {
				p := in[i]
				switch {
				case p.Err != nil || mad.MethodOf(&p.MAD).IsResponse():
				case mad.ClassOf(&p.MAD).IsSMP() && mad.AttrOf(&p.MAD) == mad.AttrSMInfo:
					p.MAD[3] = uint8(mad.MethodGetResp)
					if mad.ClassOf(&p.MAD) == mad.ClassSubnDR {
						mad.SetStatus(&p.MAD, mad.StatusDirection)
					}
					sm := mad.SMInfo{GUID: 77, Priority: 3, State: mad.SMStandby}
					sm.Append(p.MAD[64:64])
					_ = b.Send(&p)
				case mad.ClassOf(&p.MAD) == mad.ClassSA && mad.MethodOf(&p.MAD) == mad.MethodGetTable:
					var h mad.SAHeader
					_ = h.Decode(p.MAD[:])
					r := h.Response(0)
					msg := r.Append(nil)
					msg = append(msg, bytes.Repeat([]byte{uint8(h.TID)}, int(h.Mod))...)
					p.SetMessage(msg, true)
					p.Timeout = 0
					_ = b.Send(&p)
					if h.SMKey != 0 {
						if err := b.Send(&p); err != nil {
							t.Errorf("an answer of %d bytes for the second time: %v", len(msg), err)
						}
					}
				case mad.ClassOf(&p.MAD) == mad.ClassSA && mad.MethodOf(&p.MAD) == mad.MethodGetMulti:
					long <- bytes.Clone(p.Bytes())
					var h mad.SAHeader
					_ = h.Decode(p.MAD[:])
					r := h.Response(mad.StatusSANoRecords)
					p.SetMessage(r.Append(nil), false)
					p.Timeout = 0
					_ = b.Send(&p)
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-stopped })

	t.Run("SMInfo", func(t *testing.T) {
		for _, dr := range []bool{true, false} {
			p := Request(mad.AttrSMInfo, 0, 30, c.PeerPath)
			if !dr {
				p.LID = 2
				mad.PutLR(&p.MAD, mad.MethodGet, mad.AttrSMInfo, 0, 31, 0, nil)
			}
			r := ask(t, a, p)
			var sm mad.SMInfo
			_ = sm.Decode(r.MAD[64:])
			if r.Err != nil || mad.StatusOf(&r.MAD) != 0 || sm.Priority != 3 || sm.GUID != 77 {
				t.Errorf("directed %v: %v, status 0x%x, %+v", dr, r.Err, mad.StatusOf(&r.MAD), sm)
			}
			if !dr && r.LID != 2 {
				t.Errorf("response from LID %s", r.LID)
			}
		}
	})
	t.Run("RMPPResponse", func(t *testing.T) {
		for i, n := range []int{0, 1, 144, 199, 200, 201, 400, 12_800, 12_801, 100_000, 1_000_000} {
			h := mad.NewSA(mad.MethodGetTable, mad.AttrNodeRecord, uint32(40+i), 0)
			h.Mod = uint32(n)
			var p transport.Packet
			p.LID, p.QPN, p.Timeout, p.Retries = 2, 1, 3*time.Second, 5
			p.SetMessage(h.Append(nil), false)
			r := ask(t, a, p)
			m := r.Bytes()
			if r.Err != nil || len(m) < 56+n || uint32(mad.TIDOf(&r.MAD)) != uint32(40+i) ||
				!bytes.Equal(m[56:56+n], bytes.Repeat([]byte{byte(40 + i)}, n)) {
				t.Fatalf("%d bytes: %v, message of %d", n, r.Err, len(m))
			}
			if r.Long != nil && len(m) != 56+n {
				t.Errorf("%d bytes: message of %d", n, len(m))
			}
		}
	})
	t.Run("AnsweredTwice", func(t *testing.T) {
		for i, n := range []int{100, 100_000} {
			h := mad.NewSA(mad.MethodGetTable, mad.AttrNodeRecord, uint32(80+i), 0)
			h.Mod, h.SMKey = uint32(n), 1
			var p transport.Packet
			p.LID, p.QPN, p.Timeout, p.Retries = 2, 1, 3*time.Second, 5
			p.SetMessage(h.Append(nil), false)
			r := ask(t, a, p)
			if r.Err != nil || uint32(mad.TIDOf(&r.MAD)) != uint32(80+i) || len(r.Bytes()) < 56+n {
				t.Fatalf("%d bytes: %v, TID %d, message of %d", n, r.Err, uint32(mad.TIDOf(&r.MAD)), len(r.Bytes()))
			}
		}
		if r := ask(t, a, Request(mad.AttrNodeInfo, 0, 82, nil)); uint32(mad.TIDOf(&r.MAD)) != 82 {
			t.Errorf("TID %d arrived", uint32(mad.TIDOf(&r.MAD)))
		}
		// The first one is under way for long because it is not acknowledged.
		var p transport.Packet
		p.LID, p.QPN = 1, 1
		h := mad.NewSA(mad.MethodGetTableResp, mad.AttrNodeRecord, 83, 0)
		p.SetMessage(append(h.Append(nil), make([]byte, 1000)...), true)
		for range 2 {
			if err := b.Send(&p); err != nil {
				t.Errorf("an answer that is not read: %v", err)
			}
		}
	})
	t.Run("RMPPRequest", func(t *testing.T) {
		// A long request that was acknowledged is not sent again when its answer, one
		// MAD, gets lost: its sender asks with a new identifier.
		tries := 1
		if c.Lossy {
			tries = 4
		}
		for tid := uint32(60); ; tid++ {
			h := mad.NewSA(mad.MethodGetMulti, mad.AttrMultiPathRecord, tid, 0)
			msg := h.Append(nil)
			for i := range 5000 {
				msg = append(msg, byte(i))
			}
			var p transport.Packet
			p.LID, p.QPN, p.Timeout, p.Retries = 2, 1, 3*time.Second, 5
			p.SetMessage(msg, true)
			r := ask(t, a, p)
			if got := <-long; !bytes.Equal(got[56:], msg[56:]) {
				t.Errorf("message of %d bytes arrived as %d", len(msg), len(got))
			}
			tries--
			if errors.Is(r.Err, transport.ErrTimeout) && tries > 0 {
				continue
			}
			if r.Err != nil || mad.StatusOf(&r.MAD) != mad.StatusSANoRecords {
				t.Fatalf("%v, status 0x%x", r.Err, mad.StatusOf(&r.MAD))
			}
			return
		}
	})
	t.Run("ManyLong", func(t *testing.T) {
		const n = 20
		for i := range n {
			h := mad.NewSA(mad.MethodGetTable, mad.AttrNodeRecord, uint32(100+i), 0)
			h.Mod = 20_000
			var p transport.Packet
			p.LID, p.QPN, p.Timeout, p.Retries = 2, 1, 3*time.Second, 5
			p.SetMessage(h.Append(nil), false)
			if err := a.Send(&p); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[uint32]bool{}
		for range n {
			r := recv(t, a)
			tid := uint32(mad.TIDOf(&r.MAD))
			if r.Err != nil || len(r.Bytes()) != 56+20_000 || r.Bytes()[20_000] != byte(tid) || seen[tid] {
				t.Fatalf("%v, %d bytes, TID %d", r.Err, len(r.Bytes()), tid)
			}
			seen[tid] = true
		}
	})
	t.Run("LateAndUnasked", func(t *testing.T) {
		// A response without a request is dropped.
		var p transport.Packet
		p.LID, p.QPN = 1, 1
		h := mad.NewSA(mad.MethodGetResp, mad.AttrNodeRecord, 4711, 0)
		p.SetMessage(h.Append(nil), false)
		if err := b.Send(&p); err != nil {
			t.Fatal(err)
		}
		if r := ask(t, a, Request(mad.AttrNodeInfo, 0, 70, nil)); uint32(mad.TIDOf(&r.MAD)) != 70 {
			t.Errorf("TID %d arrived", uint32(mad.TIDOf(&r.MAD)))
		}
	})
}
