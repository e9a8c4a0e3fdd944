package simfabric

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"slices"
)

// send puts a program's packet on the wire at its port. The lock must be held.
func (s *Sim) send(from *port, p *transport.Packet) {
	if from.node.down {
		return
	}
	b := &p.MAD
	c := mad.ClassOf(b)
	if c.IsSMP() {
		s.countSMP(b)
	}
	if s.perfect() {
		s.route(from, p)
		return
	}
	if c == mad.ClassSubnDR && b[7] == 0 || s.isLocal(from, p) {
		s.route(from, p) // never leaves the adapter
		return
	}
	q := *p
	q.Long = nil
	s.travel(func() { r := q; s.route(from, &r) })
}

func (s *Sim) isLocal(from *port, p *transport.Packet) bool {
	return p.LID != ib.LIDPermissive && from.owns(p.LID)
}

func (s *Sim) countSMP(b *mad.Buf) {
	m := mad.MethodOf(b)
	if m != mad.MethodGet && m != mad.MethodSet {
		return
	}
	a := s.count.SMPs[mad.AttrOf(b)]
	if m == mad.MethodGet {
		a.Get++
	} else {
		a.Set++
	}
	s.count.SMPs[mad.AttrOf(b)] = a
	s.count.Total++
}

// owns reports whether a unicast LID is one of the port's.
func (p *port) owns(l ib.LID) bool {
	return p.info.LID() != 0 && l != 0 && (l^p.info.LID())>>p.info.LMC() == 0
}

// route carries a packet from its first port to where it goes and lets the
// receiver take it.
func (s *Sim) route(from *port, p *transport.Packet) {
	if from.node.down {
		return
	}
	if mad.ClassOf(&p.MAD) == mad.ClassSubnDR {
		s.routeDR(from, p)
		return
	}
	p.QPN &= 0xffffff
	if p.LID.IsMulticast() {
		s.routeMulticast(from, p)
		return
	}
	smp := mad.ClassOf(&p.MAD).IsSMP()
	slid := from.info.LID() | ib.LID(p.PathBits&uint8(1<<from.info.LMC()-1))
	to := s.walkLID(from, p.LID, smp, s.pkeyOf(from, p))
	if to == nil {
		s.count.Undeliverable++
		return
	}
	if to.node.plug != nil {
		s.leave(to, p, slid, p.LID, s.pkeyOf(from, p))
		return
	}
	q := s.take(p)
	q.LID = slid
	s.arrive(to, q, from)
	s.spare = append(s.spare, q)
}

// take copies a packet into a spare one; the caller puts it back.
func (s *Sim) take(p *transport.Packet) *transport.Packet {
	if n := len(s.spare); n > 0 {
		q := s.spare[n-1]
		s.spare = s.spare[:n-1]
		*q = *p
		return q
	}
	q := *p
	return &q
}

func (s *Sim) pkeyOf(from *port, p *transport.Packet) ib.PKey {
	if int(p.PKeyIndex) < len(from.pkeys) {
		return from.pkeys[p.PKeyIndex]
	}
	return 0
}

// maxHops bounds the way of a LID-routed packet: forwarding tables can have
// loops. The switch lifetime limit ends them in hardware.
const maxHops = 64

// walkLID follows the forwarding tables from a port to the end port that takes
// the LID, nil when the packet is lost on the way.
func (s *Sim) walkLID(from *port, dlid ib.LID, smp bool, pkey ib.PKey) *port {
	if dlid == ib.LIDPermissive || from.owns(dlid) {
		return from
	}
	if dlid == 0 {
		return nil
	}
	p := from
	n := from.node
	if n.sw == nil {
		if !p.passes(smp) {
			return nil
		}
		p = p.peer
		n = p.node
	}
	for range maxHops {
		if n.sw == nil {
			if p.owns(dlid) || dlid == ib.LIDPermissive || n.plug != nil {
				return p
			}
			return nil
		}
		if n.down || n.mute && smp {
			return nil
		}
		if n.ports[0].owns(dlid) {
			return &n.ports[0]
		}
		if !smp && p.num != 0 && p.info.Enforcement()&mad.EnforceInbound != 0 && !p.hasPKey(pkey) {
			s.switchPKeyTrap(p, from, dlid, pkey)
			return nil
		}
		if int(dlid) >= len(n.sw.lft) || uint16(dlid) > n.sw.info.LinearFDBTop() {
			return nil
		}
		o := n.sw.lft[dlid]
		if o == 0 {
			return nil // port 0 was tried
		}
		if int(o) >= len(n.ports) {
			return nil
		}
		out := &n.ports[o]
		if !out.passes(smp) {
			return nil
		}
		if !smp && out.info.Enforcement()&mad.EnforceOutbound != 0 && !out.hasPKey(pkey) {
			s.switchPKeyTrap(out, from, dlid, pkey)
			return nil
		}
		p = out.peer
		n = p.node
	}
	return nil
}

