package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/internal/busconn/bustest"
)

// The connection to systemd lives whatever it is sent, and a job's end that
// another than systemd reports is not believed.
func TestHostileMember(t *testing.T) {
	b := startBus(t)
	c := b.Dial()
	hold := make(chan struct{})
	f := b.systemd()
	s := NewSystemd(b.addr, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	defer func() { cancel(); <-done }()
	next(t, s.Changes())
	conn, err := s.connection()
	if err != nil {
		t.Fatal(err)
	}
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
		n := len(s.jobs[unit])
		s.mu.Unlock()
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.Send(bustest.Message(dbus.TypeSignal, dest, systemdPath, managerIf, "JobRemoved", uint32(1), dbus.ObjectPath("/"), unit, "spoofed by nobody"), nil)
	c.Send(bustest.Message(dbus.TypeSignal, dest, "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged", systemdName, "", c.Names()[0]), nil)
	if err := c.Object(dest, "/").Call("org.freedesktop.DBus.Peer.Ping", 0).Err; err != nil {
		t.Fatal(err)
	}
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
