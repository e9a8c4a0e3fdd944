package smctl

import (
	"cmp"
	"fmt"
	"time"

	"ibnetworkd/ib"
)

// Timing that is not in the unit file.
const (
	// AnswerLife is how long an answer may be old to found a start on.
	AnswerLife = 1500 * time.Millisecond
	// ServedInterval is how often the master that serves a port is asked
	// whether it lives.
	ServedInterval = 10 * time.Second
	// MasterLife is how long an answer names the master of a port.
	MasterLife = 3 * ServedInterval
	// SilentInterval is how often it is asked once it did not answer.
	SilentInterval = time.Second
	// SilencesNeeded is how many questions must stay without an answer
	// before it counts as dead: one lost datagram is no death.
	SilencesNeeded = 3
	// ForeignInterval is how often the fabric is walked again while a
	// foreign subnet manager is there that does not serve the port.
	ForeignInterval = 5 * time.Second
	// BlockedInterval is how often a question that could not be put is
	// tried again.
	BlockedInterval = 10 * time.Second
	// HostSettle is how long a start on another port of this host keeps the
	// rest waiting: their ports may be on the same subnet.
	HostSettle = 5 * time.Second
	// ActionGrace is how long an action may take to show in the worker's
	// state before it is decided again.
	ActionGrace = 10 * time.Second
	// UnitGrace is how long a worker runs on when no unit asks for one any
	// more: a file that is being replaced, or a link that is made anew, is
	// without a unit for a moment.
	UnitGrace = 2 * time.Second
	// Healthy is how long a worker must have run for its failures to be
	// forgotten.
	Healthy = time.Minute
	// BackOffMin and BackOffMax bound the wait after failures, doubled by
	// each.
	BackOffMin = 5 * time.Second
	BackOffMax = 5 * time.Minute
	// LeaderlessFactor times the start delay is how long subnet managers
	// that are not master may take to elect one, and times the stop delay
	// how long a master of lower rank may take to hand over.
	LeaderlessFactor = 3
)

// BackOff is how long to wait after n failures in a row.
func BackOff(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	d := BackOffMin
	for i := 1; i < n && d < BackOffMax; i++ {
		d *= 2
	}
	return min(d, BackOffMax)
}

// Decide is the state machine: from what is remembered and what is observed,
// what to do with the subnet manager of one port, and why.
//
// The caller carries out the action, changes Worker.State at once when it has
// queued a job, and calls again when an input changes or Until has passed. It
// is safe to call at any time and any number of times.
func Decide(m Memory, in Input) (Memory, Decision) {
	d := &decider{m: m, in: in}
	dec := d.decide()
	return d.m, dec
}

type decider struct {
	m  Memory
	in Input
}

func (d *decider) decide() Decision {
	d.countFailure()
	w, p, pol := d.in.Worker, d.in.Port, d.in.Policy

	switch w.State {
	case WorkerActivating:
		return d.wait(PhaseStarting, time.Time{}, "%s is being started", w.Unit)
	case WorkerDeactivating:
		return d.wait(PhaseStopping, time.Time{}, "%s is being stopped", w.Unit)
	}
	running := w.State == WorkerActive

	switch {
	case !p.Present:
		if running {
			return d.stop("port %v is gone", p)
		}
		d.forget()
		return d.wait(PhaseOff, time.Time{}, "port %v is not there", p)
	case p.LinkLayer != ib.LinkLayerInfiniBand:
		if running {
			return d.stop("the link layer of port %v is now %v", p, p.LinkLayer)
		}
		d.forget()
		return d.wait(PhaseOff, time.Time{}, "%v needs no subnet manager: its link layer is %v", p, p.LinkLayer)
	case w.Hand == HandStop:
		if running {
			return d.stop("stopped by hand")
		}
		d.forget()
		return d.wait(PhaseHeld, time.Time{}, "stopped by hand: `ibnetctl sm start %v` gives it back", p)
	case running && p.Barred.forbids():
		return d.stop("%s", barred(p).Reason)
	case !running && p.Barred != BarNone && (pol.Manage != ManageNo || w.Hand == HandStart):
		if p.Barred > BarUnknown {
			d.forget()
		}
		return barred(p)
	case pol.Manage == ManageNo && w.Hand != HandStart:
		if running {
			if pol.Unit != "" {
				return d.stop("%s says Manage=no", pol.Unit)
			}
			if d.m.UnitGoneSince.IsZero() {
				d.m.UnitGoneSince = d.in.Now
			}
			due := d.m.UnitGoneSince.Add(UnitGrace)
			if d.in.Now.Before(due) {
				return d.wait(d.role(), due, "no unit asks for a subnet manager on %v any more: it is stopped if that lasts %v", p, UnitGrace)
			}
			return d.stop("no unit asks for a subnet manager on %v any more", p)
		}
		d.forget()
		if pol.Unit != "" {
			return d.wait(PhaseOff, time.Time{}, "%s says Manage=no", pol.Unit)
		}
		return d.wait(PhaseOff, time.Time{}, "no unit with a [SubnetManager] section matches %v", p)
	}

	d.m.UnitGoneSince = time.Time{}
	if running {
		return d.running()
	}
	d.m.DownSince, d.m.Foreign, d.m.ForeignSince = time.Time{}, 0, time.Time{}
	return d.idle()
}

