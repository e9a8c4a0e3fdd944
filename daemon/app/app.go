// Package app is the process of ibnetworkd: New builds its parts and gives each what
// it needs of the others, tasks lists what runs.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/arpprobe"
	"ibnetworkd/daemon/bus"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/daemon/cardwatch"
	"ibnetworkd/daemon/conf"
	"ibnetworkd/daemon/control"
	"ibnetworkd/daemon/dhcpclient"
	"ibnetworkd/daemon/envfile"
	"ibnetworkd/daemon/leasename"
	"ibnetworkd/daemon/metrics"
	"ibnetworkd/daemon/modload"
	"ibnetworkd/daemon/remote"
	"ibnetworkd/daemon/resolvconf"
	"ibnetworkd/daemon/smfeed"
	"ibnetworkd/daemon/timeservers"
	"ibnetworkd/ib"
	"ibnetworkd/internal/filewatch"
	"ibnetworkd/internal/journal"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/kernel/udevdb"
	"ibnetworkd/internal/tasks"
	"ibnetworkd/internal/version"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/smctl/files"
	"ibnetworkd/smctl/probe"
	"ibnetworkd/smctl/worker"
)

// Options are those of the command line.
type Options struct {
	LogLevel string // debug, info, warn or error
	UnitRoot string // directory that stands for / when unit files and ibnetworkd.conf are read
	StateDir string // of the record, the state file and the environment files
	// RecvBuffer is the receive buffer of the event sockets in bytes, 0 for a large one.
	RecvBuffer int
	// NoWatch reads unit files at the start and on reload only.
	NoWatch bool
	// Metrics is where metrics are served as well: unix:PATH, ADDRESS:PORT, or "no" for
	// nowhere, also not on the socket in StateDir.
	Metrics string
	// MetricsTextfile is the file for node_exporter, "" for none.
	MetricsTextfile string
}

// host is the machine as the parts reach it.
type host struct {
	root string // directory that stands for / in sysfs, procfs and udev's database
	bus  string // address of the bus, "" for the system bus
	// open gives the system and its events, which call wake, and load modules by load.
	open func(wake func(daemon.Scope), load modules.Loader) (daemon.System, events, error)
}

// events are what happens to the system; *daemon.Watch is one.
type events interface {
	daemon.Events
	Open() error
	Run(context.Context) error
	Close() error
}

// App is the process.
type App struct {
	o        Options
	settings conf.Settings
	host     host
	events   events
	log      *slog.Logger
	level    *slog.LevelVar
	notify   func(state string) // to the service manager
	close    []func()

	store     *daemon.Store
	units     *unitSource
	edits     *daemon.Edits // that wait for a reload; nil if files are applied when they change
	daemon    *daemon.Daemon
	bus       *bus.Server
	control   *control.Server
	refresh   *refresher
	metrics   *metrics.Collector
	systemd   *worker.Systemd
	sm        *worker.Controller
	smFiles   *filewatch.Files
	managers  *smfeed.Managers
	feed      *smfeed.Feed
	env       *envfile.Files
	resolv    *resolvconf.File
	timesyncd *timeservers.Timesyncd
	chrony    *timeservers.Chrony
	name      *leasename.Setter
	modules   *modload.Loader
	dhcp      *dhcpclient.Clients
	probes    *arpprobe.Probers
	remote    *remote.Ports

	published chan struct{} // closed when the first report is on the bus
	started   chan struct{} // closed when READY=1 of the start is sent
}

// New builds the parts for this machine. Close frees what they use.
func New(o Options) (*App, error) {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(o.LogLevel)); err != nil {
		return nil, fmt.Errorf("--log-level=%s: write debug, info, warn or error", o.LogLevel)
	}
	a := &App{o: o, level: level, log: slog.New(journal.Handler(os.Stderr, level))}
	// The directory is locked before anything else: a second daemon ends here.
	if err := a.openStore(); err != nil {
		return nil, err
	}
	if err := a.build(host{root: "/", open: a.openKernel}); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func (a *App) openKernel(wake func(daemon.Scope), load modules.Loader) (daemon.System, events, error) {
	observer, err := daemon.NewObserver(daemon.ObserverConfig{Root: "/", Wake: wake, Modules: load, Helper: cardHelper})
	if err != nil {
		return nil, nil, err
	}
	a.close = append(a.close, func() { _ = observer.Close() })
	return &daemon.Kernel{Observer: observer}, &daemon.Watch{Log: a.log, RecvBuffer: a.o.RecvBuffer, Udev: udevdb.New("/").Running(),
		Wake: wake, More: append(cardwatch.Sources(), observer.Adverts())}, nil
}

// CardHelper is the argument with which the program is the helper process of a card.
const CardHelper = "card-helper"

// PacketSockets is the argument with which the program opens the packet sockets of DHCP
// clients for the daemon (ibnetworkd-packet.service).
const PacketSockets = "packet-sockets"

