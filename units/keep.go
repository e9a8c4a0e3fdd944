package units

import (
	"crypto/sha256"
	"slices"
	"strings"
)

const (
	matchesNothing = "the unit matches nothing until this is corrected"
	lastGood       = "the last good version of the unit stays in force"
)

// has reports whether a file is one of those whose content is in force.
func (u *Unit) has(path string) bool {
	return u != nil && slices.ContainsFunc(u.Files, func(f File) bool { return f.Path == path && !f.Refused })
}

// own are the problems of the files in force.
func (u *Unit) own() []Problem {
	if u.Kept {
		return u.before
	}
	return u.Problems
}

// unit reads one main file with its drop-ins.
func (l *loader) unit(name string, at found) {
	prev := l.prev[name]
	main, why := l.read(at, false, prev)
	switch why {
	case "":
	case isGone:
		return
	default:
		l.skip(name, at.root, at.name, why, true, false)
		return
	}
	files := append([]source{main}, l.readDropIns(name)...)
	if prev != nil && !prev.Kept && prev.same(files) {
		l.set.Problems = append(l.set.Problems, prev.Problems...)
		l.set.Units = append(l.set.Units, prev)
		return
	}
	for i := range files {
		f := &files[i]
		f.file.Sum = sha256.Sum256([]byte(f.file.Text))
		f.raw = lex(f.file.Path, f.file.Text)
	}
	u, problems := assemble(name, main.file.Path, files)
	if prev != nil && len(prev.Match.Invalid) == 0 && broken(u, problems, files, prev) {
		last := *prev
		last.before = prev.own()
		last.Problems, last.Kept = problems, true
		u = &last
	}
	l.set.Problems = append(l.set.Problems, problems...)
	if u != nil {
		l.set.Units = append(l.set.Units, u)
	}
}

// broken reports whether a unit that was in force has become unusable by an edit:
// the unit as a whole, what it matches, or a file that was in use. The problems
// that say so get what is kept.
func broken(u *Unit, problems []Problem, files []source, prev *Unit) bool {
	out := u == nil || len(u.Match.Invalid) > 0
	for i := range problems {
		p := &problems[i]
		fatal := p.Severity == Error && (prev.has(p.Pos.File) || u == nil)
		// A file that is being written ends anywhere in a line; one whose last line
		// was like that before never ended otherwise.
		old := slices.ContainsFunc(prev.own(), func(o Problem) bool { return o.Message == p.Message && o.Pos.File == p.Pos.File })
		if fatal || !old && prev.has(p.Pos.File) && cutOff(p.Pos, files) {
			out = true
			p.Kept = lastGood
		} else if out && strings.HasSuffix(p.Kept, matchesNothing) {
			p.Kept = lastGood
		}
	}
	return out
}

// cutOff reports whether a place is on the last line of a file that does not end
// with a newline.
func cutOff(pos Position, files []source) bool {
	for _, f := range files {
		if f.file.Path == pos.File && f.bad == nil && f.file.Text != "" {
			last := f.file.Text[len(f.file.Text)-1]
			return last != '\n' && last != '\r' && pos.Line == lines(f.file.Text)
		}
	}
	return false
}

// lines counts the lines of a text as the lexer does.
func lines(text string) int {
	n := 0
	for ; text != ""; n++ {
		_, text = nextLine(text)
	}
	return n
}
