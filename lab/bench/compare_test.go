package bench

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

var compare = flag.Bool("compare", false, "compare ibnetworkd with systemd-networkd; minutes")

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

func config() lab.Config {
	return lab.Config{
		Userland: lab.Systemd, HCAs: -1, Memory: 4096, Append: "ib_ipoib.recv_queue_size=16 ib_ipoib.send_queue_size=32", Timeout: 25 * time.Minute,
		Bins: []string{"ibnetworkd/cmd/ibnetworkd"},
		Files: map[string]string{
			"/etc/systemd/system/ibnetworkd.service":                         dist("systemd/ibnetworkd.service"),
			"/usr/share/dbus-1/system.d/org.ibnetwork1.conf":                 dist("dbus/org.ibnetwork1.conf"),
			"/etc/systemd/system/systemd-networkd.service.d/50-bench.conf":   noRestart,
			"/etc/systemd/system/ibnetworkd.service.d/50-bench.conf":         noRestart,
			"/etc/systemd/network/.keep":                                     "",
			"/etc/systemd/system/systemd-networkd-wait-online.service":       "",
			"/etc/NetworkManager/conf.d/10-none.conf":                        "[keyfile]\nunmanaged-devices=*\n",
			"/etc/systemd/system/systemd-networkd.service.d/60-nolimit.conf": "[Service]\nWatchdogSec=0\n",
		},
	}
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
	r := &rig{w: w, logf: g.Logf}
	r.ctl = func(cmd string) error { return g.TryWrite("/sys/kernel/debug/swib/ctl", cmd+"\n") }
	r.load = func(args string) error {
		if sm != nil {
			sm.Kill()
			if _, err := g.Try("rmmod", "swib"); err != nil {
				return err
			}
		}
		g.LoadSwib(args)
		if _, err := run("udevadm", "settle"); err != nil {
			return err
		}
		parts := "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n"
		for k := range 10 {
			parts += fmt.Sprintf("p%d=0x%04x, ipoib, mtu=5 : ALL=full;\n", k, 0x0001+k)
		}
		sm = g.SM(lab.SM{Partitions: parts})
		return nil
	}
	return r
}

