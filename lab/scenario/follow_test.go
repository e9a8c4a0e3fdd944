package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// The MTU follows the fabric: asked for 4092, a 2K subnet manager gives 2044 and
// the status says why; when a 4K one takes over it is 4092 by itself, and back.
func TestMTUFollows(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[Link]\nMTUBytes=4092\n[IPoIB]\nMode=datagram\n[Network]\nAddress=10.1.0.1/24\n",
		unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[Link]\nMTUBytes=max\n[IPoIB]\nMode=datagram\n[Network]\nAddress=10.2.0.1/24\n",
	}}, func(g *lab.G) {
		const two, four = "Default=0x7fff, ipoib, mtu=4 : ALL=full;\n", "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n"
		d := startDaemon(g)
		fabric := func(partitions, want string) {
			g.Helper()
			sm := g.SM(lab.SM{Partitions: partitions})
			for _, n := range []string{"ib0", "ib1"} {
				st := d.wait(n, "at MTU "+want, 15*time.Second, func(s link.Status) bool {
					return s.State == link.StateConfigured && s.Carrier && mtu(g, n) == want && attr(s, "MTUBytes").Actual == want
				})
				a := attr(st, "MTUBytes")
				limited := n == "ib0" && want != "4092"
				if limited != (a.Why.Code == link.CodeMTUGroup) || a.Why.Code != link.CodeNone && !limited {
					g.Errorf("%s: %+v", n, a)
				}
				if limited {
					g.Logf("%s: %s; %s", n, a.Why.Text, a.Why.Next)
					const want = "wanted 4092, the fabric's broadcast group allows 2044 (group MTU 2048; the subnet manager sets it)"
					if !strings.Contains(a.Why.Text, want) {
						g.Errorf("%s", a.Why.Text)
					}
				}
			}
			quiet(g, d)
			sm.Kill()
			_ = sm.Wait(5 * time.Second)
		}
		fabric(two, "2044")
		fabric(four, "4092")
		fabric(two, "2044")
	})
}

// Four faults, four sentences: no subnet manager, cable out, key not granted,
// join refused.
func TestFourFaults(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[Network]\nAddress=10.1.0.1/24\n[Partition]\nPartitionKey=0x8001\n" +
			"[Partition]\nPartitionKey=0x8002\n",
		unitDir + "20.ibnetwork": "[Match]\nPartitionKey=0x8001\nPartitionKey=0x8002\n[Network]\nAddress=10.2.0.1/24\n",
	}}, func(g *lab.G) {
		d := startDaemon(g)
		seen := map[string]link.Code{}
		fault := func(name string, code link.Code) {
			g.Helper()
			st := d.wait(name, string(code), 20*time.Second, func(s link.Status) bool { return s.Reason().Code == code })
			r := st.Reason()
			g.Logf("%s: %s/%s: %s\n\tnext: %s", name, st.State, st.Oper, r.Text, r.Next)
			if r.Next == "" {
				g.Errorf("%s: no next step", code)
			}
			if other, dup := seen[r.Text]; dup {
				g.Errorf("%s and %s are the same sentence", code, other)
			}
			seen[r.Text] = code
		}
		fault("ib0", link.CodeNoSM)
		// Partition 2 exists without a broadcast group: the join is refused.
		g.SM(lab.SM{Partitions: defaultPartition + "two=0x0002 : ALL=full;\n"})
		fault("ib0.8001", link.CodePKeyMissing)
		fault("ib0.8002", link.CodeJoin)
		g.Ctl("link 0 1 down")
		fault("ib0", link.CodeCable)
		g.Ctl("link 0 1 up")
		d.configured("ib0", 20*time.Second)
	})
}

// GUID= replaces the last eight bytes of the address, for which the link goes
// down once; a restart leaves it alone.
func TestGUID(t *testing.T) {
	t.Parallel()
	withAndWithoutUdev(t, lab.Config{Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[Link]\nGUID=0x0002c90300000042\n[Network]\nAddress=10.1.0.1/24\n",
	}}, func(g *lab.G) {
		d := startDaemon(g)
		right := func() {
			g.Helper()
			g.WaitFor(5*time.Second, func() string {
				if out := g.Exec("ip", "-o", "link", "show", "ib0"); !strings.Contains(out, "00:02:c9:03:00:00:00:42 ") ||
					!strings.Contains(out, ",UP") {
					return out + tail(d.p.Output(), 5)
				}
				return ""
			})
		}
		right()
		quiet(g, d)
		d.kill()
		d.start()
		d.wait("ib0", "looked at", 5*time.Second, func(s link.Status) bool { return s.State != "" })
		right()
		quiet(g, d)
		if o := ops(d); len(o) > 0 {
			g.Errorf("a restart has something to do: %v", o)
		}
	})
}
