package card

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/modules"
	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/internal/kernel/sysfs"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

const (
	pf  = "0000:3b:00.0"
	fn0 = "0000:3b:00.1"
	fn1 = "0000:3b:00.2"
)

// tree is sysfs, configfs and procfs of a host with one card, as files.
type tree struct {
	*testing.T
	root string
}

func newTree(t *testing.T) tree {
	x := tree{t, t.TempDir()}
	const dir = "sys/devices/pci/" + pf
	for _, d := range []string{"sys/bus/pci/drivers/mlx5_core", "sys/class/net", "sys/class/infiniband", "sys/bus/pci/devices",
		"sys/module/ib_core"} {
		x.dir(d)
	}
	for _, d := range []string{pf, fn0, fn1} {
		x.dir("sys/devices/pci/" + d)
		x.link("sys/bus/pci/devices/"+d, "sys/devices/pci/"+d)
		x.link("sys/devices/pci/"+d+"/subsystem", "sys/bus/pci")
		x.link("sys/devices/pci/"+d+"/driver", "sys/bus/pci/drivers/mlx5_core")
		x.write("sys/devices/pci/"+d+"/driver_override", "(null)\n")
	}
	x.write("sys/bus/pci/drivers/mlx5_core/unbind", "")
	x.write("sys/bus/pci/drivers_probe", "")
	for f, text := range map[string]string{"sriov_totalvfs": "8", "sriov_numvfs": "2", "sriov_drivers_autoprobe": "1",
		"mlx4_port1": "auto (ib)", "mlx4_port2": "eth"} {
		x.write(dir+"/"+f, text+"\n")
	}
	x.link(dir+"/virtfn0", "sys/devices/pci/"+fn0)
	x.link(dir+"/virtfn1", "sys/devices/pci/"+fn1)
	for _, n := range []string{"lo"} {
		x.dir(dir + "/net/" + n)
		x.link(dir+"/net/"+n+"/device", dir)
		x.link("sys/class/net/"+n, dir+"/net/"+n)
	}
	x.rdma("mlx5_0", pf, "0002:c903:0000:0001")
	x.rdma("mlx5_1", fn0, "0002:c903:0000:0011")
	return x
}

func (x tree) path(p string) string { return filepath.Join(x.root, p) }

func (x tree) dir(p string) {
	x.Helper()
	testkit.NoError(x, os.MkdirAll(x.path(p), 0o755))
}

func (x tree) link(p, to string) {
	x.Helper()
	x.dir(filepath.Dir(p))
	testkit.NoError(x, os.Symlink(x.path(to), x.path(p)))
}

func (x tree) write(p, text string) {
	x.Helper()
	x.dir(filepath.Dir(p))
	testkit.NoError(x, os.WriteFile(x.path(p), []byte(text), 0o644))
}

func (x tree) read(p string) string {
	b, _ := os.ReadFile(x.path(p))
	return strings.TrimSpace(string(b))
}

// rdma makes an RDMA device with one port and a GID table of two entries.
func (x tree) rdma(name, on, guid string) {
	dir := "sys/devices/pci/" + on + "/infiniband/" + name
	x.link("sys/class/infiniband/"+name, dir)
	x.link(dir+"/device", "sys/devices/pci/"+on)
	for f, text := range map[string]string{
		"node_guid": guid, "node_desc": "node7", "node_type": "1: CA", "sys_image_guid": guid, "fw_ver": "1",
		"ports/1/gids/0": "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "ports/1/gid_attrs/types/0": "IB/RoCE v1", "ports/1/gid_attrs/ndevs/0": "lo",
		"ports/1/gids/1": "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "ports/1/gid_attrs/types/1": "RoCE v2", "ports/1/gid_attrs/ndevs/1": "lo",
		"ports/1/gids/2": "0000:0000:0000:0000:0000:0000:0000:0000", "ports/1/gid_attrs/types/2": "", "ports/1/gid_attrs/ndevs/2": "",
	} {
		x.write(dir+"/"+f, text+"\n")
	}
}

// snapshot has the card's link under the name of the loopback, which every kernel
// has.
func snapshot() *link.Snapshot {
	port := link.Port{Num: 1, Layer: ib.LinkLayerEthernet, State: ib.PortActive, Netdev: 1}
	return &link.Snapshot{
		Links: []link.Link{{Index: 1, Name: "lo", IBDevice: "mlx5_0", Port: 1, Driver: "mlx5_core", DevPath: "/devices/pci/" + pf,
			Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.8.0.1/24")}}},
			{Index: 7, Name: "vf0", Flags: link.FlagUp, DevPath: "/devices/pci/" + fn0}},
		Devices: []link.Device{
			{Name: "mlx5_0", Index: 1, Parent: pf, Bus: "pci", Driver: "mlx5_core", NodeGUID: 1, Ports: []link.Port{port}},
			{Name: "mlx5_1", Index: 2, Parent: fn0, Bus: "pci", NodeGUID: 0x11, Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerInfiniBand}}},
			{Name: "rxe0", Index: 3, Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerEthernet, Netdev: 1}}},
		},
	}
}

