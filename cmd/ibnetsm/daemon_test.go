package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/lab/simfabric/server"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/serve"
	"ibnetworkd/sm/transport"
	"ibnetworkd/smctl"
)

// process is an ibnetsm that manages a simulated subnet.
type process struct {
	t      *testing.T
	system *testkit.ServiceManager
	config string // path of the file of options
	socket string
	hangup chan os.Signal
	stop   context.CancelFunc
	ended  chan error
}

// settings of a process that has no others.
const settingsAtStart = "transport = ibsim\npriority = 3\n"

func startProcess(t *testing.T) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "sm") // not t.TempDir: the name of a socket is at most 107 bytes long
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sim := simfabric.New(gen.Star(3, 8), simfabric.Options{})
	t.Cleanup(sim.Close)
	base := "ibnetsm-test-" + strconv.Itoa(os.Getpid())
	srv, err := server.Listen(sim, base, slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	t.Cleanup(srv.Close)
	for name, value := range map[string]string{"IBSIM_SOCKNAME": base, "SIM_HOST": "H-00001", "WATCHDOG_USEC": "90000", "WATCHDOG_PID": "",
		"GOMAXPROCS": "2"} { // the last: the number of threads is that of the test
		t.Setenv(name, value)
	}
	p := &process{t: t, system: testkit.NewServiceManager(t), config: filepath.Join(dir, "conf"), socket: filepath.Join(dir, "run", "sm.sock"),
		hangup: make(chan os.Signal, 1), ended: make(chan error, 1)}
	testkit.WriteFile(t, p.config, settingsAtStart)
	o := optionsOf(t, "--config="+p.config, "--socket="+p.socket, "--log-file="+filepath.Join(dir, "log"))
	o.given = map[string][]string{"socket": {o.socket}, "log-file": {o.logFile}}
	d, err := newDaemon(&o)
	testkit.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	go func() { p.ended <- d.run(ctx, p.hangup) }()
	t.Cleanup(stop)
	return p
}

// change replaces the options, and has them read.
func (p *process) change(text string) {
	p.t.Helper()
	testkit.WriteFile(p.t, p.config, text)
	p.hangup <- syscall.SIGHUP
}

// status requests the state of the only subnet.
func (p *process) status() *engine.Snapshot {
	p.t.Helper()
	var b bytes.Buffer
	var xs []*engine.Snapshot
	testkit.NoError(p.t, control.Ask(p.t.Context(), p.socket, control.AskStatus, &b))
	if err := json.Unmarshal(b.Bytes(), &xs); err != nil || len(xs) != 1 {
		p.t.Fatalf("%d subnets, %v: %s", len(xs), err, &b)
	}
	return xs[0]
}

// until waits for a state.
func (p *process) until(is func(*engine.Snapshot) bool) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(p.status()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("the state stays %+v", p.status())
		}
	}
}

// end waits for the end of the process.
func (p *process) end() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.system.Wait("STOPPING=1")
		if _, serr := os.Lstat(p.socket); !errors.Is(serr, fs.ErrNotExist) {
			p.t.Errorf("the socket is still there: %v", serr)
		}
		return err
	case <-time.After(20 * time.Second):
		p.t.Fatal("the process does not end")
	}
	return nil
}

