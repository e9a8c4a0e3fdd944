package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// unitDir is where the guest's own daemon looks for units.
const unitDir = "/etc/systemd/network/"

// service is an ibnetworkd in the guest's own network namespace.
type service struct {
	g     *lab.G
	p     *lab.Proc
	state string
	args  []string
}

// startDaemon starts ibnetworkd in the guest's first network namespace.
func startDaemon(g *lab.G, args ...string) *service {
	d := &service{g: g, state: "/run/ibnetworkd", args: args}
	d.start()
	return d
}

func (d *service) start() {
	d.g.Helper()
	d.p = d.g.Start("ibnetworkd", append([]string{"--state-dir", d.state}, d.args...)...)
}

// kill ends the daemon without warning.
func (d *service) kill() {
	d.g.Helper()
	d.p.Kill()
	_ = d.p.Wait(5 * time.Second)
	_ = os.Remove(d.state + "/state.json") // so that what is read next is from the new one
}

func (d *service) report() link.Report {
	b, err := os.ReadFile(d.state + "/state.json")
	var r link.Report
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil && !os.IsNotExist(err) {
		d.g.Errorf("state.json: %v", err)
	}
	return r
}

func (d *service) status(name string) link.Status {
	for _, s := range d.report().Links {
		if s.Name == name {
			return s
		}
	}
	return link.Status{}
}

// wait waits until the daemon says of a link what ok looks for.
func (d *service) wait(name, what string, limit time.Duration, ok func(link.Status) bool) link.Status {
	d.g.Helper()
	var st link.Status
	d.g.WaitFor(limit, func() string {
		if st = d.status(name); ok(st) {
			return ""
		}
		b, _ := json.MarshalIndent(st, "", " ")
		return fmt.Sprintf("%s is not %s; its status is\n%s\nlog:\n%s", name, what, b, tail(d.p.Output(), 40))
	})
	return st
}

func (d *service) configured(name string, limit time.Duration) link.Status {
	d.g.Helper()
	return d.wait(name, "configured with carrier", limit, func(s link.Status) bool { return s.State == link.StateConfigured && s.Carrier })
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func attr(s link.Status, name string) link.Attribute {
	i := slices.IndexFunc(s.Attributes, func(a link.Attribute) bool { return a.Name == name })
	if i < 0 {
		return link.Attribute{}
	}
	return s.Attributes[i]
}

// mtu and mode are the kernel's own words.
func mtu(g *lab.G, name string) string {
	return strings.TrimSpace(g.Read("/sys/class/net/" + name + "/mtu"))
}
func mode(g *lab.G, name string) string {
	return strings.TrimSpace(g.Read("/sys/class/net/" + name + "/mode"))
}

const wiki = "[Match]\nName=ib0\n[Link]\nMTUBytes=65520\n[IPoIB]\nMode=connected\n[Network]\nAddress=192.168.151.1/24\n"

// TestFirstLight is the least that the project is for.
func TestFirstLight(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, HCAs: 2, Bins: []string{ibnetworkd},
		Files: map[string]string{unitDir + "10-ib0.ibnetwork": wiki}}, func(g *lab.G) {
		d := startDaemon(g)
		st := d.wait("ib0", "waiting for a subnet manager", 5*time.Second, func(s link.Status) bool { return s.Reason().Code == link.CodeNoSM })
		g.Logf("without a subnet manager: %s; %s", st.Reason().Text, st.Reason().Next)
		g.SM(lab.SM{})
		start := time.Now()
		d.configured("ib0", 10*time.Second)
		g.Logf("configured %v after the ports were Active", time.Since(start))
		if mode(g, "ib0") != "connected" || mtu(g, "ib0") != "65520" {
			g.Errorf("mode %s, mtu %s", mode(g, "ib0"), mtu(g, "ib0"))
		}
		out := g.Exec("ip", "-o", "address", "show", "dev", "ib0")
		if !strings.Contains(out, "192.168.151.1/24") {
			g.Errorf("no address: %s", out)
		}
		g.Logf("RSS:%s", grep(g.Read(fmt.Sprintf("/proc/%d/status", d.p.Cmd.Process.Pid)), "VmRSS"))
		g.Log("\n" + d.p.Output())
	})
}

// TestModeContended has the mode changed again and again while others want the RTNL.
// By rtnetlink the kernel would release a lock that it does not hold, and say so:
// it gives the lock up to flush paths, and sleeps there until a question for a path
// that is not answered is called off, so that others come in.
func TestModeContended(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Machine: lab.QEMU, Userland: lab.Debian, Bins: []string{ibnetworkd},
		Files: map[string]string{unitDir + "10-ib0.ibnetwork": wiki}}, func(g *lab.G) {
		g.SM(lab.SM{Dev: "swib1"}) // what a port sends to itself meets no faults
		d := startDaemon(g)
		d.configured("ib0", 20*time.Second)
		// The lock is held asleep while a link goes down.
		flap := []rtnl.Request{rtnl.SetLink(1, rtnl.LinkChange{Up: new(true)}), rtnl.SetLink(1, rtnl.LinkChange{Up: new(false)})}
		ctx, stop := context.WithCancel(context.Background())
		var others sync.WaitGroup
		for range 3 {
			c, err := rtnl.Dial()
			if err != nil {
				g.Fatal(err)
			}
			others.Go(func() {
				for ctx.Err() == nil {
					for _, err := range c.DoAll(slices.Repeat(flap, 8)) {
						if err != nil {
							g.Error(err)
						}
					}
				}
				_ = c.Close()
			})
		}
		defer others.Wait()
		defer stop()
		own := g.Read("/sys/class/net/ib0/address")
		g.Exec("ip", "neigh", "add", "192.168.151.9", "lladdr", own[:len(own)-2]+"ff", "dev", "ib0", "nud", "permanent")
		g.Ctl("fault all drop kind=gmp attr=0x35")
		g.Start("ping", "-q", "-i", "0.02", "192.168.151.9")
		for range 20 {
			g.Write("/sys/class/net/ib0/mode", "datagram\n")
			g.WaitFor(20*time.Second, func() string {
				if mode(g, "ib0") != "connected" || mtu(g, "ib0") != "65520" {
					return "ib0 is not in connected mode again; log:\n" + tail(d.p.Output(), 20)
				}
				return ""
			})
		}
	})
}

func grep(s, word string) string {
	for l := range strings.Lines(s) {
		if strings.Contains(l, word) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}
