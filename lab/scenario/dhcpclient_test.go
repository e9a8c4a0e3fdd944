package scenario

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// dnsmasq is the DHCP server of the guest, in the background.
func dnsmasq(g *lab.G, args ...string) (stop func()) {
	g.Helper()
	return dnsmasqBy(g, "", args...)
}

// dnsmasqBy does so by another command, such as ip netns exec NAME.
func dnsmasqBy(g *lab.G, by string, args ...string) (stop func()) {
	g.Helper()
	g.Sh("%s", by+" dnsmasq --conf-file=/dev/null --port=0 --user=root --no-ping --bind-interfaces --except-interface=lo "+
		"--dhcp-leasefile=/tmp/leases --log-dhcp --log-facility=/tmp/dnsmasq.log --pid-file=/tmp/dnsmasq.pid "+strings.Join(args, " "))
	return func() {
		g.Helper()
		g.Sh("kill $(cat /tmp/dnsmasq.pid); while pgrep -x dnsmasq > /dev/null; do sleep 0.05; done")
	}
}

// leasedAddress is the address that a link has for a limited time, "" for none.
func leasedAddress(g *lab.G, name string) string {
	out, _ := g.Try("ip", "-4", "-o", "address", "show", "dev", name, "dynamic")
	if f := strings.Fields(out); len(f) > 3 {
		return f[3]
	}
	return ""
}

// leased waits until a link is configured with an address of a prefix by DHCP.
func (d *service) leased(name, prefix string, limit time.Duration) (address string) {
	d.g.Helper()
	d.wait(name, "configured with an address of "+prefix, limit, func(s link.Status) bool {
		address = leasedAddress(d.g, name)
		return s.State == link.StateConfigured && strings.HasPrefix(address, prefix) && strings.Contains(attr(s, "DHCP").Actual, address)
	})
	return address
}

// served is what dnsmasq has received and sent since its log had so many bytes.
func served(g *lab.G, from int) (text string, to int) {
	all := g.Read("/tmp/dnsmasq.log")
	return all[min(from, len(all)):], len(all)
}

// unplug removes the first adapter with the P_Key child of its link.
func unplug(g *lab.G, child string) {
	g.Helper()
	g.Ctl("del 0")
	g.WaitFor(20*time.Second, func() string {
		if out, _ := g.Try("ip", "link", "show", child); strings.Contains(out, "mtu") {
			return child + " is still there"
		}
		return ""
	})
}

// released removes the unit of a link: its address goes too, and the server is informed.
func (d *service) released(name string, address func(g *lab.G, name string) string) {
	g := d.g
	g.Helper()
	_, mark := served(g, 0)
	g.Sh("rm %s10-%s.ibnetwork", unitDir, name)
	d.p.Signal(syscall.SIGHUP)
	g.WaitFor(10*time.Second, func() string {
		text, _ := served(g, mark)
		if a := address(g, name); a != "" || !strings.Contains(text, "DHCPRELEASE") {
			return name + " has " + a + ":\n" + text
		}
		return ""
	})
}

