package scenario

import (
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
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd}, Files: files}, func(g *lab.G) {
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
		Files: files, Memory: 3072}, func(g *lab.G) {
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
