package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/bus"
	"ibnetworkd/daemon/metrics"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/version"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/files"
	"ibnetworkd/smctl/probe"
	"ibnetworkd/smctl/worker"
	"ibnetworkd/units"
)

// outside joins the daemon with the bus, the subnet managers and the metrics.
type outside struct {
	env
	bus     *bus.Server
	sm      *worker.Controller
	systemd *worker.Systemd
	fresh   *refresher
	// fileWatch sees changes of the files that [SubnetManager] names.
	fileWatch *worker.FileWatch
	loader    modules.Loader
	unasked   atomic.Bool // systemd could not be asked for a module
}

// Settings of the command line.
var (
	metricsAt   string
	metricsFile string
)

// The parts that exist before the daemon does.
var (
	counted  = metrics.New(version.String(), time.Now(), metrics.PortCounters("/sys"))
	control  = &lateController{managed: make(chan bool, 1), modules: make(chan []wantedModule, 1)}
	known    = &managers{}
	textEach = 15 * time.Second
)

func init() {
	extraFlags = append(extraFlags, func(f *pflag.FlagSet) {
		f.StringVar(&metricsAt, "metrics", "", "serve Prometheus metrics at unix:PATH or ADDRESS:PORT as well; \"no\": nowhere, also not on metrics.sock in the state directory")
		f.StringVar(&metricsFile, "metrics-textfile", "", "write Prometheus metrics to this file for node_exporter's textfile collector")
	})
	wraps = append(wraps, func(s daemon.System) daemon.System { return countingSystem{s} },
		func(s daemon.System) daemon.System { return managerSystem{s, known} })
	onTurn = append(onTurn, control.turn)
	var o *outside
	once := func(e env) *outside {
		if o == nil {
			o = newOutside(e)
		}
		return o
	}
	extraTasks = append(extraTasks,
		func(e env) task { return task{"D-Bus", once(e).bus.Run} },
		func(e env) task { return task{"publish", once(e).publish} },
		func(e env) task { return task{"systemd", once(e).systemd.Run} },
		func(e env) task { return task{"subnet manager control", once(e).sm.Run} },
		func(e env) task { return task{"file watch", once(e).fileWatch.Run} },
		func(e env) task { return task{"port watch", once(e).watchPorts} },
		func(e env) task { return task{"metrics", once(e).metrics} },
		func(e env) task { return task{"modules", once(e).loadModules} },
	)
}

func newOutside(e env) *outside {
	o := &outside{env: e, fresh: &refresher{daemon: e.daemon}}
	o.bus = bus.New(bus.Config{Backend: o, Log: e.log, Version: version.String(), Refresh: o.fresh.refresh})
	o.systemd = worker.NewSystemd("", e.log)
	check := files.New("/")
	o.fileWatch = worker.NewFileWatch(e.log, func() {
		if e.edits == nil {
			o.sm.Reread()
		} else {
			o.sm.Compare() // they wait for a reload, as the units do
		}
	})
	o.sm = worker.New(worker.Config{Log: e.log, Manager: o.systemd, Prober: worker.Umad{}, Keeper: worker.Dir(filepath.Join(e.stateDir, "sm")),
		Check:   func(p smctl.Policy) smctl.Files { _, f := check.Check(p); return f },
		Inspect: func(dev string, port int) (smctl.Bar, bool, error) { return probe.Inspect(sysfs.New(""), dev, port) },
		Watch:   o.fileWatch.Watch,
		Waiting: e.edits.Files,
		Look:    func() { e.daemon.Wake(daemon.Scope{RDMA: true}) },
		Publish: func(s []smctl.Status) {
			o.bus.PublishSM(s)
			counted.ObserveSM(s)
			if known.set(s) {
				e.daemon.Wake(daemon.Scope{RDMA: true})
			}
		}})
	control.set(o.sm, func() { e.daemon.Wake(daemon.Scope{RDMA: true}) })
	o.loader.Ask = func(ctx context.Context, name string) (bool, error) {
		// At boot the bus may listen long before it answers; modprobe itself
		// cannot work in the service's sandbox.
		select {
		case <-o.systemd.Tried():
		case <-ctx.Done():
			return true, ctx.Err()
		}
		err := o.systemd.LoadModule(ctx, name)
		if errors.Is(err, worker.ErrNoSystemd) {
			o.unasked.Store(true)
			return false, err
		}
		return true, err
	}
	e.observer.LoadModules(o.loader)
	return o
}

