package worker

import (
	"bufio"
	"context"
	"encoding/binary"
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

// The connection to systemd survives any message, and the end of a job is accepted
// from systemd alone.
func TestHostileMember(t *testing.T) {
	b := startBus(t)
	c := b.Dial()
	hold := make(chan struct{})
	f := b.systemd()
	s, ctx := b.client()
	next(t, s.Changes())
	conn, err := s.connection()
	testkit.NoError(t, err)
	dest := conn.Names()[0]
	before := bustest.Descriptors(t)
	b.Send(c, dest, systemdPath, managerIf, "JobRemoved")
	b.Send(c, dest, systemdPath, "org.freedesktop.DBus", "NameOwnerChanged")
	if n := bustest.Descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	const unit = "modprobe@zz_other.service"
	f.mu.Lock()
	f.start = func() { <-hold }
	f.mu.Unlock()
	loaded := make(chan error, 1)
	go func() { loaded <- s.LoadModule(ctx, "zz_other") }()
	for {
		s.mu.Lock()
		n := len(s.jobs)
		s.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.Send(bustest.Message(dbus.TypeSignal, dest, systemdPath, managerIf, "JobRemoved", uint32(1), dbus.ObjectPath("/"), unit,
		"spoofed by nobody"), nil)
	c.Send(bustest.Message(dbus.TypeSignal, dest, "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged",
		systemdName, "", c.Names()[0]), nil)
	testkit.NoError(t, c.Object(dest, "/").Call("org.freedesktop.DBus.Peer.Ping", 0).Err)
	close(hold)
	if err := <-loaded; err != nil {
		t.Errorf("a forged end of the job is believed: %v", err)
	}
	for len(s.Changes()) > 0 {
		if n := <-s.Changes(); strings.HasPrefix(n, "modprobe") {
			t.Errorf("changed: %q", n)
		}
	}
	if now, err := s.connection(); err != nil || now != conn {
		t.Errorf("the connection was lost: %v", err)
	}
}

// ownSocket stands in for systemd's private socket: it accepts every client and
// answers each call with an empty reply, and calls to a bus with an error.
func ownSocket(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "private")
	l, err := net.Listen("unix", path)
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, answer := range []string{"REJECTED EXTERNAL\r\n", "OK 0\r\n", ""} {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			_, _ = io.WriteString(conn, answer)
		}
		for {
			m, err := dbus.DecodeMessage(in)
			if err != nil {
				return
			}
			answer := dbus.Message{Type: dbus.TypeMethodReply,
				Headers: map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(m.Serial())}}
			if m.Headers[dbus.FieldDestination].Value() == "org.freedesktop.DBus" { // there is none here
				answer.Type, answer.Headers[dbus.FieldErrorName] = dbus.TypeError, dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownObject")
			}
			_ = answer.EncodeTo(conn, binary.LittleEndian)
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return path
}

// Without a bus systemd is reached by its own socket, and by the bus once there is one.
func TestOwnSocketUntilThereIsABus(t *testing.T) {
	b := startBus(t)
	b.Stop()
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", b.addr)
	s := NewSystemd("", nil)
	s.private = ownSocket(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	await := func(peer bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if conn, err := s.connection(); err == nil && conn.IsPeer() == peer {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("no connection with own socket: %v", peer)
			}
			select {
			case <-s.Changes():
			default:
			}
		}
	}
	await(true)
	if err := s.Stop(ctx, "ibnetsm@x.service"); err != nil {
		t.Error(err)
	}
	b.Start()
	await(false)
}
