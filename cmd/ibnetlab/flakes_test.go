package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/cli"
	"ibnetworkd/internal/testkit"
)

func TestFlakes(t *testing.T) {
	f := flakes{}
	for _, e := range []event{
		{Action: "start", Package: "p"}, {Action: "run", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p", Test: "TestA", Elapsed: 2},
		{Action: "pass", Package: "p", Test: "TestA/sub", Elapsed: 1}, {Action: "fail", Package: "p", Test: "TestB", Elapsed: 9},
		{Action: "fail", Package: "p"},
		{Action: "pass", Package: "p", Test: "TestA", Elapsed: 3}, {Action: "pass", Package: "p", Test: "TestB", Elapsed: 1},
		{Action: "skip", Package: "p", Test: "TestC"},
	} {
		f.add(e)
	}
	var b strings.Builder
	testkit.NoError(t, f.table(&b))
	want := [][]string{
		{"runs", "failed", "shortest", "longest", "test"},
		{"2", "1", "1.0", "s", "1.0", "s", "TestB"},
		{"2", "0", "2.0", "s", "3.0", "s", "TestA"},
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got\n%s", b.String())
	}
	for i, l := range lines {
		if strings.Join(strings.Fields(l), " ") != strings.Join(want[i], " ") {
			t.Errorf("line %d: %q, want %v", i, l, want[i])
		}
	}
	if f.failed() != 1 {
		t.Errorf("%d failed", f.failed())
	}
}

// flakyModule is a module whose packages fail in all the ways in which a package can.
func flakyModule(t *testing.T) {
	t.Helper()
	root := t.TempDir()
	const head = "package p\nimport (\"fmt\"; \"os\"; \"strings\"; \"testing\"; \"time\")\nvar _ = []any{fmt.Sprint, os.Args, " +
		"strings.Repeat, time.Second}\nfunc TestFine(t *testing.T) {}\n"
	testkit.WriteFiles(t, root, map[string]string{
		"go.mod":           "module flaky\n\ngo 1.26\n",
		"fine/p_test.go":   head,
		"fails/p_test.go":  head + "func TestBad(t *testing.T) { t.Error(\"so bad\") }\n",
		"exits/p_test.go":  head + "func TestExits(t *testing.T) { fmt.Println(\"last words\"); os.Exit(3) }\n",
		"main/p_test.go":   head + "func TestMain(m *testing.M) { m.Run(); fmt.Println(\"in vain\"); os.Exit(3) }\n",
		"panics/p_test.go": head + "func TestPanics(t *testing.T) { go panic(\"beside the test\"); time.Sleep(time.Minute) }\n",
		"jitter/p_test.go": head + "func TestJitter(t *testing.T) { if os.Getenv(\"IBNET_LAB_JITTER\") != \"5ms\" { t.Fatal() } }\n",
		"stalls/p_test.go": head + "func TestStalls(t *testing.T) { t.Log(\"the guest (node a) stood still for 1.2s from " +
			"10:00:00.000\"); t.Log(\"traffic stood still for 3s\") }\n",
		"hangs/p_test.go": head + "func TestHangs(t *testing.T) { t.Run(\"a\", func(t *testing.T) { t.Error(\"so bad\") }); " +
			"time.Sleep(time.Hour) }\n",
		"compiles/p_test.go": head + "func TestNot(t *testing.T) { undefinedThing() }\n",
		"long/p_test.go":     head + "func TestLong(t *testing.T) { fmt.Println(strings.Repeat(\"x\", 300000)); t.Fatal(\"after all\") }\n",
	})
	t.Chdir(root)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
}

// What fails is reported to have failed, whether a test or the package around it did.
func TestFlakesCommand(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles tests")
	}
	flakyModule(t)
	for _, tc := range []struct {
		name string
		args []string
		out  []string // parts of the output
		err  string   // part of the error, "" for none
		logs int
	}{
		{"OK", []string{"-n2", "./fine"}, []string{"2 0 0.0 s 0.0 s TestFine", "2 runs without a failure"}, "", 0},
		{"bad test", []string{"-n2", "./fails"}, []string{"2 2 0.0 s 0.0 s TestBad"}, "2 failures in 2 runs", 2},
		{"bad exit in a test", []string{"-n2", "./exits", "./fine"},
			[]string{"package flaky/exits ended during TestExits:", "last words", "2 2 0.0 s 0.0 s package flaky/exits"},
			"2 failures in 2 runs", 2},
		{"bad exit after the tests", []string{"-n1", "./main"}, []string{"package flaky/main failed outside of its tests:", "in vain"},
			"1 failures in 1 runs", 1},
		{"bad panic beside a test", []string{"-n1", "./panics"}, []string{"ended during TestPanics:", "panic: beside the test"},
			"1 failures in 1 runs", 1},
		{"bad compilation", []string{"-n5", "./compiles", "./fine"},
			[]string{"run 1 of 5", "package flaky/compiles did not compile:", "undefined: undefinedThing"}, "1 failures in 1 runs", 1},
		{"bad test with a long line", []string{"-n1", "./long"}, []string{"1 1 0.0 s 0.0 s TestLong"}, "1 failures in 1 runs", 1},
		{"jitter", []string{"-n1", "--jitter", "5ms", "./jitter"}, []string{"1 runs without a failure"}, "", 0},
		{"bad jitter", []string{"--jitter", "-1s", "./fine"}, nil, `invalid argument "-1s" for --jitter: not a time such as 30, 30s or 300ms`, 0},
		{"stall", []string{"-n1", "./stalls"}, []string{" 0 failed TestStalls: the guest (node a) stood still for 1.2s from " +
			"10:00:00.000 runs failed"}, "", 0},
		{"no such test", []string{"-n1", "--run", "TestNone", "./fine"}, nil, `no test matches "TestNone"`, 0},
		{"no run", []string{"-n0", "./fine"}, nil, "-n 0: want 1 run or more", 0},
		{"bad pattern", []string{"--run", "(", "./fine"}, nil, "missing closing )", 0},
		{"bad pattern of a subtest", []string{"--run", "TestFine/*", "./fine"}, nil, "missing argument to repetition operator", 0},
		{"no such folder", []string{"./nosuch", "./fine"}, nil, "nosuch: directory not found", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			var out bytes.Buffer
			c := flakesCommand()
			cli.Wrap(c)
			c.SetArgs(tc.args)
			c.SetOut(&out)
			c.SilenceErrors, c.SilenceUsage = true, true
			err := c.ExecuteContext(t.Context())
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("not one sentence: %v", err)
			}
			text := strings.Join(strings.Fields(out.String()), " ")
			for _, w := range tc.out {
				if !strings.Contains(text, w) {
					t.Errorf("%q is missing in\n%s", w, out.String())
				}
			}
			if logs, _ := filepath.Glob(tmp + "/ibnetlab-flakes-*/run-*.log"); len(logs) != tc.logs {
				t.Errorf("%d logs, want %d", len(logs), tc.logs)
			}
			if dirs, _ := filepath.Glob(tmp + "/ibnetlab-flakes-*"); len(dirs) > tc.logs {
				t.Errorf("left %v", dirs)
			}
		})
	}
}

