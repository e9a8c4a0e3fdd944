package engine

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// A port that sends the same trap without end costs a sweep, and a report to each
// subscriber, for each of them. One that goes on is throttled: its trap is answered,
// and acted on once in babbleEvery, until it has not come for babbleQuiet. The port
// stays up: what opensm's babbling_port_policy does, to disable it, takes a host or a
// part of the subnet off for a counter that a bad cable increments.
const (
	babbleRate  = 10  // a second, which are no reason
	babbleBurst = 200 // above that: a switch reports each of its ports that comes up
	babbleQuiet = time.Minute
	babbleEvery = time.Second
	babblesMost = 1 << 12 // that are remembered
)

// babbler is a sender and a trap number.
type babbler struct {
	from source
	trap uint16
}

// babble is how often that trap came: a bucket that babbleRate empties.
type babble struct {
	level float64
	at    time.Time // when it came last
	since time.Time // when the bucket was empty
	n     int       // how often since then
	quiet bool
	acted time.Time   // when it was last acted on
	left  *mad.Notice // came since then
}

// babbles are the traps that came lately. The zero value is ready.
type babbles struct {
	of    map[babbler]*babble
	quiet int // how many of them are quiet
}

// came counts a trap and reports whether it is to be acted on now. rate is above 0 for
// the one with which quiet begins: how many come in a second.
func (t *babbles) came(k babbler, n *mad.Notice, now time.Time) (act bool, rate float64) {
	b := t.of[k]
	if b == nil {
		if len(t.of) >= babblesMost && !t.forget(now) {
			return true, 0
		}
		if t.of == nil {
			t.of = map[babbler]*babble{}
		}
		b = &babble{}
		t.of[k] = b
	}
	if b.drain(now); b.level == 0 {
		t.wake(b)
		b.since, b.n = now, 0
	}
	b.level, b.n = min(b.level+1, babbleRate*babbleQuiet.Seconds()), b.n+1
	switch {
	case !b.quiet && b.level < babbleBurst:
		return true, 0
	case !b.quiet:
		b.quiet, b.acted, b.left, b.level = true, now, nil, babbleRate*babbleQuiet.Seconds()
		t.quiet++
		return true, float64(b.n) / max(now.Sub(b.since).Seconds(), 1)
	}
	b.left = new(*n)
	return false, 0
}

func (b *babble) drain(now time.Time) {
	b.level = max(0, b.level-babbleRate*now.Sub(b.at).Seconds())
	b.at = now
}

func (t *babbles) wake(b *babble) {
	if b.quiet {
		b.quiet = false
		t.quiet--
	}
}

// forget drops what is over, and reports whether there was any.
func (t *babbles) forget(now time.Time) bool {
	n := len(t.of)
	for k, b := range t.of {
		if b.drain(now); b.level == 0 && b.left == nil {
			t.wake(b)
			delete(t.of, k)
		}
	}
	return len(t.of) < n
}

// next is when something is to be done, zero for never.
func (t *babbles) next() (next time.Time) {
	if t.quiet == 0 {
		return next
	}
	for _, b := range t.of {
		if !b.quiet {
			continue
		}
		at := b.at.Add(time.Duration(math.Ceil(b.level/babbleRate*1000)) * time.Millisecond)
		if b.left != nil {
			at = b.acted.Add(babbleEvery)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// due gives the traps to act on now, and those that are no longer quiet; with all it
// ends quiet for every one.
func (t *babbles) due(now time.Time, all bool) (act []mad.Notice, over []babbler) {
	if t.quiet == 0 {
		return nil, nil
	}
	for _, k := range slices.SortedFunc(maps.Keys(t.of), babbler.compare) {
		b := t.of[k]
		if !b.quiet {
			continue
		}
		if b.left != nil && (all || now.Sub(b.acted) >= babbleEvery) {
			act = append(act, *b.left)
			b.acted, b.left = now, nil
		}
		if b.drain(now); all || b.level == 0 && b.left == nil {
			over = append(over, k)
			t.wake(b)
			delete(t.of, k)
		}
	}
	return act, over
}

// loud gives those that are acted on at intervals.
func (t *babbles) loud() (out []babbler) {
	if t.quiet == 0 {
		return nil
	}
	for k, b := range t.of {
		if b.quiet {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, babbler.compare)
	return out
}

func (k babbler) compare(o babbler) int {
	return cmp.Or(cmp.Compare(k.from.kind, o.from.kind), cmp.Compare(k.from.id, o.from.id), cmp.Compare(k.trap, o.trap))
}

// babbling reports whether a trap is left for later because its port sends it without
// end. One without a LID, which may be of any port, is not.
func (s *Subnet) babbling(p *transport.Packet, n *mad.Notice) bool {
	if !p.LID.IsUnicast() {
		return false
	}
	k := babbler{s.self.senders.Load().source(p), n.TrapNumber}
	if !knownTrap(k.trap) {
		k.trap = 0
	}
	act, rate := s.babbles.came(k, n, time.Now())
	if rate > 0 {
		_, port := n.DetailPort()
		where := s.sourceName(k.from)
		if port != 0 && n.TrapNumber >= mad.TrapLocalIntegrity && n.TrapNumber <= mad.TrapFlowWatchdog {
			where = fmt.Sprintf("%s, for port %d,", where, port)
		}
		s.log.Warn("a port sends a trap too often", "problem", fmt.Sprintf("%s sends trap %d %.0f times a second; it is answered, and acted on "+
			"every %v at most until it has not come for %v: check the cables and the firmware of that node, then: ibnetsm resweep",
			where, n.TrapNumber, rate, babbleEvery, babbleQuiet))
	}
	if !act {
		s.counters.Quiet++
	}
	return !act
}

// sourceName is how a sender is shown.
func (s *Subnet) sourceName(from source) string {
	if from.kind != fromPort {
		return fmt.Sprintf("LID %v", ib.LID(from.id))
	}
	g := ib.GUID(from.id)
	if f := s.prog.fabric; f != nil {
		if at := f.EndPortByGUID(g); at != fabric.None {
			return fmt.Sprintf("port %s (%v, LID %v)", f.PortName(at), g, f.Ports[at].LID)
		}
	}
	return fmt.Sprintf("port %v", g)
}

// unbabble acts on traps that were left, and reports ports that are quiet again; with
// all every one.
func (s *Subnet) unbabble(now time.Time, all bool) {
	act, over := s.babbles.due(now, all)
	for i := range act {
		why := s.ev.reason
		s.act(&act[i])
		s.ev.reason = why // no line in the log each time
	}
	for _, k := range over {
		s.log.Info("each trap is acted on again", "from", s.sourceName(k.from), "trap", k.trap)
	}
}
