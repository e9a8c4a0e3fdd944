package lab_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ibnetworkd/lab"
)

// Enhanced IPoIB: the kernel's ib_ipoib over the driver's own queues, of a link and
// of its P_Key children, made by rtnetlink and by sysfs.
func TestEnhancedIPoIB(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]lab.Config{
		"UML":  {},
		"6.1":  {Machine: lab.QEMU, Series: "6.1"},
		"6.12": {Machine: lab.QEMU, Series: "6.12"},
	} {
		c.Userland, c.PKeys = lab.Debian, 32
		c.Commands = []string{"driver h0 mlx5_core", "ipoib h0 enhanced", "ipoib h1 enhanced"}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testEnhancedIPoIB(t, c)
		})
	}
}

func testEnhancedIPoIB(t *testing.T, c lab.Config) {
	lab.Run(t, c, func(g *lab.G) {
		of := func(dev string) string {
			return strings.TrimSpace(g.Exec("ls", "/sys/class/infiniband/"+dev+"/device/net"))
		}
		one, two := of("swib0"), of("swib1")
		const conf, def, storage = "/tmp/partitions.conf", "Default=0x7fff,ipoib:ALL=full;\n", "Storage=0x1,ipoib:ALL=full;\n"
		sm := g.SM(lab.SM{Partitions: def + storage, File: conf})
		g.Exec("ip", "link", "add", "link", one, "name", "c1", "type", "ipoib", "pkey", "0x8001")
		g.Write("/sys/class/net/"+two+"/create_child", "0x8001")
		for _, l := range []string{one, "c1", two, two + ".8001"} {
			if a := g.Read("/sys/class/net/" + l + "/address"); !strings.HasPrefix(a, "00:00:") {
				g.Errorf("%s has flags in its address: %s", l, a)
			}
		}
		for l, want := range map[string]string{one: "mlx5_core", "c1": "mlx5_core", two: "swib", two + ".8001": "swib"} {
			if out := g.Exec("ethtool", "-i", l); !strings.Contains(out, "driver: "+want+"[ib_ipoib]\n") {
				g.Errorf("%s: %s", l, out)
			}
		}
		if err := g.TryWrite("/sys/class/net/"+one+"/mode", "connected\n"); err == nil || !strings.Contains(err.Error(), "invalid argument") {
			g.Errorf("connected mode: %v", err)
		}
		a, b := g.Host("a"), g.Host("b")
		a.Take(one, "10.9.0.1/24")
		a.Take("c1", "10.9.1.1/24")
		b.Take(two, "10.9.0.2/24")
		b.Take(two+".8001", "10.9.1.2/24")
		ping := func() {
			g.Helper()
			a.Ping("10.9.0.2", "-s", "1900")
			a.Ping("10.9.1.2", "-s", "1900")
		}
		ping()
		changes := func(h *lab.Host, l string) int {
			n, err := strconv.Atoi(strings.TrimSpace(h.Exec("cat", "/sys/class/net/"+l+"/carrier_changes")))
			if err != nil {
				g.Fatal(err)
			}
			return n
		}
		for _, l := range []string{one, "c1"} {
			before := changes(a, l)
			a.Exec("ip", "link", "set", l, "mtu", "1500")
			if n := changes(a, l) - before; n != 2 {
				g.Errorf("the carrier of %s changed %d times with its MTU", l, n)
			}
			if out := a.Exec("ip", "-o", "link", "show", l); !strings.Contains(out, "mtu 1500 ") {
				g.Error(out)
			}
		}
		ping()
		// The P_Key of the children moves to another place in the tables: their queues open again with that.
		for _, parts := range []string{def, def + "Other=0x2:ALL=full;\n", def + storage + "Other=0x2:ALL=full;\n"} {
			g.Write(conf, parts)
			sm.Signal(syscall.SIGHUP)
			g.Wait("the P_Keys", 20*time.Second, func() bool {
				keys := g.Sh("cat /sys/class/infiniband/swib[01]/ports/1/pkeys/*")
				return strings.Count(keys, "0x8001") == 2*strings.Count(parts, "Storage") &&
					strings.Count(keys, "0x8002") == 2*strings.Count(parts, "Other")
			})
		}
		if k := strings.TrimSpace(g.Read("/sys/class/infiniband/swib0/ports/1/pkeys/2")); k != "0x8001" {
			g.Errorf("P_Key %s is third", k)
		}
		g.Wait("the children again", 30*time.Second, func() bool {
			_, err := a.Try("ping", "-c", "1", "-W", "1", "10.9.1.2")
			return err == nil
		})
		// Much of it at once, while the queues are opened again and again.
		stop := a.Pings("10.9.0.2", 2*time.Millisecond)
		for i := range 10 {
			a.Exec("ip", "link", "set", one, "mtu", strconv.Itoa(1500+i%2*544))
		}
		sent, lost := stop()
		if sent < 20 || lost > sent/2 {
			g.Errorf("%d of %d packets were lost", lost, sent)
		}
		a.Exec("ip", "link", "set", one, "down")
		a.Exec("ip", "link", "set", one, "up")
		g.Wait("the link up again", 20*time.Second, func() bool {
			_, err := a.Try("ping", "-c", "1", "-W", "1", "10.9.0.2")
			return err == nil
		})
		a.Exec("ip", "link", "del", "c1")
		// The interface goes with the driver and comes back as another one.
		g.Ctl("ipoib h1 plain")
		g.Wait("a plain interface", 10*time.Second, func() bool {
			out, _ := g.Try("ls", "/sys/class/infiniband/swib1/device/net")
			l := strings.TrimSpace(out)
			return l != "" && strings.HasPrefix(g.Read("/sys/class/net/"+l+"/address"), "80:")
		})
	})
}
