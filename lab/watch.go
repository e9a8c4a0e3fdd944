package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Variables of a watcher: the file descriptor by which it knows that the test
// lives, where to move the guest's folder when the test is gone ("": nowhere, it is
// removed), and, if its standard input is the terminal that the guest's console is
// on, whose the terminal is afterwards: a process group, or 0 if it is no group's.  A
// machine with oneCPUVar is kept on one processor at a time.
const (
	lifelineVar = "IBNETLAB_LIFELINE"
	keptVar     = "IBNETLAB_KEPT"
	terminalVar = "IBNETLAB_TERMINAL"
	oneCPUVar   = "IBNETLAB_ONE_CPU"
)

// watcher is the program between a test and a guest's machine.  When a UML kernel
// is killed, the processes that were its user space go on as processes of the
// host; and a test can be killed at any time.  So the machine is a process group
// of its own, and the watcher ends all of it when either the machine or the test
// is gone.  What the guest has left is the test's, or is kept when that is gone.
func watcher() {
	die := func(err error) {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(125)
	}
	fd, err := strconv.Atoi(os.Getenv(lifelineVar))
	if err != nil {
		die(err)
	}
	// What a terminal or a service manager sends to all is for the test to obey.
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	// Without a terminal there is nothing to give back.
	terminal, giveBack := os.Getenv(terminalVar), func(int) {}
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	for i := 3; i < fd; i++ {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(i), "wire"))
	}
	// A session of its own is a group to the scheduler too (sched(7), autogroup), in
	// which no guest waits for the others of a test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: terminal == "", Setpgid: terminal != ""}
	if terminal != "" {
		owner, err := strconv.Atoi(terminal)
		if err != nil {
			die(err)
		}
		// Only the group in the foreground may read, and others that do this are stopped.
		signal.Ignore(unix.SIGTTOU)
		cmd.SysProcAttr.Foreground = owner > 0
		giveBack = keepTerminal(owner)
	}
	unix.CloseOnExec(fd)
	kept := os.Getenv(keptVar)
	var balance *balancer
	if os.Getenv(oneCPUVar) == "1" {
		if balance = newBalancer(); balance != nil {
			// What the machine inherits is that of the thread that starts it.
			runtime.LockOSThread()
			_ = pin(0, balance.at)
		}
	}
	for _, v := range []string{roleVar, lifelineVar, keptVar, terminalVar, oneCPUVar} {
		_ = os.Unsetenv(v)
	}
	if err := cmd.Start(); err != nil {
		die(err)
	}
	group := -cmd.Process.Pid
	if balance != nil {
		go balance.run(cmd.Process.Pid)
	}
	var orphaned atomic.Bool
	go func() {
		var b [1]byte
		for {
			n, err := unix.Read(fd, b[:])
			if err == unix.EINTR {
				continue
			}
			orphaned.Store(n <= 0)
			_ = unix.Kill(group, unix.SIGKILL)
			return
		}
	}()
	if terminal != "" {
		go func() {
			awaitHangup()
			_ = unix.Kill(group, unix.SIGKILL)
		}()
	}
	err = cmd.Wait()
	_ = unix.Kill(group, unix.SIGKILL)
	giveBack(-group)
	if orphaned.Load() {
		if dir, err := os.Getwd(); err == nil && kept != "" {
			keepFolder(dir, kept)
		} else if err == nil {
			os.RemoveAll(dir)
		}
	}
	if err == nil {
		os.Exit(0)
	}
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		os.Exit(code)
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		os.Exit(128 + int(ws.Signal())) // as a shell has it
	}
	os.Exit(1)
}

// terminalOwner returns the process group that has the terminal on standard input,
// which must be this one; 0 if the terminal has no such thing for this session.
func terminalOwner() (int, error) {
	owner, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	if err != nil || owner == 0 {
		return 0, nil
	}
	if owner != unix.Getpgrp() {
		return 0, errors.New("the shell cannot run in the background of its terminal")
	}
	return owner, nil
}

// keepTerminal returns a function that makes the terminal on standard input what it is
// now, and gives it to the process group owner, if the group of the machine, its
// argument, has it still.  When the machine's parent has been killed, a person's shell
// may have taken it by then; such a one may have left the modes as they were, in which
// no key means anything.
func keepTerminal(owner int) func(group int) {
	const fd = 0
	before, beforeErr := unix.IoctlGetTermios(fd, unix.TCGETS)
	return func(group int) {
		ours := owner == 0
		if now, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && now == group {
			ours = true
		}
		now, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil || beforeErr != nil {
			return // it is gone
		}
		if raw := now.Lflag&unix.ISIG == 0 && now.Oflag&unix.OPOST == 0; ours || raw {
			_ = unix.IoctlSetTermios(fd, unix.TCSETS, before)
		}
		if ours && owner > 0 {
			_ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, owner)
		}
	}
}

// awaitHangup returns when the terminal on standard input is gone.
func awaitHangup() {
	for {
		p := []unix.PollFd{{Fd: 0}}
		if _, err := unix.Poll(p, -1); err == unix.EINTR {
			continue
		}
		return // nothing else was asked for
	}
}

// watched returns the command that runs cmd under a watcher, and the end of the
// lifeline to write to when the machine shall end.  When the lifeline breaks, the
// machine ends too, and its folder, the working folder, becomes kept, or is removed if
// that is "".
func watched(cmd *exec.Cmd, kept string) (*exec.Cmd, *os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	out := exec.Command(self, cmd.Args...)
	out.Args[0] = "lab-watch"
	out.Args[1] = cmd.Path
	out.ExtraFiles = append(append([]*os.File{}, cmd.ExtraFiles...), r)
	out.Env = append(os.Environ(), roleVar+"=watch", fmt.Sprintf("%s=%d", lifelineVar, 3+len(cmd.ExtraFiles)), keptVar+"="+kept)
	// A group of its own keeps the terminal's signals away.
	out.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return out, w, nil
}
