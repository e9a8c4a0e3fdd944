package lab

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab/build"
)

// Variables of the environment that steer the host side.
const (
	requireVar = "IBNET_LAB" // "require": a lab that cannot run fails the test instead of skipping it; "off": skip
	// "1": every UML guest runs the kernel with KASAN, lockdep and kmemleak, and nothing but its reports counts
	sanitizeVar = "IBNET_LAB_SANITIZE"
	logsVar     = "IBNET_LAB_LOGS" // where the folders of failed guests are kept
	keepVar     = "IBNET_LAB_KEEP" // "1": keep the folders of all guests
)

// Sanitizing reports whether UML guests run the kernel with the checkers.  It is
// several times slower, so that what a test does hundreds of times it may do less
// often there.
func Sanitizing() bool { return os.Getenv(sanitizeVar) == "1" }

// Patience is how long to wait for what takes d at most on the usual kernel: the
// one with the checkers is several times slower.
func Patience(d time.Duration) time.Duration {
	if Sanitizing() {
		return 5 * d
	}
	return d
}

// leastWait is how long everything may take at the least before a test gives it
// up.  A machine with other work starves a guest for many seconds, and that is no
// fault of what is tested; a test that passes does not wait for it.
const leastWait = time.Minute

func patient(limit time.Duration) time.Duration { return Patience(max(limit, leastWait)) }

// startDir is the package folder: go test starts a test binary there, and a
// test may change it later.
var startDir, _ = os.Getwd()

// Run boots a guest, runs body in it as root, and makes its outcome the outcome
// of t.  Failures, logs and skips of the body are those of the test.  Run skips
// the test where there is no lab (not Linux, -short, no way to get a kernel).
//
// Run calls t.FailNow when the guest cannot be started, crashes, or runs out
// of time; the guest is killed then, and its folder with the console log is kept.
func Run(t *testing.T, c Config, body func(g *G)) {
	t.Helper()
	if InGuest() {
		runBody(t, c.withDefaults(), body)
		return
	}
	Boot(t, c).Wait(t)
}

// Guest is a running guest.
type Guest struct {
	// Dir is the folder that the guest sees as /lab; its out folder holds what
	// the guest left.
	Dir string

	cfg   Config
	start time.Time
	done  chan struct{}
	cmd   *exec.Cmd // the watcher
	err   error     // of the machine's process, after done

	// lifeline keeps the machine alive while it is open.
	lifeline *os.File
	timeout  *time.Timer
	late     atomic.Bool // killed for being late
	kept     string      // where keep moves the folder
	cleared  bool        // the folder was moved or removed
}

// name is what messages call the guest.
func (g *Guest) name() string {
	if g.cfg.node != "" {
		return "the guest (node " + g.cfg.node + ")"
	}
	return "the guest"
}

// ended reports whether the guest's machine has ended.
func (g *Guest) ended() bool {
	select {
	case <-g.done:
		return true
	default:
		return false
	}
}

var logLine = regexp.MustCompile(`^ +[^ :]+\.go:[0-9]+: `)

// complaint is the last thing that the guest has said of itself: why it could not
// begin, the last message of its test, or what became of its machine.
func (g *Guest) complaint() string {
	if msg, err := os.ReadFile(filepath.Join(g.Dir, "out/error")); err == nil {
		return strings.TrimSpace(string(msg))
	}
	text, _ := os.ReadFile(filepath.Join(g.Dir, "out/stdout"))
	const most = 10
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if strings.HasPrefix(lines[i], "panic: ") || logLine.MatchString(lines[i]) {
			end := i + 1
			for end < len(lines) && end-i < most && strings.HasPrefix(lines[end], "        ") && !logLine.MatchString(lines[end]) {
				end++
			}
			return strings.TrimSpace(strings.Join(lines[i:end], "\n"))
		}
	}
	if g.ended() && g.err != nil {
		return g.err.Error()
	}
	return "it said nothing"
}

