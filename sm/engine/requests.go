package engine

import (
	"errors"
	"fmt"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/transport"
)

// now is the clock of the SA.
func (s *Subnet) now() time.Duration { return time.Since(s.start) }

// turned is a received SMP as its answer.
func turned(p *transport.Packet, m mad.Method) transport.Packet {
	out := transport.Packet{LID: p.LID, SL: p.SL, QPN: 0, MAD: p.MAD}
	mad.SetAnswer(&out.MAD, m)
	return out
}

// answer sends a received SMP back.
func (s *Subnet) answer(p *transport.Packet, m mad.Method) {
	out := turned(p, m)
	if err := s.put(&out); err != nil {
		s.counters.Dropped++
	}
}

// smInfo handles Get and Set of SMInfo as far as the receiver has not.
func (s *Subnet) smInfo(p *transport.Packet) {
	s.received("SMInfo")
	if mad.MethodOf(&p.MAD) == mad.MethodGet {
		if p.Retries != answeredGet {
			s.introduce(p)
		}
		s.unknownPeer(p)
		return
	}
	data := mad.SMPData(&p.MAD)
	mod := mad.ModOf(&p.MAD)
	var theirs mad.SMInfo
	if theirs.Decode(data[:]) != nil || mod < mad.SMInfoHandover || mod > mad.SMInfoDiscover || theirs.GUID == s.port.PortGUID {
		mad.SetStatus(&p.MAD, mad.StatusInvalidField)
		s.answer(p, mad.MethodGetResp)
		return
	}
	if k := s.cfg.Policy.MKey; k != 0 && mad.MKeyOf(&p.MAD) != k {
		// As a port does with a Set that has the wrong M_Key, and opensm.
		s.warnOnce("smset"+theirs.GUID.String(), "Set(SMInfo) with the wrong M_Key ignored", "from", theirs.GUID.String(),
			"from_lid", p.LID.String(), "to", controlName(mod))
		return
	}
	from := elect.Peer{Info: theirs, LID: p.LID, Path: s.pathTo(theirs.GUID)}
	was := s.elect.State()
	a := s.elect.Received(mod, from)
	info := s.elect.Info(s.self.act.Add(1))
	if s.elect.Trust().Ordered(theirs) != elect.Show {
		info.SMKey = 0
	}
	*data = [64]byte{}
	if a == elect.Nothing && mod != mad.SMInfoAcknowledge {
		mad.SetStatus(&p.MAD, mad.StatusInvalidField)
	}
	info.Append(data[:0])
	s.answer(p, mad.MethodGetResp)
	if !s.elect.Trusts(theirs) {
		s.warnOnce("smset"+theirs.GUID.String(), "Set(SMInfo) with another SM_Key refused", "from", theirs.GUID.String(),
			"from_lid", p.LID.String(), "priority", theirs.Priority, "to", controlName(mod))
		return
	}
	s.log.Info("SMInfo order from another manager", "by", theirs.GUID.String(), "priority", theirs.Priority, "to",
		controlName(mod), "was", was.String(), "now", s.elect.State().String())
	switch a {
	case elect.Acknowledge:
		if was == mad.SMStandby {
			s.inherit()
		} else {
			s.copied = copied{}
		}
		s.sendSMInfo(from, mad.SMInfoAcknowledge)
		s.sweeps.reregister = true
		if was == mad.SMMaster {
			// There were two masters. Otherwise the walk that is under way, or
			// the first one as master, finds out.
			s.ev.full, s.ev.reason = true, "handover"
		}
	}
}

// unknownPeer probes a port that sent a request for SMInfo and is not known as a
// manager: a standby polls, and the master learns of it in no other way.
func (s *Subnet) unknownPeer(p *transport.Packet) {
	n := s.self.senders.Load()
	if s.elect.State() != mad.SMMaster || n == nil {
		return
	}
	at := n.port(p)
	if at == fabric.None || at == n.fab.SMPort {
		return
	}
	g := n.fab.Ports[at].GUID
	for _, k := range s.elect.Peers() {
		if k.Info.GUID == g {
			now := time.Now()
			last := s.managers.polled[g]
			if !last.at.IsZero() {
				// A standby asks again at once when it has copied something.
				last.every = max(min(now.Sub(last.at), time.Minute), last.every*3/4)
			}
			last.at = now
			s.managers.polled[g] = last
			return
		}
	}
	const again = 10 * time.Second
	if t, ok := s.managers.unknownPeers[g]; ok && time.Since(t) < again || len(s.managers.unknownPeers) > 4096 {
		if len(s.managers.unknownPeers) > 4096 {
			clear(s.managers.unknownPeers)
		}
		return
	}
	s.managers.unknownPeers[g] = time.Now()
	s.ev.ports = append(s.ev.ports, n.fab.Ports[at].LID)
}

