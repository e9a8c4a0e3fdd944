package picture

import (
	"fmt"
	"math"

	"ibnetworkd/sm/fabric"
)

// network is switches as points with springs along their links.
type network struct {
	m     *model
	index map[int32]int // of a switch in what follows
	pos   []point
	half  []point   // half of what a switch takes with what hangs below it
	drop  []float64 // how far the middle of that is below the switch
}

// sprung places switches by springs along their links (after Fruchterman and
// Reingold, 1991), always in the same way.
func (m *model) sprung(d *drawing) {
	g := m.circle()
	g.pull()
	size := func(s int32) float64 { return textWidth(short(m.f.Nodes[s].Name(), 16)) }
	g.spread(size)
	g.separate()
	at := map[int32]point{}
	for _, s := range m.sw {
		i := g.index[s]
		at[s] = point{g.pos[i].x, g.pos[i].y - g.drop[i]}
	}
	for _, b := range m.bundles {
		p, ok := at[b.a]
		q, ok2 := at[b.b]
		if ok && ok2 {
			d.lines = append(d.lines, line{from: p, to: q, state: b.state, width: thick(b.n), title: b.title, label: bundleLabel(b.n, b.bad),
				at: point{(p.x + q.x) / 2, (p.y + q.y) / 2}})
		}
	}
	for _, s := range m.sw {
		p, sw := at[s], size(s)
		d.boxes = append(d.boxes, m.node(s, p.x-sw/2, p.y-13, sw, 26, short(m.f.Nodes[s].Name(), 16), 0))
		m.hostsBelow(d, s, p.x, p.y+13)
	}
	m.extraHosts(d, at)
	for _, b := range m.bundles {
		if m.f.Nodes[b.a].Switch != fabric.None && m.f.Nodes[b.b].Switch != fabric.None {
			continue
		}
		p, ok := at[b.a]
		q, ok2 := at[b.b]
		if ok && ok2 {
			d.lines = append(d.lines, line{from: p, to: q, state: b.state, width: thick(b.n), title: b.title, pale: true})
		}
	}
}

// circle puts the switches on a circle in the order of a walk, so that neighbours
// begin near.
func (m *model) circle() *network {
	n := len(m.sw)
	g := &network{m: m, index: map[int32]int{}, pos: make([]point, n), half: make([]point, n), drop: make([]float64, n)}
	var walk []int32
	seen := map[int32]bool{}
	for _, s := range m.sw {
		if seen[s] {
			continue
		}
		seen[s] = true
		part := []int32{s}
		for k := 0; k < len(part); k++ {
			for _, t := range m.at[part[k]] {
				if !seen[t] {
					seen[t] = true
					part = append(part, t)
				}
			}
		}
		walk = append(walk, part...)
	}
	for i, s := range walk {
		g.index[s] = i
		a := 2 * math.Pi * float64(i) / float64(n)
		g.pos[i] = point{math.Cos(a), math.Sin(a)}
	}
	return g
}

// pull lets the springs pull, all others push, and what has one link only not
// drift away, with moves that become smaller.
func (g *network) pull() {
	pos := g.pos
	n := len(pos)
	ideal := 2.2 / math.Sqrt(float64(n))
	rounds := min(400, 4000000/max(n*n, 1))
	for r := range rounds {
		heat := 0.12 * (1 - float64(r)/float64(rounds))
		move := make([]point, n)
		for i := range n {
			for j := i + 1; j < n; j++ {
				dx, dy := pos[i].x-pos[j].x, pos[i].y-pos[j].y
				k := ideal * ideal / max(dx*dx+dy*dy, 1e-6)
				move[i].x += dx * k
				move[i].y += dy * k
				move[j].x -= dx * k
				move[j].y -= dy * k
			}
		}
		for _, s := range g.m.sw {
			for _, t := range g.m.at[s] {
				if s > t {
					continue
				}
				i, j := g.index[s], g.index[t]
				dx, dy := pos[i].x-pos[j].x, pos[i].y-pos[j].y
				k := math.Hypot(dx, dy) / ideal
				move[i].x -= dx * k
				move[i].y -= dy * k
				move[j].x += dx * k
				move[j].y += dy * k
			}
		}
		for i := range n {
			move[i].x -= pos[i].x * 1.5
			move[i].y -= pos[i].y * 1.5
			l := max(math.Hypot(move[i].x, move[i].y), 1e-9)
			k := min(l, heat) / l
			pos[i].x += move[i].x * k
			pos[i].y += move[i].y * k
		}
	}
}

// spread scales the places by what the switches take.
func (g *network) spread(size func(int32) float64) {
	wide := 0.0
	for _, s := range g.m.sw {
		below, i := g.m.hang(s), g.index[s]
		g.half[i] = point{max(size(s), below.w)/2 + 14, (26+below.h)/2 + 12}
		g.drop[i] = below.h / 2
		wide = max(wide, g.half[i].x, g.half[i].y)
	}
	scale := wide * math.Sqrt(float64(len(g.pos))) * 0.9
	for i := range g.pos {
		g.pos[i].x *= scale
		g.pos[i].y = g.pos[i].y*scale + g.drop[i]
	}
}

