package app

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/daemon/card"
	"ibnetworkd/ib"
	"ibnetworkd/internal/busconn"
	"ibnetworkd/internal/busconn/bustest"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// system is a machine with one InfiniBand port and its link, in memory.
type system struct {
	mu   sync.Mutex
	m    *link.Model
	ops  []string
	wake func(daemon.Scope)
}

func newSystem() *system {
	hw := ib.MustParseHWAddr("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:00:01")
	s := &system{m: link.NewModel(&link.Snapshot{Schema: 1,
		Devices: []link.Device{{Name: "mlx5_0", NodeGUID: 1, Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortActive,
			Phys: ib.PhysLinkUp, GUID: hw.GUID(), LID: 3, SMLID: 1, PKeys: []ib.PKey{0xffff}}}}},
		Links: []link.Link{{Index: 10, Name: "ib0", Type: link.ARPHRDInfiniBand, Kind: "ipoib", Flags: link.FlagMulti, MTU: 4092, HWAddr: hw,
			IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1, Sysctl: map[string]string{}}}})}
	s.truth()
	return s
}

func (s *system) truth() {
	s.m.Truth = &link.Truth{AdapterMTU: 4092, ConnectedMTU: 65520, GroupMTU: map[ib.PKey]int{0x7fff: 2044}, Asked: map[int]int{}}
}

func (s *system) Observe(daemon.Scope, daemon.Needs) (*link.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m.Settle()
	c := *s.m.Snapshot()
	s.m = link.NewModel(&c)
	s.truth()
	return &c, nil
}

func (s *system) Apply(_ context.Context, steps []link.Step, done func(link.Op, error)) {
	for _, st := range steps {
		s.mu.Lock()
		err := s.m.Apply(st.Op)
		s.ops = append(s.ops, st.Op.String())
		s.mu.Unlock()
		done(st.Op, err)
	}
}

func (*system) Finished() []card.Result { return nil }

func (*system) Cancel(func(link.Op) bool) []link.Op { return nil }

// taken are the operations since the last call.
func (s *system) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := s.ops
	s.ops = nil
	return strings.Join(ops, "\n")
}

// quiet are no events.
type quiet struct{ err error }

func (quiet) Take() daemon.Scope { return daemon.Scope{} }
func (quiet) Ready()             {}
func (q quiet) Open() error      { return q.err }

func (q quiet) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
func (quiet) Close() error { return nil }

// process is an App that runs on a machine in memory.
type process struct {
	*App
	sys    *system
	unit   string // path of the only unit file
	log    *testkit.Buffer
	hangup chan os.Signal
	stop   func() error
}

const address1 = "[Match]\nName=ib0\n[Network]\nAddress=10.0.0.1/24\n"

// start runs an App with one unit.
func start(t *testing.T, busAddress string, alter func(*App, *quiet)) *process {
	t.Helper()
	p := &process{sys: newSystem(), log: new(testkit.Buffer), hangup: make(chan os.Signal, 1)}
	root := t.TempDir()
	p.unit = filepath.Join(root, "etc/systemd/network/10-ib0.ibnetwork")
	testkit.NoError(t, os.MkdirAll(filepath.Dir(p.unit), 0o755))
	p.edit(t, address1)
	level := new(slog.LevelVar)
	p.App = &App{o: Options{UnitRoot: root, StateDir: filepath.Join(root, "run")}, level: level,
		log: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: level}))}
	testkit.NoError(t, p.openStore())
	var ev quiet
	if alter != nil {
		alter(p.App, &ev)
	}
	err := p.build(host{root: root, bus: busAddress, open: func(wake func(daemon.Scope), load modules.Loader) (daemon.System, events, error) {
		if load.Ask == nil {
			t.Error("modules are not loaded by systemd")
		}
		p.sys.wake = wake
		return p.sys, ev, nil
	}})
	testkit.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, p.hangup) }()
	p.stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		p.Close()
		return err
	})
	t.Cleanup(func() { _ = p.stop() })
	return p
}

func (p *process) edit(t *testing.T, text string) {
	t.Helper()
	tmp := p.unit + "~"
	testkit.WriteFile(t, tmp, text)
	testkit.NoError(t, os.Rename(tmp, p.unit))
}

// eventually waits for something that follows an event.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not seen: %s", what)
		}
	}
}