func controlName(mod uint32) string {
	switch mod {
	case mad.SMInfoHandover:
		return "take over"
	case mad.SMInfoAcknowledge:
		return "acknowledge the handover"
	case mad.SMInfoDisable:
		return "rest"
	case mad.SMInfoStandby:
		return "stand by"
	}
	return "discover"
}

// pathTo is the directed route to a manager's port, nil when none is known.
func (s *Subnet) pathTo(g ib.GUID) []uint8 {
	for _, p := range s.elect.Peers() {
		if p.Info.GUID == g {
			return p.Path
		}
	}
	if m := s.elect.Master(); m.Info.GUID == g {
		return m.Path
	}
	if s.prog.fabric != nil {
		if i := s.prog.fabric.EndPortByGUID(g); i != fabric.None {
			path, _ := program.PathTo(s.prog.fabric, i)
			return path
		}
	}
	return nil
}

// sendSMInfo sends a Set of SMInfo; its effect arrives as a message of the other
// manager. It goes by directed route where one is known, which works whatever the
// forwarding tables are, and by LID otherwise.
func (s *Subnet) sendSMInfo(to elect.Peer, mod uint32) {
	info := s.elect.Info(s.self.act.Load())
	var data [64]byte
	info.Append(data[:0])
	s.win.tid++
	tid := uint64(unslotted | s.win.tid&0x7fffffff)
	p := transport.Packet{LID: to.LID, Timeout: s.cfg.Timeout, Retries: s.cfg.Retries}
	if len(to.Path) > 0 {
		p.LID = ib.LIDPermissive
		mad.PutDR(&p.MAD, mad.MethodSet, mad.AttrSMInfo, mod, tid, s.cfg.Policy.MKey, to.Path, data[:])
	} else {
		mad.PutLR(&p.MAD, mad.MethodSet, mad.AttrSMInfo, mod, tid, s.cfg.Policy.MKey, data[:])
	}
	s.counters.SMPs++
	s.count(mad.MethodSet, mad.AttrSMInfo)
	if err := s.put(&p); err != nil {
		s.log.Warn("cannot reach the other manager", "err", err)
	}
}

func (s *Subnet) received(what string) { s.counters.Received[what]++ }

// trap represses a trap and notes what to read again. The content of a trap is a
// hint.
func (s *Subnet) trap(p *transport.Packet) {
	var n mad.Notice
	if n.Decode(mad.SMPData(&p.MAD)[:]) != nil {
		s.counters.Dropped++
		return
	}
	rep := transport.Packet{LID: p.LID, SL: p.SL, MAD: p.MAD}
	mad.SetMethod(&rep.MAD, mad.MethodTrapRepress)
	mad.SetMKey(&rep.MAD, s.keyAt(p.LID))
	if err := s.put(&rep); err != nil {
		s.counters.Dropped++
	}
	s.counters.Traps++
	s.received(trapName(n.TrapNumber))
	// A trap that comes while the walk is under way counts: its object may have been
	// read before.
	if st := s.elect.State(); st != mad.SMMaster && st != mad.SMDiscovering || !n.Generic || s.babbling(p, &n) {
		return
	}
	s.act(&n)
}

// act notes what a trap says is to be read again, and reports it to subscribers.
func (s *Subnet) act(n *mad.Notice) {
	const most = 4096 // different LIDs in one sweep; more is a sweep of everything
	if len(s.ev.switches)+len(s.ev.ports)+len(s.ev.descs) > most {
		s.ev.light = true
		return
	}
	switch n.TrapNumber {
	case mad.TrapLinkStateChange:
		if l := n.DetailSwitchLID(); l.IsUnicast() {
			s.ev.switches = append(s.ev.switches, l)
		} else {
			// A restarted switch has no LID. Between sweeps its LinearFDBTop shows
			// that; during one that may just be set again, and then only its ports
			// show it.
			s.ev.light = true
			s.ev.full = s.ev.full || s.sweeps.active
		}
		s.ev.reason = "trap 128: link state change"
	case mad.TrapCapMaskChange:
		c := n.DetailCapChange()
		l := c.LID
		if !l.IsUnicast() {
			l = n.IssuerLID
		}
		if !l.IsUnicast() {
			break // restarted: its switch reports that
		}
		if c.LocalChanges && c.Flags == mad.ChangeNodeDescription {
			s.ev.descs = append(s.ev.descs, l)
		} else {
			s.ev.ports = append(s.ev.ports, l)
			s.ev.descs = append(s.ev.descs, l)
		}
		s.ev.reason = "trap 144: local change"
	case mad.TrapSysImageGUID:
		l, _ := n.DetailSysImageGUID()
		s.ev.descs = append(s.ev.descs, l)
		s.ev.reason = "trap 145: system image GUID"
	case mad.TrapLocalIntegrity, mad.TrapBufferOverrun, mad.TrapFlowWatchdog:
		l, port := n.DetailPort()
		s.warnOnce("threshold"+l.String(), "a link is bad", "trap", n.TrapNumber, "lid", l.String(), "link_port", port)
	case mad.TrapBadMKey:
		v := n.DetailMKeyViolation()
		s.warnOnce("mkey"+v.LID.String()+n.IssuerLID.String(), "a request had a wrong M_Key", "reported_by", n.IssuerLID.String(),
			"from_lid", v.LID.String(),
			"method", v.Method.String(), "attribute", mad.AttrName(mad.ClassSubnDR, v.Attr))
	case mad.TrapBadPKey, mad.TrapBadQKey, mad.TrapSwitchBadPKey:
		s.warnOnce("key"+n.IssuerLID.String(), "P_Key or Q_Key violation", "trap", n.TrapNumber, "reported_by", n.IssuerLID.String())
	}
	s.send(s.served.admin.Forward(*n))
}

