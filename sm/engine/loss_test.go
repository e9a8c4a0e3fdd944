package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
)

// 972 hosts come up in three times the usual time where one SMP of fifty is lost on each
// way, and in seconds where it is one of ten; without loss no SMP is repeated.
func TestLoss(t *testing.T) {
	f := gen.FatTree3(36, 3, 18)
	var whole time.Duration
	for _, tt := range []struct {
		loss  float64
		seeds uint64
		most  float64
	}{{0, 1, 1}, {0.02, 3, 3}, {0.1, 3, 30}} {
		for seed := range tt.seeds {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, f, simfabric.Options{Seed: seed, Loss: tt.loss, DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
				defer w.close()
				begin := time.Now()
				s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1})
				for synctest.Wait(); !w.sim.AllActive() && time.Since(begin) < time.Minute; synctest.Wait() {
					time.Sleep(time.Millisecond)
				}
				took := time.Since(begin)
				if whole == 0 {
					whole = took
				}
				ratio := float64(took) / float64(whole)
				t.Logf("%.0f %% lost, seed %d: %v, %.1f times the usual time, %d SMPs", 100*tt.loss, seed, took, ratio, w.total())
				if ratio > tt.most || tt.loss == 0 && w.total() != 22410 {
					t.Errorf("%.0f %% lost, seed %d: %v, %d SMPs", 100*tt.loss, seed, took, w.total())
				}
				w.sim.SetLoss(0)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if x := s.Snapshot(); len(x.Fabric.Nodes) != len(f.Nodes) || x.Fabric.Links() != f.Links() {
					t.Errorf("%.0f %% lost, seed %d: %d nodes and %d links are known", 100*tt.loss, seed, len(x.Fabric.Nodes), x.Fabric.Links())
				}
			})
		}
	}
}
