package bus

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
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

func startBus(t *testing.T) *privateBus {
	t.Helper()
	b := bustest.Start(t)
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
	level string
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
func (f *fake) LogLevel() string { f.mu.Lock(); defer f.mu.Unlock(); return cmp.Or(f.level, "info") }
func (f *fake) SetLogLevel(l string) error {
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, l) {
		return fmt.Errorf("%q is not one of debug, info, warn, error", l)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.level = l
	return nil
}

func (f *fake) called() []string { f.mu.Lock(); defer f.mu.Unlock(); return slices.Clone(f.calls) }

func ib0() link.Status {
	return link.Status{Name: "ib0", Ifindex: 7, Kind: "ipoib", IBDevice: "mlx5_0", Port: 1, PKey: "0xffff",
		Unit:  "/etc/systemd/network/10-ib0.ibnetwork",
		State: link.StateConfigured, Oper: units.OperRoutable, Carrier: true, Required: true, Online: true,
		Attributes: []link.Attribute{{Name: "Mode", Wanted: "datagram", Actual: "datagram"},
			{Name: "MTUBytes", Wanted: "4092", Actual: "2044",
				Why: link.Reason{Code: link.CodeMTUGroup, Text: "asked 4092, the fabric's broadcast group allows 2044", Next: "ask for mtu=5"}}},
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
	s := New(Config{Backend: f, Version: "1.2", Address: b.addr, Privileged: priv})
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

func TestBusctl(t *testing.T) {
	b := startBus(t)
	_, f := serve(t, b, nil)
	tests := []struct {
		args []string
		want string // regular expression
	}{
		{[]string{"tree", "--list", api.BusName},
			`(?s)/org/ibnetwork1/link/_37\n.*/org/ibnetwork1/port/mlx5_5f0_2f1\n.*/org/ibnetwork1/subnet_manager/_30x0002c903000abcde`},
		{[]string{"introspect", api.BusName, "/org/ibnetwork1"}, `(?s)\.GetManagedObjects +method.*\.Reload +method`},
		{[]string{"introspect", api.BusName, "/org/ibnetwork1/link/_37"},
			`(?s)\.Addresses +property +as.*\.MTUBytesReason +property +\(sss\).*mtu-limited-by-group`},
		{[]string{"introspect", "--xml-interface", api.BusName, "/org/ibnetwork1/link/_37"},
			`org.gtk.GDBus.DocString" value="The interface index`},
		{[]string{"get-property", api.BusName, "/org/ibnetwork1/port/mlx5_5f0_2f1", api.Port, "PartitionKeys", "SMLID"}, `aq 2 65535 32769\nq 1`},
		{[]string{"get-property", api.BusName, "/org/ibnetwork1/subnet_manager/_30x0002c903000abcde", api.SubnetManager, "Master"},
			`\(tqys\) 1 1 5 "Master"`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "ListLinks"}, `a\(isso\) 1 7 "ib0" "configured" "/org/ibnetwork1/link/_37"`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "Plan"},
			`asa\(sssss\) 1 "ip link set ib0 mtu 4092" 1 "ib0" "x" "no-subnet-manager"`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "Describe"}, `ib_device`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "GetPort", "s", "mlx5_0/1"}, `o "/org/ibnetwork1/port/mlx5_5f0_2f1"`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "GetLink", "s", "nope"}, `there is no link "nope"`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "Reload"}, `^$`},
		{[]string{"call", api.BusName, "/org/ibnetwork1/link/_37", api.Link, "Down"}, `^$`},
		{[]string{"call", api.BusName, "/org/ibnetwork1/subnet_manager/_30x0002c903000abcde", api.SubnetManager, "Start"}, `^$`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "Reconfigure", "s", "ib9"}, `there is no link`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "SetLogLevel", "s", "loud"}, `"loud" is not one of`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "SetLogLevel", "s", "debug"}, `^$`},
		{[]string{"get-property", api.BusName, api.Root, api.Manager, "LogLevel", "Version", "OnlineState"}, `s "debug"\ns "1.2"\ns "online"`},
		{[]string{"set-property", api.BusName, api.Root, api.Manager, "Version", "s", "x"}, `read-only`},
		{[]string{"call", api.BusName, api.Root, api.Manager, "Up", "i", "3"}, `signature "i", it should be "s"`},
		{[]string{"call", api.BusName, "/org/ibnetwork1/link/_38", api.Link, "Up"}, `(?i)object|no such|unknown`},
	}
	if _, err := exec.LookPath("busctl"); err != nil {
		t.Skip("busctl is not installed")
	}
	for _, tc := range tests {
		out, _ := b.busctl(tc.args...)
		if !regexp.MustCompile(tc.want).MatchString(out) {
			t.Errorf("busctl %s:\n%swant %s", strings.Join(tc.args, " "), out, tc.want)
		}
	}
	if got := strings.Join(f.called(), ", "); got != "reload, up=false ib0, start mlx5_0/1" {
		t.Errorf("the daemon was asked: %s", got)
	}
}

