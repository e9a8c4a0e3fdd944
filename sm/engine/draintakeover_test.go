package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
)

// A takeover keeps switches drained that the master drained, also those that are off;
// one that is drained no more when the former standby hands back is not drained again.
func TestDrainAfterTakeover(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		stores := [2]*memoryStore{{}, {}}
		a, stop := w.manager(hosts[0], engine.Config{Priority: 9, Drains: stores[0]})
		w.settle(hosts[0], a, time.Second)
		b, _ := w.manager(hosts[5], engine.Config{Priority: 1, Drains: stores[1]})
		time.Sleep(3 * time.Second)
		x := a.Snapshot()
		spine := x.Fabric.Nodes[x.Fabric.Switches[len(x.Fabric.Switches)-1].Node].GUID
		const off = ib.GUID(0x4242)
		if w.passes(t, x, spine) == 0 {
			t.Fatal("no path passes the switch")
		}
		if _, ok := a.Drain([]ib.GUID{spine, off}, nil); !ok {
			t.Fatal("not drained")
		}
		time.Sleep(3 * time.Second)
		if _, ok := b.Drain(nil, []ib.GUID{spine}); ok {
			t.Error("a standby that has those of the master changes them")
		}
		drained := func(s *engine.Subnet, want ...ib.GUID) {
			t.Helper()
			synctest.Wait()
			x := s.Refresh()
			got := []ib.GUID{}
			for _, d := range x.Drained {
				got = append(got, d.GUID)
			}
			slices.Sort(want)
			if !slices.Equal(got, want) || x.State != "Master" {
				t.Errorf("%s, drained are %v, want %v", x.State, got, want)
			}
			if n := w.passes(t, x, spine); (n == 0) != slices.Contains(want, spine) {
				t.Errorf("%d paths pass the switch, drained are %v", n, want)
			}
		}
		stop()
		w.settle(hosts[5], b, 5*time.Second)
		drained(b, spine, off)
		b.Drain(nil, []ib.GUID{spine})
		time.Sleep(3 * time.Second)
		drained(b, off)
		a, _ = w.manager(hosts[0], engine.Config{Priority: 9, Drains: stores[0]})
		time.Sleep(10 * time.Second)
		w.settle(hosts[0], a, 5*time.Second)
		drained(a, off)
	})
}
