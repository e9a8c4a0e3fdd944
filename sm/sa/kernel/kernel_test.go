package kernel_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"ibnetworkd/lab"
	"ibnetworkd/lab/gen"
)

// The real ib_sa, ib_ipoib and ib_umad ask this SA: groups of IPv4 and IPv6,
// paths over a fat-tree, a partition, connected mode, and osmtest's checks.
func TestKernelAsks(t *testing.T) {
	f := gen.FatTree2(8, 2)
	lab.Run(t, lab.Config{Userland: lab.Debian, Topology: gen.Text(f), Bins: []string{"ibnetworkd/cmd/ibnetsm"}, Timeout: 120 * time.Second,
		Files: map[string]string{"/etc/partitions.conf": "Default=0x7fff, ipoib : ALL=full ;\nwork=0x8001, ipoib, rate=10Gb/s : ALL=full ;\n"},
	}, func(g *lab.G) {
		start := lab.Uptime()
		g.Start("ibnetsm", "run", "--device", "swib0", "--log-file", "/tmp/ibnetsm.log", "--state-dir", "/tmp/sm", "--partitions",
			"/etc/partitions.conf")
		g.Cleanup(func() { g.Artifact("ibnetsm.log", []byte(g.Read("/tmp/ibnetsm.log"))) })
		g.WaitActive(10 * time.Second)
		g.Logf("all ports active %v after the start", lab.Uptime()-start)
		a, b, c := g.Host("a"), g.Host("b"), g.Host("c")
		a.Take("ib1", "10.9.0.1/24", "fd00::1/64")
		b.Take("ib6", "10.9.0.2/24", "fd00::2/64")
		c.Take("ib7", "10.9.0.3/24")
		a.Ping("10.9.0.2", "-s", "1400")
		c.Ping("10.9.0.2")
		a.Ping("fd00::2")
		// The group carries what the slowest link does, not 2048 bytes and
		// 10 Gb/s.
		groups := g.Exec("saquery", "-C", "swib0", "-g")
		g.Artifact("groups", []byte(groups))
		if mtu := a.Sh("cat /sys/class/net/ib1/mtu"); strings.TrimSpace(mtu) != "4092" {
			g.Errorf("netdev MTU %s, want 4092; groups:\n%s", mtu, groups)
		}
		a.Ping("10.9.0.2", "-s", "4000", "-M", "do")

		// A partition: children, and its group with the rate that was asked for.
		for _, h := range []struct {
			h    *lab.Host
			link string
			addr string
		}{{a, "ib1", "10.8.0.1/24"}, {b, "ib6", "10.8.0.2/24"}} {
			h.h.Exec("ip", "link", "add", "link", h.link, "name", h.link+".8001", "type", "ipoib", "pkey", "0x8001")
			h.h.Exec("ip", "addr", "add", h.addr, "dev", h.link+".8001")
			h.h.Exec("ip", "link", "set", h.link+".8001", "up")
		}
		a.WaitCarrier("ib1.8001", 5*time.Second)
		b.WaitCarrier("ib6.8001", 5*time.Second)
		a.Ping("10.8.0.2")

		// A multicast packet reaches the member that joined, by a group of its own.
		err := b.Do(func() error {
			link, err := net.InterfaceByName("ib6")
			if err != nil {
				return err
			}
			conn, err := net.ListenMulticastUDP("udp4", link, &net.UDPAddr{IP: net.IPv4(239, 1, 2, 3), Port: 7777})
			if err == nil {
				g.Cleanup(func() { conn.Close() })
			}
			return err
		})
		if err != nil {
			g.Fatal(err)
		}
		g.Wait("the group of 239.1.2.3", 5*time.Second, func() bool {
			return strings.Contains(g.Exec("saquery", "-C", "swib0", "-g"), "ff12:401b:ffff::f01:203")
		})

		for _, flow := range []string{"c", "v", "m"} {
			began := lab.Uptime()
			out := g.Sh("cd /tmp && osmtest -f %s -M 1 -i inv.dat -l osmtest.log 2>&1 | tail -3", flow)
			if !strings.Contains(out, "PASS") {
				g.Artifact("osmtest-"+flow+".log", []byte(g.Read("/tmp/osmtest.log")))
				g.Errorf("osmtest -f %s: %s", flow, out)
			}
			g.Logf("osmtest -f %s: %v", flow, lab.Uptime()-began)
		}
		for _, q := range []string{"NR", "PIR", "LR", "SWIR", "-p", "MCMR", "LFTR", "MFTR", "SMIR", "GIR", "SL2VL", "VLAR", "-c", "IIR",
			"SR", "-s"} {
			if out, err := g.Try("saquery", "-C", "swib0", q); err != nil {
				g.Errorf("saquery %s: %v: %s", q, err, out)
			}
		}
		a.Ping("10.9.0.2")
	})
}
