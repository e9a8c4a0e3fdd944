package discover

import (
	"fmt"
	"slices"
	"time"

	"ibnetworkd/ib"
)

// A link between switches that goes down again and again costs a sweep, new routes
// and lost packets each time. One that does so flapsMost times within flapWindow is
// left out of the routes for a while, longer each time, as long as every node is
// reached without it.
const (
	flapsMost  = 5
	flapWindow = time.Minute
	holdFirst  = time.Minute
	holdMost   = 16 * time.Minute
	flapForget = time.Hour // without a flap, after which a link begins with holdFirst
	flapLinks  = 1 << 10   // that are remembered
)

// Flaps remembers the links between switches that went down, and which of them are
// left out. The zero value is ready; it is one manager's, for all its walks.
type Flaps struct {
	ports map[partKey]*flap
}

type flap struct {
	at    []time.Time   // the last times that it went down, at most flapsMost
	until time.Time     // left out until then, zero if it is not
	hold  time.Duration // how long it was left out last
	need  time.Time     // not left out again before that: it alone leads to a part
}

// note notes that a port went down. It gives how long the link is left out from now
// on, 0 if it is not or was before.
func (t *Flaps) note(k partKey, now time.Time) time.Duration {
	for k, x := range t.ports {
		if x.until.IsZero() && now.Sub(x.at[len(x.at)-1]) > flapForget {
			delete(t.ports, k)
		}
	}
	x := t.ports[k]
	if x == nil {
		if len(t.ports) == flapLinks {
			return 0
		}
		if t.ports == nil {
			t.ports = map[partKey]*flap{}
		}
		x = &flap{}
		t.ports[k] = x
	}
	if x.at = append(x.at, now); len(x.at) > flapsMost {
		x.at = slices.Delete(x.at, 0, 1)
	}
	if !x.until.IsZero() || len(x.at) < flapsMost || now.Sub(x.at[0]) > flapWindow || now.Before(x.need) {
		return 0
	}
	x.hold = min(max(holdFirst, 2*x.hold), holdMost)
	x.until = now.Add(x.hold)
	return x.hold
}

// held reports whether a port's link is left out.
func (t *Flaps) held(k partKey) bool {
	x := t.ports[k]
	return x != nil && !x.until.IsZero()
}

// Next is when the first link that is left out is tried again, zero for none.
func (t *Flaps) Next() (next time.Time) {
	for _, x := range t.ports {
		if !x.until.IsZero() && (next.IsZero() || x.until.Before(next)) {
			next = x.until
		}
	}
	return next
}

// Release ends what is over at that time and gives the switches to read again.
func (t *Flaps) Release(now time.Time) (switches []ib.GUID) {
	for k, x := range t.ports {
		if !x.until.IsZero() && !now.Before(x.until) {
			x.until, x.at = time.Time{}, x.at[len(x.at)-1:]
			switches = append(switches, k.node)
		}
	}
	slices.Sort(switches)
	return switches
}

// Need ends all of it, for an hour: without those links a part is out of reach.
func (t *Flaps) Need(now time.Time) {
	for _, x := range t.ports {
		if !x.until.IsZero() {
			x.until, x.need = time.Time{}, now.Add(time.Hour)
		}
	}
}

// Clear ends all of it and gives the switches to read again.
func (t *Flaps) Clear() (switches []ib.GUID) {
	for k, x := range t.ports {
		if !x.until.IsZero() {
			switches = append(switches, k.node)
		}
	}
	t.ports = nil
	slices.Sort(switches)
	return switches
}

// wentDown notes that the link of a switch's port went down.
func (d *Discovery) wentDown(i int32, p uint8) {
	x := &d.nodes[i]
	q, k := x.ports.at(int(p)), partKey{x.ni.NodeGUID, p}
	if d.opt.Now == nil || !x.sw() || q.peer >= 0 && !d.nodes[q.peer].sw() || q.peer < 0 && d.opt.Flaps.ports[k] == nil {
		return
	}
	if hold := d.opt.Flaps.note(k, d.opt.Now()); hold != 0 {
		d.res.Held = append(d.res.Held, fmt.Sprintf("the link at port %s[%d] went down %d times within %v; it is left out of the routes for %v, "+
			"then tried again: check the cable and both ports", x.name(), p, flapsMost, flapWindow, hold))
	}
}

// leftOut reports whether a link is left out of a walk that begins with what is known.
func (d *Discovery) leftOut(g ib.GUID, p uint8) bool {
	if d.resumed && d.opt.Flaps.held(partKey{g, p}) {
		d.skipped = true
		return true
	}
	return false
}
