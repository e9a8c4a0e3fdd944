package scenario

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
	"ibnetworkd/link"
)

// A host with udevd and cards as ConnectX-4 and newer, whose driver has IPoIB's
// queues: matched by udev's word for the driver, without connected mode, each change
// of the MTU takes the carrier for a moment, which plan and try say before.
func TestEnhancedIPoIB(t *testing.T) {
	t.Parallel()
	const (
		unit = "[Match]\nDriver=mlx5_core[ib_ipoib]\nName=!storage\n%s[Network]\nAddress=10.30.0.1/24\n" +
			"[Partition]\nPartitionKey=0x8001\nName=storage\n"
		storage = "[Match]\nDriver=mlx5_core\nPartitionKey=0x8001\n%s[Network]\nAddress=10.30.1.1/24\n"
	)
	files := exampleFiles(t)
	files["/etc/ibnetworkd/ibnetworkd.conf"] = "[Daemon]\nWatchUnitFiles=no\n"
	lab.Run(t, installed(lab.Config{Files: files,
		Commands: []string{"driver h0 mlx5_core", "driver h1 mlx5_core", "ipoib h0 enhanced", "ipoib h1 enhanced"},
	}, map[string]string{
		"10-ib.ibnetwork":      fmt.Sprintf(unit, "[Link]\nMTUBytes=65520\n[IPoIB]\nMode=connected\n"),
		"20-storage.ibnetwork": fmt.Sprintf(storage, ""),
	}), func(g *lab.G) {
		defer journal(g)
		manage(g, defaultPartition+"one=0x0001, ipoib, mtu=4 : ALL=full;\n")
		of := func(dev string) string { return firstLink(g, dev) }
		one, two := of("swib0"), of("swib1")
		state := func(name string) link.Status {
			for _, l := range describe(g).Links {
				if l.Name == name {
					return l
				}
			}
			return link.Status{}
		}
		addr := func(name, want string) {
			g.Helper()
			g.WaitFor(30*time.Second, func() string {
				if out, _ := g.Try("ip", "-o", "address", "show", "dev", name); strings.Contains(out, want) {
					return ""
				}
				out, _ := g.Try("ibnetctl", "status", name)
				return name + " has no " + want + ":\n" + out
			})
		}
		use := func(name, text string) {
			g.Helper()
			g.Write(unitDir+name, text)
			g.Exec("ibnetctl", "reload")
		}
		addr(one, "10.30.0.1/24")
		addr("storage", "10.30.1.1/24")

		// Connected mode is refused with the next step, and the rest is configured.
		st := state(one)
		for name, want := range map[string]string{"Mode": "the enhanced IPoIB of mlx5_core has datagram mode only",
			"MTUBytes": "datagram mode takes at most 4092"} {
			if a := attr(st, name); a.OK() || !strings.Contains(a.Why.Text, want) || a.Why.Next == "" {
				g.Errorf("%s: %+v", name, a)
			}
		}
		out, _ := g.Try("ibnetctl", "status", one)
		g.Log(out)
		for _, l := range []string{one, "storage"} {
			out, _ := g.Try("udevadm", "info", "-q", "property", "/sys/class/net/"+l)
			if !strings.Contains(out, "ID_NET_DRIVER=mlx5_core[ib_ipoib]\n") {
				g.Errorf("udev's driver of %s:\n%s", l, out)
			}
		}

		// The other host's side: two links in a namespace.
		g.Exec("ip", "link", "add", "link", two, "name", "b1", "type", "ipoib", "pkey", "0x8001")
		b := g.Host("b")
		b.Take(two, "10.30.0.2/24")
		b.Take("b1", "10.30.1.2/24")
		ping := func(size string) {
			g.Helper()
			b.Ping("10.30.0.1", "-s", size, "-M", "do")
			b.Ping("10.30.1.1", "-s", size, "-M", "do")
		}
		ping("1400")

		// plan says what a change of the MTU does, of a P_Key child too, and so it is.
		for name, file := range map[string]string{one: "10-ib.ibnetwork", "storage": "20-storage.ibnetwork"} {
			text := map[string]string{one: unit, "storage": storage}[name]
			g.Write(unitDir+file, fmt.Sprintf(text, "[Link]\nMTUBytes=1500\n"))
			plan := g.Exec("ibnetctl", "plan")
			if !strings.Contains(plan, "ip link set "+name+" mtu 1500\n") || !strings.Contains(plan, name+" loses its carrier for a moment") {
				g.Errorf("plan for %s:\n%s", name, plan)
			}
			before := flaps(g, name)
			g.Exec("ibnetctl", "reload")
			g.Wait("the MTU of "+name, 10*time.Second, func() bool { return mtu(g, name) == "1500" })
			time.Sleep(3 * time.Second)
			if n := flaps(g, name) - before; n != 2 {
				g.Errorf("the carrier of %s changed %d times with the MTU", name, n)
			}
		}
		ping("1400")

		// The same by try, which is reverted: twice the carrier.
		trial := "/tmp/10-ib.ibnetwork"
		g.Write(trial, fmt.Sprintf(unit, "[Link]\nMTUBytes=2044\n"))
		out, _ = g.Try("ibnetctl", "try", "--timeout", "4s", trial)
		if !strings.Contains(out, one+" loses its carrier for a moment") {
			g.Errorf("try: %s", out)
		}
		g.Wait("the MTU is back", 10*time.Second, func() bool { return mtu(g, one) == "1500" })

		// An MTU above the group's: the kernel keeps the wish. The carrier must not go again and again.
		before := flaps(g, one)
		use("10-ib.ibnetwork", fmt.Sprintf(unit, "[Link]\nMTUBytes=max\n"))
		g.Wait("the largest MTU", 10*time.Second, func() bool { return mtu(g, one) == "4092" })
		time.Sleep(5 * time.Second)
		if n := flaps(g, one) - before; n != 2 {
			g.Errorf("the carrier changed %d times for MTUBytes=max", n)
		}

		before = flaps(g, "storage")
		use("20-storage.ibnetwork", fmt.Sprintf(storage, "[Link]\nMTUBytes=4092\n"))
		time.Sleep(8 * time.Second)
		if n := flaps(g, "storage") - before; n > 2 || mtu(g, "storage") != "2044" {
			g.Errorf("the carrier changed %d times for an MTU above the group's, mtu %s: %+v", n, mtu(g, "storage"),
				attr(state("storage"), "MTUBytes"))
		}
		use("20-storage.ibnetwork", fmt.Sprintf(storage, "[Link]\nMTUBytes=1500\n"))

		// With the driver the links go and come back, the children with them.
		pci := "swib.0"
		g.Write("/sys/bus/platform/drivers/mlx5_core/unbind", pci)
		g.Wait("the links are gone", 10*time.Second, func() bool { _, err := os.Stat("/sys/class/net/storage"); return err != nil })
		g.Write("/sys/bus/platform/drivers/mlx5_core/bind", pci)
		g.Wait("the interface", 20*time.Second, func() bool { out, _ := g.Try("ls", "/sys/bus/platform/devices/"+pci+"/net"); return out != "" })
		one = of("swib0")
		addr(one, "10.30.0.1/24")
		addr("storage", "10.30.1.1/24")
		g.Wait("the MTU of the new link", 10*time.Second, func() bool { return mtu(g, one) == "4092" && mtu(g, "storage") == "1500" })
		g.WaitFor(30*time.Second, func() string {
			for _, a := range []string{"10.30.0.1", "10.30.1.1"} {
				if out, err := b.Try("ping", "-c", "1", "-W", "1", a); err != nil {
					return out
				}
			}
			return ""
		})

		// The examples that ask for the best mode have nothing to complain of here.
		for _, f := range []string{"10-ib.ibnetwork", "20-storage.ibnetwork"} {
			testkit.NoError(g, os.Remove(unitDir+f))
		}
		for name, links := range map[string][]string{"40-partitions.ibnetwork": {one, "storage"}, "50-plugin.ibnetwork": {one}} {
			use(name, strings.Replace(g.Read(examples+name), "Name=ib0", "Name="+one, 1))
			g.WaitFor(30*time.Second, func() string {
				for _, l := range links {
					for _, a := range state(l).Attributes {
						if !a.OK() && !strings.Contains(a.Wanted, "0x8002") {
							return fmt.Sprintf("%s, %s: %+v", name, l, a)
						}
					}
					if len(state(l).Attributes) == 0 {
						return name + " does not match " + l
					}
				}
				return ""
			})
			testkit.NoError(g, os.Remove(unitDir+name))
		}
	})
}

