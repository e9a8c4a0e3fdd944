package sysfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
)

// tree makes files and, for values that begin with "->", symbolic links.
func tree(t testing.TB, files map[string]string) FS {
	t.Helper()
	root := filepath.Join(t.TempDir(), "sys")
	testkit.WriteFiles(t, root, files)
	return FS{root}
}

const card = "devices/pci0000:3a/0000:3b:00.0/"

// mlx4 is a two-port card with port 1 InfiniBand and port 2 Ethernet, and two
// virtual functions.
var mlx4 = map[string]string{
	"class/infiniband/mlx4_0":                                  "->../../" + card + "infiniband/mlx4_0",
	card + "infiniband/mlx4_0/device":                          "->../../../0000:3b:00.0",
	card + "infiniband/mlx4_0/node_type":                       "1: CA\n",
	card + "infiniband/mlx4_0/node_guid":                       "0002:c903:000a:bcde\n",
	card + "infiniband/mlx4_0/node_desc":                       "node7 HCA-1\n",
	card + "infiniband/mlx4_0/ports/1/link_layer":              "InfiniBand\n",
	card + "infiniband/mlx4_0/ports/1/state":                   "2: INIT\n",
	card + "infiniband/mlx4_0/ports/1/phys_state":              "5: LinkUp\n",
	card + "infiniband/mlx4_0/ports/1/lid":                     "0x7\n",
	card + "infiniband/mlx4_0/ports/1/sm_lid":                  "0x1\n",
	card + "infiniband/mlx4_0/ports/1/sm_sl":                   "0\n",
	card + "infiniband/mlx4_0/ports/1/cap_mask":                "0x02514868\n",
	card + "infiniband/mlx4_0/ports/1/gids/0":                  "fe80:0000:0000:0000:0002:c903:000a:bcdf\n",
	card + "infiniband/mlx4_0/ports/1/pkeys/0":                 "0xffff\n",
	card + "infiniband/mlx4_0/ports/1/pkeys/1":                 "0x8001\n",
	card + "infiniband/mlx4_0/ports/1/pkeys/2":                 "0x0000\n",
	card + "infiniband/mlx4_0/ports/1/counters/port_rcv_data":  "4711\n",
	card + "infiniband/mlx4_0/ports/1/counters/symbol_error":   "0\n",
	card + "infiniband/mlx4_0/ports/1/counters/port_xmit_wait": "N/A (no PMA)\n",
	card + "infiniband/mlx4_0/ports/1/hw_counters/rx_dropped":  "3\n",
	card + "infiniband/mlx4_0/ports/1/hw_counters/lifespan":    "10\n",
	card + "infiniband/mlx4_0/ports/2/link_layer":              "Ethernet\n",
	card + "infiniband/mlx4_0/ports/2/state":                   "4: ACTIVE\n",
	card + "infiniband/mlx4_0/ports/2/gids/0":                  "fe80:0000:0000:0000:0202:c9ff:fe0a:bce0\n",
	card + "infiniband/mlx4_0/ports/2/gids/1":                  "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
	card + "infiniband/mlx4_0/ports/2/gids/2":                  "0000:0000:0000:0000:0000:0000:0000:0000\n",
	card + "infiniband/mlx4_0/ports/2/gids/10":                 "0000:0000:0000:0000:0000:ffff:0a00:0001\n",
	card + "infiniband/mlx4_0/ports/2/gid_attrs/types/0":       "IB/RoCE v1\n",
	card + "infiniband/mlx4_0/ports/2/gid_attrs/types/1":       "IB/RoCE v1\n",
	card + "infiniband/mlx4_0/ports/2/gid_attrs/types/10":      "RoCE v2\n",
	card + "infiniband/mlx4_0/ports/2/gid_attrs/ndevs/1":       "ens1d1\n",
	card + "infiniband/mlx4_0/ports/2/gid_attrs/ndevs/10":      "ens1d1\n",
	card + "net/ib0/device":                                    "->../../../0000:3b:00.0",
	card + "net/ens1d1/device":                                 "->../../../0000:3b:00.0",
	"class/net/ib0":                                            "->../../" + card + "net/ib0",
	"class/net/ens1d1":                                         "->../../" + card + "net/ens1d1",
	card + "subsystem":                                         "->../../../bus/pci",
	card + "driver":                                            "->../../../bus/pci/drivers/mlx4_core",
	card + "mlx4_port1":                                        "auto (ib)\n",
	card + "mlx4_port2":                                        "eth\n",
	card + "sriov_totalvfs":                                    "8\n",
	card + "sriov_numvfs":                                      "2\n",
	card + "sriov_drivers_autoprobe":                           "1\n",
	card + "virtfn0":                                           "->../0000:3b:00.1",
	card + "virtfn1":                                           "->../0000:3b:00.2",
	"bus/pci/devices/0000:3b:00.0":                             "->../../../" + strings.TrimSuffix(card, "/"),
	"bus/pci/drivers/mlx4_core/unbind":                         "",
	"bus/pci/drivers_probe":                                    "",
	"class/infiniband_mad/abi_version":                         "5\n",
	"class/infiniband_mad/umad0/ibdev":                         "mlx4_0\n",
	"class/infiniband_mad/umad0/port":                          "1\n",
	"class/infiniband_mad/issm0/ibdev":                         "mlx4_0\n",
	"class/infiniband_mad/issm0/port":                          "1\n",
	"module/rdma_cm/parameters/debug":                          "Y\n",
	"devices/virtual/infiniband/rxe0/node_guid":                "0000:0000:0000:0000\n",
	"class/infiniband/rxe0":                                    "->../../devices/virtual/infiniband/rxe0",
}

