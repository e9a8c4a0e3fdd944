package engine

import (
	"sync/atomic"
	"time"

	"ibnetworkd/sm/transport"
)

// Where SMPs are lost, a manager that waits for each of them as long as for a slow
// node takes minutes. The proof of loss is a repeated request that is answered: from
// then on a request is repeated as soon as its answer is overdue by the time that
// others take, some times more than where nothing is lost. Before there is a proof, a
// request that many later ones have overtaken, or that is outstanding while nothing
// arrives, is repeated once before its time.
const (
	quickTries = 6
	quickLeast = time.Millisecond
	// quickFactor is how many times the longest recent time to an answer is waited.
	quickFactor = 4
	// watchLeast is how long nothing must be heard before what is under way is repeated.
	watchLeast = 15 * time.Millisecond
	// overtakenBy is how many requests more than a window must have overtaken one.
	overtakenBy = 64
	// lossMemory is how long a proof of loss counts, and a mistake about it.
	lossMemory = 10 * time.Second
)

// loss is what is known of lost SMPs.
type loss struct {
	answers uint64        // to requests
	peak    time.Duration // the longest time to an answer, of late
	until   time.Time     // requests are repeated quickly
	patient time.Time     // no overtaken request is repeated: one was only slow

	watching atomic.Bool // the owner will be woken to see whether nothing is heard
}

// quick is the time for the next try of a request that was tried so often quickly; 0
// where it is to have the full time.
func (l *loss) quick(tries uint8, full time.Duration, now time.Time) time.Duration {
	if tries >= quickTries || !now.Before(l.until) {
		return 0
	}
	if d := max(quickLeast, quickFactor*l.peak) << tries; d < full {
		return d
	}
	return 0
}

// took notes an answer. One to a repeated request proves nothing after the answer to
// the first try came too.
func (l *loss) took(d time.Duration, repeated bool, now time.Time) {
	l.answers++
	l.peak = max(d, l.peak-l.peak/64)
	if repeated && !now.Before(l.patient) {
		l.until = now.Add(lossMemory)
	}
}

// overtaken repeats the requests that many later ones have overtaken, and where SMPs
// get lost those that still have the full time.
func (s *Subnet) overtaken(now time.Time) {
	l := &s.win.loss
	if l.answers%overtakenBy != 0 || now.Before(l.patient) {
		return
	}
	by := uint64(s.cfg.Window)
	if !now.Before(l.until) {
		by += overtakenBy
	}
	for i := range s.win.slots {
		if sl := &s.win.slots[i]; l.answers-sl.answers >= by && now.Sub(sl.sent) >= max(quickLeast, quickFactor*l.peak) {
			s.repeat(sl, now)
		}
	}
}

// watch repeats the requests of a source that has heard nothing for a while, as long
// as nothing is known of lost ones.
func (s *Subnet) watch(own *pumped) {
	l, now := &s.win.loss, time.Now()
	if now.Before(l.until) || now.Before(l.patient) {
		return
	}
	d := max(watchLeast, 2*quickFactor*l.peak)
	if now.Sub(own.heard) >= d {
		own.heard = now
		for i := range s.win.slots {
			if sl := &s.win.slots[i]; sl.src == own && now.Sub(sl.sent) >= d {
				s.repeat(sl, now)
			}
		}
	}
	if !l.watching.Swap(true) {
		time.AfterFunc(d, func() { l.watching.Store(false); signal(s.in.wake) })
	}
}

// repeat sends a request again that is under way for the full time, once before
// there is a proof of loss.
func (s *Subnet) repeat(sl *slot, now time.Time) {
	lossy := now.Before(s.win.loss.until)
	if !sl.used || sl.src == nil || sl.short || sl.quick >= quickTries || !lossy && sl.tries > 0 || len(s.win.idle) <= s.cfg.Window ||
		sl.src.retries < 1 {
		return
	}
	own, req, tries, quick, without := sl.src, sl.req, sl.tries, sl.quick, sl.withoutExt
	if tries+quick == 0 {
		own.Late(req.Tag)
	}
	if !lossy {
		tries++
	}
	s.counters.Repeats++
	sl.src, sl.overtaken = nil, true
	if s.sendRequest(own, &req, tries, quick) != nil {
		sl.src, sl.overtaken = own, false
		return
	}
	s.win.slots[s.win.last].withoutExt = without
}

// unused handles the outcome of a request of a source that is gone, or one that was
// repeated before.
func (s *Subnet) unused(sl *slot, p *transport.Packet, now time.Time) {
	if l := &s.win.loss; sl.overtaken && p.Err == nil {
		l.peak = max(l.peak, now.Sub(sl.sent))
		if !now.Before(l.until) {
			l.patient = now.Add(lossMemory)
		}
	}
}
