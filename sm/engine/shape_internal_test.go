package engine

import (
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
)

// A link between switches that returns at a lower speed or with fewer lanes needs other
// routes: loads count by speed, and levels need lanes. The speed of a host's link does not
// matter.
func TestShapeHasSpeedAndLanes(t *testing.T) {
	f := gen.RandomRegular(1, 8, 3, 2)
	at := func(switches bool) int32 {
		for i := range int32(len(f.Ports)) {
			if p := &f.Ports[i]; p.Num != 0 && p.Peer != fabric.None && betweenSwitches(f, i) == switches {
				return i
			}
		}
		t.Fatal("no such link")
		return 0
	}
	for _, c := range []struct {
		what   string
		same   bool
		change func(f *fabric.Fabric)
	}{
		{"nothing", true, func(*fabric.Fabric) {}},
		{"speed", false, func(f *fabric.Fabric) { f.Ports[at(true)].Info.SetWidthActive(1) }},
		{"lanes", false, func(f *fabric.Fabric) { f.Ports[at(true)].Info.SetVLCap(2) }},
		{"speed of a host", true, func(f *fabric.Fabric) { f.Ports[at(false)].Info.SetWidthActive(1) }},
	} {
		g := f.Clone()
		c.change(g)
		if sameShape(f, g) != c.same {
			t.Errorf("%s changes: the same shape is %v", c.what, !c.same)
		}
	}
}
