package simfabric

import (
	"cmp"
	"encoding/binary"

	"ibnetworkd/ib"
	"ibnetworkd/lab/simfabric/wire"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Plug is a cable that leaves the process: to the port of a kernel, of another
// simulator, of anything that speaks package wire. What is behind it, an adapter
// or a switch with a fabric of its own, takes part in the subnet as if it were
// simulated here: SMPs of either routing pass in both directions, data follows
// the forwarding tables.
//
// For the rest of the package the outside is the port of an adapter that is in
// no list: it swallows every LID, and it is without power while the far end is
// not there.
type Plug struct {
	sim   *Sim
	near  *port // of the subnet
	far   *port // the pseudo adapter's
	out   func(*wire.Packet)
	ready func(bool)
	was   bool
}

// Plug puts one end of a cable into a port of a node that has none, by the
// node's GUID. Named is an adapter with a cable: the outside takes its place,
// and the simulated adapter is left without one.
//
// out gets the packets that leave, ready is called when the near port is plugged
// in or out. Both are called under the lock: they must not block and not call
// the Sim. The packet is out's only until it returns.
func (s *Sim) Plug(guid ib.GUID, num uint8, out func(*wire.Packet), ready func(bool)) (*Plug, error) {
	s.lock()
	defer s.unlock()
	p, err := s.portOf(guid, num)
	if err != nil {
		return nil, err
	}
	if p.node.sw == nil && p.peer != nil && p.peer.node.sw != nil {
		sw := p.peer
		p.cut = true
		s.retrain(p)
		p.peer, sw.peer, p.cut = nil, nil, false
		p = sw
	}
	if p.peer != nil || p.node.sw != nil && num == 0 {
		return nil, ErrBusy
	}
	g := &Plug{sim: s, near: p, out: out, ready: ready}
	outside := &node{plug: g, down: true, ports: make([]port, 2)}
	outside.info.NodeType, outside.info.NumPorts = ib.NodeCA, 1
	g.far = &outside.ports[1]
	g.far.node, g.far.num, g.far.peer = outside, 1, p
	p.peer = g.far
	i := &p.info
	if i.WidthActive() == 0 {
		i.SetWidthActive(2) // 4X
	}
	if i.SpeedActive() == 0 {
		i.SetSpeedActive(4) // QDR
	}
	g.note()
	return g, nil
}

// note reports to the far end that the near port was plugged in or out.
func (g *Plug) note() {
	p := g.near
	if on := !p.cut && !p.disabled && !p.node.down; on != g.was {
		g.was = on
		g.ready(on)
	}
}

// SetUp sets whether the far end exists and is plugged in.
func (g *Plug) SetUp(up bool) {
	s := g.sim
	s.lock()
	defer s.unlock()
	if g.far.node.down == !up || s.closed {
		return
	}
	g.far.node.down = !up
	s.retrain(g.near)
}

// Close takes the cable out.
func (g *Plug) Close() {
	g.SetUp(false)
	s := g.sim
	s.lock()
	if g.near.peer == g.far {
		g.near.peer = nil
	}
	s.unlock()
}

// Receive takes a packet that comes in.
func (g *Plug) Receive(k *wire.Packet) {
	s := g.sim
	s.lock()
	defer s.unlock()
	if s.closed || !g.near.up() {
		return
	}
	if s.perfect() {
		g.enter(k)
		return
	}
	s.travel(func() {
		c := *k
		c.Data = append([]byte(nil), k.Data...)
		g.enter(&c)
	})
}

func (g *Plug) enter(k *wire.Packet) {
	s, p := g.sim, g.near
	smp := k.DQPN == 0 && !k.RC
	if !p.up() || !smp && p.info.State() < ib.PortArmed {
		s.count.Undeliverable++
		return
	}
	isMAD := !k.RC && k.DQPN <= 1 && len(k.Data) == mad.Size
	if !smp {
		p.cnt.RcvPkts++
		p.cnt.RcvData += uint64(len(k.Data) / 4)
	}
	if isMAD && smp && mad.Class(k.Data[1]) == mad.ClassSubnDR &&
		(k.DLID == ib.LIDPermissive || p.node.sw != nil && p.node.ports[0].owns(k.DLID)) {
		g.enterDR(k)
		return
	}
	to := []*port{p}
	switch {
	case k.DLID == ib.LIDPermissive:
	case k.DLID.IsMulticast():
		to = s.walkMulticast(g.far, k.DLID)
	default:
		to[0] = s.walkLID(g.far, k.DLID, smp, k.PKey)
	}
	for _, q := range to {
		switch {
		case q == nil:
			s.count.Undeliverable++
		case q.node.plug != nil:
			q.node.plug.send(k)
		case isMAD:
			s.arrive(q, g.fromWire(k), g.far)
		}
		// Simulated hosts have no queue pairs but those of management.
	}
}

// fromWire makes the packet what programs and agents of the subnet get.
func (g *Plug) fromWire(k *wire.Packet) *transport.Packet {
	p := &transport.Packet{LID: k.SLID, QPN: k.DQPN, QKey: k.QKey, SL: k.SL}
	copy(p.MAD[:], k.Data)
	g.far.pkeys = append(g.far.pkeys[:0], k.PKey)
	return p
}

// enterDR is IBTA 14.2.2 at each switch on the way of a directed-route SMP whose
// sender or receiver is outside.
func (g *Plug) enterDR(k *wire.Packet) {
	s, at := g.sim, g.near
	p := g.fromWire(k)
	p.LID = ib.LIDPermissive
	b := &p.MAD
	cnt, ptr := int(b[7]), int(b[6])
	if cnt > mad.MaxHops || ptr > cnt+1 {
		s.count.Undeliverable++
		return
	}
	if b[4]&0x80 != 0 {
		g.returnDR(p)
		return
	}
	for {
		n := at.node
		if n.plug != nil {
			b[6] = uint8(ptr)
			s.leave(at, p, ib.LIDPermissive, ib.LIDPermissive, k.PKey)
			return
		}
		if ptr > 0 || cnt == 0 {
			b[192+ptr] = at.num
		}
		ptr++
		if ptr > cnt {
			b[6] = uint8(cnt + 1)
			s.arrive(at, p, g.far)
			return
		}
		o := int(b[128+ptr])
		if n.sw == nil || n.down || n.mute || o == 0 || o >= len(n.ports) || !n.ports[o].up() {
			s.count.Undeliverable++
			return
		}
		at = n.ports[o].peer
	}
}

// returnDR carries a response that came in.
func (g *Plug) returnDR(p *transport.Packet) {
	if g.near.node.sw == nil || p.MAD[6] <= 1 {
		g.sim.endDR(g.near, p)
		return
	}
	g.sim.routeDRBack(g.near, p)
}

// endDR takes a directed-route response at the end of its route: there the
// requester is, or a switch from which it goes on by the requester's LID.
func (s *Sim) endDR(at *port, p *transport.Packet) {
	p.MAD[6] = 0
	p.LID = ib.LIDPermissive
	dlid := ib.LID(binary.BigEndian.Uint16(p.MAD[32:]))
	if at.node.sw == nil || dlid == ib.LIDPermissive {
		s.toAgents(at, p)
		return
	}
	p0 := &at.node.ports[0]
	switch to := s.walkLID(p0, dlid, true, ib.DefaultPKey); {
	case to == nil:
		s.count.Undeliverable++
	case to.node.plug != nil:
		s.leave(to, p, p0.info.LID(), dlid, ib.DefaultPKey)
	default:
		s.toAgents(to, p)
	}
}

// leave sends a MAD of the subnet out of it, through the port of a pseudo adapter.
func (s *Sim) leave(far *port, p *transport.Packet, slid, dlid ib.LID, pkey ib.PKey) {
	k := wire.Packet{SLID: slid, DLID: dlid, PKey: pkey, SL: p.SL, DQPN: p.QPN, Data: p.MAD[:]}
	if !mad.ClassOf(&p.MAD).IsSMP() {
		k.DQPN, k.SQPN, k.QKey = max(p.QPN, 1), 1, p.QKey
		k.QKey = cmp.Or(k.QKey, ib.QKeyGSI)
	}
	far.node.plug.send(&k)
}

func (g *Plug) send(k *wire.Packet) {
	if !g.near.up() {
		g.sim.count.Undeliverable++
		return
	}
	if k.DQPN != 0 {
		g.near.cnt.XmitPkts++
		g.near.cnt.XmitData += uint64(len(k.Data) / 4)
	}
	g.out(k)
}
