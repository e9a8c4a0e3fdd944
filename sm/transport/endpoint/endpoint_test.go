package endpoint

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// pair is two endpoints on a wire with random loss, repetition and delay.
func pair(seed uint64, loss float64, delay time.Duration) (a, b *Endpoint) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	to := func(e **Endpoint, lid int) func(*transport.Packet) error {
		return func(p *transport.Packet) error {
			q := *p
			q.LID = 0
			mu.Lock()
			defer mu.Unlock()
			for n := 1 + rnd.IntN(2)*int(loss+0.99); n > 0; n-- {
				if rnd.Float64() < loss {
					continue
				}
				d := time.Duration(1)
				if delay > 0 {
					d += time.Duration(rnd.Int64N(int64(delay)))
				}
				time.AfterFunc(d, func() { r := q; (*e).Deliver(&r) })
			}
			return nil
		}
	}
	a = New(Config{Write: to(&b, 1), TIDHigh: 7})
	b = New(Config{Write: to(&a, 2), TIDHigh: 9})
	return a, b
}

func query(tid uint32, n int) (p transport.Packet) {
	h := mad.NewSA(mad.MethodGetTable, mad.AttrNodeRecord, tid, 0)
	h.Mod = uint32(n)
	p.SetMessage(h.Append(nil), false)
	p.Timeout, p.Retries = time.Second, 20
	return p
}

// TestExchange: whatever the wire does, each request yields one packet, and a
// long answer is the bytes that were sent.
func TestExchange(t *testing.T) {
	for _, loss := range []float64{0, 0.05, 0.2} {
		synctest.Test(t, func(t *testing.T) {
			a, b := pair(4, loss, 5*time.Millisecond)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				in := make([]transport.Packet, 8)
				answered := map[uint64]bool{}
				for {
					n, err := b.Recv(ctx, in)
					if err != nil {
						return
					}
					for i := range in[:n] {
						p := in[i]
						if p.Err != nil || mad.MethodOf(&p.MAD).IsResponse() || answered[mad.TIDOf(&p.MAD)] && loss == 0 {
							t.Errorf("b got %v %v", p.Err, mad.MethodOf(&p.MAD))
						}
						answered[mad.TIDOf(&p.MAD)] = true
						var h mad.SAHeader
						_ = h.Decode(p.MAD[:])
						r := h.Response(0)
						p.SetMessage(append(r.Append(nil), bytes.Repeat([]byte{byte(h.TID)}, int(h.Mod))...), true)
						_ = b.Send(&p)
					}
				}
			}()
			const n = 40
			for i := range uint32(n) {
				p := query(i, int(i)*500)
				testkit.NoError(t, a.Send(&p))
			}
			seen := map[uint32]bool{}
			in := make([]transport.Packet, 8)
			for len(seen) < n {
				k, err := a.Recv(ctx, in)
				testkit.NoError(t, err)
				for i := range in[:k] {
					p := &in[i]
					tid := uint32(mad.TIDOf(&p.MAD))
					if seen[tid] || p.Err != nil {
						t.Fatalf("loss %v: request %d: again %v, %v", loss, tid, seen[tid], p.Err)
					}
					seen[tid] = true
					want := bytes.Repeat([]byte{byte(tid)}, int(tid)*500)
					if got := p.Bytes(); len(got) != 56+len(want) || !bytes.Equal(got[56:], want) {
						t.Fatalf("loss %v: answer %d has %d bytes", loss, tid, len(got))
					}
				}
			}
			time.Sleep(time.Minute)
			if k, _ := a.TryRecv(in); k != 0 {
				t.Errorf("%d more packets", k)
			}
			for name, e := range map[string]*Endpoint{"a": a, "b": b} {
				e.mu.Lock()
				if len(e.pending) != 0 || len(e.sends) != 0 || len(e.recvs) > maxFinished {
					t.Errorf("%s keeps %d requests, %d and %d transfers", name, len(e.pending), len(e.sends), len(e.recvs))
				}
				e.mu.Unlock()
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		e := New(Config{Write: func(*transport.Packet) error { sent.Add(1); return nil }})
		p := query(1, 0)
		p.Timeout, p.Retries = time.Second, 3
		begin := time.Now()
		testkit.NoError(t, e.Send(&p))
		var in [2]transport.Packet
		n, err := e.Recv(t.Context(), in[:])
		if n != 1 || err != nil || !errors.Is(in[0].Err, transport.ErrTimeout) || sent.Load() != 4 || time.Since(begin) != 4*time.Second {
			t.Errorf("%d %v %v, sent %d times, %v", n, err, in[0].Err, sent.Load(), time.Since(begin))
		}
		// The answer that comes now matches no request.
		q := p
		q.MAD[3] = uint8(mad.MethodGetTableResp)
		e.Deliver(&q)
		if n, _ := e.TryRecv(in[:]); n != 0 || e.Stats().Unmatched != 1 {
			t.Errorf("%d packets, %+v", n, e.Stats())
		}
	})
}

// Deadlines of answered requests do not pile up, and the others stay in force.
func TestDeadlinesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Write: func(*transport.Packet) error { return nil }})
		begin := time.Now()
		var in [16]transport.Packet
		for i := range uint32(50_000) {
			p := query(i, 0)
			p.Timeout, p.Retries = time.Second, 0
			testkit.NoError(t, e.Send(&p))
			if i%5000 == 0 {
				continue // never answered
			}
			p.MAD[3] |= 0x80
			e.Deliver(&p)
			if n, _ := e.TryRecv(in[:]); n != 1 || in[0].Err != nil {
				t.Fatalf("answer %d: %d packets, %v", i, n, in[0].Err)
			}
		}
		e.mu.Lock()
		if len(e.dead) > 2000 {
			t.Errorf("%d deadlines for %d requests", len(e.dead), len(e.pending))
		}
		e.mu.Unlock()
		for i := range 10 {
			n, err := e.Recv(t.Context(), in[:1])
			if n != 1 || err != nil || !errors.Is(in[0].Err, transport.ErrTimeout) {
				t.Fatalf("time-out %d: %d packets, %v, %v", i, n, err, in[0].Err)
			}
		}
		if d := time.Since(begin); d != time.Second {
			t.Errorf("timed out after %v", d)
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Write: func(*transport.Packet) error { return nil }, Queue: 10, MaxMessage: 1000})
		for i := range uint32(100) {
			p := query(i, 0)
			e.Deliver(&p)
		}
		// First segments of transfers that are not continued.
		for i := range uint32(2 * maxTransfers) {
			s, err := mad.NewRMPPSender(append(mustHeader(i), make([]byte, 5000)...), 0)
			testkit.NoError(t, err)
			var p transport.Packet
			s.Next(&p.MAD)
			e.Deliver(&p)
		}
		transfers := func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.recvs)
		}
		if s := e.Stats(); s.Overflow != 90 || s.BadRMPP != maxTransfers || transfers() != maxTransfers {
			t.Errorf("%+v, %d transfers", s, transfers())
		}
		time.Sleep(2 * rmppIdle)
		if n := transfers(); n != 0 {
			t.Errorf("%d transfers are kept for ever", n)
		}
	})
}

