package scenario

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/cmd/ibnetctl/diagnose"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

// diagnosis runs ibnetctl diagnose and gives the first check that failed on an
// interface or port.
func diagnosis(g *lab.G, what string) diagnose.Check {
	g.Helper()
	out, _ := g.Try("ibnetctl", "diagnose", "--json", what)
	var r struct {
		OK     bool
		Chains []diagnose.Chain
	}
	if i := strings.Index(out, "{"); i >= 0 {
		if err := json.Unmarshal([]byte(out[i:]), &r); err != nil {
			g.Errorf("diagnose %s: %v\n%s", what, err, out)
		}
	}
	for _, c := range r.Chains {
		for _, k := range c.Checks {
			if k.Result == diagnose.Fail && (k.Link == "" || k.Link == what || strings.Contains(what, "/")) {
				return k
			}
		}
	}
	return diagnose.Check{}
}

// Each fault is made on the fabric, and diagnose must find it, with the next
// step.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[Network]\nAddress=10.1.0.1/24\nAddress=fd01::1/64\n[Partition]\n" +
			"PartitionKey=0x8005\n[Partition]\nPartitionKey=0x8006\n",
		unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[IPoIB]\nMode=datagram\n[Link]\nMTUBytes=4092\n[Network]\nAddress=10.1.0.2/24\n",
		unitDir + "20.ibnetwork":     "[Match]\nPartitionKey=0x8005\nPartitionKey=0x8006\n[Network]\nAddress=10.5.0.1/24\n",
		unitDir + "30-cm.ibnetwork":  "[Match]\nIBDevice=swib2\n[IPoIB]\nMode=connected\n",
		unitDir + "40-eth.ibnetwork": "[Match]\nIBDevice=swib3\n[IPoIB]\nMode=auto\n",
	}}, func(g *lab.G) {
		startDaemon(g)
		find := func(what, check, code string) {
			g.Helper()
			var last diagnose.Check
			g.WaitFor(20*time.Second, func() string {
				last = diagnosis(g, what)
				if last.Name != check || string(last.Code) != code {
					return fmt.Sprintf("diagnose %s finds %s (%s): %s; want %s (%s)", what, last.Name, last.Code, last.Text, check, code)
				}
				return ""
			})
			if last.Next == "" {
				g.Errorf("%s: no next step", code)
			}
			g.Logf("%s: %s\n  next: %s", last.Code, last.Text, last.Next)
		}
		find("swib0/1", "subnet manager", "no-subnet-manager")
		g.Ctl("link h1/1 stuck")
		find("swib1/1", "cable", "no-cable")
		g.Ctl("link h1/1 up")
		manage(g, "Default=0x7fff, ipoib, mtu=4 : ALL=full;\nsix=0x0006 : ALL=full;\n")
		find("ib0.8005", "partition", "pkey-not-granted")
		find("ib0.8006", "multicast group", "join-refused")
		find("ib1", "MTU", "mtu-limited-by-group")

		// Adapters get the next free name, whatever their number.
		g.Ctl("add 5 cm=0")
		g.WaitPort("swib2", 1, "ACTIVE", 30*time.Second)
		find("swib2/1", "mode", "connected-not-offered")

		g.Ctl("add 6")
		g.WaitPort("swib3", 1, "ACTIVE", 30*time.Second)
		g.Ctl("type h6/1 eth")
		find("swib3/1", "link layer", "wrong-link-layer")

		// Another host has the address.
		b := g.Host("b")
		g.Ctl("add 7")
		g.WaitPort("swib4", 1, "ACTIVE", 30*time.Second)
		other := ""
		g.Wait("its interface", 10*time.Second, func() bool {
			nets, _ := os.ReadDir("/sys/class/infiniband/swib4/device/net")
			if len(nets) == 1 {
				other = nets[0].Name()
			}
			return other != ""
		})
		find(other, "interface", "link-down")
		b.Take(other, "fd01::9/64")
		g.Wait("the other's address to be sure", 10*time.Second, func() bool {
			out, _ := b.Try("ip", "-6", "-o", "address", "show", "dev", other)
			return strings.Contains(out, "fd01::9") && !strings.Contains(out, "tentative")
		})
		// Duplicate address detection asks its group once: this host is a member before, and
		// the way there is known.
		ib0, err := net.InterfaceByName("ib0")
		testkit.NoError(g, err)
		member, err := net.ListenMulticastUDP("udp6", ib0, &net.UDPAddr{IP: net.ParseIP("ff02::1:ff00:9"), Port: 9})
		testkit.NoError(g, err)
		defer member.Close()
		g.Ping("fd01::9")
		g.Write(unitDir+"10-ib0.ibnetwork", "[Match]\nName=ib0\n[Network]\nAddress=10.1.0.1/24\nAddress=fd01::9/64\n")
		find("ib0", "address", "address-conflict")

		out, err := g.Try("ibnetctl", "diagnose")
		if err == nil {
			g.Error("diagnose of a host with faults exits 0")
		}
		g.Log("\n" + out)
		g.Log("\n" + g.Exec("ibnetctl", "status"))

		// The recorded system gives the same answers elsewhere.
		g.Exec("ibnetctl", "capture", "/tmp/capture.json", "--hide", "addresses,names")
		live, _ := g.Try("ibnetctl", "--no-bus", "diagnose", "swib1/1")
		seen, _ := g.Try("ibnetctl", "diagnose", "--from", "/tmp/capture.json", "swib1/1")
		if !strings.Contains(seen, "group allows 2044") || strings.Contains(g.Read("/tmp/capture.json"), "10.1.0.2") {
			g.Errorf("captured:\n%s\nlive:\n%s", seen, live)
		}
	})
}

