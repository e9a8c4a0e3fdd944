package scenario

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/lab"
)

// cutBond is a bond of two IPoIB links whose cable is cut, and what makes it: files that
// start configures. Its address is 10.4.0.1.
type cutBond struct {
	name, primary string
	peer          string // commands for the link of the peer, 10.4.0.2
	files         map[string]string
	start         func(g *lab.G) (stop func())
}

func cutBonds() []cutBond {
	const bond, ports = "[Match]\nName=ipbond\n[Network]\nAddress=10.4.0.1/24\n", "[Match]\nName=ib0 ib1\n"
	const key = "[Bond]\nName=ipbond\nPrimary=%s\nMIIMonitorSec=10ms\n"
	own := func(g *lab.G) func() { return startDaemon(g).kill }
	const twenty = "[Match]\nName=ipbond\n[Address]\nAddress=10.4.0.1/24\nAddPrefixRoute=no\n" +
		"[Route]\nDestination=10.4.0.0/24\nScope=link\nTCPRetransmissionTimeoutSec=20ms\n"
	bonds := []cutBond{
		{"datagram", "ib0", peerPlain, map[string]string{unitDir + "10-bond.ibnetwork": bond,
			unitDir + "20-ports.ibnetwork": ports + fmt.Sprintf(key, "ib0")}, own},
		{"connected", "ib0", strings.Replace(peerPlain, "datagram", "connected", 1), map[string]string{
			unitDir + "10-bond.ibnetwork":  bond,
			unitDir + "20-ports.ibnetwork": ports + "[IPoIB]\nMode=connected\n" + fmt.Sprintf(key, "ib0")}, own},
		{"P_Key children", "ib0.8001", peerChild, map[string]string{unitDir + "10-bond.ibnetwork": bond,
			unitDir + "20-ports.ibnetwork":    ports + "[Partition]\nPartitionKey=0x8001\n",
			unitDir + "30-children.ibnetwork": "[Match]\nName=ib0.8001 ib1.8001\n" + fmt.Sprintf(key, "ib0.8001")}, own},
	}
	for _, b := range bonds[:3] {
		b.name, b.files = b.name+" with a timeout of 20 ms", maps.Clone(b.files)
		b.files[unitDir+"10-bond.ibnetwork"] = twenty
		bonds = append(bonds, b)
	}
	for _, kind := range []string{"datagram", "connected", "P_Key children"} {
		bonds = append(bonds, networkdBond(kind), networkManagerBond(kind))
	}
	return bonds
}

const (
	peerPlain = "ip -n peer address add 10.4.0.2/24 dev ib2; ip -n peer link set ib2 type ipoib mode datagram"
	peerChild = "ip -n peer address add 10.4.0.2/24 dev p8001"
)

// slaves are the bonded links of a kind, and the commands for the link of the peer.
func slaves(kind string) (links [2]string, peer string) {
	switch kind {
	case "connected":
		return [2]string{"ib0", "ib1"}, strings.Replace(peerPlain, "datagram", "connected", 1)
	case "P_Key children":
		return [2]string{"ib0.8001", "ib1.8001"}, peerChild
	default:
		return [2]string{"ib0", "ib1"}, peerPlain
	}
}

// started starts a service after a command, and returns what stops it.
func started(name, before string) func(*lab.G) func() {
	return func(g *lab.G) func() {
		g.Sh("%s", before+"systemctl start "+name)
		return func() {
			_, _ = g.Try("systemctl", "stop", name+".socket")
			g.Exec("systemctl", "stop", name)
		}
	}
}

// networkdBond is the bond of systemd-networkd. The mode of a port is set by a udev rule, for 252
// cannot; without MACAddress=none 252 gives a child an address that no subnet manager lets join.
func networkdBond(kind string) cutBond {
	links, peer := slaves(kind)
	const alone = "[Network]\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
	files := map[string]string{
		unitDir + "10-bond.netdev":  "[NetDev]\nName=ipbond\nKind=bond\n[Bond]\nMode=active-backup\nMIIMonitorSec=10ms\n",
		unitDir + "10-bond.network": "[Match]\nName=ipbond\n" + alone + "Address=10.4.0.1/24\n",
	}
	before := ""
	for i, l := range links {
		text := "[Match]\nName=" + l + "\n"
		if kind == "connected" {
			text += "[Link]\nMTUBytes=65520\n"
			files["/etc/udev/rules.d/90-"+l+".rules"] = fmt.Sprintf("ACTION==\"add\", SUBSYSTEM==\"net\", KERNEL==\"%s\", "+
				"RUN+=\"/bin/sh -c 'echo connected > /sys/class/net/%s/mode'\"\n", l, l)
			before += "echo connected >/sys/class/net/" + l + "/mode; "
		}
		if port, _, child := strings.Cut(l, "."); child {
			files[unitDir+"20-"+port+".network"] = "[Match]\nName=" + port + "\n" + alone + "IPoIB=" + l + "\n"
			files[unitDir+"20-"+l+".netdev"] = "[NetDev]\nName=" + l + "\nKind=ipoib\nMACAddress=none\n" +
				"[IPoIB]\nPartitionKey=0x8001\nMode=datagram\n"
		}
		text += "[Network]\nBond=ipbond\n"
		if i == 0 {
			text += "PrimarySlave=yes\n"
		}
		files[unitDir+"30-"+l+".network"] = text
	}
	return cutBond{"systemd-networkd " + kind, links[0], peer, files, started("systemd-networkd", before+"udevadm control --reload; ")}
}

