package route

import (
	"slices"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

func withLIDs(f *fabric.Fabric) *fabric.Fabric {
	for i, e := range f.EndPorts {
		f.Ports[e].LID = ib.LID(i + 1)
	}
	for i := range f.Ports {
		f.Ports[i].Info.SetVLCap(3)
	}
	return f
}

// What is kept for each switch and LID is kept for the LIDs that are routed only.
func TestStackedMemory(t *testing.T) {
	g := newGraph(withLIDs(gen.RandomRegular(1, 16, 6, 20))).shared(1000)
	y := newStacked(g, make([]uint16, len(g.port)), 4)
	rows, dests := 0, 0
	for _, row := range y.fits {
		if row != nil {
			rows++
		}
	}
	for _, all := range g.dests {
		dests += len(all)
	}
	if rows != dests {
		t.Errorf("%d rows for %d LIDs of %d", rows, dests, g.top)
	}
}

// Tables of switches that were just found lead to no host, so that those of up/down which
// layers were compared with are the result.
func TestUpDownMadeOnce(t *testing.T) {
	g := newGraph(withLIDs(gen.HyperX([]int{4}, 2)))
	r := Result{Engine: MinHop}
	b := builder{graph: g, prev: make([][]uint8, g.n)}
	if !b.better(&r, Options{Layers: 8}) || r.Engine != UpDown {
		t.Errorf("%s", r.Engine)
	}
}

// Tables in layers are those of the graph, whatever gain they are used for: a manager that
// takes over finds the levels that hosts have.
func TestLayersWhateverGain(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := builder{graph: newGraph(withLIDs(gen.CutCables(gen.Torus([]int{10, 10}, 30), 2, 2)))}
	a, _ := b.inLayers(2, layeredGain, false)
	c, _ := b.inLayers(2, 1, false)
	if a.Worst != c.Worst || !slices.EqualFunc(a.SL, c.SL, slices.Equal) {
		t.Errorf("%.0f and %.0f flows on a link", a.Worst, c.Worst)
	}
}
