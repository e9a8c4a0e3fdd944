package kernel_test

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/configfs"
	"ibnetworkd/internal/kernel/dcb"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/kernel/uevent"
	"ibnetworkd/internal/kernel/umad"
	"ibnetworkd/lab"
)

func ptr[T any](v T) *T { return &v }

func dialRT(g *lab.G) *rtnl.Conn {
	c, err := rtnl.Dial()
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { _ = c.Close() })
	return c
}

func waitLink(g *lab.G, c *rtnl.Conn, name string) (l rtnl.Link) {
	g.Wait(name, 5*time.Second, func() bool {
		var err error
		l, err = c.LinkByName(name, false)
		return err == nil
	})
	return l
}

func TestIPoIB(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.SM(lab.SM{Partitions: "Default=0x7fff,ipoib,mtu=5:ALL=full;\nP=0x0001,ipoib:ALL=full;\n"})
		c := dialRT(g)
		l := waitLink(g, c, "ib0")
		if l.IPoIB == nil || l.IPoIB.Mode != ib.ModeDatagram || l.IPoIB.PKey != 0xffff || l.Type != unix.ARPHRD_INFINIBAND ||
			!l.Address.SupportsConnected() || l.MaxMTU != 65520 {
			g.Errorf("ib0: %+v %+v", l, l.IPoIB)
		}
		do := func(rs ...rtnl.Request) {
			g.Helper()
			for _, err := range c.DoAll(rs) {
				if err != nil {
					g.Error(err)
				}
			}
		}
		again := func() rtnl.Link {
			g.Helper()
			l, err := c.LinkByIndex(l.Index, true)
			if err != nil {
				g.Fatal(err)
			}
			return l
		}
		do(rtnl.SetLink(l.Index, rtnl.LinkChange{Up: ptr(true)}))
		g.Wait("carrier", 5*time.Second, func() bool { return again().Carrier })
		do(rtnl.SetLink(l.Index, rtnl.LinkChange{Mode: ptr(ib.ModeConnected)}),
			rtnl.SetLink(l.Index, rtnl.LinkChange{MTU: 65520, UMcast: ptr(true)}))
		if l := again(); l.IPoIB.Mode != ib.ModeConnected || l.MTU != 65520 || !l.IPoIB.UMcast {
			g.Errorf("after the change: %+v %+v", l, l.IPoIB)
		}
		// sysfs has the same to say, and the kernel takes a mode there.
		f := sysfs.New("/")
		if n, err := f.Net("ib0"); err != nil || n.Mode != "connected" || n.UMcast == nil || !*n.UMcast || *n.DevPort != 0 {
			g.Errorf("sysfs: %+v, %v", n, err)
		}
		g.Write("/sys/class/net/ib0/mode", "datagram\n")
		if l := again(); l.IPoIB.Mode != ib.ModeDatagram {
			g.Errorf("after sysfs: %+v", l.IPoIB)
		}
		do(rtnl.NewIPoIBChild(rtnl.IPoIBChild{Parent: l.Index, Name: "part1", PKey: 0x0001, Mode: ptr(ib.ModeConnected)}))
		ch := waitLink(g, c, "part1")
		if ch.Parent != l.Index || ch.IPoIB == nil || ch.IPoIB.PKey != 0x8001 || ch.IPoIB.Mode != ib.ModeConnected {
			g.Errorf("child: %+v %+v", ch, ch.IPoIB)
		}
		err := c.Do(rtnl.NewIPoIBChild(rtnl.IPoIBChild{Parent: l.Index, Name: "part2", PKey: 0x8001}))
		// ib_ipoib takes a second child of one key over netlink, though not over
		// sysfs (is_child_unique in ipoib_vlan.c): it is the planner's to refuse.
		if err != nil {
			g.Logf("second child of one key: %v", err)
		}
		err = c.Do(rtnl.NewIPoIBChild(rtnl.IPoIBChild{Parent: ch.Index, Name: "part3", PKey: 0x8002}))
		if err == nil {
			g.Error("a child of a child was made")
		}
		g.Logf("child of a child: %v", err)
		do(rtnl.DelLink(ch.Index))
		if _, err := c.LinkByName("part1", false); !errors.Is(err, unix.ENODEV) {
			g.Errorf("after delete: %v", err)
		}
		// The last eight bytes of the address.
		b := l.Address.Bytes()
		b[19] ^= 0x55
		addr, err := ib.HWAddrFrom(b)
		if err != nil {
			g.Fatal(err)
		}
		do(rtnl.SetLink(l.Index, rtnl.LinkChange{Up: ptr(false)}), rtnl.SetLink(l.Index, rtnl.LinkChange{Address: addr}))
		if got := again().Address.GUID(); got != addr.GUID() {
			g.Errorf("GUID %v, want %v", got, addr.GUID())
		}
	})
}

