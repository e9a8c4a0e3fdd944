package simfabric

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
	"ibnetworkd/sm/transport/endpoint"
)

// Methods is a set of the methods 0 to 127.
type Methods [2]uint64

// MethodSet makes a set.
func MethodSet(ms ...mad.Method) (s Methods) {
	for _, m := range ms {
		s[m>>6&1] |= 1 << (m & 63)
	}
	return s
}

// Has reports whether m is in the set.
func (s Methods) Has(m mad.Method) bool { return s[m>>6&1]>>(m&63)&1 != 0 && m < 0x80 }

// Registration describes the requests that an agent gets, as the kernel's
// ib_register_mad_agent: a MAD of the class and version with one of the
// methods (and the vendor's OUI in the classes that carry one) goes to the
// agent. With no methods the agent gets only responses to its own requests.
type Registration struct {
	Class   mad.Class
	Version uint8
	OUI     [3]byte
	Methods Methods
}

// AgentOptions are the further properties of an agent.
type AgentOptions struct {
	// RMPP lets the kernel cut and join long messages.
	RMPP bool
	// Wake is called after something was queued for the agent.
	Wake func()
}

// ErrBusy means that another agent takes such requests already.
var ErrBusy = errors.New("another agent is registered for these requests")

// Agent is a program's registration at a port of a simulated host.
type Agent struct {
	sim  *Sim
	port *port
	id   uint32
	regs []Registration
	ep   *endpoint.Endpoint
}

// Register adds an agent at an end port.
func (s *Sim) Register(portGUID ib.GUID, regs []Registration, opt AgentOptions) (*Agent, error) {
	s.lock()
	defer s.unlock()
	p := s.ports[portGUID]
	if p == nil {
		return nil, fmt.Errorf("no end port %s in the simulated subnet", portGUID)
	}
	for _, o := range p.agents {
		for _, have := range o.regs {
			for _, r := range regs {
				if r.Class == have.Class && r.Version == have.Version && r.OUI == have.OUI &&
					(r.Methods[0]&have.Methods[0] != 0 || r.Methods[1]&have.Methods[1] != 0) {
					return nil, ErrBusy
				}
			}
		}
	}
	a := &Agent{sim: s, port: p, id: s.nextID, regs: append([]Registration(nil), regs...)}
	s.nextID++
	a.ep = endpoint.New(endpoint.Config{
		Write: func(pk *transport.Packet) error {
			s.lock()
			if s.agents[a.id] == nil {
				s.unlock()
				return transport.ErrClosed
			}
			q := s.take(pk)
			s.send(a.port, q)
			s.spare = append(s.spare, q)
			s.unlock()
			return nil
		},
		TIDHigh: a.id, NoRMPP: !opt.RMPP, Wake: opt.Wake,
	})
	s.agents[a.id] = a
	p.agents = append(p.agents, a)
	return a, nil
}

// Endpoint sends and receives for the agent.
func (a *Agent) Endpoint() *endpoint.Endpoint { return a.ep }

// Unregister removes the agent; a waiting Recv ends with ErrClosed.
func (a *Agent) Unregister() { a.remove(transport.ErrClosed) }

func (a *Agent) remove(err error) {
	s := a.sim
	s.lock()
	if s.agents[a.id] == a {
		delete(s.agents, a.id)
		a.port.agents = slices.DeleteFunc(a.port.agents, func(o *Agent) bool { return o == a })
	}
	s.unlock()
	a.ep.Fail(err)
}

// rawBit marks transaction identifiers of raw clients.
const rawBit = 1 << 63

