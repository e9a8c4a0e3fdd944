package units

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
)

// negatable is a list in [Match]: a "!" before the first item negates every item
// of the assignment, one before a later item negates that item. With a bad item
// the unit matches nothing, so that it does not match more than was meant.
func negatable[T fmt.Stringer](field func(*Match) *[]Value[T], split splitter, quote func(string) string,
	parse func(item string, not bool) (T, error)) setter {
	print := func(obj any) []string {
		var out []string
		for _, v := range *field(obj.(*Match)) {
			text, not := strings.CutPrefix(v.V.String(), "!")
			out = append(out, bang(not)+quote(text))
		}
		return out
	}
	return setter{show: print, set: func(p *parser, obj any, a *assign) {
		m := obj.(*Match)
		f := field(m)
		if a.val == "" {
			*f = nil
			m.clearInvalid(p.key.Name)
			return
		}
		off, not := 0, false
		if a.val[0] == '!' {
			off, not = 1, true
		}
		items, before := 0, len(p.problems)
		eachItem(p, a, off, split, func(item string, pos Place) {
			items++
			bare := strings.TrimLeft(item, "!")
			v, err := parse(bare, not || bare != item)
			if item[:min(1, len(item))] == "#" || item[:min(1, len(item))] == ";" {
				err = &guess{fmt.Sprintf("%q and what follows are patterns, not a comment", ib.Clip(item)), ownLine}
			}
			if err == nil && len(*f) >= maxItems {
				err = fmt.Errorf("more than %d items", maxItems)
			}
			if err != nil {
				p.bad(pos, err, "")
				return
			}
			*f = append(*f, Value[T]{V: v, Set: true, Pos: pos})
		})
		if items == 0 && strings.TrimSpace(a.val) == "!" {
			p.bad(a.pos(), errors.New("nothing after \"!\""), "")
		}
		for i := before; i < len(p.problems); i++ {
			p.problems[i].Kept = matchesNothing
			m.addInvalid(p.key.Name, PlaceOf(p.problems[i].Pos))
		}
	}}
}

// plain is for items that cannot have blanks or quotes.
func plain(s string) string { return s }

// quoteGlob is the inverse of quotedWords: blanks and quotes are put in quotes of
// the other kind, a backslash keeps its meaning as it is.
func quoteGlob(s string) string {
	if !strings.ContainsAny(s, blanks+"\"'") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			b.WriteString(s[i : i+2])
			i++
		case c == '"':
			b.WriteString(`'"'`)
		case c == '\'':
			b.WriteString(`"'"`)
		case strings.IndexByte(blanks, c) >= 0:
			b.WriteString(`"` + string(c) + `"`)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// quoteEscaped is the inverse of escapedWords.
func quoteEscaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c <= ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c == '"' || c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// addInvalid notes that a key, or with "" a line without one, is not understood.
func (m *Match) addInvalid(key string, pos Place) {
	m.clearInvalid(key)
	m.Invalid = append(m.Invalid, Value[string]{V: key, Set: true, Pos: pos})
}

func (m *Match) isInvalid(key string) bool {
	return slices.ContainsFunc(m.Invalid, func(v Value[string]) bool { return v.V == key })
}

func (m *Match) clearInvalid(key string) {
	m.Invalid = slices.DeleteFunc(m.Invalid, func(v Value[string]) bool { return v.V == key })
}

func parseGlob(s string, not bool) (Pattern, error) {
	if s == "" {
		return Pattern{}, errors.New("the pattern is empty")
	}
	if len(s) > 1024 {
		return Pattern{}, errors.New("the pattern is longer than 1024 bytes")
	}
	return Pattern{Not: not, Glob: s}, nil
}

// parseNameGlob is parseGlob for interface names, which may be alternative names
// of up to 127 bytes.
func parseNameGlob(s string, not bool) (Pattern, error) {
	if err := validIfName(s, 127); err != nil {
		return Pattern{}, err
	}
	return Pattern{Not: not, Glob: s}, nil
}

// Hits reports whether a text fits the glob, whatever Not says.
func (p Pattern) Hits(s string) bool { return globMatch(p.Glob, s, false) }

// String prints the pattern.
func (p Pattern) String() string { return bang(p.Not) + p.Glob }

func bang(not bool) string {
	if not {
		return "!"
	}
	return ""
}

func parseHWPattern(s string, not bool) (HWPattern, error) {
	if strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		g, err := ib.ParseGUID(s)
		if err != nil {
			return HWPattern{}, err
		}
		b := g.Bytes()
		a, err := ib.HWAddrFrom(b[:])
		return HWPattern{not, a}, err
	}
	a, err := ib.ParseHWAddr(s)
	if err != nil && strings.ContainsAny(s, "*?[") {
		return HWPattern{}, fmt.Errorf("%q: hardware addresses have no wildcards; the last 8 bytes alone (the port GUID) fit any "+
			"IPoIB address that ends with them", ib.Clip(s))
	}
	return HWPattern{not, a}, err
}

