package scenario

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/lab"
	"ibnetworkd/link"
	"ibnetworkd/roce"
)

// gidSlot is an entry of a GID table, as applications find it.
type gidSlot struct {
	dev   string
	index int
}

// has reports whether the slot has the RoCE v2 entry whose GID ends so, of the link.
func (s gidSlot) has(link, suffix string) bool {
	dir := "/sys/class/infiniband/" + s.dev + "/ports/1/"
	read := func(f string) string {
		b, _ := os.ReadFile(fmt.Sprint(dir, f, "/", s.index))
		return strings.TrimSpace(string(b))
	}
	return strings.HasSuffix(read("gids"), suffix) && read("gid_attrs/types") == "RoCE v2" && read("gid_attrs/ndevs") == link
}

// The GID of a unit's address keeps the index that GIDIndex= asks for, whatever others do
// to the links and addresses of the port: within a time that is measured for each of
// many random events, on the card's own GID table with RoCE v1 and v2. With IBNET_LONG it is judged, on an idle machine.
func TestGIDIndexHeld(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	holdGIDIndex(t, false, 20, func(g *lab.G, spaced, dense gidTimes) {
		if n := len(spaced.took); n+spaced.stills == 1000 && (n < 500 || spaced.took[n-1] > limit) {
			g.Errorf("an event with a pause before it costs the index for more than %v, or the guest stood still in most (%d)", limit, spaced.stills)
		}
		if n := len(dense.took); n+dense.stills == 1000 && (n < 500 || dense.took[n*99/100] > limit) {
			g.Errorf("with pauses of at most 50 ms one event of a hundred or more costs the index for more than %v, "+
				"or the guest stood still in most (%d)", limit, dense.stills)
		}
	})
}

// The same where programs and kernel take no time: what the daemon waits for is less than 100 ms in all, on any machine.
func TestGIDIndexWaits(t *testing.T) {
	t.Parallel()
	holdGIDIndex(t, true, 50, func(g *lab.G, spaced, dense gidTimes) {
		for _, x := range []gidTimes{spaced, dense} {
			if x.stills > 0 || x.took[len(x.took)-1] >= 100*time.Millisecond {
				g.Errorf("times %v; the guest stood still in %d events", x.took, x.stills)
			}
		}
	})
}

// gidTimes are the sorted times after which the index was right again, without those of events in which the guest stood still.
type gidTimes struct {
	took   []time.Duration
	stills int
}

func (x *gidTimes) log(g *lab.G, what string) {
	slices.Sort(x.took)
	if n := len(x.took); n > 0 {
		first, _ := slices.BinarySearch(x.took, 100*time.Millisecond)
		g.Logf("%d events %s: median %v, 99 %% %v, worst %v; over 100 ms: %d; without %d in which the guest stood still", n, what,
			x.took[n/2].Round(time.Microsecond), x.took[n*99/100].Round(time.Millisecond), x.took[n-1].Round(time.Millisecond),
			n-first, x.stills)
	}
}

