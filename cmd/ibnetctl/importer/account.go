package importer

import (
	"fmt"
	"slices"
	"strings"
)

// Fate is what became of a line of a source.
type Fate string

// The fates.
const (
	// Carried reports that a directive of a unit has its origin in the line.
	Carried Fate = "converted"
	// Unneeded reports that nothing has to be done for the line.
	Unneeded Fate = "not needed"
	// NotCarried reports that the line is in Result.Left.
	NotCarried Fate = "not converted"
)

// Line is the account of one line of a source.
type Line struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"` // from 1; 0 is the source as a whole
	Text string `json:"text,omitempty"`
	Fate Fate   `json:"fate"`
	Why  string `json:"why,omitempty"` // not for Carried
}

// item is a line of a source, or a part of one, that has to be accounted for.
// It is carried when a directive with this origin is in a unit that is
// returned; nothing else sets that. An item that is neither carried nor said to
// be unneeded is reported, whether or not a parser saw it.
type item struct {
	file    *file
	line    int
	text    string
	idle    string // why nothing has to be done for it
	why     string // why it is not converted
	carried bool
	parts   []*item // these are accounted for in its place
	with    *item   // that one's account is this one's
}

// left records why the item is not converted. The first reason stays.
func (it *item) left(why string) {
	if it.why == "" {
		it.why = why
	}
}

// leftAll records why items are not converted.
func leftAll(items []*item, why string) {
	for _, it := range items {
		it.left(why)
	}
}

// unneeded records why nothing has to be done for the item.
func (it *item) unneeded(why string) { it.idle = why }

// part makes an item of a part of this one. All of the item's text has to be
// in one of its parts.
func (it *item) part(text string) *item {
	p := &item{file: it.file, line: it.line, text: text}
	it.parts = append(it.parts, p)
	return p
}

// at is the item's place, for sentences about others.
func (it *item) at() string {
	if it.line == 0 {
		return it.file.path
	}
	return fmt.Sprintf("%s:%d", it.file.path, it.line)
}

// whyUnknown is the reason of an item that nothing said anything about.
const whyUnknown = "no such setting"

func (it *item) fate() (Fate, string) {
	if it.with != nil {
		return it.with.fate()
	}
	if len(it.parts) == 0 {
		switch {
		case it.why != "":
			return NotCarried, it.why
		case it.carried:
			return Carried, ""
		case it.idle != "":
			return Unneeded, it.idle
		}
		return NotCarried, whyUnknown
	}
	fate, why := Unneeded, it.idle
	for _, p := range it.parts {
		switch f, w := p.fate(); {
		case f == NotCarried && fate != NotCarried:
			fate, why = f, w
		case f == Carried && fate == Unneeded:
			fate, why = f, ""
		case f == Unneeded && fate == Unneeded && why == "":
			why = w
		}
	}
	return fate, why
}

// report appends what is not converted of the item.
func (it *item) report(lefts []Left) []Left {
	if it.with != nil {
		return lefts
	}
	if len(it.parts) > 0 {
		for _, p := range it.parts {
			lefts = p.report(lefts)
		}
		return lefts
	}
	if f, why := it.fate(); f == NotCarried {
		lefts = append(lefts, Left{it.file.path, it.line, it.file.withoutKeys(strings.TrimSpace(it.text)), why})
	}
	return lefts
}

// file is a source as its lines. A parser gets nothing but these items, so a
// line that it forgets is reported.
type file struct {
	path   string
	text   string
	format string
	lines  []*item // of every line that is not blank
	whole  *item   // the account of the source as a whole
}

// MaxSize bounds one source in bytes, maxLines in lines, maxLine a line in
// bytes; configuration files are smaller.
const (
	MaxSize  = 1 << 20
	maxLines = 10000
	maxLine  = 16 << 10
)

