package picture

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"ibnetworkd/sm/fabric"
)

// podGrid are the measures of a drawing of pods: the core switches on top, below
// them the pods in columns.
type podGrid struct {
	m         *model
	d         *drawing
	cell, gap float64 // of a switch, and between two
	width     float64 // of a pod's panel
	cols      int
	busY      float64 // of the line that all pods are linked to
	height    float64 // of it
	many      bool    // rows of switches are one box each
}

// Height of a pod's panel, and the gap between two of them for their links to the core.
const podHeight, podGap, podText = 222.0, 70.0, 9.5

// podded draws a fat-tree of three levels: the core switches on top, below them
// a panel for each pod with its two rows of switches and the adapters' counts.
func (m *model) podded(d *drawing, pods [][]int32, core []int32) {
	isCore := map[int32]bool{}
	for _, s := range core {
		isCore[s] = true
	}
	within, out := m.podLinks(pods, isCore)
	total := 0
	for _, b := range within {
		total += len(b)
	}
	g := m.podGrid(d, pods, total > linesAtMost)
	if g.many {
		g.foldedCore(core)
	} else {
		g.core(core)
	}
	trunk := make([]float64, g.cols)
	for i, p := range pods {
		x, y := float64(i%g.cols)*(g.width+podGap)+podGap/2, g.busY+34+float64(i/g.cols)*(g.height+44)
		g.pod(i, p, x, y, within[i], &out[i])
		trunk[i%g.cols] = max(trunk[i%g.cols], y+20)
	}
	for c, y := range trunk {
		tx := float64(c)*(g.width+podGap) + podGap/4
		d.lines = append(d.lines, line{from: point{tx, g.busY}, to: point{tx, y - 4}, width: 4, pale: true})
	}
	slices.SortStableFunc(d.lines, func(a, b line) int { return cmp.Compare(a.state, b.state) })
}

func (m *model) podGrid(d *drawing, pods [][]int32, many bool) *podGrid {
	leaves := 0
	for _, p := range pods {
		low, high := m.rows(p)
		leaves = max(leaves, len(low), len(high))
	}
	g := &podGrid{m: m, d: d, cell: 52, gap: 6, height: podHeight, many: many}
	if leaves > 12 {
		g.cell, g.gap = 40, 4
	}
	g.width = float64(leaves)*(g.cell+g.gap) + 24
	if many {
		g.width, g.height = foldWidth, foldHeight
	}
	cols := min(max(1, int(math.Round(math.Sqrt(float64(len(pods))*g.height/g.width*1.9)))), len(pods))
	// One more or less column where the last row is full then.
	for _, c := range []int{cols, cols + 1, cols - 1} {
		if c > 0 && len(pods)%c == 0 {
			cols = c
			break
		}
	}
	g.cols = cols
	return g
}

// rows are the switches of a pod with hosts and those without, in order.
func (m *model) rows(pod []int32) (low, high []int32) {
	for _, s := range pod {
		if m.leaves[s].n > 0 {
			low = append(low, s)
		} else {
			high = append(high, s)
		}
	}
	slices.Sort(low)
	slices.Sort(high)
	return low, high
}

// put draws a switch as a cell with the end of its name.
func (g *podGrid) put(s int32, x, y float64) *box {
	n := g.m.f.Nodes[s].Name()
	if k := int((g.cell - 4) / 5.8); len([]rune(n)) > k {
		r := []rune(n)
		n = "…" + string(r[len(r)-k+1:])
	}
	g.d.boxes = append(g.d.boxes, g.m.node(s, x, y, g.cell, rowHeight, n, podText))
	return &g.d.boxes[len(g.d.boxes)-1]
}

// core draws the core switches, in as many rows as the pods are wide.
func (g *podGrid) core(core []int32) {
	d, step := g.d, g.cell+g.gap
	wide := float64(g.cols) * (g.width + podGap)
	perRow := max(1, int(wide/step))
	rows := (len(core) + perRow - 1) / perRow
	perRow = (len(core) + rows - 1) / rows
	start := (wide - float64(min(perRow, len(core)))*step) / 2
	for i, s := range core {
		if b := g.put(s, start+float64(i%perRow)*step, float64(i/perRow)*26); b.class == "switch" {
			b.class = "core"
		}
	}
	bottom := float64(rows) * 26
	d.labels = append(d.labels, label{point{0, -10}, plural(len(core), "core switch", "core switches"), "", "", 13})
	g.busY = bottom + 22
	d.lines = append(d.lines, line{from: point{10, g.busY}, to: point{wide - 10, g.busY}, width: 5, pale: true,
		title: "all pods are linked to the core switches"})
	for i := range min(perRow, len(core)) {
		x := start + float64(i)*step + g.cell/2
		d.lines = append(d.lines, line{from: point{x, bottom - 6}, to: point{x, g.busY}, width: 1, pale: true})
	}
}