// The daemon's own DHCP client against dnsmasq on another adapter: a datagram link, a
// connected one, and a P_Key child; the lease outlives a restart of the daemon and of the
// subnet manager, and is asked for again after one of the driver.
func TestDHCPClient(t *testing.T) {
	t.Parallel()
	const (
		all    = "[Network]\nDHCP=ipv4\n[DHCPv4]\nUseDNS=no\n"
		client = all + "UseRoutes=no\n"
	)
	child := func(name string) string { return "[Partition]\nPartitionKey=0x8001\nName=" + name + "\n" }
	c := lab.Config{Userland: lab.Debian, HCAs: 3, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[IPoIB]\nMode=datagram\n[Link]\nMTUBytes=max\n" + all +
			"ClientIdentifier=mac\n" + child("one"),
		unitDir + "10-one.ibnetwork": "[Match]\nName=one\n" + client + "ClientIdentifier=flexboot\n",
		unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=max\n" + client,
		unitDir + "10-ib2.ibnetwork": "[Match]\nName=ib2\n[Network]\nAddress=10.11.0.1/24\n" + child("far"),
		unitDir + "10-far.ibnetwork": "[Match]\nName=far\n[Network]\nAddress=10.12.0.1/24\n",
	}}
	c.Bins = append(c.Bins, debs(t, dnsmasqPackages...)...)
	lab.Run(t, c, func(g *lab.G) {
		unpack(g)
		manager := lab.SM{Dev: "swib2", Partitions: defaultPartition + onePartition, File: "/tmp/partitions.conf"}
		sm := g.SM(manager)
		d := startDaemon(g)
		d.configured("ib2", 20*time.Second)
		d.configured("far", 20*time.Second)
		serve := func(net string) func() {
			return dnsmasq(g, "--interface=ib2", "--interface=far", "--dhcp-authoritative", "--dhcp-range=10.11.0."+net+"0,10.11.0."+net+"9,1h",
				"--dhcp-range=10.12.0."+net+"0,10.12.0."+net+"9,1h", "--dhcp-option=121,10.99.0.0/16,10.11.0.1,0.0.0.0/0,10.11.0.254")
		}
		stop := serve("10")
		first := map[string]string{}
		for name, prefix := range map[string]string{"ib0": "10.11.0.10", "ib1": "10.11.0.10", "one": "10.12.0.10"} {
			first[name] = d.leased(name, prefix, 40*time.Second)
		}
		g.Logf("%v\nleases:\n%s", first, g.Exec("cat", "/tmp/leases"))
		for _, id := range []string{"20:" /* mac */, "ff:00:00:00:00:00:02:00:00:02:c9:00:" /* flexboot */} {
			if !strings.Contains(g.Read("/tmp/leases"), " "+id) {
				g.Errorf("no client identifier begins with %s", id)
			}
		}
		routes := g.Exec("ip", "route", "show", "dev", "ib0")
		for _, want := range []string{"10.99.0.0/16 via 10.11.0.1 proto dhcp src " + strings.TrimSuffix(first["ib0"], "/24") + " metric 1024",
			"default via 10.11.0.254 proto dhcp"} {
			if !strings.Contains(routes, want) {
				g.Errorf("no route %q:\n%s", want, routes)
			}
		}

		if out := g.Exec("ibnetctl", "plan"); strings.Contains(out, "ip ") || strings.Contains(out, "DHCP") {
			g.Errorf("there is something to do where leases are in use:\n%s", out)
		}

		// A restart of the daemon, without a message, and of the subnet manager: the address stays.
		_, mark := served(g, 0)
		monitor := g.Start("ip", "monitor", "address")
		d.kill()
		plan, status := g.Exec("ibnetctl", "plan"), g.Exec("ibnetctl", "--no-pager", "status", "ib0")
		if strings.Contains(plan, "ip ") || !strings.Contains(status, "kept: "+first["ib0"]) {
			g.Errorf("without the daemon, a valid lease is to go, or is not shown:\n%s%s", plan, status)
		}
		d.start()
		for name := range first {
			if got := d.leased(name, first[name], 20*time.Second); got != first[name] {
				g.Errorf("%s had %s, after a restart of the daemon %s", name, first[name], got)
			}
		}
		if text, _ := served(g, mark); strings.Contains(text, "DHCP") {
			g.Errorf("a restart of the daemon asked the server:\n%s", text)
		}
		sm.Kill()
		_ = sm.Wait(5 * time.Second)
		g.SM(manager)
		time.Sleep(3 * time.Second) // for what it might bring about
		for name := range first {
			if got := d.leased(name, first[name], 20*time.Second); got != first[name] {
				g.Errorf("%s had %s, after a restart of the subnet manager %s", name, first[name], got)
			}
		}
		if out := monitor.Output(); strings.Contains(out, "Deleted") {
			g.Errorf("restarts of the daemon and the subnet manager took addresses away:\n%s", out)
		}
		monitor.Kill()

		// A restart of the driver: the same address without a DHCPDISCOVER.
		unplug(g, "one")
		_, mark = served(g, 0)
		g.Ctl("add 0")
		for _, name := range []string{"ib0", "one"} {
			if got := d.leased(name, first[name], 40*time.Second); got != first[name] {
				g.Errorf("%s had %s, after a restart of the driver %s", name, first[name], got)
			}
		}
		text, _ := served(g, mark)
		if strings.Contains(text, "DHCPDISCOVER") || !strings.Contains(text, "DHCPACK") {
			g.Errorf("a restart of the driver asked the server with:\n%s", text)
		}

		// Other addresses are served: the former are refused.
		stop()
		g.Sh("rm -f /tmp/leases")
		stop = serve("20")
		_, mark = served(g, 0)
		g.Ctl("link h0/1 down")
		g.WaitPort("swib0", 1, "DOWN", 10*time.Second)
		g.Ctl("link h0/1 up")
		for name, prefix := range map[string]string{"ib0": "10.11.0.20", "one": "10.12.0.20"} {
			d.leased(name, prefix, 60*time.Second)
		}
		if text, _ := served(g, mark); !strings.Contains(text, "DHCPNAK") {
			g.Errorf("no refusal:\n%s", text)
		}

		d.released("one", leasedAddress)
		stop()
		leaseOfBond(g, d)
	})
}

