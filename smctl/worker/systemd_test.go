package worker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/internal/busconn/bustest"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/smctl"
)

// fakeSystemd is as much of org.freedesktop.systemd1 as a worker needs.
type fakeSystemd struct {
	mu    sync.Mutex
	conn  *dbus.Conn
	calls []string
	state string
	start func() // called by StartUnit, if set
}

const fakeUnitPath = "/org/freedesktop/systemd1/unit/ibnetsm_400x0000000000000001_2eservice"

func (f *fakeSystemd) note(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, a...))
}

func (f *fakeSystemd) Subscribe() *dbus.Error               { f.note("Subscribe"); return nil }
func (f *fakeSystemd) Unsubscribe() *dbus.Error             { f.note("Unsubscribe"); return nil }
func (f *fakeSystemd) ResetFailedUnit(n string) *dbus.Error { return nil }
func (f *fakeSystemd) job(name, state string) {
	f.mu.Lock()
	f.state = state
	f.mu.Unlock()
	_ = f.conn.Emit(systemdPath, managerIf+".JobRemoved", uint32(1), dbus.ObjectPath("/org/freedesktop/systemd1/job/1"), name, "done")
}
func (f *fakeSystemd) StartUnit(n, mode string) (dbus.ObjectPath, *dbus.Error) {
	f.note("StartUnit %s %s", n, mode)
	f.mu.Lock()
	start := f.start
	f.mu.Unlock()
	if start != nil {
		start()
	}
	if strings.Contains(n, "bad") {
		return "/", dbus.NewError(systemdName+".NoSuchUnit", []any{"Unit " + n + " not found."})
	}
	f.job(n, "active")
	return "/org/freedesktop/systemd1/job/1", nil
}
func (f *fakeSystemd) StopUnit(n, mode string) (dbus.ObjectPath, *dbus.Error) {
	f.note("StopUnit %s %s", n, mode)
	f.job(n, "inactive")
	return "/org/freedesktop/systemd1/job/1", nil
}
func (f *fakeSystemd) StartTransientUnit(n, mode string, props []property, _ []aux) (dbus.ObjectPath, *dbus.Error) {
	for _, p := range props {
		if p.Name == "ExecStart" {
			f.note("StartTransientUnit %s %v", n, p.Value.Value())
		}
	}
	f.job(n, "active")
	return "/org/freedesktop/systemd1/job/1", nil
}
func (f *fakeSystemd) GetUnit(n string) (dbus.ObjectPath, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == "" {
		return "/", dbus.NewError(systemdName+".NoSuchUnit", []any{"Unit " + n + " not loaded."})
	}
	return fakeUnitPath, nil
}
func (f *fakeSystemd) GetAll(iface string) (map[string]dbus.Variant, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if iface == serviceIf {
		return map[string]dbus.Variant{"Result": dbus.MakeVariant("exit-code"), "ExecMainStatus": dbus.MakeVariant(int32(3)),
			"ExecMainCode": dbus.MakeVariant(int32(1)), "StatusText": dbus.MakeVariant("no device")}, nil
	}
	return map[string]dbus.Variant{"ActiveState": dbus.MakeVariant(cmp.Or(f.state, "inactive")),
		"SubState":             dbus.MakeVariant("x"),
		"StateChangeTimestamp": dbus.MakeVariant(uint64(5e6)), "StateChangeTimestampMonotonic": dbus.MakeVariant(uint64(7e6))}, nil
}

// privateBus is a bus of the test's own.
type privateBus struct {
	*bustest.Bus
	t    *testing.T
	addr string
}

func startBus(t *testing.T) *privateBus {
	t.Helper()
	b := bustest.Start(t)
	return &privateBus{b, t, b.Addr}
}

