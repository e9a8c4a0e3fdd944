package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ibnetworkd/sm/fabric"
)

// podded draws a fat-tree of three levels: the core switches on top, below them
// a panel for each pod with its two rows of switches and the adapters' counts.
func (m *model) podded(d *drawing, pods [][]int32, core []int32) {
	leaves := 0
	for _, p := range pods {
		n, up := 0, 0
		for _, s := range p {
			if m.leaves[s].n > 0 {
				n++
			} else {
				up++
			}
		}
		leaves = max(leaves, n, up)
	}
	cell, gap := 52.0, 6.0
	if leaves > 12 {
		cell, gap = 40, 4
	}
	text := 9.5
	name := func(s int32) string {
		n := m.f.Nodes[s].Name()
		if k := int((cell - 4) / 5.8); len([]rune(n)) > k {
			r := []rune(n)
			n = "…" + string(r[len(r)-k+1:])
		}
		return n
	}
	pw := float64(leaves)*(cell+gap) + 24
	const between, ph = 70.0, 222.0
	cols := max(1, int(math.Round(math.Sqrt(float64(len(pods))*ph/pw*1.9))))
	cols = min(cols, len(pods))
	// One more or less column where the last row is full then.
	for _, c := range []int{cols, cols + 1, cols - 1} {
		if c > 0 && len(pods)%c == 0 {
			cols = c
			break
		}
	}
	wide := float64(cols) * (pw + between)
	// The core, in as many rows as the pods are wide.
	perRow := max(1, int(wide/(cell+gap)))
	rowsOfCore := (len(core) + perRow - 1) / perRow
	perRow = (len(core) + rowsOfCore - 1) / rowsOfCore
	isCore := map[int32]bool{}
	start := (wide - float64(min(perRow, len(core)))*(cell+gap)) / 2
	for i, s := range core {
		isCore[s] = true
		b := m.node(s, start+float64(i%perRow)*(cell+gap), float64(i/perRow)*26, cell, rowHeight, name(s), text)
		if b.class == "switch" {
			b.class = "core"
		}
		d.boxes = append(d.boxes, b)
	}
	coreBottom := float64(rowsOfCore) * 26
	d.labels = append(d.labels, label{point{0, -10}, plural(len(core), "core switch", "core switches"), "", "", 13})
	busY := coreBottom + 22
	d.lines = append(d.lines, line{from: point{10, busY}, to: point{wide - 10, busY}, width: 5, pale: true,
		title: "all pods are linked to the core switches"})
	for i := range min(perRow, len(core)) {
		x := start + float64(i)*(cell+gap) + cell/2
		d.lines = append(d.lines, line{from: point{x, coreBottom - 6}, to: point{x, busY}, width: 1, pale: true})
	}
	within, out := m.podLinks(pods, isCore)
	total := 0
	for _, b := range within {
		total += len(b)
	}
	trunk := make([]float64, cols)
	for i, p := range pods {
		x0, y0 := float64(i%cols)*(pw+between)+between/2, busY+34+float64(i/cols)*(ph+44)
		d.panels = append(d.panels, box{x: x0, y: y0, w: pw, h: ph, class: "pod"})
		var low, high []int32
		for _, s := range p {
			if m.leaves[s].n > 0 {
				low = append(low, s)
			} else {
				high = append(high, s)
			}
		}
		at := map[int32]point{}
		hosts, links, badLinks := 0, 0, 0
		row := func(list []int32, y float64) {
			slices.Sort(list)
			left := x0 + (pw-float64(len(list))*(cell+gap)+gap)/2
			for k, s := range list {
				c := point{left + float64(k)*(cell+gap) + cell/2, y}
				at[s] = c
				d.boxes = append(d.boxes, m.node(s, c.x-cell/2, y-10, cell, rowHeight, name(s), text))
			}
		}
		row(high, y0+58)
		row(low, y0+154)
		for _, s := range low {
			l := m.leaves[s]
			hosts += len(l.hosts)
			class := "count"
			if l.sm {
				class = "sm"
			}
			c := at[s]
			title := fmt.Sprintf("%s of %s, %d of their %s not as they should be", plural(len(l.hosts), "host", "hosts"),
				m.f.Nodes[s].Name(), l.bad, plural(l.n, "link", "links"))
			li := line{from: point{c.x, c.y + 10}, to: point{c.x, c.y + 24}, state: l.state, width: thick(l.n), title: title}
			if l.bad > 0 {
				li.label, li.at = fmt.Sprintf("%d bad", l.bad), point{c.x, c.y + 60}
			}
			d.lines = append(d.lines, li)
			d.boxes = append(d.boxes, box{x: c.x - cell/2 + 4, y: c.y + 24, w: cell - 8, h: rowHeight, text: fmt.Sprint(len(l.hosts)),
				title: title, class: class, size: text})
		}
		for _, b := range within[i] {
			links += b.n
			badLinks += b.bad
			if total > linesAtMost && b.state == active {
				continue
			}
			a, q := at[b.a], at[b.b]
			if a.y > q.y {
				a, q = q, a
			}
			li := line{from: point{a.x, a.y + 10}, to: point{q.x, q.y - 10}, state: b.state, width: 1, title: b.title, pale: true}
			if b.state != active {
				li.width = 2.2
			}
			if a.y == q.y {
				li.curve, li.via = true, []point{{a.x, a.y + 40}, {q.x, q.y + 20}}
			}
			d.lines = append(d.lines, li)
		}
		if total > linesAtMost && len(low) > 0 && len(high) > 0 {
			d.panels = append(d.panels, box{x: x0 + 12, y: y0 + 80, w: pw - 24, h: 52, class: "pod",
				text: fmt.Sprintf("%s between the rows", plural(links, "link", "links")), size: text})
		}
		o := out[i]
		d.labels = append(d.labels, label{point{x0 + 10, y0 + 20},
			fmt.Sprintf("pod %d: %s, %s; %s to the core", i+1, plural(len(p), "switch", "switches"), plural(hosts, "host", "hosts"),
				plural(o.n, "link", "links")), "", "", 12})
		if o.bad+badLinks > 0 {
			d.labels = append(d.labels, label{point{x0 + 10, y0 + 36},
				fmt.Sprintf("%d of %d links between its switches bad, %d of %d to the core", badLinks, links, o.bad, o.n), "",
				colours[max(o.state, reduced)], 11})
		}
		tx := x0 - between/4
		trunk[i%cols] = max(trunk[i%cols], y0+20)
		d.lines = append(d.lines, line{from: point{tx, y0 + 16}, to: point{x0, y0 + 16}, state: o.state, width: thick(o.n),
			title: fmt.Sprintf("%s to the core, %d bad\n%s", plural(o.n, "link", "links"), o.bad, o.title)})
	}
	for c, y := range trunk {
		tx := float64(c)*(pw+between) + between/4
		d.lines = append(d.lines, line{from: point{tx, busY}, to: point{tx, y - 4}, width: 4, pale: true})
	}
	slices.SortStableFunc(d.lines, func(a, b line) int { return cmp.Compare(a.state, b.state) })
}

// podLinks are the links within each pod, and of each pod all links to the core
// as one.
func (m *model) podLinks(pods [][]int32, isCore map[int32]bool) (within [][]*bundle, out []bundle) {
	pod := map[int32]int{}
	for i, p := range pods {
		for _, s := range p {
			pod[s] = i
		}
	}
	within, out = make([][]*bundle, len(pods)), make([]bundle, len(pods))
	for _, b := range m.bundles {
		switch {
		case isCore[b.a] && isCore[b.b]:
		case isCore[b.a], isCore[b.b]:
			s := b.a
			if isCore[s] {
				s = b.b
			}
			if i, ok := pod[s]; ok {
				o := &out[i]
				o.n += b.n
				o.bad += b.bad
				if b.state > o.state || o.title == "" {
					o.title = b.title
				}
				o.state = max(o.state, b.state)
			}
		default:
			if i, ok := pod[b.a]; ok && m.f.Nodes[b.b].Switch != fabric.None {
				within[i] = append(within[i], b)
			}
		}
	}
	return within, out
}
