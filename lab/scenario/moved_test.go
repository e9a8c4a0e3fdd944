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
// restart of the daemon. It comes back with the end of the namespace, with which the kernel
// deletes a VLAN: that is made again.
func TestMoved(t *testing.T) {
	t.Parallel()
	const unit = "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n"
	lab.Run(t, installed(lab.Config{HCAs: 2, PKeys: 32}, map[string]string{"10-ib0.ibnetwork": unit,
		"20-v.ibnetwork": "[Match]\nName=v1\n[VLAN]\nId=7\nName=storage\n"}), func(g *lab.G) {
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

		vlan := func() bool { _, err := g.Try("ip", "link", "show", "storage"); return err == nil }
		g.Sh("ip link add v1 type veth peer name v2; ip link set v1 up")
		for _, restart := range []bool{false, true} {
			g.Wait("the VLAN", 20*time.Second, vlan)
			g.Sh("ip netns add job2; ip link set storage netns job2; ip -n job2 link set storage up")
			if restart {
				g.Sh("systemctl restart ibnetworkd")
			}
			g.WaitFor(20*time.Second, func() string {
				if out := g.Exec("ibnetctl", "status", "v1"); !strings.Contains(out, "storage was moved to another network namespace") {
					return out
				}
				return ""
			})
			g.Sh("ip netns delete job2")
		}
		g.Wait("the VLAN after the end of the namespace", 20*time.Second, vlan)
		if out := g.Sh("journalctl -b --no-pager -p warning -u ibnetworkd"); strings.Contains(out, "storage") {
			g.Errorf("the VLAN was made before the other one was deleted:\n%s", out)
		}
	})
}
