package daemon

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/link"
)

// firstLinks is how many links the first cycle configures.
const firstLinks = 16

// unfinished is what a cycle leaves to the next: the first of the two at the start
// the links outside of the first batch, one that could not read the system
// everything.
type unfinished struct {
	changed  map[string]bool // links whose new status is not published
	dirty    dirty
	reloaded bool
}

// rounds bounds how often one cycle plans: once for what is there, once more
// for each thing that becomes known by applying (an MTU's real value, a refusal).
const rounds = 10

// costs are the times of a cycle's parts, for the log alone.
type costs struct{ load, observe, plan, apply, report time.Duration }

// cycle is one run from observing to reporting.
type cycle struct {
	*Daemon
	rest  unfinished // what there is to do
	sc    Scope
	start time.Time
	// later are the links to be read closely in the next cycle, nil if there are none.
	later map[int]bool
	steps int
	costs costs
	debug bool
}

// cycle observes what the scope names, plans, applies and reports.
func (d *Daemon) cycle(ctx context.Context, sc Scope) error {
	c := &cycle{Daemon: d, sc: sc, start: time.Now(), rest: unfinished{changed: map[string]bool{}},
		debug: d.log.Enabled(ctx, slog.LevelDebug)}
	if d.unfinished != nil {
		c.rest, d.unfinished = *d.unfinished, nil
	}
	err := c.run(ctx)
	if err == nil || ctx.Err() != nil {
		d.forgetLog("", "observe")
	} else {
		c.fail(err)
	}
	rested := c.start.Sub(d.lastEnd)
	d.lastEnd = time.Now()
	took := d.lastEnd.Sub(c.start)
	d.debt = min(max(d.debt-rested, 0), coalesceBurst) + took
	if c.sc.All || c.sc.RDMA || c.sc.PKeys {
		d.ports = d.lastEnd
	}
	if c.debug {
		d.log.Debug("cycle", "scope", c.sc.String(), "took", took, "debt", d.debt, "load", c.costs.load, "observe", c.costs.observe,
			"plan", c.costs.plan, "apply", c.costs.apply, "report", c.costs.report)
	}
	return err
}