// String prints the pattern.
func (p HWPattern) String() string { return bang(p.Not) + p.Addr.String() }

func parseProperty(s string, not bool) (PropertyPattern, error) {
	name, glob, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return PropertyPattern{}, fmt.Errorf("%q is not NAME=PATTERN", ib.Clip(s))
	}
	return PropertyPattern{Not: not, Name: name, Glob: glob}, nil
}

// String prints the pattern.
func (p PropertyPattern) String() string { return bang(p.Not) + p.Name + "=" + p.Glob }

func parsePortNumber(s string, not bool) (NumPattern, error) {
	n, err := parseUint(s, 1, 255)
	return NumPattern{not, int(n)}, err
}

// String prints the pattern.
func (p NumPattern) String() string { return fmt.Sprintf("%s%d", bang(p.Not), p.N) }

func parseGUIDPattern(s string, not bool) (GUIDPattern, error) {
	g, err := parseGUID(s)
	return GUIDPattern{not, g}, err
}

// String prints the pattern.
func (p GUIDPattern) String() string { return bang(p.Not) + p.GUID.String() }

func parseLayer(s string, not bool) (LayerPattern, error) {
	l, err := ib.ParseLinkLayer(s)
	if err == nil && l == ib.LinkLayerUnspecified {
		err = fmt.Errorf("%q is not a link layer (InfiniBand, Ethernet)", ib.Clip(s))
	}
	return LayerPattern{not, l}, err
}

// String prints the pattern.
func (p LayerPattern) String() string { return bang(p.Not) + p.Layer.String() }

func parsePKeyPattern(s string, not bool) (PKeyPattern, error) {
	k, err := parsePKey(s)
	return PKeyPattern{not, k}, err
}

// String prints the pattern.
func (p PKeyPattern) String() string { return bang(p.Not) + p.PKey.String() }

// condition is a key with one value, the last one, and a leading "!".
func condition(field func(*Match) *Value[Condition], check func(string) error) setter {
	print := func(obj any) []string {
		if f := field(obj.(*Match)); f.Set {
			return []string{f.V.String()}
		}
		return nil
	}
	return setter{show: print, set: func(p *parser, obj any, a *assign) {
		m := obj.(*Match)
		f := field(m)
		if a.val == "" {
			*f = Value[Condition]{}
			m.clearInvalid(p.key.Name)
			return
		}
		text, not := strings.CutPrefix(a.val, "!")
		text = strings.TrimLeft(text, blanks)
		err := errors.New("nothing after \"!\"")
		if text != "" {
			err = check(text)
		}
		if err != nil {
			p.bad(a.pos(), err, matchesNothing)
			m.addInvalid(p.key.Name, a.pos())
			return
		}
		m.clearInvalid(p.key.Name)
		*f = Value[Condition]{V: Condition{Not: not, Text: text}, Set: true, Pos: a.pos()}
	}}
}

// String prints the condition as a unit file has it.
func (c Condition) String() string { return bang(c.Not) + c.Text }