// A child costs the guest about a megabyte of receive buffers.
func TestManyChildren(t *testing.T) {
	lab.Run(t, lab.Config{PKeys: 512, HCAs: 4, Memory: 3000, Swib: "cm=0"}, func(g *lab.G) {
		c := dialRT(g)
		var rs []rtnl.Request
		for h := range 4 {
			l := waitLink(g, c, fmt.Sprintf("ib%d", h))
			for k := range 225 {
				rs = append(rs, rtnl.NewIPoIBChild(rtnl.IPoIBChild{Parent: l.Index, Name: fmt.Sprintf("ib%d.%d", h, k+1), PKey: ib.PKey(k + 1)}))
			}
		}
		ev, err := rtnl.Listen(1)
		if err != nil {
			g.Fatal(err)
		}
		defer func() { _ = ev.Close() }()
		t0 := time.Now()
		for _, err := range c.DoAll(rs) {
			if err != nil {
				g.Fatal(err)
			}
		}
		made := time.Since(t0)
		t0 = time.Now()
		ls, err := c.Links(false)
		if err != nil {
			g.Fatal(err)
		}
		n := 0
		for _, l := range ls {
			if l.IPoIB != nil && l.Parent != 0 {
				n++
			}
		}
		g.Logf("%d children made in %v, %d links read in %v", n, made, len(ls), time.Since(t0))
		if n != 900 {
			g.Errorf("%d children, want 900", n)
		}
		// Nobody reads meanwhile, and the buffer holds one or two messages.
		first := waitLink(g, c, "ib0.1")
		rs = rs[:0]
		for i := range 64 {
			rs = append(rs, rtnl.SetLink(first.Index, rtnl.LinkChange{TxQueueLen: ptr(100 + i)}))
		}
		for _, err := range c.DoAll(rs) {
			if err != nil {
				g.Error(err)
			}
		}
		if err := kerneltest.Until(ev, func(_ []rtnl.Event, lost bool) bool { return lost }); err != nil {
			g.Errorf("overrun: %v", err)
		}
		// The source lives on.
		if err := c.Do(rtnl.DelLink(first.Index)); err != nil {
			g.Fatal(err)
		}
		if err := kerneltest.Until(ev, func(all []rtnl.Event, lost bool) bool {
			return lost || slices.Contains(all, rtnl.Event{Type: rtnl.LinkGone, Index: first.Index})
		}); err != nil {
			g.Errorf("event after the overrun: %v", err)
		}
	})
}

// On the lab's kernel, whose RDMA netlink sends events, and on Debian's 6.1, whose does not.
func TestRDMANetlinkEqualsSysfs(t *testing.T) {
	for name, m := range map[string]lab.Machine{"lab": lab.UML, "debian": lab.QEMU} {
		t.Run(name, func(t *testing.T) { rdmaNetlinkEqualsSysfs(t, m) })
	}
}