// separate pushes apart what overlaps; if that does not end, all move away from
// the middle.
func (g *network) separate() {
	pos, half := g.pos, g.half
	for r := range 300 {
		hit := false
		for i := range pos {
			for j := i + 1; j < len(pos); j++ {
				dx, dy := pos[i].x-pos[j].x, pos[i].y-pos[j].y
				ox, oy := half[i].x+half[j].x-math.Abs(dx), half[i].y+half[j].y-math.Abs(dy)
				if ox <= 0 || oy <= 0 {
					continue
				}
				hit = true
				if ox < oy {
					k := math.Copysign(ox/2+0.5, dx)
					pos[i].x, pos[j].x = pos[i].x+k, pos[j].x-k
				} else {
					k := math.Copysign(oy/2+0.5, dy)
					pos[i].y, pos[j].y = pos[i].y+k, pos[j].y-k
				}
			}
		}
		if !hit {
			return
		}
		if r%20 == 19 {
			for i := range pos {
				pos[i].x *= 1.1
				pos[i].y *= 1.1
			}
		}
	}
}

// heap draws more switches than any layout keeps readable: each as a cell with
// the number of its adapters, by level, and only the links that are bad.
func (m *model) heap(d *drawing) {
	const cell, h = 58.0, 24.0
	cols := max(1, int(math.Sqrt(float64(len(m.sw))*h/cell*2)))
	top := int32(0)
	for _, s := range m.sw {
		top = max(top, m.level[s])
	}
	y := 0.0
	at := map[int32]point{}
	for l := top; l >= 1; l-- {
		k := 0
		for _, s := range m.sw {
			if m.level[s] != l {
				continue
			}
			if k == 0 {
				d.labels = append(d.labels, label{point{0, y - 8}, fmt.Sprintf("switches %d from the hosts, with the number of their hosts", l),
					"", "", 12})
			}
			text := ""
			lf := m.leaves[s]
			if len(lf.hosts) > 0 {
				text = fmt.Sprint(len(lf.hosts))
			}
			p := point{float64(k%cols) * (cell + 4), y + float64(k/cols)*(h+4)}
			at[s] = point{p.x + cell/2, p.y + h/2}
			b := m.node(s, p.x, p.y, cell, h, text, 0)
			if lf.sm {
				b.class = "sm"
			}
			d.boxes = append(d.boxes, b)
			k++
		}
		y += float64((k+cols-1)/cols)*(h+4) + 44
	}
	for _, b := range m.bundles {
		p, ok := at[b.a]
		q, ok2 := at[b.b]
		if b.state != active && ok && ok2 {
			d.lines = append(d.lines, line{from: p, to: q, state: b.state, width: 2, title: b.title})
		}
	}
	d.labels = append(d.labels, label{point{0, y}, "links between the switches are drawn only where they are bad", "", "", 0})
}

// looseHosts draws adapters without a switch, each beside what it is cabled to.
func (m *model) looseHosts(d *drawing) {
	if len(m.loose) == 0 {
		return
	}
	x, y, deep := 0.0, 0.0, 0.0
	for _, b := range d.boxes {
		y = max(y, b.y+b.h+60)
	}
	at := map[int32]point{}
	peer := map[int32]int32{}
	for _, b := range m.bundles {
		peer[b.a], peer[b.b] = b.b, b.a
	}
	put := func(n int32) {
		if _, ok := at[n]; ok {
			return
		}
		w := max(textWidth(short(m.f.Nodes[n].Name(), 24)), 120)
		d.boxes = append(d.boxes, m.node(n, x, y, w, 40, short(m.f.Nodes[n].Name(), 24), 13))
		at[n] = point{x + w/2, y + 20}
		x += w + 140
		deep = y
	}
	for _, n := range m.loose {
		if x > 1200 {
			x, y = 0, deep+80
		}
		put(n)
		if p, ok := peer[n]; ok && m.f.Nodes[p].Switch == fabric.None {
			put(p)
		}
	}
	for _, b := range m.bundles {
		p, ok := at[b.a]
		q, ok2 := at[b.b]
		if !ok || !ok2 {
			continue
		}
		first, _ := m.f.PortRange(b.a)
		rate := ""
		for i := first; i < int32(len(m.f.Ports)) && m.f.Ports[i].Node == b.a; i++ {
			if m.f.Ports[i].Peer != fabric.None {
				rate = m.f.Ports[i].Info.WidthName() + " " + m.f.Ports[i].Info.SpeedName()
			}
		}
		text := rate
		if s := bundleLabel(b.n, b.bad); s != "" {
			text += " " + s
		}
		d.lines = append(d.lines, line{from: p, to: q, state: b.state, width: 3, title: b.title, label: text,
			at: point{(p.x + q.x) / 2, (p.y+q.y)/2 - 6}})
	}
}
