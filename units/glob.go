package units

import (
	"unicode"
	"unicode/utf8"
)

// globMatch is fnmatch(3) without flags: * and ? match every character, also "/"
// and a leading "."; [...] is a set, [!...] its complement, a backslash takes
// the special meaning away. A "[" that is not closed is literal. It takes
// time in proportion to the product of the lengths at most.
func globMatch(pattern, s string, fold bool) bool {
	p, i := 0, 0
	star, mark := -1, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, mark = p, i
			p++
			continue
		}
		if p < len(pattern) {
			if pn, sn, ok := globOne(pattern[p:], s[i:], fold); ok {
				p += pn
				i += sn
				continue
			}
		}
		if star < 0 {
			return false
		}
		_, n := utf8.DecodeRuneInString(s[mark:])
		mark += n
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// globOne matches the first element of pattern with the first character of s and
// gives the lengths of both.
func globOne(pattern, s string, fold bool) (pn, sn int, ok bool) {
	r, sn := utf8.DecodeRuneInString(s)
	switch pattern[0] {
	case '?':
		return 1, sn, true
	case '[':
		if n, hit, closed := globSet(pattern, r, fold); closed {
			return n, sn, hit
		}
		return 1, sn, r == '['
	case '\\':
		if len(pattern) > 1 {
			c, n := utf8.DecodeRuneInString(pattern[1:])
			return 1 + n, sn, sameRune(c, r, fold)
		}
		// A backslash at the end matches nothing, as in glibc.
		return 1, sn, false
	}
	c, n := utf8.DecodeRuneInString(pattern)
	if c == utf8.RuneError && n == 1 {
		return 1, 1, pattern[0] == s[0]
	}
	return n, sn, sameRune(c, r, fold)
}

func sameRune(a, b rune, fold bool) bool {
	return a == b || fold && unicode.ToLower(a) == unicode.ToLower(b)
}

// globSet matches r with the set that pattern begins with; n is the set's
// length.
func globSet(pattern string, r rune, fold bool) (n int, hit, closed bool) {
	i := 1
	not := false
	if i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^') {
		not = true
		i++
	}
	next := func() (rune, bool) {
		if i < len(pattern) && pattern[i] == '\\' {
			i++
		}
		if i >= len(pattern) {
			return 0, false
		}
		c, n := utf8.DecodeRuneInString(pattern[i:])
		i += n
		return c, true
	}
	for first := true; ; first = false {
		if i >= len(pattern) {
			return 0, false, false
		}
		if pattern[i] == ']' && !first {
			return i + 1, hit != not, true
		}
		if pattern[i] == '[' && i+1 < len(pattern) && pattern[i+1] == ':' {
			if n, in, ok := globClass(pattern[i:], r); ok {
				hit = hit || in
				i += n
				continue
			}
		}
		lo, ok := next()
		if !ok {
			return 0, false, false
		}
		hi := lo
		if i+1 < len(pattern) && pattern[i] == '-' && pattern[i+1] != ']' {
			i++
			if hi, ok = next(); !ok {
				return 0, false, false
			}
		}
		if lo <= r && r <= hi {
			hit = true
		} else if fold {
			l, u := unicode.ToLower(r), unicode.ToUpper(r)
			hit = hit || lo <= l && l <= hi || lo <= u && u <= hi
		}
	}
}

// globClass matches r with "[:alpha:]" and its kin.
func globClass(s string, r rune) (n int, in, ok bool) {
	classes := map[string]func(rune) bool{
		"alpha": unicode.IsLetter, "digit": func(r rune) bool { return r >= '0' && r <= '9' },
		"alnum": func(r rune) bool { return unicode.IsLetter(r) || r >= '0' && r <= '9' },
		"upper": unicode.IsUpper, "lower": unicode.IsLower, "space": unicode.IsSpace,
		"blank": func(r rune) bool { return r == ' ' || r == '\t' }, "punct": unicode.IsPunct,
		"xdigit": func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'f' || r >= 'A' && r <= 'F' },
		"cntrl":  unicode.IsControl, "print": unicode.IsPrint, "graph": unicode.IsGraphic,
	}
	for name, f := range classes {
		if w := "[:" + name + ":]"; len(s) >= len(w) && s[:len(w)] == w {
			return len(w), f(r), true
		}
	}
	return 0, false, false
}
