package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// request is an SA request from port 5 with one byte of its record.
func request(tid uint32, rec byte) (p transport.Packet) {
	h := mad.NewSA(mad.MethodGet, mad.AttrPathRecord, tid, 0)
	p.SetMessage(append(h.Append(nil), rec), false)
	p.LID, p.QPN = 5, 1
	return p
}

// receive plays a transport that has received ps.
func receive(t *testing.T, q *inbox, ps ...transport.Packet) {
	t.Helper()
	for len(ps) > 0 {
		s := q.space(t.Context())
		n := copy(s, ps)
		q.put(s[:n])
		signal(q.wake)
		ps = ps[n:]
	}
}

// takeAll takes everything that waits.
func takeAll(t *testing.T, q *inbox) (out []transport.Packet) {
	t.Helper()
	for {
		ps, err := q.take()
		if err != nil {
			t.Fatal(err)
		}
		if len(ps) == 0 {
			return out
		}
		out = append(out, ps...)
	}
}

func TestInboxRepeats(t *testing.T) {
	long := request(1, 0)
	long.Long = append(append([]byte(nil), long.MAD[:]...), 1)
	for _, tt := range []struct {
		name   string
		first  transport.Packet
		change func(*transport.Packet)
		want   int
	}{
		{"the same", request(1, 0), func(*transport.Packet) {}, 1},
		{"the same, long", long, func(*transport.Packet) {}, 1},
		{"another transaction", request(1, 0), func(p *transport.Packet) { mad.SetTID(&p.MAD, 2) }, 2},
		{"another agent's transaction", request(1, 0), func(p *transport.Packet) { mad.SetTID(&p.MAD, 1<<32|1) }, 2},
		{"another port", request(1, 0), func(p *transport.Packet) { p.LID = 6 }, 2},
		{"another queue pair", request(1, 0), func(p *transport.Packet) { p.QPN = 7 }, 2},
		{"another level", request(1, 0), func(p *transport.Packet) { p.SL = 1 }, 2},
		{"from elsewhere", request(1, 0), func(p *transport.Packet) { p.HasGRH, p.GID = true, ib.GID{1} }, 2},
		{"another method", request(1, 0), func(p *transport.Packet) { p.MAD[3] = uint8(mad.MethodGetTable) }, 2},
		{"another attribute", request(1, 0), func(p *transport.Packet) { p.MAD[17]++ }, 2},
		{"another record", request(1, 0), func(p *transport.Packet) { *p = request(1, 1) }, 2},
		{"another end", long, func(p *transport.Packet) { p.Long = append(long.MAD[:], 2) }, 2},
		{"a request that came back", request(1, 0), func(p *transport.Packet) { p.Err = transport.ErrTimeout }, 2},
	} {
		q := newInbox()
		second := tt.first
		tt.change(&second)
		receive(t, q, tt.first, second)
		if got := takeAll(t, q); len(got) != tt.want || int(q.repeated()) != 2-tt.want {
			t.Errorf("%s: %d are to be handled and %d repeats, want %d", tt.name, len(got), q.repeated(), tt.want)
		}
		// What was taken is on its way to be answered: who asks now did not get
		// that answer.
		receive(t, q, tt.first)
		if got := takeAll(t, q); len(got) != 1 {
			t.Errorf("%s: asked again after it was taken, %d are to be handled", tt.name, len(got))
		}
	}
	// Everything else is another's business.
	for name, p := range map[string]transport.Packet{"SMP": {}, "trap": {}, "response": {}} {
		switch name {
		case "SMP":
			mad.PutLR(&p.MAD, mad.MethodGet, mad.AttrSMInfo, 0, 1, 0, nil)
		case "trap":
			mad.PutLR(&p.MAD, mad.MethodTrap, mad.AttrNotice, 0, 1, 0, nil)
		case "response":
			p = request(1, 0)
			p.MAD[3] = uint8(mad.MethodGetResp)
		}
		q := newInbox()
		receive(t, q, p, p)
		if got := takeAll(t, q); len(got) != 2 {
			t.Errorf("%s twice: %d", name, len(got))
		}
	}
}

// What is taken is what a list gives that is searched from end to end.
func TestInboxModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	q := newInbox()
	var list, want, got []transport.Packet
	for range 300 {
		for range rnd.IntN(200) {
			p := request(rnd.Uint32N(300), byte(rnd.IntN(2)))
			if rnd.IntN(8) == 0 {
				mad.PutLR(&p.MAD, mad.MethodGet, mad.AttrSMInfo, 0, uint64(rnd.IntN(3)), 0, nil)
			}
			waits := false
			for i := range list {
				waits = waits || asksSA(&p) && same(&list[i], &p)
			}
			if !waits {
				list = append(list, p)
			}
			receive(t, q, p)
		}
		for range rnd.IntN(4) {
			ps, err := q.take()
			if err != nil || len(ps) > len(list) || len(ps) == 0 && len(list) > 0 {
				t.Fatalf("%d of %d taken, %v", len(ps), len(list), err)
			}
			got, want = append(got, ps...), append(want, list[:len(ps)]...)
			list = list[len(ps):]
		}
		for i := range got {
			if !same(&got[i], &want[i]) {
				t.Fatalf("taken %x, want %x", got[i].MAD[:32], want[i].MAD[:32])
			}
		}
		got, want = got[:0], want[:0]
	}
	if q.repeated() == 0 || len(q.spare) > 8 {
		t.Errorf("%d repeats, %d spare chunks", q.repeated(), len(q.spare))
	}
}

// What waits is bounded in number and bytes, and there is room again when it was
// taken.
func TestInboxBounds(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	q := newInbox()
	for n := range uint32(inboxMost) {
		receive(t, q, request(n, 0))
	}
	if q.space(ended) != nil {
		t.Error("there is room for more than the most")
	}
	if _, err := q.take(); err != nil || q.space(ended) == nil {
		t.Error("no room after some were taken", err)
	}
	takeAll(t, q)
	if len(q.chunks) > 1 {
		t.Errorf("%d chunks for nothing", len(q.chunks))
	}
	long := request(1, 0)
	long.Long = make([]byte, transport.MaxMessage)
	for k := byte(0); q.space(ended) != nil && k < 100; k++ {
		mad.SetTID(&long.MAD, uint64(k))
		receive(t, q, long)
	}
	if q.long != inboxLong {
		t.Errorf("%d MiB wait", q.long>>20)
	}
	if takeAll(t, q); q.long != 0 || q.space(ended) == nil {
		t.Errorf("%d bytes wait of nothing", q.long)
	}
}

// What came before the end is taken before its reason is told.
func TestInboxEnd(t *testing.T) {
	q := newInbox()
	receive(t, q, request(1, 0), request(2, 0))
	q.end(transport.ErrGone)
	<-q.wake
	if ps, err := q.take(); len(ps) != 2 || err != nil {
		t.Errorf("%d packets, %v", len(ps), err)
	}
	for range 2 {
		<-q.wake
		if ps, err := q.take(); len(ps) != 0 || !errors.Is(err, transport.ErrGone) {
			t.Errorf("%d packets, %v", len(ps), err)
		}
	}
}
