package smctl

import (
	"cmp"
	"fmt"
	"time"

	"ibnetworkd/ib"
)

// idle decides for a port whose worker does not run.
func (d *decider) idle() Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m

	// An action that has been decided and does not show yet is not decided
	// again.
	failed := in.Worker.State == WorkerFailed && !in.Worker.Since.Before(m.StartedAt)
	if !m.StartedAt.IsZero() && !failed && !in.Worker.Since.After(m.StartedAt) {
		if due := m.StartedAt.Add(ActionGrace); in.Now.Before(due) {
			return d.wait(PhaseStarting, due, "%s is being started", in.Worker.Unit)
		}
	}
	if m.Failures > 0 && d.with() != m.FailedWith {
		// Other settings, or another file, may do: at once, the delay was waited for.
		m.Failures, m.LonelySince = 0, time.Unix(1, 0)
		m.SilentLID, m.SilentSince = p.SMLID, time.Unix(1, 0)
	}
	if m.Failures > 0 {
		if due := m.FailedAt.Add(backOff(m.Failures)); in.Now.Before(due) {
			if in.Worker.Refused {
				dec := d.wait(PhaseNoQP0, due, "%s; will retry in %v",
					cmp.Or(in.Worker.Result, in.Worker.Unit+" cannot open the port"), backOff(m.Failures))
				p.Barred = BarNoQP0
				dec.Next = barred(p).Next
				return dec
			}
			return d.wait(PhaseBackingOff, due, "%s failed (%s); attempt %d in %v",
				in.Worker.Unit, cmp.Or(in.Worker.Result, "no reason given"), m.Failures+1, backOff(m.Failures))
		}
	}
	if in.Worker.Override == OverrideStart {
		return d.start("started by hand")
	}
	if m.Again {
		// It served the port a moment ago: no query is needed.
		return d.start("the [SubnetManager] settings of %s have changed", pol.Unit)
	}
	if p.IsSM {
		return d.beside()
	}
	if p.Phys != ib.PhysLinkUp && p.State != ib.PortActive {
		d.forget()
		return d.wait(PhaseNoLink, time.Time{}, "%s", linkWords(p))
	}
	if pol.Manage == ManageAlways {
		return d.start("%s has Manage=always", cmp.Or(pol.Unit, "the unit"))
	}

	switch {
	case p.State == ib.PortDown:
		// Physical link up and logical state Down: on its way to Initializing.
		return d.wait(PhaseSettling, time.Time{}, "port %v is coming up", p)
	case p.State == ib.PortInit, p.State == ib.PortArmed, p.SMLID == 0:
		return d.lonely()
	}
	return d.served()
}

// beside decides for a port on which another subnet manager runs: that it is
// there does not mean that it serves the port, so the port's master is asked.
func (d *decider) beside() Decision {
	p := d.in.Port
	d.forget()
	if p.State != ib.PortActive || p.SMLID == 0 {
		return d.wait(PhaseUnserved, time.Time{},
			"another subnet manager runs on %v and has not configured it (%v): read its log", p, p.State)
	}
	ans, known := d.lidAnswer()
	if !known {
		return d.ask(AskLID, PhaseAsking, "another subnet manager runs on %v: querying LID %d for the master", p, uint16(p.SMLID))
	}
	master, ok := ans.Master()
	ph, next := PhaseUnserved, ans.At.Add(ServedInterval)
	why := fmt.Sprintf("another subnet manager runs on %v, and no master answers at LID %d: read its log", p, uint16(p.SMLID))
	switch {
	case ans.Err != "":
		ph, next = PhaseBlocked, ans.At.Add(BlockedInterval)
		why = fmt.Sprintf("cannot query the subnet manager at LID %d: %s", uint16(p.SMLID), ans.Err)
	case ok:
		ph, why = PhaseServed, fmt.Sprintf("%v serves port %v; another subnet manager runs on the port", master, p)
	}
	if d.in.Now.Before(next) {
		return d.wait(ph, next, "%s", why)
	}
	return d.ask(AskLID, ph, "%s; querying again", why)
}

// lonely decides for a port that no subnet manager has configured.
func (d *decider) lonely() Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m
	m.SilentSince, m.Silences = time.Time{}, 0
	if m.LonelySince.IsZero() {
		m.LonelySince = in.Now
	}
	due := m.LonelySince.Add(pol.StartDelay + spread(p.GUID, pol.StartDelay))
	if in.Now.Before(due) {
		return d.wait(PhaseSettling, due, "port %v is %v and no subnet manager has answered; the fabric is searched in %v",
			p, p.State, due.Sub(in.Now).Round(100*time.Millisecond))
	}
	return d.walkAndStart(due, fmt.Sprintf("port %v is %v and there is no subnet manager", p, p.State))
}

