package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// RDMA devices and the links of ports that are given to other network namespaces: what
// remains here stays configured, says why it is as it is, and what comes back is
// configured as before. The statements are those of docs/namespaces.md.
func TestRDMANamespaces(t *testing.T) {
	t.Parallel()
	lab.Run(t, installed(lab.Config{HCAs: 3, PKeys: 32}, map[string]string{
		"10-ib1.ibnetwork":   "[Match]\nName=ib1\n[Network]\nAddress=10.8.0.1/24\n[Partition]\nPartitionKey=0x8001\n",
		"20-child.ibnetwork": "[Match]\nName=ib1.8001\n[Network]\nAddress=10.8.1.1/24\n",
		"30-dev.ibnetwork":   "[Match]\nIBDevice=swib2\n[Network]\nAddress=10.8.2.1/24\n",
		"40-soft.ibnetwork":  "[Match]\nName=v1\n[SoftRoCE]\n[Network]\nAddress=10.7.0.1/24\n",
	}), func(g *lab.G) {
		defer journal(g)
		g.SM(lab.SM{Dev: "swib0", Partitions: "Default=0x7fff,ipoib:ALL=full;\nJobs=0x1,ipoib:ALL=full;\n"})
		g.Sh("ip link add v1 type veth peer name v2; ip link set v1 up; ip link set v2 up")
		// is waits until links are configured, with these RDMA devices ("-" for none).
		is := func(what string, want map[string]string) {
			g.Helper()
			g.WaitFor(40*time.Second, func() string {
				got, bad := map[string]link.Status{}, ""
				for _, l := range describe(g).Links {
					got[l.Name] = l
				}
				for name, dev := range want {
					if l := got[name]; l.State != link.StateConfigured || !l.Carrier || l.IBDevice != strings.Trim(dev, "-") {
						bad += fmt.Sprintf("%s: %s is %s on %q: %+v\n", what, name, l.State, l.IBDevice, l.Reasons)
					}
				}
				return bad
			})
		}
		// says waits until a reason of a link, or of a unit where that is "", has these words.
		says := func(name string, code link.Code, words ...string) {
			g.Helper()
			g.WaitFor(30*time.Second, func() string {
				d, last := describe(g), ""
				var rs []link.Reason
				for _, n := range d.Notices {
					if name == "" {
						rs = append(rs, n.Reason)
					}
				}
				for _, l := range d.Links {
					if l.Name == name {
						rs = append(rs, l.Reasons...)
					}
				}
				for _, r := range rs {
					last += fmt.Sprintf("%s: %s; %s\n", r.Code, r.Text, r.Next)
					ok := r.Code == code
					for _, w := range words {
						ok = ok && strings.Contains(r.Text+"; "+r.Next, w)
					}
					if ok {
						return ""
					}
				}
				return fmt.Sprintf("%s does not say %q but %q", name, words, last)
			})
		}
		here := map[string]string{"ib1": "swib1", "ib1.8001": "swib1", "ib2": "swib2", "v1": "rxe_v1"}
		is("at the start", here)

		g.Sh("rdma system set netns exclusive; ip netns add job")
		if out, err := g.Try("rdma", "dev", "set", "rxe_v1", "netns", "job"); err == nil || !strings.Contains(out, "not supported") {
			g.Errorf("soft RoCE moves to another network namespace: %v\n%s", err, out)
		}
		is("exclusive", here)
		g.Sh("rdma dev set swib1 netns job; rdma dev set swib2 netns job")
		is("the devices are elsewhere", map[string]string{"ib1": "-", "ib1.8001": "-", "v1": "rxe_v1"})
		says("", link.CodeUnmatched, "30-dev.ibnetwork matches nothing", "RDMA devices of other network namespaces are not seen here",
			"Name= and PortGUID= match an IPoIB link wherever its RDMA device is")
		g.Ctl("link 1 1 down")
		says("ib1", link.CodeNoCarrier, "its RDMA device is in another network namespace", "ip netns exec NAMESPACE rdma link")
		g.Ctl("link 1 1 up")
		is("the cable is in again", map[string]string{"ib1": "-", "ib1.8001": "-"})
		g.Sh("systemctl restart ibnetworkd")
		is("a restart of the daemon", map[string]string{"ib1": "-", "ib1.8001": "-"})
		g.Ctl("link 1 1 down")
		says("ib1", link.CodeNoCarrier, "its RDMA device is in another network namespace")
		g.Ctl("link 1 1 up")
		is("the cable is in again", map[string]string{"ib1": "-", "ib1.8001": "-"})

		logs := func(args ...string) string {
			return g.Exec("journalctl", append([]string{"-b", "--no-pager", "-q", "-o", "cat", "-u", "ibnetworkd"}, args...)...)
		}
		_, cursor, _ := strings.Cut(logs("-n", "0", "--show-cursor"), "cursor: ")
		time.Sleep(15 * time.Second)
		out := logs("--after-cursor", strings.TrimSpace(cursor))
		if strings.Count(out, "\n") > 2 {
			g.Errorf("at rest it logs\n%s", out)
		}

		g.Sh("ip netns attach init 1; ip netns exec job rdma dev set swib1 netns init; ip netns delete job")
		is("back, and the end of the namespace", here)

		// The link of a port, as a container runtime moves it.
		g.Sh("ip netns add c; ip link set ib1 netns c")
		says("ib1.8001", link.CodeLinkDown, "ib1.8001 is down with its parent, which is in another network namespace")
		says("", link.CodeUnmatched, "no link fits Name=ib1", "port swib1/1 has no interface of its own in this network namespace",
			"if it is in another one: ip -n NAMESPACE link set ib1 netns 1")
		g.Sh("ip -n c link set ib1 up")
		is("its parent is up elsewhere", map[string]string{"ib1.8001": "swib1"})
		g.Sh("systemctl restart ibnetworkd")
		is("a restart of the daemon", map[string]string{"ib1.8001": "swib1"})
		g.Sh("ip -n c link set ib1 netns 1")
		is("moved back", here)
		g.Sh("ip link set ib1.8001 netns c")
		says("ib1", link.CodeMoved, "ib1.8001 was moved to another network namespace and is left there")
		g.Sh("ip -n c link set ib1.8001 netns 1")
		is("the child moved back", here)
		g.Sh("ip link set ib1 netns c; ip netns delete c")
		is("the namespace ended with it", here)
		if out := g.Sh("ip -o link show type ipoib"); strings.Count(out, "link/infiniband") != 4 {
			g.Errorf("other IPoIB links than before:\n%s", out)
		}
	})
}
