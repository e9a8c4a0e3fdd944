package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func randomPacket(r *rand.Rand, size int) *Packet {
	p := &Packet{RC: r.IntN(2) == 0, Ack: r.IntN(2) == 0, HasGRH: r.IntN(2) == 0, HasImm: r.IntN(2) == 0, Solicited: r.IntN(2) == 0,
		SLID: 1, DLID: 0xc001, PKey: 0x8001, SL: 7, Hops: 3, DQPN: r.Uint32(), SQPN: r.Uint32(), QKey: 0x80010000, Imm: r.Uint32(),
		PSN: r.Uint32(), AckStatus: 2,
		Data: make([]byte, size)}
	for i := range p.Data {
		p.Data[i] = byte(r.Uint32())
	}
	for i := range p.GRH {
		p.GRH[i] = byte(i)
	}
	return p
}

// Two ends that know each other carry any packet; an end that has been born again
// is distinguished.
func TestCable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a, b := New(10), New(20)
	var ja, jb joiner
	now := time.Now()
	var upA, upB []bool
	var got []*Packet
	exchange := func() {
		for range 4 {
			for from, to := range map[*Cable]*Cable{a: b, b: a} {
				from.mu.Lock()
				q := from.queue
				from.queue, from.queued = nil, 0
				from.mu.Unlock()
				j, ups := &ja, &upA
				if to == b {
					j, ups = &jb, &upB
				}
				for _, f := range q {
					// The shortest frames are padded.
					p, ch := to.frame(append(f, make([]byte, max(0, 60-len(f)))...), now, j)
					*ups = append(*ups, ch...)
					if p != nil {
						got = append(got, p)
					}
				}
			}
		}
	}
	a.SetReady(true)
	b.SetReady(true)
	exchange()
	if !a.up || !b.up {
		t.Fatalf("up: %v %v", a.up, b.up)
	}
	for _, size := range []int{0, 1, 256, 4096, MaxFrame - headerLen, MaxFrame - headerLen + 1, 65536, MaxPacket} {
		got = nil
		p := randomPacket(r, size)
		a.Send(p)
		exchange()
		if len(got) != 1 || !cmp.Equal(got[0], p) {
			t.Fatalf("%d bytes: %d packets, %s", size, len(got), cmp.Diff(got, []*Packet{p}))
		}
	}
	a.Send(randomPacket(r, MaxPacket+1))
	if a.Lost() != 1 {
		t.Errorf("%d lost, want the one that is too long", a.Lost())
	}
	b.SetReady(false)
	exchange()
	if a.up || !b.up {
		t.Errorf("the far end is unplugged: up %v %v", a.up, b.up)
	}
	b.SetReady(true)
	exchange()
	// b dies and lives again: what is on its way to the old one is not for the
	// new one.
	a.Send(randomPacket(r, 100))
	old := b
	b = New(30)
	jb, upA, got = joiner{}, nil, nil
	b.SetReady(true)
	exchange()
	if len(got) != 0 || !cmp.Equal(upA, []bool{false, true}) || old.epoch == b.epoch {
		t.Errorf("after a rebirth: %d packets, a saw %v", len(got), upA)
	}
	if _, ch := a.frame(Bye(), now, &ja); !cmp.Equal(ch, []bool{false}) {
		t.Errorf("bye: %v", ch)
	}
}

func FuzzFrame(f *testing.F) {
	h := header{epoch: 1, peer: 2}
	for _, b := range h.frames(randomPacket(rand.New(rand.NewPCG(1, 1)), 300)) {
		f.Add(b)
	}
	f.Add(Bye())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, err := decode(b)
		if err != nil {
			return
		}
		h.flags &= 1<<6 - 1
		again, rest2, err := decode(h.append(nil, rest))
		if err != nil || again.p.SLID != h.p.SLID || again.off != h.off || !bytes.Equal(rest, rest2) {
			t.Errorf("%+v became %+v, %v", h, again, err)
		}
		var j joiner
		if p := j.add(&h, rest); p != nil && len(p.Data) > MaxPacket {
			t.Errorf("a packet of %d bytes", len(p.Data))
		}
	})
}
