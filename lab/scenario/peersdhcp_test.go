package scenario

import (
	"fmt"
	"os"
	"strings"
	"time"

	"ibnetworkd/lab"
)

// dhcpPackages are the clients and servers of DHCP that the userland does not have, with
// what they need.
var dhcpPackages = append([]string{"isc-dhcp-server", "kea-dhcp4-server", "kea-dhcp6-server", "kea-common",
	"liblog4cplus-2.0.5", "libmariadb3", "libpq5", "libldap-2.5-0", "libsasl2-2", "dhcpcd-base", "udhcpc", "busybox"}, dnsmasqPackages...)

type dhcpLink struct{ name, link, prefix string }

// The three links that each client asks on, and the prefixes of the servers there.
var dhcpLinks = []dhcpLink{
	{"datagram", "ib0", "10.11.0."}, {"connected", "ib1", "10.11.0."}, {"P_Key child", "ib0.8001", "10.12.0."},
}

// dhcpClient gets an address on a link and returns what shows it. The caller takes all
// addresses away after it.
type dhcpClient struct {
	name string
	says string // where it gets no address, on any of the links; "" for one that works
	get  func(g *lab.G, link string) string
	stop func(g *lab.G, link string)
}

// foreground runs a client that ends by itself, or after its time.
func foreground(format string) func(*lab.G, string) string {
	return func(g *lab.G, link string) string {
		mac := strings.ReplaceAll(g.Read("/sys/class/net/"+link+"/address"), ":", "")
		id := mac[24:]
		colons := g.Read("/sys/class/net/" + link + "/address")[36:]
		cmd := strings.NewReplacer("LINK", link, "ID8", id, "IDCOLONS", colons).Replace(format)
		out, _ := g.Try("sh", "-c", "ip link set "+link+" up; "+cmd)
		return out
	}
}

func killed(name string) func(*lab.G, string) {
	return func(g *lab.G, link string) {
		_, _ = g.Try("pkill", "-x", name)
		g.Wait(name+" has ended", 10*time.Second, func() bool { _, err := g.Try("pgrep", "-x", name); return err != nil })
		g.Sh("rm -f /tmp/dhclient.* /var/lib/dhcpcd/*.lease")
	}
}

// networkd asks by systemd-networkd.
func networkd(id string) dhcpClient {
	file := func(link string) string { return unitDir + "60-" + link + ".network" }
	return dhcpClient{"networkd, ClientIdentifier=" + id, "", func(g *lab.G, link string) string {
		g.Write(file(link), "[Match]\nName="+link+"\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n[DHCPv4]\nClientIdentifier="+
			id+"\n")
		g.Exec("networkctl", "reload")
		within(dhcpLimit, func() bool { return strings.Contains(address(g, link), "inet 10.") })
		return address(g, link)
	}, func(g *lab.G, link string) {
		if err := os.Remove(file(link)); err != nil {
			g.Fatal(err)
		}
		g.Exec("networkctl", "reload")
	}}
}

// ours asks by the client of ibnetworkd, which runs while it is tried.
func ours(id string) dhcpClient {
	var d *service
	return dhcpClient{"ibnetworkd, ClientIdentifier=" + id, "", func(g *lab.G, link string) string {
		g.Write(unitDir+"60-own.ibnetwork", "[Match]\nName="+link+"\n[IPoIB]\nMode="+mode(g, link)+
			"\n[Network]\nDHCP=ipv4\n[DHCPv4]\nUseDNS=no\nClientIdentifier="+id+"\n")
		d = startDaemon(g)
		within(dhcpLimit, func() bool { return strings.Contains(address(g, link), "inet 10.") })
		if s := d.status(link); address(g, link) == "" {
			g.Logf("%s: %s %+v %+v", link, s.State, s.Reason(), s.DHCP)
		}
		return address(g, link)
	}, func(g *lab.G, link string) {
		if err := os.Remove(unitDir + "60-own.ibnetwork"); err != nil {
			g.Fatal(err)
		}
		d.kill()
		g.Sh("rm -rf /run/ibnetworkd /var/lib/ibnetworkd")
	}}
}

func networkManager(client, says string) dhcpClient {
	return dhcpClient{"NetworkManager, dhcp=" + client, says, func(g *lab.G, link string) string {
		g.Write("/etc/NetworkManager/conf.d/dhcp.conf", "[main]\ndhcp="+client+"\n")
		g.Exec("systemctl", "restart", "NetworkManager")
		out, _ := g.Try("sh", "-c", "nmcli connection add type infiniband con-name t ifname "+link+" infiniband.transport-mode "+mode(g, link)+
			" autoconnect no ipv4.method auto ipv6.method disabled; nmcli -w 20 connection up t")
		return out + "\n" + address(g, link)
	}, func(g *lab.G, link string) {
		_, _ = g.Try("nmcli", "connection", "delete", "t")
		// Its files, which stay, say that it has the links.
		g.Sh("systemctl stop NetworkManager; rm -rf /run/NetworkManager/devices")
		g.Exec("ip", "link", "set", link, "up")
	}}
}

