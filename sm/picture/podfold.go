package picture

import (
	"fmt"
	"strings"
)

// Measures of a drawing whose rows of switches are one box each, which shows the whole
// of some thousand hosts at the width of a screen.
const (
	foldWidth, foldHeight = 300.0, 178.0
	foldNames             = 2 // of leaves with bad links in a panel
)

// andBad is how many links are not as they should be, "" for none.
func andBad(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d bad", n)
}

// span names a row of switches by its first and last.
func (m *model) span(row []int32) string {
	name := func(s int32) string { return short(m.f.Nodes[s].Name(), 12) }
	if len(row) == 1 {
		return name(row[0])
	}
	return fmt.Sprintf("%s to %s", name(row[0]), name(row[len(row)-1]))
}

// row draws switches as one box.
func (g *podGrid) row(row []int32, x, y, w float64, what string) {
	class := "switch"
	if what != "" {
		class = "core"
	}
	for _, s := range row {
		if s == g.m.sm {
			class = "sm"
		}
	}
	text := plural(len(row), "switch", "switches")
	if what != "" {
		text = plural(len(row), what+" switch", what+" switches")
	}
	text += " " + g.m.span(row)
	g.d.boxes = append(g.d.boxes, box{x: x, y: y, w: w, h: 26, text: text, title: text, class: class, size: 11, of: len(row)})
}

// foldedCore draws the core switches as one box above the line that all pods are
// linked to.
func (g *podGrid) foldedCore(core []int32) {
	wide := float64(g.cols) * (g.width + podGap)
	g.row(core, wide/2-180, 0, 360, "core")
	g.busY = 48
	g.d.lines = append(g.d.lines, line{from: point{10, g.busY}, to: point{wide - 10, g.busY}, width: 5, pale: true,
		title: "all pods are linked to the core switches"}, line{from: point{wide / 2, 26}, to: point{wide / 2, g.busY}, width: 5, pale: true})
}

// foldedPod draws what is in the panel of a pod: a box for each of its rows and one
// for its hosts, the worst of the links between them, and where the bad ones are.
func (g *podGrid) foldedPod(low, high []int32, x, y float64, within []*bundle) {
	d, w, mid := g.d, g.width-24, x+g.width/2
	links := bundle{}
	for _, b := range within {
		links.n += b.n
		links.bad += b.bad
		links.state = max(links.state, b.state)
	}
	if len(high) > 0 {
		g.row(high, x+12, y+46, w, "")
		d.lines = append(d.lines, line{from: point{mid, y + 72}, to: point{mid, y + 92}, state: links.state, width: thick(links.n),
			title: plural(links.n, "link", "links")})
		colour := ""
		if links.bad > 0 {
			colour = colours[max(links.state, reduced)]
		}
		d.labels = append(d.labels, label{point{mid + 10, y + 86}, plural(links.n, "link", "links") + andBad(links.bad), "", colour, 0})
	}
	if len(low) == 0 {
		return
	}
	g.row(low, x+12, y+92, w, "")
	all, hosts, class := leaf{}, 0, "count"
	var bad []string
	for _, s := range low {
		l := g.m.leaves[s]
		hosts += len(l.hosts)
		all.n += l.n
		all.bad += l.bad
		all.state = max(all.state, l.state)
		if l.sm {
			class = "sm"
		}
		if l.bad > 0 {
			bad = append(bad, fmt.Sprintf("%s %d", short(g.m.f.Nodes[s].Name(), 12), l.bad))
		}
	}
	title := fmt.Sprintf("%s, %d of their %s not as they should be", plural(hosts, "host", "hosts"), all.bad, plural(all.n, "link", "links"))
	d.boxes = append(d.boxes, box{x: x + 12, y: y + 132, w: w, h: rowHeight, text: plural(hosts, "host", "hosts"), title: title,
		class: class, size: 11})
	d.lines = append(d.lines, line{from: point{mid, y + 118}, to: point{mid, y + 132}, state: all.state, width: thick(all.n), title: title})
	if len(bad) == 0 {
		return
	}
	text := strings.Join(bad[:min(len(bad), foldNames)], ", ")
	if n := len(bad) - foldNames; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	text = fmt.Sprintf("%d bad: %s", all.bad, text)
	room := int((w - 12) / char)
	d.labels = append(d.labels, label{point{x + 12, y + foldHeight - 6}, short(text, room), "", colours[max(all.state, reduced)], 0})
}
