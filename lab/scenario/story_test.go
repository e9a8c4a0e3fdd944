package scenario

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// manage starts the subnet manager with a partition file that grant can
// rewrite.
func manage(g *lab.G, partitions string) (grant func(string)) {
	g.Helper()
	const conf = "/tmp/partitions.conf"
	p := g.SM(lab.SM{Partitions: partitions, File: conf})
	return func(text string) {
		g.Write(conf, text)
		p.Signal(syscall.SIGHUP)
	}
}

const (
	defaultPartition = "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n"
	onePartition     = "one=0x0001, ipoib, mtu=5 : ALL=full;\n"
)

// A P_Key child that is asked for before its key is granted waits with the
// reason, and configures itself when the subnet manager grants it.
func TestPartitionBeforeGrant(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork":   "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n",
		unitDir + "20-child.ibnetwork": "[Match]\nPartitionKey=0x8001\n[IPoIB]\nMode=connected\n[Network]\nAddress=10.1.0.1/24\n",
	}}, func(g *lab.G) {
		grant := manage(g, defaultPartition)
		d := startDaemon(g)
		d.configured("ib0", 10*time.Second)
		st := d.wait("ib0.8001", "waiting for its key", 5*time.Second,
			func(s link.Status) bool { return s.Reason().Code == link.CodePKeyMissing })
		g.Logf("before: %s; %s", st.Reason().Text, st.Reason().Next)
		if len(st.Addresses) > 0 && strings.Contains(strings.Join(st.Addresses, " "), "10.1.0.1") {
			g.Errorf("the address is set without a partition: %v", st.Addresses)
		}
		grant(defaultPartition + onePartition)
		start := time.Now()
		d.configured("ib0.8001", 20*time.Second)
		g.Logf("configured %v after the grant was asked for", time.Since(start))
		if out := g.Exec("ip", "-o", "address", "show", "dev", "ib0.8001"); !strings.Contains(out, "10.1.0.1/24") {
			g.Errorf("no address: %s", out)
		}
	})
}

// Another membership in the same entry of the partition table, for which the kernel has no
// event, is in the report after a minute.
func TestMembership(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{TimeTravel: true, Userland: lab.Debian, PKeys: 32, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[Partition]\nPartitionKey=0x8001\n",
	}}, func(g *lab.G) {
		const entry = "/sys/class/infiniband/swib1/ports/1/pkeys/1"
		grant := manage(g, defaultPartition+onePartition)
		d := startDaemon(g)
		d.configured("ib1.8001", 20*time.Second)
		time.Sleep(3 * time.Second) // what follows the first cycles is done
		for _, to := range []struct{ key, text string }{
			{"0x0001", strings.Replace(onePartition, "ALL=full", "ALL=limited", 1)}, {"0x8001", onePartition},
		} {
			grant(defaultPartition + to.text)
			g.WaitFor(20*time.Second, func() string {
				if b, err := os.ReadFile(entry); err != nil || strings.TrimSpace(string(b)) != to.key {
					return fmt.Sprintf("the entry is %s, %v", b, err)
				}
				return ""
			})
			start, last := time.Now(), []string(nil)
			g.WaitFor(70*time.Second, func() string {
				for _, p := range d.report().Ports {
					if last = p.PKeys; p.IBDevice == "swib1" && slices.Contains(p.PKeys, to.key) {
						return ""
					}
				}
				return fmt.Sprintf("the entry is %s, the report has %v", to.key, last)
			})
			g.Logf("%s in the report after %v", to.key, time.Since(start).Round(100*time.Millisecond))
		}
	})
}

// What hotplug takes away comes back by itself: a device removed and added, a
// port that turns to Ethernet and back. Debian's 6.1 reports RDMA devices by
// uevents alone, the lab's kernel by RDMA netlink too.
func TestHotplug(t *testing.T) {
	t.Parallel()
	t.Run("lab", func(t *testing.T) {
		t.Parallel()
		hotplug(t, lab.UML, "auto", "connected", 65520)
	})
	// Connected mode of a child is set by rtnetlink, which may break the kernel's
	// lock (TestModeContended), likelier where there are several CPUs.
	t.Run("debian", func(t *testing.T) {
		t.Parallel()
		hotplug(t, lab.QEMU, "datagram", "datagram", 4092)
	})
}