// unavailable skips t, or fails it where a lab is required.
func unavailable(t *testing.T, err error) {
	t.Helper()
	if os.Getenv(requireVar) == "require" {
		t.Fatalf("lab: %v", err)
	}
	t.Skipf("lab: %v", err)
}

// Boot starts a guest that runs the calling test in it, and returns at once.
// Run is Boot and Wait; Boot is for tests of several guests.
func Boot(t *testing.T, c Config) *Guest {
	t.Helper()
	given := c
	c = c.withDefaults()
	switch {
	case runtime.GOOS != "linux" || runtime.GOARCH != "amd64":
		unavailable(t, errors.New("the guests are x86-64 Linux kernels"))
	case testing.Short() || os.Getenv(requireVar) == "off":
		t.Skip("lab: switched off")
	}
	if err := given.check(); err != nil {
		t.Fatalf("lab: %v", err)
	}
	m, err := prepare(t.Context(), t.Output(), c)
	if errors.Is(err, build.ErrUnavailable) {
		unavailable(t, err)
	}
	if err != nil {
		t.Fatalf("lab: %v", err)
	}
	self, err := testBinary(t.Context())
	if err != nil {
		t.Fatalf("lab: %v", err)
	}
	m.agent = self
	pattern := make([]string, 0, 4)
	for p := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(p)+"$")
	}
	limit := c.Timeout - c.Timeout/20
	if c.TimeTravel {
		limit = 0 // the guest's clock is no measure
	}
	args := []string{"-test.run=" + strings.Join(pattern, "/"), "-test.v=true", "-test.count=1",
		"-test.timeout=" + limit.String()}
	if testing.CoverMode() != "" {
		args = append(args, "-test.coverprofile=")
	}
	name := t.Name()
	if c.node != "" {
		name += "-" + c.node
	}
	g, err := m.boot(job{Config: c, Args: args}, name, nil)
	if err != nil {
		t.Fatalf("lab: %v", err)
	}
	t.Cleanup(func() {
		g.Kill()
		switch {
		case g.cleared:
		case t.Failed():
			t.Logf("lab: what %s left is in %s", g.name(), g.keep())
		default:
			g.remove()
		}
	})
	return g
}

// machine is everything of a guest that is made before it boots.
type machine struct {
	cfg    Config
	kernel *build.Kernel
	module string // swib.ko
	rootfs string // "" for Bare
	bins   map[string]string
	agent  string // static program that is /init
}

