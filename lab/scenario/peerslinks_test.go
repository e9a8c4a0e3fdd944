package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ibnetworkd/lab"
)

// peerLinks are the links of the adapters: two that can be one RoCE LAG, one more of
// Ethernet, and three of IPoIB, of which the last is another host's.
type peerLinks struct {
	lag  [2]string
	eth  string
	ib   [2]string
	host string
}

// peerLinksCommands make the first three adapters Ethernet.
var peerLinksCommands = []string{"type h0/1 eth", "type h1/1 eth", "type h2/1 eth", "driver h0 mlx5_core", "driver h1 mlx5_core",
	"lag h0 h1"}

func findPeerLinks(g *lab.G) (p peerLinks) {
	g.SM(lab.SM{Dev: "swib3", NoWait: true})
	of := func(adapter int) (name string) {
		g.Wait(fmt.Sprintf("the link of adapter %d", adapter), 60*time.Second, func() bool {
			all, _ := filepath.Glob("/sys/class/net/*/device")
			for _, d := range all {
				if to, _ := os.Readlink(d); strings.HasSuffix(to, fmt.Sprintf(".%d", adapter)) {
					name = filepath.Base(filepath.Dir(d))
				}
			}
			return name != ""
		})
		return name
	}
	p = peerLinks{lag: [2]string{of(0), of(1)}, eth: of(2), ib: [2]string{of(3), of(4)}, host: of(5)}
	otherHost(g, p.host, "10.5.0.1/24")
	return p
}

func devices() string {
	all, _ := filepath.Glob("/sys/class/infiniband/*")
	for i := range all {
		all[i] = filepath.Base(all[i])
	}
	return strings.Join(all, " ")
}

// gidIndex is where the table of a device has the RoCE v2 GID of a link whose end is suffix, -1 for nowhere.
func gidIndex(dev, link, suffix string) int {
	for i := range 64 {
		if (gidSlot{dev, i}).has(link, suffix) {
			return i
		}
	}
	return -1
}

// configureNetworkd replaces the files of networkd.
func configureNetworkd(g *lab.G, files map[string]string) {
	g.Sh("rm -f %s*.net*", unitDir)
	for name, text := range files {
		g.Write(unitDir+name, text)
	}
	g.Exec("networkctl", "reload")
}

const noAuto6 = "LinkLocalAddressing=no\nIPv6AcceptRA=no\n"

