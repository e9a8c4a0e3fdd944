package arpprobe

import (
	"log/slog"
	"net/netip"
	"testing"
	"testing/fstest"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Which addresses are probed: those of links that the unit is applied to, on IPoIB and
// Ethernet.
func TestWants(t *testing.T) {
	set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{"a.ibnetwork": {
		Data: []byte("[Match]\nName=*\n[Network]\nDuplicateAddressDetection=ipv4\nAddress=10.0.0.1/24\nAddress=fd00::1/64\n")}}}})
	hw, err := ib.ParseHWAddr("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d1")
	if err != nil {
		t.Fatal(err)
	}
	governed := link.Governing{Links: map[int]link.Governed{2: {Unit: set.Units[0]}}}
	about := netip.MustParseAddr("10.0.0.1")
	for name, tt := range map[string]struct {
		change func(*link.Link, *link.Snapshot)
		want   bool
	}{
		"IPoIB":        {func(*link.Link, *link.Snapshot) {}, true},
		"Ethernet":     {func(l *link.Link, _ *link.Snapshot) { l.Type = 1 }, true},
		"loopback":     {func(l *link.Link, _ *link.Snapshot) { l.Type = link.ARPHRDLoopback }, false},
		"no ARP":       {func(l *link.Link, _ *link.Snapshot) { l.Flags |= link.FlagNoARP }, false},
		"udev is busy": {func(_ *link.Link, s *link.Snapshot) { s.Host.Udev = true }, false},
		"managed":      {func(l *link.Link, _ *link.Snapshot) { l.OtherManagers = []string{"NetworkManager"} }, false},
		"no unit":      {func(l *link.Link, _ *link.Snapshot) { l.Index = 3 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &link.Snapshot{Links: []link.Link{{Index: 2, Name: "ib0", Type: link.ARPHRDInfiniBand, HWAddr: hw,
				Flags: link.FlagUp | link.FlagLowerUp, CarrierDowns: 4, Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/8")}}}}}
			tt.change(&s.Links[0], s)
			got := wants(daemon.View{Snapshot: s, Units: set, Governing: governed})
			w, ok := got[place{2, about}]
			if ok != tt.want || len(got) > 1 {
				t.Fatalf("%+v", got)
			}
			if ok && (!w.carrier || w.downs != 4 || !w.inUse || w.cfg.HWAddr != hw || w.name != "ib0") {
				t.Errorf("%+v", w)
			}
		})
	}
}

// Without packet sockets the status says so, and no address counts as free.
func TestNoSockets(t *testing.T) {
	var woken int
	p := New(slog.New(slog.DiscardHandler), packet.Opener("/nonexistent"), func(map[int]bool) { woken++ })
	at := place{1 << 30, netip.MustParseAddr("10.0.0.1")} // no such link
	p.want = map[place]wanted{at: {name: "ib9", carrier: true}}
	p.reconcile()
	x := p.probers[at]
	for i := 0; i < 10 && x.m.Deadline() != 0; i++ {
		p.after(x, x.m.Tick(x.m.Deadline()))
	}
	if v := p.views[at]; v.Trouble == "" || v.State != link.ProbeAsking || woken == 0 {
		t.Errorf("%+v, woken %d times", v, woken)
	}
	p.want = nil
	p.reconcile()
	if len(p.views)+len(p.probers) > 0 {
		t.Errorf("%+v, %+v", p.views, p.probers)
	}
}