// switchPKeyTrap sends trap 259 of a switch that stopped a packet at p.
func (s *Sim) switchPKeyTrap(p, from *port, dlid ib.LID, k ib.PKey) {
	if s.looking {
		return
	}
	var t mad.Notice
	t.Generic, t.Type, t.Producer, t.TrapNumber = true, mad.NoticeSecurity, uint32(ib.NodeSwitch), mad.TrapSwitchBadPKey
	p0 := &p.node.ports[0]
	t.SetDetailKeyViolation(mad.KeyViolation{
		DataValid: 1, LID1: from.info.LID(), LID2: dlid, Key: uint32(k), QP1: 1, QP2: 1, SwitchLID: p0.info.LID(), Port: p.num,
	})
	s.sendTrap(p0, t)
}

// passes reports whether a port sends such packets: SMPs from Initializing on,
// data when Active, and the other end takes it when it is Armed at least.
func (p *port) passes(smp bool) bool {
	if !p.up() {
		return false
	}
	if smp || p.node.plug != nil {
		return true
	}
	return p.info.State() == ib.PortActive && (p.peer.node.plug != nil || p.peer.info.State() >= ib.PortArmed)
}

func (p *port) hasPKey(k ib.PKey) bool {
	return slices.ContainsFunc(p.pkeys, func(o ib.PKey) bool {
		return o.Matches(k) || o.Base() == k.Base() && k.IsValid() && p.node.sw != nil && o.Full()
	})
}

// routeDR carries a directed-route SMP (IBTA 14.2.2). It may begin with a
// LID-routed part, as diagnostics use it to read one hop beyond a node; a
// LID-routed part at the end is not supported, because no program uses it.
func (s *Sim) routeDR(from *port, p *transport.Packet) {
	b := &p.MAD
	cnt := int(b[7])
	if cnt > mad.MaxHops {
		s.count.Undeliverable++
		return
	}
	if b[4]&0x80 != 0 {
		s.routeDRBack(from, p)
		return
	}
	if b[6] != 0 || b[34] != 0xff || b[35] != 0xff {
		s.count.Undeliverable++
		return
	}
	at := from
	if p.LID != ib.LIDPermissive {
		drSLID := ib.LID(b[32])<<8 | ib.LID(b[33])
		at = s.walkLID(from, p.LID, true, 0)
		if at == nil || !from.owns(drSLID) {
			s.count.Undeliverable++
			return
		}
		if at.node.plug != nil {
			b[6] = 0
			s.leave(at, p, drSLID, p.LID, ib.DefaultPKey)
			return
		}
	}
	start := at
	for i := 1; i <= cnt; i++ {
		n := at.node
		if n.plug != nil {
			b[6] = uint8(i - 1)
			s.leave(at, p, ib.LIDPermissive, ib.LIDPermissive, ib.DefaultPKey)
			return
		}
		out := at
		if n.sw != nil {
			o := b[128+i]
			if int(o) >= len(n.ports) || o == 0 {
				s.count.Undeliverable++
				return
			}
			out = &n.ports[o]
		} else if at != start || b[128+i] != at.num {
			s.count.Undeliverable++ // adapters do not forward
			return
		}
		if n.down || i > 1 && n.mute || !out.up() {
			s.count.Undeliverable++
			return
		}
		at = out.peer
		b[192+i] = at.num
	}
	if at.node.plug != nil {
		b[6] = uint8(cnt)
		s.leave(at, p, ib.LIDPermissive, ib.LIDPermissive, ib.DefaultPKey)
		return
	}
	if at.node.down {
		return
	}
	b[6] = uint8(cnt + 1)
	p.LID = ib.LIDPermissive
	s.arrive(at, p, from)
}

