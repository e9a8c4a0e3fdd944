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
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
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
	// Note is true for a word beside the name of the row, such as a count; the
	// last one is used.
	Note bool `json:"note,omitempty"`
	// Clock is the host's clock at the guest's time At, for a record with nothing
	// else; reading it took Trip, which is 0 in all others. See Align.
	Clock time.Time     `json:"clock,omitzero"`
	Trip  time.Duration `json:"trip,omitempty"`
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
	"DOWN": "#c0392b", "down": "#5d6d7e", "INIT": "#e67e22", "ARMED": "#f1c40f", "ACTIVE": "#27ae60",
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

// Sizes in pixels, unless said otherwise.
const (
	minLeft, maxLeft = 190, 420 // of the names
	width, right     = 1000, 30
	top              = 46
	barH, laneH      = 14, 15
	rowGap           = 8
	charW            = 6.4 // of one character of the text, about
	dotR             = 4
	maxRow           = 400
	tallest          = 6000  // above which marks are put together more
	longest          = 70    // characters of the text of a mark
	widest           = 300   // of marks that are put together
	maxTitle         = 200   // marks that one title lists
	maxList, maxKey  = 8, 60 // lines of the key for one label, and where it has failures only
)

type row struct {
	name, note string
	states     []Record
	marks      []Record
	labels     []label
	lanes      int
	y          int
}

// bars returns the number of lanes for states, above those of its marks.
func (r *row) bars() int { return min(len(r.states), 1) }

func (r *row) height() int { return max(r.bars()+r.lanes, 1)*laneH + rowGap }

// causes reports whether what is marked in the row explains what others show.
func (r *row) causes() bool { return r.name == Script || strings.HasSuffix(r.name, "fabric") }

// Script is the row of what the script of a scenario does; it comes first.
const Script = "script"

// label is a mark with its text, or marks that are close together with one text.
type label struct {
	marks    []Record
	from, to float64 // first and last mark
	text     string
	lane     int
	leftward bool // the text ends before the mark
	cut      bool // the text is not all
	number   int  // in the key below, 0 for none
}

func (l *label) bad() (n int) {
	for _, m := range l.marks {
		if m.Bad {
			n++
		}
	}
	return n
}

// shorten is a text in one line of at most n characters.
func shorten(text string, n int) (short string, cut bool) {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= n {
		return text, false
	}
	return string([]rune(text)[:n-1]) + "…", true
}

// name chooses the text of a label.
func (l *label) name(row string) {
	first := l.marks[0].Text
	if len(l.marks) == 1 {
		l.text, l.cut = shorten(first, longest)
		return
	}
	if !slices.ContainsFunc(l.marks, func(m Record) bool { return m.Text != first }) {
		short, cut := shorten(first, longest/2)
		l.text, l.cut = fmt.Sprintf("%s ×%d", short, len(l.marks)), cut
		return
	}
	what := "events"
	if strings.HasSuffix(row, "ops") {
		what = "ops"
	}
	l.text, l.cut = fmt.Sprintf("%d %s", len(l.marks), what), true
	if n := l.bad(); n > 0 {
		l.text += fmt.Sprintf(", %d failed", n)
	}
}

// arrange names the marks of a row and puts them into lanes so that no text is
// over another or outside.  Where they are more than the lanes can show, those that
// are close together become one.
func (r *row) arrange(lanes int, left float64, x func(time.Time) float64) {
	for gap := 0.0; ; gap = max(2*gap, 1) {
		r.labels = nil
		for _, m := range r.marks {
			at := x(m.At)
			if n := len(r.labels); n > 0 && gap > 0 && at-r.labels[n-1].to <= gap && at-r.labels[n-1].from <= widest {
				r.labels[n-1].marks, r.labels[n-1].to = append(r.labels[n-1].marks, m), at
				continue
			}
			r.labels = append(r.labels, label{marks: []Record{m}, from: at, to: at})
		}
		if r.place(lanes, left) || gap > width {
			return
		}
	}
}

