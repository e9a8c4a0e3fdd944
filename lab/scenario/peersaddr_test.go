package scenario

import (
	"os"
	"strings"
	"time"

	"ibnetworkd/lab"
)

// otherHost has a link in a network namespace of its own, with an address that the link
// under test is given too.
func otherHost(g *lab.G, link, addr string) {
	g.Sh("ip netns add other; ip link set %s netns other; ip -n other link set %s up; ip -n other address add %s dev %s", link, link,
		addr, link)
	g.Wait("the carrier of the other host", 30*time.Second, func() bool {
		return strings.Contains(g.Sh("ip -n other link show %s", link), "LOWER_UP")
	})
}

// inet is what is on a link, and whether that becomes true for the addresses.
func inet(g *lab.G, link string, ok func(addresses string) bool) (string, bool) {
	out := ""
	came := within(20*time.Second, func() bool {
		out, _ = g.Try("ip", "-o", "-4", "address", "show", "dev", link)
		return ok(out)
	})
	return strings.TrimSpace(out), came
}

// peerNetworkdAddresses has addresses that are probed, and a VRF, on the IPoIB link ib0.
func peerNetworkdAddresses(g *lab.G, words, log func() string) {
	otherHost(g, "ib5", "10.5.0.1/24")
	file := unitDir + "10-ib0.network"
	g.Write(file, "[Match]\nName=ib0\n[Network]\nLinkLocalAddressing=ipv4\nIPv6AcceptRA=no\n[Address]\nAddress=10.5.0.1/24\n"+
		"DuplicateAddressDetection=ipv4\n")
	g.Exec("networkctl", "reload")
	within(20*time.Second, func() bool { return strings.Contains(words(), "(configured)") })
	time.Sleep(15 * time.Second) // what RFC 5227 and RFC 3927 take, twice
	addrs, set := inet(g, "ib0", func(a string) bool { return strings.Contains(a, "10.5.0.1/24") })
	statement(g, "N11", "an address with DuplicateAddressDetection=ipv4 that another host has is set, without a word; "+
		"LinkLocalAddressing=ipv4 gives no address", set && !strings.Contains(addrs, "169.254.") && strings.Contains(words(), "(configured)"),
		addrs+"\n"+words()+"\n"+grep(log(), "ib0"))
	g.Write(unitDir+"05-red.netdev", "[NetDev]\nName=red\nKind=vrf\n[VRF]\nTable=100\n")
	g.Write(file, "[Match]\nName=ib0\n[Network]\nVRF=red\nAddress=10.6.0.1/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n")
	g.Exec("networkctl", "reload")
	_, set = inet(g, "ib0", func(a string) bool { return strings.Contains(a, "10.6.0.1/24") })
	route := func() string { return g.Sh("ip route show table 100; ip -o link show ib0") }
	statement(g, "N12", "a VRF by a .netdev file and VRF= works", set && within(10*time.Second, func() bool {
		return strings.Contains(route(), "10.6.0.0/24 dev ib0") && strings.Contains(route(), "master red")
	}), route())
	peerNetworkdLeases(g)
}

// activated writes a profile and activates it.
func activated(g *lab.G, name, text string) string {
	path := "/etc/NetworkManager/system-connections/" + name + ".nmconnection"
	g.Write(path, text)
	if err := os.Chmod(path, 0o600); err != nil {
		g.Fatal(err)
	}
	g.Exec("nmcli", "connection", "load", path)
	out, _ := g.Try("nmcli", "-w", "40", "connection", "up", name)
	return strings.TrimSpace(out)
}

// peerNetworkManagerAddresses does so with profiles for ib0, one after the other.
func peerNetworkManagerAddresses(g *lab.G) {
	otherHost(g, "ib2", "10.5.0.1/24")
	activate := func(name, text string) string { return activated(g, name, text) }
	const head = "type=infiniband\ninterface-name=ib0\nautoconnect=false\n"
	const tail = "[infiniband]\ntransport-mode=datagram\n[ipv6]\nmethod=disabled\n[ipv4]\n"
	said := activate("ll", "[connection]\nid=ll\n"+head+tail+"method=link-local\n")
	addrs, set := inet(g, "ib0", func(a string) bool { return strings.Contains(a, "169.254.") })
	statement(g, "M6", "method=link-local gives no address, and the profile is not activated", !set &&
		strings.Contains(said, "Timeout expired"), said+"\n"+addrs)
	said = activate("red", "[connection]\nid=red\ntype=vrf\ninterface-name=red\nautoconnect=false\n[vrf]\ntable=100\n[ipv4]\n"+
		"method=disabled\n[ipv6]\nmethod=disabled\n")
	said += "\n" + activate("port", "[connection]\nid=port\n"+head+"master=red\nslave-type=vrf\n"+tail+"method=manual\naddress1=10.6.0.1/24\n")
	_, set = inet(g, "ib0", func(a string) bool { return strings.Contains(a, "10.6.0.1/24") })
	route := g.Sh("ip route show table 100; ip -o link show ib0")
	statement(g, "M7", "a VRF by a profile and master= works", set && strings.Contains(route, "10.6.0.0/24 dev ib0") &&
		strings.Contains(route, "master red"), said+"\n"+route)
	evidence, gone := "", true
	for _, a := range []string{"10.5.0.1/24", "10.5.0.9/24"} {
		said = activate("dad", "[connection]\nid=dad\n"+head+tail+"method=manual\naddress1="+a+"\ndad-timeout=3000\n")
		addrs, set = inet(g, "ib0", func(have string) bool { return strings.Contains(have, a) })
		evidence += a + ": " + said + "\n" + addrs + "\n"
		gone = gone && !set && strings.Contains(said, "successfully activated")
	}
	statement(g, "M8", "an address with dad-timeout=3000 is not set, whether another host has it or not, and the profile is activated", gone,
		evidence)
	peerNetworkManagerLeases(g, activate)
}
