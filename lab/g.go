package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/smallfile"
)

// G is a test that runs in a guest.  It is a *testing.T with the means to drive
// the guest; every helper fails the test with a sentence when it cannot do its work.
type G struct {
	*testing.T
	Config Config
}

// runBody is Run inside the guest.
func runBody(t *testing.T, c Config, body func(g *G)) {
	g := &G{T: t, Config: c}
	defer startRecorder(c)()
	if c.HCAs >= 0 {
		j, err := readJob()
		if err != nil {
			t.Fatal(err)
		}
		if err := loadSwib(c, j.Wires); err != nil {
			t.Fatal(err)
		}
	}
	body(g)
}

// Run runs f as a subtest in the same guest.
func (g *G) Run(name string, f func(g *G)) bool {
	return g.T.Run(name, func(t *testing.T) { f(&G{T: t, Config: g.Config}) })
}

// Command returns a command of the guest that is killed when the test ends.
func (g *G) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second // a busy machine may starve the guest for seconds
	return cmd
}

// Try runs a command and returns its output, standard error included, without
// the last newline.
func (g *G) Try(name string, args ...string) (string, error) { return g.try(nil, name, args) }

// Exec is Try for a command that must succeed.
func (g *G) Exec(name string, args ...string) string {
	g.Helper()
	return g.exec(nil, name, args)
}

// Sh runs a shell command line that must succeed.
func (g *G) Sh(format string, args ...any) string {
	g.Helper()
	return g.exec(nil, "sh", []string{"-ec", fmt.Sprintf(format, args...)})
}

func (g *G) try(h *Host, name string, args []string) (string, error) {
	cmd := g.command(g.Context(), name, args...)
	h.enter(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	text := strings.TrimRight(out.String(), "\n")
	if err != nil {
		err = fmt.Errorf("%s%s %s: %w", h.prefix(), name, strings.Join(args, " "), err)
	}
	return text, err
}

func (g *G) exec(h *Host, name string, args []string) string {
	g.Helper()
	out, err := g.try(h, name, args)
	if err != nil {
		g.Fatalf("%v\n%s", err, out)
	}
	return out
}

// Proc is a program that runs beside the test.
type Proc struct {
	Cmd  *exec.Cmd
	Log  string // file with its output
	g    *G
	done chan struct{}
	err  error
}

// Start starts a program.  It is killed with all its children when the test ends.
func (g *G) Start(name string, args ...string) *Proc {
	g.Helper()
	return g.startIn(nil, name, args)
}

func (g *G) startIn(h *Host, name string, args []string) *Proc {
	g.Helper()
	f, err := os.CreateTemp(shareDir+"/out", filepath.Base(name)+"-*.log")
	if err != nil {
		g.Fatal(err)
	}
	cmd := g.command(context.Background(), name, args...)
	h.enter(cmd)
	cmd.Stdout, cmd.Stderr = f, f
	p := &Proc{Cmd: cmd, Log: f.Name(), g: g, done: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		g.Fatalf("%sstart %s: %v", h.prefix(), name, err)
	}
	row := "run " + h.prefix() + filepath.Base(name)
	g.State(row, "running")
	tell(filepath.Base(name), p.Log, h.prefix())
	go func() {
		p.err = cmd.Wait()
		_ = os.Remove(stoppedFile(cmd.Process.Pid))
		f.Close()
		g.State(row, "")
		close(p.done)
	}()
	g.Cleanup(func() {
		p.Kill()
		if g.Failed() {
			g.Logf("output of %s:\n%s", name, lastLines([]byte(p.Output()), 40))
		}
	})
	return p
}

// Output returns what the program has printed so far.
func (p *Proc) Output() string {
	text, _ := os.ReadFile(p.Log)
	return string(text)
}

// Signal sends a signal to the program.
func (p *Proc) Signal(s syscall.Signal) {
	p.g.Helper()
	switch s {
	case syscall.SIGSTOP:
		_ = os.WriteFile(stoppedFile(p.Cmd.Process.Pid), nil, 0o644)
	case syscall.SIGCONT:
		_ = os.Remove(stoppedFile(p.Cmd.Process.Pid))
	}
	if err := p.Cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.g.Fatalf("signal %v to %s: %v", s, p.Cmd.Path, err)
	}
}

// Kill kills the program and its children, as kill -9 does, and waits for its end.
func (p *Proc) Kill() {
	_ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Done is closed when the program has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the program and returns how it ended.
func (p *Proc) Wait(limit time.Duration) error {
	p.g.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(patient(limit)):
		p.g.Fatalf("%s did not end within %v", p.Cmd.Path, patient(limit))
		return nil
	}
}

// Wait waits until cond is true and returns how long that took.  It looks often at
// first, then every 50 ms.  The test fails when it takes longer than limit and than a
// minute: a machine with other work starves a guest for many seconds.  A test that is
// about time checks what Wait returns.
func (g *G) Wait(what string, limit time.Duration, cond func() bool) time.Duration {
	g.Helper()
	return g.WaitFor(limit, func() string {
		if cond() {
			return ""
		}
		return what
	})
}

// WaitFor is Wait with a condition that says what is still missing, "" if nothing.
func (g *G) WaitFor(limit time.Duration, missing func() string) time.Duration {
	g.Helper()
	limit = patient(limit)
	start := time.Now()
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		looked := time.Now()
		m := missing()
		took := time.Since(start)
		if m == "" {
			return took
		}
		if took > limit {
			g.Fatalf("waited %v in vain: %s", limit, m)
		}
		// What is waited for has the same processor.
		time.Sleep(max(pause, time.Since(looked)))
	}
}

// Read returns the text of a file without spaces at its ends; "" if it cannot
// be read.
func (g *G) Read(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

// Write writes text to a file of the kernel's in one write call, as it wants it, and
// replaces any other at once, as careful editors do: another program may watch its folder.
func (g *G) Write(path, text string) {
	g.Helper()
	if err := g.TryWrite(path, text); err != nil {
		g.Fatal(err)
	}
}

// TryWrite is Write for what the kernel may refuse.
func (g *G) TryWrite(path, text string) error {
	if !strings.HasPrefix(path, "/sys/") && !strings.HasPrefix(path, "/proc/") {
		return smallfile.Replace(path, []byte(text), 0o644)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Artifact writes a file that stays on the host in the guest's out folder when
// the test fails or IBNET_LAB_KEEP=1 is set.
func (g *G) Artifact(name string, data []byte) {
	g.Helper()
	if err := os.WriteFile(filepath.Join(shareDir, "out", name), data, 0o644); err != nil {
		g.Fatal(err)
	}
}

// Uptime is the time since the guest's kernel began.
func Uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// CPU returns the processor time that a process has used, user and system.
func (g *G) CPU(pid int) time.Duration {
	g.Helper()
	p, err := procfs.NewProc(pid)
	if err != nil {
		g.Fatal(err)
	}
	st, err := p.Stat()
	if err != nil {
		g.Fatal(err)
	}
	return time.Duration(st.CPUTime() * float64(time.Second))
}
