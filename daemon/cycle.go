package daemon

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/link"
)

// firstLinks is how many links the first cycle is content with.
const firstLinks = 16

// deferred is what a cycle leaves to the next: the first of the two at the start
// the links that it did not look at closely, one that could not look at the
// system all that it was about.
type deferred struct {
	changed  map[string]bool // links whose status nobody has been told
	dirty    map[int]bool    // links to plan
	reloaded bool
}

// rounds bounds how often one cycle plans: once for what is there, once more
// for each thing that becomes known by applying (an MTU's real value, a refusal).
const rounds = 10

// cycle observes what the scope names, plans, applies and reports.
func (d *Daemon) cycle(ctx context.Context, sc Scope) (err error) {
	start := time.Now()
	var cost struct{ load, look, plan, apply, report time.Duration }
	// The parts are for the log alone, and reading a clock is a system call on
	// some machines.
	debug := d.log.Enabled(ctx, slog.LevelDebug)
	clock := func() (t time.Time) {
		if debug {
			t = time.Now()
		}
		return t
	}
	lap := func(into *time.Duration, since time.Time) {
		if debug {
			*into += time.Since(since)
		}
	}
	defer func() {
		d.lastEnd = time.Now()
		d.lastCost = d.lastEnd.Sub(start)
		if !debug {
			return
		}
		d.log.Debug("turn", "scope", sc.String(), "took", d.lastCost, "load", cost.load, "look", cost.look, "plan", cost.plan, "apply", cost.apply, "report", cost.report)
	}()
	from := deferred{map[string]bool{}, map[int]bool{}, false}
	if d.deferred != nil {
		from, d.deferred = *d.deferred, nil
	}
	changed, dirty, reloaded := from.changed, from.dirty, from.reloaded
	var far map[int]bool // links to be looked at closely in the next cycle
	defer func() {
		if err == nil || ctx.Err() != nil {
			d.forgetLog("", "look")
			return
		}
		maps.Copy(dirty, far)
		d.deferred = &deferred{changed, dirty, reloaded}
		d.logOnce("", "look", "cannot read system state, will retry: "+err.Error(), slog.LevelError)
		time.AfterFunc(retryFirst, func() { d.Wake(Scope{All: true}) })
	}()
	maps.Copy(dirty, sc.Force)
	d.cancel(sc.Force)
	ended := d.adoptResults(&sc, dirty)
	if sc.Reload || d.set == nil {
		t := clock()
		reloaded = d.reload(dirty) || reloaded
		d.cancel(dirty)
		lap(&cost.load, t)
		// A file that was not there when the set was loaded may ask for
		// settings, routes or rules that nobody has looked at yet.
		sc.Routes, sc.Rules = true, true
	}
	if sc.Due {
		for _, t := range d.delayed.due(start) {
			if l := d.at(t); l != nil {
				dirty[l.Index] = true
			} else {
				dirty[0] = true // a port without a link
			}
		}
	}
	old := d.snap
	if sc.PKeys || sc.All {
		d.tables = start
	}
	t := clock()
	snap, err := d.cfg.System.Observe(sc, d.needs())
	lap(&cost.look, t)
	if err != nil {
		return err
	}
	d.adopt(snap, dirty)
	d.delayAbsent(ended)
	if near := family(snap.Links, sc.First, func(l *link.Link) (index, parent int) { return l.Index, l.Parent }); near != nil {
		far = map[int]bool{}
		for i := range snap.Links {
			if n := snap.Links[i].Index; !near[n] {
				far[n] = true
				delete(dirty, n)
			}
		}
	}
	for i := range sc.Force {
		if l, ok := d.snap.Link(i); ok {
			d.delayed.event(map[string]bool{l.Name: true}, true, start)
		}
	}
	steps := 0
	for round := 0; round < rounds && len(dirty) > 0 && ctx.Err() == nil; round++ {
		folded := d.reconcile()
		in := plan.Input{Snapshot: d.snap, Units: d.set, Record: d.rec, Held: d.reasons(), Scope: dirty, Prev: d.governing.Links, Partial: far != nil, NoPorts: true}
		if len(dirty) >= len(d.snap.Links) {
			in.Scope = nil
		}
		t = clock()
		r := plan.Make(in)
		lap(&cost.plan, t)
		d.governing.Links, d.portNotes = r.Governing.Links, r.PortNotes
		for _, st := range r.Links {
			d.setStatus(st, changed)
		}
		if d.rec.Remember(r.Keep, d.snap) {
			folded = true
		}
		if r.Plan.Empty() {
			if folded {
				d.save()
			}
			break
		}
		steps += len(r.Plan.Steps)
		t = clock()
		var gone []absence
		dirty, gone = d.apply(ctx, r.Plan.Steps)
		lap(&cost.apply, t)
		look := Scope{Addrs: true, Routes: true, Rules: true, Links: maps.Clone(dirty)}
		// Our own changes echo as events: this look answers those too.
		look.Join(d.happened())
		for _, s := range r.Plan.Steps {
			switch s.Op.(type) {
			case link.AddChild:
				look.All = true
			case link.Maker: // a link or an RDMA device
				look.All, look.RDMA = true, true
			}
		}
		t = clock()
		snap, err := d.cfg.System.Observe(look, d.needs())
		lap(&cost.look, t)
		if err != nil {
			return err
		}
		d.adopt(snap, dirty)
		d.delayAbsent(gone)
	}
	if far != nil {
		d.deferred = &deferred{changed, far, reloaded}
		return nil
	}
	t = clock()
	d.publish(changed, reloaded)
	lap(&cost.report, t)
	if old != d.snap || reloaded {
		for _, f := range d.cfg.OnChange {
			f(View{d.snap, d.set, d.governing})
		}
	}
	if steps > 0 && d.cfg.OnIdle != nil {
		d.cfg.OnIdle(steps)
	}
	return nil
}
