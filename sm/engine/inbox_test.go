package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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

// receive plays a transport that has received ps, and gives how many were refused.
func receive(q *inbox, now time.Time, ps ...transport.Packet) (refused int) {
	for i := range ps {
		if !q.put(&ps[i], (*senders)(nil).source(&ps[i]), now) {
			refused++
		}
	}
	return refused
}

// takeAll takes everything that waits, each request at no cost.
func takeAll(t *testing.T, q *inbox, now time.Time) (out []transport.Packet) {
	t.Helper()
	ps, err := q.take()
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, ps...)
	for p := q.note(); p != nil; p = q.note() {
		out = append(out, *p)
	}
	for p := q.ask(now); p != nil; p = q.ask(now) {
		out = append(out, *p)
		q.spent(0)
	}
	return out
}

func TestInboxRepeats(t *testing.T) {
	now := time.Now()
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
		receive(q, now, tt.first, second)
		got := takeAll(t, q, now)
		if again, _ := q.dropped(); len(got) != tt.want || int(again) != 2-tt.want {
			t.Errorf("%s: %d are to be handled and %d repeats, want %d", tt.name, len(got), again, tt.want)
		}
		// What was taken is on its way to be answered: that asks now did not get
		// that answer.
		receive(q, now, tt.first)
		if got := takeAll(t, q, now); len(got) != 1 {
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
		receive(q, now, p, p)
		if got := takeAll(t, q, now); len(got) != 2 {
			t.Errorf("%s twice: %d", name, len(got))
		}
	}
}

// from is a request of one port with a transaction of its own.
func from(l ib.LID, tid uint32) transport.Packet {
	p := request(tid, 0)
	p.LID = l
	return p
}

// A sender that asks for much, or for costly things, is served after one that
// asks for little; requests of one sender keep their order.
func TestInboxTurns(t *testing.T) {
	q, now := newInbox(), time.Now()
	if n := receive(q, now, slices.Collect(func(yield func(transport.Packet) bool) {
		for i := range uint32(1000) {
			yield(from(5, i))
		}
	})...); n != 1000-senderMost {
		t.Errorf("%d of 1000 were refused, want all but %d", n, senderMost)
	}
	q.ask(now)
	receive(q, now, from(6, 1), from(6, 2)) // comes while the first costly one is served
	q.spent(35 * time.Millisecond)
	var order []ib.LID
	last := map[ib.LID]uint64{}
	for p := q.ask(now); p != nil; p = q.ask(now) {
		if tid := mad.TIDOf(&p.MAD); tid < last[p.LID] {
			t.Fatal("requests of one sender changed places")
		} else {
			last[p.LID] = tid
		}
		order = append(order, p.LID)
		q.spent(map[ib.LID]time.Duration{5: 35 * time.Millisecond, 6: time.Microsecond}[p.LID])
	}
	if len(order) != senderMost+1 || order[0] != 6 || order[1] != 6 {
		t.Errorf("%d served, the first are %v", len(order), order[:3])
	}
	// A hundred senders, one of which has a hundred requests, are served in turn.
	for i := range uint32(100) {
		receive(q, now, from(1, i))
	}
	for l := range ib.LID(100) {
		receive(q, now, from(2+l, 1))
	}
	for n := range 101 {
		p := q.ask(now)
		if p.LID == 1 && n > 0 {
			t.Fatalf("the one with many is served before the others, at %d", n)
		}
		q.spent(time.Millisecond)
	}
	takeAll(t, q, now)
	if len(q.asks.senders) != 0 || len(q.index) != 0 {
		t.Errorf("%d senders and %d requests are remembered of nothing", len(q.asks.senders), len(q.index))
	}
}

