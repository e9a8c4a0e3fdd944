package scenario

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// inJob is what ip prints in the network namespace job, "" for an error.
func inJob(g *lab.G, words string) string {
	out, err := g.Try("ip", append([]string{"-n", "job", "-o", "-d"}, strings.Fields(words)...)...)
	if err != nil {
		return ""
	}
	return out
}

// A VLAN of a RoCE link with NetworkNamespace= waits for its network namespace, is made
// there and is up, and its addresses have GIDs at the device of its parent. A restart of
// the daemon makes no second one; the restart of the driver, its deletion, and the end of
// the namespace, with which the kernel deletes it, have it made again. The daemon deletes
// it there when the section goes.
func TestVLANNamespace(t *testing.T) {
	t.Parallel()
	const unit = "[Match]\nIBDevice=swib0\nKind=!vlan\n[Port]\nType=eth\n[Network]\nAddress=10.7.1.1/24\n"
	const vlan = "[VLAN]\nId=7\nName=storage\nMTUBytes=1400\nEgressQOSMaps=3-3\nNetworkNamespace=job\n"
	lab.Run(t, installed(lab.Config{HCAs: 2}, map[string]string{"10-eth.ibnetwork": unit + vlan,
		"20-vlan.ibnetwork": "[Match]\nName=storage\n[RoCE]\nGIDIndex=7\n[Network]\nAddress=10.7.7.1/24\n",
		"30-peer.ibnetwork": "[Match]\nIBDevice=swib1\nKind=!vlan\n[Port]\nType=eth\n[VLAN]\nId=7\nName=peer7\n",
		"40-peer.ibnetwork": "[Match]\nName=peer7\n[Network]\nAddress=10.7.7.2/24\n"}), func(g *lab.G) {
		defer journal(g)
		says := func(code link.Code, words, actual string) func() string {
			return func() string {
				for _, l := range describe(g).Links {
					if l.IBDevice == "swib0" && l.Kind != "vlan" {
						a := attr(l, "VLAN")
						if a.Why.Code == code && strings.Contains(a.Why.Text, words) && a.Actual == actual && l.State == link.StateConfigured {
							return ""
						}
						return fmt.Sprintf("%s is %s, %+v", l.Name, l.State, a)
					}
				}
				return "no Ethernet link of swib0"
			}
		}
		made := func(what string) {
			g.Helper()
			begin := time.Now()
			g.WaitFor(30*time.Second, func() string {
				out := inJob(g, "link show storage")
				for _, w := range []string{",UP", "mtu 1400", "id 7", "{ 3:3 }"} {
					if !strings.Contains(out, w) {
						return fmt.Sprintf("no %q in %q", w, out)
					}
				}
				return ""
			})
			g.Logf("%s: in the namespace after %v", what, time.Since(begin).Round(10*time.Millisecond))
			g.WaitFor(10*time.Second, says("", "", "storage id 7 egress-qos-map 3:3 in network namespace job"))
			if out := g.Exec("ibnetctl", "status", "storage"); !strings.Contains(out, "storage: up (in network namespace job)") {
				g.Errorf("status storage:\n%s", out)
			}
		}
		g.WaitFor(60*time.Second, says(link.CodeNoNamespace, "storage waits for network namespace job", ""))
		g.Sh("ip netns add job")
		made("a new namespace")
		g.WaitFor(10*time.Second, func() string {
			for _, l := range describe(g).Links {
				for _, r := range l.Reasons {
					if r.Code == link.CodeOtherNamespace && strings.Contains(r.Text, "20-vlan.ibnetwork matches storage") &&
						strings.Contains(r.Next, "GIDs at the RDMA device") {
						return ""
					}
				}
			}
			return "the unit of the VLAN is not refused"
		})

		g.Sh("ip -n job address add 10.7.7.1/24 dev storage")
		g.Wait("a ping", 30*time.Second, func() bool {
			_, err := g.Try("ip", "netns", "exec", "job", "ping", "-c1", "-W1", "10.7.7.2")
			return err == nil
		})
		g.WaitFor(10*time.Second, func() string {
			for i := range 16 {
				if (gidSlot{"swib0", i}).has("storage", "0a07:0701") {
					return ""
				}
			}
			return g.Sh("cd /sys/class/infiniband/swib0/ports/1; grep -s . gids/* gid_attrs/ndevs/* | grep -v 0000:0000:0000:0000$")
		})

		g.Sh("systemctl restart ibnetworkd")
		made("a restart of the daemon")
		if !strings.Contains(inJob(g, "address show dev storage"), "10.7.7.1/24") {
			g.Error("it is another VLAN after a restart of the daemon")
		}

		g.Sh("ip -n job link set storage name data0; ibnetctl reload")
		g.WaitFor(10*time.Second, says("", "", "storage id 7 egress-qos-map 3:3 in network namespace job, where its name is data0"))
		g.Sh("ip -n job link set data0 name storage; ip netns add third; ip -n job link set storage netns third; ibnetctl reload")
		g.WaitFor(10*time.Second, says(link.CodeMoved, "another program moved it to network namespace third", ""))
		if out := g.Exec("ibnetctl", "plan"); strings.HasPrefix(out, "ip ") || strings.Contains(out, "\nip ") {
			g.Errorf("it is made a second time:\n%s", out)
		}
		g.Sh("ip -n third link set storage netns job; ip -n job link set storage up; ip netns delete third; ibnetctl reload")
		made("a move back")

		g.Ctl("del 0")
		g.Wait("the end of the VLAN", 20*time.Second, func() bool { return inJob(g, "link show storage") == "" })
		g.Ctl("add 0")
		made("a restart of the driver")

		g.Sh("ip -n job link delete storage; ibnetctl reconfigure $(basename /sys/class/infiniband/swib0/device/net/*)")
		made("its deletion")

		g.Sh("ip netns delete job")
		g.WaitFor(20*time.Second, says(link.CodeNoNamespace, "storage waits", ""))
		g.Sh("ip netns add job")
		made("another namespace of that name")
		g.Sh("ip netns delete job; ip netns add job")
		made("another namespace at once")

		// A daemon that was killed before it made the VLAN has a note of what is not there.
		g.Sh("systemctl stop ibnetworkd; sed -i 's/\"nsid\":[0-9]*/\"nsid\":-1/; s/\"index\":[0-9]*,//' /run/ibnetworkd/record.json; " +
			"grep -q '\"nsid\":-1,\"namespace\"' /run/ibnetworkd/record.json; ip netns delete job; ip netns add job; systemctl start ibnetworkd")
		made("a kill")

		g.Write(unitDir+"10-eth.ibnetwork", unit)
		g.Wait("a namespace without it", 20*time.Second, func() bool {
			return inJob(g, "link show storage") == "" && inJob(g, "link show lo") != ""
		})
		if out := g.Sh("journalctl -b --no-pager -p warning -u ibnetworkd"); strings.Contains(out, "storage") && strings.Contains(out, "taken") {
			g.Errorf("it was made before the other one was deleted:\n%s", out)
		}
	})
}

