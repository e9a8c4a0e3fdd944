package lab_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/umad"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/sm/mad"
)

// asker sends MADs from port 1 of adapter 0, each once: nothing is repeated, so that
// what the fabric counts is what was sent.
type asker struct {
	g      *lab.G
	port   *umad.Port
	agents map[mad.Class]uint32
	tid    uint64
	lids   map[string]ib.LID // "h0", "h1", "s0"
	key    ib.MKey           // of SMPs
}

func newAsker(g *lab.G) *asker {
	g.Helper()
	p, err := umad.Open(g.Context(), "umad0")
	testkit.NoError(g, err)
	a := &asker{g: g, port: p, agents: map[mad.Class]uint32{}, lids: map[string]ib.LID{}}
	for class, qpn := range map[mad.Class]uint32{mad.ClassSubnLID: 0, mad.ClassPerf: 1, mad.ClassVendor1: 1} {
		if a.agents[class], err = p.Register(umad.Agent{QPN: qpn, Class: uint8(class), Version: 1}); err != nil {
			g.Fatal(err)
		}
	}
	for name, node := range map[string]string{"h0": "hca0/1", "h1": "hca1/1", "s0": "switch0/0"} {
		node, num, _ := strings.Cut(node, "/")
		n, _ := strconv.Atoi(num)
		a.lids[name] = ib.LID(g.FabricPort(node, n).Int("lid"))
	}
	return a
}

// in makes g the test that a fails, until the returned function is called.
func (a *asker) in(g *lab.G) (back func()) {
	was := a.g
	a.g = g
	return func() { a.g = was }
}

// send sends a MAD to a node; with a timeout the kernel waits for the answer.
func (a *asker) send(to string, c mad.Class, m mad.Method, attr mad.AttrID, timeout time.Duration) {
	a.g.Helper()
	a.tid++
	var b mad.Buf
	mad.PutLR(&b, m, attr, 0, a.tid, a.key, nil)
	b[1] = uint8(c)
	addr := umad.Address{LID: a.lids[to]}
	if c != mad.ClassSubnLID {
		addr.QPN, addr.QKey = 1, 0x80010000
		if c == mad.ClassPerf {
			b[24+40+1] = 1 // the port
		}
		mad.SetMKey(&b, 0)
	}
	testkit.NoError(a.g, a.port.Send(&umad.Packet{Agent: a.agents[c], Timeout: timeout, Addr: addr, MAD: b[:]}))
}

// answer sends a question and gives its answer, nil if none came in the time.
func (a *asker) answer(to string, c mad.Class, attr mad.AttrID, timeout time.Duration) *mad.Buf {
	a.g.Helper()
	a.send(to, c, mad.MethodGet, attr, timeout)
	for {
		var k umad.Packet
		testkit.NoError(a.g, a.port.Recv(&k))
		var b mad.Buf // a question comes back as its header alone
		copy(b[:], k.MAD)
		// The upper half is the kernel's. Refusals of what was sent without a timeout come too.
		if uint32(mad.TIDOf(&b)) != uint32(a.tid) {
			continue
		}
		if k.Status != 0 {
			return nil
		}
		return &b
	}
}

// get asks n times and must be answered each time.
func (a *asker) get(n int, to string, c mad.Class, attr mad.AttrID) {
	a.g.Helper()
	for range n {
		if a.answer(to, c, attr, 20*time.Second) == nil {
			a.g.Fatalf("no answer of %s to class %d attribute %#x", to, c, attr)
		}
	}
}

// lose asks n times and must not be answered. The time is short where the hits of a rule
// say that it was lost.
func (a *asker) lose(n int, to string, c mad.Class, attr mad.AttrID) {
	a.g.Helper()
	a.silence(n, 50*time.Millisecond, to, c, attr)
}

// silence is lose with a time that is long enough for an answer on a busy machine.
func (a *asker) silence(n int, limit time.Duration, to string, c mad.Class, attr mad.AttrID) {
	a.g.Helper()
	for range n {
		if a.answer(to, c, attr, limit) != nil {
			a.g.Errorf("%s answered class %d attribute %#x", to, c, attr)
		}
	}
}

// settle returns when what was sent before has arrived. A doubled or delayed packet
// can be overtaken once at each port that it leaves.
func (a *asker) settle() {
	a.g.Helper()
	a.get(8, "h1", mad.ClassSubnLID, mad.AttrPKeyTable)
}