// Every property has the type that introspection says.
func TestPropertyTypes(t *testing.T) {
	check := func(iface string, table map[string]string, vals map[string]dbus.Variant) {
		for name, v := range vals {
			if got := v.Signature().String(); got != table[name] {
				t.Errorf("%s.%s has signature %s, introspection says %s", iface, name, got, table[name])
			}
		}
	}
	sigs := func(n int, at func(int) (string, string)) map[string]string {
		m := map[string]string{}
		for i := range n {
			k, v := at(i)
			m[k] = v
		}
		return m
	}
	check(api.Link, sigs(len(linkProps), func(i int) (string, string) { return linkProps[i].name, linkProps[i].sig }),
		values(linkProps, link.Status{}))
	check(api.Port, sigs(len(portProps), func(i int) (string, string) { return portProps[i].name, portProps[i].sig }),
		values(portProps, link.PortStatus{}))
	check(api.SubnetManager, sigs(len(smProps), func(i int) (string, string) { return smProps[i].name, smProps[i].sig }),
		values(smProps, smctl.Status{}))
	check(api.Manager, sigs(len(managerProps), func(i int) (string, string) { return managerProps[i].name, managerProps[i].sig }),
		values(managerProps, managerState{}))
}

func TestSignalsSayExactlyWhatChanged(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	c := b.Dial()
	if err := c.AddMatchSignal(dbus.WithMatchPathNamespace(api.Root)); err != nil {
		t.Fatal(err)
	}
	ch := make(chan *dbus.Signal, 100)
	c.Signal(ch)
	next := func() *dbus.Signal {
		t.Helper()
		select {
		case g := <-ch:
			return g
		case <-time.After(5 * time.Second):
			t.Fatal("no signal")
		}
		return nil
	}
	l := ib0()
	s.PublishLinks([]link.Status{l}, nil) // the same: nothing
	l.Carrier, l.Oper, l.Online = false, units.OperNoCarrier, false
	s.PublishLinks([]link.Status{l}, nil)
	seen := map[dbus.ObjectPath][]string{}
	for range 2 {
		g := next()
		if g.Name != "org.freedesktop.DBus.Properties.PropertiesChanged" {
			t.Fatalf("got %s", g.Name)
		}
		for k := range g.Body[1].(map[string]dbus.Variant) {
			seen[g.Path] = append(seen[g.Path], k)
		}
		slices.Sort(seen[g.Path])
	}
	if got := fmt.Sprint(seen["/org/ibnetwork1/link/_37"]); got != "[Carrier Online OperationalState]" {
		t.Errorf("changed: %s", got)
	}
	if got := fmt.Sprint(seen[api.Root]); got != "[OnlineState]" {
		t.Errorf("manager changed: %s", got)
	}
	child := link.Status{Name: "ib0.8001", Ifindex: 9, Kind: "ipoib", State: link.StatePending}
	s.PublishLinks([]link.Status{child}, nil)
	for g := next(); g.Name != "org.freedesktop.DBus.ObjectManager.InterfacesAdded"; g = next() {
	}
	s.PublishLinks(nil, []string{"ib0.8001"})
	g := next()
	for ; g.Name != "org.freedesktop.DBus.ObjectManager.InterfacesRemoved"; g = next() {
	}
	if got := fmt.Sprint(g.Body); got != "[/org/ibnetwork1/link/_39 [org.ibnetwork1.Link]]" {
		t.Errorf("removed: %s", got)
	}
}

