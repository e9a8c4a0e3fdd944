package mad

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"ibnetworkd/internal/testkit"
)

func saMessage(n int, rnd *rand.Rand) []byte {
	h := NewSA(MethodGetTable, AttrNodeRecord, 5, 0)
	h.Method = MethodGetTableResp
	m := h.Append(nil)
	for range n {
		m = append(m, byte(rnd.Uint32()))
	}
	return m
}

// transfer runs a message over a wire that loses and repeats packets.
func transfer(t *testing.T, msg []byte, loss float64, rnd *rand.Rand, limit int) ([]byte, *RMPPSender, *RMPPReceiver) {
	t.Helper()
	s, err := NewRMPPSender(msg, 1000)
	testkit.NoError(t, err)
	r := NewRMPPReceiver(limit)
	var out []byte
	var back []Buf
	var b Buf
	for range 1_000_000 {
		if s.Done() || s.Err() != nil {
			return out, s, r
		}
		if !s.Next(&b) {
			if len(back) == 0 {
				s.Timeout()
				continue
			}
		} else {
			for n := 1 + rnd.IntN(2)*int(loss+0.99); n > 0; n-- {
				if rnd.Float64() < loss {
					continue
				}
				reply, send, done := r.Recv(&b)
				if send {
					back = append(back, reply)
				}
				if done {
					out = bytes.Clone(r.Message())
				}
			}
		}
		for len(back) > 0 {
			a := back[0]
			back = back[1:]
			if rnd.Float64() >= loss {
				if reply, send := s.Recv(&a); send {
					_, _, _ = r.Recv(&reply)
				}
			}
		}
	}
	t.Fatal("the transfer does not end")
	return nil, nil, nil
}

func TestRMPPTransfer(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 1, 199, 200, 201, 399, 400, 401, 1000, 12800, 13000, 64*200 + 1, 65 * 200, 65*200 + 1, 200_000} {
		for _, loss := range []float64{0, 0.05, 0.3} {
			msg := saMessage(n, rnd)
			got, s, r := transfer(t, msg, loss, rnd, 1<<20)
			if s.Err() != nil || r.Err() != nil {
				t.Fatalf("%d bytes, loss %v: %v %v", n, loss, s.Err(), r.Err())
			}
			want := bytes.Clone(msg)
			if len(got) < RMPPDataOffset || got[26]&RMPPActive == 0 {
				t.Fatalf("%d bytes: the message does not say that it was long", n)
			}
			copy(want[RMPPOffset:RMPPDataOffset], got[RMPPOffset:])
			if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, loss %v: message of %d bytes differs from %d", n, loss, len(got), len(want))
			}
		}
	}
}

func TestRMPPLimit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	_, s, _ := transfer(t, saMessage(10_000, rnd), 0, rnd, 5000)
	var e *RMPPError
	if !errors.As(s.Err(), &e) || e.Type != RMPPStop || !e.Peer {
		t.Errorf("sender of a message beyond the limit: %v", s.Err())
	}
}

func TestRMPPTries(t *testing.T) {
	s, err := NewRMPPSender(saMessage(1000, rand.New(rand.NewPCG(1, 1))), 2)
	testkit.NoError(t, err)
	var b Buf
	for i := range 3 {
		if !s.Next(&b) || s.Next(&b) {
			t.Fatal("the first window is one segment")
		}
		_, abort := s.Timeout()
		if abort != (i == 2) {
			t.Fatalf("timeout %d: abort %v", i, abort)
		}
	}
	if !errors.Is(s.Err(), ErrRMPPTries) || s.Next(&b) {
		t.Error(s.Err())
	}
}

// TestRMPPFirstLength: the lengths are those that the kernel's sender writes.
func TestRMPPFirstLength(t *testing.T) {
	msg := saMessage(450, rand.New(rand.NewPCG(1, 1)))
	s, _ := NewRMPPSender(msg, 0)
	var b Buf
	s.Next(&b)
	if h := DecodeRMPP(&b); h.Length != 3*220-150 || h.Flags != RMPPActive|RMPPFirst || h.Segment != 1 {
		t.Errorf("%+v", h)
	}
	a := rmppReply(&b, RMPPAck, 0, 1, 65)
	s.Recv(&a)
	s.Next(&b)
	s.Next(&b)
	if h := DecodeRMPP(&b); h.Length != 220-150 || h.Flags != RMPPActive|RMPPLast || h.Segment != 3 {
		t.Errorf("%+v", h)
	}
}

func FuzzRMPPReceiver(f *testing.F) {
	msg := saMessage(450, rand.New(rand.NewPCG(1, 1)))
	s, _ := NewRMPPSender(msg, 0)
	var b Buf
	for s.Next(&b) {
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewRMPPReceiver(4096)
		s, err := NewRMPPSender(msg, 3)
		testkit.NoError(t, err)
		var x Buf
		s.Next(&x)
		for len(in) > 0 {
			var b Buf
			n := copy(b[:], in)
			in = in[n:]
			reply, send, done := r.Recv(&b)
			if send && DecodeRMPP(&reply).Type == RMPPData {
				t.Fatal("a receiver sends data")
			}
			if done && len(r.Message()) > 4096 {
				t.Fatal("longer than the limit")
			}
			s.Recv(&b)
			for i := 0; s.Next(&x); i++ {
				if i > 1000 {
					t.Fatal("the sender does not stop")
				}
			}
		}
	})
}

// FuzzDecode feeds every decoder; none may panic, and what decodes must encode
// to its length.
func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, 256))
	f.Add(bytes.Repeat([]byte{0xff}, 256))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, l := range layouts {
			c := l.make()
			if c.Decode(in) == nil && len(c.Append(nil)) != l.len {
				t.Fatal(l.name)
			}
		}
		var m MultiPathRecord
		if m.Decode(in) == nil && len(m.Append(nil)) > len(in) {
			t.Fatal("MultiPathRecord grew")
		}
		var b Buf
		copy(b[:], in)
		var s SMP
		s.Decode(&b)
		_ = s.Path()
		_ = IsRMPP(&b)
	})
}
