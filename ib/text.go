package ib

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is s as it may be shown, never longer: control characters, what changes the direction
// of text, line separators and bytes that are no UTF-8 become question marks. Every text that
// another node chose goes through it where it is decoded, before it is stored or printed.
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

// Word is the word of v, a value that counts from 0; one that has none is other, which
// may have a verb for the number.
func Word[T ~uint8 | ~uint16 | ~uint32](v T, other string, words ...string) string {
	switch {
	case uint64(v) < uint64(len(words)) && words[v] != "":
		return words[v]
	case strings.Contains(other, "%"):
		return fmt.Sprintf(other, uint64(v))
	}
	return other
}