// polkit stands on the bus and grants one action.
type polkit struct{ grant string }

func (p polkit) CheckAuthorization(subject struct {
	Kind    string
	Details map[string]dbus.Variant
}, action string, _ map[string]string, _ uint32, _ string) (struct {
	A, B bool
	C    map[string]string
}, *dbus.Error) {
	var r struct {
		A, B bool
		C    map[string]string
	}
	r.A, r.C = action == p.grant && subject.Kind == "system-bus-name", map[string]string{}
	return r, nil
}

func TestPermission(t *testing.T) {
	b := startBus(t)
	_, f := serve(t, b, func(uint32) bool { return false })
	c := b.Dial()
	call := func(method string, args ...any) error {
		return c.Object(api.BusName, api.Root).Call(api.Manager+"."+method, 0, args...).Err
	}
	err := call("Reload")
	var de dbus.Error
	if !errors.As(err, &de) || de.Name != api.ErrAccessDenied || !strings.Contains(fmt.Sprint(de.Body), "polkit is not installed") {
		t.Errorf("without polkit: %v", err)
	}
	pk := b.Dial()
	if err := pk.Export(polkit{grant: api.ActionReload}, "/org/freedesktop/PolicyKit1/Authority",
		"org.freedesktop.PolicyKit1.Authority"); err != nil {
		t.Fatal(err)
	}
	if _, err := pk.RequestName("org.freedesktop.PolicyKit1", 0); err != nil {
		t.Fatal(err)
	}
	if err := call("Reload"); err != nil {
		t.Errorf("granted: %v", err)
	}
	for _, v := range [][]any{{"Reconfigure", "ib0"}, {"Up", "ib0"}, {"Down", "ib0"}, {"StartSubnetManager", "mlx5_0/1"},
		{"StopSubnetManager", "mlx5_0/1"}, {"SetLogLevel", "debug"}} {
		err := call(v[0].(string), v[1:]...)
		if !errors.As(err, &de) || de.Name != api.ErrAccessDenied || !strings.Contains(fmt.Sprint(de.Body), "polkit does not permit") {
			t.Errorf("%s: %v", v[0], err)
		}
	}
	if err := call("Describe"); err != nil {
		t.Errorf("reading: %v", err)
	}
	if got := f.called(); len(got) != 1 || got[0] != "reload" {
		t.Errorf("the daemon was asked: %v", got)
	}
}

// slowPolkit says yes to each question once a person has typed the password.
type slowPolkit struct {
	asked  chan struct{}
	answer chan time.Time
}

func (p slowPolkit) CheckAuthorization(struct {
	Kind    string
	Details map[string]dbus.Variant
}, string, map[string]string, uint32, string) (r struct {
	A, B bool
	C    map[string]string
}, _ *dbus.Error) {
	p.asked <- struct{}{}
	<-p.answer
	r.A, r.C = true, map[string]string{}
	return r, nil
}

