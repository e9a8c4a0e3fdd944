package daemon

import (
	"strings"
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
		// The journal names the other reason of the same state.
		if log := r.log.String(); !strings.Contains(log, "ib1: still configuring/no-carrier: port mlx5_001/1 is Initializing") ||
			strings.Contains(log, "configuring/no-carrier -> configuring/no-carrier") {
			t.Errorf("the log says\n%s", log)
		}
	})
}

// During a takeover the ports of one fabric have the SM LIDs of two managers: that
// they are on two fabrics is reported only when it lasts, and at once of a LID on both.
func TestTakeoverIsOneFabric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := system(t, 2)
		r := launch(t, sys, &notes{}, map[string]string{"10.ibnetwork": "[Match]\nName=ib*\n"})
		defer r.stop()
		set := func(lid, sm ib.LID) {
			sys.change(func(s *link.Snapshot) {
				for i := range s.Devices {
					p := &s.Devices[i].Ports[0]
					p.SubnetPrefix, p.LID, p.SMLID = 0xfe80<<48, ib.LID(i+1), 1
				}
				p := &s.Devices[1].Ports[0]
				p.LID, p.SMLID = lid, sm
			})
			r.Wake(Scope{RDMA: true})
		}
		for _, step := range []struct {
			lid, sm ib.LID
			wait    time.Duration
			want    int
		}{{2, 1, time.Second, 0}, {2, 2, 20 * time.Second, 0}, {2, 1, 20 * time.Second, 0}, {2, 2, 20 * time.Second, 0},
			{2, 2, 11 * time.Second, 1}, {2, 1, time.Second, 0}, {1, 1, time.Second, 1}} {
			set(step.lid, step.sm)
			time.Sleep(step.wait)
			synctest.Wait()
			if got := r.Report().Notices; len(got) != step.want {
				t.Errorf("LID %d, SM LID %d for %v: %v", step.lid, step.sm, step.wait, got)
			}
		}
		// It needs no event.
		set(2, 2)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if got := r.Report().Notices; len(got) != 1 {
			t.Errorf("after 31 s: %v", got)
		}
	})
}
