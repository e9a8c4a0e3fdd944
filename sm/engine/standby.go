package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// standby polls the master until it is gone or hands over.
func (s *Subnet) standby(ctx context.Context) error {
	// What hosts had asked of this manager they have changed with the other by
	// the time that it serves again.
	defer s.served.admin.Forget()
	s.prog.forget()
	s.copied = copied{}
	s.followers.end()
	s.ev = events{}
	s.publish()
	// The master hands over as soon as a better manager announces itself: the copy
	// comes first.
	next := time.Now()
	told, lid, sm, begun := time.Time{}, s.port.LID, s.port.SMLID, time.Now()
	for s.elect.State() == mad.SMStandby {
		if s.lingers() {
			if err := s.awaitSuccessor(); err != nil {
				return err
			}
			next = time.Now().Add(20 * time.Millisecond)
		}
		if d := time.Until(next); d > 0 {
			if err := s.wait(ctx, d, func() bool { return s.elect.State() != mad.SMStandby || s.ev.resweep }); err != nil {
				return err
			}
		}
		if s.elect.State() != mad.SMStandby {
			break
		}
		s.ev = events{}
		p, err := s.tr.Port()
		if err != nil {
			return err
		}
		s.setPort(p)
		if p.State < ib.PortInit && p.Num != 0 {
			s.log.Warn("the local link is down", "state", p.State.String())
			s.elect.Restart()
			return errRestart
		}
		if s.report(s.elect.Master()); s.idleMaster() {
			m := s.elect.Master()
			s.log.Warn("untrusted master does not configure this port, ignoring it", "guid", m.Info.GUID.String(), "lid",
				m.LID.String(), "priority", m.Info.Priority)
			s.elect.Ignore(m.Info.GUID)
			return errRestart
		}
		was := s.copied.version
		a, err := s.poll(ctx)
		if err != nil {
			return err
		}
		next = time.Now().Add(s.cfg.Poll)
		first := s.copied.own && s.copied.regs == nil && time.Since(begun) < successorWait
		if first || s.copied.version != was {
			next = time.Now().Add(min(s.cfg.Poll, copyAgain)) // hosts wait until the master knows
		}
		switch a {
		case elect.Poll:
			next = time.Now().Add(50 * time.Millisecond)
		case elect.Discover:
			m := s.elect.Master()
			s.log.Warn("the master is gone", "master", m.Info.GUID.String(), "master_lid", m.LID.String())
		case elect.Nothing:
			if first {
				break
			}
			if time.Since(told) > announceEvery && (told.IsZero() || s.elect.Trusts(s.elect.Master().Info)) ||
				lid != s.port.LID || sm != s.port.SMLID {
				// The master may not have seen this manager, whose port could not
				// send before it had a LID. One that is not trusted need not know that
				// this one is better.
				lid, sm, told = s.port.LID, s.port.SMLID, time.Now()
				s.announce(s.elect.Master())
			}
		}
	}
	return nil
}

// poll queries the master for its SMInfo once.
func (s *Subnet) poll(ctx context.Context) (elect.Action, error) {
	m := s.elect.Master()
	var info *mad.SMInfo
	dead := false
	q := smp.Request{Method: mad.MethodGet, Attr: mad.AttrSMInfo, Path: m.Path}
	nonce, sent := s.copyQuestion(&q.Data, m.Info.GUID), time.Now()
	version, copies := uint64(0), false
	l := &smp.List{Requests: []smp.Request{q}, Done: func(r *smp.Reply) {
		switch {
		case r.OK():
			var i mad.SMInfo
			if i.Decode(r.Data[:]) == nil && i.GUID == m.Info.GUID {
				if version, copies = s.copyAnswer(&r.Data, i, nonce, sent); copies {
					s.copied.own = true
				} else {
					s.copied.own = s.elect.Trust().Proves(*mad.SMInfoProof(&r.Data), nonce, s.port.PortGUID, i.GUID)
				}
				if !s.copied.own {
					s.judge(i, &r.Data, nonce)
				} else {
					i.SMKey = s.elect.Trust().Key // it need not show what it has proven
				}
				info = &i
			}
		case noManager(r):
			dead = true
		case r.Status&mad.StatusBusy != 0 && !r.Timeout:
			info = &m.Info // it is there
		}
	}}
	if err := s.pumpWith(ctx, l, s.cfg.PollTimeout, 0); err != nil {
		return elect.Nothing, err
	}
	if s.elect.State() != mad.SMStandby {
		return elect.Nothing, nil
	}
	a := s.elect.Polled(info, dead)
	switch {
	case a == elect.Discover:
		s.inherit()
	case copies:
		return a, s.copyRegistrations(ctx, version)
	}
	return a, nil
}

