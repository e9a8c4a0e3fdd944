package kernel_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/kernel/uevent"
	"ibnetworkd/internal/kernel/umad"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab"
)

func dialRT(g *lab.G) *rtnl.Conn {
	c, err := rtnl.Dial()
	testkit.NoError(g, err)
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
			testkit.NoError(g, err)
			return l
		}
		do(rtnl.SetLink(l.Index, rtnl.LinkChange{Up: new(true)}))
		g.Wait("carrier", 5*time.Second, func() bool { return again().Carrier })
		do(rtnl.SetLink(l.Index, rtnl.LinkChange{Mode: new(ib.ModeConnected)}),
			rtnl.SetLink(l.Index, rtnl.LinkChange{MTU: 65520, UMcast: new(true)}))
		if l := again(); l.IPoIB.Mode != ib.ModeConnected || l.MTU != 65520 || !l.IPoIB.UMcast {
			g.Errorf("after the change: %+v %+v", l, l.IPoIB)
		}
		// sysfs has the same to say, and the kernel takes a mode there.
		if mode, umcast := g.Read("/sys/class/net/ib0/mode"), g.Read("/sys/class/net/ib0/umcast"); mode != "connected" || umcast != "1" {
			g.Errorf("sysfs: mode %q, umcast %q", mode, umcast)
		}
		g.Write("/sys/class/net/ib0/mode", "datagram\n")
		if l := again(); l.IPoIB.Mode != ib.ModeDatagram {
			g.Errorf("after sysfs: %+v", l.IPoIB)
		}
		do(rtnl.NewIPoIBChild(rtnl.IPoIBChild{Parent: l.Index, Name: "part1", PKey: 0x0001}))
		ch := waitLink(g, c, "part1")
		do(rtnl.SetLink(ch.Index, rtnl.LinkChange{Mode: new(ib.ModeConnected)}))
		ch = waitLink(g, c, "part1")
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
		testkit.NoError(g, err)
		do(rtnl.SetLink(l.Index, rtnl.LinkChange{Up: new(false)}), rtnl.SetLink(l.Index, rtnl.LinkChange{Address: addr}))
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
		testkit.NoError(g, err)
		defer func() { _ = ev.Close() }()
		t0 := time.Now()
		for _, err := range c.DoAll(rs) {
			testkit.NoError(g, err)
		}
		made := time.Since(t0)
		t0 = time.Now()
		ls, err := c.Links(false)
		testkit.NoError(g, err)
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
		// The buffer is not read meanwhile; it has space for one or two messages.
		first := waitLink(g, c, "ib0.1")
		rs = rs[:0]
		for i := range 64 {
			rs = append(rs, rtnl.SetLink(first.Index, rtnl.LinkChange{Group: new(uint32(100 + i))}))
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
		testkit.NoError(g, c.Do(rtnl.DelLink(first.Index)))
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
		testkit.NoError(g, err)
		defer func() { _ = c.Close() }()
		devs, err := c.Devices()
		testkit.NoError(g, err)
		ports, err := c.Ports(devs)
		testkit.NoError(g, err)
		want, err := sysfs.New("/").IBDevices()
		testkit.NoError(g, err)
		if len(devs) != 3 || len(ports) != 6 || len(want) != 3 {
			g.Fatalf("%d devices and %d ports over netlink, %d devices in sysfs; want 3, 6 and 3", len(devs), len(ports), len(want))
		}
		active, at := 0, 0
		for i, w := range want {
			d := devs[i]
			if d.Name != w.Name || d.NodeGUID != w.NodeGUID || d.Ports != len(w.Ports) || d.Protocol != "ib" {
				g.Errorf("netlink %+v\nsysfs %+v", d, w)
			}
			for _, wp := range w.Ports {
				p := ports[at]
				at++
				if p.Port != wp.Num || p.State != wp.State || p.Phys != wp.Phys || p.LID != wp.LID || p.SMLID != wp.SMLID ||
					p.SubnetPrefix != 0 && p.SubnetPrefix != wp.GID.Prefix() || wp.CapMask == nil || uint32(p.CapFlags) != *wp.CapMask {
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
		testkit.NoError(g, err)
		defer func() { _ = ue.Close() }()
		testkit.NoError(g, c.Do(rename(devs[0].Index, "ibx0")))
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
		testkit.NoError(g, err)
		p := d.Ports[0]
		if d.NodeType != ib.NodeCA || p.LinkLayer != ib.LinkLayerInfiniBand || p.State != ib.PortActive || p.GUID() == 0 {
			g.Errorf("%+v", d)
		}
		if l := waitLink(g, dialRT(g), "ib0"); l.Address.GUID() != p.GUID() {
			g.Errorf("port GUID %v, address of ib0 %v", p.GUID(), l.Address)
		}
		g.Wait("P_Key", 5*time.Second, func() bool {
			out, _ := g.Try("grep", "-rlx", "0x8001", "/sys/class/infiniband/swib0/ports/1/pkeys/")
			return out != ""
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
		if d, err := f.NodeDesc("swib0"); d != "node7 HCA-1" {
			g.Errorf("node description %q, %v", d, err)
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
		testkit.NoError(g, err)
		id, err := p.Register(umad.Agent{QPN: 0, Class: 0x81, Version: 1})
		testkit.NoError(g, err)
		dr := umad.Address{QPN: 0, LID: ib.LIDPermissive}
		var k umad.Packet
		for tid := range uint64(20) {
			testkit.NoError(g, p.Send(&umad.Packet{Agent: id, Timeout: time.Second, Addr: dr, MAD: smp(1, 0x11, 0, tid+1)}))
			testkit.NoError(g, p.Recv(&k))
			if k.Agent != id || k.Status != 0 || len(k.MAD) != umad.MADSize || k.MAD[3] != 0x81 ||
				binary.BigEndian.Uint32(k.MAD[12:]) != uint32(tid+1) {
				g.Fatalf("answer %+v", k)
			}
		}
		// NodeInfo has the GUIDs of sysfs.
		d, err := sysfs.New("/").IBDevice("swib0")
		testkit.NoError(g, err)
		if got := ib.GUID(binary.BigEndian.Uint64(k.MAD[64+12:])); got != d.NodeGUID {
			g.Errorf("NodeInfo has the GUID %v, sysfs %v", got, d.NodeGUID)
		}
		// A request without an answer comes back: two hops, the second through a port of
		// the switch where nothing is.
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
		testkit.NoError(g, err)
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
		testkit.NoError(g, err)
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
		testkit.NoError(g, err)
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

func TestVirtualFunctions(t *testing.T) {
	lab.Run(t, lab.Config{Userland: lab.Debian}, func(g *lab.G) {
		f := sysfs.New("/")
		g.Sh("echo '12 1' > /sys/bus/netdevsim/new_device")
		const bus, dev = "netdevsim", "netdevsim12"
		testkit.NoError(g, f.SetNumVFs(bus, dev, 2))
		es, err := os.ReadDir("/sys/bus/netdevsim/devices/netdevsim12/net")
		if err != nil || len(es) == 0 {
			g.Fatalf("%v, %v", es, err)
		}
		c := dialRT(g)
		l := waitLink(g, c, es[0].Name())
		mac := ib.MustParseHWAddr("02:00:00:00:00:07")
		for _, err := range c.DoAll([]rtnl.Request{
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{MAC: mac}),
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{LinkState: new(rtnl.VFEnable)}),
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{Trust: new(true), SpoofCheck: new(true)}),
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{MinTxRate: new(10), MaxTxRate: new(100)}),
			rtnl.SetVF(l.Index, 1, rtnl.VFChange{VLAN: new(uint16(7))}),
		}) {
			if err != nil {
				g.Error(err)
			}
		}
		got, err := c.LinkByIndex(l.Index, true)
		if err != nil || len(got.VFs) != 2 {
			g.Fatalf("%+v, %v", got, err)
		}
		want := rtnl.VF{Index: 1, MAC: mac, VLAN: 7, VLANProto: unix.ETH_P_8021Q, LinkState: new(rtnl.VFEnable), Trust: new(true),
			SpoofCheck: new(true), MinTxRate: 10, MaxTxRate: 100}
		testkit.Diff(g, "", want, got.VFs[1], cmp.Comparer(func(a, b ib.HWAddr) bool { return a == b }))
		node := ib.GUID(0x0002c903000abcde)
		err = c.Do(rtnl.SetVF(l.Index, 1, rtnl.VFChange{NodeGUID: &node}))
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
			g.Errorf("GUID on an Ethernet function: %v", err)
		}
		// The dump has the functions only if asked for.
		for _, vfs := range []bool{false, true} {
			ls, err := c.Links(vfs)
			testkit.NoError(g, err)
			for _, l := range ls {
				if l.Index == got.Index && (len(l.VFs) == 2) != vfs {
					g.Errorf("asked for functions %v: %+v", vfs, l)
				}
			}
		}

		// GUIDs on an adapter that has them.
		pf, fns, err := f.NetDevice("ib0")
		testkit.NoError(g, err)
		if fns == nil {
			g.Log("the adapter is not a PCI function here and has no virtual functions")
			return
		}
		testkit.NoError(g, f.SetNumVFs(pf.Bus, pf.Name, 2))
		if err := f.SetNumVFs(pf.Bus, pf.Name, 1); !errors.Is(err, unix.EBUSY) {
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
