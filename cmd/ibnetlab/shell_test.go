package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/lab/gen"
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

// session is a shell of the lab that another shell has called.
type session struct {
	*terminal
	t     *testing.T
	tmp   string // has the guest's folder
	cmd   *exec.Cmd
	ended chan error
}

// newSession starts a shell with the arguments. how is an option of /bin/sh.
func newSession(t *testing.T, how string, args ...string) *session {
	t.Helper()
	if testing.Short() || os.Getenv("IBNET_LAB") == "off" {
		t.Skip("boots guests")
	}
	self, err := os.Executable()
	testkit.NoError(t, err)
	x := &session{terminal: newTerminal(t), t: t, tmp: t.TempDir(), ended: make(chan error, 1)}
	// A background group may not read: then the terminal was not given back yet.
	x.cmd = exec.Command("/bin/sh", append([]string{how, `"$@"; echo "ended $?"; until read -r x; do sleep 0.1; done; echo "got $x"; stty -a`,
		"sh", self, "shell"}, args...)...)
	x.cmd.Env = append(os.Environ(), commandVar+"=1", "TMPDIR="+x.tmp)
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = x.tty, x.tty, x.tty
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testkit.NoError(t, x.cmd.Start())
	x.tty.Close()
	go func() { x.ended <- x.cmd.Wait() }()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		for _, pid := range left(x.tmp) {
			n, _ := strconv.Atoi(pid)
			_ = syscall.Kill(n, unix.SIGKILL)
		}
		if t.Failed() {
			t.Logf("on the terminal:\n%s", x)
		}
	})
	return x
}

func (x *session) wait(what string, cond func() bool) {
	x.t.Helper()
	x.waitFor(2*time.Minute, what, cond)
}

func (x *session) waitFor(limit time.Duration, what string, cond func() bool) {
	x.t.Helper()
	for end := time.Now().Add(limit); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("waited in vain: %s; left are processes %v", what, left(x.tmp))
		}
	}
}

// prompt waits for the guest's prompt; where there is no lab it ends the test.
func (x *session) prompt() {
	x.t.Helper()
	prompt := x.shows("lab:~# ")
	// The kernels may have to be built first.
	x.waitFor(10*time.Minute, "a prompt", func() bool { return prompt() || x.shows("\nended ")() })
	if !prompt() {
		if os.Getenv("IBNET_LAB") == "require" {
			x.t.Fatal("no prompt")
		}
		x.t.Skipf("no lab here: %s", x)
	}
}

