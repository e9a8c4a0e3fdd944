package daemon

import (
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/internal/busconn"
	"ibnetworkd/internal/busconn/bustest"
)

// The connection that follows systemd-resolved lives whatever it is sent, and
// believes the bus only about resolved's owner.
func TestResolvedHostileMember(t *testing.T) {
	b := bustest.Start(t)
	c := b.Dial()
	conns := make(chan *busconn.Conn, 1)
	changes := make(chan struct{}, 100)
	r := &resolved{changed: func() { changes <- struct{}{} }, join: func() (*busconn.Conn, error) {
		conn, err := busconn.Join(t.Context(), busconn.Config{Address: b.Addr})
		if err == nil {
			conns <- conn
		}
		return conn, err
	}}
	defer func() { _ = r.close() }()
	if n := r.owner(true); n != "" {
		t.Fatalf("resolved is %q", n)
	}
	conn := <-conns
	dest := conn.Names()[0]
	before := bustest.Descriptors(t)
	b.Send(c, dest, "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged")
	if n := bustest.Descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	c.Send(bustest.Message(dbus.TypeSignal, dest, "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged", resolveName, "",
		c.Names()[0]), nil)
	c.Send(bustest.Message(dbus.TypeSignal, dest, resolvePath, resolveIface, "Any", "of", "three", "words"), nil)
	if err := c.Object(dest, "/").Call("org.freedesktop.DBus.Peer.Ping", 0).Err; err != nil {
		t.Fatal(err)
	}
	if n := r.owner(false); n != "" {
		t.Errorf("a forged signal makes %q resolved", n)
	}
	if _, err := c.RequestName(resolveName, 0); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); r.owner(false) != c.Names()[0]; {
		if time.Now().After(end) {
			t.Fatalf("resolved is %q, should be %q", r.owner(false), c.Names()[0])
		}
		time.Sleep(time.Millisecond)
	}
}
