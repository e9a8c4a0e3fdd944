package units

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"ibnetworkd/ib"
)

// caution is an error of a value parser that leaves the value valid: the value
// is taken and the message becomes a problem.
type caution struct{ msg, kept string }

func (c *caution) Error() string { return c.msg }

// parser applies lexed files to one unit.
type parser struct {
	u        *Unit
	sections map[string]*SectionSpec // by name
	problems []Problem
	objs     []*object
	routes   map[routeID]Place // those of the unit
	// sec, key and obj are of the current assignment, for messages.
	sec *SectionSpec
	key *Key
	obj *object
	// last is where a key was assigned last.
	last map[*Key]Place
}

// object is one instance of a section.
type object struct {
	spec *SectionSpec
	// ptr is *Link, *Address ...
	ptr any
	// shorthand marks an [Address] or [Route] that came from [Network].
	shorthand bool
	// lost is the first key without which the section would mean something
	// else and whose value was bad.
	lost string
	// lostAt is the index of its problem.
	lostAt  int
	dropped bool
}

func (p *parser) problem(pos Place, sev Severity, kept, format string, args ...any) {
	pr := Problem{Pos: pos.Position(), Severity: sev, Message: fmt.Sprintf(format, args...), Kept: kept}
	if p.sec != nil {
		pr.Section = p.sec.Name
	}
	if p.key != nil {
		pr.Key = p.key.Name
	}
	p.problems = append(p.problems, pr)
}

// bad reports a value that a key cannot have.
func (p *parser) bad(pos Place, err error, kept string) {
	text, next := sentence(err), ""
	var g *guess
	if errors.As(err, &g) {
		text, next = strings.Replace(text, "; "+g.next, "", 1), g.next
	}
	// The value may be no more than a remark that was meant as such.
	if strings.Contains(text, " #") || strings.Contains(text, " ;") {
		next = ownLine
	}
	p.problem(pos, Warning, kept, "[%s] %s=: %s", p.sec.Name, p.key.Name, text)
	p.problems[len(p.problems)-1].Next = next
}

const ownLine = "write a comment on a line of its own"

// sentence is an error's text as a message can carry it.
func sentence(err error) string { return strings.TrimSuffix(err.Error(), ".") }

// file applies one lexed file.
func (p *parser) file(f *rawFile) {
	p.problems = append(p.problems, f.problems...)
	if f.refused {
		return
	}
	for i := range f.sections {
		p.section(&f.sections[i])
	}
}

func (p *parser) section(rs *rawSection) {
	p.sec, p.key, p.obj = nil, nil, nil
	spec := sectionByName[rs.name]
	if spec == nil {
		if strings.HasPrefix(rs.name, "X-") {
			return
		}
		p.unknownSection(rs)
		return
	}
	p.sec = spec
	p.obj = p.instance(spec, rs.pos)
	if spec.Name == "Match" && rs.lost.IsValid() {
		p.u.Match.addInvalid("", rs.lost)
	}
	for i := range rs.assigns {
		a := &rs.assigns[i]
		p.key = spec.key(a.key)
		if p.key == nil {
			if !strings.HasPrefix(a.key, "X-") {
				p.unknownKey(spec, a)
			}
			continue
		}
		if p.last == nil {
			p.last = map[*Key]Place{}
		}
		p.last[p.key] = a.pos()
		p.key.apply.set(p, p.obj.ptr, a)
	}
	p.key = nil
}

// instance is the object that a header's assignments go to.
func (p *parser) instance(spec *SectionSpec, pos Place) *object {
	ptr, head := spec.open(p.u)
	if !spec.Repeat {
		if head.Present {
			for _, o := range p.objs {
				if o.spec == spec {
					return o
				}
			}
		}
	}
	head.Present = true
	if !head.Pos.IsValid() {
		head.Pos = pos
	}
	o := &object{spec: spec, ptr: ptr}
	p.objs = append(p.objs, o)
	return o
}

func (p *parser) unknownSection(rs *rawSection) {
	const kept = "the section is ignored"
	kind := ""
	for _, a := range rs.assigns {
		if a.key == "Kind" {
			kind = a.val
		}
	}
	if text := foreignSection(rs.name, kind); text != "" {
		p.problem(rs.pos, Warning, kept, "[%s]: %s", rs.name, text)
		return
	}
	hint := nearest(rs.name, sectionNames())
	p.unknown(rs.pos, kept, "["+hint+"]", hint, "unknown section [%s]", ib.Clip(rs.name))
	if hint == "Match" {
		p.problems[len(p.problems)-1].Kept = matchesNothing
		p.u.Match.addInvalid("["+rs.name+"] ", rs.pos)
	}
}

// unknown reports a name that does not exist, with a guess if hint is not empty.
func (p *parser) unknown(pos Place, kept, guess, hint, format string, args ...any) {
	p.problem(pos, Warning, kept, format, args...)
	if hint != "" {
		p.problems[len(p.problems)-1].Next = "did you mean " + guess + "?"
	}
}