func hotplug(t *testing.T, m lab.Machine, asked, mode string, mtu int) {
	lab.Run(t, lab.Config{Machine: m, Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib.ibnetwork": "[Match]\nIBDevice=swib1\n[Link]\nMTUBytes=max\n[IPoIB]\nMode=" + asked +
			"\n[Network]\nAddress=10.2.0.1/24\nAddress=fd00:2::1/64\n" +
			"[Route]\nDestination=10.99.0.0/16\nGateway=10.2.0.254\n[Partition]\nPartitionKey=0x8001\nName=one\nMode=" + mode + "\n",
	}}, func(g *lab.G) {
		manage(g, defaultPartition+onePartition)
		d := startDaemon(g)
		right := func(what string) {
			g.Helper()
			start := time.Now()
			g.WaitFor(15*time.Second, func() string {
				name := ibNet(g, "swib1")
				if name == "" {
					return "no interface"
				}
				out, err := g.Try("sh", "-c", "ip -d -o link show "+name+"; ip -o address show dev "+name+"; ip route show dev "+name+
					"; ip -d -o link show one")
				if err != nil {
					return out
				}
				for _, w := range []string{"LOWER_UP", "pkey 0xffff mode " + mode, fmt.Sprint("mtu ", mtu), "10.2.0.1/24", "fd00:2::1/64",
					"10.99.0.0/16 via 10.2.0.254", "one@" + name, "pkey 0x8001 mode " + mode} {
					if !strings.Contains(out, w) {
						return fmt.Sprintf("%q is missing in\n%s\n%s", w, out, tail(d.p.Output(), 15))
					}
				}
				if s := d.status(name); s.State != link.StateConfigured {
					return fmt.Sprintf("state %s: %v", s.State, s.Reasons)
				}
				return ""
			})
			g.Logf("%s: right after %v", what, time.Since(start))
		}
		right("start")
		g.Ctl("del 1")
		g.WaitFor(5*time.Second, func() string {
			if n := ibNet(g, "swib1"); n != "" {
				return n
			}
			return ""
		})
		g.Ctl("add 1")
		right("device removed and added")
		g.Write("/sys/devices/platform/swib.1/swib_port1", "eth\n")
		g.WaitFor(5*time.Second, func() string { return ibNet(g, "swib1") })
		g.Write("/sys/devices/platform/swib.1/swib_port1", "ib\n")
		right("port type changed and back")
		if _, err := os.Stat("/sys/bus/platform/drivers/swib/swib.1"); err == nil {
			g.Write("/sys/bus/platform/drivers/swib/unbind", "swib.1")
			g.Write("/sys/bus/platform/drivers/swib/bind", "swib.1")
			right("driver unbound and bound")
		} else {
			g.Log("the fabric's devices have no driver to unbind")
		}
		g.Ctl("link 1 1 down")
		d.wait(ibNet(g, "swib1"), "without a cable", 5*time.Second, func(s link.Status) bool { return s.Reason().Code == link.CodeCable })
		g.Ctl("link 1 1 up")
		right("cable out and in")
	})
}

// ibNet is the name of the IPoIB interface of an RDMA device, "" for none.
func ibNet(g *lab.G, dev string) string {
	es, err := os.ReadDir("/sys/class/infiniband/" + dev + "/device/net")
	if err != nil {
		return ""
	}
	for _, e := range es {
		typ, _ := os.ReadFile("/sys/class/net/" + e.Name() + "/type")
		// A P_Key child has a file that names its parent.
		if _, err := os.Stat("/sys/class/net/" + e.Name() + "/parent"); err != nil && strings.TrimSpace(string(typ)) == "32" {
			return e.Name()
		}
	}
	return ""
}

// An edit does what it says and nothing else; a removed unit takes what it made
// and leaves what it did not make.
func TestReloadEdit(t *testing.T) {
	t.Parallel()
	unit := func(addr string) string {
		return "[Match]\nName=ib0\n[Link]\nMTUBytes=max\n[IPoIB]\nMode=connected\n[Network]\nAddress=" + addr +
			"\n[Route]\nDestination=10.50.0.0/16\nGateway=10.3.0.200\n" +
			"[RoutingPolicyRule]\nFrom=10.50.0.0/16\nTable=77\nPriority=500\n[Partition]\nPartitionKey=0x8001\n"
	}
	withAndWithoutUdev(t, lab.Config{Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": unit("10.3.0.1/24"),
		unitDir + "20-ib1.ibnetwork": "[Match]\nName=ib1\n[Network]\nAddress=10.4.0.1/24\n",
	}}, func(g *lab.G) {
		manage(g, defaultPartition+onePartition)
		d := startDaemon(g)
		d.configured("ib0", 10*time.Second)
		d.configured("ib1", 10*time.Second)
		d.configured("ib0.8001", 10*time.Second)
		g.Exec("ip", "address", "add", "10.3.0.77/24", "dev", "ib0")
		g.Exec("ip", "link", "add", "link", "ib0", "name", "theirs", "type", "ipoib", "pkey", "0x8002")
		quiet(g, d)

		done := len(ops(d))
		carrier := carrierChanges(g, "ib0", "ib1")
		g.Write(unitDir+"10-ib0.ibnetwork", unit("10.3.0.2/24"))
		want := []string{
			"ip address delete 10.3.0.1/24 dev ib0",
			// It was a secondary of the address that goes.
			"ip address replace 10.3.0.77/24 label ib0 dev ib0",
			"ip address add 10.3.0.2/24 broadcast 10.3.0.255 dev ib0",
		}
		g.WaitFor(5*time.Second, func() string {
			if out := g.Exec("ip", "-o", "address", "show", "dev", "ib0"); !strings.Contains(out, "10.3.0.2/24") ||
				strings.Contains(out, "10.3.0.1/24") {
				return out
			}
			// It says what it did after it did all.
			if said := ops(d)[done:]; !slices.Contains(said, want[2]) {
				return "the daemon says it did " + strings.Join(said, "\n")
			}
			return ""
		})
		quiet(g, d)
		got := ops(d)[done:]
		// The route goes with the last address of its gateway's subnet on some
		// kernels and is put back then.
		got = slices.DeleteFunc(slices.Clone(got), func(s string) bool { return strings.HasPrefix(s, "ip route add 10.50.0.0/16") })
		if !slices.Equal(got, want) {
			g.Errorf("ops of the edit:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if now := carrierChanges(g, "ib0", "ib1"); now != carrier {
			g.Errorf("carrier changes %s, before %s", now, carrier)
		}

		g.Exec("rm", unitDir+"10-ib0.ibnetwork")
		g.WaitFor(5*time.Second, func() string {
			out := g.Exec("sh", "-c", "ip -o address show dev ib0; ip route; ip rule; ip -o link")
			for _, gone := range []string{"10.3.0.2/24", "10.50.0.0/16", "ib0.8001"} {
				if strings.Contains(out, gone) {
					return gone + " stays:\n" + out
				}
			}
			for _, stays := range []string{"10.3.0.77/24", "theirs@ib0"} {
				if !strings.Contains(out, stays) {
					return stays + " is gone:\n" + out
				}
			}
			return ""
		})
		if now := carrierChanges(g, "ib0", "ib1"); now != carrier {
			g.Errorf("carrier changes %s, before %s", now, carrier)
		}
		d.configured("ib1", time.Second)
	})
}

