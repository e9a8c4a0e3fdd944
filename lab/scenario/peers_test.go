package scenario

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
)

var peers = flag.Bool("peers", false, "look at what the other tools do: each statement of docs/peers.md, tried")

// A statement of docs/peers.md is true here, or the page is wrong.
func statement(g *lab.G, id, text string, ok bool, evidence string) {
	g.Helper()
	word := "as the page says"
	if !ok {
		word = "NOT as the page says"
		g.Fail()
	}
	g.Logf("%s %s: %s\n%s", id, word, text, indent(evidence))
}

func indent(s string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n    ")
}

// within waits until ok, and says whether it came.
func within(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(lab.Patience(limit)); ; time.Sleep(50 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// What systemd-networkd, NetworkManager, ifupdown and opensm, as Debian ships
// them, do on IPoIB: every statement of docs/peers.md.
func TestPeers(t *testing.T) {
	if !*peers && !lab.InGuest() {
		t.Skip("a look at other tools: make bench-peers")
	}
	server := debs(t, dnsmasqPackages...)
	t.Run("networkd", func(t *testing.T) {
		lab.Run(t, lab.Config{Userland: lab.Systemd, HCAs: 6, Timeout: 15 * time.Minute, Bins: server,
			Units: []string{"systemd-networkd.service"},
			Files: map[string]string{
				unitDir + "10-ib1.network": "[Match]\nName=ib1\n[Link]\nMTUBytes=65520\n[IPoIB]\nMode=connected\n[Network]\n" +
					"Address=10.1.0.1/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
				unitDir + "10-ib2.network": "[Match]\nName=ib2\n[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nIPoIB=null\nIPoIB=job\n",
				unitDir + "05-job.netdev":  "[NetDev]\nName=job\nKind=ipoib\n[IPoIB]\nPartitionKey=0x8001\nNetworkNamespace=job\n",
				unitDir + "06-v7.netdev":   "[NetDev]\nName=v7\nKind=vlan\n[VLAN]\nId=7\nNetworkNamespace=job\n",
				unitDir + "05-null.netdev": "[NetDev]\nName=null\nKind=ipoib\n[IPoIB]\nPartitionKey=0x8000\n",
				unitDir + "10-ib3.network": "[Match]\nName=ib3\n[Link]\nMTUBytes=4092\n[Network]\nAddress=10.3.0.1/24\n" +
					"LinkLocalAddressing=no\nIPv6AcceptRA=no\n[NextHop]\nId=8\nGateway=10.3.0.2\n",
				unitDir + "10-ib4.network": "[Match]\nName=ib4\n[Network]\nAddress=10.4.0.1/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n" +
					"[Neighbor]\nAddress=10.4.0.2\nLinkLayerAddress=" + peerNeighbor + "\n" +
					"[NextHop]\nId=7\nGateway=10.4.0.2\n[NextHop]\nId=20\nGroup=7 8\n[Route]\nDestination=10.9.0.0/16\nNextHop=20\n",
			}}, peerNetworkd)
	})
	t.Run("NetworkManager", func(t *testing.T) {
		lab.Run(t, lab.Config{Userland: lab.Systemd, HCAs: 3, Timeout: 15 * time.Minute, Bins: server}, peerNetworkManager)
	})
	t.Run("ifupdown", func(t *testing.T) {
		lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2}, peerIfupdown)
	})
	t.Run("links", func(t *testing.T) {
		c := lab.Config{Userland: lab.Systemd, HCAs: 6, Timeout: 30 * time.Minute, Commands: peerLinksCommands, Bins: []string{ibnetworkd},
			Files: map[string]string{"/etc/NetworkManager/conf.d/lab.conf": "[main]\nno-auto-default=*\n"}}
		c.Bins = append(c.Bins, debs(t, slices.Concat(dnsmasqPackages, chronyPackages, []string{"systemd-timesyncd"})...)...)
		t.Run("NetworkManager", func(t *testing.T) { lab.Run(t, c, peerNetworkManagerLinks) })
		c.Units = []string{"systemd-networkd.service"}
		t.Run("networkd", func(t *testing.T) { lab.Run(t, c, peerNetworkdLinks) })
	})
	for name, f := range map[string]func(*lab.G){"DHCP": peerDHCP, "DHCPv6": peerDHCP6} {
		t.Run(name, func(t *testing.T) {
			c := lab.Config{Userland: lab.Systemd, HCAs: 3, Timeout: 30 * time.Minute, Bins: []string{ibnetworkd},
				Units: []string{"systemd-networkd.service"},
				Files: map[string]string{"/etc/NetworkManager/conf.d/lab.conf": "[main]\nno-auto-default=*\n"}}
			c.Bins = append(c.Bins, debs(t, dhcpPackages...)...)
			lab.Run(t, c, f)
		})
	}
	t.Run("opensm", func(t *testing.T) {
		lab.Run(t, lab.Config{Userland: lab.Systemd, HCAs: 3}, peerOpensm)
	})
}

