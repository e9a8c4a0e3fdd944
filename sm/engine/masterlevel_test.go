package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/qos"
)

// Traps and requests to the manager have the level of their path, from switches as from
// hosts, also after a cut.
func TestLevelToTheManager(t *testing.T) {
	for _, f := range []*fabric.Fabric{gen.Torus([]int{4, 4}, 4), gen.Torus([]int{4, 3}, 2), gen.Torus([]int{4, 4, 4}, 1)} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, f, simfabric.Options{})
			defer w.close()
			s, _ := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}, Sweep: -1})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			c := w.client(t, f.SMPort)
			check := func(when string) {
				x := s.Snapshot().Fabric
				own := x.Ports[x.SMPort].LID
				levels := map[ib.SL]int{}
				for _, e := range x.EndPorts {
					p := &x.Ports[e]
					if p.LID == own {
						continue
					}
					info, err := w.sim.PortInfo(x.Nodes[p.Node].GUID, p.Num)
					testkit.NoError(t, err)
					want := c.level(t, [2]ib.LID{p.LID, own})
					levels[want]++
					if got := info.MasterSMSL(); got != want {
						t.Errorf("%s: %s sends on level %d to the manager, its path has %d", when, x.PortName(e), got, want)
					}
				}
				t.Logf("%s: %s, levels %v", when, s.Snapshot().Routing, levels)
			}
			check("at first")
			p := w.linkBetweenSwitches(0)
			testkit.NoError(t, w.sim.Cut(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			check("after a cut")
		})
	}
}