// holdGIDIndex has random events, 1,000 with IBNET_LONG, 50 to 200 ms apart, and as many 0 to 50 ms apart.
func holdGIDIndex(t *testing.T, timeTravel bool, events int, check func(g *lab.G, spaced, dense gidTimes)) {
	t.Helper()
	if os.Getenv("IBNET_LONG") != "" {
		events = 1000
	}
	lab.Run(t, lab.Config{TimeTravel: timeTravel, Userland: lab.Debian, HCAs: 1, Bins: []string{ibnetworkd, ibnetctl},
		Timeout: 15 * time.Minute, Env: []string{"IBNET_LONG=" + os.Getenv("IBNET_LONG")},
		Files: map[string]string{
			unitDir + "10-eth.ibnetwork": "[Match]\nIBDevice=swib0\nPort=1\n[Port]\nType=eth\n[RoCE]\nGIDIndex=3\n" +
				"[Network]\nAddress=10.7.1.1/24\nAddress=10.7.1.2/24\n[VLAN]\nId=7\nName=storage\n",
			unitDir + "20-vlan.ibnetwork": "[Match]\nName=storage\n[RoCE]\nGIDIndex=7\n[Network]\nAddress=10.7.7.1/24\n",
		}}, func(g *lab.G) {
		d := startDaemon(g)
		c, err := rtnl.Dial()
		if err != nil {
			g.Fatal(err)
		}
		eth := func() string {
			es, _ := os.ReadDir("/sys/class/net")
			for _, e := range es {
				if strings.HasPrefix(e.Name(), "eth") {
					return e.Name()
				}
			}
			return ""
		}
		own, vlan := gidSlot{"swib0", 3}, gidSlot{"swib0", 7}
		held := func() bool { return own.has(eth(), "0a07:0101") }
		g.WaitFor(90*time.Second, func() string {
			if !held() || !vlan.has("storage", "0a07:0701") {
				return g.Exec("sh", "-c", "cd /sys/class/infiniband/swib0/ports/1; for i in 0 1 2 3 4 5 6 7 8 9; do "+
					"echo $i $(cat gids/$i gid_attrs/types/$i gid_attrs/ndevs/$i 2>&1); done") + tail(d.p.Output(), 20)
			}
			return ""
		})
		if a := attr(d.status(eth()), "GIDIndex"); !a.OK() || a.Actual != "3" {
			g.Errorf("%+v", a)
		}

		seed := uint64(time.Now().UnixNano())
		r := rand.New(rand.NewPCG(seed, 1))
		g.Logf("seed %d", seed)
		index := func(name string) int {
			l, err := c.LinkByName(name, false)
			if err != nil {
				return 0
			}
			return l.Index
		}
		address := func(dev, s string) rtnl.Address {
			return rtnl.Address{Index: index(dev), Prefix: netip.MustParsePrefix(s)}
		}
		up := func(dev string, v bool) { _ = c.Do(rtnl.SetLink(index(dev), rtnl.LinkChange{Up: &v})) }
		foreign := map[string]string{}
		steal := func(dev string) { // the address is removed, and another one comes into its place
			other := fmt.Sprintf("10.9.%d.1/24", 4+r.IntN(4)) // of no other event: it would be forgotten
			_ = c.DoAll([]rtnl.Request{rtnl.DelAddress(address(dev, "10.7.1.1/24")), rtnl.DelAddress(address(dev, "10.7.1.2/24")),
				rtnl.AddAddress(address(dev, other))})
			foreign[other] = dev
		}
		still := watchStillness()
		defer still.end()
		var spaced, dense gidTimes
		kinds := map[string]int{}
		what := ""
		moves := newMoveCounter(g, d.p)
		for i := range 2 * events {
			x := &dense
			if i < events {
				x = &spaced
				time.Sleep(time.Duration(50+r.IntN(150)) * time.Millisecond)
			}
			dev := eth()
			switch k := r.IntN(20); {
			case k < 3:
				what = "flap"
				up(dev, false)
				up(dev, true)
			case k < 5:
				what = "an address of another program comes"
				other := fmt.Sprintf("10.9.%d.1/24", r.IntN(4))
				on := []string{dev, "storage"}[r.IntN(2)]
				if foreign[other] == "" && c.Do(rtnl.AddAddress(address(on, other))) == nil {
					foreign[other] = on
				}
			case k < 8:
				what = "the addresses are flushed"
				g.Exec("ip", "-4", "address", "flush", "dev", dev)
				for a, on := range foreign {
					if on == dev {
						delete(foreign, a)
					}
				}
			case k < 11:
				what = "another address takes the index and goes"
				steal(dev)
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
				for a, on := range foreign {
					_ = c.Do(rtnl.DelAddress(address(on, a)))
				}
				clear(foreign)
			case k < 13:
				what = "the VLAN goes"
				_ = c.Do(rtnl.DelLink(index("storage")))
				for a, on := range foreign {
					if on == "storage" {
						delete(foreign, a)
					}
				}
			case k < 15:
				what = "the kernel's link-local address comes first"
				_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/addr_gen_mode", []byte("3"), 0o644)
				up(dev, false)
				_ = c.DoAll([]rtnl.Request{rtnl.DelAddress(address(dev, "10.7.1.1/24")), rtnl.DelAddress(address(dev, "10.7.1.2/24"))})
				up(dev, true)
			case k < 17:
				what = "another program sets the address again"
				_ = c.DoAll([]rtnl.Request{rtnl.DelAddress(address(dev, "10.7.1.1/24")), rtnl.AddAddress(address(dev, "10.7.1.1/24"))})
			case k < 19:
				what = "reload"
				d.p.Signal(syscall.SIGHUP)
			default:
				what = "the driver starts again"
				restartDriver(g, "swib0")
				clear(foreign)
				g.Wait("the link", 30*time.Second, func() bool { return eth() != "" })
			}
			kinds[what]++
			begin := time.Now()
			still.reset()
			// An entry of another program may be in the way, which the status says: it goes then.
			for !held() {
				since := time.Since(begin)
				if since > 2*time.Minute {
					g.Fatalf("event %d (%s): %+v\n%s\n%s", i, what, attr(d.status(eth()), "GIDIndex"),
						g.Exec("ip", "-o", "address"), tail(d.p.Output(), 30))
				}
				if len(foreign) > 0 && since > 500*time.Millisecond {
					for a, on := range foreign {
						_ = c.Do(rtnl.DelAddress(address(on, a)))
					}
					clear(foreign)
					begin = time.Now()
					still.reset()
				}
				// The same address, set by another program at another index, is left to it: the status
				// says how it becomes the unit's.
				if since > 500*time.Millisecond && strings.Contains(attr(d.status(dev), "GIDIndex").Why.Text, "10.7.1.1 was set by another") {
					_ = c.Do(rtnl.DelAddress(address(dev, "10.7.1.1/24")))
					begin = time.Now()
					still.reset()
				}
				time.Sleep(2 * time.Millisecond)
			}
			took := time.Since(begin)
			if n := moves.next(); n > 6 { // two for each link are usual: slots are freed by another queue than the one that adds
				g.Errorf("event %d (%s): %d moves\n%s", i, what, n, moves.text)
			}
			stood := still.longest().Round(time.Millisecond)
			if stood < 50*time.Millisecond {
				x.took = append(x.took, took)
			} else {
				x.stills++
			}
			if took > 100*time.Millisecond {
				g.Logf("event %d (%s): %v, the guest stood still for %v\n%s", i, what, took.Round(time.Millisecond), stood, moves.text)
			}
			if i >= events && r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			}
		}
		g.Logf("events: %v", kinds)
		spaced.log(g, "50 to 200 ms apart")
		dense.log(g, "0 to 50 ms apart")
		g.Logf("moves of an address: %s", moves)
		check(g, spaced, dense)
		// The rest agrees: file, status, the other link, and nothing of the daemon's is left over.
		g.WaitFor(60*time.Second, func() string {
			b, _ := os.ReadFile("/run/ibnetworkd/links/" + eth() + ".env")
			a, v := attr(d.status(eth()), "GIDIndex"), attr(d.status("storage"), "GIDIndex")
			if a.Why.Code == roce.CodeGIDOccupied || v.Why.Code == roce.CodeGIDOccupied { // since the last event: it goes, as before
				for f, on := range foreign {
					_ = c.Do(rtnl.DelAddress(address(on, f)))
				}
				clear(foreign)
			}
			out := g.Exec("ip", "-4", "-o", "address")
			if !strings.Contains(string(b), "NCCL_IB_GID_INDEX=3\n") || !a.OK() || a.Actual != "3" || !v.OK() || v.Actual != "7" ||
				!vlan.has("storage", "0a07:0701") || strings.Contains(out, "169.254") || !strings.Contains(out, "10.7.1.2/24") {
				return fmt.Sprintf("%s\n%+v\n%+v\n%s", b, a, v, out)
			}
			return ""
		})
		for a, on := range foreign {
			if out := g.Exec("ip", "-4", "-o", "address", "show", "dev", on); !strings.Contains(out, a) {
				g.Errorf("%s of another program on %s is gone:\n%s", a, on, out)
			}
		}
	})
}