// leaseOfBond has ib0 and ib1 in a bond with DHCP from ib2, and cuts the cable of the active one: servers know the bond
// by the same identifiers, its addresses by DHCP and DHCPv6 stay, and so does a TCP connection. Then another host
// takes its address while both cables are out.
func leaseOfBond(g *lab.G, d *service) {
	g.Helper()
	g.Sh("rm -f %s*.ibnetwork", unitDir)
	d.p.Signal(syscall.SIGHUP)
	g.Sh("rm -f /tmp/leases; ip netns add peer; ip link set ib2 netns peer; ip -n peer link set lo up; ip -n peer link set ib2 up; " +
		"ip -n peer address add 10.4.0.2/24 dev ib2; ip -n peer address add fd00:4::2/64 dev ib2 nodad")
	stop := dnsmasqBy(g, "ip netns exec peer", "--interface=ib2", "--dhcp-authoritative", "--dhcp-range=10.4.0.100,10.4.0.109,1h",
		"--dhcp-range=fd00:4::100,fd00:4::1ff,64,1h")
	g.Write(unitDir+"20-ports.ibnetwork", "[Match]\nName=ib0 ib1\n[IPoIB]\nMode=datagram\n[Link]\nMTUBytes=2044\n"+
		"[Bond]\nName=ipbond\nPrimary=ib0\nMIIMonitorSec=10ms\n")
	g.Write(unitDir+"10-bond.ibnetwork", "[Match]\nName=ipbond\n[Network]\nDHCP=yes\n[DHCPv4]\nClientIdentifier=mac\nSendDecline=yes\n")
	d.p.Signal(syscall.SIGHUP)
	address, six := d.leased("ipbond", "10.4.0.10", 60*time.Second), d.leased6("ipbond", "fd00:4::1", 60*time.Second)
	active := func(name string) {
		g.Helper()
		g.WaitFor(30*time.Second, func() string {
			if s := d.status("ipbond"); s.State != link.StateConfigured || attr(s, "ActiveSlave").Actual != name || attr(s, "DHCP").Why.Code != "" ||
				attr(s, "DHCPv6").Why.Code != "" {
				return attr(s, "ActiveSlave").Actual + " is active; DHCP: " + attr(s, "DHCP").Actual + "; DHCPv6: " + attr(s, "DHCPv6").Actual
			}
			return ""
		})
	}
	active("ib0")
	_, mark := served(g, 0)
	monitor := g.Start("ip", "-4", "monitor", "address")
	monitor6 := g.Start("ip", "-6", "monitor", "address")
	stream := newStream(g)
	for _, cut := range []struct{ cable, active string }{{"down", "ib1"}, {"up", "ib0"}} {
		g.Ctl("link h0/1 %s", cut.cable)
		active(cut.active)
	}
	g.WaitFor(10*time.Second, func() string {
		text, _ := served(g, mark)
		if strings.Count(text, "DHCPACK") < 2 || strings.Contains(text, "DHCPDISCOVER") {
			return "the server was not asked to confirm the lease, but:\n" + text
		}
		return ""
	})
	text, _ := served(g, mark)
	deleted := slices.ContainsFunc(strings.Split(monitor6.Output(), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "Deleted") && strings.Contains(line, six)
	})
	if address6(g, "ipbond") != six || deleted || strings.Contains(text, "DHCPSOLICIT") {
		g.Errorf("ipbond had %s, has %s:\n%s\n%s", six, address6(g, "ipbond"), monitor6.Output(), text)
	}
	if got := leasedAddress(g, "ipbond"); got != address || strings.Contains(monitor.Output(), "Deleted") {
		g.Errorf("ipbond had %s, has %s:\n%s", address, got, monitor.Output())
	}
	stream.reset()
	time.Sleep(500 * time.Millisecond)
	if quiet := stream.silence(); quiet > 400*time.Millisecond {
		g.Errorf("TCP has stopped for %v", quiet)
	}
	stream.close()
	monitor.Kill()
	monitor6.Kill()

	// Another host takes the address while the bond has no carrier: it is probed, and given back.
	_, mark = served(g, 0)
	g.Ctl("link h0/1 down")
	g.Ctl("link h1/1 down")
	g.WaitPort("swib0", 1, "DOWN", 10*time.Second)
	g.WaitPort("swib1", 1, "DOWN", 10*time.Second)
	g.WaitFor(10*time.Second, func() string {
		if s := d.status("ipbond"); s.Carrier {
			return "ipbond has a carrier"
		}
		return ""
	})
	g.Sh("ip -n peer address add %s/32 dev ib2", strings.TrimSuffix(address, "/24"))
	g.Ctl("link h0/1 up")
	g.Ctl("link h1/1 up")
	g.WaitFor(60*time.Second, func() string {
		now := leasedAddress(g, "ipbond")
		text, _ := served(g, mark)
		if now == "" || now == address || !strings.Contains(text, "DHCPDECLINE") {
			return fmt.Sprintf("another host has %s, ipbond has %q: %+v\n%s", address, now, attr(d.status("ipbond"), "DHCP"), text)
		}
		return ""
	})
	stop()
}

