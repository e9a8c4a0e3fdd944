package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

// change is what it takes to bring a worker that runs to what its unit has now.
func change(e *entry, now time.Time) smctl.Change {
	p := &e.port.Policy
	switch {
	case e.worker.State != smctl.WorkerActive || p.Manage == smctl.ManageNo || now.Before(e.settled):
		return smctl.ChangeNone
	case e.engine != p.Engine:
		return smctl.ChangeRestart
	case e.given.Settings == "":
		return smctl.ChangeNone
	}
	c := smctl.Difference(e.engine, e.given.Settings, smctl.Settings(*p))
	if c == smctl.ChangeNone && e.given.Files != e.files.Digest {
		c = smctl.ChangeReload
	}
	return c
}

// engineChange follows Engine=, once the unit of the other engine does not run,
// and reports whether it did: then the state of this engine's unit is being read.
func (c *Controller) engineChange(ctx context.Context, g ib.GUID, e *entry) bool {
	if e.engine == e.port.Policy.Engine || e.busy || e.worker.State != smctl.WorkerInactive && e.worker.State != smctl.WorkerFailed {
		return false
	}
	e.engine, e.given = e.port.Policy.Engine, Saved{}
	e.worker = smctl.Worker{Unit: UnitName(e.engine, g), Override: e.worker.Override}
	e.mem = smctl.Memory{Again: e.mem.Again}
	e.known = false
	c.read(ctx, g, e)
	return true
}

// hostStart is when another port's worker was started last.
func (c *Controller) hostStart(g ib.GUID) (last time.Time) {
	for o, e := range c.table {
		if o != g && e.started.After(last) {
			last = e.started
		}
	}
	return last
}

// say logs a change of phase, once.
func (c *Controller) say(e *entry, dec smctl.Decision) {
	if dec.Phase != e.dec.Phase {
		old := cmp.Or(e.dec.Phase, "new")
		c.cfg.Log.Info(fmt.Sprintf("subnet manager of %s: %s -> %s", e.port, old, dec.Phase),
			"port", e.port.String(), "old", old, "new", dec.Phase, "reason", dec.Reason)
	}
}

// act carries out an action and reports whether the worker's state is another
// one now.
func (c *Controller) act(ctx context.Context, g ib.GUID, e *entry, dec smctl.Decision, now time.Time) bool {
	switch dec.Action {
	case smctl.Ask:
		c.ask(ctx, g, e, dec.Question)
	case smctl.Start:
		if e.busy {
			return false
		}
		e.busy, e.starts, e.started = true, e.starts+1, now
		e.worker.State, e.worker.Since, e.worker.Result = smctl.WorkerActivating, now, ""
		e.wall = now
		u := Unit{Name: e.worker.Unit, GUID: g, Policy: e.port.Policy}
		e.worker.StatusText, e.worker.Refused, e.worker.Change = smctl.StatusText{}, false, smctl.ChangeNone
		e.given = Saved{e.engine, smctl.Settings(u.Policy), e.files.Digest, e.worker.Override}
		bare := e.given.Settings == smctl.Settings(smctl.Policy{Priority: u.Policy.Priority})
		c.cfg.Log.Info("starting a subnet manager", "port", e.port.String(), "unit", u.Name, "reason", dec.Reason)
		// Not aside: what a person asks for meanwhile is to be saved after it.
		saved := c.cfg.StateStore.Save(g, e.given)
		c.aside(ctx, event{guid: g}, func(limit context.Context, ev *event) {
			if saved != nil && !bare {
				// Without settings the program's defaults would rule another
				// subnet than the one asked for.
				ev.noStart = fmt.Sprintf("its settings cannot be written: %v", saved)
			} else if err := c.cfg.Manager.Start(limit, u); err != nil {
				ev.noStart = err.Error()
			}
		})
		return true
	case smctl.Reload:
		if e.busy {
			return false
		}
		e.busy, e.worker.Change = true, smctl.ChangeNone
		former := e.given
		e.given = Saved{e.engine, smctl.Settings(e.port.Policy), e.files.Digest, e.worker.Override}
		name := e.worker.Unit
		c.cfg.Log.Info("reloading the subnet manager", "port", e.port.String(), "unit", name, "reason", dec.Reason)
		saved := c.cfg.StateStore.Save(g, e.given)
		c.aside(ctx, event{guid: g, reload: true, former: former, err: saved}, func(limit context.Context, ev *event) {
			if ev.err == nil {
				ev.err = c.cfg.Manager.Reload(limit, name)
			}
		})
		return true
	case smctl.Stop:
		if e.busy {
			return false
		}
		e.busy = true
		e.worker.State, e.worker.Since, e.wall = smctl.WorkerDeactivating, now, now
		name := e.worker.Unit
		c.cfg.Log.Info("stopping the subnet manager", "port", e.port.String(), "unit", name, "reason", dec.Reason)
		c.aside(ctx, event{guid: g}, func(limit context.Context, ev *event) {
			if err := c.cfg.Manager.Stop(limit, name); err != nil {
				ev.noStop = err.Error()
			}
		})
		return true
	}
	return false
}

// aside queues a job of systemd in a goroutine, which sends ev as the job leaves it.
func (c *Controller) aside(ctx context.Context, ev event, job func(limit context.Context, ev *event)) {
	go func() {
		limit, cancel := context.WithTimeout(ctx, jobTimeout)
		defer cancel()
		job(limit, &ev)
		c.send(ctx, ev)
	}()
}

// ask puts a question, one at a time.
func (c *Controller) ask(ctx context.Context, g ib.GUID, e *entry, q smctl.Question) {
	if e.asking != nil {
		return
	}
	p := e.port
	a := &smctl.Answer{Question: q, LID: p.SMLID}
	e.asking = a
	go func() {
		limit, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var err error
		if q == smctl.AskWalk {
			a.SMs, err = c.cfg.Prober.Walk(limit, p.IBDev, p.Num)
		} else {
			a.SMs, err = c.cfg.Prober.AskLID(limit, p.IBDev, p.Num, p.SMLID)
		}
		if err != nil {
			a.Err, a.SMs, a.NoQP0 = err.Error(), nil, errors.Is(err, transport.ErrNoQP0)
		}
		a.At = time.Now()
		c.send(ctx, event{guid: g, answer: a})
	}()
}

// readRetry is the pause after systemd did not say what a unit does.
const readRetry = 5 * time.Second

// jobTimeout bounds the time that systemd takes to queue a job, not the job.
const jobTimeout = 30 * time.Second

// askTimeout bounds one question; a walk of the largest subnet takes seconds.
const askTimeout = 30 * time.Second
