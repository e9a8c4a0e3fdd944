package engine_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
)

// After a cut tables lead everywhere before they are compared with new ones, which waits for
// a second without a further cut and then makes the busiest link less busy.
func TestCutRepairedFirst(t *testing.T) {
	const reason = "repaired routes are compared with new ones"
	inWorld(t, gen.RandomRegular(1, 32, 6, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		var log testkit.Buffer
		s, _ := w.manager(f.SMPort, engine.Config{Routes: &memoryStore{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(10 * time.Second)
		relieved := 0
		for n := range 4 {
			var y *engine.Snapshot
			for k := range 2 {
				p := &f.Ports[w.linkBetweenSwitches(20*n+7*k)]
				testkit.NoError(t, w.sim.Cut(f.Nodes[p.Node].GUID, p.Num))
				time.Sleep(900 * time.Millisecond)
				synctest.Wait()
				if y = s.Snapshot(); strings.Contains(y.LastSweep.Reason, reason) {
					t.Errorf("%d cuts: a comparison 900 ms after a cut", n)
				}
				if err := w.check(f.SMPort, s); err != nil {
					t.Errorf("%d cuts: %v", n, err)
				}
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			z := s.Snapshot()
			t.Logf("%d cuts: %v flows over the busiest link, then %v; %s", n, y.BusiestLink, z.BusiestLink, z.LastSweep.Reason)
			if z.BusiestLink < y.BusiestLink {
				relieved++
			}
			if err := w.check(f.SMPort, s); err != nil {
				t.Errorf("%d cuts, compared: %v", n, err)
			}
		}
		if relieved == 0 || strings.Count(log.String(), reason) > 4 {
			t.Errorf("%d comparisons relieved the busiest link\n%s", relieved, log.String())
		}
	})
}
