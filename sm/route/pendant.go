package route

import (
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
)

// pendant is a switch without hosts whose links all lead to one other, as those of a
// drained one do. Routes treat it as an end node there: it decides neither engine nor
// order, and nothing passes through it.
type pendant struct {
	sw, at int32 // switch indices
	lids   []ib.LID
	back   []uint8 // its ports towards the other
	ports  []uint8 // those of the other towards it
}

// pendants are such switches of a fabric, and the fabric without their links. Roots
// that were named, and the switch of the manager, count as any other.
func pendants(f *fabric.Fabric, roots []ib.GUID) (*fabric.Fabric, []pendant) {
	var out []pendant
	for s := range f.Switches {
		if p, ok := pendantAt(f, int32(s)); ok && !slices.Contains(roots, f.Nodes[f.Switches[s].Node].GUID) {
			if o, both := pendantAt(f, p.at); !both || o.at != p.sw {
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 {
		return f, nil
	}
	g := f.Clone()
	for _, p := range out {
		for _, num := range p.back {
			a := f.Port(f.Switches[p.sw].Node, num)
			b := f.Ports[a].Peer
			g.Ports[a].Peer, g.Ports[b].Peer = fabric.None, fabric.None
		}
	}
	return g, out
}

// pairsOf counts the pairs of a switch and one with LIDs of which one is pendant.
func (g *graph) pairsOf(list []pendant) (n int) {
	for s := range int32(g.n) {
		switch {
		case len(g.dests[s]) == 0:
		case slices.ContainsFunc(list, func(p pendant) bool { return p.sw == s }):
			n += g.n - 1
		default:
			n += len(list)
		}
	}
	return n
}

// pendantAt is what pendants has of one switch.
func pendantAt(f *fabric.Fabric, sw int32) (p pendant, ok bool) {
	p = pendant{sw: sw, at: fabric.None}
	node := f.Switches[sw].Node
	first, count := f.PortRange(node)
	for i := first; i < first+count; i++ {
		if i == f.SMPort {
			return p, false
		}
		q := f.Ports[i].Peer
		if q == fabric.None || f.Ports[q].Node == node {
			continue
		}
		t := f.Nodes[f.Ports[q].Node].Switch
		if t == fabric.None || p.at != fabric.None && t != p.at {
			return p, false
		}
		p.at = t
		p.back, p.ports = append(p.back, f.Ports[i].Num), append(p.ports, f.Ports[q].Num)
	}
	p.lids = slices.Collect(f.Ports[first].LIDs())
	return p, p.at != fabric.None && f.Ports[first].Num == 0
}

// attach adds pendant switches to the tables of the fabric without their links: the way
// to each is that to its neighbour, with one hop more, and the other way round. So no
// loop arises, on any level.
func (r *Result) attach(f *fabric.Fabric, list []pendant, previous [][]uint8) {
	for _, p := range list {
		to := slices.Collect(f.Ports[f.Port(f.Switches[p.at].Node, 0)].LIDs())
		for k, lid := range p.lids {
			for s, row := range r.LFT {
				switch {
				case int(lid) >= len(row):
				case int32(s) == p.sw:
					row[lid] = 0
				case int32(s) == p.at:
					row[lid] = keptOf(previous, s, lid, p.ports)
				case len(to) == 0:
				case int(to[k%len(to)]) < len(row):
					row[lid] = row[to[k%len(to)]]
				}
			}
		}
	}
	for _, p := range list {
		row := r.LFT[p.sw]
		for lid := range row {
			if !slices.Contains(p.lids, ib.LID(lid)) && int(lid) < len(r.LFT[p.at]) && r.LFT[p.at][lid] != NoPort {
				row[lid] = keptOf(previous, int(p.sw), ib.LID(lid), p.back)
			}
		}
		if r.SL != nil {
			for s := range r.SL {
				r.SL[s][p.sw] = r.SL[s][p.at]
			}
			r.SL[p.sw] = slices.Clone(r.SL[p.at])
		}
		if r.Trunk != nil {
			r.Trunk[p.sw] = p.back[0]
		}
		if guid := f.Nodes[f.Switches[p.sw].Node].GUID; slices.Contains(r.Order, guid) {
			r.Order = append(slices.DeleteFunc(r.Order, func(g ib.GUID) bool { return g == guid }), guid)
		}
	}
}

// keptOf is one of several ports, the one in force if it is among them.
func keptOf(previous [][]uint8, sw int, lid ib.LID, ports []uint8) uint8 {
	if sw < len(previous) && int(lid) < len(previous[sw]) && slices.Contains(ports, previous[sw][lid]) {
		return previous[sw][lid]
	}
	return ports[int(lid)%len(ports)]
}
