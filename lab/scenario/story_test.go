package scenario

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
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

// What hotplug takes away comes back by itself: a device removed and added, a
// port that turns to Ethernet and back. Debian's 6.1 tells of RDMA devices by
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
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: map[string]string{
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

// opsDone are those that are in its log.
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

// unchanged gives what tells whether a value has stayed the same for so long. A time in
// which nobody looked counts little: the guest may have stood still.
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

// Killed at a random moment, the daemon comes back to the same end state, and no
// link that was done loses carrier or an address by it.
func TestKill(t *testing.T) {
	t.Parallel()
	// A hundred seeds, in four guests side by side.
	count := 25
	if lab.Sanitizing() {
		count = 5
	}
	for shard := range 4 {
		t.Run(fmt.Sprintf("seeds from %d", 25*shard), func(t *testing.T) {
			t.Parallel()
			killSeeds(t, 25*shard, count)
		})
	}
}

func killSeeds(t *testing.T, first, count int) {
	files := map[string]string{
		unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[Link]\nMTUBytes=65520\n[IPoIB]\nMode=connected\n[Network]\n" +
			"Address=10.5.0.1/24\nAddress=fd00:5::1/64\n" +
			"[Route]\nDestination=10.55.0.0/16\nGateway=10.5.0.9\n[RoutingPolicyRule]\nFrom=10.55.0.0/16\nTable=55\nPriority=550\n" +
			"[Partition]\nPartitionKey=0x8001\n[Partition]\nPartitionKey=0x8002\nName=two\nMode=connected\n",
		unitDir + "20-one.ibnetwork": "[Match]\nPartitionKey=0x8001\n[Network]\nAddress=10.6.0.1/24\n",
		unitDir + "30-two.ibnetwork": "[Match]\nName=two\n[Network]\nAddress=10.7.0.1/24\n",
	}
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: files, Timeout: 10 * time.Minute}, func(g *lab.G) {
		manage(g, defaultPartition+onePartition+"two=0x0002, ipoib : ALL=full;\n")
		g.Exec("ip", "address", "add", "172.20.0.1/16", "dev", "ib0")
		d := startDaemon(g, "--no-watch", "--log-level", "debug")
		all := []string{"ib0", "ib0.8001", "two"}
		wait := func() {
			g.Helper()
			for _, n := range all {
				d.configured(n, 15*time.Second)
			}
		}
		wait()
		quiet(g, d)
		full := configuration(g)
		g.Logf("the end state:\n%s", full)
		clean := func() {
			g.Helper()
			// Everything of ours goes by an empty set of units, with the record
			// that the killed daemon left.
			away := func(from, to string) {
				for f := range files {
					if err := os.Rename(f+from, f+to); err != nil {
						g.Fatal(err)
					}
				}
			}
			away("", ".away")
			d.p.Signal(syscall.SIGHUP)
			g.WaitFor(10*time.Second, func() string {
				out := ip(g, "address show dev ib0", "link show", "rule show", "route show")
				for _, x := range []string{"10.5.0.1/24", "fd00:5::1", "ib0.8001", "two@ib0", "10.55.0.0/16"} {
					if strings.Contains(out, x) {
						return x + " stays\n" + out + tail(d.p.Output(), 10)
					}
				}
				if !strings.Contains(out, "172.20.0.1/16") {
					return "the foreign address is gone"
				}
				return ""
			})
			away(".away", "")
		}
		for seed := first; seed < first+count; seed++ {
			r := rand.New(rand.NewPCG(uint64(seed), 42))
			clean()
			d.p.Signal(syscall.SIGHUP)
			time.Sleep(time.Duration(r.IntN(60_000)) * time.Microsecond)
			d.kill()
			before := done(g, all)
			d.start()
			wait()
			still(g, d, 60*time.Millisecond)
			if got := configuration(g); got != full {
				g.Fatalf("seed %d: after the kill\n%s\nwant\n%s\nlog:\n%s", seed, got, full, tail(d.p.Output(), 30))
			}
			for n, c := range before {
				if now := carrierChanges(g, n); now != c {
					g.Errorf("seed %d: %s was done before the kill, carrier changes then %s, now %s", seed, n, c, now)
				}
			}
			// Killed when all is done, it does nothing at all.
			if seed%10 == 0 {
				carrier := carrierChanges(g, all...)
				d.kill()
				d.start()
				wait()
				still(g, d, 60*time.Millisecond)
				if o := ops(d); len(o) > 0 {
					g.Errorf("seed %d: after a restart with nothing to do it did %v", seed, o)
				}
				if now := carrierChanges(g, all...); now != carrier {
					g.Errorf("seed %d: carrier changes %s, before %s", seed, now, carrier)
				}
			}
		}
	})
}

