package bench

import (
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/lab"
	"ibnetworkd/sm/saprobe"
	"ibnetworkd/sm/transport/umad"
)

var managers = flag.Bool("managers", false, "compare ibnetsm with opensm on the kernel's ib_umad; 6 minutes")

// managerRow is what one event took with each manager.
type managerRow struct {
	event string
	took  map[string]time.Duration
	aim   time.Duration // 0: not longer than opensm
}

func managerTable(what string, rows []managerRow, lost map[string][2]int) string {
	out := fmt.Sprintf("%s; kernel's own ib_umad, all options at their defaults\n%-52s %10s %10s %8s %10s\n",
		what, "event, seconds", "opensm", "ibnetsm", "ratio", "aim")
	for _, r := range rows {
		o, i := r.took["opensm"], r.took["ibnetsm"]
		aim, note := r.aim, ""
		if aim == 0 {
			aim = o
		}
		if i > aim {
			note = "  <- behind"
		}
		out += fmt.Sprintf("%-52s %10.3f %10.3f %8.3f %10.3f%s\n", r.event, o.Seconds(), i.Seconds(), float64(i)/float64(max(o, 1)),
			aim.Seconds(), note)
	}
	for _, sm := range []string{"opensm", "ibnetsm"} {
		if l, ok := lost[sm]; ok {
			out += fmt.Sprintf("%s: %d of %d pings over IPoIB between two other hosts were lost in all of it\n", sm, l[1], l[0])
		}
	}
	return out
}

// startManager starts one of the two on an adapter, as its package does.
func startManager(g *lab.G, kind, dev string, priority int) *lab.Proc {
	if kind == "opensm" {
		return g.Opensm(lab.SM{Dev: dev, NoWait: true, Args: []string{"-s", "10", "-p", fmt.Sprint(priority)}})
	}
	return g.SM(lab.SM{Dev: dev, NoWait: true, Args: []string{"--priority=" + fmt.Sprint(priority)}})
}

// TestManagers lets each manager lose its place in every way there is, and a
// third host ask the SA all the time.
func TestManagers(t *testing.T) {
	if !*managers && !(*compare && len(withManagers(nil)) > 0) && !lab.InGuest() {
		t.Skip("a comparison takes minutes: make bench, make bench-sm")
	}
	t.Run("switch", func(t *testing.T) {
		lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 7, Timeout: 12 * time.Minute, Memory: 1024}, managersOnSwitch)
	})
	t.Run("cable", func(t *testing.T) {
		lab.Run(t, lab.Config{Userland: lab.Debian, Cabled: true, Timeout: 5 * time.Minute}, managersOnCable)
	})
}