// run is the cycle: its stages in their order.
func (c *cycle) run(ctx context.Context) error {
	old := c.snap
	c.delayed.begin()
	c.rest.dirty.addAll(c.sc.Force)
	c.cancel(dirty{links: c.sc.Force})
	ended := c.adoptResults(&c.sc, &c.rest.dirty)
	c.load()
	c.retry()
	c.moved(c.sc)
	if err := c.observe(ended); err != nil {
		return err
	}
	for i := range c.sc.Force {
		c.rec.Return(i, c.snap)
	}
	for round := 0; round < rounds && !c.rest.dirty.empty() && ctx.Err() == nil; round++ {
		more, err := c.round(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if c.later != nil {
		c.unfinished = &unfinished{c.rest.changed, dirty{links: c.later}, c.rest.reloaded}
		return nil
	}
	c.report(old)
	return nil
}

// timed adds what f takes to a cost, if anybody reads it: reading a clock is a
// system call on some machines.
func (c *cycle) timed(cost *time.Duration, f func()) {
	if !c.debug {
		f()
		return
	}
	start := time.Now()
	f()
	*cost += time.Since(start)
}

// fail leaves everything to another cycle, which comes soon.
func (c *cycle) fail(err error) {
	c.rest.dirty.addAll(c.later)
	c.unfinished = &c.rest
	c.logOnce("", "observe", "cannot read system state, will retry: "+err.Error(), slog.LevelError)
	time.AfterFunc(retryFirst, func() { c.Wake(Scope{All: true}) })
}

// moved notes links that were moved to another network namespace. One that was made here is left
// there, until its parent is configured again by request or, as a VLAN, it is deleted with the
// namespace. Any link that was moved is planned: it may be back already.
func (c *cycle) moved(sc Scope) {
	for _, m := range sc.Moved {
		c.rest.dirty.add(m.Index)
		if c.rec.Leave(m) {
			c.log.Info("a link that was made here was moved to another network namespace", "link", m.Name)
		}
	}
}

// load reads the unit files if the scope says so.
func (c *cycle) load() {
	if !c.sc.Reload && c.set != nil {
		return
	}
	c.timed(&c.costs.load, func() {
		c.rest.reloaded = c.reload(&c.rest.dirty) || c.rest.reloaded
		c.cancel(c.rest.dirty)
	})
	// A file that was not there when the set was loaded may ask for settings,
	// routes or rules that have not been read yet.
	c.sc.Routes, c.sc.Rules = true, true
}

// retry has the operations whose delay is over planned again.
func (c *cycle) retry() {
	if !c.sc.Due {
		return
	}
	for _, t := range c.delayed.due(c.start) {
		c.rest.dirty.addAll(c.joining(t.Link)) // which make it
		if l := c.at(t); l != nil {
			c.rest.dirty.add(l.Index)
		} else {
			c.rest.dirty.ports = true
		}
	}
}

// observe reads what the scope names; ended are operations whose links the kernel
// did not find.
func (c *cycle) observe(ended []absence) error {
	if c.sc.PKeys || c.sc.All {
		c.tables, c.entries = c.start, c.start
	}
	if c.sc.RDMA && c.start.Sub(c.entries) >= c.cfg.SlowPort {
		c.sc.Entries, c.entries = true, c.start
	}
	if err := c.read(c.sc); err != nil {
		return err
	}
	c.delayAbsent(ended)
	if first := family(c.snap.Links, c.sc.First, func(l *link.Link) (index, parent int) { return l.Index, l.Parent }); first != nil {
		c.later = map[int]bool{}
		for i := range c.snap.Links {
			if n := c.snap.Links[i].Index; !first[n] {
				c.later[n] = true
				delete(c.rest.dirty.links, n)
			}
		}
	}
	for i := range c.sc.Force {
		if l, ok := c.snap.Link(i); ok {
			c.delayed.request(map[string]bool{l.Name: true}, false)
		}
	}
	return nil
}

// read makes a new snapshot the present one. If a link that was made here is not in it,
// the events are taken again: it may have been moved since, and a bond goes before the
// last of its slaves. The kernel unlists a link and queues its message under one lock
// (net/core/dev.c, __dev_change_net_namespace, unregister_netdevice_many_notify).
func (c *cycle) read(sc Scope) error {
	s, err := c.snapshot(sc)
	if err == nil && c.rec.Missing(s) {
		if late := c.happened(); !late.Empty() {
			c.moved(late)
			late.Moved = nil
			c.Wake(late)
			s, err = c.snapshot(late)
		}
	}
	if err == nil {
		c.adopt(s, &c.rest.dirty, c.start)
		c.cancelGone()
	}
	return err
}

func (c *cycle) snapshot(sc Scope) (s *link.Snapshot, err error) {
	c.timed(&c.costs.observe, func() { s, err = c.cfg.System.Observe(sc, c.needs(sc)) })
	return s, err
}

// round plans once, applies and reads what came of it. It reports false when
// nothing was left to do.
func (c *cycle) round(ctx context.Context) (more bool, err error) {
	save := c.reconcile()
	in := plan.Input{Snapshot: c.snap, Units: c.set, Record: c.rec, Delayed: c.reasons(), Scope: c.rest.dirty.links,
		Prev: c.governing.Links, Partial: c.later != nil, NoPorts: true}
	if len(c.rest.dirty.links) >= len(c.snap.Links) {
		in.Scope = nil
	}
	var r plan.Result
	c.timed(&c.costs.plan, func() { r = plan.Make(in) })
	c.governing.Links, c.portNotes = r.Governing.Links, r.PortNotes
	for _, st := range r.Links {
		c.setStatus(st, c.rest.changed)
	}
	if c.rec.Remember(r.Keep, c.snap) {
		save = true
	}
	save = c.rec.NoteAdvertised(c.snap) || save
	if r.Plan.Empty() {
		if save {
			c.save()
		}
		return false, nil
	}
	c.steps += len(r.Plan.Steps)
	var gone []absence
	c.timed(&c.costs.apply, func() { c.rest.dirty, gone = c.apply(ctx, r.Plan.Steps) })
	sc := Scope{Addrs: true, Routes: true, Rules: true, Links: maps.Clone(c.rest.dirty.links)}
	// Our own changes echo as events: this observation answers those too.
	sc.Join(c.happened())
	c.moved(sc)
	for _, s := range r.Plan.Steps {
		switch s.Op.(type) {
		case link.AddChild, link.AddBond, link.AddVRF:
			sc.All = true
		case link.Maker: // a link or an RDMA device
			sc.All, sc.RDMA = true, true
		}
	}
	if err := c.read(sc); err != nil {
		return false, err
	}
	c.delayAbsent(gone)
	return true, nil
}

// report publishes what has changed since the snapshot old.
func (c *cycle) report(old *link.Snapshot) {
	c.timed(&c.costs.report, func() { c.publish(c.rest.changed, c.rest.reloaded) })
	if old != c.snap || c.rest.reloaded {
		for _, f := range c.cfg.OnChange {
			f(View{c.snap, c.set, c.governing})
		}
	}
	if c.cfg.OnWork != nil && (c.steps > 0 || len(c.rest.changed) > 0 || c.rest.reloaded) {
		c.cfg.OnWork()
	}
}
