package daemon

import (
	"maps"
	"time"

	"ibnetworkd/link"
)

// Back-off of failed operations: what may pass is tried again soon, what was
// refused now and then. Nothing is given up for good.
const (
	retryFirst  = 500 * time.Millisecond
	retryMost   = time.Minute
	refuseFirst = 30 * time.Second
	refuseMost  = 15 * time.Minute
)

// hold is an operation that failed.
type hold struct {
	why     link.Reason
	op      link.Op
	refused bool
	since   time.Time
	wait    time.Duration
	next    time.Time
}

// holds are the operations not to be tried now, by link.HoldKey.
type holds struct {
	m map[string]*hold
	// last remembers those that have been let go, so that failing again waits
	// longer, for as long as the longest wait.
	last map[string]*hold
}

func newHolds() *holds {
	return &holds{m: map[string]*hold{}, last: map[string]*hold{}}
}

func (h *holds) add(op link.Op, why link.Reason, refused bool, now time.Time) {
	maps.DeleteFunc(h.last, func(_ string, x *hold) bool { return now.Sub(x.next) > refuseMost })
	key := link.HoldKey(op)
	first, most := retryFirst, retryMost
	if refused {
		first, most = refuseFirst, refuseMost
	}
	wait := first
	if x := h.last[key]; x != nil && x.wait >= first {
		wait = min(2*x.wait, most)
	}
	h.m[key] = &hold{why: why, op: op, refused: refused, since: now, wait: wait, next: now.Add(wait)}
	h.last[key] = h.m[key]
}

// done forgets what is known of an operation that has worked.
func (h *holds) done(op link.Op) {
	key := link.HoldKey(op)
	delete(h.m, key)
	delete(h.last, key)
}

// due lets go what has waited long enough, and says of which links.
func (h *holds) due(now time.Time) (on []link.Target) {
	for k, x := range h.m {
		if !now.Before(x.next) {
			on = append(on, x.op.Target())
			delete(h.m, k)
		}
	}
	return on
}

// next is when the next one is due; zero for none.
func (h *holds) next() (t time.Time) {
	for _, x := range h.m {
		if t.IsZero() || x.next.Before(t) {
			t = x.next
		}
	}
	return t
}

// settle is the least time between two tries that events bring about.
const settle = 250 * time.Millisecond

// event lets go what may pass on the links where something happened; with
// everything also what was refused there.
func (h *holds) event(names map[string]bool, everything bool, now time.Time) {
	maps.DeleteFunc(h.m, func(_ string, x *hold) bool {
		return names[x.op.Target().Link] && (everything || !x.refused && now.Sub(x.since) >= settle)
	})
}

// forget drops the operations that match, whatever they wait for.
func (h *holds) forget(match func(link.Op) bool) {
	maps.DeleteFunc(h.m, func(_ string, x *hold) bool { return match(x.op) })
}

// reasons is the planner's view.
func (h *holds) reasons() map[string]link.Reason {
	if len(h.m) == 0 {
		return nil
	}
	out := make(map[string]link.Reason, len(h.m))
	for k, x := range h.m {
		out[k] = x.why
	}
	return out
}
