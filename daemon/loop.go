package daemon

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"ibnetworkd/internal/backoff"
	"ibnetworkd/link"
)

// Wake has the loop observe something. It never waits.
func (b *Inbox) Wake(s Scope) {
	b.mu.Lock()
	b.want.Join(s)
	b.mu.Unlock()
	select {
	case b.bell <- struct{}{}:
	default:
	}
}

// Ready is closed when the links have been observed and planned for the first time.
func (d *Daemon) Ready() <-chan struct{} { return d.ready }

// Run is the loop. It returns when ctx ends; the configuration stays in place.
func (d *Daemon) Run(ctx context.Context) error {
	var err error
	if d.rec, err = d.cfg.Store.LoadRecord(); err != nil {
		d.log.Warn("the record of what was made cannot be read: what an earlier run made stays, as if other programs had made it", "error", err)
	}
	port := time.NewTimer(time.Hour)
	retry := time.NewTimer(time.Hour)
	defer port.Stop()
	defer retry.Stop()
	sc := Scope{All: true, Reload: true, RDMA: true, Addrs: true, Routes: true, Rules: true, First: firstLinks}
	for {
		alive := d.alive()
		if !sc.Empty() || d.snap == nil {
			err := d.cycle(ctx, sc)
			if err == nil && d.unfinished != nil && ctx.Err() == nil {
				sc = Scope{All: true}
				continue
			}
		}
		if !d.isReady && d.snap != nil {
			d.isReady = true
			close(d.ready)
		}
		resetTimer(port, time.Until(d.ports.Add(d.portWait()))) // a wake-up for something else does not put it off
		next := d.delayed.next()
		if d.reportDirty {
			next = backoff.Sooner(next, d.reportNext)
		}
		next = backoff.Sooner(next, d.recordNext, d.readNext, d.settled, alive)
		if !next.IsZero() {
			resetTimer(retry, time.Until(next))
		} else {
			retry.Stop()
		}
		sc = Scope{}
		if d.cfg.Events != nil {
			d.cfg.Events.Ready()
		}
		select {
		case <-ctx.Done():
			d.notify("STOPPING=1")
			return nil
		case <-d.bell:
			sc = d.collect(ctx)
		case f := <-d.call:
			f(ctx)
		case <-port.C:
			sc = Scope{RDMA: true, PKeys: d.waitsForPKey() || time.Since(d.tables) >= slowTables*d.cfg.SlowPort}
		case <-retry.C:
			if !d.recordNext.IsZero() {
				d.save()
			}
			d.saveReport()
			if t := d.delayed.next(); !t.IsZero() && !time.Now().Before(t) {
				sc = Scope{Due: true}
			}
			if !d.readNext.IsZero() && !time.Now().Before(d.readNext) {
				sc.Reload = true
			}
			if !d.settled.IsZero() && !time.Now().Before(d.settled) {
				sc.RDMA = true // is it still so?
			}
		}
	}
}

// alive reports to the watchdog that the loop runs, and returns when the next report is due,
// zero without a watchdog. It reports as early as after a quarter of the timeout, so that
// the loop seldom wakes for the watchdog alone.
func (d *Daemon) alive() (again time.Time) {
	if d.cfg.Watchdog == 0 {
		return again
	}
	if now := time.Now(); now.Sub(d.reported) >= d.cfg.Watchdog/4 {
		d.reported = now
		d.notify(sd.SdNotifyWatchdog)
	}
	return d.reported.Add(d.cfg.Watchdog / 2)
}

func resetTimer(t *time.Timer, d time.Duration) {
	if d <= 0 {
		d = time.Millisecond
	}
	t.Reset(d)
}

// coalesceLeast joins the events that one change brings: a device that comes makes
// a dozen within milliseconds.
const coalesceLeast = 4 * time.Millisecond

// coalesceNext does so for events that follow a cycle closely: most are what
// udevd, the subnet manager or the kernel make of the same change.
const coalesceNext = 20 * time.Millisecond

// coalesceMost bounds the wait for more hints of the same storm.
const coalesceMost = 250 * time.Millisecond

// coalesceBurst is how much longer cycles may take than the pauses between them before hints wait for that: the
// cycle of one event does not delay the next.
const coalesceBurst = 100 * time.Millisecond

// collect takes the hints. Once cycles have taken coalesceBurst longer than the pauses between them, it waits for the
// rest, coalesceMost at most: in a storm half of the time is left to others, and one observation answers many hints.
func (d *Daemon) collect(ctx context.Context) Scope {
	s := d.hints()
	if s.Empty() {
		return s // the event concerns neither links nor ports
	}
	began := time.Now()
	rested := began.Sub(d.lastEnd) // a request that is answered meanwhile may end a cycle
	d.pause(ctx, max(min(d.debt-coalesceBurst-rested, coalesceMost), coalesceLeast), nil)
	s.Join(d.hints())
	if !s.Reread && rested < coalesceMost && !d.completes(s) {
		d.pause(ctx, coalesceNext-time.Since(began), d.rereads)
	}
	s.Join(d.hints())
	s.Join(d.happened())
	for end := time.Now().Add(lazyWait); s.lazy() && ctx.Err() == nil; {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		d.pause(ctx, min(left, coalesceNext), d.rereads)
		s.Join(d.hints())
		s.Join(d.happened())
	}
	if d.set != nil && d.rec != nil {
		w := d.needs(s)
		s.Routes, s.Rules = s.Routes && w.Routes, s.Rules && w.Rules
	}
	return s
}

// completes reports that udevd has finished with the last of the links that wait for it.
func (d *Daemon) completes(s Scope) bool {
	waits := false
	for i, st := range d.status {
		if st.Reason().Code != link.CodeUdev {
			continue
		}
		if !s.Udev[i] {
			return false
		}
		waits = true
	}
	return waits
}

// hints takes what Wake has been called with, and the events that it reported.
func (d *Daemon) hints() Scope {
	select {
	case <-d.bell:
	default:
	}
	d.mu.Lock()
	s := d.want
	d.want = Scope{}
	d.mu.Unlock()
	if s.Events {
		s.Events = false
		s.Join(d.happened())
	}
	if s.All || s.Reload || len(s.Force) > 0 {
		d.moved = time.Now()
	}
	return s
}

// happened takes the events.
func (d *Daemon) happened() (s Scope) {
	if d.cfg.Events != nil {
		s = d.cfg.Events.Take()
	}
	if s.RDMA {
		d.moved = time.Now()
	}
	return s
}

// pause waits for more hints and answers requests meanwhile. It ends early with a hint after which enough is true.
func (d *Daemon) pause(ctx context.Context, wait time.Duration, enough func() bool) {
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	bell := d.bell
	if enough == nil {
		bell = nil
	}
	for {
		select {
		case <-t.C:
			return
		case <-bell:
			if enough() {
				return
			}
		case f := <-d.call:
			f(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// rereads reports whether the observer has something read again.
func (d *Daemon) rereads() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.want.Reread
}

// lazyWait is how long hints wait on which no caller waits. They come one by one for
// each link.
const lazyWait = 100 * time.Millisecond
