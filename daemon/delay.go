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

// delay is an operation that failed.
type delay struct {
	why     link.Reason
	op      link.Op
	refused bool
	since   time.Time
	wait    time.Duration
	next    time.Time
}

// delays are the operations not to be tried now, by link.DelayKey.
type delays struct {
	m map[string]*delay
	// last remembers those that have been let go, so that failing again waits
	// longer, for as long as the longest wait.
	last map[string]*delay
}

func newDelays() *delays {
	return &delays{m: map[string]*delay{}, last: map[string]*delay{}}
}

func (h *delays) add(op link.Op, why link.Reason, refused bool, now time.Time) {
	maps.DeleteFunc(h.last, func(_ string, x *delay) bool { return now.Sub(x.next) > refuseMost })
	key := link.DelayKey(op)
	first, most := retryFirst, retryMost
	if refused {
		first, most = refuseFirst, refuseMost
	}
	wait := first
	if x := h.last[key]; x != nil && x.wait >= first {
		wait = min(2*x.wait, most)
	}
	h.m[key] = &delay{why: why, op: op, refused: refused, since: now, wait: wait, next: now.Add(wait)}
	h.last[key] = h.m[key]
}

// done forgets what is known of an operation that has worked.
func (h *delays) done(op link.Op) {
	key := link.DelayKey(op)
	delete(h.m, key)
	delete(h.last, key)
}

// due lets go what has waited long enough, and says of which links.
func (h *delays) due(now time.Time) (on []link.Target) {
	for k, x := range h.m {
		if !now.Before(x.next) {
			on = append(on, x.op.Target())
			delete(h.m, k)
		}
	}
	return on
}

// next is when the next one is due; zero for none.
func (h *delays) next() (t time.Time) {
	for _, x := range h.m {
		if t.IsZero() || x.next.Before(t) {
			t = x.next
		}
	}
	return t
}

// settle is the least time between two tries that events bring about.
const settle = 250 * time.Millisecond

// event lets go what may pass on the links where something happened, and with ports
// on what is no link; with everything also what was refused there.
func (h *delays) event(names map[string]bool, ports, everything bool, now time.Time) {
	maps.DeleteFunc(h.m, func(_ string, x *delay) bool {
		on := x.op.Target().Link
		return (names[on] || on == "" && ports) && (everything || !x.refused && now.Sub(x.since) >= settle)
	})
}

// forget drops the operations that match, whatever they wait for.
func (h *delays) forget(match func(link.Op) bool) {
	maps.DeleteFunc(h.m, func(_ string, x *delay) bool { return match(x.op) })
}

// reasons is the planner's view.
func (h *delays) reasons() map[string]link.Reason {
	if len(h.m) == 0 {
		return nil
	}
	out := make(map[string]link.Reason, len(h.m))
	for k, x := range h.m {
		out[k] = x.why
	}
	return out
}
