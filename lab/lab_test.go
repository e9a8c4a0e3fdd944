package lab_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// A guest of nothing but this test: the fabric is there and has no subnet manager.
func TestBare(t *testing.T) {
	lab.Run(t, lab.Config{}, func(g *lab.G) {
		if os.Getpid() == 1 || os.Getuid() != 0 {
			g.Errorf("pid %d uid %d", os.Getpid(), os.Getuid())
		}
		for _, dev := range []string{"swib0", "swib1"} {
			if s := g.PortFile(dev, 1, "state"); s != "2: INIT" {
				g.Errorf("%s: state %q, want INIT", dev, s)
			}
			if s := g.PortFile(dev, 1, "link_layer"); s != "InfiniBand" {
				g.Errorf("%s: link layer %q", dev, s)
			}
		}
		g.Wait("ib0 and ib1", 5*time.Second, func() bool {
			return g.Read("/sys/class/net/ib0/type") == "32" && g.Read("/sys/class/net/ib1/type") == "32"
		})
	})
}

// Two hosts, Debian's subnet manager, and a ping in each of the two modes.
func TestPing(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.Opensm(lab.SM{})
		g.Logf("active at %v", lab.Uptime())
		a, b := g.Host("a"), g.Host("b")
		a.Take("ib0", "10.9.0.1/24")
		b.Take("ib1", "10.9.0.2/24")
		a.Ping("10.9.0.2")
		g.Logf("datagram ping at %v", lab.Uptime())
		for _, h := range []*lab.Host{a, b} {
			link := map[string]string{"a": "ib0", "b": "ib1"}[h.Name]
			h.Exec("ip", "link", "set", link, "type", "ipoib", "mode", "connected")
			h.Exec("ip", "link", "set", link, "mtu", "65520")
		}
		a.Ping("10.9.0.2", "-s", "65000")
		if n := g.FabricPort("hca0", 1).Int("rcmax"); n < 65000 {
			g.Errorf("longest connected mode message: %d bytes, want more than 65000", n)
		}
		g.Logf("connected ping at %v", lab.Uptime())
	})
}

func TestSystemd(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Systemd}, func(g *lab.G) {
		if comm := g.Read("/proc/1/comm"); comm != "systemd" {
			g.Errorf("process 1 is %q", comm)
		}
		out, _ := g.Try("systemctl", "list-units", "--failed", "--plain", "--no-legend")
		if strings.TrimSpace(out) != "" {
			g.Errorf("failed units:\n%s", out)
		}
		if s := g.Exec("systemctl", "is-active", "dbus", "systemd-udevd"); strings.Contains(s, "inactive") {
			g.Error(s)
		}
	})
}

// Debian's unmodified kernel with two CPUs and PCI adapters, one of which is
// pulled out and put in again.
func TestQEMU(t *testing.T) {
	for _, series := range []string{"6.1", "6.12"} {
		t.Run(series, func(t *testing.T) { testQEMU(t, series) })
	}
}

func testQEMU(t *testing.T, series string) {
	lab.Run(t, lab.Config{Machine: lab.QEMU, Series: series, Userland: lab.Debian, Swib: "pci=1"}, func(g *lab.G) {
		g.Opensm(lab.SM{})
		g.Logf("active at %v", lab.Uptime())
		a, b := g.Host("a"), g.Host("b")
		a.Take("ib0", "10.9.0.1/24")
		b.Take("ib1", "10.9.0.2/24")
		a.Ping("10.9.0.2", "-s", "4000")
		g.Logf("ping at %v", lab.Uptime())
		dev, err := os.Readlink("/sys/class/infiniband/swib1/device")
		if err != nil || !strings.Contains(dev, "0000:") {
			g.Fatalf("adapter 1 is no PCI device: %q %v", dev, err)
		}
		slot := dev[strings.LastIndex(dev, "/")+1:]
		g.Write("/sys/bus/pci/devices/"+slot+"/remove", "1")
		if s := g.PortFile("swib1", 1, "state"); s != "" {
			g.Errorf("removed, but %q", s)
		}
		g.Write("/sys/bus/pci/rescan", "1")
		g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
	})
}

// Sleeping costs nothing where the clock jumps: a subnet manager's hour passes in
// a second, and what it does in the hour it does.
func TestTimeTravel(t *testing.T) {
	began := time.Now()
	if !lab.InGuest() {
		t.Cleanup(func() {
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("an hour of the guest took %v", took)
			} else {
				t.Logf("an hour of the guest took %v", took)
			}
		})
	}
	lab.Run(t, lab.Config{TimeTravel: true}, func(g *lab.G) {
		start := time.Now()
		time.Sleep(time.Hour)
		if d := time.Since(start); d < time.Hour {
			g.Errorf("an hour took %v", d)
		}
	})
}

// The sanitizing kernel really watches.
func TestSanitizer(t *testing.T) {
	if os.Getenv("IBNET_LAB_SANITIZE") != "1" {
		t.Skip("IBNET_LAB_SANITIZE=1 runs the guests on the sanitizing kernel")
	}
	lab.Run(t, lab.Config{}, func(g *lab.G) {
		if _, err := os.Stat("/sys/kernel/debug/kmemleak"); err != nil {
			g.Error(err)
		}
		if s := g.Read("/proc/lockdep_stats"); !strings.Contains(strings.Join(strings.Fields(s), " "), "debug_locks: 1") {
			g.Errorf("lockdep is off:\n%s", s)
		}
	})
}

// A guest that is killed leaves no process on the host: what was its user space
// would go on there.
func TestKill(t *testing.T) {
	if lab.InGuest() {
		lab.Run(t, lab.Config{}, func(g *lab.G) {
			for {
				_, _ = g.Try("/proc/self/exe", "-test.run=^$")
			}
		})
		return
	}
	g := lab.Boot(t, lab.Config{})
	left := func() (n int) {
		procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, p := range procs {
			if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), g.Dir) {
				n++
			}
		}
		return n
	}
	waitFor := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d processes", what, left())
			}
		}
	}
	waitFor("start", func() bool { return left() > 4 })
	g.Kill()
	waitFor("end", func() bool { return left() == 0 })
	os.RemoveAll(g.Dir)
}
