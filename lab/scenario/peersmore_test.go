package scenario

import (
	"os"
	"strings"
	"time"

	"ibnetworkd/lab"
)

// peerServer answers in the network namespace of the other host: DHCP of both families, with
// a reservation for the identifier of the boot firmware, and router advertisements.
func peerServer(g *lab.G, link, client string) (log func(from int) (string, int)) {
	g.Sh("ip -n other -6 address add fd00:5::1/64 dev %s nodad", link)
	dnsmasqBy(g, "ip netns exec other", "--interface="+link, "--dhcp-authoritative", "--enable-ra", "--ra-param="+link+",10",
		"--dhcp-range=10.5.0.100,10.5.0.199,1h", "--dhcp-range=fd00:5::100,fd00:5::1ff,slaac,64,1h",
		"--dhcp-option=option:ntp-server,10.5.0.123", "--dhcp-option=option:domain-search,lab.example",
		"--dhcp-option=option:dns-server,10.5.0.53",
		"--dhcp-option=option6:dns-server,[fd00:5::53]", "--dhcp-host=id:20:"+portGUID(g, client)+",node17",
		"--dhcp-host=id:"+firmwareID(g, client)+",10.5.0.250")
	return func(from int) (string, int) { return served(g, from) }
}

// restartLeased restarts a service that has a lease for a link, and returns what was said of the link's addresses
// meanwhile, what the server logged, and whether the address is that of before. limit is how long a lease may take
// from 5 s after the restart on.
func restartLeased(g *lab.G, service, link string, log func(int) (string, int), limit time.Duration, leased func() bool) (
	changes, asked string, same bool) {
	address := leasedAddress(g, link)
	monitor := g.Start("ip", "-o", "monitor", "address", "dev", link)
	time.Sleep(300 * time.Millisecond)
	_, mark := log(0)
	g.Exec("systemctl", "restart", service)
	time.Sleep(5 * time.Second)
	within(limit, leased)
	asked, _ = log(mark)
	monitor.Kill()
	now := leasedAddress(g, link)
	return address + ", then " + now + "\n" + monitor.Output(), asked, now == address
}

// portGUID is the GUID of a link's port, as in its address.
func portGUID(g *lab.G, link string) string {
	a := strings.TrimSpace(g.Read("/sys/class/net/" + link + "/address"))
	return a[len(a)-len("00:00:00:00:00:00:00:00"):]
}

// firmwareID is the client identifier of FlexBoot.
func firmwareID(g *lab.G, link string) string {
	return "ff:00:00:00:00:00:02:00:00:02:c9:00:" + portGUID(g, link)
}

// leaseID is the client identifier with which an address was leased.
func leaseID(g *lab.G, address string) string {
	address, _, _ = strings.Cut(address, "/")
	for l := range strings.Lines(g.Read("/tmp/leases")) {
		if f := strings.Fields(l); len(f) == 5 && f[2] == address {
			return f[4]
		}
	}
	return ""
}

// said is what a command prints, with the command.
func said(g *lab.G, command string) string {
	out, err := g.Try("sh", "-c", command)
	if err != nil {
		out += "\n" + err.Error()
	}
	return "$ " + command + "\n" + strings.TrimSpace(out)
}

func hasAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// all6 is what a link has of IPv6.
func all6(g *lab.G, link string) string {
	return g.Sh("ip -6 -o address show dev %s scope global; ip -6 route show dev %s", link, link)
}

