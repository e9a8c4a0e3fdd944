// Package worker carries out what package smctl decides: it queries the fabric,
// starts and stops the unit that runs the subnet manager of a port, and follows
// that unit by systemd's signals.
//
// A Controller is one goroutine that owns the state of all ports. The daemon
// passes ports and policies to Update, administrators overrule it with Start and
// Stop, and Publish reports its state. The unit of a port has the port GUID in its
// name, so systemd ensures that none runs twice, across restarts of this process,
// of systemd and of the bus.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/backoff"
	"ibnetworkd/smctl"
)

// New makes a Controller.
func New(cfg Config) *Controller {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Controller{cfg: cfg, ports: make(chan []Port, 1), hands: make(chan overrideRequest), files: make(chan bool, 1),
		done: make(chan event, 16), table: map[ib.GUID]*entry{}}
}

// Update replaces the ports. It never blocks: the newest list wins.
func (c *Controller) Update(ports []Port) {
	for {
		select {
		case c.ports <- ports:
			return
		default:
		}
		select {
		case <-c.ports:
		default:
		}
	}
}

// Start runs the subnet manager on a port by hand.
func (c *Controller) Start(ctx context.Context, ibdev string, port int) error {
	return c.override(ctx, ibdev, port, true)
}

// Stop stops it by hand.
func (c *Controller) Stop(ctx context.Context, ibdev string, port int) error {
	return c.override(ctx, ibdev, port, false)
}

func (c *Controller) override(ctx context.Context, dev string, port int, start bool) error {
	r := overrideRequest{dev, port, start, make(chan error, 1)}
	select {
	case c.hands <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.reply:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reread has the files that policies name read again. It never blocks.
func (c *Controller) Reread() {
	for {
		select {
		case c.files <- true:
			return
		default:
		}
		select {
		case <-c.files:
		default:
		}
	}
}

// Compare has the files that policies name compared with those in force, for Waiting.
// It never blocks.
func (c *Controller) Compare() {
	select {
	case c.files <- false:
	default: // a request that compares, too, is not read yet
	}
}

// Run works until ctx ends. Workers are left running: they belong to systemd.
func (c *Controller) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := c.decide(ctx)
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(next), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case ps := <-c.ports:
			c.update(ctx, ps)
		case reread := <-c.files:
			for g, e := range c.table {
				c.check(ctx, g, e, !reread)
			}
		case r := <-c.hands:
			r.reply <- c.overrule(r)
		case name, ok := <-c.cfg.Manager.Changes():
			if !ok {
				return nil
			}
			for g, e := range c.table {
				if name == "" || name == e.worker.Unit {
					c.read(ctx, g, e)
				}
			}
		case ev := <-c.done:
			c.take(ctx, ev)
		}
	}
}

// update takes a new list of ports.
func (c *Controller) update(ctx context.Context, ps []Port) {
	seen := map[ib.GUID]bool{}
	for _, p := range ps {
		if p.GUID.IsZero() {
			continue
		}
		seen[p.GUID] = true
		e := c.table[p.GUID]
		if e == nil {
			// What the daemon started before it was restarted may run, also
			// where the unit names another program now.
			k := c.cfg.StateStore.Load(p.GUID)
			e = &entry{engine: p.Policy.Engine, given: k}
			if k.Settings != "" {
				e.engine = k.Engine
			}
			e.worker = smctl.Worker{Unit: UnitName(e.engine, p.GUID), Override: k.Override}
			c.table[p.GUID] = e
			c.read(ctx, p.GUID, e)
		}
		if e.port.State != p.State || e.port.SMLID != p.SMLID {
			c.cfg.Log.Debug("port", "port", p.String(), "state", p.State, "sm_lid", p.SMLID)
		}
		e.port = p
	}
	for g, e := range c.table {
		if !seen[g] {
			e.port.Present = false
		}
	}
	c.watch()
}

