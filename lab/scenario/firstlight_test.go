package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// Two hosts and a cable, one unit each, as a wiki page has it today: connected
// mode, the largest MTU, one address. Once with each subnet manager, so that
// what ours gives a link can be compared with what opensm gives it.
func TestBackToBack(t *testing.T) {
	t.Parallel()
	t.Run("ibnetsm", func(t *testing.T) { backToBack(t, (*lab.G).SM) })
	t.Run("opensm", func(t *testing.T) { backToBack(t, (*lab.G).Opensm) })
}

func backToBack(t *testing.T, manager func(*lab.G, lab.SM) *lab.Proc) {
	lab.Run(t, lab.Config{Userland: lab.Debian, Cabled: true, Bins: []string{ibnetworkd, ibnetctl}}, func(g *lab.G) {
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
		manager(g, lab.SM{})
		for i, n := range nodes {
			took := n.waitLink(fmt.Sprintf("ib%d", i), 10*time.Second, "LOWER_UP", "mtu 65520", "mode connected",
				fmt.Sprintf("192.168.151.%d/24", i+1))
			g.Logf("host %s: the link is right %v after the ports", n.Name, took)
		}
		nodes[0].Ping("192.168.151.2", "-s", "65000")
		if p := g.FabricPort("hca0", 1); p.Int("rcmax") < 65000 || p.Int("rc") == 0 {
			g.Errorf("adapter sent %d connected-mode messages, the longest of %d bytes; want one of more than 65000", p.Int("rc"), p.Int("rcmax"))
		}
		// The daemon learns what the kernel has done a moment later.
		g.WaitFor(5*time.Second, func() string {
			if s := nodes[0].status("ib0"); !strings.Contains(s, "routable (configured)") {
				return s
			}
			return ""
		})
	})
}

// The same through a switch, in datagram mode, with 4092 asked: the fabric's
// broadcast group decides, and the status says so with the numbers.
func TestGroupMTU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, partitions string
		mtu              int
		why              []string
	}{
		{"4K fabric", "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n", 4092, nil},
		{"2K fabric", "Default=0x7fff, ipoib, mtu=4 : ALL=full;\n", 2044, []string{"wanted 4092", "2044", "group MTU 2048", "subnet manager"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}}, func(g *lab.G) {
				nodes := []*node{newNode(g, "a", "ib0"), newNode(g, "b", "ib1")}
				for i, n := range nodes {
					n.unit("10-ib.ibnetwork", fmt.Sprintf("[Match]\nName=ib%d\n[Link]\nMTUBytes=4092\n[IPoIB]\nMode=datagram\n[Network]\n"+
						"Address=10.4.0.%d/24\n", i, i+1))
					n.start()
				}
				g.SM(lab.SM{Partitions: c.partitions})
				for i, n := range nodes {
					n.waitLink(fmt.Sprintf("ib%d", i), 10*time.Second, "LOWER_UP", fmt.Sprintf("mtu %d ", c.mtu), "mode datagram",
						fmt.Sprintf("10.4.0.%d/24", i+1))
				}
				nodes[0].Ping("10.4.0.2", "-M", "do", "-s", fmt.Sprint(c.mtu-28))
				if out, err := nodes[0].Try("ping", "-c", "1", "-W", "1", "-M", "do", "-s", fmt.Sprint(c.mtu-27), "10.4.0.2"); err == nil {
					g.Errorf("a packet of %d bytes passes:\n%s", c.mtu+1, out)
				}
				// The daemon learns what the kernel has done a moment later.
				s := ""
				g.WaitFor(5*time.Second, func() string {
					s = nodes[0].status("ib0")
					for _, w := range c.why {
						if !strings.Contains(s, w) {
							return fmt.Sprintf("the status does not say %q:\n%s", w, s)
						}
					}
					return ""
				})
				g.Logf("status:\n%s", s)
			})
		})
	}
}
