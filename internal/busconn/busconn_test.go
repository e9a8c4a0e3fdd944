package busconn

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/internal/busconn/bustest"
	"ibnetworkd/internal/testkit"
)

const (
	systemd     = "org.freedesktop.systemd1"
	systemdPath = "/org/freedesktop/systemd1"
)

func join(t *testing.T, b *bustest.Bus, c Config) *Conn {
	t.Helper()
	c.Address = b.Addr
	conn, err := Join(t.Context(), c)
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Whatever a member of the bus sends, the connection lives, answers, and has no
// more descriptors than before.
func TestHostileMember(t *testing.T) {
	b := bustest.Start(t)
	conn := join(t, b, Config{})
	c := b.Dial()
	before := bustest.Descriptors(t)
	b.Send(c, conn.Names()[0], systemdPath, systemd+".Manager", "JobRemoved")
	if n := bustest.Descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	if conn.SupportsUnixFDs() {
		t.Error("descriptor passing is agreed")
	}
	var id string
	if err := conn.BusObject().Call("org.freedesktop.DBus.GetId", 0).Store(&id); err != nil {
		t.Error(err)
	}
}

// Descriptors that a member sends with thousands of signals do not stay here.
func TestDescriptorsDoNotPileUp(t *testing.T) {
	b := bustest.Start(t)
	conn := join(t, b, Config{})
	c := b.Dial()
	before := bustest.Descriptors(t)
	for range 500 {
		c.Send(bustest.Message(dbus.TypeSignal, conn.Names()[0], "/x", "a.b", "C", dbus.UnixFD(0), dbus.UnixFD(0)), nil)
	}
	var id string
	testkit.NoError(t, c.BusObject().Call("org.freedesktop.DBus.GetId", 0).Store(&id))
	testkit.NoError(t, c.Object(conn.Names()[0], "/").Call("org.freedesktop.DBus.Peer.Ping", 0).Err)
	if n := bustest.Descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
}

// A signal is accepted only from the owner of the name that it speaks for, as the
// bus reports it.
func TestForgedSignals(t *testing.T) {
	b := bustest.Start(t)
	conn := join(t, b, Config{})
	sigs := make(chan *dbus.Signal, 100)
	conn.Signal(sigs)
	if owner, err := conn.TrustOwner(t.Context(), systemd); owner != "" || err != nil {
		t.Fatalf("%q, %v", owner, err)
	}
	dest := conn.Names()[0]
	forger, first, second := b.Dial(), b.Dial(), b.Dial()
	job := func(c *dbus.Conn, result string) {
		c.Send(bustest.Message(dbus.TypeSignal, dest, systemdPath, systemd+".Manager", "JobRemoved", uint32(1), dbus.ObjectPath("/"),
			"modprobe@x.service", result), nil)
		// A round trip through the connection: what was sent before has been read.
		testkit.NoError(t, c.Object(dest, "/").Call("org.freedesktop.DBus.Peer.Ping", 0).Err)
	}
	forge := func() {
		me := forger.Names()[0]
		for _, m := range []*dbus.Message{
			bustest.Message(dbus.TypeSignal, dest, busPath, busName, "NameOwnerChanged", systemd, "", me),
			bustest.Message(dbus.TypeSignal, dest, busPath, busName, "NameLost", dest),
			bustest.Message(dbus.TypeSignal, dest, busPath, busName, "NameAcquired", systemd),
			bustest.Message(dbus.TypeSignal, dest, systemdPath, systemd+".Manager", "Reloading", false),
			bustest.Message(dbus.TypeSignal, dest, systemdPath+"/unit/x", "org.freedesktop.DBus.Properties", "PropertiesChanged", systemd+
				".Unit", map[string]dbus.Variant{}, []string{}),
			bustest.Message(dbus.TypeSignal, dest, "/org/freedesktop/resolve1", busName, "NameOwnerChanged", systemd, "", me),
			bustest.Message(dbus.TypeSignal, dest, "/", "a.b", "C"),
		} {
			forger.Send(m, nil)
		}
		job(forger, "forged")
	}
	own := func(c *dbus.Conn, flags dbus.RequestNameFlags) {
		if _, err := c.RequestName(systemd, flags); err != nil {
			t.Fatal(err)
		}
	}
	forge()
	own(first, dbus.NameFlagAllowReplacement)
	job(first, "first")
	job(second, "not yet")
	forge()
	own(second, dbus.NameFlagReplaceExisting)
	job(first, "not any more")
	job(second, "second")
	if _, err := second.ReleaseName(systemd); err != nil {
		t.Fatal(err)
	}
	job(second, "not any more")
	forge()
	// The bus' own words for the connection's own name come first.
	var got []string
	for len(sigs) > 0 {
		s := <-sigs
		switch s.Name {
		case busName + ".NameAcquired":
		case busName + ".NameOwnerChanged":
			got = append(got, fmt.Sprint("owner ", s.Body[2]))
		default:
			got = append(got, fmt.Sprint(s.Body[len(s.Body)-1]))
		}
	}
	// The first owner waits in the queue for the name, and gets it again.
	want := fmt.Sprint([]string{"owner " + first.Names()[0], "first", "owner " + second.Names()[0], "second", "owner " + first.Names()[0]})
	if fmt.Sprint(got) != want {
		t.Errorf("believed %v\nwant %v", got, want)
	}
}

func TestTrusted(t *testing.T) {
	o := owners{systemd: ":1.1", "org.freedesktop.NetworkManager": ":1.2", "org.freedesktop.login1": ""}
	for _, tc := range []struct {
		sender, path, iface string
		want                bool
	}{
		{":1.1", systemdPath, systemd + ".Manager", true},
		{":1.1", systemdPath + "/unit/x", "org.freedesktop.DBus.Properties", true},
		{":1.2", systemdPath, systemd + ".Manager", false},
		{":1.1", "/org/freedesktop/systemd10", systemd + ".Manager", false},
		{":1.1", "/", systemd + ".Manager", false},
		{":1.2", "/org/freedesktop/NetworkManager/Devices/1", "x.y", true},
		{"", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", false}, // no owner, no sender
		{busName, busPath, busName, true},
		{busName, systemdPath, systemd + ".Manager", false},
		{":1.1", busPath, busName, false},
		{"", busPath, busName, false},
	} {
		if got := o.trusted(tc.sender, tc.path, tc.iface); got != tc.want {
			t.Errorf("%s from %q at %s: %v", tc.iface, tc.sender, tc.path, got)
		}
	}
}

// A program at the other end of a socket is trusted: its signals have no sender.
func TestPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	testkit.NoError(t, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		in := bufio.NewReader(conn)
		for _, answer := range []string{"REJECTED EXTERNAL\r\n", "OK 0\r\n", ""} {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			_, _ = io.WriteString(conn, answer)
		}
		if _, err := in.ReadByte(); err != nil { // of a call: the signals are wanted now
			return
		}
		r := &bustest.Raw{Conn: conn}
		_, _ = conn.Write(r.Frame(dbus.TypeSignal, 0, "", systemdPath, systemd+".Manager", "Reloading", "", nil))
	}()
	c, err := Peer(t.Context(), path)
	testkit.NoError(t, err)
	defer c.Close()
	sigs := make(chan *dbus.Signal, 1)
	c.Signal(sigs)
	if !c.IsPeer() {
		t.Error("taken for a bus")
	}
	c.Object(systemd, systemdPath).Go(systemd+".Manager.Subscribe", dbus.FlagNoReplyExpected, nil)
	select {
	case s := <-sigs:
		if s.Name != systemd+".Manager.Reloading" {
			t.Error(s.Name)
		}
	case <-time.After(10 * time.Second):
		t.Error("the signal did not come")
	}
}

func TestSocketPath(t *testing.T) {
	for addr, want := range map[string]string{
		"unix:path=/run/dbus/system_bus_socket":  "/run/dbus/system_bus_socket",
		"unix:path=/tmp/a%20b,guid=0123":         "/tmp/a b",
		"unix:guid=0123,abstract=/tmp/x":         "@/tmp/x",
		"tcp:host=localhost,port=1":              "only unix: is supported",
		"unix:tmpdir=/tmp":                       "path= and abstract= are missing",
		"unix:path=":                             "is not a name",
		"unixexec:path=/bin/sh,argv1=-c":         "only unix: is supported",
		"unix:path=%zz":                          "is not a name",
		"unix:path=/run/dbus/system_bus_socket,": "/run/dbus/system_bus_socket",
	} {
		got, err := socketPath(addr)
		if err != nil {
			got = err.Error()
		}
		if got != want && !(err != nil && strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Join(ctx, Config{Address: "unix:path=/nonexistent/1;unix:path=/nonexistent/2"}); err == nil ||
		!strings.Contains(err.Error(), "/nonexistent/1") && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A bus that reads now and then keeps a connection from writing for maxStall
// altogether; one that is quick, or slow once, does not end it.
func TestStall(t *testing.T) {
	now := time.Unix(1000, 0)
	left := func(writes, took, idle time.Duration) time.Duration {
		var s stall
		at := now
		for range writes {
			d := s.deadline(0, at)
			if d.Sub(at) <= took {
				return 0
			}
			s.wrote(0, at, at.Add(took))
			at = at.Add(took + idle)
		}
		return s.deadline(0, at).Sub(at)
	}
	for _, tc := range []struct {
		writes, took, idle time.Duration
		ends               bool
	}{
		{1, 6 * time.Second, 0, true},
		{10, time.Second, 0, true},             // one message a second is read
		{100, 100 * time.Millisecond, 0, true}, // and ten
		{10, time.Second, time.Second, false},
		{100_000, time.Millisecond, 0, false},
		{1000, 49 * time.Millisecond, 0, false},
	} {
		if got := left(tc.writes, tc.took, tc.idle) == 0; got != tc.ends {
			t.Errorf("%d writes of %v, %v apart: the connection ends: %v", tc.writes, tc.took, tc.idle, got)
		}
	}
	var s stall
	// One that is long because of its size does not count.
	for at := now; at.Before(now.Add(10 * time.Second)); at = at.Add(time.Second) {
		s.wrote(10<<20, at, at.Add(time.Second))
	}
	// Nor does one during which the process was stopped.
	s.wrote(0, now, now.Add(time.Minute))
	if at := now.Add(time.Minute); s.deadline(0, at).Sub(at) != maxStall {
		t.Errorf("%v are left after SIGSTOP, want %v", s.deadline(0, at).Sub(at), maxStall)
	}
}

// A member that does not read its answers keeps the bus from reading this side's.
// The connection ends within maxStall, and a new one is answered at once.
func TestMemberThatDoesNotRead(t *testing.T) {
	if testing.Short() {
		t.Skip("takes maxStall")
	}
	b := bustest.Start(t)
	conn := join(t, b, Config{})
	b.Raw()
	other := b.Dial()
	var deaf []string
	for len(deaf) == 0 { // until it has a name
		deaf = b.Members(other, conn.Names()[0])
	}
	// The distribution's bus keeps 127 MB for those that do not read.
	go func() {
		big := dbus.MakeVariant(strings.Repeat("x", 1<<20))
		for range 200 {
			conn.Send(bustest.Message(dbus.TypeSignal, deaf[0], "/x", "a.b", "C", big), nil)
		}
	}()
	start := time.Now()
	const limit = 2 * time.Minute // 127 MB take a while on a busy machine
	select {
	case <-conn.Context().Done():
		t.Logf("the connection ends after %v", time.Since(start).Round(time.Millisecond))
	case <-time.After(limit):
		t.Fatalf("it still waits for the bus after %v", limit)
	}
	var id string
	if err := join(t, b, Config{}).BusObject().Call(busName+".GetId", 0).Store(&id); err != nil {
		t.Error(err)
	}
}

// stream is a connection that has this to read.
type stream struct {
	net.Conn
	io.Reader
	written int
}

func (s *stream) Read(p []byte) (int, error)       { return s.Reader.Read(p) }
func (s *stream) Write(p []byte) (int, error)      { s.written += len(p); return len(p), nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

type noHandler struct{ dbus.Handler }

// godbus can decode whatever of the bus' traffic passes the filter: calls with
// strings, believed signals and answers.
func FuzzRead(f *testing.F) {
	r := &bustest.Raw{}
	text := binary.LittleEndian.AppendUint32(nil, 1)
	text = append(text, 'x', 0)
	f.Add(r.Frame(dbus.TypeMethodCall, 0, "org.x", "/x", "a.b", "C", "s", text))
	f.Add(r.Frame(dbus.TypeMethodCall, 0, "org.x", "/x", "a.b", "C", "sv", append(text[:6:6], 1, 's', 0, 0, 0, 0, 1, 0, 0, 0, 'y', 0)))
	f.Add(r.Frame(dbus.TypeMethodCall, 0, "org.x", "/x", "a.b", "C", "a{bs}", []byte{10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 'x', 0}))
	f.Add(r.Frame(dbus.TypeMethodCall, 0, "org.x", "/x", "org.freedesktop.DBus.Peer", "Ping", "", nil))
	f.Add(append(r.Frame(dbus.TypeSignal, 0, "", "/x", "a.b", "C", "ah", []byte{4, 0, 0, 0, 0, 0, 0, 0}),
		r.Frame(dbus.TypeMethodCall, 1, "", "/y", "", "D", "", nil)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		s := &socket{conn: &stream{Reader: bytes.NewReader(in)}, cfg: Config{Handler: noHandler{}}, owners: owners{systemd: ":1.1"},
			reported: map[string]bool{}}
		s.framed.Store(true)
		var err error
		if s.godbus, err = dbus.NewConn(s); err != nil {
			t.Fatal(err)
		}
		s.in = bufio.NewReaderSize(s.conn, maxHeader+maxArgs)
		out, err := io.ReadAll(s)
		if len(out) > len(in) {
			t.Fatalf("%d bytes come out of %d", len(out), len(in))
		}
		left := bytes.NewReader(out)
		for left.Len() > 0 {
			before := left.Len()
			m, derr := dbus.DecodeMessage(left)
			var invalid dbus.InvalidMessageError
			switch {
			case errors.As(derr, &invalid): // is passed over by godbus
			case derr != nil && err != nil && left.Len() == 0: // cut off
			case derr != nil && (m == nil || m.Type != dbus.TypeMethodCall) && !isCall(out[len(out)-before:]):
				return // an answer of the bus' own, or of a name that is believed
			case derr != nil:
				t.Fatalf("a call that cannot be decoded: %v", derr)
			case m.Type == dbus.TypeMethodCall:
				for _, a := range m.Body {
					if v, ok := a.(dbus.Variant); ok {
						a = v.Value()
					}
					if _, ok := a.(string); !ok {
						t.Fatalf("an argument is %T", a)
					}
				}
			}
		}
	})
}

func isCall(b []byte) bool { return len(b) > 1 && b[1] == byte(dbus.TypeMethodCall) }
