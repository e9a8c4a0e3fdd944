package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
const leastWait = 3 * time.Minute

// leastTimeout is the same of a whole guest.
const leastTimeout = 10 * time.Minute

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
	self, err := testBinary()
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