// moveCounter counts the moves that a daemon has logged.
type moveCounter struct {
	log    *os.File
	text   string // what was logged for the last event
	events []int  // by the number of moves in one
}

func newMoveCounter(g *lab.G, p *lab.Proc) *moveCounter {
	f, err := os.Open(p.Log)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = f.Close() })
	_, _ = io.Copy(io.Discard, f)
	return &moveCounter{log: f}
}

// next is the number of moves since it was called last.
func (c *moveCounter) next() (n int) {
	b, _ := io.ReadAll(c.log)
	c.text = string(b)
	for line := range strings.Lines(c.text) {
		if strings.Contains(line, "done") && strings.Contains(line, "address del") && strings.Contains(line, " && ") {
			n++
		}
	}
	for len(c.events) <= n {
		c.events = append(c.events, 0)
	}
	c.events[n]++
	return n
}

func (c *moveCounter) String() string {
	sum := 0
	for n, events := range c.events {
		sum += n * events
	}
	return fmt.Sprintf("%d; events with 0, 1, ... moves: %v", sum, c.events)
}

// A queue pair keeps the index of an address that another program removed: the status
// names its process, and the index is right when it has ended. Soft RoCE, which
// programs can use, has RoCE v2 alone.
func TestGIDIndexInUse(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-a.ibnetwork": "[Match]\nName=v1\n[SoftRoCE]\nName=rxe0\n[RoCE]\nGIDIndex=1\n[Network]\nAddress=10.8.0.1/24\n",
	}}, func(g *lab.G) {
		g.Exec("ip", "link", "add", "v1", "type", "veth", "peer", "name", "v2")
		g.Exec("ip", "link", "set", "v2", "up")
		g.Exec("ip", "link", "set", "lo", "up")
		d := startDaemon(g)
		slot := gidSlot{"rxe0", 1}
		held := func() bool { return slot.has("v1", "0a08:0001") }
		g.Wait("the index", 90*time.Second, held)
		// A queue pair that waits for its peer, and a server that is bound to the address, which
		// is what keeps the entry; traffic would only cost time.
		pair := g.Start("ibv_rc_pingpong", "-d", "rxe0", "-g", "1")
		bound := g.Start("rping", "-s", "-a", "10.8.0.1")
		g.WaitFor(60*time.Second, func() string {
			qp, id := g.Exec("rdma", "resource", "show", "qp"), g.Exec("rdma", "resource", "show", "cm_id")
			if !strings.Contains(qp, "type RC") || !strings.Contains(id, "10.8.0.1") {
				return qp + id
			}
			return ""
		})
		g.Exec("ip", "-4", "address", "flush", "dev", "v1")
		var why link.Reason
		d.wait("v1", "in use", 60*time.Second, func(s link.Status) bool {
			a := attr(s, "GIDIndex")
			why = a.Why
			return a.Actual == "2" && why.Code == "gid-in-use" && strings.Contains(why.Text, "ibv_rc_pingpong (process ") &&
				strings.Contains(why.Text, "1 queue pair") && strings.Contains(why.Text, "rping (process ")
		})
		g.Log(why.Text)
		g.Log(why.Next)
		pair.Kill()
		bound.Kill()
		begin := time.Now()
		g.Wait("the index when the processes have ended", 60*time.Second, held)
		g.Logf("in place %v after the processes ended", time.Since(begin).Round(time.Millisecond))
		d.wait("v1", "in place", 10*time.Second, func(s link.Status) bool {
			a := attr(s, "GIDIndex")
			return a.OK() && a.Actual == "1"
		})
	})
}