func networkManagerBond(kind string) cutBond {
	links, peer := slaves(kind)
	const dir, none = "/etc/NetworkManager/system-connections/", "[ipv4]\nmethod=disabled\n[ipv6]\nmethod=disabled\n"
	files := map[string]string{dir + "bond.nmconnection": "[connection]\nid=ipbond\ntype=bond\ninterface-name=ipbond\n[bond]\n" +
		"mode=active-backup\nprimary=" + links[0] + "\nmiimon=10\n[ipv4]\nmethod=manual\naddress1=10.4.0.1/24\n[ipv6]\nmethod=disabled\n"}
	profile := func(name, more, settings string) {
		files[dir+name+".nmconnection"] = "[connection]\nid=" + name + "\ntype=infiniband\ninterface-name=" + name + "\n" + more +
			"[infiniband]\n" + settings
	}
	for _, l := range links {
		settings := "transport-mode=datagram\n"
		if kind == "connected" {
			settings = "transport-mode=connected\nmtu=65520\n"
		}
		if port, _, child := strings.Cut(l, "."); child {
			profile(port, "", settings+none)
			settings += "p-key=32769\nparent=" + port + "\n"
		}
		profile(l, "master=ipbond\nslave-type=bond\n", settings)
	}
	return cutBond{"NetworkManager " + kind, links[0], peer, files, started("NetworkManager", "")}
}

// What a cut cable costs a TCP stream over a bond of two IPoIB links, and how long the bond
// is gone with its adapters, for bonds of ibnetworkd, systemd-networkd and NetworkManager.
// IBNET_CUTS is how often each is cut (100), IBNET_BONDS which of them, separated by commas.
// A cut does not count if a busy machine stopped the guest for 50 ms or more.
func TestBondCuts(t *testing.T) {
	if os.Getenv("IBNET_LONG") == "" && !lab.InGuest() {
		t.Skip("a measurement of ten minutes: IBNET_LONG=1")
	}
	lab.Run(t, lab.Config{Userland: lab.Systemd, HCAs: 3, Bins: []string{ibnetworkd, ibnetctl}, Timeout: time.Hour,
		Files: map[string]string{"/etc/NetworkManager/conf.d/lab.conf": "[main]\nno-auto-default=*\n"},
	}, func(g *lab.G) {
		cuts, _ := strconv.Atoi(cmp.Or(os.Getenv("IBNET_CUTS"), "100"))
		g.SM(lab.SM{Dev: "swib2", Partitions: defaultPartition + onePartition})
		g.Sh("ip link add link ib2 name p8001 type ipoib pkey 0x8001; ip netns add peer; ip link set ib2 netns peer; " +
			"ip link set p8001 netns peer; ip -n peer link set ib2 up; ip -n peer link set p8001 up")
		for _, b := range cutBonds() {
			if only := os.Getenv("IBNET_BONDS"); only != "" && !slices.Contains(strings.Split(only, ","), b.name) {
				continue
			}
			b.measure(g, cuts)
			g.Sh("ip link delete ipbond 2>/dev/null || true; rm -rf /run/ibnetworkd")
			g.Ctl("del 0")
			g.Ctl("del 1")
			g.Ctl("add 0")
			g.Ctl("add 1")
			g.WaitActive(30 * time.Second)
		}
	})
}