// ops are the operations that the daemon says it has done.
func ops(d *service) []string { return opsDone(d.p.Output()) }

func opsDone(log string) []string {
	var out []string
	for l := range strings.Lines(log) {
		if !strings.Contains(l, " msg=done ") {
			continue
		}
		if _, rest, ok := strings.Cut(l, "op=\""); ok {
			op, _, _ := strings.Cut(rest, "\"")
			out = append(out, op)
		}
	}
	return out
}

// quiet waits until the daemon has had nothing to do for a while.
func quiet(g *lab.G, d *service) {
	g.Helper()
	still(g, d, 500*time.Millisecond)
}

// still waits until the daemon has said nothing for so long.
func still(g *lab.G, d *service, long time.Duration) {
	g.Helper()
	g.WaitFor(20*time.Second, unchanged(long, func() int { return len(d.p.Output()) }))
}

// unchanged gives a function that reports whether a value has stayed the same for so long. A time in
// which it was not read counts little: the guest may have stood still.
func unchanged[T comparable](long time.Duration, look func() T) func() string {
	var last T
	var same time.Duration
	var at time.Time // of the last look
	return func() string {
		now, before := look(), at
		at = time.Now()
		if before.IsZero() || now != last {
			last, same = now, 0
		} else {
			same += min(at.Sub(before), max(long/5, 50*time.Millisecond))
		}
		if same < long {
			return "still at work"
		}
		return ""
	}
}

// carrierChanges is the kernel's count of carrier changes of each link.
func carrierChanges(g *lab.G, links ...string) string {
	var b strings.Builder
	for _, l := range links {
		fmt.Fprintf(&b, "%s:%s ", l, strings.TrimSpace(g.Read("/sys/class/net/"+l+"/carrier_changes")))
	}
	return b.String()
}

// configuration is what the kernel says of all InfiniBand links, without what
// differs from run to run.
func configuration(g *lab.G) string {
	var out []struct {
		Name  string   `json:"ifname"`
		Flags []string `json:"flags"`
		MTU   int      `json:"mtu"`
		Info  struct {
			Data struct {
				PKey, Mode, Umcast string
			} `json:"info_data"`
		} `json:"linkinfo"`
	}
	if err := json.Unmarshal([]byte(g.Exec("ip", "-d", "-j", "link", "show", "type", "ipoib")), &out); err != nil {
		g.Fatalf("ip -j link: %v", err)
	}
	var lines []string
	for _, l := range out {
		slices.Sort(l.Flags)
		lines = append(lines, fmt.Sprintf("%s %v %d %v", l.Name, l.Flags, l.MTU, l.Info.Data))
	}
	for l := range strings.Lines(ip(g, "address show scope global", "route show", "rule show")) {
		if f := strings.Fields(l); len(f) > 3 && strings.HasPrefix(f[2], "inet") {
			l = f[1] + " " + f[3] // no interface index
		}
		lines = append(lines, strings.TrimSpace(l))
	}
	return strings.Join(lines, "\n")
}

// ip is what ip says to several questions; asked in one go, for a process costs a guest
// more than an answer.
func ip(g *lab.G, questions ...string) string {
	g.Helper()
	const file = "/tmp/questions"
	g.Write(file, strings.Join(questions, "\n")+"\n")
	return g.Exec("ip", "-o", "-batch", file)
}
