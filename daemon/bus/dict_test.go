package bus

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/link"
)

// A lease and a GID index that change are signals, with what the JSON form of the status has.
func TestSignalsOfLeaseAndGIDIndex(t *testing.T) {
	b := startBus(t)
	s, _ := serve(t, b, nil)
	c := b.Dial()
	if err := c.AddMatchSignal(dbus.WithMatchPathNamespace(api.Root + "/link")); err != nil {
		t.Fatal(err)
	}
	ch := make(chan *dbus.Signal, 100)
	c.Signal(ch)
	changed := func(l link.Status, want string) (v map[string]dbus.Variant) {
		t.Helper()
		s.PublishLinks([]link.Status{l}, nil)
		select {
		case g := <-ch:
			v, _ = g.Body[1].(map[string]dbus.Variant)
			if got := fmt.Sprint(slices.Sorted(maps.Keys(v))); got != want || g.Name != "org.freedesktop.DBus.Properties.PropertiesChanged" {
				t.Errorf("%s: %s, want %s", g.Name, got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no signal")
		}
		return v
	}
	l := ib0()
	l.DHCP = &link.DHCP{State: link.DHCPBound, Drops: link.DHCPDrops{Foreign: 3}, Lease: &link.Lease{
		Address: netip.MustParsePrefix("10.0.0.7/24"), Server: netip.MustParseAddr("10.0.0.1"), Gateway: netip.MustParseAddr("10.0.0.254"),
		Routes: []link.LeaseRoute{{Dst: netip.MustParsePrefix("10.9.0.0/16"), Gateway: netip.MustParseAddr("10.0.0.9")}},
		DNS:    []netip.Addr{netip.MustParseAddr("10.0.0.53")}, NTP: []netip.Addr{netip.MustParseAddr("10.0.0.123")},
		Search: []string{"a.example", "b\xff.example"}, Lifetime: 3600, Granted: 77}}
	l.DHCP6 = &link.DHCP{State: link.DHCPBound, Lease: &link.Lease{Server: netip.MustParseAddr("fe80::1"), Lifetime: link.Forever}}
	v := changed(l, "[DHCP Lease Lease6]")
	if got := fmt.Sprint(v["Lease"].Value()); got != "[bound 10.0.0.7/24 10.0.0.1 3600 77]" {
		t.Errorf("Lease is %s", got)
	}
	if got := fmt.Sprint(v["Lease6"].Value()); got != "[bound  fe80::1 4294967295 0]" {
		t.Errorf("Lease6 is %s", got)
	}
	at := func(keys ...string) (out any) {
		d := v["DHCP"]
		for _, k := range keys {
			m, _ := d.Value().(map[string]dbus.Variant)
			d = m[k]
		}
		return d.Value()
	}
	for want, keys := range map[string][]string{
		"bound": {"ipv4", "state"}, "10.0.0.254": {"ipv4", "lease", "gateway"}, "[10.0.0.53]": {"ipv4", "lease", "dns"},
		"[10.0.0.123]": {"ipv4", "lease", "ntp"}, "[a.example b\ufffd.example]": {"ipv4", "lease", "search"},
		`[map[dst:"10.9.0.0/16" gateway:"10.0.0.9"]]`: {"ipv4", "lease", "routes"}, "3": {"ipv4", "drops", "foreign"},
		"3600": {"ipv4", "lease", "lifetime"}, "fe80::1": {"ipv6", "lease", "server"},
	} {
		if got := fmt.Sprint(at(keys...)); got != want {
			t.Errorf("%v is %s, want %s", keys, got, want)
		}
	}
	l.Probes = []link.Probe{{Address: netip.MustParseAddr("10.0.0.7"), State: link.ProbeConflict, LinkLocal: true}}
	v = changed(l, "[IPv4Probes]")
	if got := fmt.Sprint(v["IPv4Probes"].Value()); got != `[map[address:"10.0.0.7" link_local:true state:"conflict"]]` {
		t.Errorf("IPv4Probes is %s", got)
	}
	index := func(n string) { l.Attributes = []link.Attribute{{Name: "GIDIndexIPv4", Actual: n}} }
	index("3")
	changed(l, "[GIDIndex MTUBytes MTUBytesReason MTUBytesWanted Mode ModeWanted Settings]")
	index("5")
	if v = changed(l, "[GIDIndex Settings]"); v["GIDIndex"].Value() != int32(5) {
		t.Errorf("GIDIndex is %v", v["GIDIndex"])
	}
}