// client is a Systemd that runs until the test ends, and the context that ends then.
func (b *privateBus) client() (*Systemd, context.Context) {
	s := NewSystemd(b.addr, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	b.t.Cleanup(func() { cancel(); <-done })
	return s, ctx
}

func (b *privateBus) systemd() *fakeSystemd {
	b.t.Helper()
	conn, err := dbus.Connect(b.addr)
	testkit.NoError(b.t, err)
	f := &fakeSystemd{conn: conn}
	testkit.NoError(b.t, conn.Export(f, systemdPath, managerIf))
	testkit.NoError(b.t, conn.Export(f, fakeUnitPath, "org.freedesktop.DBus.Properties"))
	if _, err := conn.RequestName(systemdName, 0); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	return f
}

func next(t *testing.T, ch <-chan string) string {
	t.Helper()
	select {
	case s := <-ch:
		return s
	case <-time.After(15 * time.Second):
		t.Fatal("no change was reported")
	}
	return ""
}

func TestSystemd(t *testing.T) {
	b := startBus(t)
	f := b.systemd()
	s, ctx := b.client()
	if n := next(t, s.Changes()); n != "" {
		t.Errorf("connected with %q", n)
	}
	// Nothing is managed: systemd has no subscriber here.
	f.mu.Lock()
	if slices.Contains(f.calls, "Subscribe") {
		t.Error("subscribed while nothing is managed")
	}
	f.mu.Unlock()
	s.Follow(true)
	if n := next(t, s.Changes()); n != "" {
		t.Errorf("subscribed with %q", n)
	}
	const name = "ibnetsm@0x0000000000000001.service"
	if st, err := s.State(ctx, name); err != nil || st.State != smctl.WorkerInactive {
		t.Errorf("%+v %v", st, err)
	}
	if err := s.Start(ctx, Unit{Name: name, GUID: 1}); err != nil {
		t.Error(err)
	}
	if n := next(t, s.Changes()); n != name {
		t.Errorf("changed: %q", n)
	}
	if st, err := s.State(ctx, name); err != nil || st.State != smctl.WorkerActive || !st.Wall.Equal(time.Unix(5, 0)) ||
		st.Since != monotonic(7e6) || time.Since(st.Since) < 0 {
		t.Errorf("%+v %v", st, err)
	}
	// The unit changes by itself.
	f.mu.Lock()
	f.state = "failed"
	f.mu.Unlock()
	_ = f.conn.Emit(fakeUnitPath, "org.freedesktop.DBus.Properties.PropertiesChanged", unitIf, map[string]dbus.Variant{},
		[]string{"ActiveState"})
	if n := next(t, s.Changes()); n != name {
		t.Errorf("changed: %q", n)
	}
	if st, err := s.State(ctx, name); err != nil || st.State != smctl.WorkerFailed || st.Result != "exit status 3: no device" {
		t.Errorf("%+v %v", st, err)
	}
	if err := s.Stop(ctx, name); err != nil {
		t.Error(err)
	}
	next(t, s.Changes())
	if err := s.Start(ctx, Unit{Name: "ibnetsm@bad.service"}); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("bad unit: %v", err)
	}
	if err := s.LoadModule(ctx, "rdma-cm"); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	if last := f.calls[len(f.calls)-1]; last != "StartUnit modprobe@rdma_cm.service replace" {
		t.Error(last)
	}
	f.mu.Unlock()
	_ = f.conn.Emit(systemdPath, managerIf+".Reloading", true)
	if n := next(t, s.Changes()); n != "" {
		t.Errorf("daemon-reload: %q", n)
	}
	_, _ = s.State(ctx, UnitName(smctl.EngineOpenSM, 1)) // followed from now on
	p := smctl.Policy{Engine: smctl.EngineOpenSM, Priority: 3, RoutingEngine: "ftree,updn", PartitionsFile: "/etc/p",
		SubnetPrefix: 0xfec0000000000001, LMC: 1, Sweep: "1.5s", Timeout: "300ms", Enforcement: "in"}
	if err := s.Start(ctx, Unit{Name: UnitName(p.Engine, 1), GUID: 1, Policy: p}); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	last := f.calls[len(f.calls)-1]
	f.mu.Unlock()
	if want := "--guid 0x0000000000000001 --log_file stdout --priority 3 --subnet_prefix 0xfec0000000000001 --lmc 1 " +
		"--routing_engine ftree,updn --Pconfig /etc/p --part_enforce in --sweep 2 --timeout 300"; !strings.Contains(last, want) {
		t.Errorf("opensm is run as %s", last)
	}
	next(t, s.Changes())

	// The bus restarts, and systemd with it.
	b.Stop()
	if n := next(t, s.Changes()); n != "" {
		t.Errorf("lost: %q", n)
	}
	if _, err := s.State(ctx, name); err == nil {
		t.Error("a state without a connection")
	}
	b.Start()
	b.systemd()
	next(t, s.Changes())
	for range 20 {
		if _, err := s.State(ctx, name); err == nil {
			return
		}
		next(t, s.Changes())
	}
	t.Error("not back on the bus")
}

