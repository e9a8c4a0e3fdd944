// Package endpoint does for a wire that carries single MADs what the kernel's
// ib_mad does for its agents: it matches requests with responses, sends again,
// reports timeouts, cuts and joins long messages (RMPP), and queues what was
// received. It knows no addresses beyond carrying them and starts no goroutine;
// time is the standard timer's, so that it runs under testing/synctest.
package endpoint

import (
	"cmp"
	"context"
	"sync"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Config of an Endpoint. The zero value of each field but Write means the
// default.
type Config struct {
	// Write puts one MAD on the wire. It is called without a lock, from Send,
	// Deliver and timers, possibly concurrently. It may call Deliver before it
	// returns.
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
	// Wake is called without a lock after a packet was queued.
	Wake func()
}

// Defaults.
const (
	DefaultQueue       = 1 << 16
	DefaultRMPPTimeout = 500 * time.Millisecond
	DefaultRMPPRetries = 7
	// maxTransfers bounds the long messages that are being received, rmppIdle
	// is how long one may pause and how long a complete one is remembered to
	// acknowledge what arrives again.
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
	Unmatched uint64 // responses without a request
	Overflow  uint64 // packets that found the queue full
	BadRMPP   uint64 // RMPP packets that belong to no transfer, or ended one
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
	cfg.Queue = cmp.Or(cfg.Queue, DefaultQueue)
	cfg.MaxMessage = cmp.Or(cfg.MaxMessage, transport.MaxMessage)
	cfg.RMPPTimeout = cmp.Or(cfg.RMPPTimeout, DefaultRMPPTimeout)
	cfg.RMPPRetries = cmp.Or(cfg.RMPPRetries, DefaultRMPPRetries)
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

// push queues p. e.mu must be locked.
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

// Deadlines are in one heap with one timer. An entry can be stale: its request was
// answered, or got more time; that is checked when it is due.

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
