package units

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SettleTime is how long a file that seems half written must stay unchanged before
// it counts as complete.
const SettleTime = 5 * time.Second

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
	if prev != nil && len(prev.Match.Invalid) == 0 {
		kept := broken(u, problems, files, prev)
		if !kept {
			unfinished := l.unfinished(prev, files)
			problems, kept = append(problems, unfinished...), len(unfinished) > 0
		}
		if kept {
			last := *prev
			last.before = prev.own()
			last.Problems, last.Kept = problems, true
			u = &last
		}
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

// pending is a file that seems half written, since when.
type pending struct {
	sum   [sha256.Size]byte
	since time.Time
}

// unfinished finds the files in force that are damaged or still being written,
// although they parse.
func (l *loader) unfinished(prev *Unit, files []source) []Problem {
	var out []Problem
	for i := range files {
		f := &files[i].file
		old := prev.text(f.Path)
		if old == "" || f.Text == "" || f.Text == old {
			continue
		}
		problem := Problem{Pos: Position{File: f.Path}, Severity: Error, Kept: lastGood}
		if n := strings.IndexByte(f.Text, 0); n >= 0 && strings.IndexByte(old, 0) < 0 {
			problem.Message = fmt.Sprintf("the file has a NUL byte at offset %d", n)
			problem.Next = "write the file again"
			out = append(out, problem)
			continue
		}
		if l.asked || !partial(old, f.Text) {
			continue
		}
		p, ok := l.pending[f.Path]
		if !ok || p.sum != f.Sum {
			p = pending{f.Sum, l.now}
		}
		l.set.pending[f.Path] = p
		due := p.since.Add(SettleTime)
		if !l.now.Before(due) {
			continue
		}
		if l.set.Settles.IsZero() || due.Before(l.set.Settles) {
			l.set.Settles = due
		}
		problem.Pos.Line, problem.Pos.Column, problem.Severity = lines(f.Text), 1, Warning
		problem.Message = "the last line does not end with a newline: the file may be half written"
		problem.Next = fmt.Sprintf("it is used when it has not changed for %v, or at once: ibnetctl reload", SettleTime)
		out = append(out, problem)
	}
	return out
}

// text is the content in force of a file; empty if there is none.
func (u *Unit) text(path string) string {
	for i := range u.Files {
		if f := &u.Files[i]; f.Path == path && !f.Refused {
			return f.Text
		}
	}
	return ""
}

// partial reports whether the new content of a file may be the beginning of
// something longer: it ends inside a line, and the old content did not, or goes on
// there. What ends with a newline is complete, so that trailing lines can be removed.
func partial(old, now string) bool {
	switch {
	case endsLine(now):
		return false
	case endsLine(old):
		return true
	}
	rest, ok := strings.CutPrefix(old, now)
	return ok && rest[0] != '\n' && rest[0] != '\r'
}

func endsLine(s string) bool {
	return s[len(s)-1] == '\n' || s[len(s)-1] == '\r'
}

// cutOff reports whether a place is on the last line of a file that does not end
// with a newline.
func cutOff(pos Position, files []source) bool {
	for _, f := range files {
		if f.file.Path == pos.File && f.bad == nil && f.file.Text != "" {
			return !endsLine(f.file.Text) && pos.Line == lines(f.file.Text)
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
