package scenario

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// The keys that TestEverything has no place for, in the same way: set, found
// again, nothing to do after a restart, gone with the unit.
func TestEverythingElse(t *testing.T) {
	t.Parallel()
	const unit = `[Match]
Name=va

[Link]
Promiscuous=yes
ARP=no
Group=7
Multicast=yes

[Network]
Address=10.18.0.1/24
DefaultRouteOnDevice=yes
IPv4ProxyARPPrivateVLAN=yes
IPv4AcceptLocal=yes
IPv4RouteLocalnet=yes
IPv6ProxyNDP=yes
IPv6MTUBytes=1400
IPv6LinkLocalAddressGenerationMode=none
IPv6PrivacyExtensions=prefer-public

[Address]
Address=fd00:18::1/64
HomeAddress=yes
DuplicateAddressDetection=none

[Address]
Address=fd00:18:1::1/64
ManageTemporaryAddress=yes

[Address]
Address=fd00:18:2::1/128
Peer=fd00:18:2::2/128

[Address]
Address=10.18.9.1/24
AutoJoin=no
PreferredLifetime=0

[Route]
Destination=10.181.0.0/16
Gateway=10.18.0.9
HopLimit=9
InitialAdvertisedReceiveWindow=30
FastOpenNoCookie=yes
TCPAdvertisedMaximumSegmentSize=1200
TCPCongestionControlAlgorithm=reno
TCPRetransmissionTimeoutSec=300ms

[Route]
Destination=10.182.0.0/16
Type=prohibit

[Route]
Destination=10.183.0.0/16
Type=throw
Table=77

[Route]
Destination=10.18.0.77/32
Type=local

[Route]
Destination=fd00:181::/32
MultiPathRoute=fd00:18::9
MultiPathRoute=fd00:18::a 3

[Route]
Destination=fd00:182::/32
Source=fd00:18::/64
Gateway=fd00:18::9
Metric=5

[NextHop]
Id=5
Family=ipv6

[NextHop]
Id=6
Blackhole=yes

[NextHop]
Id=8
Gateway=10.180.0.1
OnLink=yes

[NextHop]
Id=9
Gateway=fd00:18::9

[NextHop]
Id=10
Group=8 9:255

[NextHop]
Id=11
Family=ipv6
Blackhole=yes

[Route]
Destination=fd00:183::/32
NextHop=5

[Route]
Destination=10.184.0.0/16
NextHop=6

[Route]
Destination=10.185.0.0/16
NextHop=10
MTUBytes=1300

[Route]
Destination=10.186.0.0/16
NextHop=9

[Route]
Destination=fd00:184::/32
NextHop=11

[RoutingPolicyRule]
From=10.18.0.0/24
Table=77

[RoutingPolicyRule]
To=fd00:182::/32
Table=77

[RoutingPolicyRule]
TypeOfService=16
OutgoingInterface=va
Family=both
Table=78

[RoutingPolicyRule]
SuppressInterfaceGroup=7
Priority=4000
Table=77

[RoutingPolicyRule]
L3MasterDevice=yes
Priority=4001

[RoutingPolicyRule]
GoTo=5000
Priority=4002

[RoutingPolicyRule]
Type=nop
Priority=5000

[RoutingPolicyRule]
Type=unreachable
DestinationPort=9
IPProtocol=tcp
Priority=4003

[RoutingPolicyRule]
Type=prohibit
SourcePort=9-10
IPProtocol=udp
Family=ipv6
Priority=4003
`
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{unitDir + "10.ibnetwork": unit}},
		func(g *lab.G) {
			g.Sh("ip link add va type veth peer name vb; ip link set vb up")
			d := startDaemon(g)
			d.wait("va", "waiting for lo", 15*time.Second, func(s link.Status) bool {
				for _, a := range s.Attributes {
					if strings.HasPrefix(a.Why.Text, "lo is down: nexthop ") {
						return true
					}
				}
				return false
			})
			g.Sh("ip link set lo up")
			d.configured("va", 15*time.Second)
			quiet(g, d)
			if p := d.report().Problems; len(p) > 0 {
				g.Errorf("problems:\n%s", strings.Join(p, "\n"))
			}
			whys := func(when string) {
				for _, a := range d.status("va").Attributes {
					if a.Why != (link.Reason{}) {
						g.Errorf("%s: %s: wanted %s, is %s: %s", when, a.Name, a.Wanted, a.Actual, a.Why.Text)
					}
				}
			}
			whys("at first")
			show := func() string {
				return g.Sh("ip -d link show va; ip -d address show va; ip route show table all dev va; ip route show table 77; ip route show " +
					"type prohibit; ip route show type local table local; ip -6 route show table main; ip rule; ip -6 rule; ip nexthop show; " +
					"ip route show type blackhole; ip route show 10.185.0.0/16; ip route show 10.186.0.0/16")
			}
			out := show()
			for _, w := range []string{"PROMISC", "NOARP", "group 7", "home", "mngtmpaddr", "peer fd00:18:2::2", "default", "congctl reno",
				"rto_min lock 300ms", "advmss 1200", "fastopen_no_cookie 1", "prohibit 10.182",
				"throw 10.183", "local 10.18.0.77", "nexthop via fd00:18::a", "from fd00:18::/64 via", "l3mdev", "goto 5000",
				"suppress_ifgroup 7", "ipproto ipproto-6", "id 5 dev va", "id 6 blackhole", "id 8 via 10.180.0.1 dev va scope link",
				"id 9 via fd00:18::9 dev va", "id 10 group 8/9,255", "id 11 blackhole", "fd00:183::/32 nhid 5", "10.184.0.0/16 nhid 6",
				"10.185.0.0/16 nhid 10", "10.186.0.0/16 nhid 9 via inet6 fd00:18::9", "fd00:184::/32 nhid 11"} {
				if !strings.Contains(out, w) {
					g.Errorf("%q is not there", w)
				}
			}
			g.Log("\n" + out)
			d.kill()
			d.start()
			d.configured("va", 5*time.Second)
			quiet(g, d)
			if o := ops(d); len(o) > 0 {
				g.Errorf("a restart has something to do:\n%s", strings.Join(o, "\n"))
			}
			whys("after the restart")
			if now := show(); strings.Count(now, "\n") != strings.Count(out, "\n") {
				g.Errorf("after the restart there is\n%s", now)
			}
			g.Exec("rm", unitDir+"10.ibnetwork")
			g.WaitFor(5*time.Second, func() string {
				out := g.Sh("ip -4 -o address show va; ip -6 -o address show va scope global; ip route; ip route show table 77 2>/dev/null; ip " +
					"-6 route; ip rule; ip -6 rule; ip nexthop show")
				for _, x := range []string{"10.18", "fd00:", "prohibit", "lookup 77", "lookup 78", "goto", "l3mdev", "id "} {
					if strings.Contains(out, x) {
						return x + " stays:\n" + out
					}
				}
				return ""
			})
		})
}

