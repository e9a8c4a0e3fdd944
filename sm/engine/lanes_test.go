package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
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
		if want[1] != 1 {
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