// peerNetworkdLinks has RoCE links, rails, derived addresses and what leases carry.
func peerNetworkdLinks(g *lab.G) {
	unpack(g)
	p := findPeerLinks(g)
	log := func() string { return said(g, "journalctl --no-pager -o cat -u systemd-networkd") }
	configureNetworkd(g, map[string]string{
		"05-bond7.netdev":  "[NetDev]\nName=bond7\nKind=bond\n[Bond]\nMode=active-backup\nMIIMonitorSec=10ms\n",
		"10-bond7.network": "[Match]\nName=bond7\n[Network]\nAddress=10.8.0.1/24\n" + noAuto6,
		"10-lag.network":   "[Match]\nName=" + p.lag[0] + " " + p.lag[1] + "\n[Network]\nBond=bond7\n",
	})
	state := func() string {
		return said(g, "networkctl status --no-pager -n 0 bond7 "+p.lag[0]+"; networkctl status --json=short bond7")
	}
	within(40*time.Second, func() bool {
		return strings.Contains(devices(), "swib_bond_0") && strings.Contains(state(), "routable (configured)")
	})
	statement(g, "N22", "a bond of two RoCE ports is made, the kernel has one RDMA device for it, and networkctl shows none",
		strings.Contains(devices(), "swib_bond_0") && hasAll(state(), "routable (configured)", `"Name":"bond7"`) && !strings.Contains(state(),
			"swib_bond"), "RDMA devices: "+devices()+"\n"+state())
	configureNetworkd(g, nil)
	g.Sh("ip link delete bond7")

	configureNetworkd(g, map[string]string{"10-eth.network": "[Match]\nName=" + p.eth +
		"\n[RoCE]\nGIDIndex=3\n[Network]\nAddress=10.7.1.1/24\n" + noAuto6})
	index := func() int { return gidIndex("swib2", p.eth, "0a07:0101") }
	within(30*time.Second, func() bool { return index() >= 0 })
	before := index()
	g.Sh("ip link add link %[1]s name v9 type vlan id 9; ip link set v9 up; ip address delete 10.7.1.1/24 dev %[1]s; "+
		"ip address add 10.9.1.1/24 dev v9", p.eth)
	within(10*time.Second, func() bool { return gidIndex("swib2", "v9", "0a09:0101") >= 0 })
	g.Sh("networkctl reconfigure %s", p.eth)
	within(20*time.Second, func() bool { return index() >= 0 })
	statement(g, "N23", "[RoCE] is an unknown section; when an address of another program has come on a VLAN, that of networkd has "+
		"another index", strings.Contains(log(), "Unknown section 'RoCE'") && before >= 0 && index() >= 0 && index() != before,
		fmt.Sprintf("index %d, then %d\n%s", before, index(), grep(log(), "RoCE")))
	g.Sh("ip link delete v9")

	configureNetworkd(g, map[string]string{
		"10-a.network": "[Match]\nName=" + p.ib[0] + "\n[Network]\nAddress=0.0.0.0/24\n" + noAuto6,
		"10-b.network": "[Match]\nName=" + p.ib[1] + "\n[Network]\nAddress=0.0.0.0/24\n" + noAuto6,
	})
	pool := func() string {
		return said(g, "ip -4 -o address show dev "+p.ib[0]+"; ip -4 -o address show dev "+p.ib[1])
	}
	within(30*time.Second, func() bool { return hasAll(pool(), " "+p.ib[0]+" ", " "+p.ib[1]+" ") })
	first := pool()
	g.Exec("systemctl", "restart", "systemd-networkd")
	within(30*time.Second, func() bool { return pool() != first && hasAll(pool(), " "+p.ib[0]+" ", " "+p.ib[1]+" ") })
	statement(g, "N24", "Address=0.0.0.0/24 gives each link an address of a subnet that is chosen at random, after a restart of another one",
		strings.Count(first, "inet 192.168.") >= 2 && strings.Count(pool(), "inet 192.168.") >= 2 && pool() != first,
		first+"\nafter a restart:\n"+pool())

	configureNetworkd(g, map[string]string{
		"10-a.network": "[Match]\nName=" + p.ib[0] + "\n[Network]\nAddress=10.5.0.11/24\n" + noAuto6,
		"10-b.network": "[Match]\nName=" + p.ib[1] + "\n[Network]\nAddress=10.5.0.12/24\n" + noAuto6,
	})
	within(30*time.Second, func() bool { return hasAll(pool(), "10.5.0.11/24", "10.5.0.12/24") })
	found := railsFound(g, "other", p.host, map[string]string{"10.5.0.11": p.ib[0], "10.5.0.12": p.ib[1]})
	sysctls := said(g, "sysctl net.ipv4.conf."+p.ib[1]+".arp_ignore net.ipv4.conf."+p.ib[1]+".arp_announce")
	statement(g, "N25", "two links in one subnet: another host finds the wrong link", found < 20 &&
		strings.Contains(sysctls, "arp_ignore = 0"), fmt.Sprintf("the right link %d of 20 times\n%s", found, sysctls))

	configureNetworkd(g, map[string]string{
		"05-v0.netdev":   "[NetDev]\nName=ipv0\nKind=ipvlan\n[IPVLAN]\nMode=L2\n",
		"05-v1.netdev":   "[NetDev]\nName=ipv1\nKind=ipvlan\n[IPVLAN]\nMode=L2\n",
		"10-eth.network": "[Match]\nName=" + p.eth + "\n[Network]\nIPVLAN=ipv1\n" + noAuto6,
		"10-b.network":   "[Match]\nName=" + p.ib[1] + "\n[Network]\nIPVLAN=ipv0\n" + noAuto6,
	})
	on := func(link string) bool { _, err := os.Stat("/sys/class/net/" + link); return err == nil }
	ethernet := within(20*time.Second, func() bool { return on("ipv1") })
	within(5*time.Second, func() bool { return on("ipv0") })
	statement(g, "N26", "an ipvlan of a RoCE link works; on IPoIB there is none", ethernet && !on("ipv0"),
		said(g, "ip -d -o link show type ipvlan")+"\n"+grep(log(), "ipv0"))
	configureNetworkd(g, nil)
	g.Sh("ip link delete ipv1; ip link delete ipv0 2>/dev/null || :")
	peerNetworkdLeased(g, p)
}