// done are the links that have carrier, with their count of carrier changes.
func done(g *lab.G, links []string) map[string]string {
	out := map[string]string{}
	for _, n := range links {
		if b, err := os.ReadFile("/sys/class/net/" + n + "/carrier"); err == nil && strings.TrimSpace(string(b)) == "1" {
			out[n] = carrierChanges(g, n)
		}
	}
	return out
}

// A storm of link events with overruns of the event sockets: all is right
// within seconds of its end.
func TestStorm(t *testing.T) {
	t.Parallel()
	// Forty children, twenty on each of two ports.
	const keys = 20
	var unit strings.Builder
	unit.WriteString("[Match]\nName=ib0\nName=ib1\n")
	files := map[string]string{}
	parts := defaultPartition
	links := map[string]string{} // name -> address
	for i := 1; i <= keys; i++ {
		fmt.Fprintf(&unit, "[Partition]\nPartitionKey=0x%04x\n", 0x8000+i)
		parts += fmt.Sprintf("p%d=0x%04x, ipoib : ALL=full;\n", i, i)
		for p := range 2 {
			name, addr := fmt.Sprintf("ib%d.%04x", p, 0x8000+i), fmt.Sprintf("10.%d.%d.1/24", 60+p, i)
			links[name] = addr
			files[fmt.Sprintf("%s20-%d-%02d.ibnetwork", unitDir, p, i)] = fmt.Sprintf(
				"[Match]\nPartitionKey=0x%04x\nIBDevice=swib%d\n[Link]\nMTUBytes=2044\nActivationPolicy=always-up\n[Network]\nAddress=%s\n",
				0x8000+i, p, addr)
		}
	}
	files[unitDir+"10-ib.ibnetwork"] = unit.String()
	lab.Run(t, lab.Config{Userland: lab.Debian, Append: smallQueues, Bins: []string{ibnetworkd}, Files: files, Memory: 1024}, func(g *lab.G) {
		manage(g, parts)
		d := startDaemon(g, "--event-buffer", "4096")
		names := slices.Sorted(maps.Keys(links))
		for _, name := range names {
			d.configured(name, 30*time.Second)
		}
		quiet(g, d)
		var batch strings.Builder
		for round := range 15 {
			for i, name := range names {
				switch (round + i) % 3 {
				case 0:
					fmt.Fprintf(&batch, "link set %s mtu %d\n", name, 1500+round)
				case 1:
					fmt.Fprintf(&batch, "link set %s down\nlink set %s name x%d\nlink set x%d name %s\nlink set %s up\n", name, name, i, i, name, name)
				case 2:
					fmt.Fprintf(&batch, "link set %s down\nlink set %s up\n", name, name)
				}
			}
		}
		g.Write("/tmp/storm", batch.String())
		start := time.Now()
		out, err := g.Try("ip", "-force", "-batch", "/tmp/storm")
		took := time.Since(start)
		_ = err // the daemon's own hand makes some of the storm's requests fail
		g.Logf("%d requests in %v; %s", strings.Count(batch.String(), "\n"), took, tail(out, 2))
		const limit = 30 * time.Second
		right := g.WaitFor(limit, func() string {
			addrs := g.Exec("ip", "-o", "-4", "address")
			ls := g.Exec("ip", "-o", "link")
			for name, a := range links {
				if !strings.Contains(addrs, a) {
					return a + " is missing"
				}
				l := grep(ls, name+"@")
				if !strings.Contains(l, ",UP") || !strings.Contains(l, "mtu 2044") {
					return l
				}
			}
			for name := range links {
				if s := d.status(name); s.State != link.StateConfigured || !s.Carrier {
					return fmt.Sprintf("%s is %s/%s: %v", name, s.State, s.Oper, s.Reasons)
				}
			}
			return ""
		})
		lost := strings.Count(d.p.Output(), "events were lost")
		g.Logf("all %d right %v after the storm; %d overruns; daemon CPU %v", len(names), right, lost, g.CPU(d.p.Cmd.Process.Pid))
		if right > limit {
			g.Errorf("all was right only %v after the storm", right)
		}
		if lost == 0 {
			g.Error("no overrun was provoked")
		}
	})
}