// Callers whose password is waited for keep nobody out who needs none, and the
// time of a request begins when it is allowed.
func TestWaitingForPasswords(t *testing.T) {
	b := startBus(t)
	var root atomic.Bool
	s, f := serve(t, b, func(uint32) bool { return root.Load() })
	left := make(chan time.Time, 1)
	f.mu.Lock()
	f.reload = func(ctx context.Context) error {
		d, _ := ctx.Deadline()
		left <- d
		return nil
	}
	f.mu.Unlock()
	pk := b.Dial()
	p := slowPolkit{asked: make(chan struct{}), answer: make(chan time.Time)}
	if err := pk.Export(p, "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority"); err != nil {
		t.Fatal(err)
	}
	if _, err := pk.RequestName("org.freedesktop.PolicyKit1", 0); err != nil {
		t.Fatal(err)
	}
	// Each user may have some requests under way, on however many connections.
	reload := func(uid uint32) *dbus.Call {
		c := b.Dial()
		as(s, c, user{uid: uid})
		return c.Object(api.BusName, api.Root).Go(api.Manager+".Reload", dbus.FlagAllowInteractiveAuthorization, make(chan *dbus.Call, 1))
	}
	limit := func(what string, call *dbus.Call, words string) {
		t.Helper()
		var de dbus.Error
		if err := (<-call.Done).Err; !errors.As(err, &de) || de.Name != errLimits || !strings.Contains(fmt.Sprint(de.Body), words) {
			t.Errorf("%s: %v", what, err)
		}
	}
	var waiting []*dbus.Call
	for i := range uint32(maxAsks) {
		waiting = append(waiting, reload(1000+i/maxEach))
		<-p.asked
	}
	limit("one more of a user", reload(1000), "8 changes of user 1000")
	limit("one more of all", reload(2000), "64 at one time")
	root.Store(true)
	call := reload(2000)
	if err := (<-call.Done).Err; err != nil {
		t.Errorf("root, while %d others are asked for a password: %v", maxAsks, err)
	} else {
		<-left
	}
	allowed := time.Now()
	for range waiting {
		p.answer <- allowed
		if d := (<-left).Sub(allowed); d < verbTimeout {
			t.Errorf("a request has %v of %v left when it begins", d, verbTimeout)
		}
	}
}

// Everyone may ask for the plan, which costs the daemon a turn each. Neither one
// user's connections nor all users keep root out.
func TestPlansAreBounded(t *testing.T) {
	b := startBus(t)
	s, f := serve(t, b, nil)
	began, end := make(chan struct{}), make(chan struct{})
	f.mu.Lock()
	f.plan = func() {
		began <- struct{}{}
		<-end
	}
	f.mu.Unlock()
	plan := func(uid uint32) *dbus.Call {
		c := b.Dial()
		as(s, c, user{uid: uid, privileged: uid == 0})
		return c.Object(api.BusName, api.Root).Go(api.Manager+".Plan", 0, make(chan *dbus.Call, 1))
	}
	var first []*dbus.Call
	refused := func(uid uint32) {
		t.Helper()
		more := plan(uid)
		select {
		case <-began:
			t.Errorf("user %d, after %d of all: begins", uid, len(first))
		case <-more.Done:
			var de dbus.Error
			if !errors.As(more.Err, &de) || de.Name != errLimits || !strings.HasSuffix(de.Error(), "try again in a second") {
				t.Errorf("user %d, after %d of all: %v", uid, len(first), more.Err)
			}
		}
	}
	for i := range uint32(maxPlans) {
		first = append(first, plan(1000+i/maxEachPlans))
		<-began
		if i == maxEachPlans {
			refused(1000)
		}
	}
	refused(2000)
	first = append(first, plan(0))
	<-began
	close(end)
	for _, c := range first {
		if err := (<-c.Done).Err; err != nil {
			t.Error(err)
		}
	}
}

// Anybody may send a signal with the bus's words; the name is lost when the bus
// says so.
func TestForgedNameLost(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	c := b.Dial()
	owner := func() (o string) {
		t.Helper()
		if err := c.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, api.BusName).Store(&o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	before := owner()
	if err := c.AddMatchSignal(dbus.WithMatchSender(api.BusName), dbus.WithMatchObjectPath("/org/ibnetwork1/link/_37")); err != nil {
		t.Fatal(err)
	}
	ch := make(chan *dbus.Signal, 100)
	c.Signal(ch)
	c.Send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(before),
		dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/DBus")),
		dbus.FieldInterface:   dbus.MakeVariant("org.freedesktop.DBus"),
		dbus.FieldMember:      dbus.MakeVariant("NameLost"),
		dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf("")),
	}, Body: []any{api.BusName}}, nil)
	// The server looks at what has come between these.
	l := ib0()
	for i := range 20 {
		l.Addresses = []string{fmt.Sprintf("10.0.0.%d/24", i+1)}
		s.PublishLinks([]link.Status{l}, nil)
		select {
		case <-ch:
		case <-time.After(20 * time.Second):
			t.Fatal("no signal")
		}
	}
	if after := owner(); after != before {
		t.Errorf("the name moved from %s to %s", before, after)
	}
}

