package lab

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

func TestKernelErrors(t *testing.T) {
	report := func(first string, rest ...string) string {
		return "<6>[ 1.0] before\n<4>[ 1.1] " + first + "\n<4>[ 1.1] " + strings.Join(rest, "\n<4>[ 1.1] ") + "\n"
	}
	for _, tc := range []struct {
		name, log string
		want      string // "" for no report, else a part of it
	}{
		{"OK nothing", "<6>[ 0.1] all is well\n", ""},
		{"bad oops", report("BUG: unable to handle kernel paging request", "RIP: swib_cq_add"), "swib_cq_add"},
		{"bad in UML's driver", report("BUG: KASAN: slab-use-after-free in swib_rx", "vector_poll+0x77/0x720", "vector_send+0x1/0x2"), "swib_rx"},
		{"bad locks in UML's driver", report("WARNING: inconsistent lock state",
			"(&result->head_lock){+.?.}-{2:2}, at: vector_poll+0x77/0x720"), "vector_poll"},
		{"bad leak", report("unreferenced object 0xffff (size 64):", "backtrace:", "swib_hca_add"), "swib_hca_add"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := kernelErrors([]byte(tc.log))
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want a report with %q", got, tc.want)
			}
		})
	}
}

func TestKernelErrorsIsBounded(t *testing.T) {
	log := strings.Repeat("BUG: again\n"+strings.Repeat("stack\n", 200), 100)
	if n := strings.Count(kernelErrors([]byte(log)), "\n"); n > 200 {
		t.Errorf("%d lines of reports", n)
	}
}

// The archive is what cpio(1) reads, if there is one here.
func TestCpio(t *testing.T) {
	var b bytes.Buffer
	c := &cpioWriter{w: &b}
	c.dir("/dev")
	c.char("/dev/console", 5, 1)
	c.file("/init", 0o755, []byte("#!/bin/sh\n"))
	testkit.NoError(t, c.close())
	if b.Len()%4 != 0 || !bytes.HasPrefix(b.Bytes(), []byte("070701")) {
		t.Errorf("%d bytes, beginning %q", b.Len(), b.Bytes()[:6])
	}
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("no cpio to compare with")
	}
	cmd := exec.Command(cpio, "-tv", "--quiet", "-n")
	cmd.Stdin = &b
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("cpio: %v\n%s", err, out)
	}
	for _, want := range []string{"drwxr-xr-x", "crw-------", "-rwxr-xr-x", "10 Jan  1  1970 init"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestTopologyCommands(t *testing.T) {
	const text = `Switch	8 "S-0000000000000010"		# "spine" enhanced port 0 lid 1 lmc 0
[1]	"H-0000000000000020"[1](21) 		# "host" lid 2 4xQDR
Ca	1 "H-0000000000000020"		# "host"
[1](21) 	"S-0000000000000010"[1]		# lid 2 lmc 0 "spine" lid 1 4xQDR
`
	got, err := Topology("t", text)
	testkit.NoError(t, err)
	want := []string{
		"switch 0 8 guid=0000000000000010 desc=spine",
		"add 0 ports=1 guid=0000000000000020 desc=host",
		"cable s0/1 h0/1",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Both ends of a link get what the text says of each, or of the one.
	const speeds = `Switch	8 "S-0000000000000010"		# "s" enhanced port 0 lid 1 lmc 0
[1]	"H-0000000000000020"[1](21) 		# "a" lid 2 4xHDR
[2]	"H-0000000000000030"[1](31) 		# "b" lid 3 1xSDR
[3]	"H-0000000000000040"[1](41) 		# "c" lid 4 4xSDR
[4]	"H-0000000000000050"[1](51) 		# "d" lid 5
[5]	"H-0000000000000060"[1](61) 		# "e" lid 6 4xXDR
Ca	1 "H-0000000000000020"		# "a"
[1](21) 	"S-0000000000000010"[1]		# lid 2 lmc 0 "s" lid 1 2xEDR
Ca	1 "H-0000000000000030"		# "b"
[1](31) 	"S-0000000000000010"[2]		# lid 3 lmc 0 "s" lid 1 4xQDR
Ca	1 "H-0000000000000040"		# "c"
Ca	1 "H-0000000000000050"		# "d"
[1](51) 	"S-0000000000000010"[4]		# lid 5 lmc 0 "s" lid 1
Ca	1 "H-0000000000000060"		# "e"
[1](61) 	"S-0000000000000010"[5]		# lid 6 lmc 0 "s" lid 1 4xFDR10
`
	if got, err = Topology("t", speeds); err != nil {
		t.Fatal(err)
	}
	var only []string
	for _, c := range got {
		if strings.HasPrefix(c, "speed ") {
			only = append(only, c)
		}
	}
	want = []string{"speed s0/1 4xHDR", "speed s0/2 1xSDR", "speed s0/3 4xSDR", "speed s0/5 4xNDR", "speed h0/1 2xEDR", "speed h2/1 4xSDR"}
	if fmt.Sprint(only) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", only, want)
	}
	if _, err := Topology("t", "Ca\t4 \"H-1\"\t# \"big\"\n"); err == nil || !strings.Contains(err.Error(), "4 ports") {
		t.Errorf("an adapter of four ports: %v", err)
	}
	if _, err := Topology("file", "nonsense [\n"); err == nil || !strings.Contains(err.Error(), "file:1:") {
		t.Errorf("nonsense: %v", err)
	}
}
