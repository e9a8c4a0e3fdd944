package route_test

import (
	"slices"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// unplugged is a fabric without the links of a switch.
func unplugged(f *fabric.Fabric, node int32) *fabric.Fabric {
	f = f.Clone()
	first, n := f.PortRange(node)
	for p := first; p < first+n; p++ {
		if q := f.Ports[p].Peer; q != fabric.None {
			f.Ports[p].Peer, f.Ports[q].Peer = fabric.None, fabric.None
		}
	}
	return f
}

// hostless are the switches without adapters.
func hostless(f *fabric.Fabric) (nodes []int32) {
	hosts := map[int32]bool{}
	for _, e := range f.EndPorts {
		if s, out := f.SwitchOf(e); s != fabric.None && out != 0 {
			hosts[s] = true
		}
	}
	for s := range f.Switches {
		if !hosts[int32(s)] {
			nodes = append(nodes, f.Switches[s].Node)
		}
	}
	return nodes
}

// entries are those that differ, but for the rows of some switches and the LIDs of
// their ports.
func entries(f *fabric.Fabric, a, b [][]uint8, but ...int32) (n int) {
	for s := range a {
		if slices.Contains(but, f.Switches[s].Node) {
			continue
		}
		own := map[int]bool{}
		for _, node := range but {
			own[int(f.Ports[f.Port(node, 0)].LID)] = true
		}
		for lid := range a[s] {
			if !own[lid] && a[s][lid] != b[s][lid] {
				n++
			}
		}
	}
	return n
}

// A drained switch without hosts changes the routes as if it were off: the engine stays,
// the same entries change, and its own LID is reached, on one lane or several.
func TestDrainedAsOff(t *testing.T) {
	for _, c := range []struct {
		name  string
		f     *fabric.Fabric
		drain []int // of those without hosts, from the last on
		lmc   ib.LMC
		opt   route.Options
		want  string
	}{
		{"spine", gen.FatTree2(36, 6), []int{0}, 0, route.Options{}, route.FatTree},
		{"two spines", gen.FatTree2(36, 6), []int{0, 1}, 1, route.Options{}, route.FatTree},
		{"core", gen.FatTree3(8, 4, 4), []int{0}, 0, route.Options{}, route.FatTree},
		{"spine of a pod", gen.FatTree3(8, 4, 4), []int{17}, 0, route.Options{}, route.FatTree},
		{"spine of DragonFly+", gen.DragonFlyPlus(5, 2, 2, 2), []int{0}, 0, route.Options{}, route.UpDown},
		{"spine of DragonFly+ on layers", gen.DragonFlyPlus(5, 2, 2, 2), []int{0}, 0, route.Options{Layers: 4}, ""},
		{"layers by name", gen.DragonFlyPlus(5, 2, 2, 2), []int{0, 2}, 0, route.Options{Engine: route.Layered, Layers: 4}, route.Layered},
		{"switch of HyperX", gen.EmptyLeaf(gen.HyperX([]int{6, 6}, 4), 7, 0), []int{0}, 0, route.Options{}, route.DOR},
		{"uneven", gen.Uneven(1, 24, 12, 6, 100), []int{0}, 0, route.Options{}, route.FatTree},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := onLayers(c.f, 4)
			f = gen.LIDs(f, c.lmc)
			whole, err := route.Build(f, c.opt)
			testkit.NoError(t, err)
			off := f
			var nodes []int32
			var guids []ib.GUID
			bare := hostless(f)
			for _, k := range c.drain {
				n := bare[len(bare)-1-k]
				nodes, guids, off = append(nodes, n), append(guids, f.Nodes[n].GUID), unplugged(off, n)
			}
			g, ds := f.Drained(guids)
			if ds[0].Via == fabric.None || len(ds[0].Hosts) > 0 {
				t.Fatalf("the switch has hosts or is the only way: %+v", ds[0])
			}
			opt := c.opt
			opt.Previous, opt.Order, opt.SL, opt.Trunk = whole.LFT, whole.Order, whole.SL, whole.Trunk
			r, err := route.Build(g, opt)
			testkit.NoError(t, err)
			o, err := route.Build(off, opt)
			testkit.NoError(t, err)
			if r.Engine != o.Engine || c.want != "" && r.Engine != c.want {
				t.Errorf("%s, off %s, want %s", r.Engine, o.Engine, c.want)
			}
			if a, b := entries(f, whole.LFT, r.LFT, nodes...), entries(f, whole.LFT, o.LFT, nodes...); a > b {
				t.Errorf("%d entries change, %d with the switch off", a, b)
			}
			if a, b := route.Measure(g, r.LFT), route.Measure(off, o.LFT); a.Worst > b.Worst || a.Lost > 0 {
				t.Errorf("busiest link %v, %v with the switch off; %d pairs lost", a.Worst, b.Worst, a.Lost)
			}
			if len(r.Warnings) > 0 {
				t.Error(r.Warnings)
			}
			allPairs(t, g, r, 0)
			checkLayers(t, c.name, g, &r, max(1, opt.Layers))
			for _, g := range guids {
				if r.Order != nil && !slices.Contains(r.Order[len(r.Order)-len(guids):], g) {
					t.Error("a drained switch is not the last in the order")
				}
			}
			opt.Previous, opt.Order, opt.SL, opt.Trunk = r.LFT, r.Order, r.SL, r.Trunk
			again, _ := route.Build(g, opt)
			if !sameTables(&again, &r) {
				t.Error("tables in force do not stay")
			}
		})
	}
}