// running decides for a port whose worker runs.
func (d *decider) running() Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m
	// Silences counts on here; what an idle port counted was reset by the start.
	m.LonelySince, m.SilentSince, m.SilentLID = time.Time{}, time.Time{}, 0
	byHand := in.Worker.Hand == HandStart
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
		return Decision{Action: Reload, Phase: d.role(), Reason: fmt.Sprintf("the [SubnetManager] settings of %s, or files that they name, have changed", pol.Unit)}
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
		// Nobody else has configured the port: ours does, or is about to.
		m.Foreign, m.ForeignSince = 0, time.Time{}
		return d.own()
	}

	// The port was configured by another.
	ans, fresh := d.lidAnswer()
	if !fresh || !in.Now.Before(ans.At.Add(ServedInterval)) {
		return d.ask(AskLID, PhaseStandby, "asking who is master at LID %d", uint16(p.SMLID))
	}
	next := ans.At.Add(ServedInterval)
	master, ok := ans.Master()
	switch {
	case ok:
		m.Silences = 0
	case len(ans.SMs) == 0 && !m.ForeignSince.IsZero():
		// One lost datagram is no death, and must not begin the delay anew:
		// where many are lost ours would never go.
		if !ans.At.Equal(m.CountedAt) {
			m.CountedAt = ans.At
			m.Silences++
		}
		if m.Silences < SilencesNeeded {
			if again := ans.At.Add(SilentInterval); in.Now.Before(again) {
				return d.wait(PhaseStandby, again, "the master at LID %d does not answer (%d of %d questions)", uint16(p.SMLID), m.Silences, SilencesNeeded)
			}
			return d.ask(AskLID, PhaseStandby, "asking the master at LID %d again", uint16(p.SMLID))
		}
	}
	if !ok || master.GUID == p.GUID {
		m.Foreign, m.ForeignSince = 0, time.Time{}
		switch {
		case ok:
			return d.wait(PhaseStandby, next, "ours is master and is about to configure port %v", p)
		case len(ans.SMs) == 0:
			return d.wait(PhaseStandby, next, "ours runs; the last master, LID %d, does not answer: ours takes over", uint16(p.SMLID))
		}
		return d.wait(PhaseStandby, next, "ours runs and the manager at LID %d is no longer master: if this lasts, look at the log of %s, and at the M_Key of port %v",
			uint16(p.SMLID), in.Worker.Unit, p)
	}
	if m.Foreign != master.GUID || m.ForeignSince.IsZero() {
		m.Foreign, m.ForeignSince = master.GUID, in.Now
	}
	switch {
	case byHand:
		return d.wait(PhaseStandby, next, "%v is master; ours was started by hand and stays as standby", master)
	case !pol.StopWhenForeignMaster:
		return d.wait(PhaseStandby, next, "%v is master; ours stays as standby", master)
	case !master.Outranks(pol.Priority, p.GUID):
		// It should hand over. One that does not serves the subnet all the
		// same, and ours would stand by for ever.
		due := m.ForeignSince.Add(LeaderlessFactor * pol.StopDelay)
		if in.Now.Before(due) {
			return d.wait(PhaseStandby, earlier(due, next), "%v is master, but ours (priority %d) outranks it: waiting for it to hand over", master, pol.Priority)
		}
		return d.stop("%v has been master for %v and does not hand over", master, LeaderlessFactor*pol.StopDelay)
	}
	due := m.ForeignSince.Add(pol.StopDelay)
	if in.Now.Before(due) {
		return d.wait(PhaseStandby, earlier(due, next), "%v is master; ours is stopped if that lasts %v", master, pol.StopDelay)
	}
	return d.stop("%v has been master for %v", master, pol.StopDelay)
}

