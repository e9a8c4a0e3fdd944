package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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

// Errors contain names that others chose.
func TestErrorOnTerminal(t *testing.T) {
	pt, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer pt.Close()
	n, err := unix.IoctlGetInt(int(pt.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(pt.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer tty.Close()
	if code := run(t.Context(), []string{"verify", "/none/\x1b]0;x\x07.ibnetwork"}, strings.NewReader(""), tty, tty); code != exitNoSuch {
		t.Errorf("exit %d", code)
	}
	b := make([]byte, 4096)
	k, err := pt.Read(b)
	if err != nil || bytes.ContainsAny(b[:k], "\x1b\x07") || !bytes.Contains(b[:k], []byte("?]0;x?")) {
		t.Errorf("%q, %v", b[:k], err)
	}
}
