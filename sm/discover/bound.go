package discover

import (
	"fmt"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/smp"
)

// A malicious device can answer as an endless subnet behind its one link. A part
// that is connected by one link alone is walked to a limit at first, so that the
// rest of the subnet does not wait for it; a later walk has a larger limit, and what
// exceeds that is left out. A tree of switches never gets the larger one: a real
// subnet of some size is meshed, almost every switch is reached in two ways.

// limit is what a part behind one link may take.
type limit struct {
	switches, nodes, ports, smps int32
	time                         time.Duration // if it answers slowly
}

const (
	switchesMost = 256
	nodesMost    = 1 << 12
)

var limits = [...]limit{
	{switchesMost, nodesMost, 1 << 19, 1 << 14, time.Second},
	{1 << 12, 1 << 14, 1 << 19, 1 << 19, 4 * time.Second},
}

// partsMost bounds what Parts remembers, cutsMost how many parts may be left out
// within a larger one before that is left out.
const (
	partsMost = 1 << 10
	cutsMost  = 8
)

// slow is the mean time to an answer from which on a part's time counts.
const slow = 20 * time.Millisecond

// Parts remembers the links behind which a walk left nodes out. The zero value is
// ready; it is one manager's, for all its walks.
type Parts struct {
	tries map[partKey]uint8
}

type partKey struct {
	node ib.GUID
	port uint8
}

// limit is what may be behind a link.
func (t *Parts) limit(k partKey) *limit {
	if t.tries[k] == 1 {
		return &limits[1]
	}
	return &limits[0]
}

// exceeded notes that a part was larger than its limit; it reports whether the next
// walk has a larger one.
func (t *Parts) exceeded(k partKey) bool {
	if t.tries == nil || len(t.tries) >= partsMost {
		t.tries = map[partKey]uint8{}
	}
	t.tries[k] = min(t.tries[k]+1, 2)
	return t.tries[k] == 1
}

// clock measures a walk.
type clock struct {
	began, checked time.Time
	sent           map[uint64]time.Time
	took           time.Duration // of all requests
	slow           bool          // a node took longer than slow for each: no part does without one
}

// checkEvery is how often a long walk checks its parts.
const checkEvery = 250 * time.Millisecond

// tick reports whether the walk's time is over.
func (d *Discovery) tick() bool {
	if d.opt.Now == nil {
		return false
	}
	c, now := &d.clock, d.opt.Now()
	if c.began.IsZero() {
		c.began, c.checked, c.sent = now, now, map[uint64]time.Time{}
	}
	if c.slow && now.Sub(c.checked) >= checkEvery {
		c.checked = now
		d.bound()
	}
	return now.Sub(c.began) > d.opt.MaxTime
}

// sent notes a request, answered its outcome.
func (d *Discovery) sent(t uint64) {
	if k, _, i, _ := untag(t); k != kRoot {
		d.nodes[i].smps++
	}
	if d.opt.Now != nil {
		d.clock.sent[t] = d.opt.Now()
	}
}

func (d *Discovery) answered(t uint64) {
	at, ok := d.clock.sent[t]
	if !ok {
		return
	}
	delete(d.clock.sent, t)
	took := d.opt.Now().Sub(at)
	d.clock.took += took
	if k, _, i, _ := untag(t); k != kRoot {
		x := &d.nodes[i]
		x.took += took
		d.clock.slow = d.clock.slow || x.took > time.Duration(x.smps)*slow
	}
}

// treeLeast is how many switches of a part must have been walked before it is
// judged by its size.
const treeLeast = 3

// grown reports whether enough was found since the last bound.
func (d *Discovery) grown() bool {
	if d.switches < d.checkSwitches && len(d.nodes) < d.checkNodes && d.asked < d.checkAsked {
		return false
	}
	d.checkSwitches = d.switches + max(switchesMost/4, d.switches/4)
	d.checkNodes = len(d.nodes) + max(nodesMost/4, len(d.nodes)/4)
	d.checkAsked = d.asked + max(1<<12, d.asked/4)
	return true
}

// sums are what a part consists of.
type sums struct {
	nodes, switches, ports, smps int32
	done, hang                   int32 // switches that were walked; those of them that one link connects
	cuts                         int32 // parts of it that were left out
	took                         time.Duration
}

func (a *sums) add(b *sums) {
	a.nodes += b.nodes
	a.switches += b.switches
	a.ports += b.ports
	a.smps += b.smps
	a.done += b.done
	a.hang += b.hang
	a.cuts += b.cuts
	a.took += b.took
}

// part is what is attached to a port alone, and why it is too much.
type part struct {
	from int32
	port uint8
	node int32
	tree bool
}

// judge reports whether what is attached to a link is too much, and why.
func (d *Discovery) judge(p *part, a *sums) bool {
	l := d.opt.Parts.limit(partKey{d.nodes[p.from].ni.NodeGUID, p.port})
	late := a.switches >= treeLeast && a.took > time.Duration(a.smps)*slow && 2*a.took > d.clock.took &&
		d.clock.checked.Sub(d.clock.began) > l.time
	if late || a.smps > l.smps || a.cuts > cutsMost {
		return true
	}
	if a.done < treeLeast {
		return false
	}
	p.tree = (a.switches > switchesMost || a.nodes > nodesMost) && a.hang*2 > a.done
	return p.tree || a.switches > l.switches || a.nodes > l.nodes || a.ports > l.ports
}

