package simfabric

import (
	"maps"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Cut takes the cable at a port of a node out. Cutting twice is once.
func (s *Sim) Cut(guid ib.GUID, num uint8) error {
	return s.change(guid, num, func(p *port) { p.cut = true; s.retrain(p) })
}

// Restore puts the cable back in.
func (s *Sim) Restore(guid ib.GUID, num uint8) error {
	return s.change(guid, num, func(p *port) {
		p.cut = false
		if p.peer != nil {
			p.peer.cut = false
		}
		s.retrain(p)
	})
}

// Flap takes a cable out and puts it in at once.
func (s *Sim) Flap(guid ib.GUID, num uint8) error {
	return s.change(guid, num, func(p *port) {
		if !p.cut {
			p.cut = true
			s.retrain(p)
			p.cut = false
			s.retrain(p)
		}
	})
}

// Move puts the cable at one port of a node into another free port of any node.
func (s *Sim) Move(guid ib.GUID, num uint8, to ib.GUID, toNum uint8) error {
	s.lock()
	defer s.unlock()
	p, err := s.portOf(guid, num)
	if err != nil {
		return err
	}
	q, err := s.portOf(to, toNum)
	if err != nil {
		return err
	}
	far := p.peer
	if far == nil || q.peer != nil {
		return ErrBusy
	}
	p.cut = true
	s.retrain(p)
	p.peer, p.cut = nil, false
	far.peer, q.peer = q, far
	if g := far.node.plug; g != nil {
		g.near = q
	}
	far.cut = false
	s.retrain(q)
	return nil
}

func (s *Sim) change(guid ib.GUID, num uint8, f func(*port)) error {
	s.lock()
	defer s.unlock()
	p, err := s.portOf(guid, num)
	if err == nil {
		f(p)
	}
	return err
}

// PowerOff stops a node: its links go down and its programs lose their device.
func (s *Sim) PowerOff(guid ib.GUID) error { return s.power(guid, false, true) }

// PowerOn starts a node without any memory.
func (s *Sim) PowerOn(guid ib.GUID) error { return s.power(guid, true, false) }

// Reboot is PowerOff and PowerOn.
func (s *Sim) Reboot(guid ib.GUID) error { return s.power(guid, true, true) }

func (s *Sim) power(guid ib.GUID, on, off bool) error {
	s.lock()
	n := s.byGUID[guid]
	if n == nil {
		s.unlock()
		_, err := s.portOf(guid, 0)
		return err
	}
	var gone []*Agent
	if off && !n.down {
		n.down = true
		for i := range n.ports {
			p := &n.ports[i]
			gone = append(gone, p.agents...)
			p.issm = nil
			for _, r := range p.raw {
				r.issm = false
			}
			s.retrain(p)
		}
	}
	if on && n.down {
		n.down = false
		if n.sw != nil {
			n.powerOnSwitch()
		}
		for i := range n.ports {
			p := &n.ports[i]
			s.powerOn(p)
		}
		for i := range n.ports {
			s.retrain(&n.ports[i])
		}
	}
	s.unlock()
	for _, a := range gone {
		a.remove(transport.ErrGone)
	}
	return nil
}

// Mute makes a node take SMPs and questions for counters and answer none, or answer
// again.
func (s *Sim) Mute(guid ib.GUID, on bool) error {
	return s.node(guid, func(n *node) { n.mute = on })
}

// Slow makes a node take some time for each answer.
func (s *Sim) Slow(guid ib.GUID, d time.Duration) error {
	return s.node(guid, func(n *node) { n.slow = d })
}

func (s *Sim) node(guid ib.GUID, f func(*node)) error {
	s.lock()
	defer s.unlock()
	n := s.byGUID[guid]
	if n == nil {
		_, err := s.portOf(guid, 0)
		return err
	}
	f(n)
	return nil
}

// SetLoss changes the probability of loss.
func (s *Sim) SetLoss(p float64) {
	s.lock()
	s.opt.Loss = p
	s.unlock()
}

// SetDescription renames a node, with trap 144 of adapters and switches.
func (s *Sim) SetDescription(guid ib.GUID, desc string) error {
	return s.node(guid, func(n *node) {
		n.desc = mad.NewNodeDescription(desc)
		if n.sw != nil {
			s.capChanged(&n.ports[0], mad.ChangeNodeDescription)
			return
		}
		for i := 1; i < len(n.ports); i++ {
			if n.ports[i].info.State() == ib.PortActive {
				s.capChanged(&n.ports[i], mad.ChangeNodeDescription)
				return
			}
		}
	})
}

// SetPortInfo changes what a port announces, for nodes of special abilities:
// f gets the PortInfo and may change any field.
func (s *Sim) SetPortInfo(guid ib.GUID, num uint8, f func(*mad.PortInfo)) error {
	return s.change(guid, num, func(p *port) { f(&p.info) })
}

// SetErrors changes the error counters of a port as its performance management
// agent reports them: f gets them and may change any; those of data stay.
func (s *Sim) SetErrors(guid ib.GUID, num uint8, f func(*mad.PortCounters)) error {
	return s.change(guid, num, func(p *port) { f(&p.errs) })
}

// SetNodeInfo changes what a node announces, a duplicate GUID for example. The
// node keeps its place under the GUID it was built with.
func (s *Sim) SetNodeInfo(guid ib.GUID, f func(*mad.NodeInfo)) error {
	return s.node(guid, func(n *node) {
		f(&n.info)
	})
}

// SetSwitchInfo changes what a switch announces.
func (s *Sim) SetSwitchInfo(guid ib.GUID, f func(*mad.SwitchInfo)) error {
	return s.node(guid, func(n *node) {
		if n.sw != nil {
			f(&n.sw.info)
		}
	})
}

// Counters returns a copy of the counters.
func (s *Sim) Counters() Counters {
	s.lock()
	defer s.unlock()
	c := s.count
	c.SMPs = maps.Clone(c.SMPs)
	return c
}

// ResetCounters sets the counters to zero.
func (s *Sim) ResetCounters() {
	s.lock()
	s.count = Counters{SMPs: map[mad.AttrID]AttrCount{}}
	s.unlock()
}

// PortInfo reads the state of a port of a node, by the node's GUID.
func (s *Sim) PortInfo(guid ib.GUID, num uint8) (i mad.PortInfo, err error) {
	err = s.change(guid, num, func(p *port) { i = p.info })
	return i, err
}

// PKeys reads the P_Key table of a port.
func (s *Sim) PKeys(guid ib.GUID, num uint8) (k []ib.PKey, err error) {
	err = s.change(guid, num, func(p *port) { k = append(k, p.pkeys...) })
	return k, err
}

// SwitchTables reads a switch's SwitchInfo, linear and multicast forwarding
// tables (by MLID from 0xc000, 16 masks of 16 ports each).
func (s *Sim) SwitchTables(guid ib.GUID) (i mad.SwitchInfo, lft []uint8, mft [][16]uint16, err error) {
	err = s.node(guid, func(n *node) {
		if n.sw != nil {
			i, lft, mft = n.sw.info, append(lft, n.sw.lft...), append(mft, n.sw.mft...)
		}
	})
	return i, lft, mft, err
}

// SLtoVL reads the mapping of a pair of ports (in 0 on adapters).
func (s *Sim) SLtoVL(guid ib.GUID, in, out uint8) (t mad.SLtoVL, err error) {
	err = s.change(guid, out, func(p *port) { t = p.sl2vl[in] })
	return t, err
}

// Reaches follows the programmed forwarding tables from an end port to a LID
// for a data packet and returns the GUID of the port where it ends, 0 when it
// is lost.
func (s *Sim) Reaches(from ib.GUID, dlid ib.LID) ib.GUID {
	s.lock()
	defer s.unlock()
	p := s.ports[from]
	if p == nil {
		return 0
	}
	s.looking = true
	to := s.walkLID(p, dlid, false, s.pkeyOf(p, &transport.Packet{}))
	s.looking = false
	if to == nil {
		return 0
	}
	return to.guid
}

// Multicast returns the GUIDs of the end ports that a packet from an end port
// to a multicast LID reaches, one for each copy.
func (s *Sim) Multicast(from ib.GUID, mlid ib.LID) (to []ib.GUID) {
	s.lock()
	defer s.unlock()
	if p := s.ports[from]; p != nil {
		for _, q := range s.walkMulticast(p, mlid) {
			to = append(to, q.guid)
		}
	}
	return to
}

// EndPort is what EndPorts lists.
type EndPort struct {
	transport.Port
	Description string
	Up          bool // the node has power and the link is up
	IsSM        bool
}

// EndPorts lists every end port (switch port 0 too) in the order of the fabric.
func (s *Sim) EndPorts() (l []EndPort) {
	s.lock()
	defer s.unlock()
	for _, n := range s.nodes {
		for i := range n.ports {
			p := &n.ports[i]
			if p.guid != 0 && (n.sw != nil) == (i == 0) {
				l = append(l, EndPort{p.describe(), n.desc.String(), !n.down && (i == 0 || p.up()), p.issm != nil})
			}
		}
	}
	return l
}

// AllActive reports whether every port with a link is Active.
func (s *Sim) AllActive() bool {
	s.lock()
	defer s.unlock()
	for _, n := range s.nodes {
		for i := range n.ports {
			if p := &n.ports[i]; p.up() && p.info.State() != ib.PortActive {
				return false
			}
		}
	}
	return true
}

// FindHost returns the ports of the node with that name: its description, or
// its GUID in any form. Without a name it is the first node that is no switch.
func (s *Sim) FindHost(name string) (l []EndPort) {
	g, err := ib.ParseGUID(name)
	for _, e := range s.EndPorts() {
		d, _, _ := strings.Cut(e.Description, " ")
		switch {
		case len(l) > 0 && e.NodeGUID != l[0].NodeGUID:
			return l
		case name == "" && e.NodeType != ib.NodeSwitch, e.Description == name, d == name && name != "",
			err == nil && (e.NodeGUID == g || e.PortGUID == g), len(l) > 0:
			l = append(l, e)
		}
	}
	return l
}

// NodeInfo is what the node of an end port announces there.
func (s *Sim) NodeInfo(portGUID ib.GUID) (i mad.NodeInfo) {
	s.lock()
	defer s.unlock()
	if p := s.ports[portGUID]; p != nil {
		i = p.node.info
		i.PortGUID, i.LocalPortNum = p.guid, p.num
	}
	return i
}

// IsSMHolder makes an owner of the IsSM bit of a port: the function it returns
// sets and clears the bit, as opening and closing the kernel's issm device does.
func (s *Sim) IsSMHolder(portGUID ib.GUID) func(on bool) error {
	owner := new(int)
	return func(on bool) error {
		s.lock()
		defer s.unlock()
		p := s.ports[portGUID]
		if p == nil {
			return transport.ErrGone
		}
		return s.setIsSM(p, owner, on)
	}
}
