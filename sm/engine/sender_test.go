package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// asksBy is a Get(SMInfo) that arrived by a route, given as the ports that it came in
// by, the sender's first.
func asksBy(returns ...uint8) (p transport.Packet) {
	var data [64]byte
	mad.PutDR(&p.MAD, mad.MethodGet, mad.AttrSMInfo, 0, 1, 0, make([]uint8, len(returns)), data[:])
	var m mad.SMP
	m.Decode(&p.MAD)
	m.HopCount = uint8(len(returns))
	copy(m.Return[1:], returns)
	m.Put(&p.MAD)
	return p
}

// A port is one sender, whichever of its LIDs and routes it uses; unknown ports are
// distinguished by their LIDs and by the first hops to them.
func TestSenders(t *testing.T) {
	f := gen.FatTree2(8, 4)
	hosts := slices.DeleteFunc(gen.Hosts(f), func(e int32) bool { return e == f.SMPort })
	a, b := hosts[0], hosts[1]
	f.Ports[a].LID, f.Ports[a].LMC = 8, 3
	f.Ports[b].LID = 16
	n := newSenders(f, f.LIDs())
	of := func(l ib.LID) source { return n.source(&transport.Packet{LID: l}) }
	for l := ib.LID(8); l < 16; l++ {
		if of(l) != of(8) || of(l).kind != fromPort {
			t.Errorf("LID %v is sender %v", l, of(l))
		}
	}
	if of(16) == of(8) || of(17) != (source{fromLID, 17}) {
		t.Error("senders are not told apart")
	}
	// Every loop-free route to a host is the host.
	far := hosts[len(hosts)-1]
	routes := 0
	var walk func(at int32, back []uint8)
	walk = func(at int32, back []uint8) {
		q := f.Ports[at].Peer
		if q == fabric.None || len(back) > 4 {
			return
		}
		r := append([]uint8{f.Ports[at].Num}, back...)
		if q == far {
			in := asksBy(r...)
			if s := n.source(&in); s != (source{fromPort, uint64(f.Ports[far].GUID)}) {
				t.Errorf("route %v: sender %v", r, s)
			}
			routes++
			return
		}
		if f.Nodes[f.Ports[q].Node].Switch == fabric.None {
			return
		}
		first, count := f.PortRange(f.Ports[q].Node)
		for p := first + 1; p < first+count; p++ {
			if p != q {
				walk(p, r)
			}
		}
	}
	walk(f.SMPort, nil)
	if routes < 2 {
		t.Errorf("%d routes", routes)
	}
	x, y, z := asksBy(9, 8, 7, 3, 2, 1), asksBy(5, 5, 5, 3, 2, 1), asksBy(9, 8, 7, 4, 2, 1)
	none := (*senders)(nil)
	if none.source(&x) != none.source(&y) || none.source(&x) == none.source(&z) {
		t.Error("unknown routes are not told apart by their first hops")
	}
}

// refuser is a transport that sends nothing.
type refuser struct{ transport.Transport }

func (refuser) Send(*transport.Packet) error { return errors.New("no") }

// A source whose requests find no free slot waits for one: it has not succeeded.
func TestNoSlotIsFree(t *testing.T) {
	s := New(refuser{}, Config{})
	most := s.win.most
	s.win.most = 0
	s.cmds <- func() { s.win.most = most }
	l := &smp.List{Requests: []smp.Request{{Method: mad.MethodGet, Attr: mad.AttrNodeInfo}}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.pump(ctx, l); err != nil || l.Failed != 1 {
		t.Errorf("%v, %d requests were made, want 1", err, l.Failed)
	}
}

// A Set that needs another key than it leaves is not repeated early; one that shows the
// manager's own key is, as one without.
func TestEarlyRepeats(t *testing.T) {
	for _, tt := range []struct {
		attr     mad.AttrID
		key, own ib.MKey
		want     bool
	}{{mad.AttrPortInfo, 0, 0, true}, {mad.AttrPortInfo, 0, 7, true}, {mad.AttrPortInfo, 7, 7, true}, {mad.AttrPortInfo, 8, 7, false},
		{mad.AttrPortInfo, 8, 0, false}, {mad.AttrSMInfo, 0, 0, false}} {
		if got := early(&smp.Request{Method: mad.MethodSet, Attr: tt.attr, MKey: tt.key}, tt.own); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// Each try of a request has a bit of its own, however often a caller wants repeats.
func TestMostRetries(t *testing.T) {
	if s := New(refuser{}, Config{Retries: 100}); s.cfg.Retries != RetriesMost || RetriesMost+quickTries > 63 {
		t.Errorf("%d repeats", s.cfg.Retries)
	}
}

// However many routes a host asks by, it has its share of the callers that are
// remembered.
func TestCallersOfOneSource(t *testing.T) {
	s := New(refuser{}, Config{})
	now := time.Now()
	add := func(r ...uint8) bool {
		p := asksBy(r...)
		id := callerOf(&p, (*senders)(nil).source(&p))
		if !s.admits(id, now) {
			return false
		}
		s.self.callers[id] = &caller{until: now.Add(callerKnown)}
		return true
	}
	n := 0
	for i := range 250 {
		if add(uint8(i), 7, 2, 1) {
			n++
		}
	}
	if n != callersEach || !add(9, 8, 2, 1) {
		t.Errorf("%d callers behind one port, want %d", n, callersEach)
	}
}

// An answer to a repeat while an earlier try is waited for proves loss; one to the
// earlier try shows that it was only slow, also after that.
func TestLossIsProven(t *testing.T) {
	now := time.Now()
	const both, first, second = 3, 0, 1
	l := loss{}
	if l.took(time.Millisecond, 1<<first, first, now) || l.took(time.Millisecond, 1<<second, second, now) || !l.patient.IsZero() {
		t.Error("one try proves something")
	}
	if l.took(time.Millisecond, both, first, now) || !now.Before(l.patient) || l.took(time.Millisecond, both, second, now) {
		t.Error("a slow answer proves loss")
	}
	now = now.Add(mistakeMemory)
	if !l.took(time.Millisecond, both, second, now) || !now.Before(l.until) {
		t.Error("loss is not proven")
	}
	for _, patience := range []time.Duration{1, 2, 4, 8, 16, 16} {
		if l.mistaken(now); now.Before(l.until) || l.patient.Sub(now) != patience*mistakeMemory {
			t.Errorf("after a mistake none is repeated early for %v, want %d s", l.patient.Sub(now), patience)
		}
		l.mistaken(now.Add(time.Millisecond)) // another try of that time
		now = l.patient
	}
	for range 100 {
		l.took(100*time.Microsecond, 1, first, now)
	}
	if d := l.overdue(time.Second); d != quickLeast || l.overdue(quickLeast) != 0 {
		t.Errorf("repeated after %v", d)
	}
}
