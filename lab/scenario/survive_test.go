package scenario

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// What happens to a host does nothing to its links, and the daemon goes on after
// it: it applies the next change of a unit. One guest for all.
func TestSurvival(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{}, map[string]string{"10-ib0.ibnetwork": auto})
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitPort("swib0", 1, "ACTIVE", 120*time.Second)
		g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "120s")
		links := func() string {
			return g.Sh("ip -o link show dev ib0 | cut -d: -f1; cat /sys/class/net/ib0/carrier_changes; ip -o -4 address show dev ib0 | " +
				"grep -o 192.168.151.1/24")
		}
		before := links()
		n := 1
		// after checks the links, and has the daemon apply a change.
		after := func(what string, limit time.Duration) {
			g.Helper()
			if now := links(); now != before {
				g.Errorf("%s: the link was\n%s\nand is\n%s", what, before, now)
			}
			n++
			want := fmt.Sprintf("192.0.2.%d/32", n)
			start := time.Now()
			g.Write(unitDir+"10-ib0.ibnetwork", strings.Replace(auto, "[SubnetManager]", "Address="+want+"\n[SubnetManager]", 1))
			g.Wait("the next change after "+what, limit, func() bool {
				out, _ := g.Try("ip", "-o", "-4", "address", "show", "dev", "ib0")
				return strings.Contains(out, want) && strings.Contains(out, "192.168.151.1/24")
			})
			g.Logf("%s: the next change is applied after %v", what, time.Since(start).Round(time.Millisecond))
		}
		pid := mainPID(g, "ibnetworkd.service")
		same := func(what string) {
			g.Helper()
			if now := mainPID(g, "ibnetworkd.service"); now != pid {
				g.Errorf("%s: the daemon was restarted: pid %s, then %s", what, pid, now)
			}
		}

		_, _ = g.Try("sh", "-c", "head -c 4G /dev/zero > /run/fill")
		g.Write(unitDir+"10-ib0.ibnetwork", auto+"# /run is full\n")
		_, _ = g.Try("ibnetctl", "reload")
		same("a full /run")
		g.Exec("rm", "/run/fill")
		after("a full /run", 20*time.Second)

		// No descriptor is left for a reload, which has to read the units.
		fds := strings.TrimSpace(g.Sh("ls /proc/%s/fd | wc -l", pid))
		g.Exec("prlimit", "--pid", pid, "--nofile="+fds+":4096")
		g.Write(unitDir+"10-ib0.ibnetwork", auto+"# the table is full\n")
		_, _ = g.Try("ibnetctl", "reload")
		time.Sleep(time.Second)
		if now := links(); now != before {
			g.Errorf("with a full descriptor table the link was\n%s\nand is\n%s", before, now)
		}
		g.Exec("prlimit", "--pid", pid, "--nofile=4096:4096")
		same("a full descriptor table")
		_, _ = g.Try("ibnetctl", "reload")
		after("a full descriptor table", 20*time.Second)

		g.Sh("date -s '+1 day' >/dev/null")
		after("a clock set forward by a day", 20*time.Second)
		g.Sh("date -s '-400 days' >/dev/null")
		after("a clock set back by 400 days", 20*time.Second)

		for _, u := range []string{"systemd-udevd", "dbus"} {
			g.Exec("systemctl", "restart", u)
			after("a restart of "+u, 60*time.Second)
		}
		if out, _ := g.Try("systemctl", "is-enabled", "systemd-resolved"); !strings.Contains(out, "abled") {
			g.Log("systemd-resolved is not installed: its restart is not checked")
		} else {
			g.Exec("systemctl", "restart", "systemd-resolved")
			after("a restart of systemd-resolved", 20*time.Second)
		}
		g.Exec("systemctl", "daemon-reexec")
		after("daemon-reexec", 30*time.Second)
		same("restarts of what is beside it")

		// A minute with IBNET_LONG. The watchdog has three.
		pause := 5 * time.Second
		if os.Getenv("IBNET_LONG") != "" {
			pause = time.Minute
		}
		g.Exec("kill", "-STOP", pid)
		g.Write(unitDir+"10-ib0.ibnetwork", auto+"# it is stopped\n")
		time.Sleep(pause)
		g.Exec("kill", "-CONT", pid)
		after(fmt.Sprintf("SIGSTOP for %v", pause), 20*time.Second)
		same("SIGSTOP")

		// The kernel kills it when it needs more than there is, which is what the
		// limit in the unit does.
		if out, err := g.Try("systemctl", "set-property", "--runtime", "ibnetworkd.service", "MemoryMax=4M"); err != nil {
			g.Logf("no limit of memory in this kernel, not checked: %s", out)
		} else {
			g.Write(unitDir+"10-ib0.ibnetwork", auto+"# no memory\n")
			time.Sleep(3 * time.Second)
			g.Exec("systemctl", "set-property", "--runtime", "ibnetworkd.service", "MemoryMax=1G")
			g.Logf("with 4 MB of memory the daemon's pid was %s and is %s", pid, mainPID(g, "ibnetworkd.service"))
			after("a turn without memory", 60*time.Second)
		}

		// Ended more often than systemd's default limit of five starts in ten seconds.
		for i := range 7 {
			g.Wait(fmt.Sprintf("start %d", i), 20*time.Second, func() bool { p := mainPID(g, "ibnetworkd.service"); return p != "0" && p != pid })
			pid = mainPID(g, "ibnetworkd.service")
			_, _ = g.Try("kill", "-SEGV", pid)
		}
		after("seven crashes", 60*time.Second)
	})
}
