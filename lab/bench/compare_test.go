package bench

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

// Flags of the host are passed to the guest in its environment.
const (
	againstVar  = "IBNET_BENCH_AGAINST"
	runsVar     = "IBNET_BENCH_RUNS"
	adaptersVar = "IBNET_BENCH_ADAPTERS"
)

var (
	compare = flag.Bool("compare", false, "compare ibnetworkd with systemd-networkd, NetworkManager, ifupdown and opensm; an hour")
	against = flag.String("against", cmp.Or(os.Getenv(againstVar), "networkd,NetworkManager,ifupdown,opensm"),
		"the `contestants` beside ours")
	runs     = flag.Int("runs", number(runsVar, 2), "`rounds` in which the contestants take turns at hotplug and driver restart")
	pastFile = flag.String("past", "", "with \"past\" in -against: the `file` of another build of ibnetworkd")
	adapters = flag.Int("adapters", number(adaptersVar, 16), "adapters of TestMany, with 20 links each; `number`")
)

func number(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// contestants are those that were asked for.
func contestants(t testing.TB) []contestant {
	t.Helper()
	out, err := chosen(*against)
	testkit.NoError(t, err)
	if *pastFile == "" && !lab.InGuest() && slices.ContainsFunc(out, func(c contestant) bool { return c.name == past.name }) {
		t.Fatal("-against=past needs -past FILE, another build of ibnetworkd (make bench: PAST=FILE)")
	}
	return out
}

// withManagers adds the daemon on opensm, for work that waits for a manager.
func withManagers(list []contestant) []contestant {
	if strings.Contains(*against, "opensm") {
		list = append(list, withOpensm(ours))
	}
	return list
}

// dist is a file of the packages, with the programs where the guest has them.
func dist(name string) string {
	text, err := os.ReadFile(filepath.Join("../../dist", name))
	if err != nil {
		if lab.InGuest() {
			return "" // the guest has it already
		}
		panic(err) // go test runs a test in its package's folder
	}
	return strings.ReplaceAll(string(text), "/usr/sbin/", "/lab/bin/")
}

// The service's own restart would hide a death from the figures.
const noRestart = "[Service]\nRestart=no\n[Unit]\nStartLimitIntervalSec=0\n"

func config(t testing.TB) lab.Config {
	c := lab.Config{
		Userland: lab.Systemd, HCAs: -1, Memory: 4096, Append: "ib_ipoib.recv_queue_size=16 ib_ipoib.send_queue_size=32", Timeout: 2 * time.Hour,
		Env:  []string{againstVar + "=" + *against, runsVar + "=" + strconv.Itoa(*runs), adaptersVar + "=" + strconv.Itoa(*adapters)},
		Bins: []string{"ibnetworkd/cmd/ibnetworkd"},
		Files: map[string]string{
			"/etc/systemd/system/ibnetworkd.service":                         dist("systemd/ibnetworkd.service"),
			"/usr/share/dbus-1/system.d/org.ibnetwork1.conf":                 dist("dbus/org.ibnetwork1.conf"),
			"/etc/systemd/network/.keep":                                     "",
			"/etc/systemd/system/systemd-networkd-wait-online.service":       "",
			"/etc/systemd/system/systemd-networkd.service.d/60-nolimit.conf": "[Service]\nWatchdogSec=0\n",
		},
	}
	if *pastFile != "" {
		text, err := os.ReadFile(*pastFile)
		file := filepath.Join(t.TempDir(), "ibnetworkd-past")
		if err == nil {
			err = os.WriteFile(file, text, 0o755)
		}
		testkit.NoError(t, err)
		c.Bins = append(c.Bins, file)
		const program = "/lab/bin/ibnetworkd"
		c.Files["/etc/systemd/system/"+past.units[0]] = strings.ReplaceAll(dist("systemd/ibnetworkd.service"), program, program+"-past")
	}
	for _, x := range all {
		for _, u := range x.inSlice {
			c.Files["/etc/systemd/system/"+u+".d/40-slice.conf"] = "[Service]\nSlice=" + x.slice + "\n"
		}
		if !x.transient {
			c.Files["/etc/systemd/system/"+x.units[0]+".d/50-bench.conf"] = noRestart
		}
	}
	return c
}

func skipUnlessCompare(t *testing.T) {
	t.Helper()
	if !*compare && !lab.InGuest() {
		t.Skip("a comparison takes minutes: make bench")
	}
}

func newRig(g *lab.G) *rig {
	w, err := newWatch()
	if err != nil {
		g.Fatalf("watch: %v", err)
	}
	var sm *lab.Proc
	r := &rig{w: w}
	r.ctl = func(cmd string) error { return g.TryWrite("/sys/kernel/debug/swib/ctl", cmd+"\n") }
	parts := "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n"
	for k := range 10 {
		parts += fmt.Sprintf("p%d=0x%04x, ipoib, mtu=5 : ALL=full;\n", k, 0x0001+k)
	}
	r.manage = func(kind string) error {
		if sm != nil {
			sm.Kill()
		}
		if kind == "opensm" {
			sm = g.Opensm(lab.SM{Partitions: parts, Args: []string{"-s", "10"}})
		} else {
			sm = g.SM(lab.SM{Partitions: parts})
		}
		r.managerPID = sm.Cmd.Process.Pid
		return nil
	}
	r.load = func(args string) error {
		if sm != nil {
			sm.Kill()
			sm = nil
			if _, err := g.Try("rmmod", "swib"); err != nil {
				return err
			}
		}
		g.LoadSwib(args)
		if err := settle(); err != nil {
			return err
		}
		return r.manage("")
	}
	return r
}

func must(g *lab.G, err error) {
	g.Helper()
	testkit.NoError(g, err)
}

// score is what a contestant did in all rounds of a kind of work.
type score struct {
	times         []time.Duration
	tries, right  int
	lost          int
	cpu, udev, sm time.Duration
	wrong         string // of the last try that was not right
	idle          usage
}

// turns lets all contestants, one after the other and in several rounds, find
// the links of an adapter again that goes and comes.
func turns(g *lab.G, r *rig, list []contestant, work string, specs, watched []spec, reps int, digest, idle bool) {
	g.Helper()
	scores := map[string]*score{}
	for round := range *runs {
		for _, c := range list {
			s := scores[c.name]
			if s == nil {
				s = &score{}
				scores[c.name] = s
			}
			must(g, r.manage(c.manager))
			// An adapter that no other contestant has seen, and a manager that serves.
			must(g, r.ctl("del 1"))
			must(g, r.ctl("add 1"))
			g.WaitActive(2 * time.Minute)
			must(g, c.configure(specs, true))
			must(g, r.start(c))
			r.quiesce(c)
			for range reps {
				sm := g.CPU(r.managerPID)
				o, err := r.hotplug(c, 1, watched, digest, 30*time.Second)
				must(g, err)
				s.tries++
				if o.right == o.of {
					s.right++
					s.times = append(s.times, o.last)
				} else {
					s.wrong = o.whats()
				}
				s.lost += o.carrierLost
				s.cpu += o.used.cpu
				s.udev += o.udev.cpu
				s.sm += g.CPU(r.managerPID) - sm
			}
			if idle && round == *runs-1 && !c.transient && c.manager == "" {
				s.idle = r.idle(c)
			}
			must(g, r.stop(c))
			g.Logf("%s: round %d: right %d of %d so far, %v %s", c, round+1, s.right, s.tries, s.times, s.wrong)
		}
	}
	for _, c := range list {
		s := scores[c.name]
		n := float64(s.tries)
		f := cell{value: median(s.times), note: fmt.Sprintf("right %d of %d", s.right, s.tries)}
		if s.right == 0 {
			f.none = "not right: " + s.wrong
		} else if s.wrong != "" {
			f.note += "; not right: " + s.wrong
		}
		r.table.add(work+": median", "s", c, f)
		r.table.add(work+": CPU", "s", c, cell{value: s.cpu.Seconds() / n})
		r.table.add(work+": CPU, with udevd", "s", c, cell{value: (s.cpu + s.udev).Seconds() / n})
		r.table.add(work+": carrier lost", "times", c, cell{value: float64(s.lost)})
		if c.manager != "" || c.name == ours.name && len(withManagers(nil)) > 0 {
			r.table.add(work+": CPU of the subnet manager", "s", c, cell{value: s.sm.Seconds() / n})
		}
		if idle && c.manager == "" {
			context, rss := cell{value: float64(s.idle.ctxt)}, cell{value: float64(s.idle.rss)}
			if c.transient {
				context.none, rss.none = "nothing of it stays", "nothing of it stays"
			}
			r.table.add("idle for a minute: context switches", "", c, context)
			r.table.add("idle for a minute: RSS of all its processes", "kB", c, rss)
		}
	}
}

// TestHotplug: an adapter appears; connected mode, 65520, one address.
func TestHotplug(t *testing.T) {
	skipUnlessCompare(t)
	list := withManagers(contestants(t))
	lab.Run(t, config(t), func(g *lab.G) {
		r := newRig(g)
		must(g, r.load("nhca=2"))
		specs := fabric(2, 1, 0, true)
		for i := range specs {
			specs[i].mtu = 65520
		}
		turns(g, r, list, "adapter added, connected, 65520", specs, specs[1:], 5, true, true)
		report(g, r)
	})
}

// TestMany: 320 links of 32 ports.
func TestMany(t *testing.T) {
	skipUnlessCompare(t)
	list := contestants(t)
	lab.Run(t, config(t), func(g *lab.G) {
		r := newRig(g)
		for _, premade := range []bool{true, false} {
			for _, c := range list {
				many(g, r, c, premade)
			}
		}
		report(g, r)
	})
}

// many is all that one contestant does with the links of many adapters.
func many(g *lab.G, r *rig, c contestant, premade bool) {
	must(g, r.load(fmt.Sprintf("nhca=%d nports=2", *adapters)))
	specs := fabric(*adapters, 2, 9, false)
	what := fmt.Sprintf("%d links, children made by it", len(specs))
	if premade {
		what = fmt.Sprintf("%d links, children made before", len(specs))
	}
	add := func(work, unit string, f cell) { r.table.add(what+": "+work, unit, c, f) }
	const most = 4 * time.Minute
	o, err := r.coldStart(c, specs, !premade, most)
	must(g, err)
	g.Logf("%s: %s: right %d of %d, first %v last %v, cpu %v, udevd %v %s", what, c, o.right, o.of, o.first, o.last, o.used.cpu,
		o.udev.cpu, o.whats())
	whole := cell{value: o.last.Seconds()}
	if o.right != o.of {
		said, _ := run("journalctl", "--no-pager", "-o", "cat", "-n", "12", "-u", c.units[0])
		g.Logf("%s says:\n%s", c, said)
		whole = cell{none: fmt.Sprintf("not right: %d of %d links in %v at most", o.of-o.right, o.of, most)}
	}
	add("not right", "links", cell{value: float64(o.of - o.right), note: o.whats()})
	if c.name == networkd.name || c.name == ours.name {
		// What networkctl calls failed is not tried again.
		dead := 0
		if c.name == networkd.name {
			out, _ := g.Try("networkctl", "list", "--no-pager", "--no-legend")
			for l := range strings.Lines(out) {
				if strings.Contains(l, " failed") {
					dead++
				}
			}
		}
		add("dead in failed", "links", cell{value: float64(dead)})
	}
	first := cell{value: o.first.Seconds()}
	if o.right == 0 {
		first = cell{none: fmt.Sprintf("not right: all %d links in %v at most", o.of, most)}
	}
	add("first right", "s", first)
	add("last right", "s", whole)
	add("CPU", "s", cell{value: o.used.cpu.Seconds()})
	add("CPU of udevd", "s", cell{value: o.udev.cpu.Seconds()})

	const edited = 7
	e, u, err := r.edit(c, specs, edited, !premade, time.Minute)
	cpu, took := cell{value: u.cpu.Seconds(), note: fmt.Sprintf("right %d of %d", e.right, e.of)}, cell{value: e.last.Seconds()}
	if err != nil {
		g.Logf("%s: reload: %v", c, err)
		first, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
		cpu, took = cell{none: first}, cell{none: first}
	}
	g.Logf("%s: one edit: right %d of %d after %v, cpu %v, %d link and %d address messages", c, e.right, e.of, e.last, u.cpu,
		e.linkMsgs, e.addrMsgs)
	add("one edit, CPU", "s", cpu)
	add("one edit, time", "s", took)
	must(g, c.configure(specs, !premade))
	_ = c.apply(specs[edited])
	r.quiesce(c)

	for _, how := range []string{"restart", "kill -9"} {
		addresses, carrier := cell{none: "nothing of it stays"}, cell{none: "nothing of it stays"}
		if !c.transient {
			d, err := r.disturb(c, specs, how)
			must(g, err)
			g.Logf("%s: %s: right %d of %d, %+v", c, how, d.right, d.of, d.counts)
			addresses, carrier = cell{value: float64(d.addrDeleted)}, cell{value: float64(d.carrierLost)}
		}
		add(how+", addresses taken off", "", addresses)
		add(how+", carrier lost", "", carrier)
	}
	switches, rss := cell{none: "nothing of it stays"}, cell{none: "nothing of it stays"}
	if !c.transient {
		u := r.idle(c)
		switches, rss = cell{value: float64(u.ctxt)}, cell{value: float64(u.rss)}
	}
	add("idle for a minute, context switches", "", switches)
	add("RSS of all its processes", "kB", rss)
	must(g, r.stop(c))
}

// TestDriverRestart: the adapter of a parent and two children goes and comes.
func TestDriverRestart(t *testing.T) {
	skipUnlessCompare(t)
	list := withManagers(contestants(t))
	lab.Run(t, config(t), func(g *lab.G) {
		r := newRig(g)
		must(g, r.load("nhca=2"))
		specs := fabric(2, 1, 2, false)[3:]
		turns(g, r, list, "driver restart, parent and 2 children", specs, specs, 3, false, false)
		report(g, r)
	})
}

func report(g *lab.G, r *rig) {
	load, _ := os.ReadFile("/proc/loadavg")
	g.Logf("figures (same guest, same run; load at the end %s):\n%s", strings.TrimSpace(string(load)), r.table)
}