func (p *parser) unknownKey(spec *SectionSpec, a *assign) {
	kept := "the assignment is ignored"
	if spec.Name == "Match" {
		kept = matchesNothing
		p.u.Match.addInvalid(a.key, a.keyPos)
	}
	if text := foreignKey(spec.Name, a.key); text != "" {
		p.problem(a.keyPos, Warning, kept, "[%s] %s=: %s", spec.Name, a.key, text)
		return
	}
	text := ""
	if other := sectionsWith(a.key, spec.Name); len(other) > 0 {
		text = fmt.Sprintf(", which belongs to [%s]", strings.Join(other, "] or ["))
	} else if where := foreignElsewhere(a.key); where != "" {
		text = ", which " + where
	}
	if text != "" {
		p.problem(a.keyPos, Warning, kept, "[%s] unknown key \"%s\"%s", spec.Name, ib.Clip(a.key), text)
		return
	}
	names := make([]string, len(spec.Keys))
	for i := range spec.Keys {
		names[i] = spec.Keys[i].Name
	}
	hint := nearest(a.key, names)
	p.unknown(a.keyPos, kept, hint+"=", hint, "[%s] unknown key \"%s\"", spec.Name, ib.Clip(a.key))
}

// keptScalar describes the value in force after a bad assignment.
func keptScalar[T any](p *parser, v Value[T]) string {
	if !v.Set {
		return p.key.Name + "= stays unset"
	}
	return fmt.Sprintf("the previous value %s is kept", ib.Clip(show(v.V)))
}

// show prints a value as a unit file has it.
func show(v any) string {
	switch v := v.(type) {
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case time.Duration:
		return formatSpan(v)
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(v)
}

// setter applies one assignment to a section's struct, and prints the struct's
// values, one text for each assignment needed.
type setter struct {
	set  func(p *parser, obj any, a *assign)
	show func(obj any) []string
	// value is a scalar's value and whether it is set.
	value func(obj any) (any, bool)
}

// scalar is a key whose last valid assignment wins.
func scalar[S, T any](field func(*S) *Value[T], parse func(string) (T, error)) setter {
	print := func(obj any) []string {
		if f := field(obj.(*S)); f.Set {
			return []string{show(f.V)}
		}
		return nil
	}
	value := func(obj any) (any, bool) {
		f := field(obj.(*S))
		return f.V, f.Set
	}
	return setter{show: print, value: value, set: func(p *parser, obj any, a *assign) {
		f := field(obj.(*S))
		if a.val == "" {
			*f = Value[T]{}
			p.forgive()
			return
		}
		v, err := parse(a.val)
		var c *caution
		if errors.As(err, &c) {
			p.problem(a.pos(), Warning, c.kept, "[%s] %s=: %s", p.sec.Name, p.key.Name, c.msg)
		} else if err != nil {
			p.bad(a.pos(), noQuotes(a.val, err, parse), keptScalar(p, *f))
			if !f.Set {
				p.lose()
			}
			return
		}
		*f = Value[T]{V: v, Set: true, Pos: a.pos()}
		p.forgive()
	}}
}

// noQuotes is err with another text where a value would be good without the quotes
// around it: only some keys of [Match] resolve them.
func noQuotes[T any](val string, err error, parse func(string) (T, error)) error {
	n := len(val)
	if n < 2 || val[0] != '"' && val[0] != '\'' || val[n-1] != val[0] {
		return err
	}
	if _, other := parse(val[1 : n-1]); other != nil && !isCaution(other) {
		return err
	}
	return &guess{fmt.Sprintf("%s is in quotes, which are part of the value here", ib.Clip(val)), "write it without quotes"}
}

// lose notes that an essential key has no valid value, as the last problem says.
func (p *parser) lose() {
	if p.key.essential && p.obj.lost == "" {
		p.obj.lost, p.obj.lostAt = p.key.Name, len(p.problems)-1
	}
}

// forgive takes that back when a later assignment is valid.
func (p *parser) forgive() {
	if p.obj.lost == p.key.Name {
		p.obj.lost = ""
	}
}

// list is a key whose assignments add items; an empty one resets.
func list[S, T any](field func(*S) *[]Value[T], split splitter, parse func(string) (T, error)) setter {
	print := func(obj any) []string {
		var out []string
		for _, v := range *field(obj.(*S)) {
			out = append(out, show(v.V))
		}
		return out
	}
	return setter{show: print, set: func(p *parser, obj any, a *assign) {
		f := field(obj.(*S))
		if a.val == "" {
			*f = nil
			return
		}
		eachItem(p, a, 0, split, func(item string, pos Place) {
			v, err := parse(item)
			var c *caution
			if errors.As(err, &c) {
				p.problem(pos, Warning, c.kept, "[%s] %s=: %s", p.sec.Name, p.key.Name, c.msg)
			} else if err != nil {
				p.bad(pos, noQuotes(item, err, parse), "the item is ignored")
				return
			}
			if len(*f) >= maxItems {
				p.bad(pos, fmt.Errorf("more than %d items", maxItems), "the item is ignored")
				return
			}
			*f = append(*f, Value[T]{V: v, Set: true, Pos: pos})
		})
	}}
}

// maxItems bounds one list.
const maxItems = 4096

// splitter cuts the next item off s: start and end of its raw text, and its value
// with quotes resolved. An error stops the assignment.
type splitter func(s string) (start, end int, item string, err error)

// eachItem calls f for each item of the value from byte off on.
func eachItem(p *parser, a *assign, off int, split splitter, f func(item string, pos Place)) {
	for {
		rest := a.val[off:]
		start, end, item, err := split(rest)
		if err != nil {
			p.bad(a.at(off+start), err, "the rest of the line is ignored")
			return
		}
		if start == end {
			return
		}
		f(item, a.at(off+start))
		off += end
	}
}

// words splits at white space.
func words(s string) (int, int, string, error) { return separated(s, blanks) }

// commaWords splits at white space and commas.
func commaWords(s string) (int, int, string, error) { return separated(s, blanks+",") }

func separated(s, seps string) (start, end int, item string, err error) {
	for start < len(s) && strings.IndexByte(seps, s[start]) >= 0 {
		start++
	}
	end = start
	for end < len(s) && strings.IndexByte(seps, s[end]) < 0 {
		end++
	}
	return start, end, s[start:end], nil
}

// whole takes the rest as one item.
func whole(s string) (start, end int, item string, err error) {
	t := strings.TrimLeft(s, blanks)
	return len(s) - len(t), len(s), strings.TrimRight(t, blanks), nil
}

// quotedWords splits at white space and resolves quotes; backslashes stay.
func quotedWords(s string) (int, int, string, error) { return unquote(s, false) }

// escapedWords splits at white space and resolves quotes and C escapes.
func escapedWords(s string) (int, int, string, error) { return unquote(s, true) }

func unquote(s string, unescape bool) (start, end int, item string, err error) {
	for start < len(s) && strings.IndexByte(blanks, s[start]) >= 0 {
		start++
	}
	var b strings.Builder
	quote := byte(0)
	i := start
	for i < len(s) {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			if !unescape {
				// The pattern's own escapes stay, but a backslash still keeps the
				// next byte from ending the item or the quote.
				b.WriteString(s[i : i+2])
				i += 2
				continue
			}
			n, text, ok := cEscape(s[i:])
			if !ok {
				return i, i, "", fmt.Errorf("%q is not an escape sequence", ib.Clip(s[i:min(i+2, len(s))]))
			}
			b.WriteString(text)
			i += n
		case quote != 0 && c == quote:
			quote = 0
			i++
		case quote != 0:
			b.WriteByte(c)
			i++
		case c == '"' || c == '\'':
			quote = c
			i++
		case strings.IndexByte(blanks, c) >= 0:
			return start, i, b.String(), nil
		default:
			b.WriteByte(c)
			i++
		}
	}
	if quote != 0 {
		return start, start, "", fmt.Errorf("quote %c is not closed", quote)
	}
	return start, len(s), b.String(), nil
}