// A request that is not repeated for long is given up; one that is repeated is not.
func TestInboxExpires(t *testing.T) {
	q, now := newInbox(), time.Now()
	receive(q, now, from(5, 1), from(5, 2))
	receive(q, now.Add(requestLife), from(5, 2))
	got := takeAll(t, q, now.Add(requestLife+time.Second))
	if _, expired := q.dropped(); len(got) != 1 || mad.TIDOf(&got[0].MAD) != 2 || expired != 1 {
		t.Errorf("%d are served and %d expired", len(got), expired)
	}
}

// The order of service, the bounds and the heap against a search through all.
func TestInboxModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	q, now := newInbox(), time.Now()
	waits := map[ib.LID][]uint64{}
	for range 200 {
		for range rnd.IntN(400) {
			l, tid := ib.LID(1+rnd.IntN(20)*rnd.IntN(2)), rnd.Uint32N(2000)
			refused := receive(q, now, from(l, tid)) > 0
			switch has := slices.Contains(waits[l], uint64(tid)); {
			case has && refused, !has && refused != (len(waits[l]) >= senderMost):
				t.Fatalf("LID %d with %d waiting: refused is %v", l, len(waits[l]), refused)
			case !has && !refused:
				waits[l] = append(waits[l], uint64(tid))
			}
		}
		for range rnd.IntN(300) {
			p := q.ask(now)
			n := 0
			for i, s := range q.asks.due {
				n += s.n
				if s.at != i || i > 0 && s.before(q.asks.due[(i-1)/2]) && s != q.asks.serving {
					t.Fatalf("the heap is wrong at %d", i)
				}
			}
			if n != q.asks.n || q.asks.n != len(q.index) {
				t.Fatalf("%d in the heap, %d in the index, %d in all", n, len(q.index), q.asks.n)
			}
			if p == nil {
				if n > 0 {
					t.Fatal("nothing is served while something waits")
				}
				break
			}
			if w := waits[p.LID]; len(w) == 0 || w[0] != mad.TIDOf(&p.MAD) {
				t.Fatalf("LID %d: transaction %d is served, %v wait", p.LID, mad.TIDOf(&p.MAD), w)
			}
			waits[p.LID] = waits[p.LID][1:]
			q.spent(time.Duration(rnd.IntN(5)) * time.Millisecond)
		}
	}
}

// Whatever comes, what waits is bounded, and a sender that has nothing waiting is
// taken in before one that has.
func TestInboxBounds(t *testing.T) {
	q, now := newInbox(), time.Now()
	for l := range ib.LID(200) {
		for i := range uint32(senderMost) {
			receive(q, now, from(1+l, i))
		}
	}
	if q.asks.n < fairMost || q.asks.n > 3*fairMost {
		t.Errorf("%d wait", q.asks.n)
	}
	if receive(q, now, from(0x4000, 1)) != 0 {
		t.Error("one that has nothing waiting is refused")
	}
	takeAll(t, q, now)
	if q.asks.n != 0 || q.asks.spares > 1024 || len(q.asks.senders) != 0 {
		t.Errorf("%d wait of nothing, %d spare", q.asks.n, q.asks.spares)
	}
	for l := range ib.LID(100) {
		p := from(1+l, 1)
		p.Long = make([]byte, transport.MaxMessage/4)
		receive(q, now, p, p)
	}
	if q.asks.long == 0 || q.asks.long > longMost {
		t.Errorf("%d MiB wait", q.asks.long>>20)
	}
	takeAll(t, q, now)
	if q.asks.long != 0 {
		t.Errorf("%d bytes wait of nothing", q.asks.long)
	}
}

// What came before the end is returned before its error.
func TestInboxEnd(t *testing.T) {
	q, now := newInbox(), time.Now()
	receive(q, now, request(1, 0), request(2, 0))
	q.end(transport.ErrGone)
	<-q.wake
	if got := takeAll(t, q, now); len(got) != 2 {
		t.Errorf("%d packets", len(got))
	}
	q.again()
	for range 2 {
		<-q.wake
		if ps, err := q.take(); len(ps) != 0 || !errors.Is(err, transport.ErrGone) {
			t.Errorf("%d packets, %v", len(ps), err)
		}
	}
}
