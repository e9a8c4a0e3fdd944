package lab

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// lifelineVar names the file descriptor by which a watcher knows that the test
// lives.
const lifelineVar = "IBNETLAB_LIFELINE"

// watcher is the program between a test and a guest's machine.  When a UML kernel
// is killed, the processes that were its user space go on as processes of the
// host; and a test can be killed at any time.  So the machine is a process group
// of its own, and the watcher ends all of it when either the machine or the test
// is gone.
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
	_ = os.Unsetenv(roleVar)
	_ = os.Unsetenv(lifelineVar)
	if err := cmd.Start(); err != nil {
		die(err)
	}
	group := -cmd.Process.Pid
	go func() {
		var b [1]byte
		for {
			if _, err := unix.Read(fd, b[:]); err != unix.EINTR {
				_ = unix.Kill(group, unix.SIGKILL)
				return
			}
		}
	}()
	err = cmd.Wait()
	_ = unix.Kill(group, unix.SIGKILL)
	if err == nil {
		os.Exit(0)
	}
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		os.Exit(code)
	}
	os.Exit(137)
}

// watched returns the command that runs cmd under a watcher, and the end of the
// lifeline to close when the machine shall end.
func watched(cmd *exec.Cmd) (*exec.Cmd, *os.File, error) {
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
	out.Env = append(os.Environ(), roleVar+"=watch", fmt.Sprintf("%s=%d", lifelineVar, 3+len(cmd.ExtraFiles)))
	// A group of its own keeps the terminal's signals away.
	out.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return out, w, nil
}
