package lab

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// jitterVar has one process of each guest after another stopped, at random, for at most
// its value (for example 400ms).  It brings out what a test takes for granted of the
// order in which others act.
const jitterVar = "IBNET_LAB_JITTER"

// startJitter begins to stop processes if the job's environment asks for it.
func (j *job) startJitter() error {
	v := j.getenv(jitterVar)
	if v == "" || j.TimeTravel { // nothing takes any time there
		return nil
	}
	longest, err := time.ParseDuration(v)
	if err != nil || longest <= 0 {
		return fmt.Errorf("%s=%s: want a time, for example 400ms", jitterVar, v)
	}
	log, err := os.Create(shareDir + "/out/jitter")
	if err != nil {
		return err
	}
	go jitter(longest, log)
	return nil
}

// jitter stops processes until the guest ends, and writes down when, which and for how
// long.  Process 1, kernel threads and what is stopped already are left alone.
func jitter(longest time.Duration, log io.Writer) {
	for {
		time.Sleep(rand.N(2 * longest))
		pid, name := anyProcess()
		if pid == 0 {
			continue
		}
		length := rand.N(longest)
		fmt.Fprintf(log, "%.3f %s[%d] %v\n", Uptime().Seconds(), name, pid, length)
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(length)
		if stoppedByTest(pid) {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
		if stoppedByTest(pid) { // just now
			_ = syscall.Kill(pid, syscall.SIGSTOP)
		}
	}
}

// stoppedFile is there while a test wants a process to be stopped.
func stoppedFile(pid int) string { return fmt.Sprintf("/run/lab.stopped.%d", pid) }

func stoppedByTest(pid int) bool {
	_, err := os.Stat(stoppedFile(pid))
	return err == nil
}

// anyProcess picks a process that may be stopped; 0 if there is none.
func anyProcess() (pid int, name string) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, ""
	}
	const kthread = 0x00200000 // PF_KTHREAD of linux/sched.h
	for _, i := range rand.Perm(len(all)) {
		st, err := all[i].Stat()
		if err == nil && st.PID != 1 && st.PID != os.Getpid() && st.Flags&kthread == 0 && !strings.Contains("TtZX", st.State) {
			return st.PID, st.Comm
		}
	}
	return 0, ""
}
