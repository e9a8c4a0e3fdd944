package daemon

import (
	"context"
	"errors"
	"fmt"

	"ibnetworkd/daemon/plan"
	"ibnetworkd/link"
)

// ask runs f in the loop's goroutine and waits for it.
func (d *Daemon) ask(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	select {
	case d.call <- func(c context.Context) { done <- f(c) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reload reads the unit files and applies what changed before it returns.
func (d *Daemon) Reload(ctx context.Context) error {
	return d.ask(ctx, func(c context.Context) error {
		if d.cfg.Invalidate != nil {
			d.cfg.Invalidate()
		}
		return d.cycle(c, Scope{Reload: true})
	})
}

// Reconfigure plans one link again and retries what was refused there.
func (d *Daemon) Reconfigure(ctx context.Context, name string) error {
	return d.ask(ctx, func(c context.Context) error {
		l, err := d.named(name)
		if err != nil {
			return err
		}
		if e := d.rec.Of(l); e != nil {
			e.Activated, e.Deactivated = false, false
		}
		return d.cycle(c, Scope{Links: map[int]bool{l.Index: true}, Force: map[int]bool{l.Index: true}, RDMA: true, PKeys: true, Addrs: true})
	})
}

// SetAdmin brings a link up or down by hand.
func (d *Daemon) SetAdmin(ctx context.Context, name string, up bool) error {
	return d.ask(ctx, func(c context.Context) error {
		l, err := d.named(name)
		if err != nil {
			return err
		}
		var failed error
		op := link.SetUp{On: link.TargetOf(l), Up: up}
		d.cfg.System.Apply(c, []link.Step{{Op: op}}, func(_ link.Op, err error) { failed = err })
		if failed != nil {
			return fmt.Errorf("%s: %w", op, failed)
		}
		return d.cycle(c, Scope{Links: map[int]bool{l.Index: true}, Force: map[int]bool{l.Index: true}})
	})
}

// Refresh reads what changes without an event: the state of RDMA ports and their
// P_Key tables. It gives the number of the Change that has the result, 0 for none.
func (d *Daemon) Refresh(ctx context.Context) (uint64, error) {
	var before, after uint64
	err := d.ask(ctx, func(c context.Context) error {
		before = d.seq
		err := d.cycle(c, Scope{RDMA: true, PKeys: true})
		after = d.seq
		return err
	})
	if err != nil || before == after {
		return 0, err
	}
	return after, nil
}

// Alive returns when the loop has answered.
func (d *Daemon) Alive(ctx context.Context) error {
	return d.ask(ctx, func(context.Context) error { return nil })
}

// Plan returns what would be done now. It is not empty only between an event and
// the end of the cycle that it starts, or while operations are delayed.
func (d *Daemon) Plan(ctx context.Context) (r plan.Result, err error) {
	err = d.ask(ctx, func(context.Context) error {
		if d.snap == nil {
			return errors.New("system state not read yet")
		}
		r = plan.Make(plan.Input{Snapshot: d.snap, Units: d.set, Record: d.rec})
		return nil
	})
	return r, err
}

func (d *Daemon) named(name string) (*link.Link, error) {
	if d.snap != nil {
		if l, ok := d.snap.LinkByName(name); ok {
			return l, nil
		}
	}
	return nil, fmt.Errorf("there is no link %s", name)
}
