package scenario

import (
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// dnsmasqPackages is dnsmasq with what it needs beyond the guests' userland.
var dnsmasqPackages = []string{"dnsmasq-base", "libnetfilter-conntrack3", "libnfnetlink0", "libnftables1", "libnftnl11",
	"libjansson4", "libidn2-0", "libunistring2", "libhogweed6", "libnettle8", "libgmp10", "libmnl0", "libdbus-1-3"}

// The DHCP client of systemd-networkd beside ibnetworkd, as
// docs/tasks/beside-networkd.md has it, against dnsmasq on another adapter of
// the fabric: a datagram link, a connected one, and a P_Key child that
// ibnetworkd makes.
func TestNetworkdDHCP(t *testing.T) {
	t.Parallel()
	const client = "[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n[DHCPv4]\nClientIdentifier=mac\n"
	child := func(name string) string { return "[Partition]\nPartitionKey=0x8001\nName=" + name + "\n" }
	c := lab.Config{Userland: lab.Systemd, HCAs: 3, Bins: []string{ibnetworkd},
		Units: []string{"systemd-networkd.service"}, Files: map[string]string{
			unitDir + "20-ib0.network":   "[Match]\nName=ib0\n" + client,
			unitDir + "20-ib1.network":   "[Match]\nName=ib1\n" + client,
			unitDir + "20-one.network":   "[Match]\nName=one\n" + client,
			unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[IPoIB]\nMode=datagram\n[Link]\nMTUBytes=max\n" + child("one"),
			unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=max\n",
			unitDir + "10-ib2.ibnetwork": "[Match]\nName=ib2\n[Network]\nAddress=10.11.0.1/24\n" + child("far"),
			unitDir + "10-far.ibnetwork": "[Match]\nName=far\n[Network]\nAddress=10.12.0.1/24\n",
		}}
	c.Bins = append(c.Bins, debs(t, dnsmasqPackages...)...)
	lab.Run(t, c, func(g *lab.G) {
		unpack(g)
		manage(g, defaultPartition+onePartition)
		d := startDaemon(g)
		d.configured("ib2", 20*time.Second)
		d.configured("far", 20*time.Second)
		g.Sh("dnsmasq --conf-file=/dev/null --port=0 --user=root --no-ping --bind-interfaces --interface=ib2 --interface=far " +
			"--except-interface=lo --dhcp-authoritative --dhcp-leasefile=/tmp/leases --log-dhcp --log-facility=/tmp/dnsmasq.log " +
			"--pid-file=/tmp/dnsmasq.pid --dhcp-range=10.11.0.100,10.11.0.200,1h --dhcp-range=10.12.0.100,10.12.0.200,1h")
		leased := func(names ...string) {
			g.Helper()
			for _, name := range names {
				prefix := "10.11.0."
				if name == "one" {
					prefix = "10.12.0."
				}
				if !within(40*time.Second, func() bool {
					out, _ := g.Try("ip", "-4", "-o", "address", "show", "dev", name, "dynamic")
					return strings.Contains(out, "inet "+prefix)
				}) {
					out, _ := g.Try("sh", "-c", "ip -o address; networkctl status --no-pager -n 20 "+name+"; cat /tmp/dnsmasq.log")
					g.Errorf("%s has no address by DHCP:\n%s", name, out)
				}
			}
		}
		leased("ib0", "ib1", "one")
		d.configured("ib0", 10*time.Second)
		d.configured("ib1", 10*time.Second)
		if mode(g, "ib0") != "datagram" || mode(g, "ib1") != "connected" || mtu(g, "ib1") != "65520" {
			g.Errorf("ib0 %s, ib1 %s with MTU %s", mode(g, "ib0"), mode(g, "ib1"), mtu(g, "ib1"))
		}
		g.Logf("leases:\n%s", g.Exec("cat", "/tmp/leases"))
		g.Logf("asked with:\n%s", grep(g.Exec("cat", "/tmp/dnsmasq.log"), "DHCPDISCOVER"))

		// The link and its child come back without their configuration.
		before := leasedAddress(g, "one")
		g.Ctl("del 0")
		within(20*time.Second, func() bool { return strings.TrimSpace(g.Sh("ls /sys/class/net | grep -c '^one$' || true")) == "0" })
		g.Ctl("add 0")
		leased("ib0", "one")
		if after := leasedAddress(g, "one"); before == "" || after != before {
			g.Errorf("the child had %q, after a restart of the driver %q", before, after)
		}
	})
}
