package daemon

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// lateCarrier is a host with an IPoIB link ib0, or an Ethernet link of that name and a bond. The link is up with
// carrier. When it is brought up, its carrier and the state of an Ethernet port come late, with an event.
func lateCarrier(t *testing.T, ethernet bool, late time.Duration) *memory {
	sys := system(t, 1)
	var events sync.WaitGroup
	t.Cleanup(events.Wait)
	sys.change(func(s *link.Snapshot) {
		l := &s.Links[0]
		l.Flags |= link.FlagUp | link.FlagLowerUp
		if !ethernet {
			return
		}
		s.Devices[0].Ports[0].Layer = ib.LinkLayerEthernet
		l.Type, l.Kind, l.IPoIB, l.MTU, l.MaxMTU, l.HWAddr = 1, "", nil, 1500, 9000, ib.MustParseHWAddr("02:00:00:00:00:01")
		s.Links = append(s.Links, link.Link{Index: 11, Name: "bond0", Type: 1, Kind: "bond", Flags: link.FlagUp, MTU: 1500, MaxMTU: 9000,
			Bond: &link.Bond{BondOptions: link.BondOptions{Mode: 1, MIIMon: 100}}, Sysctl: map[string]string{}})
	})
	carrier := func(on bool) {
		sys.change(func(s *link.Snapshot) {
			state := ib.PortDown
			s.Links[0].Flags &^= link.FlagLowerUp
			if on {
				s.Links[0].Flags |= link.FlagLowerUp
				state = ib.PortActive
			}
			if ethernet {
				s.Devices[0].Ports[0].State = state
			}
		})
	}
	sys.after = func(op link.Op) {
		o, ok := op.(link.SetUp)
		if !ok || o.Target().Link != "ib0" {
			return
		}
		if carrier(false); o.Up {
			events.Go(func() {
				time.Sleep(late)
				carrier(true)
				sys.wake(Scope{Links: map[int]bool{10: true}, RDMA: true})
			})
		}
	}
	return sys
}

// The kernel refuses a slave, or a GUID, for which the daemon took the link down. That the link is
// as before after it was brought up is no reason to try again.
func TestOwnEcho(t *testing.T) {
	master := func(op link.Op) bool { _, ok := op.(link.SetMaster); return ok }
	guid := func(op link.Op) bool { _, ok := op.(link.SetGUID); return ok }
	const bond = "[Match]\nName=ib0\n[Network]\nBond=bond0\n"
	for _, tt := range []struct {
		ethernet bool
		unit     string
		op       func(link.Op) bool
		errno    unix.Errno
		most     int // in a minute
	}{
		{true, bond, master, unix.EPERM, 8},
		{true, bond, master, unix.EINVAL, 2},
		{true, bond, master, unix.EBUSY, 2},
		{false, "[Match]\nName=ib0\n[Link]\nGUID=0x2\n", guid, unix.EINVAL, 2},
		{false, "[Match]\nName=ib0\n[Link]\nGUID=0x2\n", guid, unix.EBUSY, 8},
	} {
		for _, late := range []time.Duration{50 * time.Millisecond, time.Second, 5 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				sys := lateCarrier(t, tt.ethernet, late)
				tries := 0
				sys.fail = func(op link.Op) error {
					if tt.op(op) {
						tries++
						return tt.errno
					}
					return nil
				}
				count := func() int {
					synctest.Wait()
					sys.mu.Lock()
					defer sys.mu.Unlock()
					return tries
				}
				r := launch(t, sys, &notes{}, map[string]string{"10.ibnetwork": tt.unit})
				defer r.stop()
				time.Sleep(time.Minute)
				n := count()
				if n < 2 || n > tt.most {
					t.Errorf("%v, carrier after %v: %d tries in a minute, want at most %d", tt.errno, late, n, tt.most)
				}
				if down := strings.Count(strings.Join(sys.take(), "\n"), "ib0 down"); down != n {
					t.Errorf("taken down %d times for %d tries", down, n)
				}
				// What another program changes is one.
				sys.change(func(s *link.Snapshot) { s.Links[0].IBDevice = "other" })
				r.Wake(Scope{Links: map[int]bool{10: true}})
				time.Sleep(500 * time.Millisecond)
				if again := count() - n; again != 1 {
					t.Errorf("%v, carrier after %v: %d tries after a change, want 1", tt.errno, late, again)
				}
			})
		}
	}
}

// An operation that fails whenever an event brings it about is tried less and less often, and at once
// again after a pause of half an hour.
func TestEventsPace(t *testing.T) {
	h, now := newDelays(), time.Unix(0, 0)
	op := link.SetMTU{On: link.Target{Link: "eth0"}, MTU: 9000}
	tries := 0
	for i := range 600 * 100 {
		if len(h.m) == 0 {
			h.add(op, link.Reason{}, true, linkState{index: 10}, now)
			h.begin()
			tries++
		}
		now = now.Add(10 * time.Millisecond)
		h.changed(map[string]linkState{"eth0": {index: 11 + i}}, now)
		h.due(now)
	}
	if tries < 10 || tries > 15 {
		t.Errorf("%d tries in ten minutes of events", tries)
	}
	now = now.Add(2 * refuseMost)
	h.due(now)
	h.add(op, link.Reason{}, true, linkState{index: 10}, now)
	h.add(link.SetMTU{On: link.Target{Link: "eth1"}, MTU: 9000}, link.Reason{}, true, linkState{index: 12}, now)
	h.ports(map[string]bool{"eth0": true}, now)
	if len(h.m) != 1 {
		t.Errorf("%d operations are delayed, want that of the other link alone", len(h.m))
	}
}