// Results from before an interruption are reported, and its log is kept.
func TestFlakesInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles tests")
	}
	t.Setenv("TMPDIR", t.TempDir()) // a killed go command leaves its folder
	flakyModule(t)
	logs := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := make(chan bool)
	go func() {
		text := ""
		for ; ctx.Err() == nil && !strings.Contains(text, "FAIL: TestHangs/a"); time.Sleep(10 * time.Millisecond) {
			b, _ := os.ReadFile(logs + "/run-001.log")
			text = string(b)
		}
		seen <- ctx.Err() == nil
	}()
	var out bytes.Buffer
	c := flakesCommand()
	c.SetArgs([]string{"-n2", "--logs", logs, "./hangs"})
	c.SetOut(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	ended := make(chan error)
	go func() { ended <- c.ExecuteContext(ctx) }()
	if !<-seen {
		t.Error("the failure did not come into the log")
	}
	cancel()
	if err, want := <-ended, "run 1 of 2: interrupted (0 tests had failed); the logs are in "+logs; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	for _, w := range []string{"run 1 of 2: interrupted after ", "1 0 0.0 s 0.0 s TestFine"} {
		if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, w) {
			t.Errorf("%q is missing in\n%s", w, out.String())
		}
	}
	if l, _ := filepath.Glob(logs + "/*"); len(l) != 1 {
		t.Errorf("logs %v", l)
	}
}

// A line that is no event, or too long for one, does not end the reading, nor takes
// memory without end.
func TestFlakesReadsOn(t *testing.T) {
	text := "no JSON\n{\"Action\":\"output\",\"Output\":\"" + strings.Repeat("x", maxEvent) + "\"}\n" +
		`{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p"}`
	var log bytes.Buffer
	r := runOutput{all: flakes{}, log: bufio.NewWriter(&log)}
	if err := r.read(strings.NewReader(text)); err != nil || !r.failed || r.all.failed() != 1 || len(r.broken) != 0 || log.Len() != 0 {
		t.Errorf("%v, failed %v, %d failures, %v", err, r.failed, r.all.failed(), r.broken)
	}
}

func TestTail(t *testing.T) {
	var b tail
	for range 3 {
		_, _ = b.Write(bytes.Repeat([]byte("y"), tailSize))
	}
	_, _ = b.Write([]byte("end"))
	if len(b) != tailSize || !bytes.HasSuffix(b, []byte("yend")) {
		t.Errorf("%d bytes", len(b))
	}
}

func TestCheckPattern(t *testing.T) {
	for pattern, ok := range map[string]bool{
		"": true, "TestA|TestB": true, "TestA/b c/[/]": true, "Test(A/B)": true, `a\/b`: true,
		"(": false, "a/(": false, "[a": false, "a/+": false, "x(": false,
	} {
		if err := checkPattern(pattern); (err == nil) != ok {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}
