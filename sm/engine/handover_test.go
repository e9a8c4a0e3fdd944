package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric/gen"
	"ibnetworkd/sm/saprobe"
	"ibnetworkd/sm/simfabric"
)

// However long the new master takes to learn the subnet, hosts get answers all
// the time: when a better manager joins, and when the master is stopped.
func TestHandoverIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 2 * time.Millisecond
		f := gen.FatTree2(8, 4)
		w := newWorld(t, f, simfabric.Options{DelayMin: delay, DelayMax: delay})
		defer w.close()
		hosts := hostsOf(f)
		// One SMP at a time: a sweep takes a second.
		a, _ := w.manager(hosts[0], engine.Config{Priority: 1, Window: 1})
		w.settle(hosts[0], a, time.Minute)
		tr, err := w.sim.OpenClient(f.Ports[hosts[9]].GUID, false)
		if err != nil {
			t.Fatal(err)
		}
		p := saprobe.Start(tr)
		defer p.Stop()
		if err := p.WaitAnswer(time.Now(), time.Second); err != nil {
			t.Fatal(err)
		}
		quiet := func(what string, begin time.Time) {
			t.Helper()
			if err := p.WaitAnswer(time.Now(), time.Second); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			took := time.Since(begin)
			if d := p.Silence(begin); d > 2*saprobe.Every+8*delay {
				t.Errorf("%s: the SA was silent for %v of %v", what, d, took)
			} else {
				t.Logf("%s: silent for %v of %v", what, d, took)
			}
		}
		begin := time.Now()
		b, stop := w.manager(hosts[5], engine.Config{Priority: 9, Window: 1})
		w.settle(hosts[5], b, time.Minute)
		quiet("a better manager joins", begin)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if x := a.Snapshot(); x.State != "Standby" {
			t.Fatalf("the worse manager is %s", x.State)
		}
		begin = time.Now()
		stop()
		w.settle(hosts[0], a, time.Minute)
		quiet("the master is stopped", begin)
	})
}
