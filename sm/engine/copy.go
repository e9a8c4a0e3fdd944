package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/sa"
	"ibnetworkd/sm/transport"
)

// Reregister is which clients are asked to register again when this manager takes
// over from one whose registrations it has. Where it has none, all are.
type Reregister uint8

// The values. A change of the subnet manager's LID is a reason too: the kernel's SA
// client uses the old one until its driver reports the change, and those of mlx4 and
// mlx5 report nothing but the request to register.
const (
	ReregisterAuto   Reregister = iota // those whose adapter is not known to report it
	ReregisterAlways                   // all
	ReregisterNever                    // none
)

// ParseReregister reads auto, always or never.
func ParseReregister(s string) (Reregister, error) {
	for r, name := range [...]string{"auto", "always", "never"} {
		if s == name {
			return Reregister(r), nil
		}
	}
	return 0, fmt.Errorf("%q: not one of auto, always, never", s)
}

// reportsSM reports whether the driver of an adapter reports a change of the subnet
// manager's LID to the kernel's SA client.
func reportsSM(vendor uint32) bool {
	switch vendor {
	case 0, // software
		0x001175: // qib
		return true
	}
	return false
}

// copied is what a standby has of the master's registrations.
type copied struct {
	own     bool              // the master is an ibnetsm with the same SM_Key: set by its answers, cleared by standby
	regs    *sa.Registrations // nil before the first copy
	version uint64
	at      time.Duration // when it was read, on the SA's clock
	until   time.Time     // end of the lease: see followers
	again   time.Time     // when it is retried after a failure
	pending *pending
	// took is set when the copy was found to be complete, as this manager took over.
	took time.Time
}

// pending is a request to the master's SA.
type pending struct {
	tid  uint32
	done bool // set by the answer or its timeout
	err  error
	msg  []byte
}

const (
	// copyWait bounds the wait for a table; copyPause is the pause after a failure.
	copyWait  = time.Second
	copyPause = 5 * time.Second
	// takeoverMost bounds the time from taking over to the first answer of the SA.
	takeoverMost = time.Minute
	// copyAgain is when the master is polled again after a copy.
	copyAgain = 20 * time.Millisecond
)

// copyQuestion makes a poll of the master one that keeps the copy.
func (s *Subnet) copyQuestion(data *[64]byte, master ib.GUID) (nonce [16]byte) {
	rand.Read(nonce[:])
	self := s.elect.Info(s.self.act.Load())
	self.SMKey = 0
	self.Append(data[:0])
	*mad.SMInfoProof(data) = nonce
	mad.PutSMInfoCopy(data, mad.SMInfoCopy{Version: s.copied.version,
		Proof: s.elect.Trust().CopyProof(nonce, self.GUID, master, s.copied.version)})
	return nonce
}

// copyAnswer reads the answer to copyQuestion, which was sent at a time. It reports
// whether it is that of a manager that has the key and lets this one copy, and notes
// its lease.
func (s *Subnet) copyAnswer(data *[64]byte, info mad.SMInfo, nonce [16]byte, sent time.Time) (version uint64, ok bool) {
	c := mad.SMInfoCopyOf(data, false)
	s.copied.until = time.Time{}
	if *mad.SMInfoProof(data) != s.elect.Trust().CopyAnswer(nonce, s.port.PortGUID, info.GUID, c) {
		return 0, false
	}
	if s.copied.regs != nil && c.Lease > 0 {
		s.copied.until = sent.Add(time.Duration(min(c.Lease, uint32(copyLease.Milliseconds()))) * time.Millisecond)
	}
	return c.Version, true
}

