package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// title is what hovering over a node shows.
func (m *model) title(n int32) string {
	f := m.f
	x := &f.Nodes[n]
	s := fmt.Sprintf("%s %s %v, %s", x.Type, x.Name(), x.GUID, plural(int(x.NumPorts), "port", "ports"))
	first, count := f.PortRange(n)
	for p := first; p < first+count; p++ {
		if f.IsEndPort(p) && f.Ports[p].LID != 0 {
			s += fmt.Sprintf(", LID %d", f.Ports[p].LID)
			break
		}
	}
	if n == m.sm {
		s += ", subnet manager"
	}
	return s
}

func (m *model) class(n int32) string {
	switch {
	case n == m.sm:
		return "sm"
	case m.f.Nodes[n].Switch == fabric.None:
		return "host"
	}
	return "switch"
}

func (m *model) node(n int32, x, y, w, h float64, text string, size float64) box {
	return box{x: x, y: y, w: w, h: h, text: text, title: m.title(n), class: m.class(n), size: size}
}

// hang is the room that a switch needs for what is below it.
type hang struct {
	w, h float64
	cols int
	cell float64
}

const stackHeight = 20 // adapters above each other below a switch

func (m *model) hang(n int32) hang {
	l := m.leaves[n]
	if l.n == 0 {
		return hang{}
	}
	if m.fold || len(l.hosts) == 0 {
		return hang{w: 62, h: 14 + rowHeight, cols: 1}
	}
	cell := 0.0
	for _, h := range l.hosts {
		cell = max(cell, textWidth(short(m.f.Nodes[h].Name(), 16)))
	}
	cols := (len(l.hosts) + stackHeight - 1) / stackHeight
	rows := (len(l.hosts) + cols - 1) / cols
	return hang{w: float64(cols) * (cell + 16), h: 14 + float64(rows)*(rowHeight+4), cols: cols, cell: cell}
}

// hostsBelow draws what hangs on a switch whose lower edge is at (x, y), x being
// its middle.
func (m *model) hostsBelow(d *drawing, n int32, x, y float64) {
	l, g := m.leaves[n], m.hang(n)
	if l.n == 0 {
		return
	}
	if m.fold || len(l.hosts) == 0 {
		class := "count"
		if l.sm {
			class = "sm"
		}
		text := plural(len(l.hosts), "host", "hosts")
		if len(l.hosts) == 0 {
			text = plural(l.n, "link", "links")
		}
		w := max(56, textWidth(text))
		title := fmt.Sprintf("%s of %s, %d of their %s not as they should be", text, m.f.Nodes[n].Name(), l.bad, plural(l.n, "link", "links"))
		d.boxes = append(d.boxes, box{x: x - w/2, y: y + 14, w: w, h: rowHeight, text: text, title: title, class: class})
		li := line{from: point{x, y}, to: point{x, y + 14}, state: l.state, width: thick(l.n), title: title}
		if l.bad > 0 {
			li.label, li.at = fmt.Sprintf("%d bad", l.bad), point{x + w/2 + 4, y + 11}
		}
		d.lines = append(d.lines, li)
		return
	}
	rows := (len(l.hosts) + g.cols - 1) / g.cols
	for k, h := range l.hosts {
		left := x - g.w/2 + float64(k/rows)*(g.cell+16) + 12
		top := y + 14 + float64(k%rows)*(rowHeight+4)
		d.boxes = append(d.boxes, m.node(h, left, top, g.cell, rowHeight, short(m.f.Nodes[h].Name(), 16), 0))
		b := l.links[h]
		if rows == 1 {
			d.lines = append(d.lines, line{from: point{x, y}, to: point{left + g.cell/2, top}, state: b.state, width: thick(b.n),
				title: b.title, label: bundleLabel(b.n, b.bad), at: point{(x + left + g.cell/2) / 2, (y + top) / 2}})
			continue
		}
		// From a line down the left side of the column, which is all of them.
		side := left - 8
		if k%rows == min(rows, len(l.hosts)-k/rows*rows)-1 {
			d.lines = append(d.lines, line{from: point{x, y}, via: []point{{side, y + 8}}, to: point{side, top + rowHeight/2}, width: 1.3,
				grey: true})
		}
		d.lines = append(d.lines, line{from: point{side, top + rowHeight/2}, to: point{left, top + rowHeight/2}, state: b.state,
			width: 2.4, title: b.title})
	}
}

// order puts the switches of a row above what they are linked to below.
func (m *model) order(row []int32, x map[int32]float64, below func(int32) bool) {
	at := make(map[int32]float64, len(row))
	for _, s := range row {
		sum, n := 0.0, 0.0
		for _, t := range m.at[s] {
			if v, ok := x[t]; ok && below(t) {
				sum += v
				n++
			}
		}
		at[s] = sum / max(n, 1)
	}
	slices.SortStableFunc(row, func(a, b int32) int { return cmp.Compare(at[a], at[b]) })
}