// KeepConfiguration=static leaves what was set when the unit goes, as the administrator's,
// and takes it over when the unit comes back; a nexthop without a link also while the link is
// gone. Where IPv6 is disabled on the link the kernel refuses what the status says it does.
func TestKeepConfiguration(t *testing.T) {
	t.Parallel()
	unit := func(keep string) string {
		return "[Match]\nName=va\n[Network]\nAddress=10.19.0.1/24\nAddress=fd19::1/64\nGateway=10.19.0.254\nLinkLocalAddressing=no\n" + keep +
			"[NextHop]\nId=7\nGateway=10.19.0.253\n[NextHop]\nId=8\nGateway=fd19::2\n[NextHop]\nId=9\nBlackhole=yes\n" +
			"[Route]\nDestination=10.20.0.0/16\nNextHop=7\n[Route]\nDestination=10.21.0.0/16\nNextHop=9\n"
	}
	void := []string{"id 9 blackhole", "blackhole 10.21.0.0/16 nhid 9"}
	all := append([]string{"inet 10.19.0.1/24", "inet6 fd19::1/64", "default via 10.19.0.254", "id 7 via 10.19.0.253 dev va",
		"id 8 via fd19::2 dev va", "10.20.0.0/16 nhid 7"}, void...)
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd},
		Files: map[string]string{unitDir + "10.ibnetwork": unit("")}}, func(g *lab.G) {
		add := func() { g.Sh("ip link add va type veth peer name vb; ip link set vb up") }
		g.Sh("ip link set lo up")
		add()
		d := startDaemon(g)
		d.configured("va", 15*time.Second)
		noIPv6(g, d)
		// The key alone changes nothing on the link, and is remembered.
		g.Write(unitDir+"10.ibnetwork", unit("KeepConfiguration=static\n"))
		kept := func() bool {
			b, _ := os.ReadFile("/run/ibnetworkd/record.json")
			return strings.Contains(string(b), `"keep":true`)
		}
		g.Wait("the note", 5*time.Second, kept)
		has := func(what ...string) string {
			out := g.Sh("ip -o address show; ip route; ip nexthop; ip -6 nexthop")
			for _, w := range what {
				if !strings.Contains(out, w) {
					return fmt.Sprintf("no %q in\n%s\n%s", w, out, tail(d.p.Output(), 10))
				}
			}
			return ""
		}
		g.Exec("rm", unitDir+"10.ibnetwork")
		d.wait("va", "nobody's", 5*time.Second, func(s link.Status) bool { return s.State == link.StateUnmanaged })
		quiet(g, d)
		if bad := has(all...); bad != "" {
			g.Errorf("what was to stay is gone: %s", bad)
		}
		d.kill()
		d.start()
		g.Write(unitDir+"10.ibnetwork", unit("KeepConfiguration=static\n"))
		d.configured("va", 5*time.Second)
		if bad := has(all...); bad != "" {
			g.Errorf("the unit is back and what it asks for is gone: %s", bad)
		}
		g.Sh("ip link delete va")
		d.wait("va", "gone", 5*time.Second, func(s link.Status) bool { return s.Name == "" })
		quiet(g, d)
		if bad := has(void...); bad != "" {
			g.Errorf("without the link: %s", bad)
		}
		add()
		g.Write(unitDir+"10.ibnetwork", unit(""))
		d.configured("va", 15*time.Second)
		g.WaitFor(5*time.Second, func() string { return has(all...) })
		g.Wait("no note", 5*time.Second, func() bool { return !kept() })
		g.Exec("rm", unitDir+"10.ibnetwork")
		g.WaitFor(5*time.Second, func() string {
			out := g.Sh("ip -o address show va; ip route; ip nexthop; ip -6 nexthop")
			for _, w := range []string{"10.19.0", "fd19::", "10.2", "id 7", "id 8", "id 9"} {
				if strings.Contains(out, w) {
					return w + " stays: " + out
				}
			}
			return ""
		})
	})
}

