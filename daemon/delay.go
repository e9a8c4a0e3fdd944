package daemon

import (
	"maps"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/backoff"
	"ibnetworkd/link"
)

// Back-off of failed operations: what may pass is retried soon, what was
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
	// states are those of its link that the attempt found or caused, from the first.
	// running is set until the next cycle begins.
	states  []linkState
	running bool
	// events is how many attempts in a row, this one included, were brought about by an event;
	// early is set once the next one is.
	events int
	early  bool
}

// linkState is what an operation may depend on and an attempt may change, which then comes
// back by itself. The zero value is that of no link.
type linkState struct {
	index   int
	device  string
	mode    ib.IPoIBMode
	carrier bool
}

func stateOf(l *link.Link) (s linkState) {
	if l != nil {
		s.index, s.device, s.carrier = l.Index, l.IBDevice, l.Carrier()
		if l.IPoIB != nil {
			s.mode = l.IPoIB.Mode
		}
	}
	return s
}

// disturbed reports that the attempt took the carrier of its link away: what happens there until
// it is as before is not news.
func (x *delay) disturbed() bool {
	return slices.ContainsFunc(x.states, func(s linkState) bool { return s.carrier != x.states[0].carrier })
}

// delays are the operations not to be tried now, by link.DelayKey.
type delays struct {
	m map[string]*delay
	// last remembers those that are planned again, so that another failure waits
	// longer, for as long as the longest wait.
	last map[string]*delay
	// down are the links that were taken down in the present cycle.
	down map[string]bool
}

func newDelays() *delays {
	return &delays{m: map[string]*delay{}, last: map[string]*delay{}, down: map[string]bool{}}
}

// add has an operation wait that failed on a link in a state.
func (h *delays) add(op link.Op, why link.Reason, refused bool, on linkState, now time.Time) {
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
	events := 0
	if x := h.last[key]; x != nil && x.early {
		events = x.events + 1
	}
	h.m[key] = &delay{why: why, op: op, refused: refused, since: now, wait: wait, next: now.Add(wait),
		states: []linkState{on}, running: true, events: events}
	if h.down[op.Target().Link] {
		back := on
		back.carrier = !on.carrier
		h.m[key].states = append(h.m[key].states, back)
	}
	h.last[key] = h.m[key]
}

// done forgets what is known of an operation that has worked.
func (h *delays) done(op link.Op) {
	key := link.DelayKey(op)
	delete(h.m, key)
	delete(h.last, key)
	if o, ok := op.(link.SetUp); ok && !o.Up {
		h.down[o.On.Link] = true
	}
}

// due has the operations planned again that have waited long enough, and gives their links.
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

// settle is the least time between two tries that events bring about; it doubles with each
// try that fails again.
const settle = 250 * time.Millisecond

// begin notes the start of a cycle.
func (h *delays) begin() {
	clear(h.down)
	for _, x := range h.m {
		x.running = false
	}
}

// caused notes states of links, by name, that were read in the cycle of an attempt: they are its
// own doing. A carrier that was not there before, or another interface, is news.
func (h *delays) caused(states map[string]linkState) {
	for _, x := range h.m {
		s, ok := states[x.op.Target().Link]
		if ok && x.running && s.index == x.states[0].index && (x.states[0].carrier || !s.carrier) && !slices.Contains(x.states, s) {
			x.states = append(x.states, s)
		}
	}
}

// changed has operations planned again on links that changed, by name: those that may pass, and
// refused ones if the link is neither as the attempt found it nor as it left it.
func (h *delays) changed(states map[string]linkState, now time.Time) {
	for key, x := range h.m {
		switch s, ok := states[x.op.Target().Link]; {
		case !ok:
		case !slices.Contains(x.states, s):
			h.hasten(key, now)
		case !x.refused && !x.disturbed() && now.Sub(x.since) >= settle:
			h.hasten(key, now)
		}
	}
}

// ports has all operations planned again on ports that changed: those of links, by name with
// whether they are InfiniBand, and those without. The state of an Ethernet port follows its link.
func (h *delays) ports(infiniband map[string]bool, now time.Time) {
	for key, x := range h.m {
		on := x.op.Target().Link
		if ib, ok := infiniband[on]; on == "" || ok && (ib || !x.disturbed()) {
			h.hasten(key, now)
		}
	}
}

// hasten has an operation planned again because of an event, now or when enough time has passed
// since the last attempt.
func (h *delays) hasten(key string, now time.Time) {
	x := h.m[key]
	x.early = true
	t := x.since
	if x.events > 0 {
		t = t.Add(min(settle<<min(x.events, 16), x.wait))
	}
	if now.Before(t) {
		x.next = backoff.Sooner(x.next, t)
		return
	}
	delete(h.m, key)
}

// request drops everything on the links, by name, and with ports on what is no link.
func (h *delays) request(names map[string]bool, ports bool) {
	h.forget(func(op link.Op) bool { on := op.Target().Link; return names[on] || on == "" && ports })
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
