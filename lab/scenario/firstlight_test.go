package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// Two hosts and a cable, one unit each, as a wiki page has it today: connected
// mode, the largest MTU, one address.
func TestBackToBack(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian, Cabled: true, Bins: []string{ibnetworkd}}, func(g *lab.G) {
		nodes := []*node{newNode(g, "a", "ib0"), newNode(g, "b", "ib1")}
		for i, n := range nodes {
			n.unit("10-ib.ibnetwork", fmt.Sprintf(`[Match]
Name=ib%d

[Link]
MTUBytes=65520

[IPoIB]
Mode=connected

[Network]
Address=192.168.151.%d/24
`, i, i+1))
			n.start()
		}
		// Without a subnet manager the link waits, and says for whom.
		g.WaitFor(5*time.Second, func() string {
			if s := nodes[0].status("ib0"); !strings.Contains(s, "subnet manager") {
				return s
			}
			return ""
		})
		g.Opensm(lab.SM{})
		for i, n := range nodes {
			took := n.waitLink(fmt.Sprintf("ib%d", i), 10*time.Second, "LOWER_UP", "mtu 65520", "mode connected", fmt.Sprintf("192.168.151.%d/24", i+1))
			g.Logf("host %s: the link is right %v after the ports", n.Name, took)
		}
		nodes[0].Ping("192.168.151.2", "-s", "65000")
		if p := g.FabricPort("hca0", 1); p.Int("rcmax") < 65000 || p.Int("rc") == 0 {
			g.Errorf("adapter sent %d connected-mode messages, the longest of %d bytes; want one of more than 65000", p.Int("rc"), p.Int("rcmax"))
		}
		if s := nodes[0].status("ib0"); !strings.Contains(s, "configured") {
			g.Errorf("status:\n%s", s)
		}
	})
}
