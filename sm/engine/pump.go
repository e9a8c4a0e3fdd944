package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// Counters of the MADs of a subnet.
type Counters struct {
	SMPs     uint64            `json:"smps_sent"` // requests, with repeats
	Repeats  uint64            `json:"smps_repeated"`
	Timeouts uint64            `json:"smps_unanswered"`
	Errors   uint64            `json:"smps_refused"` // answered with a status
	Dropped  uint64            `json:"mads_dropped"` // malformed or unexpected
	Traps    uint64            `json:"traps"`
	Quiet    uint64            `json:"traps_not_acted_on"` // of ports that send them without end
	SA       uint64            `json:"sa_requests"`
	Again    uint64            `json:"sa_requests_repeated"` // not answered, for the first of them still waited
	Busy     uint64            `json:"sa_requests_busy"`     // answered BUSY: their sender has too many waiting
	Expired  uint64            `json:"sa_requests_expired"`  // not answered, because their senders had given up
	Sent     map[string]uint64 `json:"sent"`                 // by method and attribute
	Received map[string]uint64 `json:"received"`             // requests and traps
	Pauses   Pauses            `json:"pauses"`

	// What a manager sends has fewer kinds than that.
	hot [32]hotCount
}

// Pauses are the times that requests of others had to wait, if there were any, while the
// manager did work of its own.
type Pauses struct {
	Longest time.Duration `json:"longest_ns"`
	Sum     time.Duration `json:"sum_ns"`
	// AtMost counts them by PauseBounds, those above the last in the last.
	AtMost [len(PauseBounds) + 1]uint64 `json:"at_most"`
}

// PauseBounds are the bounds of Pauses.AtMost.
var PauseBounds = [...]time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}

func (p *Pauses) add(d time.Duration) {
	i, _ := slices.BinarySearch(PauseBounds[:], d)
	p.AtMost[i]++
	p.Sum += d
	p.Longest = max(p.Longest, d)
}

// hotCount counts one method and attribute: a map would show in the profile.
type hotCount struct {
	key attrKey
	n   uint64
}

// eager is a transport that can receive without waiting.
type eager interface {
	// TryRecv is Recv that does not wait: 0 when there is nothing.
	TryRecv([]transport.Packet) (int, error)
}

// forgetful is a transport that may lose a request to the own port without returning
// it, not even with ErrTimeout.
type forgetful interface {
	Forgets() bool
}

// receive queues packets for the owner until the transport ends. Requests for the
// manager's state that need no decision are answered here, so that a long
// computation of the owner is not taken for its end.
func (s *Subnet) receive(ctx context.Context) {
	more, _ := s.tr.(eager)
	in := make([]transport.Packet, 64)
	for s.in.await(ctx) {
		n, err := s.tr.Recv(ctx, in)
		s.sort(in[:n])
		// All that is there, before the owner begins: what repeats a request is
		// found while that one waits.
		for k := 0; more != nil && err == nil && n == len(in) && k < 64; k++ {
			n, err = more.TryRecv(in)
			s.sort(in[:n])
		}
		signal(s.in.wake)
		if err != nil {
			s.in.end(err)
			return
		}
	}
}

// sort puts what was received where it waits for the owner.
func (s *Subnet) sort(ps []transport.Packet) {
	now, n := time.Now(), s.self.senders.Load()
	for i := range ps {
		p := &ps[i]
		from := n.source(p)
		if asksSMInfo(p) && s.answerSMInfo(p, from) {
			continue
		}
		if !s.in.put(p, from, now) {
			s.refuse(p)
		}
		p.Long = nil
	}
}

// refuse answers a request of a sender that has too many waiting: SMInfo without
// the key, an order and a request to the SA with BUSY.
func (s *Subnet) refuse(p *transport.Packet) {
	n := s.self.standing.Load()
	switch {
	case asksSMInfo(p):
		if p.Retries == answeredGet {
			return
		}
		info := n.info
		info.SMKey = 0
		out := s.smInfoAnswer(p, info)
		if mad.MethodOf(&p.MAD) == mad.MethodSet {
			mad.SetStatus(&out.MAD, mad.StatusBusy)
		}
		_ = s.put(&out)
		return
	case mad.ClassOf(&p.MAD) != mad.ClassSA:
		return
	}
	s.in.refused.Add(1)
	var h mad.SAHeader
	if h.Decode(p.Bytes()) != nil || n.info.State != mad.SMMaster {
		return
	}
	r := h.Response(mad.StatusBusy)
	r.SMKey, r.AttrOffset = 0, 0
	out := transport.Packet{LID: p.LID, QPN: p.QPN, QKey: p.QKey, SL: p.SL, PKeyIndex: p.PKeyIndex,
		HasGRH: p.HasGRH, GID: p.GID, HopLimit: 0xff, TrafficClass: p.TrafficClass, FlowLabel: p.FlowLabel}
	out.SetMessage(r.Append(nil), false)
	_ = s.put(&out)
}