// A host without an adapter.
func TestDiagnoseNothing(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: -1, Bins: []string{ibnetctl}}, func(g *lab.G) {
		out, err := g.Try("ibnetctl", "diagnose")
		if err == nil || !strings.Contains(out, "no RDMA device") && !strings.Contains(out, "ib_core") {
			g.Errorf("%v\n%s", err, out)
		}
		g.Log("\n" + out)
	})
}

// kernelState is what a tool has made of a link, in the kernel's words.
func kernelState(g *lab.G, name string) string {
	addrs := g.Exec("ip", "-o", "-4", "address", "show", "dev", name)
	var a []string
	for l := range strings.Lines(addrs) {
		if f := strings.Fields(l); len(f) > 3 {
			a = append(a, f[3])
		}
	}
	routes := strings.TrimSpace(g.Exec("ip", "-4", "route", "show", "dev", name, "proto", "static"))
	// Children made by netlink have no sysfs file for the mode.
	_, detail, _ := strings.Cut(g.Exec("ip", "-d", "link", "show", "dev", name), " mode ")
	if _, rest, ok := strings.Cut(detail, "ipoib"); ok {
		_, detail, _ = strings.Cut(rest, " mode ")
	}
	how, _, _ := strings.Cut(strings.TrimSpace(detail), " ")
	return fmt.Sprintf("mode %s, mtu %s, addresses %v, routes %q", how, mtu(g, name), a, routes)
}