// keyAt is the M_Key for a port by its LID: a TrapRepress without it is a violation
// itself, which the port reports by trap 256, and so on.
func (s *Subnet) keyAt(l ib.LID) ib.MKey {
	if p := at(s.prog.owner, l); p != fabric.None {
		if k := program.Key(s.prog.fabric, p); k != 0 {
			return k
		}
	}
	return s.cfg.Policy.MKey
}

func knownTrap(n uint16) bool {
	return n >= 64 && n <= 67 || n >= 128 && n <= 131 || n == 144 || n == 145 || n >= 256 && n <= 259
}

func trapName(n uint16) string {
	if knownTrap(n) {
		return fmt.Sprint("trap ", n)
	}
	return "trap of another kind"
}

// sa answers a request to the subnet administrator. Only the master has one, and
// for questions one that has just handed over.
func (s *Subnet) sa(p *transport.Packet) {
	s.counters.SA++
	if s.elect.State() != mad.SMMaster {
		if m := mad.MethodOf(&p.MAD); !s.lingers() || m == mad.MethodSet || m == mad.MethodDelete {
			return
		}
		s.former.asked = time.Now()
	}
	now, from := time.Now(), s.self.senders.Load().source(p)
	if asksTable(mad.MethodOf(&p.MAD)) && s.served.shares.spent(from, now) {
		s.refuse(p)
		return
	}
	r, c := s.served.admin.Handle(s.now(), sa.Request{LID: p.LID, QP: p.QPN, MAD: p.Bytes(),
		Manager: from.kind == fromPort && s.followers.follows(ib.GUID(from.id))})
	if r.MAD != nil {
		out := &s.served.reply
		out.LID, out.QPN, out.QKey, out.SL, out.PKeyIndex = p.LID, p.QPN, p.QKey, p.SL, p.PKeyIndex
		// The hop limit that arrived is what was left of the sender's.
		out.HasGRH, out.GID, out.HopLimit, out.TrafficClass, out.FlowLabel = p.HasGRH, p.GID, 0xff, p.TrafficClass, p.FlowLabel
		out.SetMessage(r.MAD, r.RMPP)
		if r.RMPP {
			s.served.shares.sent(from, len(r.MAD), now)
		}
		var err error
		if s.elect.State() != mad.SMMaster || !s.replicated(p, now) || !s.deferAnswer(out, now) {
			err = s.put(out)
		}
		if errors.Is(err, transport.ErrBusy) {
			// The header alone: to be asked for again.
			out.SetMessage(r.MAD[:mad.SADataOffset], false)
			mad.SetStatus(&out.MAD, mad.StatusBusy)
			err = s.put(out)
		}
		if err != nil {
			s.warnOnce("sasend", "cannot answer an SA request", "to", p.LID.String(), "err", err)
		}
	}
	s.apply(c)
}

// replicated reports whether the answer to a request waits until standbys have what it says: it
// acknowledges a change, or has levels of paths.
func (s *Subnet) replicated(p *transport.Packet, now time.Time) bool {
	m, a := mad.MethodOf(&p.MAD), mad.AttrOf(&p.MAD)
	return m == mad.MethodSet || m == mad.MethodDelete ||
		(a == mad.AttrPathRecord || a == mad.AttrMultiPathRecord) && s.levelsUncopied(now)
}

// apply does what the SA leaves to do.
func (s *Subnet) apply(c sa.Changes) {
	if c.Groups {
		s.served.mcastDirty, s.served.lastJoin = true, time.Now()
	}
	s.send(c.Reports)
	s.served.reregister = append(s.served.reregister, c.Reregister...)
	// Alias GUIDs: the block of a port that is written last counts.
	for _, b := range c.GUIDs {
		s.served.guids[guidKey{b.Port, b.Block}] = b.GUIDs
	}
	s.ev.apply = s.ev.apply || len(c.Reregister)+len(c.GUIDs) > 0
	s.publishVersion()
}

// tickSA lets leases expire.
func (s *Subnet) tickSA() {
	if at, ok := s.served.admin.NextTick(); ok && s.now() >= at {
		s.served.admin.Tick(s.now())
		s.publishVersion()
	}
}
