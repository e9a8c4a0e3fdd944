package engine_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/qos/policy"
	"ibnetworkd/sm/route"
)

// Layers only relieve links: the automatic choice leaves service levels to the policy, the
// partition or the weights that they were chosen for. By name layers are used, and the log
// names both.
func TestOwnLevelsBeforeLayers(t *testing.T) {
	high := partition.Default()
	high.Partitions[0].Params.SL = 3
	for name, set := range map[string]func(*engine.Config){
		"QoS policy":                 func(c *engine.Config) { c.QoSPolicy = &policy.Policy{} },
		"SL 3 of partition Default":  func(c *engine.Config) { c.Partitions = high },
		"weights of service levels":  func(c *engine.Config) { c.QoS.Weights[2] = 200 },
		"weights of service levels ": func(c *engine.Config) { c.QoS.High[ib.SL(2)] = true },
	} {
		for _, engineName := range []string{route.Auto, route.Layered} {
			synctest.Test(t, func(t *testing.T) {
				f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
				w := newWorld(t, f, simfabric.Options{})
				defer w.close()
				log := new(testkit.Buffer)
				cfg := engine.Config{QoS: &qos.Options{}, Log: slog.New(slog.NewTextHandler(log, nil)), Partitions: partition.Default()}
				cfg.Route.Engine = engineName
				set(&cfg)
				s, _ := w.manager(f.SMPort, cfg)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				got, said := s.Snapshot().Routing, strings.Contains(log.String(), strings.TrimSpace(name))
				if layered := engineName == route.Layered; (got == route.Layered) != layered || said != layered {
					t.Errorf("%s, engine %q: routing %s, the log names it: %v", name, engineName, got, said)
				}
			})
		}
	}
}

// A partition that gets a service level at run time ends the use of layers.
func TestPartitionLevelEndsLayers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
		w := newWorld(t, f, simfabric.Options{})
		defer w.close()
		s, _ := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}, Partitions: partition.Default()})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		before := s.Snapshot().Routing
		c := partition.Default()
		c.Partitions[0].Params.SL = 3
		s.SetPartitions(c, "test")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if after := s.Snapshot().Routing; before != route.Layered || after == route.Layered {
			t.Errorf("routing %s, then %s", before, after)
		}
	})
}
