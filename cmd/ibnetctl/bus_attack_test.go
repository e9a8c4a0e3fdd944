package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/busconn/bustest"
)

// An ibnetctl that is on the bus lives whatever it is sent.
func TestHostileMember(t *testing.T) {
	b := bustest.Start(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", b.Addr)
	c, err := dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	attacker := b.Dial()
	before := bustest.Descriptors(t)
	b.Send(attacker, c.conn.Names()[0], api.Root, api.Manager, "PropertiesChanged")
	if n := bustest.Descriptors(t); n > before {
		t.Errorf("%d descriptors, %d before", n, before)
	}
	var owned bool
	if err := c.conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, api.BusName).Store(&owned); err != nil || owned {
		t.Errorf("%v %v", owned, err)
	}
}

// A daemon that has too many requests is called again a few times, any other
// refusal is final.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := dbus.Error{Name: "org.freedesktop.DBus.Error.LimitsExceeded"}
		for _, tc := range []struct {
			errs  []error
			calls int
			err   error
		}{
			{[]error{nil}, 1, nil},
			{[]error{limits, limits, nil}, 3, nil},
			{[]error{limits, limits, limits, limits, limits, limits}, 5, limits},
			{[]error{errNotRunning, nil}, 1, errNotRunning},
		} {
			calls, start := 0, time.Now()
			err := retry(t.Context(), func() error { calls++; return tc.errs[calls-1] })
			if calls != tc.calls || fmt.Sprint(err) != fmt.Sprint(tc.err) || time.Since(start) > 2*time.Second {
				t.Errorf("%v: %d calls in %v, %v", tc.errs, calls, time.Since(start), err)
			}
		}
	})
}
