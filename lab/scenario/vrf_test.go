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

// Two rails with one and the same address, apart by a VRF: [VRF] makes it, the routes of
// the unit are in its table, and it goes with the unit. A VRF of another program is joined
// when it comes, and nothing is set before.
func TestVRF(t *testing.T) {
	t.Parallel()
	unit := unitDir + "10-ib0.ibnetwork"
	withAndWithoutUdev(t, lab.Config{HCAs: 3, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unit: "[Match]\nName=ib0\n[VRF]\nName=red\nTable=100\n[Network]\nAddress=10.6.0.1/24\nAddress=2001:db8::1/64\n" +
			"[Route]\nDestination=10.7.0.0/16\nGateway=10.6.0.2\n",
		unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[Network]\nVRF=blue\nAddress=10.6.0.1/24\n",
	}}, func(g *lab.G) {
		g.SM(lab.SM{})
		g.Sh("ip netns add peer; ip link set ib2 netns peer; ip -n peer link set ib2 up; ip -n peer address add 10.6.0.2/24 dev ib2")
		d := startDaemon(g)
		inVRF := func() string {
			s := d.status("ib0")
			routes, _ := g.Try("ip", "route", "show", "table", "100")
			main, _ := g.Try("ip", "route", "show", "table", "main")
			addrs, _ := g.Try("ip", "-o", "address", "show", "dev", "ib0")
			if s.State != link.StateConfigured || s.Oper != "routable" || attr(s, "VRF").Actual != "red" ||
				!strings.Contains(routes, "10.7.0.0/16 via 10.6.0.2") || strings.Contains(main, "10.7.0.0/16") ||
				!strings.Contains(addrs, "10.6.0.1/24") || !strings.Contains(addrs, "2001:db8::1/64") {
				return fmt.Sprintf("%+v\n%s\n%s\n%s\n%s", s, routes, main, addrs, tail(d.p.Output(), 8))
			}
			return ""
		}
		g.WaitFor(40*time.Second, inVRF)
		g.Wait("the peer", 20*time.Second, func() bool { _, err := g.Try("ping", "-c1", "-W1", "-I", "red", "10.6.0.2"); return err == nil })
		if out := g.Exec("ibnetctl", "plan"); strings.Contains(out, "ib0") {
			g.Errorf("something is left to do:\n%s", out)
		}
		if _, err := g.Try("ping", "-c1", "-W1", "10.6.0.2"); err == nil {
			g.Errorf("10.6.0.2 is reached from outside of the VRF")
		}

		// The other one waits, without an address, for a VRF that does not exist yet.
		d.wait("ib1", "no such VRF", 20*time.Second, func(s link.Status) bool {
			return s.State == link.StateConfiguring && attr(s, "VRF").Why.Code == link.CodeNoDevice
		})
		if out := g.Sh("ip -4 address show dev ib1"); strings.Contains(out, "10.6.0.1") {
			g.Errorf("an address before the VRF:\n%s", out)
		}
		g.Sh("ip link add blue type vrf table 7; ip link set blue up")
		d.configured("ib1", 20*time.Second)
		if out := g.Sh("ip route show table 7"); !strings.Contains(out, "10.6.0.0/24 dev ib1") {
			g.Errorf("table 7:\n%s", out)
		}

		g.Exec("ibnetctl", "wait-online", "--timeout", "20s")
		g.Sh("ip link delete blue")
		g.Wait("the address to go with the VRF", 20*time.Second, func() bool {
			out, _ := g.Try("ip", "-4", "address", "show", "dev", "ib1")
			return !strings.Contains(out, "10.6.0.1")
		})

		// The adapter comes back, another program deletes the VRF, the daemon restarts.
		g.Ctl("del 0")
		g.Wait("ib0 to go", 20*time.Second, func() bool { _, err := os.Stat("/sys/class/net/ib0"); return err != nil })
		g.Ctl("add 0")
		g.WaitFor(40*time.Second, inVRF)
		g.Sh("ip link delete red")
		g.WaitFor(40*time.Second, inVRF)
		d.kill()
		d.start()
		g.WaitFor(40*time.Second, inVRF)

		g.Write(unit, "[Match]\nName=ib0\n[VRF]\nName=red\nTable=101\n[Network]\nAddress=10.6.0.1/24\n")
		g.Wait("another table", 20*time.Second, func() bool {
			out, _ := g.Try("ip", "route", "show", "table", "101")
			return strings.Contains(out, "10.6.0.0/24 dev ib0")
		})
		g.Write(unit, "[Match]\nName=ib0\n[Network]\nAddress=10.6.0.1/24\n")
		g.WaitFor(20*time.Second, func() string {
			if _, err := os.Stat("/sys/class/net/red"); err == nil {
				return "red is still there\n" + tail(d.p.Output(), 8)
			}
			if out, _ := g.Try("ip", "route", "show", "table", "main"); !strings.Contains(out, "10.6.0.0/24 dev ib0") {
				return "main:\n" + out
			}
			return ""
		})

		// A VRF that cannot be made, for its name is another one of a link: nothing is set outside of it.
		monitor := g.Start("ip", "-4", "monitor", "address")
		g.Sh("ip link property add dev ib0 altname green")
		g.Write(unitDir+"10-ib1.ibnetwork", "[Match]\nName=ib1\n[VRF]\nName=green\nTable=102\n[Network]\nAddress=10.8.0.1/24\n")
		d.wait("ib1", "VRF green refused", 20*time.Second, func(s link.Status) bool { return attr(s, "VRF").Why.Code == link.CodeNameTaken })
		g.Sh("ip link property del dev ib0 altname green")
		d.p.Signal(syscall.SIGHUP)
		d.configured("ib1", 40*time.Second)
		if out := monitor.Output(); strings.Contains(out, "Deleted") {
			g.Errorf("ib1 had its address before it was in the VRF:\n%s", out)
		}

		// It is deleted and cannot be made again: what is in it goes.
		d.p.Signal(syscall.SIGSTOP)
		g.Sh("ip link delete green; ip link property add dev ib0 altname green")
		d.p.Signal(syscall.SIGCONT)
		g.Wait("the address of ib1 to go", 20*time.Second, func() bool {
			out, _ := g.Try("ip", "-4", "address", "show", "dev", "ib1")
			return !strings.Contains(out, "10.8.0.1")
		})
		g.Sh("ip link property del dev ib0 altname green")
		d.p.Signal(syscall.SIGHUP)
		d.configured("ib1", 40*time.Second)
		if log := d.p.Output(); strings.Contains(log, "that it names does not exist") {
			g.Errorf("a second message hides the first:\n%s", tail(log, 12))
		}
	})
}
