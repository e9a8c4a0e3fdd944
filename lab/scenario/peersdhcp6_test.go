package scenario

import (
	"os"
	"strings"
	"time"

	"ibnetworkd/lab"
)

// dhcp6Links are those of dhcpLinks with the prefixes of IPv6.
var dhcp6Links = []dhcpLink{
	{"datagram", "ib0", "fd00:11::"}, {"connected", "ib1", "fd00:11::"}, {"P_Key child", "ib0.8001", "fd00:12::"},
}

func global6(g *lab.G, link string) string {
	out, _ := g.Try("ip", "-6", "-o", "address", "show", "dev", link, "scope", "global")
	return out
}

// linkLocal6 gives a link its link-local address again, which the managers take away when they leave it.
func linkLocal6(g *lab.G, link string) {
	g.Sh("ip -6 addr flush dev %[1]s scope global; echo 0 >/proc/sys/net/ipv6/conf/%[2]s/addr_gen_mode; "+
		"echo 0 >/proc/sys/net/ipv6/conf/%[2]s/disable_ipv6; ip link set %[1]s down; ip link set %[1]s up", link, link)
	g.Wait("the link-local address of "+link, 30*time.Second, func() bool {
		out, _ := g.Try("ip", "-6", "-o", "address", "show", "dev", link, "scope", "link")
		return strings.Contains(out, "fe80:") && !strings.Contains(out, "tentative")
	})
}

func ours6() dhcpClient {
	var d *service
	return dhcpClient{"ibnetworkd", "", func(g *lab.G, link string) string {
		g.Write(unitDir+"60-own.ibnetwork", "[Match]\nName="+link+"\n[IPoIB]\nMode="+mode(g, link)+
			"\n[Network]\nDHCP=ipv6\n[DHCPv6]\nUseDNS=no\n")
		d = startDaemon(g)
		within(dhcpLimit, func() bool { return global6(g, link) != "" })
		if s := d.status(link); global6(g, link) == "" {
			g.Logf("%s: %s %+v %+v", link, s.State, s.Reason(), s.DHCP6)
		}
		return global6(g, link)
	}, func(g *lab.G, link string) {
		if err := os.Remove(unitDir + "60-own.ibnetwork"); err != nil {
			g.Fatal(err)
		}
		d.kill()
		g.Sh("rm -rf /run/ibnetworkd /var/lib/ibnetworkd")
	}}
}

func networkd6() dhcpClient {
	file := func(link string) string { return unitDir + "60-" + link + ".network" }
	return dhcpClient{"networkd", "", func(g *lab.G, link string) string {
		g.Write(file(link), "[Match]\nName="+link+"\n[Network]\nDHCP=ipv6\nIPv6AcceptRA=no\n[DHCPv6]\nWithoutRA=solicit\n")
		g.Exec("networkctl", "reload")
		within(dhcpLimit, func() bool { return global6(g, link) != "" })
		return global6(g, link)
	}, func(g *lab.G, link string) {
		if err := os.Remove(file(link)); err != nil {
			g.Fatal(err)
		}
		g.Exec("networkctl", "reload")
	}}
}

func networkManager6(client, says string) dhcpClient {
	c := networkManager(client, says)
	c.get = func(g *lab.G, link string) string {
		g.Write("/etc/NetworkManager/conf.d/dhcp.conf", "[main]\ndhcp="+client+"\n")
		g.Exec("systemctl", "restart", "NetworkManager")
		out, _ := g.Try("sh", "-c", "nmcli connection add type infiniband con-name t ifname "+link+" infiniband.transport-mode "+mode(g, link)+
			" autoconnect no ipv6.method auto ipv6.addr-gen-mode eui64 ipv4.method disabled; nmcli -w 20 connection up t")
		return out + "\n" + global6(g, link)
	}
	return c
}

var dhcp6Clients = []dhcpClient{
	ours6(), networkd6(), networkManager6("internal", ""), networkManager6("dhclient", "Timeout expired"),
	{"dhclient", unsupported, foreground("timeout 9 dhclient -6 -1 -v -lf /tmp/dhclient.l -pf /tmp/dhclient.p LINK; " +
		"ip -6 -o address show dev LINK scope global"), killed("dhclient")},
	{"dhcpcd", "", foreground("printf 'noipv6rs\\nipv6only\\nia_na\\n' >/tmp/dhcpcd.conf; timeout 9 dhcpcd -f /tmp/dhcpcd.conf -6 -1 LINK; " +
		"ip -6 -o address show dev LINK scope global"), killed("dhcpcd")},
}

const kea6Config = `{"Dhcp6": {"interfaces-config": {"interfaces": ["ib2", "ib2.8001"]},
"lease-database": {"type": "memfile", "persist": false}, "valid-lifetime": 3600, "preferred-lifetime": 3000,
"subnet6": [{"subnet": "fd00:11::/64", "interface": "ib2", "pools": [{"pool": "fd00:11::100-fd00:11::1ff"}]},
{"subnet": "fd00:12::/64", "interface": "ib2.8001", "pools": [{"pool": "fd00:12::100-fd00:12::1ff"}]}],
"loggers": [{"name": "kea-dhcp6", "severity": "DEBUG", "debuglevel": 55, "output_options": [{"output": "/tmp/server.log"}]}]}}
`

const dhcpd6Config = `authoritative; default-lease-time 3600;
subnet6 fd00:11::/64 { range6 fd00:11::100 fd00:11::1ff; }
subnet6 fd00:12::/64 { range6 fd00:12::100 fd00:12::1ff; }
`

var dhcp6Servers = []dhcpServer{
	processServer("dnsmasq", "", "", "dnsmasq -k --conf-file=/dev/null --port=0 --user=root --bind-interfaces --interface=ib2 "+
		"--interface=ib2.8001 --except-interface=lo --dhcp-authoritative --enable-ra --ra-param=ib2,10 --ra-param=ib2.8001,10 "+
		"--dhcp-leasefile=/tmp/server.leases --log-dhcp "+
		"--log-facility=/tmp/server.log --dhcp-range=fd00:11::100,fd00:11::1ff,64,1h --dhcp-range=fd00:12::100,fd00:12::1ff,64,1h"),
	processServer("ISC dhcpd", unsupported, "cat >/tmp/dhcpd.conf <<'EOF'\n"+dhcpd6Config+"EOF",
		"dhcpd -6 -f -d -cf /tmp/dhcpd.conf -lf /tmp/server.leases -pf /tmp/dhcpd.pid ib2 ib2.8001"),
	processServer("Kea", "", "mkdir -p /run/kea /var/lib/kea; cat >/tmp/kea.conf <<'EOF'\n"+kea6Config+"EOF",
		"env KEA_LOCKFILE_DIR=none kea-dhcp6 -c /tmp/kea.conf"),
}

// The same with DHCPv6. Only dnsmasq sends router advertisements.
func peerDHCP6(g *lab.G) {
	dhcpFabric(g)
	linkLocal6(g, "ib2")
	linkLocal6(g, "ib2.8001")
	g.Sh("ip -6 addr add fd00:11::1/64 dev ib2 nodad; ip -6 addr add fd00:12::1/64 dev ib2.8001 nodad")
	dhcpTable{servers: dhcp6Servers, clients: dhcp6Clients, few: []dhcpClient{ours6(), networkd6()}, links: dhcp6Links,
		reset: linkLocal6}.try(g)
}