func TestUnitOf(t *testing.T) {
	if got := unitOf(fakeUnitPath); got != "ibnetsm@0x0000000000000001.service" {
		t.Error(got)
	}
}

// A unit whose start is queued is being started, not inactive.
func TestQueuedStart(t *testing.T) {
	job := func(id uint32) dbus.Variant {
		return dbus.MakeVariant([]any{id, dbus.ObjectPath("/org/freedesktop/systemd1/job/7")})
	}
	for _, tc := range []struct {
		active string
		id     uint32
		want   smctl.WorkerState
	}{
		{"inactive", 0, smctl.WorkerInactive}, {"inactive", 7, smctl.WorkerActivating},
		{"failed", 0, smctl.WorkerFailed}, {"failed", 7, smctl.WorkerActivating}, {"active", 7, smctl.WorkerActive},
	} {
		got := stateOf(map[string]dbus.Variant{"ActiveState": dbus.MakeVariant(tc.active), "Job": job(tc.id)}, nil)
		if got.State != tc.want {
			t.Errorf("%s with job %d: %v, want %v", tc.active, tc.id, got.State, tc.want)
		}
	}
}

// The end of another job of the same unit is not taken for this one's, and nothing
// is kept of a call that has ended.
func TestModuleJobs(t *testing.T) {
	b := startBus(t)
	f := b.systemd()
	s, ctx := b.client()
	next(t, s.Changes())
	start := func(g func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.start = g
	}
	start(func() {
		for range 40 {
			_ = f.conn.Emit(systemdPath, managerIf+".JobRemoved", uint32(7), dbus.ObjectPath("/org/freedesktop/systemd1/job/7"),
				"modprobe@ib_umad.service", "canceled")
		}
	})
	if err := s.LoadModule(ctx, "ib_umad"); err != nil {
		t.Errorf("the end of another job is taken for ours: %v", err)
	}
	never := make(chan struct{})
	defer close(never)
	start(func() { <-never })
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if err := s.LoadModule(short, "ib_umad"); err == nil {
		t.Error("a job that does not end has ended")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.jobs) != 0 {
		t.Errorf("%d jobs are waited for by nobody", len(s.jobs))
	}
}

// A load ends with its context although the bus does not answer any more: the end of
// the daemon must not wait for it.
func TestModuleOverDeafBus(t *testing.T) {
	b := startBus(t)
	f := b.systemd()
	s, ctx := b.client()
	next(t, s.Changes())
	f.mu.Lock()
	f.start = func() { _ = b.Signal(syscall.SIGSTOP) } // the answer does not arrive
	f.mu.Unlock()
	resume := time.AfterFunc(10*time.Second, func() { _ = b.Signal(syscall.SIGCONT) })
	defer func() {
		resume.Stop()
		_ = b.Signal(syscall.SIGCONT)
	}()
	short, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	start := time.Now()
	if err := s.LoadModule(short, "ib_umad"); err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}
