// Package modload loads the kernel modules that [Modules] sections name.
package modload

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/link"
	"ibnetworkd/smctl/worker"
	"ibnetworkd/units"
)

// retry is the pause after a module could not be loaded.
const retry = time.Minute

// Systemd loads modules by modprobe@.service; *worker.Systemd is one.
type Systemd interface {
	// Tried is closed when systemd was reached, or the first attempt has failed.
	Tried() <-chan struct{}
	// LoadModule gives worker.ErrNoSystemd where systemd cannot be reached.
	LoadModule(ctx context.Context, name string) error
	// Connected gets a value after each time that systemd was reached.
	Connected() <-chan struct{}
}

// Config is what a Loader is made of.
type Config struct {
	Log     *slog.Logger
	Systemd Systemd
	// Present reports whether the kernel has a module.
	Present func(module string) bool
	// Notice gets the notices about modules each time that they were checked.
	Notice func(...link.Notice)
}

// Loader loads each module once while a unit names it. What could not be loaded is
// a notice, and is retried each minute.
type Loader struct {
	cfg  Config
	want chan []wanted
	last *units.Set

	missed atomic.Bool // systemd could not be asked for a module
	done   map[string]bool
	failed map[string]link.Reason
}

// New makes a Loader.
func New(cfg Config) *Loader {
	return &Loader{cfg: cfg, want: make(chan []wanted, 1), done: map[string]bool{}, failed: map[string]link.Reason{}}
}

// wanted is a module of a [Modules] section.
type wanted struct {
	name, unit string
	pos        units.Place
}

// wantedBy are the modules that units name, each once.
func wantedBy(set *units.Set) []wanted {
	out := []wanted{}
	for _, u := range set.Units {
		for _, m := range u.Modules.Load {
			if !named(out, m.V) {
				out = append(out, wanted{m.V, u.Path, m.Pos})
			}
		}
	}
	return out
}

func named(want []wanted, module string) bool {
	return slices.ContainsFunc(want, func(w wanted) bool { return w.name == module })
}

// Update gives the loader the units. It never blocks, and belongs to one goroutine.
func (l *Loader) Update(set *units.Set) {
	if set == nil || set == l.last {
		return
	}
	l.last = set
	daemon.Replace(l.want, wantedBy(set))
}

// Modules is how this process loads modules: by systemd, because modprobe cannot
// work in the service's sandbox, or by modprobe where there is no systemd.
func (l *Loader) Modules() modules.Loader {
	return modules.Loader{Ask: func(ctx context.Context, name string) (bool, error) {
		// At boot the bus may listen long before it answers.
		select {
		case <-l.cfg.Systemd.Tried():
		case <-ctx.Done():
			return true, ctx.Err()
		}
		err := l.cfg.Systemd.LoadModule(ctx, name)
		if errors.Is(err, worker.ErrNoSystemd) {
			l.missed.Store(true)
			return false, err
		}
		return true, err
	}}
}

// Run loads modules until ctx ends.
func (l *Loader) Run(ctx context.Context) error {
	var want []wanted
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case want = <-l.want:
		case <-again.C:
		case <-l.cfg.Systemd.Connected():
			if !l.missed.Swap(false) {
				continue
			}
		}
		again.Stop()
		if !l.load(ctx, want) {
			again.Reset(retry)
		}
		var notices []link.Notice
		for _, m := range want {
			if why := l.failed[m.name]; why != (link.Reason{}) {
				notices = append(notices, link.Notice{Unit: m.unit, Reason: why})
			}
		}
		l.cfg.Notice(notices...)
	}
}

// load loads what is missing. It reports false if a load failed, which one that
// succeeds without effect has not.
func (l *Loader) load(ctx context.Context, want []wanted) (ok bool) {
	ok = true
	for m := range l.done {
		if !named(want, m) {
			delete(l.done, m)
		}
	}
	for m := range l.failed {
		if !named(want, m) {
			delete(l.failed, m)
		}
	}
	for _, m := range want {
		if l.done[m.name] {
			continue
		}
		why := link.Reason{}
		if !l.cfg.Present(m.name) {
			err := l.Modules().Load(ctx, m.name)
			ok = ok && err == nil
			if why = l.reason(m, err); why == (link.Reason{}) {
				l.cfg.Log.Info("loaded a module", "module", m.name, "unit", m.unit)
			}
		}
		// One that modprobe does not know is retried at the next reload.
		l.done[m.name] = why == (link.Reason{})
		l.failed[m.name] = why
	}
	return ok
}

// reason is why a module is missing after it was loaded, zero if it is not.
func (l *Loader) reason(m wanted, err error) link.Reason {
	r := link.Reason{Code: link.CodeModule,
		Next: "modprobe -v " + m.name + "; where that succeeds write the module's own name: modinfo -F name " + m.name}
	switch {
	case err != nil:
		r.Text = fmt.Sprintf("the module %s (Load=, %s) cannot be loaded: %v", m.name, m.pos, err)
	case !l.cfg.Present(m.name):
		// systemd's modprobe@.service does not fail.
		r.Text = fmt.Sprintf("the module %s (Load=, %s) does not exist after modprobe has run: "+
			"this kernel lacks it, or the name is an alias or built in", m.name, m.pos)
	default:
		return link.Reason{}
	}
	return r
}
