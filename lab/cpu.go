package lab

import (
	"math/rand/v2"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// User Mode Linux runs the processes of its guest as traced processes of the host: at
// every system call and page fault one of the two stops and the other goes on, never
// both.  On one processor of the host that is a switch between two tasks.  The host's
// scheduler sees a processor without work instead and spreads the two over both, and
// then each switch has to wake a sleeping processor, which in a virtual machine is an
// exit to its hypervisor.  So a watcher keeps all of its guest on one processor, and
// moves it when others want that one too and another has nothing to do.  UML guests
// of a test suite then need about half the time and half the processor.
//
// QEMU's threads wake each other all the time too: one emulates, another waits for
// devices.  On two processors they make others wait for seconds on a host with Linux
// 6.18.44: with each such wakeup the weight that the group of the guest (autogroup,
// sched(7)) has on a processor changes, and reweight_entity() puts what runs ahead of
// those that wait (mended in 6.18.45 by 101f3498b4bd, "sched/fair: Revert
// 6d71a9c61604").  A group that is on one processor keeps its weight.

const (
	balanceEvery = 500 * time.Millisecond
	crowded      = 0.15 // a processor idle for less of the time may have more to do than it can
	free         = 0.40 // one idle for more has room for a guest
	alone        = 0.85 // a guest that gets more of its processor shares it with nothing that matters
)

// balancer keeps the processes of a group on one processor.
type balancer struct {
	fs   procfs.FS
	cpus []int // those that may be used
	at   int
	last map[int64]procfs.CPUStat
}

// newBalancer chooses a processor; nil if there is nothing to choose from.
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
	var err error
	if b.fs, err = procfs.NewDefaultFS(); err != nil {
		return nil
	}
	stat, err := b.fs.Stat()
	if err != nil {
		return nil
	}
	b.last = stat.CPU
	return b
}

// run moves the group whenever that helps.
func (b *balancer) run(group int) {
	var looked time.Time // at what the group used, the last time that it was crowded
	var before float64
	for now := range time.Tick(balanceEvery) {
		stat, err := b.fs.Stat()
		if err != nil {
			continue
		}
		idle := map[int]float64{}
		for _, c := range b.cpus {
			idle[c] = share(b.last[int64(c)], stat.CPU[int64(c)])
		}
		b.last = stat.CPU
		to := roomier(b.cpus, b.at, idle)
		if to == b.at {
			looked = time.Time{}
			continue
		}
		// All processes of the host are read, which is not done without need.
		_, used := b.groupOf(group)
		own := (used - before) / now.Sub(looked).Seconds()
		first := looked.IsZero()
		looked, before = now, used
		// Of two guests that see the same, one is to go.
		if first || own > alone || rand.IntN(2) == 0 {
			continue
		}
		looked = time.Time{}
		if b.move(group, to) == nil {
			b.at = to
		}
	}
}

// move puts all threads of a group on a processor.
func (b *balancer) move(group, to int) error {
	if err := pin(group, to); err != nil {
		return err // the processor is not there any more, or is not for this group
	}
	// The second pass is for those that others made before their turn in the first.
	for range 2 {
		pids, _ := b.groupOf(group)
		for _, p := range pids {
			threads, _ := b.fs.AllThreads(p)
			for _, t := range threads {
				_ = pin(t.PID, to) // it may have ended
			}
		}
	}
	return nil
}

// pin puts a thread on a processor; 0 is the calling one.
func pin(thread, cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	return unix.SchedSetaffinity(thread, &set)
}

// share is the part of the time between two readings of a processor that it was idle.
func share(old, now procfs.CPUStat) float64 {
	idle := now.Idle + now.Iowait - old.Idle - old.Iowait
	busy := now.User + now.Nice + now.System + now.IRQ + now.SoftIRQ + now.Steal -
		(old.User + old.Nice + old.System + old.IRQ + old.SoftIRQ + old.Steal)
	if idle+busy <= 0 {
		return 0
	}
	return idle / (idle + busy)
}

// roomier returns the processor on which a guest would get more than where it is at, if
// others are there too; idle is the share of the time that each had nothing to do.
func roomier(cpus []int, at int, idle map[int]float64) int {
	if idle[at] > crowded {
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

// groupOf returns the processes of a group, and the seconds of processor time that they
// and their children that have ended used.
func (b *balancer) groupOf(group int) (pids []int, used float64) {
	all, _ := b.fs.AllProcs()
	for _, p := range all {
		s, err := p.Stat()
		if err != nil || s.PGRP != group {
			continue
		}
		pids = append(pids, p.PID)
		const perSecond = 100 // USER_HZ
		used += float64(int(s.UTime+s.STime)+s.CUTime+s.CSTime) / perSecond
	}
	return pids, used
}
