package lab

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRoomier(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   int
		idle []float64
		own  float64
		want int
	}{
		{"has room", 0, []float64{0.5, 1}, 0.3, 0},
		{"crowded, the other is free", 0, []float64{0, 0.9}, 0.5, 1},
		{"crowded by itself alone", 0, []float64{0, 1}, 0.98, 0},
		{"all are crowded", 0, []float64{0.05, 0.2}, 0.5, 0},
		{"the most idle one", 2, []float64{0.5, 0.9, 0, 0.7}, 0.2, 1},
	} {
		cpus, idle := []int{}, map[int]float64{}
		for c, v := range tt.idle {
			cpus, idle[c] = append(cpus, c), v
		}
		if got := roomier(cpus, tt.at, idle, tt.own); got != tt.want {
			t.Errorf("%s: from %d to %d, want %d", tt.name, tt.at, got, tt.want)
		}
	}
}

func TestParseTicks(t *testing.T) {
	const stat = `cpu  30 3 30 300 3 0 3 0 0 0
cpu0 10 1 10 100 1 0 1 0 5 0
cpu12 20 2 20 200 2 0 2 7 0 0
intr 12345 0
btime 1
cpux 1 2 3 4 5 6 7 8 9
`
	got := parseTicks([]byte(stat))
	if want := (ticks{idle: 101, all: 123}); len(got) != 2 || got[0] != want {
		t.Errorf("cpu0: %+v of %+v, want %+v", got[0], got, want)
	}
	if want := (ticks{idle: 202, all: 253}); got[12] != want {
		t.Errorf("cpu12: %+v, want %+v", got[12], want)
	}
	if got := parseTicks([]byte("cpu0 1\n\ncpu 1 2 3 4 5 6 7 8\n")); len(got) != 0 {
		t.Errorf("of a damaged file: %+v", got)
	}
}

// The time of a group has that of its ended children, and all its threads are found.
func TestGroupOf(t *testing.T) {
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
	pids, used := groupOf(group)
	if len(pids) != 2 || used == 0 {
		t.Errorf("the processes %v used %d ticks, want two that used some", pids, used)
	}
	if threads := threadsOf(pids); !slices.Equal(threads, pids) {
		t.Errorf("threads %v of %v", threads, pids)
	}
}

// A guest of UML is on one processor at a time, its user space too.
func TestOneCPU(t *testing.T) {
	t.Parallel()
	if !InGuest() && newBalancer() == nil {
		t.Skip("there is one processor")
	}
	RunNet(t, Net{
		Nodes: []Node{{Name: "a", Config: Config{Userland: Debian}, Body: func(g *G) {
			g.Start("sleep", "60")
			g.Post("there", "")
			g.Await("seen", time.Minute)
		}}},
		Script: func(t *testing.T, r *NetRun) {
			r.Await("there", time.Minute)
			r.mu.Lock()
			watcher := r.guests["a"].cmd.Process.Pid
			r.mu.Unlock()
			children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", watcher, watcher))
			if err != nil {
				t.Fatal(err)
			}
			group, err := strconv.Atoi(strings.TrimSpace(string(children)))
			if err != nil {
				t.Fatal(err)
			}
			pids, _ := groupOf(group)
			if len(pids) < 3 {
				t.Errorf("the guest has %d processes", len(pids))
			}
			at := map[int]bool{}
			for _, thread := range threadsOf(pids) {
				var set unix.CPUSet
				if err := unix.SchedGetaffinity(thread, &set); err == unix.ESRCH {
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				for i := range 1024 {
					if set.IsSet(i) {
						at[i] = true
					}
				}
			}
			if len(at) != 1 {
				t.Errorf("the guest is on the processors %v", at)
			}
			r.Post("seen", "")
		},
	})
}
