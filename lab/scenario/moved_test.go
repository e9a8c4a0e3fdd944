package scenario

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A P_Key child that was made and that an administrator moves to another network
// namespace, for a container, stays there and is not made a second time: also after a
// restart of the daemon. It comes back with the end of the namespace.
func TestMoved(t *testing.T) {
	t.Parallel()
	const unit = "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n"
	lab.Run(t, installed(lab.Config{HCAs: 2, PKeys: 32}, map[string]string{"10-ib0.ibnetwork": unit}), func(g *lab.G) {
		defer journal(g)
		g.SM(lab.SM{Dev: "swib1", Partitions: "Default=0x7fff,ipoib:ALL=full;\nJobs=0x1,ipoib:ALL=full;\n"})
		child := func() bool { _, err := g.Try("ip", "link", "show", "ib0.8001"); return err == nil }
		moved := func() string {
			for _, l := range describe(g).Links {
				if l.Name == "ib0" {
					a := attr(l, "Partition")
					if a.Why.Code == link.CodeMoved && strings.Contains(a.Why.Text, "ib0.8001 was moved to another network namespace") {
						return ""
					}
					return cmp.Or(a.Why.Text, "no reason")
				}
			}
			return "no ib0"
		}
		stays := func(what string) {
			g.Helper()
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if child() {
					g.Fatalf("%s: a second child was made", what)
				}
			}
			g.WaitFor(10*time.Second, moved)
		}
		g.Wait("the child", 40*time.Second, child)
		g.Sh("ip netns add job; ip link set ib0.8001 netns job; ip -n job link set ib0.8001 up")
		stays("moved")
		g.Sh("systemctl restart ibnetworkd")
		stays("after a restart of the daemon")
		g.Sh("ip netns delete job")
		g.Wait("the child after the end of the namespace", 20*time.Second, child)
		g.Wait("a status without it", 20*time.Second, func() bool { return moved() == "no reason" })

		g.Sh("ip netns add job; ip link set ib0.8001 netns job")
		stays("moved again")
		g.Exec("ibnetctl", "reconfigure", "ib0")
		g.Wait("another child, as asked", 20*time.Second, child)
	})
}