func address(g *lab.G, link string) string {
	out, _ := g.Try("ip", "-4", "-o", "address", "show", "dev", link)
	return out
}

// dhcpLimit is how long a client may take; those that work take a second or two, four on a
// link that has just been brought up.
const dhcpLimit = 12 * time.Second

// unsupported is what the programs of ISC end with.
const unsupported = "Unsupported device type 32"

var dhcpClients = []dhcpClient{
	ours("duid"), ours("mac"), networkd("duid"), networkd("mac"),
	networkManager("internal", ""), networkManager("dhclient", "Timeout expired"),
	{"dhclient", unsupported, foreground("timeout 9 dhclient -1 -v -lf /tmp/dhclient.l -pf /tmp/dhclient.p LINK"), killed("dhclient")},
	{"dhcpcd", "Invalid argument", foreground("timeout 9 dhcpcd -4 -1 LINK"), killed("dhcpcd")},
	{"udhcpc", "Invalid argument", foreground("timeout 9 udhcpc -f -n -q -t 4 -i LINK"), killed("udhcpc")},
	{"cloud-init by dhclient", unsupported, foreground(`
		echo 'interface "LINK" {send dhcp-client-identifier 20:IDCOLONS;}' >/tmp/dhclient.c
		timeout 9 dhclient -1 -v -lf /tmp/dhclient.l -pf /tmp/dhclient.p -cf /tmp/dhclient.c LINK -sf /bin/true`), killed("dhclient")},
	{"cloud-init by dhcpcd", "Invalid argument", foreground(
		"timeout 9 dhcpcd --ipv4only --waitip --persistent --noarp --script=/bin/true --clientid LINK"), killed("dhcpcd")},
	{"cloud-init by udhcpc", "Invalid argument", foreground(
		"timeout 9 udhcpc -O staticroutes -i LINK -s /bin/true -n -q -f -v -t 4 -x 0x3d:20ID8"), killed("udhcpc")},
}

type dhcpServer struct {
	name        string
	says        string // as of dhcpClient
	start, stop func(g *lab.G)
	log         func(g *lab.G) string
}

const keaConfig = `{"Dhcp4": {"interfaces-config": {"interfaces": ["ib2", "ib2.8001"], "dhcp-socket-type": "%s"},
"lease-database": {"type": "memfile", "persist": false}, "valid-lifetime": 3600,
"subnet4": [{"subnet": "10.11.0.0/24", "interface": "ib2", "pools": [{"pool": "10.11.0.100-10.11.0.200"}]},
{"subnet": "10.12.0.0/24", "interface": "ib2.8001", "pools": [{"pool": "10.12.0.100-10.12.0.200"}]}],
"loggers": [{"name": "kea-dhcp4", "severity": "DEBUG", "debuglevel": 55, "output_options": [{"output": "/tmp/server.log"}]}]}}
`

const dhcpdConfig = `authoritative; default-lease-time 3600;
subnet 10.11.0.0 netmask 255.255.255.0 { range 10.11.0.100 10.11.0.200; }
subnet 10.12.0.0 netmask 255.255.255.0 { range 10.12.0.100 10.12.0.200; }
`

func serverLog(g *lab.G) string { return g.Read("/tmp/server.log") }

func processServer(name, says, setup, cmd string) dhcpServer {
	var p *lab.Proc
	return dhcpServer{name, says, func(g *lab.G) {
		g.Sh("%s", "rm -f /tmp/server.log /tmp/server.leases; touch /tmp/server.log /tmp/server.leases; "+setup)
		p = g.Start("sh", "-c", "exec "+cmd)
	}, func(g *lab.G) { p.Kill() }, func(g *lab.G) string { return serverLog(g) + "\n" + p.Output() }}
}

func kea(sockets string) dhcpServer {
	return processServer("Kea, "+sockets+" sockets", "DHCP4_STARTED", "mkdir -p /run/kea /var/lib/kea; cat >/tmp/kea.conf <<'EOF'\n"+
		fmt.Sprintf(keaConfig, sockets)+"EOF", "env KEA_LOCKFILE_DIR=none kea-dhcp4 -c /tmp/kea.conf")
}

