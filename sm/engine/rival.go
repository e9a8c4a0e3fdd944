package engine

import (
	"context"
	"fmt"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/elect"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
)

// rivals are managers of the same subnet that are not trusted: neither hands over to
// the other, and two masters undo each other's settings.
type rivals struct {
	said    map[ib.GUID]time.Time // when each is to be reported next
	refused map[ib.GUID]time.Time // until when one counts that did not accept a handover
	checked time.Time             // when the LIDs of all ports were last compared
	doubled int                   // LIDs that two ports had then
	since   time.Time             // since when a master that is not trusted does nothing
}

const (
	rivalFirst = 5 * time.Second
	rivalAgain = time.Minute
	// rivalIdle is how long a master that is not trusted may leave the local port
	// unconfigured before it no longer counts as one.
	rivalIdle = 10 * time.Second
	// rivalPause is the pause before a handover that was refused is retried.
	rivalPause = time.Minute
)

// refused notes that a manager did not accept a handover: it has another SM_Key or
// M_Key, and is not trusted until it changes or the pause is over. If it did not answer,
// SMPs may be lost: then the second time counts.
func (s *Subnet) refused(p elect.Peer, r *smp.Reply) {
	g, once := p.Info.GUID, !time.Now().Before(s.rivals.refused[p.Info.GUID])
	s.rivals.refused[g] = time.Now().Add(rivalPause)
	if r.Timeout && once {
		s.log.Warn("handover not answered", "guid", g.String(), "priority", p.Info.Priority)
		return
	}
	s.elect.Distrust(p.Info, elect.Refused)
	if _, seen := s.rivals.said[g]; !seen {
		s.rivals.said[g] = time.Now()
	}
	s.report(p, "timeout", r.Timeout, "status", uint16(r.Status))
}

// forgive permits a handover to managers again whose pause is over.
func (s *Subnet) forgive() {
	for g, at := range s.rivals.refused {
		if !time.Now().Before(at) {
			s.elect.Forgive(g, elect.Refused)
			delete(s.rivals.refused, g)
		}
	}
}

// mayHide reports whether a manager could have a key that it does not show: then it is
// queried for a proof.
func (s *Subnet) mayHide(i mad.SMInfo) bool {
	return s.elect.Trust().Key == elect.DefaultKey && i.SMKey == 0
}

// judge notes by an answer to a nonce whether a manager hides a key of its own.
func (s *Subnet) judge(i mad.SMInfo, data *[64]byte, nonce [16]byte) {
	switch proof := *mad.SMInfoProof(data); {
	case !s.mayHide(i) || proof == [16]byte{}:
	case s.elect.Trust().Hides(i, proof, nonce, s.port.PortGUID):
		s.elect.Distrust(i, elect.HidesKey)
	default:
		s.elect.Forgive(i.GUID, elect.HidesKey)
	}
}

// report logs once a minute that a manager is not trusted.
func (s *Subnet) report(p elect.Peer, args ...any) {
	why, g := s.elect.Problem(p.Info), p.Info.GUID
	if why == "" {
		delete(s.rivals.said, g)
		return
	}
	if len(s.rivals.said) > 1024 {
		clear(s.rivals.said)
	}
	at, seen := s.rivals.said[g]
	if !seen {
		// One with the same key shows it after it was asked back.
		s.rivals.said[g] = time.Now().Add(rivalFirst)
	}
	if !seen || time.Now().Before(at) {
		return
	}
	s.rivals.said[g] = time.Now().Add(rivalAgain)
	lid := p.LID
	if s.prog.fabric != nil {
		if i := s.prog.fabric.EndPortByGUID(p.Info.GUID); i != fabric.None {
			lid = s.prog.fabric.Ports[i].LID
		}
	}
	keys := "SM_Key"
	if why == elect.Refused {
		keys += " and M_Key"
	}
	s.log.Warn("another subnet manager "+why+": neither hands over to the other; stop one of them or give both the same "+keys,
		append([]any{"guid", p.Info.GUID.String(), "lid", lid.String(),
			"priority", p.Info.Priority, "state", p.Info.State.String(), "own_priority", s.cfg.Priority}, args...)...)
}

// watchRivals reports managers that are not trusted and, while one of them is
// master too, checks whether it assigns LIDs that others have.
func (s *Subnet) watchRivals(ctx context.Context) error {
	master := false
	for _, p := range s.elect.Peers() {
		s.report(p)
		master = master || p.Info.State == mad.SMMaster && !s.elect.Trusts(p.Info)
	}
	if !master {
		s.rivals.doubled = 0
		return nil
	}
	if s.cfg.Sweep <= 0 || time.Since(s.rivals.checked) < s.cfg.Sweep || s.prog.fabric == nil {
		return nil
	}
	s.rivals.checked = time.Now()
	return s.checkLIDs(ctx)
}

// checkLIDs reads the LIDs that the ports have by now.
func (s *Subnet) checkLIDs(ctx context.Context) error {
	f := s.prog.fabric
	owner := map[ib.LID]int32{}
	doubled, changed := 0, 0
	example := ""
	l := &smp.List{Done: func(r *smp.Reply) {
		if !r.OK() {
			return
		}
		i := int32(r.Tag)
		pi := mad.PortInfoOf(&r.Data)
		lid := pi.LID()
		if lid != f.Ports[i].LID {
			changed++
		}
		if o, twice := owner[lid]; twice && lid.IsUnicast() {
			if doubled++; example == "" {
				example = fmt.Sprintf("LID %v is that of %s and of %s", lid, f.PortName(o), f.PortName(i))
			}
		}
		owner[lid] = i
	}}
	for _, e := range f.EndPorts {
		if path, ok := program.PathTo(f, e); ok {
			l.Requests = append(l.Requests, smp.Request{Method: mad.MethodGet, Attr: mad.AttrPortInfo, Mod: uint32(f.Ports[e].Num),
				Path: path, Tag: uint64(e)})
		}
	}
	if err := s.pump(ctx, l); err != nil {
		return err
	}
	s.rivals.doubled = doubled
	if doubled+changed > 0 {
		s.log.Warn("another subnet manager changes the LIDs of this subnet", "changed", changed, "used_twice", doubled, "example", example)
		s.ev.full, s.ev.reason = true, "LIDs that another manager changed"
	}
	return nil
}

// idleMaster reports whether the master is not trusted and has not configured the
// local port for a while: it only claims to be one.
func (s *Subnet) idleMaster() bool {
	m := s.elect.Master()
	if m.Info.State != mad.SMMaster || s.elect.Trusts(m.Info) || s.port.Num == 0 ||
		s.port.State == ib.PortActive && (s.port.SMLID == m.LID || !m.LID.IsUnicast()) {
		s.rivals.since = time.Time{}
		return false
	}
	if s.rivals.since.IsZero() {
		s.rivals.since = time.Now()
	}
	return time.Since(s.rivals.since) > rivalIdle
}