// overrule notes what a person asked for.
func (c *Controller) overrule(r overrideRequest) error {
	for g, e := range c.table {
		if e.port.IBDev != r.dev || e.port.Num != r.port || !e.port.Present {
			continue
		}
		if e.port.LinkLayer != ib.LinkLayerInfiniBand {
			return fmt.Errorf("port %v needs no subnet manager: its link layer is %v", e.port.Port, e.port.LinkLayer)
		}
		managed := e.port.Policy.Manage != smctl.ManageNo
		back := managed && e.worker.Override == smctl.OverrideStop
		if err := smctl.Refuses(e.inspected()); r.start && !back && err != nil {
			e.again = time.Time{}
			return err
		}
		if r.start {
			e.mem.Failures, e.mem.StartedAt = 0, time.Time{}
			e.again = time.Time{}
		}
		switch {
		case r.start && back:
			// The unit decides again, without the delay. The former answer does not count:
			// the local manager may have run since, and another may be master now.
			e.worker.Override, e.answer = smctl.OverrideNone, smctl.Answer{}
			e.asking = nil
			e.mem.LonelySince = time.Unix(1, 0)
			e.mem.SilentLID, e.mem.SilentSince = e.port.SMLID, time.Unix(1, 0)
		case r.start:
			e.worker.Override = smctl.OverrideStart
		case managed:
			e.worker.Override = smctl.OverrideStop
		default:
			e.worker.Override = smctl.OverrideNone
			e.mem.UnitGoneSince = time.Unix(1, 0) // at once
		}
		c.cfg.Log.Info("requested by ibnetctl sm: "+map[bool]string{true: "start", false: "stop"}[r.start], "port", e.port.String())
		if e.given.Settings == "" {
			e.given.Settings = smctl.Settings(e.port.Policy)
		}
		e.given.Engine, e.given.Override = e.engine, e.worker.Override
		if err := c.cfg.StateStore.Save(g, e.given); err != nil {
			return fmt.Errorf("done, but not kept over a restart of ibnetworkd: %w", err)
		}
		return nil
	}
	return fmt.Errorf("port %s/%d: not an InfiniBand port of this host", r.dev, r.port)
}

// read requests the state of the unit.
func (c *Controller) read(ctx context.Context, g ib.GUID, e *entry) {
	if e.reading {
		e.reread = true
		return
	}
	e.reading = true
	name := e.worker.Unit
	go func() {
		s, err := c.cfg.Manager.State(ctx, name)
		c.send(ctx, event{guid: g, unit: name, state: s, err: err})
	}()
}

func (c *Controller) send(ctx context.Context, ev event) {
	select {
	case c.done <- ev:
	case <-ctx.Done():
	}
}

// take takes the end of something.
func (c *Controller) take(ctx context.Context, ev event) {
	e := c.table[ev.guid]
	if e == nil {
		return
	}
	switch {
	case ev.answer != nil:
		if ev.answer != e.asking {
			return // to what does not count any more
		}
		e.asking = nil
		e.answer = *ev.answer
		e.refusal(ev.answer.NoQP0, ev.answer.Err == "", time.Now())
		c.cfg.Log.Debug("the fabric answered", "port", e.port.String(), "question", ev.answer.Question, "managers",
			len(ev.answer.SMs), "error", ev.answer.Err)
	case ev.files != nil:
		c.checked(ctx, e, ev)
	case ev.bar != nil:
		e.bar, e.final, e.inspect, e.again = ev.bar, ev.final, false, time.Now().Add(inspectRetry)
	case ev.reload:
		e.busy = false
		if ev.err != nil {
			// It is retried: what it was given is not what it has.
			ev.former.Override = e.given.Override
			e.given, e.settled = ev.former, time.Now().Add(readRetry)
			c.cfg.Log.Error("the subnet manager could not be reloaded", "port", e.port.String(), "unit", e.worker.Unit, "error", ev.err)
		}
	case ev.noStart != "":
		e.busy = false
		e.worker.State, e.worker.Since, e.worker.Result = smctl.WorkerFailed, time.Now(), ev.noStart
		e.wall = time.Now()
		c.cfg.Log.Error("the subnet manager could not be started", "port", e.port.String(), "unit", e.worker.Unit, "error", ev.noStart)
	case ev.noStop != "":
		// It runs on, or not: that has to be read.
		e.busy, e.known, e.worker.Result = false, false, ev.noStop
		e.retry = time.Now().Add(readRetry)
		c.cfg.Log.Error("the subnet manager could not be stopped", "port", e.port.String(), "unit", e.worker.Unit, "error", ev.noStop)
	case ev.unit == "":
		// The job is queued; the state follows by signal, and is read in
		// case the signal came before.
		e.busy = false
		if c.cfg.OnUnit != nil {
			c.cfg.OnUnit()
		}
		c.read(ctx, ev.guid, e)
	default:
		e.reading = false
		if ev.unit != e.worker.Unit || e.reread {
			e.reread = false
			c.read(ctx, ev.guid, e)
			return
		}
		if ev.err != nil {
			// Without systemd nothing is known and nothing is done; it is
			// read again when the bus is back.
			if e.known {
				c.cfg.Log.Warn("the state of the subnet manager's unit cannot be read", "unit", ev.unit, "error", ev.err)
			}
			e.known = false
			e.worker.Result = ev.err.Error()
			e.retry = time.Now().Add(readRetry)
			if errors.Is(ev.err, ErrNoSystemd) {
				// A connection is a change of everything.
				e.retry = time.Now().Add(time.Hour)
			}
			return
		}
		if e.busy {
			// Older than the job that is being queued.
			return
		}
		if e.known && e.worker.State != ev.state.State {
			c.cfg.Log.Info(fmt.Sprintf("%s: %s -> %s", ev.unit, e.worker.State, ev.state.State),
				"port", e.port.String(), "unit", ev.unit, "old", e.worker.State, "new", ev.state.State, "result", ev.state.Result)
			if c.cfg.OnUnit != nil {
				c.cfg.OnUnit()
			}
		}
		e.known = true
		if e.worker.State == smctl.WorkerFailed && ev.state.State == smctl.WorkerInactive && e.worker.Since.After(ev.state.Since) {
			return // our call failed; systemd knows of no failure
		}
		if ev.state.Since.IsZero() && e.worker.State != ev.state.State {
			// systemd forgets the unit of a worker that has ended well, and
			// when that was.
			ev.state.Since, ev.state.Wall = time.Now(), time.Now()
		}
		if ev.state.Since.IsZero() {
			ev.state.Since, ev.state.Wall = e.worker.Since, e.wall
		}
		if ev.state.Refused && !e.worker.Refused {
			e.refusal(true, false, time.Now())
		}
		e.worker.State, e.worker.Since, e.worker.Result = ev.state.State, ev.state.Since, ev.state.Result
		e.worker.StatusText, e.worker.Refused = ev.state.StatusText, ev.state.Refused
		e.wall = ev.state.Wall
	}
}

