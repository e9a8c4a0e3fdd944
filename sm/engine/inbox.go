package engine

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// inbox queues received packets until the owner takes them, in three parts by
// urgency: answers to the manager's own requests, SMInfo requests and traps of
// others, and requests to the SA. The last two are served by turns of their
// senders (see fair), so that no host waits for another one's requests.
//
// A host that waits too long for the SA repeats its request. A repetition of a
// queued request is dropped, because the one answer follows it; a request that was
// not repeated for requestLife is dropped as given up.
type inbox struct {
	wake  chan struct{} // there is something to take
	space chan struct{} // answers were taken

	mu      sync.Mutex
	answers []transport.Packet
	taken   []transport.Packet // what the owner uses until the next call
	notes   fair               // SMInfo and traps
	asks    fair               // SA requests
	index   map[identity]*waiting
	repeats uint64
	expired uint64
	refused atomic.Uint64 // answered BUSY, for the sender has too many waiting
	over    bool
	err     error
}

// identity is what the copies of a request have in common, as a key; only same
// says that two are copies.
type identity struct {
	from ib.LID
	tid  uint64
	qpn  uint32
}

const (
	// answersMost bounds the answers that wait here; the transport keeps the rest.
	answersMost = 1 << 13
	// senderMost bounds what waits of one sender. Once fairMost wait in all, a
	// sender gets its share of that number or one, up to fairEver.
	senderMost = 128
	fairMost   = 1 << 13
	fairEver   = 1 << 16
	// longMost bounds the bytes of the long messages that wait, an eighth of it
	// those of one sender.
	longMost = 2 * transport.MaxMessage
	// requestLife is how long a request to the SA waits without being repeated:
	// longer than the time-outs of the kernel and of the usual tools.
	requestLife = 5 * time.Second
)

func newInbox() *inbox {
	return &inbox{wake: make(chan struct{}, 1), space: make(chan struct{}, 1), index: map[identity]*waiting{}}
}

// await waits until more may be received; false when ctx has ended before.
func (q *inbox) await(ctx context.Context) bool {
	for {
		q.mu.Lock()
		full := len(q.answers) >= answersMost
		q.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-q.space:
		case <-ctx.Done():
			return false
		}
	}
}

// put adds a packet that was received from a source at a time. It reports whether it was
// taken in, or needs to be refused for there are too many already. The caller
// wakes the owner.
func (q *inbox) put(p *transport.Packet, from source, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.notes
	switch {
	case p.Err != nil || mad.MethodOf(&p.MAD).IsResponse():
		q.answers = append(q.answers, *p)
		return true
	case mad.ClassOf(&p.MAD) == mad.ClassSA:
		c = &q.asks
		if w := q.index[identify(p)]; w != nil && same(&w.p, p) {
			w.at = now
			q.repeats++
			return true
		}
	}
	w := c.add(p, from, now)
	if w == nil {
		return false
	}
	if c == &q.asks {
		// One identifier with two contents is its sender's fault: the first is
		// found, the other is answered as often as it comes.
		if id := identify(p); q.index[id] == nil {
			q.index[id] = w
		}
	}
	return true
}

// empty reports whether no answer waits.
func (q *inbox) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.answers) == 0
}

// end ends the queue with an error.
func (q *inbox) end(err error) {
	q.mu.Lock()
	q.over, q.err = true, err
	q.mu.Unlock()
	signal(q.wake)
}

// take gives the answers that wait, to be used until the next call. After the
// end, once nothing at all is left, it gives the reason.
func (q *inbox) take() ([]transport.Packet, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken, q.answers = q.answers, q.taken[:0]
	signal(q.space)
	if len(q.taken) == 0 && q.over && q.notes.n+q.asks.n == 0 {
		signal(q.wake) // the next call must not wait either
		return nil, q.err
	}
	return q.taken, nil
}

// note gives the next SMInfo request or trap, to be used until the next call;
// nil when there is none.
func (q *inbox) note() *transport.Packet {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w := q.notes.next(); w != nil {
		q.notes.cost(0)
		return &w.p
	}
	return nil
}

// ask gives the next SA request, to be used until the next call; nil when there
// is none. The caller says what it cost by spent.
func (q *inbox) ask(now time.Time) *transport.Packet {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		w := q.asks.next()
		if w == nil {
			return nil
		}
		if id := identify(&w.p); q.index[id] == w {
			delete(q.index, id)
		}
		if now.Sub(w.at) <= requestLife {
			return &w.p
		}
		q.expired++
		q.asks.cost(0)
	}
}

// spent charges the sender of the request that ask gave last.
func (q *inbox) spent(d time.Duration) {
	q.mu.Lock()
	q.asks.cost(d)
	q.mu.Unlock()
}

// again makes the next wait end at once if something is left.
func (q *inbox) again() {
	q.mu.Lock()
	if len(q.answers)+q.notes.n+q.asks.n > 0 || q.over {
		signal(q.wake)
	}
	q.mu.Unlock()
}

// dropped is how many requests were dropped as repetitions of queued ones, and
// because their senders had given up.
func (q *inbox) dropped() (repeats, expired uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.repeats, q.expired
}

func identify(p *transport.Packet) identity {
	return identity{from: p.LID, tid: mad.TIDOf(&p.MAD), qpn: p.QPN}
}

