package smctl

import (
	"fmt"
	"time"

	"ibnetworkd/ib"
)

// running decides for a port whose worker runs.
func (d *decider) running() Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m
	// Silences counts on here; what an idle port counted was reset by the start.
	m.LonelySince, m.SilentSince, m.SilentLID = time.Time{}, time.Time{}, 0
	byHand := in.Worker.Override == OverrideStart
	if in.Now.Sub(in.Worker.Since) >= Healthy {
		m.Failures = 0
	}
	switch {
	case in.Files.Problem != "":
		// Settings that name a bad file never end what works.
	case in.Worker.Change == ChangeRestart && p.Barred != BarNone:
		// What is stopped now could not be started again.
	case in.Worker.Change == ChangeRestart:
		dec := d.stop("the [SubnetManager] settings of %s have changed since it was started", pol.Unit)
		m.Again = true
		return dec
	case in.Worker.Change == ChangeReload:
		return Decision{Action: Reload, Phase: d.role(),
			Reason: fmt.Sprintf("the [SubnetManager] settings of %s, or files that they name, have changed", pol.Unit)}
	}

	if p.Phys != ib.PhysLinkUp && p.State != ib.PortActive {
		if m.DownSince.IsZero() {
			m.DownSince = in.Now
		}
		if byHand {
			return d.wait(PhaseNoLink, time.Time{}, "%s, and the worker was started by hand: it stays", linkWords(p))
		}
		due := m.DownSince.Add(pol.StopDelay)
		if in.Now.Before(due) {
			return d.wait(PhaseNoLink, due, "%s: the worker is stopped if that lasts %v", linkWords(p), pol.StopDelay)
		}
		return d.stop("%s for %v", linkWords(p), pol.StopDelay)
	}
	m.DownSince = time.Time{}

	if p.SMLID == 0 || p.SMLID == p.LID {
		// No other has configured the port: the worker does, or is about to.
		m.Other, m.OtherSince = 0, time.Time{}
		return d.own()
	}

	return d.besideMaster()
}

// besideMaster decides for a port whose worker runs and which another subnet manager
// has configured.
func (d *decider) besideMaster() Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m
	byHand := in.Worker.Override == OverrideStart
	ans, fresh := d.lidAnswer()
	if !fresh || !in.Now.Before(ans.At.Add(ServedInterval)) {
		return d.ask(AskLID, PhaseStandby, "querying LID %d for the master", uint16(p.SMLID))
	}
	next := ans.At.Add(ServedInterval)
	master, ok := ans.Master()
	switch {
	case ok:
		m.Silences = 0
	case len(ans.SMs) == 0 && !m.OtherSince.IsZero():
		// One lost datagram is no death, and must not restart the delay:
		// where many are lost the worker would never be stopped.
		if !ans.At.Equal(m.CountedAt) {
			m.CountedAt = ans.At
			m.Silences++
		}
		if m.Silences < SilencesNeeded {
			if again := ans.At.Add(SilentInterval); in.Now.Before(again) {
				return d.wait(PhaseStandby, again, "the master at LID %d does not answer (%d of %d questions)", uint16(p.SMLID),
					m.Silences, SilencesNeeded)
			}
			return d.ask(AskLID, PhaseStandby, "querying the master at LID %d again", uint16(p.SMLID))
		}
	}
	if !ok || master.GUID == p.GUID {
		m.Other, m.OtherSince = 0, time.Time{}
		switch {
		case ok:
			return d.wait(PhaseStandby, next, "the local subnet manager is master and will configure port %v", p)
		case len(ans.SMs) == 0:
			return d.wait(PhaseStandby, next,
				"the local subnet manager runs and takes over: the last master, LID %d, does not answer", uint16(p.SMLID))
		}
		return d.wait(PhaseStandby, next, "the local subnet manager runs and the one at LID %d is no longer master: if this "+
			"lasts, read the log of %s and check the M_Key of port %v",
			uint16(p.SMLID), in.Worker.Unit, p)
	}
	if m.Other != master.GUID || m.OtherSince.IsZero() {
		m.Other, m.OtherSince = master.GUID, in.Now
	}
	switch {
	case byHand:
		return d.wait(PhaseStandby, next, "%v is master; the local one was started by hand and stays as standby", master)
	case !pol.StopWhenForeignMaster:
		return d.wait(PhaseStandby, next, "%v is master; the local one stays as standby", master)
	case !master.Outranks(pol.Priority, p.GUID):
		// It should hand over. One that does not serves the subnet all the
		// same, and the worker would be standby for ever.
		due := m.OtherSince.Add(LeaderlessFactor * pol.StopDelay)
		if in.Now.Before(due) {
			return d.wait(PhaseStandby, earlier(due, next),
				"%v is master, but the local one (priority %d) outranks it: waiting for it to hand over", master, pol.Priority)
		}
		return d.stop("%v has been master for %v and does not hand over", master, LeaderlessFactor*pol.StopDelay)
	}
	due := m.OtherSince.Add(pol.StopDelay)
	if in.Now.Before(due) {
		return d.wait(PhaseStandby, earlier(due, next), "%v is master; the local one is stopped if that lasts %v", master, pol.StopDelay)
	}
	return d.stop("%v has been master for %v", master, pol.StopDelay)
}

// role is the phase of a worker by its own word.
func (d *decider) role() Phase {
	said := d.in.Worker.StatusText
	switch {
	case said.Known && said.State == SMMaster:
		return PhaseMaster
	case said.Known && said.State == SMStandby:
		return PhaseStandby
	case said.Known:
		return PhaseRunning
	}
	// opensm says nothing to systemd: what it answers to SMInfo counts.
	if a, ok := d.lidAnswer(); ok {
		if m, ok := a.Master(); ok && m.GUID == d.in.Port.GUID {
			return PhaseMaster
		}
	}
	return PhaseRunning
}

// own decides for a port that no other has configured. Which one is master the
// subnet manager says itself: that no other has left its LID on the port proves
// nothing.
func (d *decider) own() Decision {
	in, p := d.in, d.in.Port
	byHand := overrideText(in.Worker.Override == OverrideStart)
	note := ""
	if n := in.Worker.StatusText.Note; n != "" && in.Worker.StatusText.Known {
		note = "; " + n
	} else if f := in.Files.Problem; f != "" {
		note = "; " + f + ": it keeps running with what it has"
	}
	until, asked := time.Time{}, in.Worker.StatusText.Known || p.LID == 0
	if !asked {
		ans, known := d.lidAnswer()
		wait := ServedInterval
		if m, ok := ans.Master(); !ok || m.GUID != p.GUID {
			wait = SilentInterval
		}
		if ans.Err != "" {
			wait = BlockedInterval
		}
		if until = ans.At.Add(wait); !known || !in.Now.Before(until) {
			return d.ask(AskLID, d.role(), "querying the subnet manager on %v for its state", p)
		}
	}
	switch ph := d.role(); {
	case ph == PhaseMaster && p.State == ib.PortActive:
		return d.wait(ph, until, "the local subnet manager is master%s%s", byHand, note)
	case ph == PhaseMaster:
		return d.wait(ph, until, "the local subnet manager is master and configures the fabric; port %v is still %v%s", p, p.State, note)
	case ph == PhaseStandby:
		return d.wait(ph, until, "the local subnet manager is standby, and the master has not configured port %v yet%s", p, note)
	}
	return d.wait(PhaseRunning, until, "the local subnet manager runs and is not master yet; port %v is %v%s", p, p.State, note)
}