// role is the phase of a worker by its own word.
func (d *decider) role() Phase {
	said := d.in.Worker.Said
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

// own decides for a port that nobody but ours has configured. Who is master the
// subnet manager says itself: that no other has left its LID on the port proves
// nothing.
func (d *decider) own() Decision {
	in, p := d.in, d.in.Port
	byHand := handWords(in.Worker.Hand == HandStart)
	note := ""
	if n := in.Worker.Said.Note; n != "" && in.Worker.Said.Known {
		note = "; " + n
	} else if f := in.Files.Problem; f != "" {
		note = "; " + f + ": it runs on with what it has"
	}
	until, asked := time.Time{}, in.Worker.Said.Known || p.LID == 0
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
			return d.ask(AskLID, d.role(), "asking the subnet manager on %v whether it is master", p)
		}
	}
	switch ph := d.role(); {
	case ph == PhaseMaster && p.State == ib.PortActive:
		return d.wait(ph, until, "ours is master%s%s", byHand, note)
	case ph == PhaseMaster:
		return d.wait(ph, until, "ours is master and configures the fabric; port %v is still %v%s", p, p.State, note)
	case ph == PhaseStandby:
		return d.wait(ph, until, "ours stands by for a master that has not configured port %v yet%s", p, note)
	}
	return d.wait(PhaseRunning, until, "ours runs and has not become master yet; port %v is %v%s", p, p.State, note)
}

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
		if due := m.FailedAt.Add(BackOff(m.Failures)); in.Now.Before(due) {
			if in.Worker.Refused {
				dec := d.wait(PhaseNoQP0, due, "%s; will retry in %v", cmp.Or(in.Worker.Result, in.Worker.Unit+" cannot open the port"), BackOff(m.Failures))
				p.Barred = BarNoQP0
				dec.Next = barred(p).Next
				return dec
			}
			return d.wait(PhaseBackingOff, due, "%s failed (%s); attempt %d in %v",
				in.Worker.Unit, cmp.Or(in.Worker.Result, "no reason given"), m.Failures+1, BackOff(m.Failures))
		}
	}
	if in.Worker.Hand == HandStart {
		return d.start("started by hand")
	}
	if m.Again {
		// It served the port a moment ago: nobody has to be asked.
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
		return d.start("%s says Manage=always", cmp.Or(pol.Unit, "the unit"))
	}

	switch {
	case p.State == ib.PortDown:
		// Physical link up and logical state Down: on its way to Initialize.
		return d.wait(PhaseSettling, time.Time{}, "port %v is coming up", p)
	case p.State == ib.PortInit, p.State == ib.PortArmed, p.SMLID == 0:
		return d.lonely()
	}
	return d.served()
}

// beside decides for a port on which a subnet manager runs that is not ours: that it is
// there does not mean that it serves the port, so the port's master is asked.
func (d *decider) beside() Decision {
	p := d.in.Port
	d.forget()
	if p.State != ib.PortActive || p.SMLID == 0 {
		return d.wait(PhaseForeign, time.Time{}, "a subnet manager that is not ours runs on %v and has not configured it (%v): read its log", p, p.State)
	}
	ans, known := d.lidAnswer()
	if !known {
		return d.ask(AskLID, PhaseAsking, "a subnet manager that is not ours runs on %v: asking who is master at LID %d", p, uint16(p.SMLID))
	}
	master, ok := ans.Master()
	ph, next := PhaseForeign, ans.At.Add(ServedInterval)
	why := fmt.Sprintf("a subnet manager that is not ours runs on %v, and no master answers at LID %d: read its log", p, uint16(p.SMLID))
	switch {
	case ans.Err != "":
		ph, next = PhaseBlocked, ans.At.Add(BlockedInterval)
		why = fmt.Sprintf("cannot ask the subnet manager at LID %d: %s", uint16(p.SMLID), ans.Err)
	case ok:
		ph, why = PhaseServed, fmt.Sprintf("%v serves port %v; a subnet manager that is not ours runs on the port", master, p)
	}
	if d.in.Now.Before(next) {
		return d.wait(ph, next, "%s", why)
	}
	return d.ask(AskLID, ph, "%s; asking again", why)
}