// decide runs the state machine of every port, carries out what it says, and
// returns when to come back.
func (c *Controller) decide(ctx context.Context) (next time.Time) {
	now := time.Now()
	c.follow()
	c.wait()
	for _, g := range slices.Sorted(maps.Keys(c.table)) {
		e := c.table[g]
		if !e.known {
			if !e.reading {
				if !now.Before(e.retry) {
					c.read(ctx, g, e)
				} else {
					next = backoff.Sooner(next, e.retry)
				}
			}
			switch {
			case !e.unasked():
				e.dec = smctl.Decision{Phase: smctl.PhaseBlocked,
					Reason: "it is not known whether " + e.worker.Unit + " runs: " + cmp.Or(e.worker.Result, "systemd has not answered")}
			case !e.port.Present && !e.reading:
				delete(c.table, g)
			default:
				e.mem, e.dec = smctl.Decide(e.mem, smctl.Input{Now: now, Policy: e.port.Policy, Port: e.port.Port, Worker: e.worker})
			}
			continue
		}
		if !e.port.Present && !e.busy && !e.reading && (e.worker.State == smctl.WorkerInactive || e.worker.State == smctl.WorkerFailed) {
			delete(c.table, g)
			continue
		}
		if c.engineChange(ctx, g, e) {
			continue
		}
		if e.files == nil || e.filesOf != e.port.Policy {
			if c.check(ctx, g, e, false); e.files == nil || e.filesOf != e.port.Policy {
				e.dec = smctl.Decision{Phase: cmp.Or(e.dec.Phase, smctl.PhaseSettling), Reason: "the files of its settings are being read"}
				continue
			}
		}
		if e.port.Policy.Manage != smctl.ManageNo || e.worker.Override == smctl.OverrideStart {
			c.inspect(ctx, g, e, now)
			if e.again.After(now) && e.bar != nil && *e.bar != smctl.BarNone && !e.final {
				next = backoff.Sooner(next, e.again)
			}
		}
		e.worker.Change = change(e, now)
		if e.settled.After(now) {
			next = backoff.Sooner(next, e.settled)
		}
		for range 4 { // an action leads to at most one further decision
			in := smctl.Input{Now: now, Policy: e.port.Policy, Port: e.inspected(), Answer: e.answer, Worker: e.worker,
				Files: *e.files, HostStart: c.hostStart(g)}
			var dec smctl.Decision
			e.mem, dec = smctl.Decide(e.mem, in)
			c.say(e, dec)
			e.dec = dec
			if dec.Action == smctl.Wait || !c.act(ctx, g, e, dec, now) {
				break
			}
		}
		next = backoff.Sooner(next, e.dec.Until)
	}
	return backoff.Sooner(next, c.publish(now))
}

// unasked reports whether the daemon neither runs a worker for the port nor was asked to:
// that needs no answer of systemd.
func (e *entry) unasked() bool {
	return e.worker.State == smctl.WorkerInactive && e.worker.Override == smctl.OverrideNone && e.given.Settings == "" && !e.busy &&
		(e.port.Policy.Manage == smctl.ManageNo || !e.port.Present)
}

// follow requests the changes of units while a worker runs or may be run.
func (c *Controller) follow() {
	on := false
	for _, e := range c.table {
		on = on || e.port.Policy.Manage != smctl.ManageNo || e.worker.Override == smctl.OverrideStart || e.worker.State != smctl.WorkerInactive
	}
	if on != c.followed {
		c.followed = on
		c.cfg.Manager.Follow(on)
	}
}
