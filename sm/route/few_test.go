package route_test

import (
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/route"
)

// With few hosts an order of the switches is judged by its tables: on this DragonFly+ with
// six hosts nue of opensm has four flows on a link. A second sweep changes nothing.
func TestFewHosts(t *testing.T) {
	for seed, flows := range map[uint64]float64{906: 4, 495: 3, 279: 8} {
		c := gen.Degraded(seed)
		f := gen.LIDs(c.Fabric, 0)
		r, l := build(t, c.Name, f, route.Options{})
		if l.Worst > flows {
			t.Errorf("%s: %.0f flows on a link, want %.0f", c.Name, l.Worst, flows)
		}
		if again, _ := build(t, c.Name, f, route.Options{Previous: r.LFT, Order: r.Order}); blocks(r.LFT, again.LFT) > 0 {
			t.Errorf("%s: a second sweep without a change rewrites %d blocks", c.Name, blocks(r.LFT, again.LFT))
		}
	}
}