const peerNeighbor = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:de"

func peerNetworkd(g *lab.G) {
	unpack(g)
	words := func(link string) string {
		out, _ := g.Try("networkctl", "status", "--no-pager", "-n", "0", link)
		return strings.TrimSpace(grep(out, "State:"))
	}
	log := func() string {
		out, _ := g.Try("journalctl", "--no-pager", "-o", "cat", "-u", "systemd-networkd")
		return out
	}
	// N1 before there is a subnet manager, and with a cable pulled.
	within(20*time.Second, func() bool { return strings.Contains(words("ib4"), "configuring") })
	noSM := words("ib4")
	g.Opensm(lab.SM{Partitions: "Default=0x7fff, ipoib : ALL=full;\none=0x0001, ipoib : ALL=full;\n"})
	within(30*time.Second, func() bool { return strings.Contains(words("ib4"), "routable") })
	g.Ctl("link h4/1 down")
	within(20*time.Second, func() bool { return strings.Contains(words("ib4"), "no-carrier") })
	noCable := words("ib4")
	g.Ctl("link h4/1 up")
	statement(g, "N1", "no subnet manager and no cable read alike: no-carrier, nothing of the port",
		strings.Contains(noSM, "no-carrier") && strings.Contains(noCable, "no-carrier"),
		"without a subnet manager: "+noSM+"\nwithout a cable: "+noCable)

	within(30*time.Second, func() bool { return strings.Contains(words("ib1"), "(configured)") })
	statement(g, "N2", "[IPoIB] Mode= in a .network file is refused as an unknown section; the link stays in datagram mode and reads "+
		"configured",
		strings.Contains(log(), "Unknown section 'IPoIB'") && mode(g, "ib1") == "datagram" && strings.Contains(words("ib1"), "(configured)"),
		grep(log(), "Unknown section")+"\nmode "+mode(g, "ib1")+"\n"+words("ib1"))
	statement(g, "N3", "so MTUBytes=65520 fails as well, and the link still reads configured",
		strings.Contains(log(), "ib1: Failed to set MTU") && mtu(g, "ib1") != "65520", grep(log(), "ib1: Failed to set MTU")+"\nmtu "+
			mtu(g, "ib1"))

	null, err := g.Try("ip", "-d", "link", "show", "null")
	statement(g, "N4", "a P_Key that cannot be is ignored with a warning, and the child is made on the parent's partition",
		err == nil && !strings.Contains(null, "pkey  0x8000") && strings.Contains(log(), "cannot be 0 nor 0x8000"),
		grep(log(), "cannot be 0 nor")+"\n"+grep(null, "pkey"))
	within(20*time.Second, func() bool { return strings.Contains(words("ib3"), "(configured)") })
	statement(g, "N5", "MTUBytes=4092 in a fabric whose group allows 2044: 2044, configured, no word",
		mtu(g, "ib3") == "2044" && strings.Contains(words("ib3"), "(configured)") && !strings.Contains(log(), "ib3: Failed"), "mtu "+
			mtu(g, "ib3")+"\n"+words("ib3"))

	var near string
	within(20*time.Second, func() bool {
		near, _ = g.Try("ip", "neighbour", "show", "dev", "ib4", "nud", "permanent")
		return strings.Contains(near, peerNeighbor)
	})
	statement(g, "N7", "[Neighbor] with an IPoIB address of 20 bytes works", strings.Contains(near, peerNeighbor), near+"\n"+
		grep(log(), "eighbor"))

	peerNextHops(g, words)

	monitor := g.Start("ip", "-o", "monitor", "address")
	time.Sleep(300 * time.Millisecond)
	g.Exec("systemctl", "restart", "systemd-networkd")
	within(30*time.Second, func() bool { return strings.Count(g.Exec("ip", "-o", "-4", "address"), "10.") >= 2 })
	gone := 0
	for l := range strings.Lines(monitor.Output()) {
		if strings.Contains(l, "Deleted") && strings.Contains(l, "inet 10.") {
			gone++
		}
	}
	statement(g, "N6", "a restart takes its addresses off and puts them on again", gone > 0,
		fmt.Sprintf("%d addresses deleted\n%s", gone, monitor.Output()))

	g.Sh("ip netns add job; ip link set job netns job")
	g.Exec("systemctl", "restart", "systemd-networkd")
	again := within(20*time.Second, func() bool { _, err := g.Try("ip", "link", "show", "job"); return err == nil })
	statement(g, "N8", "there is no key for the network namespace of a P_Key child; one that is moved is made a second time by a restart",
		again && strings.Contains(log(), "Unknown key 'NetworkNamespace' in section [IPoIB]") &&
			strings.Contains(log(), "Unknown key 'NetworkNamespace' in section [VLAN]"), grep(log(), "NetworkNamespace")+"\n"+
			g.Sh("ip -o link show job; ip -n job -o link show job"))
	peerNetworkdAddresses(g, func() string { return words("ib0") }, log)
}

