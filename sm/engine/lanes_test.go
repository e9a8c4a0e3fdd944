package engine_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/transport"
)

// lanesWritten checks the mapping of all pairs of linked ports of all switches, on links
// that all have the same number of lanes, and of adapters.
func (w *world) lanesWritten(t *testing.T) {
	t.Helper()
	f := w.f
	for o := range int32(len(f.Ports)) {
		out := &f.Ports[o]
		if out.Peer == fabric.None || out.Num == 0 {
			continue
		}
		n := &f.Nodes[out.Node]
		pi, err := w.sim.PortInfo(n.GUID, out.Num)
		if err != nil {
			t.Fatal(err)
		}
		var want mad.SLtoVL
		for sl := range want {
			want[sl] = ib.VL(sl % qos.VLs(pi.OperVLs()))
		}
		if between := n.Switch != fabric.None && f.Nodes[f.Ports[out.Peer].Node].Switch != fabric.None; between && want[1] != 1 {
			t.Fatalf("%s has one lane", f.PortName(o))
		}
		in := []uint8{0}
		if n.Switch != fabric.None {
			first, count := f.PortRange(out.Node)
			for q := first + 1; q < first+count; q++ {
				if q != o && f.Ports[q].Peer != fabric.None {
					in = append(in, f.Ports[q].Num)
				}
			}
		}
		for _, in := range in {
			if m, err := w.sim.SLtoVL(n.GUID, in, out.Num); err != nil || m != want {
				t.Errorf("%s: packets from port %d are mapped to %v, want %v (%v)", f.PortName(o), in, m, want, err)
			}
		}
	}
}

// A cable that is plugged in after the first sweep gets its mapping at both ends, as output
// and as input; what is there is not written again.
func TestLanesOfLateLink(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{
		"layered": gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6),
		"dor":     gen.Torus([]int{5, 5}, 1),
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, f, simfabric.Options{})
			defer w.close()
			p := w.linkBetweenSwitches(5)
			node, num := f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num
			w.sim.Cut(node, num)
			s, _ := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			before := w.sim.Counters().SMPs
			w.sim.Restore(node, num)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if x := s.Snapshot(); x.Layers < 2 || x.Links != f.Links() {
				t.Fatalf("%s: %d layers on %d links", name, x.Layers, x.Links)
			}
			w.lanesWritten(t)
			// A row of each new port, and its column in the rows of the others.
			maps := 0
			for _, o := range []int32{p, f.Ports[p].Peer} {
				first, count := f.PortRange(f.Ports[o].Node)
				links := 0
				for q := first + 1; q < first+count; q++ {
					if f.Ports[q].Peer != fabric.None {
						links++
					}
				}
				maps += links + links - 1
			}
			after := w.sim.Counters().SMPs
			set := func(a mad.AttrID) int { return int(after[a].Set - before[a].Set) }
			if n, arb := set(mad.AttrSLtoVL), set(mad.AttrVLArb); n != maps || arb != 4 {
				t.Errorf("%s: %d mappings and %d arbitration tables are written, want %d and 4", name, n, arb, maps)
			}
		})
	}
}

// While a switch has not answered a mapping, or has refused it, the tables need one lane.
// Levels are used once it is written, or the switch that refused it is gone.
func TestUnwrittenLanes(t *testing.T) {
	for name, refuses := range map[string]bool{"no answer": false, "refusal": true} {
		synctest.Test(t, func(t *testing.T) {
			f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
			w := newWorld(t, f, simfabric.Options{})
			defer w.close()
			var on atomic.Bool
			on.Store(true)
			var at []uint8 // of the only switch that does not take it
			hit := func(path []uint8, a mad.AttrID, mod uint32) bool {
				if a != mad.AttrSLtoVL || len(path) != 4 || mod == 0 || !on.Load() {
					return false
				}
				if at == nil {
					at = slices.Clone(path)
				}
				return slices.Equal(at, path)
			}
			s, _ := w.managerOn(f.SMPort, engine.Config{QoS: &qos.Options{}}, func(tr transport.Transport) transport.Transport {
				return refusal{tr, func(path []uint8, a mad.AttrID, mod uint32) bool { return hit(path, a, mod) }, !refuses}
			})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if x := s.Snapshot(); x.Layers > 1 || len(at) == 0 {
				t.Errorf("%s: %q on %d layers", name, x.Routing, x.Layers)
			}
			w.settle(f.SMPort, s, time.Second) // finds a credit loop where only service levels prevent one
			if refuses {
				n := f.Ports[f.SMPort].Node
				for _, p := range at {
					n = f.Ports[f.Ports[f.Port(n, p)].Peer].Node
				}
				w.off[n] = true
				w.sim.PowerOff(f.Nodes[n].GUID)
				time.Sleep(20 * time.Second)
			} else {
				on.Store(false)
				time.Sleep(30 * time.Second)
				w.lanesWritten(t)
			}
			synctest.Wait()
			if x := s.Snapshot(); x.Layers < 2 {
				t.Errorf("%s: %q on %d layers in the end", name, x.Routing, x.Layers)
			}
		})
	}
}

// Routes count on the lanes that links in use have: another manager may have brought
// them up with one, and a device may decline more.
func TestLanesInUse(t *testing.T) {
	for name, keeps := range map[string]bool{"kept": true, "raised": false} {
		synctest.Test(t, func(t *testing.T) {
			f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
			w := newWorld(t, f, simfabric.Options{KeepLanes: keeps})
			defer w.close()
			pol := program.DefaultPolicy()
			pol.OperVLs = 1
			_, end := w.manager(f.SMPort, engine.Config{Policy: pol})
			time.Sleep(5 * time.Second)
			end()
			routes := &memoryStore{}
			for _, what := range []string{"", ", started again"} {
				s, end := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}, Routes: routes})
				time.Sleep(5 * time.Second)
				synctest.Wait()
				x := s.Snapshot()
				if (x.Layers > 1) == keeps || !w.sim.AllActive() || len(x.Retrying) != 0 {
					t.Errorf("%s%s: %q on %d layers, all active %v, retrying %v", name, what, x.Routing, x.Layers, w.sim.AllActive(), x.Retrying)
				}
				if !keeps {
					w.lanesWritten(t)
				} else if w.settle(f.SMPort, s, time.Second); !w.oneLane() {
					t.Errorf("%s%s: links have one lane, packets are mapped to others", name, what)
				}
				end()
			}
		})
	}
}

// oneLane reports whether switches map all packets between them to one lane.
func (w *world) oneLane() bool {
	for _, q := range w.f.Ports {
		if n := &w.f.Nodes[q.Node]; q.Peer != fabric.None && n.Switch != fabric.None && q.Num != 0 {
			if m, err := w.sim.SLtoVL(n.GUID, 0, q.Num); err != nil || m != (mad.SLtoVL{}) {
				return false
			}
		}
	}
	return true
}

// All mappings are written before the first block of the tables that need them.
func TestLanesBeforeTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
		tables, late := 0, 0
		w := newWorld(t, f, simfabric.Options{Trace: func(_ ib.GUID, b *mad.Buf) {
			switch a := mad.AttrOf(b); {
			case mad.MethodOf(b) != mad.MethodSet:
			case a == mad.AttrLFT:
				tables++
			case (a == mad.AttrSLtoVL || a == mad.AttrVLArb) && tables > 0:
				late++
			}
		}})
		defer w.close()
		w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if tables == 0 || late > 0 {
			t.Errorf("%d tables of lanes are written after one of %d blocks", late, tables)
		}
	})
}