// prepare builds what the guest needs, or finds it in the cache.
func prepare(ctx context.Context, out io.Writer, c Config) (*machine, error) {
	b, err := build.New(out)
	if err != nil {
		return nil, err
	}
	m := &machine{cfg: c, bins: map[string]string{}}
	switch {
	case c.Machine == QEMU:
		m.kernel, err = b.DebianKernel(ctx, c.Series)
	case Sanitizing():
		m.kernel, err = b.Kernel(ctx, build.Sanitize)
	case c.Small && !b.Has(ctx, build.UML):
		m.kernel, err = b.Kernel(ctx, build.IPoIB)
	default:
		m.kernel, err = b.Kernel(ctx, build.UML)
	}
	if err != nil {
		return nil, err
	}
	if m.module, err = b.Module(ctx, m.kernel, "swib", SwibSource()); err != nil {
		return nil, err
	}
	if c.Userland != Bare {
		if m.rootfs, err = b.Rootfs(ctx); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(m.checkUnits(), m.checkFiles()); err != nil {
		return nil, err
	}
	for _, bin := range append([]string{managerPkg}, c.Bins...) {
		file := bin
		if !filepath.IsAbs(bin) {
			if file, err = programs.build(ctx, b, bin); err != nil {
				return nil, err
			}
		}
		m.bins[filepath.Base(file)] = file
	}
	return m, nil
}

// checkUnits makes sure that the units to start at boot exist: systemd says nothing
// of one that does not.
func (m *machine) checkUnits() error {
next:
	for _, u := range m.cfg.Units {
		file := u
		if name, rest, ok := strings.Cut(u, "@"); ok {
			file = name + "@" + filepath.Ext(rest)
		}
		for _, dir := range []string{"/etc/systemd/system", "/lib/systemd/system", "/usr/lib/systemd/system"} {
			for _, f := range []string{u, file} {
				if _, ok := m.cfg.Files[filepath.Join(dir, f)]; ok {
					continue next
				}
				if _, err := os.Lstat(filepath.Join(m.rootfs, dir, f)); err == nil {
					continue next
				}
			}
		}
		return fmt.Errorf("unit %s: neither the userland nor Files have it", u)
	}
	return nil
}

// checkFiles makes sure that no file is to be where the userland has a folder, and none
// below one of its files.
func (m *machine) checkFiles() error {
	if m.rootfs == "" {
		return nil
	}
	root, err := os.OpenRoot(m.rootfs) // links in it are the guest's, not the host's
	if err != nil {
		return err
	}
	defer root.Close()
	for name := range m.cfg.Files {
		switch st, err := root.Stat(strings.TrimPrefix(name, "/")); {
		case err == nil && st.IsDir():
			return fmt.Errorf("file %q: that is a folder of the userland; want the name of a file in it", name)
		case errors.Is(err, unix.ENOTDIR):
			return fmt.Errorf("file %q: a part of its path is a file of the userland", name)
		}
	}
	return nil
}

// managerPkg is the subnet manager that every guest can start, see G.SM.
const managerPkg = "ibnetworkd/cmd/ibnetsm"

// programs are built once by a test process: even where nothing is left to do,
// the go command takes half a second to find that out.
var programs builtPrograms

type builtPrograms struct {
	mu   sync.Mutex
	file map[string]string
}

func (p *builtPrograms) build(ctx context.Context, b *build.Builder, pkg string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.file[pkg]; ok {
		return f, nil
	}
	f, err := b.Program(ctx, startDir, pkg)
	if err != nil {
		return "", err
	}
	if p.file == nil {
		p.file = map[string]string{}
	}
	p.file[pkg] = f
	return f, nil
}

var (
	testBinOnce sync.Once
	testBinFile string
	testBinErr  error
)

// testBinary returns a static executable of the running test.  That is the test
// itself unless it was built with cgo (as -race does): the guest has no C
// library then, and the race detector does not run under UML.
func testBinary(ctx context.Context) (string, error) {
	testBinOnce.Do(func() {
		testBinFile, testBinErr = os.Executable()
		if testBinErr != nil || isStatic(testBinFile) {
			return
		}
		b, err := build.New(io.Discard)
		if err != nil {
			testBinErr = err
			return
		}
		testBinFile, testBinErr = b.TestProgram(ctx, startDir)
	})
	return testBinFile, testBinErr
}

func isStatic(file string) bool {
	f, err := elf.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}

// link makes the file src appear as dst, without copying it where possible.
func link(src, dst string) error {
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	if os.Link(src, dst) == nil {
		return nil
	}
	text, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	return os.WriteFile(dst, text, 0o755)
}

// boot makes the folder of the guest and starts its machine.  con is the
// terminal of a person, or nil.
func (m *machine) boot(j job, name string, con *os.File) (*Guest, error) {
	logs := os.Getenv(logsVar)
	if logs == "" {
		logs = filepath.Join(os.TempDir(), "ibnetlab")
	}
	dir, err := os.MkdirTemp("", "ibnetlab-")
	if err != nil {
		return nil, err
	}
	g := &Guest{Dir: dir, cfg: m.cfg, done: make(chan struct{}), kept: filepath.Join(logs, fileName(name)+"-"+time.Now().Format("150405.000"))}
	ok := false
	defer func() {
		if !ok {
			os.RemoveAll(dir)
		}
	}()
	// The guest may run services as other users that must get through.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	for _, d := range []string{"bin", "out", "files"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(filepath.Join(dir, "out"), 0o777); err != nil {
		return nil, err
	}
	for n, file := range m.bins {
		if err := link(file, filepath.Join(dir, "bin", n)); err != nil {
			return nil, err
		}
	}
	if err := link(m.agent, filepath.Join(dir, "bin/lab-agent")); err != nil {
		return nil, err
	}
	if err := link(m.module, filepath.Join(dir, "swib.ko")); err != nil {
		return nil, err
	}
	for n, text := range m.cfg.Files {
		to := filepath.Join(dir, "files", n)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	j.Root = m.rootfs
	j.Net = m.cfg.netPath
	for _, w := range m.cfg.wires {
		j.Wires = append(j.Wires, w.port)
	}
	for _, e := range os.Environ() {
		if strings.HasPrefix(e, "IBNET_") && !strings.HasPrefix(e, "IBNET_CACHE=") {
			j.Env = append(j.Env, e)
		}
	}
	text, err := json.MarshalIndent(j, "", "\t")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "job.json"), text, 0o644); err != nil {
		return nil, err
	}
	initrd := filepath.Join(dir, "initramfs")
	if err := m.initramfs(initrd); err != nil {
		return nil, err
	}
	command := m.umlCommand
	if m.cfg.Machine == QEMU {
		command = m.qemuCommand
	}
	if err := g.run(con, command(dir, initrd, con != nil)); err != nil {
		return nil, err
	}
	ok = true
	return g, nil
}

