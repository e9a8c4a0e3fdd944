package main

import (
	"bytes"
	"fmt"
	"os"
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
			file := filepath.Join(dir, command+".txt")
			if *update {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, b.Bytes()) {
				t.Errorf("%s is not what is shown (go test ./cmd/ibnetctl -run 'TestReports$' -update):\n%s", file, b.String())
			}
		}
	}
}