// What ifupdown made of an interfaces file, ibnetworkd makes of its import.
func TestImportLikeIfupdown(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"static": "auto ib1\niface ib1 inet static\n  address 10.0.0.1/24\n  mtu 65520\n  pre-up echo connected > /sys/class/net/ib1/mode\n",
		"plain":  "auto ib1\niface ib1 inet static\n  address 10.0.0.1\n  netmask 255.255.0.0\n",
		"child": "auto ib1\niface ib1 inet manual\n  up ip link set ib1 up\n  up echo 0x8001 > /sys/class/net/ib1/create_child\nauto " +
			"ib1.8001\niface ib1.8001 inet static\n  address 10.1.0.1/24\n",
		// The order of options is free, lines have several commands, and what a
		// child's key has no 0x is decimal.
		"shell": "auto ib1\niface ib1 inet static\n  netmask 255.255.255.0\n  address 10.0.0.1\n  pre-up echo connected > " +
			"/sys/class/net/$IFACE/mode; ip link set dev $IFACE mtu 65520\n  up ip route add 10.8.0.0/16 via 10.0.0.9 metric 50 proto " +
			"static && true\n  up ip addr add 10.5.0.1/24 dev $IFACE || exit 1\n",
		"decimal": "auto ib1\niface ib1 inet manual\n  up ip link set ib1 up; echo 32769 > /sys/class/net/ib1/create_child\nauto " +
			"ib1.8001\niface ib1.8001 inet static\n  address 10.1.0.1/24\niface ib1.8001 inet static\n  address 10.2.0.1/24\n",
	}
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2, Bins: []string{ibnetworkd, ibnetctl}}, func(g *lab.G) {
		manage(g, defaultPartition+onePartition)
		_ = os.MkdirAll("/run/network", 0o755)
		for _, n := range []string{"static", "plain", "child", "shell", "decimal"} {
			g.Run(n, func(g *lab.G) {
				g.Write("/tmp/interfaces", files[n])
				links := []string{"ib1"}
				if n == "child" || n == "decimal" {
					links = append(links, "ib1.8001")
				}
				for _, l := range links {
					g.Exec("ifup", "--force", "-i", "/tmp/interfaces", l)
				}
				theirs := ""
				for _, l := range links {
					theirs += l + ": " + kernelState(g, l) + "\n"
				}
				// What ifupdown made is what the units would make.
				if out, err := g.Try("ibnetctl", "import", "--check", "/tmp/interfaces"); err != nil {
					g.Errorf("import --check: %v\n%s", err, out)
				}
				// A fresh adapter, and the imported units.
				g.Ctl("del 1")
				g.Ctl("add 1")
				g.WaitPort("swib1", 1, "ACTIVE", 20*time.Second)
				g.Exec("sh", "-c", "rm -rf "+unitDir+"*.ibnetwork /run/network/ifstate* /run/ibnetworkd")
				out := g.Exec("ibnetctl", "import", "--write", "/tmp/interfaces")
				d := startDaemon(g)
				for _, l := range links {
					d.configured(l, 15*time.Second)
				}
				ours := ""
				for _, l := range links {
					ours += l + ": " + kernelState(g, l) + "\n"
				}
				if ours != theirs {
					g.Errorf("ifupdown made\n%sthe import makes\n%s%s", theirs, ours, out)
				}
				g.Logf("both:\n%s", ours)
				d.kill()
				g.Ctl("del 1")
				g.Ctl("add 1")
				g.WaitPort("swib1", 1, "ACTIVE", 20*time.Second)
			})
		}
	})
}

// watchAddresses is an ip monitor that has begun to watch.
func watchAddresses(g *lab.G, args ...string) *lab.Proc {
	g.Helper()
	p := g.Start("ip", append(args, "-o", "monitor", "address")...)
	const own = "127.9.9.9"
	g.Wait("ip to watch", 10*time.Second, func() bool {
		g.Sh("ip address add %s/32 dev lo; ip address del %s/32 dev lo", own, own)
		return strings.Contains(p.Output(), own)
	})
	return p
}

