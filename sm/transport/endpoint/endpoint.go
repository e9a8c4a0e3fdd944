// Package endpoint does for a wire that carries single MADs what the kernel's
// ib_mad does for its agents: it matches requests with responses, sends again,
// reports timeouts, cuts and joins long messages (RMPP), and queues what was
// received. It knows no addresses beyond carrying them and starts no goroutine;
// time is the standard timer's, so that it runs under testing/synctest.
package endpoint

import (
	"context"
	"slices"
	"sync"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Config of an Endpoint. The zero value of each field but Write means the
// default.
type Config struct {
	// Write puts one MAD on the wire. It is called without locks held, from
	// Send, Deliver and timers, also at the same time. It may call Deliver
	// before it returns.
	Write func(p *transport.Packet) error
	// TIDHigh is put into the top 32 bits of the requests' identifiers.
	TIDHigh uint32
	// Queue is how many received packets wait for Recv; more are dropped.
	Queue int
	// MaxMessage is the longest message received.
	MaxMessage int
	// RMPPTimeout is how long a sender waits for an acknowledgement, RMPPRetries
	// how often it sends again.
	RMPPTimeout time.Duration
	RMPPRetries int
	// NoRMPP carries packets of long messages to the receiver as they are.
	NoRMPP bool
	// Wake is called without locks held after something was queued.
	Wake func()
}

// Defaults.
const (
	DefaultQueue       = 1 << 16
	DefaultRMPPTimeout = 500 * time.Millisecond
	DefaultRMPPRetries = 7
	// maxTransfers bounds the long messages that are being received, rmppIdle
	// is how long one may stand still and how long a complete one is remembered
	// to acknowledge what arrives again.
	maxTransfers = 1024
	maxFinished  = 256
	rmppIdle     = 10 * time.Second
	// maxReceiving bounds the bytes of the long messages that are being
	// received: a peer that begins much and ends nothing must not take all
	// memory. See also transport.MaxSending.
	maxReceiving = 256 << 20
)

// Stats counts what was dropped and why.
type Stats struct {
	Unmatched  uint64 // responses that nobody waits for
	Overflow   uint64 // packets that found the queue full
	BadRMPP    uint64 // RMPP packets that belong to no transfer, or ended one
	RMPPFailed uint64 // long messages that could not be delivered
	Timeouts   uint64
	Resent     uint64
}

// Endpoint implements Send and Recv of transport.Transport.
type Endpoint struct {
	cfg Config

	mu      sync.Mutex
	queue   ring
	wake    chan struct{}
	pending map[uint32]*request
	free    []*request
	sends   map[xferKey]*sending
	sendsN  int // bytes of their messages
	recvsN  int // bytes of the unfinished messages in recvs
	recvs   map[xferKey]*receiving
	done    []xferKey // of recvs, the complete ones in their order
	dead    deadlines
	timer   *time.Timer
	timerAt time.Time
	err     error // why nothing will come any more
	stats   Stats
}

type request struct {
	p        transport.Packet
	deadline time.Time
	tries    int
	sending  bool // the request itself is a long message that is still going out
}

type xferKey struct {
	tid   uint64
	lid   ib.LID
	qpn   uint32
	class mad.Class
	meth  mad.Method
}

type sending struct {
	key      xferKey
	s        *mad.RMPPSender
	p        transport.Packet // address
	deadline time.Time
	timeout  time.Duration
	req      uint32
	isReq    bool
	bytes    int
}

type receiving struct {
	r        *mad.RMPPReceiver
	deadline time.Time
	bytes    int // counted in recvsN
}

// New makes an endpoint.
func New(cfg Config) *Endpoint {
	if cfg.Queue == 0 {
		cfg.Queue = DefaultQueue
	}
	if cfg.MaxMessage == 0 {
		cfg.MaxMessage = transport.MaxMessage
	}
	if cfg.RMPPTimeout == 0 {
		cfg.RMPPTimeout = DefaultRMPPTimeout
	}
	if cfg.RMPPRetries == 0 {
		cfg.RMPPRetries = DefaultRMPPRetries
	}
	return &Endpoint{
		cfg: cfg, wake: make(chan struct{}, 1), pending: map[uint32]*request{},
		sends: map[xferKey]*sending{}, recvs: map[xferKey]*receiving{},
	}
}

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// Send implements transport.Transport.
func (e *Endpoint) Send(p *transport.Packet) error {
	isReq := !mad.MethodOf(&p.MAD).IsResponse() && p.Timeout > 0
	if !mad.MethodOf(&p.MAD).IsResponse() {
		mad.SetTID(&p.MAD, uint64(e.cfg.TIDHigh)<<32|mad.TIDOf(&p.MAD)&0xffffffff)
	}
	if p.Long != nil && !e.cfg.NoRMPP {
		return e.sendLong(p, isReq)
	}
	if p.Long != nil && len(p.Long) > mad.Size {
		return transport.ErrTooLong
	}
	if isReq {
		e.mu.Lock()
		if e.err != nil {
			defer e.mu.Unlock()
			return e.err
		}
		e.addRequest(p)
		e.mu.Unlock()
	}
	err := e.cfg.Write(p)
	if err != nil && isReq {
		e.mu.Lock()
		e.dropRequest(uint32(mad.TIDOf(&p.MAD)))
		e.mu.Unlock()
	}
	return err
}

func (e *Endpoint) addRequest(p *transport.Packet) *request {
	tid := uint32(mad.TIDOf(&p.MAD))
	var q *request
	if n := len(e.free); n > 0 {
		q, e.free = e.free[n-1], e.free[:n-1]
	} else {
		q = new(request)
	}
	*q = request{p: *p, deadline: time.Now().Add(p.Timeout)}
	if old := e.pending[tid]; old != nil {
		e.free = append(e.free, old)
	}
	e.pending[tid] = q
	e.arm(deadline{at: q.deadline, tid: tid, kind: kindRequest})
	return q
}

func (e *Endpoint) dropRequest(tid uint32) *request {
	q := e.pending[tid]
	if q != nil {
		delete(e.pending, tid)
		if len(e.free) < 1024 {
			q.p.Long = nil
			e.free = append(e.free, q)
		}
	}
	return q
}

// sendLong starts a long message.
func (e *Endpoint) sendLong(p *transport.Packet, isReq bool) error {
	if len(p.Long) > transport.MaxMessage {
		return transport.ErrTooLong
	}
	msg := p.Long
	if isReq {
		// The identifier was changed in the copy of the header only.
		msg = append([]byte(nil), msg...)
		mad.CopyTID(msg, &p.MAD)
	}
	s, err := mad.NewRMPPSender(msg, e.cfg.RMPPRetries)
	if err != nil {
		return err
	}
	key := keyOf(p, &p.MAD).own()
	x := &sending{key: key, s: s, p: *p, timeout: e.cfg.RMPPTimeout, req: uint32(mad.TIDOf(&p.MAD)), isReq: isReq, bytes: len(msg)}
	x.p.Long = nil
	e.mu.Lock()
	if e.err != nil {
		defer e.mu.Unlock()
		return e.err
	}
	if e.sends[key] != nil && !isReq {
		// The request came twice. To begin anew would confuse a peer that has
		// half of the answer, and the rest is on its way.
		e.mu.Unlock()
		return nil
	}
	e.endSend(key)
	if e.sendsN+x.bytes > transport.MaxSending {
		defer e.mu.Unlock()
		return transport.ErrBusy
	}
	e.sendsN += x.bytes
	x.deadline = time.Now().Add(x.timeout)
	e.sends[key] = x
	e.arm(deadline{at: x.deadline, key: key, kind: kindSend})
	if isReq {
		q := e.addRequest(p)
		q.sending = true
	}
	out := e.segments(x, nil)
	e.mu.Unlock()
	return e.writeAll(out)
}

// endSend and endRecv forget transfers; the caller holds the lock.
func (e *Endpoint) endSend(k xferKey) {
	if x := e.sends[k]; x != nil {
		e.sendsN -= x.bytes
		delete(e.sends, k)
	}
}

func (e *Endpoint) endRecv(k xferKey) {
	if r := e.recvs[k]; r != nil {
		e.recvsN -= r.bytes
		delete(e.recvs, k)
	}
}

// segments collects what the window allows; the caller holds the lock.
func (e *Endpoint) segments(x *sending, out []transport.Packet) []transport.Packet {
	for {
		p := x.p
		if !x.s.Next(&p.MAD) {
			return out
		}
		out = append(out, p)
	}
}

func (e *Endpoint) writeAll(ps []transport.Packet) (err error) {
	for i := range ps {
		if werr := e.cfg.Write(&ps[i]); werr != nil && err == nil {
			err = werr
		}
	}
	return err
}

func keyOf(p *transport.Packet, b *mad.Buf) xferKey {
	return xferKey{mad.TIDOf(b), p.LID, p.QPN, mad.ClassOf(b), mad.MethodOf(b)}
}

// own is the key of a message of ours: of a request's identifier only the low
// half is sure to come back.
func (k xferKey) own() xferKey {
	if !k.meth.IsResponse() {
		k.tid &= 0xffffffff
	}
	return k
}

// Deliver takes a MAD from the wire. It may be called from several goroutines.
func (e *Endpoint) Deliver(p *transport.Packet) {
	if !e.cfg.NoRMPP && mad.IsRMPP(&p.MAD) {
		e.deliverRMPP(p)
		return
	}
	e.mu.Lock()
	if mad.MethodOf(&p.MAD).IsResponse() && mad.MethodOf(&p.MAD) != mad.MethodTrapRepress {
		if e.dropRequest(uint32(mad.TIDOf(&p.MAD))) == nil {
			e.stats.Unmatched++
			e.mu.Unlock()
			return
		}
	} else if mad.MethodOf(&p.MAD) == mad.MethodTrapRepress {
		// A repressed trap ends the wait for it; it may also come unasked.
		e.dropRequest(uint32(mad.TIDOf(&p.MAD)))
	}
	e.push(p)
	e.mu.Unlock()
	e.woken()
}

// push queues p; the caller holds the lock.
func (e *Endpoint) push(p *transport.Packet) {
	if e.queue.n >= e.cfg.Queue {
		e.stats.Overflow++
		return
	}
	e.queue.push(p)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *Endpoint) woken() {
	if e.cfg.Wake != nil {
		e.cfg.Wake()
	}
}

func (e *Endpoint) deliverRMPP(p *transport.Packet) {
	h := mad.DecodeRMPP(&p.MAD)
	key := keyOf(p, &p.MAD)
	var out []transport.Packet
	e.mu.Lock()
	if h.Type == mad.RMPPAck || h.Type == mad.RMPPStop || h.Type == mad.RMPPAbort {
		// Such a packet answers one of ours, whose method has the other
		// direction, or ends a transfer towards us.
		back := key
		back.meth ^= mad.MethodRespBit
		back = back.own()
		if x := e.sends[back]; x != nil {
			reply, send := x.s.Recv(&p.MAD)
			if send {
				out = append(out, x.p)
				out[len(out)-1].MAD = reply
			}
			if x.s.Err() != nil || x.s.Done() {
				e.endSend(back)
				if x.s.Err() != nil {
					e.stats.RMPPFailed++
				}
				if q := e.pending[x.req]; x.isReq && q != nil {
					q.sending = false
					q.deadline = time.Now().Add(q.p.Timeout)
					e.arm(deadline{at: q.deadline, tid: x.req, kind: kindRequest})
				}
			} else {
				x.deadline = time.Now().Add(x.timeout)
				out = e.segments(x, out)
			}
			e.mu.Unlock()
			e.writeAll(out)
			return
		}
		if r := e.recvs[key]; r == nil || h.Type == mad.RMPPAck {
			e.stats.BadRMPP++
			e.mu.Unlock()
			return
		}
	}
	resp := key.meth.IsResponse()
	tid := uint32(key.tid)
	r := e.recvs[key]
	if r == nil {
		if resp && e.pending[tid] == nil {
			e.stats.Unmatched++
			e.mu.Unlock()
			return
		}
		if h.Segment != 1 || len(e.recvs)-len(e.done) >= maxTransfers {
			e.stats.BadRMPP++
			e.mu.Unlock()
			return
		}
		r = &receiving{r: mad.NewRMPPReceiver(e.cfg.MaxMessage)}
		e.recvs[key] = r
		r.deadline = time.Now().Add(rmppIdle)
		e.arm(deadline{at: r.deadline, key: key, kind: kindRecv})
	}
	if e.recvsN > maxReceiving && r.bytes > 0 {
		// Its sender will give up, or ask again when there is room.
		e.stats.BadRMPP++
		e.endRecv(key)
		e.mu.Unlock()
		return
	}
	reply, send, done := r.r.Recv(&p.MAD)
	e.recvsN -= r.bytes
	r.bytes = r.r.Held()
	e.recvsN += r.bytes
	r.deadline = time.Now().Add(rmppIdle)
	if q := e.pending[tid]; resp && q != nil {
		q.deadline = time.Now().Add(max(q.p.Timeout, e.cfg.RMPPTimeout*time.Duration(e.cfg.RMPPRetries)))
		q.tries = q.p.Retries
	}
	if send {
		a := *p
		a.MAD, a.Long, a.Err = reply, nil, nil
		out = append(out, a)
	}
	if done {
		q := *p
		q.Long = r.r.Message()
		n := copy(q.MAD[:], q.Long)
		clear(q.MAD[n:])
		if !resp || e.dropRequest(tid) != nil {
			e.push(&q)
		} else {
			e.stats.Unmatched++
		}
		r.r.Release()
		e.recvsN -= r.bytes
		r.bytes = 0
		e.done = append(e.done, key)
		if len(e.done) > maxFinished {
			e.endRecv(e.done[0])
			e.done = e.done[1:]
		}
	} else if r.r.Err() != nil {
		e.stats.BadRMPP++
	}
	e.mu.Unlock()
	e.writeAll(out)
	if done {
		e.woken()
	}
}

// Recv implements transport.Transport.
func (e *Endpoint) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	for {
		n, err := e.TryRecv(into)
		if n > 0 || err != nil {
			return n, err
		}
		if len(into) == 0 {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-e.wake:
		}
	}
}