func rdmaNetlinkEqualsSysfs(t *testing.T, m lab.Machine) {
	lab.Run(t, lab.Config{Machine: m, Userland: lab.Debian, HCAs: 3, Ports: 2}, func(g *lab.G) {
		g.SM(lab.SM{})
		c, err := rdmanl.Dial()
		if err != nil {
			g.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		devs, err := c.Devices()
		if err != nil {
			g.Fatal(err)
		}
		ports, err := c.Ports(devs)
		if err != nil {
			g.Fatal(err)
		}
		want, err := sysfs.New("/").IBDevices()
		if err != nil {
			g.Fatal(err)
		}
		if len(devs) != 3 || len(ports) != 6 || len(want) != 3 {
			g.Fatalf("%d devices and %d ports over netlink, %d devices in sysfs; want 3, 6 and 3", len(devs), len(ports), len(want))
		}
		active, at := 0, 0
		for i, w := range want {
			d := devs[i]
			if d.Name != w.Name || d.NodeGUID != w.NodeGUID || d.SysImageGUID != w.SysImageGUID || d.FWVersion != w.FWVersion ||
				d.Ports != len(w.Ports) || d.Protocol != "ib" {
				g.Errorf("netlink %+v\nsysfs %+v", d, w)
			}
			for _, wp := range w.Ports {
				p := ports[at]
				at++
				if p.Port != wp.Num || p.State != wp.State || p.Phys != wp.Phys || p.LID != wp.LID || p.SMLID != wp.SMLID || p.LMC != wp.LMC ||
					p.SubnetPrefix != 0 && p.SubnetPrefix != wp.GID.Prefix() || !p.HasIB || wp.CapMask == nil || uint32(p.CapFlags) != *wp.CapMask {
					g.Errorf("netlink %+v\nsysfs %+v", p, wp)
				}
				if p.State == ib.PortActive && p.LID != 0 {
					active++
				}
			}
		}
		if active == 0 {
			g.Error("no port is Active")
		}
		sys, err := c.System()
		if err != nil {
			g.Error(err)
		}
		g.Logf("%d ports agree, %d of them active; system %+v", at, active, sys)
		ev, err := c.Listen(0)
		switch {
		case sys.Monitor && err != nil, !sys.Monitor && !errors.Is(err, rdmanl.ErrNoMonitor):
			g.Errorf("listen with monitor mode %v: %v", sys.Monitor, err)
		case ev != nil:
			_ = ev.Close()
		}
		// A rename is seen by both, and as a uevent.
		ue, err := uevent.Listen(uevent.Kernel, 0, "infiniband")
		if err != nil {
			g.Fatal(err)
		}
		defer func() { _ = ue.Close() }()
		if err := c.Do(rename(devs[0].Index, "ibx0")); err != nil {
			g.Fatal(err)
		}
		if devs, err = c.Devices(); err != nil || devs[0].Name != "ibx0" {
			g.Errorf("after the rename: %+v, %v", devs, err)
		}
		if _, err := sysfs.New("/").IBDevice("ibx0"); err != nil {
			g.Error(err)
		}
		if err := kerneltest.Until(ue, func(all []uevent.Event, _ bool) bool {
			return slices.ContainsFunc(all, func(e uevent.Event) bool {
				return e.Action == "move" && e.Name == "ibx0" && strings.HasSuffix(e.OldPath, "/"+want[0].Name)
			})
		}); err != nil {
			g.Errorf("uevent of the rename: %v", err)
		}
	})
}

func TestSysfsOfTheFabric(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.SM(lab.SM{Partitions: "Default=0x7fff,ipoib:ALL=full;\nP=0x0001:ALL=full;\n"})
		f := sysfs.New("/")
		d, err := f.IBDevice("swib0")
		if err != nil {
			g.Fatal(err)
		}
		p := d.Ports[0]
		if d.NodeType != ib.NodeCA || d.HCAType == "" || d.BoardID == "" || p.LinkLayer != ib.LinkLayerInfiniBand ||
			p.State != ib.PortActive || p.RateTenths == 0 || p.GUID() == 0 {
			g.Errorf("%+v", d)
		}
		if l := waitLink(g, dialRT(g), "ib0"); l.Address.GUID() != p.GUID() {
			g.Errorf("port GUID %v, address of ib0 %v", p.GUID(), l.Address)
		}
		g.Wait("P_Key", 5*time.Second, func() bool {
			keys, err := f.PKeys("swib0", 1)
			if err != nil {
				g.Fatal(err)
			}
			for _, k := range keys {
				if k == 0x8001 {
					return true
				}
			}
			return false
		})
		gids, err := f.GIDs("swib0", 1)
		if err != nil || len(gids) == 0 || gids[0].GID != p.GID {
			g.Errorf("GIDs %v, %v", gids, err)
		}
		us, err := f.UMADs()
		if err != nil || len(us) != 2 || us[0].IBDev != "swib0" || us[0].ISSM == "" {
			g.Errorf("umads %+v, %v", us, err)
		}
		if err := f.SetNodeDesc("swib0", "node7 HCA-1"); err != nil {
			g.Error(err)
		}
		if d, _ := f.IBDevice("swib0"); d.NodeDesc != "node7 HCA-1" {
			g.Errorf("node description %q", d.NodeDesc)
		}
		t0 := time.Now()
		if _, err := f.IBDevices(); err != nil {
			g.Error(err)
		}
		g.Logf("two adapters read in %v", time.Since(t0))
	})
}

// smp is a directed route SubnGet of no hops: the own port.
func smp(method uint8, attr uint16, mod uint32, tid uint64) []byte {
	b := make([]byte, umad.MADSize)
	b[0], b[1], b[2], b[3] = 1, 0x81, 1, method
	be := binary.BigEndian
	be.PutUint64(b[8:], tid)
	be.PutUint16(b[16:], attr)
	be.PutUint32(b[20:], mod)
	be.PutUint16(b[32:], 0xffff) // DrSLID, DrDLID permissive
	be.PutUint16(b[34:], 0xffff)
	return b
}

