package lab

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tooSlow is the reason of a test that is skipped in the end for its guest's slowness.
const tooSlow = "lab: too slow on the kernel with the checkers: what it reported until then was checked, its end was not"

// outcome reports what was wrong with a guest that has ended, "" if nothing.
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
