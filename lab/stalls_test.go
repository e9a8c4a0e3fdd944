package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
)

// What a guest's end says of its test includes when it was not let run.
func TestStalls(t *testing.T) {
	t.Parallel()
	c := Config{HCAs: -1}
	if InGuest() {
		Run(t, c, func(g *G) {
			g.Artifact("began", nil)
			g.Wait("the stall to be written down", 20*time.Second, func() bool {
				before, err := os.ReadFile(shareDir + "/out/resumed")
				now, _ := os.ReadFile(shareDir + stallsFile)
				return err == nil && len(now) > len(before)
			})
		})
		return
	}
	g := Boot(t, c)
	for deadline := time.Now().Add(20 * time.Second); !fileExists(filepath.Join(g.Dir, "out/began")); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the guest did not begin")
		}
	}
	// The machine itself, which is the watcher's only child.
	machine := 0
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", g.cmd.Process.Pid))
	for _, l := range lists {
		text, _ := os.ReadFile(l)
		_, _ = fmt.Sscan(string(text), &machine)
	}
	if machine == 0 {
		t.Fatal("the watcher has no child")
	}
	before, _ := os.ReadFile(filepath.Join(g.Dir, stallsFile)) // of its own
	const stall = 1500 * time.Millisecond
	testkit.NoError(t, syscall.Kill(machine, syscall.SIGSTOP))
	time.Sleep(stall)
	_ = syscall.Kill(machine, syscall.SIGCONT)
	testkit.NoError(t, os.WriteFile(filepath.Join(g.Dir, "out/resumed"), before, 0o644))
	<-g.done
	said := g.stalls()
	g.Wait(t)
	for _, l := range said {
		length, _, _ := strings.Cut(l, " from ")
		if d, err := time.ParseDuration(length); err != nil || d < stallLeast {
			t.Errorf("after a stall of %v: %q", stall, said)
		}
	}
}
