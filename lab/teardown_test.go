package lab_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// The fabric is unloaded and loaded again while a subnet manager runs and IPoIB
// traffic flows in both modes and as enhanced IPoIB.  IBNET_TEARDOWNS says how often, 5 times without; a
// tenth of it, 4 at least, on Debian's kernel with two CPUs, which take turns, and there
// every other two with PCI adapters.
func TestTeardown(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("IBNET_TEARDOWNS"))
	if err != nil {
		n = 5
	}
	limit := time.Minute + time.Duration(n)*10*time.Second
	t.Run("UML", func(t *testing.T) {
		t.Parallel()
		lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: -1, Timeout: limit}, func(g *lab.G) { teardowns(g, n, "") })
	})
	t.Run("QEMU", func(t *testing.T) {
		t.Parallel()
		lab.Run(t, lab.Config{Machine: lab.QEMU, Userland: lab.Debian, HCAs: -1, Swib: "pci=1", Timeout: limit},
			func(g *lab.G) { teardowns(g, max(n/10, 4), "pci=1") })
	})
}

func teardowns(g *lab.G, n int, other string) {
	g.Helper()
	begun := lab.Uptime()
	defer func() {
		if !g.Failed() {
			g.Logf("unloaded %d of %d times, %.1f s each", n, n, (lab.Uptime()-begun).Seconds()/float64(n))
		}
	}()
	for i := range n {
		if i > 0 && i%100 == 0 {
			g.Logf("%d of %d times", i, n)
		}
		params := "nhca=4 nports=2"
		if i/2%2 == 1 && other != "" {
			params += " " + other
		}
		g.LoadSwib(params)
		enhanced := i%3 == 2
		if enhanced {
			g.Ctl("ipoib h0 enhanced")
			g.Ctl("ipoib h1 enhanced")
		}
		sm := g.Opensm(lab.SM{NoWait: true})
		g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
		a, b := g.Host("a"), g.Host("b")
		a.Take("ib0", "10.9.0.1/24")
		b.Take("ib2", "10.9.0.2/24")
		if i%2 == 1 && !enhanced {
			a.Exec("ip", "link", "set", "ib0", "type", "ipoib", "mode", "connected")
			b.Exec("ip", "link", "set", "ib2", "type", "ipoib", "mode", "connected")
		}
		a.Ping("10.9.0.2")
		flood := a.Start("ping", "-q", "-f", "-s", "1400", "10.9.0.2")
		time.Sleep(time.Duration(i%7) * 20 * time.Millisecond) // another moment each time
		g.Exec("rmmod", "swib")
		if files, _ := os.ReadDir("/sys/class/infiniband"); len(files) != 0 {
			g.Fatalf("%d devices are left", len(files))
		}
		flood.Kill()
		sm.Kill()
	}
}
