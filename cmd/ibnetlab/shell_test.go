package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/fabric/gen"
)

// commandVar makes the test binary the command.
const commandVar = "IBNETLAB_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(commandVar) == "1" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// terminal is a terminal with somebody at it.
type terminal struct {
	keys, tty *os.File
	mu        sync.Mutex
	text      bytes.Buffer // what was on it so far
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip(err)
	}
	x := &terminal{keys: os.NewFile(uintptr(fd), "ptmx")} // one whose Close ends a Read
	t.Cleanup(func() { x.keys.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		x.tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { x.tty.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := x.keys.Read(b)
			x.mu.Lock()
			x.text.Write(b[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return x
}

func (x *terminal) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text.String()
}

func (x *terminal) shows(part string) func() bool {
	return func() bool { return strings.Contains(x.String(), part) }
}

func (x *terminal) enter(t *testing.T, line string) {
	t.Helper()
	if _, err := x.keys.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
}

// left are the processes that have dir on their command line.
func left(dir string) (pids []string) {
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), dir) {
			pids = append(pids, filepath.Base(filepath.Dir(p)))
		}
	}
	return pids
}

// child is a child of a process, 0 if it has none.
func child(parent int) int {
	procs, _ := procfs.AllProcs()
	for _, p := range procs {
		if st, err := p.Stat(); err == nil && st.PPID == parent {
			return p.PID
		}
	}
	return 0
}

// However a shell ends, nothing of its guest stays, and who called it has the terminal
// back as it was.
func TestShellEnds(t *testing.T) {
	if testing.Short() || os.Getenv("IBNET_LAB") == "off" {
		t.Skip("boots guests")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kill := func(s syscall.Signal) func(*testing.T, *terminal, int) {
		return func(t *testing.T, _ *terminal, pid int) {
			if err := syscall.Kill(pid, s); err != nil {
				t.Error(err)
			}
		}
	}
	for _, tc := range []struct {
		name  string
		how   string // -mc: as a person's shell does, with a process group for each command
		end   func(t *testing.T, x *terminal, pid int)
		gone  bool // the terminal
		asked bool // for, in the guest: status 0
	}{
		{"exit", "-c", func(t *testing.T, x *terminal, _ int) { x.enter(t, "exit") }, false, true},
		{"exit, job control", "-mc", func(t *testing.T, x *terminal, _ int) { x.enter(t, "exit") }, false, true},
		{"poweroff", "-c", func(t *testing.T, x *terminal, _ int) { x.enter(t, "poweroff -f") }, false, true},
		{"SIGTERM", "-c", kill(unix.SIGTERM), false, false},
		{"SIGHUP", "-mc", kill(unix.SIGHUP), false, false},
		{"SIGKILL", "-c", kill(unix.SIGKILL), false, false},
		{"SIGKILL, job control", "-mc", kill(unix.SIGKILL), false, false},
		{"closed", "-mc", func(_ *testing.T, x *terminal, _ int) { x.keys.Close() }, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			x, tmp := newTerminal(t), t.TempDir()
			// A background group may not read: then the terminal was not given back yet.
			cmd := exec.Command("/bin/sh", tc.how, `"$@"; echo "ended $?"; until read -r x; do sleep 0.1; done; echo "got $x"; stty -a`,
				"sh", self, "shell", "--bin=")
			cmd.Env = append(os.Environ(), commandVar+"=1", "TMPDIR="+tmp)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = x.tty, x.tty, x.tty
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			x.tty.Close()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				for _, pid := range left(tmp) {
					n, _ := strconv.Atoi(pid)
					_ = syscall.Kill(n, unix.SIGKILL)
				}
				if t.Failed() {
					t.Logf("on the terminal:\n%s", x)
				}
			})
			wait := func(what string, cond func() bool) {
				t.Helper()
				for end := time.Now().Add(2 * time.Minute); !cond(); time.Sleep(20 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("waited in vain: %s; left are processes %v", what, left(tmp))
					}
				}
			}
			prompt := x.shows("lab:~# ")
			wait("a prompt", func() bool { return prompt() || x.shows("\nended ")() })
			if !prompt() {
				if os.Getenv("IBNET_LAB") == "require" {
					t.Fatal("no prompt")
				}
				t.Skipf("no lab here: %s", x)
			}
			pid := child(cmd.Process.Pid)
			if pid == 0 {
				t.Fatal("the command is not there")
			}
			if len(left(tmp)) == 0 {
				t.Fatal("nothing has the guest's folder on its command line")
			}
			tc.end(t, x, pid)
			wait("all of it is gone", func() bool {
				dirs, _ := filepath.Glob(tmp + "/ibnetlab-*")
				return len(left(tmp)) == 0 && len(dirs) == 0
			})
			if tc.gone {
				return
			}
			wait("the end is seen", x.shows("\nended "))
			if tc.asked {
				wait("exit status 0", x.shows("\nended 0"))
			}
			x.enter(t, "hello")
			wait("an answer of the shell that called", x.shows("got hello"))
			if err := <-ended; err != nil {
				t.Error(err)
			}
			wait("all of the output", x.shows("echoctl"))
			_, stty, _ := strings.Cut(x.String(), "got hello")
			for _, off := range []string{" -icanon", " -echo ", " -isig", " -icrnl", " -opost"} {
				if strings.Contains(strings.ReplaceAll(stty, "\n", " "), off) {
					t.Errorf("the terminal was left with%s", off)
				}
			}
		})
	}
}

// What cannot be is refused before anything boots.
func TestShellRefuses(t *testing.T) {
	t.Setenv("IBNET_CACHE", t.TempDir())
	text := filepath.Join(t.TempDir(), "fabric")
	f, err := os.Create(text)
	if err != nil {
		t.Fatal(err)
	}
	star := gen.Star(4, 8)
	if err := fabric.WriteText(f, star); err != nil {
		t.Fatal(err)
	}
	f.Close()
	sw := ""
	for _, n := range star.Nodes {
		if n.Type == ib.NodeSwitch {
			sw = n.Desc
		}
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--swib", "frob=1"}, `no parameter "frob"`},
		{[]string{"--hcas", "-5"}, "-5 adapters: want 1 to 1024"},
		{[]string{"--hcas", "0"}, "--hcas 0: want 1 or more"},
		{[]string{"--hcas", "100000"}, "100000 adapters: want 1 to 1024"},
		{[]string{"--ports", "9"}, "9 ports: an adapter has 1 to 2"},
		{[]string{"--at", "S-0001/7"}, "--at is for --fabric"},
		{[]string{"--series", "6.12"}, "--series is for --qemu"},
		{[]string{"--qemu", "--series", "7.0"}, `kernel series "7.0": want 6.1 or 6.12`},
		{[]string{"--fabric", text, "--at", sw + "/1"}, sw + "/1 has a cable already"},
		{[]string{"--fabric", text, "--at", sw + "/99"}, sw + "/99"},
		{[]string{"--fabric", text, "--at", "nosuch/1"}, `no node "nosuch"`},
		{[]string{"--fabric", text, "--hcas", "3"}, "hcas"},
		{nil, "standard input is not a terminal"},
	} {
		c := shellCommand()
		c.SetArgs(tc.args)
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: got %v, want %q", tc.args, err, tc.want)
		}
	}
}