// Monitor, try and wait-online on a host with a bus.
func TestPrompt(t *testing.T) {
	t.Parallel()
	c := installed(lab.Config{}, map[string]string{"10-ib0.ibnetwork": auto})
	if program, err := exec.LookPath("prometheus"); err == nil && !lab.InGuest() {
		c.Bins = append(c.Bins, program)
		c.Files["/etc/prometheus.yml"] = prometheusOfPage(t)
	}
	lab.Run(t, c, func(g *lab.G) {
		defer journal(g)
		g.WaitPort("swib0", 1, "ACTIVE", 60*time.Second)
		g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "120s")
		has := func(a string) bool {
			out, _ := g.Try("ip", "-o", "-4", "address", "show", "dev", "ib0")
			return strings.Contains(out, a)
		}
		mon := g.Start("ibnetctl", "monitor")
		g.Wait("monitor to watch", 10*time.Second, func() bool { return strings.Contains(mon.Output(), "watching") })

		// Not confirmed: it is taken back.
		// The kernel reports what exists for seconds only.
		seen := watchAddresses(g)
		g.Write("/tmp/10-ib0.ibnetwork", strings.Replace(auto, "151.1/24", "151.99/24", 1))
		p := g.Start("sh", "-c", "sleep 100 | ibnetctl try --timeout 4s /tmp/10-ib0.ibnetwork")
		g.Wait("the tried address", 10*time.Second, func() bool {
			return strings.Contains(seen.Output(), "151.99/24") && strings.HasPrefix(grep(seen.Output(), "151.1/24"), "Deleted")
		})
		g.Wait("the former address", 20*time.Second, func() bool { return has("151.1/24") && !has("151.99/24") })
		if got := g.Read(unitDir + "10-ib0.ibnetwork"); strings.TrimSpace(got) != strings.TrimSpace(auto) {
			g.Errorf("the former file is not back:\n%s", got)
		}
		p.Kill()
		seen.Kill()

		// Killed while it waits: the guard takes it back.
		seen = watchAddresses(g)
		p = g.Start("sh", "-c", "exec ibnetctl try --timeout 10s /tmp/10-ib0.ibnetwork < /dev/zero")
		g.Wait("the tried address", 10*time.Second, func() bool { return strings.Contains(seen.Output(), "151.99/24") })
		select {
		case <-p.Done():
			g.Fatalf("the trial is over already:\n%s", p.Output())
		default:
		}
		p.Kill()
		seen.Kill()
		g.Wait("the former address", 20*time.Second, func() bool { return has("151.1/24") && !has("151.99/24") })

		// Confirmed: it stays.
		g.Exec("sh", "-c", "echo yes | ibnetctl try --timeout 60s /tmp/10-ib0.ibnetwork")
		if !has("151.99/24") || !strings.Contains(g.Read(unitDir+"10-ib0.ibnetwork"), "151.99") {
			g.Error("a confirmed trial was not kept")
		}

		g.Exec("ibnetctl", "down", "ib0")
		g.Wait("the link to be down", 10*time.Second, func() bool { return !strings.Contains(g.Exec("ip", "link", "show", "ib0"), "LOWER_UP") })
		g.Exec("ibnetctl", "up", "ib0")
		g.Exec("ibnetctl", "wait-online", "-i", "ib0", "--timeout", "120s")
		g.Ctl("link h0/1 down")
		g.Wait("monitor to tell", 20*time.Second, func() bool { return strings.Contains(mon.Output(), "swib0/1: state Active -> Down") })
		// The kernel reports a carrier that is gone within a second.
		g.WaitFor(10*time.Second, func() string {
			if out, err := g.Try("ibnetctl", "wait-online", "-i", "ib0", "--timeout", "1s"); err == nil || !strings.Contains(out, "no cable") {
				return fmt.Sprintf("wait-online with the cable out: %v\n%s", err, out)
			}
			return ""
		})
		g.Ctl("link h0/1 up")
		g.Exec("ibnetctl", "wait-online", "-i", "ib0", "--timeout", "120s")
		g.Exec("ibnetctl", "wait-online", "-4", "-o", "routable", "--timeout", "120s")
		g.Exec("ibnetctl", "wait-online", "-4", "-6", "--ignore", "ib1*", "--timeout", "120s")
		if out, err := g.Try("ibnetctl", "wait-online", "-6", "-o", "routable", "--timeout", "1s"); err == nil ||
			!strings.Contains(out, "IPv4 addresses routable, IPv6 addresses degraded") {
			g.Errorf("wait-online for a routable IPv6 address: %v\n%s", err, out)
		}
		g.Log("\n" + mon.Output())
		out := g.Exec("ibnetctl", "metrics")
		if !strings.Contains(out, `ibnetwork_subnet_manager_running{device="swib0",port="1"} 1`) ||
			!strings.Contains(out, `ibnetwork_operations_total{operation="AddAddress",result="done"}`) {
			g.Errorf("metrics:\n%s", out)
		}
		scrape(g)
		g.Log("\n" + g.Exec("ibnetctl", "sm", "status", "swib0/1"))
		g.Log("\n" + g.Exec("ibnetctl", "status", "ib0"))
	})
}

// prometheusOfPage is the configuration of docs/metrics.md for the host of scrape.
func prometheusOfPage(t *testing.T) string {
	page, err := os.ReadFile("../../docs/metrics.md")
	_, text, found := strings.Cut(string(page), "scrape_configs:\n")
	text, _, ended := strings.Cut(text, "```")
	if err != nil || !found || !ended || !strings.Contains(text, "'node1:9717'") {
		t.Fatalf("no scrape_configs in docs/metrics.md: %v", err)
	}
	return "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n" + strings.Replace(text, "node1:", "10.99.0.1:", 1)
}