func mustHeader(tid uint32) []byte {
	h := mad.NewSA(mad.MethodGetMulti, mad.AttrMultiPathRecord, tid, 0)
	return h.Append(nil)
}

func TestFail(t *testing.T) {
	e := New(Config{Write: func(*transport.Packet) error { return nil }})
	p := query(1, 0)
	e.Deliver(&p)
	e.Fail(transport.ErrGone)
	var in [2]transport.Packet
	if n, err := e.Recv(t.Context(), in[:]); n != 1 || err != nil {
		t.Errorf("what was queued is lost: %d %v", n, err)
	}
	for range 2 {
		if _, err := e.Recv(t.Context(), in[:]); !errors.Is(err, transport.ErrGone) {
			t.Error(err)
		}
	}
	if err := e.Send(&p); !errors.Is(err, transport.ErrGone) {
		t.Error(err)
	}
}

// A request that is answered a second time while the first answer is on its way,
// because it came twice, gets that answer.
func TestAnsweredAgain(t *testing.T) {
	for after := range 40 {
		synctest.Test(t, func(t *testing.T) {
			a, b := pair(uint64(after), 0, 5*time.Millisecond)
			q := query(1, 30_000)
			q.Retries = 0
			testkit.NoError(t, a.Send(&q))
			in := make([]transport.Packet, 1)
			if _, err := b.Recv(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			var h mad.SAHeader
			_ = h.Decode(in[0].MAD[:])
			r := h.Response(0)
			in[0].SetMessage(append(r.Append(nil), make([]byte, 30_000)...), true)
			for range 2 {
				testkit.NoError(t, b.Send(&in[0]))
				time.Sleep(time.Duration(after) * time.Millisecond)
			}
			if _, err := a.Recv(t.Context(), in); err != nil || in[0].Err != nil || len(in[0].Bytes()) != 56+30_000 {
				t.Errorf("again after %d ms: %v, %v, %d bytes", after, err, in[0].Err, len(in[0].Bytes()))
			}
			// Until all timers have run, which belong to the test's bubble.
			time.Sleep(time.Minute)
			b.mu.Lock()
			if b.sendsN != 0 {
				t.Errorf("%d bytes are still being sent", b.sendsN)
			}
			b.mu.Unlock()
		})
	}
}