// When READY=1 is sent the link is configured, the bus has it, and so do the metrics
// and the environment files; then edits, SIGHUP and calls are answered, and at the end
// the configuration stays.
func TestProcess(t *testing.T) {
	b := bustest.Start(t)
	m := testkit.NewServiceManager(t)
	t.Setenv("WATCHDOG_USEC", "200000")
	var textfile string
	p := start(t, b.Addr, func(a *App, _ *quiet) {
		textfile = filepath.Join(a.o.UnitRoot, "ib.prom")
		a.o.MetricsTextfile = textfile
	})
	m.Wait("READY=1")
	if ops := p.sys.taken(); !strings.Contains(ops, "ip address add 10.0.0.1/24") {
		t.Errorf("ready after %q", ops)
	}
	conn, err := busconn.Join(t.Context(), busconn.Config{Address: b.Addr})
	testkit.NoError(t, err)
	defer conn.Close()
	describe := func() (d api.Description) {
		var text string
		testkit.NoError(t, conn.Object(api.BusName, api.Root).Call(api.Manager+".Describe", 0).Store(&text))
		testkit.NoError(t, json.Unmarshal([]byte(text), &d))
		return d
	}
	if d := describe(); len(d.Links) != 1 || d.Links[0].State != link.StateConfigured || len(d.Ports) != 1 || len(d.SubnetManagers) != 1 {
		t.Errorf("on the bus: %+v", d)
	}
	c := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(p.o.StateDir, "metrics.sock"))
	}}}
	defer c.CloseIdleConnections()
	var scraped string
	eventually(t, "metrics", func() bool {
		r, err := c.Get("http://x/metrics")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		scraped = string(text)
		return err == nil
	})
	if !strings.Contains(scraped, `link="ib0"`) || !strings.Contains(scraped, "operations_total") {
		t.Errorf("metrics:\n%s", scraped)
	}
	env := filepath.Join(p.o.StateDir, "links/ib0.env")
	for _, name := range []string{env, textfile} {
		eventually(t, name, func() bool { _, err := os.Stat(name); return err == nil })
	}
	m.Wait("WATCHDOG=1")

	p.edit(t, strings.Replace(address1, "10.0.0.1", "10.0.0.2", 1))
	eventually(t, "the edit", func() bool { return strings.Contains(p.sys.taken(), "ip address add 10.0.0.2/24") })
	p.edit(t, address1+"Nonsense=1\n")
	p.hangup <- syscall.SIGHUP
	m.Wait("RELOADING=1\nMONOTONIC_USEC=")
	m.Wait("READY=1")
	call := backend{p.App}
	if err := call.Reload(t.Context()); err != nil {
		t.Error(err)
	}
	if d := describe(); len(d.Problems) != 1 || !strings.Contains(d.Problems[0], "Nonsense") {
		t.Errorf("problems %q", d.Problems)
	}
	p.sys.taken()
	for _, up := range []bool{false, true} {
		if err := call.SetAdmin(t.Context(), "ib0", up); err != nil {
			t.Error(err)
		}
	}
	if ops := p.sys.taken(); !strings.Contains(ops, "ip link set ib0 down") || !strings.Contains(ops, "ip link set ib0 up") {
		t.Errorf("down and up are %q", ops)
	}
	if err := call.Reconfigure(t.Context(), "ib9"); err == nil {
		t.Error("a link that does not exist is reconfigured")
	}
	if plan, err := call.Plan(t.Context()); err != nil || !plan.Empty() {
		t.Errorf("plan %v, %v", plan, err)
	}
	for name, f := range map[string]func(context.Context, string, int) error{
		"start": call.StartSubnetManager, "stop": call.StopSubnetManager,
	} {
		if err := f(t.Context(), "mlx5_9", 1); err == nil {
			t.Errorf("%s a subnet manager on a port that does not exist", name)
		}
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	m.Wait("STOPPING=1")
	if strings.Contains(p.sys.taken(), "address del") || !strings.Contains(p.log.String(), "the configuration stays") {
		t.Error("the end is an end of the configuration")
	}
	if _, err := os.Stat(textfile); err == nil {
		t.Error("stale metrics stay")
	}
}