// publish hands what changes in the daemon to the bus and the metrics.
func (o *outside) publish(ctx context.Context) error {
	changes, cancel := o.daemon.Subscribe()
	defer cancel()
	r := o.daemon.Report()
	o.show(daemon.Change{Links: r.Links, Ports: r.Ports, PortsChanged: true, Problems: r.Problems, Reloaded: true, Notices: r.Notices, Awaited: r.Awaited})
	for {
		select {
		case <-ctx.Done():
			return nil
		case c, ok := <-changes:
			if !ok {
				return nil
			}
			o.show(c)
			o.fresh.published(c.Seq)
		}
	}
}

func (o *outside) show(c daemon.Change) {
	o.bus.PublishHost(c.Notices, c.Awaited)
	if len(c.Links)+len(c.Gone) > 0 {
		o.bus.PublishLinks(c.Links, c.Gone)
		counted.ObserveLinks(c.Links, c.Gone)
	}
	if c.PortsChanged {
		o.bus.PublishPorts(c.Ports)
		counted.ObservePorts(time.Now(), c.Ports)
	}
	if c.Reloaded {
		o.bus.PublishProblems(c.Problems)
		counted.Reloaded(len(c.Problems))
	}
}

// portInterval is how often ports whose subnet manager is looked after are read
// again: another subnet manager that takes a port over makes no event.
const portInterval = 10 * time.Second

// watchPorts wakes nothing while no unit asks for a subnet manager.
func (o *outside) watchPorts(ctx context.Context) error {
	t := time.NewTicker(portInterval)
	defer t.Stop()
	t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case managed := <-control.managed:
			if managed {
				t.Reset(portInterval)
			} else {
				t.Stop()
			}
		case <-t.C:
			o.daemon.Wake(daemon.Scope{RDMA: true})
		}
	}
}

// metricsRetry is the pause after metrics could not be served.
const metricsRetry = time.Minute

// metrics serves and writes metrics. Links matter more: whatever fails here is
// told and tried again.
func (o *outside) metrics(ctx context.Context) error {
	text := func() []byte { return counted.Text(time.Now()) }
	var parts sync.WaitGroup
	if metricsFile != "" {
		parts.Go(func() {
			if err := metrics.Textfile(ctx, metricsFile, textEach, text, func(err error) { o.log.Warn("metrics", "error", err) }); err != nil {
				o.log.Warn("metrics", "error", err)
			}
		})
	}
	for _, at := range metricsPlaces(metricsAt, o.stateDir) {
		parts.Go(func() { o.serveMetrics(ctx, at, text) })
	}
	parts.Wait()
	return nil
}

// metricsPlaces is where metrics are served: on a unix socket of the daemon's
// own, and where --metrics= says.
func metricsPlaces(option, stateDir string) []string {
	own := "unix:" + filepath.Join(stateDir, metrics.Socket)
	switch option {
	case "no":
		return nil
	case "", own:
		return []string{own}
	}
	return []string{own, option}
}

