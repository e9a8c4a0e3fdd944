package route

import (
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/guidfile"
)

// View answers questions about forwarding tables, for people who want to know
// why a packet goes where it goes.
type View struct {
	Load  Load
	g     *graph
	flows []int64 // by link: pairs of hosts whose flow passes it
	of    []int32 // by LID: the switch that delivers it
	legal engine  // nil where the engine is not known
	short minHop
	whole minHop // short with the links that the engine was to avoid
}

// NewView measures the tables of a result. With an empty Engine, as of tables
// that another manager made, what that engine allows is not known. seen is the fabric
// as the engine saw it, f but for links that it was to avoid, and weights its lengths
// of hops.
func NewView(f, seen *fabric.Fabric, weights []guidfile.Weight, r *Result) *View {
	v := &View{g: newGraph(f)}
	v.flows, v.Load = v.g.measure(r.LFT)
	g := newGraph(seen)
	_ = g.weighHops(weights) // GUIDs that the fabric lacks are in the warnings of r
	v.whole.g = newGraph(f)
	_ = v.whole.g.weighHops(weights)
	v.of, v.short = make([]int32, g.top+1), minHop{g: g}
	for i := range v.of {
		v.of[i] = fabric.None
	}
	for d, dests := range g.dests {
		for _, to := range dests {
			v.of[to.lid] = int32(d)
		}
	}
	switch r.Engine {
	case MinHop:
		v.legal = &minHop{g: g}
	case FatTree, UpDown:
		if len(r.Order) == g.n {
			pos := make([]int32, g.n)
			for s, p := range g.placesOf(r.Order) {
				pos[s] = int32(p)
			}
			// After a change entries may leave the order.
			if e := newUpDown(g, pos); r.Engine == FatTree || g.follow(e, r.LFT) {
				v.legal = e
			}
		}
	case DOR:
		t := g.grid()
		if t == nil || t.full() {
			if list := g.followedBy(g.allRows(), r.LFT); len(list) > 0 {
				v.legal = list[0]
				break
			}
		}
		if t != nil {
			t.open = r.NumLayers <= 1
			v.legal = &dimensionOrder{t: t}
		}
	}
	return v
}

// Flows is the number of ordered pairs of hosts whose flow leaves by a port, by
// index into Fabric.Ports; 0 for a port that leads to no other switch.
func (v *View) Flows(port int32) int64 {
	p := &v.g.f.Ports[port]
	sw := v.g.f.Nodes[p.Node].Switch
	if sw == fabric.None {
		return 0
	}
	l := v.g.linkOf[int(sw)<<8|int(p.Num)]
	if l == fabric.None {
		return 0
	}
	return v.flows[l]
}

// Busiest is the port, by index into Fabric.Ports, whose link has the largest
// load, None where no flow passes a link between switches.
func (v *View) Busiest() int32 {
	best, most := fabric.None, int64(0)
	for s := range int32(v.g.n) {
		a, b := v.g.neighbours(s)
		for l := v.g.link[a]; l < v.g.link[b]; l++ {
			if n := v.flows[l] * v.g.cost[l]; n > most {
				best, most = v.g.f.Port(v.g.f.Switches[s].Node, v.g.port[l]), n
			}
		}
	}
	return best
}

// Choices are the ports by which a switch can send packets to a LID: those that
// the engine allows, none where it is not known, and those that lead one hop
// nearer. Both are in the order of their numbers, and empty where the switch
// delivers the LID itself or there is no way.
func (v *View) Choices(sw int32, lid ib.LID) (legal, nearer []uint8) {
	if int(lid) >= len(v.of) || v.of[lid] == fabric.None || v.of[lid] == sw {
		return nil, nil
	}
	d := v.of[lid]
	if v.legal != nil {
		legal = ports(v.short.g, v.legal, sw, d)
	}
	return legal, ports(v.short.g, &v.short, sw, d)
}

// Avoided are the ports that would lead one hop nearer if the engine had not been to avoid links.
func (v *View) Avoided(sw int32, lid ib.LID) []uint8 {
	if int(lid) >= len(v.of) || v.of[lid] == fabric.None || v.of[lid] == sw {
		return nil
	}
	d := v.of[lid]
	nearer := ports(v.short.g, &v.short, sw, d)
	return slices.DeleteFunc(ports(v.whole.g, &v.whole, sw, d), func(p uint8) bool { return slices.Contains(nearer, p) })
}

func ports(g *graph, e engine, sw, d int32) (out []uint8) {
	c := newCandidates(g)
	e.towards(d, c)
	for _, l := range c.of(sw) {
		out = append(out, g.port[l])
	}
	slices.Sort(out)
	return out
}
