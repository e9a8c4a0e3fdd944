package scenario

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// Macvlans and ipvlans of a RoCE link, one here and one in a network namespace: both reach the
// network and each other, their addresses have GIDs at the device of the link. Modes change in place but for
// passthru, a restart of the driver brings them back with the same MAC addresses, ipvlans replace
// macvlans in one plan, and what the unit no longer has is removed.
func TestMACVLAN(t *testing.T) {
	t.Parallel()
	const eth = "[Match]\nIBDevice=swib0\nKind=!*vlan\n[Port]\nType=eth\n[Network]\nAddress=10.7.1.1/24\n"
	lab.Run(t, installed(lab.Config{HCAs: 2}, map[string]string{
		"10-eth.ibnetwork":  eth + "[MACVLAN]\nName=here\nMode=bridge\n[MACVLAN]\nName=there\nMode=bridge\nMTUBytes=1400\nNetworkNamespace=job\n",
		"20-here.ibnetwork": "[Match]\nName=here\n[Network]\nAddress=10.7.2.1/24\n",
		"30-peer.ibnetwork": "[Match]\nIBDevice=swib1\n[Port]\nType=eth\n[Network]\nAddress=10.7.3.9/24\n",
	}), func(g *lab.G) {
		defer journal(g)
		parent := func() link.Status {
			for _, l := range describe(g).Links {
				if l.IBDevice == "swib0" && !link.IsVLAN(l.Kind) {
					return l
				}
			}
			return link.Status{}
		}
		// both waits until what the unit asks for is there, and no setting waits for anything.
		both := func(section string, here, there string) {
			g.Helper()
			begin := time.Now()
			g.WaitFor(30*time.Second, func() string {
				p := parent()
				for _, a := range p.Attributes {
					if a.Name == section && !a.OK() {
						return fmt.Sprintf("%s: %+v", p.Name, a)
					}
				}
				h, err := g.Try("ip", "-o", "-d", "link", "show", "here")
				if n := inJob(g, "link show there"); err != nil || !strings.Contains(h, here) || !strings.Contains(h, ",UP") ||
					!strings.Contains(n, there) || !strings.Contains(n, ",UP") || !strings.Contains(n, "mtu 1400") {
					return fmt.Sprintf("here is %q, not %q; there is %q, not %q", h, here, n, there)
				}
				return ""
			})
			g.Logf("%s and %s after %v", here, there, time.Since(begin).Round(10*time.Millisecond))
		}
		// reach adds addresses in the network namespace and pings the peer and the interface here.
		reach := func() {
			g.Helper()
			g.Sh("ip -n job address replace 10.7.2.2/24 dev there; ip -n job address replace 10.7.3.2/24 dev there")
			for _, to := range []string{"10.7.3.9", "10.7.2.1"} {
				g.Wait("a ping of "+to, 30*time.Second, func() bool {
					_, err := g.Try("ip", "netns", "exec", "job", "ping", "-c1", "-W1", to)
					return err == nil
				})
			}
			g.WaitFor(20*time.Second, func() string {
				has := map[string]bool{}
				for i := range 32 {
					has["here"] = has["here"] || gidSlot{"swib0", i}.has("here", "0a07:0201")
					has["there"] = has["there"] || gidSlot{"swib0", i}.has("there", "0a07:0202")
				}
				if !has["here"] || !has["there"] {
					return g.Sh("cd /sys/class/infiniband/swib0/ports/1; grep -s . gids/* gid_attrs/ndevs/* | grep -v 0000:0000:0000:0000$")
				}
				if env, _ := g.Try("cat", "/run/ibnetworkd/links/here.env"); !strings.Contains(env, "NCCL_IB_GID_INDEX=") {
					return "here.env: " + env
				}
				return ""
			})
		}
		mac := func() string { return strings.Fields(g.Sh("ip -br link show here") + " - -")[2] }
		write := func(text string) { g.Helper(); g.Write(unitDir+"10-eth.ibnetwork", eth+text) }

		g.Wait("the macvlan here", 60*time.Second, func() bool { _, err := g.Try("ip", "link", "show", "here"); return err == nil })
		g.Sh("ip netns add job")
		both("MACVLAN", "macvlan mode bridge", "macvlan mode bridge")
		reach()
		was, index := mac(), g.Read("/sys/class/net/here/ifindex")

		write("[MACVLAN]\nName=here\nMode=private\n[MACVLAN]\nName=there\nMode=bridge\nMTUBytes=1400\nNetworkNamespace=job\n")
		both("MACVLAN", "macvlan mode private", "macvlan mode bridge")
		g.Sh("ip link set dev here type macvlan mode vepa; ibnetctl reload")
		both("MACVLAN", "macvlan mode private", "macvlan mode bridge")
		if now := g.Read("/sys/class/net/here/ifindex"); now != index {
			g.Error("it was made again for its mode")
		}

		g.Ctl("del 0")
		g.Wait("the end of the macvlans", 20*time.Second, func() bool { return inJob(g, "link show there") == "" })
		g.Ctl("add 0")
		both("MACVLAN", "macvlan mode private", "macvlan mode bridge")
		if now := mac(); now != was {
			g.Errorf("the MAC address is %s after a restart of the driver, was %s", now, was)
		}
		g.Sh("ip netns delete job; ip netns add job")
		both("MACVLAN", "macvlan mode private", "macvlan mode bridge")

		// Ipvlans come where macvlans were: the kernel has only one of the kinds on a link.
		write("[IPVLAN]\nName=here\nMode=L3\n[IPVLAN]\nName=there\nMode=L3\nMTUBytes=1400\nNetworkNamespace=job\n")
		both("IPVLAN", "ipvlan  mode l3 bridge", "ipvlan  mode l3 bridge")
		write("[IPVLAN]\nName=here\n[IPVLAN]\nName=there\nMTUBytes=1400\nNetworkNamespace=job\n")
		both("IPVLAN", "ipvlan  mode l2 bridge", "ipvlan  mode l2 bridge")
		reach()
		write("[IPVLAN]\nName=here\nMode=L3S\nFlags=private\n" +
			"[IPVLAN]\nName=there\nMode=L3S\nFlags=private\nMTUBytes=1400\nNetworkNamespace=job\n")
		both("IPVLAN", "ipvlan  mode l3s private", "ipvlan  mode l3s private")

		write("[MACVLAN]\nName=here\nMode=bridge\n")
		only := func(mode string) func() string {
			return func() string {
				out, _ := g.Try("ip", "-o", "-d", "link", "show", "here")
				if a := attr(parent(), "MACVLAN"); !a.OK() || a.Wanted == "" || !strings.Contains(out, "macvlan mode "+mode) {
					return fmt.Sprintf("%q, %+v", out, a)
				}
				return ""
			}
		}
		g.WaitFor(20*time.Second, only("bridge"))
		if inJob(g, "link show there") != "" {
			g.Error("an ipvlan is left in the network namespace")
		}
		write("[MACVLAN]\nName=here\nMode=passthru\n")
		g.WaitFor(20*time.Second, only("passthru"))
		write("")
		g.WaitFor(20*time.Second, func() string {
			out, err := g.Try("ip", "link", "show", "here")
			if err == nil {
				return out
			}
			return ""
		})
		if out := g.Sh("journalctl -b --no-pager -p warning -u ibnetworkd"); strings.Contains(out, "vlan") {
			g.Errorf("warnings about macvlans or ipvlans:\n%s", out)
		}
	})
}
