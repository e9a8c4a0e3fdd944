package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// Two links of a host in one subnet: with MultiRail=yes a peer finds each address
// on the link that has it, without it on either.
func TestMultiRail(t *testing.T) {
	t.Parallel()
	unit := func(n string) string {
		return "[Match]\nName=ib" + n + "\n[Network]\nAddress=10.3.0.1" + n + "/24\nMultiRail=yes\n"
	}
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": unit("0"), unitDir + "10-ib1.ibnetwork": unit("1"),
	}}, func(g *lab.G) {
		g.Opensm(lab.SM{Dev: "swib2"})
		g.Sh("ip netns add peer; ip link set ib2 netns peer; ip -n peer link set ib2 up; ip -n peer address add 10.3.0.1/24 dev ib2")
		d := startDaemon(g)
		for _, name := range []string{"ib0", "ib1"} {
			if a := attr(d.configured(name, 30*time.Second), "MultiRail"); !a.OK() {
				g.Errorf("%s: %+v", name, a)
			}
		}
		found := func() int {
			return railsFound(g, "peer", "ib2", map[string]string{"10.3.0.10": "ib0", "10.3.0.11": "ib1"})
		}
		if n := found(); n != 20 {
			g.Errorf("the peer found %d of 20 times the link that has the address", n)
		}
		g.Write(unitDir+"10-ib0.ibnetwork", strings.Replace(unit("0"), "MultiRail=yes", "MultiRail=no", 1))
		g.Write(unitDir+"10-ib1.ibnetwork", strings.Replace(unit("1"), "MultiRail=yes", "MultiRail=no", 1))
		g.WaitFor(10*time.Second, func() string {
			if s := g.Read("/proc/sys/net/ipv4/conf/ib1/arp_ignore") + g.Read("/proc/sys/net/ipv4/conf/ib0/arp_ignore"); s != "0\n0\n" && s != "00" {
				return "arp_ignore is " + s
			}
			return ""
		})
		if n := found(); n == 20 {
			g.Error("without it the peer also found the right link each time: this test proves nothing")
		}
	})
}

// railsFound has a peer in a network namespace look for addresses of links ten times each, and returns how often it
// found the link that has the address.
func railsFound(g *lab.G, peer, dev string, links map[string]string) (right int) {
	g.Helper()
	hardware := func(link string) string {
		f := strings.Fields(g.Sh("ip -o link show %s", link))
		i := slices.Index(f, "link/infiniband")
		if i < 0 {
			g.Fatalf("no hardware address in %v", f)
		}
		return f[i+1]
	}
	for range 10 {
		for address, link := range links {
			g.WaitFor(10*time.Second, func() string {
				if _, err := g.Try("ip", "netns", "exec", peer, "ping", "-c1", "-W1", address); err != nil {
					return err.Error()
				}
				return ""
			})
			// Answers of the other link may come after the ping.
			time.Sleep(20 * time.Millisecond)
			if strings.Contains(g.Sh("ip -n %s neighbour show %s", peer, address), hardware(link)) {
				right++
			}
		}
		g.Sh("ip -n %s neighbour flush dev %s", peer, dev)
	}
	return right
}
