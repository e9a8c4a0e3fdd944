package scenario

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// Soft RoCE on a laptop's link with one file, a VLAN beside it, rping over it,
// and the index right over flaps and reloads.
func TestSoftRoCE(t *testing.T) {
	t.Parallel()
	unit := func(n int) string {
		return fmt.Sprintf("[Match]\nName=v%d\n[SoftRoCE]\nDriver=rxe\n[RoCE]\nVersion=2\nDSCP=26\n[VLAN]\nId=7\nName=storage%d\n"+
			"[Network]\nAddress=10.8.0.%d/24\n", n, n, n)
	}
	policy, _ := os.ReadFile("../../dist/dbus/org.ibnetwork1.conf") // not there in the guest, where the file is
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-a.ibnetwork": unit(1), "/usr/share/dbus-1/system.d/org.ibnetwork1.conf": string(policy),
	}}, func(g *lab.G) {
		g.Sh("mkdir -p /run/dbus && dbus-daemon --system --fork")
		g.Exec("ip", "link", "add", "v1", "type", "veth", "peer", "name", "v2")
		g.Exec("ip", "link", "set", "v2", "up")
		d := startDaemon(g)
		st := d.wait("v1", "configured with its RDMA device", 20*time.Second, func(s link.Status) bool {
			return s.State == link.StateConfigured && attr(s, "SoftRoCE").OK() && attr(s, "SoftRoCE").Actual != "" &&
				attr(s, "GIDIndexIPv4").Actual != "" && attr(s, "Version").Actual == "2"
		})
		for _, name := range []string{"SoftRoCE", "VLAN", "TypeOfService"} {
			if a := attr(st, name); !a.OK() || a.Wanted == "" {
				g.Errorf("%s: %+v", name, a)
			}
		}
		if out := g.Exec("ip", "-d", "link", "show", "dev", "storage1"); !strings.Contains(out, "id 7") {
			g.Error(out)
		}
		if out := g.Exec("rdma", "link"); !strings.Contains(out, "rxe_v1/1") || !strings.Contains(out, "netdev v1") {
			g.Error(out)
		}
		env := func() string {
			b, _ := os.ReadFile("/run/ibnetworkd/links/v1.env")
			return string(b)
		}
		g.Wait("the index in the file", 5*time.Second, func() bool { return rightIndex(env(), "rxe_v1", 1, "0a08:0001") == nil })
		first := env()
		// Status and bus say the index that the file has.
		said := func() string {
			index := ""
			for line := range strings.Lines(env()) {
				if v, ok := strings.CutPrefix(line, "IBNET_GID_INDEX_IPV4="); ok {
					index = strings.TrimSpace(v)
				}
			}
			s := d.status("v1")
			if a := attr(s, "GIDIndexIPv4"); index == "" || a.Actual != index {
				return fmt.Sprintf("the file has the index %q, the status %+v", index, a)
			}
			out, err := g.Try("busctl", "get-property", "org.ibnetwork1", api.LinkPath(s.Ifindex), "org.ibnetwork1.Link", "Settings")
			if err != nil || !strings.Contains(out, fmt.Sprintf(`"GIDIndexIPv4" "" %q`, index)) {
				return fmt.Sprintf("the file has the index %q, the bus: %v\n%s", index, err, out)
			}
			return ""
		}
		g.WaitFor(20*time.Second, said)
		// The daemon's doings and those of others, as fast as requests go.
		c, err := rtnl.Dial()
		testkit.NoError(g, err)
		v1, err := c.LinkByName("v1", false)
		testkit.NoError(g, err)
		v2, err := c.LinkByName("v2", false)
		testkit.NoError(g, err)
		up := func(v bool) rtnl.Request { return rtnl.SetLink(v2.Index, rtnl.LinkChange{Up: &v}) }
		other := func(i int) rtnl.Address {
			return rtnl.Address{Index: v1.Index, Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i), 1}), 24)}
		}
		for i := range 100 {
			var r rtnl.Request
			switch i % 4 {
			case 0:
				r = up(false)
			case 1:
				r = rtnl.AddAddress(other(i))
			case 2:
				r = up(true)
			case 3:
				r = rtnl.DelAddress(other(i - 2))
			}
			testkit.NoError(g, c.Do(r))
			if i%25 == 0 {
				d.p.Signal(syscall.SIGHUP)
			}
			// Reading the table takes longer than the changes.
			if i%10 == 9 {
				if err := rightIndex(env(), "rxe_v1", 1, "0a08:0001"); err != nil {
					g.Fatalf("after change %d: %v", i+1, err)
				}
			}
		}
		g.WaitFor(10*time.Second, said)
		// 100 flaps of the cable, and as many times everything taken off by
		// a user and put back by the unit.
		g.Exec("ip", "link", "set", "v2", "up")
		for i := range 100 {
			for _, v := range []bool{false, true} {
				testkit.NoError(g, c.Do(up(v)))
			}
			if i%10 == 0 {
				d.p.Signal(syscall.SIGHUP)
			}
			// Reading the table takes longer than a flap.
			if i%20 == 19 {
				if err := rightIndex(env(), "rxe_v1", 1, "0a08:0001"); err != nil {
					g.Fatalf("after flap %d: %v", i+1, err)
				}
			}
		}
		g.WaitFor(10*time.Second, said)
		if now := env(); now != first {
			g.Errorf("the file changed:\n%s\nwas\n%s", now, first)
		}
		// An address that is taken off and comes again may get another index:
		// what is published follows.
		for i := range 3 {
			g.Exec("ip", "address", "del", "10.8.0.1/24", "dev", "v1")
			if i%2 == 0 {
				g.Exec("ip", "address", "add", fmt.Sprintf("10.9.200.%d/24", i+1), "dev", "v1")
			}
			g.WaitFor(10*time.Second, func() string {
				// The old index is right until the kernel's work queue takes it off.
				if out := g.Exec("ip", "-4", "address", "show", "dev", "v1"); !strings.Contains(out, "10.8.0.1/24") {
					return "the address is not there again:\n" + out
				}
				if err := rightIndex(env(), "rxe_v1", 1, "0a08:0001"); err != nil {
					return err.Error()
				}
				return said()
			})
		}
		// rping over the link and its device, to itself.
		g.Exec("ip", "link", "set", "v2", "up")
		rping(g, "10.8.0.1", "10.8.0.1", "-C", "3")

		// The same by the GID of a macvlan's address, which is in the table of the parent's device.
		g.Sh("mkdir %s10-a.ibnetwork.d", unitDir)
		g.Write(unitDir+"10-a.ibnetwork.d/mac.conf", "[MACVLAN]\nName=mac1\nMode=bridge\n")
		g.Write(unitDir+"20-mac.ibnetwork", "[Match]\nName=mac1\n[Network]\nAddress=10.9.0.1/24\n")
		d.p.Signal(syscall.SIGHUP)
		d.configured("mac1", 20*time.Second)
		g.WaitFor(10*time.Second, func() string {
			text, _ := os.ReadFile("/run/ibnetworkd/links/mac1.env")
			if err := rightIndex(string(text), "rxe_v1", 1, "0a09:0001"); err != nil {
				return err.Error()
			}
			return ""
		})
		rping(g, "10.9.0.1", "10.9.0.1", "-C", "3")
		g.Sh("rm -r %[1]s10-a.ibnetwork.d %[1]s20-mac.ibnetwork", unitDir)

		// What the unit made goes with it, also after a kill; what others made
		// stays.
		g.Exec("rdma", "link", "add", "foreign", "type", "siw", "netdev", "v2")
		g.Exec("ip", "link", "add", "link", "v1", "name", "foreign7", "type", "vlan", "id", "9")
		d.kill()
		d.start()
		d.configured("v1", 20*time.Second)
		testkit.NoError(g, os.Remove(unitDir+"10-a.ibnetwork"))
		d.p.Signal(syscall.SIGHUP)
		g.WaitFor(10*time.Second, func() string {
			// rdma fails if a device goes between its list and the reading of it.
			devs, err := g.Try("rdma", "link")
			if err != nil {
				return err.Error()
			}
			links := g.Exec("ip", "-o", "link")
			if strings.Contains(devs, "rxe_v1") || strings.Contains(links, "storage1") {
				return "still there:\n" + devs + links + tail(d.p.Output(), 10)
			}
			if !strings.Contains(devs, "foreign") || !strings.Contains(links, "foreign7") {
				g.Fatalf("foreign things are gone:\n%s%s", devs, links)
			}
			return ""
		})
		g.Wait("the environment file is gone", 5*time.Second,
			func() bool { _, err := os.Stat("/run/ibnetworkd/links/v1.env"); return err != nil })
	})
}
