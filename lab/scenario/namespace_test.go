package scenario

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A P_Key child with NetworkNamespace= waits for its network namespace, is made and moved
// there with its MTU, and is up. A restart of the daemon makes no second one; the restart
// of the driver, its deletion, and another namespace of that name have it made again. The
// daemon deletes it there when the section goes.
func TestNetworkNamespace(t *testing.T) {
	t.Parallel()
	const unit, part = "[Match]\nName=ib0\n", "[Partition]\nPartitionKey=0x8001\nMTUBytes=1500\nNetworkNamespace=job\n"
	const child = "[Match]\nName=ib0.8001\n[Network]\nAddress=10.8.0.1/24\n"
	units := map[string]string{"10-ib0.ibnetwork": unit + part, "20-child.ibnetwork": child}
	lab.Run(t, installed(lab.Config{HCAs: 3, PKeys: 32}, units), func(g *lab.G) {
		defer journal(g)
		g.SM(lab.SM{Dev: "swib2", Partitions: "Default=0x7fff,ipoib:ALL=full;\nJobs=0x1,ipoib:ALL=full;\n"})
		in := func(words string) string {
			out, err := g.Try("ip", append([]string{"-n", "job", "-o"}, strings.Fields(words)...)...)
			if err != nil {
				return ""
			}
			return out
		}
		here := func() bool { _, err := g.Try("ip", "link", "show", "ib0.8001"); return err == nil }
		says := func(code link.Code, words, actual string) func() string {
			return func() string {
				for _, l := range describe(g).Links {
					if l.Name == "ib0" {
						a := attr(l, "Partition")
						if a.Why.Code == code && strings.Contains(a.Why.Text, words) && a.Actual == actual && l.State == link.StateConfigured {
							return ""
						}
						return fmt.Sprintf("ib0 is %s, %+v", l.State, a)
					}
				}
				return "no ib0"
			}
		}
		const there = "0x8001 ib0.8001 in network namespace job"
		made := func(what string) {
			g.Helper()
			begin, last := time.Now(), ""
			g.WaitFor(30*time.Second, func() string {
				last = in("link show ib0.8001")
				if here() || !strings.Contains(last, ",UP") || !strings.Contains(last, "mtu 1500") {
					return cmp.Or(last, "no child in the namespace")
				}
				return ""
			})
			g.Logf("%s: in the namespace after %v", what, time.Since(begin).Round(10*time.Millisecond))
			g.WaitFor(10*time.Second, says("", "", there))
		}

		g.WaitFor(60*time.Second, says(link.CodeNoNamespace, "ib0.8001 waits for network namespace job", ""))
		if here() {
			g.Error("the child is here while it waits")
		}
		g.Sh("ip netns add job")
		made("a new namespace")
		refused := false
		for _, l := range describe(g).Links {
			for _, r := range l.Reasons {
				refused = refused || l.Name == "ib0" && r.Code == link.CodeOtherNamespace &&
					strings.Contains(r.Text, "20-child.ibnetwork matches ib0.8001")
			}
		}
		if !refused {
			g.Error("the unit of the child is not refused")
		}

		g.Sh("ip netns add peer; ip link add link ib1 name ib1.8001 netns peer up type ipoib pkey 0x8001; ip link set ib1 up")
		g.Sh("ip -n peer address add 10.9.0.2/24 dev ib1.8001; ip -n job address add 10.9.0.1/24 dev ib0.8001")
		g.Wait("a ping", 30*time.Second, func() bool {
			_, err := g.Try("ip", "netns", "exec", "job", "ping", "-c1", "-W1", "10.9.0.2")
			return err == nil
		})

		g.Sh("systemctl restart ibnetworkd")
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if here() {
				g.Fatal("a second child was made after a restart of the daemon")
			}
		}
		if !strings.Contains(in("address show dev ib0.8001"), "10.9.0.1/24") {
			g.Error("it is another child after a restart of the daemon")
		}
		made("a restart of the daemon")

		g.Ctl("del 0")
		g.Wait("the end of the child", 20*time.Second, func() bool { return in("link show ib0.8001") == "" })
		g.Ctl("add 0")
		made("a restart of the driver")

		g.Sh("ip -n job link delete ib0.8001; ibnetctl reconfigure ib0")
		made("its deletion")

		g.Sh("ip netns delete job")
		g.Wait("the child after the end of the namespace", 20*time.Second, here)
		g.WaitFor(10*time.Second, says(link.CodeNoNamespace, "ib0.8001 waits", "0x8001 ib0.8001"))
		g.Sh("ip netns add job")
		made("another namespace of that name")

		g.Write(unitDir+"10-ib0.ibnetwork", unit)
		g.Wait("a namespace without it", 20*time.Second, func() bool { return in("link show ib0.8001") == "" && in("link show lo") != "" })
		if here() {
			g.Error("the child came back")
		}
	})
}