// cEscape resolves the escape at the beginning of s and gives its length.
func cEscape(s string) (n int, text string, ok bool) {
	simple := map[byte]string{'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '\\': "\\", '"': "\"",
		'\'': "'", 's': " "}
	if t, ok := simple[s[1]]; ok {
		return 2, t, true
	}
	num := func(from, digits, base int) (int, string, bool) {
		if len(s) < from+digits {
			return 0, "", false
		}
		v := 0
		for _, c := range []byte(s[from : from+digits]) {
			d := strings.IndexByte("0123456789abcdef", c|0x20)
			if c >= '0' && c <= '9' {
				d = int(c - '0')
			}
			if d < 0 || d >= base {
				return 0, "", false
			}
			v = v*base + d
		}
		if v == 0 {
			return 0, "", false
		}
		if s[1] == 'u' || s[1] == 'U' {
			if v > utf8.MaxRune || !utf8.ValidRune(rune(v)) {
				return 0, "", false
			}
			return from + digits, string(rune(v)), true
		}
		if v > 0x7f {
			// A single byte above ASCII would leave text that is not UTF-8.
			return 0, "", false
		}
		return from + digits, string(rune(v)), true
	}
	switch {
	case s[1] == 'x':
		return num(2, 2, 16)
	case s[1] == 'u':
		return num(2, 4, 16)
	case s[1] == 'U':
		return num(2, 8, 16)
	case s[1] >= '0' && s[1] <= '7':
		return num(1, 3, 8)
	}
	return 0, "", false
}

// showing is s with another way to print its value.
func (s setter) showing(print func(v any) string) setter {
	field := s.value
	s.show = func(obj any) []string {
		if v, ok := field(obj); ok {
			return []string{print(v)}
		}
		return nil
	}
	return s
}
