package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// tools are the programs that the rig runs.
type tools struct {
	ibnetsm, ibnetsim, shim string
}

// prepare builds ours, once; opensm and the diagnostics come from their packages.
var prepare = sync.OnceValues(build)

func build() (*tools, error) {
	root, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module: %w", err)
	}
	base := filepath.Dir(strings.TrimSpace(string(root)))
	dir := filepath.Join(base, "build", "bench")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	shim, err := filepath.Glob(filepath.Join(base, "lab/shim/*.c"))
	if err != nil {
		return nil, err
	}
	t := &tools{filepath.Join(dir, "ibnetsm"), filepath.Join(dir, "ibnetsim"), filepath.Join(dir, "libibumad-sim.so")}
	for _, c := range [][]string{
		{"go", "build", "-o", t.ibnetsm, "./cmd/ibnetsm"},
		{"go", "build", "-o", t.ibnetsim, "./lab/simfabric/cmd/ibnetsim"},
		slices.Concat([]string{"gcc", "-O2", "-shared", "-fPIC", "-o", t.shim}, shim, []string{"-ldl", "-lpthread"}),
	} {
		cmd := exec.Command(c[0], c[1:]...)
		cmd.Dir = base
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", strings.Join(c, " "), err, out)
		}
	}
	return t, nil
}

var rigs atomic.Uint32

// rig is a simulator with a folder of its own.
type rig struct {
	t     *tools
	kind  string // "ibnetsim" or "ibsim"
	dir   string
	sock  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *follower
	errs  *follower
	sms   []*manager
}

// start runs a simulator of a kind on a fabric.
func (t *tools) start(kind, fabricName string, args ...string) (*rig, error) {
	dir, err := os.MkdirTemp("", "smbench-")
	if err != nil {
		return nil, err
	}
	r := &rig{t: t, kind: kind, dir: dir, sock: fmt.Sprintf("smbench%d-%d", os.Getpid(), rigs.Add(1)), out: newFollower(), errs: newFollower()}
	path, f, err := topoFile(dir, fabricName)
	if err != nil {
		r.stop()
		return nil, err
	}
	bin := t.ibnetsim
	if kind == "ibsim" {
		bin = "ibsim"
		ports := len(f.Ports) + 64
		args = append(args, "-N", strconv.Itoa(max(2048, len(f.Nodes)+16)), "-S", strconv.Itoa(max(256, len(f.Switches)+16)), "-P",
			strconv.Itoa(max(13312, ports)))
	}
	r.cmd = exec.Command(bin, append(append([]string{"-s"}, args...), path)...)
	r.cmd.Dir = dir
	r.cmd.Env = append(os.Environ(), "IBSIM_SOCKNAME="+r.sock)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.errs
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		r.stop()
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		r.stop()
		return nil, fmt.Errorf("start %s: %w", bin, err)
	}
	if err := r.out.wait(regexp.MustCompile("simulator ready"), 1, 60*time.Second, nil); err != nil {
		r.stop()
		return nil, fmt.Errorf("%s: %w: %s", bin, err, r.errs.text(0))
	}
	return r, nil
}

// managed runs a simulator on a fabric, and a subnet manager on its first host until its
// first sweep has ended.
func (t *tools) managed(kind, fabricName, sm string, priority int, sweep bool) (*rig, *manager, error) {
	r, err := t.start(kind, fabricName)
	if err != nil {
		return nil, nil, err
	}
	m, err := r.run(sm, "H-00001", priority, sweep)
	if err == nil {
		_, err = m.waitUp(1, time.Minute)
	}
	if err != nil {
		r.stop()
		return nil, nil, err
	}
	return r, m, nil
}

// console gives the simulator a command and returns what it prints.
func (r *rig) console(line string) string {
	prompt := regexp.MustCompile(`sim> ?`)
	_ = r.out.wait(prompt, 1, 5*time.Second, nil)
	n, from := r.out.count(prompt), r.out.len()
	fmt.Fprintln(r.stdin, line)
	_ = r.out.wait(prompt, n+1, 10*time.Second, nil)
	return strings.TrimSuffix(r.out.text(from), "sim> ")
}