func TestReadDevices(t *testing.T) {
	f := tree(t, mlx4)
	got, err := f.IBDevices()
	testkit.NoError(t, err)
	gid := func(s string) ib.GID {
		g, err := ib.ParseGID(s)
		testkit.NoError(t, err)
		return g
	}
	want := []IBDevice{
		{
			Name: "mlx4_0", NodeType: ib.NodeCA, NodeGUID: 0x0002c903000abcde,
			Bus: BusDevice{Name: "0000:3b:00.0", Bus: "pci", Driver: "mlx4_core"},
			Ports: []IBPort{
				{
					Num: 1, LinkLayer: ib.LinkLayerInfiniBand, State: ib.PortInit, Phys: 5,
					LID: 7, SMLID: 1, SMSL: new(uint8(0)), CapMask: new(uint32(0x02514868)), GID: gid("fe80::2:c903:a:bcdf"),
				},
				{Num: 2, LinkLayer: ib.LinkLayerEthernet, State: ib.PortActive, GID: gid("fe80::202:c9ff:fe0a:bce0")},
			},
		},
		{Name: "rxe0"},
	}
	testkit.Diff(t, "", want, got)
	if g := got[0].Ports[0].GUID(); g != 0x0002c903000abcdf {
		t.Errorf("port GUID %v", g)
	}
	if g := got[0].Ports[1].GUID(); g != 0 {
		t.Errorf("an Ethernet port has the GUID %v", g)
	}
	gids, err := f.GIDs("mlx4_0", 2)
	if diff := cmp.Diff([]GIDEntry{
		{0, gid("fe80::202:c9ff:fe0a:bce0"), "IB/RoCE v1", ""},
		{1, gid("::ffff:10.0.0.1"), "IB/RoCE v1", "ens1d1"},
		{10, gid("::ffff:10.0.0.1"), "RoCE v2", "ens1d1"},
	}, gids); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	umads, err := f.UMADs()
	if diff := cmp.Diff([]UMAD{{"umad0", "issm0", "mlx4_0", 1}}, umads); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if !f.ModuleLoaded("rdma-cm") || f.ModuleLoaded("ib_umad") {
		t.Error("modules")
	}
}

func TestNetDevice(t *testing.T) {
	f := tree(t, mlx4)
	want := &SRIOV{NumVFs: 2, TotalVFs: 8, Autoprobe: new(true), VFs: []string{"0000:3b:00.1", "0000:3b:00.2"}}
	for _, name := range []string{"ib0", "ens1d1"} {
		bus, fns, err := f.NetDevice(name)
		if diff := cmp.Diff(want, fns); diff != "" || err != nil || bus != (BusDevice{Name: "0000:3b:00.0", Bus: "pci", Driver: "mlx4_core"}) {
			t.Errorf("%s: %+v, %v (-want +got):\n%s", name, bus, err, diff)
		}
	}
}

func TestAbsentIsNotZero(t *testing.T) {
	f := tree(t, map[string]string{"class/net/lo/mtu": "65536\n"})
	if ds, err := f.IBDevices(); err != nil || len(ds) != 0 {
		t.Errorf("%v, %v", ds, err)
	}
	if _, err := f.UMADs(); !errors.Is(err, ErrNoUMAD) {
		t.Errorf("%v", err)
	}
	if _, err := f.IBDevice("mlx5_0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if bus, fns, err := f.NetDevice("lo"); err != nil || bus != (BusDevice{}) || fns != nil {
		t.Errorf("%+v, %+v, %v", bus, fns, err)
	}
}

func TestNonsenseIsNamed(t *testing.T) {
	for _, tt := range []struct{ file, text string }{
		{"node_guid", "0002:c903:zzzz:bcde\n"}, {"ports/1/state", "fine\n"}, {"ports/1/lid", "0xzz\n"}, {"ports/1/lid", "0x1ffffffff\n"},
		{"ports/1/gids/0", "1:2:3\n"},
		{"ports/1/link_layer", "Token Ring\n"}, {"node_type", "x: CA\n"},
	} {
		f := tree(t, map[string]string{"class/infiniband/a/" + tt.file: tt.text, "class/infiniband/b/node_desc": "fine\n"})
		ds, err := f.IBDevices()
		if err == nil || !strings.Contains(err.Error(), tt.file) {
			t.Errorf("%s %q: error %v does not name the file", tt.file, tt.text, err)
		}
		if len(ds) != 1 || ds[0].Name != "b" {
			t.Errorf("%s: the other device is lost: %v", tt.file, ds)
		}
	}
}

