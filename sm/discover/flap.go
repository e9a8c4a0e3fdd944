package discover

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
)

// A link between switches that goes down again and again costs a sweep, new routes
// and lost packets each time. One that does so flapsMost times within flapWindow is
// left out of the routes for a while, longer each time, as long as every node is
// reached without it.
const (
	flapsMost     = 5
	flapWindow    = time.Minute
	suppressFirst = time.Minute
	suppressMost  = 16 * time.Minute
	flapForget    = time.Hour // without a flap, after which a link begins with suppressFirst
	flapLinks     = 1 << 10   // that are remembered
)

// Flaps remembers the links between switches that went down, and which of them are
// left out. The zero value is ready; it is one manager's, for all its walks.
type Flaps struct {
	ports map[partKey]*flap       // of both ends
	hosts map[partKey][]time.Time // when the links of hosts went down, at most flapsMost
}

type flap struct {
	ends     [2]partKey
	walk     time.Time     // of the last count: either end shows it
	at       []time.Time   // the last times that it went down, at most flapsMost
	until    time.Time     // left out until then, zero if it is not
	suppress time.Duration // how long it was left out last
	need     time.Time     // not left out again before that: it alone leads to a part
}

// note notes that a link went down, at most once for a walk. It gives how long the link
// is left out from now on, 0 if it is not or was before.
func (t *Flaps) note(ends [2]partKey, walk, now time.Time) time.Duration {
	for k, x := range t.ports {
		if x.until.IsZero() && now.Sub(x.at[len(x.at)-1]) > flapForget {
			delete(t.ports, k)
		}
	}
	x := t.ports[ends[0]]
	if x == nil || !x.joins(ends[0], ends[1]) {
		if len(t.ports) >= flapLinks {
			return 0
		}
		if t.ports == nil {
			t.ports = map[partKey]*flap{}
		}
		x = &flap{ends: ends}
		t.ports[ends[0]], t.ports[ends[1]] = x, x
	}
	if x.walk == walk {
		return 0
	}
	x.walk = walk
	if x.at = append(x.at, now); len(x.at) > flapsMost {
		x.at = slices.Delete(x.at, 0, 1)
	}
	if !x.until.IsZero() || len(x.at) < flapsMost || now.Sub(x.at[0]) > flapWindow || now.Before(x.need) {
		return 0
	}
	x.suppress = min(max(suppressFirst, 2*x.suppress), suppressMost)
	x.until = now.Add(x.suppress)
	return x.suppress
}

// host notes that the link between a switch's port and a host went down, and reports
// whether it did so flapsMost times within flapWindow, which then are forgotten. Nothing
// else leads to the host: the link stays in use.
func (t *Flaps) host(k partKey, now time.Time) bool {
	if len(t.hosts) >= flapLinks {
		maps.DeleteFunc(t.hosts, func(_ partKey, at []time.Time) bool { return now.Sub(at[len(at)-1]) > flapWindow })
	}
	at := append(t.hosts[k], now)
	if len(at) == flapsMost && now.Sub(at[0]) <= flapWindow {
		delete(t.hosts, k)
		return true
	}
	if t.hosts == nil {
		t.hosts = map[partKey][]time.Time{}
	}
	if len(t.hosts) < flapLinks || len(at) > 1 {
		t.hosts[k] = at[max(0, len(at)-flapsMost+1):]
	}
	return false
}

// joins reports whether a link is the one between two ports.
func (x *flap) joins(a, b partKey) bool {
	return x.ends == [2]partKey{a, b} || x.ends == [2]partKey{b, a}
}

// suppressed reports whether the link between two ports is left out.
func (t *Flaps) suppressed(a, b partKey) bool {
	x := t.ports[a]
	return x != nil && !x.until.IsZero() && x.joins(a, b)
}

// Next is when the first link that is left out is retried, zero for none.
func (t *Flaps) Next() (next time.Time) {
	for _, x := range t.ports {
		if !x.until.IsZero() && (next.IsZero() || x.until.Before(next)) {
			next = x.until
		}
	}
	return next
}

// LeftOut gives the links that are left out, by the port that comes first, until when.
func (t *Flaps) LeftOut() (out []LeftOut) {
	for k, x := range t.ports {
		if !x.until.IsZero() && k.node == min(x.ends[0].node, x.ends[1].node) {
			out = append(out, LeftOut{k.node, k.port, x.until})
		}
	}
	slices.SortFunc(out, func(a, b LeftOut) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Port, b.Port)) })
	return out
}

// LeftOut is a link that goes down too often.
type LeftOut struct {
	Node  ib.GUID
	Port  uint8
	Until time.Time // it is left out of the routes
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
	if !d.resumed || d.opt.Now == nil || !x.sw() {
		return
	}
	ends := [2]partKey{k}
	switch f := d.opt.Flaps.ports[k]; {
	case q.peer >= 0 && d.nodes[q.peer].sw():
		ends[1] = partKey{d.nodes[q.peer].ni.NodeGUID, q.peerP}
	case q.peer < 0 && f != nil && !f.until.IsZero():
		ends = f.ends
	default:
		if q.peer >= 0 && d.opt.Flaps.host(k, d.opt.Now()) {
			d.res.Flapping = append(d.res.Flapping, fmt.Sprintf("the link at port %s[%d] went down %d times within %v; it stays in use, "+
				"because no other link leads to %s: check the cable and both ports", x.name(), p, flapsMost, flapWindow, d.nodes[q.peer].name()))
		}
		return
	}
	if off := d.opt.Flaps.note(ends, d.clock.began, d.opt.Now()); off != 0 {
		d.res.Flapping = append(d.res.Flapping, fmt.Sprintf("the link at port %s[%d] went down %d times within %v; it is left out "+
			"of the routes for %v, then tried again: check the cable and both ports, then: ibnetsm resweep",
			x.name(), p, flapsMost, flapWindow, off))
	}
}

// leftOut reports whether the link between port p of node i and a port of another
// switch is left out. A walk of everything leaves nothing out: see Result.Lost.
func (d *Discovery) leftOut(i int32, p uint8, ni *mad.NodeInfo) bool {
	return d.resumed && ni.NodeType == ib.NodeSwitch &&
		d.opt.Flaps.suppressed(partKey{d.nodes[i].ni.NodeGUID, p}, partKey{ni.NodeGUID, ni.LocalPortNum})
}