func TestMADs(t *testing.T) {
	lab.Run(t, lab.Config{}, func(g *lab.G) {
		p, err := umad.Open(context.Background(), "umad0")
		if err != nil {
			g.Fatal(err)
		}
		id, err := p.Register(umad.Agent{QPN: 0, Class: 0x81, Version: 1})
		if err != nil {
			g.Fatal(err)
		}
		dr := umad.Address{QPN: 0, LID: ib.LIDPermissive}
		var k umad.Packet
		for tid := range uint64(20) {
			if err := p.Send(&umad.Packet{Agent: id, Timeout: time.Second, Addr: dr, MAD: smp(1, 0x11, 0, tid+1)}); err != nil {
				g.Fatal(err)
			}
			if err := p.Recv(&k); err != nil {
				g.Fatal(err)
			}
			if k.Agent != id || k.Status != 0 || len(k.MAD) != umad.MADSize || k.MAD[3] != 0x81 ||
				binary.BigEndian.Uint32(k.MAD[12:]) != uint32(tid+1) {
				g.Fatalf("answer %+v", k)
			}
		}
		// NodeInfo tells the GUIDs that sysfs does.
		d, err := sysfs.New("/").IBDevice("swib0")
		if err != nil {
			g.Fatal(err)
		}
		if got := ib.GUID(binary.BigEndian.Uint64(k.MAD[64+12:])); got != d.NodeGUID {
			g.Errorf("NodeInfo has the GUID %v, sysfs %v", got, d.NodeGUID)
		}
		// A request that nobody answers comes back: two hops, the second through
		// a port of the switch where nothing is.
		lost := smp(1, 0x11, 0, 99)
		lost[7] = 2 // hop count
		lost[128+1], lost[128+2] = 1, 30
		if err := p.Send(&umad.Packet{Agent: id, Timeout: 20 * time.Millisecond, Retries: 1, Addr: dr, MAD: lost}); err != nil {
			g.Error(err)
		} else if err := p.Recv(&k); err != nil || k.Status != syscall.ETIMEDOUT || binary.BigEndian.Uint32(k.MAD[12:]) != 99 {
			g.Errorf("lost request: %+v, %v", k.Status, err)
		}
		// Methods belong to one agent on a port.
		sm := umad.Agent{QPN: 0, Class: 0x81, Version: 1, Methods: []uint8{1, 2, 5, 7}}
		if _, err := p.Register(sm); err != nil {
			g.Fatal(err)
		}
		other, err := umad.Open(context.Background(), "umad0")
		if err != nil {
			g.Fatal(err)
		}
		if _, err := other.Register(sm); !errors.Is(err, unix.EINVAL) {
			g.Errorf("second subnet manager's agent: %v, want EINVAL", err)
		}
		if err := p.Unregister(id); err != nil {
			g.Error(err)
		}
		if err := p.Send(&umad.Packet{Agent: id, Addr: dr, MAD: smp(1, 0x11, 0, 1)}); !errors.Is(err, unix.EIO) {
			g.Errorf("send as an agent that is gone: %v", err)
		}

		// IsSM is visible while issm is open, and only one can have it.
		is, err := umad.OpenISSM("issm0")
		if err != nil {
			g.Fatal(err)
		}
		if _, err := umad.OpenISSM("issm0"); !errors.Is(err, umad.ErrSMRunning) {
			g.Errorf("second holder: %v", err)
		}
		capMask := func() uint32 {
			pt, err := sysfs.New("/").IBPort("swib0", 1)
			if err != nil || pt.CapMask == nil {
				g.Fatalf("%+v, %v", pt, err)
			}
			return *pt.CapMask
		}
		const isSM = 1 << 1
		g.Wait("IsSM", 2*time.Second, func() bool { return capMask()&isSM != 0 })
		if err := is.Close(); err != nil {
			g.Error(err)
		}
		g.Wait("IsSM gone", 2*time.Second, func() bool { return capMask()&isSM == 0 })

		// A waiting Recv ends with its context, its deadline, and its device.
		ctx, cancel := context.WithCancel(context.Background())
		w, err := umad.Open(ctx, "umad0")
		if err != nil {
			g.Fatal(err)
		}
		end := make(chan error)
		wait := func(p *umad.Port) error {
			go func() { var k umad.Packet; end <- p.Recv(&k) }()
			select {
			case err := <-end:
				return err
			case <-time.After(5 * time.Second):
				return errors.New("still waiting")
			}
		}
		if err := w.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			g.Error(err)
		}
		if err := wait(w); !errors.Is(err, os.ErrDeadlineExceeded) {
			g.Errorf("after the deadline: %v", err)
		}
		_ = w.SetReadDeadline(time.Time{})
		time.AfterFunc(20*time.Millisecond, cancel)
		if err := wait(w); !errors.Is(err, os.ErrClosed) {
			g.Errorf("after the end of the context: %v", err)
		}
		if _, err := other.Register(umad.Agent{QPN: 0, Class: 0x81, Version: 1}); err != nil {
			g.Fatal(err)
		}
		go g.Ctl("del 0")
		if err := wait(other); err == nil || errors.Is(err, os.ErrClosed) {
			g.Errorf("after the device is gone: %v", err)
		} else {
			g.Logf("device gone: %v", err)
		}
		if err := p.Close(); err != nil {
			g.Error(err)
		}
	})
}