// initramfs returns the archive with the agent as /init.
func (m *machine) initramfs(file string) error {
	text, err := os.ReadFile(m.agent)
	if err != nil {
		return err
	}
	var head bytes.Buffer
	c := &cpioWriter{w: &head}
	for _, d := range []string{"/dev", "/proc", "/sys", "/lab", "/run", "/tmp", "/etc", "/root", "/var", "/modules"} {
		c.dir(d)
	}
	c.char("/dev/console", 5, 1)
	c.char("/dev/null", 1, 3)
	for i, mod := range m.initModules() {
		data, err := os.ReadFile(mod)
		if err == nil && strings.HasSuffix(mod, ".xz") {
			mod = strings.TrimSuffix(mod, ".xz")
			data, err = exec.Command("xz", "-dc", mod+".xz").Output()
		}
		if err != nil {
			return err
		}
		c.file(fmt.Sprintf("/modules/%03d-%s", i, filepath.Base(mod)), 0o644, data)
	}
	c.file("/init", 0o755, text)
	if err := c.close(); err != nil {
		return err
	}
	return os.WriteFile(file, head.Bytes(), 0o644)
}

// umlCommand returns the command of a User Mode Linux guest.
func (m *machine) umlCommand(dir, initrd string, quiet bool) *exec.Cmd {
	args := []string{
		fmt.Sprintf("mem=%dM", m.cfg.Memory), "initrd=" + initrd, "ibnetlab=hostfs:" + dir,
		"umid=guest", "uml_dir=" + dir, "con=null", "con0=fd:0,fd:1",
		"panic=-1", "loglevel=5", "rdinit=/init",
	}
	if quiet {
		args = append(args, "quiet", "loglevel=3")
	}
	if m.cfg.Userland == Systemd {
		args = append(args, systemdArgs...)
	}
	if m.cfg.TimeTravel {
		args = append(args, "time-travel=inf-cpu")
	}
	cmd := exec.Command(m.kernel.Image)
	for i, w := range m.cfg.wires {
		cmd.ExtraFiles = append(cmd.ExtraFiles, w.file)
		args = append(args, fmt.Sprintf("vec%d:transport=fd,fd=%d,depth=128,mtu=%d", i, 3+i, wireMTU))
	}
	args = append(args, m.queueArgs()...)
	args = append(args, strings.Fields(m.cfg.Append)...)
	cmd.Args = append(cmd.Args, args...)
	return cmd
}