// place gives each label the first free lane; false if lanes are too few.
func (r *row) place(lanes int, left float64) bool {
	var ends []float64
	for i := range r.labels {
		l := &r.labels[i]
		l.name(r.name)
		w := 4 + dotR + charW*float64(utf8.RuneCountInString(l.text))
		if l.cut {
			w += charW * float64(len("[00] "))
		}
		from, to := l.from-dotR-2, l.to+w+6
		if to > left+width+right {
			l.leftward, from, to = true, l.from-w-6, l.to+dotR+2
		}
		for l.lane = 0; l.lane < len(ends) && ends[l.lane] > from; l.lane++ {
		}
		if l.lane == len(ends) {
			ends = append(ends, to)
		}
		ends[l.lane] = to
		if len(ends) > lanes && len(r.labels) > width/widest+1 {
			return false
		}
	}
	r.lanes = len(ends)
	return true
}

// layout sorts records, which are in order of time, into rows; more is how many rows
// were left out.
func layout(recs []Record) (rows []*row, more int) {
	by := map[string]*row{}
	for _, r := range recs {
		o := by[r.Row]
		if o == nil {
			o = &row{name: r.Row}
			by[r.Row] = o
			if len(rows) == maxRow {
				more++
			} else {
				rows = append(rows, o)
			}
		}
		switch {
		case r.Note:
			o.note, _ = shorten(r.Text, longest/2)
		case r.Mark:
			o.marks = append(o.marks, r)
		default:
			o.states = append(o.states, r)
		}
	}
	slices.SortFunc(rows, func(a, b *row) int {
		if (a.name == Script) != (b.name == Script) {
			if a.name == Script {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.name, b.name)
	})
	return rows, more
}

type picture struct {
	*bufio.Writer
	start, end time.Time
	left       float64
	named      map[string]bool // states without a text somewhere
}

func (p *picture) x(t time.Time) float64 {
	return p.left + width*float64(t.Sub(p.start))/float64(max(p.end.Sub(p.start), time.Millisecond))
}

// since is a time as the picture writes it.
func (p *picture) since(t time.Time) string { return t.Sub(p.start).Round(time.Millisecond).String() }

// printable replaces what XML does not allow.
func printable(r rune) rune {
	if r < ' ' && r != '\n' || r == 0xfffe || r == 0xffff {
		return utf8.RuneError
	}
	return r
}

func (p *picture) put(format string, args ...any) {
	for i, a := range args {
		if s, ok := a.(string); ok {
			args[i] = html.EscapeString(strings.Map(printable, s))
		}
	}
	fmt.Fprintf(p, format+"\n", args...)
}

// SVG draws the records.  The same records give the same bytes.
func SVG(w io.Writer, title string, records []Record) error {
	recs := slices.Clone(records)
	slices.SortStableFunc(recs, func(a, b Record) int { return a.At.Compare(b.At) })
	p := &picture{Writer: bufio.NewWriter(w), left: minLeft, named: map[string]bool{}}
	if len(recs) > 0 {
		p.start, p.end = recs[0].At, recs[len(recs)-1].At
	}
	rows, more := layout(recs)
	for _, r := range rows {
		n := utf8.RuneCountInString(r.name)
		if r.note != "" {
			n += 2 + utf8.RuneCountInString(r.note)
		}
		p.left = min(max(p.left, 20+charW*float64(n)), maxLeft)
	}
	bottom := top
	for _, lanes := range []int{8, 4} {
		bottom = top
		for _, r := range rows {
			r.arrange(lanes, p.left, p.x)
			r.y = bottom
			bottom += r.height()
		}
		if bottom <= tallest {
			break
		}
	}
	key := p.key(rows)
	if more > 0 {
		key = append(key, line{text: fmt.Sprintf("%d more rows are not drawn", more)})
	}
	column := (len(key) + 1) / 2
	p.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="sans-serif" font-size="11">`,
		p.left+width+right, bottom+50+laneH*column)
	p.put(`<rect width="100%%" height="100%%" fill="white"/><text x="10" y="18" font-size="14">%s</text>`, title)
	span := max(p.end.Sub(p.start), time.Millisecond)
	step := tick(span)
	for t := time.Duration(0); t <= span; t += step {
		px := p.x(p.start.Add(t))
		p.put(`<path d="M%.1f %d V%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle" fill="#777">%s</text>`, px, top-8, bottom,
			px, top-12, t)
	}
	for _, r := range rows {
		if !r.causes() {
			continue
		}
		for _, l := range r.labels {
			p.put(`<path d="M%.1f %d V%d" stroke="#aab" stroke-dasharray="2 3"/>`, l.from, r.y+laneH*l.lane+barH/2, bottom)
		}
	}
	for _, r := range rows {
		p.row(r)
	}
	p.states(bottom + 20)
	for i, l := range key {
		x := 10 + l.indent
		if i >= column {
			x, i = x+(minLeft+width)/2, i-column
		}
		p.put(`<text x="%d" y="%d" fill="%s">%s</text>`, x, bottom+45+laneH*i, l.colour(), l.text)
	}
	p.put("</svg>")
	return p.Flush()
}

func (p *picture) row(r *row) {
	room := int((p.left - 20) / charW)
	if r.note != "" {
		room -= 2 + utf8.RuneCountInString(r.note)
		p.put(`<text x="%.1f" y="%d" fill="#777" text-anchor="end">%s</text>`, p.left-8, r.y+barH-3, r.note)
	}
	name, _ := shorten(r.name, max(room, 10))
	p.put(`<text x="10" y="%d">%s<title>%s</title></text>`, r.y+barH-3, name, r.name)
	// Short events are drawn last, because they may be hidden and are of interest.
	var late []func()
	drawn := map[string]float64{}
	for i, s := range r.states {
		until := p.end
		if i+1 < len(r.states) {
			until = r.states[i+1].At
		}
		if s.Text == "" {
			continue
		}
		x, w := p.x(s.At), p.x(until)-p.x(s.At)
		if last, ok := drawn[s.Text]; ok && w < 0.5 && x-last < 0.5 {
			continue // it would be at the same place
		}
		drawn[s.Text] = x
		draw := func() {
			p.put(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s: %s for %s, from %s</title></rect>`,
				x, r.y, max(w, 0.5), barH, colour(s.Text), r.name, s.Text, until.Sub(s.At).Round(time.Millisecond), p.since(s.At))
			if w > float64(7*utf8.RuneCountInString(s.Text)+6) {
				p.put(`<text x="%.1f" y="%d" fill="white">%s</text>`, x+3, r.y+barH-3, s.Text)
			} else {
				p.named[s.Text] = true
			}
		}
		if w < 1 {
			w = 1
			late = append(late, draw)
		} else {
			draw()
		}
	}
	for _, draw := range late {
		draw()
	}
	for i := range r.labels {
		p.label(r, &r.labels[i])
	}
}

