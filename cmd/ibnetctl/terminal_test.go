package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/cmd/ibnetctl/answer"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/smctl"
)

func TestWrap(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		want  []string
	}{
		{"one two three", 0, []string{"one two three"}},
		{"one two three", 7, []string{"one two", "three"}},
		{"one \x1b[1mtwo\x1b[0m three", 7, []string{"one \x1b[1mtwo\x1b[0m", "three"}},
		{"a-word-that-is-long b", 5, []string{"a-word-that-is-long", "b"}},
		{"", 5, []string{""}},
	} {
		if got := wrap(tc.text, tc.width); !slices.Equal(got, tc.want) {
			t.Errorf("wrap(%q, %d) = %q", tc.text, tc.width, got)
		}
	}
}

func TestPrintWrapped(t *testing.T) {
	const text = "not converted: /etc/network/interfaces:5: an ethtool command; " +
		"write a systemd.link(5) file or a service for it: up ethtool -K ib0"
	var b bytes.Buffer
	printWrapped(&b, 0, "  ", text)
	if b.String() != "  "+text+"\n" {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	printWrapped(&b, 80, "  ", text)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "  not") || !strings.HasPrefix(lines[1], "    ") {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if len(l) > 80 {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
}

func FuzzWrap(f *testing.F) {
	f.Add("one two three", 7)
	f.Fuzz(func(t *testing.T, s string, width int) {
		lines := wrap(s, width%200)
		if got, want := strings.Fields(strings.Join(lines, " ")), strings.Fields(s); !slices.Equal(got, want) {
			t.Errorf("words are lost: %q, %q", got, want)
		}
		for _, l := range lines {
			if width%200 > 0 && visible(l) > width%200 && len(strings.Fields(l)) > 1 {
				t.Errorf("%q is wider than %d", l, width%200)
			}
		}
	})
}

func TestPagerChoice(t *testing.T) {
	env := func(m map[string]string) func(string) (string, bool) {
		return func(n string) (string, bool) { v, ok := m[n]; return v, ok }
	}
	for _, tc := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "less"},
		{map[string]string{"PAGER": "most -w"}, "most -w"},
		{map[string]string{"PAGER": "most", "SYSTEMD_PAGER": "less"}, "less"},
		{map[string]string{"PAGER": "most", "SYSTEMD_PAGER": ""}, ""},
		{map[string]string{"PAGER": "cat"}, ""},
	} {
		if got := strings.Join(pagerCommand(env(tc.env)), " "); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.env, got, tc.want)
		}
	}
	if e := pagerEnv(nil, env(map[string]string{"SUDO_UID": "1000"})); !slices.Contains(e, "LESSSECURE=1") ||
		!slices.Contains(e, "LESS=FRSXMK") {
		t.Errorf("%q", e)
	}
	if e := pagerEnv(nil, env(map[string]string{"SYSTEMD_LESS": "R"})); slices.Contains(e, "LESSSECURE=1") || !slices.Contains(e, "LESS=R") {
		t.Errorf("%q", e)
	}
}

// The pager of a command that was interrupted ends, and at SIGTERM any.
func TestPagerEnds(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, ctx := range map[string]context.Context{"interrupted": cancelled, "SIGTERM": t.Context()} {
		var out bytes.Buffer
		begin := time.Now()
		a := &app{tty: [2]io.Writer{&out, &out}, pager: &pager{words: []string{"sleep", "60"}, tty: [2]io.Writer{&out, &out}}}
		a.out = screen{a.pager}
		fmt.Fprintln(a.out, "a line")
		if ctx == t.Context() {
			hold := make(chan os.Signal, 1)
			signal.Notify(hold, syscall.SIGTERM) // the test's own process stays
			defer signal.Stop(hold)
			time.AfterFunc(100*time.Millisecond, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) })
		}
		a.endPage(ctx)
		if d := time.Since(begin); d > 30*time.Second || a.pager != nil {
			t.Errorf("%s: the pager is left after %v", name, d)
		}
	}
}

// What is waited for: one line that changes on a terminal, lines with --verbose,
// nothing else.
func TestProgress(t *testing.T) {
	var tty, err bytes.Buffer
	a := &app{err: &err, tty: [2]io.Writer{nil, &tty}, errWidth: 30}
	p := a.newProgress(false)
	p.show("at once it is quiet")
	if tty.Len() > 0 {
		t.Errorf("%q", tty.String())
	}
	p.begin = time.Now().Add(-12 * time.Second)
	p.show("waiting for ib0: \x1b]0;evil\x07 and more of it")
	p.show("waiting for ib1")
	p.done()
	if got, want := tty.String(), "\r\x1b[K 12 s: waiting for ib0: ?]0;…\r\x1b[K 12 s: waiting for ib1\r\x1b[K"; got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
	a = &app{err: &err}
	p = a.newProgress(true)
	for _, s := range []string{"one", "one", "two"} {
		p.show(s)
	}
	p.done()
	if got := err.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, " s: one\n") {
		t.Errorf("%q", got)
	}
	err.Reset()
	a.newProgress(false).show("not asked for")
	if err.Len() > 0 {
		t.Errorf("%q", err.String())
	}
}

