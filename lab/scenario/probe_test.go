package scenario

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab"
	"ibnetworkd/link"
	"ibnetworkd/link/arp"
)

// The unit's IPv4 addresses are probed by ARP on IPoIB: one that another host uses is not
// set, and is kept and reported if the host comes later. The link-local address is changed.
func TestProbedAddress(t *testing.T) {
	t.Parallel()
	// ib1 is in a network namespace of its own, another host for the daemon; ib2 is a second
	// rail of this host, which answers for all of its addresses.
	far := func(cmd string) string { return "ip netns exec other sh -ec '" + cmd + "'" }
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[Network]\nDuplicateAddressDetection=both\nLinkLocalAddressing=yes\n" +
			"Address=10.11.0.7/24\nAddress=10.11.0.8/24\n",
		unitDir + "10-ib2.ibnetwork": "[Match]\nName=ib2\n[Network]\nAddress=10.11.0.9/24\n",
	}}, func(g *lab.G) {
		g.SM(lab.SM{})
		other := strings.TrimSpace(g.Read("/sys/class/net/ib1/address"))
		g.Sh("ip netns add other; ip link set ib1 netns other; %s", far("ip link set ib1 up; ip address add 10.11.0.7/24 dev ib1"))
		g.Wait("the carrier of ib1", 30*time.Second, func() bool { return strings.Contains(g.Sh("%s", far("ip link show ib1")), "LOWER_UP") })
		has := func(a string) bool {
			out, _ := g.Try("ip", "-4", "-o", "address", "show", "dev", "ib0")
			return strings.Contains(out, "inet "+a+"/24")
		}
		linkLocal := func() string {
			out, _ := g.Try("ip", "-4", "-o", "address", "show", "dev", "ib0", "scope", "link")
			if f := strings.Fields(out); len(f) > 3 && strings.HasPrefix(f[3], "169.254.") {
				return f[3]
			}
			return ""
		}
		conflict := func(s link.Status) bool {
			for _, r := range s.Reasons {
				if r.Code == link.CodeAddressConflict && strings.Contains(r.Text, "10.11.0.7") && strings.Contains(r.Text, other) {
					return true
				}
			}
			return false
		}
		announcements := overheardARP(g, "other")
		d := startDaemon(g)
		begin := time.Now()
		d.wait("ib0", "10.11.0.8 only, and a conflict", 40*time.Second, func(s link.Status) bool {
			return conflict(s) && has("10.11.0.8") && !has("10.11.0.7") && linkLocal() != ""
		})
		took := time.Since(begin)
		if took < 4*time.Second {
			g.Errorf("10.11.0.8 was set after %v, before three probes and their answers", took)
		}
		time.Sleep(arp.AnnounceInterval + time.Second)
		ll, _, _ := strings.Cut(linkLocal(), "/")
		for _, a := range []string{"10.11.0.7", "10.11.0.8", ll} {
			if n := announcements(a); n != map[bool]int{false: 0, true: arp.AnnounceNum}[a != "10.11.0.7"] {
				g.Errorf("%s was announced %d times", a, n)
			}
		}

		if out := g.Exec("ibnetctl", "plan"); !strings.Contains(out, "# blocked: ib0: another host uses 10.11.0.7: "+other) {
			g.Errorf("the plan does not know of the conflict:\n%s", out)
		}
		out, _ := g.Try("ibnetctl", "diagnose", "ib0")
		if !strings.Contains(out, "10.11.0.7/24 is not set: another host uses") || strings.Contains(out, "sets none") {
			g.Errorf("diagnosed:\n%s", out)
		}

		// The other host goes, and the link comes back.
		g.Sh("%s", far("ip address delete 10.11.0.7/24 dev ib1"))
		g.Ctl("link h0/1 down")
		g.WaitPort("swib0", 1, "DOWN", 10*time.Second)
		g.Ctl("link h0/1 up")
		d.wait("ib0", "both addresses", 40*time.Second, func(s link.Status) bool {
			return s.State == link.StateConfigured && !conflict(s) && has("10.11.0.7") && has("10.11.0.8")
		})

		// A restart of the daemon takes nothing away, and neither does a host that claims an address.
		monitor := g.Start("ip", "monitor", "address", "dev", "ib0")
		d.kill()
		d.start()
		d.configured("ib0", 20*time.Second)
		g.Sh("%s", far("sysctl -qw net.ipv4.conf.ib1.arp_notify=1; ip address add 10.11.0.7/24 dev ib1; "+
			"ip link set ib1 down; ip link set ib1 up"))
		d.wait("ib0", "a conflict about an address that it has", 40*time.Second, func(s link.Status) bool {
			return conflict(s) && has("10.11.0.7")
		})
		if out := monitor.Output(); strings.Contains(out, "Deleted") {
			g.Errorf("an address was taken away:\n%s", out)
		}
		monitor.Kill()
		for _, r := range d.status("ib0").Reasons {
			if strings.Contains(r.Text, "10.11.0.8") {
				g.Errorf("the second rail of the host counts as another host: %s", r.Text)
			}
		}

		// The link-local address gives way.
		own := linkLocal()
		g.Sh("%s", far("ip address add "+own+" dev ib1 scope link; ip link set ib1 down; ip link set ib1 up"))
		d.wait("ib0", "another link-local address than "+own, 40*time.Second, func(link.Status) bool {
			a := linkLocal()
			return a != "" && a != own
		})
		g.Logf("%s, then %s; set after %v, then: %s", own, linkLocal(), took.Round(time.Millisecond), grep(d.p.Output(), "another host"))
	})
}

// overheardARP counts the announcements of an address that arrive in a network namespace.
func overheardARP(g *lab.G, netns string) func(addr string) int {
	var mu sync.Mutex
	seen := map[string]int{}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays in the namespace and ends with the goroutine
		f, err := os.Open("/run/netns/" + netns)
		if err != nil {
			opened <- err
			return
		}
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			opened <- err
			return
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, arp.EtherType>>8|arp.EtherType&0xff<<8)
		opened <- err
		b := make([]byte, 256)
		for err == nil {
			var n int
			n, _, err = unix.Recvfrom(fd, b, 0)
			if p, ok := arp.Parse(b[:max(n, 0)], 20); ok && p.Sender == p.Target {
				mu.Lock()
				seen[p.Sender.String()]++
				mu.Unlock()
			}
		}
	}()
	if err := <-opened; err != nil {
		g.Fatal(err)
	}
	return func(addr string) int {
		mu.Lock()
		defer mu.Unlock()
		return seen[addr]
	}
}
