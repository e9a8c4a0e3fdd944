// The number of CPUs is asked for once: the runtime's own look at it would wake
// an idle daemon.
//
//go:debug updatemaxprocs=0

// Command ibnetworkd keeps InfiniBand and RoCE links in the state that
// .ibnetwork files ask for.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/cardwatch"
	"ibnetworkd/internal/journal"
	"ibnetworkd/internal/kernel/udevdb"
	"ibnetworkd/internal/version"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

func main() {
	// The live heap of hundreds of links is 5 MiB: collecting at 8 instead of
	// 10 costs little, and every machine of a cluster pays for what lies around.
	debug.SetGCPercent(60)
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "ibnetworkd: "+err.Error())
		os.Exit(1)
	}
}

type options struct {
	logLevel, root, stateDir string
	recvBuffer               int
	noWatch                  bool
}

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "ibnetworkd",
		Short: "Keep InfiniBand and RoCE links as .ibnetwork files ask for",
		Long: `ibnetworkd reads *.ibnetwork files from /etc, /run, /usr/local/lib and /usr/lib
(each with /systemd/network below it), brings the links that they match to the state
that they ask for, and keeps them so: at boot, on hotplug, after a driver restart, and
when a file changes (WatchUnitFiles=no in /etc/ibnetworkd/ibnetworkd.conf makes files
wait for a reload). ibnetctl shows what it does and why it cannot.

SIGHUP reads the files again. SIGTERM ends it and leaves the configuration in place.`,
		Args:          cobra.NoArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return run(c.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.stateDir, "state-dir", "/run/ibnetworkd", "directory of the record and the state file")
	f.StringVar(&o.root, "unit-root", "/", "directory that stands for / when unit files are looked for")
	f.IntVar(&o.recvBuffer, "event-buffer", 0, "receive buffer of the event sockets in bytes, 0 for a large one")
	f.BoolVar(&o.noWatch, "no-watch", false, "do not apply unit files when they change: read them at the start, on SIGHUP and on reload only (WatchUnitFiles=no in ibnetworkd.conf)")
	for _, add := range extraFlags {
		add(f)
	}
	c.CompletionOptions.HiddenDefaultCmd = true
	return c
}

// env is what the tasks of other rooms may use.
type env struct {
	daemon   *daemon.Daemon
	observer *daemon.Observer
	log      *slog.Logger
	level    *slog.LevelVar
	stateDir string
	edits    *daemon.Edits // nil: files are applied when they change
}

// onRequest makes loads that nobody asked for give the units of the last one that was:
// the loop loads for other reasons too, which must not apply an edit that waits.
// Asking is to call doubt, as the daemon does before it.
func onRequest(load func() *units.Set, doubt func()) (func() *units.Set, func()) {
	var asked atomic.Bool
	asked.Store(true)
	var mu sync.Mutex
	var last *units.Set
	return func() *units.Set {
			mu.Lock()
			defer mu.Unlock()
			if asked.Swap(false) {
				last = load()
			}
			return last
		}, func() {
			asked.Store(true)
			doubt()
		}
}

// editsNotice is what the notice about edits that wait is filed under.
const editsNotice = "edits"

// task is a part of the process that runs beside the loop. It ends with its
// context; an error ends the process.
type task struct {
	name string
	run  func(context.Context) error
}

// What other files of this package add before main runs.
var (
	extraTasks []func(env) task
	onTurn     []func(daemon.View)
	wraps      []func(daemon.System) daemon.System
	extraFlags []func(*pflag.FlagSet)
)