// TryRecv is Recv that does not wait: 0 when there is nothing.
func (e *Endpoint) TryRecv(into []transport.Packet) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.queue.pop(into)
	if n == 0 && e.err != nil {
		e.signal() // the next call must not wait either
		return 0, e.err
	}
	if e.queue.n > 0 {
		e.signal()
	}
	return n, nil
}

func (e *Endpoint) signal() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Fail ends the endpoint: Recv delivers what is queued, then err.
func (e *Endpoint) Fail(err error) {
	e.mu.Lock()
	if e.err == nil {
		e.err = err
	}
	clear(e.pending)
	clear(e.sends)
	clear(e.recvs)
	e.sendsN, e.recvsN = 0, 0
	e.dead = nil
	if e.timer != nil {
		e.timer.Stop()
	}
	e.signal()
	e.mu.Unlock()
	e.woken()
}

// Cancel forgets the request with the identifier's low bits tid.
func (e *Endpoint) Cancel(tid uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dropRequest(tid)
}

// Deadlines live in one heap with one timer. An entry can be stale: its request
// was answered, or got more time; it is looked up again when it comes up.

type kind uint8

const (
	kindRequest kind = iota
	kindSend
	kindRecv
)

type deadline struct {
	at   time.Time
	kind kind
	tid  uint32
	key  xferKey
}