// nextHops are the nexthops and the route over them.
func nextHops(g *lab.G) string {
	return g.Sh("ip nexthop show; ip route show 10.9.0.0/16 | tr '\\n' ' '")
}

// peerNextHops has a group over two links, whose cables go one after the other.
func peerNextHops(g *lab.G, words func(string) string) {
	has := func(texts ...string) func() bool {
		return func() bool {
			have := nextHops(g)
			return !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(have, t) })
		}
	}
	whole := func() bool { return has("id 20 group 7/8")() || has("id 20 group 8/7")() }
	first := within(20*time.Second, func() bool { return whole() && has("10.9.0.0/16 nhid 20")() })
	evidence := "at first:\n" + nextHops(g)
	replug := func(adapter, link string) {
		g.Ctl("link %s/1 down", adapter)
		within(20*time.Second, func() bool { return strings.Contains(words(link), "no-carrier") })
		time.Sleep(time.Second)
		evidence += "\nwithout the cable of " + link + ":\n" + nextHops(g)
		g.Ctl("link %s/1 up", adapter)
		within(30*time.Second, func() bool { return strings.Contains(words(link), "routable") })
		time.Sleep(3 * time.Second)
		evidence += "\nwith it:\n" + nextHops(g)
	}
	replug("h3", "ib3")
	lost := !whole() && !has("10.9.0.0/16")()
	g.Exec("systemctl", "restart", "systemd-networkd")
	back := within(20*time.Second, has("10.9.0.0/16 nhid 20"))
	time.Sleep(3 * time.Second)
	statement(g, "N9", "a group of nexthops on two links is set; after the cable of one was out it lacks that link's nexthop, and its "+
		"route is gone; a restart brings the route back, but not the nexthop", first && lost && back && !whole(),
		evidence+"\nafter a restart:\n"+nextHops(g))
	evidence = ""
	g.Sh("ip nexthop add id 40 blackhole proto bird; ip nexthop add id 41 group 40 proto bird\n" +
		"ip nexthop add id 42 via 10.3.0.9 dev ib3 proto bird")
	replug("h4", "ib4")
	stay := has("id 40", "id 41", "id 42")()
	g.Ctl("del 4")
	g.Ctl("add 4")
	within(30*time.Second, func() bool { return strings.Contains(words("ib4"), "routable") })
	time.Sleep(3 * time.Second)
	statement(g, "N10", "nexthops of another program stay when a link of networkd loses its carrier; those without a link are removed when "+
		"one appears", stay && !has("id 40")() && !has("id 41")() && has("id 42")(),
		evidence+"\nafter a restart of the driver of ib4:\n"+nextHops(g))
}

