package program

import (
	"hash/fnv"
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// Declined has by index into Fabric.Ports a checksum of the last Set that a port answered with
// other values, which it does not support: the Set is not repeated until the wanted values
// change. 0 is a port that accepted all; it gets a Set again if it has something else.
type Declined []uint32

// want gives the wanted PortInfo of a port, with the state and the other
// fields that mean "no change" cleared.
func want(f *fabric.Fabric, i int32, pol *Policy) fabric.PortInfo {
	p := &f.Ports[i]
	w := p.Info
	var peer *fabric.Port
	if p.Peer != fabric.None {
		peer = &f.Ports[p.Peer]
	}
	if !p.Known {
		// Nothing but zeros means no change; the capabilities are the peer's,
		// for some devices check what is set against them as sent.
		w = fabric.PortInfo{}
		w.SetErrorThresholds(8, 8)
		if peer != nil {
			w.SetVLCap(peer.Info.VLCap())
			w.SetMTUCap(peer.Info.MTUCap())
		} else if sw := f.Nodes[p.Node].Switch; sw != fabric.None && f.Switches[sw].Info.EnhancedPort0() {
			w.SetNeighborMTU(switchMTU(f, p.Node))
		}
	}
	w.SetState(0)
	w.SetPhysState(0)
	w.SetLinkDownDefault(0)
	if f.Nodes[p.Node].Switch == fabric.None || p.Num == 0 {
		wantEnd(&w, p, i, pol)
	}
	if peer != nil {
		wantLink(&w, f, i, pol)
	}
	return w
}

// wantEnd sets what only end ports have.
func wantEnd(w *fabric.PortInfo, p *fabric.Port, i int32, pol *Policy) {
	w.SetMKey(pol.MKey)
	w.SetMKeyProtect(pol.Protect)
	w.SetMKeyLease(pol.MKeyLease)
	w.SetGIDPrefix(pol.Prefix)
	w.SetLID(p.LID)
	w.SetLMC(p.LMC)
	w.SetMasterSMLID(pol.SMLID)
	if w.SetMasterSMSL(pol.SMSL); int(i) < len(pol.SMSLs) {
		w.SetMasterSMSL(pol.SMSLs[i])
	}
	w.SetClientReregister(false)
	w.SetSubnetTimeout(pol.SubnetTimeout)
}

// wantLink sets what the two ends of a link agree on.
func wantLink(w *fabric.PortInfo, f *fabric.Fabric, i int32, pol *Policy) {
	p := &f.Ports[i]
	peer := &f.Ports[p.Peer]
	mtu, vls := mtuCap(p, peer), vlCap(p, peer)
	if pol.MaxMTU != 0 {
		mtu = min(mtu, pol.MaxMTU)
	}
	if pol.OperVLs != 0 {
		vls = min(vls, pol.OperVLs)
	}
	if p.Known && peer.Known && p.Info.State() >= ib.PortArmed {
		// A link in use keeps the lanes that it was brought up with, by another
		// manager perhaps: they are for a port in Initializing, and a device may
		// refuse them later (opensm takes the link down for it). Fewer do no
		// harm; a smaller MTU than the SA reports would.
		if have := p.Info.OperVLs(); have == peer.Info.OperVLs() && have != 0 {
			vls = min(vls, have)
		}
	}
	w.SetNeighborMTU(mtu)
	w.SetOperVLs(vls)
	if int(i) < len(pol.VLs) {
		w.SetOperVLs(pol.VLs[i])
		w.SetVLHighLimit(pol.VLHighLimit)
	}
	if f.Nodes[p.Node].Switch == fabric.None {
		return
	}
	life := pol.HOQLife
	if f.Nodes[peer.Node].Switch == fabric.None {
		life = pol.LeafHOQLife
	}
	w.SetVLStallCount(pol.VLStall)
	w.SetHOQLife(life)
	// Clear the bits of a port that another manager enabled and whose table is
	// not maintained any more.
	if w.SetEnforcement(0); int(i) < len(pol.Enforcement) {
		w.SetEnforcement(pol.Enforcement[i])
	}
}

// switchMTU is the MTU that a switch's first external port that is known
// supports: what its port 0 most likely does too.
func switchMTU(f *fabric.Fabric, node int32) ib.MTU {
	first, count := f.PortRange(node)
	for i := first + 1; i < first+count; i++ {
		if p := &f.Ports[i]; p.Known && p.Info.MTUCap().IsValid() {
			return p.Info.MTUCap()
		}
	}
	return ib.MTU2048
}

// mtuCap is the largest MTU of a link; an end that nothing is known of counts
// as its peer.
func mtuCap(a, b *fabric.Port) ib.MTU {
	x, y := a.Info.MTUCap(), b.Info.MTUCap()
	if !a.Known || x == 0 {
		x = y
	}
	if !b.Known || y == 0 {
		y = x
	}
	return max(min(x, y), ib.MTU256)
}

func vlCap(a, b *fabric.Port) uint8 {
	x, y := a.Info.VLCap(), b.Info.VLCap()
	if !a.Known || x == 0 {
		x = y
	}
	if !b.Known || y == 0 {
		y = x
	}
	return max(min(x, y), 1)
}

// settable is the part of a PortInfo that a Set of the manager would change; end
// and linked say which of its fields the port has.
func settable(p *fabric.PortInfo, end, linked bool) (c fabric.PortInfo) {
	if end {
		c.SetMKey(p.MKey())
		c.SetMKeyProtect(p.MKeyProtect())
		c.SetMKeyLease(p.MKeyLease())
		c.SetGIDPrefix(p.GIDPrefix())
		c.SetLID(p.LID())
		c.SetLMC(p.LMC())
		c.SetMasterSMLID(p.MasterSMLID())
		c.SetMasterSMSL(p.MasterSMSL())
		c.SetSubnetTimeout(p.SubnetTimeout())
	}
	if linked {
		c.SetNeighborMTU(p.NeighborMTU())
		c.SetVLHighLimit(p.VLHighLimit())
		c.SetVLStallCount(p.VLStallCount())
		c.SetHOQLife(p.HOQLife())
		c.SetOperVLs(p.OperVLs())
		c.SetEnforcement(p.Enforcement())
	}
	return c
}

// sum condenses the settable part of a PortInfo; never 0.
func sum(w *fabric.PortInfo, end, linked bool) uint32 {
	c := settable(w, end, linked)
	h := fnv.New32a()
	h.Write(c.Append(nil))
	return max(h.Sum32(), 1)
}

// differs compares the settable parts.
func differs(have, w *fabric.PortInfo, end, linked bool) bool {
	return settable(have, end, linked) != settable(w, end, linked)
}

// Ports is the source of the Sets of PortInfo of a stage for every port that needs one, tagged
// with the port's index: made one at a time, for those of a large subnet would fill the
// memory, and so that what one end of a link has answered counts at the other. Ports of
// switches become Active before those of hosts: a host sends as soon as its port is, and
// the answer must pass the port at the other end of its link.
type Ports struct {
	Fabric   *fabric.Fabric
	Policy   Policy
	Declined Declined
	Stage    Stage
	// Reregister asks the clients behind ports to register again, by port
	// index; nil for none.
	Reregister []bool
	Skip       func(port int32) bool // leaves ports out; nil for none
	Done       func(*smp.Reply)
	Count      int // requests made
	next       int32
	ends       bool        // in Activate: the ports of hosts, after those of switches
	found      smp.Request // by Search, if it has a method
}

// portsOnce is how many ports are compared in one search.
const portsOnce = 1 << 11

// Search implements smp.Searcher.
func (s *Ports) Search() bool {
	for n := 0; s.found.Method == 0; n++ {
		if n == portsOnce {
			return false
		}
		if s.next == int32(len(s.Fabric.Ports)) {
			if s.ends || s.Stage != Activate {
				return true
			}
			s.next, s.ends = 0, true
			continue
		}
		i := s.next
		s.next++
		if s.Stage == Activate && s.Fabric.IsEndPort(i) != s.ends {
			continue
		}
		if r, ok := s.request(i); ok && (s.Skip == nil || !s.Skip(i)) {
			s.found = r
		}
	}
	return true
}

// Next implements smp.Source.
func (s *Ports) Next() (smp.Request, bool) {
	for !s.Search() {
	}
	r := s.found
	if r.Method == 0 {
		return r, false
	}
	s.found.Method = 0
	s.Count++
	return r, true
}

// Step implements smp.Source.
func (s *Ports) Step(r *smp.Reply) { s.Done(r) }

// Late implements smp.Source.
func (s *Ports) Late(uint64) {}

// request makes the Set of a port; false when it needs none.
func (s *Ports) request(i int32) (r smp.Request, ok bool) {
	f, st := s.Fabric, s.Stage
	p := &f.Ports[i]
	end := f.IsEndPort(i)
	if p.Peer == fabric.None && !(end && (p.Num == 0 || i == f.SMPort)) || !p.Known && p.Peer == fabric.None && p.Num != 0 {
		return r, false
	}
	state := p.Info.State()
	if !p.Known {
		state = ib.PortInit
	}
	rereg := i < int32(len(s.Reregister)) && s.Reregister[i]
	switch st {
	case Configure:
		if state == ib.PortInit && p.Peer != fabric.None {
			return r, false // Arm does it all
		}
		if p.Num != 0 && p.Peer != fabric.None && state < ib.PortInit {
			return r, false
		}
	case Arm:
		if state != ib.PortInit || p.Peer == fabric.None || p.Num == 0 {
			return r, false
		}
	case Activate:
		if state != ib.PortArmed || p.Peer == fabric.None || p.Num == 0 {
			return r, false
		}
		if q := &f.Ports[p.Peer]; q.Known && q.Info.State() < ib.PortArmed {
			return r, false // the peer did not arm; the next sweep tries again
		}
	}
	path, ok := PathTo(f, i)
	if !ok {
		return r, false
	}
	w := want(f, i, &s.Policy)
	if st == Configure && !rereg && (!differs(&p.Info, &w, end, p.Peer != fabric.None) || i < int32(len(s.Declined)) &&
		s.Declined[i] == sum(&w, end, p.Peer != fabric.None)) {
		return r, false
	}
	r = smp.Request{Method: mad.MethodSet, Attr: mad.AttrPortInfo, Mod: uint32(p.Num), Path: path, Tag: uint64(i), MKey: Key(f, i)}
	if !f.Nodes[p.Node].NoExtendedSpeeds {
		r.Mod |= smp.ExtendedSpeeds
	}
	switch st {
	case Arm:
		w.SetState(ib.PortArmed)
	case Activate:
		w.SetState(ib.PortActive)
	}
	if end && p.Num != 0 && (rereg || st == Activate) && p.Info.CapMask()&mad.CapClientReregister != 0 {
		w.SetClientReregister(true)
	}
	r.Data = w.Wire()
	return r, true
}

// Answered stores a port's answer to a Set of Ports in the fabric, which no other goroutine
// may read yet, and in declined.
func Answered(f *fabric.Fabric, declined Declined, r *smp.Reply) {
	i := int32(r.Tag)
	p := &f.Ports[i]
	told := mad.PortInfoOf(&r.Request.Data)
	p.Info, p.Known = mad.PortInfoOf(&r.Data), true
	if r.Mod&smp.ExtendedSpeeds == 0 {
		// A port that claims those speeds had another reason to refuse.
		caps := p.Info.CapMask()
		if first := f.Port(p.Node, 0); first != fabric.None {
			caps |= f.Ports[first].Info.CapMask()
		}
		f.Nodes[p.Node].NoExtendedSpeeds = caps&mad.CapExtendedSpeeds == 0
	}
	p.Info.SetClientReregister(false)
	end, linked := f.IsEndPort(i), p.Peer != fabric.None
	if declined[i] = 0; differs(&p.Info, &told, end, linked) {
		declined[i] = sum(&told, end, linked)
	}
}