// toAgents queues a packet for the program of a port that takes it.
func (s *Sim) toAgents(at *port, p *transport.Packet) bool {
	b := &p.MAD
	tid := mad.TIDOf(b)
	if mad.MethodOf(b).IsResponse() {
		if tid&rawBit != 0 {
			r := s.raws[tid>>48&0xf]
			if r == nil || r.port != at {
				return false
			}
			s.out = append(s.out, delivery{r.deliver, *p})
			return true
		}
		a := s.agents[uint32(tid>>32)]
		if a == nil || a.port != at {
			return false
		}
		s.out = append(s.out, delivery{a.ep.Deliver, *p})
		return true
	}
	c, m := mad.ClassOf(b), mad.MethodOf(b)
	for _, a := range at.agents {
		for i := range a.regs {
			r := &a.regs[i]
			if r.Class == c && r.Version == b[2] && r.Methods.Has(m) && (!c.IsVendor2() || r.OUI == [3]byte(b[37:40])) {
				s.out = append(s.out, delivery{a.ep.Deliver, *p})
				return true
			}
		}
	}
	for _, r := range at.raw {
		if r.issm {
			s.out = append(s.out, delivery{r.deliver, *p})
			return true
		}
	}
	return false
}

// setIsSM sets or clears the IsSM bit of a port for an owner, with trap 144.
func (s *Sim) setIsSM(p *port, owner any, on bool) error {
	switch {
	case on && p.issm == owner || !on && p.issm != owner:
		return nil
	case on && p.issm != nil:
		return transport.ErrIsSM
	case on:
		p.issm = owner
		p.info.SetCapMask(p.info.CapMask() | mad.CapIsSM)
	default:
		p.issm = nil
		p.info.SetCapMask(p.info.CapMask() &^ mad.CapIsSM)
	}
	s.capChanged(p, 0)
	return nil
}

func (s *Sim) capChanged(p *port, flags uint16) {
	var t mad.Notice
	t.Generic, t.Type, t.Producer, t.TrapNumber = true, mad.NoticeInfo, uint32(p.node.info.NodeType), mad.TrapCapMaskChange
	t.SetDetailCapChange(mad.CapChange{LID: p.info.LID(), LocalChanges: flags != 0, CapMask: p.info.CapMask(), Flags: flags,
		CapMask2: p.info.CapMask2()})
	s.sendTrap(p, t)
}

// client is Sim's transport.Transport.
type client struct{ a *Agent }

var smMethods = MethodSet(mad.MethodGet, mad.MethodSet, mad.MethodSend, mad.MethodTrap, mad.MethodReport, mad.MethodTrapRepress)

var saMethods = MethodSet(mad.MethodGet, mad.MethodSet, mad.MethodSend, mad.MethodTrap, mad.MethodReport, mad.MethodTrapRepress,
	mad.MethodGetTable, mad.MethodGetTrace, mad.MethodGetMulti, mad.MethodDelete)

// Open connects a subnet manager to an end port.
func (s *Sim) Open(portGUID ib.GUID) (transport.Transport, error) {
	a, err := s.Register(portGUID, []Registration{
		{Class: mad.ClassSubnDR, Version: mad.SMPClassV, Methods: smMethods},
		{Class: mad.ClassSubnLID, Version: mad.SMPClassV, Methods: smMethods},
		{Class: mad.ClassSA, Version: mad.SAClassV, Methods: saMethods},
	}, AgentOptions{RMPP: true})
	if err != nil {
		return nil, err
	}
	return &client{a}, nil
}

// OpenClient connects a program that asks the SA and takes its reports, but is
// no subnet manager; several can live at one port as long as one takes reports.
func (s *Sim) OpenClient(portGUID ib.GUID, reports bool) (transport.Transport, error) {
	r := []Registration{{Class: mad.ClassSA, Version: mad.SAClassV}, {Class: mad.ClassSubnDR, Version: 1},
		{Class: mad.ClassSubnLID, Version: 1}}
	if reports {
		r[0].Methods = MethodSet(mad.MethodReport)
	}
	a, err := s.Register(portGUID, r, AgentOptions{RMPP: true})
	if err != nil {
		return nil, err
	}
	return &client{a}, nil
}

func (c *client) Send(p *transport.Packet) error { return c.a.ep.Send(p) }

func (c *client) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	return c.a.ep.Recv(ctx, into)
}

func (c *client) SetIsSM(on bool) error {
	s := c.a.sim
	s.lock()
	defer s.unlock()
	if s.agents[c.a.id] == nil {
		return transport.ErrClosed
	}
	return s.setIsSM(c.a.port, c.a, on)
}

