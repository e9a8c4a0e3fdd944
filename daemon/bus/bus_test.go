package bus

import (
	"bufio"
	"bytes"
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
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
	"ibnetworkd/units"
)

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
		{[]string{"get-property", api.BusName, api.LogControlPath, api.LogControl, "LogLevel", "LogTarget", "SyslogIdentifier"},
			`s "debug"\ns "journal"\ns "ibnetworkd"`},
		{[]string{"introspect", api.BusName, api.LogControlPath}, `(?s)\.LogLevel +property +s +"debug" +emits-change writable.*` +
			`\.LogTarget +property +s +"journal" +emits-change\n`},
		{[]string{"set-property", api.BusName, api.LogControlPath, api.LogControl, "LogLevel", "s", "loud"},
			`"loud" is not one of debug, info, notice, warning, err, crit, alert, emerg`},
		{[]string{"set-property", api.BusName, api.LogControlPath, api.LogControl, "LogLevel", "u", "7"}, `with strings as variants`},
		{[]string{"set-property", api.BusName, api.LogControlPath, api.LogControl, "LogTarget", "s", "kmsg"}, `read-only`},
		{[]string{"set-property", api.BusName, api.Root, api.LogControl, "LogLevel", "s", "debug"}, `read-only`},
		{[]string{"set-property", api.BusName, api.LogControlPath, api.LogControl, "LogLevel", "s", "crit"}, `^$`},
		{[]string{"get-property", api.BusName, api.Root, api.Manager, "LogLevel"}, `s "error"`},
		{[]string{"set-property", api.BusName, api.LogControlPath, api.LogControl, "LogLevel", "s", "notice"}, `^$`},
		{[]string{"get-property", api.BusName, api.LogControlPath, api.LogControl, "LogLevel"}, `s "notice"`},
		{[]string{"get-property", api.BusName, api.Root, api.Manager, "LogLevel"}, `s "warn"`},
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
		(&stateOf[link.Status]{linkProps, link.Status{}}).values())
	check(api.Port, sigs(len(portProps), func(i int) (string, string) { return portProps[i].name, portProps[i].sig }),
		(&stateOf[link.PortStatus]{portProps, link.PortStatus{}}).values())
	check(api.SubnetManager, sigs(len(smProps), func(i int) (string, string) { return smProps[i].name, smProps[i].sig }),
		(&stateOf[smctl.Status]{smProps, smctl.Status{}}).values())
	check(api.LogControl, sigs(len(logProps), func(i int) (string, string) { return logProps[i].name, logProps[i].sig }),
		(&stateOf[logState]{logProps, logState{}}).values())
	check(api.Manager, sigs(len(managerProps), func(i int) (string, string) { return managerProps[i].name, managerProps[i].sig }),
		(&stateOf[managerState]{managerProps, managerState{}}).values())
}

func TestSignalsSayExactlyWhatChanged(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	c := b.Dial()
	testkit.NoError(t, c.AddMatchSignal(dbus.WithMatchPathNamespace(api.Root)))
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

// Callers that ask for all objects of one state get the same answer while it is written: else
// each of those that maxReads admits would take megabytes.
func TestObjectsAreMadeOnce(t *testing.T) {
	s := New(Config{Backend: &fake{}})
	links := func(mtu int) {
		for i := range 50 {
			l := ib0()
			l.Name, l.Ifindex = fmt.Sprintf("ib%d", i), i+10
			l.Attributes = []link.Attribute{{Name: "MTUBytes", Actual: fmt.Sprint(mtu)}}
			s.PublishLinks([]link.Status{l}, nil)
		}
	}
	mtu := func(out []any) any {
		return out[0].(objects)[dbus.ObjectPath(api.LinkPath(12))][api.Link]["MTUBytes"].Value()
	}
	links(2044)
	first := &caller{s: s}
	out, err := managedObjects(first)
	if n := testing.AllocsPerRun(20, func() { _, _ = managedObjects(&caller{s: s}) }); err != nil || len(out[0].(objects)) != 50 ||
		mtu(out) != uint32(2044) || n > 20 {
		t.Errorf("%v, %d objects, %v; %v allocations for another answer", err, len(out[0].(objects)), mtu(out), n)
	}
	links(4092)
	if now, _ := managedObjects(&caller{s: s}); mtu(now) != uint32(4092) || mtu(out) != uint32(2044) {
		t.Errorf("%v after a change, %v before", mtu(now), mtu(out))
	}
	first.release()
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
		testkit.NoError(t, c.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, api.BusName).Store(&o))
		return o
	}
	before := owner()
	testkit.NoError(t, c.AddMatchSignal(dbus.WithMatchSender(api.BusName), dbus.WithMatchObjectPath("/org/ibnetwork1/link/_37")))
	ch := make(chan *dbus.Signal, 100)
	c.Signal(ch)
	c.Send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(before),
		dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/DBus")),
		dbus.FieldInterface:   dbus.MakeVariant("org.freedesktop.DBus"),
		dbus.FieldMember:      dbus.MakeVariant("NameLost"),
		dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf("")),
	}, Body: []any{api.BusName}}, nil)
	// The server handles what has arrived between these.
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
	testkit.NoError(t, c.AddMatchSignal(dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, api.BusName)))
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
	testkit.NoError(t, c.Object(api.BusName, "/org/ibnetwork1/link/_37").Call("org.freedesktop.DBus.Properties.Get", 0, api.Link,
		"Addresses").Store(&v))
	if got := fmt.Sprint(v.Value()); got != fmt.Sprint(l.Addresses) {
		t.Errorf("last state: %s, want %s", got, l.Addresses)
	}
}

// A storm of changes must neither block the daemon nor cost a signal each.
func TestStormIsCoalesced(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	c := b.Dial()
	testkit.NoError(t, c.AddMatchSignal(dbus.WithMatchObjectPath("/org/ibnetwork1/link/_37")))
	// Only godbus' own goroutine reads the socket of this one.
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
	testkit.NoError(t, b.Signal(syscall.SIGSTOP))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	l := storm(s, 4000)
	took := time.Since(start)
	runtime.GC()
	runtime.ReadMemStats(&after)
	testkit.NoError(t, b.Signal(syscall.SIGCONT))
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
			testkit.NoError(t, (<-pending).Err)
			out--
		}
		o.Go("org.freedesktop.DBus.Properties.Get", 0, pending, api.Link, "State")
		out++
	}
	for ; out > 0; out-- {
		testkit.NoError(t, (<-pending).Err)
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
	testkit.NoError(t, err)
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
	testkit.NoError(t, <-joined)
	var call bytes.Buffer
	m := &dbus.Message{Type: dbus.TypeMethodCall, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(api.Root)), dbus.FieldInterface: dbus.MakeVariant(api.Manager),
		dbus.FieldMember: dbus.MakeVariant("Describe")}}
	testkit.NoError(t, m.EncodeTo(&call, binary.LittleEndian))
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
	want := []string{"Set"}
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
