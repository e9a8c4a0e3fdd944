package main

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/route"
)

// routesSample is one computation of tables.
type routesSample struct {
	Fabric, State, Engine string
	Follows               bool // the tables of the whole fabric, which are in force
	Time, CPU             time.Duration
	Worst, Bound          float64
}

func (s *routesSample) text() string {
	return fmt.Sprintf("%.2f s, CPU %.2f s; %.0f", s.Time.Seconds(), s.CPU.Seconds(), s.Worst)
}

// benchRoutes measures how long it takes to compute tables: of a whole tree, without a host,
// a cable and a hundredth of the cables, from nothing and after those of the whole tree.
func benchRoutes(o options) ([]routesSample, error) {
	var all []routesSample
	fmt.Fprintf(out, "computation of tables on %d processors, least of %d; flows over the busiest link; load average %s, %s\n",
		runtime.GOMAXPROCS(0), o.runs, load(), time.Now().Format(time.DateOnly))
	fmt.Fprintf(out, "%-10s %-18s %6s  %-28s %-28s\n", "fabric", "state", "bound", "from nothing", "after the whole")
	for _, c := range scaleFabrics {
		if len(o.names) > 0 && !slices.Contains(o.names, c.name) {
			continue
		}
		whole := gen.LIDs(c.make(), 0)
		between := func(a, b *fabric.Port) bool {
			return whole.Nodes[a.Node].Switch != fabric.None && whole.Nodes[b.Node].Switch != fabric.None
		}
		var force route.Options
		for _, s := range []gen.Case{
			{Name: "whole", Fabric: whole},
			{Name: "a host off", Fabric: second(whole, func(a, b *fabric.Port) bool { return !between(a, b) })},
			{Name: "a cable out", Fabric: second(whole, between)},
			{Name: "1 % of cables out", Fabric: gen.CutCables(whole, 1, 1)},
		} {
			var pair [2]routesSample
			for i := range pair {
				opt := route.Options{}
				if i > 0 {
					opt = force
				}
				opt.Processors = runtime.NumCPU() - 1 // as ibnetsm
				r, took, cpu, err := computed(s.Fabric, opt, o.runs)
				if err != nil {
					return all, fmt.Errorf("%s, %s: %w", c.name, s.Name, err)
				}
				if force.Previous == nil {
					force = route.Options{Previous: r.LFT, Order: r.Order, Before: r.Engine}
				}
				pair[i] = routesSample{c.name, s.Name, r.Engine, i > 0, took, cpu, r.Worst, r.Bound}
			}
			fmt.Fprintf(out, "%-10s %-18s %6.0f  %-28s %-28s\n", c.name, s.Name, pair[0].Bound, pair[0].text(), pair[1].text())
			all = append(all, pair[:]...)
		}
	}
	return all, nil
}

// second takes the second of the cables out that are of a kind: the first host is the manager's.
func second(f *fabric.Fabric, of func(a, b *fabric.Port) bool) *fabric.Fabric {
	n := 0
	return gen.Unplug(f, func(a, b *fabric.Port) bool {
		if of(a, b) {
			n++
			return n == 2
		}
		return false
	})
}

// computed makes tables several times, and gives the least time and CPU time.
func computed(f *fabric.Fabric, opt route.Options, runs int) (r route.Result, took, cpu time.Duration, err error) {
	for i := range runs {
		runtime.GC()
		at, used := time.Now(), spentCPU()
		if r, err = route.Build(f, opt); err != nil {
			return r, 0, 0, err
		}
		t, c := time.Since(at), spentCPU()-used
		if i == 0 || t < took {
			took = t
		}
		if i == 0 || c < cpu {
			cpu = c
		}
	}
	return r, took, cpu, nil
}

// spentCPU is the CPU time that this process has used.
func spentCPU() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