// run starts the machine with the command in a watcher's hands, on con if there is one.
func (g *Guest) run(con *os.File, cmd *exec.Cmd) error {
	kept := g.kept
	if con != nil {
		kept = "" // who had it before his eyes needs no log
	}
	cmd, lifeline, err := watched(cmd, kept)
	if err != nil {
		return err
	}
	if con != nil {
		owner, err := terminalOwner()
		if err != nil {
			return err
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = con, os.Stdout, os.Stderr
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", terminalVar, owner))
	} else {
		console, err := os.Create(filepath.Join(g.Dir, "console.log"))
		if err != nil {
			return err
		}
		defer console.Close()
		cmd.Stdout, cmd.Stderr = console, console
	}
	if g.cfg.Machine == UML || !useKVM() {
		cmd.Env = append(cmd.Env, oneCPUVar+"=1")
	}
	cmd.Dir = g.Dir
	g.cmd, g.lifeline = cmd, lifeline
	g.start = time.Now()
	err = cmd.Start()
	cmd.ExtraFiles[len(cmd.ExtraFiles)-1].Close() // the watcher has it now
	if err != nil {
		return err
	}
	go func() {
		g.err = cmd.Wait()
		close(g.done)
	}()
	if con == nil {
		g.timeout = time.AfterFunc(g.cfg.Timeout, func() {
			g.late.Store(true)
			g.Kill()
		})
	}
	return nil
}

// Kill ends the guest at once, as pulling the plug does.
func (g *Guest) Kill() {
	_, _ = g.lifeline.Write([]byte("end"))
	_ = g.lifeline.Close()
	<-g.done
}

// Wait passes the guest's output to t until the guest ends, and then makes its
// outcome that of t.
func (g *Guest) Wait(t *testing.T) {
	t.Helper()
	r := g.follow(t, "")
	why := g.outcome(t)
	drawTimeline(filepath.Join(g.Dir, "out"), t.Name(), map[string]*Guest{"": g}, nil)
	if why == "" {
		g.remove()
		if r.skipped {
			t.SkipNow()
		}
		if g.late.Load() {
			t.Skip(tooSlow)
		}
		return
	}
	t.Fatalf("lab: %s; see %s", why, g.keep())
}

// tooSlow is said of a test that is skipped in the end for its guest's slowness.
const tooSlow = "lab: too slow on the kernel with the checkers: what it reported until then was looked at, its end was not"

// outcome tells what was wrong with a guest that has ended, "" if nothing.
func (g *Guest) outcome(t *testing.T) string {
	t.Helper()
	g.timeout.Stop()
	exit, exitErr := os.ReadFile(filepath.Join(g.Dir, "out/exit"))
	console, _ := os.ReadFile(filepath.Join(g.Dir, "console.log"))
	dmesg, _ := os.ReadFile(filepath.Join(g.Dir, "out/dmesg"))
	if !bytes.Contains(dmesg, []byte("Linux version")) {
		dmesg = append(console, dmesg...) // the kernel's buffer has lost its beginning, or there is none
	}
	why := ""
	switch {
	case g.late.Load():
		why = fmt.Sprintf("the guest did not end within %v and was killed", g.cfg.Timeout)
	case exitErr != nil:
		msg, _ := os.ReadFile(filepath.Join(g.Dir, "out/error"))
		why = "the guest died"
		if len(msg) > 0 {
			why += ": " + strings.TrimSpace(string(msg))
		} else if g.err != nil {
			why += ": " + g.err.Error()
		}
	case string(exit) != "0":
		why = "failed in the guest"
		if n, _ := strconv.Atoi(string(exit)); n != 1 {
			why += " (exit status " + string(exit) + ")"
		}
	}
	kernelOnly := Sanitizing() && (exitErr == nil || g.late.Load())
	if oops := kernelErrors(dmesg); oops != "" && (!g.cfg.AllowKernelErrors || exitErr != nil) {
		t.Logf("kernel of %s:\n%s", g.name(), oops)
		if kernelOnly = false; why == "" {
			why = "the guest's kernel reported an error"
		}
	}
	boot, _ := os.ReadFile(filepath.Join(g.Dir, "out/boot"))
	up, _, _ := strings.Cut(string(boot), " ")
	t.Logf("%s: %s, test began %s s after boot, all done in %.2f s", strings.TrimPrefix(g.name(), "the "), g.cfg.Userland, up,
		time.Since(g.start).Seconds())
	if l := g.stalls(); len(l) > 0 {
		t.Logf("%s stood still for %s", g.name(), strings.Join(l, ", "))
	}
	if why != "" && kernelOnly {
		t.Logf("lab: %s; only the kernel is judged", why)
		return ""
	}
	if why != "" && exitErr != nil {
		t.Logf("end of the console of %s:\n%s", g.name(), lastLines(console, 40))
	}
	return why
}

// remove deletes the folder of the guest unless asked to keep it.
func (g *Guest) remove() {
	if os.Getenv(keepVar) == "1" {
		kept := g.keep()
		if pic := filepath.Join(kept, "out/timeline.svg"); fileExists(pic) {
			kept += ", with a picture: " + pic
		}
		fmt.Fprintln(os.Stderr, "lab: kept", kept)
		return
	}
	g.cleared = true
	os.RemoveAll(g.Dir)
}

// keep moves the guest's folder to where a person will find it.
func (g *Guest) keep() string {
	g.cleared = true
	return keepFolder(g.Dir, g.kept)
}

// keepFolder moves the folder of a guest, without what came from the cache, and
// returns where it is.
func keepFolder(dir, to string) string {
	for _, n := range []string{"bin", "swib.ko", "initramfs"} {
		os.RemoveAll(filepath.Join(dir, n))
	}
	if os.MkdirAll(filepath.Dir(to), 0o755) != nil || os.Rename(dir, to) != nil {
		return dir
	}
	return to
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// fileName is a test's name without what means something in file names.
func fileName(test string) string { return strings.NewReplacer("/", "_", " ", "_").Replace(test) }

// result is what the output of the guest's test said.
type result struct {
	prefix  string
	skipped bool
}

// follow copies the guest's test output to t while it comes.
func (g *Guest) follow(t *testing.T, prefix string) result {
	r := result{prefix: prefix}
	var part []byte
	var f *os.File
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	read := func() {
		if f == nil {
			var err error
			if f, err = os.Open(filepath.Join(g.Dir, "out/stdout")); err != nil {
				return
			}
		}
		text, _ := io.ReadAll(f)
		part = append(part, text...)
		for {
			i := bytes.IndexByte(part, '\n')
			if i < 0 {
				return
			}
			r.line(t, string(part[:i]))
			part = part[i+1:]
		}
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			read()
		case <-g.done:
			read()
			if len(part) > 0 {
				r.line(t, string(part))
			}
			return r
		}
	}
}

// line passes on one line, leaving out the frame that the outer test adds itself.
func (r *result) line(t *testing.T, l string) {
	switch {
	case strings.HasPrefix(l, "--- SKIP: "+t.Name()+" "):
		r.skipped = true
		return
	case l == "PASS", l == "FAIL", strings.HasPrefix(l, "=== "), strings.HasPrefix(l, "--- "),
		strings.HasPrefix(strings.TrimSpace(l), "--- PASS: "):
		return
	}
	fmt.Fprintln(t.Output(), r.prefix+l)
}

var oopsPattern = regexp.MustCompile(`BUG: |WARNING: |Oops|Kernel panic|general protection fault|INFO: task .* blocked|` +
	`possible (circular|recursive) locking|suspicious RCU|refcount_t: |UBSAN: |unreferenced object|scheduling while atomic|` +
	`sleeping function called from invalid|Segfault with no mm|unregister_netdevice: waiting for|Kernel mode fault|Disabling lock debugging`)

// kernelErrors returns the parts of a kernel log that tell of a bug.
func kernelErrors(log []byte) string {
	const reportLines, keepLines, keepReports = 120, 40, 4
	lines := strings.Split(string(log), "\n")
	var out []string
	reports := 0
	for i := 0; i < len(lines); i++ {
		if !oopsPattern.MatchString(lines[i]) {
			continue
		}
		end := i + 1
		for end < len(lines) && end-i < reportLines && !oopsPattern.MatchString(lines[end]) {
			end++
		}
		report := lines[i:end]
		i = end - 1
		if reports++; reports <= keepReports {
			out = append(out, report[:min(len(report), keepLines)]...)
		}
	}
	return strings.Join(out, "\n")
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