// peerNetworkdLeases has leases, router advertisements and a bond on ib1.
func peerNetworkdLeases(g *lab.G) {
	file := unitDir + "10-ib1.network"
	configure := func(text string) {
		g.Write(file, "[Match]\nName=ib1\n[Network]\nLinkLocalAddressing=ipv6\n"+text)
		g.Exec("networkctl", "reload")
	}
	configure("IPv6AcceptRA=no\n")
	server := peerServer(g, "ib5", "ib1")
	guid := portGUID(g, "ib1")
	lease := func(ok func(address string) bool) (address, id string) {
		within(30*time.Second, func() bool {
			address = leasedAddress(g, "ib1")
			return strings.HasPrefix(address, "10.5.0.") && ok(address) && leaseID(g, address) != ""
		})
		return address, leaseID(g, address)
	}
	evidence := ""
	ids := map[string]string{}
	for _, x := range []struct{ name, keys string }{
		{"mac", "ClientIdentifier=mac\n"}, {"duid", "ClientIdentifier=duid\n"}, {"duid-only", "ClientIdentifier=duid-only\n"},
		{"firmware's", "ClientIdentifier=duid\nIAID=0\nDUIDType=vendor\nDUIDRawData=00:00:02:c9:00:" + guid + "\n"},
	} {
		configure("IPv6AcceptRA=no\n")
		within(20*time.Second, func() bool { return leasedAddress(g, "ib1") == "" })
		configure("DHCP=ipv4\nIPv6AcceptRA=no\n[DHCPv4]\n" + x.keys)
		address, id := lease(func(string) bool { return true })
		ids[x.name] = id
		evidence += x.name + ": " + address + " by " + id + "\n"
	}
	failed := strings.Contains(said(g, "networkctl status --no-pager -n 0 ib1"), "(failed)")
	statement(g, "N13", "ClientIdentifier=mac sends 20: and the port GUID, duid and duid-only others; with that of FlexBoot as DUIDRawData=, "+
		"which is longer than networkd's own, the link is failed", ids["mac"] == "20:"+guid && strings.HasPrefix(ids["duid"], "ff:") &&
		strings.HasPrefix(ids["duid-only"], "ff:") && ids["firmware's"] == "" && failed, evidence+said(g,
		"journalctl --no-pager -o cat -u systemd-networkd | grep 'ib1: ' | tail -5; networkctl status --no-pager -n 0 ib1 | grep State"))
	configure("DHCP=ipv4\nIPv6AcceptRA=no\n[DHCPv4]\nClientIdentifier=mac\n")
	g.Exec("systemctl", "restart", "systemd-networkd")
	lease(func(string) bool { return true })

	_, mark := server(0)
	out := said(g, "networkctl renew ib1")
	renewed := within(15*time.Second, func() bool { text, _ := server(mark); return strings.Contains(text, "DHCPACK") })
	text, _ := server(mark)
	statement(g, "N14", "networkctl renew renews the lease at once", renewed, out+"\n"+text)

	g.Exec("systemctl", "start", "systemd-resolved")
	configure("DHCP=ipv4\nIPv6AcceptRA=no\n[DHCPv4]\nClientIdentifier=mac\nUseDomains=yes\n")
	lease(func(string) bool { return true })
	given := func() string {
		return said(g, "networkctl status --no-pager -n 0 ib1 | grep -E 'NTP|DNS|Domain'") + "\n" + said(g, "resolvectl domain ib1")
	}
	within(20*time.Second, func() bool { return hasAll(given(), "10.5.0.123", "10.5.0.53", "lab.example") })
	statement(g, "N15", "time servers, name servers and domains of a lease are used", hasAll(given(), "10.5.0.123", "10.5.0.53",
		"lab.example"),
		given())

	configure("IPv6AcceptRA=yes\n[IPv6AcceptRA]\nToken=::5:1a:2b\n")
	v6 := func() string { return all6(g, "ib1") }
	within(40*time.Second, func() bool { return hasAll(v6(), "fd00:5::5:1a:2b/64", "fd00:5::1", "/128", "default via fe80") })
	dns := said(g, "resolvectl dns ib1")
	statement(g, "N16",
		"router advertisements: an address with the identifier of Token=, a default route; DHCPv6 by its flag: an address and "+
			"name servers", hasAll(v6(), "fd00:5::5:1a:2b/64", "/128", "default via fe80") && strings.Contains(dns, "fd00:5::53"), v6()+"\n"+dns)
	statement(g, "N17", "networkctl -s status shows the kernel's counters of the link, none of the port", hasAll(said(g,
		"networkctl -s status --no-pager -n 0 ib1"), "Rx Packets") && !strings.Contains(strings.ToLower(said(g,
		"networkctl -s status --no-pager -n 0 ib1")), "symbol"), said(g, "networkctl -s status --no-pager -n 0 ib1"))
	peerNetworkdUppers(g)
}

