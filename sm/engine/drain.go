package engine

import (
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// drainMost bounds the switches that routes avoid.
const drainMost = 1024

// Drain has routes avoid switches from now on, and no longer avoid others, and gives
// those that are avoided then. It is kept in Config.Drains. ok is false when Run has
// ended or there would be too many, and of a standby that has those of the master.
func (s *Subnet) Drain(add, remove []ib.GUID) (now []control.Drain, ok bool) {
	done := make(chan struct{})
	s.do(func() {
		defer close(done)
		next := slices.Concat(s.drained, add)
		next = slices.DeleteFunc(next, func(g ib.GUID) bool { return slices.Contains(remove, g) })
		slices.Sort(next)
		if next = slices.Compact(next); len(next) > drainMost || s.elect.State() == mad.SMStandby && s.copied.regs != nil {
			return
		}
		if ok = true; !slices.Equal(next, s.drained) {
			s.drained = next
			s.saveDrains()
			s.prog.reroute, s.served.mcastDirty = true, true
			s.ev.apply, s.ev.resweep, s.ev.reason = true, true, "drained switches changed"
		}
		s.publish()
		now = s.state.Load().Drained
	})
	select {
	case <-done:
		return now, ok
	case <-s.stopped:
		return nil, false
	}
}

// adoptDrains has a standby avoid what the master avoids, when it is master.
func (s *Subnet) adoptDrains(of []ib.GUID) {
	if slices.Equal(of, s.drained) || len(of) > drainMost {
		return
	}
	s.drained = slices.Clone(of)
	s.saveDrains()
	s.log.Info("drained switches are those of the master", "switches", len(of))
}

// loadDrains reads the switches that were drained when a manager of this port ran last.
func (s *Subnet) loadDrains() {
	if s.cfg.Drains == nil {
		return
	}
	b, err := s.cfg.Drains.Load()
	if err != nil {
		s.log.Warn("drained switches are not remembered", "err", err)
		return
	}
	for line := range strings.Lines(string(b)) {
		if g, err := ib.ParseGUID(strings.TrimSpace(line)); err == nil && g != 0 && len(s.drained) < drainMost {
			s.drained = append(s.drained, g)
		} else {
			s.log.Warn("a line of the drained switches is not a GUID", "line", ib.Clip(strings.TrimSpace(line)))
		}
	}
	slices.Sort(s.drained)
	s.drained = slices.Compact(s.drained)
}

func (s *Subnet) saveDrains() {
	if s.cfg.Drains == nil {
		return
	}
	var b strings.Builder
	for _, g := range s.drained {
		b.WriteString(g.String() + "\n")
	}
	if err := s.cfg.Drains.Save([]byte(b.String())); err != nil {
		s.log.Warn("drained switches are not remembered", "err", err)
	}
}

// routed is the fabric as routes are to see it.
func (s *Subnet) routed(f *fabric.Fabric) *fabric.Fabric {
	g, _ := f.Drained(s.drained)
	return g
}

// drains describes the drained switches.
func (s *Subnet) drains(f *fabric.Fabric) []control.Drain {
	if f == nil {
		out := make([]control.Drain, 0, len(s.drained))
		for _, g := range s.drained {
			out = append(out, control.Drain{GUID: g})
		}
		return out
	}
	return control.Drained(f, s.drained)
}

// logDrains logs what new routes avoid.
func (s *Subnet) logDrains(f *fabric.Fabric) {
	for _, d := range s.drains(f) {
		switch {
		case d.Name == "":
		case len(d.Kept) > 0:
			s.log.Warn("a drained switch stays in the routes, for nothing else leads to some ports", "switch", d.Name, "guid", d.GUID.String(),
				"ports", len(d.Kept), "first", d.Kept[0])
		default:
			s.log.Info("routes avoid a drained switch", "switch", d.Name, "guid", d.GUID.String(), "hosts_on_it", len(d.Hosts))
		}
	}
}
