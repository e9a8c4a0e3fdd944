package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A driver restart gives an IPoIB link another queue pair number, which is in its hardware
// address. Peers that sent to the former one reach the link as soon as it has its addresses.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	const unit = "[Match]\nName=ib0\n[Network]\nAddress=10.3.0.1/24\nAddress=fd03::1/64\n"
	lab.Run(t, installed(lab.Config{HCAs: 3}, map[string]string{"10-ib0.ibnetwork": unit}), func(g *lab.G) {
		defer journal(g)
		g.Opensm(lab.SM{Dev: "swib2"})
		g.Sh("ip netns add peer; ip link set ib1 netns peer; ip -n peer link set ib1 up; ip -n peer address add 10.3.0.2/24 dev ib1")
		g.Sh("ip -n peer -6 address add fd03::2/64 dev ib1")
		hardware := func() string {
			b, _ := g.Try("cat", "/sys/class/net/ib0/address")
			return strings.TrimSpace(b)
		}
		configured := func(mode string) {
			g.Helper()
			g.Wait("ib0 with its addresses, "+mode, 40*time.Second, func() bool {
				for _, l := range describe(g).Links {
					if l.Name == "ib0" && l.State == link.StateConfigured && l.Carrier && attr(l, "Mode").Actual == mode {
						return true
					}
				}
				return false
			})
		}
		ping := func(addr string) bool {
			_, err := g.Try("ip", "netns", "exec", "peer", "ping", "-c1", "-W0.5", addr)
			return err == nil
		}
		for _, mode := range []string{"datagram", "connected"} {
			g.Write(unitDir+"10-ib0.ibnetwork", unit+"[IPoIB]\nMode="+mode+"\n")
			configured(mode)
			linkLocal := strings.Fields(g.Sh("ip -6 -o address show dev ib0 scope link"))[3]
			linkLocal, _, _ = strings.Cut(linkLocal, "/")
			targets := []string{"10.3.0.1", "fd03::1", linkLocal + "%ib1"}
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
			g.Wait("another hardware address", 20*time.Second, func() bool { h := hardware(); return h != "" && h != was })
			configured(mode)
			since := time.Now()
			for _, a := range targets {
				for !ping(a) && time.Since(since) < time.Minute {
				}
				took := time.Since(since)
				g.Logf("%s, %s: reached %.1f s after the link has its addresses", mode, a, took.Seconds())
				if took > 4*time.Second {
					g.Errorf("%s: not reached for %.1f s: %s", a, took.Seconds(), g.Sh("ip -n peer neighbour show dev ib1"))
				}
			}
		}
	})
}
