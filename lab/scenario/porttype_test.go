package scenario

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A port whose interface is elsewhere, or not there at all, gets its type by its
// own facts, and what the card refuses is in its status.
func TestPortTypeWithoutLink(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Debian, Ports: 2, Bins: []string{ibnetworkd, ibnetctl}, Files: map[string]string{
		unitDir + "10-port.ibnetwork":  "[Match]\nIBDevice=swib0\nPort=1\nLinkLayer=InfiniBand\n[Port]\nType=eth\n",
		unitDir + "20-other.ibnetwork": "[Match]\nIBDevice=swib1\nPort=1\n[Port]\nType=eth\n",
	}}, func(g *lab.G) {
		g.Ctl("types h1 ordered")
		h := g.Host("elsewhere")
		for _, n := range []string{"ib0", "ib1", "ib2", "ib3"} {
			h.Give(n)
		}
		d := startDaemon(g)
		g.WaitFor(15*time.Second, func() string {
			if l := g.PortFile("swib0", 1, "link_layer"); l != "Ethernet" {
				return "swib0/1 is " + l + "\n" + tail(d.p.Output(), 10)
			}
			return ""
		})
		// The other card does not take Ethernet on port 1 beside InfiniBand on
		// port 2.
		port := func() (p link.PortStatus) {
			for _, x := range d.report().Ports {
				if x.IBDevice == "swib1" && x.Port == 1 {
					p = x
				}
			}
			return p
		}
		g.WaitFor(10*time.Second, func() string {
			p := port()
			if len(p.Attributes) != 1 || p.Attributes[0].Wanted != "eth" || p.Attributes[0].Actual != "ib" ||
				p.Attributes[0].Why.Code != link.CodeRefused {
				return fmt.Sprintf("the status of the port is %+v", p)
			}
			return ""
		})
		for _, args := range [][]string{{"status", "swib1/1"}, {"plan"}} {
			if out, _ := g.Try("ibnetctl", args...); !strings.Contains(out, "does not take type eth on port 1") && args[0] == "status" ||
				!strings.Contains(out, "eth") {
				g.Errorf("ibnetctl %v:\n%s", args, out)
			}
		}
		g.Log(port().Attributes[0].Why.Text + "; " + port().Attributes[0].Why.Next)
		// It is retried when the unit changes.
		g.Ctl("types h1 any")
		g.Write(unitDir+"20-other.ibnetwork", "# looked at again\n[Match]\nIBDevice=swib1\nPort=1\n[Port]\nType=eth\n")
		g.WaitFor(15*time.Second, func() string {
			if l := g.PortFile("swib1", 1, "link_layer"); l != "Ethernet" {
				return "swib1/1 is " + l + "\n" + tail(d.p.Output(), 10)
			}
			return ""
		})
		g.WaitFor(10*time.Second, func() string {
			if p := port(); len(p.Attributes) > 0 && !p.Attributes[0].OK() {
				return fmt.Sprintf("the status of the port is %+v", p)
			}
			return ""
		})
	})
}

// Both ports of a card change, in the order that the card accepts: one card
// takes the same type on both ports only, the other not Ethernet on port 1 while
// port 2 is InfiniBand. Then back.
func TestPortTypesInOrder(t *testing.T) {
	t.Parallel()
	unit := func(dev string, port int, typ string) string {
		return fmt.Sprintf("[Match]\nIBDevice=%s\nPort=%d\n[Port]\nType=%s\nChangeWhileInUse=yes\n", dev, port, typ)
	}
	name := func(dev string, port int) string { return fmt.Sprintf("%s1%d-%s.ibnetwork", unitDir, port, dev) }
	lab.Run(t, lab.Config{Userland: lab.Debian, Ports: 2, Bins: []string{ibnetworkd, ibnetctl}}, func(g *lab.G) {
		g.Ctl("types h0 equal")
		g.Ctl("types h1 ordered")
		d := startDaemon(g)
		g.Wait("the daemon", 10*time.Second, func() bool { return strings.Contains(d.p.Output(), "ibnetworkd starts") })
		for _, typ := range []string{"eth", "ib"} {
			for _, dev := range []string{"swib0", "swib1"} {
				for port := 1; port <= 2; port++ {
					g.Write(name(dev, port), unit(dev, port, typ))
				}
			}
			d.p.Signal(syscall.SIGHUP)
			want := map[string]string{"eth": "Ethernet", "ib": "InfiniBand"}[typ]
			g.WaitFor(20*time.Second, func() string {
				for _, dev := range []string{"swib0", "swib1"} {
					for port := 1; port <= 2; port++ {
						if l := g.PortFile(dev, port, "link_layer"); l != want {
							return fmt.Sprintf("%s/%d is %s, want %s\n%s", dev, port, l, want, tail(d.p.Output(), 20))
						}
					}
				}
				n := 0
				for _, s := range d.report().Links {
					if a := attr(s, "Type"); a.Wanted == typ && a.Actual == typ && a.OK() {
						n++
					}
				}
				if n != 4 {
					return fmt.Sprintf("%d of 4 links say that they have type %s", n, typ)
				}
				return ""
			})
		}
		// One of each is more than the card of equal ports can do.
		g.Write(name("swib0", 1), unit("swib0", 1, "eth"))
		d.p.Signal(syscall.SIGHUP)
		g.WaitFor(10*time.Second, func() string {
			for _, s := range d.report().Links {
				if a := attr(s, "Type"); s.IBDevice == "swib0" && s.Port == 1 && a.Wanted == "eth" && a.Why.Code == link.CodeRefused {
					g.Log(a.Why.Text + "; " + a.Why.Next)
					return ""
				}
			}
			return "that the card refuses it is not said\n" + tail(d.p.Output(), 10)
		})
	})
}
