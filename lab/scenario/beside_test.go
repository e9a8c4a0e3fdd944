package scenario

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// An adapter without connected mode: datagram stays and the reason is reported;
// Mode=auto takes datagram without a word.
func TestNoConnectedMode(t *testing.T) {
	t.Parallel()
	auto := strings.NewReplacer("Name=ib0", "Name=ib1", "connected", "auto", "65520", "max", "151.1", "152.1").Replace(wiki)
	lab.Run(t, lab.Config{Userland: lab.Debian, Swib: "cm=N", Bins: []string{ibnetworkd}, Files: map[string]string{
		unitDir + "10-ib0.ibnetwork": wiki, unitDir + "10-ib1.ibnetwork": auto,
	}}, func(g *lab.G) {
		manage(g, defaultPartition)
		d := startDaemon(g)
		st := d.configured("ib0", 10*time.Second)
		if mode(g, "ib0") != "datagram" || mtu(g, "ib0") != "4092" {
			g.Errorf("mode %s, mtu %s", mode(g, "ib0"), mtu(g, "ib0"))
		}
		if a := attr(st, "Mode"); a.Wanted != "connected" || a.Actual != "datagram" || a.Why.Code != link.CodeNoConnected || a.Why.Next == "" {
			g.Errorf("Mode: %+v", a)
		}
		if a := attr(st, "MTUBytes"); a.Why.Code != link.CodeMTUMode {
			g.Errorf("MTUBytes: %+v", a)
		}
		g.Logf("said: %s; %s", st.Reason().Text, st.Reason().Next)
		if !strings.Contains(strings.Join(st.Addresses, " "), "192.168.151.1/24") {
			g.Errorf("addresses %v", st.Addresses)
		}
		auto := d.configured("ib1", 10*time.Second)
		if len(auto.Reasons) > 0 || attr(auto, "Mode").Actual != "datagram" || attr(auto, "MTUBytes").Actual != "4092" {
			g.Errorf("Mode=auto is not silent: %+v", auto)
		}
	})
}

// With systemd, udev, systemd-networkd and systemd-resolved: a link that
// networkd manages is left alone and that is reported once; without [Network] only
// the InfiniBand part is ours; name servers go to resolved.
func TestBesideNetworkd(t *testing.T) {
	t.Parallel()
	lab.Run(t, lab.Config{Userland: lab.Systemd, HCAs: 3, Bins: []string{ibnetworkd},
		Units: []string{"systemd-networkd.service", "systemd-resolved.service"}, Files: map[string]string{
			unitDir + "50-ib0.network":   "[Match]\nName=ib0\n[Network]\nAddress=10.11.0.1/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
			unitDir + "50-ib1.network":   "[Match]\nName=ib1\n[Network]\nAddress=10.12.0.1/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n",
			unitDir + "10-ib0.ibnetwork": "[Match]\nName=ib0\n[IPoIB]\nMode=connected\n[Link]\nMTUBytes=max\n",
			unitDir + "10-ib1.ibnetwork": "[Match]\nName=ib1\n[IPoIB]\nMode=connected\n[Network]\nAddress=10.12.0.2/24\n",
			unitDir + "10-ib2.ibnetwork": "[Match]\nName=ib2\n[IPoIB]\nMode=connected\n[Network]\nAddress=10.13.0.1/24\nDNS=10.13.0.53\n" +
				"Domains=fabric.example ~.\n[Partition]\nPartitionKey=0x8001\nName=one\n",
			unitDir + "20-one.ibnetwork": "[Match]\nName=one\n[Network]\nAddress=10.14.0.1/24\n",
		}}, func(g *lab.G) {
		manage(g, defaultPartition+onePartition)
		g.WaitFor(20*time.Second, func() string {
			if out := g.Exec("ip", "-o", "address"); !strings.Contains(out, "10.11.0.1/24") || !strings.Contains(out, "10.12.0.1/24") {
				return "networkd has not set its addresses:\n" + out
			}
			return ""
		})
		d := startDaemon(g)
		d.configured("ib0", 20*time.Second)
		if mode(g, "ib0") != "connected" || mtu(g, "ib0") != "65520" {
			g.Errorf("ib0: mode %s, mtu %s", mode(g, "ib0"), mtu(g, "ib0"))
		}
		st := d.wait("ib1", "left alone", 10*time.Second, func(s link.Status) bool { return s.State == link.StateUnmanaged })
		if st.Reason().Code != link.CodeOtherManager {
			g.Errorf("ib1: %+v", st.Reasons)
		}
		g.Logf("said: %s; %s", st.Reason().Text, st.Reason().Next)
		if mode(g, "ib1") != "datagram" || strings.Contains(g.Exec("ip", "-o", "address", "show", "dev", "ib1"), "10.12.0.2/") {
			g.Error("ib1 was touched")
		}
		d.configured("ib2", 20*time.Second)
		d.configured("one", 20*time.Second)
		out := g.Exec("resolvectl", "status", "ib2")
		for _, w := range []string{"10.13.0.53", "fabric.example", "~."} {
			if !strings.Contains(out, w) {
				g.Errorf("%s is missing in resolvectl status ib2:\n%s", w, out)
			}
		}
		// A restarted resolved is configured again.
		g.Exec("systemctl", "restart", "systemd-resolved")
		g.WaitFor(10*time.Second, func() string {
			if out := g.Exec("resolvectl", "status", "ib2"); !strings.Contains(out, "10.13.0.53") {
				return out
			}
			return ""
		})
		// One that stops leaves the link configured, and gets the servers when it
		// is back.
		g.Exec("systemctl", "stop", "systemd-resolved")
		st = d.wait("ib2", "configured without resolved", 10*time.Second,
			func(s link.Status) bool { return s.Reason().Code == link.CodeNoResolved })
		if st.State != link.StateConfigured || !st.Online {
			g.Errorf("ib2 without resolved: %s, online %v: %+v", st.State, st.Online, st.Reasons)
		}
		g.Exec("systemctl", "start", "systemd-resolved")
		d.wait("ib2", "configured with resolved", 10*time.Second,
			func(s link.Status) bool { return s.State == link.StateConfigured && len(s.Reasons) == 0 })
		if out := g.Exec("resolvectl", "status", "ib2"); !strings.Contains(out, "10.13.0.53") {
			g.Errorf("the name server is missing:\n%s", out)
		}
		if n := strings.Count(d.p.Output(), "manages ib1"); n != 1 {
			g.Errorf("that networkd manages ib1 is said %d times\n%s", n, d.p.Output())
		}
		// A new device waits for udev and is then configured.
		g.Ctl("del 2")
		g.Ctl("add 2")
		g.WaitFor(20*time.Second, func() string {
			n := ibNet(g, "swib2")
			if n == "" {
				return "no interface"
			}
			if out := g.Exec("ip", "-o", "address"); !strings.Contains(out, "10.13.0.1/24") || !strings.Contains(out, "10.14.0.1/24") {
				return fmt.Sprintf("%s%s", out, tail(d.p.Output(), 10))
			}
			return ""
		})
		if _, err := os.Stat("/run/ibnetworkd/record.json"); err != nil {
			g.Error(err)
		}
	})
}
