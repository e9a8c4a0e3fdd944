package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// A running manager takes another priority, which decides who is master from then on,
// other intervals and another window.
func TestAdjust(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		slow := engine.Config{Priority: 5, Sweep: time.Hour, Poll: time.Second}
		a, _ := w.manager(hosts[0], slow)
		w.settle(hosts[0], a, time.Second)
		low := slow
		low.Priority = 1
		b, _ := w.manager(hosts[5], low)
		time.Sleep(5 * time.Second)
		masters := func(what string, better, worse *engine.Subnet, priority uint8) {
			t.Helper()
			synctest.Wait()
			x, y := better.Refresh(), worse.Refresh()
			if x.State != "Master" || y.State != "Standby" || x.Priority != priority || y.Master == nil || y.Master.Priority != priority {
				t.Errorf("%s: %s with priority %d; %s, master %+v", what, x.State, x.Priority, y.State, y.Master)
			}
		}
		masters("at first", a, b, 5)
		sweeps := func() int { // a light one asks each switch for SwitchInfo
			n := w.sim.Counters().SMPs[mad.AttrSwitchInfo].Get
			time.Sleep(time.Minute)
			return int(w.sim.Counters().SMPs[mad.AttrSwitchInfo].Get-n) / len(f.Switches)
		}
		if n := sweeps(); n != 0 {
			t.Errorf("%d sweeps in a minute, with one an hour", n)
		}
		quick := slow
		quick.Sweep, quick.Window = 2*time.Second, 4
		a.Adjust(quick)
		if n := sweeps(); n < 10 || n > 31 {
			t.Errorf("%d sweeps in a minute, with one each 2 s", n)
		}
		high := low
		high.Priority = 9
		b.Adjust(high)
		time.Sleep(10 * time.Second)
		masters("the standby got the higher priority", b, a, 9)
		b.Adjust(low)
		time.Sleep(10 * time.Second)
		masters("the master got the lower priority", a, b, 5)
	})
}
