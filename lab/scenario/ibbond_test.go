package scenario

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A bond of two IPoIB ports by [Bond]: it is made, a cut cable costs a TCP stream
// little, the status warns of a backup that could not take over, and the bond is
// whole again when its adapters come back and when another program deletes it.
func TestBond(t *testing.T) {
	t.Parallel()
	ports := unitDir + "20-ports.ibnetwork"
	withAndWithoutUdev(t, lab.Config{HCAs: 3, Bins: []string{ibnetworkd, ibnetctl}, Timeout: 10 * time.Minute,
		Files: map[string]string{
			unitDir + "10-bond.ibnetwork": "[Match]\nName=ipbond\n[Network]\nAddress=10.4.0.1/24\n",
			ports:                         "[Match]\nName=ib0 ib1\n[Bond]\nName=ipbond\nPrimary=ib0\nMIIMonitorSec=10ms\n",
		}}, func(g *lab.G) {
		sm := g.SM(lab.SM{Dev: "swib2"})
		g.Sh("ip netns add peer; ip link set ib2 netns peer; ip -n peer link set ib2 up; ip -n peer address add 10.4.0.2/24 dev ib2")
		d := startDaemon(g)
		whole := func() string {
			s := d.status("ipbond")
			if s.State != link.StateConfigured || attr(s, "ActiveSlave").Actual != "ib0" || attr(s, "Backup").Actual != "ib1 ready" ||
				attr(s, "Switches").Why.Code != link.CodeSameSwitch {
				b, _ := os.ReadFile("/proc/thread-self/net/bonding/ipbond")
				return fmt.Sprintf("%+v\n%s\n%s", s, b, tail(d.p.Output(), 8))
			}
			// The bond may be gone since.
			out, err := g.Try("sh", "-ec", "cat /sys/class/net/ipbond/bonding/slaves; ip -o -4 addr show ipbond")
			if err != nil || !strings.Contains(out, "ib1") || !strings.Contains(out, "ib0") || !strings.Contains(out, "10.4.0.1/24") {
				return fmt.Sprintf("%s: %v", out, err)
			}
			return ""
		}
		g.WaitFor(40*time.Second, whole)
		diagnosed(g, attr(d.status("ipbond"), "Switches").Why.Text)
		g.Wait("the peer", 20*time.Second, func() bool { _, err := g.Try("ping", "-c1", "-W1", "10.4.0.2"); return err == nil })
		var gaps []time.Duration
		stream := newStream(g)
		const cuts = 8
		for range cuts {
			time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
			stream.reset()
			g.Ctl("link h0/1 down")
			time.Sleep(time.Second)
			gaps = append(gaps, stream.worst())
			g.Ctl("link h0/1 up")
			g.WaitFor(30*time.Second, whole)
		}
		slices.Sort(gaps)
		g.Logf("cable cut to the next TCP byte: %v", gaps) // TestBondCuts measures it
		if gaps[cuts/2] > 500*time.Millisecond {
			g.Errorf("half of the cuts interrupt TCP for more than 500 ms: %v", gaps)
		}
		g.Ctl("link h1/1 down")
		g.WaitFor(20*time.Second, func() string {
			if a := attr(d.status("ipbond"), "Backup"); a.Why.Code != link.CodeFailover || !strings.Contains(a.Why.Text, "swib1/1") {
				return fmt.Sprintf("%+v", a)
			}
			return ""
		})
		g.Ctl("link h1/1 up")
		g.WaitFor(30*time.Second, whole)
		begin := time.Now()
		g.Sh("ip link delete ipbond")
		g.WaitFor(30*time.Second, whole)
		g.Logf("whole again %v after ip link delete ipbond", time.Since(begin).Round(time.Millisecond))
		g.Ctl("del 0")
		g.Ctl("del 1")
		g.Wait("the kernel to remove the bond", 20*time.Second, func() bool { _, err := os.Stat("/sys/class/net/ipbond"); return err != nil })
		begin = time.Now()
		g.Ctl("add 0")
		g.Ctl("add 1")
		g.WaitFor(40*time.Second, whole)
		g.Logf("whole again %v after both adapters came back", time.Since(begin).Round(time.Millisecond))
		if out, err := g.Try("sh", "-c", "ip link set ib1 down; ip link set ib1 nomaster"); err != nil {
			g.Errorf("%v: %s", err, out)
		}
		g.WaitFor(30*time.Second, whole)
		warnings(g, d, sm)
		g.Sh("rm " + unitDir + "05-*")
		g.Write(ports, "[Match]\nName=ib0 ib1\n[Link]\nRequiredForOnline=no\n")
		g.WaitFor(20*time.Second, func() string {
			if _, err := os.Stat("/sys/class/net/ipbond"); err == nil {
				return "ipbond is still there\n" + tail(d.p.Output(), 8)
			}
			if s := d.status("ib1"); s.Oper != "carrier" && s.Oper != "degraded" {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
	})
}

// warnings bonds children of two partitions and has the status and the diagnosis warn of each reason
// for which the backup could not take over.
func warnings(g *lab.G, d *service, sm *lab.Proc) {
	const one, two = defaultPartition + "One=0x1,ipoib,mtu=5:ALL=full;\n", "Two=0x2,ipoib,mtu=5:ALL=full;\n"
	g.Write(unitDir+"10-bond.ibnetwork", "[Match]\nName=ipbond\n[Link]\nMTUBytes=4092\n[Network]\nAddress=10.4.0.1/24\n")
	g.Write(unitDir+"05-ib0.ibnetwork", "[Match]\nName=ib0\n[Partition]\nPartitionKey=0x8001\n")
	g.Write(unitDir+"05-ib1.ibnetwork", "[Match]\nName=ib1\n[Partition]\nPartitionKey=0x8002\n")
	g.Write(unitDir+"20-ports.ibnetwork", "[Match]\nName=ib0.8001 ib1.8002\n[Bond]\nName=ipbond\nPrimary=ib0.8001\n")
	manage := func(partitions string) {
		g.Helper()
		sm.Kill()
		_ = sm.Wait(5 * time.Second)
		sm = g.SM(lab.SM{Dev: "swib2", Partitions: partitions})
	}
	ready := func() {
		g.Helper()
		g.WaitFor(60*time.Second, func() string {
			s := d.status("ipbond")
			if s.State != link.StateConfigured || attr(s, "Backup").Actual != "ib1.8002 ready" || attr(s, "ActiveSlave").Actual != "ib0.8001" {
				return fmt.Sprintf("%+v\n%s", s, tail(d.p.Output(), 8))
			}
			return ""
		})
	}
	warns := func(text string) {
		g.Helper()
		want := "a failover of ipbond to ib1.8002 would fail: " + text
		g.WaitFor(60*time.Second, func() string {
			s := d.status("ipbond")
			if a := attr(s, "Backup"); a.Why.Code != link.CodeFailover || !strings.Contains(a.Why.Text, want) || a.Why.Next == "" ||
				s.State != link.StateConfigured {
				return fmt.Sprintf("%+v, want %q", s, want)
			}
			return ""
		})
		diagnosed(g, want)
	}
	manage(one + two)
	ready()
	manage(one + "Two=0x2,ipoib,mtu=4:ALL=full;\n")
	warns("its MTU is 2044, that of the bond 4092")
	manage(one + two)
	ready()
	manage(one + "Two=0x2,ipoib,mtu=5:SELF=full;\n")
	warns("P_Key 0x8002 is not in the table of port swib1/1")
	manage(one + two)
	ready()
	sm.Kill()
	_ = sm.Wait(5 * time.Second)
	g.Ctl("link h1/1 down")
	g.Wait("the port to be Down", 20*time.Second, func() bool {
		return strings.Contains(g.Read("/sys/class/infiniband/swib1/ports/1/state"), "DOWN")
	})
	g.Ctl("link h1/1 up")
	warns("port swib1/1 is Initializing")
	manage(one + two)
	ready()
}

// diagnosed asserts that the diagnosis of the bond has a note with a text.
func diagnosed(g *lab.G, text string) {
	g.Helper()
	out, err := g.Try("ibnetctl", "diagnose", "ipbond")
	if got := strings.Join(strings.Fields(out), " "); err != nil || !strings.Contains(got, " note ") || !strings.Contains(got, text) {
		g.Errorf("%v:\n%s\nwant a note with %q", err, out, text)
	}
}

// stream is a TCP connection from the bond to the peer that carries a byte each
// millisecond.
type stream struct {
	mu    sync.Mutex
	last  time.Time
	most  time.Duration
	still *stillness
	ends  []io.Closer
}

func newStream(g *lab.G) *stream {
	s := &stream{last: time.Now(), still: watchStillness()}
	listening := make(chan net.Listener, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays in the namespace and ends with the goroutine
		f, err := os.Open("/run/netns/peer")
		if err != nil || unix.Setns(int(f.Fd()), unix.CLONE_NEWNET) != nil {
			close(listening)
			return
		}
		l, err := net.Listen("tcp4", "10.4.0.2:7000")
		if err != nil {
			close(listening)
			return
		}
		listening <- l
	}()
	l := <-listening
	if l == nil {
		g.Fatalf("no listener in the namespace of the peer")
	}
	out, err := net.Dial("tcp4", "10.4.0.2:7000")
	if err != nil {
		g.Fatalf("%v", err)
	}
	in, err := l.Accept()
	if err != nil {
		g.Fatalf("%v", err)
	}
	s.ends = []io.Closer{l, in, out}
	go func() {
		for {
			if _, err := out.Write([]byte{1}); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	go func() {
		b := make([]byte, 4096)
		for {
			if _, err := in.Read(b); err != nil {
				return
			}
			s.mu.Lock()
			s.most, s.last = max(s.most, time.Since(s.last)), time.Now()
			s.mu.Unlock()
		}
	}()
	return s
}

// reset forgets the interruptions so far.
func (s *stream) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most, s.last = 0, time.Now()
	s.still.reset()
}

// worst is the longest time without a byte since reset.
func (s *stream) worst() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.most, time.Since(s.last)).Round(time.Millisecond)
}

// silence is the time since the last byte.
func (s *stream) silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.last)
}

// timeout is after how long TCP sends again what is not acknowledged.
func (s *stream) timeout() (rto time.Duration) {
	c, err := s.ends[2].(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0
	}
	_ = c.Control(func(fd uintptr) {
		if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			rto = time.Duration(i.Rto) * time.Microsecond
		}
	})
	return rto
}

func (s *stream) close() {
	for _, c := range s.ends {
		_ = c.Close()
	}
	s.still.end()
}

// stillness is the longest time in which this process did not run: the guest stood still.
type stillness struct {
	mu   sync.Mutex
	most time.Duration
	stop chan struct{}
}

func watchStillness() *stillness {
	s := &stillness{stop: make(chan struct{})}
	go func() {
		for prev := time.Now(); ; prev = time.Now() {
			select {
			case <-s.stop:
				return
			case <-time.After(time.Millisecond):
			}
			s.mu.Lock()
			s.most = max(s.most, time.Since(prev))
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *stillness) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.most = 0
}

// longest is that since reset.
func (s *stillness) longest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

func (s *stillness) end() { close(s.stop) }