// Two hosts with one cable and the same unit: a card with connected mode, and one as
// ConnectX-4 and newer, which has datagram mode only. Each takes the best that it can,
// and packets that are too large for the other one's mode arrive in pieces.
func TestEnhancedBesidePlain(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b"}
	addr := func(n string) string { return map[string]string{"a": "10.9.0.1", "b": "10.9.0.2"}[n] }
	host := func(g *lab.G) {
		defer journal(g)
		me := g.Node()
		g.Exec("ibnetctl", "wait-online", "-i", "ib0:routable", "--timeout", "90s")
		want := map[string]string{"a": "connected 65520", "b": "datagram 4092"}[me]
		g.WaitFor(20*time.Second, func() string {
			if has := mode(g, "ib0") + " " + mtu(g, "ib0"); has != want {
				return "ib0 is " + has
			}
			return ""
		})
		g.Post("up-"+me, "")
		g.Await("up-"+other(me), 120*time.Second)
		for _, size := range []string{"56", "3900", "20000"} {
			g.WaitFor(20*time.Second, func() string {
				out, err := g.Try("ping", "-c", "1", "-W", "1", "-s", size, addr(other(me)))
				if err != nil {
					return out
				}
				return ""
			})
		}
		g.Post("done-"+me, "")
		g.Await("done-"+other(me), 60*time.Second)
	}
	var nodes []lab.Node
	for _, n := range names {
		unit := "[Match]\nLinkLayer=InfiniBand\n[Link]\nMTUBytes=max\n[IPoIB]\nMode=auto\n[Network]\nAddress=" + addr(n) +
			"/24\n[SubnetManager]\nManage=auto\nStartDelaySec=1\n"
		c := installed(lab.Config{Commands: []string{"driver h0 mlx4_core"}}, map[string]string{"10-ib.ibnetwork": unit})
		if n == "b" {
			c.Commands = []string{"driver h0 mlx5_core", "ipoib h0 enhanced"}
		}
		nodes = append(nodes, lab.Node{Name: n, Config: c, Body: host})
	}
	lab.RunNet(t, lab.Net{Cables: []string{"a/1 b/1"}, Nodes: nodes,
		Script: func(t *testing.T, r *lab.NetRun) {
			for _, n := range names {
				r.Await("done-"+n, 4*time.Minute)
			}
		}})
}

// firstLink is the interface of a port of a device, without its P_Key children.
func firstLink(g *lab.G, dev string) (name string) {
	g.Helper()
	g.Wait("the link of "+dev, 20*time.Second, func() bool {
		for _, l := range describe(g).Links {
			if l.IBDevice == dev && l.Parent == "" {
				name = l.Name
			}
		}
		return name != ""
	})
	return name
}

// flaps is how often the kernel took a link's carrier away or gave it back.
func flaps(g *lab.G, name string) int {
	g.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(g.Read("/sys/class/net/" + name + "/carrier_changes")))
	testkit.NoError(g, err)
	return n
}