// However a shell ends, nothing of its guest stays, and who called it has the terminal
// back as it was.
func TestShellEnds(t *testing.T) {
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
			x := newSession(t, tc.how, "--bin=")
			wait, tmp := x.wait, x.tmp
			x.prompt()
			pid := child(x.cmd.Process.Pid)
			if pid == 0 {
				t.Fatal("the command is not there")
			}
			if len(left(tmp)) == 0 {
				t.Fatal("nothing has the guest's folder on its command line")
			}
			tc.end(t, x.terminal, pid)
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
			if err := <-x.ended; err != nil {
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

// Each kind of guest comes to its prompt, says when, has there what it promises, and ends
// with status 0 when it is powered off.
func TestShellKinds(t *testing.T) {
	dir := t.TempDir()
	star := filepath.Join(dir, "star")
	testkit.WriteFile(t, star, gen.Text(gen.Star(4, 8)))
	unit := filepath.Join(dir, "ib0")
	testkit.NoError(t, os.WriteFile(unit, []byte("[Match]\nName=ib0\n[Network]\nAddress=10.9.0.1/24\n[SubnetManager]\nManage=auto\n"+
		"StartDelaySec=1\n"), 0o644))
	const cables = "ibstat -l | wc -l"
	for _, tc := range []struct {
		name string
		args []string
		do   string
		want []string // lines, and parts of them
		off  string
	}{
		{"topology", []string{"--bin=", "--topology", star}, cables, []string{"\n4\r"}, "poweroff -f"},
		{"fabric", []string{"--bin=", "--fabric", star}, cables, []string{"simulated around it: 5 nodes, 4 links", "\n1\r"}, "poweroff -f"},
		{"qemu", []string{"--bin=", "--qemu"}, "uname -v; " + cables, []string{"\n#1 SMP PREEMPT_DYNAMIC Debian", "\n2\r"}, "poweroff -f"},
		{"systemd", []string{"--systemd", "--file", "/etc/systemd/network/10-ib0.ibnetwork=" + unit},
			"systemctl start ibnetworkd && ibnetctl wait-online -i ib0 --timeout 180s && PAGER=cat ibnetctl status && ibnetctl diagnose " +
				"swib0/1 && " +
				"busctl --no-pager tree org.ibnetwork1; systemctl is-enabled ibnetworkd ibnetworkd-wait-online; systemctl is-system-running --wait",
			[]string{"ibnetworkd is enabled", "10.9.0.1/24", "port GUID 0x", "/org/ibnetwork1/port/swib0_2f1", "\nenabled\r\nenabled\r\n",
				"\nrunning\r"}, "poweroff"},
		{"systemd, nothing installed", []string{"--bin=", "--systemd"}, "systemctl list-unit-files --no-legend 'ibnet*' | wc -l; " +
			"systemctl is-system-running --wait",
			[]string{"\n0\r", "\nrunning\r"}, "poweroff"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			x := newSession(t, "-c", tc.args...)
			x.prompt()
			_, took, ok := strings.Cut(x.String(), "The prompt was there ")
			took, _, _ = strings.Cut(took, " s after the start")
			if s, err := strconv.ParseFloat(took, 64); !ok || err != nil || s <= 0 || s > 600 {
				t.Errorf("how long it took: %q", took)
			}
			t.Logf("prompt %s s after the start", took)
			x.enter(t, "echo; "+tc.do+`; echo "did $?"`) // the prompt leaves something on its line
			done := regexp.MustCompile(`\ndid \d+\r`)
			x.waitFor(5*time.Minute, "the end of the command", func() bool { return done.MatchString(x.String()) })
			for _, part := range append(tc.want, "\ndid 0") {
				if !x.shows(part)() {
					t.Errorf("nowhere does it say %q", part)
				}
			}
			x.enter(t, tc.off)
			x.wait("exit status 0", x.shows("\nended 0"))
			if dirs, _ := filepath.Glob(x.tmp + "/ibnetlab-*"); len(left(x.tmp)) > 0 || len(dirs) > 0 {
				t.Errorf("left are processes %v and %q", left(x.tmp), dirs)
			}
		})
	}
}

// What cannot be is refused before anything boots.
func TestShellRefuses(t *testing.T) {
	t.Setenv("IBNET_CACHE", t.TempDir())
	text := filepath.Join(t.TempDir(), "fabric")
	star := gen.Star(4, 8)
	testkit.WriteFile(t, text, gen.Text(star))
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
		{[]string{"--at", "S-0001/7"}, "--at requires --fabric"},
		{[]string{"--series", "6.12"}, "--series requires --qemu"},
		{[]string{"--qemu", "--series", "7.0"}, `kernel series "7.0": want 6.1 or 6.12`},
		{[]string{"--fabric", text, "--at", sw + "/1"}, sw + "/1 has a cable already"},
		{[]string{"--fabric", text, "--at", sw + "/99"}, sw + "/99"},
		{[]string{"--fabric", text, "--at", "nosuch/1"}, `no node "nosuch"`},
		{[]string{"--fabric", text, "--hcas", "3"}, "hcas"},
		{[]string{"--file", text}, "want GUESTPATH=LOCALFILE"},
		{[]string{"--file", "=" + text}, "want GUESTPATH=LOCALFILE"},
		{[]string{"--file", "/etc/x=" + text + ".none"}, "--file /etc/x: stat " + text + ".none: no such file"},
		{[]string{"--file", "/etc/x=" + filepath.Dir(text)}, "is not a regular file"},
		{[]string{"--file", "/etc/x=" + text, "--file", "/etc/x=" + text}, "--file /etc/x: given twice"},
		{[]string{"--file", "etc/x=" + text}, `file "etc/x": want an absolute name`},
		{[]string{"--file", "/etc/systemd/network/=" + text}, "the name of a file, not of a folder"},
		{[]string{"--file", "/run/systemd/network/x.ibnetwork=" + text}, "what the guest mounts on /run would hide it"},
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

// The shell of one of several hosts gets the flags that were given, without --hosts;
// parsed again they give the same configuration.
func TestSameFlags(t *testing.T) {
	t.Parallel()
	parse := func(args []string) (*shellFlags, *cobra.Command) {
		o, c := &shellFlags{}, &cobra.Command{}
		o.bind(c)
		testkit.NoError(t, c.ParseFlags(args))
		return o, c
	}
	o, c := parse([]string{"--hosts", "3", "--systemd", "--memory=512", "--file", "/a=b,c", "--file", "/d=e", "--bin", "./x,./y"})
	again := sameFlags(c.Flags())
	want := []string{"--bin=./x", "--bin=./y", "--file=/a=b,c", "--file=/d=e", "--memory=512", "--systemd=true"}
	if !slices.Equal(again, want) {
		t.Errorf("got %q, want %q", again, want)
	}
	p, _ := parse(again)
	if o.hosts, p.hosts = 0, 0; !reflect.DeepEqual(o, p) {
		t.Errorf("parsed again: %+v, want %+v", p, o)
	}
}

// What a shell boots follows from its flags.
func TestShellConfig(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]struct {
		userland  lab.Userland
		machine   lab.Machine
		installed bool
	}{
		"":                             {userland: lab.Debian},
		"--systemd":                    {userland: lab.Systemd, installed: true},
		"--systemd --bin=":             {userland: lab.Systemd},
		"--systemd --bin=./ibnetctl":   {userland: lab.Systemd},
		"--systemd --bin=./ibnetworkd": {userland: lab.Systemd, installed: true},
		"--qemu --series 6.12":         {userland: lab.Debian, machine: lab.QEMU},
	} {
		o, c := &shellFlags{config: lab.Config{Userland: lab.Debian}}, &cobra.Command{}
		o.bind(c)
		testkit.NoError(t, c.ParseFlags(strings.Fields(args)))
		if err := o.complete(); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if k := o.config; k.Userland != want.userland || k.Machine != want.machine || k.Installed != want.installed {
			t.Errorf("%s: userland %v, machine %v, installed %v, want %v", args, k.Userland, k.Machine, k.Installed, want)
		}
	}
}
