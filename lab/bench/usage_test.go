package bench

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	cgroups = "/sys/fs/cgroup"
	udevd   = "system.slice/systemd-udevd.service"
)

// usage is what all processes of a control group have used so far.
type usage struct {
	cpu   time.Duration  // user and system, also of those that have ended
	rss   int            // kB, of those that run
	ctxt  int            // voluntary and involuntary context switches, all threads of those that run
	byPID map[string]int // ctxt of each of them
}

func (u usage) since(old usage) usage {
	d := usage{cpu: u.cpu - old.cpu, rss: u.rss}
	for pid, n := range u.byPID {
		d.ctxt += n - old.byPID[pid] // one that has ended meanwhile does not count
	}
	return d
}

// used reads what a control group and those below it have used.
func used(group string) usage {
	u := usage{byPID: map[string]int{}}
	stat, _ := os.ReadFile(filepath.Join(cgroups, group, "cpu.stat"))
	if us, ok := field(string(stat), "usage_usec"); ok {
		u.cpu = time.Duration(us) * time.Microsecond
	}
	for _, pid := range pids(group) {
		status, _ := os.ReadFile("/proc/" + pid + "/status")
		rss, _ := field(string(status), "VmRSS:")
		u.rss += rss
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%s/task/*/status", pid))
		for _, t := range tasks {
			s, _ := os.ReadFile(t)
			v, _ := field(string(s), "voluntary_ctxt_switches:")
			n, _ := field(string(s), "nonvoluntary_ctxt_switches:")
			u.ctxt += v + n
			u.byPID[pid] += v + n
		}
	}
	return u
}

// pids are the processes of a control group and those below it.
func pids(group string) []string {
	var out []string
	_ = filepath.WalkDir(filepath.Join(cgroups, group), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "cgroup.procs" {
			text, _ := os.ReadFile(path)
			out = append(out, strings.Fields(string(text))...)
		}
		return nil // a group that is gone meanwhile has no processes
	})
	return out
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
