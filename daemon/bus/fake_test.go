package bus

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/internal/busconn/bustest"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

// privateBus is a bus of the test's own.
type privateBus struct {
	*bustest.Bus
	t    *testing.T
	addr string
}

func startBus(t *testing.T, limits ...bustest.Limit) *privateBus {
	t.Helper()
	b := bustest.Start(t, limits...)
	return &privateBus{b, t, b.Addr}
}

func (b *privateBus) busctl(args ...string) (string, error) {
	cmd := exec.Command("busctl", append([]string{"--address=" + b.addr, "--no-pager"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// fake is a daemon that notes what it is asked.
type fake struct {
	mu    sync.Mutex
	calls []string
	level slog.Level
	err   error
	// reload and plan are called instead of what the fake does, if set.
	reload func(context.Context) error
	plan   func()
}

func (f *fake) note(format string, a ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, a...))
	return f.err
}

func (f *fake) Reload(ctx context.Context) error {
	f.mu.Lock()
	reload := f.reload
	f.mu.Unlock()
	if reload != nil {
		return reload(ctx)
	}
	return f.note("reload")
}

func (f *fake) Renew(_ context.Context, l string) error       { return f.note("renew %s", l) }
func (f *fake) Reconfigure(_ context.Context, l string) error { return f.note("reconfigure %s", l) }

func (f *fake) SetAdmin(_ context.Context, l string, up bool) error {
	return f.note("up=%v %s", up, l)
}

func (f *fake) Plan(context.Context) (link.Plan, error) {
	f.mu.Lock()
	plan := f.plan
	f.mu.Unlock()
	if plan != nil {
		plan()
	}
	t := link.Target{Link: "ib0"}
	return link.Plan{Steps: []link.Step{{Op: link.SetMTU{On: t, MTU: 4092}}},
		Blocked: []link.Blocked{{On: t, Op: "x", Reason: link.Reason{Code: link.CodeNoSM, Text: "no subnet manager"}}}}, nil
}

func (f *fake) StartSubnetManager(_ context.Context, d string, p int) error {
	return f.note("start %s/%d", d, p)
}

func (f *fake) StopSubnetManager(_ context.Context, d string, p int) error {
	return f.note("stop %s/%d", d, p)
}

func (f *fake) LogLevel() slog.Level { f.mu.Lock(); defer f.mu.Unlock(); return f.level }

func (f *fake) SetLogLevel(l slog.Level) { f.mu.Lock(); defer f.mu.Unlock(); f.level = l }

func (f *fake) called() []string { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.calls) }

func ib0() link.Status {
	return link.Status{Name: "ib0", Ifindex: 7, Kind: "ipoib", IBDevice: "mlx5_0", Port: 1, PKey: "0xffff",
		Unit:  "/etc/systemd/network/10-ib0.ibnetwork",
		State: link.StateConfigured, Oper: units.OperRoutable, Carrier: true, Required: true, Online: true,
		Attributes: []link.Attribute{{Name: "Mode", Wanted: "datagram", Actual: "datagram"},
			{Name: "MTUBytes", Wanted: "4092", Actual: "2044",
				Why: link.Reason{Code: link.CodeMTUGroup, Text: "wanted 4092, the fabric's broadcast group allows 2044", Next: "ask for mtu=5"}}},
		Addresses: []string{"192.168.151.1/24"}}
}

// links are n links beside ib0.
func links(n int) (all []link.Status) {
	for i := range n {
		l := ib0()
		l.Name, l.Ifindex = fmt.Sprintf("ib%d", i+100), 100+i
		all = append(all, l)
	}
	return all
}

func port1() link.PortStatus {
	return link.PortStatus{IBDevice: "mlx5_0", Port: 1, LinkLayer: "InfiniBand", State: "Active", PhysState: "LinkUp", LID: 3, SMLID: 1,
		PortGUID: "0x0002c903000abcde", NodeGUID: "0x0002c903000abcdd", SubnetPrefix: "0xfe80000000000000",
		PKeys: []string{"0xffff", "0x8001"}, Links: []string{"ib0"}}
}

func sm1() smctl.Status {
	return smctl.Status{PortGUID: "0x0002c903000abcde", IBDevice: "mlx5_0", Port: 1, Manage: "auto", Engine: "builtin",
		Phase: "served", Reason: "somebody serves",
		Master: &smctl.Master{GUID: "0x1", LID: 1, Priority: 5, State: "Master"}}
}

// serve starts a server with one link, one port and one subnet manager.
func serve(t *testing.T, b *privateBus, priv func(uint32) bool) (*Server, *fake) {
	t.Helper()
	f := &fake{}
	s := New(Config{Backend: f, Version: "1.2", Address: b.addr, Privileged: priv, LogTarget: "journal"})
	s.PublishLinks([]link.Status{ib0()}, nil)
	s.PublishPorts([]link.PortStatus{port1()})
	s.PublishSM([]smctl.Status{sm1()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	<-s.Ready()
	return s, f
}

// as has the calls of a connection count as a user's.
func as(s *Server, c *dbus.Conn, u user) {
	s.mu.Lock()
	callers := s.callers
	s.mu.Unlock()
	callers.mu.Lock()
	defer callers.mu.Unlock()
	callers.users[c.Names()[0]] = u
}