// put sends a packet; the owner and the receiver may both.
func (s *Subnet) put(p *transport.Packet) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.tr.Send(p)
}

type attrKey struct {
	m mad.Method
	a mad.AttrID
}

func (s *Subnet) count(m mad.Method, a mad.AttrID) {
	k := attrKey{m, a}
	for i := range s.counters.hot {
		h := &s.counters.hot[i]
		if h.key == k {
			h.n++
			return
		}
		if h.n == 0 {
			h.key, h.n = k, 1
			return
		}
	}
}

// pump sends a source's requests through the window until it has finished.
func (s *Subnet) pump(ctx context.Context, src smp.Source) error {
	return s.pumpWith(ctx, src, s.cfg.Timeout, s.cfg.Retries)
}

// pumpWith is pump with a time-out for each try and a number of repeats.
func (s *Subnet) pumpWith(ctx context.Context, src smp.Source, timeout time.Duration, retries int) error {
	fly := 0
	done := func(r *smp.Reply) { fly--; src.Step(r) }
	own := &pumped{Source: src, done: done, timeout: timeout, retries: retries, answered: time.Now()}
	s.alarm(own.answered, s.win.loss.pause(timeout, own.answered))
	// A sweep that is left early must not leave answers to a source that is gone.
	defer func() {
		s.win.alarm.Stop()
		if fly > 0 {
			s.abandon(own)
		}
	}()
	// The second tick without an outcome of any request ends them. Received packets that
	// were not processed yet may be that outcome.
	var ticks <-chan time.Time
	if f, ok := s.tr.(forgetful); ok && f.Forgets() {
		t := time.NewTicker(timeout + time.Second/2)
		defer t.Stop()
		ticks = t.C
	}
	searcher, _ := src.(smp.Searcher)
	for {
		more, searching := true, false
		for more && fly < s.cfg.Window && s.win.spare() > 0 {
			if searching = searcher != nil && !searcher.Search(); searching {
				signal(s.in.wake) // others are served, without a wait
				break
			}
			var r smp.Request
			if r, more = src.Next(); !more {
				break
			}
			fly++
			if err := s.sendRequest(own, &r); err != nil {
				if errors.Is(err, transport.ErrGone) || errors.Is(err, transport.ErrClosed) {
					return err
				}
				done(&smp.Reply{Request: r, Timeout: true})
			}
		}
		if fly == 0 && !more {
			return nil
		}
		switch err := s.next(ctx, ticks); {
		case errors.Is(err, errTimer):
			if s.in.empty() {
				own.silent++
			}
			if own.silent >= 2 {
				s.overdue(own)
			}
		case err != nil:
			return err
		}
		s.repeatDue(own)
		if s.win.late {
			// Nothing answers when the local cable is out: do not try it all.
			s.win.late = false
			if err := s.checkLocal(); err != nil {
				return err
			}
		}
	}
}

// pumped is a source under a pump.
type pumped struct {
	smp.Source
	done     func(*smp.Reply)
	timeout  time.Duration
	retries  int
	silent   int       // ticks since the transport returned any of its requests
	answered time.Time // when it did last, with an answer
	probes   int       // repeats because nothing was received
}

// overdue ends the requests of a source as unanswered, and frees the slots of sources
// that are gone. They are not repeated: the transport reports what it loses.
func (s *Subnet) overdue(own *pumped) {
	own.silent = 0
	s.warnOnce("unanswered", "requests neither answered nor timed out, giving them up", "under_way", s.win.live)
	for i := range s.win.slots {
		if f := s.win.slots[i].f; f != nil && (f.src == own || f.src == nil) {
			s.conclude(uint16(i), &transport.Packet{Err: errNoAnswer})
		}
	}
}

var errNoAnswer = errors.New("no answer")