// newFile splits a source; named is the format by which another source names it, if any.
func newFile(s Source, named string) *file {
	f := &file{path: s.Path, text: strings.TrimPrefix(s.Text, "\ufeff"), format: Format(s)}
	if named != "" && f.format != "opensm" {
		f.format = named
	}
	f.whole = &item{file: f}
	switch {
	case len(s.Text) > MaxSize:
		f.whole.left(fmt.Sprintf("the file is too large (more than %d bytes)", MaxSize))
		f.text, f.format = "", formatRefused
	case strings.Count(s.Text, "\n") > lineBound(f.format):
		f.whole.left(fmt.Sprintf("the file is too large (more than %d lines)", lineBound(f.format)))
		f.text, f.format = "", formatRefused
	case strings.ContainsRune(s.Text, 0):
		f.whole.left("not a text file: it contains a zero byte")
		f.text, f.format = "", formatRefused
	}
	n := 0
	for raw := range strings.Lines(f.text) {
		n++
		if len(raw) > maxLine && f.format != formatRefused {
			f.whole.left(fmt.Sprintf("line %d is too long (more than %d bytes)", n, maxLine))
			f.format = formatRefused
		}
		if t := strings.TrimSpace(raw); t != "" {
			f.lines = append(f.lines, &item{file: f, line: n, text: t})
		}
	}
	if f.format == formatRefused {
		f.cover(f.lines)
	}
	return f
}

// Comment signs of formats, and the account of a comment.
const (
	whyComment = "a comment"
	hash       = "#"
	hashOrSem  = "#;"
)

// content is the lines without the comments, which begin with one of signs.
func (f *file) content(signs string) []*item {
	var out []*item
	for _, it := range f.lines {
		if strings.ContainsRune(signs, rune(it.text[0])) {
			it.unneeded(whyComment)
		} else {
			out = append(out, it)
		}
	}
	return out
}

// logical is the content, with lines that end in a backslash joined to the next one.
// As in systemd's files, where both signs begin one, a comment between them is
// skipped.
func (f *file) logical(signs string) []*item {
	var out []*item
	var open *item
	next := 0 // the line that would continue open
	for _, it := range f.lines {
		joined := open != nil && it.line == next
		next = it.line + 1
		switch {
		case joined && signs == hashOrSem && strings.ContainsRune(signs, rune(it.text[0])):
			it.unneeded(whyComment)
			continue
		case joined:
			it.with = open
			open.text += "\n" + it.text
		case strings.ContainsRune(signs, rune(it.text[0])):
			it.unneeded(whyComment)
			continue
		default:
			open = it
			out = append(out, it)
		}
		if !strings.HasSuffix(it.text, "\\") {
			open = nil
		}
	}
	for _, it := range out {
		it.text = strings.ReplaceAll(it.text, "\\\n", " ")
	}
	return out
}

// refuse reports the source as a whole, and nothing of it alone.
func (f *file) refuse(why string) {
	f.whole.left(why)
	f.cover(f.lines)
}

// cover makes the account of the source as a whole that of items.
func (f *file) cover(items []*item) {
	for _, it := range items {
		if it.with == nil && it.idle != whyComment {
			it.with, it.parts = f.whole, nil
		}
	}
}

// account returns the account of every line, and what is not converted.
func account(files []*file) ([]Line, []Left) {
	var lines []Line
	var lefts []Left
	for _, f := range files {
		if f.whole.why != "" {
			lefts = append(lefts, Left{Path: f.path, Why: f.whole.why})
			if len(f.lines) == 0 {
				lines = append(lines, Line{Path: f.path, Fate: NotCarried, Why: f.whole.why})
			}
		}
		from := len(lefts)
		for _, it := range f.lines {
			fate, why := it.fate()
			lines = append(lines, Line{f.path, it.line, f.withoutKeys(it.text), fate, why})
			lefts = it.report(lefts)
		}
		slices.SortStableFunc(lefts[from:], func(a, b Left) int { return a.Line - b.Line })
	}
	return lines, lefts
}
