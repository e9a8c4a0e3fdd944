package units

import (
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"ibnetworkd/ib"
)

const (
	// maxLine is the longest physical or joined line in bytes (systemd's
	// LONG_LINE_MAX).
	maxLine = 1 << 20
	// MaxFile bounds what is read of one file.
	MaxFile = 16 << 20
	// maxFileProblems bounds the list of one file's problems; a file of random
	// bytes would have one on each line.
	maxFileProblems = 1000

	notUsedFile = "the file is not used"

	blanks   = " \t\n\r"
	bom      = "\ufeff"
	comments = "#;"
)

// rawFile is one lexed file.
type rawFile struct {
	start    Place // of the file, without a line
	sections []rawSection
	problems []Problem
	// refused is set by an Error: nothing of the file is used.
	refused bool
}

// rawSection is one header with its assignments. Two headers of the same name
// are two rawSections.
type rawSection struct {
	name    string
	pos     Place
	assigns []assign
	// lost is the place of the first line that is no assignment.
	lost Place
}

// assign is one line "key=value", joined over continuations, trimmed.
type assign struct {
	key    string
	keyPos Place
	val    string
	// parts are the places of the bytes of val; the first has off 0.
	parts []part
}

// part is the place, line and column, of the bytes of a value from off on.
type part struct{ off, line, col int }

// at is the position of byte off of the value.
func (a *assign) at(off int) Place {
	i := sort.Search(len(a.parts), func(i int) bool { return a.parts[i].off > off }) - 1
	if i < 0 {
		return a.keyPos
	}
	p := a.parts[i]
	return a.keyPos.at(p.line, p.col+off-p.off)
}

// pos is where the value begins, or the key if the value is empty.
func (a *assign) pos() Place {
	if a.val == "" {
		return a.keyPos
	}
	return a.at(0)
}

// lexer turns the bytes of one file into sections and assignments.
type lexer struct {
	f *rawFile
	// outside is set while no section header has been read.
	outside bool
	// bom is set once a byte order mark was skipped; systemd skips the first
	// that begins a line, wherever the line is.
	bom bool
	// dropped counts problems beyond maxFileProblems.
	dropped int
}

func (l *lexer) problem(sev Severity, line, col int, kept, format string, args ...any) {
	if len(l.f.problems) >= maxFileProblems && sev != Error {
		l.dropped++
		return
	}
	l.f.problems = append(l.f.problems, Problem{
		Pos:      l.f.start.at(line, col).Position(),
		Severity: sev,
		Message:  fmt.Sprintf(format, args...),
		Kept:     kept,
	})
	if sev == Error {
		l.f.refused = true
	}
}

// lex reads one file. The rules are those of systemd's config_parse, except
// that positions are those of the physical line.
func lex(path, data string) *rawFile {
	l := &lexer{f: &rawFile{start: PlaceOf(Position{File: path})}, outside: true}
	if len(data) > MaxFile {
		l.problem(Error, 0, 0, notUsedFile, "%v", ErrTooLarge)
		return l.f
	}
	rest := data

	// joined is the text collected over continuations, with its parts.
	var joined strings.Builder
	var parts []part
	open := false

	for line := 1; len(rest) > 0; line++ {
		var text string
		text, rest = nextLine(rest)
		col := 1
		if len(text) >= maxLine {
			l.problem(Error, line, col, notUsedFile, "line is longer than 1 MiB")
			return l.f
		}
		if t := strings.TrimLeft(text, blanks); t != "" && strings.IndexByte(comments, t[0]) >= 0 {
			continue
		}
		if t, ok := strings.CutPrefix(text, bom); ok && !l.bom {
			text, col, l.bom = t, 1+len(bom), true
		}
		cont := endsInBackslash(text)
		if !open && !cont {
			one := [1]part{{0, line, col}}
			if !l.logicalLine(text, one[:]) {
				return l.f
			}
			continue
		}
		// Whether the last backslash is escaped is decided over the joined text, but
		// a part that was continued ends in the blank that replaced its backslash,
		// so no run of backslashes crosses parts.
		if joined.Len()+len(text) > maxLine {
			l.problem(Error, line, col, notUsedFile, "continued line is longer than 1 MiB")
			return l.f
		}
		parts = append(parts, part{joined.Len(), line, col})
		if cont {
			joined.WriteString(text[:len(text)-1])
			joined.WriteByte(' ')
			open = true
			continue
		}
		joined.WriteString(text)
		ok := l.logicalLine(joined.String(), parts)
		joined.Reset()
		parts, open = nil, false
		if !ok {
			return l.f
		}
	}
	if open && !l.logicalLine(joined.String(), parts) {
		return l.f
	}
	if l.dropped > 0 {
		l.f.problems = append(l.f.problems, Problem{
			Pos:     Position{File: path},
			Message: fmt.Sprintf("%d more problems in this file are not listed", l.dropped),
		})
	}
	return l.f
}

