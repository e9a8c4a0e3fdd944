package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// Every kind of address, route, rule and setting is understood by the kernel as
// it is meant: what was set is found again, so that a restart does nothing.
func TestEverything(t *testing.T) {
	t.Parallel()
	const unit = `[Match]
PortGUID=0x0253574942000101
Kind=ipoib
PartitionKey=0xffff

[Link]
MTUBytes=4092
AllMulticast=yes
RequiredForOnline=routable

[IPoIB]
Mode=datagram
IgnoreUserspaceMulticastGroups=yes

[Network]
Address=10.8.0.1/24
Address=fd00:8::1/64
Gateway=10.8.0.254
Gateway=fe80::1
LinkLocalAddressing=ipv6
IPv6AcceptRA=no
IPv6PrivacyExtensions=no
IPv4Forwarding=yes
IPv6Forwarding=yes
IPv6HopLimit=32
IPv6DuplicateAddressDetection=0
IPv4ReversePathFilter=loose
IPv4ProxyARP=yes
MultiRail=yes
ConfigureWithoutCarrier=no

[Address]
Address=10.8.1.1/24
Label=ib0:second
Broadcast=10.8.1.254
RouteMetric=77

[Address]
Address=10.8.2.1/32
Peer=10.8.2.2/32

[Address]
Address=fd00:8:1::1/64
PreferredLifetime=0
AddPrefixRoute=no

[Address]
Address=10.8.3.1/24
AddPrefixRoute=no
Scope=link

[Route]
Destination=10.80.0.0/16
Gateway=10.8.0.9
Metric=50
MTUBytes=1400
InitialCongestionWindow=20
QuickAck=yes
PreferredSource=10.8.0.1

[Route]
Destination=10.81.0.0/16
Scope=link

[Route]
Destination=10.82.0.0/16
Gateway=192.0.2.1
GatewayOnLink=yes
Table=100
Protocol=17

[Route]
Destination=10.83.0.0/16
Type=blackhole

[Route]
Destination=10.84.0.0/16
Type=unreachable
Metric=9

[Route]
Destination=fd00:80::/32
Gateway=fd00:8::9
IPv6Preference=high

[Route]
Destination=fd00:83::/32
Type=unreachable

[Route]
Destination=10.85.0.0/16
MultiPathRoute=10.8.0.10 3
MultiPathRoute=10.8.0.11 5

[RoutingPolicyRule]
From=10.8.0.0/24
Table=100
Priority=1000

[RoutingPolicyRule]
FirewallMark=7/255
Family=both
Table=100
Priority=1001
InvertRule=yes

[RoutingPolicyRule]
To=10.82.0.0/16
IncomingInterface=lo
SourcePort=1000-2000
DestinationPort=53
IPProtocol=udp
Priority=1002
SuppressPrefixLength=0

[RoutingPolicyRule]
From=10.9.9.9/32
Type=blackhole
Priority=1003
User=0-10
`
	withAndWithoutUdev(t, lab.Config{Bins: []string{ibnetworkd}, Files: map[string]string{unitDir + "10.ibnetwork": unit}},
		func(g *lab.G) {
			manage(g, defaultPartition)
			d := startDaemon(g)
			st := d.configured("ib0", 15*time.Second)
			quiet(g, d)
			if p := d.report().Problems; len(p) > 0 {
				g.Errorf("problems:\n%s", strings.Join(p, "\n"))
			}
			for _, a := range d.status("ib0").Attributes {
				if a.Why != (link.Reason{}) {
					g.Errorf("%s: wanted %s, is %s: %s", a.Name, a.Wanted, a.Actual, a.Why.Text)
				}
			}
			g.Logf("%d attributes, state %s", len(st.Attributes), st.State)
			g.Log("\n" + g.Sh("ip -d address show ib0; ip route show table all dev ib0; ip route show type blackhole; ip route show type "+
				"unreachable; ip -6 route show table main; ip rule; ip -6 rule; ip route show 10.85.0.0/16"))
			d.kill()
			d.start()
			d.configured("ib0", 5*time.Second)
			quiet(g, d)
			if o := ops(d); len(o) > 0 {
				g.Errorf("a restart has something to do:\n%s", strings.Join(o, "\n"))
			}
			for _, a := range d.status("ib0").Attributes {
				if a.Why != (link.Reason{}) {
					g.Errorf("after the restart: %s: wanted %s, is %s: %s", a.Name, a.Wanted, a.Actual, a.Why.Text)
				}
			}
			g.Exec("rm", unitDir+"10.ibnetwork")
			g.WaitFor(5*time.Second, func() string {
				out := g.Sh("ip -4 -o address show ib0; ip -6 -o address show ib0 scope global; ip route; ip route show table 100 2>/dev/null; " +
					"ip -6 route; ip rule; ip -6 rule")
				for _, x := range []string{"10.8", "fd00:", "blackhole", "unreachable 10", "lookup 100"} {
					if strings.Contains(out, x) {
						return x + " stays:\n" + out
					}
				}
				return ""
			})
		})
}