// peerNetworkdUppers has a bond of ib1 and ib2 with a lease, whose backup is not able to take over,
// macvlan on IPoIB and on Ethernet, and rings.
func peerNetworkdUppers(g *lab.G) {
	g.Write(unitDir+"05-duo.netdev", "[NetDev]\nName=duo\nKind=bond\n[Bond]\nMode=active-backup\nMIIMonitorSec=10ms\n")
	g.Write(unitDir+"10-duo.network", "[Match]\nName=duo\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"+
		"[DHCPv4]\nClientIdentifier=mac\n")
	g.Write(unitDir+"10-ib1.network", "[Match]\nName=ib1\n[Network]\nBond=duo\nPrimarySlave=yes\n")
	g.Write(unitDir+"10-ib2.network", "[Match]\nName=ib2\n[Network]\nBond=duo\n")
	g.Exec("networkctl", "reload")
	journal := func(name string) string {
		return said(g, "journalctl --no-pager -o cat -u systemd-networkd | grep '"+name+": ' | tail -6")
	}
	leased := func(limit time.Duration) bool {
		return within(limit, func() bool { return strings.HasPrefix(leasedAddress(g, "duo"), "10.5.0.") })
	}
	first := leased(30 * time.Second)
	evidence := said(g, "networkctl status --no-pager -n 0 duo | grep State") + "\n" + journal("duo")
	g.Exec("systemctl", "restart", "systemd-networkd")
	second := leased(30 * time.Second)
	statement(g, "N18",
		"DHCP on a bond of two IPoIB ports: the bond that networkd has made is failed; after a restart of networkd it gets an "+
			"address", !first && second, evidence+"\nafter a restart:\n"+said(g, "ip -o -4 address show dev duo")+"\n"+journal("duo"))
	g.Write(unitDir+"10-duo.network", "[Match]\nName=duo\n[Network]\nAddress=10.8.0.1/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n")
	g.Exec("networkctl", "reload")
	state := func() string {
		return said(g, "networkctl status --no-pager -n 0 duo | grep -E ' State|Online state'; cat /sys/class/net/duo/bonding/active_slave")
	}
	within(30*time.Second, func() bool {
		return strings.Count(g.Sh("cat /proc/net/bonding/duo || :"), "MII Status: up") == 3 && hasAll(state(), "routable (configured)")
	})
	before := state()
	g.Ctl("link h2/1 down")
	time.Sleep(2 * time.Second)
	without := state()
	g.Ctl("link h2/1 up")
	statement(g, "N19", "a bond whose ports are on one switch is routable (configured), and the same without the cable of the backup",
		hasAll(before, "routable (configured)") && without == before, "both up:\n"+before+"\nbackup without a cable:\n"+without)

	g.Write(unitDir+"05-mac.netdev", "[NetDev]\nName=mac0\nKind=macvlan\n[MACVLAN]\nMode=bridge\n")
	g.Write(unitDir+"05-mac1.netdev", "[NetDev]\nName=mac1\nKind=macvlan\n[MACVLAN]\nMode=bridge\n")
	g.Write(unitDir+"10-ib0.network", "[Match]\nName=ib0\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nMACVLAN=mac0\n")
	g.Write(unitDir+"10-va.network", "[Match]\nName=va\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nMACVLAN=mac1\n")
	g.Sh("ip link add va type veth peer name vb")
	g.Exec("networkctl", "reload")
	on := func(link string) bool { _, err := g.Try("ip", "link", "show", link); return err == nil }
	ethernet := within(20*time.Second, func() bool { return on("mac1") })
	statement(g, "N20", "a macvlan of an Ethernet link works; on IPoIB there is none", ethernet && !on("mac0"),
		said(g, "ip -d -o link show mac1")+"\n"+journal("mac0"))

	g.Write("/etc/systemd/network/10-sim.link", "[Match]\nDriver=netdevsim\n[Link]\nRxBufferSize=2048\nName=sim0\n")
	g.Write("/etc/systemd/network/11-ib0.link", "[Match]\nOriginalName=ib0\n[Link]\nRxBufferSize=1024\n")
	g.Sh("udevadm control --reload; echo '11 1 4' >/sys/bus/netdevsim/new_device; " +
		"udevadm trigger --action=add /sys/class/net/ib0; udevadm settle")
	rings := func() string {
		return said(g, "ethtool -g $(ls /sys/bus/netdevsim/devices/netdevsim11/net) | tail -n +6 | grep ^RX:")
	}
	set := rings()
	g.Sh("ethtool -G $(ls /sys/bus/netdevsim/devices/netdevsim11/net) rx 1024 || :; sleep 3")
	left := rings()
	ib := said(g, "ethtool -g ib0; journalctl --no-pager -o cat -u systemd-udevd | grep -i ib0 | tail -5")
	statement(g, "N21", "RxBufferSize= of a .link file is set when the link appears, not again after another program; IPoIB has none, "+
		"which the journal says", strings.Contains(set, "2048") && strings.Contains(left, "1024") && strings.Contains(ib,
		"Could not set ring buffer"),
		set+"\n"+left+"\n"+ib)
	_ = os.Remove("/etc/systemd/network/11-ib0.link")
}