// routeDRBack carries the response that a program gave to a directed-route
// request.
func (s *Sim) routeDRBack(from *port, p *transport.Packet) {
	b := &p.MAD
	ptr := int(b[6])
	if ptr > int(b[7])+1 {
		s.count.Undeliverable++
		return
	}
	at := from
	for i := ptr - 1; i >= 1; i-- {
		n := at.node
		out := at
		if n.sw != nil {
			if o := b[192+i]; int(o) < len(n.ports) && o != 0 {
				out = &n.ports[o]
			} else {
				s.count.Undeliverable++
				return
			}
		}
		if n.down || !out.up() {
			s.count.Undeliverable++
			return
		}
		at = out.peer
		if at.node.plug != nil {
			b[6] = uint8(i)
			s.leave(at, p, ib.LIDPermissive, ib.LIDPermissive, ib.DefaultPKey)
			return
		}
	}
	s.endDR(at, p)
}

// arrive hands a packet that reached its node to what answers there. from is
// where it set out, for the way back.
func (s *Sim) arrive(at *port, p *transport.Packet, from *port) {
	n := at.node
	if n.down {
		return
	}
	c := mad.ClassOf(&p.MAD)
	m := mad.MethodOf(&p.MAD)
	if p.MAD[0] != mad.BaseVer {
		return
	}
	switch {
	case c.IsSMP():
		if s.opt.Trace != nil {
			s.opt.Trace(n.guid, &p.MAD)
		}
		if n.mute {
			return
		}
		if m == mad.MethodTrapRepress {
			s.repress(at, p)
			return
		}
		if m.IsResponse() || m == mad.MethodTrap || m == mad.MethodReport || mad.AttrOf(&p.MAD) == mad.AttrSMInfo && n.sw == nil {
			s.toHost(at, p, from)
			return
		}
		if s.sma(at, p) {
			s.respond(at, p, from)
		}
	default:
		if !at.takesPKey(s.pkeyOf(from, p), p, s, from) || !at.takesQKey(p, s, from) {
			return
		}
		if c == mad.ClassPerf && !m.IsResponse() {
			if !n.mute && pma(at, &p.MAD) {
				s.respond(at, p, from)
			}
			return
		}
		s.toHost(at, p, from)
	}
}

// takesPKey checks the packet's key against the table of an end port and sends
// trap 257 for a bad one.
func (p *port) takesPKey(k ib.PKey, pkt *transport.Packet, s *Sim, from *port) bool {
	for i, o := range p.pkeys {
		if o.Matches(k) {
			pkt.PKeyIndex = uint16(i)
			return true
		}
	}
	if p.info.PKeyViolations() < 0xffff {
		p.info.SetPKeyViolations(p.info.PKeyViolations() + 1)
	}
	s.sendKeyTrap(p, from, mad.TrapBadPKey, uint32(k), pkt)
	return false
}

// takesQKey checks the Q_Key of a packet to QP1 and sends trap 258 for a wrong
// one. A program that names none has the well-known one.
func (p *port) takesQKey(pkt *transport.Packet, s *Sim, from *port) bool {
	if pkt.QKey == 0 || pkt.QKey == ib.QKeyGSI || pkt.QPN != 1 {
		return true
	}
	if p.info.QKeyViolations() < 0xffff {
		p.info.SetQKeyViolations(p.info.QKeyViolations() + 1)
	}
	s.sendKeyTrap(p, from, mad.TrapBadQKey, uint32(pkt.QKey), pkt)
	return false
}

func (s *Sim) sendKeyTrap(p, from *port, trap uint16, key uint32, pkt *transport.Packet) {
	var t mad.Notice
	t.Generic, t.Type, t.Producer, t.TrapNumber = true, mad.NoticeSecurity, uint32(p.node.info.NodeType), trap
	t.SetDetailKeyViolation(mad.KeyViolation{
		LID1: from.info.LID(), LID2: p.info.LID(), Key: key, SL: pkt.SL, QP1: 1, QP2: pkt.QPN,
		GID1: ib.MakeGID(from.info.GIDPrefix(), from.guid), GID2: ib.MakeGID(p.info.GIDPrefix(), p.guid),
	})
	s.sendTrap(p, t)
}

