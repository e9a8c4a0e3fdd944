package fabric

import (
	"bufio"
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"

	"ibnetworkd/ib"
)

// Sizes of the picture in pixels.
const (
	svgRow, svgBox, svgGap = 130, 26, 8
	svgMargin, svgChar     = 20, 7
	// Up to svgFlat adapters stand in one row; more stand in columns of at
	// most svgStack, below the switch that they hang on.
	svgFlat, svgStack = 24, 12
)

// WriteSVG draws the subnet: switches in rows by their distance from the
// adapters, adapters at the bottom, links between them coloured by state and
// as thick as their width, each of several between the same nodes beside the
// other. Hovering over a node or link tells more.
func WriteSVG(w io.Writer, f *Fabric) error {
	b := bufio.NewWriter(w)
	level := f.levels()
	top := int32(0)
	for _, l := range level {
		top = max(top, l)
	}
	rows := make([][]int32, top+1)
	for i := range f.Nodes {
		rows[level[i]] = append(rows[level[i]], int32(i))
	}
	x, width := make([]float64, len(f.Nodes)), make([]float64, len(f.Nodes))
	depth := make([]int, len(f.Nodes)) // place in its column
	stacked := len(rows[0]) > svgFlat
	deepest := 0
	size := func(i int32) float64 { return float64(min(len([]rune(f.Nodes[i].Name())), 18)*svgChar + 12) }
	total, right := 0.0, make([]float64, len(rows))
	for l := range rows {
		row := rows[l]
		if l > 0 {
			// Above its neighbours of the row below, so that fewer links cross.
			at := make(map[int32]float64, len(row))
			for _, i := range row {
				sum, n := 0.0, 0.0
				first, count := f.PortRange(i)
				for p := first; p < first+count; p++ {
					if q := f.Ports[p].Peer; q != None && level[f.Ports[q].Node] == int32(l-1) {
						sum += x[f.Ports[q].Node]
						n++
					}
				}
				at[i] = sum / max(n, 1)
			}
			slices.SortStableFunc(row, func(a, b int32) int { return cmp.Compare(at[a], at[b]) })
		} else {
			slices.SortStableFunc(row, func(a, b int32) int { return cmp.Compare(f.place(a), f.place(b)) })
		}
		pos := float64(svgMargin)
		for len(row) > 0 {
			// A column, of one node where nothing is stacked.
			n := 1
			if l == 0 && stacked {
				same := 1
				for same < len(row) && f.place(row[same])>>8 == f.place(row[0])>>8 {
					same++
				}
				cols := (same + svgStack - 1) / svgStack
				n = (same + cols - 1) / cols
				pos += 2 * svgGap // for the links
			}
			wide := 0.0
			for k, i := range row[:n] {
				width[i], depth[i] = size(i), k
				wide = max(wide, width[i])
				x[i] = pos + width[i]/2
			}
			deepest = max(deepest, n-1)
			pos += wide + svgGap
			row = row[n:]
		}
		right[l] = pos
		total = max(total, pos)
	}
	caption := fmt.Sprintf("%d nodes, %d switches, %d links; green Active, yellow Armed, red else; the thicker the wider", len(f.Nodes), len(f.Switches), f.Links())
	total = max(total, svgMargin+float64(len(caption)*svgChar))
	for l := range rows {
		for _, i := range rows[l] {
			x[i] += (total - right[l]) / 2
		}
	}
	// Links within a row bend upwards, the longer the higher; those of the
	// topmost row need room above it.
	rise := func(a, b int32) float64 { return min(svgMargin+math.Abs(x[a]-x[b])/8, svgRow-2*svgBox) }
	above := 0.0
	many := map[[2]int32]int{}
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer == None || p.Peer < int32(i) {
			continue
		}
		q := f.Ports[p.Peer].Node
		many[[2]int32{min(p.Node, q), max(p.Node, q)}]++
		if level[p.Node] == top && level[q] == top {
			above = max(above, rise(p.Node, q)+svgGap*float64(many[[2]int32{min(p.Node, q), max(p.Node, q)}]))
		}
	}
	y := func(i int32) float64 {
		return svgMargin + above + float64(top-level[i])*svgRow + svgBox/2 + float64(depth[i]*(svgBox+svgGap))
	}
	h := 2*svgMargin + above + float64(top)*svgRow + svgBox + float64(deepest*(svgBox+svgGap))
	drawn := map[[2]int32]int{}
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="monospace" font-size="11">`+"\n", total+svgMargin, h+20)
	fmt.Fprintf(b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer == None || p.Peer < int32(i) {
			continue
		}
		q := &f.Ports[p.Peer]
		color := "#c03030"
		st := min(p.Info.State(), q.Info.State())
		switch {
		case st >= ib.PortActive:
			color = "#3a8a3a"
		case st == ib.PortArmed:
			color = "#c0a030"
		}
		thick := map[string]float64{"1x": 0.7, "2x": 1, "4x": 1.5, "8x": 2.5, "12x": 3.5}[p.Info.WidthName()]
		pair := [2]int32{min(p.Node, q.Node), max(p.Node, q.Node)}
		k := drawn[pair]
		drawn[pair]++
		x1, x2, y1, y2 := x[p.Node], x[q.Node], y(p.Node), y(q.Node)
		a, s := p.Node, q.Node // an adapter in a column and its switch
		if level[a] != 0 {
			a, s = s, a
		}
		if stacked && level[a] == 0 && level[s] != 0 {
			// From a line along the left side of the column, which stands for
			// the links of all in it.
			left := x[a] - width[a]/2
			side := left - svgGap - 1
			if first := y(a) - float64(depth[a]*(svgBox+svgGap)) - svgBox/2 - svgGap; k == 0 {
				fmt.Fprintf(b, `<polyline points="%.1f,%.1f %.1f,%.1f %.1f,%.1f" fill="none" stroke="#aaa"/>`+"\n", x[s], y(s), side, first, side, y(a))
			}
			fmt.Fprintf(b, `<path d="M%.1f %.1f L%.1f %.1f" fill="none"`, side, y(a)+float64(3*k), left, y(a)+float64(3*k))
		} else if y1 == y2 && level[p.Node] == level[q.Node] {
			// A link back to the same node is an ear on its box.
			ear := 0.0
			if p.Node == q.Node {
				ear = 12
			}
			up := y1 - 2*(rise(p.Node, q.Node)+svgGap*float64(k))
			fmt.Fprintf(b, `<path d="M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f" fill="none"`, x1-ear, y1, x1-ear, (2*up+y1)/3, x2+ear, (2*up+y1)/3, x2+ear, y2)
		} else {
			off := (float64(k) - float64(many[pair]-1)/2) * min(svgGap/2, min(width[p.Node], width[q.Node])/float64(many[pair]))
			fmt.Fprintf(b, `<path d="M%.1f %.1f L%.1f %.1f" fill="none"`, x1+off, y1, x2+off, y2)
		}
		fmt.Fprintf(b, ` stroke="%s" stroke-width="%.1f"><title>%s - %s: %s%s %v</title></path>`+"\n", color, max(thick, 0.7),
			html.EscapeString(f.PortName(int32(i))), html.EscapeString(f.PortName(p.Peer)), p.Info.WidthName(), p.Info.SpeedName(), st)
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		fill, lid := "#e8eef8", ib.LID(0)
		first, count := f.PortRange(int32(i))
		for p := first; p < first+count; p++ {
			if f.IsEndPort(p) && f.Ports[p].LID != 0 && lid == 0 {
				lid = f.Ports[p].LID
			}
		}
		if n.Switch != None {
			fill = "#d8d8d8"
		}
		if f.SMPort != None && f.Ports[f.SMPort].Node == int32(i) {
			fill = "#ffe9a8"
		}
		name := []rune(n.Name())
		if len(name) > 18 {
			name = append(name[:17], '…')
		}
		fmt.Fprintf(b, `<g><title>%s %v, %d ports, LID %v</title><rect x="%.1f" y="%.1f" width="%.1f" height="%d" rx="4" fill="%s" stroke="#555"/>`,
			html.EscapeString(n.Name()), n.GUID, n.NumPorts, lid, x[i]-width[i]/2, y(int32(i))-svgBox/2, width[i], svgBox, fill)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text></g>`+"\n", x[i], y(int32(i))+4, html.EscapeString(string(name)))
	}
	fmt.Fprintf(b, `<text x="%d" y="%.0f" fill="#555">%s</text>`+"\n</svg>\n", svgMargin, h+12, caption)
	return b.Flush()
}

// place orders adapters by the switch port that they hang on.
func (f *Fabric) place(node int32) int64 {
	first, count := f.PortRange(node)
	for p := first; p < first+count; p++ {
		if q := f.Ports[p].Peer; q != None {
			return int64(f.Ports[q].Node)<<8 | int64(f.Ports[q].Num)
		}
	}
	return int64(node)
}

// levels gives adapters 0 and switches their distance from the next adapter.
func (f *Fabric) levels() []int32 {
	level := make([]int32, len(f.Nodes))
	var queue []int32
	for i := range f.Nodes {
		level[i] = -1
		if f.Nodes[i].Switch == None {
			level[i] = 0
			queue = append(queue, int32(i))
		}
	}
	for k := 0; k < len(queue); k++ {
		first, count := f.PortRange(queue[k])
		for p := first; p < first+count; p++ {
			if q := f.Ports[p].Peer; q != None && level[f.Ports[q].Node] < 0 {
				level[f.Ports[q].Node] = level[queue[k]] + 1
				queue = append(queue, f.Ports[q].Node)
			}
		}
	}
	for i := range level {
		level[i] = max(level[i], 0)
	}
	return level
}
