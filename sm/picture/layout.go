package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ibnetworkd/sm/fabric"
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

// hang is the space that a switch needs for what is below it.
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

// hostsBelow draws what is attached to a switch whose lower edge is at (x, y), x being
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

// connect draws the links between the boxes at the given centres. half are the
// half heights of the boxes.
func (m *model) connect(d *drawing, at map[int32]point, half float64, pale bool) {
	usual := m.usualBundle()
	if usual > 1 {
		d.labels = append(d.labels, label{point{0, -24}, fmt.Sprintf("each line between switches without a number: %d links", usual), "", "", 0})
	}
	var labels []point
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
			// Labels of many lines to one box are apart nearer to the lower end.
			li.at = point{p.x + (q.x-p.x)*0.3, p.y - half + (q.y+half-p.y+half)*0.3}
		default:
			li.from, li.to = point{p.x, p.y + half}, point{q.x, q.y - half}
			li.at = point{q.x + (p.x-q.x)*0.3, q.y - half + (p.y+half-q.y+half)*0.3}
		}
		if li.label != "" {
			li.at = freePlace(labels, li.at, li.from, li.to)
			labels = append(labels, li.at)
		}
		d.lines = append(d.lines, li)
	}
}

// labelWide and labelHigh are what the number at a line takes.
const labelWide, labelHigh = 34.0, 13.0

// freePlace moves the label of a line along it to where no other label is.
func freePlace(labels []point, at, from, to point) point {
	free := func(p point) bool {
		return !slices.ContainsFunc(labels, func(q point) bool {
			return math.Abs(p.x-q.x) < labelWide && math.Abs(p.y-q.y) < labelHigh
		})
	}
	if free(at) || from.y == to.y {
		return at
	}
	for _, t := range []float64{0.8, 0.6, 0.5, 0.87, 0.4, 0.3, 0.2} {
		if p := (point{from.x + (to.x-from.x)*t, from.y + (to.y-from.y)*t}); free(p) {
			return p
		}
	}
	return at
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

// legend draws what there is and what the colours mean.
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
	d.key(left, y)
}

// keyWidth is what the key of the colours has at least.
const keyWidth = 620

// key draws what the colours mean, in lines that are no wider than the rest.
func (d *drawing) key(left, y float64) {
	right := left + keyWidth
	for _, b := range append(d.panels[:len(d.panels):len(d.panels)], d.boxes...) {
		right = max(right, b.x+b.w)
	}
	x := left
	place := func(text string, sign float64) {
		if x > left && x+sign+textWidth(text) > right {
			x, y = left, y+22
		}
	}
	for i, text := range []string{"Active", "Active, narrower or slower than it should be", "Initializing or Armed", "Down"} {
		place(text, 30)
		d.lines = append(d.lines, line{from: point{x, y - 4}, to: point{x + 24, y - 4}, state: state(i), width: 3})
		d.labels = append(d.labels, label{point{x + 30, y}, text, "", "", 0})
		x += 30 + textWidth(text) + 14
	}
	x, y = left, y+22
	for _, k := range [][2]string{{"switch", "switch"}, {"host", "host, or their number"}, {"sm", "with the subnet manager"}} {
		place(k[1], 30)
		d.boxes = append(d.boxes, box{x: x, y: y - 12, w: 24, h: 14, class: k[0]})
		d.labels = append(d.labels, label{point{x + 30, y}, k[1], "", "", 0})
		x += 30 + textWidth(k[1]) + 14
	}
	const many = "×4: so many parallel links; a thicker line is more links"
	place(many, 0)
	d.labels = append(d.labels, label{point{x, y}, many, "", "", 0})
}