// next serves what waits, for a moment, or one command, or waits for the timer.
func (s *Subnet) next(ctx context.Context, timer <-chan time.Time) error {
	if !s.servedAt.IsZero() {
		s.counters.Pauses.add(time.Since(s.servedAt))
	}
	defer func() { s.servedAt = time.Now() }()
	select {
	case <-s.in.wake:
		b, err := s.in.take()
		for i := range b {
			s.packet(&b[i])
		}
		s.serve()
		return err
	case f := <-s.cmds:
		f()
	case <-timer:
		return errTimer
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

const (
	// serveMost is how many requests of others are served before the answers to
	// the manager's own are processed again, serveTime how long at most, but for
	// one request.
	serveMost = 64
	serveTime = time.Millisecond
)

// serve handles requests of others: what concerns managers and the fabric first.
// While SMPs are under way the SA gets two thirds of the time at most.
func (s *Subnet) serve() {
	if len(s.served.deferred) > 0 {
		s.sendDeferred()
	}
	for range serveMost {
		p := s.in.note()
		if p == nil {
			break
		}
		s.packet(p)
	}
	begin := time.Now()
	if d := s.served.yieldUntil.Sub(begin); s.win.live > 0 && d > 0 {
		time.AfterFunc(d, func() { signal(s.in.wake) })
		return
	}
	defer s.in.again()
	at := begin
	for range serveMost {
		p := s.in.ask(at)
		if p == nil {
			break
		}
		s.packet(p)
		now := time.Now()
		s.in.spent(now.Sub(at))
		if at = now; now.Sub(begin) > serveTime {
			break
		}
	}
	if d := at.Sub(begin); d > serveTime {
		s.served.yieldUntil = at.Add(d / 2)
	}
}

// computeShort is how long a computation may take before it needs a thread of its own.
const computeShort = 3 * time.Millisecond

// compute gives what f gives, which runs beside the owner while that serves
// others. f must not use what the owner changes, nor change anything: when ctx
// ends it is left to itself.
func compute[T any](ctx context.Context, s *Subnet, f func() T) (v T, err error) {
	if long := s.cfg.Computing; long != nil {
		t := time.AfterFunc(computeShort, func() { long(true) })
		defer func() {
			if !t.Stop() {
				long(false)
			}
		}()
	}
	done := make(chan T, 1)
	go func() {
		done <- f()
		signal(s.in.wake)
	}()
	for {
		select {
		case v = <-done:
			return v, nil
		default:
		}
		if err := s.next(ctx, nil); err != nil {
			return v, err
		}
	}
}

var errTimer = errors.New("timer")

// wait serves until d has passed or stop says so.
func (s *Subnet) wait(ctx context.Context, d time.Duration, stop func() bool) error {
	s.tick.Reset(d)
	for stop == nil || !stop() {
		switch err := s.next(ctx, s.tick.C); {
		case errors.Is(err, errTimer):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// packet sorts what was received.
func (s *Subnet) packet(p *transport.Packet) {
	c, m := mad.ClassOf(&p.MAD), mad.MethodOf(&p.MAD)
	if p.Err != nil || m.IsResponse() {
		s.response(p)
		return
	}
	if s.served.charge != nil {
		s.served.charge(p)
	}
	switch {
	case asksSMInfo(p):
		s.smInfo(p)
	case c == mad.ClassSubnLID && m == mad.MethodTrap && mad.AttrOf(&p.MAD) == mad.AttrNotice:
		s.trap(p)
	case c == mad.ClassSA:
		s.sa(p)
	default:
		s.counters.Dropped++
	}
}

// response finds the request that a packet ends.
func (s *Subnet) response(p *transport.Packet) {
	tid := uint32(mad.TIDOf(&p.MAD))
	i := tid & 0xffff
	if tid&unslotted != 0 || int(i) >= len(s.win.slots) {
		if !s.reported(p) {
			s.copyResponse(p)
		}
		return
	}
	sl := &s.win.slots[i]
	if sl.f == nil || uint32(sl.gen) != tid>>16 {
		s.counters.Dropped++
		return
	}
	if p.Err == nil && (mad.AttrOf(&p.MAD) != sl.f.req.Attr || !mad.ClassOf(&p.MAD).IsSMP()) {
		// The transport takes the request for answered: nothing else comes of it.
		s.counters.Dropped++
		p = &transport.Packet{Err: transport.ErrTimeout}
	}
	s.conclude(uint16(i), p)
}
