package main

import (
	"strings"
	"testing"
)

func TestFlakes(t *testing.T) {
	f := flakes{}
	for _, e := range []event{
		{Action: "start", Package: "p"}, {Action: "run", Package: "p", Test: "TestA"}, {Action: "pass", Package: "p", Test: "TestA", Elapsed: 2},
		{Action: "pass", Package: "p", Test: "TestA/sub", Elapsed: 1}, {Action: "fail", Package: "p", Test: "TestB", Elapsed: 9}, {Action: "fail", Package: "p"},
		{Action: "pass", Package: "p", Test: "TestA", Elapsed: 3}, {Action: "pass", Package: "p", Test: "TestB", Elapsed: 1}, {Action: "skip", Package: "p", Test: "TestC"},
	} {
		f.add(e)
	}
	var b strings.Builder
	if err := f.table(&b); err != nil {
		t.Fatal(err)
	}
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