type deadlines []deadline

// push and pop keep d[0] the earliest: container/heap without its allocation
// for each entry.
func (d *deadlines) push(x deadline) {
	h := append(*d, x)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].at.Before(h[up].at) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	*d = h
}

func (d *deadlines) pop() deadline {
	h := *d
	x, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].at.Before(h[c].at) {
			c++
		}
		if !h[c].at.Before(h[i].at) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	*d = h
	return x
}

// arm adds a deadline; the caller holds the lock.
func (e *Endpoint) arm(d deadline) {
	if e.err != nil {
		return
	}
	if len(e.dead) > 4*(len(e.pending)+len(e.sends)+len(e.recvs))+128 {
		e.prune()
	}
	e.dead.push(d)
	e.setTimer()
}

// prune drops the entries of requests that were answered: a program that asks
// often and waits long would keep one for each request of its waiting time. The
// caller holds the lock.
func (e *Endpoint) prune() {
	live := e.dead[:0]
	for _, d := range e.dead {
		keep := false
		switch d.kind {
		case kindRequest:
			q := e.pending[d.tid]
			keep = q != nil && !d.at.After(q.deadline)
		case kindSend:
			keep = e.sends[d.key] != nil
		case kindRecv:
			keep = e.recvs[d.key] != nil
		}
		if keep {
			live = append(live, d)
		}
	}
	clear(e.dead[len(live):])
	// A sorted list is a heap.
	slices.SortFunc(live, func(a, b deadline) int { return a.at.Compare(b.at) })
	e.dead = live
}

