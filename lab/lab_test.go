package lab_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

// A guest of nothing but this test: the fabric is there and has no subnet manager.
func TestBare(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	for _, series := range []string{"6.1", "6.12"} {
		t.Run(series, func(t *testing.T) {
			t.Parallel()
			testQEMU(t, series)
		})
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
		// Not by either name: the PCI function would be left without its adapter.
		for _, line := range []string{"del 1", "del h1", "del hca1"} {
			refused(g, line, unix.EBUSY)
		}
		g.Write("/sys/bus/pci/devices/"+slot+"/remove", "1")
		if s := g.PortFile("swib1", 1, "state"); s != "" {
			g.Errorf("removed, but %q", s)
		}
		// An adapter without a PCI function takes the place; the function that comes back
		// takes the next one, and goes without taking the other along.
		g.Ctl("add 1")
		g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
		g.Write("/sys/bus/pci/rescan", "1")
		g.WaitPort("swib2", 1, "ACTIVE", 30*time.Second)
		refused(g, "del h2", unix.EBUSY)
		g.Write("/sys/bus/pci/devices/"+slot+"/remove", "1")
		if one, two := g.PortFile("swib1", 1, "state"), g.PortFile("swib2", 1, "state"); one != "4: ACTIVE" || two != "" {
			g.Errorf("the PCI function is removed: its port is %q, that of the other adapter %q", two, one)
		}
		g.Ctl("del h1")
		g.Write("/sys/bus/pci/rescan", "1")
		g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
	})
}

// refused gives the fabric a command that it must refuse with an error.
func refused(g *lab.G, line string, want error) {
	g.Helper()
	if err := g.TryWrite("/sys/kernel/debug/swib/ctl", line+"\n"); !errors.Is(err, want) {
		g.Errorf("%s: %v, want %v", line, err, want)
	}
}

// A command that the fabric cannot carry out is refused with the error that its
// description names, and a line that fails ends the write.
func TestRefusals(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{HCAs: 2}, func(g *lab.G) {
		for _, tc := range []struct {
			line string
			want error
		}{
			{"dell h0", unix.EINVAL}, {"del h0 h1", unix.EINVAL}, {"del 2", unix.ENODEV}, {"del s1", unix.ENODEV},
			{"link h0/1 down junk", unix.EINVAL}, {"link h0/1 flap 1 2 3", unix.EINVAL}, {"link h0/2 down", unix.ENODEV},
			{"link 0 1 down junk", unix.EINVAL}, {"silent h0 on xx", unix.EINVAL}, {"slow h0 1 2", unix.EINVAL}, {"slow h0 x", unix.EINVAL},
			{"cable s0/3 s0/4 s0/5", unix.EINVAL}, {"uncable s0/3 s0/4", unix.EINVAL}, {"guid h0/1 1 2", unix.EINVAL},
			{"mkey h0/1 1 1 1 1", unix.EINVAL}, {"mtu h0/1 2048 1", unix.EINVAL}, {"mtu h0/1 1500", unix.EINVAL},
			{"type h0/1 eth now", unix.EINVAL}, {"types h0 any any", unix.EINVAL}, {"vf h0 room 1 2", unix.EINVAL},
			{"vf h0 slow x", unix.EINVAL}, {"vf h0 slow 60001", unix.EINVAL},
			{"fault all drop percent=101", unix.EINVAL}, {"fault all drop class=300", unix.ERANGE}, {"fault clear all", unix.EINVAL},
			{"fault seed 1 2", unix.EINVAL}, {"wire h0/1 lo x", unix.EINVAL}, {"unwire h0/1 lo", unix.EINVAL},
			{"add 1", unix.EEXIST}, {"add 1024", unix.EINVAL}, {"switch 256 8", unix.EINVAL}, {"switch 1 255", unix.EINVAL},
			{"slow h0 7\n# a comment\nlink h1/1 down\nlink h9/1 down\nlink h0/1 down", unix.ENODEV},
			{strings.Repeat("#\n", 1<<19), unix.E2BIG},
		} {
			refused(g, tc.line, tc.want)
		}
		if one, other := g.PortFile("swib0", 1, "state"), g.PortFile("swib1", 1, "state"); one != "2: INIT" || other != "1: DOWN" {
			g.Errorf("port of adapter 0: %q, of adapter 1: %q, want only the latter down", one, other)
		}
		if text := g.Read("/sys/kernel/debug/swib/ctl"); strings.Contains(text, "fault") {
			g.Errorf("a refused rule is there:\n%s", text)
		}
	})
}

