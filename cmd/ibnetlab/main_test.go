package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/build"
)

// The exit status is that of the program that failed.
func TestExitStatus(t *testing.T) {
	t.Parallel()
	failed := exec.Command("/bin/sh", "-c", "exit 42").Run()
	for err, want := range map[error]int{failed: 42, fmt.Errorf("go test: %w", failed): 42, errors.New("no such scenario"): 1} {
		if got := exitStatus(err); got != want {
			t.Errorf("%v: exit status %d, want %d", err, got, want)
		}
	}
}

// The help lists the commands, and nothing that cobra adds by itself.
func TestRootCommand(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := rootCommand()
	c.SetArgs([]string{"--help"})
	c.SetOut(&out)
	testkit.NoError(t, c.Execute())
	_, list, _ := strings.Cut(out.String(), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for l := range strings.Lines(list) {
		names = append(names, strings.Fields(l)[0])
	}
	if got, want := strings.Join(names, " "), "build flakes help list run shell topology"; got != want {
		t.Errorf("commands %q, want %q", got, want)
	}
	for _, args := range [][]string{{"nosuch"}, {"build", "--nosuch"}} {
		c := rootCommand()
		c.SetArgs(args)
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), "nosuch") {
			t.Errorf("%q: %v, want the word that is wrong", args, err)
		}
	}
}

// The build prints where the kernel, the module and the userland are.
func TestBuild(t *testing.T) {
	if testing.Short() || os.Getenv("IBNET_LAB") == "off" {
		t.Skip("builds what is not in the cache")
	}
	b, err := build.New(t.Output())
	testkit.NoError(t, err)
	var out bytes.Buffer
	if err := buildAll(t.Context(), &out, b, false, false); err != nil {
		if os.Getenv("IBNET_LAB") == "require" {
			t.Fatal(err)
		}
		t.Skipf("no lab here: %v", err)
	}
	var what []string
	for l := range strings.Lines(out.String()) {
		f := strings.Fields(l)
		if len(f) != 2 {
			t.Fatalf("a line with other than two words: %q", l)
		}
		what = append(what, f[0])
		if _, err := os.Stat(f[1]); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(what, " "); got != "kernel module userland" {
		t.Errorf("printed are %q", got)
	}
}