// lonely decides for a port that nobody has configured.
func (d *decider) lonely() Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m
	m.SilentSince, m.Silences = time.Time{}, 0
	if m.LonelySince.IsZero() {
		m.LonelySince = in.Now
	}
	due := m.LonelySince.Add(pol.StartDelay + Spread(p.GUID, pol.StartDelay))
	if in.Now.Before(due) {
		return d.wait(PhaseSettling, due, "port %v is %v and no subnet manager has answered; the fabric is asked in %v",
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
		// Another one has configured the port since: the count starts anew.
		m.SilentLID, m.SilentSince, m.Silences = p.SMLID, time.Time{}, 0
	}

	silent := func() Decision {
		if m.SilentSince.IsZero() {
			m.SilentSince = in.Now
		}
		due := m.SilentSince.Add(pol.StartDelay + Spread(p.GUID, pol.StartDelay))
		if m.Silences < SilencesNeeded {
			due = later(due, in.Now.Add(SilentInterval))
		}
		if in.Now.Before(due) {
			return d.wait(PhaseSettling, earlier(due, in.Now.Add(SilentInterval)),
				"the subnet manager at LID %d does not answer; it counts as dead if that lasts %v",
				uint16(p.SMLID), (pol.StartDelay + Spread(p.GUID, pol.StartDelay)).Round(100*time.Millisecond))
		}
		if master, ok := in.Answer.Master(); ok && in.Answer.Question == AskWalk && master.GUID != p.GUID && !in.Answer.At.Before(due) && master.LID == p.SMLID {
			// It is alive after all: back to asking it alone.
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
		return d.ask(AskLID, PhaseServed, "asking whether the subnet manager at LID %d lives", uint16(p.SMLID))
	}
	if ans.Err != "" {
		if next := ans.At.Add(BlockedInterval); in.Now.Before(next) {
			return d.wait(PhaseBlocked, next, "cannot ask the subnet manager at LID %d: %s", uint16(p.SMLID), ans.Err)
		}
		return d.ask(AskLID, PhaseServed, "asking whether the subnet manager at LID %d lives", uint16(p.SMLID))
	}
	counted := ans.At.Equal(m.CountedAt)
	m.CountedAt = ans.At
	if master, ok := ans.Master(); ok {
		m.SilentSince, m.Silences = time.Time{}, 0
		next := ans.At.Add(ServedInterval)
		if in.Now.Before(next) {
			return d.wait(PhaseServed, next, "%v serves port %v", master, p)
		}
		return d.ask(AskLID, PhaseServed, "asking whether the subnet manager at LID %d lives", uint16(p.SMLID))
	}
	// Silence, or one that is no longer master while nobody has taken the
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
		return d.ask(AskLID, PhaseSettling, "asking the subnet manager at LID %d again", uint16(p.SMLID))
	}
	dec := silent()
	if dec.Action == Wait && dec.Phase == PhaseSettling && !in.Now.Before(ans.At.Add(SilentInterval)) {
		// It may come back meanwhile: go on asking.
		return d.ask(AskLID, PhaseSettling, "asking the subnet manager at LID %d again", uint16(p.SMLID))
	}
	return dec
}

