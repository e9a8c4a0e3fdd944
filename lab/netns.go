package lab

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab/timeline"
)

const netnsDir = "/run/netns/"

// Host is a network namespace that plays a host: it has its own links, addresses
// and routes and shares everything else with the guest.  `ip -n NAME` knows it too.
type Host struct {
	Name string
	g    *G
}

// Host makes a host with its loopback link up, or returns the one of that name.
func (g *G) Host(name string) *Host {
	g.Helper()
	h := &Host{Name: name, g: g}
	file := netnsDir + name
	if _, err := os.Stat(file); err == nil {
		return h
	}
	if err := makeNetns(file); err != nil {
		g.Fatalf("host %s: %v", name, err)
	}
	return h
}

func makeNetns(file string) error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, nil, 0o444); err != nil {
		return err
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(self, file, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind network namespace: %w", err)
		}
		return loopbackUp()
	})
}

// onThread runs f on a thread that ends with it, so that f may move the thread
// to other namespaces.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("loopback up: %w", err)
	}
	return nil
}

func setns(name string) error {
	fd, err := unix.Open(netnsDir+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// Directories that a host has for itself lie here, marked by their ending.
const (
	ownDir  = "/run/hosts/"
	ownMark = ",own"
)

// Own gives the host a directory of its own in place of the guest's, for every
// command that it starts from now on, and returns where the guest sees it.
func (h *Host) Own(dir string) string {
	h.g.Helper()
	at := ownDir + h.Name + filepath.Clean(dir) + ownMark
	if err := os.MkdirAll(at, 0o755); err != nil {
		h.g.Fatal(err)
	}
	return at
}

// Do runs f on a thread of this host, for code that opens its own sockets.
func (h *Host) Do(f func() error) error {
	return onThread(func() error {
		if err := setns(h.Name); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
		return f()
	})
}

// netnsExec is the re-executed test binary that becomes a command of a host: it
// enters the namespace and gives the command a /sys that shows its links.
func netnsExec() {
	die := func(what string, err error) {
		fmt.Fprintf(os.Stderr, "lab: %s: %v\n", what, err)
		os.Exit(125)
	}
	runtime.LockOSThread()
	args := os.Args[1:]
	if err := setns(args[0]); err != nil {
		die("host "+args[0], err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		die("mount namespace", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		die("mount namespace", err)
	}
	// The old /sys goes out of the way, not away: cgroups and the like move over.
	for _, m := range []struct{ typ, dir string }{
		{"sysfs", "/sys"}, {"debugfs", "/sys/kernel/debug"}, {"configfs", "/sys/kernel/config"}, {"cgroup2", "/sys/fs/cgroup"},
	} {
		if err := unix.Mount(m.typ, m.dir, m.typ, 0, ""); err != nil && m.typ == "sysfs" {
			die("mount "+m.typ, err)
		}
	}
	own := ownDir + args[0]
	_ = filepath.WalkDir(own, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !strings.HasSuffix(p, ownMark) {
			return nil
		}
		at := strings.TrimSuffix(strings.TrimPrefix(p, own), ownMark)
		if err := os.MkdirAll(at, 0o755); err != nil {
			die("own "+at, err)
		}
		if err := unix.Mount(p, at, "", unix.MS_BIND, ""); err != nil {
			die("own "+at, err)
		}
		return fs.SkipDir
	})
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, roleVar+"=") {
			env = append(env, e)
		}
	}
	env = append(env, roleVar+"=test")
	path, err := exec.LookPath(args[1])
	if err != nil {
		die(args[1], err)
	}
	die(path, unix.Exec(path, args[1:], env))
}

// enter makes cmd run in the host; a nil host leaves it alone.
func (h *Host) enter(cmd *exec.Cmd) {
	if h == nil {
		return
	}
	cmd.Args = append([]string{"lab-netns", h.Name}, cmd.Args...)
	cmd.Path = "/proc/self/exe"
	cmd.Err = nil // the name is looked up by the re-executed binary
	cmd.Env = append(os.Environ(), roleVar+"=netns")
}

func (h *Host) prefix() string {
	if h == nil {
		return ""
	}
	return "host " + h.Name + ": "
}

// Try runs a command in the host and returns its output.
func (h *Host) Try(name string, args ...string) (string, error) { return h.g.try(h, name, args) }

// Exec is Try for a command that must succeed.
func (h *Host) Exec(name string, args ...string) string {
	h.g.Helper()
	return h.g.exec(h, name, args)
}

// Sh runs a shell command line in the host, which must succeed.
func (h *Host) Sh(format string, args ...any) string {
	h.g.Helper()
	return h.g.exec(h, "sh", []string{"-ec", fmt.Sprintf(format, args...)})
}

// Start starts a program in the host.
func (h *Host) Start(name string, args ...string) *Proc {
	h.g.Helper()
	return h.g.startIn(h, name, args)
}

// Give moves a link from the guest to the host; nothing else of it changes.
func (h *Host) Give(links ...string) {
	h.g.Helper()
	for _, l := range links {
		h.g.Exec("ip", "link", "set", l, "netns", h.Name)
	}
}

// Take moves a link to the host, gives it addresses, and brings it up.
func (h *Host) Take(link string, addrs ...string) {
	h.g.Helper()
	h.Give(link)
	for _, a := range addrs {
		h.Exec("ip", "addr", "add", a, "dev", link)
	}
	h.Exec("ip", "link", "set", link, "up")
}

// WaitCarrier waits until a link of the host has carrier.
func (h *Host) WaitCarrier(link string, limit time.Duration) time.Duration {
	h.g.Helper()
	return h.g.Wait("host "+h.Name+": carrier of "+link, limit, func() bool {
		out, err := h.Try("ip", "-o", "link", "show", link)
		return err == nil && strings.Contains(out, "LOWER_UP")
	})
}

// Ping sends one echo request, with further arguments of ping(8) before the
// address, again and again until an answer comes: the first packets of a path are
// lost while the address is resolved.
func (h *Host) Ping(addr string, args ...string) {
	h.g.Helper()
	h.g.ping(h, addr, args)
}

// Ping is Host.Ping in the guest's own network.
func (g *G) Ping(addr string, args ...string) {
	g.Helper()
	g.ping(nil, addr, args)
}

func (g *G) ping(h *Host, addr string, args []string) {
	g.Helper()
	all := append(append([]string{"-n", "-c", "1", "-W", "1"}, args...), addr)
	g.WaitFor(10*time.Second, func() string {
		at := time.Now()
		out, err := g.try(h, "ping", all)
		record(timeline.Record{At: at, Row: "ping " + h.prefix() + addr, Text: pingResult(args, out, err), Mark: true, Bad: err != nil})
		if err == nil {
			return ""
		}
		return h.prefix() + "ping of " + addr + "\n" + out
	})
}

// pingTotal is what ping(8) says at its end.
var pingTotal = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// pingResult describes in a few words the result of a ping with the given arguments.
func pingResult(args []string, out string, err error) string {
	text := "ok"
	if m := pingTotal.FindStringSubmatch(out); m != nil {
		sent, _ := strconv.Atoi(m[1])
		got, _ := strconv.Atoi(m[2])
		if got < sent {
			text = fmt.Sprintf("lost %d of %d", sent-got, sent)
		}
	} else if err != nil {
		if text = lastLines([]byte(out), 1); text == "" {
			text = err.Error()
		}
	}
	if len(args) > 0 {
		text += " (" + strings.Join(args, " ") + ")"
	}
	return text
}

// Pings sends an echo request every interval, whether the others were answered or
// not, until stop is called, which returns how many were sent and how many had no
// answer within half a second.  The timeline shows them.
func (h *Host) Pings(addr string, interval time.Duration) (stop func() (sent, lost int)) {
	h.g.Helper()
	return h.g.pings(h, addr, interval).Stop
}

// Pings is Host.Pings in the guest's own network.
func (g *G) Pings(addr string, interval time.Duration) (stop func() (sent, lost int)) {
	g.Helper()
	return g.pings(nil, addr, interval).Stop
}

// Pinging is Pings with a reading of the counters at any time.
func (h *Host) Pinging(addr string, interval time.Duration) *Pinging {
	h.g.Helper()
	return h.g.pings(h, addr, interval)
}

// Pinging is Host.Pinging in the guest's own network.
func (g *G) Pinging(addr string, interval time.Duration) *Pinging {
	g.Helper()
	return g.pings(nil, addr, interval)
}

// NoPing makes sure that an address does not answer within a second.
func (h *Host) NoPing(addr string) {
	h.g.Helper()
	at := time.Now()
	out, err := h.Try("ping", "-n", "-c", "2", "-i", "0.2", "-W", "1", addr)
	text := "no answer, as it must be"
	if err == nil {
		text = "answers, which it must not"
	}
	record(timeline.Record{At: at, Row: "ping " + h.prefix() + addr, Text: text, Mark: true, Bad: err == nil})
	if err == nil {
		h.g.Fatalf("host %s: %s answers, which it must not:\n%s", h.Name, addr, out)
	}
}