func (c *client) Port() (transport.Port, error) {
	s := c.a.sim
	s.lock()
	defer s.unlock()
	if s.agents[c.a.id] == nil {
		return transport.Port{}, transport.ErrClosed
	}
	return c.a.port.describe(), nil
}

func (p *port) describe() transport.Port {
	return transport.Port{
		Device: "sim0", Num: p.num, NodeGUID: p.node.guid, PortGUID: p.guid, LID: p.info.LID(), SMLID: p.info.MasterSMLID(),
		SMSL:  p.info.MasterSMSL(),
		State: p.info.State(), PhysState: p.info.PhysState(), LinkLayer: ib.LinkLayerInfiniBand,
		NodeType: p.node.info.NodeType,
	}
}

func (c *client) Close() error {
	s := c.a.sim
	s.lock()
	_ = s.setIsSM(c.a.port, c.a, false)
	s.unlock()
	c.a.Unregister()
	return nil
}

// Raw is a client that puts single MADs on the wire and does everything else
// itself, as ibsim's clients do. Its requests' identifiers lose their top 16
// bits.
type Raw struct {
	sim     *Sim
	port    *port
	slot    int
	issm    bool
	deliver func(*transport.Packet)
}

// OpenRaw attaches a raw client in a free slot of 16. deliver is called without a
// lock, in order.
func (s *Sim) OpenRaw(portGUID ib.GUID, deliver func(*transport.Packet)) (*Raw, error) {
	s.lock()
	defer s.unlock()
	p := s.ports[portGUID]
	if p == nil {
		return nil, fmt.Errorf("no end port %s in the simulated subnet", portGUID)
	}
	for i := range s.raws {
		if s.raws[i] == nil {
			r := &Raw{sim: s, port: p, slot: i, deliver: deliver}
			s.raws[i] = r
			p.raw = append(p.raw, r)
			return r, nil
		}
	}
	return nil, ErrBusy
}

// Slot is the number of the client, 0 to 15.
func (r *Raw) Slot() int { return r.slot }

// Send puts a MAD on the wire.
func (r *Raw) Send(p *transport.Packet) {
	q := [1]transport.Packet{*p}
	r.SendAll(q[:])
}

// SendAll puts MADs on the wire, in order. It changes their identifiers.
func (r *Raw) SendAll(ps []transport.Packet) {
	r.sim.lock()
	if r.sim.raws[r.slot] == r {
		for i := range ps {
			if b := &ps[i].MAD; !mad.MethodOf(b).IsResponse() {
				mad.SetTID(b, rawBit|uint64(r.slot)<<48|mad.TIDOf(b)&(1<<48-1))
			}
			r.sim.send(r.port, &ps[i])
		}
	}
	r.sim.unlock()
}

// SetIsSM makes the client the one that gets requests, and sets the bit.
func (r *Raw) SetIsSM(on bool) error {
	r.sim.lock()
	defer r.sim.unlock()
	err := r.sim.setIsSM(r.port, r, on)
	if err == nil {
		r.issm = on
	}
	return err
}

// Close frees the slot.
func (r *Raw) Close() {
	s := r.sim
	s.lock()
	_ = s.setIsSM(r.port, r, false)
	if s.raws[r.slot] == r {
		s.raws[r.slot] = nil
	}
	r.port.raw = slices.DeleteFunc(r.port.raw, func(o *Raw) bool { return o == r })
	s.unlock()
}

// Bounce takes back a MAD that was delivered to a client which is gone: the host
// answers a LID-routed request as it would have without the client.
func (r *Raw) Bounce(p *transport.Packet) {
	s := r.sim
	s.lock()
	defer s.unlock()
	m := mad.MethodOf(&p.MAD)
	if r.port.node.down || m != mad.MethodGet && m != mad.MethodSet || mad.ClassOf(&p.MAD) == mad.ClassSubnDR {
		return
	}
	q := *p
	q.MAD[3] = uint8(mad.MethodGetResp)
	mad.SetStatus(&q.MAD, mad.StatusBadAttr)
	s.respond(r.port, &q, nil)
}
