package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/cmd/ibnetctl/report"
	"ibnetworkd/internal/testkit"
)

// writeReport writes a report of the sample capture, and of what a daemon said.
func writeReport(t *testing.T, files map[string]any) string {
	t.Helper()
	r := &report.Report{}
	for name, v := range files {
		text, err := json.Marshal(v)
		testkit.NoError(t, err)
		r.Add(name, text)
	}
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	var b bytes.Buffer
	testkit.NoError(t, r.Write(&b, "r", time.Time{}))
	testkit.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
	return file
}

// Commands show a report in place of this host: what the daemon said where the
// report has it, and what the capture gives where it has not.
func TestRecorded(t *testing.T) {
	with := writeReport(t, map[string]any{report.Capture: sample(), report.Daemon: cluster()})
	without := writeReport(t, map[string]any{report.Capture: sample()})
	newer := cluster()
	newer.Schema++
	other := writeReport(t, map[string]any{report.Capture: sample(), report.Daemon: newer})
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"--report " + with + " status", exitOK, "storage"},
		{"--report " + with + " list", exitOK, "ibp4s0"},
		{"--report " + with + " ports", exitOK, "mlx5_3"},
		{"--report " + with + " sm status", exitOK, "backing-off"},
		{"--report " + with + " diagnose", exitFailure, "subnet manager"},
		{"--report " + without + " status", exitOK, "the report has no daemon.json"},
		{"--report " + without + " plan", exitOK, ""},
		{"plan --from " + without, exitOK, ""},
		{"--report " + other + " status", exitFailure, "use the ibnetctl of the same version"},
		{"--report " + with + " reload", exitUsage, "does not work on a report"},
		{"--report /none status", exitNoSuch, "no such file"},
	} {
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(tc.args), strings.NewReader(""), &out, &out); code != tc.code ||
			!strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: exit %d, want %d and %q\n%s", tc.args, code, tc.code, tc.want, out.String())
		}
	}
}

// What is hidden in one file of a report is hidden by the same in every other.
func TestHidingAgrees(t *testing.T) {
	hide, err := newHiding([]string{"all"}, "node07", "0123456789abcdef0123456789abcdef")
	testkit.NoError(t, err)
	a := hide(`"0x0002c903000abcde" 10.1.2.3 node07`)
	b := hide("0002:c903:000a:bcde\n10.1.2.3\nnode07 mlx5_0\n")
	guid, rest, _ := strings.Cut(strings.Trim(a, `"`), `" `)
	addr, name, _ := strings.Cut(rest, " ")
	digits := strings.TrimPrefix(guid, "0x")
	want := digits[:4] + ":" + digits[4:8] + ":" + digits[8:12] + ":" + digits[12:] + "\n" + addr + "\n" + name + " mlx5_0\n"
	if b != want || strings.Contains(a+b, "node07") || strings.Contains(a+b, "10.1.2.3") || strings.Contains(a, "abcde") {
		t.Errorf("%q and %q", a, b)
	}
}

// The short name of a host is hidden as its full one, and stays its beginning: node
// descriptions have it.
func TestHiddenNames(t *testing.T) {
	for _, tc := range [][3]string{
		{"node07", "node07 mlx5_0", "host mlx5_0"},
		{"node07", "node07\nnode07", "host\nhost"},
		{"node07.site.example", "node07.site.example node07 mlx5_0", "host.example host mlx5_0"},
	} {
		hide, err := newHiding([]string{"names"}, tc[0], "")
		testkit.NoError(t, err)
		if got := hide(tc[1]); got != tc[2] {
			t.Errorf("%s: %q became %q, not %q", tc[0], tc[1], got, tc[2])
		}
	}
}

// A hidden address of a host is never that of its network, which no unit accepts.
func TestHiddenHostStaysOne(t *testing.T) {
	for range 2000 {
		hide, err := newHiding([]string{"addresses"}, "", "")
		testkit.NoError(t, err)
		if got := hide("10.1.2.3/24"); !strings.HasSuffix(got, ".3/24") {
			t.Fatalf("10.1.2.3/24 became %s", got)
		}
	}
}