// walkAndStart asks the fabric and starts the worker if nobody is there. due
// is when the delay ended.
func (d *decider) walkAndStart(due time.Time, why string) Decision {
	in, p, pol := d.in, d.in.Port, d.in.Policy
	m := &d.m
	if until := in.HostStart.Add(HostSettle); !in.HostStart.IsZero() && in.Now.Before(until) {
		return d.wait(PhaseSettling, until, "%s; a worker was just started on another port of this host, which may be on the same subnet", why)
	}
	ans := in.Answer
	if ans.Question != AskWalk || ans.At.Before(due) {
		return d.ask(AskWalk, PhaseAsking, "%s: asking the fabric for one", why)
	}
	again := func(interval time.Duration, phase Phase, format string, args ...any) Decision {
		next := ans.At.Add(interval)
		if in.Now.Before(next) {
			return d.wait(phase, next, format, args...)
		}
		return d.ask(AskWalk, PhaseAsking, "%s: asking the fabric again", why)
	}
	if ans.Err != "" {
		return again(BlockedInterval, PhaseBlocked, "%s, and the fabric cannot be asked: %s", why, ans.Err)
	}
	if master, ok := ans.Master(); ok {
		if master.GUID == p.GUID {
			return again(ForeignInterval, PhaseServed, "a subnet manager that is not ours already runs on %v on this host", p)
		}
		return again(ForeignInterval, PhaseForeign, "%v is there but has not configured port %v: look at its log, and at the M_Key of the port", master, p)
	}
	var other *SMInfo
	for i := range ans.SMs {
		if s := &ans.SMs[i]; s.State != SMNotActive && (other == nil || s.Outranks(other.Priority, other.GUID)) {
			other = s
		}
	}
	if other != nil && in.Now.Before(due.Add(LeaderlessFactor*pol.StartDelay)) {
		return again(SilentInterval, PhaseForeign, "%v is there and may become master", *other)
	}
	if !in.Now.Before(ans.At.Add(AnswerLife)) {
		return d.ask(AskWalk, PhaseAsking, "%s: asking the fabric for one", why)
	}
	m.SilentSince, m.Silences = time.Time{}, 0
	if other != nil {
		return d.start("%s; %v is there but did not become master", why, *other)
	}
	return d.start("%s", why)
}

// lidAnswer is the answer to the last AskLID if it was put to the SM LID that
// the port has now.
func (d *decider) lidAnswer() (Answer, bool) {
	a := d.in.Answer
	return a, a.Question == AskLID && a.LID == d.in.Port.SMLID && !a.At.IsZero()
}

// countFailure notes a failure of the worker that was not counted yet.
func (d *decider) countFailure() {
	w := d.in.Worker
	if w.State == WorkerFailed && w.Since.After(d.m.FailedAt) {
		d.m.Failures++
		d.m.FailedAt = w.Since
		if d.m.FailedWith == "" {
			d.m.FailedWith = d.with()
		}
	}
}

// with is what a worker is started with now.
func (d *decider) with() string { return Settings(d.in.Policy) + "\n" + d.in.Files.Digest }

// forget drops what was counted towards a start.
func (d *decider) forget() {
	d.m.LonelySince, d.m.SilentSince, d.m.Silences = time.Time{}, time.Time{}, 0
	d.m.UnitGoneSince = time.Time{}
	d.m.Again = false
}

func (d *decider) wait(ph Phase, until time.Time, format string, args ...any) Decision {
	return Decision{Action: Wait, Until: until, Phase: ph, Reason: fmt.Sprintf(format, args...)}
}

func (d *decider) ask(q Question, ph Phase, format string, args ...any) Decision {
	return Decision{Action: Ask, Question: q, Phase: ph, Reason: fmt.Sprintf(format, args...)}
}

func (d *decider) start(format string, args ...any) Decision {
	d.m.StartedAt, d.m.FailedWith = d.in.Now, d.with()
	d.m.LonelySince, d.m.Again = time.Time{}, false
	return Decision{Action: Start, Phase: PhaseStarting, Reason: fmt.Sprintf(format, args...)}
}

func (d *decider) stop(format string, args ...any) Decision {
	d.m.StartedAt = time.Time{}
	d.forget()
	return Decision{Action: Stop, Phase: PhaseStopping, Reason: fmt.Sprintf(format, args...)}
}

// linkWords says why there is no physical link.
func linkWords(p Port) string {
	switch p.Phys {
	case ib.PhysPolling, ib.PhysSleep:
		return fmt.Sprintf("port %v has no link (%v): no cable, or nothing at its other end", p, p.Phys)
	case ib.PhysDisabled:
		return fmt.Sprintf("port %v is disabled", p)
	}
	return fmt.Sprintf("port %v has no link (%v)", p, p.Phys)
}

func handWords(byHand bool) string {
	if byHand {
		return ", started by hand"
	}
	return ""
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
