package kernel_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

func TestRoCE(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.Exec("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb")
		g.Exec("ip", "link", "set", "va", "up")
		g.Exec("ip", "link", "set", "vb", "up")
		g.Exec("ip", "addr", "add", "10.7.0.1/24", "dev", "va")
		c, err := rdmanl.Dial()
		testkit.NoError(g, err)
		defer func() { _ = c.Close() }()
		for _, kind := range []string{"rxe", "siw"} {
			name := kind + "7"
			if err := c.Do(rdmanl.NewLink(name, kind, "va")); err != nil {
				g.Errorf("%v", err)
				continue
			}
			devs, err := c.Devices()
			testkit.NoError(g, err)
			var dev rdmanl.Device
			for _, d := range devs {
				if d.Name == name {
					dev = d
				}
			}
			ports, err := c.Ports([]rdmanl.Device{dev})
			if err != nil || len(ports) != 1 || ports[0].NetdevIndex == 0 || ports[0].LID != 0 {
				g.Errorf("%s: %+v %+v, %v", name, dev, ports, err)
			}
			if kind == "rxe" {
				rxe(g, name)
			}
			if err := c.Do(rdmanl.DelLink(dev.Index)); err != nil {
				g.Error(err)
			}
		}
		if err := c.Do(rdmanl.NewLink("rxe8", "rxe", "nope0")); err == nil {
			g.Error("a device on no link was made")
		} else {
			g.Logf("no such link: %v", err)
		}
	})
}

func rxe(g *lab.G, name string) {
	f := sysfs.New("/")
	var v2 []sysfs.GIDEntry
	g.Wait("the GID of the IPv4 address", 5*time.Second, func() bool {
		gids, err := f.GIDs(name, 1)
		testkit.NoError(g, err)
		v2 = nil
		for _, e := range gids {
			if e.Type == "RoCE v2" && strings.HasSuffix(e.GID.String(), "0a07:0001") {
				v2 = append(v2, e)
			}
		}
		return len(v2) == 1
	})
	if v2[0].Netdev != "va" {
		g.Errorf("GID %+v", v2[0])
	}
	if _, err := os.Stat("/sys/kernel/config/rdma_cm"); err != nil {
		g.Sh("mount -t configfs none /sys/kernel/config || true")
	}
	cf := configfs.New("/")
	if !cf.Available() {
		g.Error(configfs.ErrUnavailable)
		return
	}
	for _, want := range []configfs.Defaults{{RoCEMode: configfs.RoCEv2, ToS: 104}, {RoCEMode: configfs.RoCEv2, ToS: 0}} {
		if err := cf.SetRoCEMode(name, 1, want.RoCEMode); err != nil {
			g.Error(err)
		}
		if err := cf.SetToS(name, 1, want.ToS); err != nil {
			g.Error(err)
		}
		if got, err := cf.Get(name, 1); got != want || err != nil {
			g.Errorf("defaults %+v, %v; want %+v", got, err, want)
		}
	}
	if _, err := cf.Get("nope9", 1); !errors.Is(err, unix.ENODEV) {
		g.Errorf("defaults of no device: %v", err)
	}
	if _, err := os.Stat("/sys/kernel/config/rdma_cm/" + name); !errors.Is(err, fs.ErrNotExist) {
		g.Errorf("the directory was left behind: %v", err)
	}
}

// ethernet makes port 1 of adapter 0 Ethernet and gives its link.
func ethernet(g *lab.G) string {
	f := sysfs.New("/")
	d, err := f.IBDevice("swib0")
	testkit.NoError(g, err)
	if pt, err := f.PortType(d.Bus.Bus, d.Bus.Name, 1); err != nil || pt.Current != "ib" {
		g.Fatalf("port type %+v, %v", pt, err)
	}
	testkit.NoError(g, f.SetPortType(d.Bus.Bus, d.Bus.Name, 1, "eth"))
	var link string
	g.Wait("an Ethernet link", 5*time.Second, func() bool {
		es, _ := os.ReadDir("/sys/class/infiniband/swib0/device/net")
		for _, e := range es {
			link = e.Name()
			return g.Read("/sys/class/net/"+link+"/type") == "1"
		}
		return false
	})
	return link
}