// peerNetworkdLeased has what leases and router advertisements carry, and the settings of .link files.
func peerNetworkdLeased(g *lab.G, p peerLinks) {
	a := p.ib[0]
	log := peerServer(g, p.host, a)
	g.Sh("rm -f /etc/hostname; hostname localhost")
	startTimesyncd(g)
	configureNetworkd(g, map[string]string{"10-a.network": "[Match]\nName=" + a + "\n[Network]\nDHCP=ipv4\n" + noAuto6 +
		"[DHCPv4]\nClientIdentifier=mac\n"})
	leased := func() bool { return strings.HasPrefix(leasedAddress(g, a), "10.5.0.") }
	within(30*time.Second, leased)
	name := func() string { return strings.TrimSpace(g.Exec("uname", "-n")) }
	within(20*time.Second, func() bool { return name() == "node17" })
	statement(g, "N27", "the host gets the name of the lease", name() == "node17", name()+"\n"+
		said(g, "hostnamectl; journalctl --no-pager -o cat -u systemd-networkd -u systemd-hostnamed | grep -i host | tail"))
	sync := func() string { return said(g, "timedatectl show-timesync -p LinkNTPServers -p ServerName") }
	within(20*time.Second, func() bool { return strings.Contains(sync(), "10.5.0.123") })
	statement(g, "N28", "systemd-timesyncd uses the time servers of the lease", strings.Contains(sync(), "LinkNTPServers=10.5.0.123"), sync())

	changes, asked, same := restartLeased(g, "systemd-networkd", a, log, 20*time.Second, leased)
	statement(g, "N29", "a restart: the address is removed, released and requested again",
		same && strings.Contains(changes, "Deleted") && strings.Contains(asked, "DHCP"), changes+asked)

	configureNetworkd(g, map[string]string{"10-a.network": "[Match]\nName=" + a + "\n[Network]\nLinkLocalAddressing=ipv6\nIPv6AcceptRA=yes\n" +
		"[IPv6AcceptRA]\nToken=::5:1:1\nToken=::5:1:2\n"})
	v6 := func() string { return all6(g, a) }
	within(40*time.Second, func() bool { return hasAll(v6(), "fd00:5::5:1:1/64", "fd00:5::5:1:2/64") })
	statement(g, "N30", "two Token= give two addresses", hasAll(v6(), "fd00:5::5:1:1/64", "fd00:5::5:1:2/64"), v6())

	g.Write("/etc/systemd/network/10-sim.link", "[Match]\nDriver=netdevsim\n[Link]\nCombinedChannels=2\nRxCoalesceSec=30us\nName=sim0\n")
	g.Sh("udevadm control --reload; echo '11 1 4' >/sys/bus/netdevsim/new_device; udevadm settle")
	dev := "$(ls /sys/bus/netdevsim/devices/netdevsim11/net)"
	set := func() string {
		return said(g, "(ethtool -l "+dev+" | sed '/^Current/,$!d' | grep ^Combined:; ethtool -c "+dev+" | grep ^rx-usecs:) | tr -s '\\t ' ' '")
	}
	first := set()
	g.Sh("ethtool -L %[1]s combined 4; ethtool -C %[1]s rx-usecs 7; sleep 3", dev)
	statement(g, "N31", "CombinedChannels= and RxCoalesceSec= of a .link file are set when the link appears, not again after another program",
		hasAll(first, "Combined: 2", "rx-usecs: 30") && hasAll(set(), "Combined: 4", "rx-usecs: 7"), first+"\nthen\n"+set()+"\n"+
			said(g, "journalctl --no-pager -o cat -u systemd-udevd | tail -5"))
	commands := said(g, "networkctl --help")
	statement(g, "N33", "networkctl has no command that shows what other hosts would get", strings.Contains(commands, "reconfigure") &&
		!strings.Contains(commands, "plan"), commands)
	configureNetworkd(g, nil)
	g.Sh("kill $(cat /tmp/dnsmasq.pid); rm /etc/systemd/network/10-sim.link; systemctl stop systemd-timesyncd")
	peerForgeries(g, p)
}

// peerForgeries has forged answers of DHCP on the first link of IPoIB.
func peerForgeries(g *lab.G, p peerLinks) {
	for _, x := range []struct {
		id     string
		client dhcpClient
		want   string
	}{
		{"ibnetworkd", ours("mac"), "none"},
		{"N32", networkd("mac"), "none, another client's identifier, a lifetime of 0, a mask with holes, a loopback address, " +
			"the server's own address"},
		{"M27", networkManager("internal", ""), "none, no lifetime, a mask with holes, the server's own address"},
	} {
		accepted := acceptedForgeries(g, x.client, p.ib[0], "other", p.host)
		statement(g, x.id, "answers of DHCP that are accepted: "+x.want, accepted == x.want, accepted)
	}
}