// connect draws the links between what stands at the given middles. half are the
// half heights of the boxes.
func (m *model) connect(d *drawing, at map[int32]point, half float64, pale bool) {
	usual := m.usualBundle()
	if usual > 1 {
		d.labels = append(d.labels, label{point{0, -24}, fmt.Sprintf("each line between switches without a number: %d links", usual), "", "", 0})
	}
	for _, b := range m.bundles {
		p, ok := at[b.a]
		q, ok2 := at[b.b]
		if !ok || !ok2 {
			continue
		}
		li := line{from: p, to: q, state: b.state, width: thick(b.n), title: b.title, label: bundleLabel(b.n, b.bad), pale: pale}
		if b.n == usual && b.bad == 0 {
			li.label = ""
		}
		switch {
		case p.y == q.y:
			up := p.y - half - min(24+math.Abs(p.x-q.x)/6, 110)
			li.curve, li.via = true, []point{{p.x, up}, {q.x, up}}
			li.at = point{(p.x + q.x) / 2, 0.25*p.y + 0.75*up}
		case p.y > q.y:
			li.from, li.to = point{p.x, p.y - half}, point{q.x, q.y + half}
			// Labels of many lines to one box stand apart nearer to the lower end.
			li.at = point{p.x + (q.x-p.x)*0.3, p.y - half + (q.y+half-p.y+half)*0.3}
		default:
			li.from, li.to = point{p.x, p.y + half}, point{q.x, q.y - half}
			li.at = point{q.x + (p.x-q.x)*0.3, q.y - half + (p.y+half-q.y+half)*0.3}
		}
		d.lines = append(d.lines, li)
	}
}

// usualBundle is the number of links that most bundles between switches have, 0
// where none is usual.
func (m *model) usualBundle() int {
	count, all := map[int]int{}, 0
	for _, b := range m.bundles {
		if m.f.Nodes[b.a].Switch != fabric.None && m.f.Nodes[b.b].Switch != fabric.None {
			count[b.n]++
			all++
		}
	}
	for n, k := range count {
		if 2*k > all && all > 2 {
			return n
		}
	}
	return 0
}

// levelled draws switches in rows by level, adapters below their switch.
func (m *model) levelled(d *drawing) {
	top := int32(0)
	for _, s := range m.sw {
		top = max(top, m.level[s])
	}
	rows := make([][]int32, top+1)
	for _, s := range m.sw {
		rows[m.level[s]] = append(rows[m.level[s]], s)
	}
	x, at := map[int32]float64{}, map[int32]point{}
	widths := make([]float64, top+1)
	size := func(s int32) float64 { return textWidth(short(m.f.Nodes[s].Name(), 18)) }
	for l := int32(1); l <= top; l++ {
		if l > 1 {
			m.order(rows[l], x, func(t int32) bool { return m.level[t] < l })
		}
		pos := 0.0
		for _, s := range rows[l] {
			w := max(size(s), m.hang(s).w) + 14
			x[s] = pos + w/2
			pos += w
		}
		widths[l] = pos
	}
	wide := slices.Max(widths)
	for l := int32(1); l <= top; l++ {
		// Rows above are spread over the whole width.
		n := float64(len(rows[l]))
		for k, s := range rows[l] {
			if l > 1 {
				x[s] = max(wide/n, widths[l]/n)*(float64(k)+0.5) - max(0, widths[l]-wide)/2
			} else {
				x[s] += (wide - widths[l]) / 2
			}
		}
	}
	y := 0.0
	for l := top; l >= 1; l-- {
		deep := 0.0
		for _, s := range rows[l] {
			at[s] = point{x[s], y}
			w := size(s)
			d.boxes = append(d.boxes, m.node(s, x[s]-w/2, y-13, w, 26, short(m.f.Nodes[s].Name(), 18), 0))
			m.hostsBelow(d, s, x[s], y+13)
			deep = max(deep, m.hang(s).h)
		}
		gap := 110.0
		if l > 1 {
			gap = min(max(110, wide/9), 260)
		}
		y += 26 + deep + gap
	}
	m.extraHosts(d, at)
	m.connect(d, at, 13, len(m.bundles) > 60)
}

// extraHosts gives the places of adapters that are linked to a second switch.
func (m *model) extraHosts(d *drawing, at map[int32]point) {
	if m.fold {
		return
	}
	byTitle := map[string]point{}
	for _, b := range d.boxes {
		if b.class == "host" || b.class == "sm" {
			byTitle[b.title] = point{b.x + b.w/2, b.y + b.h/2}
		}
	}
	for _, b := range m.bundles {
		for _, n := range []int32{b.a, b.b} {
			if m.f.Nodes[n].Switch == fabric.None {
				if p, ok := byTitle[m.title(n)]; ok {
					at[n] = p
				}
			}
		}
	}
}

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