// A process reports that it is ready when its port is open and its socket answers, pings the
// watchdog, applies changed options, and ends with its context.
func TestProcess(t *testing.T) {
	p := startProcess(t)
	if before := p.system.Wait("READY=1"); !slices.ContainsFunc(before, func(s string) bool { return strings.HasPrefix(s, "STATUS=") }) {
		t.Errorf("ready after %q, without a state", before)
	}
	if x := p.status(); x.Priority != 3 {
		t.Errorf("ready with %+v", x)
	}
	p.until(func(x *engine.Snapshot) bool { return x.State == "Master" && x.Nodes == 4 })
	p.system.Wait("WATCHDOG=1")
	p.change("transport = ibsim\npriority = 7\n")
	p.until(func(x *engine.Snapshot) bool { return x.Priority == 7 })
	p.change("priority = many\n")
	p.system.Wait("STATUS=Master, 4 nodes, no other subnet manager; " + p.config + ":1:12: priority: ")
	p.stop()
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// A change that needs a restart ends the process of a service, with the name of the task.
func TestProcessRestarts(t *testing.T) {
	p := startProcess(t)
	p.system.Wait("READY=1")
	p.change(settingsAtStart + "lmc = 2\n")
	if err := p.end(); !errors.Is(err, errRestart) || !strings.HasPrefix(err.Error(), "reload on SIGHUP: ") {
		t.Errorf("%v", err)
	}
}

// A process that gets no port ends with an error, and was never ready.
func TestRunFails(t *testing.T) {
	system := testkit.NewServiceManager(t)
	for name, value := range map[string]string{"IBSIM_SOCKNAME": "ibnetsm-test-none", "SIM_HOST": "", "GOMAXPROCS": "2", "GOGC": "100"} {
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	o := optionsOf(t, "--transport=ibsim", "--wait-port=1ns", "--log-file="+dir+"/log")
	if err := run(t.Context(), &o); err == nil || !strings.HasPrefix(err.Error(), "subnets: no port could be opened for 1ns: ") {
		t.Errorf("%v", err)
	}
	if before := system.Wait("STOPPING=1"); slices.Contains(before, "READY=1") {
		t.Errorf("reported %q", before)
	}
	for want, o := range map[string]options{
		"--priority 16: out of range":        optionsOf(t, "--priority=16"),
		dir + ": is a directory":             optionsOf(t, "--transport=ibsim", "--log-file="+dir),
		`routing engine "pigeon" is unknown`: {given: map[string][]string{"routing": {"pigeon"}}},
		`--transport "pigeon": not one of`:   optionsOf(t, "--transport=pigeon"),
	} {
		if err := run(t.Context(), &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

// The names of tasks are part of what an end says.
func TestTaskNames(t *testing.T) {
	o := optionsOf(t, "--transport=ibsim", "--log-file="+filepath.Join(t.TempDir(), "log"))
	d, err := newDaemon(&o)
	testkit.NoError(t, err)
	names := map[string]bool{}
	for _, task := range d.tasks(nil) {
		if names[task.Name] || task.Name == "" || task.Run == nil {
			t.Errorf("task %q", task.Name)
		}
		names[task.Name] = true
	}
}

// listener gives connections, or an error.
type listener struct {
	net.Listener
	conns chan net.Conn
	err   error
}

func (l *listener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, l.err
	}
	return c, nil
}

func (l *listener) Close() error { return nil }

// A status socket that cannot be made, or fails, is reported once and made again; the subnets go on.
func TestStatusSocketFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Buffer
		fails := []error{syscall.EROFS, syscall.EROFS, nil, nil}
		broken, works := &listener{conns: make(chan net.Conn), err: syscall.EMFILE}, &listener{conns: make(chan net.Conn), err: net.ErrClosed}
		close(broken.conns)
		m := &serve.Manager{Log: slog.New(slog.DiscardHandler)}
		var calls atomic.Int32
		s := &statusSocket{path: "x", log: textLog(&log), tried: make(chan struct{}), serve: m.Serve, listen: func(string) (net.Listener, error) {
			n := calls.Add(1) - 1
			return []*listener{nil, nil, broken, works}[n], fails[n]
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.run(ctx) }()
		<-s.tried
		if calls.Load() != 1 {
			t.Errorf("ready after %d attempts", calls.Load())
		}
		time.Sleep(3*socketRetry + time.Second)
		here, there := net.Pipe()
		works.conns <- there
		if _, err := here.Write([]byte("status\n")); err != nil {
			t.Error(err)
		}
		b := make([]byte, 10)
		if n, err := here.Read(b); err != nil || string(b[:n]) != "[]\n" {
			t.Errorf("answers %q, %v", b[:n], err)
		}
		want := "level=WARN msg=\"no status socket; will retry each minute\" err=\"read-only file system\"\n" +
			"level=WARN msg=\"no status socket; will retry each minute\" err=\"too many open files\"\n"
		if log.String() != want {
			t.Errorf("log:\n%s", &log)
		}
		cancel()
		close(works.conns)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		none := &statusSocket{tried: make(chan struct{})}
		if err := none.run(t.Context()); err != nil {
			t.Error(err)
		}
		<-none.tried
	})
}

// stuck is a transport whose Send waits while gate is set.
type stuck struct {
	transport.Transport
	gate *atomic.Pointer[chan struct{}]
}

func (s stuck) Send(p *transport.Packet) error {
	if g := s.gate.Load(); g != nil {
		<-*g
	}
	return s.Transport.Send(p)
}

type stuckHost struct {
	sim  *simfabric.Sim
	gate atomic.Pointer[chan struct{}]
}

const stuckPort = ib.GUID(gen.HostGUID + 1)

func (h *stuckHost) Ports() ([]serve.Port, error) {
	return []serve.Port{{Device: "a", Num: 1, GUID: stuckPort}}, nil
}

func (h *stuckHost) Open(p serve.Port) (transport.Transport, error) {
	t, err := h.sim.Open(p.GUID)
	return stuck{t, &h.gate}, err
}

// The watchdog is not pinged while a subnet's goroutine hangs, and is again afterwards.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := simfabric.New(gen.Pair(), simfabric.Options{})
		defer sim.Close()
		h := &stuckHost{sim: sim}
		m := &serve.Manager{Host: h, Number: 1, Log: slog.New(slog.DiscardHandler),
			Config: func(serve.Port) engine.Config { return engine.Config{} }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- m.Run(ctx) }()
		time.Sleep(5 * time.Second)
		if len(m.Subnets()) != 1 || !alive(m, time.Now()) {
			t.Fatalf("%d subnets do not answer", len(m.Subnets()))
		}
		gate := make(chan struct{})
		h.gate.Store(&gate)
		m.Resweep(true, "test")
		time.Sleep(time.Second)
		if alive(m, time.Now()) {
			t.Error("a subnet that hangs is alive")
		}
		h.gate.Store(nil)
		close(gate)
		time.Sleep(time.Second)
		if !alive(m, time.Now()) {
			t.Error("it does not answer again")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What was said of a port that is lost does not stay.
func TestLostPortIsNotMaster(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	s := newNotifier()
	a, b := serve.Port{Device: "mlx5_0", Num: 1, GUID: 1}, serve.Port{Device: "mlx5_1", Num: 1, GUID: 2}
	s.state(a, &engine.Snapshot{State: mad.SMMaster.String(), Nodes: 2})
	if !smctl.ParseStatusText(s.last).Known {
		t.Fatalf("said %q", s.last)
	}
	s.state(b, &engine.Snapshot{State: mad.SMStandby.String()})
	s.gone(a)
	if got := smctl.ParseStatusText(s.last); !got.Known || got.State != smctl.SMStandby {
		t.Errorf("with one port left: %q", s.last)
	}
	s.gone(b)
	if smctl.ParseStatusText(s.last).Known {
		t.Errorf("without a port: %q", s.last)
	}
}