func (p *picture) label(r *row, l *label) {
	y := r.y + laneH*(r.bars()+l.lane)
	fill, ink := "#2c3e50", "#555"
	if l.bad() > 0 {
		ink = "#c0392b"
	}
	p.put(`<g><title>%s%s</title>`, r.name, p.list(l))
	if l.to > l.from {
		p.put(`<path d="M%.1f %d H%.1f" stroke="%s" stroke-width="2"/>`, l.from, y+barH/2, l.to, fill)
	}
	last, lastBad := -1.0, -1.0
	for _, m := range l.marks {
		c, seen := fill, &last
		if m.Bad {
			c, seen = "#c0392b", &lastBad
		}
		if x := p.x(m.At); x-*seen >= 1 {
			*seen = x
			p.put(`<circle cx="%.1f" cy="%d" r="%d" fill="%s"/>`, x, y+barH/2, dotR, c)
		}
	}
	text := l.text
	if l.number > 0 {
		text = fmt.Sprintf("[%d] %s", l.number, text)
	}
	if l.leftward {
		p.put(`<text x="%.1f" y="%d" fill="%s" text-anchor="end">%s</text></g>`, l.from-dotR-3, y+barH-3, ink, text)
	} else {
		p.put(`<text x="%.1f" y="%d" fill="%s">%s</text></g>`, l.to+dotR+3, y+barH-3, ink, text)
	}
}