func TestStartEnds(t *testing.T) {
	for _, tc := range []struct {
		phase   smctl.Phase
		after   time.Duration
		end, ok bool
	}{
		{smctl.PhaseMaster, 0, true, true}, {smctl.PhaseStandby, 0, true, true}, {smctl.PhaseServed, 0, true, true},
		{smctl.PhaseStopped, time.Minute, false, false}, {smctl.PhaseStarting, time.Minute, false, false},
		{smctl.PhaseBackingOff, 0, false, false}, {smctl.PhaseBackingOff, 2 * time.Second, true, false},
		{smctl.PhaseNoLink, 2 * time.Second, true, false},
	} {
		if end, ok := startEnds(tc.phase, tc.after); end != tc.end || end && ok != tc.ok {
			t.Errorf("%s after %v: %t %t", tc.phase, tc.after, end, ok)
		}
	}
}

func entry(unit, transport, msg string) string {
	m, _ := json.Marshal(map[string]string{"MESSAGE": msg, "_SYSTEMD_UNIT": unit, "_TRANSPORT": transport, "PRIORITY": "4",
		"__REALTIME_TIMESTAMP": "1700000000000000"})
	return string(m) + "\n"
}

func TestLogs(t *testing.T) {
	d := cluster()
	b, err := aboutOf(d, "ibp3s0")
	testkit.NoError(t, err)
	text := entry("ibnetworkd.service", "stdout", "ibp3s0: pending -> configured link=ibp3s0") +
		entry("ibnetworkd.service", "stdout", "ibp3s0.8001: pending -> configured link=ibp3s0.8001") +
		entry("ibnetworkd.service", "stdout", "port mlx5_0/1: Down -> Active ibdev=mlx5_0 port=1") +
		entry("ibnetworkd.service", "stdout", "port mlx5_0/11: Down -> Active ibdev=mlx5_0 port=11") +
		entry("ibnetsm@0x0002c903000abcde.service", "stdout", "swept") +
		entry("ibnetsm@0x0002c903000abcdf.service", "stdout", "not its port") +
		entry("", "kernel", "ibp3s0: multicast join failed") +
		`{"MESSAGE":[105,98,112,51,115,48,255],"__REALTIME_TIMESTAMP":"1"}` + "\n"
	var got []string
	testkit.NoError(t, lastEntries(strings.NewReader(text), b, 0, func(e answer.LogEntry) { got = append(got, e.Message) }))
	want := []string{"ibp3s0: pending -> configured link=ibp3s0", "port mlx5_0/1: Down -> Active ibdev=mlx5_0 port=1", "swept",
		"ibp3s0: multicast join failed", "ibp3s0?"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = nil
	_ = lastEntries(strings.NewReader(text), b, 2, func(e answer.LogEntry) { got = append(got, e.Message) })
	if !slices.Equal(got, want[3:]) {
		t.Errorf("the last two: %q", got)
	}
	if err := lastEntries(strings.NewReader("{"), b, 0, func(answer.LogEntry) {}); err == nil {
		t.Error("half an entry")
	}
	if _, err := aboutOf(d, "ib9"); exitCode(err) != exitNoSuch {
		t.Errorf("%v", err)
	}
	args := strings.Join(journalArgs([]string{"0x1"}, true, true, "", true), " ")
	if !strings.Contains(args, "_COMM=ibnetsm + _SYSTEMD_UNIT=ibnetworkd.service + ") ||
		!strings.HasSuffix(args, " + _TRANSPORT=kernel") || !strings.Contains(args, "--follow") {
		t.Error(args)
	}
}

// Whatever the journal holds, entries come one by one and within bounds.
func FuzzLogs(f *testing.F) {
	f.Add([]byte(entry("a", "kernel", "ib0: x")), 3)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		n = n & 0xf
		shown := 0
		_ = lastEntries(bytes.NewReader(text), about{words: []string{"ib0"}}, n, func(e answer.LogEntry) {
			shown++
			if !strings.Contains(e.Message, "ib0") || e.Priority < 0 || e.Priority > 7 {
				t.Errorf("%+v", e)
			}
		})
		if n > 0 && shown > n {
			t.Errorf("%d entries of at most %d", shown, n)
		}
	})
}

func FuzzShellQuote(f *testing.F) {
	f.Add("it's $HOME `x`")
	f.Fuzz(func(t *testing.T, s string) {
		q := shellQuote(s)
		// Outside of the quotes only \' is left.
		out := ""
		for i, part := range strings.Split(strings.ReplaceAll(q, `'\''`, ""), "'") {
			if i%2 == 0 {
				out += part
			}
		}
		if strings.ContainsAny(out, " \t\n$`\\\"*?[]()<>|&;~#!{}") {
			t.Errorf("%q is quoted as %q", s, q)
		}
	})
}

func TestRemoteArgs(t *testing.T) {
	a := &app{}
	root := a.command()
	c, rest, err := root.Find([]string{"wait-online"})
	if err != nil || len(rest) > 0 {
		t.Fatal(err, rest)
	}
	testkit.NoError(t, c.ParseFlags([]string{"-H", "n1,n2", "-i", "ib0", "-i", "ib1", "--timeout", "30", "-q", "--json"}))
	got := fmt.Sprint(remoteArgs(c, []string{"ib2"}))
	if want := "[ibnetctl wait-online --interface=ib0 --interface=ib1 --json=true --quiet=true --timeout=30s -- ib2]"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

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
