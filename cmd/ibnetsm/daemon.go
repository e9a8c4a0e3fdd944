package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"ibnetworkd/internal/tasks"
	"ibnetworkd/internal/version"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/serve"
)

// daemon is one run of ibnetsm.
type daemon struct {
	opts    *options // as on the command line; the files are read with each reload
	begun   *options // with the files, as at the start
	log     *slog.Logger
	level   *slog.LevelVar
	status  *notifier
	manager *serve.Manager
	socket  statusSocket
	service bool // of systemd, which starts it again when it ends for new settings
	config  atomic.Pointer[engine.Config]
	logTo   logFile
}

// newDaemon builds the parts from the options of the command line and the files that they name.
func newDaemon(o *options) (*daemon, error) {
	now, err := o.withSettings()
	if err != nil {
		return nil, err
	}
	d := &daemon{opts: o, begun: &now, level: new(slog.LevelVar), status: newNotifier(), service: os.Getenv("NOTIFY_SOCKET") != ""}
	out := io.Writer(os.Stderr)
	if now.logFile != "" {
		if err := d.logTo.open(&now); err != nil {
			return nil, err
		}
		out = &d.logTo
	}
	ho := &slog.HandlerOptions{Level: d.level}
	if now.logJSON {
		d.log = slog.New(slog.NewJSONHandler(out, ho))
	} else {
		d.log = slog.New(slog.NewTextHandler(out, ho))
	}
	if err := d.configure(&now); err != nil {
		return nil, err
	}
	d.socket = statusSocket{path: now.socketPath(), listen: serve.Listen, serve: d.manager.Serve, log: d.log, tried: make(chan struct{})}
	return d, nil
}

// run runs the parts until ctx ends or one of them fails. A value from hangup reads the
// settings again.
func (d *daemon) run(ctx context.Context, hangup <-chan os.Signal) error {
	d.log.Info("ibnetsm starts", "version", version.String(), "transport", d.begun.transport, "priority", d.begun.priority)
	defer sd.SdNotify(false, sd.SdNotifyStopping)
	return tasks.Run(ctx, d.tasks(hangup), func() { sd.SdNotify(false, sd.SdNotifyReady) })
}

// tasks are all that runs beside each other. An error ends the process:
// each retries inside itself what may pass.
func (d *daemon) tasks(hangup <-chan os.Signal) []tasks.Task {
	var opened <-chan struct{} // nil: ports may appear at any time
	if d.manager.Number > 0 {
		opened = d.status.opened
	}
	return []tasks.Task{
		{Name: "status socket", Run: d.socket.run, Ready: d.socket.tried},
		{Name: "subnets", Run: d.manager.Run, Ready: opened},
		{Name: "reload on SIGHUP", Run: func(ctx context.Context) error { return d.onHangup(ctx, hangup) }},
		{Name: "watchdog", Run: func(ctx context.Context) error { return watchdog(ctx, d.manager) }},
	}
}

// onHangup reloads at each value of hangup, until a change needs a restart.
func (d *daemon) onHangup(ctx context.Context, hangup <-chan os.Signal) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			if err := d.reload(); err != nil {
				return err
			}
		}
	}
}

// configure makes the manager from the options at the start. Partitions that cannot
// be used are replaced by the last good ones.
func (d *daemon) configure(now *options) error {
	now.setLevel(d.level)
	cfg, err := now.config(d.log)
	if err := route.CheckEngines(now.routing); err != nil {
		d.log.Warn("a routing engine is ignored", "err", err)
	}
	var problems []string
	partitions := true
	for _, err := range split(err) {
		instead := ""
		switch e := err.(type) {
		case errPartitions:
			partitions = false
			cfg.Partitions, instead = now.fallBack()
			d.log.Error("the partitions cannot be used", "err", e.error, "instead", instead)
		case errOptional:
			instead = e.instead
			d.log.Error("a file cannot be used", "of", e.what, "err", e.error, "instead", instead)
		default:
			return err
		}
		problems = append(problems, firstLine(err)+": "+instead)
	}
	if len(problems) > 0 {
		d.status.problem(strings.Join(problems, "; "))
	}
	if partitions {
		if err := now.keepGood(); err != nil {
			d.log.Warn("cannot save the partitions for a start with a bad file", "err", err)
		}
	}
	if d.manager, err = now.manager(d.log); err != nil {
		return err
	}
	threads := newThreads()
	d.config.Store(&cfg)
	d.manager.Wait, d.manager.Log, d.manager.Ended = now.waitPort, d.log, d.status.gone
	d.manager.Config = func(p serve.Port) engine.Config {
		threads.port(p)
		c := *d.config.Load()
		c.Log, c.Computing, c.Processors = d.log, threads.compute, threads.spare()
		c.Store, c.Drains, c.Routes = now.store(p), now.drains(p), now.routes(p)
		c.Changed = func(x *engine.Snapshot) { d.status.state(p, x) }
		return c
	}
	return nil
}

// logFile is the log, which open switches to the file that has its name now.
type logFile struct{ f atomic.Pointer[os.File] }

// Write appends to the log.
func (l *logFile) Write(b []byte) (int, error) { return l.f.Load().Write(b) }

// open opens the file again, as after a rotation. The former one stays open for writes that are
// under way, and is closed by the garbage collector.
func (l *logFile) open(o *options) error {
	f, err := o.openLog()
	if err == nil {
		l.f.Store(f)
	}
	return err
}

// openLog never waits for the reader of a pipe.
func (o *options) openLog() (*os.File, error) {
	return os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
}

func (o *options) setLevel(l *slog.LevelVar) {
	l.Set(slog.LevelInfo)
	if o.verbose {
		l.Set(slog.LevelDebug)
	}
}
