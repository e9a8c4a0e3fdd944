package arp

import (
	"net/netip"
	"testing"
	"time"

	"ibnetworkd/ib"
)

// An address is announced twice once the link has a carrier, and never if peers know it.
func TestAnnouncer(t *testing.T) {
	about := netip.MustParseAddr("10.0.0.1")
	hw := ib.MustParseHWAddr("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:d1")
	for _, known := range []bool{false, true} {
		a := NewAnnouncer(Config{HType: 32, HWAddr: hw}, about, known)
		var sent []time.Duration
		for now := time.Duration(1); now < time.Duration(20*time.Second); now += time.Second / 2 {
			a.Link(now, now > 3*time.Second && now < 4*time.Second || now > 8*time.Second)
			for _, b := range a.Tick(now) {
				p, ok := Parse(b, 20)
				if !ok || p.Op != Request || p.From != hw || p.Sender != about || p.Target != about {
					t.Fatalf("%+v", p)
				}
				sent = append(sent, now.Truncate(time.Second/2))
			}
		}
		switch {
		case known && len(sent) > 0:
			t.Errorf("known: %v", sent)
		case !known && (len(sent) != AnnounceNum || sent[0] != 3*time.Second || sent[1] != 8*time.Second):
			t.Errorf("%v", sent) // the carrier was lost between
		case a.Deadline() != 0:
			t.Errorf("something is due at %v", a.Deadline())
		}
	}
}
