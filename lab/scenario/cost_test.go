package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// What 320 links cost: from cold with their children there already, an edit of
// one address, a restart, and doing nothing.
func TestCost(t *testing.T) {
	const hcas, ports, keys = 16, 2, 9
	files := map[string]string{}
	parts := defaultPartition
	for k := 1; k <= keys; k++ {
		parts += fmt.Sprintf("p%d=0x%04x, ipoib : ALL=full;\n", k, k)
	}
	file := func(i, k int) string { return fmt.Sprintf("%s%02d-%d.ibnetwork", unitDir, i, k) }
	unit := func(i, k int, host int) string {
		return fmt.Sprintf("[Match]\nName=%s\n[Network]\nAddress=10.%d.%d.%d/24\n", child(i, k), 100+i, k, host)
	}
	for i := range hcas * ports {
		for k := range keys + 1 {
			files[file(i, k)] = unit(i, k, 1)
		}
	}
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: hcas, Ports: ports, Append: smallQueues, Bins: []string{ibnetworkd},
		Files: files, Memory: 2048}, func(g *lab.G) {
		manage(g, parts)
		var batch strings.Builder
		for i := range hcas * ports {
			for k := 1; k <= keys; k++ {
				fmt.Fprintf(&batch, "link add link ib%d name %s type ipoib pkey 0x%04x\n", i, child(i, k), 0x8000+k)
			}
		}
		g.Write("/tmp/children", batch.String())
		g.Exec("ip", "-batch", "/tmp/children")

		monitor := watchAddresses(g, "-ts")
		start := time.Now()
		d := startDaemon(g, "--log-level", "debug")
		g.WaitFor(time.Minute, func() string {
			if n := strings.Count(g.Exec("ip", "-o", "-4", "address", "show"), "inet 10.1"); n != hcas*ports*(keys+1) {
				return fmt.Sprintf("%d addresses", n)
			}
			return ""
		})
		last := time.Since(start)
		g.Wait("ip monitor to tell", 10*time.Second, func() bool { return strings.Contains(monitor.Output(), " inet 10.1") })
		first := firstStamp(g, monitor.Output()).Sub(start)
		quiet(g, d)
		pid := d.p.Cmd.Process.Pid
		rss := func() string { return grep(g.Read(fmt.Sprintf("/proc/%d/status", pid)), "VmRSS") }
		g.Logf("cold: first address after %v, last after %v, CPU %v, %s", first, last, g.CPU(pid), rss())

		before := g.CPU(pid)
		start = time.Now()
		g.Write(file(7, 3), unit(7, 3, 2))
		g.WaitFor(10*time.Second, func() string {
			if !strings.Contains(g.Exec("ip", "-o", "-4", "address", "show", "dev", child(7, 3)), ".2/24") {
				return "not yet"
			}
			return ""
		})
		took := time.Since(start)
		quiet(g, d)
		g.Logf("edit of one address: %v, CPU %v", took, g.CPU(pid)-before)

		time.Sleep(time.Second)
		switches := func() string {
			var b strings.Builder
			g.Sh("true")
			for _, l := range strings.Split(g.Sh("cat /proc/%d/task/*/status", pid), "\n") {
				if strings.Contains(l, "ctxt_switches") {
					b.WriteString(strings.Join(strings.Fields(l), " ") + " ")
				}
			}
			return b.String()
		}
		s0, c0 := switches(), g.CPU(pid)
		time.Sleep(5 * time.Second)
		g.Logf("idle 5 s: CPU %v, %s\n%s\n%s", g.CPU(pid)-c0, rss(), s0, switches())

		d.kill()
		d.start()
		start = time.Now()
		g.WaitFor(30*time.Second, func() string {
			if d.status(child(31, 9)).State == "" || !strings.Contains(d.p.Output(), "configured/routable") {
				return "not yet"
			}
			return ""
		})
		quiet(g, d)
		g.Logf("restart: %v, CPU %v, ops %v", time.Since(start), g.CPU(d.p.Cmd.Process.Pid), ops(d))
	})
}

// firstStamp is the time of the first line about an address of the test.
func firstStamp(g *lab.G, out string) time.Time {
	for l := range strings.Lines(out) {
		stamp, rest, ok := strings.Cut(strings.TrimPrefix(l, "["), "]")
		if !ok || !strings.Contains(rest, " inet 10.1") {
			continue
		}
		t, err := time.Parse("2006-01-02T15:04:05.000000", stamp)
		if err != nil {
			g.Fatal(err)
		}
		return t
	}
	g.Fatal("no address in ip monitor")
	return time.Time{}
}

func child(i, k int) string {
	if k == 0 {
		return fmt.Sprintf("ib%d", i)
	}
	return fmt.Sprintf("ib%d.%04x", i, 0x8000+k)
}
