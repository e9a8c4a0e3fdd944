package main

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// What a manager brings up is free of loops on its lanes, and the same tables with all on
// one lane are not.
func TestLanes(t *testing.T) {
	r := rigTools(t)
	c := gen.Case{Name: "ring", Fabric: gen.Ring(8, 1)}
	if s := balanceOnce(r, c, "ibnetsm", "", 8); s.Err != "" || s.Loop || s.Lanes < 2 {
		t.Errorf("%+v", s)
	}
	f := gen.Ring(8, 1).Clone()
	for i, e := range f.EndPorts {
		f.Ports[e].LID = ib.LID(i + 1)
	}
	tables, err := route.Build(f, route.Options{Engine: route.MinHop})
	if err != nil {
		t.Fatal(err)
	}
	var paths []path
	for _, a := range f.EndPorts {
		for _, b := range f.EndPorts {
			if sw, in := f.SwitchOf(a); sw != fabric.None && in != 0 {
				paths = append(paths, path{from: sw, in: in, to: f.Ports[b].LID})
			}
		}
	}
	sim := simfabric.New(f, simfabric.Options{})
	defer sim.Close()
	if used, loop, err := lanes(sim, f, tables.LFT, paths); err != nil || used != 1 || !loop {
		t.Errorf("minimum hop on a ring: %d lanes, a loop: %v, %v", used, loop, err)
	}
}