var dhcpServers = []dhcpServer{
	processServer("dnsmasq", "", "", "dnsmasq -k --conf-file=/dev/null --port=0 --user=root --no-ping --bind-interfaces --interface=ib2 "+
		"--interface=ib2.8001 --except-interface=lo --dhcp-authoritative --dhcp-leasefile=/tmp/server.leases --log-dhcp "+
		"--log-facility=/tmp/server.log --dhcp-range=10.11.0.100,10.11.0.200,1h --dhcp-range=10.12.0.100,10.12.0.200,1h"),
	processServer("ISC dhcpd", unsupported, "cat >/tmp/dhcpd.conf <<'EOF'\n"+dhcpdConfig+"EOF",
		"dhcpd -4 -f -d -cf /tmp/dhcpd.conf -lf /tmp/server.leases -pf /tmp/dhcpd.pid ib2 ib2.8001"),
	{"networkd", "Offered DHCP leases: none", func(g *lab.G) {
		for link, addr := range map[string]string{"ib2": "10.11.0.1/24", "ib2.8001": "10.12.0.1/24"} {
			g.Write(unitDir+"50-"+link+".network", "[Match]\nName="+link+"\n[Network]\nAddress="+addr+
				"\nDHCPServer=yes\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n[DHCPServer]\nPoolOffset=100\nPoolSize=100\n")
		}
		g.Exec("networkctl", "reload")
	}, func(g *lab.G) {
		g.Sh("rm -f %s50-*.network; networkctl reload; ip addr add 10.11.0.1/24 dev ib2 2>/dev/null || :; "+
			"ip addr add 10.12.0.1/24 dev ib2.8001 2>/dev/null || :; ip link set ib2 up; ip link set ib2.8001 up", unitDir)
	}, func(g *lab.G) string {
		return g.Exec("sh", "-c", "journalctl --no-pager -o cat -u systemd-networkd | tail -30; networkctl status --no-pager -n 0 ib2")
	}},
	kea("raw"), kea("udp"),
}

// The clients of DHCP with dnsmasq on a link in datagram mode, one in connected mode, and a
// P_Key child, and the servers with two clients that work: the table of docs/peers.md.
func peerDHCP(g *lab.G) {
	dhcpFabric(g)
	dhcpTable{servers: dhcpServers, clients: dhcpClients, few: []dhcpClient{ours("mac"), networkd("mac")}, links: dhcpLinks,
		reset: func(g *lab.G, link string) { g.Sh("ip addr flush dev %[1]s; ip link set %[1]s up", link) }}.try(g)
}

// dhcpFabric has the links of dhcpLinks, and those of the servers.
func dhcpFabric(g *lab.G) {
	unpack(g)
	g.SM(lab.SM{Partitions: defaultPartition + onePartition})
	g.Sh(`for d in ib0 ib2; do echo 0x8001 >/sys/class/net/$d/create_child; done; echo connected >/sys/class/net/ib1/mode
		for d in ib0 ib1 ib2 ib0.8001 ib2.8001; do ip link set $d up; done
		ip addr add 10.11.0.1/24 dev ib2; ip addr add 10.12.0.1/24 dev ib2.8001`)
	g.Wait("carriers", 30*time.Second, func() bool {
		return g.Sh("cat /sys/class/net/ib*/carrier 2>/dev/null | grep -c 1 || true") == "5"
	})
}

// dhcpTable has each client ask dnsmasq, and a few each other server.
type dhcpTable struct {
	servers      []dhcpServer
	clients, few []dhcpClient
	links        []dhcpLink
	reset        func(g *lab.G, link string) // before each client
}

func (t dhcpTable) try(g *lab.G) {
	for _, s := range t.servers {
		s.start(g)
		time.Sleep(2 * time.Second)
		clients := t.clients
		if s.name != "dnsmasq" {
			clients = t.few
		}
		for _, c := range clients {
			row := ""
			for _, l := range t.links {
				t.reset(g, l.link)
				begin := time.Now()
				out := c.get(g, l.link)
				took := time.Since(begin)
				c.stop(g, l.link)
				ok := strings.Contains(out, l.prefix+"1") || strings.Contains(out, l.prefix+"2")
				row += fmt.Sprintf(" %s %v (%.1f s)", l.name, ok, took.Seconds())
				if log := s.log(g); ok != (s.says == "" && c.says == "") || !strings.Contains(out, c.says) || !strings.Contains(log, s.says) {
					g.Errorf("%s <- %s on %s: %v\n%s\nserver:\n%s", s.name, c.name, l.name, ok, out, tail(log, 30))
				}
			}
			g.Logf("%s <- %s:%s", s.name, c.name, row)
		}
		s.stop(g)
		for _, l := range t.links {
			t.reset(g, l.link)
		}
	}
}