func TestWrites(t *testing.T) {
	f := tree(t, mlx4)
	content := func(name string) string {
		b := testkit.ReadFile(t, filepath.Join(f.root, name))
		return string(b)
	}
	for _, tt := range []struct {
		name string
		err  error
		file string
		want string
	}{
		{"OK port type", f.SetPortType("pci", "0000:3b:00.0", 1, "eth"), card + "mlx4_port1", "eth\n"},
		{"OK VFs", f.SetNumVFs("pci", "0000:3b:00.0", 0), card + "sriov_numvfs", "0\n"},
		{"OK autoprobe", f.SetAutoprobe("pci", "0000:3b:00.0", false), card + "sriov_drivers_autoprobe", "0\n"},
		{"OK unbind", f.Unbind("pci", "0000:3b:00.0"), "bus/pci/drivers/mlx4_core/unbind", "0000:3b:00.0\n"},
		{"OK bind", f.Bind("pci", "0000:3b:00.0"), "bus/pci/drivers_probe", "0000:3b:00.0\n"},
	} {
		if tt.err != nil {
			t.Errorf("%s: %v", tt.name, tt.err)
		} else if got := content(tt.file); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	for name, err := range map[string]error{
		"bad link":        f.SetECN("../ib0", 1, true),
		"bad description": f.SetNodeDesc("mlx4_0", strings.Repeat("x", 65)),
		"bad newline":     f.SetNodeDesc("mlx4_0", "a\nb"),
		"bad type":        f.SetPortType("pci", "0000:3b:00.0", 1, "fc"),
		"bad port":        f.SetPortType("pci", "0000:3b:00.0", 3, "ib"),
		"bad number":      f.SetNumVFs("pci", "0000:3b:00.0", -1),
		"bad device":      f.Unbind("pci", "a/b"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The newline of other attributes would become part of a node description.
func TestNodeDescription(t *testing.T) {
	f := tree(t, map[string]string{"class/infiniband/mlx5_0/node_desc": ""})
	testkit.NoError(t, f.SetNodeDesc("mlx5_0", "node7 mlx5_0"))
	if b, err := os.ReadFile(filepath.Join(f.root, "class/infiniband/mlx5_0/node_desc")); err != nil || string(b) != "node7 mlx5_0" {
		t.Errorf("%q, %v", b, err)
	}
	if got, err := f.NodeDesc("mlx5_0"); err != nil || got != "node7 mlx5_0" {
		t.Errorf("read back: %q, %v", got, err)
	}
}

func TestPortType(t *testing.T) {
	f := tree(t, mlx4)
	for port, want := range map[int]PortType{1: {"auto", "ib"}, 2: {"eth", "eth"}} {
		if got, err := f.PortType("pci", "0000:3b:00.0", port); got != want || err != nil {
			t.Errorf("port %d: %v, %v", port, got, err)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"2: INIT", "auto (ib)", "fe80::1", "0x7", "mlx5_10", "", "auto ("} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, ok := parsePortType(s); ok && p.Configured != "ib" && p.Configured != "eth" && p.Configured != "auto" {
			t.Errorf("%q gives %v", s, p)
		}
		if natural(s, s) != 0 {
			t.Errorf("%q is not equal to itself", s)
		}
		if isName(s) && (strings.ContainsAny(s, "/\x00") || s == "..") {
			t.Errorf("%q is taken for a name", s)
		}
	})
}

func TestSetIPoIBMode(t *testing.T) {
	f := tree(t, map[string]string{
		"class/net/ib0/ifindex": "7\n", "class/net/ib0/mode": "datagram\n",
		"class/net/ib0.8001/ifindex": "8\n",
	})
	for _, tt := range []struct {
		name  string
		index int
		mode  string
		ok    bool
	}{
		{"ib0", 7, "connected", true},
		{"ib0", 8, "datagram", false}, // another has the name now
		{"ib0.8001", 8, "connected", false},
		{"ib1", 9, "connected", false},
		{"../ib0", 7, "datagram", false},
	} {
		if err := f.SetIPoIBMode(tt.name, tt.index, tt.mode); (err == nil) != tt.ok {
			t.Errorf("%s, index %d, %s: %v", tt.name, tt.index, tt.mode, err)
		}
	}
	if got := text(f.root + "/class/net/ib0/mode"); got != "connected" {
		t.Errorf("ib0 is in mode %q", got)
	}
}
