package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// A peer that does not answer ARP is reached by [Neighbor], also after the link was
// down; the entry goes with its section, and another program's stays.
func TestNeighbor(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2, Bins: []string{ibnetworkd}}, func(g *lab.G) {
		g.Opensm(lab.SM{})
		g.Sh("ip netns add peer; ip link set ib1 netns peer; ip -n peer link set ib1 up; ip -n peer address add 10.3.0.2/24 dev ib1")
		g.Sh("ip netns exec peer sysctl -qw net.ipv4.conf.ib1.arp_ignore=8")
		hw := ""
		for f := strings.Fields(g.Sh("ip -n peer -o link show ib1")); len(f) > 1; f = f[1:] {
			if f[0] == "link/infiniband" {
				hw = f[1]
			}
		}
		const base = "[Match]\nName=ib0\n[Network]\nAddress=10.3.0.1/24\n"
		unit := func(text string) { g.Write(unitDir+"10-ib0.ibnetwork", base+text) }
		unit("")
		d := startDaemon(g)
		d.configured("ib0", 30*time.Second)
		ping := func() bool {
			_, err := g.Try("ping", "-c1", "-W1", "10.3.0.2")
			return err == nil
		}
		if ping() {
			g.Error("the peer answers ARP: this test proves nothing")
		}
		permanent := func() string { return g.Sh("ip neighbour show dev ib0 nud permanent") }
		reached := func() {
			g.Helper()
			g.Wait("a ping by the neighbour of the unit", 20*time.Second, ping)
			if s := permanent(); !strings.Contains(s, hw) {
				g.Errorf("permanent neighbours: %s, want %s", s, hw)
			}
		}
		one := "[Neighbor]\nAddress=10.3.0.2\nLinkLayerAddress=" + hw + "\n"
		unit(one)
		reached()
		if a := attr(d.configured("ib0", 10*time.Second), "Neighbor"); !a.OK() || a.Actual != "10.3.0.2 lladdr "+hw {
			g.Errorf("status: %+v", a)
		}
		g.Sh("ip link set ib0 down; ip link set ib0 up")
		reached()
		quiet(g, d)

		g.Sh("ip neighbour replace 10.3.0.77 lladdr %s dev ib0 nud permanent", hw)
		unit(one + "[Neighbor]\nAddress=10.3.0.78\nLinkLayerAddress=02:00:00:00:00:01\n")
		g.WaitFor(10*time.Second, func() string {
			for _, a := range d.status("ib0").Attributes {
				if strings.Contains(a.Why.Text, "has 6 bytes, not 20") {
					return ""
				}
			}
			return "no word about the length of an Ethernet address"
		})
		unit("")
		g.WaitFor(10*time.Second, func() string {
			if s := permanent(); strings.Contains(s, "10.3.0.2 ") || !strings.Contains(s, "10.3.0.77 ") {
				return "after the section went: " + s
			}
			return ""
		})
	})
}
