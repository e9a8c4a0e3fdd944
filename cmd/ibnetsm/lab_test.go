package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/sm/engine"
)

// sm starts ibnetsm on a port of the guest.
func startSM(g *lab.G, dev string, args ...string) *lab.Proc {
	g.Helper()
	guid := portGUID(g, dev, 1)
	return g.Start("ibnetsm", append([]string{"run", "--port-guid=" + guid, "--socket=/run/ibnetsm/" + dev + ".sock", "--state-dir=/tmp/sm-" + dev,
		"--log-file=/tmp/ibnetsm-" + dev + ".log"}, args...)...)
}

func portGUID(g *lab.G, dev string, port int) string {
	gid := strings.ReplaceAll(g.PortFile(dev, port, "gids/0"), ":", "")
	if len(gid) != 32 {
		g.Fatalf("no port %s/%d", dev, port)
	}
	return "0x" + gid[16:]
}

func status(g *lab.G, dev string) *engine.Snapshot {
	out, err := g.Try("ibnetsm", "status", "--json", "--socket=/run/ibnetsm/"+dev+".sock")
	var xs []*engine.Snapshot
	if err != nil || json.Unmarshal([]byte(out), &xs) != nil || len(xs) != 1 {
		return &engine.Snapshot{}
	}
	return xs[0]
}

func isState(g *lab.G, dev, state string) func() bool {
	return func() bool { return status(g, dev).State == state }
}

var bins = []string{"ibnetworkd/cmd/ibnetsm"}

// Two hosts on a switch come to Active and talk, in both modes, with a child
// of another partition.
func TestLabSwitch(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: bins, Files: map[string]string{
		"/etc/partitions.conf": "Default=0x7fff, ipoib : ALL=full;\nstorage=0x0001, ipoib : ALL=full;\n",
	}}, func(g *lab.G) {
		startSM(g, "swib0", "--partitions=/etc/partitions.conf")
		g.Logf("active after %v", g.WaitActive(20*time.Second))
		a, b := g.Host("a"), g.Host("b")
		g.Exec("sh", "-c", "echo 0x8001 > /sys/class/net/ib0/create_child; echo 0x8001 > /sys/class/net/ib1/create_child")
		a.Take("ib0", "10.9.0.1/24")
		b.Take("ib1", "10.9.0.2/24")
		a.Ping("10.9.0.2")
		a.Take("ib0.8001", "10.10.0.1/24")
		b.Take("ib1.8001", "10.10.0.2/24")
		a.Ping("10.10.0.2")
		g.Logf("datagram ping at %v", lab.Uptime())
		for _, h := range []*lab.Host{a, b} {
			link := map[string]string{"a": "ib0", "b": "ib1"}[h.Name]
			h.Exec("ip", "link", "set", link, "type", "ipoib", "mode", "connected")
			h.Exec("ip", "link", "set", link, "mtu", "65520")
		}
		a.Ping("10.9.0.2", "-s", "65000")
		g.Log(g.Exec("ibnetsm", "status"))
		g.Log(g.Exec("sh", "-c", "cat /tmp/ibnetsm-swib0.log"))
		if out := g.Exec("ibnetsm", "topology"); !strings.Contains(out, "Switch") {
			g.Errorf("topology:\n%s", out)
		}
		if out := g.Exec("ibnetsm", "topology", "--svg"); !strings.HasPrefix(out, "<svg") {
			g.Errorf("picture:\n%.200s", out)
		}
		for _, tool := range []string{"sminfo", "ibnetdiscover", "iblinkinfo", "saquery", "saquery -g", "ibhosts"} {
			if out, err := g.Try("sh", "-c", tool); err != nil {
				g.Errorf("%s: %v\n%s", tool, err, out)
			}
		}
		if out, err := g.Try("ibdiagnet", "-o", "/tmp/dg"); err != nil || strings.Contains(out, "-E-") {
			g.Errorf("ibdiagnet: %v\n%s", err, out)
		}
		// Its cable is pulled and put back.
		g.Ctl("link 1 1 down")
		g.WaitPort("swib1", 1, "DOWN", 5*time.Second)
		time.Sleep(50 * time.Millisecond)
		g.Ctl("link 1 1 up")
		g.Logf("active again %v after the cable was put back", g.WaitPort("swib1", 1, "ACTIVE", 5*time.Second))
		a.Ping("10.9.0.2")
	})
}

