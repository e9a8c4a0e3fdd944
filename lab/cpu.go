package lab

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// User Mode Linux runs the processes of its guest as traced processes of the host: at
// every system call and page fault one of the two stops and the other goes on, never
// both.  On one processor of the host that is a switch between two tasks.  The host's
// scheduler sees a processor without work instead and spreads the two over both, and
// then each switch has to wake a sleeping processor, which in a virtual machine is an
// exit to its hypervisor.  So a watcher keeps all of its guest on one processor, and
// moves it when others want that one too and another has nothing to do.  The guests
// of a test suite then need about half the time and half the processor.

const (
	balanceEvery = 500 * time.Millisecond
	crowded      = 0.15 // a processor idle for less of the time may have more to do than it can
	free         = 0.40 // one idle for more has room for a guest
	alone        = 0.85 // a guest that gets more of its processor shares it with nobody that matters
)

// ticks are the clock ticks of a processor since the host's boot.
type ticks struct{ idle, all uint64 }

// balancer keeps the processes of a group on one processor.
type balancer struct {
	cpus []int // those that may be used
	at   int
	last map[int]ticks
	used uint64 // ticks of the group
}

// newBalancer returns nil if there is nothing to choose from.
func newBalancer() *balancer {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil || set.Count() < 2 {
		return nil
	}
	b := &balancer{}
	for i := 0; len(b.cpus) < set.Count(); i++ {
		if set.IsSet(i) {
			b.cpus = append(b.cpus, i)
		}
	}
	b.at = b.cpus[rand.IntN(len(b.cpus))]
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		b.last = parseTicks(text)
	}
	return b
}

// pin puts a thread of the host on a processor; 0 is the calling one.
func pin(thread, cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(thread, &set) // it may have ended
}

// run moves the group whenever that helps.
func (b *balancer) run(group int) {
	for range time.Tick(balanceEvery) {
		text, err := os.ReadFile("/proc/stat")
		if err != nil {
			return
		}
		now := parseTicks(text)
		pids, used := groupOf(group)
		idle := map[int]float64{}
		for _, c := range b.cpus {
			idle[c] = float64(now[c].idle-b.last[c].idle) / float64(max(1, now[c].all-b.last[c].all))
		}
		// What a process that has ended used may be counted later.
		own := float64(max(used, b.used)-b.used) / float64(max(1, now[b.at].all-b.last[b.at].all))
		b.last, b.used = now, used
		// Of two guests that see the same, one is to go.
		if to := roomier(b.cpus, b.at, idle, own); to != b.at && rand.IntN(2) == 0 {
			b.at = to
			for _, thread := range threadsOf(pids) {
				pin(thread, to)
			}
		}
	}
}

// roomier returns the processor on which a guest that is at one and got the share own
// of it would get more; idle is the share of the time that each had nothing to do.
func roomier(cpus []int, at int, idle map[int]float64, own float64) int {
	if idle[at] > crowded || own > alone {
		return at
	}
	best := at
	for _, c := range cpus {
		if idle[c] > max(free, idle[best]) {
			best = c
		}
	}
	return best
}

// parseTicks reads the lines of processors in /proc/stat (proc(5)).
func parseTicks(stat []byte) map[int]ticks {
	out := map[int]ticks{}
	for l := range bytes.Lines(stat) {
		f := strings.Fields(string(l))
		if len(f) < 9 || !strings.HasPrefix(f[0], "cpu") {
			continue
		}
		n, err := strconv.Atoi(f[0][3:])
		if err != nil {
			continue // the sum
		}
		var t ticks
		for i, v := range f[1:9] { // what follows is in user and nice already
			x, _ := strconv.ParseUint(v, 10, 64)
			t.all += x
			if i == 3 || i == 4 {
				t.idle += x
			}
		}
		out[n] = t
	}
	return out
}

// threadsOf returns all threads of processes.
func threadsOf(pids []int) (threads []int) {
	for _, p := range pids {
		dirs, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", p))
		for _, d := range dirs {
			if t, err := strconv.Atoi(filepath.Base(d)); err == nil {
				threads = append(threads, t)
			}
		}
	}
	return threads
}

// groupOf returns the processes of a group, and the processor time, in clock ticks,
// that they and their children that have ended used.
func groupOf(group int) (pids []int, used uint64) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + n + "/stat")
		if err != nil {
			continue
		}
		// The name, in brackets, may have anything in it.
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(f) < 15 || f[2] != strconv.Itoa(group) {
			continue
		}
		pids = append(pids, pid)
		for _, v := range f[11:15] {
			x, _ := strconv.ParseUint(v, 10, 64)
			used += x
		}
	}
	return pids, used
}