// hits compares what all fault rules have hit.
func hits(g *lab.G, want ...int64) {
	g.Helper()
	var got []int64
	for _, r := range g.FaultRules() {
		got = append(got, r.Hits)
	}
	if !slices.Equal(got, want) {
		g.Errorf("the rules hit %d packets, want %d:\n%+v", got, want, g.FaultRules())
	}
}

const (
	smp    = mad.ClassSubnLID
	perf   = mad.ClassPerf
	vendor = mad.ClassVendor1
)

// What each option of a fault rule picks, to the packet, by the hits of the rules and
// the counters of the ports. Packets of QP0 are in no counter. No link is up, so that
// only ib_sa sends on QP1 as well, which asks for the SA's ClassPortInfo a second after
// each event of a port and asks again until it is answered: the manager runs until it was.
// What adapter 0 asks its own manager does not leave its port.
func TestFaultRules(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		sm := g.Opensm(lab.SM{})
		a := newAsker(g)
		g.Ctl("fault s0/2 delay class=3 method=resp") // only counts
		g.Wait("ib_sa has been answered", 20*time.Second, func() bool { return g.FaultHits(0) > 0 })
		g.Ctl("fault clear")
		g.Run("seed", a.seeds)
		sm.Kill()

		type deltas map[string]int64 // of "hca0/tx"
		kinds := func() {
			a.get(3, "s0", smp, mad.AttrSwitchInfo)
			a.get(5, "h1", perf, mad.AttrPortCounters) // the same attribute ID
		}
		methods := func() {
			for i, m := range []mad.Method{mad.MethodGet, mad.MethodSet, mad.MethodGetResp, mad.MethodTrap, mad.MethodReport, mad.MethodSend} {
				for range i + 1 {
					a.send("h1", vendor, m, 0x33, 0)
				}
			}
			a.get(1, "h1", perf, mad.AttrPortCounters) // behind them on QP1
		}
		for _, tc := range []struct {
			name   string
			rules  []string
			do     func()
			hits   []int64
			deltas deltas
		}{
			{"dup of questions", []string{"h0/1 dup class=4", "s0/2 delay class=4", "h1/1 delay class=4"},
				func() { a.get(10, "h1", perf, mad.AttrPortCounters) },
				[]int64{10, 20, 20}, deltas{"hca0/tx": 20, "hca1/rx": 20, "hca1/tx": 20, "hca0/rx": 20, "hca0/disc": 0, "hca1/disc": 0}},
			{"dup of answers", []string{"h1/1 dup class=4"},
				func() { a.get(10, "h1", perf, mad.AttrPortCounters) },
				[]int64{10}, deltas{"hca0/tx": 10, "hca1/rx": 10, "hca1/tx": 20, "hca0/rx": 20}},
			{"drop until used up", []string{"h1/1 drop class=4 count=3"},
				func() {
					a.lose(3, "h1", perf, mad.AttrPortCounters)
					a.get(4, "h1", perf, mad.AttrPortCounters)
					if n := g.FaultRules()[0].Count; n != 0 {
						g.Errorf("count %d", n)
					}
				},
				[]int64{3}, deltas{"hca1/rx": 7, "hca1/tx": 4, "hca0/rx": 4, "hca1/disc": 3, "hca0/disc": 0}},
			{"used up at once", []string{"h1/1 drop class=4 count=0"},
				func() { a.get(4, "h1", perf, mad.AttrPortCounters) }, []int64{0}, deltas{"hca1/disc": 0}},
			{"0 percent", []string{"all drop class=4 percent=0"},
				func() { a.get(20, "h1", perf, mad.AttrPortCounters) }, []int64{0}, deltas{"hca1/disc": 0, "hca1/tx": 20}},
			{"kind smp", []string{"h0/1 delay attr=0x12 kind=smp"}, kinds, []int64{3}, nil},
			{"kind gmp", []string{"h0/1 delay attr=0x12 kind=gmp"}, kinds, []int64{5}, nil},
			{"kind mad", []string{"h0/1 delay attr=0x12 kind=mad"}, kinds, []int64{8}, nil},
			{"kind all", []string{"h0/1 delay attr=0x12 kind=all"}, kinds, []int64{8}, nil},
			{"kind data", []string{"h0/1 drop kind=data"}, kinds, []int64{0}, deltas{"hca0/tx": 5, "hca0/disc": 0}},
			{"no kind", []string{"h0/1 delay attr=0x12"}, kinds, []int64{8}, nil},
			{"class", []string{"h0/1 delay class=1 attr=0x11", "h0/1 delay class=4", "h0/1 delay class=9"},
				func() {
					a.get(2, "h1", smp, mad.AttrNodeInfo)
					a.send("h1", vendor, mad.MethodTrap, 0x33, 0)
					a.get(3, "h1", perf, mad.AttrPortCounters)
				}, []int64{2, 3, 1}, nil},
			{"method", []string{"h0/1 delay class=9 method=get", "h0/1 delay class=9 method=set", "h0/1 delay class=9 method=resp",
				"h0/1 delay class=9 method=trap", "h0/1 delay class=9 method=report", "h0/1 delay class=9 method=0x03"},
				methods, []int64{1, 2, 3, 4, 5, 6}, nil},
			{"method of answers", []string{"h1/1 delay class=4 method=get", "h1/1 delay class=4 method=resp"},
				func() { a.get(6, "h1", perf, mad.AttrPortCounters) }, []int64{0, 6}, nil},
			{"only what leaves the port", []string{"h0/1 drop class=4 method=resp", "h1/1 drop class=4 method=get"},
				func() { a.get(6, "h1", perf, mad.AttrPortCounters) }, []int64{0, 0}, deltas{"hca0/rx": 6}},
			{"every port", []string{"all delay class=4"},
				func() { a.get(5, "h1", perf, mad.AttrPortCounters) }, []int64{20}, nil},
			{"the first that hits is the only one", []string{"h0/1 dup class=4 count=2", "h0/1 delay class=4"},
				func() { a.get(5, "h1", perf, mad.AttrPortCounters) }, []int64{2, 3}, deltas{"hca0/tx": 7}},
			{"delay of an attribute", []string{"h1/1 delay attr=0x10 ms=60"},
				func() {
					a.get(3, "h1", smp, mad.AttrNodeInfo)
					hits(g, 0)
					start := lab.Uptime()
					a.get(2, "h1", smp, mad.AttrNodeDescription)
					if took := lab.Uptime() - start; took < 120*time.Millisecond {
						g.Errorf("two delays of 60 ms took %v", took)
					}
				}, []int64{2}, nil},
			{"answers of a slow node", []string{"h1/1 drop class=4 count=2", "h1/1 delay class=4 ms=30"},
				func() {
					g.Ctl("slow h1 30")
					a.lose(2, "h1", perf, mad.AttrPortCounters)
					start := lab.Uptime()
					a.get(1, "h1", perf, mad.AttrPortCounters)
					if took := lab.Uptime() - start; took < 60*time.Millisecond {
						g.Errorf("a delay of 30 ms and a node that takes 30 ms took %v", took)
					}
					g.Ctl("slow h1 0")
				}, []int64{2, 1}, deltas{"hca1/disc": 2, "hca1/tx": 1}},
		} {
			g.Run(tc.name, func(g *lab.G) {
				defer a.in(g)()
				defer g.Ctl("fault clear")
				for _, r := range tc.rules {
					g.Ctl("fault %s", r)
				}
				read := func() deltas {
					d := deltas{}
					for what := range tc.deltas {
						node, field, _ := strings.Cut(what, "/")
						d[what] = g.FabricPort(node, 1).Int(field)
					}
					return d
				}
				before := read()
				tc.do()
				a.settle()
				hits(g, tc.hits...)
				for what, n := range read() {
					if n -= before[what]; n != tc.deltas[what] {
						g.Errorf("%s grew by %d, want %d", what, n, tc.deltas[what])
					}
				}
			})
		}
		g.Run("as printed", func(g *lab.G) {
			g.Ctl("fault all corrupt kind=gmp percent=7 ms=9 attr=0x35 method=set class=3 count=5")
			g.Ctl("fault s0/2 dup")
			want := []lab.FaultRule{
				{Port: "all", Action: "corrupt", Kind: "gmp", Percent: 7, MS: 9, Attr: 0x35, Method: 2, Class: 3, Count: 5},
				{Port: "switch0/2", Action: "dup", Kind: "mad", Percent: 100, Count: -1},
			}
			if got := g.FaultRules(); !slices.Equal(got, want) {
				g.Errorf("%+v, want %+v", got, want)
			}
			g.Ctl("fault clear")
			if got := g.FaultRules(); len(got) != 0 {
				g.Errorf("after clear: %+v", got)
			}
		})
	})
}

