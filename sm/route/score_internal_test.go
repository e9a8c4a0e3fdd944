package route

import (
	"testing"

	"ibnetworkd/lab/gen"
)

// Tables of trees whose busiest link has more than 1.2 times the least possible flows are a
// choice: judged by that link alone they have less, and give hosts that each send to one
// other a smaller share of the bandwidth.
func TestBusiestLinkAlone(t *testing.T) {
	most := map[string]float64{"ft2-324, third of spines FDR": 378, "ft3-512, third of cores FDR": 616, "ft3-512, 10 % of links FDR": 602,
		"ft3-512, 30 % of hosts on": 95, "40 uneven switches": 442}
	for _, c := range gen.Balance() {
		limit, ok := most[c.Name]
		if !ok {
			continue
		}
		f := gen.LIDs(c.Fabric, 0)
		both, err := Build(f, Options{})
		if err != nil {
			t.Fatal(err)
		}
		g := newGraph(f)
		g.base = make([]int64, len(g.port)) // beside other tables, which put no load on any link
		b := &builder{graph: g}
		levels, _ := b.levels()
		alone := Result{Engine: FatTree}
		b.ordered(&alone, b.treeOrder(levels))
		share, _ := Shift(f, both.LFT)
		less, _ := Shift(f, alone.LFT)
		t.Logf("%s: at least %.0f flows; judged by both %.0f and a share of %.3f, by the busiest link alone %.0f and %.3f", c.Name, alone.Bound,
			both.Worst, share, alone.Worst, less)
		if loop := CreditLoop(f, alone.LFT, nil); loop != nil {
			t.Errorf("%s: credit loop %v", c.Name, loop)
		}
		if m := Measure(f, alone.LFT); m.Worst > limit+1 || m.Lost > 0 || limit > 1.2*alone.Bound || less >= share {
			t.Errorf("%s: %.0f flows on a link and a share of %.3f, want %.0f and less than %.3f", c.Name, m.Worst, less, limit, share)
		}
	}
}