// copyRegistrations reads what hosts registered with the master, which has a version
// of it. What comes of it is for the next poll to tell.
func (s *Subnet) copyRegistrations(ctx context.Context, version uint64) error {
	if s.copied.regs != nil && version == s.copied.version || time.Now().Before(s.copied.again) || s.port.State != ib.PortActive {
		return nil
	}
	began, at := time.Now(), s.now()
	var answers [len(sa.Copies)][]byte
	for i, a := range sa.Copies {
		b, err := s.askMaster(ctx, a)
		if s.elect.State() != mad.SMStandby {
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case b == nil:
			s.copied.again = time.Now().Add(copyPause)
			s.warnOnce("copy", "the registrations of the master are not copied, after a takeover hosts must register again", "why", err)
			return nil
		}
		answers[i] = b
	}
	regs, err := sa.ParseRegistrations(answers)
	if err != nil {
		s.warnOnce("copy", "the registrations of the master are not copied, after a takeover hosts must register again", "why", err)
		s.copied.again = time.Now().Add(copyPause)
		return nil
	}
	if s.copied.regs == nil {
		s.log.Info("copied the master's registrations", "memberships", regs.Members(), "duration",
			time.Since(began).Round(time.Microsecond).String())
	}
	s.adoptDrains(regs.Levels().Drained)
	// All tables have at least what the version has; what is newer was not answered.
	s.copied.regs, s.copied.version, s.copied.at = &regs, version, at
	// Most of the time is for other things.
	s.copied.again = time.Now().Add(2 * time.Since(began))
	return nil
}

// askMaster queries the master's SA for a table.
func (s *Subnet) askMaster(ctx context.Context, a mad.AttrID) ([]byte, error) {
	s.win.tid++
	p := &pending{tid: unslotted | s.win.tid&0x7fffffff}
	h := mad.NewSA(mad.MethodGetTable, a, p.tid, 0)
	h.SMKey = s.cfg.SA.SAKey
	h.SMKey = cmp.Or(h.SMKey, 1)
	k := transport.Packet{LID: s.port.SMLID, QPN: 1, SL: s.port.SMSL, Timeout: copyWait / 2, Retries: 1}
	h.Put(&k.MAD)
	s.copied.pending = p
	defer func() { s.copied.pending = nil }()
	if err := s.put(&k); err != nil {
		return nil, err
	}
	if err := s.wait(ctx, copyWait, func() bool { return p.done || s.elect.State() != mad.SMStandby }); err != nil {
		return nil, err
	}
	if p.err == nil && p.msg == nil {
		p.err = transport.ErrTimeout
	}
	return p.msg, p.err
}

// copyResponse takes the answer to askMaster.
func (s *Subnet) copyResponse(p *transport.Packet) {
	w := s.copied.pending
	if w == nil || uint32(mad.TIDOf(&p.MAD)) != w.tid || w.done {
		return
	}
	w.done, w.err = true, p.Err
	switch {
	case p.Err != nil:
	case mad.ClassOf(&p.MAD) != mad.ClassSA:
		w.err = transport.ErrTimeout
	case mad.StatusOf(&p.MAD) != 0:
		w.err = fmt.Errorf("status 0x%04x", uint16(mad.StatusOf(&p.MAD)))
	default:
		w.msg = append([]byte(nil), p.Bytes()...)
	}
}

// inherit keeps the copy for a takeover that begins now, if it is complete. If not, its
// levels of paths are still what to begin from.
func (s *Subnet) inherit() {
	s.copied.took = time.Time{}
	if now := time.Now(); s.copied.regs != nil && now.Before(s.copied.until) {
		s.copied.took = now
	}
}

// restore begins to serve with the copy, if there is one that is complete. Ports whose
// hosts need not register are marked.
func (w *sweep) restore() {
	s := w.s
	c := s.copied
	s.copied = copied{}
	if c.took.IsZero() || time.Since(c.took) > takeoverMost {
		return
	}
	changes, err := s.served.admin.Restore(c.at, c.regs, w.f)
	if err != nil {
		s.log.Warn("the previous master's registrations cannot be used", "why", err)
		return
	}
	for _, b := range changes.GUIDs { // which it may not have written
		s.served.guids[guidKey{b.Port, b.Block}] = b.GUIDs
	}
	s.served.mcastLatest = time.Time{}
	asked := 0
	for _, i := range w.f.EndPorts {
		p := &w.f.Ports[i]
		n := &w.f.Nodes[p.Node]
		if s.cfg.Reregister == ReregisterNever ||
			s.cfg.Reregister == ReregisterAuto && (n.Switch != fabric.None || reportsSM(n.VendorID)) {
			w.have.reregistered[i] = true
		} else if p.Info.State() == ib.PortActive {
			asked++
		}
	}
	s.log.Info("serving with the previous master's registrations", "memberships", c.regs.Members(), "asked_to_register", asked)
}
