package engine_test

import (
	"fmt"
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

// A switch that is off is gone with the first sweep, whichever of its neighbours' traps
// arrive: some are sent over that switch, others are lost. No sweep sees a fabric in between,
// in which the switch has a part of its links.
func TestSwitchOff(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{"two levels": gen.FatTree2(12, 4), "three levels": gen.FatTree3(8, 8, 1),
		"with cables out": gen.CutCables(gen.FatTree3(8, 4, 4), 51, 5),
		"grown":           gen.Uneven(6, 18, 6, 4, 20)} {
		for seed := range uint64(24) {
			synctest.Test(t, func(t *testing.T) {
				loss := 0.1 * float64(seed%2)
				w := newWorld(t, f, simfabric.Options{Seed: seed, DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
				defer w.close()
				s, _ := w.manager(f.SMPort, engine.Config{Sweep: time.Second})
				w.up(time.Minute)
				time.Sleep(5 * time.Second)
				w.sim.SetLoss(loss)
				sweeps := s.Refresh().Sweeps
				spine := f.Switches[len(f.Switches)-1-int(seed/2%2)]
				if err := w.sim.PowerOff(f.Nodes[spine.Node].GUID); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				for s.Refresh().Sweeps == sweeps && time.Since(begin) < 20*time.Second {
					time.Sleep(time.Millisecond)
				}
				took, x := time.Since(begin), s.Refresh()
				about := fmt.Sprintf("%s, seed %d, loss %.1f: the first sweep ended after %v, routing %s", name, seed, loss, took, x.Routing)
				if len(x.Fabric.Nodes) != len(f.Nodes)-1 || x.Fabric.NodeByGUID(f.Nodes[spine.Node].GUID) != fabric.None {
					t.Errorf("%s: %d nodes, want %d", about, len(x.Fabric.Nodes), len(f.Nodes)-1)
				}
				if loss == 0 && took > 100*time.Millisecond {
					t.Error(about)
				}
			})
		}
	}
}

// Of what is behind a switch that is off nothing is asked, nor is it reported that it does not answer.
func TestBehindSwitchOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.Mesh([]int{4}, 2)
		var text testkit.Buffer
		w := newWorld(t, f, simfabric.Options{Seed: 1})
		defer w.close()
		s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1, Log: slog.New(slog.NewTextHandler(&text, nil))})
		w.up(time.Minute)
		time.Sleep(5 * time.Second)
		sweeps := s.Refresh().Sweeps
		text.Reset()
		testkit.NoError(t, w.sim.PowerOff(f.Nodes[f.Switches[1].Node].GUID))
		time.Sleep(10 * time.Second)
		if x := s.Refresh(); x.Switches != 1 || x.Sweeps != sweeps+1 || strings.Contains(text.String(), "WARN") {
			t.Errorf("%d switches, %d sweeps, want 1 each:\n%s", x.Switches, x.Sweeps-sweeps, text.String())
		}
	})
}

// Where requests get lost, a discovery of everything by a master loses no node.
func TestFullSweepWithLoss(t *testing.T) {
	f := gen.FatTree2(12, 6)
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, f, simfabric.Options{Seed: seed, DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
			defer w.close()
			s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1})
			w.up(time.Minute)
			w.sim.SetLoss(0.25)
			for range 10 {
				sweeps := s.Refresh().Sweeps
				s.Resweep(true, "test")
				for s.Refresh().Sweeps == sweeps {
					time.Sleep(10 * time.Millisecond)
				}
				w.whole(s, fmt.Sprintf("seed %d", seed))
			}
		})
	}
}
