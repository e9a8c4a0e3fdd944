package scenario

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A route over two links waits for both, is found whichever comes first in it, and
// goes with its unit, as one does that leads nowhere and outlived its link.
func TestRouteOverTwoLinks(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		// The first next hop is on the other link.
		unitDir + "10-a.ibnetwork": "[Match]\nName=a0\n[Network]\nAddress=10.1.0.1/24\n[Route]\nDestination=10.9.0.0/16\n" +
			"MultiPathRoute=10.2.0.9@b0 3\nMultiPathRoute=10.1.0.9\n",
		unitDir + "20-b.ibnetwork": "[Match]\nName=b0\n[Network]\nAddress=10.2.0.1/24\n[Route]\nDestination=10.8.0.0/16\n" +
			"Type=blackhole\n[Route]\nDestination=10.7.0.0/16\nMultiPathRoute=10.1.0.8@a0\n",
	}}, func(g *lab.G) {
		g.Exec("ip", "link", "add", "a0", "type", "veth", "peer", "name", "a1")
		g.Exec("ip", "link", "set", "a1", "up")
		d := startDaemon(g)
		st := d.wait("a0", "told what the route waits for", 15*time.Second,
			func(s link.Status) bool { return strings.Contains(attr(s, "Route").Why.Text, "b0") })
		g.Log(attr(st, "Route").Why.Text)
		if out := g.Exec("ip", "route"); strings.Contains(out, "10.9.0.0") {
			g.Errorf("the route leads elsewhere:\n%s", out)
		}
		b0 := func() {
			g.Exec("ip", "link", "add", "b0", "type", "veth", "peer", "name", "b1")
			g.Exec("ip", "link", "set", "b1", "up")
		}
		there := func(yes bool, words ...string) {
			g.Helper()
			g.WaitFor(15*time.Second, func() string {
				out := g.Exec("ip", "route")
				for _, w := range words {
					if strings.Contains(strings.Join(strings.Fields(out), " "), w) != yes {
						return fmt.Sprintf("%q is there: %v\n%s\n%s", w, !yes, out, tail(d.p.Output(), 10))
					}
				}
				return ""
			})
		}
		all := []string{"10.9.0.0/16 proto static nexthop via 10.2.0.9 dev b0 weight 3 nexthop via 10.1.0.9 dev a0 weight 1",
			"blackhole 10.8.0.0/16", "10.7.0.0/16 via 10.1.0.8 dev a0"}
		b0()
		there(true, all...)
		for _, n := range []string{"a0", "b0"} {
			d.configured(n, 10*time.Second)
		}
		if out := g.Exec("ibnetctl", "plan"); strings.Contains(out, "ip route") {
			g.Errorf("something is left to plan:\n%s", out)
		}
		// Without b0 the kernel drops the route over it; what b0's unit asked for
		// elsewhere goes too, and all comes back with b0.
		g.Exec("ip", "link", "del", "b0")
		there(false, "10.9.0.0", "10.8.0.0", "10.7.0.0")
		b0()
		there(true, all...)
		// A restart changes nothing, and what goes is still known.
		d.kill()
		d.start()
		d.configured("b0", 10*time.Second)
		if strings.Contains(d.p.Output(), "ip route") {
			g.Errorf("routes are set again:\n%s", tail(d.p.Output(), 10))
		}
		for _, n := range []string{"10-a", "20-b"} {
			if err := os.Remove(unitDir + n + ".ibnetwork"); err != nil {
				g.Fatal(err)
			}
		}
		d.p.Signal(syscall.SIGHUP)
		there(false, "10.9.0.0", "10.8.0.0", "10.7.0.0")
	})
}
