package rdmanl

import (
	"errors"
	"path/filepath"
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
)

func deviceMessage(t testing.TB) []byte {
	return kerneltest.Bytes(t, nl.Build().Uint32(attrDevIndex, 3).String(attrDevName, "mlx5_0").Uint32(attrPortIndex, 2).
		String(attrFWVersion, "20.31.1014").Uint64(attrNodeGUID, 0x0002c903000abcde).Uint64(attrSysImageGUID, 0x0002c903000abce1).
		Uint8(attrNodeType, 1).String(attrProtocol, "ib"))
}

func portMessage(t testing.TB) []byte {
	return kerneltest.Bytes(t, nl.Build().Uint32(attrDevIndex, 3).String(attrDevName, "mlx5_0").Uint32(attrPortIndex, 2).
		Uint64(attrCapFlags, 0x0251084a).Uint64(attrSubnetPrefix, ib.DefaultPrefix).Uint32(attrLID, 7).Uint32(attrSMLID, 1).Uint8(attrLMC, 2).
		Uint8(attrPortState, 4).Uint8(attrPortPhysState, 5))
}

func TestDecode(t *testing.T) {
	d, err := decodeDevice(deviceMessage(t))
	testkit.NoError(t, err)
	testkit.Diff(t, "device", Device{
		Index: 3, Name: "mlx5_0", Ports: 2, FWVersion: "20.31.1014", NodeGUID: 0x0002c903000abcde, SysImageGUID: 0x0002c903000abce1,
		NodeType: 1, Protocol: "ib",
	}, d)
	p, err := decodePort(portMessage(t))
	testkit.NoError(t, err)
	testkit.Diff(t, "port", Port{
		DevIndex: 3, Port: 2, State: ib.PortActive, Phys: 5, LID: 7, SMLID: 1, LMC: 2,
		SubnetPrefix: ib.DefaultPrefix, CapFlags: 0x0251084a,
	}, p)
	// A RoCE port: no LIDs, but a network interface.
	p, err = decodePort(kerneltest.Bytes(t, nl.Build().Uint32(attrDevIndex, 1).String(attrDevName, "rxe0").Uint32(attrPortIndex,
		1).Uint8(attrPortState, 4).
		Uint8(attrPortPhysState, 5).Uint32(attrNdevIndex, 9).String(attrNdevName, "eth0")))
	if err != nil || p.LID != 0 || p.NetdevIndex != 9 {
		t.Errorf("RoCE port: %+v, %v", p, err)
	}
}

func TestDecodeEvent(t *testing.T) {
	n := 0
	for _, typ := range []uint16{msgType(cmdMonitor), msgType(cmdGet)} {
		decodeEvent(typ, nil, func(Event) { n++ })
	}
	if n != 1 {
		t.Errorf("%d events, want that of the monitor command", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(deviceMessage(f))
	f.Add(portMessage(f))
	files, _ := filepath.Glob("testdata/*.bin")
	for _, n := range files {
		b := testkit.ReadFile(f, n)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := decodeDevice(b)
		if err == nil && (d.Ports < 0 || d.Ports > 254) {
			t.Errorf("%d ports", d.Ports)
		}
		_, _ = decodePort(b)
		_, _ = decodeSystem(b)
		if u, _ := decodeUsers(b); u.Programs < 0 || u.Connections < 0 {
			t.Errorf("%+v", u)
		}
	})
}

// TestLive compares RDMA netlink with sysfs on a kernel that has devices.
func TestLive(t *testing.T) {
	kerneltest.NeedRoot(t)
	c, err := Dial()
	if errors.Is(err, ErrNoRDMA) {
		t.Skip(err)
	}
	testkit.NoError(t, err)
	defer func() { _ = c.Close() }()
	devs, err := c.Devices()
	if errors.Is(err, ErrNoRDMA) {
		t.Skip(err)
	}
	testkit.NoError(t, err)
	ports, err := c.Ports(devs)
	testkit.NoError(t, err)
	fs := sysfs.New("/")
	want, err := fs.IBDevices()
	testkit.NoError(t, err)
	if len(want) != len(devs) {
		t.Fatalf("sysfs has %d devices, netlink %d", len(want), len(devs))
	}
	byName := map[string]Device{}
	for _, d := range devs {
		byName[d.Name] = d
	}
	n := 0
	for _, w := range want {
		d := byName[w.Name]
		if d.NodeGUID != w.NodeGUID || d.Ports != len(w.Ports) {
			t.Errorf("netlink %+v\nsysfs %+v", d, w)
		}
		for _, wp := range w.Ports {
			n++
			for _, p := range ports {
				if p.DevIndex != d.Index || p.Port != wp.Num {
					continue
				}
				if p.State != wp.State || p.Phys != wp.Phys {
					t.Errorf("%s/%d: netlink %v %v, sysfs %v %v", w.Name, wp.Num, p.State, p.Phys, wp.State, wp.Phys)
				}
				if p.SMLID != 0 && (p.LID != wp.LID || p.SMLID != wp.SMLID || p.SubnetPrefix != 0 && p.SubnetPrefix != wp.GID.Prefix()) {
					t.Errorf("%s/%d: netlink %+v, sysfs %+v", w.Name, wp.Num, p, wp)
				}
			}
		}
	}
	if n != len(ports) {
		t.Errorf("sysfs has %d ports, netlink %d", n, len(ports))
	}
	t.Logf("%d devices and %d ports agree", len(devs), n)
}

func TestRecorded(t *testing.T) {
	kerneltest.Golden(t, "device", decodeDevice)
	kerneltest.Golden(t, "port", decodePort)
	kerneltest.Golden(t, "system", decodeSystem)
}