// noManager reports whether an answer comes from a host without a manager: from the
// kernel's ib_mad for a request without a receiver, or from a device that knows the
// attribute but no manager. A manager itself may answer with another status.
func noManager(r *smp.Reply) bool {
	return !r.Timeout && (r.Status == mad.StatusBadAttr || r.Status == mad.StatusBadMethod)
}

// askPeers reads the state of the other known managers, whose changes a master is not notified
// of, and of the ports that did not answer as managers though they claim to be. With idle it
// leaves out standbys that poll this manager at their usual interval.
func (s *Subnet) askPeers(ctx context.Context, idle bool) error {
	peers := s.elect.Peers()
	all := append(slices.Clone(peers), s.managers.silent...)
	var nonce [16]byte
	rand.Read(nonce[:])
	l := &smp.List{Done: func(r *smp.Reply) {
		p := all[r.Tag]
		var i mad.SMInfo
		if r.OK() && i.Decode(r.Data[:]) == nil && i.GUID == p.Info.GUID {
			s.judge(i, &r.Data, nonce)
			p.Info = i
			s.elect.Saw(p)
			s.managers.silent = slices.DeleteFunc(s.managers.silent, func(m elect.Peer) bool { return m.Info.GUID == i.GUID })
		} else if (noManager(r) || r.OK()) && int(r.Tag) < len(peers) {
			s.elect.Lost(int(r.Tag))
		}
	}}
	for i, p := range all {
		hides := s.mayHide(p.Info)
		if last := s.managers.polled[p.Info.GUID]; idle && p.Info.State == mad.SMStandby && !hides &&
			time.Since(last.at) < 2*max(last.every, s.cfg.Poll) {
			continue
		}
		q := smp.Request{Method: mad.MethodGet, Attr: mad.AttrSMInfo, Path: p.Path, Tag: uint64(i)}
		if hides {
			self := s.elect.Info(s.self.act.Load())
			self.Append(q.Data[:0])
			*mad.SMInfoProof(&q.Data) = nonce
		}
		l.Requests = append(l.Requests, q)
	}
	return s.pumpWith(ctx, l, s.cfg.PollTimeout, 0)
}

// pollPeers is what a master does at each poll interval: the worse of two masters
// hands over, and the better one announces itself.
func (s *Subnet) pollPeers(ctx context.Context) error {
	if err := s.askPeers(ctx, true); err != nil || s.elect.State() != mad.SMMaster {
		return err
	}
	if err := s.watchRivals(ctx); err != nil || s.elect.State() != mad.SMMaster {
		return err
	}
	s.forgive()
	if err := s.handOver(ctx, s.elect.Discovered(s.elect.Peers())); err != nil || s.elect.State() != mad.SMMaster {
		return err
	}
	for _, p := range s.elect.Peers() {
		if p.Info.State == mad.SMMaster && s.elect.Trusts(p.Info) && time.Since(s.managers.announced) > announceEvery {
			s.managers.announced = time.Now()
			s.announce(p)
		}
	}
	return nil
}

// announceEvery is the time between two announcements to the same effect.
const announceEvery = 5 * time.Second

// announce sends a master of lower rank trap 144: this manager is ready to take
// over, so that it need not wait for its next sweep. It may have been met before it
// had a LID: then the local port's SMLID is used.
func (s *Subnet) announce(m elect.Peer) {
	to, sl := m.LID, ib.SL(0)
	if s.elect.State() == mad.SMStandby && s.port.SMLID.IsUnicast() {
		to, sl = s.port.SMLID, s.port.SMSL
	}
	if !(smp.Standing{Priority: s.cfg.Priority, GUID: s.port.PortGUID}).Better(m.Standing()) || !to.IsUnicast() || !s.port.LID.IsUnicast() {
		return
	}
	n := mad.Notice{Generic: true, Type: mad.NoticeInfo, Producer: uint32(s.port.NodeType), TrapNumber: mad.TrapCapMaskChange,
		IssuerLID: s.port.LID}
	n.SetDetailCapChange(mad.CapChange{LID: s.port.LID, LocalChanges: true, CapMask: mad.CapIsSM, Flags: mad.ChangeSMPriority})
	var p transport.Packet
	s.win.tid++
	mad.PutLR(&p.MAD, mad.MethodTrap, mad.AttrNotice, 0, uint64(unslotted|s.win.tid&0x7fffffff), 0, n.AppendSMP(nil))
	p.LID, p.SL = to, sl
	if err := s.put(&p); err != nil && !errors.Is(err, transport.ErrClosed) {
		s.log.Debug("trap 144 was not sent", "err", err)
	}
}