// Without a bus the process is ready all the same, and files that wait for a reload are
// a notice.
func TestWithoutBusAndWatch(t *testing.T) {
	m := testkit.NewServiceManager(t)
	p := start(t, "unix:path=/nonexistent/bus", func(a *App, _ *quiet) {
		conf := filepath.Join(a.o.UnitRoot, "etc/ibnetworkd/ibnetworkd.conf")
		testkit.WriteFile(t, conf, "[Daemon]\nWatchUnitFiles=no\nNonsense=1\n")
		a.o.Metrics = "no"
	})
	m.Wait("READY=1")
	p.sys.taken()
	notice := func(code link.Code) func() bool {
		return func() bool {
			return slices.ContainsFunc(p.daemon.Report().Notices, func(n link.Notice) bool { return n.Code == code })
		}
	}
	eventually(t, "the mistake in ibnetworkd.conf", notice(link.CodeConf))
	p.edit(t, strings.Replace(address1, "10.0.0.1", "10.0.0.2", 1))
	eventually(t, "that an edit waits", notice(link.CodeEdits))
	p.daemon.Wake(renamed(p.daemon.Snapshot())) // a load that was not requested
	testkit.NoError(t, p.daemon.Alive(t.Context()))
	if ops := p.sys.taken(); strings.Contains(ops, "10.0.0.2") {
		t.Errorf("an edit was applied without a reload: %s", ops)
	}
	callSocket(t, p.o.StateDir, `{"interface":"org.ibnetwork1.Manager","method":"Reload"}`, "{}")
	if ops := p.sys.taken(); !strings.Contains(ops, "ip address add 10.0.0.2/24") {
		t.Errorf("a reload on the socket: %s", ops)
	}
	callSocket(t, p.o.StateDir, `{"interface":"org.ibnetwork1.Manager","method":"Renew","arguments":["ib7"]}`,
		`{"error":"org.ibnetwork1.NoSuchLink","text":"there is no link \"ib7\""}`)
	p.edit(t, strings.Replace(address1, "10.0.0.1", "10.0.0.3", 1))
	p.hangup <- syscall.SIGHUP
	eventually(t, "the reload", func() bool { return strings.Contains(p.sys.taken(), "ip address add 10.0.0.3/24") })
	eventually(t, "that no edit waits", func() bool { return !notice(link.CodeEdits)() })
	if _, err := os.Stat(filepath.Join(p.o.StateDir, "metrics.sock")); err == nil {
		t.Error("metrics are served")
	}
}

// callSocket makes one call without a bus.
func callSocket(t *testing.T, stateDir, call, want string) {
	t.Helper()
	var c net.Conn
	eventually(t, "the socket", func() (made bool) {
		var err error
		c, err = net.Dial("unix", filepath.Join(stateDir, api.ControlSocket))
		return err == nil
	})
	defer c.Close()
	if _, err := io.WriteString(c, call+"\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != want+"\n" {
		t.Errorf("%s: %s, %v", call, b, err)
	}
}

func TestEventsFail(t *testing.T) {
	broken := errors.New("broken")
	p := start(t, "unix:path=/nonexistent/bus", func(_ *App, e *quiet) { e.err = broken })
	if err := p.stop(); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// What the command line says is checked before anything is opened, and one state
// directory has one daemon.
func TestNew(t *testing.T) {
	if _, err := New(Options{LogLevel: "loud"}); err == nil || !strings.Contains(err.Error(), "--log-level=loud") {
		t.Errorf("got %v", err)
	}
	o := Options{LogLevel: "info", UnitRoot: t.TempDir(), StateDir: t.TempDir()}
	a, err := New(o)
	testkit.NoError(t, err)
	if _, err := New(o); !errors.Is(err, daemon.ErrRunning) {
		t.Errorf("a second daemon: %v", err)
	}
	names := map[string]bool{}
	page := string(testkit.ReadFile(t, "../../docs/architecture.md"))
	_, table, _ := strings.Cut(page, "| task | when it fails |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	drawn := 0
	for row := range strings.Lines(table) {
		drawn += len(strings.Split(strings.Split(row, "|")[1], ","))
	}
	for _, task := range a.tasks(nil) {
		if names[task.Name] || task.Run == nil {
			t.Errorf("task %q", task.Name)
		}
		names[task.Name] = true
		if !regexp.MustCompile(`(?m)^\|([^|]*,)? ` + task.Name + `[ ,:]`).MatchString(table) {
			t.Errorf("docs/architecture.md lacks the task %q", task.Name)
		}
	}
	if drawn != len(names) {
		t.Errorf("docs/architecture.md has %d tasks, there are %d", drawn, len(names))
	}
	packages, err := os.ReadDir("..")
	testkit.NoError(t, err)
	for _, p := range packages {
		if p.IsDir() && !strings.Contains(page, "`daemon/"+p.Name()+"`") {
			t.Errorf("docs/architecture.md lacks the package daemon/%s", p.Name())
		}
	}
	a.Close()
	if a, err = New(o); err != nil {
		t.Fatalf("after the end of the first: %v", err)
	}
	a.Close()
	o.StateDir = filepath.Join("/dev/null", "x")
	if a, err = New(o); err != nil {
		t.Fatalf("no state can be kept: %v", err)
	}
	a.Close()
}