func TestRejoinsRestartedBus(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	b.Stop()
	l := ib0()
	l.State = link.StateFailed
	s.PublishLinks([]link.Status{l}, nil)
	b.Start()
	c := b.Dial()
	deadline := time.Now().Add(20 * time.Second)
	if err := c.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, api.BusName)); err != nil {
		t.Fatal(err)
	}
	ch := make(chan *dbus.Signal, 10)
	c.Signal(ch)
	var v dbus.Variant
	for {
		err := c.Object(api.BusName, "/org/ibnetwork1/link/_37").Call("org.freedesktop.DBus.Properties.Get", 0, api.Link, "State").Store(&v)
		if err == nil {
			break
		}
		select {
		case <-ch:
		case <-time.After(time.Until(deadline)):
			t.Fatal("not back on the bus: ", err)
		}
	}
	if v.Value() != "failed" {
		t.Errorf("after the restart State is %v", v)
	}
}

// storm publishes n changes of ib0 and gives its last state.
func storm(s *Server, n int) link.Status {
	l := ib0()
	for i := range n {
		l.Addresses = []string{fmt.Sprintf("10.0.%d.%d/24", i/250, i%250+1)}
		s.PublishLinks([]link.Status{l}, nil)
	}
	return l
}

// last checks that the bus shows ib0's last state.
func last(t *testing.T, c *dbus.Conn, l link.Status) {
	t.Helper()
	var v dbus.Variant
	if err := c.Object(api.BusName, "/org/ibnetwork1/link/_37").Call("org.freedesktop.DBus.Properties.Get", 0, api.Link,
		"Addresses").Store(&v); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(v.Value()); got != fmt.Sprint(l.Addresses) {
		t.Errorf("last state: %s, want %s", got, l.Addresses)
	}
}

// A storm of changes must neither block the daemon nor cost a signal each.
func TestStormIsCoalesced(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	c := b.Dial()
	if err := c.AddMatchSignal(dbus.WithMatchObjectPath("/org/ibnetwork1/link/_37")); err != nil {
		t.Fatal(err)
	}
	// Nobody reads the socket of this one beyond godbus' own goroutine.
	const n = 4000
	start := time.Now()
	l := storm(s, n)
	t.Logf("%d changes published in %v", n, time.Since(start).Round(time.Millisecond))
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("%d changes took %v", n, d)
	}
	last(t, c, l)
}

// A bus that takes nothing for a while: publishing goes on at once, what waits
// is one state of each object, and in the end the last one is there.
func TestStoppedBus(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	c := b.Dial()
	if err := b.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	l := storm(s, 4000)
	took := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if err := b.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("4000 changes published in %v, the heap grew by %d KiB", took.Round(time.Millisecond), grown>>10)
	if took > 30*time.Second || grown > 8<<20 {
		t.Error("changes pile up behind a bus that takes none")
	}
	last(t, c, l)
}

func TestReadsPerSecond(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	s.PublishLinks(links(900), nil)
	c := b.Dial()
	o := c.Object(api.BusName, dbus.ObjectPath(api.LinkPath(100)))
	const n = 4000
	if err := o.Call("org.freedesktop.DBus.Properties.Get", 0, api.Link, "State").Err; err != nil { // it is known from now on
		t.Fatal(err)
	}
	start := time.Now()
	pending := make(chan *dbus.Call, 64)
	out := 0
	for range n {
		if out == 64 {
			if err := (<-pending).Err; err != nil {
				t.Fatal(err)
			}
			out--
		}
		o.Go("org.freedesktop.DBus.Properties.Get", 0, pending, api.Link, "State")
		out++
	}
	for ; out > 0; out-- {
		if err := (<-pending).Err; err != nil {
			t.Fatal(err)
		}
	}
	rate := float64(n) / time.Since(start).Seconds()
	t.Logf("%.0f property reads a second with %d links", rate, 901)
	if rate < 100 { // the race detector and a busy machine
		t.Errorf("only %.0f property reads a second", rate)
	}
}

