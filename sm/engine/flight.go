package engine

import (
	"cmp"
	"errors"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// flight is a request under way. Each try has a slot, an identifier and a time-out of
// its own, so that a try that is sent early does not end the wait for the one before:
// the first answer counts, whichever try it is to.
type flight struct {
	req        smp.Request
	src        *pumped // nil once there is an outcome, or its source is gone
	began      time.Time
	sent       time.Time // the last try
	regular    time.Time // the last try but quick ones
	tries      uint8     // repeats but quick ones
	quick      uint8     // repeats beyond those, where SMPs get lost
	nth        uint8     // the number of the last try
	by         uint8     // the number of the try that was answered
	last       uint16    // slot of the last try but quick ones
	timed      bool      // a try has timed out: the next are due by time
	early      bool      // it may be repeated before its time
	late       bool      // its source knows that it is being repeated
	open       uint64    // tries that the transport has not returned, by number
	answers    uint64    // to any request when it began
	withoutExt bool      // repeated without smp.ExtendedSpeeds, which the node refused
}

// slot is a try.
type slot struct {
	f    *flight // nil for a free one
	gen  uint16
	nth  uint8
	sent time.Time
}

// Transaction identifiers: the low 16 bits are the slot, the next 15 its
// generation; bit 31 marks what has no slot (reports, traps, handovers).
const unslotted = 1 << 31

// A request has no more tries than bits in flight.open.
const _ = uint(63 - RetriesMost - quickTries)

// slotsMost bounds the tries that the transport has.
const slotsMost = 1 << 14

// window is the SMPs of this manager that are under way.
type window struct {
	slots    []slot
	idle     []uint16         // slots that are free
	flights  []*flight        // that are free
	live     int              // flights without an outcome
	most     int              // of them
	late     bool             // an SMP was not answered in time: set by conclude, cleared by pumpWith
	pkt      transport.Packet // the try being sent
	answered smp.Reply        // the outcome that a source is being shown
	tid      uint32           // of what was last sent without a slot
	loss     loss
	alarm    *time.Timer // wakes the owner for repeatDue
}

// spare is how many requests more may be sent.
func (w *window) spare() int { return min(w.most-w.live, len(w.idle)+slotsMost-len(w.slots)) }

// slot takes a slot for a try of f; there must be a spare one.
func (w *window) slot(f *flight, now time.Time) uint16 {
	n := len(w.idle)
	if n == 0 {
		w.slots = append(w.slots, slot{})
		w.idle, n = append(w.idle, uint16(len(w.slots)-1)), 1
	}
	i := w.idle[n-1]
	w.idle = w.idle[:n-1]
	sl := &w.slots[i]
	*sl = slot{f: f, gen: (sl.gen + 1) & 0x7fff, nth: f.nth, sent: now}
	f.open |= 1 << f.nth
	return i
}

// release ends a try.
func (w *window) release(i uint16) {
	sl := &w.slots[i]
	f := sl.f
	f.open &^= 1 << sl.nth
	sl.f = nil
	w.idle = append(w.idle, i)
	w.recycle(f)
}

// end takes a flight from its source.
func (w *window) end(f *flight) {
	f.src = nil
	w.live--
	w.recycle(f)
}

// recycle keeps a flight that has ended for the next.
func (w *window) recycle(f *flight) {
	if f.src == nil && f.open == 0 {
		*f = flight{}
		w.flights = append(w.flights, f)
	}
}

// abandon ends the requests of a source that is gone.
func (s *Subnet) abandon(own *pumped) {
	for i := range s.win.slots {
		if f := s.win.slots[i].f; f != nil && f.src == own {
			s.win.end(f)
		}
	}
}

// sendRequest puts a request on the wire.
func (s *Subnet) sendRequest(src *pumped, r *smp.Request) error {
	_, err := s.begin(src, r)
	return err
}

func (s *Subnet) begin(src *pumped, r *smp.Request) (*flight, error) {
	w := &s.win
	var f *flight
	if n := len(w.flights); n > 0 {
		f, w.flights = w.flights[n-1], w.flights[:n-1]
	} else {
		f = new(flight)
	}
	now := time.Now()
	*f = flight{req: *r, src: src, began: now, answers: w.loss.answers, early: early(r, s.cfg.Policy.MKey)}
	w.live++
	if err := s.try(f, now, f.timeout(), false); err != nil {
		w.end(f)
		return nil, err
	}
	return f, nil
}

// timeout is that of the first try.
func (f *flight) timeout() time.Duration {
	if f.req.ShortTimeout {
		return f.src.timeout / 2
	}
	return f.src.timeout
}

// retries is how often the request is repeated, but for quick repeats.
func (f *flight) retries() int {
	if f.req.ShortTimeout {
		return min(f.src.retries, 1)
	}
	return f.src.retries
}

// try sends a request in a slot of its own, which becomes the last unless it is quick.
func (s *Subnet) try(f *flight, now time.Time, timeout time.Duration, quick bool) error {
	i := s.win.slot(f, now)
	r, p := &f.req, &s.win.pkt
	tid := uint64(s.win.slots[i].gen)<<16 | uint64(i)
	key := cmp.Or(r.MKey, s.cfg.Policy.MKey)
	mad.PutDR(&p.MAD, r.Method, r.Attr, r.Mod, tid, key, r.Path, r.Data[:])
	p.LID, p.QPN, p.Long = ib.LIDPermissive, 0, nil
	p.Timeout, p.Retries = timeout, 0
	s.counters.SMPs++
	s.count(r.Method, r.Attr)
	if err := s.put(p); err != nil {
		s.win.release(i)
		return err
	}
	if f.sent = now; !quick {
		f.last, f.regular = i, now
	}
	return nil
}

// repeat sends a request again, and reports whether it could. The last try, and those
// after one that has timed out, wait for longer than the next begins: a node that takes
// more than the time-out answers them too.
func (s *Subnet) repeat(f *flight, now time.Time, quick bool) bool {
	if len(s.win.idle) == 0 && len(s.win.slots) >= slotsMost {
		return false
	}
	timeout := f.timeout()
	left := f.began.Add(timeout * time.Duration(f.retries()+1)).Sub(now)
	if quick {
		f.quick++
	} else if f.tries++; int(f.tries) == f.retries() {
		timeout = max(timeout, left)
	} else if f.timed {
		timeout = max(timeout, min(2*timeout, left))
	}
	if !f.late && (quick || f.timed) {
		f.late = true
		f.src.Late(f.req.Tag)
	}
	f.nth++
	s.counters.Repeats++
	return s.try(f, now, timeout, quick) == nil
}

// conclude ends a try with what came of it, and its request unless that is repeated.
func (s *Subnet) conclude(i uint16, p *transport.Packet) {
	sl, now := s.win.slots[i], time.Now()
	f, own := sl.f, sl.f.src
	if own == nil {
		if p.Err == nil && sl.nth < f.by {
			s.win.loss.mistaken(now)
		}
		s.win.release(i)
		return
	}
	own.silent = 0
	lost := p.Err == nil && sl.nth > 0 && now.Sub(sl.sent) < f.timeout()
	if p.Err == nil {
		own.answered = now
		if s.win.loss.took(now.Sub(sl.sent), f.open, sl.nth, now) {
			s.alarm(now, quickLeast)
		}
	}
	s.win.release(i)
	if errors.Is(p.Err, transport.ErrTimeout) {
		if i == f.last && int(f.tries) < f.retries() {
			s.win.late, f.timed = true, true
			if s.repeat(f, now, false) {
				return
			}
		}
		if f.open != 0 {
			return
		}
	}
	req, withoutExt := f.req, f.withoutExt
	f.by = sl.nth
	s.win.end(f)
	if p.Err == nil {
		s.repeatOvertaken(now)
	}
	if p.Err == nil && req.Attr == mad.AttrPortInfo && req.Mod&smp.ExtendedSpeeds != 0 && mad.StatusOf(&p.MAD) != 0 {
		s.counters.Repeats++
		older := req
		older.Mod &^= smp.ExtendedSpeeds
		if g, err := s.begin(own, &older); err == nil {
			g.withoutExt = true
			return
		}
	}
	if withoutExt && (p.Err != nil || mad.StatusOf(&p.MAD) != 0) {
		req.Mod |= smp.ExtendedSpeeds // that was not the reason
	}
	r := &s.win.answered // what a source is shown it does not keep
	r.Request, r.Status, r.Timeout, r.Lost = req, 0, false, lost
	if p.Err != nil {
		r.Data, r.Timeout = [64]byte{}, true
		s.counters.Timeouts++
	} else {
		r.Data = *mad.SMPData(&p.MAD)
		if r.Status = mad.StatusOf(&p.MAD); r.Status != 0 {
			s.counters.Errors++
		}
	}
	own.done(r)
}