func TestDCB(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		link := ethernet(g)
		g.Logf("Ethernet link %s", link)
		c, err := dcb.Dial()
		testkit.NoError(g, err)
		defer func() { _ = c.Close() }()
		s, err := c.Get(link)
		testkit.NoError(g, err)
		if s.PFC == nil || s.ETS == nil || s.Buffer == nil || s.DCBX == nil {
			g.Fatalf("state %+v", s)
		}
		check := func(what string, err error) {
			g.Helper()
			if err != nil {
				g.Errorf("%s: %v", what, err)
			}
		}
		ev, err := dcb.Listen(0)
		testkit.NoError(g, err)
		g.Cleanup(func() { _ = ev.Close() }) // after the last use
		pfc := *s.PFC
		pfc.Enabled = 1<<3 | 1<<5
		g.Cleanup(func() {
			if err := kerneltest.Until(ev, func(all []dcb.Event, _ bool) bool { return slices.Contains(all, dcb.Event{Link: link}) }); err != nil {
				g.Errorf("DCB event: %v", err)
			}
		})
		check("PFC", c.SetPFC(link, pfc))
		ets := *s.ETS
		ets.PrioTC = [8]uint8{0, 1, 2, 3, 4, 5, 6, 7}
		ets.TSA = [8]dcb.TSA{dcb.ETS, dcb.ETS, dcb.ETS, dcb.ETS, dcb.Strict, dcb.Strict, dcb.Strict, dcb.Strict}
		ets.TxBW = [8]uint8{10, 20, 30, 40}
		check("ETS", c.SetETS(link, ets))
		check("DSCP 26", c.AddApps(link, dcb.App{Selector: dcb.DSCP, Priority: 3, Protocol: 26},
			dcb.App{Selector: dcb.DSCP, Priority: 6, Protocol: 48}))
		got, err := c.Get(link)
		testkit.NoError(g, err)
		if got.PFC.Enabled != pfc.Enabled || got.ETS.TSA != ets.TSA || got.ETS.TxBW != ets.TxBW || got.ETS.PrioTC != ets.PrioTC {
			g.Errorf("after the changes: %+v %+v", got.PFC, got.ETS)
		}
		if diff := cmp.Diff([]dcb.App{{Selector: dcb.DSCP, Priority: 3, Protocol: 26}, {Selector: dcb.DSCP, Priority: 6, Protocol: 48}},
			got.Apps); diff != "" {
			g.Errorf("applications (-want +got):\n%s", diff)
		}
		// iproute2 reads what we wrote.
		if out := g.Exec("dcb", "pfc", "show", "dev", link); !strings.Contains(out, "3:on") || !strings.Contains(out, "5:on") ||
			!strings.Contains(out, "4:off") {
			g.Errorf("dcb pfc show:\n%s", out)
		}
		check("remove", c.DelApps(link, dcb.App{Selector: dcb.DSCP, Priority: 3, Protocol: 26}))
		if err := c.DelApps(link, dcb.App{Selector: dcb.DSCP, Priority: 3, Protocol: 26}); !errors.Is(err, unix.ENOENT) {
			g.Errorf("second removal: %v, want ENOENT", err)
		}
		// A refusal inside the answer is an error.
		ets.TSA[0] = 77
		if err := c.SetETS(link, ets); err == nil {
			g.Log("the driver takes any algorithm")
		}
		if _, err := c.Get("lo"); !errors.Is(err, dcb.ErrNoDCB) {
			g.Errorf("loopback: %v", err)
		}
		if _, err := c.Get("nope0"); !errors.Is(err, unix.ENODEV) {
			g.Errorf("no link: %v", err)
		}
	})
}

func TestDevlink(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		c, err := devlink.Dial()
		testkit.NoError(g, err)
		defer func() { _ = c.Close() }()
		ev, err := c.Listen(0)
		testkit.NoError(g, err)
		defer func() { _ = ev.Close() }()
		g.Sh("echo '10 2' > /sys/bus/netdevsim/new_device")
		ports, err := c.Ports()
		testkit.NoError(g, err)
		n := 0
		for _, p := range ports {
			if p.Dev == "netdevsim10" && p.Type == devlink.TypeEth {
				n++
			}
		}
		if n != 2 {
			g.Errorf("ports %+v, want two Ethernet ports of netdevsim10", ports)
		}
		err = c.Do(c.SetPortType("netdevsim", "netdevsim10", 0, devlink.TypeIB))
		if !errors.Is(err, unix.EOPNOTSUPP) {
			g.Errorf("type of a fixed port: %v", err)
		}
		g.Logf("type of a fixed port: %v", err)
		if err := kerneltest.Until(ev, func(all []devlink.Event, _ bool) bool { return len(all) > 0 }); err != nil {
			g.Errorf("devlink event: %v", err)
		}
	})
}
