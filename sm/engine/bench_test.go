package engine_test

import (
	"fmt"
	"testing"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
)

// A link between switches is cut and put back: time until its traps have been
// handled and the tables are written.
func BenchmarkCut(b *testing.B) {
	for _, pods := range []int{3, 16} {
		b.Run(fmt.Sprintf("ft3-%d", pods*18*18), func(b *testing.B) {
			f := gen.FatTree3(36, pods, 18)
			w := newWorld(b, f, simfabric.Options{})
			defer w.close()
			s, _ := w.manager(f.SMPort, engine.Config{})
			wait := func(n int) {
				for x := s.Snapshot(); x == nil || x.Sweeps < n; x = s.Snapshot() {
					time.Sleep(100 * time.Microsecond)
				}
			}
			wait(1)
			// The first leaf's first uplink.
			node := f.Switches[0].Node
			first, count := f.PortRange(node)
			port := uint8(0)
			for p := first + 1; p < first+count; p++ {
				if q := f.Ports[p].Peer; q != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
					port = f.Ports[p].Num
					break
				}
			}
			g := f.Nodes[node].GUID
			b.ReportAllocs()
			for b.Loop() {
				n := s.Snapshot().Sweeps
				w.sim.Cut(g, port)
				wait(n + 1)
				n = s.Snapshot().Sweeps
				w.sim.Restore(g, port)
				wait(n + 1)
			}
		})
	}
}
