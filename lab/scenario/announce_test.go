package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// A driver restart gives an IPoIB link another queue pair number, which is in its hardware
// address. Peers that sent to the former one reach the link as soon as it has its addresses.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3, Bins: []string{ibnetworkd}}, func(g *lab.G) {
		g.Opensm(lab.SM{Dev: "swib2"})
		g.Sh("ip netns add peer; ip link set ib1 netns peer; ip -n peer link set ib1 up; ip -n peer address add 10.3.0.2/24 dev ib1")
		g.Sh("ip -n peer -6 address add fd03::2/64 dev ib1")
		g.Write(unitDir+"10-ib0.ibnetwork", "[Match]\nName=ib0\n[Network]\nAddress=10.3.0.1/24\nAddress=fd03::1/64\n")
		d := startDaemon(g)
		d.configured("ib0", 30*time.Second)
		linkLocal := strings.Fields(g.Sh("ip -6 -o address show dev ib0 scope link"))[3]
		linkLocal, _, _ = strings.Cut(linkLocal, "/")
		targets := []string{"10.3.0.1", "fd03::1", linkLocal + "%ib1"}
		ping := func(addr string) bool {
			_, err := g.Try("ip", "netns", "exec", "peer", "ping", "-c1", "-W1", addr)
			return err == nil
		}
		hardware := func() string { return strings.Fields(g.Sh("cat /sys/class/net/ib0/address"))[0] }
		for range 2 {
			for _, a := range targets {
				g.Wait("a ping of "+a, 20*time.Second, func() bool { return ping(a) })
			}
			// As after long use: a peer need not ask for the hardware address for a minute.
			for _, a := range targets {
				a, _, _ = strings.Cut(a, "%")
				g.Sh("ip -n peer neighbour change %s dev ib1 lladdr %s nud reachable", a, hardware())
			}
			was := hardware()
			g.Ctl("del 0")
			g.Ctl("add 0")
			g.Wait("another hardware address", 20*time.Second, func() bool {
				b, err := g.Try("cat", "/sys/class/net/ib0/address")
				return err == nil && strings.TrimSpace(b) != was
			})
			d.configured("ib0", 30*time.Second)
			since := time.Now()
			for _, a := range targets {
				for !ping(a) && time.Since(since) < time.Minute {
				}
				took := time.Since(since)
				g.Logf("%s: reached %.1f s after the link has its addresses", a, took.Seconds())
				if took > 3*time.Second {
					g.Errorf("%s: not reached for %.1f s: %s", a, took.Seconds(), g.Sh("ip -n peer neighbour show dev ib1"))
				}
			}
		}
	})
}
