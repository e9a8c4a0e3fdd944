package picture

import (
	"bufio"
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"ibnetworkd/sm/fabric"
)

type point struct{ x, y float64 }

// box is a node, a count of nodes or, without a text, a pod.
type box struct {
	x, y, w, h         float64 // of the upper left corner
	text, title, class string
	size               float64 // of the text, 0 for fontSize
	of                 int     // the number of switches that it represents, 0 for itself
}

type line struct {
	from, to point
	via      []point // corners, or with curve the control points
	curve    bool
	state    state
	width    float64
	pale     bool
	grey     bool // no link, but a symbol for several
	title    string
	label    string
	at       point // of the label
}

type label struct {
	point
	text, anchor, colour string
	size                 float64
}

// drawing is what is on the picture, in the order in which it is drawn.
type drawing struct {
	panels, boxes []box
	lines         []line
	labels        []label
	w, h          float64
	summary       string // for screen readers and as the title
}

func (d *drawing) finish() {
	minX, minY := math.Inf(1), math.Inf(1)
	maxX, maxY := 0.0, 0.0
	see := func(x, y float64) {
		minX, minY = min(minX, x), min(minY, y)
		maxX, maxY = max(maxX, x), max(maxY, y)
	}
	for _, b := range append(d.panels[:len(d.panels):len(d.panels)], d.boxes...) {
		see(b.x, b.y)
		see(b.x+b.w, b.y+b.h)
	}
	for _, l := range d.lines {
		for _, p := range append([]point{l.from, l.to}, l.via...) {
			see(p.x, p.y)
		}
	}
	for _, t := range d.labels {
		w := textWidth(t.text) * max(t.size, fontSize) / fontSize
		x := t.x
		switch t.anchor {
		case "middle":
			x -= w / 2
		case "end":
			x -= w
		}
		see(x, t.y-fontSize)
		see(x+w, t.y+4)
	}
	if math.IsInf(minX, 0) {
		minX, minY = 0, 0
	}
	d.move(margin-minX, margin-minY)
	d.w, d.h = maxX-minX+2*margin, maxY-minY+2*margin
}

func (d *drawing) move(x, y float64) {
	for i := range d.panels {
		d.panels[i].x += x
		d.panels[i].y += y
	}
	for i := range d.boxes {
		d.boxes[i].x += x
		d.boxes[i].y += y
	}
	for i := range d.labels {
		d.labels[i].x += x
		d.labels[i].y += y
	}
	for i := range d.lines {
		l := &d.lines[i]
		for _, p := range []*point{&l.from, &l.to, &l.at} {
			p.x += x
			p.y += y
		}
		for j := range l.via {
			l.via[j].x += x
			l.via[j].y += y
		}
	}
}

// clean is s for XML 1.0, which has no form for control characters.
func clean(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r == 0xfffe || r == 0xffff || r >= 0xd800 && r < 0xe000 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?")))
}

const style = `text{font-family:"DejaVu Sans Mono",monospace;fill:#222}
.switch{fill:#d8dde6;stroke:#556}.core{fill:#c6cede;stroke:#556}.host{fill:#eef4ff;stroke:#778}
.count{fill:#eef4ff;stroke:#99a}.sm{fill:#ffe08a;stroke:#a07800}.pod{fill:#fafbfd;stroke:#ccd}
path{fill:none}`

// WriteSVG draws the subnet as SVG that scales to the window (viewBox). Hovering
// over a node or link shows its GUID, LID, ports and rates.
func WriteSVG(w io.Writer, f *fabric.Fabric) error {
	d := draw(f)
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-size="%d">`+"\n",
		d.w, d.h, d.w, d.h, fontSize)
	fmt.Fprintf(b, "<title>%s</title>\n<style>%s</style>\n", clean(d.summary), style)
	fmt.Fprint(b, `<rect width="100%" height="100%" fill="white"/>`+"\n")
	for _, x := range d.panels {
		x.write(b)
	}
	for _, l := range d.lines {
		l.write(b)
	}
	for _, x := range d.boxes {
		x.write(b)
	}
	for _, l := range d.lines {
		if l.label != "" {
			(label{l.at, l.label, "middle", colours[l.state], 9.5}).write(b)
		}
	}
	for _, t := range d.labels {
		t.write(b)
	}
	fmt.Fprintln(b, "</svg>")
	return b.Flush()
}

func (x box) write(b *bufio.Writer) {
	size := cmp.Or(x.size, fontSize)
	fmt.Fprintf(b, `<g class="%s">`, x.class)
	if x.title != "" {
		fmt.Fprintf(b, "<title>%s</title>", clean(x.title))
	}
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4"/>`, x.x, x.y, x.w, x.h)
	if x.text != "" {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" font-size="%g" text-anchor="middle" style="stroke:none">%s</text>`, x.x+x.w/2,
			x.y+x.h/2+size*0.36, size, clean(x.text))
	}
	fmt.Fprintln(b, "</g>")
}

func (l line) write(b *bufio.Writer) {
	fmt.Fprintf(b, `<path class="link" d="M%.1f %.1f`, l.from.x, l.from.y)
	if l.curve {
		fmt.Fprint(b, " C")
	} else {
		fmt.Fprint(b, " L")
	}
	for _, p := range append(l.via[:len(l.via):len(l.via)], l.to) {
		fmt.Fprintf(b, " %.1f %.1f", p.x, p.y)
	}
	opacity := 1.0
	if l.pale && l.state == active {
		opacity = 0.35
	}
	colour := colours[l.state]
	if l.grey {
		colour = "#99a"
	}
	fmt.Fprintf(b, `" stroke="%s" stroke-width="%.1f" stroke-opacity="%g">`, colour, max(l.width, 1), opacity)
	if l.title != "" {
		fmt.Fprintf(b, "<title>%s</title>", clean(l.title))
	}
	fmt.Fprintln(b, "</path>")
}

func (t label) write(b *bufio.Writer) {
	size, anchor, colour := cmp.Or(t.size, fontSize), cmp.Or(t.anchor, "start"), cmp.Or(t.colour, "#222")
	// A white edge keeps it readable over lines.
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" font-size="%g" text-anchor="%s" style="fill:%s;stroke:white;stroke-width:3px;paint-order:stroke">%s</text>`+"\n", t.x, t.y, size, anchor, colour, clean(t.text))
}

// width of a bundle of n links on the picture.
func thick(n int) float64 { return min(1.2+0.9*math.Log2(float64(max(n, 1))), 6) }

// bundleLabel is the label of a bundle: how many links, and how many are not as
// they should be.
func bundleLabel(n, bad int) string {
	switch {
	case bad > 0 && n > 1:
		return fmt.Sprintf("×%d, %d bad", n, bad)
	case n > 1:
		return fmt.Sprintf("×%d", n)
	}
	return ""
}