// cardHelper is this program as it runs: the file may have been replaced since. It has
// a process group of its own, so that what ends the daemon's does not reach it.
func cardHelper() *exec.Cmd {
	c := exec.Command("/proc/self/exe", CardHelper)
	c.Args[0], c.Env, c.Dir, c.Stderr = os.Args[0], []string{"GOMAXPROCS=1"}, "/", os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func (a *App) openStore() error {
	store, err := daemon.NewStore(a.o.StateDir)
	switch {
	case errors.Is(err, daemon.ErrRunning):
		return err
	case err != nil:
		// Links come first: they are configured all the same.
		a.log.Error("no state is kept", "error", err, "effect", "what is made from now on is not removed after a restart")
	}
	a.store = store
	a.close = append(a.close, func() {
		_ = store.RemoveReport()
		_ = store.Close()
	})
	return nil
}

// Close frees what New has opened. The configuration stays in place.
func (a *App) Close() {
	for i := len(a.close) - 1; i >= 0; i-- {
		a.close[i]()
	}
}

// build makes the parts. Nothing of it runs before Run, so that a part may be given a
// function of one that is built after it.
func (a *App) build(h host) error {
	a.host, a.published, a.started = h, make(chan struct{}), make(chan struct{})
	notify, done := notifier()
	a.notify, a.close = notify, append(a.close, done)
	a.settings = conf.Read(a.o.UnitRoot)
	a.units = newUnitSource(a.o.UnitRoot, a.settings.WatchUnitFiles && !a.o.NoWatch, filepath.Join(a.o.StateDir, daemon.UnitCopies), a.log)
	a.metrics = metrics.New(version.String(), time.Now(), sysfs.New(h.root).PortCounters)
	a.managers = &smfeed.Managers{}
	inbox := daemon.NewInbox()
	rereadLinks := func(links map[int]bool) { inbox.Wake(daemon.Scope{Links: links}) }
	a.systemd = worker.NewSystemd(h.bus, a.log)
	a.modules = modload.New(modload.Config{Log: a.log, Systemd: a.systemd, Present: modules.Present(h.root),
		Notice: func(n ...link.Notice) { inbox.Notice("modules", n...) }})
	system, events, err := h.open(inbox.Wake, a.modules.Modules())
	if err != nil {
		return err
	}
	a.events = events
	sockets := packet.Opener(filepath.Join(a.o.StateDir, "packet.sock"))
	a.dhcp = dhcpclient.New(a.log, filepath.Join(a.o.StateDir, dhcpclient.Dir), sockets, rereadLinks)
	a.probes = arpprobe.New(a.log, sockets, rereadLinks)
	a.timesyncd = timeservers.NewTimesyncd(a.log, h.bus, filepath.Join(a.o.StateDir, "time-servers"), rereadLinks)
	a.chrony = timeservers.NewChrony(a.log, a.o.StateDir, rereadLinks)
	a.name = leasename.New(a.log, h.bus, filepath.Join(a.o.StateDir, "lease-hostname"), rereadLinks)
	a.remote = remote.New(a.log, askRemote, func() { inbox.Wake(daemon.Scope{RDMA: true}) })
	watchdog, _ := sd.SdWatchdogEnabled(false)
	a.daemon = daemon.New(daemon.Config{
		Log: a.log, Store: a.store, Inbox: inbox, Events: events,
		System:     a.system(system),
		Load:       a.units.load,
		Invalidate: a.units.request,
		Notify:     a.notify,
		Watchdog:   watchdog,
		OnWork:     giveBack(debug.FreeOSMemory),
		OnChange:   []func(daemon.View){a.observed},
	})
	if !a.units.watched {
		a.edits = daemon.NewEdits(a.units.dirs, func(n ...link.Notice) { inbox.Notice("edits", n...) })
	}
	a.refresh = &refresher{refresh: a.daemon.Refresh}
	a.bus = bus.New(bus.Config{Backend: backend{a}, Log: a.log, Version: version.String(), Address: h.bus, Refresh: a.refresh.run,
		LogTarget: journal.Target(os.Stderr)})
	a.control = control.New(a.log, filepath.Join(a.o.StateDir, api.ControlSocket), a.bus.Control)
	a.buildSubnetManagers()
	a.env = envfile.New(a.log, filepath.Join(a.o.StateDir, "links"), rereadLinks)
	a.resolv = resolvconf.New(a.log, filepath.Join(a.o.StateDir, filepath.Base(link.ResolvConfFile)))
	return nil
}

func (a *App) buildSubnetManagers() {
	rereadPorts := func() { a.daemon.Wake(daemon.Scope{RDMA: true}) }
	check := files.New("/")
	a.smFiles = filewatch.NewFiles(a.log, func() {
		if a.edits == nil {
			a.sm.Reread()
		} else {
			a.sm.Compare() // they wait for a reload, as the units do
		}
	})
	a.sm = worker.New(worker.Config{
		Log: a.log, Manager: a.systemd, Prober: worker.Umad{}, StateStore: worker.Dir(filepath.Join(a.o.StateDir, "sm")),
		Check: func(p smctl.Policy) smctl.Files { _, f := check.Check(p); return f },
		Inspect: func(dev string, port int) (smctl.Bar, bool, error) {
			return probe.Inspect(sysfs.New(a.host.root), dev, port)
		},
		Watch:   a.smFiles.Watch,
		Waiting: a.edits.Files,
		OnUnit:  rereadPorts,
		Publish: func(s []smctl.Status) {
			a.bus.PublishSM(s)
			a.metrics.ObserveSM(s)
			if a.managers.SetStates(s) {
				rereadPorts()
			}
		},
	})
	a.feed = smfeed.New(a.sm.Update, rereadPorts)
}

// askRemote queries through the kernel's umad device, opened for each question: one that
// stays open would keep a removed adapter's driver.
func askRemote(ctx context.Context, ibdev string, port int) (link.Remote, error) {
	d, err := probe.Open(ctx, ibdev, port)
	if err != nil {
		return link.Remote{}, err
	}
	defer d.Close()
	r, err := probe.Remote(ctx, d, uint8(port))
	return link.Remote{Node: r.Node, Switch: r.Type == ib.NodeSwitch, Name: ib.Printable(r.Name), Port: int(r.Port)}, err
}

// system adds to what a system observes what the parts know of its links and ports.
func (a *App) system(s daemon.System) daemon.System {
	parts := []func(*link.Snapshot){a.dhcp.Complete, a.probes.Complete, a.remote.Complete, a.managers.Complete,
		a.timesyncd.Complete, a.chrony.Complete, a.name.Complete}
	return countingSystem{daemon.Completed{System: s, Complete: parts}, a.metrics}
}

// observed hands what the loop has observed to the parts that go by it.
func (a *App) observed(v daemon.View) {
	if a.managers.SetUnits(v.Units) {
		a.daemon.Wake(daemon.Scope{RDMA: true})
	}
	a.feed.Update(v)
	a.env.Update(v)
	a.resolv.Update(v)
	a.timesyncd.Update(v)
	a.chrony.Update(v)
	a.name.Update(v)
	a.dhcp.Update(v)
	a.probes.Update(v)
	a.remote.Update(v)
	a.modules.Update(v.Units)
}

// Run runs the parts until ctx ends or one of them fails. A value from hangup reloads
// the units.
func (a *App) Run(ctx context.Context, hangup <-chan os.Signal) error {
	if err := a.events.Open(); err != nil {
		return err
	}
	defer func() { _ = a.events.Close() }()
	a.noticeSettings()
	if err := a.units.open(a.log, a.unitFilesChanged); err != nil {
		a.log.Warn("the unit directories are not watched: changes need a reload", "error", err)
	}
	a.log.Info("ibnetworkd starts", "version", version.String())
	err := tasks.Run(ctx, a.tasks(hangup), func() {
		a.notify(sd.SdNotifyReady)
		close(a.started)
	})
	a.log.Info("ibnetworkd ends; the configuration stays in place")
	return err
}

// tasks are all that runs beside each other. An error ends the process: each retries inside
// itself what may pass.
func (a *App) tasks(hangup <-chan os.Signal) []tasks.Task {
	return []tasks.Task{
		{Name: "events of the kernel", Run: a.events.Run},
		{Name: "unit directories", Run: a.units.watch},
		{Name: "loop", Run: a.daemon.Run, Ready: a.daemon.Ready()},
		{Name: "D-Bus", Run: a.bus.Run, Ready: a.bus.Ready(), Within: busWait},
		{Name: "calls without a bus", Run: a.control.Run},
		{Name: "publish", Run: a.publish, Ready: a.published},
		{Name: "reload on SIGHUP", Run: func(ctx context.Context) error { return a.onHangup(ctx, hangup) }},
		{Name: "systemd", Run: a.systemd.Run},
		{Name: "subnet manager control", Run: a.sm.Run},
		{Name: "files of subnet managers", Run: a.smFiles.Run},
		{Name: "port feed", Run: a.feed.Run},
		{Name: "environment files", Run: a.env.Run},
		{Name: "name servers", Run: a.resolv.Run},
		{Name: "time servers", Run: a.timesyncd.Run},
		{Name: "chrony", Run: a.chrony.Run},
		{Name: "name of the lease", Run: a.name.Run},
		{Name: "DHCP clients", Run: a.dhcp.Run},
		{Name: "ARP probes", Run: a.probes.Run},
		{Name: "other ends of cables", Run: a.remote.Run},
		{Name: "modules", Run: a.modules.Run},
		{Name: "metrics", Run: a.serveMetrics},
		{Name: "host name", Run: a.watchHostname},
		{Name: "other network managers", Run: a.watchOthers},
	}
}

// busWait bounds how long READY=1 waits for the bus: at boot its socket may listen long
// before it answers, and links must not depend on it.
const busWait = 5 * time.Second

func (a *App) noticeSettings() {
	var wrong []link.Notice
	for _, p := range a.settings.Problems {
		wrong = append(wrong, link.Notice{Reason: link.Reason{Code: link.CodeConf, Text: p,
			Next: "see ibnetworkd.conf(5); systemctl restart ibnetworkd"}})
	}
	a.daemon.Notice("settings", wrong...)
}
