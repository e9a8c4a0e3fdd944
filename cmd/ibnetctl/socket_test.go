package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/daemon/control"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/smctl"
)

// Without a bus the daemon is called on its socket: values, and errors with the exit
// status that they have on the bus.
func TestCallSocket(t *testing.T) {
	noBus := errors.New("no bus")
	socket := filepath.Join(t.TempDir(), api.ControlSocket)
	if _, err := connectSocket(socket, noBus); err == nil || !errors.Is(err, noBus) {
		t.Errorf("without a daemon: %v", err)
	}
	s := control.New(slog.New(slog.DiscardHandler), socket, func(_ context.Context, _ uint32, c api.ControlCall) api.ControlAnswer {
		switch {
		case c.Method == "Renew" && len(c.Arguments) == 1 && c.Arguments[0] == "ib0", c.Method == "Reload":
			return api.ControlAnswer{}
		case c.Method == "Renew":
			return api.ControlAnswer{Error: api.ErrNoSuchLink, Text: "there is no link"}
		}
		return api.ControlAnswer{Values: []string{strings.Join(append([]string{c.Interface, c.Method}, c.Arguments...), " ")}}
	})
	testkit.Run(t, s.Run)
	var c *client
	for end := time.Now().Add(30 * time.Second); c == nil; {
		var err error
		if c, err = connectSocket(socket, noBus); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer c.close()
	if err := c.call(t.Context(), "Reload", nil); err != nil {
		t.Error(err)
	}
	var exit *exitError
	err := c.each(t.Context(), "Renew", []string{"ib0", "ib7"}, nil)
	if !errors.As(err, &exit) || exit.code != exitNoSuch || err.Error() != "there is no link" {
		t.Errorf("got %v", err)
	}
	var level dbus.Variant
	if err := c.callOn(t.Context(), api.Root, "org.freedesktop.DBus.Properties.Get", []any{&level}, api.Manager, "LogLevel"); err != nil {
		t.Error(err)
	}
	if want := "org.freedesktop.DBus.Properties Get " + api.Manager + " LogLevel"; level.Value() != want {
		t.Errorf("%v, want %q", level, want)
	}
	if err := c.call(t.Context(), "Describe", nil); err == nil || !strings.Contains(err.Error(), "1 values, 0 are expected") {
		t.Errorf("got %v", err)
	}
}

// Without a bus the daemon's report has no subnet managers: their state is unknown, not
// that no port is managed.
func TestManagersThatAreNotReported(t *testing.T) {
	got := unreported([]link.PortStatus{{IBDevice: "mlx5_0", Port: 1, LinkLayer: "InfiniBand", PortGUID: "0x1"},
		{IBDevice: "mlx5_1", Port: 1, LinkLayer: "Ethernet"}}, "no bus")
	want := smctl.Status{IBDevice: "mlx5_0", Port: 1, PortGUID: "0x1", Phase: phaseUnknown, Reason: "no bus"}
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
}
