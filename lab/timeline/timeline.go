// Package timeline draws what happened in a scenario: one row for each thing that
// was watched (a port, a link, a pair of hosts), its states as coloured bars, and
// events as marks.  It is pure: records in, SVG out.
package timeline

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"time"
)

// Record is one thing that happened.
type Record struct {
	At   time.Time `json:"at"`
	Row  string    `json:"row"`
	Text string    `json:"text"`
	// Mark is true for an event without duration; else Text is the state of
	// the row from now on, and "" ends it.
	Mark bool `json:"mark,omitempty"`
	// Bad colours a mark as a failure.
	Bad bool `json:"bad,omitempty"`
}

const maxRecords = 1 << 20

// Read parses records, one JSON object per line, and puts prefix before their
// rows.  A damaged line, as a killed guest leaves it, ends the reading.
func Read(r io.Reader, prefix string) []Record {
	var out []Record
	sc := bufio.NewScanner(r)
	for sc.Scan() && len(out) < maxRecords {
		var rec Record
		if json.Unmarshal(sc.Bytes(), &rec) != nil {
			break
		}
		rec.Row = prefix + rec.Row
		out = append(out, rec)
	}
	return out
}

// Colours of states that are well known; others get one by their name.
var colours = map[string]string{
	"DOWN": "#c0392b", "INIT": "#e67e22", "ARMED": "#f1c40f", "ACTIVE": "#27ae60",
	"carrier": "#2980b9", "no carrier": "#95a5a6", "MASTER": "#8e44ad", "STANDBY": "#bb8fce", "running": "#8e44ad",
	"answers": "#27ae60", "lost": "#c0392b",
}

var palette = []string{"#16a085", "#7f8c8d", "#d35400", "#2c3e50", "#c39bd3", "#5dade2"}

func colour(state string) string {
	if c, ok := colours[state]; ok {
		return c
	}
	h := uint32(2166136261)
	for _, b := range []byte(state) {
		h = (h ^ uint32(b)) * 16777619
	}
	return palette[h%uint32(len(palette))]
}

const (
	left   = 190
	width  = 1000
	rowH   = 22
	top    = 46
	barH   = 14
	maxRow = 400
)

// SVG draws the records.  The same records give the same bytes.
func SVG(w io.Writer, title string, records []Record) error {
	recs := slices.Clone(records)
	slices.SortStableFunc(recs, func(a, b Record) int { return a.At.Compare(b.At) })
	rows := map[string]int{}
	var names []string
	for _, r := range recs {
		if _, ok := rows[r.Row]; !ok && len(names) < maxRow {
			rows[r.Row] = 0
			names = append(names, r.Row)
		}
	}
	slices.SortFunc(names, cmp.Compare[string])
	for i, n := range names {
		rows[n] = i
	}
	var start, end time.Time
	if len(recs) > 0 {
		start, end = recs[0].At, recs[len(recs)-1].At
	}
	span := max(end.Sub(start), time.Millisecond)
	x := func(t time.Time) float64 { return left + width*float64(t.Sub(start))/float64(span) }
	y := func(row string) int { return top + rows[row]*rowH }

	b := bufio.NewWriter(w)
	height := top + len(names)*rowH + 30
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", left+width+30, height)
	fmt.Fprintf(b, `<rect width="100%%" height="100%%" fill="white"/><text x="10" y="18" font-size="14">%s</text>`+"\n", html.EscapeString(title))
	step := tick(span)
	for t := time.Duration(0); t <= span; t += step {
		px := x(start.Add(t))
		fmt.Fprintf(b, `<path d="M%.1f %d V%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle" fill="#777">%s</text>`+"\n",
			px, top-8, height-24, px, top-12, t)
	}
	for _, n := range names {
		fmt.Fprintf(b, `<text x="10" y="%d">%s</text>`+"\n", y(n)+barH-3, html.EscapeString(n))
	}
	open := map[string]Record{}
	bar := func(r Record, until time.Time) {
		if r.Text == "" {
			return
		}
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s: %s for %s</title></rect>`+"\n",
			x(r.At), y(r.Row), max(x(until)-x(r.At), 0.5), barH, colour(r.Text),
			html.EscapeString(r.Row), html.EscapeString(r.Text), until.Sub(r.At).Round(time.Millisecond))
		if x(until)-x(r.At) > float64(7*len(r.Text)+6) {
			fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="white">%s</text>`+"\n", x(r.At)+3, y(r.Row)+barH-3, html.EscapeString(r.Text))
		}
	}
	var marks []Record
	for _, r := range recs {
		if _, ok := rows[r.Row]; !ok {
			continue
		}
		if r.Mark {
			marks = append(marks, r)
			continue
		}
		if o, ok := open[r.Row]; ok {
			bar(o, r.At)
		}
		open[r.Row] = r
	}
	for _, n := range names {
		if o, ok := open[n]; ok {
			bar(o, end)
		}
	}
	// The text of a mark ends where the next mark of its row is.
	room := make([]float64, len(marks))
	next := map[string]float64{}
	for i, r := range slices.Backward(marks) {
		end, ok := next[r.Row]
		if !ok {
			end = left + width
		}
		next[r.Row] = x(r.At)
		room[i] = end - x(r.At)
	}
	for i, r := range marks {
		c := "#2c3e50"
		if r.Bad {
			c = "#c0392b"
		}
		if _, bars := open[r.Row]; !bars && room[i] > float64(6*len(r.Text)+14) {
			fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="#555">%s</text>`+"\n", x(r.At)+7, y(r.Row)+barH-3, html.EscapeString(r.Text))
		}
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%d" r="4" fill="%s"><title>%s %s: %s</title></circle>`+"\n",
			x(r.At), y(r.Row)+barH/2, c, r.At.Sub(start).Round(time.Millisecond), html.EscapeString(r.Row), html.EscapeString(r.Text))
	}
	fmt.Fprintln(b, "</svg>")
	return b.Flush()
}

// tick chooses a round distance that gives about ten lines.
func tick(span time.Duration) time.Duration {
	for _, d := range []time.Duration{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000} {
		if t := d * time.Millisecond; span/t <= 12 {
			return t
		}
	}
	return max(span/10, time.Millisecond)
}
