package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// What each command shows of the hosts in testdata/reports, which scenarios write:
// go test ./lab/scenario -run 'ReportOfAHost|CardOfTwoKinds' -rewrite.
func TestReports(t *testing.T) {
	archives, err := filepath.Glob("testdata/reports/*.tar.gz")
	if err != nil || len(archives) < 3 {
		t.Fatalf("reports: %q, %v", archives, err)
	}
	for _, archive := range archives {
		dir := strings.TrimSuffix(archive, ".tar.gz")
		for _, command := range []string{"status", "list", "ports", "diagnose", "plan"} {
			var b bytes.Buffer
			code := run(t.Context(), []string{"--report", archive, command}, strings.NewReader(""), &b, &b)
			fmt.Fprintf(&b, "exit status %d\n", code)
			golden(t, filepath.Join(dir, command+".txt"), b.String())
		}
	}
}