// pod draws pod i with its top left corner at x and y: its switches, the links
// between them, the counts of hosts and its links to the core.
func (g *podGrid) pod(i int, pod []int32, x, y float64, within []*bundle, out *bundle) {
	d := g.d
	d.panels = append(d.panels, box{x: x, y: y, w: g.width, h: g.height, class: "pod"})
	low, high := g.m.rows(pod)
	at := map[int32]point{}
	row := func(list []int32, y float64) {
		left := x + (g.width-float64(len(list))*(g.cell+g.gap)+g.gap)/2
		for k, s := range list {
			at[s] = point{left + float64(k)*(g.cell+g.gap) + g.cell/2, y}
			g.put(s, at[s].x-g.cell/2, y-10)
		}
	}
	if g.many {
		g.foldedPod(low, high, x, y, within)
	} else {
		row(high, y+58)
		row(low, y+154)
	}
	hosts, links, bad := 0, 0, 0
	for _, s := range low {
		hosts += len(g.m.leaves[s].hosts)
		if !g.many {
			g.hosts(s, at[s])
		}
	}
	for _, b := range within {
		links += b.n
		bad += b.bad
		if !g.many {
			d.lines = append(d.lines, between(b, at[b.a], at[b.b]))
		}
	}
	d.labels = append(d.labels, label{point{x + 10, y + 20},
		podTitle(i, pod, hosts, out, g.many), "", titleColour(out, g.many), 12})
	if out.bad+bad > 0 && !g.many {
		d.labels = append(d.labels, label{point{x + 10, y + 36},
			fmt.Sprintf("%d of %d links between its switches bad, %d of %d to the core", bad, links, out.bad, out.n), "",
			colours[max(out.state, reduced)], 11})
	}
	d.lines = append(d.lines, line{from: point{x - podGap/4, y + 16}, to: point{x, y + 16}, state: out.state, width: thick(out.n),
		title: fmt.Sprintf("%s to the core, %d bad\n%s", plural(out.n, "link", "links"), out.bad, out.title)})
}

// podTitle returns what is in a pod, with many only what its rows do not show.
func podTitle(i int, pod []int32, hosts int, out *bundle, many bool) string {
	if many {
		return fmt.Sprintf("pod %d: %s to the core%s", i+1, plural(out.n, "link", "links"), andBad(out.bad))
	}
	return fmt.Sprintf("pod %d: %s, %s; %s to the core", i+1, plural(len(pod), "switch", "switches"), plural(hosts, "host", "hosts"),
		plural(out.n, "link", "links"))
}

// titleColour is that of the links to the core where the title says that some are bad.
func titleColour(out *bundle, many bool) string {
	if many && out.bad > 0 {
		return colours[max(out.state, reduced)]
	}
	return ""
}

// hosts draws the number of a leaf's hosts below it.
func (g *podGrid) hosts(s int32, c point) {
	l := g.m.leaves[s]
	class := "count"
	if l.sm {
		class = "sm"
	}
	title := fmt.Sprintf("%s of %s, %d of their %s not as they should be", plural(len(l.hosts), "host", "hosts"),
		g.m.f.Nodes[s].Name(), l.bad, plural(l.n, "link", "links"))
	li := line{from: point{c.x, c.y + 10}, to: point{c.x, c.y + 24}, state: l.state, width: thick(l.n), title: title}
	if l.bad > 0 {
		li.label, li.at = fmt.Sprintf("%d bad", l.bad), point{c.x, c.y + 60}
	}
	g.d.lines = append(g.d.lines, li)
	g.d.boxes = append(g.d.boxes, box{x: c.x - g.cell/2 + 4, y: c.y + 24, w: g.cell - 8, h: rowHeight, text: fmt.Sprint(len(l.hosts)),
		title: title, class: class, size: podText})
}

// between is the line of a bundle from the upper to the lower of two switches.
func between(b *bundle, a, q point) line {
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
	return li
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
