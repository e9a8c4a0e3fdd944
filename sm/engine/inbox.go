package engine

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"

	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// inbox holds what was received until the owner takes it. A host that waits too
// long for the SA asks again. A manager that got no processor time finds those
// retries behind their first copies, and to answer each would take time from the
// hosts that are still waiting: so what asks the same as a request that has not
// been taken yet is dropped, for the one answer comes after it.
type inbox struct {
	wake chan struct{} // there is something to take
	room chan struct{} // something was taken

	mu sync.Mutex
	// Packets are numbered. Those from head to tail-1 wait, in chunks of which
	// the first begins with number base.
	chunks           []*chunk
	base, head, tail uint64
	spare            []*chunk
	long             int // bytes of the long messages that wait
	// Waiting SA requests of one hash are a chain, the newest first: what is
	// below head ends it, so that nothing needs to be taken out.
	newest  [1 << inboxBits]uint64
	salt    uint64
	repeats uint64
	over    bool
	err     error
}

type chunk struct {
	packets [chunkLen]transport.Packet
	before  [chunkLen]uint64 // of a request: the next in its chain
}

const (
	chunkLen = 64
	// inboxMost and inboxLong bound what waits here; the transport keeps the
	// rest.
	inboxMost = 1 << 13
	inboxLong = 2 * transport.MaxMessage
	inboxBits = 11
	// inboxChain bounds the search: those with one identifier are a sender's
	// choice.
	inboxChain = 32
)

func newInbox() *inbox {
	// Number 0 is none. The salt is odd: a multiplication by it then spreads
	// identifiers in a way that nobody else knows.
	return &inbox{wake: make(chan struct{}, 1), room: make(chan struct{}, 1), base: chunkLen, head: chunkLen, tail: chunkLen, salt: rand.Uint64() | 1}
}

// space waits until something may be received and gives the place for it; nil
// when ctx has ended before.
func (q *inbox) space(ctx context.Context) []transport.Packet {
	for {
		if s := q.free(); s != nil {
			return s
		}
		select {
		case <-q.room:
		case <-ctx.Done():
			return nil
		}
	}
}

func (q *inbox) free() []transport.Packet {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.tail-q.head >= inboxMost || q.long >= inboxLong {
		return nil
	}
	if q.tail == q.base+uint64(len(q.chunks))*chunkLen {
		c := new(chunk)
		if n := len(q.spare); n > 0 {
			c, q.spare = q.spare[n-1], q.spare[:n-1]
		}
		q.chunks = append(q.chunks, c)
	}
	return q.chunks[len(q.chunks)-1].packets[q.tail%chunkLen:]
}

// put adds what was received into the first places of the space. The caller
// wakes the owner.
func (q *inbox) put(ps []transport.Packet) {
	q.mu.Lock()
	for i := range ps {
		var chain *uint64
		if p := &ps[i]; asksSA(p) {
			if chain = q.chain(p); q.waits(*chain, p) {
				q.repeats++
				continue
			}
		}
		c, k := q.at(q.tail)
		if p := &c.packets[k]; p != &ps[i] {
			*p = ps[i]
		}
		if chain != nil {
			c.before[k], *chain = *chain, q.tail
		}
		q.long += len(ps[i].Long)
		q.tail++
	}
	q.mu.Unlock()
}

// empty says that nothing waits.
func (q *inbox) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head == q.tail
}

// end tells that nothing more comes, and why.
func (q *inbox) end(err error) {
	q.mu.Lock()
	q.over, q.err = true, err
	q.mu.Unlock()
	signal(q.wake)
}

// take gives packets that have waited longest, to be used until the next call.
// After the end, once nothing is left, it gives the reason.
func (q *inbox) take() ([]transport.Packet, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head >= q.base+chunkLen {
		if len(q.spare) < 8 {
			q.spare = append(q.spare, q.chunks[0])
		}
		q.chunks = slices.Delete(q.chunks, 0, 1)
		q.base += chunkLen
	}
	var ps []transport.Packet
	if n := min(q.tail, q.base+chunkLen) - q.head; n > 0 {
		k := q.head % chunkLen
		ps = q.chunks[0].packets[k : k+n]
		q.head += n
	}
	for i := range ps {
		q.long -= len(ps[i].Long)
	}
	if q.head < q.tail || q.over {
		signal(q.wake) // the next call must not wait either
	}
	signal(q.room)
	if len(ps) == 0 {
		return nil, q.err
	}
	return ps, nil
}

// repeated is how many requests were not taken because they waited already.
func (q *inbox) repeated() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.repeats
}

// at is where the packet of a number stands.
func (q *inbox) at(n uint64) (c *chunk, k uint64) {
	return q.chunks[(n-q.base)/chunkLen], n % chunkLen
}

// chain is the beginning of a request's chain.
func (q *inbox) chain(p *transport.Packet) *uint64 {
	return &q.newest[(mad.TIDOf(&p.MAD)^uint64(p.LID)<<48)*q.salt>>(64-inboxBits)]
}

// waits reports whether one that asks the same as p waits in the chain.
func (q *inbox) waits(n uint64, p *transport.Packet) bool {
	for range inboxChain {
		if n < q.head {
			return false
		}
		c, k := q.at(n)
		if same(&c.packets[k], p) {
			return true
		}
		n = c.before[k]
	}
	return false
}

// asksSA reports whether a packet is a request to the SA.
func asksSA(p *transport.Packet) bool {
	return p.Err == nil && mad.ClassOf(&p.MAD) == mad.ClassSA && !mad.MethodOf(&p.MAD).IsResponse()
}

// same reports whether two packets would get the same answer at the same place.
func same(a, b *transport.Packet) bool {
	return a.MAD == b.MAD && a.LID == b.LID && a.QPN == b.QPN && a.SL == b.SL && a.PKeyIndex == b.PKeyIndex &&
		a.HasGRH == b.HasGRH && a.GID == b.GID && bytes.Equal(a.Long, b.Long)
}

// signal wakes who waits on c, now or later.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