func peerNetworkManager(g *lab.G) {
	unpack(g)
	g.Opensm(lab.SM{})
	profile := func(name, text string) {
		path := "/etc/NetworkManager/system-connections/" + name + ".nmconnection"
		g.Write(path, text)
		if err := os.Chmod(path, 0o600); err != nil {
			g.Fatal(err)
		}
	}
	profile("ib1", "[connection]\nid=ib1\ntype=infiniband\ninterface-name=ib1\n[infiniband]\ntransport-mode=connected\nmtu=65520\n"+
		"[ipv4]\nmethod=manual\naddress1=10.1.0.1/24\nroute1=10.9.0.0/16,10.1.0.2,50\nroute1_options=weight=1\n[ipv6]\nmethod=disabled\n")
	profile("ib0", "[connection]\nid=ib0\ntype=infiniband\ninterface-name=ib0\n[infiniband]\ntransport-mode=datagram\n[ipv4]\n"+
		"method=manual\naddress1=10.3.0.1/24\nroute1=10.9.0.0/16,10.3.0.2,50\nroute1_options=weight=1\n[ipv6]\nmethod=disabled\n")
	profile("child", "[connection]\nid=child\ntype=infiniband\ninterface-name=ib1.8005\n[infiniband]\np-key=32773\nparent=ib1\n"+
		"transport-mode=datagram\n[ipv4]\nmethod=manual\naddress1=10.2.0.1/24\n[ipv6]\nmethod=disabled\n")
	changes := g.Start("ip", "-o", "monitor", "link", "dev", "ib1")
	g.Exec("systemctl", "start", "NetworkManager")
	has := func() bool {
		out, _ := g.Try("ip", "-o", "-4", "address", "show", "dev", "ib1")
		return strings.Contains(out, "10.1.0.1/24")
	}
	ok := within(60*time.Second, has)
	statement(g, "M1", "connected mode, MTU 65520 and the address work", ok && mode(g, "ib1") == "connected" &&
		mtu(g, "ib1") == "65520", "mode "+mode(g, "ib1")+", mtu "+mtu(g, "ib1"))
	downs := 0
	for l := range strings.Lines(changes.Output()) {
		if !strings.Contains(l, ",UP") {
			downs++
		}
	}
	statement(g, "M2", "on the way the link is brought down again", downs > 0,
		fmt.Sprintf("%d messages with the link down\n%s", downs, changes.Output()))
	state := func(dev string) string {
		out, _ := g.Try("nmcli", "-g", "GENERAL.STATE,GENERAL.REASON", "device", "show", dev)
		return strings.ReplaceAll(out, "\n", "; ")
	}
	within(20*time.Second, func() bool { return strings.Contains(state("ib1.8005"), "unavailable") })
	notGranted := state("ib1.8005")
	before := g.Exec("ip", "-o", "-4", "address", "show", "dev", "ib1")
	monitor := g.Start("ip", "-o", "monitor", "address", "dev", "ib1")
	time.Sleep(300 * time.Millisecond)
	g.Exec("systemctl", "restart", "NetworkManager")
	time.Sleep(3 * time.Second)
	statement(g, "M3", "a restart changes nothing on a configured link", !strings.Contains(monitor.Output(), "Deleted") &&
		g.Exec("ip", "-o", "-4", "address", "show", "dev", "ib1") == before, "addresses before: "+before+"\nevents: "+monitor.Output())
	g.Ctl("link h1/1 down")
	within(30*time.Second, func() bool { return strings.Contains(state("ib1"), "unavailable") })
	noCable := state("ib1")
	statement(g, "M4", "a P_Key that was not granted and a missing cable read alike: unavailable",
		strings.Contains(notGranted, "unavailable") && strings.Contains(noCable, "unavailable"), "P_Key: "+notGranted+"\ncable: "+noCable)
	without := nextHops(g)
	g.Ctl("link h1/1 up")
	both := within(30*time.Second, func() bool { h := nextHops(g); return strings.Count(h, "nexthop via") == 2 })
	statement(g, "M5", "routes of two profiles with weight= are one route over both links, beside which the first one's stays, without "+
		"nexthop objects", both && strings.Contains(nextHops(g), "10.9.0.0/16 via ") && !strings.Contains(nextHops(g), "id "),
		"without the cable of ib1:\n"+without+"\nwith it:\n"+nextHops(g))
	peerNetworkManagerAddresses(g)
}

