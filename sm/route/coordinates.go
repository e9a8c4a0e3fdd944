package route

import "ibnetworkd/sm/fabric"

// Grid is the shape of a mesh or torus: by switch its coordinates, and of each
// dimension the size and whether its ends are joined.
type Grid struct {
	At   [][]int32
	Size []int32
	Ring []bool
}

// GridOf finds the coordinates of the switches, nil where the fabric is no mesh
// or torus.
func GridOf(f *fabric.Fabric) *Grid {
	t := newGraph(f).grid()
	if t == nil {
		return nil
	}
	g := &Grid{At: t.at}
	for _, d := range t.dims {
		g.Size, g.Ring = append(g.Size, d.size), append(g.Ring, d.ring)
	}
	return g
}
