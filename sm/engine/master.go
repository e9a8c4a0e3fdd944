package engine

import (
	"context"
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"time"
)

// duties is when a master next does what it does at intervals.
type duties struct {
	light, keys, peers time.Time
	keyPeriod          time.Duration // 0 where no M_Key lease can run out
}

// bring moves what is due later than after its interval, which was changed.
func (d *duties) bring(now time.Time, c *Config) {
	if next := now.Add(c.Sweep); c.Sweep > 0 && d.light.After(next) {
		d.light = next
	}
	if next := now.Add(c.Poll); d.peers.After(next) {
		d.peers = next
	}
}

// master serves the subnet until the state changes.
func (s *Subnet) master(ctx context.Context) error {
	defer func() { s.served.reports = newReports() }()
	now := time.Now()
	d := &duties{light: now.Add(s.cfg.Sweep), peers: now.Add(s.cfg.Poll), keyPeriod: s.keyPeriod()}
	d.keys = now.Add(d.keyPeriod)
	if s.prog.fabric == nil {
		// Made master by another's handover: the fabric is to be learned first.
		s.ev.full, s.ev.reason = true, "handover"
		s.sweeps.reregister = true
	}
	for s.elect.State() == mad.SMMaster {
		if err := s.checkLocal(); err != nil {
			return err
		}
		s.sweeps.active = s.ev.full || s.prog.fabric == nil || s.ev.any()
		busy, err := s.handleEvents(ctx, d)
		if err == nil && !busy {
			busy, err = s.handleDue(ctx, d, time.Now())
		}
		if err == nil && !busy {
			err = s.idle(ctx, d, time.Now())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// handleEvents does one thing that events or members ask for, and reports
// whether there was one.
func (s *Subnet) handleEvents(ctx context.Context, d *duties) (bool, error) {
	switch {
	case s.ev.full || s.prog.fabric == nil:
		err := s.fullSweep(ctx)
		d.light = time.Now().Add(s.cfg.Sweep)
		return true, err
	case s.ev.any() && !s.ev.resweep && time.Now().Before(s.sweeps.quietUntil):
		// The last events led to nothing: the next wait.
		return true, s.wait(ctx, time.Until(s.sweeps.quietUntil), func() bool { return s.ev.resweep || s.elect.State() != mad.SMMaster })
	case s.ev.any():
		return true, s.partialSweep(ctx)
	case s.mcastDue():
		return true, s.programMulticast(ctx)
	}
	return false, nil
}

// handleDue does one thing whose time has come, and reports whether there was one.
func (s *Subnet) handleDue(ctx context.Context, d *duties, now time.Time) (bool, error) {
	d.bring(now, &s.cfg)
	switch {
	case s.cfg.Sweep > 0 && !now.Before(d.light):
		s.ev.light = true
		d.light = now.Add(s.cfg.Sweep)
	case s.knowsPeers() && !now.Before(d.peers):
		d.peers = now.Add(s.cfg.Poll)
		return true, s.pollPeers(ctx)
	case d.keyPeriod > 0 && !now.Before(d.keys):
		d.keys = now.Add(d.keyPeriod)
		return true, s.renewKeys(ctx)
	case isDue(s.sweeps.retryAt, now):
		s.sweeps.retryAt = time.Time{}
		s.ev.guids = append(s.ev.guids, s.sweeps.failedAt...)
		s.ev.reason = "try again what failed"
	case isDue(s.sweeps.flaps.Next(), now):
		s.ev.guids = append(s.ev.guids, s.sweeps.flaps.Release(now)...)
		s.ev.reason = "try again a link that went down too often"
	case isDue(s.prog.want.compareAt, now):
		s.ev.apply, s.ev.reason = true, compareReason
	case isDue(s.babbles.next(), now):
		s.unbabble(now, false)
	default:
		return false, nil
	}
	return true, nil
}

// isDue reports whether a time has come; zero is never.
func isDue(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// idle serves others until something happens or the next duty is due.
func (s *Subnet) idle(ctx context.Context, d *duties, now time.Time) error {
	most := s.cfg.LocalPoll
	if len(s.prog.fabric.Switches) > 0 {
		most *= 4 // a switch reports what happens to its links
	}
	if s.cfg.Sweep > 0 {
		most = min(most, d.light.Sub(now))
	}
	if d.keyPeriod > 0 {
		most = min(most, d.keys.Sub(now))
	}
	if s.knowsPeers() {
		most = min(most, d.peers.Sub(now))
	}
	for _, t := range []time.Time{s.sweeps.flaps.Next(), s.babbles.next(), s.prog.want.compareAt} {
		if !t.IsZero() {
			most = min(most, t.Sub(now))
		}
	}
	dirty := s.served.mcastDirty
	if dirty {
		most = min(most, s.mcastDelayed().Sub(now))
	}
	err := s.wait(ctx, max(most, time.Millisecond), func() bool {
		return s.ev.any() || s.mcastDue() || s.served.mcastDirty != dirty || s.elect.State() != mad.SMMaster
	})
	if err == nil {
		s.tickSA()
	}
	return err
}

// checkLocal reads the local port: its link has no switch that reports changes.
func (s *Subnet) checkLocal() error {
	p, err := s.tr.Port()
	if err != nil {
		return err
	}
	was := s.port
	s.setPort(p)
	if p.Num == 0 {
		return nil
	}
	switch {
	case p.State < ib.PortInit:
		s.log.Warn("the local link is down", "was", was.State.String(), "state", p.State.String())
		// Alone on the port: what is found when it comes back decides.
		s.elect.Restart()
		return errRestart
	case s.prog.fabric == nil || s.prog.fabric.SMPort == fabric.None:
	case p.State == ib.PortInit && s.prog.fabric.Ports[s.prog.fabric.SMPort].Info.State() >= ib.PortArmed:
		s.log.Info("the local link was re-established", "was", was.State.String())
		s.elect.Restart()
		return errRestart
	case p.SMLID != 0 && p.SMLID != s.prog.fabric.Ports[s.prog.fabric.SMPort].LID && p.State >= ib.PortArmed:
		const again = 2 * time.Second
		if time.Since(s.sweeps.disturbed) < again {
			break
		}
		s.sweeps.disturbed = time.Now()
		s.warnOnce("disturbed", "another manager configured the local port", "sm_lid", p.SMLID.String())
		clear(s.prog.have.declined) // it may have set every port otherwise
		s.ev.full, s.ev.reason = true, "another manager configured the local port"
	}
	return nil
}
