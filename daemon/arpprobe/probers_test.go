package arpprobe

import (
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/link"
	"ibnetworkd/link/arp"
	"ibnetworkd/units"
)

// Which addresses are probed: those of links that the unit is applied to, on IPoIB and
// Ethernet.
func TestWants(t *testing.T) {
	set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{"a.ibnetwork": {
		Data: []byte("[Match]\nName=*\n[Network]\nDuplicateAddressDetection=ipv4\nAddress=10.0.0.1/24\nAddress=fd00::1/64\n")}}}})
	hw := ib.MustParseHWAddr("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d1")
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
			if ok && (!w.carrier || w.downs != 4 || !w.has(about) || w.cfg.HWAddr != hw || w.name != "ib0") {
				t.Errorf("%+v", w)
			}
		})
	}
}

// A leased address is probed where the unit has SendDecline=yes.
func TestWantsLeased(t *testing.T) {
	about := netip.MustParseAddr("10.0.0.7")
	for text, want := range map[string]bool{"": false, "[DHCPv4]\nSendDecline=yes\n": true} {
		set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{"a.ibnetwork": {
			Data: []byte("[Match]\nName=*\n[Network]\nDHCP=ipv4\n" + text)}}}})
		s := &link.Snapshot{Links: []link.Link{{Index: 2, Name: "eth0", Type: 1, Flags: link.FlagUp | link.FlagLowerUp,
			DHCP: &link.DHCP{State: link.DHCPBound, Lease: &link.Lease{Address: netip.PrefixFrom(about, 24)}}}}}
		got := wants(daemon.View{Snapshot: s, Units: set, Governing: link.Governing{Links: map[int]link.Governed{2: {Unit: set.Units[0]}}}})
		if w, ok := got[place{2, about}]; ok != want || ok && !w.cfg.Leased {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// A bond whose active slave changes has another hardware address: probes of a leased address
// that are under way do not end with that.
func TestFailoverWhileProbing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("packet sockets need CAP_NET_RAW")
	}
	p := New(slog.New(slog.DiscardHandler), packet.Opener("/nonexistent"), func(map[int]bool) {})
	defer p.close()
	at := place{1, netip.MustParseAddr("10.0.0.1")}
	step := func(mac string, downs uint32, want link.ProbeState) {
		t.Helper()
		p.want = map[place]wanted{at: {name: "lo", carrier: true, downs: downs,
			cfg: arp.Config{HType: 1, HWAddr: ib.MustParseHWAddr(mac), Leased: true}}}
		p.reconcile()
		if v := p.views[at]; v.State != want {
			t.Errorf("%s after %d losses of the carrier: %+v, want %s", mac, downs, v, want)
		}
	}
	step("02:00:00:00:00:01", 0, link.ProbeFree) // the DHCP client has probed it
	step("02:00:00:00:00:02", 0, link.ProbeFree)
	step("02:00:00:00:00:02", 1, link.ProbeProbing)
	step("02:00:00:00:00:01", 1, link.ProbeProbing)
}

// A link-local address that another host uses gives way to another one, ten times at once.
func TestLinkLocalConflicts(t *testing.T) {
	hw := ib.MustParseHWAddr("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d1")
	other := ib.MustParseHWAddr("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d9")
	p := New(slog.New(slog.DiscardHandler), packet.Opener("/nonexistent"), func(map[int]bool) {})
	at := place{index: 1 << 30}
	p.want = map[place]wanted{at: {name: "ib9", carrier: true, cfg: arp.Config{HType: 32, HWAddr: hw}}}
	p.reconcile()
	seen := map[netip.Addr]bool{}
	for range 20 {
		x := p.probers[at]
		a := p.views[at].Address
		seen[a] = true
		if !p.views[at].LinkLocal || a != arp.LinkLocal(hw, x.tries) || !a.IsLinkLocalUnicast() {
			t.Fatalf("%+v", p.views[at])
		}
		x.m.Link(p.now(), true, 0, false)
		p.after(x, x.m.ARP(p.now(), arp.Packet{Op: arp.Reply, From: other, Sender: a, Target: netip.IPv4Unspecified()}.Encode(32), x.own))
	}
	if len(seen) != arp.MaxConflicts+1 {
		t.Errorf("%d addresses", len(seen))
	}
}

// Without packet sockets the status says so, and no address counts as free; when they come,
// probes are sent.
func TestNoSockets(t *testing.T) {
	mac := ib.MustParseHWAddr("02:00:00:00:00:01")
	var woken int
	p := New(slog.New(slog.DiscardHandler), packet.Opener("/nonexistent"), func(map[int]bool) { woken++ })
	defer p.close()
	about := netip.MustParseAddr("10.0.0.1")
	want := wanted{name: "lo", carrier: true, cfg: arp.Config{HType: 1, HWAddr: mac}}
	at := place{1 << 30, about} // no such link
	p.want = map[place]wanted{at: want}
	p.reconcile()
	if v := p.views[at]; v.Trouble == "" || v.State != link.ProbeStopped || woken != 1 || p.probers[at].m.Deadline() != 0 {
		t.Errorf("%+v, woken %d times", v, woken)
	}
	p.reconcile()
	if woken != 1 {
		t.Error("the same again wakes the loop")
	}
	lo := place{1, about}
	p.want = map[place]wanted{lo: want}
	p.reconcile()
	if _, ok := p.views[at]; ok || len(p.probers) != 1 {
		t.Errorf("%+v, %+v", p.views, p.probers)
	}
	if os.Getuid() != 0 {
		t.Skip("packet sockets need CAP_NET_RAW")
	}
	probes := func(when string) {
		t.Helper()
		if v := p.views[lo]; v.Trouble != "" || v.State != link.ProbeProbing || p.probers[lo].m.Deadline() == 0 {
			t.Errorf("%s: %+v", when, v)
		}
	}
	probes("the sockets are open")
	p.receive(packet.Event{From: p.probers[lo].listener, Err: unix.ENETDOWN})
	if v := p.views[lo]; v.State != link.ProbeStopped || p.probers[lo].m.Deadline() != 0 {
		t.Errorf("the socket ended: %+v", v)
	}
	p.reconcile()
	probes("the socket is open again")
}