// scrape reads the metrics as Prometheus does, and by Prometheus where it is installed: by TCP from another network
// namespace, with one command on the host and no change to the sandbox.
func scrape(g *lab.G) {
	g.Exec("systemctl", "enable", "--now", "ibnetworkd-metrics.socket")
	g.Sh("ip netns add prometheus; ip link add scrape0 type veth peer name scrape1 netns prometheus; ip address add 10.99.0.1/24 dev " +
		"scrape0; ip link set scrape0 up")
	g.Sh("ip -n prometheus address add 10.99.0.2/24 dev scrape1; ip -n prometheus link set scrape1 up")
	defer g.Sh("ip netns delete prometheus")
	get := func() (string, error) {
		return g.Try("ip", "netns", "exec", "prometheus", "bash", "-c",
			`exec 3<>/dev/tcp/10.99.0.1/9717; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`)
	}
	out, err := get()
	if err != nil || !strings.Contains(out, "200 OK") ||
		!strings.Contains(out, `ibnetwork_port_state{device="swib0",port="1",state="Active"} 1`) {
		g.Errorf("a scrape: %v\n%s\n%s", err, out, g.Exec("systemctl", "status", "--no-pager", "ibnetworkd-metrics.service"))
	}
	if _, err := exec.LookPath("prometheus"); err == nil {
		g.Exec("ip", "-n", "prometheus", "link", "set", "lo", "up")
		p := g.Start("ip", "netns", "exec", "prometheus", "prometheus", "--config.file=/etc/prometheus.yml", "--storage.tsdb.path=/tmp/tsdb",
			"--web.listen-address=127.0.0.1:9090")
		defer p.Kill()
		g.WaitFor(60*time.Second, func() string {
			out, _ := g.Try("ip", "netns", "exec", "prometheus", "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9090; printf "+
				`'GET /api/v1/query?query=ibnetwork_link_online HTTP/1.0\r\n\r\n' >&3; cat <&3`)
			if !strings.Contains(out, `"instance":"10.99.0.1:9717"`) {
				return "Prometheus has " + out + "\n" + tail(p.Output(), 20)
			}
			return ""
		})
	}
	// The daemon may restart, and a scrape does not start one.
	g.Exec("systemctl", "restart", "ibnetworkd")
	g.WaitFor(20*time.Second, func() string {
		if out, err := get(); err != nil || !strings.Contains(out, "200 OK") {
			return fmt.Sprintf("a scrape after a restart: %v\n%s", err, out)
		}
		return ""
	})
	line := g.Exec("systemd-analyze", "security", "--no-pager", "ibnetworkd-metrics.service")
	g.Log(strings.TrimSpace(line[strings.LastIndex(line, "Overall"):]))
	// Without a daemon what is not known is not printed.
	g.Exec("systemctl", "stop", "ibnetworkd")
	if out, err := get(); err == nil && strings.Contains(out, "ibnetwork_info") {
		g.Errorf("the daemon is stopped, and a scrape has\n%s", out)
	}
	out = g.Exec("ibnetctl", "metrics")
	for _, n := range []string{"ibnetwork_start_time_seconds", "ibnetwork_unit_reads_total", "ibnetwork_port_state_changes_total",
		"ibnetwork_subnet_manager", "ibnetwork_operations_total"} {
		if strings.Contains(out, n) {
			g.Errorf("%s is printed without a daemon", n)
		}
	}
	if !strings.Contains(out, `ibnetwork_port_state{device="swib0",port="1",state="Active"} 1`) {
		g.Errorf("metrics without a daemon:\n%s", out)
	}
	g.Exec("systemctl", "start", "ibnetworkd")
	g.Exec("ibnetctl", "wait-online", "-i", "ib0", "--timeout", "120s")
}

