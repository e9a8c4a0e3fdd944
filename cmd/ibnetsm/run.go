package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ibnetworkd/internal/version"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/serve"
)

func runCmd() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "run", Short: "manage the subnets of this host's ports", Args: cobra.NoArgs,
		Long: `Manages the subnet of each InfiniBand port selected by --port-guid or --device,
by default of all ports. A port that appears later gets a subnet manager then. A
master of equal or higher priority stays master. On SIGHUP, settings, partitions
and node names are read again and the subnets are swept; on SIGTERM, mastership
is handed to a standby.

If the partitions file cannot be used, ibnetsm starts with the last one that
could be, or with the default partition, and reports that in its log and status.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.remember(cmd.Flags())
			return run(cmd.Context(), &o)
		},
	}
	o.bind(c.Flags())
	return c
}

// daemon is one run of ibnetsm.
type daemon struct {
	opts    *options // as on the command line; the files are read with each reload
	begun   *options // with the files, as at the start
	log     *slog.Logger
	level   *slog.LevelVar
	status  *notifier
	manager *serve.Manager
	service bool // of systemd, which starts it again when it ends for new settings
	config  atomic.Pointer[engine.Config]
	logTo   logFile
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

func run(ctx context.Context, o *options) error {
	// A sweep makes garbage in proportion to the subnet, once; memory is worth
	// more than the collector's time.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if engines := o.given["routing"]; len(engines) > 0 {
		if err := route.CheckEngines(engines[0]); err != nil {
			return fmt.Errorf("--routing: %w", err)
		}
	}
	now, err := o.withSettings()
	if err != nil {
		return err
	}
	d := &daemon{opts: o, begun: &now, level: new(slog.LevelVar), status: &notifier{}, service: os.Getenv("NOTIFY_SOCKET") != ""}
	out := io.Writer(os.Stderr)
	if now.logFile != "" {
		if err := d.logTo.open(&now); err != nil {
			return err
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
		return err
	}

	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for range hup {
			if err := d.reload(); err != nil {
				cancel(err)
				return
			}
		}
	}()
	if path := now.socketPath(); path != "" {
		l, err := serve.Listen(path)
		if err != nil {
			d.log.Warn("no status socket", "err", err)
		} else {
			go d.manager.Serve(ctx, l)
		}
	}
	d.log.Info("ibnetsm starts", "version", version.String(), "transport", now.transport, "priority", now.priority)
	go watchdog(ctx, d.manager)
	if d.manager.Number == 0 {
		d.status.ready() // ports may appear at any time
	}
	defer sd.SdNotify(false, sd.SdNotifyStopping)
	if err := d.manager.Run(ctx); err != nil {
		return err
	}
	if err := context.Cause(ctx); errors.Is(err, errRestart) {
		return err
	}
	return nil
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
		c.Log, c.Computing = d.log, threads.compute
		c.Store, c.Drains, c.Routes = now.store(p), now.drains(p), now.routes(p)
		c.Changed = func(x *engine.Snapshot) { d.status.state(p, x) }
		return c
	}
	return nil
}

// reload reads the settings again, applies what a running manager can, and sweeps. An
// error means that a service of systemd must end to apply the rest: its unit starts it
// again. Any other goes on with the former ones. Settings that cannot be used change nothing.
func (d *daemon) reload() error {
	if d.begun.logFile != "" {
		if err := d.logTo.open(d.begun); err != nil {
			d.log.Error("the log file cannot be opened again, the former one stays", "err", err)
		}
	}
	opts, err := d.opts.withSettings()
	opts.lids = "" // read at the start only
	var next engine.Config
	if err == nil {
		next, err = opts.config(d.log)
	}
	restart := err == nil && (!sameFixed(*d.config.Load(), next) || !sameStart(d.begun, &opts))
	if restart {
		err = opts.canStart(d.log)
	}
	if err != nil {
		d.log.Error("the settings cannot be used, the former ones stay", "err", err)
		d.status.problem(firstLine(err) + ": the former settings stay")
		d.manager.Resweep(false, "SIGHUP")
		return nil
	}
	opts.setLevel(d.level)
	d.status.problem("")
	if err := opts.keepGood(); err != nil {
		d.log.Warn("cannot save the partitions for a start with a bad file", "err", err)
	}
	was := d.config.Load()
	if restart {
		changed := strings.Join(opts.needRestart(d.begun, !reflect.DeepEqual(next.QoSPolicy, was.QoSPolicy)), ", ")
		if d.service {
			d.log.Info("settings changed that need a restart", "options", changed)
			return errRestart
		}
		d.log.Warn("settings changed that need a restart, the former ones stay; restart ibnetsm to apply them", "options", changed)
		d.status.problem("restart ibnetsm to apply: " + changed)
	}
	next = applied(*was, next) // also for a port that appears later
	d.config.Store(&next)
	if none := (engine.Config{}); !reflect.DeepEqual(none.Adjusted(*was), none.Adjusted(next)) {
		d.log.Info("priority or intervals changed", "priority", next.Priority, "sweep", next.Sweep.String(), "poll", next.Poll.String(),
			"window", next.Window, "timeout", next.Timeout.String(), "retries", max(0, next.Retries))
		for _, s := range d.manager.Subnets() {
			s.Adjust(next)
		}
	}
	if !reflect.DeepEqual(next.Names, was.Names) {
		for _, s := range d.manager.Subnets() {
			s.SetNames(next.Names)
		}
	}
	if !reflect.DeepEqual(next.Route, was.Route) {
		d.log.Info("the routing engine or hints for routes changed")
		for _, s := range d.manager.Subnets() {
			s.SetRoute(next.Route, "SIGHUP")
		}
	}
	if !reflect.DeepEqual(next.PrefixRoutes, was.PrefixRoutes) {
		for _, s := range d.manager.Subnets() {
			s.SetPrefixRoutes(next.PrefixRoutes, "SIGHUP")
		}
	}
	if !reflect.DeepEqual(next.Partitions, was.Partitions) {
		d.log.Info("partitions changed", "file", opts.partitions)
		for _, s := range d.manager.Subnets() {
			s.SetPartitions(next.Partitions, "SIGHUP")
		}
		return nil
	}
	d.manager.Resweep(false, "SIGHUP")
	return nil
}

// openLog never waits for the reader of a pipe.
func (o *options) openLog() (*os.File, error) {
	return os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0o644)
}

// canStart checks what run checks only at its start: a mistake there would end the
// manager with the restart.
func (o *options) canStart(log *slog.Logger) error {
	if _, err := o.manager(log); err != nil {
		return err
	}
	if o.logFile == "" {
		return nil
	}
	f, err := o.openLog()
	if err != nil {
		return err
	}
	return f.Close()
}

// errRestart ends a subnet manager that systemd has to start again, with settings
// that a running one cannot apply.
var errRestart = errors.New("settings changed that need a restart")

// sameFixed reports whether two configurations differ only in what a running
// subnet manager can apply.
func sameFixed(a, b engine.Config) bool {
	for _, c := range []*engine.Config{&a, &b} {
		*c = applied(*c, engine.Config{})
		c.Log, c.Store, c.Drains, c.Routes, c.Changed, c.LIDs = nil, nil, nil, nil, nil, nil // LIDs are for a start
	}
	return reflect.DeepEqual(a, b)
}

// applied is a configuration with what a running subnet manager can apply of another.
func applied(c, next engine.Config) engine.Config {
	c.Partitions, c.Names, c.Route, c.PrefixRoutes = next.Partitions, next.Names, next.Route, next.PrefixRoutes
	return c.Adjusted(next)
}

// applicable are the options that a running manager applies, or that name files whose
// content counts.
var applicable = []string{"partitions", "partition", "node-name-map", "routing", "root-guid-file", "cn-guid-file", "io-guid-file",
	"hop-weights-file", "guid-routing-order-file", "guid2lid", "prefix-routes-file", "priority", "sweep", "poll", "window", "timeout",
	"retries", "reregister", "verbose", "config", "settings", "keys-file", "qos-policy"}

// needRestart names the options that differ from those at the start and are not applied.
func (o *options) needRestart(begun *options, policy bool) (names []string) {
	now, was := o.values(), begun.values()
	for name := range now {
		if now[name] != was[name] && !slices.Contains(applicable, name) {
			names = append(names, name)
		}
	}
	if policy {
		names = append(names, "qos-policy")
	}
	slices.Sort(names)
	return names
}

// values are the options by the names of their flags.
func (o *options) values() map[string]string {
	var bound options
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	bound.bind(f)
	bound = *o
	out := map[string]string{}
	f.VisitAll(func(g *pflag.Flag) { out[g.Name] = g.Value.String() })
	return out
}

func (o *options) setLevel(l *slog.LevelVar) {
	l.Set(slog.LevelInfo)
	if o.verbose {
		l.Set(slog.LevelDebug)
	}
}
