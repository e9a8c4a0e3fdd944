package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// pkeys are the keys in the kernel's table of a port.
func pkeys(g *lab.G, dev string) []string {
	return slices.DeleteFunc(strings.Fields(g.Sh("cat /sys/class/infiniband/%s/ports/1/pkeys/*", dev)),
		func(k string) bool { return k == "0x0000" })
}

// portOf is what is reported of the first port of a device.
func portOf(d api.Description, dev string) link.PortStatus {
	for _, p := range d.Ports {
		if p.IBDevice == dev {
			return p
		}
	}
	return link.PortStatus{}
}

// An installed host on its first day, with what a new administrator does wrong.
func TestFirstDay(t *testing.T) {
	t.Parallel()
	lab.Run(t, installed(lab.Config{HCAs: 1}, map[string]string{
		"10-ib0.ibnetwork":     "[Match]\nName=ib0\n[Network]\nAddress=10.1.0.1/24\n[Partition]\nPartitionKey=0x8001\nName=storage\n",
		"20-storage.ibnetwork": "[Match]\nName=storage\n[Network]\nAddress=10.2.0.1/24\n",
	}), func(g *lab.G) {
		defer journal(g)
		grant := manage(g, defaultPartition)
		state := func(name string, want link.State, code link.Code) {
			g.Helper()
			g.WaitFor(20*time.Second, func() string {
				for _, l := range describe(g).Links {
					if l.Name == name && l.State == want && l.Reason().Code == code {
						return ""
					}
				}
				return name + " is not " + string(want) + " " + string(code) + ":\n" + g.Exec("ibnetctl", "status", name)
			})
		}
		state("ib0", link.StateConfigured, "")
		state("storage", link.StateConfiguring, link.CodePKeyMissing)

		// What is reported of the P_Keys is what the kernel has, also when no link
		// waits for one and when one is taken back (docs/tasks/pkeys.md).
		said := func(partitions string, want ...string) {
			g.Helper()
			grant(partitions)
			g.WaitFor(15*time.Second, func() string {
				if now := pkeys(g, "swib0"); !slices.Equal(now, want) {
					return "the kernel has " + strings.Join(now, " ")
				}
				return ""
			})
			time.Sleep(time.Second) // two questions within a second have one answer
			if p := portOf(describe(g), "swib0"); !slices.Equal(p.PKeys, want) || p.SubnetPrefix != "0xfe80000000000000" {
				g.Errorf("the port is said to have %v, prefix %s, want %v", p.PKeys, p.SubnetPrefix, want)
			}
		}
		const two = "two=0x0002, ipoib : ALL=full;\n"
		said(defaultPartition, "0xffff")
		said(defaultPartition+onePartition, "0xffff", "0x8001")
		state("storage", link.StateConfigured, "")
		said(defaultPartition+onePartition+two, "0xffff", "0x8001", "0x8002")
		said(defaultPartition+two, "0xffff", "0x8002")
		state("storage", link.StateConfiguring, link.CodePKeyMissing)

		// What is reported of a link is found by its fields, and is in logs.
		out := g.Exec("journalctl", "--no-pager", "-o", "json", "_SYSTEMD_UNIT=ibnetworkd.service", "INTERFACE=storage",
			"MESSAGE_ID=fd3cecd4a1c54143a5493cc8d99013c1")
		for _, w := range []string{`"IBNETWORK_UNIT":"/etc/systemd/network/20-storage.ibnetwork"`, `"RDMA_PORT":"swib0/1"`,
			`"IBNETWORK_CODE":"pkey-not-granted"`, `"PRIORITY":"6"`, `"SYSLOG_IDENTIFIER":"ibnetworkd"`} {
			if !strings.Contains(out, w) {
				g.Errorf("the journal lacks %s:\n%s", w, out)
			}
		}
		if out := g.Exec("ibnetctl", "logs", "stor*"); !strings.Contains(out, "storage: ") {
			g.Errorf("logs:\n%s", out)
		}

		// Patterns stand for links of ours.
		g.Exec("ibnetctl", "down", "stor*")
		state("storage", link.StateConfigured, link.CodeLinkDown)
		g.Exec("ibnetctl", "up", "*")
		g.Exec("ibnetctl", "reconfigure", "ib?", "storage")
		state("storage", link.StateConfiguring, link.CodePKeyMissing)

		// A minimal system has no kill(1).
		g.Sh("rm -f /bin/kill /usr/bin/kill; touch %s10-ib0.ibnetwork", unitDir)
		pid := mainPID(g, "ibnetworkd")
		g.Exec("systemctl", "reload", "ibnetworkd")
		if now := mainPID(g, "ibnetworkd"); now != pid {
			g.Errorf("the reload made process %v of %v", now, pid)
		}
		if out := g.Exec("journalctl", "--no-pager", "-b"); strings.Contains(out, "notify-reload") || strings.Contains(out, "Failed to parse") {
			g.Error("systemd cannot read a unit of ours")
		}

		// A unit that matches nothing is reported by every command.
		g.Write(unitDir+"30-near.ibnetwork", "[Match]\nName=ib9\n")
		g.Exec("ibnetctl", "reload")
		const near = "30-near.ibnetwork matches nothing: no link fits Name=ib9 (/etc/systemd/network/30-near.ibnetwork:2:6); this host has ib0"
		for _, c := range []string{"status", "plan", "verify", "diagnose", "status --json", "plan --json", "verify --json", "--no-bus status"} {
			out, _ := g.Try("ibnetctl", strings.Fields(c)...)
			if !strings.Contains(out, near) {
				g.Errorf("ibnetctl %s has no word of it:\n%s", c, out)
			}
		}
		if out := g.Exec("busctl", "get-property", api.BusName, api.Root, api.Manager, "Notices"); !strings.Contains(out,
			"unit-matches-nothing") {
			g.Errorf("Notices: %s", out)
		}
		// Where a required link does not exist all agree that this is not online,
		// and without any unit that it is.
		g.Sh("mv %s*0-*.ibnetwork /tmp; echo '[Match]\nName=ib9' > %s10-ib9.ibnetwork; ibnetctl reload", unitDir, unitDir)
		online := func(state string, rc bool) {
			g.Helper()
			_, err := g.Try("ibnetctl", "wait-online", "--timeout", "500ms", "--quiet")
			if d := describe(g); d.Online != state || (err == nil) != rc {
				g.Errorf("Online: %s, wait-online: %v; want %s", d.Online, err, state)
			}
		}
		online("offline", false)
		g.Sh("rm %s10-ib9.ibnetwork; ibnetctl reload", unitDir)
		online("online", true)
		for _, c := range []string{"status", "plan", "diagnose"} {
			if out, _ := g.Try("ibnetctl", c); !strings.Contains(out, "there is no unit file") ||
				!strings.Contains(out, "ibnetctl edit 10-ib0") || strings.Contains(out, "Nothing to do") {
				g.Errorf("ibnetctl %s without a unit:\n%s", c, out)
			}
		}
		g.Sh("mv /tmp/*0-*.ibnetwork %s; rm %s30-near.ibnetwork; ibnetctl reload", unitDir, unitDir)
		state("ib0", link.StateConfigured, "")
	})
}