// toHost gives a packet to the programs of a port; a Get or Set that none of
// them takes is answered by the kernel itself (ib_mad's
// generate_unmatched_resp).
func (s *Sim) toHost(at *port, p *transport.Packet, from *port) {
	if s.toAgents(at, p) {
		return
	}
	m := mad.MethodOf(&p.MAD)
	if m != mad.MethodGet && m != mad.MethodSet {
		s.count.Undeliverable++
		return
	}
	p.MAD[3] = uint8(mad.MethodGetResp)
	st := mad.StatusBadAttr
	if mad.ClassOf(&p.MAD) == mad.ClassSubnDR {
		st |= mad.StatusDirection
	}
	mad.SetStatus(&p.MAD, st)
	s.respond(at, p, from)
}

// respond sends an answer of a node back to where the request set out. The
// request p has become the response; p.LID is the requester's.
func (s *Sim) respond(at *port, p *transport.Packet, from *port) {
	dr := mad.ClassOf(&p.MAD) == mad.ClassSubnDR
	dlid := p.LID
	outside := from != nil && from.node.plug != nil
	if dr && !outside {
		p.MAD[6] = 0
	}
	p.Long, p.Err = nil, nil
	back := func(q *transport.Packet) {
		if dr && outside {
			s.routeDRBack(at, q)
			return
		}
		if dr {
			if from == at || from.up() || from.node.sw != nil {
				q.LID = ib.LIDPermissive
				s.toAgents(from, q)
			}
			return
		}
		smp := mad.ClassOf(&q.MAD).IsSMP()
		slid := at.info.LID()
		to := s.walkLID(at, dlid, smp, s.pkeyOf(at, q))
		if to == nil && dlid == 0 && from == at {
			to = from
		}
		if to == nil {
			s.count.Undeliverable++
			return
		}
		if to.node.plug != nil {
			s.leave(to, q, slid, dlid, s.pkeyOf(at, q))
			return
		}
		q.LID = slid
		s.toAgents(to, q)
	}
	if at == from || s.perfect() && at.node.slow == 0 {
		back(p)
		return
	}
	q := *p
	send := func() { s.travel(func() { r := q; back(&r) }) }
	if at.node.slow > 0 {
		s.after(at.node.slow, send)
		return
	}
	send()
}

// routeMulticast floods a packet along the multicast forwarding tables.
func (s *Sim) routeMulticast(from *port, p *transport.Packet) {
	slid := from.info.LID()
	for _, to := range s.walkMulticast(from, p.LID) {
		if to.node.plug != nil {
			s.leave(to, p, slid, p.LID, s.pkeyOf(from, p))
			continue
		}
		q := *p
		q.LID = slid
		s.arrive(to, &q, from)
	}
}

// walkMulticast is the end ports that a packet to mlid reaches, one entry for
// each copy. A table with a loop stops after maxHops copies of a switch.
func (s *Sim) walkMulticast(from *port, mlid ib.LID) (reached []*port) {
	type step struct {
		n    *node
		in   *port
		hops int
	}
	var todo []step
	if from.node.sw != nil {
		todo = append(todo, step{from.node, &from.node.ports[0], 0})
	} else if from.passes(false) {
		if q := from.peer; q.node.sw != nil {
			todo = append(todo, step{q.node, q, 0})
		} else {
			return []*port{q}
		}
	}
	for len(todo) > 0 && len(reached) < 1<<20 {
		t := todo[0]
		todo = todo[1:]
		if t.hops > maxHops || t.n.down {
			continue
		}
		i := int(mlid - ib.LIDMulticastMin)
		if i >= len(t.n.sw.mft) {
			continue
		}
		mask := &t.n.sw.mft[i]
		for o := range t.n.ports {
			if mask[o/16]>>(o%16)&1 == 0 || o == int(t.in.num) {
				continue
			}
			out := &t.n.ports[o]
			if o == 0 {
				reached = append(reached, out)
				continue
			}
			if !out.passes(false) {
				continue
			}
			if q := out.peer; q.node.sw != nil {
				todo = append(todo, step{q.node, q, t.hops + 1})
			} else {
				reached = append(reached, q)
			}
		}
	}
	return reached
}