// peerNetworkManagerLeases does so with profiles.
func peerNetworkManagerLeases(g *lab.G, activate func(name, text string) string) {
	const head = "type=infiniband\ninterface-name=ib0\nautoconnect=false\n[infiniband]\ntransport-mode=datagram\n"
	server := peerServer(g, "ib2", "ib0")
	guid, firmware := portGUID(g, "ib0"), firmwareID(g, "ib0")
	evidence := ""
	ids, leases := map[string]string{}, map[string]string{}
	for _, x := range []struct{ name, keys string }{{"none", ""}, {"mac", "dhcp-client-id=mac\n"}, {"duid", "dhcp-client-id=duid\n"},
		{"firmware's", "dhcp-client-id=" + firmware + "\n"}} {
		_, _ = g.Try("nmcli", "connection", "down", "lease")
		said := activate("lease", "[connection]\nid=lease\n"+head+"[ipv6]\nmethod=disabled\n[ipv4]\nmethod=auto\n"+x.keys)
		address, _ := inet(g, "ib0", func(a string) bool { return strings.Contains(a, "10.5.0.") })
		leases[x.name] = leasedAddress(g, "ib0")
		ids[x.name] = leaseID(g, leases[x.name])
		evidence += x.name + ": " + ids[x.name] + " " + said + " " + address + "\n"
	}
	statement(g, "M9",
		"without dhcp-client-id, and with mac, the identifier is 20: and the port GUID; bytes of each host are that of FlexBoot, "+
			"and its reservation is leased", ids["none"] == "20:"+guid && ids["mac"] == "20:"+guid && ids["duid"] != ids["mac"] &&
			strings.HasPrefix(leases["firmware's"], "10.5.0.250/"), evidence)

	_, mark := server(0)
	monitor := g.Start("ip", "-o", "monitor", "address", "dev", "ib0")
	time.Sleep(300 * time.Millisecond)
	reapply := said(g, "nmcli device reapply ib0")
	time.Sleep(5 * time.Second)
	text, mark2 := server(mark)
	again := said(g, "nmcli connection up lease")
	time.Sleep(3 * time.Second)
	text2, _ := server(mark2)
	statement(g, "M10", "nothing renews a lease: reapply asks no server, and connection up takes the address off and asks again",
		!strings.Contains(text, "DHCP") && strings.Contains(text2, "DHCPACK") && strings.Contains(monitor.Output(), "Deleted"),
		reapply+"\n"+text+"\n"+again+"\n"+text2+"\n"+monitor.Output())
	given := said(g, "nmcli -f DHCP4,IP4 device show ib0; cat /etc/resolv.conf; uname -n")
	statement(g, "M11", "name servers and domains of a lease are used, time servers are kept for scripts", hasAll(given,
		"ntp_servers = 10.5.0.123", "lab.example", "10.5.0.53"), given)

	activated := activate("six", "[connection]\nid=six\n"+head+
		"[ipv4]\nmethod=disabled\n[ipv6]\nmethod=auto\naddr-gen-mode=eui64\ntoken=::5:1a:2b\n")
	v6 := func() string { return all6(g, "ib0") }
	within(40*time.Second, func() bool { return hasAll(v6(), "fd00:5::5:1a:2b/64", "/128", "default via fe80") })
	dns := said(g, "nmcli -f IP6 device show ib0")
	statement(g, "M12",
		"router advertisements: an address with the identifier of token=, a default route; DHCPv6 by its flag: an address and "+
			"name servers", hasAll(v6(), "fd00:5::5:1a:2b/64", "/128", "default via fe80") && strings.Contains(dns, "fd00:5::53"),
		activated+"\n"+v6()+"\n"+dns)
	peerNetworkManagerUppers(g, activate)
}