// The client in the sandbox of its service: packet sockets come from a process without
// root, which systemd starts when a link needs one.
func TestDHCPInstalled(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{HCAs: 2}, map[string]string{
		"10-ib0.ibnetwork": "[Match]\nName=ib0\n[Network]\nDHCP=yes\n[DHCPv4]\nClientIdentifier=mac\nUseDNS=no\n[DHCPv6]\nUseDNS=no\n",
		"10-ib1.ibnetwork": "[Match]\nName=ib1\n[Network]\nAddress=10.11.0.1/24\nAddress=fd00:11::1/64\n",
	})
	c.Bins = append(c.Bins, debs(t, slices.Concat(dnsmasqPackages, chronyPackages, []string{"systemd-timesyncd"})...)...)
	lab.Run(t, c, func(g *lab.G) {
		unpack(g)
		manage(g, defaultPartition)
		g.Exec("ibnetctl", "wait-online", "-i", "ib1:routable", "--timeout", "120s")
		hw := strings.TrimSpace(g.Read("/sys/class/net/ib0/address"))
		guid := hw[len(hw)-len("00:00:00:00:00:00:00:00"):]
		dnsmasq(g, "--interface=ib1", "--dhcp-authoritative", "--dhcp-range=10.11.0.50,10.11.0.59,1h",
			"--dhcp-range=fd00:11::100,fd00:11::1ff,64,1h", "--dhcp-option=option:ntp-server,10.11.0.123", "--dhcp-host=id:20:"+guid+",node17")
		if !within(90*time.Second, func() bool {
			return strings.HasPrefix(leasedAddress(g, "ib0"), "10.11.0.5") && strings.HasPrefix(address6(g, "ib0"), "fd00:11::1")
		}) {
			out, _ := g.Try("sh", "-c", "ibnetctl status ib0; systemctl status --no-pager ibnetworkd-packet.socket ibnetworkd-packet.service; "+
				"journalctl --no-pager -u ibnetworkd -n 40; cat /tmp/dnsmasq.log")
			g.Fatalf("no lease:\n%s", out)
		}
		out := g.Exec("systemctl", "show", "-p", "Result", "-p", "ExecMainStartTimestampMonotonic", "ibnetworkd-packet.service")
		if !strings.Contains(out, "Result=success") || strings.Contains(out, "Monotonic=0\n") {
			g.Errorf("packet sockets: %s", out)
		}
		// A renewal is of both leases; the kernel drops that of IPv4, whose sender is an address of this host, too.
		chronySources(g)
		timeServers(g)
		hostName(g)
		// Without a bus ibnetctl calls the daemon on its socket, which other users may not.
		for _, env := range []string{"", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent "} {
			_, mark := served(g, 0)
			g.Sh("%sibnetctl renew ib0 && %sibnetctl reload", env, env)
			g.WaitFor(10*time.Second, func() string {
				if text, _ := served(g, mark); !strings.Contains(text, "DHCPREBIND") || !strings.Contains(text, "DHCPREPLY") {
					return env + "renewed with:\n" + text
				}
				return ""
			})
		}
		out, _ = g.Try("sh", "-c", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent timeout 10 ibnetctl monitor & sleep 3; "+
			"ip link set ib1 down; sleep 3; ip link set ib1 up; wait")
		if !strings.Contains(out, " and 2 ports; Ctrl-C to quit") || !strings.Contains(out, "ib1: operational routable -> off") {
			g.Errorf("monitor without a bus:\n%s", out)
		}
		out, err := g.Try("sh", "-c", "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent setpriv --reuid=65534 --clear-groups ibnetctl renew ib0")
		if err == nil || !strings.Contains(out, "only root may call it: use sudo") {
			g.Errorf("renew by another user without a bus: %v\n%s", err, out)
		}
		if out, err := g.Try("ibnetctl", "renew", "ib1"); err == nil || !strings.Contains(out, "DHCP=ipv4") {
			g.Errorf("renew of a link without a client: %v\n%s", err, out)
		}
	})
}