func (b cutBond) measure(g *lab.G, cuts int) {
	for path, text := range b.files {
		g.Write(path, text)
		if strings.HasSuffix(path, ".nmconnection") {
			g.Exec("chmod", "600", path)
		}
		defer func() { g.Exec("rm", path) }()
	}
	g.Sh("%s", "ip -n peer address flush dev ib2; ip -n peer address flush dev p8001; "+b.peer)
	defer b.start(g)()
	whole := func() string {
		// Of this thread: that of the stream in the namespace of the peer may be the first one.
		state, _ := os.ReadFile("/proc/thread-self/net/bonding/ipbond")
		address, _ := g.Try("ip", "-o", "-4", "address", "show", "dev", "ipbond")
		if !strings.Contains(string(state), "Currently Active Slave: "+b.primary+"\n") ||
			strings.Count(string(state), "MII Status: up") != 3 || !strings.Contains(address, "10.4.0.1/24") {
			return b.name + ": " + address + string(state)
		}
		return ""
	}
	g.WaitFor(60*time.Second, whole)
	g.Wait("the peer", 20*time.Second, func() bool { _, err := g.Try("ping", "-c1", "-W1", "10.4.0.2"); return err == nil })
	stream := newStream(g)
	seen := watchFailover(g, b.primary)
	defer seen.close()
	var gaps []time.Duration
	var found []string
	stills := 0
	for range cuts {
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
		rto := stream.timeout()
		stream.reset()
		seen.reset()
		g.Ctl("link h0/1 down")
		time.Sleep(300 * time.Millisecond)
		g.Wait("a byte after the cut", 30*time.Second, func() bool { return stream.silence() < 50*time.Millisecond })
		if stream.still.longest() < 50*time.Millisecond {
			gaps = append(gaps, stream.worst())
			if stream.worst() >= 100*time.Millisecond {
				still := stream.still.longest().Round(time.Millisecond)
				found = append(found, fmt.Sprintf("%v: %s of at least %v, the guest stood still for %v", stream.worst(), seen, rto, still))
			}
		} else {
			stills++
		}
		g.Ctl("link h0/1 up")
		g.WaitFor(30*time.Second, whole)
	}
	stream.close()
	slices.Sort(gaps)
	if n := len(gaps); n > 0 {
		g.Logf("%s: cable cut to the next TCP byte, %d cuts: median %v, 90 %% %v, 99 %% %v, worst %v, %d of 100 ms or more; "+
			"without %d in which the guest stood still\n%s",
			b.name, n, gaps[n/2], gaps[n*9/10], gaps[n*99/100], gaps[n-1], len(found), stills, strings.Join(found, "\n"))
	}
	g.Ctl("del 0")
	g.Ctl("del 1")
	g.Sh("until ! [ -e /sys/class/net/ib0 ] && ! [ -e /sys/class/net/ib1 ]; do sleep 0.1; done")
	begin := time.Now()
	g.Ctl("add 0")
	g.Ctl("add 1")
	if within(time.Minute, func() bool { return whole() == "" }) {
		g.Logf("%s: whole again %v after both adapters came back", b.name, time.Since(begin).Round(time.Millisecond))
	} else {
		g.Logf("%s: not whole a minute after both adapters came back: %s", b.name, whole())
	}
}

// failover is what a cut did to a bond, and when: how long after the cut another slave was
// active and the peer had its hardware address, and how often TCP's timers sent again.
type failover struct {
	mu              sync.Mutex
	cut             time.Time
	active, learned time.Duration
	timers          [2]int // what tcpTimers read at the cut
	ends            []io.Closer
}

// watchFailover follows the bond by rtnetlink, and the neighbours of the peer in its namespace.
func watchFailover(g *lab.G, primary string) *failover {
	f := &failover{}
	peer, err := os.Open("/run/netns/peer")
	if err != nil {
		g.Fatalf("%v", err)
	}
	defer peer.Close()
	watch := func(config *netlink.Config, ours func(netlink.Message) bool, at *time.Duration) {
		c, err := netlink.Dial(unix.NETLINK_ROUTE, config)
		if err != nil {
			g.Fatalf("%v", err)
		}
		f.ends = append(f.ends, c)
		go func() {
			for {
				messages, err := c.Receive()
				if err != nil {
					return
				}
				f.mu.Lock()
				if *at == 0 && slices.ContainsFunc(messages, ours) {
					*at = time.Since(f.cut)
				}
				f.mu.Unlock()
			}
		}()
	}
	watch(&netlink.Config{Groups: unix.RTMGRP_LINK}, func(netlink.Message) bool {
		b, err := os.ReadFile("/sys/class/net/ipbond/bonding/active_slave")
		return err == nil && strings.TrimSpace(string(b)) != primary
	}, &f.active)
	watch(&netlink.Config{Groups: unix.RTMGRP_NEIGH, NetNS: int(peer.Fd())}, func(m netlink.Message) bool {
		return m.Header.Type == unix.RTM_NEWNEIGH && bytes.Contains(m.Data, []byte{10, 4, 0, 1})
	}, &f.learned)
	return f
}

func (f *failover) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut, f.active, f.learned, f.timers = time.Now(), 0, 0, tcpTimers()
}

func (f *failover) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := tcpTimers()
	return fmt.Sprintf("another slave active after %v, known to the peer after %v, %d loss probes, %d retransmission timeouts",
		f.active.Round(time.Millisecond), f.learned.Round(time.Millisecond), now[1]-f.timers[1], now[0]-f.timers[0])
}

func (f *failover) close() {
	for _, c := range f.ends {
		_ = c.Close()
	}
}

// tcpTimers are the retransmission timeouts and the tail loss probes of all connections.
func tcpTimers() (out [2]int) {
	b, _ := os.ReadFile("/proc/thread-self/net/netstat")
	lines := strings.Split(string(b), "\n")
	for i, name := range []string{"TCPTimeouts", "TCPLossProbes"} {
		if len(lines) > 1 {
			if at := slices.Index(strings.Fields(lines[0]), name); at >= 0 {
				out[i], _ = strconv.Atoi(strings.Fields(lines[1])[at])
			}
		}
	}
	return out
}
