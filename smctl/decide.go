package smctl

import (
	"fmt"
	"time"

	"ibnetworkd/ib"
)

// Timing that is not in the unit file.
const (
	// AnswerLife is how long an answer may be old to found a start on.
	AnswerLife = 1500 * time.Millisecond
	// ServedInterval is how often the master that serves a port is asked
	// whether it answers.
	ServedInterval = 10 * time.Second
	// MasterLife is how long an answer names the master of a port.
	MasterLife = 3 * ServedInterval
	// SilentInterval is how often it is asked once it did not answer.
	SilentInterval = time.Second
	// SilencesNeeded is how many questions must stay without an answer
	// before it counts as dead: one lost datagram is no death.
	SilencesNeeded = 3
	// UnservedInterval is how often the fabric is walked again while the subnet
	// manager of another host exists that does not serve the port.
	UnservedInterval = 5 * time.Second
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
	// more: a file that is being replaced, or a link that is re-created, is
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

// backOff is how long to wait after n failures in a row.
func backOff(n int) time.Duration {
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
		return d.wait(PhaseOff, time.Time{}, "port %v does not exist", p)
	case p.LinkLayer != ib.LinkLayerInfiniBand:
		if running {
			return d.stop("the link layer of port %v is now %v", p, p.LinkLayer)
		}
		d.forget()
		return d.wait(PhaseOff, time.Time{}, "%v needs no subnet manager: its link layer is %v", p, p.LinkLayer)
	case w.Override == OverrideStop:
		if running {
			return d.stop("stopped by hand")
		}
		d.forget()
		return d.wait(PhaseStopped, time.Time{}, "stopped by hand; to undo: ibnetctl sm start %v", p)
	case running && p.Barred.forbids():
		return d.stop("%s", barred(p).Reason)
	case !running && p.Barred != BarNone && (pol.Manage != ManageNo || w.Override == OverrideStart):
		if p.Barred > BarUnknown {
			d.forget()
		}
		return barred(p)
	case pol.Manage == ManageNo && w.Override != OverrideStart:
		if running {
			if pol.Unit != "" {
				return d.stop("%s has Manage=no", pol.Unit)
			}
			if d.m.UnitGoneSince.IsZero() {
				d.m.UnitGoneSince = d.in.Now
			}
			due := d.m.UnitGoneSince.Add(UnitGrace)
			if d.in.Now.Before(due) {
				return d.wait(d.role(), due, "no unit asks for a subnet manager on %v any more: it is stopped if that lasts %v",
					p, UnitGrace)
			}
			return d.stop("no unit asks for a subnet manager on %v any more", p)
		}
		d.forget()
		if pol.Unit != "" {
			return d.wait(PhaseOff, time.Time{}, "%s has Manage=no", pol.Unit)
		}
		return d.wait(PhaseOff, time.Time{}, "no unit with a [SubnetManager] section matches %v", p)
	}

	d.m.UnitGoneSince = time.Time{}
	if running {
		return d.running()
	}
	d.m.DownSince, d.m.Other, d.m.OtherSince = time.Time{}, 0, time.Time{}
	return d.idle()
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

// linkWords returns why there is no physical link.
func linkWords(p Port) string {
	switch p.Phys {
	case ib.PhysPolling, ib.PhysSleep:
		return fmt.Sprintf("port %v has no link (%v): no cable, or nothing at its other end", p, p.Phys)
	case ib.PhysDisabled:
		return fmt.Sprintf("port %v is disabled", p)
	}
	return fmt.Sprintf("port %v has no link (%v)", p, p.Phys)
}

func overrideText(byHand bool) string {
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
