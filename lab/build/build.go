// Package build makes what the lab boots: the kernels, the software fabric
// module, and the Debian userland.
//
// Results live in a cache outside the source tree, one folder for each key; the
// key is a hash of everything that decides the result (kernel options, source
// version, compiler, module sources, package list).  A result appears under its
// final name only when it is complete, and two processes that want the same
// thing share one build.  The package knows nothing of guests or tests.
package build

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Builder makes lab artefacts and remembers them in Cache.
type Builder struct {
	Cache string    // folder of all results and downloads
	Out   io.Writer // progress, one line at a time
	Jobs  int       // parallel compilers

	start time.Time
	mu    sync.Mutex // serialises writes to Out
}

// ErrUnavailable marks a result that cannot be made here: a tool is missing and
// may not be installed, or a download failed.  Tests skip on it.
var ErrUnavailable = errors.New("not available here")

// New returns a builder that reports its progress to out.  The cache folder is
// $IBNET_CACHE, else /var/cache/ibnetworkd for root, else ~/.cache/ibnetworkd.
func New(out io.Writer) (*Builder, error) {
	dir := os.Getenv("IBNET_CACHE")
	if dir == "" && os.Geteuid() == 0 {
		dir = "/var/cache/ibnetworkd"
	}
	if dir == "" {
		c, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("lab cache: %w", err)
		}
		dir = filepath.Join(c, "ibnetworkd")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("lab cache: %w", err)
	}
	if out == nil {
		out = io.Discard
	}
	return &Builder{Cache: dir, Out: out, Jobs: runtime.NumCPU(), start: time.Now()}, nil
}

// say prints one progress line with the time since the builder was made.
func (b *Builder) say(format string, args ...any) {
	e := time.Since(b.start).Truncate(time.Second)
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Fprintf(b.Out, "[%2dm%02ds] %s\n", int(e.Minutes()), int(e.Seconds())%60, fmt.Sprintf(format, args...))
}

// key hashes the parts that decide a result.
func key(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// once makes sure that dir exists, running make in a fresh folder beside it if
// not.  The folder is renamed when make succeeds.  Other processes wait.
func (b *Builder) once(ctx context.Context, what, dir string, make func(tmp string) error) error {
	if used(dir) {
		return nil
	}
	unlock, err := b.lock(ctx, what, filepath.Base(filepath.Dir(dir))+"-"+filepath.Base(dir))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return nil // another process made it while we waited
	}
	tmp := dir + ".partial"
	if err := removePartial(tmp); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := make(tmp); err != nil {
		_ = removePartial(tmp) // the log has the error; a partial result is useless
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	prune(filepath.Dir(dir))
	return nil
}

// removePartial removes what a killed build left, in which file systems may still be mounted.
func removePartial(dir string) error {
	at, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mounts, err := procfs.GetMounts()
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.MountPoint, at+"/") {
			_ = syscall.Unmount(m.MountPoint, syscall.MNT_DETACH) // a later one may have taken an earlier one along
		}
	}
	return os.RemoveAll(dir)
}

// used reports whether a result is there, and notes that it is in use.
func used(dir string) bool {
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // another user's cache can be used too
	return true
}

// prune removes from a folder of results what was not used for a month, and what a
// build that was killed a day ago has left.
func prune(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		limit := 30 * 24 * time.Hour
		if strings.HasSuffix(e.Name(), ".partial") {
			limit = 24 * time.Hour
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > limit {
			_ = removePartial(filepath.Join(dir, e.Name()))
		}
	}
}

// lock takes the named lock of the cache and says so while it has to wait.
func (b *Builder) lock(ctx context.Context, what, name string) (func(), error) {
	dir := filepath.Join(b.Cache, "lock")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lab cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lab cache: %w", err)
	}
	got := make(chan error, 1)
	go func() {
		for {
			err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
			if err != syscall.EINTR {
				got <- err
				return
			}
		}
	}()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-got:
			if err != nil {
				f.Close()
				return nil, fmt.Errorf("lock of %s: %w", what, err)
			}
			return func() { f.Close() }, nil
		case <-tick.C:
			b.say("%s: another process is building it, waiting", what)
		case <-ctx.Done():
			// The goroutine ends when it gets the lock; the file is closed then.
			go func() { <-got; f.Close() }()
			return nil, ctx.Err()
		}
	}
}

// step is one external command with its output kept in a log file.
type step struct {
	what  string
	log   string                 // file that collects the output
	dir   string                 // working folder
	env   []string               // added to the environment
	stdin string                 // text on standard input
	count func(line string) bool // counts a line as one unit of progress
	total int                    // expected units, 0 if unknown
	unit  string
}

// run executes a command, prints progress every few seconds, and returns an
// error that ends with the last lines of its output.
func (b *Builder) run(ctx context.Context, s step, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	cmd.Env = append(append(os.Environ(), "LC_ALL=C"), s.env...)
	cmd.Stdin = strings.NewReader(s.stdin)
	// A killed make would leave its compilers behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w

	out := &outcome{step: s}
	if s.log != "" {
		f, err := os.OpenFile(s.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			w.Close()
			return err
		}
		defer f.Close()
		fmt.Fprintf(f, "+ %s %s\n", name, strings.Join(args, " "))
		out.log = f
	}

	// Pdeathsig follows the thread that started the child.
	runtime.LockOSThread()
	err = cmd.Start()
	w.Close()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("%s: %w", name, err)
	}

	read := make(chan struct{})
	go func() {
		defer close(read)
		out.follow(r)
	}()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(5 * time.Second)
		defer t.Stop()
		for {
			select {
			case <-stop:
				return
			case <-t.C:
				b.say("%s: %s", s.what, out.progress())
			}
		}
	})
	err = cmd.Wait()
	runtime.UnlockOSThread()
	close(stop)
	wg.Wait()
	<-read
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		msg := strings.Join(out.tail, "\n\t")
		if s.log != "" {
			msg += "\n\t(all of it: " + s.log + ")"
		}
		return fmt.Errorf("%s: %w\n\t%s", name, err, msg)
	}
	return nil
}