// sprung places switches by springs along their links (after Fruchterman and
// Reingold, 1991), always in the same way.
func (m *model) sprung(d *drawing) {
	n := len(m.sw)
	index := map[int32]int{}
	pos := make([]point, n)
	// From a circle in the order of a walk, so that neighbours begin near.
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
		index[s] = i
		a := 2 * math.Pi * float64(i) / float64(n)
		pos[i] = point{math.Cos(a), math.Sin(a)}
	}
	ideal := 2.2 / math.Sqrt(float64(n))
	rounds := min(400, 4000000/max(n*n, 1))
	for r := range rounds {
		heat := 0.12 * (1 - float64(r)/float64(rounds))
		move := make([]point, n)
		for i := range n {
			for j := i + 1; j < n; j++ {
				dx, dy := pos[i].x-pos[j].x, pos[i].y-pos[j].y
				q := max(dx*dx+dy*dy, 1e-6)
				k := ideal * ideal / q
				move[i].x += dx * k
				move[i].y += dy * k
				move[j].x -= dx * k
				move[j].y -= dy * k
			}
		}
		for _, s := range m.sw {
			for _, t := range m.at[s] {
				if s > t {
					continue
				}
				i, j := index[s], index[t]
				dx, dy := pos[i].x-pos[j].x, pos[i].y-pos[j].y
				k := math.Hypot(dx, dy) / ideal
				move[i].x -= dx * k
				move[i].y -= dy * k
				move[j].x += dx * k
				move[j].y += dy * k
			}
		}
		for i := range n {
			// To the middle, or what has one link only drifts away.
			move[i].x -= pos[i].x * 1.5
			move[i].y -= pos[i].y * 1.5
			l := max(math.Hypot(move[i].x, move[i].y), 1e-9)
			k := min(l, heat) / l
			pos[i].x += move[i].x * k
			pos[i].y += move[i].y * k
		}
	}
	size := func(s int32) float64 { return textWidth(short(m.f.Nodes[s].Name(), 16)) }
	// What each switch takes with what hangs below it, around its place.
	half := make([]point, n)
	drop := make([]float64, n)
	wide := 0.0
	for _, s := range m.sw {
		g, i := m.hang(s), index[s]
		half[i] = point{max(size(s), g.w)/2 + 14, (26+g.h)/2 + 12}
		drop[i] = g.h / 2
		wide = max(wide, half[i].x, half[i].y)
	}
	scale := wide * math.Sqrt(float64(n)) * 0.9
	for i := range pos {
		pos[i].x *= scale
		pos[i].y = pos[i].y*scale + drop[i]
	}
	// Boxes that overlap are pushed apart; if that does not end, all move away
	// from the middle.
	for r := range 300 {
		hit := false
		for i := range n {
			for j := i + 1; j < n; j++ {
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
			break
		}
		if r%20 == 19 {
			for i := range pos {
				pos[i].x *= 1.1
				pos[i].y *= 1.1
			}
		}
	}
	at := map[int32]point{}
	for _, s := range m.sw {
		p := pos[index[s]]
		at[s] = point{p.x, p.y - drop[index[s]]}
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

// legend says what there is and what the colours mean.
func (m *model) legend(d *drawing) {
	y, left := 0.0, math.Inf(1)
	for _, b := range append(d.panels[:len(d.panels):len(d.panels)], d.boxes...) {
		y, left = max(y, b.y+b.h), min(left, b.x)
	}
	for _, l := range d.lines {
		for _, p := range append([]point{l.from, l.to}, l.via...) {
			y = max(y, p.y)
		}
	}
	if math.IsInf(left, 0) {
		left = 0
	}
	y += 46
	count := [4]int{}
	for _, b := range m.bundles {
		count[b.state] += b.bad
	}
	links, bad := m.f.Links(), 0
	for _, b := range m.bundles {
		bad += b.bad
	}
	for _, l := range m.leaves {
		bad += l.bad
	}
	d.summary = fmt.Sprintf("%s, %s, %s", plural(m.hosts, "host", "hosts"), plural(len(m.sw), "switch", "switches"),
		plural(links, "link", "links"))
	if bad > 0 {
		d.summary += fmt.Sprintf(", %d of them bad", bad)
	}
	if m.sm != fabric.None {
		d.summary += "; subnet manager: " + m.f.PortName(m.f.SMPort)
	}
	d.labels = append(d.labels, label{point{left, y}, d.summary, "", "", 13})
	y += 22
	x := left
	for i, text := range []string{"Active", "Active, narrower or slower than it should be", "Initialize or Armed", "Down"} {
		d.lines = append(d.lines, line{from: point{x, y - 4}, to: point{x + 24, y - 4}, state: state(i), width: 3})
		d.labels = append(d.labels, label{point{x + 30, y}, text, "", "", 0})
		x += 30 + textWidth(text) + 14
	}
	y += 22
	x = left
	for _, k := range [][2]string{{"switch", "switch"}, {"host", "host, or their number"}, {"sm", "with the subnet manager"}} {
		d.boxes = append(d.boxes, box{x: x, y: y - 12, w: 24, h: 14, class: k[0]})
		d.labels = append(d.labels, label{point{x + 30, y}, k[1], "", "", 0})
		x += 30 + textWidth(k[1]) + 14
	}
	d.labels = append(d.labels, label{point{x, y}, "×4: so many parallel links; a thicker line is more links", "", "", 0})
}