const everySection = `[Match]
Name=lo
[Port]
Type=eth
NodeDescription=node7
[RoCE]
Version=2
DSCP=26
PFC=3
ECN=3
WriteModprobeFile=yes
[SoftRoCE]
Driver=rxe
[VirtualFunctions]
Count=2
`

func unitOf(t *testing.T, text string) *units.Unit {
	t.Helper()
	set := units.Load([]units.Root{{Path: "/etc/systemd/network",
		FS: fstest.MapFS{"10.ibnetwork": &fstest.MapFile{Data: []byte(text), Mode: 0o644}}}})
	if len(set.Units) != 1 || len(set.Problems) > 0 {
		t.Fatalf("%v", set.Problems)
	}
	return set.Units[0]
}

// observer is an Observer of a tree, until the test ends.
func observer(t *testing.T, root string) *Observer {
	t.Helper()
	rt, err := rtnl.Dial()
	testkit.NoError(t, err)
	o := New(root, rt, Config{})
	t.Cleanup(func() { _, _ = o.Close(), rt.Close() })
	return o
}

// One look reads everything that a unit asks for; the next reads only what it is
// asked to, and what the card's worker changes not at all.
func TestObserveCard(t *testing.T) {
	kerneltest.Isolate(t)
	x := newTree(t)
	o := observer(t, x.root)
	u := unitOf(t, everySection)
	s := snapshot()
	var soon []time.Duration
	o.cfg.Later = func(_ int, after time.Duration) { soon = append(soon, after) }
	alone := unitOf(t, "[Match]\nIBDevice=mlx5_1\n[Port]\nNodeDescription=node7\nType=ib\n")
	look := func(again bool) *roce.State {
		o.Observe(s, func(l *link.Link) *units.Unit {
			if l.Name == "lo" {
				return u
			}
			return nil
		}, func(*link.Device, *link.Port) *units.Unit { return alone }, func(int) (bool, bool) { return again, again })
		return s.Card
	}
	st := look(true)
	if st == nil {
		t.Fatal("nothing was read")
	}
	l, p := st.Links[1], st.Devices["mlx5_0"].Ports[1]
	if v := l.SRIOV; v == nil || v.Total != 8 || len(v.VFs) != 2 || v.VFs[0].Dev != fn0 || v.VFs[0].Busy != "vf0 is up" ||
		v.VFs[0].OwnGUID != 0x11 ||
		v.VFs[1].Busy != "" || v.VFs[1].Driver != "mlx5_core" || v.Autoprobe == nil || !*v.Autoprobe {
		t.Errorf("virtual functions %+v", v)
	}
	if p.Type == nil || p.Type.Configured != units.PortTypeAuto || p.Type.Current != units.PortTypeIB || p.Type.File != "mlx4_port1" {
		t.Errorf("port type %+v", p.Type)
	}
	if len(p.GIDs) != 2 || p.GIDs[1].Version != 2 || p.GIDs[1].Netdev != "lo" {
		t.Errorf("GIDs %+v", p.GIDs)
	}
	// The GIDs lack the link's address: they are read again soon.
	if len(soon) == 0 || soon[0] != settleFirst {
		t.Errorf("read again after %v", soon)
	}
	if q, ok := st.Devices["mlx5_1"]; !ok || q.NodeDesc == nil || *q.NodeDesc != "node7" || q.Ports[1].Type != nil {
		t.Errorf("the port without a link: %+v", q)
	}
	if d := st.Devices["mlx5_0"].NodeDesc; d == nil || *d != "node7" {
		t.Errorf("node description %v", d)
	}
	testkit.Diff(t, "", []roce.SoftDevice{{Name: "rxe0", Index: 3, Driver: units.SoftRXE}}, l.Soft)

	x.write("sys/devices/pci/"+pf+"/mlx4_port1", "eth\n")
	if again := look(false); again.Devices["mlx5_0"].Ports[1].Type.Current != units.PortTypeIB {
		t.Error("read what was not to be read")
	}
	// While the worker is busy the last answer stands.
	release := make(chan struct{})
	o.workers.open = func() runner { return waiting(release) }
	o.Begin()
	var later *InProgress
	op := roce.SetVFs{On: link.TargetOf(&s.Links[0]), Bus: "pci", Dev: pf, Old: 2, Count: 4}
	if _, err := o.Apply(t.Context(), op); !errors.As(err, &later) || !later.Queued || !o.workers.working(pf) {
		t.Fatalf("%v", err)
	}
	_ = os.Remove(x.path("sys/devices/pci/" + pf + "/virtfn1"))
	if st := look(true); len(st.Links[1].SRIOV.VFs) != 2 || st.Devices["mlx5_0"].Ports[1].Type.Current != units.PortTypeIB {
		t.Error("what the worker changes was read")
	}
	if o.lastType("mlx5_0", 1) == nil {
		t.Error("the last port type is gone")
	}
	if got := o.Cancel(func(link.Op) bool { return true }); got != nil {
		t.Errorf("cancelled what has begun: %v", got)
	}
	ended := make(chan struct{})
	o.workers.ended = func() { close(ended) }
	close(release)
	<-ended
	if rs := o.Finished(); len(rs) != 1 || rs[0].Err != nil {
		t.Errorf("%+v", rs)
	}
	if st := look(true); len(st.Links[1].SRIOV.VFs) != 1 || st.Devices["mlx5_0"].Ports[1].Type.Current != units.PortTypeEth {
		t.Errorf("after the work %+v", st.Links[1].SRIOV)
	}
}

