package lab

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Variables of a watcher: the file descriptor by which it knows that the test
// lives, and where to move the guest's folder when the test is gone.
const (
	lifelineVar = "IBNETLAB_LIFELINE"
	keptVar     = "IBNETLAB_KEPT"
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
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	for i := 3; i < fd; i++ {
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(i), "wire"))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	unix.CloseOnExec(fd)
	kept := os.Getenv(keptVar)
	for _, v := range []string{roleVar, lifelineVar, keptVar} {
		_ = os.Unsetenv(v)
	}
	if err := cmd.Start(); err != nil {
		die(err)
	}
	group := -cmd.Process.Pid
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
	err = cmd.Wait()
	_ = unix.Kill(group, unix.SIGKILL)
	if orphaned.Load() {
		if dir, err := os.Getwd(); err == nil {
			keepFolder(dir, kept)
		}
	}
	if err == nil {
		os.Exit(0)
	}
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		os.Exit(code)
	}
	os.Exit(137)
}

// watched returns the command that runs cmd under a watcher, and the end of the
// lifeline to write to when the machine shall end.  When the lifeline breaks, the
// machine ends too, and its folder, the working folder, becomes kept.
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
