package lab

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// jitterVar has one process of each guest after another stopped, at random, for at most
// its value (for example 400ms).  It brings out what a test takes for granted of the
// order in which others act.
const jitterVar = "IBNET_LAB_JITTER"

// startJitter begins to stop processes if the job's environment asks for it.
func (j *job) startJitter() error {
	v := ""
	for _, e := range j.Env {
		if x, ok := strings.CutPrefix(e, jitterVar+"="); ok {
			v = x
		}
	}
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
	dir, err := os.ReadDir("/proc")
	if err != nil {
		return 0, ""
	}
	n := 0
	for _, d := range dir {
		p, err := strconv.Atoi(d.Name())
		if err != nil || p == 1 || p == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile("/proc/" + d.Name() + "/stat")
		if err != nil {
			continue
		}
		// "pid (comm) state ppid pgrp session tty_nr tpgid flags ...": proc_pid_stat(5).
		open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
		f := bytes.Fields(stat[end+1:])
		if open < 0 || end < open || len(f) < 7 || bytes.ContainsAny(f[0], "TtZX") {
			continue
		}
		const kthread = 0x00200000 // PF_KTHREAD of linux/sched.h
		if flags, err := strconv.ParseUint(string(f[6]), 10, 32); err != nil || flags&kthread != 0 {
			continue
		}
		if n++; rand.N(n) == 0 {
			pid, name = p, string(stat[open+1:end])
		}
	}
	return pid, name
}