// outcome is what the output of a command has said so far.
type outcome struct {
	step
	log  io.Writer // nil for none
	mu   sync.Mutex
	done int      // units that count has counted
	tail []string // the last lines that it did not count
}

// follow reads the output until it ends.
func (o *outcome) follow(r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), 1<<20)
	for sc.Scan() {
		line := sc.Text()
		if o.log != nil {
			fmt.Fprintln(o.log, line)
		}
		o.mu.Lock()
		if o.count != nil && o.count(line) {
			o.done++
		} else if strings.TrimSpace(line) != "" {
			o.tail = append(o.tail, line)
			o.tail = o.tail[max(0, len(o.tail)-12):]
		}
		o.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // a line longer than the buffer
}

// progress returns how far the command is.
func (o *outcome) progress() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.count != nil && o.total > 0:
		return fmt.Sprintf("%d of %d %s", o.done, max(o.done, o.total), o.unit)
	case o.count != nil:
		return fmt.Sprintf("%d %s", o.done, o.unit)
	case len(o.tail) == 0:
		return "no output yet"
	}
	last := strings.TrimSpace(o.tail[len(o.tail)-1])
	return last[:min(len(last), 70)]
}

// output runs a short command and returns its trimmed standard output.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var errb strings.Builder
	cmd.Stderr = &errb
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errb.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// need makes sure that the named programs are there, installing the Debian
// packages that carry them when we are root on a Debian machine.
func (b *Builder) need(ctx context.Context, progs map[string]string) error {
	var pkgs []string
	var missing []string
	for p, pkg := range progs {
		if strings.HasPrefix(p, "/") {
			if _, err := os.Stat(p); err == nil {
				continue
			}
		} else if _, err := exec.LookPath(p); err == nil {
			continue
		}
		missing = append(missing, p)
		pkgs = append(pkgs, pkg)
	}
	if len(pkgs) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: %s missing; install the Debian packages: %s", ErrUnavailable,
			strings.Join(missing, ", "), strings.Join(pkgs, " "))
	}
	return b.install(ctx, pkgs...)
}

// install installs Debian packages.
func (b *Builder) install(ctx context.Context, pkgs ...string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%w: no apt-get on this machine; install by hand: %s", ErrUnavailable, strings.Join(pkgs, " "))
	}
	unlock, err := b.lock(ctx, "package installation", "apt")
	if err != nil {
		return err
	}
	defer unlock()
	b.say("installing %s", strings.Join(pkgs, " "))
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	args := append([]string{"install", "-y", "-q", "--no-install-recommends"}, pkgs...)
	first := b.run(ctx, step{what: "apt-get install", env: env}, "apt-get", args...)
	if first == nil {
		return nil
	}
	if err := b.aptUpdate(ctx); err != nil {
		return err
	}
	if err := b.run(ctx, step{what: "apt-get install", env: env}, "apt-get", args...); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

func (b *Builder) aptUpdate(ctx context.Context, opts ...string) error {
	b.say("apt-get update")
	if err := b.run(ctx, step{what: "apt-get update"}, "apt-get", append(opts, "update", "-q")...); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// Packages fetches packages of Debian that the userland does not have, and returns
// their files.  What they depend on must be named too.
func (b *Builder) Packages(ctx context.Context, names ...string) (files []string, err error) {
	unlock, err := b.lock(ctx, "Debian packages", "debs-extra")
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, n := range names {
		f, err := b.download(ctx, filepath.Join(b.Cache, "debs", "extra"), n)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// download fetches one Debian package file into dir and returns its path.  opts are
// options of apt that choose other package lists.  The caller holds a lock.
func (b *Builder) download(ctx context.Context, dir, pkg string, opts ...string) (string, error) {
	find := func(dir string) string {
		m, _ := filepath.Glob(filepath.Join(dir, pkg+"_*.deb"))
		if len(m) == 0 {
			return ""
		}
		return m[len(m)-1]
	}
	if f := find(dir); f != "" {
		return f, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("%w: no apt-get to download %s with", ErrUnavailable, pkg)
	}
	// Half a file that a killed apt-get left must not pass for the package.
	part := filepath.Join(dir, pkg+".partial")
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	if err := os.MkdirAll(part, 0o755); err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	s := step{what: "download of " + pkg, dir: part}
	b.say("downloading %s", pkg)
	args := append(append([]string{}, opts...), "-q", "download", pkg)
	if err := b.run(ctx, s, "apt-get", args...); err != nil {
		if err := b.aptUpdate(ctx, opts...); err != nil {
			return "", err
		}
		if err := b.run(ctx, s, "apt-get", args...); err != nil {
			return "", fmt.Errorf("%w: download of %s: %w", ErrUnavailable, pkg, err)
		}
	}
	f := find(part)
	if f == "" {
		return "", fmt.Errorf("%w: apt-get download %s left no file", ErrUnavailable, pkg)
	}
	to := filepath.Join(dir, filepath.Base(f))
	return to, os.Rename(f, to)
}
