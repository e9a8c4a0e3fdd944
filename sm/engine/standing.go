package engine

import (
	"crypto/rand"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// standing is what the receiver answers Get(SMInfo) with, published whenever it
// changes; immutable.
type standing struct {
	info  mad.SMInfo
	trust elect.Trust
	known map[callerID]time.Time // callers that are shown the SM_Key, and until when
}

// election is the state machine, which publishes every change.
type election struct {
	*elect.Machine
	changed func()
}

func (e *election) SetGUID(g ib.GUID)   { e.Machine.SetGUID(g); e.changed() }
func (e *election) SetPriority(p uint8) { e.Machine.SetPriority(p); e.changed() }
func (e *election) Restart()            { e.Machine.Restart(); e.changed() }
func (e *election) Retire()             { e.Machine.Retire(); e.changed() }
func (e *election) Ignore(g ib.GUID)    { e.Machine.Ignore(g); e.changed() }

func (e *election) Discovered(peers []elect.Peer) elect.Action {
	defer e.changed()
	return e.Machine.Discovered(peers)
}

func (e *election) Polled(info *mad.SMInfo, dead bool) elect.Action {
	defer e.changed()
	return e.Machine.Polled(info, dead)
}

func (e *election) Received(mod uint32, p elect.Peer) elect.Action {
	defer e.changed()
	return e.Machine.Received(mod, p)
}

// setStanding publishes what the receiver answers with.
func (s *Subnet) setStanding() {
	n := &standing{info: s.elect.Info(0), trust: s.elect.Trust()}
	if o := s.self.standing.Load(); o != nil {
		n.known = o.known
	}
	s.self.standing.Store(n)
}

// asksSMInfo reports whether a packet is a request for SMInfo.
func asksSMInfo(p *transport.Packet) bool {
	m := mad.MethodOf(&p.MAD)
	return p.Err == nil && mad.ClassOf(&p.MAD).IsSMP() && mad.AttrOf(&p.MAD) == mad.AttrSMInfo && (m == mad.MethodGet || m == mad.MethodSet)
}

// answeredGet in Packet.Retries, which has no meaning on what was received,
// marks a Get(SMInfo) that the receiver has answered.
const answeredGet = 1

// answerSMInfo answers a Get in the receiver, unless the owner is to find out who
// asks before. It reports whether nothing is left to be done with it.
func (s *Subnet) answerSMInfo(p *transport.Packet, from source) bool {
	p.Retries = 0
	if mad.MethodOf(&p.MAD) != mad.MethodGet {
		return false
	}
	n := s.self.standing.Load()
	info := n.info
	a := n.trust.First(elect.Caller{MKey: mad.MKeyOf(&p.MAD)}, *mad.SMPData(&p.MAD) != [64]byte{})
	if a != elect.Show && time.Now().Before(n.known[callerOf(p, from)]) {
		a = elect.Show
	}
	switch a {
	case elect.AskBack:
		return false
	case elect.Hide:
		info.SMKey = 0
	}
	q := s.smInfoAnswer(p, info)
	if !s.answerCopy(n, p, &q) {
		n.prove(p, &q)
	}
	_ = s.put(&q)
	// Only a master records the caller.
	p.Retries = answeredGet
	return info.State != mad.SMMaster
}

// prove answers the nonce in a question, unless it lacks the M_Key.
func (n *standing) prove(p, answer *transport.Packet) {
	nonce := *mad.SMInfoProof(mad.SMPData(&p.MAD))
	var asker mad.SMInfo
	if n.trust.MKey != 0 && mad.MKeyOf(&p.MAD) != n.trust.MKey || nonce == [16]byte{} || asker.Decode(mad.SMPData(&p.MAD)[:]) != nil {
		return
	}
	*mad.SMInfoProof(mad.SMPData(&answer.MAD)) = n.trust.Proof(nonce, asker.GUID, n.info.GUID)
}

// smInfoAnswer is the answer to a Get.
func (s *Subnet) smInfoAnswer(p *transport.Packet, info mad.SMInfo) transport.Packet {
	info.ActCount = s.self.act.Add(1)
	out := turned(p, mad.MethodGetResp)
	data := mad.SMPData(&out.MAD)
	*data = [64]byte{}
	info.Append(data[:0])
	return out
}

// origin identifies an SMP's sender: the ports out on the way back, or the LID after
// a 0.
func origin(p *transport.Packet) string {
	if mad.ClassOf(&p.MAD) != mad.ClassSubnDR {
		return string([]byte{0, byte(p.LID >> 8), byte(p.LID)})
	}
	var m mad.SMP
	m.Decode(&p.MAD)
	n := min(int(m.HopCount), mad.MaxHops)
	back := slices.Clone(m.Return[1 : 1+n])
	slices.Reverse(back)
	return string(back)
}

// callerID names a caller: by its port where that is known, else by the route.
type callerID struct {
	from  source
	route string
}

func callerOf(p *transport.Packet, from source) callerID {
	if from.kind == fromPort {
		return callerID{from: from}
	}
	return callerID{from, origin(p)}
}

// caller is a sender that asked for SMInfo without proof.
type caller struct {
	until   time.Time // when it is asked again
	waiting []transport.Packet
	open    int // requests under way
	who     elect.Caller
}

const (
	callersMost    = 256
	callersEach    = 16 // of one source
	callersWaiting = 4
	// callerKnown is how long the outcome is valid.
	callerKnown = 10 * time.Second
)

// introduce answers a Get(SMInfo) after its sender was asked back: see
// elect.Trust. opensm gives no proof, but shows its key to a master. The question back has a payload, which is a sign not to ask again.
func (s *Subnet) introduce(p *transport.Packet) {
	id := callerOf(p, s.self.senders.Load().source(p))
	now := time.Now()
	c := s.self.callers[id]
	if c != nil && now.Before(c.until) {
		if c.open > 0 && len(c.waiting) < callersWaiting {
			c.waiting = append(c.waiting, *p)
			return
		}
		s.answerCaller(p, c)
		return
	}
	path, ok := s.wayBack(p)
	// A sweep may send all of its window.
	if !ok || !s.admits(id, now) || s.win.spare() < s.cfg.Window+3 {
		s.answerCaller(p, &caller{})
		return
	}
	c = &caller{until: now.Add(callerKnown), waiting: []transport.Packet{*p}}
	s.self.callers[id] = c
	var nonce [16]byte
	rand.Read(nonce[:])
	self := s.elect.Info(s.self.act.Load())
	self.SMKey = 0
	own := &pumped{Source: &smp.List{}, timeout: s.cfg.PollTimeout, retries: 1}
	own.done = func(a *smp.Reply) {
		var n mad.NodeInfo
		var i mad.SMInfo
		switch {
		case !a.OK():
		case a.Attr == mad.AttrNodeInfo && n.Decode(a.Data[:]) == nil:
			c.who.Port = n.PortGUID
		case a.Attr == mad.AttrSMInfo && i.Decode(a.Data[:]) == nil:
			c.who.Info = i
			c.who.Proven = s.elect.Trust().Proves(*mad.SMInfoProof(&a.Data), nonce, self.GUID, i.GUID)
		}
		if c.open--; c.open > 0 {
			return
		}
		if s.shows(c) {
			s.meet(id, c.until)
		}
		for i := range c.waiting {
			s.answerCaller(&c.waiting[i], c)
		}
		c.waiting = nil
	}
	c.open = 2
	for _, a := range []mad.AttrID{mad.AttrNodeInfo, mad.AttrSMInfo} {
		q := smp.Request{Method: mad.MethodGet, Attr: a, Path: path}
		if a == mad.AttrSMInfo {
			self.Append(q.Data[:0])
			*mad.SMInfoProof(&q.Data) = nonce
		}
		if s.sendRequest(own, &q) != nil {
			own.done(&smp.Reply{Request: q, Timeout: true})
		}
	}
}

// admits reports whether one more caller is remembered.
func (s *Subnet) admits(id callerID, now time.Time) bool {
	if len(s.self.callers) >= callersMost {
		for k, o := range s.self.callers {
			if now.After(o.until) {
				delete(s.self.callers, k)
			}
		}
	}
	if len(s.self.callers) >= callersMost {
		return false
	}
	n := 0
	for k, o := range s.self.callers {
		if k.from == id.from && now.Before(o.until) {
			n++
		}
	}
	return n < callersEach
}

// shows reports whether a caller that was asked back is shown the SM_Key.
func (s *Subnet) shows(c *caller) bool {
	who := c.who
	who.Known = slices.ContainsFunc(s.elect.Peers(), func(p elect.Peer) bool { return p.Info.GUID == who.Port && s.elect.Trusts(p.Info) })
	return s.elect.Trust().Asked(who) == elect.Show
}

func (s *Subnet) answerCaller(p *transport.Packet, c *caller) {
	info := s.elect.Info(0)
	if !s.shows(c) {
		info.SMKey = 0
	}
	out := s.smInfoAnswer(p, info)
	if s.put(&out) != nil {
		s.counters.Dropped++
	}
}

// meet lets the receiver answer a caller.
func (s *Subnet) meet(id callerID, until time.Time) {
	n := *s.self.standing.Load()
	known := map[callerID]time.Time{id: until}
	for k, t := range n.known {
		if k != id && time.Now().Before(t) {
			known[k] = t
		}
	}
	n.known = known
	s.self.standing.Store(&n)
}

// wayBack is the directed route to where an SMP came from.
func (s *Subnet) wayBack(p *transport.Packet) ([]uint8, bool) {
	if mad.ClassOf(&p.MAD) == mad.ClassSubnDR {
		back := origin(p)
		return []uint8(back), back != ""
	}
	if m := s.elect.Master(); s.elect.State() == mad.SMStandby && p.LID == m.LID {
		return m.Path, len(m.Path) > 0
	}
	if to := at(s.prog.owner, p.LID); to != fabric.None && to != s.prog.fabric.SMPort {
		return program.PathTo(s.prog.fabric, to)
	}
	return nil, false
}
