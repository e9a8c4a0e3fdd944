package arpprobe

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/fstest"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/packet"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Which addresses are announced: all IPv4 ones of IPoIB links that the unit is applied to,
// those of Ethernet links that were probed, none that the daemon found or of a slave.
func TestAnnounces(t *testing.T) {
	hw := func(s string) ib.HWAddr {
		return ib.MustParseHWAddr(s + ":00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d1")
	}
	load := func(text string) *units.Set {
		return units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{"a.ibnetwork": {Data: []byte(text)}}}})
	}
	const unit = "[Match]\nName=*\n[Network]\nAddress=10.0.0.1/24\n"
	for name, tt := range map[string]struct {
		unit   string
		change func(*link.Link)
		want   int
	}{
		"IPoIB":            {unit, func(*link.Link) {}, 2},
		"Ethernet":         {unit, func(l *link.Link) { l.Type = 1 }, 0},
		"probed, Ethernet": {unit + "DuplicateAddressDetection=ipv4\n", func(l *link.Link) { l.Type = 1 }, 1},
		"link-local, Ethernet": {unit + "LinkLocalAddressing=ipv4\n", func(l *link.Link) {
			l.Type = 1
			l.Addresses[1] = link.Address{Prefix: netip.MustParsePrefix("169.254.7.7/16"), Scope: link.ScopeLink}
		}, 1},
		"leased, Ethernet": {unit, func(l *link.Link) {
			l.Type, l.DHCP = 1, &link.DHCP{Lease: &link.Lease{Address: l.Addresses[1].Prefix}}
		}, 1},
		"a slave":   {unit, func(l *link.Link) { l.Master = 7 }, 0},
		"in a VRF":  {unit, func(l *link.Link) { l.Master, l.SlaveKind = 7, link.KindVRF }, 2},
		"probed":    {unit + "DuplicateAddressDetection=ipv4\n", func(*link.Link) {}, 2},
		"unmanaged": {unit, func(l *link.Link) { l.OtherManagers = []string{"NetworkManager"} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := load(tt.unit)
			s := &link.Snapshot{Links: []link.Link{{Index: 1 << 30, Name: "ib0", Type: link.ARPHRDInfiniBand, HWAddr: hw("80"),
				Flags: link.FlagUp | link.FlagLowerUp, Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/24")},
					{Prefix: netip.MustParsePrefix("10.0.9.1/24")}, {Prefix: netip.MustParsePrefix("fd00::1/64")}}}}}
			tt.change(&s.Links[0])
			v := daemon.View{Snapshot: s, Units: set, Governing: link.Governing{Links: map[int]link.Governed{1 << 30: {Unit: set.Units[0]}}}}
			if got := announces(v, wants(v)); len(got) != tt.want {
				t.Fatalf("%+v", got)
			}
			p := New(slog.New(slog.DiscardHandler), packet.Opener("/nonexistent"), func(map[int]bool) {})
			defer p.close()
			p.Complete(s)
			due := func() (n int) {
				p.Update(v)
				p.reconcile()
				for _, x := range p.announcers {
					if x.m.Deadline() != 0 {
						n++
					}
				}
				return n
			}
			if n := due(); n != 0 {
				t.Errorf("%d addresses are announced that the link had at the start", n)
			}
			v.Snapshot = &link.Snapshot{Links: slices.Clone(s.Links)}
			v.Snapshot.Links[0].HWAddr = hw("81") // another queue pair
			if n := due(); n != tt.want {
				t.Errorf("%d addresses are announced with another hardware address, want %d", n, tt.want)
			}
		})
	}
}