// setTimer sets the timer for the first deadline; the caller holds the lock.
func (e *Endpoint) setTimer() {
	if len(e.dead) == 0 {
		return
	}
	at := e.dead[0].at
	switch {
	case e.timer == nil:
		e.timer = time.AfterFunc(time.Until(at), e.expire)
	case e.timerAt.IsZero() || at.Before(e.timerAt):
		e.timer.Reset(time.Until(at))
	default:
		return
	}
	e.timerAt = at
}

func (e *Endpoint) expire() {
	now := time.Now()
	var out []transport.Packet
	woken := false
	e.mu.Lock()
	e.timerAt = time.Time{}
	for len(e.dead) > 0 && !e.dead[0].at.After(now) {
		d := e.dead.pop()
		switch d.kind {
		case kindRequest:
			q := e.pending[d.tid]
			switch {
			case q == nil || q.sending:
			case q.deadline.After(now):
				if !q.deadline.Equal(d.at) {
					e.again(deadline{at: q.deadline, tid: d.tid})
				}
			case q.tries < q.p.Retries && q.p.Long == nil:
				q.tries++
				e.stats.Resent++
				q.deadline = now.Add(q.p.Timeout)
				e.again(deadline{at: q.deadline, tid: d.tid})
				out = append(out, q.p)
			default:
				e.stats.Timeouts++
				q.p.Err = transport.ErrTimeout
				e.push(&q.p)
				e.dropRequest(d.tid)
				woken = true
			}
		case kindSend:
			x := e.sends[d.key]
			switch {
			case x == nil:
			case x.deadline.After(now):
				e.again(deadline{at: x.deadline, key: d.key, kind: kindSend})
			default:
				abort, send := x.s.Timeout()
				if send {
					p := x.p
					p.MAD = abort
					out = append(out, p)
				}
				if x.s.Err() != nil {
					e.endSend(d.key)
					e.stats.RMPPFailed++
					if q := e.pending[x.req]; x.isReq && q != nil {
						e.stats.Timeouts++
						q.p.Err = transport.ErrTimeout
						e.push(&q.p)
						e.dropRequest(x.req)
						woken = true
					}
					break
				}
				e.stats.Resent++
				x.deadline = now.Add(x.timeout)
				e.again(deadline{at: x.deadline, key: d.key, kind: kindSend})
				out = e.segments(x, out)
			}
		case kindRecv:
			if r := e.recvs[d.key]; r != nil {
				if r.deadline.After(now) {
					e.again(deadline{at: r.deadline, key: d.key, kind: kindRecv})
				} else {
					e.endRecv(d.key)
				}
			}
		}
	}
	if e.err == nil {
		e.setTimer()
	}
	e.mu.Unlock()
	e.writeAll(out)
	if woken {
		e.woken()
	}
}

// again adds a deadline without setting the timer; the caller holds the lock.
func (e *Endpoint) again(d deadline) { e.dead.push(d) }

// ring is a queue of packets that grows as needed.
type ring struct {
	b    []transport.Packet
	head int
	n    int
}

func (r *ring) push(p *transport.Packet) {
	if r.n == len(r.b) {
		b := make([]transport.Packet, max(16, 2*len(r.b)))
		for i := range r.n {
			b[i] = r.b[(r.head+i)%len(r.b)]
		}
		r.b, r.head = b, 0
	}
	r.b[(r.head+r.n)%len(r.b)] = *p
	r.n++
}

func (r *ring) pop(into []transport.Packet) int {
	n := min(r.n, len(into))
	for i := range n {
		into[i] = r.b[r.head]
		r.b[r.head].Long = nil
		r.head = (r.head + 1) % len(r.b)
	}
	r.n -= n
	return n
}