// A good link comes up beside thirty malformed units, and every problem is
// listed with its place.
func TestMalformed(t *testing.T) {
	t.Parallel()
	files := map[string]string{unitDir + "50-good.ibnetwork": wiki}
	bad := []string{
		"[Match\nName=ib0\n", "[Match]\n", "Name=ib0\n", "[Match]\nName=ib0\n[IPoIB]\nMode=conected\n",
		"[Match]\nName=ib9\n[Link]\nMTUBytes=-1\n",
		"[Match]\nName=ib9\n[Network]\nAddress=10.0.0.1/33\n", "[Match]\nName=ib9\n[Network]\nAddress=300.0.0.1/8\n",
		"[Match]\nName=ib9\n[Partition]\nPartitionKey=0x0000\n",
		"[Match]\nName=ib9\n[Partition]\nPartitionKey=0x8000\n", "[Match]\nName=ib9\n[Partition]\nPartitionKey=0x10000\n",
		"[Match]\nName=ib9\n[Wrong]\nX=1\n",
		"[Match]\nName=ib9\nNaem=x\n", "[Match]\nPortGUID=zz\n", "[Match]\nPort=-3\n", "[Match]\nName=ib9\n[Link]\nGUID=0\n",
		"[Match]\nName=ib9\n[Route]\nGateway=x\n",
		"[Match]\nName=ib9\n[Address]\nLabel=x\n", "[Match]\nName=ib9\n[Link]\nActivationPolicy=sideways\n",
		"[Match]\nName=ib9\n[Link]\nRequiredForOnline=maybe\n",
		"[Match]\nName=ib9\n[RoutingPolicyRule]\nPriority=x\n", "\xff\xfe\x00", "[Match]\nName=ib9\n[Network]\nDNS=nowhere\n",
		"[Match]\nName=ib9\n[Network]\nLinkLocalAddressing=up\n",
		"[Match]\nName=ib9\nnoequals\n", "[Match]\nName=ib9\n=novalue\n", "[Match]\nLinkLayer=Token\n", "[Match]\nMACAddress=1:2:3\n",
		"[Match]\nName=ib9\n[Network]\nIPv6AcceptRA=perhaps\n",
		"[Match]\nName=ib9\n[Partition]\nPartitionKey=1\n[Partition]\nPartitionKey=0x8001\n",
		"[Match]\nName=ib9\n[IPoIB]\nIgnoreUserspaceMulticastGroups=2\n",
	}
	for i, text := range bad {
		files[fmt.Sprintf("%s60-bad%02d.ibnetwork", unitDir, i)] = text
	}
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: files}, func(g *lab.G) {
		g.SM(lab.SM{})
		d := startDaemon(g)
		d.configured("ib0", 10*time.Second)
		problems := d.report().Problems
		for i := range bad {
			place := fmt.Sprintf("60-bad%02d.ibnetwork:", i)
			if !slices.ContainsFunc(problems, func(p string) bool {
				_, rest, ok := strings.Cut(p, place)
				line, _, _ := strings.Cut(rest, ":")
				return ok && line != "" && strings.Trim(line, "0123456789") == ""
			}) {
				g.Errorf("no problem with its line is listed for %s\n%s", place, bad[i])
			}
		}

		// A unit in force that is broken by an edit keeps its last good version, over
		// a kill of the daemon too; a mask ends it.
		good := unitDir + "50-good.ibnetwork"
		has := func(want bool) string {
			if out := g.Exec("ip", "-o", "address", "show", "dev", "ib0"); strings.Contains(out, "192.168.151.1/24") != want {
				return fmt.Sprintf("the address is wanted: %v, and: %s", want, out)
			}
			return ""
		}
		said := func(s string) func(link.Status) bool {
			return func(st link.Status) bool {
				return st.State == link.StateConfigured && strings.Contains(strings.Join(st.Problems, "\n"), s)
			}
		}
		changes := g.Start("ip", "monitor", "address", "dev", "ib0")
		for _, b := range []struct{ text, say string }{
			{"", "is empty now"}, {wiki[:20], "does not end with"}, {"\xff" + wiki, "not valid UTF-8"},
			{strings.Replace(wiki, "[Match]", "[Mtch]", 1), "unknown section [Mtch]"},
		} {
			g.Write(good, b.text)
			d.wait("ib0", "said to keep its unit: "+b.say, 5*time.Second, said(b.say))
		}
		d.kill()
		d.start()
		d.wait("ib0", "said to keep its unit after a kill", 10*time.Second, said("the last good version of the unit stays in force"))
		if s := has(true); s != "" {
			g.Errorf("%s", s)
		}
		changes.Kill()
		if strings.Contains(changes.Output(), "192.168.151.1/24") {
			g.Errorf("the address was touched:\n%s", changes.Output())
		}
		g.Exec("ln", "-sfn", "/dev/null", good)
		g.WaitFor(5*time.Second, func() string { return has(false) })
	})
}

