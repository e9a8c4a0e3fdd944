package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
)

// A scenario is found where its guest is booted by a function of another file, and a
// test without a guest is none.
func TestScenarios(t *testing.T) {
	root := t.TempDir()
	testkit.WriteFiles(t, root, map[string]string{
		"p/a_test.go": "package p\n// TestA is direct. And more.\nfunc TestA(t *testing.T) { lab.Run(t, c, f) }\nfunc " +
			"TestNone(t *testing.T) { g.Run(x) }\n",
		"p/b_test.go": "package p\nfunc TestB(t *testing.T) { t.Run(\"x\", func(t *testing.T) { first(t) }) }\nfunc second(t " +
			"*testing.T) { lab.RunNet(t, n) }\n",
		"p/c_test.go":          "package p\nfunc first(t *testing.T) { second(t) }\n",
		"r/e_test.go":          "package r\nfunc TestE(t *testing.T) { lab.Run(t, c, f) }\nfunc broken( {\n",
		"q/testdata/d_test.go": "package d\nfunc TestD(t *testing.T) { lab.Run(t, c, f) }\n",
	})
	got, broken, err := scenarios(root)
	want := []scenario{{"./p", "TestA", "TestA is direct."}, {"./p", "TestB", ""}, {"./r", "TestE", ""}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if len(broken) != 1 || !strings.Contains(broken[0].Error(), "e_test.go:3:") {
		t.Errorf("broken: %v", broken)
	}
}

// A part of a scenario that does not exist is an error, though go test takes it for
// success.
func TestRunNoPart(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles tests")
	}
	root := t.TempDir()
	testkit.WriteFiles(t, root, map[string]string{
		"go.mod":     "module parts\n\ngo 1.26\n",
		"lab/lab.go": "package lab\nimport \"testing\"\nfunc Run(t *testing.T) { t.Log(\"in a guest\") }\n",
		"parts/p_test.go": "package p\nimport (\"testing\"; \"parts/lab\")\nfunc TestParts(t *testing.T) { for _, n := range " +
			"[]string{\"7.0\", \"8.0\"} { t.Run(n, func(t *testing.T) { lab.Run(t) }) } }\nfunc TestWhole(t *testing.T) { lab.Run(t) }\n",
		"broken/b_test.go": "package b\nfunc (\n",
	})
	t.Chdir(root)
	for _, tc := range []struct{ arg, out, err string }{
		{"TestParts", "--- PASS: TestParts/8.0", ""}, {"TestParts/7.0", "--- PASS: TestParts/7.0", ""}, {"TestWhole", "in a guest", ""},
		{"TestParts/9.0", "", `TestParts has no subtest "9.0"`}, {"TestWhole/9.0", "", `TestWhole has no subtest "9.0"`},
		{"TestParts/(", "", "missing closing )"}, {"TestNone", "", "b_test.go:2"},
	} {
		var out bytes.Buffer
		c := runCommand()
		c.SetArgs([]string{tc.arg})
		c.SetOut(&out)
		c.SetErr(io.Discard)
		c.SilenceErrors, c.SilenceUsage = true, true
		err := c.ExecuteContext(t.Context())
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || !strings.Contains(out.String(), tc.out) {
			t.Errorf("%s: error %v, want %q; output:\n%s", tc.arg, err, tc.err, out.String())
		}
	}
}

func TestFind(t *testing.T) {
	all := []scenario{{"./lab", "TestHotplug", ""}, {"./lab/scenario", "TestHotplug", ""}, {"./lab", "TestPing", ""}}
	for _, tc := range []struct {
		arg  string
		want []int
		sub  string
	}{
		{"TestHotplug", []int{0, 1}, ""}, {"hotplug", []int{0, 1}, ""}, {"lab/scenario/TestHotplug", []int{1}, ""},
		{"./lab/TestHotplug/driver", []int{0}, "driver"}, {"TestPing/a/b", []int{2}, "a/b"}, {"nosuch", nil, ""}, {"sm/TestPing", nil, ""},
	} {
		var want []scenario
		for _, i := range tc.want {
			want = append(want, all[i])
		}
		if got, sub := find(all, tc.arg); !slices.Equal(got, want) || sub != tc.sub {
			t.Errorf("%s: got %v, %q", tc.arg, got, sub)
		}
	}
}
