package engine_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
)

// A rack that goes off leaves a tree a tree, and a cable between switches that
// goes changes few forwarding tables; when most cables of a spine go the log
// says that the routes are worse.
func TestRackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.FatTree3(12, 4, 6)
		w := newWorld(t, f, simfabric.Options{})
		defer w.close()
		var log buffer
		s, _ := w.manager(f.SMPort, engine.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(5 * time.Second)
		for _, e := range f.EndPorts {
			if sw, out := f.SwitchOf(e); sw == 9 && out != 0 {
				if err := w.sim.PowerOff(f.Nodes[f.Ports[e].Node].GUID); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if x := s.Snapshot(); x.Routing != "ftree" || strings.Contains(log.String(), "less balanced") {
			t.Errorf("with a rack off: %s\n%s", x.Routing, log.String())
		}
		first, count := f.PortRange(f.Switches[0].Node)
		left := 0
		for p := first + 1; p < first+count; p++ {
			q := f.Ports[p].Peer
			if q == fabric.None || f.Nodes[f.Ports[q].Node].Switch == fabric.None {
				continue
			}
			if left++; left == 1 {
				continue
			}
			if err := w.sim.Cut(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		if out := log.String(); strings.Contains(out, "less balanced") {
			t.Errorf("a leaf with one cable left has no better routes, yet the log says that they are worse:\n%s", out)
		}
	})
}