// preload is the library that unmodified tools run with.
func (r *rig) preload() (string, error) {
	if r.kind != "ibsim" {
		return r.t.shim, nil
	}
	for _, p := range []string{"/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so", "/usr/lib/umad2sim/libumad2sim.so",
		"/usr/lib64/umad2sim/libumad2sim.so"} {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("libumad2sim.so of ibsim-utils is not installed")
}

// env is the environment of a program on a host of the subnet; foreign programs
// get the preload library.
func (r *rig) env(host string, foreign bool) ([]string, error) {
	e := append(os.Environ(), "IBSIM_SOCKNAME="+r.sock, "SIM_HOST="+host, "OSM_TMP_DIR="+r.dir, "OSM_CACHE_DIR="+r.dir)
	if foreign {
		p, err := r.preload()
		if err != nil {
			return nil, err
		}
		e = append(e, "LD_PRELOAD="+p)
	}
	return e, nil
}

func (r *rig) stop() {
	for _, m := range r.sms {
		m.kill()
	}
	if r.cmd != nil && r.cmd.Process != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
	os.RemoveAll(r.dir)
}

// smKind is a subnet manager under comparison.
type smKind struct {
	name string
	up   *regexp.Regexp
	args func(t *tools, log string, priority int, sweep bool) []string
}

var kinds = map[string]smKind{
	"opensm": {"opensm", regexp.MustCompile("SUBNET UP"), func(_ *tools, log string, prio int, sweep bool) []string {
		a := []string{"opensm", "-e", "-d2", "-f", log, "-p", strconv.Itoa(prio)}
		if !sweep {
			a = append(a, "-s", "0")
		}
		return a
	}},
	"ibnetsm": {"ibnetsm", regexp.MustCompile("subnet up"), func(t *tools, log string, prio int, sweep bool) []string {
		a := []string{t.ibnetsm, "run", "--transport=ibsim", "--log-file=" + log, "--priority=" + strconv.Itoa(prio)}
		if !sweep {
			a = append(a, "--sweep=0")
		}
		return a
	}},
}

// manager is a running subnet manager.
type manager struct {
	kind  smKind
	cmd   *exec.Cmd
	log   string
	begun time.Time
	done  chan struct{}
	once  sync.Once
}

// run starts a subnet manager on a host.
func (r *rig) run(kind, host string, priority int, sweep bool, extra ...string) (*manager, error) {
	k := kinds[kind]
	sub := filepath.Join(r.dir, fmt.Sprintf("sm%d", len(r.sms)))
	if err := os.Mkdir(sub, 0o755); err != nil {
		return nil, err
	}
	m := &manager{kind: k, log: filepath.Join(sub, "log"), done: make(chan struct{})}
	args := append(k.args(r.t, m.log, priority, sweep), extra...)
	m.cmd = exec.Command(args[0], args[1:]...)
	m.cmd.Dir = sub
	env, err := r.env(host, kind == "opensm")
	if err != nil {
		return nil, err
	}
	m.cmd.Env = append(env, "OSM_TMP_DIR="+sub, "OSM_CACHE_DIR="+sub)
	m.begun = time.Now()
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	go func() { _ = m.cmd.Wait(); close(m.done) }()
	r.sms = append(r.sms, m)
	return m, nil
}

// ups counts the finished sweeps in the log.
func (m *manager) ups() int {
	b, _ := os.ReadFile(m.log)
	return len(m.kind.up.FindAll(b, -1))
}

// waitUp waits for the nth finished sweep and returns when it was seen.
func (m *manager) waitUp(n int, limit time.Duration) (time.Time, error) {
	end := time.Now().Add(limit)
	for time.Now().Before(end) {
		if m.ups() >= n {
			return time.Now(), nil
		}
		select {
		case <-m.done:
			b, _ := os.ReadFile(m.log)
			return time.Time{}, fmt.Errorf("%s ended: %s", m.kind.name, tail(b, 400))
		case <-time.After(500 * time.Microsecond):
		}
	}
	return time.Time{}, fmt.Errorf("%s: no sweep finished in %v", m.kind.name, limit)
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

func (m *manager) signal(s syscall.Signal) { _ = m.cmd.Process.Signal(s) }

func (m *manager) kill() {
	m.once.Do(func() {
		_ = m.cmd.Process.Kill()
		<-m.done
	})
}

// usage is the CPU time and the largest memory, in bytes, of a live process.
func usage(pid int) (cpu time.Duration, rss int64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0
	}
	if st, err := p.Stat(); err == nil {
		cpu = time.Duration(st.CPUTime() * float64(time.Second))
	}
	// The scheduler's clock is finer than the ticks, but knows live threads only.
	threads, _ := procfs.AllThreads(pid)
	var on time.Duration
	for _, t := range threads {
		if st, err := t.Schedstat(); err == nil {
			on += time.Duration(st.RunningNanoseconds)
		}
	}
	if st, err := p.NewStatus(); err == nil {
		rss = int64(st.VmHWM)
	}
	return max(cpu, on), rss
}

// follower keeps what a process prints and lets others wait for it.
type follower struct {
	mu  sync.Mutex
	buf []byte
	new chan struct{}
}

func newFollower() *follower { return &follower{new: make(chan struct{})} }

func (f *follower) Write(b []byte) (int, error) {
	f.mu.Lock()
	f.buf = append(f.buf, b...)
	close(f.new)
	f.new = make(chan struct{})
	f.mu.Unlock()
	return len(b), nil
}

func (f *follower) count(re *regexp.Regexp) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(re.FindAll(f.buf, -1))
}

func (f *follower) len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.buf)
}

func (f *follower) text(from int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return string(f.buf[from:])
}

func (f *follower) wait(re *regexp.Regexp, n int, limit time.Duration, done <-chan struct{}) error {
	t := time.After(limit)
	for {
		f.mu.Lock()
		c, ch := len(re.FindAll(f.buf, -1)), f.new
		f.mu.Unlock()
		if c >= n {
			return nil
		}
		select {
		case <-ch:
		case <-done:
			return fmt.Errorf("it ended")
		case <-t:
			return fmt.Errorf("no %q within %v", re, limit)
		}
	}
}
