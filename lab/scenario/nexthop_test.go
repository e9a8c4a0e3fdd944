package scenario

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A route over two rails by a group of nexthops, one in the unit of each: it stays while
// one of them is left, and what the kernel or another program deletes comes back.
func TestNextHop(t *testing.T) {
	t.Parallel()
	const match0 = "[Match]\nName=ib0\n[Network]\nAddress=10.3.0.1/24\n"
	const hops0 = "[NextHop]\nId=7\nGateway=10.3.0.2\n[NextHop]\nId=20\nGroup=7 8:3\n" +
		"[Route]\nDestination=10.9.0.0/16\nNextHop=20\n[Route]\nDestination=10.8.0.0/16\nNextHop=7\n"
	const rail1 = "[Match]\nName=ib1\n[Network]\nAddress=10.4.0.1/24\n[NextHop]\nId=8\nGateway=10.4.0.2\n"
	const hops1 = "[NextHop]\nId=20\nGroup=7 8:3\n[Route]\nDestination=10.9.0.0/16\nNextHop=20\n"
	unit0, unit1 := unitDir+"10-ib0.ibnetwork", unitDir+"10-ib1.ibnetwork"
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 3, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unit0: match0 + hops0,
		unit1: rail1,
	}}, func(g *lab.G) {
		g.Opensm(lab.SM{Dev: "swib2"})
		g.Sh("ip netns add peer; ip link set ib2 netns peer; ip -n peer link set lo up; ip -n peer link set ib2 up")
		g.Sh("ip -n peer address add 10.3.0.2/24 dev ib2; ip -n peer address add 10.4.0.2/24 dev ib2; ip -n peer address add 10.9.0.1/32 dev lo")
		d := startDaemon(g)
		// is waits for nexthops and routes that have these texts, and none of those after "!".
		is := func(what string, texts ...string) {
			g.Helper()
			g.WaitFor(40*time.Second, func() string {
				have := g.Sh("ip nexthop show; ip route show; ip route show 10.9.0.0/16 | tr '\\n' ' '")
				for _, text := range texts {
					if not, absent := strings.CutPrefix(text, "!"); strings.Contains(have, not) == absent {
						return fmt.Sprintf("%s: %q in\n%s\n%s", what, text, have, tail(d.p.Output(), 20))
					}
				}
				return ""
			})
		}
		reached := func(what string) {
			g.Helper()
			g.Wait("the peer "+what, 20*time.Second, func() bool { _, err := g.Try("ping", "-c1", "-W1", "10.9.0.1"); return err == nil })
		}
		all := []string{"id 7 via 10.3.0.2 dev ib0", "id 8 via 10.4.0.2 dev ib1", "id 20 group 7/8,3", "10.9.0.0/16 nhid 20",
			"10.8.0.0/16 nhid 7", "via 10.3.0.2 dev ib0 weight 1", "via 10.4.0.2 dev ib1 weight 3"}
		is("at the start", all...)
		reached("over both rails")
		if a := attr(d.configured("ib0", 20*time.Second), "NextHop"); !a.OK() || a.Actual != "id 7 via 10.3.0.2 dev ib0" {
			g.Errorf("status: %+v", a)
		}
		quiet(g, d)
		if out := g.Exec("ibnetctl", "plan"); strings.Contains(out, "ip ") {
			g.Errorf("something is left to do:\n%s", out)
		}

		g.Ctl("link h1/1 down")
		is("without the cable of ib1", "id 7 via", "!id 8 via", "id 20 group 7 ", "10.9.0.0/16 nhid 20 via 10.3.0.2 dev ib0")
		reached("over ib0")
		d.wait("ib0", "without nexthop 8", 20*time.Second, func(s link.Status) bool {
			for _, a := range s.Attributes {
				if strings.HasPrefix(a.Why.Text, "nexthop group 20 is without nexthop 8, which does not exist") {
					return true
				}
			}
			return false
		})
		g.Ctl("link h1/1 up")
		is("with the cable of ib1", all...)
		g.Ctl("link h0/1 down")
		is("without the cable of ib0", "!id 7 via", "id 20 group 8,3", "10.9.0.0/16 nhid 20 via 10.4.0.2 dev ib1", "!10.8.0.0/16")
		reached("over ib1")
		g.Ctl("link h0/1 up")
		is("with the cable of ib0", all...)
		reached("over both again")

		// Another program deletes them: the routes over them go too, without a word of the kernel about them.
		g.Sh("ip nexthop delete id 7")
		is("after nexthop 7 was deleted", all...)
		g.Sh("ip nexthop flush")
		is("after all were deleted", all...)
		d.configured("ib0", 20*time.Second)
		quiet(g, d)

		before := g.Sh("ip nexthop show; ip route show")
		d.kill()
		d.start()
		d.configured("ib0", 20*time.Second)
		quiet(g, d)
		if now := g.Sh("ip nexthop show; ip route show"); now != before {
			g.Errorf("after the restart:\n%s\nbefore:\n%s", now, before)
		}

		g.Ctl("del 0")
		g.Ctl("del 1")
		g.Ctl("add 0")
		g.Ctl("add 1")
		is("after the restart of the driver", all...)
		reached("after the restart of the driver")
		d.configured("ib0", 20*time.Second)

		// In the units of both links the group and the route stay without the adapter of one.
		g.Write(unit1, rail1+hops1)
		d.configured("ib1", 20*time.Second)
		quiet(g, d)
		g.Ctl("del 0")
		g.Wait("ib0 to go", 20*time.Second, func() bool { _, err := os.Stat("/sys/class/net/ib0"); return err != nil })
		quiet(g, d)
		is("without the adapter of ib0", "!id 7 via", "id 20 group 8,3", "10.9.0.0/16 nhid 20 via 10.4.0.2 dev ib1")
		reached("without the adapter of ib0")
		g.Ctl("add 0")
		is("with the adapter of ib0", all...)
		g.Write(unit1, rail1)
		is("with the group in one unit again", all...)
		quiet(g, d)

		// An ID of another program.
		g.Sh("ip nexthop add id 30 via 10.3.0.9 dev ib0 proto bird")
		g.Write(unit0, match0+hops0+"[NextHop]\nId=30\nGateway=10.3.0.2\n")
		d.wait("ib0", "in conflict over nexthop 30", 20*time.Second, func(s link.Status) bool {
			for _, a := range s.Attributes {
				if a.Why.Code == link.CodeAddressConflict && strings.HasPrefix(a.Why.Text, "a nexthop with ID 30 exists already") {
					return true
				}
			}
			return false
		})
		is("with one of another program", append([]string{"id 30 via 10.3.0.9 dev ib0"}, all...)...)

		g.Write(unit0, match0+strings.Replace(hops0, "Group=7 8:3", "Group=8", 1))
		is("with a smaller group", "id 20 group 8 ", "10.9.0.0/16 nhid 20 via 10.4.0.2 dev ib1", "10.8.0.0/16 nhid 7")
		g.Write(unit0, match0)
		is("after the sections went", "!id 7 ", "!id 20 ", "!10.9.0.0/16", "!10.8.0.0/16", "id 8 via", "id 30 via")
		g.Sh("rm %s", unit1)
		is("after the other unit went", "!id 8 ", "id 30 via")
	})
}