func TestRoCE(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.Exec("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb")
		g.Exec("ip", "link", "set", "va", "up")
		g.Exec("ip", "link", "set", "vb", "up")
		g.Exec("ip", "addr", "add", "10.7.0.1/24", "dev", "va")
		c, err := rdmanl.Dial()
		if err != nil {
			g.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		for _, kind := range []string{"rxe", "siw"} {
			name := kind + "7"
			if err := c.Do(rdmanl.NewLink(name, kind, "va")); err != nil {
				g.Errorf("%v", err)
				continue
			}
			devs, err := c.Devices()
			if err != nil {
				g.Fatal(err)
			}
			var dev rdmanl.Device
			for _, d := range devs {
				if d.Name == name {
					dev = d
				}
			}
			ports, err := c.Ports([]rdmanl.Device{dev})
			if err != nil || len(ports) != 1 || ports[0].Netdev != "va" || ports[0].HasIB {
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
		if err != nil {
			g.Fatal(err)
		}
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
	if err != nil {
		g.Fatal(err)
	}
	if pt, err := f.PortType(d.Bus.Bus, d.Bus.Name, 1); err != nil || pt.Current != "ib" {
		g.Fatalf("port type %+v, %v", pt, err)
	}
	if err := f.SetPortType(d.Bus.Bus, d.Bus.Name, 1, "eth"); err != nil {
		g.Fatal(err)
	}
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
		if err != nil {
			g.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		s, err := c.Get(link)
		if err != nil {
			g.Fatal(err)
		}
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
		if err != nil {
			g.Fatal(err)
		}
		g.Cleanup(func() { _ = ev.Close() }) // after the last look at it
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
		if err != nil {
			g.Fatal(err)
		}
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
		if err != nil {
			g.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		ev, err := c.Listen(0)
		if err != nil {
			g.Fatal(err)
		}
		defer func() { _ = ev.Close() }()
		g.Sh("echo '10 2' > /sys/bus/netdevsim/new_device")
		ports, err := c.Ports()
		if err != nil {
			g.Fatal(err)
		}
		n := 0
		for _, p := range ports {
			if p.Dev == "netdevsim10" && p.Type == devlink.TypeEth && p.Netdev != "" && p.IfIndex != 0 {
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
		if err := kerneltest.Until(ev, func(all []devlink.Event, _ bool) bool {
			return slices.ContainsFunc(all, func(e devlink.Event) bool { return e.Dev == "netdevsim10" && e.IsPort && !e.Gone })
		}); err != nil {
			g.Errorf("devlink event: %v", err)
		}
	})
}

// TestBytes compares requests with those of iproute2, as the kernel's netlink
// tap sees both.
func TestBytes(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		runtime.LockOSThread() // the tap sees all of one network namespace
		link := ethernet(g)
		g.Exec("ip", "link", "add", "nlmon0", "type", "nlmon")
		g.Exec("ip", "link", "set", "nlmon0", "up")
		g.Sh("echo '11 1' > /sys/bus/netdevsim/new_device")
		rt := dialRT(g)
		dl, err := devlink.Dial()
		if err != nil {
			g.Fatal(err)
		}
		dc, err := dcb.Dial()
		if err != nil {
			g.Fatal(err)
		}
		ib1, eth := waitLink(g, rt, "ib1"), waitLink(g, rt, link)
		mac, err := ib.ParseHWAddr("02:00:00:00:00:07")
		if err != nil {
			g.Fatal(err)
		}
		state, err := dc.Get(link)
		if err != nil {
			g.Fatal(err)
		}
		vf := func(c rtnl.VFChange) func() { return func() { _ = rt.Do(rtnl.SetVF(ib1.Index, 0, c)) } }
		pfc := *state.PFC
		pfc.Enabled |= 1 << 3
		ets := *state.ETS
		ets.TSA[0], ets.TxBW[0], ets.PrioTC[3] = dcb.ETS, 100, 3
		buffer := *state.Buffer
		buffer.PrioBuffer[3] = 1
		app := dcb.App{Selector: dcb.DSCP, Priority: 3, Protocol: 26}
		for _, tt := range []struct {
			family  int
			command string
			ours    func()
		}{
			{unix.NETLINK_GENERIC, "devlink port set netdevsim/netdevsim11/0 type eth",
				func() { _ = dl.Do(dl.SetPortType("netdevsim", "netdevsim11", 0, devlink.TypeEth)) }},
			{unix.NETLINK_ROUTE, "dcb app add dev " + link + " dscp-prio 26:3", func() { _ = dc.AddApps(link, app) }},
			{unix.NETLINK_ROUTE, "dcb app del dev " + link + " dscp-prio 26:3", func() { _ = dc.DelApps(link, app) }},
			{unix.NETLINK_ROUTE, "dcb pfc set dev " + link + " prio-pfc 3:on", func() { _ = dc.SetPFC(link, pfc) }},
			{unix.NETLINK_ROUTE, "dcb ets set dev " + link + " tc-tsa 0:ets tc-bw 0:100 prio-tc 3:3", func() { _ = dc.SetETS(link, ets) }},
			{unix.NETLINK_ROUTE, "dcb buffer set dev " + link + " prio-buffer 3:1", func() { _ = dc.SetBuffer(link, buffer) }},
			{unix.NETLINK_ROUTE, "dcb dcbx set dev " + link + " host ieee", func() { _ = dc.SetDCBX(link, dcb.DCBXHost|dcb.DCBXIEEE) }},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 node_guid 00:02:c9:03:00:0a:bc:de",
				vf(rtnl.VFChange{NodeGUID: ptr(ib.GUID(0x0002c903000abcde))})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 port_guid 00:02:c9:03:00:0a:bc:df",
				vf(rtnl.VFChange{PortGUID: ptr(ib.GUID(0x0002c903000abcdf))})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 state enable", vf(rtnl.VFChange{LinkState: ptr(rtnl.VFEnable)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 state disable", vf(rtnl.VFChange{LinkState: ptr(rtnl.VFDisable)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 state auto", vf(rtnl.VFChange{LinkState: ptr(rtnl.VFAuto)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 trust off", vf(rtnl.VFChange{Trust: ptr(false)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 spoofchk on", vf(rtnl.VFChange{SpoofCheck: ptr(true)})},
			{unix.NETLINK_ROUTE, "ip link set dev " + link + " vf 0 mac 02:00:00:00:00:07",
				func() { _ = rt.Do(rtnl.SetVF(eth.Index, 0, rtnl.VFChange{MAC: mac})) }},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 vlan 7", vf(rtnl.VFChange{VLAN: ptr(uint16(7))})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 vlan 7 qos 3", vf(rtnl.VFChange{VLAN: ptr(uint16(7)), QoS: 3})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 vlan 7 qos 3 proto 802.1ad",
				vf(rtnl.VFChange{VLAN: ptr(uint16(7)), QoS: 3, VLANProto: unix.ETH_P_8021AD})},
			{unix.NETLINK_ROUTE, "ip link add link " + link + " name v7 type vlan id 7", func() {
				_ = rt.Do(rtnl.NewVLAN(rtnl.VLANSpec{Parent: eth.Index, Name: "v7", ID: 7}))
			}},
			{unix.NETLINK_ROUTE, "ip link add link " + link + " name v8 type vlan protocol 802.1ad id 8 reorder_hdr off gvrp on " +
				"loose_binding on ingress-qos-map 1:2 egress-qos-map 3:4", func() {
				_ = rt.Do(rtnl.NewVLAN(rtnl.VLANSpec{Parent: eth.Index, Name: "v8", ID: 8, Protocol: unix.ETH_P_8021AD,
					ReorderHeader: ptr(false), GVRP: ptr(true), LooseBinding: ptr(true),
					Ingress: []rtnl.QoSMap{{From: 1, To: 2}}, Egress: []rtnl.QoSMap{{From: 3, To: 4}}}))
			}},
			{unix.NETLINK_ROUTE, "ip link set dev v8 type vlan gvrp off ingress-qos-map 1:0 egress-qos-map 3:0 5:5", func() {
				v8, err := rt.LinkByName("v8", false)
				if err != nil {
					g.Fatal(err)
				}
				_ = rt.Do(rtnl.SetVLAN(v8.Index, rtnl.VLANSpec{GVRP: ptr(false), Ingress: []rtnl.QoSMap{{From: 1}},
					Egress: []rtnl.QoSMap{{From: 3}, {From: 5, To: 5}}}))
				v8, err = rt.LinkByName("v8", false)
				if want := (rtnl.VLAN{ID: 8, Protocol: unix.ETH_P_8021AD, Flags: 4, Egress: map[uint32]uint32{5: 5}}); err != nil ||
					!cmp.Equal(*v8.VLAN, want) {
					g.Errorf("v8 is %+v, %v, want %+v", v8.VLAN, err, want)
				}
			}},
			{unix.NETLINK_ROUTE, "dcb pfc set dev " + link + " delay 300", func() { p := pfc; p.Delay = 300; _ = dc.SetPFC(link, p) }},
			{unix.NETLINK_ROUTE, "dcb app add dev " + link + " dscp-prio 26:3 48:6", func() {
				_ = dc.AddApps(link, app, dcb.App{Selector: dcb.DSCP, Priority: 6, Protocol: 48})
			}},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 trust on", vf(rtnl.VFChange{Trust: ptr(true)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 spoofchk off", vf(rtnl.VFChange{SpoofCheck: ptr(false)})},
			{unix.NETLINK_ROUTE, "ip link set dev ib1 vf 0 max_tx_rate 100 min_tx_rate 10",
				vf(rtnl.VFChange{MinTxRate: ptr(10), MaxTxRate: ptr(100)})},
		} {
			args := strings.Fields(tt.command)
			var out string
			theirs := canonical(tt.family, kerneltest.Requests(g.T, "nlmon0", tt.family, func() { out, _ = g.Try(args[0], args[1:]...) }))
			ours := canonical(tt.family, kerneltest.Requests(g.T, "nlmon0", tt.family, tt.ours))
			// The tools ask before they set; the last request is the change. They
			// leave the port id to the kernel, which fills it into its answers.
			theirs = slices.DeleteFunc(theirs, func(m []byte) bool { return binary.NativeEndian.Uint32(m[12:]) != 0 })
			if len(theirs) == 0 || len(ours) == 0 {
				g.Errorf("%s: %d requests, ours %d\n%s", tt.command, len(theirs), len(ours), out)
				continue
			}
			want := theirs[len(theirs)-1]
			clear(want[8:16])
			same := slices.ContainsFunc(ours, func(m []byte) bool {
				clear(m[8:16])
				return cmp.Equal(m, want)
			})
			if !same {
				g.Errorf("%s:\nsends\n% x\nwe send\n% x\n%s", tt.command, want, ours[len(ours)-1], out)
			}
		}
	})
}

// canonical zeroes what a tool leaves to chance: padding, and the version of a
// generic netlink family, which iproute2 before 6.8 forgot to fill in.
func canonical(family int, ms [][]byte) [][]byte {
	head := map[uint16]int{unix.RTM_SETDCB: 4, unix.RTM_GETDCB: 4, unix.RTM_NEWLINK: 16, unix.RTM_SETLINK: 16, unix.RTM_GETLINK: 16}
	for _, m := range ms {
		if family == unix.NETLINK_GENERIC {
			m[17], m[18], m[19] = 0, 0, 0
			kerneltest.ClearPadding(m, 20)
		} else if n, ok := head[binary.NativeEndian.Uint16(m[4:])]; ok {
			kerneltest.ClearPadding(m, 16+n)
		}
	}
	return ms
}

// rename gives an RDMA device a new name: RDMA_NLDEV_CMD_SET of rdma_netlink.h.
func rename(index uint32, name string) rtnl.Request {
	const nldev, set, attrIndex, attrName = 5, 2, 1, 2
	return nl.NewRequest("rename an RDMA device", nldev<<10|set, 0, nl.Build().Uint32(attrIndex, index).String(attrName, name))
}

// TestUsers counts who has a device open, and their connections.
func TestUsers(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.Sh("ip link add va type veth peer name vb; ip link set vb up; ip link set va up; ip address add 10.8.0.1/24 dev va; rdma link " +
			"add rxe0 type rxe netdev va")
		c, err := rdmanl.Dial()
		if err != nil {
			g.Fatal(err)
		}
		devs, err := c.Devices()
		if err != nil {
			g.Fatal(err)
		}
		i := slices.IndexFunc(devs, func(d rdmanl.Device) bool { return d.Name == "rxe0" })
		users := func(some bool) {
			g.Helper()
			g.WaitFor(10*time.Second, func() string {
				u, err := c.Users(devs[i].Index)
				if err != nil || u.Programs > 0 != some || u.Connections > 0 != some {
					return fmt.Sprintf("%+v, %v, want some: %v", u, err, some)
				}
				return ""
			})
		}
		users(false)
		p := g.Start("rping", "-s", "-a", "10.8.0.1")
		users(true)
		p.Kill()
		users(false)
		if _, err := c.Users(4711); err == nil {
			g.Error("a device that is not there has users")
		}
	})
}

// TestRDMABytes does what TestBytes does for a family that the tap does not
// show: strace prints what the tool sends.
func TestRDMABytes(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		g.Exec("ip", "link", "add", "va", "type", "veth", "peer", "name", "vb")
		rd, err := rdmanl.Dial()
		if err != nil {
			g.Fatal(err)
		}
		index := func(name string) uint32 {
			devs, err := rd.Devices()
			if err != nil {
				g.Fatal(err)
			}
			for _, d := range devs {
				if d.Name == name {
					return d.Index
				}
			}
			g.Fatalf("no device %s", name)
			return 0
		}
		for _, tt := range []struct {
			command string
			ours    func() rtnl.Request // asked for before the command runs
		}{
			{"rdma link add rxe0 type rxe netdev va", func() rtnl.Request { return rdmanl.NewLink("rxe0", "rxe", "va") }},
			{"rdma dev set rxe0 name rxe1", func() rtnl.Request { return rename(index("rxe0"), "rxe1") }},
			{"rdma link delete rxe1", func() rtnl.Request { return rdmanl.DelLink(index("rxe1")) }},
		} {
			r := tt.ours()
			if r.Err != nil {
				g.Error(r.Err)
				continue
			}
			h := binary.NativeEndian
			want := h.AppendUint32(nil, uint32(16+len(r.Data)))
			want = h.AppendUint16(want, r.Type)
			want = h.AppendUint16(want, unix.NLM_F_REQUEST|unix.NLM_F_ACK|uint16(r.Flags))
			want = append(append(want, make([]byte, 8)...), r.Data...)
			args := append([]string{"-e", "trace=sendto,sendmsg", "-e", "write=3,4,5"}, strings.Fields(tt.command)...)
			out := g.Exec("strace", args...)
			sent := straceWrites(out)
			if len(sent) == 0 {
				g.Errorf("%s: nothing seen in\n%s", tt.command, out)
				continue
			}
			got := sent[len(sent)-1]
			clear(got[8:16])
			kerneltest.ClearPadding(got, 16)
			if !cmp.Equal(got, want) {
				g.Errorf("%s:\nsends\n% x\nwe send\n% x", tt.command, got, want)
			}
		}
	})
}

// straceWrites reads the hex dumps of strace -e write.
func straceWrites(out string) (ms [][]byte) {
	for line := range strings.Lines(out) {
		f, ok := strings.CutPrefix(line, " | ")
		if !ok || len(f) < 6 {
			continue
		}
		if f[:5] == "00000" {
			ms = append(ms, nil)
		}
		f = f[5:]
		if i := strings.LastIndex(f[:min(len(f), 56)], "  "); len(f) > 54 && i > 0 {
			f = f[:54]
		}
		for _, x := range strings.Fields(f) {
			b, err := hex.DecodeString(x)
			if err != nil || len(b) != 1 {
				break
			}
			ms[len(ms)-1] = append(ms[len(ms)-1], b[0])
		}
	}
	return ms
}

func TestVirtualFunctions(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		f := sysfs.New("/")
		g.Sh("echo '12 1' > /sys/bus/netdevsim/new_device")
		const bus, dev = "netdevsim", "netdevsim12"
		if err := f.SetNumVFs(bus, dev, 2); err != nil {
			g.Fatal(err)
		}
		es, err := os.ReadDir("/sys/bus/netdevsim/devices/netdevsim12/net")
		if err != nil || len(es) == 0 {
			g.Fatalf("%v, %v", es, err)
		}
		c := dialRT(g)
		l := waitLink(g, c, es[0].Name())
		mac, err := ib.ParseHWAddr("02:00:00:00:00:07")
		if err != nil {
			g.Fatal(err)
		}
		for _, err := range c.DoAll([]rtnl.Request{
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{MAC: mac}),
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{LinkState: ptr(rtnl.VFEnable)}),
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{Trust: ptr(true), SpoofCheck: ptr(true)}),
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{MinTxRate: ptr(10), MaxTxRate: ptr(100)}),
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{VLAN: ptr(uint16(7))}),
		}) {
			if err != nil {
				g.Error(err)
			}
		}
		got, err := c.LinkByIndex(l.Index, true)
		if err != nil || got.NumVF != 2 || len(got.VFs) != 2 {
			g.Fatalf("%+v, %v", got, err)
		}
		want := rtnl.VF{Index: 1, MAC: mac, VLAN: 7, VLANProto: unix.ETH_P_8021Q, LinkState: ptr(rtnl.VFEnable), Trust: ptr(true),
			SpoofCheck: ptr(true), MinTxRate: 10, MaxTxRate: 100}
		if diff := cmp.Diff(want, got.VFs[1], cmp.Comparer(func(a, b ib.HWAddr) bool { return a == b })); diff != "" {
			g.Errorf("(-want +got):\n%s", diff)
		}
		node := ib.GUID(0x0002c903000abcde)
		err = c.Do(rtnl.SetVF(l.Index, 1, rtnl.VFChange{NodeGUID: &node}))
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
			g.Errorf("GUID on an Ethernet function: %v", err)
		}
		// The dump has the functions only if asked for.
		for _, vfs := range []bool{false, true} {
			ls, err := c.Links(vfs)
			if err != nil {
				g.Fatal(err)
			}
			for _, l := range ls {
				if l.Index == got.Index && (len(l.VFs) == 2) != vfs {
					g.Errorf("asked for functions %v: %+v", vfs, l)
				}
			}
		}

		// GUIDs on an adapter that has them.
		d, err := f.IBDevice("swib0")
		if err != nil {
			g.Fatal(err)
		}
		if d.SRIOV == nil {
			g.Log("the adapter is not a PCI function here and has no virtual functions")
			return
		}
		if err := f.SetNumVFs(d.Bus.Bus, d.Bus.Name, 2); err != nil {
			g.Fatal(err)
		}
		if err := f.SetNumVFs(d.Bus.Bus, d.Bus.Name, 1); !errors.Is(err, unix.EBUSY) {
			g.Errorf("from 2 to 1: %v, want EBUSY", err)
		}
		l = waitLink(g, c, "ib0")
		port := ib.GUID(0x0002c903000abcdf)
		for _, err := range c.DoAll([]rtnl.Request{
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{NodeGUID: &node}), rtnl.SetVF(l.Index, 1, rtnl.VFChange{PortGUID: &port}),
		}) {
			if err != nil {
				g.Error(err)
			}
		}
		if got, err = c.LinkByIndex(l.Index, true); err != nil || len(got.VFs) != 2 {
			g.Fatalf("%+v, %v", got, err)
		}
		if vf := got.VFs[1]; vf.NodeGUID == nil || *vf.NodeGUID != node || vf.PortGUID == nil || *vf.PortGUID != port {
			g.Errorf("%+v", vf)
		}
	})
}
