package ib

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is s as it may be shown: control characters, what changes the
// direction of text, line separators and bytes that are no UTF-8 become question
// marks. It is never longer than s. Every text that another node chose goes
// through it where it is decoded, before anything stores or prints it.
func Printable(s string) string {
	ok := true
	for _, r := range s {
		ok = ok && r != utf8.RuneError && shown(r)
	}
	if ok {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)) || !shown(r) {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func shown(r rune) bool { return r == ' ' || unicode.IsGraphic(r) && !unicode.IsSpace(r) }