// bound leaves out the smallest parts that one link connects and that are too large.
func (d *Discovery) bound() {
	type frame struct {
		node int32
		port int // the next to follow
		via  int // the port that it was entered by, -1 of the root
	}
	if d.root < 0 {
		return
	}
	n := len(d.nodes)
	num := make([]int32, n) // order of the search from 1, 0 not reached
	low := make([]int32, n) // the first in that order that a node's part is linked to
	sum := make([]sums, n)
	judged := make([]bool, n)
	var parts []part
	next := int32(0)
	enter := func(i int32) {
		next++
		x := &d.nodes[i]
		num[i], low[i], sum[i] = next, next, sums{nodes: 1, ports: int32(x.ports.n), smps: x.smps, cuts: x.cuts, took: x.took}
		if x.sw() {
			sum[i].switches = 1
		}
		if x.explored {
			sum[i].done = 1
		}
	}
	enter(d.root)
	stack := []frame{{d.root, 0, -1}}
	for len(stack) > 0 {
		t := &stack[len(stack)-1]
		x := &d.nodes[t.node]
		if t.port < x.ports.n {
			p := t.port
			t.port++
			peer, entry := x.ports.link(p)
			switch {
			case peer < 0 || p == t.via || d.nodes[peer].out || !x.sw() && (t.node != d.root || p != int(d.rootP)):
			case num[peer] != 0:
				// An adapter forwards nothing: a cable to one joins no parts.
				if d.nodes[peer].sw() {
					low[t.node] = min(low[t.node], num[peer])
				}
			default:
				enter(peer)
				stack = append(stack, frame{peer, 0, int(entry)})
			}
			continue
		}
		v := t.node
		stack = stack[:len(stack)-1]
		if len(stack) == 0 {
			break
		}
		u := &stack[len(stack)-1]
		low[u.node] = min(low[u.node], low[v])
		bridge := low[v] == num[v]
		if bridge && d.nodes[v].explored {
			sum[v].hang++
		}
		if p := (part{from: u.node, port: uint8(u.port - 1), node: v}); bridge && !judged[v] && u.node != d.root && d.judge(&p, &sum[v]) {
			parts = append(parts, p)
			judged[v] = true
		} else if bridge && sum[v].done < treeLeast && (sum[v].switches > switchesMost || sum[v].nodes > nodesMost) {
			judged[v] = true // too early: what it is attached to is not judged by its size
		}
		sum[u.node].add(&sum[v])
		judged[u.node] = judged[u.node] || judged[v]
	}
	for _, p := range parts {
		d.leaveOut(p)
	}
}

// leaveOut takes what is attached to a port out of the walk.
func (d *Discovery) leaveOut(t part) {
	i, p, v := t.from, t.port, t.node
	d.nodes[i].ports.at(int(p)).peer = -1
	count := 0
	out := func(j int32) {
		d.drop(j)
		count++
	}
	var adapters []int32
	for q := []int32{v}; len(q) > 0; {
		j := q[len(q)-1]
		q = q[:len(q)-1]
		x := &d.nodes[j]
		switch {
		case x.out || j == i:
			continue
		case !x.sw():
			adapters = append(adapters, j)
			continue
		}
		for k := range x.ports.n {
			if o := x.ports.get(k); o.peer >= 0 {
				q = append(q, o.peer)
			}
		}
		out(j)
	}
	for _, j := range adapters {
		if x := &d.nodes[j]; !x.out && !d.elsewhere(j, i, p) {
			out(j)
		}
	}
	d.nodes[i].cuts++
	why := "whose switches are connected by one link each: no real subnet is like that; they are left out"
	if !t.tree {
		why = "that only this link connects, more than are accepted behind one link; they are left out"
		if d.opt.Parts.exceeded(partKey{d.nodes[i].ni.NodeGUID, p}) {
			why = "that only this link connects; the rest of the subnet is served first"
		}
	}
	d.silent(i, p, fmt.Sprintf("behind port %s[%d], path %s, are %d nodes and more, %s", d.nodes[i].name(), p,
		PathString(smp.PathTo(d.nodes[i].path, p)), count, why))
}

// elsewhere unplugs the ports of an adapter that are linked with nodes left out or
// with port p of node i, and reports whether another one has a link.
func (d *Discovery) elsewhere(j, i int32, p uint8) (linked bool) {
	x := &d.nodes[j]
	for k := range x.ports.n {
		switch o := x.ports.get(k); {
		case o.peer < 0:
		case d.nodes[o.peer].out || o.peer == i && o.peerP == p:
			d.unplugged(j, uint8(k))
		default:
			linked = true
		}
	}
	return linked
}

// stop ends the walk with what was found.
func (d *Discovery) stop(format string, most any) {
	d.urgent, d.back, d.turns = queue{}, queue{}, queue{}
	if d.stopped {
		return
	}
	d.stopped = true
	d.lasting(-1, "the walk has taken "+format+" and is ended; what was not found by then is left out", most)
}
