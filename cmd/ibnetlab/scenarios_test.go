package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A scenario is found where its guest is booted by a function of another file, and a
// test without a guest is none.
func TestScenarios(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"p/a_test.go":          "package p\n// TestA is direct. And more.\nfunc TestA(t *testing.T) { lab.Run(t, c, f) }\nfunc TestNone(t *testing.T) { g.Run(x) }\n",
		"p/b_test.go":          "package p\nfunc TestB(t *testing.T) { t.Run(\"x\", func(t *testing.T) { first(t) }) }\nfunc second(t *testing.T) { lab.RunNet(t, n) }\n",
		"p/c_test.go":          "package p\nfunc first(t *testing.T) { second(t) }\n",
		"q/testdata/d_test.go": "package d\nfunc TestD(t *testing.T) { lab.Run(t, c, f) }\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := scenarios(root)
	want := []scenario{{"./p", "TestA", "TestA is direct."}, {"./p", "TestB", ""}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
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