func peerIfupdown(g *lab.G) {
	g.Opensm(lab.SM{})
	_ = os.MkdirAll("/run/network", 0o755)
	g.Write("/tmp/interfaces", "auto ib1\niface ib1 inet static\n  address 10.1.0.1/24\n  mtu 65520\n  pre-up echo connected > "+
		"/sys/class/net/ib1/mode\n")
	g.Exec("ifup", "-i", "/tmp/interfaces", "ib1")
	statement(g, "I1", "the recipe of the wikis gives connected mode, MTU 65520 and the address", mode(g, "ib1") == "connected" &&
		mtu(g, "ib1") == "65520", kernelState(g, "ib1"))
	g.Ctl("del 1")
	g.Ctl("add 1")
	g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
	time.Sleep(3 * time.Second)
	out, err := g.Try("ifup", "-i", "/tmp/interfaces", "ib1")
	statement(g, "I2", "after a restart of the driver nothing is configured, and ifup believes that it is",
		mode(g, "ib1") == "datagram" && err == nil && strings.Contains(out, "already configured"), kernelState(g, "ib1")+"\nifup: "+out)
	g.Exec("ip", "addr", "flush", "dev", "ib0")
	g.Ctl("link h0/1 down")
	g.Write("/tmp/interfaces", "auto ib0\niface ib0 inet static\n  address 10.3.0.1/24\n")
	out, err = g.Try("ifup", "-i", "/tmp/interfaces", "ib0")
	statement(g, "I3", "without a cable ifup succeeds, without a word", err == nil && strings.TrimSpace(out) == "", out)
}

func peerOpensm(g *lab.G) {
	_ = os.MkdirAll("/etc/default", 0o755)
	g.Exec("systemctl", "unmask", "opensm.service")
	g.Exec("systemctl", "start", "opensm.service")
	running := func() string {
		out, _ := g.Try("systemctl", "list-units", "--plain", "--no-legend", "--state=active", "opensm@*")
		return strings.TrimSpace(out)
	}
	g.WaitActive(60 * time.Second)
	first := running()
	g.Ctl("add 7")
	dev := "swib3"
	within(30*time.Second, func() bool { return g.PortFile(dev, 1, "state") == "4: ACTIVE" })
	time.Sleep(3 * time.Second)
	after := running()
	statement(g, "O1", "Debian's unit looks for ports once: an adapter that comes later gets no manager",
		strings.Count(after, "opensm@") == strings.Count(first, "opensm@"), "before:\n"+first+"\nwith one more adapter:\n"+after)
	g.Exec("systemctl", "stop", "opensm.service")
	for l := range strings.Lines(after) {
		if u, _, _ := strings.Cut(l, " "); u != "" {
			g.Exec("systemctl", "stop", u)
		}
	}
	conf := g.TempDir()
	sm := g.Start("opensm", "-g", g.PortGUID("swib0", 1), "-f", conf+"/log")
	g.WaitActive(60 * time.Second)
	g.Sh("ip link set ib1 up")
	within(20*time.Second, func() bool { return g.Read("/sys/class/net/ib1/carrier") == "1" })
	statement(g, "O2", "by default IPoIB in datagram mode gets MTU 2044, whatever the ports can", mtu(g, "ib1") == "2044", "mtu "+
		mtu(g, "ib1")+", ports with 4096")
	second := g.Start("opensm", "-g", g.PortGUID("swib2", 1), "-f", conf+"/log2")
	standby := within(90*time.Second, func() bool { return g.SMRole("swib2", 1) == "STANDBY" || g.SMRole("swib0", 1) == "STANDBY" })
	time.Sleep(3 * time.Second)
	master, other := sm, "swib2"
	if g.SMRole("swib2", 1) == "MASTER" {
		master, other = second, "swib0"
	}
	master.Kill()
	start := time.Now()
	took := within(2*time.Minute, func() bool { return g.SMRole(other, 1) == "MASTER" })
	statement(g, "O3", "a standby takes longer than half a minute to notice that the master is gone", standby && took &&
		time.Since(start) > 30*time.Second, fmt.Sprintf("%.1f s from the kill to the other being master", time.Since(start).Seconds()))
}