// A part of the packets is hit, the same ones after the same seed, which is 1 from the
// module's start on and after "clear".
func (a *asker) seeds(g *lab.G) {
	defer a.in(g)()
	const n = 100
	pattern := func(percent int) (which string) {
		g.Helper()
		g.Ctl("fault h0/1 delay class=4 percent=%d", percent)
		last := int64(0)
		for range n {
			a.get(1, "h1", perf, mad.AttrPortCounters)
			now := g.FaultHits(0)
			which += strconv.FormatInt(now-last, 10)
			last = now
		}
		return which
	}
	first := pattern(30)
	if hit := strings.Count(first, "1"); hit < 15 || hit > 45 {
		g.Errorf("of %d packets %d are hit with percent=30", n, hit)
	}
	g.Ctl("fault clear")
	if p := pattern(30); p != first {
		g.Errorf("after clear\n%s, before\n%s", p, first)
	}
	g.Ctl("fault clear")
	g.Ctl("fault seed 1")
	if p := pattern(30); p != first {
		g.Errorf("after seed 1\n%s, without\n%s", p, first)
	}
	g.Ctl("fault clear")
	g.Ctl("fault seed 77")
	other := pattern(30)
	if other == first {
		g.Errorf("the same packets are hit after seed 77")
	}
	g.Ctl("fault clear")
	g.Ctl("fault seed 77")
	if p := pattern(30); p != other {
		g.Errorf("after seed 77\n%s and\n%s", other, p)
	}
	g.Ctl("fault clear")
	if hit := strings.Count(pattern(80), "1"); hit < 65 || hit > 95 {
		g.Errorf("of %d packets %d are hit with percent=80", n, hit)
	}
	g.Ctl("fault clear")
}