// smallQueues keeps the memory of an IPoIB interface small: with the driver's own
// 256 receive buffers of 64 KiB each has 16 MiB.
const smallQueues = "ib_ipoib.recv_queue_size=16 ib_ipoib.send_queue_size=16"

// Nine hundred P_Key children from cold, and keys that must never be used.
func TestManyPartitions(t *testing.T) {
	t.Parallel()
	hcas, ports, keys := 16, 2, 28
	if lab.Sanitizing() {
		hcas = 3
	}
	files := map[string]string{}
	var unit strings.Builder
	unit.WriteString("[Match]\nKind=ipoib\nName=!*.*\n[IPoIB]\nMode=datagram\n")
	parts := defaultPartition
	for k := 1; k <= keys; k++ {
		fmt.Fprintf(&unit, "[Partition]\nPartitionKey=0x%04x\n", 0x8000+k)
		parts += fmt.Sprintf("p%d=0x%04x, ipoib : ALL=full;\n", k, k)
	}
	// These are refused: a key twice, and two that name no partition.
	unit.WriteString("[Partition]\nPartitionKey=0x8001\nName=again\n[Partition]\nPartitionKey=0x0000\nName=zero\n[Partition]\n" +
		"PartitionKey=0x8000\nName=eight\n")
	files[unitDir+"10-all.ibnetwork"] = unit.String()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: hcas, Ports: ports, Append: smallQueues, Bins: []string{ibnetworkd},
		Files: files, Timeout: 9 * time.Minute, Memory: 3072}, func(g *lab.G) {
		manage(g, parts)
		start := time.Now()
		d := startDaemon(g)
		want := hcas * ports * keys
		g.WaitFor(8*time.Minute, func() string {
			n, up := 0, 0
			for _, s := range d.report().Links {
				if s.Parent != "" {
					n++
					if s.State == link.StateConfigured && s.Carrier {
						up++
					}
				}
			}
			if n != want || up != want {
				return fmt.Sprintf("%d children, %d configured, want %d\n%s", n, up, want, tail(d.p.Output(), 3))
			}
			return ""
		})
		pid := d.p.Cmd.Process.Pid
		g.Logf("%d children configured after %v; daemon CPU %v, %s", want, time.Since(start), g.CPU(pid),
			grep(g.Read(fmt.Sprintf("/proc/%d/status", pid)), "VmRSS"))
		ls := g.Exec("ip", "-o", "link", "show", "type", "ipoib")
		for _, never := range []string{"again", "zero", "eight"} {
			if strings.Contains(ls, " "+never+"@") || strings.Contains(ls, " "+never+":") {
				g.Errorf("%s was made", never)
			}
		}
		problems := strings.Join(d.report().Problems, "\n")
		for _, s := range []string{"0x8001", "0x0000", "0x8000"} {
			if !strings.Contains(problems, s) {
				g.Errorf("nothing is said about P_Key %s:\n%s", s, problems)
			}
		}
		seen := map[string]string{}
		for _, s := range d.report().Links {
			if s.PKey == "" {
				continue
			}
			key := s.IBDevice + "/" + strconv.Itoa(s.Port) + " " + s.PKey
			if other, dup := seen[key]; dup {
				g.Errorf("%s and %s are on the same partition", s.Name, other)
			}
			seen[key] = s.Name
		}
	})
}
