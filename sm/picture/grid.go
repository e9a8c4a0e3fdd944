package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ibnetworkd/sm/route"
)

// joinPairs makes rings of four of pairs of dimensions of size two, which are the
// same.
func joinPairs(g *route.Grid) *route.Grid {
	for {
		var two []int
		for k, n := range g.Size {
			if n == 2 {
				two = append(two, k)
			}
		}
		if len(two) < 2 {
			return g
		}
		a, b := two[0], two[1]
		out := &route.Grid{At: make([][]int32, len(g.At))}
		for k := range g.Size {
			if k != a && k != b {
				out.Size, out.Ring = append(out.Size, g.Size[k]), append(out.Ring, g.Ring[k])
			}
		}
		out.Size, out.Ring = append(out.Size, 4), append(out.Ring, true)
		for i, c := range g.At {
			for k := range c {
				if k != a && k != b {
					out.At[i] = append(out.At[i], c[k])
				}
			}
			out.At[i] = append(out.At[i], [4]int32{0, 1, 3, 2}[c[a]+2*c[b]])
		}
		g = out
	}
}

// grid draws a mesh or torus; a third dimension is slices beside each other.
func (m *model) grid(d *drawing, g *route.Grid) {
	size := func(s int32) float64 { return textWidth(short(m.f.Nodes[s].Name(), 12)) }
	cw, ch := 0.0, 0.0
	for _, s := range m.sw {
		h := m.hang(s)
		cw, ch = max(cw, size(s), h.w), max(ch, h.h)
	}
	cw, ch = cw+34, ch+26+34
	axis := []int{0, 1, 2}[:len(g.Size)]
	slices.SortStableFunc(axis, func(a, b int) int { return cmp.Compare(g.Size[b], g.Size[a]) })
	rows, cols := g.Size[axis[1]], g.Size[axis[0]]
	at := map[int32]point{}
	coord := map[int32][]int32{}
	for i, c := range g.At {
		s := m.f.Switches[i].Node
		coord[s] = c
		p := point{float64(c[axis[0]]) * cw, float64(c[axis[1]]) * ch}
		if len(axis) == 3 {
			per := int32(math.Ceil(math.Sqrt(float64(g.Size[axis[2]]))))
			z := c[axis[2]]
			p.x += float64(z%per) * (float64(cols)*cw + 60)
			p.y += float64(z/per) * (float64(rows)*ch + 60)
		}
		at[s] = p
		w := size(s)
		d.boxes = append(d.boxes, m.node(s, p.x-w/2, p.y-13, w, 26, short(m.f.Nodes[s].Name(), 12), 0))
		m.hostsBelow(d, s, p.x, p.y+13)
	}
	for _, b := range m.bundles {
		p, ok := at[b.a]
		q, ok2 := at[b.b]
		if !ok || !ok2 {
			continue
		}
		ca, cb := coord[b.a], coord[b.b]
		k := 0
		for k < len(ca) && ca[k] == cb[k] {
			k++
		}
		li := line{from: p, to: q, state: b.state, width: thick(b.n), title: b.title, label: bundleLabel(b.n, b.bad),
			at: point{(p.x + q.x) / 2, (p.y+q.y)/2 - 3}}
		far := k < len(ca) && (ca[k]-cb[k] > 1 || cb[k]-ca[k] > 1)
		across := k < len(ca) && k == axis[0]
		switch {
		case len(axis) == 3 && k == axis[2]:
			li.curve, li.pale = true, true
			li.via = []point{{p.x + 18, p.y - 26}, {q.x - 18, q.y - 26}}
		case far && across:
			// The ends of a ring meet: an arc above the row.
			if p.x > q.x {
				p, q = q, p
			}
			li.from, li.to = point{p.x - size(b.a)/2 + 6, p.y - 13}, point{q.x + size(b.b)/2 - 6, q.y - 13}
			li.curve, li.via = true, []point{{p.x - 14, p.y - 34}, {q.x + 14, q.y - 34}}
			li.at = point{(p.x + q.x) / 2, p.y - 28}
		case far:
			if p.y > q.y {
				p, q = q, p
			}
			side := cw/2 - 6
			li.from, li.to = point{p.x + size(b.a)/2, p.y - 4}, point{q.x + size(b.b)/2, q.y + 4}
			li.curve, li.via = true, []point{{p.x + side, p.y - 20}, {q.x + side, q.y + 20}}
			li.at = point{p.x + side, (p.y + q.y) / 2}
		case across:
			if p.x > q.x {
				p, q = q, p
			}
			li.from, li.to = point{p.x + size(b.a)/2, p.y}, point{q.x - size(b.b)/2, q.y}
		default:
			// Beside the adapters, which are between the two switches.
			if p.y > q.y {
				p, q = q, p
			}
			off := size(b.a)/2 - 5
			if h := m.hang(b.a); h.h > 0 {
				off = min(-off, -h.w/2-10)
			} else {
				off = 0
			}
			li.from, li.via, li.to = point{p.x + max(off, -size(b.a)/2+4), p.y + 13}, []point{{p.x + off, p.y + 22}, {p.x + off, q.y - 20}},
				point{q.x + max(off, -size(b.b)/2+4), q.y - 13}
			li.at = point{p.x + off, (p.y + q.y) / 2}
		}
		d.lines = append(d.lines, li)
	}
	shape := "mesh"
	if slices.Contains(g.Ring, true) {
		shape = "torus"
	}
	dims := ""
	for i, k := range axis {
		if i > 0 {
			dims += "x"
		}
		dims += fmt.Sprint(g.Size[k])
	}
	d.labels = append(d.labels, label{point{-cw / 2, -64}, shape + " " + dims, "", "", 14})
}
