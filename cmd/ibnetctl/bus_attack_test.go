package main

import (
	"testing"

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
