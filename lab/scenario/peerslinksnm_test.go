package scenario

import (
	"fmt"
	"os"
	"strings"
	"time"

	"ibnetworkd/lab"
)

// peerNetworkManagerLinks does as peerNetworkdLinks, with profiles.
func peerNetworkManagerLinks(g *lab.G) {
	unpack(g)
	p := findPeerLinks(g)
	g.Exec("systemctl", "start", "NetworkManager")
	within(60*time.Second, func() bool { out, _ := g.Try("nmcli", "device"); return strings.Contains(out, p.ib[0]) })
	activate := func(name, kind, link, keys string) string {
		return activated(g, name, "[connection]\nid="+name+"\ntype="+kind+"\ninterface-name="+link+"\nautoconnect=false\n"+keys)
	}
	const none = "[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n"
	manual := func(address string) string {
		return "[ipv6]\nmethod=disabled\n[ipv4]\nmethod=manual\naddress1=" + address + "\n"
	}
	evidence := activate("bond7", "bond", "bond7", "[bond]\nmode=active-backup\nmiimon=10\n"+manual("10.8.0.1/24"))
	for i, port := range p.lag {
		evidence += "\n" + activate(fmt.Sprint("lag", i), "ethernet", port, "master=bond7\nslave-type=bond\n")
	}
	state := func() string { return said(g, "nmcli device show bond7; nmcli device show "+p.lag[0]) }
	within(40*time.Second, func() bool {
		return strings.Contains(devices(), "swib_bond_0") && strings.Contains(state(), "10.8.0.1/24")
	})
	statement(g, "M17", "a bond of two RoCE ports is made, the kernel has one RDMA device for it, and nmcli shows none",
		strings.Contains(devices(), "swib_bond_0") && hasAll(state(), "100 (connected)", "10.8.0.1/24") &&
			!strings.Contains(state(), "swib_bond"), evidence+"\nRDMA devices: "+devices()+"\n"+state())
	g.Sh("nmcli connection delete lag0 lag1 bond7")

	evidence = activate("eth", "ethernet", p.eth, manual("10.7.1.1/24"))
	index := func() int { return gidIndex("swib2", p.eth, "0a07:0101") }
	within(30*time.Second, func() bool { return index() >= 0 })
	before := index()
	g.Sh("nmcli connection down eth; ip link add link %[1]s name v9 type vlan id 9; ip link set %[1]s up; ip link set v9 up; "+
		"ip address add 10.9.1.1/24 dev v9", p.eth)
	within(10*time.Second, func() bool { return gidIndex("swib2", "v9", "0a09:0101") >= 0 && index() < 0 })
	evidence += "\n" + said(g, "nmcli connection up eth")
	within(20*time.Second, func() bool { return index() >= 0 })
	statement(g, "M18", "when an address of another program has come on a VLAN, that of the profile has another index",
		before >= 0 && index() >= 0 && index() != before, fmt.Sprintf("%s\nindex %d, then %d", evidence, before, index()))
	g.Sh("ip link delete v9")

	// What has no property or type is refused by name.
	refused := func(args string) string {
		out := said(g, "nmcli connection modify eth "+args)
		if !strings.Contains(out, "Error:") {
			return "ACCEPTED " + out
		}
		return out
	}
	evidence = strings.Join([]string{refused("connection.netns job"), refused("ipv4.neighbors 10.7.1.2"),
		refused("ipv4.addresses 10.3.{host}.1/16"), refused("ethernet.gid-index 3"), refused("ethtool.channels-rx 2"),
		said(g, "nmcli connection add type ipvlan con-name i ifname i0 dev "+p.eth)}, "\n")
	statement(g, "M19", "properties for a network namespace, neighbours, derived addresses, a GID index and channels, and the type ipvlan "+
		"are refused by nmcli", !strings.Contains(evidence, "ACCEPTED") && strings.Count(evidence, "Error:") == 6, evidence)

	const datagram = "[infiniband]\ntransport-mode=datagram\n"
	evidence = ""
	for i, link := range p.ib {
		evidence += activate(fmt.Sprint("rail", i), "infiniband", link, datagram+manual(fmt.Sprintf("10.5.0.1%d/24", i+1))) + "\n"
	}
	found := railsFound(g, "other", p.host, map[string]string{"10.5.0.11": p.ib[0], "10.5.0.12": p.ib[1]})
	sysctls := said(g, "sysctl net.ipv4.conf."+p.ib[1]+".arp_ignore net.ipv4.conf."+p.ib[1]+".arp_announce")
	statement(g, "M20", "two links in one subnet: another host finds the wrong link", found < 20 &&
		strings.Contains(sysctls, "arp_ignore = 0"), fmt.Sprintf("%sthe right link %d of 20 times\n%s", evidence, found, sysctls))
	g.Sh("nmcli connection delete rail0 rail1")

	g.Sh("echo '11 1 4' >/sys/bus/netdevsim/new_device; udevadm settle; " +
		"ip link set $(ls /sys/bus/netdevsim/devices/netdevsim11/net) name sim0")
	set := func() string { return said(g, "ethtool -c sim0 | grep ^rx-usecs: | tr -s '\\t ' ' '") }
	evidence = activate("sim0", "ethernet", "sim0", "[ethtool]\ncoalesce-rx-usecs=30\n"+none)
	first := set()
	g.Sh("ethtool -C sim0 rx-usecs 7; sleep 3")
	statement(g, "M21", "coalesce-rx-usecs= is set when the profile is activated, not again after another program",
		strings.Contains(first, "rx-usecs: 30") && strings.Contains(set(), "rx-usecs: 7"), evidence+"\n"+first+"\nthen\n"+set())
	peerNetworkManagerLeased(g, p, func(name, keys string) string { return activate(name, "infiniband", p.ib[0], datagram+keys) })
}