// chronyPackages is chrony with what it needs beyond the guests' userland.
var chronyPackages = []string{"chrony", "libedit2", "libbsd0", "libmd0", "libgnutls30", "libp11-kit0", "libtasn1-6", "libffi8"}

// chronySources has Debian's chronyd, with its own configuration, get the time servers of the lease: when it starts after
// the lease, when the unit stops using them, and when it uses them again.
func chronySources(g *lab.G) {
	g.Helper()
	const server = "10.11.0.123"
	has := func(what string, want bool) {
		g.Helper()
		g.WaitFor(60*time.Second, func() string {
			out, err := g.Try("chronyc", "-n", "sources")
			if err != nil || strings.Contains(out, server) != want {
				files, _ := g.Try("sh", "-c", "ls -l /run/chrony-dhcp; journalctl --no-pager -u ibnetworkd-chrony -u ibnetworkd -n 20")
				return fmt.Sprintf("%s: %v\n%s\n%s", what, err, out, files)
			}
			return ""
		})
	}
	startChrony(g)
	g.Exec("systemctl", "start", "ibnetworkd-chrony.path")
	has("started", true)
	status := func(want string) {
		g.Helper()
		g.WaitFor(20*time.Second, func() string {
			for _, l := range describe(g).Links {
				if a := attr(l, "NTP"); l.Name == "ib0" && (!a.OK() || a.Wanted != want || a.Actual != want) {
					return fmt.Sprintf("NTP %+v, want %q", a, want)
				}
			}
			return ""
		})
	}
	status(server)
	g.Sh("sed -i 's/^UseDNS=no/&\\nUseNTP=no/' %s10-ib0.ibnetwork && ibnetctl reload", unitDir)
	has("UseNTP=no", false)
	g.Sh("sed -i '/^UseNTP=no/d' %s10-ib0.ibnetwork && ibnetctl reload", unitDir)
	has("UseNTP=no removed", true)
	// A directory does not make a chronyd that runs.
	g.Sh("systemctl stop chrony; mkdir -p /run/chrony; ibnetctl reload")
	status("")
	g.Sh("rmdir /run/chrony")
}