// A cable without a switch, pulled and put back.
func TestLabCable(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: bins, Cabled: true}, func(g *lab.G) {
		startSM(g, "swib0")
		g.Logf("active after %v", g.WaitActive(20*time.Second))
		a, b := g.Host("a"), g.Host("b")
		a.Take("ib0", "10.9.0.1/24")
		b.Take("ib1", "10.9.0.2/24")
		a.Ping("10.9.0.2")
		for range 3 {
			g.Ctl("link 1 1 down")
			g.WaitPort("swib1", 1, "DOWN", 5*time.Second)
			time.Sleep(500 * time.Millisecond)
			g.Ctl("link 1 1 up")
			d := g.WaitPort("swib1", 1, "ACTIVE", 5*time.Second)
			g.Logf("active again after %v", d)
			if d > time.Second {
				g.Errorf("a re-plugged cable took %v", d)
			}
		}
		a.Ping("10.9.0.2")
	})
}

// Two of ibnetsm: kill -9, orderly stop, cut link.
func TestLabFailover(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: bins, HCAs: 3}, func(g *lab.G) {
		m := startSM(g, "swib0", "--priority=5")
		g.WaitActive(20 * time.Second)
		s := startSM(g, "swib1", "--priority=1")
		g.Wait("standby", 10*time.Second, isState(g, "swib1", "Standby"))
		time.Sleep(time.Second)
		saOf := func(what string, limit time.Duration, do func()) {
			t0 := time.Now()
			do()
			g.Wait(what, 30*time.Second, func() bool {
				_, err := g.Try("saquery", "-C", "swib2", "-t", "100", "-c")
				return err == nil
			})
			d := time.Since(t0)
			g.Logf("%s: SA served again %v after", what, d.Round(time.Millisecond))
			if d > limit {
				g.Errorf("%s: SA silent for %v, want under %v", what, d, limit)
			}
		}
		saOf("kill -9", 1500*time.Millisecond, m.Kill)
		g.Wait("takeover", 10*time.Second, isState(g, "swib1", "Master"))
		// The better one comes back.
		t0 := time.Now()
		m = startSM(g, "swib0", "--priority=5")
		g.Wait("handover to the better one", 10*time.Second, isState(g, "swib0", "Master"))
		g.Logf("the better one is master %v after its start", time.Since(t0).Round(time.Millisecond))
		g.Wait("old master is standby", 10*time.Second, isState(g, "swib1", "Standby"))
		time.Sleep(time.Second)
		saOf("orderly stop", 500*time.Millisecond, func() { m.Signal(syscall.SIGTERM); m.Wait(5 * time.Second) })
		g.Wait("handed over", 10*time.Second, isState(g, "swib1", "Master"))
		m = startSM(g, "swib0", "--priority=5")
		g.Wait("master again", 10*time.Second, isState(g, "swib0", "Master"))
		g.Wait("old master is standby", 10*time.Second, isState(g, "swib1", "Standby"))
		time.Sleep(time.Second)
		saOf("link cut", 3*time.Second, func() { g.Ctl("link 0 1 down") })
		_, _ = m, s
		for _, dev := range []string{"swib0", "swib1"} {
			g.Artifact(dev+".log", []byte(g.Read("/tmp/ibnetsm-"+dev+".log")))
		}
		fmt.Println(g.Read("/tmp/ibnetsm-swib1.log"))
	})
}