// nextLine cuts the first physical line off. A line ends with LF, CR or NUL; of
// a pair of different ones (CRLF) both belong to the end.
func nextLine(s string) (line, rest string) {
	i := strings.IndexAny(s, "\n\r\x00")
	if i < 0 {
		return s, ""
	}
	n := i + 1
	for prev := s[i]; n < len(s) && prev != 0; n++ {
		c := s[n]
		if c != '\n' && c != '\r' && c != 0 || strings.IndexByte(s[i:n], c) >= 0 {
			break
		}
		prev = c
	}
	return s[:i], s[n:]
}

// endsInBackslash reports whether the last byte is a backslash that no other
// one escapes.
func endsInBackslash(s string) bool {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// place maps an offset of the joined text to line and column.
func place(parts []part, off int) (line, col int) {
	i := sort.Search(len(parts), func(i int) bool { return parts[i].off > off }) - 1
	p := parts[max(i, 0)]
	return p.line, p.col + off - p.off
}

// logicalLine handles one joined line; false stops the file.
func (l *lexer) logicalLine(text string, parts []part) bool {
	start := len(text) - len(strings.TrimLeft(text, blanks))
	t := strings.TrimRight(text[start:], blanks)
	if t == "" {
		return true
	}
	line, col := place(parts, start)
	if bad := invalidUTF8(t); bad >= 0 {
		bl, bc := place(parts, start+bad)
		if r, _ := utf8.DecodeRuneInString(t[bad:]); r != utf8.RuneError {
			l.problem(Error, bl, bc, notUsedFile, "%U is not a character", r)
			return false
		}
		l.problem(Error, bl, bc, notUsedFile, "byte 0x%02x is not valid UTF-8", t[bad])
		return false
	}
	if t[0] == '[' {
		return l.header(t, line, col)
	}
	if l.outside {
		if strings.IndexByte(comments, t[0]) >= 0 {
			return true // a comment behind a byte order mark
		}
		l.problem(Warning, line, col, "the line is ignored", "%s is outside of any section", quoteLine(t))
		return true
	}
	s := &l.f.sections[len(l.f.sections)-1]
	eq := strings.IndexByte(t, '=')
	if eq < 0 {
		l.lost(s, line, col, "%s has no \"=\"; write Key=value", quoteLine(t))
		return true
	}
	key := strings.TrimRight(t[:eq], blanks)
	if key == "" {
		l.lost(s, line, col, "no key before the \"=\"")
		return true
	}
	raw := t[eq+1:]
	val := strings.TrimLeft(raw, blanks)
	a := assign{key: key, keyPos: l.f.start.at(line, col), val: val}
	if val != "" {
		a.parts = cutParts(parts, start+eq+1+len(raw)-len(val))
	}
	s.assigns = append(s.assigns, a)
	return true
}

// lost reports a line of a section that is no assignment.
func (l *lexer) lost(s *rawSection, line, col int, format string, args ...any) {
	kept := "the line is ignored"
	if s.name == "Match" {
		kept = matchesNothing
	}
	l.problem(Warning, line, col, kept, format, args...)
	if !s.lost.IsValid() {
		s.lost = l.f.start.at(line, col)
	}
}

// invalidUTF8 is the offset of the first byte that is not UTF-8, or of the first
// of the code points that systemd refuses (Unicode's noncharacters), else -1.
func invalidUTF8(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
		if r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe {
			return i
		}
	}
	return -1
}

// cutParts is parts with off as the new 0.
func cutParts(parts []part, off int) []part {
	i := max(sort.Search(len(parts), func(i int) bool { return parts[i].off > off })-1, 0)
	out := make([]part, 0, len(parts)-i)
	for _, p := range parts[i:] {
		if p.off < off {
			p.col += off - p.off
			p.off = off
		}
		p.off -= off
		out = append(out, p)
	}
	return out
}

func (l *lexer) header(t string, line, col int) bool {
	if t[len(t)-1] != ']' {
		l.problem(Error, line, col, notUsedFile, "section header %s does not end with \"]\"", quoteLine(t))
		return false
	}
	name := t[1 : len(t)-1]
	for i := 0; i < len(name); i++ {
		if name[i] < ' ' || strings.IndexByte("\"'\\\x7f", name[i]) >= 0 {
			l.problem(Error, line, col+1+i, notUsedFile, "section header has the character %q", name[i])
			return false
		}
	}
	l.outside = false
	l.f.sections = append(l.f.sections, rawSection{name: name, pos: l.f.start.at(line, col)})
	return true
}

// quoteLine is a line as a message quotes it: printable and short.
func quoteLine(s string) string { return fmt.Sprintf("%q", ib.Clip(s)) }