func (o *outside) serveMetrics(ctx context.Context, at string, text func() []byte) {
	for said := false; ; said = true {
		l, err := metrics.Listen(at)
		if err == nil {
			err = metrics.Serve(ctx, l, text)
		}
		if ctx.Err() != nil {
			return
		}
		if !said {
			o.log.Error("metrics are not served; will retry each minute", "at", at, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(metricsRetry):
		}
	}
}

// Reload implements bus.Backend. The problems of the files are published when it
// returns, so that the caller reads those of this reload.
func (o *outside) Reload(ctx context.Context) error {
	control.reread()
	err := o.daemon.Reload(ctx)
	o.edits.Units()
	o.bus.PublishProblems(o.daemon.Report().Problems)
	return err
}

// reread has the files that [SubnetManager] names read again, with the units.
func (l *lateController) reread() {
	if l.c != nil {
		l.c.Reread()
	}
}

// Reconfigure implements bus.Backend.
func (o *outside) Reconfigure(ctx context.Context, name string) error {
	return o.daemon.Reconfigure(ctx, name)
}

// SetAdmin implements bus.Backend.
func (o *outside) SetAdmin(ctx context.Context, name string, up bool) error {
	return o.daemon.SetAdmin(ctx, name, up)
}

// Plan implements bus.Backend.
func (o *outside) Plan(ctx context.Context) (link.Plan, error) {
	r, err := o.daemon.Plan(ctx)
	return r.Plan, err
}

// StartSubnetManager implements bus.Backend.
func (o *outside) StartSubnetManager(ctx context.Context, dev string, port int) error {
	return o.sm.Start(ctx, dev, port)
}

// StopSubnetManager implements bus.Backend.
func (o *outside) StopSubnetManager(ctx context.Context, dev string, port int) error {
	return o.sm.Stop(ctx, dev, port)
}

var levels = []struct {
	name  string
	level slog.Level
}{{"debug", slog.LevelDebug}, {"info", slog.LevelInfo}, {"warn", slog.LevelWarn}, {"error", slog.LevelError}}

// LogLevel implements bus.Backend.
func (o *outside) LogLevel() string {
	for _, l := range levels {
		if o.level.Level() <= l.level {
			return l.name
		}
	}
	return "error"
}

// SetLogLevel implements bus.Backend.
func (o *outside) SetLogLevel(name string) error {
	for _, l := range levels {
		if l.name == name {
			o.level.Set(l.level)
			o.log.Info("log level", "level", name)
			return nil
		}
	}
	return fmt.Errorf("%q is not one of debug, info, warn, error", name)
}

// countingSystem counts the operations.
type countingSystem struct{ daemon.System }

// Apply implements daemon.System.
func (s countingSystem) Apply(ctx context.Context, steps []link.Step, done func(op link.Op, err error)) {
	s.System.Apply(ctx, steps, func(op link.Op, err error) {
		counted.Op(op, err)
		done(op, err)
	})
}

// lateController hands the ports of each turn to the controller, which comes
// after the loop's configuration.
type lateController struct {
	c    *worker.Controller
	last []worker.Port
	// managed tells of each change whether a unit asks for a subnet manager;
	// modules of each newest list of modules that units ask for.
	managed chan bool
	modules chan []wantedModule
	any     bool
	loaded  *units.Set
	wake    func() // for another picture
}

func (l *lateController) set(c *worker.Controller, wake func()) { l.c, l.wake = c, wake }

// newest puts v into a channel of one place, in place of what is there.
func newest[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}

// portIsSM is the bit of the capability mask that says that a subnet manager
// runs on the port (IBTA 14.2.5.6, PortInfo:CapabilityMask bit 1).
const portIsSM = 1 << 1

// turn is called from the daemon's loop.
func (l *lateController) turn(v daemon.View) {
	s, set := v.Snapshot, v.Units
	if l.c == nil || s == nil {
		return
	}
	var ports []worker.Port
	managed := false
	for i := range s.Devices {
		d := &s.Devices[i]
		for j := range d.Ports {
			p := &d.Ports[j]
			if p.GUID.IsZero() || p.Layer != ib.LinkLayerInfiniBand && len(l.last) == 0 {
				continue
			}
			w := worker.Port{Port: smctl.Port{GUID: p.GUID, IBDev: d.Name, Num: p.Num, Present: true, LinkLayer: p.Layer, State: p.State, Phys: p.Phys,
				LID: p.LID, SMLID: p.SMLID, IsSM: p.CapMask&portIsSM != 0,
				Barred: smctl.BarOfPort(p.CapMask, d.Protocol)}}
			if p.Layer == ib.LinkLayerInfiniBand {
				w.Policy = smctl.PolicyOf(v.Governing.Ports[link.PortName{IBDevice: d.Name, Port: p.Num}].Last())
			}
			managed = managed || w.Policy.Manage != smctl.ManageNo
			ports = append(ports, w)
		}
	}
	same := l.loaded != nil && slices.Equal(ports, l.last)
	l.last = ports
	if set != nil && set != l.loaded {
		l.loaded = set
		if known.units(set) {
			l.wake()
		}
		newest(l.modules, modulesOf(set))
	}
	if managed != l.any {
		l.any = managed
		newest(l.managed, managed)
	}
	if !same {
		l.c.Update(ports)
	}
}