func peerNetworkManagerUppers(g *lab.G, activate func(name, text string) string) {
	const none = "[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n"
	evidence := ""
	for _, name := range []string{"ib1", "ib0"} {
		_, _ = g.Try("nmcli", "connection", "delete", name)
	}
	evidence += activate("duo",
		"[connection]\nid=duo\ntype=bond\ninterface-name=duo\nautoconnect=false\n[bond]\nmode=active-backup\nprimary=ib0\n"+
			"miimon=10\n[ipv4]\nmethod=auto\n[ipv6]\nmethod=disabled\n")
	for _, port := range []string{"ib0", "ib1"} {
		evidence += "\n" + activate("duo-"+port, "[connection]\nid=duo-"+port+"\ntype=infiniband\ninterface-name="+port+"\nautoconnect=false\n"+
			"master=duo\nslave-type=bond\n[infiniband]\ntransport-mode=datagram\n")
	}
	leased := within(60*time.Second, func() bool { return strings.HasPrefix(leasedAddress(g, "duo"), "10.5.0.") })
	statement(g, "M13", "DHCP on a bond of two IPoIB ports works", leased, evidence+"\n"+said(g,
		"ip -o -4 address show dev duo; nmcli device"))
	state := func() string {
		return said(g, "nmcli -g GENERAL.STATE,GENERAL.REASON,GENERAL.IP4-CONNECTIVITY device show duo")
	}
	before := state()
	g.Ctl("link h1/1 down")
	time.Sleep(3 * time.Second)
	statement(g, "M14", "a bond whose backup has no cable reads as before", strings.Contains(before, "100 (connected)") && state() == before,
		"both up:\n"+before+"\nbackup without a cable:\n"+state())
	g.Ctl("link h1/1 up")

	g.Sh("ip link add va type veth peer name vb; ip link set vb up; echo '11 1 4' >/sys/bus/netdevsim/new_device; udevadm settle\n" +
		"ip link set $(ls /sys/bus/netdevsim/devices/netdevsim11/net) name sim0")
	evidence = activate("mac0",
		"[connection]\nid=mac0\ntype=macvlan\ninterface-name=mac0\nautoconnect=false\n[macvlan]\nparent=ib1\nmode=2\n"+none)
	evidence += "\n" + activate("mac1",
		"[connection]\nid=mac1\ntype=macvlan\ninterface-name=mac1\nautoconnect=false\n[macvlan]\nparent=va\nmode=2\n"+none)
	on := func(link string) bool { _, err := g.Try("ip", "link", "show", link); return err == nil }
	statement(g, "M15", "a macvlan of an Ethernet link works; on IPoIB it is not activated", within(10*time.Second,
		func() bool { return on("mac1") }) &&
		!on("mac0"), evidence)

	rings := func(link string) string { return said(g, "ethtool -g "+link+" | tail -n +6 | grep ^RX:") }
	evidence = activate("sim0", "[connection]\nid=sim0\ntype=ethernet\ninterface-name=sim0\nautoconnect=false\n[ethtool]\nring-rx=2048\n"+none)
	first := rings("sim0")
	g.Sh("ethtool -G sim0 rx 1024 || :; sleep 3")
	second := rings("sim0")
	g.Sh("nmcli connection down duo || :; nmcli connection down duo-ib0 || :")
	evidence += "\n" + activate("rings", "[connection]\nid=rings\ntype=infiniband\ninterface-name=ib0\nautoconnect=false\n[infiniband]\n"+
		"transport-mode=datagram\n[ethtool]\nring-rx=1024\n"+none)
	statement(g, "M16", "ring-rx= is set when the profile is activated, not again after another program; on IPoIB it is not there, and the "+
		"profile is activated", strings.Count(evidence, "successfully activated") == 2 && strings.Contains(first,
		"2048") && strings.Contains(second, "1024"), evidence+"\n"+first+"\n"+second)
}