// list is the marks of a label for its title.
func (p *picture) list(l *label) string {
	var b strings.Builder
	for i, m := range l.marks {
		if i == maxTitle {
			fmt.Fprintf(&b, "\nand %d more", len(l.marks)-i)
			break
		}
		text, _ := shorten(m.Text, 4*longest)
		if m.Bad {
			text += " (failed)"
		}
		if len(l.marks) == 1 {
			return fmt.Sprintf(" %s: %s", p.since(m.At), text)
		}
		fmt.Fprintf(&b, "\n%s: %s", p.since(m.At), text)
	}
	return b.String()
}

// line is one of the key below the rows.
type line struct {
	text   string
	indent int
	bad    bool
}

func (l line) colour() string {
	if l.bad {
		return "#c0392b"
	}
	return "#555"
}

// key numbers the labels whose text is shortened, and lists it.
func (p *picture) key(rows []*row) (key []line) {
	number, left := 0, 0
	for _, r := range rows {
		for i := range r.labels {
			l := &r.labels[i]
			if !l.cut {
				continue
			}
			marks := l.marks
			if len(key) >= maxKey {
				marks = slices.DeleteFunc(slices.Clone(marks), func(m Record) bool { return !m.Bad })
			}
			if len(marks) == 0 || len(key) >= 4*maxKey {
				left++
				continue
			}
			number++
			l.number = number
			when := p.since(l.marks[0].At)
			if len(l.marks) > 1 {
				when += " to " + p.since(l.marks[len(l.marks)-1].At)
			}
			key = append(key, line{text: fmt.Sprintf("[%d] %s, %s:", number, r.name, when)})
			key = append(key, p.entries(marks)...)
			if n := len(l.marks) - len(marks); n > 0 {
				key = append(key, line{text: fmt.Sprintf("and %d that did not fail", n), indent: 24})
			}
		}
	}
	if left > 0 {
		key = append(key, line{text: fmt.Sprintf("%d more are in the titles of their marks", left)})
	}
	return key
}

// entries are marks in the key, failures before all when there are too many.
func (p *picture) entries(marks []Record) (key []line) {
	good := maxList
	for _, m := range marks {
		if m.Bad {
			good--
		}
	}
	bad, left := maxList, 0
	for _, m := range marks {
		room := &good
		if m.Bad {
			room = &bad
		}
		if *room <= 0 {
			left++
			continue
		}
		*room--
		text, _ := shorten(m.Text, longest)
		key = append(key, line{text: p.since(m.At) + "  " + text, indent: 24, bad: m.Bad})
	}
	if left > 0 {
		key = append(key, line{text: fmt.Sprintf("and %d more", left), indent: 24})
	}
	return key
}

// states explains the colours of bars that are too short for a text.
func (p *picture) states(y int) {
	x := 10.0
	for _, n := range slices.Sorted(maps.Keys(p.named)) {
		short, _ := shorten(n, longest/2)
		w := 30 + charW*float64(utf8.RuneCountInString(short))
		if x+w > p.left+width+right {
			return
		}
		p.put(`<rect x="%.1f" y="%d" width="10" height="10" fill="%s"/><text x="%.1f" y="%d" fill="#777">%s</text>`, x, y-9, colour(n),
			x+14, y, short)
		x += w
	}
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