func TestInvalidText(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	l := ib0()
	l.Problems = []string{"bad \xff byte", "nul \x00"}
	l.Reasons = []link.Reason{{Code: "x", Text: "\xfe"}}
	s.PublishLinks([]link.Status{l}, nil)
	c := b.Dial()
	var text string
	if err := c.Object(api.BusName, api.Root).Call(api.Manager+".Describe", 0).Store(&text); err != nil || !strings.Contains(text, "bad") {
		t.Errorf("%v %q", err, text)
	}
	var objs map[dbus.ObjectPath]map[string]map[string]dbus.Variant
	if err := c.Object(api.BusName, api.Root).Call("org.freedesktop.DBus.ObjectManager.GetManagedObjects",
		0).Store(&objs); err != nil || len(objs) != 3 {
		t.Errorf("%v, %d objects", err, len(objs))
	}
}

// A caller that does not wait for answers finds the socket full, not the daemon.
func TestCallsDoNotPileUp(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	s.PublishLinks(links(100), nil)
	c := b.Dial()
	most, stop, done := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				most = max(most, runtime.NumGoroutine())
			}
		}
	}()
	few := runtime.NumGoroutine()
	o := c.Object(api.BusName, api.Root)
	for i := range 3000 {
		// Calls that end before our part begins give their places back too.
		o.Go(api.Manager+"."+[]string{"Describe", "Nothing", "Describe"}[i%3], dbus.FlagNoReplyExpected, nil)
		c.Object(api.BusName, "/nowhere").Go("no.such.Interface.Get", dbus.FlagNoReplyExpected, nil)
	}
	var text string
	if err := o.Call(api.Manager+".Describe", 0).Store(&text); err != nil {
		t.Error(err)
	}
	close(stop)
	<-done
	t.Logf("%d goroutines before, at most %d under way", few, most)
	// Those that have just ended come on top, and the first ones, of a caller that is
	// not known yet: the question to the bus has a goroutine as well.
	if most > few+2*maxReads+2*maxFirst {
		t.Errorf("%d calls at one time", most-few)
	}
}

// A bus that takes no answers hands over no more calls than are answered at one
// time: an answer that waits to be written is under way.
func TestAnswersDoNotPileUp(t *testing.T) {
	s := New(Config{Backend: &fake{}})
	h := handler{s, newCallers()}
	s.PublishLinks([]link.Status{ib0()}, nil)
	ours, theirs := net.Pipe()
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	conn, err := dbus.NewConn(ours, dbus.WithHandler(h), dbus.WithIncomingInterceptor(h.arrived))
	if err != nil {
		t.Fatal(err)
	}
	joined := make(chan error, 1)
	go func() { joined <- conn.Auth([]dbus.Auth{dbus.AuthAnonymous()}) }()
	in := bufio.NewReader(theirs)
	for _, say := range []string{"REJECTED ANONYMOUS\r\n", "OK 0\r\n", ""} {
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(theirs, say); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-joined; err != nil {
		t.Fatal(err)
	}
	var call bytes.Buffer
	m := &dbus.Message{Type: dbus.TypeMethodCall, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(api.Root)), dbus.FieldInterface: dbus.MakeVariant(api.Manager),
		dbus.FieldMember: dbus.MakeVariant("Describe")}}
	if err := m.EncodeTo(&call, binary.LittleEndian); err != nil {
		t.Fatal(err)
	}
	taken := 0
	for ; taken < 20*maxReads; taken++ {
		_ = theirs.SetWriteDeadline(time.Now().Add(3 * time.Second))
		if _, err := theirs.Write(call.Bytes()); err != nil {
			break
		}
	}
	// What godbus has read ahead comes on top.
	if taken == 0 || taken > 2*maxReads {
		t.Errorf("%d calls are under way, want %d", taken, maxReads)
	}
}

// The members that need not be bounded by reads are bounded in another way.
func TestWaitingMembers(t *testing.T) {
	var want []string
	for _, ms := range [][]method{managerMethods, linkMethods, smMethods} {
		for _, m := range ms {
			if strings.Contains(m.doc, "Needs org.") || strings.HasPrefix(m.doc, "As Manager.") || m.name == "Plan" {
				want = append(want, m.name)
			}
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if got := slices.Sorted(maps.Keys(waiting)); !slices.Equal(got, want) {
		t.Errorf("%q, of which %q ask somebody", got, want)
	}
}