// Sleeping costs nothing where the clock jumps: a subnet manager's hour passes in
// seconds, and what it does in the hour it does: its light sweeps, the polls of the
// standby, and the standby's takeover when the hour is over. IPoIB is there all the
// time.
func TestTimeTravel(t *testing.T) {
	t.Parallel()
	began := time.Now()
	if !lab.InGuest() {
		t.Cleanup(func() { t.Logf("an hour of the guest took %v", time.Since(began)) })
	}
	c := lab.Config{TimeTravel: true, Userland: lab.Debian, HCAs: 3, Bins: []string{"ibnetworkd/cmd/ibnetsm"}}
	lab.Run(t, c, func(g *lab.G) {
		const sweep, poll = 10 * time.Second, 5 * time.Second
		master := g.SM(lab.SM{Dev: "swib0", Args: []string{"--priority=2", "--sweep=10s"}})
		g.SM(lab.SM{Dev: "swib1", Args: []string{"--priority=1", "--poll=5s"}})
		a, b := g.Host("a"), g.Host("b")
		a.Take("ib0", "10.9.0.1/24")
		b.Take("ib2", "10.9.0.2/24")
		a.Ping("10.9.0.2")
		// asked says how often a manager asked another for its SMInfo: a master does it
		// in each light sweep, a standby in each poll.
		asked := func(dev string) int {
			g.Helper()
			for l := range strings.Lines(g.Exec("ibnetsm", "metrics", "--socket=/run/ibnetsm/"+dev+".sock")) {
				if f := strings.Fields(l); strings.HasPrefix(l, "ibnetsm_smp_sent_total{") && strings.Contains(l, `kind="Get SMInfo"`) {
					n, _ := strconv.Atoi(f[len(f)-1])
					return n
				}
			}
			return 0
		}
		often := func(what string, got, least, most int) {
			g.Helper()
			if g.Logf("%s: %d", what, got); got < least-1 || got > most+1 {
				g.Errorf("%s: %d, want %d to %d", what, got, least, most)
			}
		}
		time.Sleep(time.Minute) // the standby has found the master
		sweeps, polls := asked("swib0"), asked("swib1")
		start := time.Now()
		time.Sleep(time.Hour)
		if d := time.Since(start); d < time.Hour || d > time.Hour+time.Second {
			g.Errorf("an hour took %v", d)
		}
		// The standby asks once more when it has copied a registration that changed.
		often("sweeps of the master", asked("swib0")-sweeps, int(time.Hour/sweep), int(time.Hour/sweep))
		often("polls of the standby", asked("swib1")-polls, int(time.Hour/poll), int(time.Hour/poll)+50)
		a.Ping("10.9.0.2")

		// Polls without an answer, and a sweep.
		master.Kill()
		took := g.Wait("the standby to be master", time.Minute, func() bool {
			return g.PortFile("swib2", 1, "sm_lid") == g.PortFile("swib1", 1, "lid")
		})
		if g.Logf("the standby took over in %v", took); took > 5*poll {
			g.Errorf("the standby took over in %v", took)
		}
		a.Ping("10.9.0.2")
	})
}

// A guest that is killed leaves no process on the host: what was its user space
// would go on there.
func TestKill(t *testing.T) {
	t.Parallel()
	if lab.InGuest() {
		lab.Run(t, lab.Config{}, busy)
		return
	}
	g := lab.Boot(t, lab.Config{})
	waitUntil(t, "the guest is at work", func() bool { return processes(g.Dir) > 4 })
	g.Kill()
	waitUntil(t, "all of it is gone", func() bool { return processes(g.Dir) == 0 })
}

func busy(g *lab.G) {
	for {
		_, _ = g.Try("/proc/self/exe", "-test.run=^$")
	}
}

// processes counts those of the host that have dir on their command line.
func processes(dir string) (n int) {
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), dir) {
			n++
		}
	}
	return n
}

func waitUntil(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited a minute in vain: %s", what)
		}
	}
}

// innerVar makes a test of this package play the test that a lab serves.
const innerVar = "IBNETLAB_INNER"

// inner returns the command of a process that plays the running test, and the folders
// of its temporary files and of the logs that it keeps.
func inner(t *testing.T) (cmd *exec.Cmd, tmp, logs string) {
	t.Helper()
	self, err := os.Executable()
	testkit.NoError(t, err)
	tmp, logs = t.TempDir(), t.TempDir()
	cmd = exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), innerVar+"=1", "TMPDIR="+tmp, "IBNET_LAB_LOGS="+logs)
	return cmd, tmp, logs
}

func exists(pattern string) bool {
	m, _ := filepath.Glob(pattern)
	return len(m) > 0
}

// A test that is killed leaves no process, no file, and its guest's logs where those
// of failed guests are.
func TestOrphan(t *testing.T) {
	t.Parallel()
	if lab.InGuest() || os.Getenv(innerVar) != "" {
		lab.Run(t, lab.Config{}, busy)
		return
	}
	if testing.Short() {
		t.Skip("boots a guest")
	}
	cmd, tmp, logs := inner(t)
	testkit.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	waitUntil(t, "the guest is at work", func() bool {
		select {
		case err := <-ended:
			t.Skipf("no lab here: %v", err)
		default:
		}
		return exists(tmp + "/ibnetlab-*/out/boot")
	})
	_ = cmd.Process.Kill()
	<-ended
	waitUntil(t, "all of it is gone", func() bool { return processes(tmp) == 0 && !exists(tmp+"/ibnetlab-*") })
	if !exists(logs + "/TestOrphan-*/console.log") {
		t.Error("the console of its guest was not kept")
	}
}

// A script that gives up ends its guests, and says where their logs are.
func TestNetGivesUp(t *testing.T) {
	t.Parallel()
	if lab.InGuest() || os.Getenv(innerVar) != "" {
		lab.RunNet(t, lab.Net{
			Cables: []string{"a/1 b/1"},
			Nodes:  []lab.Node{{Name: "a", Body: func(g *lab.G) { g.Await("never", time.Hour) }}, {Name: "b", Body: func(*lab.G) {}}},
			Script: func(t *testing.T, r *lab.NetRun) {
				waitUntil(t, "a runs", func() bool { return exists(os.TempDir() + "/ibnetlab-*/out/boot") })
				t.Fatal("the script gives up")
			},
		})
		return
	}
	if testing.Short() {
		t.Skip("boots guests")
	}
	cmd, tmp, logs := inner(t)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Skipf("no lab here: %s", out)
	}
	for _, w := range []string{"the script gives up", "what the guest (node a) left is in " + logs} {
		if !strings.Contains(string(out), w) {
			t.Errorf("%q is missing in\n%s", w, out)
		}
	}
	if exists(tmp+"/ibnetlab-*") || !exists(logs+"/TestNetGivesUp-*/console.log") {
		t.Errorf("not cleared away:\n%s", out)
	}
}
