package scenario

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// address6 is the address with a length of 128 that a link has, "" for none.
func address6(g *lab.G, name string) string {
	out, _ := g.Try("ip", "-6", "-o", "address", "show", "dev", name, "scope", "global", "dynamic")
	for f := range strings.FieldsSeq(out) {
		if strings.HasSuffix(f, "/128") {
			return f
		}
	}
	return ""
}

// leased6 waits until a link is configured with an address of a prefix by DHCPv6.
func (d *service) leased6(name, prefix string, limit time.Duration) (address string) {
	d.g.Helper()
	d.wait(name, "configured with an address of "+prefix, limit, func(s link.Status) bool {
		address = address6(d.g, name)
		return s.State == link.StateConfigured && strings.HasPrefix(address, prefix) && strings.Contains(attr(s, "DHCPv6").Actual, address)
	})
	return address
}

// The daemon's DHCPv6 client against dnsmasq on another adapter: by the unit, and by the flags
// of router advertisements for an address and for information alone; an address that another
// host has; restarts of the daemon and of the driver; no server.
func TestDHCPv6Client(t *testing.T) {
	t.Parallel()
	unit := func(id string) string {
		return "[Match]\nName=ib0\n[IPoIB]\nMode=datagram\n[Link]\nMTUBytes=max\n[Network]\nDHCP=ipv6\n[DHCPv6]\nUseDNS=no\n" +
			"DUIDType=uuid\nDUIDRawData=" + id + "\n[Partition]\nPartitionKey=0x8001\nName=one\n"
	}
	const routed = "[Network]\nIPv6AcceptRA=yes\n[IPv6AcceptRA]\nUseDNS=no\n[DHCPv6]\nUseDNS=no\n"
	c := lab.Config{TimeTravel: true, Userland: lab.Debian, HCAs: 3, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": unit("01:02:03"),
		unitDir + "10-one.ibnetwork": "[Match]\nName=one\n" + routed,
		unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=max\n" + routed,
		unitDir + "10-ib2.ibnetwork": "[Match]\nName=ib2\n[Network]\nAddress=fd00:11::1/64\n[Partition]\nPartitionKey=0x8001\nName=far\n",
		unitDir + "10-far.ibnetwork": "[Match]\nName=far\n[Network]\nAddress=fd00:12::1/64\n",
	}}
	c.Bins = append(c.Bins, debs(t, dnsmasqPackages...)...)
	lab.Run(t, c, func(g *lab.G) {
		unpack(g)
		g.SM(lab.SM{Partitions: defaultPartition + onePartition, File: "/tmp/partitions.conf"})
		d := startDaemon(g)
		for _, name := range []string{"ib1", "ib2", "far"} {
			d.configured(name, 30*time.Second)
		}
		serve := func() func() {
			return dnsmasq(g, "--interface=ib2", "--interface=far", "--dhcp-authoritative", "--enable-ra", "--ra-param=ib2,10", "--ra-param=far,10",
				"--dhcp-range=fd00:11::100,fd00:11::1ff,64,1h", "--dhcp-range=fd00:12::,ra-stateless,64,1h",
				"--dhcp-option=option6:dns-server,[fd00:11::53]", "--dhcp-host=id:00:04:01:02:03,[fd00:11::250]")
		}

		// The first address that ib0 gets is that of another host: it is declined.
		g.Exec("ip", "-6", "address", "add", "fd00:11::250/128", "dev", "ib1", "nodad")
		stop := serve()
		first := map[string]string{}
		for _, name := range []string{"ib0", "ib1"} {
			first[name] = d.leased6(name, "fd00:11::1", 60*time.Second)
		}
		text, _ := served(g, 0)
		if !strings.Contains(text, "DHCPDECLINE(ib2) 00:04:01:02:03") {
			g.Errorf("an address that another host has was not declined:\n%s", text)
		}
		g.Exec("ip", "-6", "address", "delete", "fd00:11::250/128", "dev", "ib1")
		informed := func() {
			g.Helper()
			d.wait("one", "information by DHCPv6", 30*time.Second, func(s link.Status) bool {
				return s.DHCP6 != nil && s.DHCP6.Lease != nil && !s.DHCP6.Lease.Address.IsValid() && len(s.DHCP6.Lease.DNS) == 1 &&
					strings.Contains(attr(s, "DHCPv6").Actual, "information")
			})
		}
		informed()
		g.Logf("%v\nleases:\n%s", first, g.Exec("cat", "/tmp/leases"))
		if out := g.Exec("ibnetctl", "plan"); strings.Contains(out, "ip ") || strings.Contains(out, "DHCP") {
			g.Errorf("there is something to do where leases are in use:\n%s", out)
		}

		// A restart of the daemon, without a message: the addresses stay.
		_, mark := served(g, 0)
		monitor := g.Start("ip", "monitor", "address")
		d.kill()
		d.start()
		for name := range first {
			if got := d.leased6(name, first[name], 20*time.Second); got != first[name] {
				g.Errorf("%s had %s, after a restart of the daemon %s", name, first[name], got)
			}
		}
		informed()
		if text, _ := served(g, mark); strings.Contains(text, " DHCP") {
			g.Errorf("a restart of the daemon asked the server:\n%s", text)
		}
		if out := monitor.Output(); strings.Contains(out, "Deleted") {
			g.Errorf("a restart of the daemon took addresses away:\n%s", out)
		}
		monitor.Kill()

		// A restart of the driver: the address is confirmed.
		unplug(g, "one")
		_, mark = served(g, 0)
		g.Ctl("add 0")
		if got := d.leased6("ib0", first["ib0"], 40*time.Second); got != first["ib0"] {
			g.Errorf("ib0 had %s, after a restart of the driver %s", first["ib0"], got)
		}
		text, _ = served(g, mark)
		if strings.Contains(text, "DHCPSOLICIT") || !strings.Contains(text, "DHCPCONFIRM") {
			g.Errorf("a restart of the driver asked the server with:\n%s", text)
		}
		informed()

		// No server: the status says why there is no address.
		stop()
		g.Write(unitDir+"10-ib0.ibnetwork", unit("09:09:09"))
		d.p.Signal(syscall.SIGHUP)
		d.wait("ib0", "no answer", 60*time.Second, func(s link.Status) bool {
			why := attr(s, "DHCPv6").Why.Text
			return s.State == link.StateConfiguring && strings.Contains(why, "no answer from a DHCPv6 server on 4 tries") && address6(g, "ib0") == ""
		})
		g.Logf("%s", g.Exec("ibnetctl", "status", "ib0"))
		stop = serve()
		d.leased6("ib0", "fd00:11::1", 60*time.Second)

		d.released("ib0", address6)
		stop()
	})
}