func run(ctx context.Context, o options) error {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return fmt.Errorf("--log-level=%s: write debug, info, warn or error", o.logLevel)
	}
	log := slog.New(journal.Handler(os.Stderr, level))
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	// Caught from the beginning, so that one that comes early does not end us.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	store, err := daemon.NewStore(o.stateDir)
	switch {
	case errors.Is(err, daemon.ErrRunning):
		return err
	case err != nil:
		// Links come first: they are configured all the same.
		log.Error("no state is kept", "error", err, "effect", "what is made from now on is not removed after a restart")
	}
	defer func() {
		_ = store.RemoveReport()
		_ = store.Close()
	}()
	eyes, err := daemon.NewObserver("/")
	if err != nil {
		return err
	}
	defer func() { _ = eyes.Close() }()
	var sys daemon.System = &daemon.Kernel{Observer: eyes}
	for _, w := range wraps {
		sys = w(sys)
	}
	dirs := daemon.NewUnitDirs(o.root)
	dirs.KeepCopies(filepath.Join(o.stateDir, daemon.UnitCopies), log)
	settings := readConf(o.root)
	watch := settings.WatchUnitFiles && !o.noWatch
	load, doubt := dirs.Load, dirs.Doubt
	if !watch {
		load, doubt = onRequest(load, doubt)
	}
	w := &daemon.Watch{Log: log, RecvBuffer: o.recvBuffer, Udev: udevdb.New("/").Running(), More: cardwatch.Sources()}
	d := daemon.New(daemon.Config{
		Log: log, System: sys, Keep: store, OnTurn: onTurn, Events: w,
		Load: load, Doubt: doubt,
		Notify:    func(s string) { _, _ = sd.SdNotify(false, s) },
		AfterWork: giveBack(),
	})
	eyes.Notify(d.Wake)
	w.Wake = d.Wake
	if err := w.Start(ctx); err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	var wrong []link.Notice
	for _, p := range settings.Problems {
		wrong = append(wrong, link.Notice{Reason: link.Reason{Code: link.CodeConf, Text: p, Next: "see ibnetworkd.conf(5); systemctl restart ibnetworkd"}})
	}
	d.Notice("settings", wrong...)
	changed := func() { d.Wake(daemon.Scope{Reload: true}) }
	var edits *daemon.Edits
	if !watch {
		edits = daemon.NewEdits(dirs, func(n ...link.Notice) { d.Notice(editsNotice, n...) })
		changed = edits.Units
	}
	if err := dirs.Watch(ctx, log, changed); err != nil {
		log.Warn("the unit directories are not watched: changes need a reload", "error", err)
	}
	log.Info("ibnetworkd starts", "version", version.String())

	tasks := []task{
		{"loop", d.Run},
		{"hangup", func(ctx context.Context) error { return onHangup(ctx, d, edits, hangup) }},
		{"watchdog", func(ctx context.Context) error { return watchdog(ctx, d) }},
	}
	for _, f := range extraTasks {
		tasks = append(tasks, f(env{daemon: d, observer: eyes, log: log, level: level, stateDir: o.stateDir, edits: edits}))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(tasks))
	for _, t := range tasks {
		go func() {
			err := t.run(ctx)
			if err != nil && !errors.Is(err, context.Canceled) {
				err = fmt.Errorf("%s: %w", t.name, err)
			} else {
				err = nil
			}
			ended <- err
			if err != nil {
				cancel()
			}
		}()
	}
	var first error
	for range tasks {
		if err := <-ended; err != nil && first == nil {
			first = err
		}
	}
	log.Info("ibnetworkd ends; the configuration stays in place")
	return first
}

// onHangup reloads on SIGHUP, telling the service manager as Type=notify-reload
// wants it (sd_notify(3)).
func onHangup(ctx context.Context, d *daemon.Daemon, edits *daemon.Edits, c <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c:
			var ts unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
			_, _ = sd.SdNotify(false, fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", ts.Nano()/1000))
			control.reread()
			if err := d.Reload(ctx); err != nil && ctx.Err() == nil {
				_, _ = sd.SdNotify(false, "STATUS=the reload failed: "+err.Error())
			}
			edits.Units()
			_, _ = sd.SdNotify(false, sd.SdNotifyReady)
		}
	}
}

// watchdog tells the service manager that the loop still turns.
func watchdog(ctx context.Context, d *daemon.Daemon) error {
	every, err := sd.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return nil
	}
	t := time.NewTicker(every / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if d.Alive(ctx) == nil {
				_, _ = sd.SdNotify(false, sd.SdNotifyWatchdog)
			}
		}
	}
}

// burst is how many operations in one turn leave memory behind that is worth
// giving back soon.
const burst = 64

// giveBack returns the memory of past work to the system: soon after a burst, and
// after a while of quiet in any case. The runtime would do so by itself, but in
// small steps over minutes, each of which wakes the process.
func giveBack() func(int) {
	t := time.AfterFunc(time.Hour, debug.FreeOSMemory)
	t.Stop()
	return func(steps int) {
		if steps >= burst {
			t.Reset(2 * time.Second)
			return
		}
		t.Reset(20 * time.Second)
	}
}
