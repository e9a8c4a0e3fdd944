package explain

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// Taking nothing away changes nothing.
func TestWithoutNothing(t *testing.T) {
	for _, c := range gen.Balance()[:6] {
		whole := c.Fabric
		if strings.Contains(c.Name, "leaf") {
			whole = Without(whole, nil, nil) // hosts that are off are gone
		}
		if gen.Text(whole) != gen.Text(Without(whole, nil, nil)) {
			t.Errorf("%s is not the same after nothing was taken away", c.Name)
		}
	}
}

// hops is the path from a host to another, by names of ports, nil where there is
// none. It walks hop by hop, as packets do, and knows nothing of Change.
func hops(r *Routes, from, to ib.GUID) (out []string) {
	f := r.Fabric
	at, end := f.EndPortByGUID(from), f.EndPortByGUID(to)
	if at == fabric.None || end == fabric.None || f.Ports[at].Peer == fabric.None {
		return nil
	}
	for at = f.Ports[at].Peer; at != end; {
		sw := f.Nodes[f.Ports[at].Node].Switch
		if sw == fabric.None || len(out) > len(f.Switches) {
			return nil
		}
		row := r.LFT[sw]
		if int(f.Ports[end].LID) >= len(row) || row[f.Ports[end].LID] == route.NoPort {
			return nil
		}
		p := f.Port(f.Switches[sw].Node, row[f.Ports[end].LID])
		out = append(out, f.PortName(p))
		if at = f.Ports[p].Peer; at == fabric.None {
			return nil
		}
	}
	return append(out, "there")
}

// The counts of a change are those of a walk over all pairs, and what is written
// makes of the tables before those after.
func TestChange(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	kinds := []*fabric.Fabric{gen.FatTree2(8, 4), gen.FatTree3(4, 4, 2), gen.Torus([]int{4, 4}, 1), gen.Random(1, 12, 4, 2), gen.Ring(6, 2),
		gen.Uneven(3, 12, 5, 2, 20)}
	for n := range 120 {
		before := compute(t, kinds[n%len(kinds)], Options{})
		f := before.Fabric
		var off, cut []int32
		for range r.IntN(3) {
			off = append(off, int32(r.IntN(len(f.Nodes))))
		}
		for len(off)+len(cut) == 0 || r.IntN(3) > 0 {
			if p := int32(r.IntN(len(f.Ports))); f.Ports[p].Peer != fabric.None {
				cut = append(cut, p)
			}
		}
		c, err := Compare(before, off, cut, Options{})
		if err != nil {
			t.Fatalf("%d: %v", n, err)
		}
		var names []ib.GUID
		for _, e := range f.EndPorts {
			g := f.Ports[e].GUID
			if p := c.After.Fabric.EndPortByGUID(g); f.Ports[e].Num != 0 && f.Ports[e].Peer != fabric.None && p != fabric.None &&
				c.After.Fabric.Ports[p].Peer != fabric.None {
				names = append(names, g)
			}
		}
		moved, lost := 0, 0
		for _, a := range names {
			for _, b := range names {
				x, y := hops(before, a, b), hops(c.After, a, b)
				switch {
				case a == b || x == nil:
				case y == nil:
					lost++
				case !slices.Equal(x, y):
					moved++
				}
			}
		}
		if c.Pairs != len(names)*(len(names)-1) || c.Moved != moved || c.Lost != lost {
			t.Errorf("%d (%s): %d pairs, %d moved, %d lost; want %d, %d, %d", n, before.Engine, c.Pairs, c.Moved, c.Lost,
				len(names)*(len(names)-1), moved, lost)
		}
		// Hosts that are neither off nor there are unreachable.
		away := 0
		for _, e := range f.EndPorts {
			if p := &f.Ports[e]; p.Num != 0 && p.Peer != fabric.None && !slices.Contains(off, p.Node) &&
				Without(f, nil, nil).EndPortByGUID(p.GUID) != fabric.None &&
				c.After.Fabric.EndPortByGUID(p.GUID) == fabric.None {
				away++
			}
		}
		if away != len(c.Unreachable) {
			t.Errorf("%d: %d hosts are unreachable, not %d", n, away, len(c.Unreachable))
		}
		entries, rows := 0, carried(before, c.After.Fabric)
		if first := c.After.repaired; first != nil { // which are written before those that are better
			entries += differences(rows, first)
			rows = first
		}
		entries += differences(rows, c.After.LFT)
		if entries != c.Entries || c.Blocks > c.Entries || c.Written > c.Blocks || c.Entries > 0 && c.Written == 0 {
			t.Errorf("%d: %d entries in %d blocks on %d switches; want %d entries", n, c.Entries, c.Blocks, c.Written, entries)
		}
	}
}

// differences are the entries of tables that differ from others, in the blocks that they have.
func differences(have, want [][]uint8) (n int) {
	for s, row := range want {
		for l := range max(len(row), len(have[s])) {
			was, is := route.NoPort, route.NoPort
			if l < len(have[s]) {
				was = have[s][l]
			}
			if l < len(row) {
				is = row[l]
			}
			if was != is && l/64 <= (len(row)-1)/64 {
				n++
			}
		}
	}
	return n
}

// Where all is taken away there is nothing to compare, and taking the manager's own
// node away leaves another to see the rest.
func TestChangeOfManager(t *testing.T) {
	r := compute(t, gen.FatTree2(8, 4), Options{})
	sm := r.Fabric.Ports[r.Fabric.SMPort].Node
	c, err := Compare(r, []int32{sm}, nil, Options{})
	if err != nil || len(c.Unreachable) != 0 || len(c.After.Fabric.Nodes) != len(r.Fabric.Nodes)-1 || c.Worse() {
		t.Errorf("%v, %+v", err, c)
	}
	var all []int32
	for i := range r.Fabric.Nodes {
		if r.Fabric.Nodes[i].Switch == fabric.None {
			all = append(all, int32(i))
		}
	}
	if _, err := Compare(r, all, nil, Options{}); err == nil {
		t.Error("a fabric without hosts is compared")
	}
}