// noIPv6 disables IPv6 on va for a while: the kernel refuses addresses and nexthops then
// (EACCES), which are not tried, and they come back at once.
func noIPv6(g *lab.G, d *service) {
	g.Sh("sysctl -qw net.ipv6.conf.va.disable_ipv6=1; ip nexthop delete id 8")
	d.wait("va", "without IPv6", 20*time.Second, func(s link.Status) bool {
		n := 0
		for _, x := range s.Attributes {
			if strings.Contains(x.Wanted, "fd19::") && x.Why.Text == "IPv6 is disabled on va" {
				n++
			}
		}
		return n == 2
	})
	quiet(g, d)
	for cmd, want := range map[string]string{"address add fd19::1/64 dev va": "IPv6 is disabled on this device",
		"nexthop add id 88 dev va": "IPv6 is disabled on nexthop device"} {
		if out, err := g.Try("sh", "-c", "ip -6 "+cmd); err == nil || !strings.Contains(out+err.Error(), want) {
			g.Errorf("%s: %s (%v)", cmd, out, err)
		}
	}
	if out := d.p.Output(); strings.Contains(out, "kernel refused") {
		g.Errorf("tried all the same:\n%s", tail(out, 10))
	}
	begin := time.Now()
	g.Sh("sysctl -qw net.ipv6.conf.va.disable_ipv6=0")
	g.WaitFor(20*time.Second, func() string {
		out := g.Sh("ip -o -6 address show va; ip -6 nexthop")
		if !strings.Contains(out, "fd19::1/64") || !strings.Contains(out, "id 8 via fd19::2") {
			return "IPv6 is enabled again:\n" + out + tail(d.p.Output(), 10)
		}
		return ""
	})
	d.configured("va", 20*time.Second)
	g.Logf("with IPv6 again %v after it was enabled", time.Since(begin).Round(time.Millisecond))
}

// BindCarrier= follows the carrier of links that no unit here configures.
func TestBindCarrier(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[IPoIB]\nMode=datagram\n[Network]\nAddress=10.20.0.1/24\nBindCarrier=up*\n",
	}}, func(g *lab.G) {
		manage(g, defaultPartition)
		d := startDaemon(g)
		st := d.wait("ib0", "told that there is nothing to follow", 10*time.Second,
			func(s link.Status) bool { return attr(s, "ActivationPolicy").Why.Code == link.CodeNoCarrier })
		g.Log(attr(st, "ActivationPolicy").Why.Text)
		g.Sh("ip link add up1 type veth peer name far1; ip link add up2 type veth peer name far2; ip link set up1 up; ip link set up2 up")
		d.wait("ib0", "down while none has carrier", 10*time.Second, func(s link.Status) bool {
			a := attr(s, "ActivationPolicy")
			return a.Actual == "down" && a.Why.Code == link.CodeLinkDown
		})
		g.Exec("ip", "link", "set", "far2", "up")
		d.configured("ib0", 10*time.Second)
		g.Exec("ip", "link", "set", "far1", "up")
		g.Exec("ip", "link", "set", "far2", "down")
		quiet(g, d)
		if s := d.status("ib0"); !s.Carrier {
			g.Errorf("down although one of two has carrier: %+v", s)
		}
		g.Exec("ip", "link", "set", "far1", "down")
		d.wait("ib0", "down again", 10*time.Second, func(s link.Status) bool { return s.Oper == units.OperOff })
		g.Exec("ip", "link", "set", "far1", "up")
		st = d.configured("ib0", 10*time.Second)
		if !strings.Contains(strings.Join(st.Addresses, " "), "10.20.0.1/24") {
			g.Errorf("addresses %v", st.Addresses)
		}
	})
}

