package scenario

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

var demo = flag.Bool("demo", false, "tell the story of TestDemo while it happens")

const storyFile = "/lab/out/story"

// TestDemo is what `make demo` shows: two hosts and a cable, on a kernel with
// nothing but our programs, from Initializing to a ping over connected mode.
func TestDemo(t *testing.T) {
	t.Parallel()
	c := lab.Config{Userland: lab.Bare, Cabled: true, Small: true, Bins: []string{ibnetworkd, ibnetctl, ibnetsm}}
	if lab.InGuest() || !*demo {
		lab.Run(t, c, tellDemo)
		return
	}
	g := lab.Boot(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan error, 1)
	go func() { told <- follow(ctx, g.Dir+"/out/story", os.Stdout) }()
	g.Wait(t)
	cancel()
	if err := <-told; err != nil {
		t.Error(err)
	}
}

// follow copies a file that grows until ctx ends. It keeps the file open: the
// guest's folder is gone by then, and the end of the story would be with it.
func follow(ctx context.Context, name string, to io.Writer) error {
	var f *os.File
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for last := false; ; {
		if f == nil {
			var err error
			if f, err = os.Open(name); err == nil {
				defer f.Close()
			} else if !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if f != nil {
			if _, err := io.Copy(to, f); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		select {
		case <-ctx.Done():
			last = true
		case <-tick.C:
		}
	}
}

// What is written after the last read, just before the folder is removed, is shown too.
func TestFollow(t *testing.T) {
	name := filepath.Join(t.TempDir(), "story")
	w, err := os.Create(name)
	testkit.NoError(t, err)
	defer w.Close()
	if _, err := w.WriteString("begin\n"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, out := io.Pipe()
	told := make(chan error, 1)
	go func() { told <- follow(ctx, name, out); out.Close() }()
	first := make([]byte, len("begin\n"))
	if _, err := io.ReadFull(r, first); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("end\n"); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, os.Remove(name))
	cancel()
	rest, err := io.ReadAll(r)
	testkit.NoError(t, err)
	if err := <-told; err != nil || string(rest) != "end\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

// The demo is printed line by line, with the time since the guest's kernel started.
type story struct {
	g *lab.G
	f *os.File
}

func (s story) say(format string, args ...any) {
	fmt.Fprintf(s.f, "\n\033[1m[%5.2f s] %s\033[0m\n", lab.Uptime().Seconds(), fmt.Sprintf(format, args...))
}

func (s story) show(text string) {
	for l := range strings.Lines(strings.TrimRight(text, "\n")) {
		fmt.Fprintf(s.f, "          %s\n", strings.TrimRight(l, "\n"))
	}
}

func tellDemo(g *lab.G) {
	f, err := os.Create(storyFile)
	testkit.NoError(g, err)
	defer f.Close()
	s := story{g, f}
	s.say("Linux %s, as a process: two adapters, one cable, no subnet manager", strings.TrimSpace(g.Read("/proc/sys/kernel/osrelease")))
	s.show(portStates(g))

	nodes := []*node{newNode(g, "a"), newNode(g, "b")}
	for i, n := range nodes {
		link := fmt.Sprintf("ib%d", i)
		testkit.NoError(g, moveLink(link, n.Host))
		n.unit("10-"+link+".ibnetwork", fmt.Sprintf("[Match]\nName=%s\n\n[Link]\nMTUBytes=65520\n\n[IPoIB]\nMode=connected\n\n"+
			"[Network]\nAddress=192.168.151.%d/24\n", link, i+1))
	}
	s.say("host a has ib0, host b has ib1, and one file each; host a's is 10-ib0.ibnetwork:")
	s.show(g.Read(nodes[0].units + "/10-ib0.ibnetwork"))

	for _, n := range nodes {
		n.start()
	}
	g.WaitFor(10*time.Second, func() string { // of the daemon, not ibnetctl's own look before it is up
		if st := nodes[0].status("ib0"); !strings.Contains(st, "no subnet manager has answered") || strings.Contains(st, "is not running") {
			return st
		}
		return ""
	})
	s.say("ibnetworkd runs on both; host a: ibnetctl status ib0")
	s.show(nodes[0].status("ib0"))

	sm := g.Start("ibnetsm", "run", "--device", "swib0")
	took := g.WaitActive(10 * time.Second)
	s.say("ibnetsm, the bundled subnet manager, has started; the ports were Active after %.2f s", took.Seconds())
	s.show(portStates(g))
	g.Wait("ibnetsm's report", 5*time.Second, func() bool { return strings.Contains(sm.Output(), "subnet up") })
	s.show(subnetUp(sm.Output()))

	for i, n := range nodes {
		g.WaitFor(10*time.Second, func() string {
			if st := n.status(fmt.Sprintf("ib%d", i)); !strings.Contains(st, "routable (configured)") {
				return st
			}
			return ""
		})
	}
	s.say("the links are right; what ibnetworkd did on host a:")
	s.show(strings.Join(opsDone(nodes[0].daemon.Output()), "\n"))
	s.say("host a: ibnetctl status ib0")
	s.show(nodes[0].status("ib0"))

	before := g.FabricPort("hca0", 1)
	rtt, err := echo(nodes[0].Host, netip.MustParseAddr("192.168.151.2"), 65000, time.Minute)
	testkit.NoError(g, err)
	after := g.FabricPort("hca0", 1)
	if after.Int("rcmax") < 65000 {
		g.Errorf("the longest connected-mode message has %d bytes, want more than 65000", after.Int("rcmax"))
	}
	s.say("ping of 65,000 bytes from a to b: answered in %.1f ms", float64(rtt.Microseconds())/1000)
	s.show(fmt.Sprintf("connected-mode messages sent by the adapter: %d, the longest of %d bytes", after.Int("rc")-before.Int("rc"),
		after.Int("rcmax")))
	fmt.Fprintln(f)
}

func portStates(g *lab.G) string {
	var b strings.Builder
	for _, dev := range []string{"swib0", "swib1"} {
		fmt.Fprintf(&b, "%s/1  state %s, physical state %s\n", dev, g.PortFile(dev, 1, "state"), g.PortFile(dev, 1, "phys_state"))
	}
	return b.String()
}

// subnetUp is the manager's report of its sweep, without the time of day.
func subnetUp(log string) string {
	for l := range strings.Lines(log) {
		if _, rest, ok := strings.Cut(l, `msg="subnet up" `); ok {
			return "subnet up: " + rest
		}
	}
	return ""
}

// moveLink gives a link to a host without any program.
func moveLink(name string, h *lab.Host) error {
	ns, err := os.Open("/run/netns/" + h.Name)
	if err != nil {
		return err
	}
	defer ns.Close()
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	c, err := rtnetlink.Dial(nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Link.Set(&rtnetlink.LinkMessage{Family: unix.AF_UNSPEC, Index: uint32(ifi.Index),
		Attributes: &rtnetlink.LinkAttributes{NetNS: rtnetlink.NetNSForFD(uint32(ns.Fd()))}})
}

// echo pings to from a host, again and again until one answer comes: the first
// packets of a path are lost while the address is resolved.
func echo(h *lab.Host, to netip.Addr, size int, limit time.Duration) (rtt time.Duration, err error) {
	err = h.Do(func() error {
		c, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
		if err != nil {
			return err
		}
		defer c.Close()
		payload := bytes.Repeat([]byte("ib"), size/2)
		buf := make([]byte, size+128)
		end := time.Now().Add(limit)
		for seq := 1; time.Now().Before(end); seq++ {
			req, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: seq, Data: payload}}).Marshal(nil)
			if err != nil {
				return err
			}
			sent := time.Now()
			if _, err := c.WriteTo(req, &net.IPAddr{IP: to.AsSlice()}); err != nil {
				return fmt.Errorf("send: %w", err)
			}
			if err := c.SetReadDeadline(sent.Add(time.Second)); err != nil {
				return err
			}
			for {
				n, _, err := c.ReadFrom(buf)
				if err != nil {
					break // not within a second
				}
				m, err := icmp.ParseMessage(1, buf[:n])
				if err != nil {
					return err
				}
				if e, ok := m.Body.(*icmp.Echo); ok && m.Type == ipv4.ICMPTypeEchoReply && e.Seq == seq && len(e.Data) == len(payload) {
					rtt = time.Since(sent)
					return nil
				}
			}
		}
		return fmt.Errorf("%v does not answer within %v", to, limit)
	})
	return rtt, err
}
