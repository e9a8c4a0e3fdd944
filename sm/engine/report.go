package engine

import (
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/transport"
)

const (
	// reportsOpen is how many reports wait for an answer. Linux since 2025 keeps back what an
	// agent of the SA class sends beyond 16, a 32nd of the receive queue (drivers/infiniband/
	// core/mad.c, SOL_FC_MAX_SA_FRAC), lost ones until their time-out.
	reportsOpen = 12
	// reportsEach is how many of them are of one subscriber that has answered, others have one.
	reportsEach = 4
	// reportsSilent is how many are of all those that did not answer the last one.
	reportsSilent = 4
	// reportsWait bounds what waits to be sent, reportsKept what of it is of a subscriber that
	// answered none of the tries of a report.
	reportsWait = 1 << 17
	reportsKept = 64
	// reportsKnown bounds the subscribers of which it is remembered whether they answered.
	reportsKnown = 4096
)

// reports are those of events that are on their way to subscribers. Subscribers have turns,
// and one that does not answer, as a host that has crashed, delays the others little.
type reports struct {
	to     map[subscriber]*subscriberReports
	turns  []*subscriberReports
	open   map[uint32]openReport // by transaction identifier
	silent int                   // how many of open are to silent subscribers
	n      int                   // that wait
}

type subscriber struct {
	lid ib.LID
	qp  uint32
}

type subscriberReports struct {
	at     subscriber
	wait   []waitingReport
	open   int
	queued bool // has a turn
	// answered is whether the last report was answered, silent whether it was not.
	answered, silent bool
}

type waitingReport struct {
	mad   *mad.Buf
	tries int // that it has had
}

type openReport struct {
	waitingReport
	to     *subscriberReports
	silent bool // counts in reports.silent
	end    time.Time
}

func newReports() *reports {
	return &reports{to: map[subscriber]*subscriberReports{}, open: map[uint32]openReport{}}
}

// mayHave reports whether one more report may be under way to a subscriber.
func (q *reports) mayHave(x *subscriberReports) bool {
	switch {
	case x.silent:
		return x.open == 0 && q.silent < reportsSilent
	case x.answered:
		return x.open < reportsEach
	}
	return x.open == 0
}

// add queues a report, and reports whether there was space for it.
func (q *reports) add(r *sa.Report) bool {
	if q.n >= reportsWait {
		return false
	}
	at := subscriber{r.LID, r.QP}
	x := q.to[at]
	if x == nil {
		q.forget()
		x = &subscriberReports{at: at}
		q.to[at] = x
	}
	if x.silent && len(x.wait) >= reportsKept {
		return false
	}
	x.wait = append(x.wait, waitingReport{mad: &r.MAD})
	q.n++
	q.turn(x)
	return true
}

// forget drops subscribers that nothing is for, if there are too many.
func (q *reports) forget() {
	if len(q.to) < reportsKnown {
		return
	}
	for at, x := range q.to {
		if len(x.wait)+x.open == 0 {
			delete(q.to, at)
		}
	}
}

func (q *reports) turn(x *subscriberReports) {
	if !x.queued && len(x.wait) > 0 {
		x.queued = true
		q.turns = append(q.turns, x)
	}
}

// next gives the subscriber whose turn it is, nil if none may have one more under way.
func (q *reports) next() *subscriberReports {
	for range q.turns {
		x := q.turns[0]
		q.turns = q.turns[1:]
		x.queued = false
		if q.mayHave(x) {
			return x
		}
		q.turn(x)
	}
	return nil
}

// sent notes that a report is under way, with a time-out.
func (q *reports) sent(tid uint32, x *subscriberReports, r waitingReport, timeout time.Duration) {
	x.open++
	if x.silent {
		q.silent++
	}
	q.open[tid] = openReport{waitingReport: r, to: x, silent: x.silent, end: time.Now().Add(timeout + 10*time.Second)}
	q.turn(x)
}

// ended takes the outcome of a report: an answer, or none within a try. lost is
// how many reports are given up with that.
func (q *reports) ended(tid uint32, answered bool, tries int) (lost int) {
	o := q.open[tid]
	delete(q.open, tid)
	x := o.to
	x.open--
	if o.silent {
		q.silent--
	}
	x.answered, x.silent = answered, !answered
	if !answered {
		o.tries++
		if o.tries < tries {
			x.wait = slices.Insert(x.wait, 0, o.waitingReport)
			q.n++
		} else {
			over := max(0, len(x.wait)-reportsKept)
			x.wait = slices.Delete(x.wait, 0, over)
			q.n -= over
			lost = 1 + over
		}
	}
	q.turn(x)
	return lost
}

// send reports events to subscribers.
func (s *Subnet) send(rs []sa.Report) {
	for i := range rs {
		if !s.served.reports.add(&rs[i]) {
			s.counters.Dropped++
		}
	}
	s.sendReports()
}

// sendReports sends what may be under way. The transport sends nothing again: a report that
// was not answered waits for its turn, as new ones do.
func (s *Subnet) sendReports() {
	q := s.served.reports
	timeout := 2 * s.cfg.Timeout
	if len(q.open) >= reportsOpen {
		// One whose outcome got lost must not count for ever.
		for tid, o := range q.open {
			if time.Now().After(o.end) {
				s.counters.Dropped += uint64(q.ended(tid, false, s.cfg.Retries+1))
			}
		}
	}
	for len(q.open) < reportsOpen {
		x := q.next()
		if x == nil {
			return
		}
		r := x.wait[0]
		x.wait = x.wait[1:]
		q.n--
		s.win.tid++
		tid := unslotted | s.win.tid&0x7fffffff
		p := transport.Packet{LID: x.at.lid, QPN: x.at.qp, MAD: *r.mad, Timeout: timeout}
		p.SL = s.served.admin.LevelTo(p.LID)
		mad.SetTID(&p.MAD, uint64(tid))
		if err := s.put(&p); err != nil {
			s.counters.Dropped++
			q.turn(x)
			continue
		}
		q.sent(tid, x, r, timeout)
	}
}

// reported takes the outcome of a report, and reports whether a packet is that.
func (s *Subnet) reported(p *transport.Packet) bool {
	tid := uint32(mad.TIDOf(&p.MAD))
	if _, ok := s.served.reports.open[tid]; !ok || mad.ClassOf(&p.MAD) != mad.ClassSA {
		return false
	}
	s.counters.Dropped += uint64(s.served.reports.ended(tid, p.Err == nil, s.cfg.Retries+1))
	s.sendReports()
	return true
}
