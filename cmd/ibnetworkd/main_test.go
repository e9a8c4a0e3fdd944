package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The help fits a terminal of 80 columns, as that of the other programs does.
func TestHelpWidth(t *testing.T) {
	if os.Getenv("IBNET_TEST_HELP") != "" {
		if err := command([]string{"--help"}); err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	}
	c := exec.Command(os.Args[0], "-test.run=^TestHelpWidth$")
	c.Env = append(os.Environ(), "IBNET_TEST_HELP=1")
	out, err := c.Output()
	if err != nil || !strings.Contains(string(out), "\n      --metrics-textfile FILE") {
		t.Fatalf("%v:\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if len(line) > 81 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}