// served decides for an Active port: the subnet manager at its SM LID serves
// it, or is dead.
func (d *decider) served() Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m
	m.LonelySince = time.Time{}
	if m.SilentLID != p.SMLID {
		// Another one has configured the port since: the count starts again.
		m.SilentLID, m.SilentSince, m.Silences = p.SMLID, time.Time{}, 0
	}

	silent := func() Decision {
		if m.SilentSince.IsZero() {
			m.SilentSince = in.Now
		}
		due := m.SilentSince.Add(pol.StartDelay + spread(p.GUID, pol.StartDelay))
		if m.Silences < SilencesNeeded {
			due = later(due, in.Now.Add(SilentInterval))
		}
		if in.Now.Before(due) {
			return d.wait(PhaseSettling, earlier(due, in.Now.Add(SilentInterval)),
				"the subnet manager at LID %d does not answer; it is considered dead if that lasts %v",
				uint16(p.SMLID), (pol.StartDelay + spread(p.GUID, pol.StartDelay)).Round(100*time.Millisecond))
		}
		if master, ok := in.Answer.Master(); ok && in.Answer.Question == AskWalk && master.GUID != p.GUID &&
			!in.Answer.At.Before(due) && master.LID == p.SMLID {
			// The master answers again: back to polling it alone.
			m.SilentSince, m.Silences = time.Time{}, 0
			return d.wait(PhaseServed, in.Now.Add(ServedInterval), "%v serves port %v", master, p)
		}
		return d.walkAndStart(due, fmt.Sprintf("the subnet manager at LID %d is dead", uint16(p.SMLID)))
	}

	if p.SMLID == p.LID {
		// The last master was on this port and its process is gone.
		m.Silences = SilencesNeeded
		return silent()
	}
	ans, known := d.lidAnswer()
	if !known {
		// Between a walk and the next question the count goes on.
		if m.Silences >= SilencesNeeded && in.Answer.Question == AskWalk {
			return silent()
		}
		return d.ask(AskLID, PhaseServed, "querying the subnet manager at LID %d", uint16(p.SMLID))
	}
	if ans.Err != "" {
		if next := ans.At.Add(BlockedInterval); in.Now.Before(next) {
			return d.wait(PhaseBlocked, next, "cannot query the subnet manager at LID %d: %s", uint16(p.SMLID), ans.Err)
		}
		return d.ask(AskLID, PhaseServed, "querying the subnet manager at LID %d", uint16(p.SMLID))
	}
	counted := ans.At.Equal(m.CountedAt)
	m.CountedAt = ans.At
	if master, ok := ans.Master(); ok {
		m.SilentSince, m.Silences = time.Time{}, 0
		next := ans.At.Add(ServedInterval)
		if in.Now.Before(next) {
			return d.wait(PhaseServed, next, "%v serves port %v", master, p)
		}
		return d.ask(AskLID, PhaseServed, "querying the subnet manager at LID %d", uint16(p.SMLID))
	}
	// Silence, or one that is no longer master while no other has taken the
	// port over: both are no master.
	if !counted {
		m.Silences++
	}
	if m.Silences < SilencesNeeded {
		if m.SilentSince.IsZero() {
			m.SilentSince = in.Now
		}
		next := ans.At.Add(SilentInterval)
		if in.Now.Before(next) {
			return d.wait(PhaseSettling, next, "the subnet manager at LID %d does not answer (%d of %d questions)",
				uint16(p.SMLID), m.Silences, SilencesNeeded)
		}
		return d.ask(AskLID, PhaseSettling, "querying the subnet manager at LID %d again", uint16(p.SMLID))
	}
	dec := silent()
	if dec.Action == Wait && dec.Phase == PhaseSettling && !in.Now.Before(ans.At.Add(SilentInterval)) {
		// It may come back meanwhile: go on asking.
		return d.ask(AskLID, PhaseSettling, "querying the subnet manager at LID %d again", uint16(p.SMLID))
	}
	return dec
}

// walkAndStart walks the fabric and starts the worker if it has no subnet manager. due
// is when the delay ended.
func (d *decider) walkAndStart(due time.Time, why string) Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m
	if until := in.HostStart.Add(HostSettle); !in.HostStart.IsZero() && in.Now.Before(until) {
		return d.wait(PhaseSettling, until, "%s; a worker was just started on another port of this host, which may be on the same "+
			"subnet", why)
	}
	ans := in.Answer
	if ans.Question != AskWalk || ans.At.Before(due) {
		return d.ask(AskWalk, PhaseAsking, "%s: searching the fabric for one", why)
	}
	again := func(interval time.Duration, phase Phase, format string, args ...any) Decision {
		next := ans.At.Add(interval)
		if in.Now.Before(next) {
			return d.wait(phase, next, format, args...)
		}
		return d.ask(AskWalk, PhaseAsking, "%s: searching the fabric again", why)
	}
	if ans.Err != "" {
		return again(BlockedInterval, PhaseBlocked, "%s, and the fabric cannot be searched: %s", why, ans.Err)
	}
	if master, ok := ans.Master(); ok {
		if master.GUID == p.GUID {
			return again(UnservedInterval, PhaseServed, "another subnet manager already runs on %v on this host", p)
		}
		return again(UnservedInterval, PhaseUnserved,
			"%v exists but has not configured port %v: read its log and check the M_Key of the port", master, p)
	}
	var other *SMInfo
	for i := range ans.SMs {
		if s := &ans.SMs[i]; s.State != SMNotActive && (other == nil || s.Outranks(other.Priority, other.GUID)) {
			other = s
		}
	}
	if other != nil && in.Now.Before(due.Add(LeaderlessFactor*pol.StartDelay)) {
		return again(SilentInterval, PhaseUnserved, "%v exists and may become master", *other)
	}
	if !in.Now.Before(ans.At.Add(AnswerLife)) {
		return d.ask(AskWalk, PhaseAsking, "%s: searching the fabric for one", why)
	}
	m.SilentSince, m.Silences = time.Time{}, 0
	if other != nil {
		return d.start("%s; %v exists but did not become master", why, *other)
	}
	return d.start("%s", why)
}