// The type of a port without a link is not read either while a worker changes it.
func TestObserveBusyPort(t *testing.T) {
	kerneltest.Isolate(t)
	x := newTree(t)
	o := observer(t, x.root)
	u := unitOf(t, "[Match]\nIBDevice=mlx5_0\n[Port]\nType=eth\n")
	s := &link.Snapshot{Devices: []link.Device{{Name: "mlx5_0", Bus: "pci", Parent: pf, Ports: []link.Port{{Num: 1}}}}}
	look := func(want units.PortType) {
		t.Helper()
		o.Observe(s, nil, func(*link.Device, *link.Port) *units.Unit { return u }, nil)
		if got := s.Card.Devices["mlx5_0"].Ports[1].Type; got == nil || got.Current != want {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	look(units.PortTypeIB)
	release, ended := make(chan struct{}), make(chan struct{})
	o.workers.open = func() runner { return waiting(release) }
	o.workers.ended = func() { close(ended) }
	o.Begin()
	op := roce.SetPortType{On: link.Target{IBDevice: "mlx5_0", Port: 1}, Port: roce.PortType{Bus: "pci", Dev: pf, File: "mlx4_port1"},
		Type: units.PortTypeEth}
	var later *InProgress
	if _, err := o.Apply(t.Context(), op); !errors.As(err, &later) || !later.Queued {
		t.Fatal(err)
	}
	x.write("sys/devices/pci/"+pf+"/mlx4_port1", "eth\n")
	look(units.PortTypeIB)
	close(release)
	<-ended
	look(units.PortTypeEth)
}

// waiting is a runner that ends its operation when the channel is closed.
type waiting chan struct{}

func (w waiting) apply(context.Context, link.Op) error { <-w; return nil }
func (waiting) rest()                                  {}

// What goes to files is written, and what did not take effect is an error with what
// is there instead.
func TestExecutorFiles(t *testing.T) {
	kerneltest.Isolate(t)
	x := newTree(t)
	e := newExecutor(sysfs.New(x.root), modules.Loader{Ask: func(context.Context, string) (bool, error) {
		return true,
			errors.New("no module")
	}})
	defer e.rest()
	on := link.Target{Link: "lo", Ifindex: 1, IBDevice: "mlx5_0", Port: 1}
	file := func(name string) string { return x.read("sys/devices/pci/" + pf + "/" + name) }
	do := func(op link.Op) error { return e.apply(t.Context(), op) }

	if err := do(roce.SetVFs{On: on, Bus: "pci", Dev: pf, Count: 2}); err != nil || file("sriov_numvfs") != "2" {
		t.Errorf("the number that there is: %v, %s", err, file("sriov_numvfs"))
	}
	// The number goes by what there is now, not by what the plan knew.
	for _, old := range []int{0, 7} {
		var not *NotTaken
		err := do(roce.SetVFs{On: on, Bus: "pci", Dev: pf, Old: old, Count: 1 << 16})
		if !errors.As(err, &not) || not.After != "the former number 2 is back" || file("sriov_numvfs") != "2" {
			t.Errorf("%v, %s", err, file("sriov_numvfs"))
		}
	}
	if err := do(roce.SetVFs{On: on, Bus: "pci", Dev: pf, Old: 2, Count: 4}); err != nil || file("sriov_numvfs") != "4" {
		t.Errorf("%v, %s", err, file("sriov_numvfs"))
	}
	if err := do(roce.SetVFs{On: on, Bus: "pci", Dev: "none", Old: 2, Count: 4}); err == nil {
		t.Error("a device that is not there")
	}
	if err := do(roce.SetAutoprobe{On: on, Bus: "pci", Dev: pf}); err != nil || file("sriov_drivers_autoprobe") != "0" {
		t.Errorf("%v, %s", err, file("sriov_drivers_autoprobe"))
	}
	typ := roce.SetPortType{On: on, Port: roce.PortType{Bus: "pci", Dev: pf, File: "mlx4_port1"}, Type: units.PortTypeEth}
	if err := do(typ); err != nil || !strings.HasPrefix(file("mlx4_port1"), "eth") {
		t.Errorf("%v, %s", err, file("mlx4_port1"))
	}
	// A function is unbound and bound, and says its GUID.
	again := roce.RebindVF{On: on, VF: 0, Bus: "pci", Dev: fn0, Node: 0x0002c90300000011}
	if err := do(again); err != nil || x.read("sys/bus/pci/drivers/mlx5_core/unbind") != fn0 || x.read("sys/bus/pci/drivers_probe") != fn0 {
		t.Errorf("%v, %q", err, x.read("sys/bus/pci/drivers_probe"))
	}
	// It was kept for its driver meanwhile (with Autoprobe=no it would get none) and is
	// free again: here the newline of the second write is over the first letter.
	if got, _ := os.ReadFile(x.path("sys/devices/pci/" + fn0 + "/driver_override")); string(got) != "\nlx5_core\n" {
		t.Errorf("driver_override %q", got)
	}
	again.Node = 0x99
	var not *NotTaken
	if err := do(again); !errors.As(err, &not) || !strings.Contains(not.Error(), "it reports the GUID") {
		t.Errorf("%v", err)
	}
	// The loopback has no virtual functions of its own.
	yes := true
	if err := do(roce.SetVF{On: on, VF: 1, Attr: roce.VFAttr{Trust: &yes}}); err == nil {
		t.Error("set an attribute of a function that is not there")
	}
	guid := ib.GUID(5)
	if err := do(roce.SetVFGUIDs{On: on, VF: 1, Bus: "pci", Dev: fn1, Node: &guid, OldNode: &guid}); err == nil {
		t.Error("set GUIDs of a function that is not there")
	}
	if err := do(roce.AddSoft{On: link.Target{Link: "lo", Ifindex: 77}, Name: "rxe9", Driver: units.SoftRXE}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("a link of another index: %v", err)
	}
	if err := do(roce.DelSoft{On: on, Name: "rxe9", Index: 99}); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Logf("no RDMA in this kernel: %v", err)
	}
}

// The quick operations write their files too.
func TestApplyFiles(t *testing.T) {
	kerneltest.Isolate(t)
	x := newTree(t)
	o := observer(t, x.root)
	on := link.Target{Link: "lo", Ifindex: 1, IBDevice: "mlx5_0", Port: 1}
	for _, f := range []string{"roce_np", "roce_rp"} {
		x.write(fmt.Sprintf("sys/devices/pci/%s/net/lo/ecn/%s/enable/3", pf, f), "0\n")
	}
	for _, op := range []link.Op{roce.SetNodeDesc{On: on, Desc: "other"}, roce.SetECN{On: on, Priority: 3, Enable: true}} {
		if handled, err := o.Apply(t.Context(), op); !handled || err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	if got := x.read("sys/class/infiniband/mlx5_0/node_desc"); got != "other" {
		t.Error(got)
	}
	if got := x.read("sys/class/net/lo/ecn/roce_rp/enable/3"); got != "1" {
		t.Error(got)
	}
	gone := on
	gone.Ifindex = 77
	for _, op := range []link.Op{roce.SetECN{On: gone, Priority: 3}, roce.SetPFC{On: gone}, roce.SetVLAN{On: gone, Name: "lo"}} {
		if _, err := o.Apply(t.Context(), op); err == nil {
			t.Errorf("%s: the name is another link's", op)
		}
	}
	vlan := units.VLAN{}
	vlan.Id.V = 7
	if _, err := o.Apply(t.Context(), roce.AddVLAN{On: gone, Name: "v7", VLAN: vlan}); err == nil {
		t.Error("made a VLAN on no link")
	}
	for _, op := range roce.Ops() {
		if _, addresses := op.(roce.MoveGID); slow(op) || addresses {
			continue // of the workers, and of package daemon
		}
		if handled, _ := o.Apply(t.Context(), op); !handled {
			t.Errorf("%T: nobody carries it out", op)
		}
	}
}
