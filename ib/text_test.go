package ib

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "node1 mlx5_0": "node1 mlx5_0", "Knoten Ä ☃": "Knoten Ä ☃", "\x1b[2J\x1b]0;x\x07": "?[2J?]0;x?", "a\xffb": "a?b",
		"a\r\nb\tc": "a??b?c", "\u009b31m": "?31m", "a\u202eb\u2066c\u200fd": "a?b?c?d", "a\u2028b\u00a0": "a?b?", "\ufffd": "\ufffd",
		"\x7f": "?",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[2J\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		p := Printable(s)
		if !utf8.ValidString(p) || len(p) > len(s) || Printable(p) != p || strings.IndexFunc(p, unicode.IsControl) >= 0 {
			t.Errorf("%q becomes %q", s, p)
		}
	})
}