func must(g *lab.G, err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// TestHotplug: an adapter appears; connected mode, 65520, one address.
func TestHotplug(t *testing.T) {
	skipUnlessCompare(t)
	lab.Run(t, config(), func(g *lab.G) {
		r := newRig(g)
		must(g, r.load("nhca=2"))
		specs := fabric(2, 1, 0, true)
		for i := range specs {
			specs[i].mtu = 65520
		}
		type sum struct {
			times []time.Duration
			right int
			lost  int
			cpu   time.Duration
			udev  time.Duration
			idle  usage
		}
		sums := map[string]*sum{ours.name: {}, networkd.name: {}}
		const rounds, reps = 2, 5
		for range rounds {
			for _, c := range []contestant{networkd, ours} {
				s := sums[c.name]
				must(g, c.configure(specs, true))
				must(g, r.start(c))
				r.quiesce(c)
				for range reps {
					before, udev := used(c.service), used("systemd-udevd")
					o, err := r.hotplug(1, specs[1:], 20*time.Second)
					must(g, err)
					if o.right == o.of {
						s.right++
						s.times = append(s.times, o.last)
					}
					s.lost += o.carrierLost
					s.cpu += r.quiesce(c).since(before).cpu
					s.udev += used("systemd-udevd").since(udev).cpu
				}
				before := used(c.service)
				idle := time.NewTimer(time.Minute)
				<-idle.C
				s.idle = used(c.service).since(before)
				must(g, r.stop(c))
			}
		}
		a, b := sums[ours.name], sums[networkd.name]
		n := float64(rounds * reps)
		r.table.add(row{"adapter added, connected, 65520: median", "s", median(a.times), median(b.times), fmt.Sprintf("(right %d and %d of %d)", a.right, b.right, rounds*reps)})
		r.table.add(row{"the same: CPU of the daemon", "s", a.cpu.Seconds() / n, b.cpu.Seconds() / n, ""})
		r.table.add(row{"the same: CPU of the daemon and udevd", "s", (a.cpu + a.udev).Seconds() / n, (b.cpu + b.udev).Seconds() / n, ""})
		r.table.add(row{"the same: carrier lost", "times", float64(a.lost), float64(b.lost), ""})
		r.table.add(row{"idle for a minute: context switches", "", float64(a.idle.ctxt), float64(b.idle.ctxt), ""})
		r.table.add(row{"idle for a minute: RSS", "kB", float64(a.idle.rss), float64(b.idle.rss), ""})
		report(g, r)
	})
}

// TestMany: 320 links of 32 ports.
func TestMany(t *testing.T) {
	skipUnlessCompare(t)
	lab.Run(t, config(), func(g *lab.G) {
		r := newRig(g)
		for _, premade := range []bool{true, false} {
			what := "320 links, children made by the daemon"
			if premade {
				what = "320 links, children made before"
			}
			type result struct {
				cold          outcome
				cpu, udev     time.Duration
				rss           int
				edit          outcome
				editCPU       time.Duration
				restart, kill outcome
				idle          usage
				failedBefore  int
			}
			got := map[string]*result{}
			for _, c := range []contestant{networkd, ours} {
				must(g, r.load("nhca=16 nports=2"))
				specs := fabric(16, 2, 9, false)
				res := &result{}
				got[c.name] = res
				o, u, udev, err := r.coldStart(c, specs, !premade, 3*time.Minute)
				must(g, err)
				quiet := r.quiesce(c)
				res.cold, res.cpu, res.udev, res.rss = o, quiet.cpu, udev.cpu, u.rss
				g.Logf("%s: %s: right %d of %d, first %v last %v, cpu %v, udevd %v, rss %d kB", what, c, o.right, o.of, o.first, o.last, quiet.cpu, udev.cpu, u.rss)
				if c.name == networkd.name {
					out, _ := g.Try("networkctl", "list", "--no-pager", "--no-legend")
					for l := range strings.Lines(out) {
						if strings.Contains(l, " failed") {
							res.failedBefore++
						}
					}
				}
				o, u, err = r.edit(c, specs, 7, !premade, time.Minute)
				if err != nil {
					g.Logf("%s: reload: %v", c, err)
				}
				res.edit, res.editCPU = o, u.cpu
				g.Logf("%s: one edit: right %d of %d after %v, cpu %v, %d link and %d address messages", c, o.right, o.of, o.last, u.cpu, o.linkMsgs, o.addrMsgs)
				must(g, c.configure(specs, !premade))
				_, _ = run(c.reload[0], c.reload[1:]...)
				r.quiesce(c)
				res.restart, err = r.disturb(c, specs, "restart", time.Minute)
				must(g, err)
				res.kill, err = r.disturb(c, specs, "kill -9", time.Minute)
				must(g, err)
				g.Logf("%s: restart: %+v", c, res.restart)
				g.Logf("%s: kill -9: %+v", c, res.kill)
				before := used(c.service)
				idle := time.NewTimer(time.Minute)
				<-idle.C
				res.idle = used(c.service).since(before)
				must(g, r.stop(c))
			}
			a, b := got[ours.name], got[networkd.name]
			r.table.add(row{what + ": not right", "links", float64(a.cold.of - a.cold.right), float64(b.cold.of - b.cold.right), ""})
			r.table.add(row{what + ": dead in failed", "links", float64(a.failedBefore), float64(b.failedBefore), ""})
			r.table.add(row{what + ": first right", "s", a.cold.first.Seconds(), b.cold.first.Seconds(), ""})
			r.table.add(row{what + ": last right", "s", a.cold.last.Seconds(), b.cold.last.Seconds(), ""})
			r.table.add(row{what + ": CPU", "s", a.cpu.Seconds(), b.cpu.Seconds(), ""})
			r.table.add(row{what + ": CPU of udevd", "s", a.udev.Seconds(), b.udev.Seconds(), ""})
			r.table.add(row{what + ": RSS", "kB", float64(a.idle.rss), float64(b.idle.rss), ""})
			r.table.add(row{what + ": one edit, CPU", "s", a.editCPU.Seconds(), b.editCPU.Seconds(), fmt.Sprintf("(right %d and %d)", a.edit.right, b.edit.right)})
			r.table.add(row{what + ": one edit, time", "s", a.edit.last.Seconds(), b.edit.last.Seconds(), ""})
			r.table.add(row{what + ": restart, addresses taken off", "", float64(a.restart.addrDeleted), float64(b.restart.addrDeleted), ""})
			r.table.add(row{what + ": restart, carrier lost", "", float64(a.restart.carrierLost), float64(b.restart.carrierLost), ""})
			r.table.add(row{what + ": kill -9, addresses taken off", "", float64(a.kill.addrDeleted), float64(b.kill.addrDeleted), ""})
			r.table.add(row{what + ": kill -9, carrier lost", "", float64(a.kill.carrierLost), float64(b.kill.carrierLost), ""})
			r.table.add(row{what + ": idle for a minute, context switches", "", float64(a.idle.ctxt), float64(b.idle.ctxt), ""})
		}
		report(g, r)
	})
}

// TestDriverRestart: the adapter of a parent and two children goes and comes.
func TestDriverRestart(t *testing.T) {
	skipUnlessCompare(t)
	lab.Run(t, config(), func(g *lab.G) {
		r := newRig(g)
		must(g, r.load("nhca=2"))
		specs := fabric(2, 1, 2, false)[3:]
		times := map[string][]time.Duration{}
		right := map[string]int{}
		const reps = 3
		for _, c := range []contestant{networkd, ours} {
			must(g, c.configure(specs, true))
			must(g, r.start(c))
			r.quiesce(c)
			for range reps {
				o, err := r.hotplug(1, specs, 30*time.Second)
				must(g, err)
				if o.right == o.of {
					right[c.name]++
					times[c.name] = append(times[c.name], o.last)
				} else {
					g.Logf("%s: right %d of %d", c, o.right, o.of)
				}
				r.quiesce(c)
			}
			must(g, r.stop(c))
		}
		r.table.add(row{"driver restart, parent and 2 children: median", "s", median(times[ours.name]), median(times[networkd.name]), fmt.Sprintf("(all right %d and %d of %d)", right[ours.name], right[networkd.name], reps)})
		report(g, r)
	})
}

func report(g *lab.G, r *rig) {
	load, _ := os.ReadFile("/proc/loadavg")
	g.Logf("figures (same guest, same run; load at the end %s):\n%s", strings.TrimSpace(string(load)), r.table)
}