// Rules for data packets and no others, between links that send only what the test sends.
func TestDataFaults(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian}, dataFaults)
}

func dataFaults(g *lab.G) {
	g.Opensm(lab.SM{})
	a, b := g.Host("a"), g.Host("b")
	address := func(link string) string { return g.Read("/sys/class/net/" + link + "/address") }
	macs := []string{address("ib0"), address("ib1")}
	for i, h := range []*lab.Host{a, b} {
		h.Exec("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
		link := []string{"ib0", "ib1"}[i]
		h.Take(link, []string{"10.9.0.1/24", "10.9.0.2/24"}[i])
		h.Exec("ip", "neigh", "replace", []string{"10.9.0.2", "10.9.0.1"}[i], "lladdr", macs[1-i], "dev", link, "nud", "permanent")
	}
	a.Ping("10.9.0.2")
	disc := g.FabricPort("hca0", 1).Int("disc")
	g.Ctl("fault h0/1 drop kind=data count=2")
	out, _ := a.Try("ping", "-n", "-q", "-c", "7", "-i", "0.01", "-W", "2", "10.9.0.2")
	if !strings.Contains(out, "7 packets transmitted, 5 received") {
		g.Errorf("with two packets lost:\n%s", out)
	}
	hits(g, 2)
	if n := g.FabricPort("hca0", 1).Int("disc") - disc; n != 2 {
		g.Errorf("%d packets discarded, want 2", n)
	}
	g.Ctl("fault clear")
	g.Ctl("fault h0/1 drop class=9") // of MADs, as all that names no kind
	g.Ctl("fault h0/1 dup kind=data")
	g.Ctl("fault h1/1 delay kind=data")
	out = a.Exec("ping", "-n", "-q", "-c", "7", "-i", "0.01", "-W", "2", "10.9.0.2")
	if !strings.Contains(out, "+6 duplicates") && !strings.Contains(out, "+7 duplicates") { // it does not wait for the last
		g.Errorf("with each packet doubled:\n%s", out)
	}
	g.Wait("the answer to the last packet", 5*time.Second, func() bool { return g.FaultHits(2) >= 14 })
	hits(g, 0, 7, 14)
}

// What befalls ports and the switch itself: each command has its effect, and its end.
func TestSwitchFaults(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		sm := g.Opensm(lab.SM{})
		a := newAsker(g)
		const limit = 20 * time.Second
		portInfo := func() (pi mad.PortInfo) {
			a.g.Helper()
			b := a.answer("h1", smp, mad.AttrPortInfo, limit)
			if b == nil {
				a.g.Fatal("no PortInfo of adapter 1")
			}
			testkit.NoError(a.g, pi.Decode(mad.SMPData(b)[:]))
			return pi
		}
		downed := func() string { return g.Exec("perfquery", "-C", "swib0", strconv.Itoa(int(a.lids["h1"])), "1") }

		g.Run("mtu", func(g *lab.G) {
			defer a.in(g)()
			if pi := portInfo(); pi.MTUCap() != ib.MTU4096 || pi.NeighborMTU() != ib.MTU4096 {
				g.Errorf("MTU %v of %v before", pi.NeighborMTU(), pi.MTUCap())
			}
			g.Ctl("mtu h1/1 2048")
			g.WaitPort("swib1", 1, "ACTIVE", limit)
			g.WaitFor(limit, func() string {
				if pi := portInfo(); pi.MTUCap() != ib.MTU2048 || pi.NeighborMTU() != ib.MTU2048 {
					return "MTU is " + pi.NeighborMTU().String() + " of " + pi.MTUCap().String()
				}
				return ""
			})
			if out := downed(); !strings.Contains(out, "LinkDownedCounter:...............1\n") {
				g.Errorf("the link did not go down once:\n%s", out)
			}
		})
		g.Run("uncable", func(g *lab.G) {
			g.Ctl("uncable s0/2")
			if s := g.PortFile("swib1", 1, "state"); s != "1: DOWN" {
				g.Errorf("without a cable %q", s)
			}
			if peer := g.FabricPort("hca1", 1)["peer"]; peer != "" {
				g.Errorf("without a cable its peer is %q", peer)
			}
			g.Ctl("link h1/1 up")
			if s := g.PortFile("swib1", 1, "state"); s != "1: DOWN" {
				g.Errorf("without a cable, but plugged in, %q", s)
			}
			g.Ctl("cable s0/7 h1/1")
			if peer := g.FabricPort("hca1", 1)["peer"]; peer != "switch0/7" {
				g.Errorf("its peer is %q", peer)
			}
			g.WaitPort("swib1", 1, "ACTIVE", limit)
		})
		sm.Kill()
		g.Run("silent", func(g *lab.G) {
			defer a.in(g)()
			g.Ctl("silent s0 on")
			a.silence(2, 500*time.Millisecond, "s0", smp, mad.AttrNodeInfo)
			a.silence(1, 500*time.Millisecond, "s0", perf, mad.AttrPortCounters)
			a.get(2, "h1", smp, mad.AttrNodeInfo) // through it
			g.Ctl("silent s0 off")
			a.get(1, "s0", smp, mad.AttrNodeInfo)
			a.get(1, "s0", perf, mad.AttrPortCounters)
		})
		g.Run("slow", func(g *lab.G) {
			defer a.in(g)()
			took := func(to string) (least time.Duration) {
				least = limit
				for range 5 {
					start := lab.Uptime()
					a.get(1, to, smp, mad.AttrNodeInfo)
					least = min(least, lab.Uptime()-start)
				}
				return least
			}
			g.Ctl("slow s0 60")
			if d := took("s0"); d < 60*time.Millisecond {
				g.Errorf("a switch that takes 60 ms answers in %v", d)
			}
			if d := took("h1"); d >= 60*time.Millisecond && !lab.Sanitizing() {
				g.Errorf("through a switch that takes 60 ms to answer it takes %v", d)
			}
			g.Ctl("slow s0 0")
			if d := took("s0"); d >= 60*time.Millisecond && !lab.Sanitizing() {
				g.Errorf("a switch that is slow no more answers in %v", d)
			}
		})
		g.Run("mkey", func(g *lab.G) {
			defer a.in(g)()
			g.Ctl("mkey s0 1234 2")
			a.silence(1, 500*time.Millisecond, "s0", smp, mad.AttrNodeInfo)
			a.get(1, "h1", smp, mad.AttrNodeInfo)
			a.key = 0x1234
			a.get(1, "s0", smp, mad.AttrNodeInfo)
			a.key = 0x1235
			a.silence(1, 500*time.Millisecond, "s0", smp, mad.AttrNodeInfo)
			a.key = 0
			g.Ctl("mkey s0 1234 1") // all may read
			a.get(1, "s0", smp, mad.AttrNodeInfo)
			g.Ctl("mkey s0 0")
			a.get(1, "s0", smp, mad.AttrNodeInfo)
		})
	})
}
