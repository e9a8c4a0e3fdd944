package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/card"
	"ibnetworkd/daemon/metrics"
	"ibnetworkd/link"
)

// backend is what the bus calls.
type backend struct{ *App }

// Reload implements bus.Backend. The problems of the files are published when it
// returns, so that the caller reads those of this reload.
func (b backend) Reload(ctx context.Context) error {
	err := b.reload(ctx)
	b.bus.PublishProblems(b.daemon.Report().Problems)
	return err
}

func (b backend) Reconfigure(ctx context.Context, name string) error {
	return b.daemon.Reconfigure(ctx, name)
}

func (b backend) Renew(ctx context.Context, name string) error { return b.dhcp.Renew(ctx, name) }

func (b backend) SetAdmin(ctx context.Context, name string, up bool) error {
	return b.daemon.SetAdmin(ctx, name, up)
}

func (b backend) Plan(ctx context.Context) (link.Plan, error) {
	r, err := b.daemon.Plan(ctx)
	return r.Plan, err
}

func (b backend) StartSubnetManager(ctx context.Context, dev string, port int) error {
	return b.sm.Start(ctx, dev, port)
}

func (b backend) StopSubnetManager(ctx context.Context, dev string, port int) error {
	return b.sm.Stop(ctx, dev, port)
}

func (b backend) LogLevel() slog.Level { return b.level.Level() }

func (b backend) SetLogLevel(l slog.Level) { b.level.Set(l) }

// publish hands what changes in the daemon to the bus and the metrics, from the first
// report on.
func (a *App) publish(ctx context.Context) error {
	changes, cancel := a.daemon.Subscribe()
	defer cancel()
	select {
	case <-ctx.Done():
		return nil
	case <-a.daemon.Ready():
	}
	r := a.daemon.Report()
	a.show(daemon.Change{Links: r.Links, Ports: r.Ports, PortsChanged: true, Problems: r.Problems, Reloaded: true,
		Notices: r.Notices, Awaited: r.Awaited})
	close(a.published)
	for {
		select {
		case <-ctx.Done():
			return nil
		case c, ok := <-changes:
			if !ok {
				return nil
			}
			a.show(c)
			a.refresh.published(c.Seq)
		}
	}
}

func (a *App) show(c daemon.Change) {
	a.bus.PublishHost(c.Notices, c.Awaited)
	if len(c.Links)+len(c.Gone) > 0 {
		a.bus.PublishLinks(c.Links, c.Gone)
		a.metrics.ObserveLinks(c.Links, c.Gone)
	}
	if c.PortsChanged {
		a.bus.PublishPorts(c.Ports)
		a.metrics.ObservePorts(time.Now(), c.Ports)
	}
	if c.Reloaded {
		a.bus.PublishProblems(c.Problems)
		a.metrics.Reloaded(len(c.Problems))
	}
}

type countingSystem struct {
	daemon.System
	metrics *metrics.Collector
}

func (s countingSystem) Apply(ctx context.Context, steps []link.Step, done func(op link.Op, err error)) {
	s.System.Apply(ctx, steps, func(op link.Op, err error) {
		if !errors.As(err, new(*card.InProgress)) {
			s.metrics.Op(op, err)
		}
		done(op, err)
	})
}

func (s countingSystem) Finished() []card.Result {
	rs := s.System.Finished()
	for _, r := range rs {
		s.metrics.Op(r.Op, r.Err)
	}
	return rs
}