// A P_Key child with NetworkNamespace= waits for its network namespace, is made and moved
// there with its MTU, and is up. A restart of the daemon makes no second one; the restart
// of the driver, its deletion, and another namespace of that name have it made again. The
// daemon deletes it there when the section goes.
func TestNetworkNamespace(t *testing.T) {
	t.Parallel()
	const unit, part = "[Match]\nName=ib0\n", "[Partition]\nPartitionKey=0x8001\nMTUBytes=1500\nNetworkNamespace=job\n"
	const child = "[Match]\nName=ib0.8001\n[Network]\nAddress=10.8.0.1/24\n"
	units := map[string]string{"10-ib0.ibnetwork": unit + part, "20-child.ibnetwork": child}
	lab.Run(t, installed(lab.Config{HCAs: 3, PKeys: 32}, units), func(g *lab.G) {
		defer journal(g)
		g.SM(lab.SM{Dev: "swib2", Partitions: "Default=0x7fff,ipoib:ALL=full;\nJobs=0x1,ipoib:ALL=full;\n"})
		in := func(words string) string { return inJob(g, words) }
		here := func() bool { _, err := g.Try("ip", "link", "show", "ib0.8001"); return err == nil }
		says := func(code link.Code, words, actual string) func() string {
			return func() string {
				for _, l := range describe(g).Links {
					if l.Name == "ib0" {
						a := attr(l, "Partition")
						if a.Why.Code == code && strings.Contains(a.Why.Text, words) && a.Actual == actual && l.State == link.StateConfigured {
							return ""
						}
						return fmt.Sprintf("ib0 is %s, %+v", l.State, a)
					}
				}
				return "no ib0"
			}
		}
		const there = "0x8001 ib0.8001 in network namespace job"
		made := func(what string) {
			g.Helper()
			begin, last := time.Now(), ""
			g.WaitFor(30*time.Second, func() string {
				last = in("link show ib0.8001")
				if here() || !strings.Contains(last, ",UP") || !strings.Contains(last, "mtu 1500") {
					return cmp.Or(last, "no child in the namespace")
				}
				return ""
			})
			g.Logf("%s: in the namespace after %v", what, time.Since(begin).Round(10*time.Millisecond))
			g.WaitFor(10*time.Second, says("", "", there))
			if out := g.Exec("ibnetctl", "list"); !regexp.MustCompile(` ib0\.8001 +ipoib .* up .* in network namespace job`).MatchString(out) {
				g.Errorf("list:\n%s", out)
			}
		}

		g.WaitFor(60*time.Second, says(link.CodeNoNamespace, "ib0.8001 waits for network namespace job", ""))
		if here() {
			g.Error("the child is here while it waits")
		}
		g.Sh("ip netns add job")
		made("a new namespace")
		refused := false
		for _, l := range describe(g).Links {
			for _, r := range l.Reasons {
				refused = refused || l.Name == "ib0" && r.Code == link.CodeOtherNamespace &&
					strings.Contains(r.Text, "20-child.ibnetwork matches ib0.8001")
			}
		}
		if !refused {
			g.Error("the unit of the child is not refused")
		}

		g.Sh("ip netns add peer; ip link add link ib1 name ib1.8001 netns peer up type ipoib pkey 0x8001; ip link set ib1 up")
		g.Sh("ip -n peer address add 10.9.0.2/24 dev ib1.8001; ip -n job address add 10.9.0.1/24 dev ib0.8001")
		g.Wait("a ping", 30*time.Second, func() bool {
			_, err := g.Try("ip", "netns", "exec", "job", "ping", "-c1", "-W1", "10.9.0.2")
			return err == nil
		})

		g.Sh("systemctl restart ibnetworkd")
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if here() {
				g.Fatal("a second child was made after a restart of the daemon")
			}
		}
		if !strings.Contains(in("address show dev ib0.8001"), "10.9.0.1/24") {
			g.Error("it is another child after a restart of the daemon")
		}
		made("a restart of the daemon")

		const renamed = there + ", where its name is net0"
		g.Sh("ip -n job link set ib0.8001 name net0; ibnetctl reload")
		g.WaitFor(10*time.Second, says("", "", renamed))
		for _, name := range []string{"net0", "ib0.8001"} {
			if out := g.Exec("ibnetctl", "status", name); !strings.Contains(out, "net0: up (in network namespace job)") {
				g.Errorf("status %s:\n%s", name, out)
			}
		}
		for cmd, text := range map[string]string{
			"diagnose net0":                    "net0 is in network namespace job (up): its carrier, addresses and routes there are not checked",
			"status --stats ib0.8001":          "not checked, in network namespace job: ip -n job -s link show dev net0",
			"logs ib0.8001":                    "ip link set ib0.8001 netns job up",
			"wait-online --timeout=1s -i net0": "net0 is in network namespace job: whether it is online there is not checked",
			"__complete status ''":             "net0\tup in network namespace job",
		} {
			out := strings.Join(strings.Fields(g.Sh("ibnetctl %s 2>&1 | cat", cmd)), " ")
			if !strings.Contains(out, strings.Join(strings.Fields(text), " ")) {
				g.Errorf("ibnetctl %s has no %q:\n%s", cmd, text, out)
			}
		}
		// One that is moved on is not made again: it is known where it is, or that this cannot be seen.
		onlyOne := func(text string) {
			g.Helper()
			g.WaitFor(10*time.Second, says(link.CodeMoved, text, ""))
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if here() || in("link show type ipoib") != "" {
					g.Fatal("a second child was made")
				}
			}
		}
		g.Sh("ip netns add third; ip -n job link set net0 netns third; ibnetctl reload")
		onlyOne("another program moved it to network namespace third")
		g.Sh("systemctl restart ibnetworkd")
		onlyOne("another program moved it to network namespace third")
		g.Sh("ip -n third link set net0 netns job; ip -n job link set net0 up; ip netns delete third; ibnetctl reload")
		g.WaitFor(10*time.Second, says("", "", renamed))
		g.Sh("unshare -n sh -c 'echo $$ >/tmp/pid; exec sleep 600' >/dev/null 2>&1 & while ! [ -s /tmp/pid ]; do sleep 0.1; done")
		g.Sh("ip -n job link set net0 netns $(cat /tmp/pid); ibnetctl reload")
		onlyOne("ib0.8001 is no longer in network namespace job")
		g.Sh("nsenter --net=/proc/$(cat /tmp/pid)/ns/net sh -c 'ip link set net0 name ib0.8001; ip link set ib0.8001 netns 1'")
		made("a move back")

		g.Ctl("del 0")
		g.Wait("the end of the child", 20*time.Second, func() bool { return in("link show ib0.8001") == "" })
		g.Ctl("add 0")
		made("a restart of the driver")

		g.Sh("ip -n job link delete ib0.8001; ibnetctl reconfigure ib0")
		made("its deletion")

		g.Sh("ip netns delete job")
		g.Wait("the child after the end of the namespace", 20*time.Second, here)
		g.WaitFor(10*time.Second, says(link.CodeNoNamespace, "ib0.8001 waits", "0x8001 ib0.8001"))
		g.Sh("ip netns add job")
		made("another namespace of that name")

		g.Write(unitDir+"10-ib0.ibnetwork", unit)
		g.Wait("a namespace without it", 20*time.Second, func() bool { return in("link show ib0.8001") == "" && in("link show lo") != "" })
		if here() {
			g.Error("the child came back")
		}
	})
}

