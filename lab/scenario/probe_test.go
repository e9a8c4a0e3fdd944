package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// The unit's IPv4 addresses are probed by ARP on IPoIB: one that another host uses is not
// set, and is kept and reported if the host comes later.
func TestProbedAddress(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[Network]\nDuplicateAddressDetection=both\n" +
			"Address=10.11.0.7/24\nAddress=10.11.0.8/24\n",
	}}, func(g *lab.G) {
		g.SM(lab.SM{})
		g.Sh("ip link set ib1 up; ip address add 10.11.0.7/24 dev ib1")
		g.Wait("the carrier of ib1", 30*time.Second, func() bool { return strings.TrimSpace(g.Read("/sys/class/net/ib1/carrier")) == "1" })
		other := strings.TrimSpace(g.Read("/sys/class/net/ib1/address"))
		has := func(a string) bool {
			out, _ := g.Try("ip", "-4", "-o", "address", "show", "dev", "ib0")
			return strings.Contains(out, "inet "+a+"/24")
		}
		conflict := func(s link.Status) bool {
			for _, r := range s.Reasons {
				if r.Code == link.CodeAddressConflict && strings.Contains(r.Text, "10.11.0.7") && strings.Contains(r.Text, other) {
					return true
				}
			}
			return false
		}
		d := startDaemon(g)
		begin := time.Now()
		d.wait("ib0", "10.11.0.8 only, and a conflict", 40*time.Second, func(s link.Status) bool {
			return conflict(s) && has("10.11.0.8") && !has("10.11.0.7")
		})
		took := time.Since(begin)
		if took < 4*time.Second {
			g.Errorf("10.11.0.8 was set after %v, before three probes and their answers", took)
		}

		// The other host goes, and the link comes back.
		g.Sh("ip address delete 10.11.0.7/24 dev ib1")
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
		g.Sh("sysctl -qw net.ipv4.conf.ib1.arp_notify=1; ip address add 10.11.0.7/24 dev ib1; ip link set ib1 down; ip link set ib1 up")
		d.wait("ib0", "a conflict about an address that it has", 40*time.Second, func(s link.Status) bool {
			return conflict(s) && has("10.11.0.7")
		})
		if out := monitor.Output(); strings.Contains(out, "Deleted") {
			g.Errorf("an address was taken away:\n%s", out)
		}
		monitor.Kill()
		g.Logf("set after %v, then: %s", took.Round(time.Millisecond), grep(d.p.Output(), "another host"))
	})
}