// What NetworkManager made of its files, ibnetworkd makes of their import.
func TestImportLikeNetworkManager(t *testing.T) {
	t.Parallel()
	const etc, run = "/etc/NetworkManager/system-connections/", "/run/NetworkManager/system-connections/"
	const interfaces = "/etc/network/interfaces"
	// A profile of ib1 or of a child, by the last digit of its UUID.
	profile := func(id, link, uuid, connection, rest string) string {
		return fmt.Sprintf("[connection]\nid=%s\nuuid=2b2c3d4e-0000-4000-8000-00000000000%s\ntype=infiniband\ninterface-name=%s\n%s\n%s\n"+
			"[ipv6]\nmethod=disabled\n", id, uuid, link, connection, rest)
	}
	const (
		connected = "[infiniband]\ntransport-mode=connected\nmtu=65520\n[ipv4]\nmethod=manual\naddress1=10.0.0.1/24\n"
		datagram  = "[infiniband]\ntransport-mode=datagram\nmtu=2044\n[ipv4]\nmethod=manual\naddress1=10.6.0.1/24\n"
		routes    = "[infiniband]\ntransport-mode=datagram\n[ipv4]\nmethod=manual\naddress1=10.0.0.1/24\naddress2=10.7.0.1/16\n" +
			"route1=10.9.0.0/16,10.0.0.9,50\n"
		child = "[infiniband]\np-key=32769\nparent=ib1\ntransport-mode=datagram\n[ipv4]\nmethod=manual\naddress1=10.1.0.1/24\n"
		bond  = "[connection]\nid=bond9\ntype=bond\ninterface-name=bond9\n[bond]\nmode=active-backup\nprimary=ib1\n" +
			"miimon=70\nupdelay=140\n[ipv4]\nmethod=manual\naddress1=10.4.0.1/24\n[ipv6]\nmethod=disabled\n"
		port   = "[infiniband]\ntransport-mode=connected\nmtu=65520\n"
		stanza = "auto ib1\niface ib1 inet static\n  address 10.3.0.1/24\n"
	)
	cases := []struct {
		name  string
		link  string
		files map[string]string
		up    string // the profile to activate; "" leaves the choice to NetworkManager
		used  string // a profile that is activated before that
		conf  string // of the plugin ifupdown
		ifup  bool   // the link is ifupdown's
	}{
		{name: "bond", link: "bond9", up: "ib1", files: map[string]string{etc + "bond9.nmconnection": bond,
			etc + "a.nmconnection": "[connection]\nid=ib1\ntype=infiniband\ninterface-name=ib1\nmaster=bond9\nslave-type=bond\n" + port}},
		{name: "connected", link: "ib1", up: "ib1", files: map[string]string{etc + "a.nmconnection": profile("ib1", "ib1", "1", "", connected)}},
		{name: "routes", link: "ib1", up: "ib1", files: map[string]string{etc + "a.nmconnection": profile("ib1", "ib1", "2", "", routes)}},
		{name: "child", link: "ib1.8001", up: "ib1.8001",
			files: map[string]string{etc + "a.nmconnection": profile("ib1.8001", "ib1.8001", "3", "", child)}},
		{name: "two", link: "ib1", files: map[string]string{
			etc + "a.nmconnection": profile("spare", "ib1", "4", "autoconnect-priority=-5\n", datagram),
			etc + "b.nmconnection": profile("ib1", "ib1", "5", "", connected)}},
		// The last one that was active is neither the first by UUID nor by name.
		{name: "used", link: "ib1", used: "b", files: map[string]string{
			etc + "a.nmconnection": profile("a", "ib1", "6", "", datagram), etc + "b.nmconnection": profile("b", "ib1", "7", "", connected)}},
		{name: "unused", link: "ib1", files: map[string]string{
			etc + "a.nmconnection": profile("a", "ib1", "9", "", datagram), etc + "b.nmconnection": profile("b", "ib1", "8", "", connected)}},
		{name: "hidden", link: "ib1", files: map[string]string{
			etc + "a.nmconnection": profile("a", "ib1", "a", "", datagram), run + "b.nmconnection": profile("b", "ib1", "a", "", connected)}},
		{name: "stanza", link: "ib1", ifup: true, files: map[string]string{
			etc + "a.nmconnection": profile("a", "ib1", "b", "", connected), interfaces: stanza}},
		{name: "stanza managed", link: "ib1", conf: "[ifupdown]\nmanaged=true\n", files: map[string]string{
			etc + "a.nmconnection": profile("a", "ib1", "c", "", connected), interfaces: stanza}},
	}
	const conf = "/etc/NetworkManager/conf.d/z.conf"
	c := lab.Config{Userland: lab.Systemd, HCAs: 2, Bins: []string{ibnetworkd, ibnetctl}, Units: []string{"NetworkManager.service"},
		Files: map[string]string{"/etc/NetworkManager/conf.d/lab.conf": "[main]\nno-auto-default=*\nplugins=ifupdown,keyfile\n",
			// The sixth restart within 10 s would be refused.
			"/etc/systemd/system/NetworkManager.service.d/lab.conf": "[Unit]\nStartLimitIntervalSec=0\n"}}
	lab.Run(t, c, func(g *lab.G) {
		manage(g, defaultPartition+onePartition)
		fresh := func() {
			g.Helper()
			g.Ctl("del 1")
			g.Ctl("add 1")
			g.WaitPort("swib1", 1, "ACTIVE", 30*time.Second)
		}
		state := func(name string) string {
			// NetworkManager gives its routes metrics of its own choice.
			s := kernelState(g, name)
			if strings.HasPrefix(name, "bond") {
				s = g.Exec("sh", "-c", "cd /sys/class/net/"+name+"/bonding && grep -H . mode primary miimon updelay slaves active_slave") +
					kernelState(g, "ib1") + "; " + s
			}
			if _, routes, ok := strings.Cut(s, "routes "); ok && !strings.Contains(routes, "10.9.0.0/16 via 10.0.0.9 metric 50") {
				s, _, _ = strings.Cut(s, ", routes")
			}
			return s
		}
		for _, tt := range cases {
			g.Run(tt.name, func(g *lab.G) {
				g.Write(conf, tt.conf)
				args := []string{"import", "--write"}
				for path, text := range tt.files {
					g.Exec("mkdir", "-p", path[:strings.LastIndexByte(path, '/')])
					g.Write(path, text)
					g.Exec("chmod", "600", path)
					args = append(args, path)
				}
				slices.Sort(args[2:])
				g.Exec("systemctl", "restart", "NetworkManager")
				until := func(args ...string) {
					g.Helper()
					g.WaitFor(40*time.Second, func() string {
						// It is on the bus a while before it has its settings.
						if out, err := g.Try("nmcli", "connection", "reload"); err != nil {
							return out
						}
						if out, err := g.Try("nmcli", append([]string{"-w", "20"}, args...)...); err != nil {
							return out
						}
						return ""
					})
				}
				if tt.used != "" {
					until("connection", "up", tt.used)
					until("device", "disconnect", tt.link)
					uuid := strings.TrimSpace(g.Exec("nmcli", "-g", "connection.uuid", "connection", "show", tt.used))
					g.WaitFor(20*time.Second, func() string {
						out, _ := g.Try("cat", "/var/lib/NetworkManager/timestamps")
						if strings.Contains(out, uuid+"=") {
							return ""
						}
						return "NetworkManager has not written when " + uuid + " was used:\n" + out
					})
				}
				switch {
				case tt.ifup:
					g.Wait("NetworkManager to leave the link alone", 20*time.Second, func() bool {
						out, _ := g.Try("nmcli", "-g", "GENERAL.STATE", "device", "show", tt.link)
						return strings.Contains(out, "unmanaged")
					})
					g.Exec("ifup", "--force", tt.link)
				case tt.up != "":
					until("connection", "up", tt.up)
				default:
					until("device", "connect", tt.link)
				}
				theirs := state(tt.link)
				g.Exec("systemctl", "stop", "NetworkManager")
				for _, l := range []string{"ib1.8001", "bond9"} {
					_, _ = g.Try("ip", "link", "delete", l)
				}
				fresh()
				g.Exec("sh", "-c", "rm -rf "+unitDir+"*.ibnetwork /run/ibnetworkd")
				g.Log(g.Exec("ibnetctl", args...))
				d := startDaemon(g)
				d.configured(tt.link, 30*time.Second)
				if ours := state(tt.link); ours != theirs {
					g.Errorf("NetworkManager made\n%s\nthe import makes\n%s", theirs, ours)
				} else {
					g.Logf("both: %s", ours)
				}
				d.kill()
				g.Exec("rm", append([]string{"-f"}, args[2:]...)...)
				fresh()
			})
		}
	})
}
