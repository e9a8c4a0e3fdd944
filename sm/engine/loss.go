package engine

import (
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// Where SMPs are lost, a manager that waits for each as long as for a slow node takes
// minutes. The proof of loss is an answer to a repeat while an earlier try is still
// waited for: nodes answer in turn. From then on a request is repeated as soon as its
// answer is overdue by the time that others take. Before there is a proof, a request
// that many later ones have overtaken, or that waits while nothing is heard, has its
// next repeat before its time, one at a time; it is not sent later as well.
const (
	// quickTries is how often a request is repeated beyond its retries, after the
	// retransmission time-out first, then twice as long each time.
	quickTries = 6
	quickLeast = time.Millisecond
	// overtakenBy is how many requests more than a window must have overtaken one.
	overtakenBy = 64
	// silence is how long nothing must be heard.
	silence = 15 * time.Millisecond
	// samples is how many answers it takes to know how long they take.
	samples = 16
	// stall is how late the owner may be for its own alarm: after more it first
	// processes what came meanwhile.
	stall = time.Millisecond
	// lossMemory is how long a proof of loss counts, mistakeMemory a mistake about it:
	// twice as long with each until the next proof, at most mistakesMost times.
	lossMemory    = 10 * time.Second
	mistakeMemory = time.Second
	mistakesMost  = 4
)

// loss is what is known of lost SMPs and of the time to an answer.
type loss struct {
	answers   uint64
	mean, dev time.Duration // smoothed, as in RFC 6298
	until     time.Time     // requests are repeated quickly
	patient   time.Time     // before that none is repeated early without a proof: one was only slow
	mistakes  int           // since the last proof
	check     time.Time     // when repeatDue is next due
}

// took notes an answer to try nth of a request whose tries in open were waited for, and
// reports whether it is the first proof of loss.
func (l *loss) took(d time.Duration, open uint64, nth uint8, now time.Time) (proof bool) {
	if l.answers++; l.answers == 1 {
		l.mean, l.dev = d, d/2
	}
	l.dev += ((d - l.mean).Abs() - l.dev) / 4
	l.mean += (d - l.mean) / 8
	bit := uint64(1) << nth
	switch {
	case open&(bit-1) != 0 && !now.Before(l.patient):
		proof = !now.Before(l.until)
		l.until, l.mistakes = now.Add(lossMemory), 0
	case open&^(2*bit-1) != 0 && !now.Before(l.until):
		l.mistaken(now)
	}
	return proof
}

// mistaken notes that a request was repeated early whose answer was only slow.
func (l *loss) mistaken(now time.Time) {
	l.until = time.Time{}
	if !now.Before(l.patient) {
		l.patient = now.Add(mistakeMemory << min(l.mistakes, mistakesMost))
		l.mistakes++
	}
}

// overdue is the time after which a request with a time-out is repeated early; 0 for
// never.
func (l *loss) overdue(timeout time.Duration) time.Duration {
	d := max(quickLeast, 2*l.mean+4*l.dev)
	if l.answers < samples || d > timeout/2 {
		return 0
	}
	return d
}

// pause is how long no request that is sent from now on is due.
func (l *loss) pause(timeout time.Duration, now time.Time) time.Duration {
	if d := l.overdue(timeout); d > 0 && now.Before(l.until) {
		return min(d, silence)
	}
	return silence
}

// early reports whether a request may be sent again before its time, and so reach the
// node twice before what follows its answer: any Get, and any Set, which then does
// nothing more, but for one that needs another key than the manager's own, which it
// leaves. Questions for SMInfo are counted by those that they are put to.
func early(r *smp.Request, own ib.MKey) bool {
	return r.Attr != mad.AttrSMInfo && (r.MKey == 0 || r.MKey == own)
}

// next is when a request is repeated unless it is answered, zero for not by time.
func (l *loss) next(f *flight, now time.Time) (at time.Time, quick bool) {
	timeout := f.timeout()
	if f.timed && int(f.tries) < f.retries() {
		at = f.regular.Add(timeout)
	}
	if d := l.overdue(timeout); d > 0 && now.Before(l.until) && f.quick < quickTries && f.retries() > 0 && f.early {
		if q := f.sent.Add(d << f.quick); at.IsZero() || q.Before(at) {
			return q, true
		}
	}
	return at, false
}

// unproven reports whether a request may be repeated early without a proof of loss.
func (l *loss) unproven(f *flight, now time.Time) bool {
	return f.nth == 0 && f.retries() > 1 && !now.Before(l.patient) && !now.Before(l.until) && f.early
}

// repeatOvertaken repeats a request that many later ones have overtaken.
func (s *Subnet) repeatOvertaken(now time.Time) {
	l := &s.win.loss
	if l.answers%overtakenBy != 0 {
		return
	}
	for i := range len(s.win.slots) {
		f := s.win.slots[i].f
		if f == nil || f.src == nil || l.answers-f.answers < uint64(s.cfg.Window+overtakenBy) || !l.unproven(f, now) {
			continue
		}
		if d := l.overdue(f.timeout()); d > 0 && now.Sub(f.sent) >= d {
			s.repeat(f, now, false)
			return
		}
	}
}

// repeatDue repeats what is due of a source.
func (s *Subnet) repeatDue(own *pumped) {
	l, now := &s.win.loss, time.Now()
	if now.Before(l.check) {
		return
	}
	d, most := l.overdue(own.timeout), l.pause(own.timeout, now)
	if now.Sub(l.check) > stall {
		s.alarm(now, most)
		return
	}
	quiet := max(silence, 2*d) << min(own.probes, 4)
	silent := d > 0 && now.Sub(own.answered) >= quiet
	next := now.Add(most)
	if at := own.answered.Add(quiet); at.After(now) && at.Before(next) {
		next = at
	}
	for i := range len(s.win.slots) {
		f := s.win.slots[i].f
		if f == nil || f.src != own || s.win.slots[i].nth != f.nth {
			continue
		}
		if silent && l.unproven(f, now) && now.Sub(f.sent) >= quiet {
			s.repeat(f, now, false)
			silent, own.answered = false, now
			own.probes++
			continue
		}
		at, quick := l.next(f, now)
		if !at.IsZero() && !at.After(now) {
			s.win.late = s.win.late || !quick
			s.repeat(f, now, quick)
			at, _ = l.next(f, now)
		}
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	s.alarm(now, next.Sub(now))
}

// alarm has repeatDue called after some time.
func (s *Subnet) alarm(now time.Time, d time.Duration) {
	s.win.loss.check = now.Add(d)
	if s.win.alarm == nil {
		s.win.alarm = time.AfterFunc(d, func() { signal(s.in.wake) })
	} else {
		s.win.alarm.Reset(d)
	}
}