// same reports whether two packets would get the same answer at the same place.
func same(a, b *transport.Packet) bool {
	return a.MAD == b.MAD && a.LID == b.LID && a.QPN == b.QPN && a.SL == b.SL && a.PKeyIndex == b.PKeyIndex &&
		a.HasGRH == b.HasGRH && a.GID == b.GID && bytes.Equal(a.Long, b.Long)
}

// signal wakes what waits on c, now or later.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// fair serves senders in turn by what they cost (start-time fair queueing): a sender's next
// request is due when its earlier ones would have ended if each sender had an equal share of
// the time. So one with few requests is served before the next request of one with many.
type fair struct {
	senders map[source]*sender
	due     []*sender // heap of those that have something waiting
	n       int
	long    int
	clock   time.Duration // when the request that is served was due
	seq     uint64
	serving *sender
	last    *waiting
	spare   *waiting
	spares  int
}

type sender struct {
	key         source
	first, tail *waiting
	n, at       int // waiting; place in the heap, -1 none
	due         time.Duration
	seq         uint64 // of the first: order of those that are due at the same time
}

// waiting is a packet that waits.
type waiting struct {
	p    transport.Packet
	at   time.Time // when it came last
	seq  uint64
	next *waiting
}

// add takes a packet in; nil when its sender has too many.
func (f *fair) add(p *transport.Packet, from source, now time.Time) *waiting {
	s := f.senders[from]
	have := 0
	if s != nil {
		have = s.n
	}
	switch {
	case have >= senderMost, f.n >= fairEver:
		return nil
	case f.n >= fairMost && have >= max(1, fairMost/max(1, len(f.due))):
		return nil
	case len(p.Long) > 0 && f.long > 0 && (f.long+len(p.Long) > longMost || s != nil && s.long()+len(p.Long) > longMost/8):
		return nil
	}
	if s == nil {
		if f.senders == nil {
			f.senders = map[source]*sender{}
		}
		s = &sender{key: from, at: -1}
		f.senders[s.key] = s
	}
	w := f.spare
	if w != nil {
		f.spare, f.spares = w.next, f.spares-1
	} else {
		w = new(waiting)
	}
	f.seq++
	w.p, w.at, w.seq, w.next = *p, now, f.seq, nil
	if s.first == nil {
		s.first = w
		if s.at < 0 { // else its last packet is being served
			s.due, s.seq = max(s.due, f.clock), w.seq
			f.push(s)
		}
	} else {
		s.tail.next = w
	}
	s.tail = w
	s.n++
	f.n++
	f.long += len(p.Long)
	return w
}

// long is the bytes of the sender's long messages.
func (s *sender) long() (n int) {
	for w := s.first; w != nil; w = w.next {
		n += len(w.p.Long)
	}
	return n
}

// next takes the packet whose turn it is out, nil when none waits. It is valid
// until the next call; cost is to be called before that.
func (f *fair) next() *waiting {
	if w := f.last; w != nil {
		f.last = nil
		if w.p.Long = nil; f.spares < 1024 {
			w.next, f.spare, f.spares = f.spare, w, f.spares+1
		}
	}
	if len(f.due) == 0 {
		return nil
	}
	s := f.due[0]
	w := s.first
	f.clock = s.due
	s.first = w.next
	s.n--
	f.n--
	f.long -= len(w.p.Long)
	f.serving, f.last = s, w
	return w
}

// least is what each packet costs at least.
const least = time.Microsecond

// cost charges the sender of the packet that next gave.
func (f *fair) cost(d time.Duration) {
	s := f.serving
	if s == nil {
		return
	}
	f.serving = nil
	s.due += max(d, least)
	if s.first != nil {
		s.seq = s.first.seq
		f.down(s.at)
		return
	}
	s.tail = nil
	f.pop(s)
	if len(f.due) == 0 {
		// The queue is empty: forget what senders were owed.
		clear(f.senders)
		f.clock = 0
	} else if len(f.senders) > 4*len(f.due)+1024 {
		for k, o := range f.senders {
			if o.n == 0 && o.due <= f.clock {
				delete(f.senders, k)
			}
		}
	}
}

func (s *sender) before(o *sender) bool { return s.due < o.due || s.due == o.due && s.seq < o.seq }

func (f *fair) push(s *sender) {
	s.at = len(f.due)
	f.due = append(f.due, s)
	f.up(s.at)
}

func (f *fair) pop(s *sender) {
	i, end := s.at, len(f.due)-1
	f.due[i] = f.due[end]
	f.due[i].at = i
	f.due = slices.Delete(f.due, end, end+1)
	s.at = -1
	if i < end {
		f.down(i)
		f.up(i)
	}
}

func (f *fair) up(i int) {
	for i > 0 {
		j := (i - 1) / 2
		if !f.due[i].before(f.due[j]) {
			return
		}
		f.swap(i, j)
		i = j
	}
}

func (f *fair) down(i int) {
	for {
		j := 2*i + 1
		if j >= len(f.due) {
			return
		}
		if j+1 < len(f.due) && f.due[j+1].before(f.due[j]) {
			j++
		}
		if !f.due[j].before(f.due[i]) {
			return
		}
		f.swap(i, j)
		i = j
	}
}

func (f *fair) swap(i, j int) {
	f.due[i], f.due[j] = f.due[j], f.due[i]
	f.due[i].at, f.due[j].at = i, j
}