// startChrony starts Debian's chronyd with its own configuration but for the servers, which leaves the clock alone.
func startChrony(g *lab.G) {
	g.Helper()
	g.Sh("useradd --system --no-create-home _chrony; echo DAEMON_OPTS=-x >/etc/default/chrony; mkdir -p /etc/chrony; " +
		"cp /usr/share/chrony/chrony.conf /usr/share/chrony/chrony.keys /etc/chrony; sed -i '/^pool/d' /etc/chrony/chrony.conf; " +
		"systemctl daemon-reload; systemctl start chrony")
}

func startTimesyncd(g *lab.G) {
	g.Helper()
	g.Sh("systemd-sysusers systemd-timesync.conf && systemctl reload dbus && systemctl daemon-reload && systemctl start systemd-timesyncd")
}

// timeServers has systemd-timesyncd begin after the lease: it gets the time servers, also after a
// restart, and loses them with UseNTP=no.
func timeServers(g *lab.G) {
	g.Helper()
	has := func(what, want string) {
		g.Helper()
		g.WaitFor(60*time.Second, func() string {
			out, _ := g.Try("busctl", "get-property", "org.freedesktop.timesync1", "/org/freedesktop/timesync1",
				"org.freedesktop.timesync1.Manager", "RuntimeNTPServers")
			if strings.TrimSpace(out) != want {
				return what + ": systemd-timesyncd has " + out
			}
			return ""
		})
	}
	startTimesyncd(g)
	has("started", `as 1 "10.11.0.123"`)
	g.Sh("systemctl restart systemd-timesyncd")
	has("restarted", `as 1 "10.11.0.123"`)
	g.Sh("sed -i 's/^UseDNS=no/&\\nUseNTP=no/' %s10-ib0.ibnetwork && ibnetctl reload", unitDir)
	has("UseNTP=no", "as 0")
}

// hostName has the host take the name of its lease: not while it has a static one, and no more
// when the unit does not ask for it.
func hostName(g *lab.G) {
	g.Helper()
	before := strings.TrimSpace(g.Exec("uname", "-n"))
	is := func(what, want string) {
		g.Helper()
		g.WaitFor(60*time.Second, func() string {
			if out := strings.TrimSpace(g.Exec("uname", "-n")); out != want {
				status, _ := g.Try("ibnetctl", "status", "ib0")
				return what + ": the host is " + out + "\n" + status
			}
			return ""
		})
	}
	g.Sh("rm -f /etc/hostname; sed -i 's/^ClientIdentifier=.*/&\\nUseHostname=yes/' %s10-ib0.ibnetwork", unitDir)
	g.Sh("ibnetctl reload && ibnetctl renew ib0")
	is("UseHostname=yes", "node17")
	g.Sh("hostnamectl set-hostname --static fixed && systemctl restart ibnetworkd")
	is("a static name", "fixed")
	g.WaitFor(30*time.Second, func() string {
		if out, _ := g.Try("ibnetctl", "status", "ib0"); !strings.Contains(out, `the host is "fixed" and not "node17"`) {
			return out
		}
		return ""
	})
	g.Sh("hostnamectl set-hostname --static ''; hostname %s; sed -i '/^UseHostname=/d' %s10-ib0.ibnetwork && ibnetctl reload", before, unitDir)
}
