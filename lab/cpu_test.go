package lab

import (
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

func TestRoomier(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   int
		idle []float64
		want int
	}{
		{"has room", 0, []float64{0.5, 1}, 0},
		{"crowded, the other is free", 0, []float64{0, 0.9}, 1},
		{"all are crowded", 0, []float64{0.05, 0.2}, 0},
		{"the most idle one", 2, []float64{0.5, 0.9, 0, 0.7}, 1},
	} {
		cpus, idle := []int{}, map[int]float64{}
		for c, v := range tt.idle {
			cpus, idle[c] = append(cpus, c), v
		}
		if got := roomier(cpus, tt.at, idle); got != tt.want {
			t.Errorf("%s: from %d to %d, want %d", tt.name, tt.at, got, tt.want)
		}
	}
}

func TestShare(t *testing.T) {
	old := procfs.CPUStat{User: 10, Idle: 100, Iowait: 7, Steal: 1}
	for _, tt := range []struct {
		now  procfs.CPUStat
		want float64
	}{
		{procfs.CPUStat{User: 10, Idle: 101, Iowait: 7, Steal: 1}, 1},
		{procfs.CPUStat{User: 11, Idle: 100, Iowait: 8, Steal: 3}, 0.25},
		{procfs.CPUStat{User: 11, Guest: 1, Idle: 100, Iowait: 7, Steal: 1}, 0},
		{old, 0},
		{procfs.CPUStat{}, 0}, // it was taken away
	} {
		if got := share(old, tt.now); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%+v: %v, want %v", tt.now, got, tt.want)
		}
	}
}

// The time of a group has that of its ended children, and all of it moves.
func TestGroupMoves(t *testing.T) {
	b := newBalancer()
	if b == nil {
		t.Skip("there is one processor")
	}
	cmd := exec.Command("sh", "-c", "(n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done); sleep 60 & echo; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	defer func() { _ = unix.Kill(-group, unix.SIGKILL); _ = cmd.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if pids, used := b.groupOf(group); len(pids) != 2 || used == 0 {
		t.Errorf("the processes %v used %v s, want two that used some", pids, used)
	}
	for _, to := range b.cpus[:2] {
		if err := b.move(group, to); err != nil {
			t.Error(err)
		}
		if at := allowed(t, b, group); !slices.Equal(at, []int{to}) {
			t.Errorf("on the processors %v, want %d", at, to)
		}
	}
	if b.move(group, 1023) == nil {
		t.Error("moved to a processor that is not there")
	}
}

// allowed returns the processors that the threads of a group may use.
func allowed(t *testing.T, b *balancer, group int) (cpus []int) {
	t.Helper()
	pids, _ := b.groupOf(group)
	for _, p := range pids {
		threads, _ := b.fs.AllThreads(p)
		for _, thread := range threads {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(thread.PID, &set); err == unix.ESRCH {
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			for i := range 1024 {
				if set.IsSet(i) && !slices.Contains(cpus, i) {
					cpus = append(cpus, i)
				}
			}
		}
	}
	return cpus
}

// A guest is on one processor at a time, with all of its processes and threads.
func TestOneCPU(t *testing.T) {
	t.Parallel()
	b := newBalancer()
	if b == nil && !InGuest() {
		t.Skip("there is one processor")
	}
	guest := func(name string, c Config) Node {
		return Node{Name: name, Config: c, Body: func(g *G) {
			g.Start("sleep", "60")
			g.Post("there-"+name, "")
			g.Await("seen", time.Minute)
		}}
	}
	nodes := []Node{guest("uml", Config{Userland: Debian})}
	if !useKVM() {
		nodes = append(nodes, guest("qemu", Config{Machine: QEMU, Userland: Debian}))
	}
	RunNet(t, Net{
		Nodes: nodes,
		Script: func(t *testing.T, r *NetRun) {
			defer r.Post("seen", "")
			for _, n := range nodes {
				r.Await("there-"+n.Name, time.Minute)
				r.mu.Lock()
				watcher := r.guests[n.Name].cmd.Process.Pid
				r.mu.Unlock()
				checkOneCPU(t, b, watcher)
			}
		},
	})
}

// checkOneCPU fails unless all threads of the guest under a watcher, which are several,
// may use one and the same processor only.
func checkOneCPU(t *testing.T, b *balancer, watcher int) {
	t.Helper()
	children := testkit.ReadFile(t, fmt.Sprintf("/proc/%d/task/%d/children", watcher, watcher))
	group, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		t.Fatal(err)
	}
	pids, _ := b.groupOf(group)
	threads := 0
	for _, p := range pids {
		all, _ := b.fs.AllThreads(p)
		threads += len(all)
	}
	if threads < 3 {
		t.Errorf("the guest has %d threads in the processes %v", threads, pids)
	}
	var at []int
	for range 3 { // it may be on the move
		if at = allowed(t, b, group); len(at) == 1 {
			return
		}
		time.Sleep(balanceEvery / 5)
	}
	t.Errorf("the guest is on the processors %v", at)
}
