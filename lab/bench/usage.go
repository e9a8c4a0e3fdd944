package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is what a service has used so far.
type usage struct {
	cpu  time.Duration // of its control group, user and system
	rss  int           // kB, of the main process
	ctxt int           // voluntary and involuntary context switches, all threads
}

func (u usage) since(old usage) usage {
	return usage{cpu: u.cpu - old.cpu, rss: u.rss, ctxt: u.ctxt - old.ctxt}
}

// used reads what a service has used; a service that does not run has used
// what its control group still knows, or nothing.
func used(service string) usage {
	var u usage
	stat, _ := os.ReadFile("/sys/fs/cgroup/system.slice/" + service + ".service/cpu.stat")
	if us, ok := field(string(stat), "usage_usec"); ok {
		u.cpu = time.Duration(us) * time.Microsecond
	}
	pid := mainPID(service)
	if pid == 0 {
		return u
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	u.rss, _ = field(string(status), "VmRSS:")
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, t := range tasks {
		s, _ := os.ReadFile(t)
		v, _ := field(string(s), "voluntary_ctxt_switches:")
		n, _ := field(string(s), "nonvoluntary_ctxt_switches:")
		u.ctxt += v + n
	}
	return u
}

func mainPID(service string) int {
	out, err := exec.Command("systemctl", "show", "-p", "MainPID", "--value", service).Output()
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(out)))
	return pid
}

// field finds "name number" at the start of a line.
func field(text, name string) (int, bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
			continue
		}
		f := strings.Fields(rest)
		if len(f) == 0 {
			return 0, false
		}
		n, err := strconv.Atoi(f[0])
		return n, err == nil
	}
	return 0, false
}
