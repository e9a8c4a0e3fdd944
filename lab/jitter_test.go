package lab_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// Jitter stops processes and lets them go on, but what a test has stopped stays so.
func TestJitter(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: -1, Env: []string{"IBNET_LAB_JITTER=20ms"}}, func(g *lab.G) {
		p := g.Start("sleep", "1000")
		is := func(state string) func() bool {
			return func() bool {
				return strings.Contains(g.Read(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid)), " (sleep) "+state)
			}
		}
		stops := func() int { return strings.Count(g.Read("/lab/out/jitter"), "\n") }
		g.Wait("it to be stopped", time.Minute, is("T"))
		g.Wait("it to go on", time.Minute, is("S"))
		g.Wait("it to be stopped again", time.Minute, is("T"))
		p.Signal(syscall.SIGSTOP)
		g.Wait("it to be stopped by the test", time.Minute, is("T"))
		for from := stops(); stops() < from+30; time.Sleep(time.Millisecond) {
			if !is("T")() {
				g.Fatal("what the test stopped goes on")
			}
		}
		p.Signal(syscall.SIGCONT)
		g.Wait("it to go on again", time.Minute, is("S"))
	})
}
