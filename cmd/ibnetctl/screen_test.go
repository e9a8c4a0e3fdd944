package main

import (
	"bytes"
	"testing"
)

// Of what a name from the fabric may hold, a terminal gets nothing that it would
// obey; our own colours pass.
func TestScreen(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"OK \x1b[1;31mred\x1b[0m\tand ● plain\n", "OK \x1b[1;31mred\x1b[0m\tand ● plain\n"},
		{"title \x1b]0;x\x07", "title ?]0;x?"},
		{"clear \x1b[2J", "clear ?[2J"},
		{"eight bits \u009b2J \x9b2J", "eight bits ?2J ?2J"},
		{"back\rover\b\x7f", "back?over??"},
	} {
		var b bytes.Buffer
		if n, err := (screen{&b}).Write([]byte(tc.in)); n != len(tc.in) || err != nil || b.String() != tc.want {
			t.Errorf("%q became %q, %d, %v; want %q", tc.in, b.String(), n, err, tc.want)
		}
	}
}