// The real NetworkManager has a link that a unit matches: that is reported once, the
// link is left alone, and taken when NetworkManager lets it go.
func TestBesideNetworkManager(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Systemd, HCAs: 2, Bins: []string{ibnetworkd, ibnetctl},
		Units: []string{"NetworkManager.service"}, Files: map[string]string{
			"/etc/NetworkManager/conf.d/lab.conf":   "[main]\nno-auto-default=*\n[keyfile]\nunmanaged-devices=none\n",
			"/usr/lib/udev/rules.d/85-nm-lab.rules": "",
			unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=max\n[Network]\n" +
				"Address=10.21.0.2/24\n",
			unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[IPoIB]\nMode=connected\n[Network]\nAddress=10.22.0.1/24\n",
		}}, func(g *lab.G) {
		manage(g, defaultPartition)
		g.Exec("systemctl", "start", "NetworkManager")
		g.WaitFor(30*time.Second, func() string {
			if out, err := g.Try("nmcli", "-t", "-f", "RUNNING", "general"); err != nil || !strings.Contains(out, "running") {
				return out
			}
			return ""
		})
		g.Exec("nmcli", "device", "set", "ib0", "managed", "yes")
		g.Exec("nmcli", "device", "set", "ib1", "managed", "no")
		g.WaitFor(30*time.Second, func() string {
			out, err := g.Try("nmcli", "connection", "add", "type", "infiniband", "con-name", "theirs", "ifname", "ib0",
				"infiniband.transport-mode", "datagram",
				"ipv4.method", "manual", "ipv4.addresses", "10.21.0.1/24", "ipv6.method", "disabled")
			if err != nil {
				return out
			}
			if out, err := g.Try("nmcli", "-w", "20", "connection", "up", "theirs"); err != nil {
				return out
			}
			return ""
		})
		d := startDaemon(g)
		st := d.wait("ib0", "left alone", 20*time.Second, func(s link.Status) bool { return s.State == link.StateUnmanaged })
		if st.Reason().Code != link.CodeOtherManager || !strings.Contains(st.Reason().Text, "NetworkManager") ||
			!strings.Contains(st.Reason().Next, "nmcli device set ib0 managed no") {
			g.Errorf("ib0: %+v", st.Reasons)
		}
		g.Logf("said: %s; %s", st.Reason().Text, st.Reason().Next)
		d.configured("ib1", 20*time.Second)
		d.p.Signal(1) // SIGHUP
		quiet(g, d)
		if n := strings.Count(d.p.Output(), "NetworkManager manages ib0"); n != 1 {
			g.Errorf("that NetworkManager manages ib0 is said %d times\n%s", n, tail(d.p.Output(), 20))
		}
		if out := g.Exec("ip", "-o", "address", "show", "dev", "ib0"); mode(g, "ib0") != "datagram" ||
			strings.Contains(out, "10.21.0.2/") || !strings.Contains(out, "10.21.0.1/24") {
			g.Errorf("ib0 was touched: mode %s\n%s", mode(g, "ib0"), out)
		}
		// What the sentence says to do.
		g.Exec("nmcli", "device", "set", "ib0", "managed", "no")
		st = d.configured("ib0", 30*time.Second)
		if mode(g, "ib0") != "connected" || mtu(g, "ib0") != "65520" || !strings.Contains(strings.Join(st.Addresses, " "), "10.21.0.2/24") {
			g.Errorf("ib0 was not taken: mode %s, mtu %s, %v", mode(g, "ib0"), mtu(g, "ib0"), st.Addresses)
		}
		// And back.
		g.Exec("nmcli", "device", "set", "ib0", "managed", "yes")
		d.wait("ib0", "left alone again", 20*time.Second, func(s link.Status) bool { return s.State == link.StateUnmanaged })
	})
}