// A daemon in a container's network namespace configures the P_Key child that the daemon outside
// makes there: an address by DHCP, which stays over its restart and comes back, by itself, after
// a restart of the driver.
func TestDaemonInNamespace(t *testing.T) {
	t.Parallel()
	const job = "/job" + unitDir
	c := lab.Config{Userland: lab.Debian, HCAs: 2, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\nName=job0\nNetworkNamespace=job\n",
		unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[Partition]\nPartitionKey=0x8001\nName=far\n",
		unitDir + "20-far.ibnetwork": "[Match]\nName=far\n[Network]\nAddress=10.12.0.1/24\n",
		job + "10-job0.ibnetwork":    "[Match]\nName=job0\n[Network]\nDHCP=ipv4\n[DHCPv4]\nClientIdentifier=mac\nUseDNS=no\n",
	}}
	c.Bins = append(c.Bins, debs(t, dnsmasqPackages...)...)
	lab.Run(t, c, func(g *lab.G) {
		unpack(g)
		manage(g, defaultPartition+onePartition)
		d := startDaemon(g)
		d.configured("far", 20*time.Second)
		dnsmasq(g, "--interface=far", "--dhcp-authoritative", "--dhcp-range=10.12.0.100,10.12.0.109,1h")
		g.Sh("ip netns add job; ip -n job link set lo up")
		inner := &service{g: g, state: "/run/job"}
		start := func() {
			inner.p = g.Start("ip", "netns", "exec", "job", "ibnetworkd", "--state-dir", inner.state, "--unit-root", "/job")
		}
		start()
		leased := func(what, want string) (address string) {
			g.Helper()
			begin := time.Now()
			g.WaitFor(40*time.Second, func() string {
				out := inJob(g, "-4 address show dev job0 dynamic")
				if f := strings.Fields(out); len(f) > 3 {
					address = f[3]
				}
				st := inner.status("job0")
				if st.State != link.StateConfigured || !strings.HasPrefix(address, want) || !strings.Contains(attr(st, "DHCP").Actual, address) {
					return fmt.Sprintf("job0 is %s (%s): %s", st.State, st.Reason().Text, out)
				}
				return ""
			})
			g.Logf("%s: %s after %v", what, address, time.Since(begin).Round(10*time.Millisecond))
			g.Sh("ip netns exec job ping -c1 -W5 10.12.0.1")
			return address
		}
		first := leased("a start", "10.12.0.10")
		if id := " 20:" + strings.TrimPrefix(g.PortGUID("swib0", 1), "0x")[:2]; !strings.Contains(g.Read("/tmp/leases"), id) {
			g.Errorf("no client identifier begins with%s:\n%s", id, g.Read("/tmp/leases"))
		}

		_, mark := served(g, 0)
		inner.kill()
		if out := inJob(g, "-4 address show dev job0"); !strings.Contains(out, first) {
			g.Errorf("the address went with the daemon: %s", out)
		}
		start()
		leased("a restart of the daemon", first)
		if text, _ := served(g, mark); strings.Contains(text, "DHCP") {
			g.Errorf("a restart of the daemon asked the server:\n%s", text)
		}

		g.Ctl("del 0")
		g.Wait("the end of the child", 20*time.Second, func() bool { return inJob(g, "link show job0") == "" })
		g.Ctl("add 0")
		leased("a restart of the driver", first)

		if out := g.Exec("ip", "-o", "address"); strings.Contains(out, "job0") {
			g.Errorf("the child is outside:\n%s", out)
		}
	})
}
