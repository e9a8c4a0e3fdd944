package simfabric

import (
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// sma answers a Get or Set of subnet management at a node, turning p into the
// response; false when there is none.
func (s *Sim) sma(at *port, p *transport.Packet) bool {
	b := &p.MAD
	m := mad.MethodOf(b)
	if m != mad.MethodGet && m != mad.MethodSet {
		return false
	}
	n := at.node
	hideKey, ok := s.checkMKey(n.endPort(at), p)
	if !ok {
		return false
	}
	set := m == mad.MethodSet
	st := s.attribute(n, at, b, set)
	if hideKey && mad.AttrOf(b) == mad.AttrPortInfo {
		clear(b[64:72])
	}
	if b[2] != mad.SMPClassV {
		st = mad.StatusBadVersion
	}
	b[3] = uint8(mad.MethodGetResp)
	if mad.ClassOf(b) == mad.ClassSubnDR {
		st |= mad.StatusDirection
	}
	mad.SetStatus(b, st)
	return true
}

// checkMKey is the protection of IBTA 14.2.4: hide says that the M_Key reads as
// zero. A request that fails gets no answer and raises trap 256.
func (s *Sim) checkMKey(p *port, pkt *transport.Packet) (hide, ok bool) {
	i := &p.info
	b := &pkt.MAD
	key := mad.MKeyOf(b)
	if !p.mkeyLease.IsZero() && !time.Now().Before(p.mkeyLease) {
		i.SetMKeyProtect(0)
		p.mkeyLease = time.Time{}
	}
	if i.MKey() == 0 || key == i.MKey() {
		if i.MKey() != 0 {
			p.mkeyLease = time.Time{} // the manager is alive
		}
		return false, true
	}
	get := mad.MethodOf(b) == mad.MethodGet
	if get && i.MKeyProtect() <= 1 {
		return i.MKeyProtect() == 1, true
	}
	if i.MKeyViolations() < 0xffff {
		i.SetMKeyViolations(i.MKeyViolations() + 1)
	}
	if i.MKeyLease() > 0 && p.mkeyLease.IsZero() {
		p.mkeyLease = time.Now().Add(time.Duration(i.MKeyLease()) * time.Second)
	}
	var t mad.Notice
	t.Generic, t.Type, t.Producer, t.TrapNumber = true, mad.NoticeSecurity, uint32(p.node.info.NodeType), mad.TrapBadMKey
	v := mad.MKeyViolation{LID: pkt.LID, DrSLID: ib.LIDPermissive, Method: mad.MethodOf(b), Attr: mad.AttrOf(b), Mod: mad.ModOf(b), MKey: key}
	if mad.ClassOf(b) == mad.ClassSubnDR {
		v.DR, v.HopCount = true, b[7]&0x3f
		copy(v.ReturnPath[:], b[192:222])
		v.PathTruncated = b[7] > 29
	}
	t.SetDetailMKeyViolation(v)
	s.sendTrap(p, t)
	return false, false
}

// attribute reads or writes one attribute in the data of b.
func (s *Sim) attribute(n *node, at *port, b *mad.Buf, set bool) mad.Status {
	d := mad.SMPData(b)
	mod := mad.ModOf(b)
	switch attr := mad.AttrOf(b); attr {
	case mad.AttrNodeDescription, mad.AttrNodeInfo:
		if set {
			return mad.StatusBadAttr
		}
		if attr == mad.AttrNodeDescription {
			*d = n.desc
		} else {
			n.nodeInfo(at, d)
		}
		return mad.StatusOK
	case mad.AttrGUIDInfo:
		return n.endPort(at).guidInfo(d, mod, set)
	case mad.AttrPortInfo:
		return s.portInfo(n, at, b, set)
	case mad.AttrPKeyTable:
		return n.pkeyTable(at, d, mod, set)
	case mad.AttrSLtoVL:
		return n.slToVL(at, d, mod, set)
	case mad.AttrVLArb:
		return n.vlArb(at, d, mod, set)
	case mad.AttrMlnxExtPortInfo:
		*d = [64]byte{} // every simulated node knows it and has none of its speeds
		return mad.StatusOK
	}
	if n.sw == nil {
		return mad.StatusBadAttr
	}
	switch mad.AttrOf(b) {
	case mad.AttrSwitchInfo:
		if set {
			n.sw.set(d)
		}
		*d = [64]byte{}
		n.sw.info.Append(d[:0])
		return mad.StatusOK
	case mad.AttrLFT:
		return n.sw.lftBlock(d, mod, set)
	case mad.AttrMFT:
		return n.sw.mftBlock(d, mod, len(n.ports), set)
	case mad.AttrSwitchPortState:
		return n.portStates(d, mod)
	}
	return mad.StatusBadAttr
}

// endPort is the port that has the addresses of a node where a packet arrived: port 0 of a
// switch.
func (n *node) endPort(p *port) *port {
	if n.sw != nil {
		return &n.ports[0]
	}
	return p
}

func (n *node) nodeInfo(at *port, d *[64]byte) {
	ni := n.info
	ni.LocalPortNum = at.num
	ni.PortGUID = n.endPort(at).guid
	*d = [64]byte{}
	ni.Append(d[:0])
}

func (p *port) guidInfo(d *[64]byte, mod uint32, set bool) mad.Status {
	blk := int(mod & 0xff)
	if blk*8 >= len(p.guids) {
		return mad.StatusInvalidField
	}
	var g mad.GUIDInfo
	if set {
		_ = g.Decode(d[:])
		for i, v := range g {
			if k := blk*8 + i; k > 0 && k < len(p.guids) {
				p.guids[k] = v
			}
		}
	}
	g = mad.GUIDInfo{}
	copy(g[:], p.guids[blk*8:])
	g.Append(d[:0])
	return mad.StatusOK
}

// numbered is the port of a switch that a modifier names, or the adapter's own; nil if
// there is none.
func (n *node) numbered(own *port, num uint32) *port {
	switch {
	case n.sw == nil:
		return own
	case int(num) >= len(n.ports):
		return nil
	}
	return &n.ports[num]
}

func (n *node) pkeyTable(at *port, d *[64]byte, mod uint32, set bool) mad.Status {
	p, blk := n.numbered(at, mod>>16), int(mod&0xffff)
	if p == nil || blk*32 >= len(p.pkeys) {
		return mad.StatusInvalidField
	}
	var k mad.PKeyBlock
	if set {
		_ = k.Decode(d[:])
		copy(p.pkeys[blk*32:], k[:])
	}
	k = mad.PKeyBlock{}
	copy(k[:], p.pkeys[blk*32:])
	k.Append(d[:0])
	return mad.StatusOK
}

func (n *node) slToVL(at *port, d *[64]byte, mod uint32, set bool) mad.Status {
	p, in := n.numbered(at, mod&0xff), uint8(0)
	if n.sw != nil {
		if in = uint8(mod >> 8); p == nil || int(in) >= len(n.ports) || mod>>16 != 0 {
			return mad.StatusInvalidField
		}
	}
	if set {
		var t mad.SLtoVL
		_ = t.Decode(d[:])
		if p.sl2vl == nil {
			p.sl2vl = map[uint8]mad.SLtoVL{}
		}
		p.sl2vl[in] = t
	}
	t := p.sl2vl[in]
	*d = [64]byte{}
	t.Append(d[:0])
	return mad.StatusOK
}

func (n *node) vlArb(at *port, d *[64]byte, mod uint32, set bool) mad.Status {
	p, blk := n.numbered(at, mod&0xff), int(mod>>16)-1
	if p == nil || blk < 0 || blk > 3 {
		return mad.StatusInvalidField
	}
	if set {
		_ = p.vlarb[blk].Decode(d[:])
	}
	p.vlarb[blk].Append(d[:0])
	return mad.StatusOK
}

func (w *switchState) lftBlock(d *[64]byte, mod uint32, set bool) mad.Status {
	end := (int(mod) + 1) * 64
	if mod > 0xffff || int(mod)*64 >= int(w.info.LinearFDBCap()) {
		return mad.StatusInvalidField
	}
	if set {
		for len(w.lft) < end {
			w.lft = append(w.lft, mad.LFTDrop)
		}
		copy(w.lft[mod*64:], d[:])
	}
	for i := range d {
		d[i] = mad.LFTDrop
	}
	if int(mod)*64 < len(w.lft) {
		copy(d[:], w.lft[mod*64:])
	}
	return mad.StatusOK
}

func (w *switchState) mftBlock(d *[64]byte, mod uint32, ports int, set bool) mad.Status {
	blk, pos := int(mod&0x1ff), int(mod>>28)
	if blk*32 >= int(w.info.MulticastFDBCap()) || pos*16 >= ports {
		return mad.StatusInvalidField
	}
	var t mad.MFTBlock
	if set {
		_ = t.Decode(d[:])
		for len(w.mft) < (blk+1)*32 {
			w.mft = append(w.mft, [16]uint16{})
		}
		for i, v := range t {
			w.mft[blk*32+i][pos] = v
		}
	}
	t = mad.MFTBlock{}
	for i := range t {
		if blk*32+i < len(w.mft) {
			t[i] = w.mft[blk*32+i][pos]
		}
	}
	t.Append(d[:0])
	return mad.StatusOK
}

func (n *node) portStates(d *[64]byte, mod uint32) mad.Status {
	first := int(mod) * 128
	if n.ports[0].info.CapMask2()&mad.Cap2SwitchPortState == 0 || first >= len(n.ports) {
		return mad.StatusBadAttr
	}
	*d = [64]byte{}
	for p := first; p < min(len(n.ports), first+128); p++ {
		d[p%128/2] |= byte(n.ports[p].info.State()) << (4 * (1 - p%2))
	}
	return mad.StatusOK
}

func (w *switchState) set(d *[64]byte) {
	var in mad.SwitchInfo
	_ = in.Decode(d[:])
	i := &w.info
	i.SetLinearFDBTop(in.LinearFDBTop())
	i.SetDefaultPorts(in.DefaultPorts())
	i.SetLifeTime(in.LifeTime())
	i.SetOptimizedSLtoVL(in.OptimizedSLtoVL())
	i.SetMulticastFDBTop(in.MulticastFDBTop())
	if in.PortStateChange() {
		i.SetPortStateChange(false)
	}
}

// portInfo is IBTA 14.2.5.6: which fields a Set changes, and the states.
func (s *Sim) portInfo(n *node, at *port, b *mad.Buf, set bool) mad.Status {
	d := mad.SMPData(b)
	num := int(mad.ModOf(b) & 0xff)
	if n.sw == nil && num == 0 {
		num = int(at.num)
	}
	if num >= len(n.ports) || n.sw == nil && num == 0 {
		return mad.StatusInvalidField
	}
	p := &n.ports[num]
	st := mad.StatusOK
	if set {
		was := p.info.State()
		st = s.setPortInfo(p, d)
		var in mad.PortInfo
		_ = in.Decode(d[:])
		if active := p.info.State() == ib.PortActive; s.opt.Reregister != nil && st == mad.StatusOK && active && p.guid != 0 &&
			(was != ib.PortActive || in.ClientReregister()) {
			g := p.guid
			s.out = append(s.out, delivery{to: func(*transport.Packet) { s.opt.Reregister(g) }})
		}
	}
	i := p.info
	i.SetLocalPort(at.num)
	i.SetClientReregister(false)
	i.Append(d[:0])
	return st
}

func (s *Sim) setPortInfo(p *port, d *[64]byte) mad.Status {
	var in mad.PortInfo
	_ = in.Decode(d[:])
	i := &p.info
	ext := p.node.sw != nil && p.num != 0 // an external port of a switch has no addresses
	if !ext {
		if in.LID() >= ib.LIDMulticastMin {
			return mad.StatusInvalidField
		}
		i.SetMKey(in.MKey())
		i.SetGIDPrefix(in.GIDPrefix())
		i.SetLID(in.LID())
		i.SetLMC(in.LMC())
		i.SetMasterSMLID(in.MasterSMLID())
		i.SetMKeyLease(in.MKeyLease())
		i.SetMKeyProtect(in.MKeyProtect())
		i.SetSubnetTimeout(in.SubnetTimeout())
		i.SetMcastPKeyTrapSuppr(in.McastPKeyTrapSuppr())
		i.SetMasterSMSL(in.MasterSMSL())
		if in.MKeyViolations() == 0 {
			i.SetMKeyViolations(0)
		}
		if in.PKeyViolations() == 0 {
			i.SetPKeyViolations(0)
		}
		if in.QKeyViolations() == 0 {
			i.SetQKeyViolations(0)
		}
	}
	enable := func(in, was, supported uint8) uint8 {
		if in == 0 {
			return was
		}
		return in & supported // all bits: as supported
	}
	i.SetWidthEnabled(enable(in.WidthEnabled(), i.WidthEnabled(), i.WidthSupported()))
	i.SetSpeedEnabled(enable(in.SpeedEnabled(), i.SpeedEnabled(), i.SpeedSupported()))
	if in.SpeedExtEnabled() != 30 {
		i.SetSpeedExtEnabled(enable(in.SpeedExtEnabled(), i.SpeedExtEnabled(), i.SpeedExtSupported()))
	}
	if in.NeighborMTU().IsValid() {
		if in.NeighborMTU() > i.MTUCap() {
			return mad.StatusInvalidField
		}
		i.SetNeighborMTU(in.NeighborMTU())
	}
	if in.OperVLs() != 0 && !(s.opt.KeepLanes && i.State() >= ib.PortArmed) {
		i.SetOperVLs(min(in.OperVLs(), i.VLCap()))
	}
	i.SetVLHighLimit(in.VLHighLimit())
	i.SetVLStallCount(in.VLStallCount())
	i.SetHOQLife(in.HOQLife())
	i.SetErrorThresholds(in.ErrorThresholds())
	i.SetEnforcement(in.Enforcement())
	i.SetRawFilters(in.RawFilters())
	if in.LinkDownDefault() != 0 {
		i.SetLinkDownDefault(in.LinkDownDefault())
	}
	if p.node.sw != nil && p.num == 0 {
		return mad.StatusOK
	}
	switch in.PhysState() {
	case ib.PhysDisabled:
		p.disabled = true
		s.retrain(p)
	case ib.PhysPolling:
		if p.disabled {
			p.disabled = false
			s.retrain(p)
		}
	}
	switch in.State() {
	case 0:
	case ib.PortDown:
		if in.PhysState() != ib.PhysDisabled {
			s.bounce(p)
		}
	case ib.PortArmed:
		if !p.up() || i.State() < ib.PortInit || i.State() > ib.PortArmed {
			return mad.StatusInvalidField
		}
		i.SetState(ib.PortArmed)
	case ib.PortActive:
		if !p.up() || i.State() < ib.PortArmed {
			return mad.StatusInvalidField
		}
		i.SetState(ib.PortActive)
	default:
		return mad.StatusInvalidField
	}
	return mad.StatusOK
}

// trap is a notice on its way to the subnet manager, repeated until repressed.
type trap struct {
	tid   uint64
	n     mad.Notice
	left  int
	ended bool
}

// sendTrap sends a notice from an end port (port 0 of a switch) to the master
// subnet manager that the port knows. A notice equal to one that is still being
// repeated restarts its repetition.
func (s *Sim) sendTrap(p *port, n mad.Notice) {
	n.IssuerLID = p.info.LID()
	if p.info.CapMask()&mad.CapTrap == 0 && p.node.sw == nil {
		return
	}
	live := p.traps[:0]
	for _, t := range p.traps {
		if !t.ended && t.n != n {
			live = append(live, t)
		} else {
			t.ended = true
		}
	}
	s.trapNo++
	t := &trap{tid: uint64(s.trapNo), n: n, left: max(s.opt.TrapRepeats, 0)}
	p.traps = append(live, t)
	s.trapOut(p, t)
}

func (s *Sim) trapOut(p *port, t *trap) {
	if t.ended || p.node.down {
		return
	}
	if p.info.LID() != 0 && p.info.MasterSMLID() != 0 {
		var pk transport.Packet
		pk.LID = p.info.MasterSMLID()
		pk.SL = p.info.MasterSMSL()
		var d [64]byte
		t.n.AppendSMP(d[:0])
		mad.PutLR(&pk.MAD, mad.MethodTrap, mad.AttrNotice, 0, t.tid, 0, d[:])
		s.count.Traps++
		if s.perfect() {
			s.route(p, &pk)
		} else {
			s.travel(func() { r := pk; s.route(p, &r) })
		}
	}
	if t.left--; t.left < 0 {
		t.ended = true
		return
	}
	s.after(s.opt.TrapInterval, func() { s.trapOut(p, t) })
}

// repress ends the trap that a TrapRepress answers, if it has the port's M_Key:
// one without is a violation, as a Set would be (IBTA 14.2.4.1; check_mkey in the
// kernel's qib_mad.c).
func (s *Sim) repress(at *port, pkt *transport.Packet) {
	p := at.node.endPort(at)
	if _, ok := s.checkMKey(p, pkt); !ok {
		return
	}
	for _, t := range p.traps {
		if uint32(t.tid) == uint32(mad.TIDOf(&pkt.MAD)) {
			t.ended = true
		}
	}
}

// pma answers performance management at a node; false when there is no answer.
func pma(at *port, b *mad.Buf) bool {
	m := mad.MethodOf(b)
	if m != mad.MethodGet && m != mad.MethodSet {
		return false
	}
	d := b[mad.PerfDataOffset:]
	set := m == mad.MethodSet
	st := mad.StatusOK
	sel := d[1]
	n := at.node
	p := at
	if mad.AttrOf(b) == mad.AttrPortCounters || mad.AttrOf(b) == mad.AttrPortCountersExt {
		switch {
		case sel == 0xff || n.sw == nil && sel == 0:
		case int(sel) < len(n.ports):
			p = &n.ports[sel]
		default:
			st = mad.StatusInvalidField
		}
	}
	switch {
	case st != mad.StatusOK:
	case mad.AttrOf(b) == mad.AttrClassPortInfo:
		clear(d)
		c := mad.ClassPortInfo{BaseVersion: 1, ClassVersion: 1, CapMask: mad.PerfCapExtWidth | mad.PerfCapXmitWait, RespTimeValue: 18}
		c.Append(d[:0])
	case mad.AttrOf(b) == mad.AttrPortSamplesControl:
		clear(d)
		d[1] = sel
	case mad.AttrOf(b) == mad.AttrPortCounters:
		if set {
			var in mad.PortCounters
			_ = in.Decode(d)
			p.errs.SetSelected(&in)
			if in.CounterSelect>>12 != 0 {
				p.cnt = mad.PortCountersExt{}
			}
		}
		clear(d)
		c := p.errs
		c.PortSelect = sel
		c.XmitData, c.RcvData, c.XmitPkts, c.RcvPkts = clamp(p.cnt.XmitData), clamp(p.cnt.RcvData), clamp(p.cnt.XmitPkts), clamp(p.cnt.RcvPkts)
		c.Append(d[:0])
	case mad.AttrOf(b) == mad.AttrPortCountersExt:
		if set {
			p.cnt = mad.PortCountersExt{}
		}
		clear(d)
		c := p.cnt
		c.PortSelect = sel
		c.Append(d[:0])
	default:
		st = mad.StatusBadAttr
	}
	b[3] = uint8(mad.MethodGetResp)
	mad.SetStatus(b, st)
	return true
}

func clamp(v uint64) uint32 { return uint32(min(v, 0xffffffff)) }