func managersOnSwitch(g *lab.G) {
	rows := []managerRow{
		{event: "master killed (kill -9), SA silent", aim: 1500 * time.Millisecond},
		{event: "master's link cut, SA silent", aim: 3 * time.Second},
		{event: "master stopped (SIGTERM), SA silent", aim: 500 * time.Millisecond},
		{event: "a better manager joins, until it is master"},
		{event: "a better manager joins, SA silent", aim: 100 * time.Millisecond},
		{event: "cable back in right after 10 flaps in 1 s, to Active", aim: 500 * time.Millisecond},
	}
	for i := range rows {
		rows[i].took = map[string]time.Duration{}
	}
	a, b := g.Host("a"), g.Host("b")
	lost := map[string][2]int{}
	for _, kind := range []string{"ibnetsm", "opensm"} {
		first := startManager(g, kind, "swib0", 5)
		g.WaitActive(30 * time.Second)
		if kind == "ibnetsm" {
			a.Take("ib3", "10.9.0.1/24")
			b.Take("ib4", "10.9.0.2/24")
		}
		a.Ping("10.9.0.2")
		second := startManager(g, kind, "swib1", 1)
		tr, err := umad.Open(sysfs.New(""), "swib2", 1)
		if err != nil {
			g.Fatal(err)
		}
		p := saprobe.Start(tr)
		settle := func(master, standby string) {
			g.Helper()
			g.Wait(kind+": "+master+" is master", 2*time.Minute, func() bool {
				return sminfo(g, master) == "MASTER" && (standby == "" || sminfo(g, standby) == "STANDBY")
			})
			if err := p.WaitAnswer(time.Now(), 30*time.Second); err != nil {
				g.Fatalf("%s: %v", kind, err)
			}
		}
		settle("swib0", "swib1")
		pings := a.Pings("10.9.0.2", 100*time.Millisecond)
		time.Sleep(2 * time.Second)
		silence := func(row int, do func()) {
			g.Helper()
			begin := time.Now()
			do()
			// The tools that query for the master take time of the one CPU that the
			// managers have too: not before one serves.
			if err := p.WaitAnswer(time.Now().Add(20*time.Millisecond), 2*time.Minute); err != nil {
				g.Fatalf("%s: %v", kind, err)
			}
			settle("swib1", "")
			rows[row].took[kind] = p.Silence(begin)
			g.Logf("%s: %s: %v", kind, rows[row].event, rows[row].took[kind])
		}
		silence(0, func() { first.Kill() })
		// The better one comes back.
		begin := time.Now()
		first = startManager(g, kind, "swib0", 5)
		g.Wait("the better one is master", 2*time.Minute, func() bool { return sminfo(g, "swib0") == "MASTER" })
		rows[3].took[kind] = time.Since(begin)
		settle("swib0", "swib1")
		rows[4].took[kind] = p.Silence(begin)
		time.Sleep(2 * time.Second)
		silence(2, func() { first.Signal(syscall.SIGTERM) })
		g.Wait("the end of the master", time.Minute, func() bool { return first.Wait(time.Second) == nil || sminfo(g, "swib0") == "none" })
		first = startManager(g, kind, "swib0", 5)
		settle("swib0", "swib1")
		time.Sleep(2 * time.Second)
		silence(1, func() { g.Ctl("link 0 1 down") })
		g.Ctl("link 0 1 up")
		g.WaitActive(time.Minute)
		settle("swib0", "swib1")
		sent, n := pings()
		lost[kind] = [2]int{sent, n}
		for range 10 {
			g.Ctl("link 5 1 down")
			time.Sleep(50 * time.Millisecond)
			g.Ctl("link 5 1 up")
			time.Sleep(50 * time.Millisecond)
		}
		g.Ctl("link 6 1 down")
		g.WaitPort("swib6", 1, "DOWN", 5*time.Second)
		g.Ctl("link 6 1 up")
		rows[5].took[kind] = g.WaitPort("swib6", 1, "ACTIVE", time.Minute)
		p.Stop()
		for _, m := range []*lab.Proc{second, first} {
			m.Kill()
			_ = m.Wait(5 * time.Second)
		}
	}
	g.Log("\n" + managerTable("subnet managers", rows, lost))
}

func managersOnCable(g *lab.G) {
	rows := []managerRow{
		{event: "two hosts and a cable, start to Active"},
		{event: "re-plugged cable to Active, slowest of 5", aim: time.Second},
	}
	for i := range rows {
		rows[i].took = map[string]time.Duration{}
	}
	for _, kind := range []string{"ibnetsm", "opensm"} {
		g.Ctl("link 1 1 down")
		g.WaitPort("swib1", 1, "DOWN", 5*time.Second)
		g.Ctl("link 1 1 up")
		begin := time.Now()
		m := startManager(g, kind, "swib0", 5)
		g.WaitActive(30 * time.Second)
		rows[0].took[kind] = time.Since(begin)
		for i := range 5 {
			g.Ctl("link 1 1 down")
			g.WaitPort("swib1", 1, "DOWN", 5*time.Second)
			time.Sleep(time.Duration(500+170*i) * time.Millisecond) // at any moment of what they do at intervals
			g.Ctl("link 1 1 up")
			rows[1].took[kind] = max(rows[1].took[kind], g.WaitPort("swib1", 1, "ACTIVE", time.Minute))
		}
		m.Kill()
		_ = m.Wait(5 * time.Second)
	}
	g.Log("\n" + managerTable("a cable without a switch", rows, nil))
}

// sminfo is the state of the manager on an adapter, as queried by a third one.
func sminfo(g *lab.G, dev string) string {
	out, _ := g.Try("sminfo", "-C", "swib2", "-t", "200", g.PortFile(dev, 1, "lid"))
	for _, s := range []string{"MASTER", "STANDBY", "DISCOVERING", "NOTACTIVE"} {
		if strings.Contains(out, "SMINFO_"+s) {
			return s
		}
	}
	return "none"
}
