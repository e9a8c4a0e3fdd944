package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// A port without a cable is read each second for a minute, then less often,
// and each second again when something happens.
func TestUnpluggedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys, n := system(t, 2), &notes{}
		sys.change(func(s *link.Snapshot) {
			p := &s.Devices[1].Ports[0]
			p.State, p.Phys, p.LID, p.SMLID = ib.PortDown, ib.PhysPolling, 0, 0
		})
		r := launch(t, sys, n, map[string]string{"10.ibnetwork": "[Match]\nName=ib*\n"})
		defer r.stop()
		looks := func(d time.Duration) int {
			before := sys.looked()
			time.Sleep(d)
			synctest.Wait()
			return sys.looked() - before
		}
		if n := looks(50 * time.Second); n < 45 {
			t.Errorf("%d looks in the first 50 s", n)
		}
		looks(20 * time.Second)
		if n := looks(10 * time.Minute); n < 55 || n > 65 {
			t.Errorf("%d looks in ten minutes in which nothing happens", n)
		}
		r.Wake(Scope{Reload: true})
		if n := looks(30 * time.Second); n < 25 {
			t.Errorf("%d looks in the 30 s after an event", n)
		}
		looks(2 * time.Minute)
		// The cable is plugged in: a change that no event reports.
		sys.change(func(s *link.Snapshot) {
			p := &s.Devices[1].Ports[0]
			p.State, p.Phys = ib.PortInit, ib.PhysLinkUp
		})
		looks(10 * time.Second)
		if got := r.link("ib1").Reason().Code; got != link.CodeNoSM {
			t.Errorf("10 s after the cable: %q", got)
		}
		if n := looks(30 * time.Second); n < 25 {
			t.Errorf("%d looks in the 30 s after the cable", n)
		}
	})
}
