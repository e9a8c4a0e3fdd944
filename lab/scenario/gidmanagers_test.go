package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// netplanPackages are netplan with what its command apply needs.
var netplanPackages = []string{"netplan.io", "libnetplan0", "libyaml-0-2", "python3", "python3-minimal", "python3.11", "python3.11-minimal",
	"libpython3.11-minimal", "libpython3.11-stdlib", "python3-dbus", "python3-rich", "python3-markdown-it", "python3-mdurl",
	"python3-pygments", "python3-typing-extensions",
	"python3-yaml", "python3-netifaces", "libdbus-1-3", "media-types"}

// gap is how long a condition did not hold.
type gap struct {
	mu      sync.Mutex
	since   time.Time // when it ended, zero while it holds
	longest time.Duration
	stop    chan struct{}
	stopped sync.WaitGroup
}

// watchGap reads a condition every millisecond.
func watchGap(holds func() bool) *gap {
	w := &gap{stop: make(chan struct{})}
	w.stopped.Go(func() {
		for {
			select {
			case <-w.stop:
				return
			case <-time.After(time.Millisecond):
			}
			ok, now := holds(), time.Now()
			w.mu.Lock()
			if !ok && w.since.IsZero() {
				w.since = now
			}
			if !w.since.IsZero() {
				w.longest = max(w.longest, now.Sub(w.since))
			}
			if ok {
				w.since = time.Time{}
			}
			w.mu.Unlock()
		}
	})
	return w
}

// reset returns the longest gap since the last reset.
func (w *gap) reset() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.longest
	w.longest = 0
	return d
}

func (w *gap) end() {
	close(w.stop)
	w.stopped.Wait()
}

// gidBeside is GIDIndex=3 on the Ethernet link of the second adapter, beside other managers.
type gidBeside struct {
	g     *lab.G
	d     *service
	eth   string
	watch *gap
}

const managerConf = "/etc/NetworkManager/conf.d/ibnetworkd.conf"

// held reports whether the index has the GID of the unit's address.
func (b *gidBeside) held() bool { return gidSlot{"swib1", 3}.has(b.eth, "0a07:0101") }

// newGIDBeside has the daemon set the link up, which NetworkManager is to leave alone.
func newGIDBeside(g *lab.G) *gidBeside {
	g.Write(managerConf, "[keyfile]\nunmanaged-devices=interface-name:eth*\n")
	g.Write(unitDir+"10-eth.ibnetwork",
		"[Match]\nIBDevice=swib1\nPort=1\n[Port]\nType=eth\n[RoCE]\nGIDIndex=3\n[Network]\nAddress=10.7.1.1/24\n")
	g.Sh("ip link add mgmt0 type veth peer name mgmt1; ip link set mgmt1 up")
	b := &gidBeside{g: g, d: startDaemon(g)}
	g.Wait("the Ethernet link", 60*time.Second, func() bool {
		m, _ := filepath.Glob("/sys/class/net/eth*")
		if len(m) == 1 {
			b.eth = filepath.Base(m[0])
		}
		return len(m) == 1
	})
	g.Wait("the index", 60*time.Second, b.held)
	b.watch = watchGap(b.held)
	return b
}

func (b *gidBeside) end() {
	b.watch.end()
	b.d.kill()
	b.g.Sh("rm -rf %s*.ibnetwork /run/ibnetworkd", unitDir)
}

// event runs a command, after which the index is as wanted, and addresses are there. Where
// the command leaves the link alone, the index never changes.
func (b *gidBeside) event(what, command string, addresses ...string) {
	b.g.Helper()
	b.watch.reset()
	b.g.Sh("%s", command)
	b.g.WaitFor(60*time.Second, func() string {
		out := b.g.Exec("ip", "-4", "-o", "address")
		a := attr(b.d.status(b.eth), "GIDIndex")
		for _, x := range addresses {
			if !strings.Contains(out, x) {
				return "no " + x + " yet:\n" + out
			}
		}
		if !b.held() || !a.OK() || a.Actual != "3" {
			return out + a.Why.Text + "\n" + a.Why.Next
		}
		return ""
	})
	without := b.watch.reset()
	b.g.Logf("%s: not in place for %v at most", what, without.Round(time.Millisecond))
	if without != 0 && !strings.Contains(command, b.eth) {
		b.g.Errorf("%s: the index was not in place for %v", what, without)
	}
}

// left waits until the daemon leaves the link to another manager.
func (b *gidBeside) left(who string) {
	b.g.Helper()
	s := b.d.wait(b.eth, "left to "+who, 30*time.Second, func(s link.Status) bool { return s.Reason().Code == link.CodeOtherManager })
	b.g.Logf("%s has the link: %+v\n%s", who, s.Reason(), b.g.Exec("ip", "-4", "-o", "address", "show", "dev", b.eth))
}

// netplan applies its configuration of another link, by both backends.
func (b *gidBeside) netplan() {
	const yaml, flush = "/etc/netplan/10-fabric.yaml", "ip -4 address flush dev "
	for _, renderer := range []string{"networkd", "NetworkManager"} {
		b.g.Write(yaml, "network:\n  version: 2\n  renderer: "+renderer+
			"\n  ethernets:\n    mgmt0: {link-local: [], addresses: [10.66.0.1/24]}\n")
		b.g.Exec("chmod", "600", yaml)
		b.event("the addresses are flushed, netplan apply, "+renderer, flush+b.eth+"; netplan apply", "10.66.0.1/24")
		if os.Getenv("IBNET_LONG") != "" {
			b.event("netplan apply, "+renderer, "netplan apply", "10.66.0.1/24")
		}
	}
}

// networkManager activates profiles of another link and of a VLAN on the port, and at last one of the link.
func (b *gidBeside) networkManager(other string) {
	b.event("nmcli device reapply", "nmcli device reapply mgmt0", "10.66.0.1/24")
	b.event("nmcli connection up", "nmcli connection up "+other, "10.66.0.1/24")
	b.event("a VLAN of NetworkManager on the port", "nmcli connection add type vlan con-name other ifname other dev "+b.eth+
		" id 9 autoconnect no "+
		"ipv4.method manual ipv4.addresses 10.9.9.1/24 ipv6.method disabled; nmcli connection up other", "10.9.9.1/24")
	b.event("nmcli device reapply of that VLAN", "nmcli connection modify other +ipv4.addresses 10.9.8.1/24; nmcli device reapply other",
		"10.9.9.1/24", "10.9.8.1/24")
	b.event("the VLAN goes and comes", "nmcli connection down other; ip -4 address flush dev "+b.eth+"; nmcli connection up other",
		"10.9.9.1/24")
	// The link is the other program's, whose address gets the index; then it is the daemon's again.
	b.g.Sh("%s", "nmcli connection delete other; rm "+managerConf+"; nmcli connection add type ethernet con-name theirs ifname "+b.eth+
		" autoconnect no ipv4.method manual ipv4.addresses 10.9.1.1/24 ipv6.method disabled; systemctl reload NetworkManager")
	b.left("NetworkManager")
	out := ""
	if !within(30*time.Second, func() bool { o, err := b.g.Try("nmcli", "connection", "up", "theirs"); out = o; return err == nil }) {
		b.g.Errorf("%s\n%s", out, b.g.Exec("nmcli", "device"))
	}
	if b.held() {
		b.g.Error("the unit's address has the index although NetworkManager has the link")
	}
	b.event("NetworkManager releases the link", "nmcli connection down theirs; nmcli connection delete theirs; nmcli device set "+b.eth+
		" managed no")
}