// peerNetworkManagerLeased has what leases carry, and a restart.
func peerNetworkManagerLeased(g *lab.G, p peerLinks, activate func(name, keys string) string) {
	a := p.ib[0]
	log := peerServer(g, p.host, a)
	g.Sh("rm -f /etc/hostname; hostname localhost")
	startChrony(g)
	g.Exec("systemctl", "start", "NetworkManager-dispatcher")
	evidence := activate("lease", "[ipv6]\nmethod=disabled\n[ipv4]\nmethod=auto\n")
	leased := func() bool { return strings.HasPrefix(leasedAddress(g, a), "10.5.0.") }
	within(30*time.Second, leased)
	name := func() string { return strings.TrimSpace(g.Exec("uname", "-n")) }
	within(20*time.Second, func() bool { return name() == "node17" })
	statement(g, "M22", "the host gets the name of the lease", name() == "node17", evidence+"\n"+name()+"\n"+
		said(g, "hostnamectl; journalctl --no-pager -o cat -u NetworkManager | grep -i hostname"))
	sources := func() string {
		return said(g, "chronyc -n sources; ls /etc/NetworkManager/dispatcher.d /usr/lib/NetworkManager/dispatcher.d /run/chrony-dhcp")
	}
	within(20*time.Second, func() bool { return strings.Contains(sources(), "10.5.0.123") })
	statement(g, "M23", "the script of Debian's chrony has chronyd use the time servers of the lease",
		strings.Contains(sources(), "^? 10.5.0.123"), sources())

	changes, asked, same := restartLeased(g, "NetworkManager", a, log, 30*time.Second, leased)
	statement(g, "M24", "a restart: the address stays, and the lease is requested again",
		same && !strings.Contains(changes, "Deleted") && strings.Contains(asked, "DHCPACK"), changes+asked)
	counters := said(g, "nmcli -f all device show "+a)
	statement(g, "M25", "nmcli device show has no counters", strings.Contains(counters, "GENERAL.DEVICE") && !strings.Contains(
		strings.ToLower(counters), "packets") && !strings.Contains(strings.ToLower(counters), "bytes"), counters)
	commands := said(g, "nmcli --help; nmcli connection help")
	statement(g, "M26", "nmcli has no command that shows what other hosts would get", !strings.Contains(commands, "plan"), commands)
	g.Sh("nmcli connection delete lease; kill $(cat /tmp/dnsmasq.pid); systemctl stop chrony")
	_ = os.Remove("/etc/NetworkManager/conf.d/dhcp.conf")
}
