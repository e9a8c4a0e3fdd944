package roce

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

func ptr[T any](v T) *T { return &v }

// unit parses the text of a unit that matches everything.
func unit(t testing.TB, text string) *units.Unit {
	t.Helper()
	set := units.Load([]units.Root{{Path: "/etc/systemd/network", FS: fstest.MapFS{
		"u.ibnetwork": {Data: []byte("[Match]\nName=*\n" + text)}}}})
	for _, p := range set.Problems {
		if p.Severity == units.Error {
			t.Fatalf("%v", p)
		}
	}
	u := set.Unit("u.ibnetwork")
	if u == nil {
		t.Fatal("no unit")
	}
	return u
}

// The test system: a mlx5 card as Ethernet (eth0 on mlx5_0/1) and a mlx4 card
// with an InfiniBand port (ib0 on mlx4_0/1).
func system() (*link.Snapshot, *State) {
	s := &link.Snapshot{
		Schema: link.SnapshotSchema,
		Host:   link.Host{Facts: units.HostFacts{Hostname: "node7.example.org"}},
		Devices: []link.Device{
			{Name: "mlx4_0", Driver: "mlx4_core", Bus: "pci", Parent: "0000:03:00.0", NodeDesc: "old", Ports: []link.Port{
				{Num: 1, Layer: ib.LinkLayerInfiniBand, State: ib.PortInit, GUID: 0x0002c903000abcdf}}},
			{Name: "mlx5_0", Driver: "mlx5_core", Bus: "pci", Parent: "0000:3b:00.1", NodeDesc: "old", Ports: []link.Port{
				{Num: 1, Layer: ib.LinkLayerEthernet, State: ib.PortActive, Netdev: 2}}},
		},
		Links: []link.Link{
			{Index: 2, Name: "eth0", Type: 1, Flags: link.FlagUp, Driver: "mlx5_core",
				Addresses: []link.Address{{Prefix: netip.MustParsePrefix("10.0.0.1/24")}}},
			{Index: 3, Name: "ib0", Type: link.ARPHRDInfiniBand, Driver: "mlx4_core", IBDevice: "mlx4_0", Port: 1, IPoIB: &link.IPoIB{PKey: 0xffff}},
		},
	}
	return s, &State{
		RDMACM: true,
		Devices: map[string]Device{
			"mlx4_0": {NodeDesc: ptr("old"), Ports: map[int]Port{1: {Type: &PortType{Configured: units.PortTypeIB,
				Current: units.PortTypeIB, Bus: "pci", Dev: "0000:03:00.0", Index: 1}}}},
			"mlx5_0": {NodeDesc: ptr("old"), Ports: map[int]Port{1: {Defaults: &Defaults{Version: 1}, GIDs: []GID{
				{Index: 0, GID: gid("fe80::1"), Version: 1, Netdev: "eth0"}, {Index: 1, GID: gid("fe80::1"), Version: 2, Netdev: "eth0"},
				{Index: 4, GID: gid("::ffff:10.0.0.1"), Version: 1, Netdev: "eth0"}, {Index: 5, GID: gid("::ffff:10.0.0.1"), Version: 2,
					Netdev: "eth0"},
			}}}},
		},
		Links: map[int]Link{
			2: {
				DCB: &DCB{Driver: "mlx5_core", DCBX: ptr(uint8(DCBXManaged | DCBXIEEE)), PFC: ptr(uint8(0)), PFCCap: 8, Delay: 7,
					ETS:    &Classes{Class: [8]uint8{0, 1, 2, 3, 4, 5, 6, 7}},
					Buffer: &Buffers{Size: [8]uint32{0: 130944}, Total: 262016}, DSCP: map[uint8]uint8{}},
				SRIOV: &SRIOV{Bus: "pci", Dev: "0000:3b:00.1", Total: 8, Autoprobe: ptr(true)},
				ECN:   ptr(uint8(0)),
			},
			3: {SRIOV: &SRIOV{Bus: "pci", Dev: "0000:03:00.0", Total: 16, VFs: []VF{
				{Dev: "0000:03:00.1", Driver: "mlx4_core", NodeGUID: ptr(ib.GUID(0)), PortGUID: ptr(ib.GUID(0)),
					LinkState: ptr(units.VFLinkAuto), OwnGUID: 0x1},
				{Dev: "0000:03:00.2", NodeGUID: ptr(ib.GUID(0)), PortGUID: ptr(ib.GUID(0)), LinkState: ptr(units.VFLinkAuto)},
			}}},
		},
	}
}

func gid(s string) ib.GID { return ib.GID(netip.MustParseAddr(s).As16()) }

type result struct {
	ops     []string
	blocked []string
	attrs   []link.Attribute
	steps   []link.Step
	restart bool
}

func run(s *link.Snapshot, st *State, index int, u *units.Unit) result {
	s.Card = st
	b := link.NewBuilder(s, &link.Record{}, nil)
	b.For(u)
	r := result{restart: Plan(b, index, u)}
	r.steps = b.Plan.Steps
	for _, x := range b.Plan.Steps {
		r.ops = append(r.ops, x.Op.String())
	}
	for _, x := range b.Plan.Blocked {
		t := x.Reason.Text
		if x.Reason.Next != "" {
			t += " / " + x.Reason.Next
		}
		r.blocked = append(r.blocked, t)
	}
	r.attrs = b.Attributes(index)
	return r
}

func TestPlans(t *testing.T) {
	const eth0, ib0 = 2, 3
	host := "dcb dcbx set dev eth0 host ieee"
	for _, tt := range []struct {
		name    string
		index   int
		text    string
		change  func(*link.Snapshot, *State)
		ops     []string
		blocked []string
		silent  bool // told by attributes alone
	}{
		{name: "OK nothing asked", index: eth0, text: ""},
		{name: "OK version and DSCP", index: eth0, text: "[RoCE]\nVersion=2\nDSCP=26\n", ops: []string{
			"mkdir -p /sys/kernel/config/rdma_cm/mlx5_0 && echo 'RoCE v2' > /sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode",
			"mkdir -p /sys/kernel/config/rdma_cm/mlx5_0 && echo 104 > /sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos"}},
		{name: "OK version is there", index: eth0, text: "[RoCE]\nVersion=1\nTypeOfService=0\n"},
		{name: "bad no rdma_cm", index: eth0, text: "[RoCE]\nVersion=2\n", change: func(_ *link.Snapshot, st *State) { st.RDMACM = false },
			blocked: []string{"the defaults of RDMA-CM cannot be set: rdma_cm is not loaded or configfs is not mounted / modprobe " +
				"rdma_cm; mount -t configfs none /sys/kernel/config"}},
		{name: "OK lossless RoCE", index: eth0, text: "[RoCE]\nDSCP=26\nPriority=3\nPFC=3\nTrust=dscp\n", ops: []string{
			"mkdir -p /sys/kernel/config/rdma_cm/mlx5_0 && echo 104 > /sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos",
			host,
			"dcb pfc set dev eth0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off",
			"dcb app add dev eth0 dscp-prio 26:3"}},
		{name: "OK trust table", index: eth0, text: "[RoCE]\nTrust=dscp\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Links[2].DCB.Trust = []units.Trust{units.TrustPCP}
		},
			ops: []string{host, "dcb apptrust set dev eth0 order dscp"}},
		{name: "OK trust by one entry", index: eth0, text: "[RoCE]\nTrust=dscp\n", ops: []string{host, "dcb app add dev eth0 dscp-prio 0:0"}},
		{name: "OK trust PCP takes the map " +
			"away", index: eth0, text: "[RoCE]\nTrust=pcp\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Links[2].DCB.DSCP = map[uint8]uint8{48: 6, 26: 3}
		},
			ops: []string{host, "dcb app flush dev eth0 dscp-prio"}},
		{name: "OK map changes", index: eth0, text: "[RoCE]\nDSCPToPriority=26:3 48:6\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Links[2].DCB.DSCP = map[uint8]uint8{26: 5, 10: 1}
		},
			ops: []string{host, "dcb app replace dev eth0 dscp-prio 26:3", "dcb app add dev eth0 dscp-prio 48:6"}},
		{name: "OK cable of mlx5", index: eth0, text: "[RoCE]\nPFC=3\nCableLength=5\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Links[2].DCB.DCBX = nil
		},
			ops: []string{"dcb pfc set dev eth0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off", "dcb pfc set dev eth0 " +
				"prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off delay 5"}},
		{name: "bad cable that is not taken", index: eth0, text: "[RoCE]\nPFC=3\nCableLength=5\n", change: func(_ *link.Snapshot, st *State) {
			st.Links[2].DCB.DCBX, st.Links[2].DCB.PFC = nil, ptr(uint8(8))
			st.Contested = map[string]int{"eth0\x00CableLength": 3}
		}, blocked: []string{"another program changes CableLength of eth0 back each time; it is left as it is / find it: lldpad, " +
			"mlnx_qos in a boot script, an agent in a container; stop it, then: ibnetctl reconfigure eth0"}},
		{name: "OK CEE goes for IEEE", index: eth0, text: "[RoCE]\nPFC=3\n", change: func(_ *link.Snapshot,
			st *State) {
			*st.Links[2].DCB.DCBX = DCBXHost | 0x04
		},
			ops: []string{host, "dcb pfc set dev eth0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off"}},
		{name: "OK buffers rounded down by a driver that was not seen to", index: eth0, text: "[RoCE]\nBufferSize=0:128K\n",
			change: func(_ *link.Snapshot, st *State) {
				st.Links[2].DCB.DCBX, st.Links[2].DCB.Buffer.Size[0] = nil, 131040
			}},
		{name: "OK buffers as the driver answered", index: eth0, text: "[RoCE]\nBufferSize=0:128K\n", change: func(_ *link.Snapshot, st *State) {
			d := st.Links[2].DCB
			d.DCBX, d.Buffer.Size[0] = nil, 120000
			d.Asked = &Buffers{Size: [8]uint32{0: 131072}, Total: 262016}
		}},
		{name: "OK buffers a little larger than asked " +
			"before", index: eth0, text: "[RoCE]\nBufferSize=0:131500\n", change: func(_ *link.Snapshot, st *State) {
			d := st.Links[2].DCB
			d.DCBX, d.Buffer.Size[0] = nil, 131040
			d.Asked = &Buffers{Size: [8]uint32{0: 131072}, Total: 262016}
		}, ops: []string{"dcb buffer set dev eth0 prio-buffer 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 buffer-size 0:131500 1:0 2:0 3:0 4:0 5:0 6:0 7:0"}},
		{name: "bad cable without buffers", index: eth0, text: "[RoCE]\nCableLength=5\n", change: func(_ *link.Snapshot, st *State) {
			st.Links[2].DCB.DCBX, st.Links[2].DCB.Buffer = nil, nil
		}},
		{name: "OK classes", index: eth0, text: "[RoCE]\nETS=0:40 3:60 5:strict\nPriorityToClass=4:0\n", ops: []string{host,
			"dcb ets set dev eth0 tc-tsa 0:ets 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict 7:strict tc-bw 0:40 1:0 2:0 3:60 4:0 " +
				"5:0 6:0 7:0 prio-tc 0:0 1:1 2:2 3:3 4:0 5:5 6:6 7:7"}},
		{name: "OK ECN", index: eth0, text: "[RoCE]\nECN=3\n", ops: []string{"echo 1 > /sys/class/net/eth0/ecn/roce_np/enable/3 && " +
			"echo 1 > /sys/class/net/eth0/ecn/roce_rp/enable/3"}},
		{name: "bad no DCB", index: eth0, text: "[RoCE]\nPFC=3\n", change: func(_ *link.Snapshot,
			st *State) {
			l := st.Links[2]
			l.DCB = nil
			st.Links[2] = l
		},
			blocked: []string{"the driver of eth0 has no data centre bridging: PFC, ETS, trust and buffers cannot be set / remove these " +
				"keys from [RoCE]"}},
		{name: "bad contested", index: eth0, text: "[RoCE]\nPFC=3\n", change: func(_ *link.Snapshot, st *State) {
			st.Links[2].DCB.DCBX = nil
			st.Agents = []string{"lldpad"}
			st.Contested = map[string]int{"eth0\x00PFC": 3}
		}, blocked: []string{"lldpad changes PFC of eth0 back each time; it is left as it is / systemctl disable --now lldpad, " +
			"then: ibnetctl reconfigure eth0"}},
		{name: "OK soft RoCE", index: eth0, text: "[SoftRoCE]\nDriver=rxe\n", ops: []string{"rdma link add rxe_eth0 type rxe netdev eth0"}},
		{name: "OK soft RoCE is there", index: eth0, text: "[SoftRoCE]\nDriver=rxe\nName=r0\n", change: func(_ *link.Snapshot, st *State) {
			l := st.Links[2]
			l.Soft = []SoftDevice{{Name: "r0", Index: 9, Driver: units.SoftRXE}}
			st.Links[2] = l
		}},
		{name: "bad soft RoCE of another", index: eth0, text: "[SoftRoCE]\nDriver=rxe\n", change: func(_ *link.Snapshot, st *State) {
			l := st.Links[2]
			l.Soft = []SoftDevice{{Name: "theirs", Index: 9, Driver: units.SoftRXE}}
			st.Links[2] = l
		}, blocked: []string{"eth0 has the RDMA device theirs of rxe already, which was not made by ibnetworkd / write Driver=rxe " +
			"and Name=theirs below [SoftRoCE], or: rdma link delete theirs"}},
		{name: "bad soft RoCE elsewhere", index: eth0, text: "[SoftRoCE]\nName=mlx4_0\n", blocked: []string{"an RDMA device mlx4_0 " +
			"exists and is not on eth0 / write another Name= below [SoftRoCE]"}},
		{name: "OK VLAN", index: eth0, text: "[VLAN]\nId=7\nName=storage\nMTUBytes=1400\nEgressQOSMaps=3-3 4-4\n",
			ops: []string{"ip link add link eth0 name storage mtu 1400 type vlan id 7 egress-qos-map 3:3 4:4"}},
		{name: "OK VLAN is as asked", index: eth0, text: "[VLAN]\nId=7\nName=storage\nGVRP=no\nEgressQOSMaps=3-3 4-0\n", change: storage},
		{name: "OK VLAN changes", index: eth0, text: "[VLAN]\nId=7\nName=storage\nGVRP=yes\nReorderHeader=yes\nEgressQOSMaps=5-5\n",
			change: storage,
			ops:    []string{"ip link set dev storage type vlan reorder_hdr on gvrp on egress-qos-map 3:0 5:5"}},
		{name: "bad VLAN of another tag", index: eth0, text: "[VLAN]\nId=7\nName=storage\nProtocol=802.1ad\n", change: storage,
			blocked: []string{"storage has tags of another protocol than 802.1ad, and was not made by ibnetworkd / ip link delete " +
				"storage, or write another Name= below [VLAN]"}},
		{name: "bad VLAN name", index: eth0, text: "[VLAN]\nId=7\nName=ib0\n", blocked: []string{"a link ib0 exists and is not a " +
			"VLAN of eth0 / write another Name= below [VLAN]"}},
		{name: "bad firmware's type", index: eth0, text: "[Port]\nType=ib\n",
			blocked: []string{"eth0 is Ethernet, asked InfiniBand: on this card the type is a setting of the firmware, which takes " +
				"effect after a reset / mstconfig -d 0000:3b:00.1 set LINK_TYPE_P2=1, then mstfwreset -d 0000:3b:00.1 reset, or reboot; a " +
				"board on which mstconfig knows no LINK_TYPE_P1 has one type only"}},
		{name: "bad firmware's type of a virtual function", index: eth0, text: "[Port]\nType=ib\n", change: func(s *link.Snapshot, _ *State) {
			d, _ := s.Device("mlx5_0")
			d.Virtual, d.Parent = true, "0000:3b:00.5"
		}, blocked: []string{"eth0 is Ethernet, asked InfiniBand: mlx5_0 is a virtual function, whose type is that of its card's " +
			"port / remove Type=, and write it in the unit of the physical function"}},
		{name: "OK node description", index: eth0, text: "[Port]\nNodeDescription=%H %d\n", ops: []string{"echo 'node7 mlx5_0' > " +
			"/sys/class/infiniband/mlx5_0/node_desc"}},
		{name: "OK node description is " +
			"rdma-ndd's", index: eth0, text: "[Port]\nNodeDescription=%H %d\n", change: func(_ *link.Snapshot,
			st *State) {
			st.NodeDescBy = "rdma-ndd"
		}},
		{name: "OK virtual functions", index: eth0, text: "[VirtualFunctions]\nCount=4\nAutoprobe=no\n", ops: []string{
			"echo 0 > /sys/bus/pci/devices/0000:3b:00.1/sriov_drivers_autoprobe", "echo 4 > /sys/bus/pci/devices/0000:3b:00.1/sriov_numvfs"}},
		{name: "bad too many functions", index: eth0, text: "[VirtualFunctions]\nCount=9\n",
			blocked: []string{"asked 9 virtual functions, eth0 has at most 8 / mstconfig -d 0000:3b:00.1 set NUM_OF_VFS=9, then reboot"}},

		{name: "bad keys of Ethernet on InfiniBand", index: ib0, text: "[SoftRoCE]\n[VLAN]\nId=7\n[RoCE]\nPFC=3\n", silent: true},
		{name: "bad no module option", index: eth0, text: "[RoCE]\nWriteModprobeFile=yes\n", silent: true},
		{name: "bad no switch for drivers", index: ib0, text: "[VirtualFunctions]\nAutoprobe=no\n", blocked: []string{"ib0 has no " +
			"switch for drivers of virtual functions / remove Autoprobe="}},
		{name: "OK port type by devlink", index: ib0, text: "[Port]\nType=eth\n", ops: []string{"devlink port set pci/0000:03:00.0/1 type eth"}},
		{name: "OK port type by file", index: ib0, text: "[Port]\nType=auto\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Devices["mlx4_0"].Ports[1].Type.File = "mlx4_port1"
		},
			ops: []string{"echo auto > /sys/bus/pci/devices/0000:03:00.0/mlx4_port1"}},
		{name: "OK found by itself", index: ib0, text: "[Port]\nType=ib\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Devices["mlx4_0"].Ports[1].Type.Configured = units.PortTypeAuto
		}},
		{name: "bad port in use", index: ib0, text: "[Port]\nType=eth\n", change: inUse,
			blocked: []string{"ib0 is in use (it is up and has the address 10.1.0.1/24): changing its type would remove it / write " +
				"ChangeWhileInUse=yes below [Port], or take the link down: ibnetctl down ib0"}},
		{name: "bad port whose device is in " +
			"use", index: ib0, text: "[Port]\nType=eth\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Devices["mlx4_0"].Ports[1].Type.Programs = 2
		},
			blocked: []string{"ib0 is in use (2 programs have its device open): changing its type would remove it / write " +
				"ChangeWhileInUse=yes below [Port], or end them: rdma resource show cm_id; rdma resource show ctx"}},
		{name: "OK port in use, allowed", index: ib0, text: "[Port]\nType=eth\nChangeWhileInUse=yes\n", change: inUse,
			ops: []string{"devlink port set pci/0000:03:00.0/1 type eth"}},
		{name: "OK RoCE waits for the type", index: ib0, text: "[Port]\nType=eth\n[RoCE]\nPFC=3\n", ops: []string{"devlink port set " +
			"pci/0000:03:00.0/1 type eth"}},
		{name: "OK GUIDs of functions", index: ib0, text: "[VirtualFunctions]\nNodeGUID=auto\n[VF]\nVirtualFunction=1\n" +
			"PortGUID=0x0002c903000a0001\nLinkState=enable\n", ops: []string{
			"ip link set dev ib0 vf 0 node_guid 02:02:c9:00:01:0a:bc:df && echo 0000:03:00.1 > " +
				"/sys/bus/pci/devices/0000:03:00.1/driver/unbind && echo 0000:03:00.1 > /sys/bus/pci/drivers_probe",
			"ip link set dev ib0 vf 1 node_guid 02:02:c9:00:02:0a:bc:df",
			"ip link set dev ib0 vf 1 port_guid 00:02:c9:03:00:0a:00:01",
			"ip link set dev ib0 vf 1 state enable"}},
		{name: "bad function that does not take its " +
			"GUID", index: ib0, text: "[VF]\nVirtualFunction=0\nNodeGUID=0x0002c903000a0001\n", change: func(_ *link.Snapshot, st *State) {
			*st.Links[3].SRIOV.VFs[0].NodeGUID = 0x0002c903000a0001
			st.Contested = map[string]int{"ib0\x00VF 0 GUID": 2}
		}, blocked: []string{"virtual function 0 of ib0 reports the GUID 0x0000000000000001 after its driver probed again, not " +
			"0x0002c903000a0001 / check the subnet manager (it must run with virtualization on) and at the driver's messages: dmesg"}},
		{name: "bad function in use", index: ib0, text: "[VirtualFunctions]\nCount=4\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Links[3].SRIOV.VFs[0].Busy = "vfio-pci"
		},
			blocked: []string{"the number of virtual functions of ib0 changes through 0 only, and function 0 is in use (vfio-pci) / " +
				"release the virtual functions, or leave Count= at 2"}},
		{name: "OK number through 0", index: ib0, text: "[VirtualFunctions]\nCount=4\n", ops: []string{
			"echo 0 > /sys/bus/pci/devices/0000:03:00.0/sriov_numvfs && echo 4 > /sys/bus/pci/devices/0000:03:00.0/sriov_numvfs"}},
		{name: "bad number that the card does not " +
			"make", index: ib0, text: "[VirtualFunctions]\nCount=4\nLinkState=enable\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Contested = map[string]int{"ib0\x00Count": rebindLimit}
		},
			ops: []string{"ip link set dev ib0 vf 0 state enable", "ip link set dev ib0 vf 1 state enable"},
			blocked: []string{"the number of virtual functions of ib0 does not stay at 4, it is 2 again / dmesg has the driver's " +
				"reason; write another Count=, or try again: ibnetctl reconfigure ib0"}},
		{name: "bad function that is not there", index: ib0, text: "[VF]\nVirtualFunction=2\nLinkState=enable\n",
			blocked: []string{"ib0 has no virtual function 2, it has 2 of them (the first is 0) / write Count=3 below [VirtualFunctions]"}},
		{name: "bad settings that the driver does not tell", index: ib0, text: "[VF]\nVirtualFunction=0\nTrust=yes\n" +
			"MACSpoofCheck=no\n", blocked: []string{
			"the driver of ib0 does not report Trust of virtual functions: it has no such setting / remove Trust=; ip link show ib0 " +
				"shows what the driver keeps for its functions",
			"the driver of ib0 does not report MACSpoofCheck of virtual functions: it has no such setting / remove MACSpoofCheck=; ip " +
				"link show ib0 shows what the driver keeps for its functions"}},
		{name: "OK VLAN, rates and trust of a function", index: eth0, text: "[VF]\nVirtualFunction=0\nMinRate=100M\nMaxRate=10G\n" +
			"Trust=yes\nVLANId=7\nQualityOfService=3\nVLANProtocol=802.1ad\nMACAddress=02:00:00:00:00:01\n", change: ethernetVF, ops: []string{
			"ip link set dev eth0 vf 0 trust on", "ip link set dev eth0 vf 0 max_tx_rate 10000 min_tx_rate 100",
			"ip link set dev eth0 vf 0 mac 02:00:00:00:00:01", "ip link set dev eth0 vf 0 vlan 7 qos 3 proto 802.1ad"}},
		{name: "bad GUID of an Ethernet function", index: eth0, text: "[VirtualFunctions]\nNodeGUID=auto\n", change: ethernetVF,
			blocked: []string{"eth0 is Ethernet: its virtual functions have MAC addresses, no GUIDs / write MACAddress= below [VF]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, st := system()
			if tt.change != nil {
				tt.change(s, st)
			}
			r := run(s, st, tt.index, unit(t, tt.text))
			if diff := cmp.Diff(tt.ops, r.ops); diff != "" {
				t.Errorf("ops (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.blocked, r.blocked); diff != "" {
				t.Errorf("blocked (-want +got):\n%s", diff)
			}
			if len(r.ops) == 0 && (len(r.blocked) > 0 || tt.silent) && !slices.ContainsFunc(r.attrs,
				func(a link.Attribute) bool { return a.Why != (link.Reason{}) }) {
				t.Errorf("what is blocked is in no attribute: %+v", r.attrs)
			}
		})
	}
}

func storage(s *link.Snapshot, _ *State) {
	s.Links = append(s.Links, link.Link{Index: 9, Name: "storage", Kind: "vlan", Type: 1, Parent: 2, VLAN: &link.VLAN{ID: 7,
		Protocol: 0x8100, Flags: link.VLANReorderHeader, Egress: map[uint32]uint32{3: 3}}})
}

func ethernetVF(_ *link.Snapshot, st *State) {
	st.Links[2].SRIOV.VFs = []VF{{Dev: "0000:3b:00.2", LinkState: ptr(units.VFLinkAuto), Trust: ptr(false), Spoof: ptr(false)}}
}

func inUse(s *link.Snapshot, _ *State) {
	s.Links[1].Flags |= link.FlagUp
	s.Links[1].Addresses = []link.Address{{Prefix: netip.MustParsePrefix("10.1.0.1/24")}}
}

// apply does what the kernel does with an operation.
func apply(t testing.TB, s *link.Snapshot, st *State, op link.Op) {
	on := op.Target()
	l := st.Links[on.Ifindex]
	defaults := func() *Defaults { return st.Devices[on.IBDevice].Ports[on.Port].Defaults }
	switch o := op.(type) {
	case SetPortType:
		p := st.Devices[on.IBDevice].Ports[on.Port].Type
		p.Configured = o.Type
		if o.Type != units.PortTypeAuto {
			p.Current = o.Type
		}
	case SetNodeDesc:
		*st.Devices[on.IBDevice].NodeDesc = o.Desc
	case SetVersion:
		defaults().Version = o.Version
	case SetToS:
		defaults().ToS = o.ToS
	case SetDCBX:
		*l.DCB.DCBX = o.Flags
	case SetPFC:
		*l.DCB.PFC = o.Priority
		if o.Delay > 0 && o.Delay < 1000 { // mlx5e_dcbnl_ieee_setpfc
			l.DCB.Delay = o.Delay
		}
	case SetECN:
		*l.ECN &^= 1 << o.Priority
		if o.Enable {
			*l.ECN |= 1 << o.Priority
		}
	case SetETS:
		*l.DCB.ETS = o.Classes
	case MapDSCP:
		l.DCB.DSCP[o.DSCP] = o.Priority
	case ClearDSCP:
		clear(l.DCB.DSCP)
	case SetTrust:
		l.DCB.Trust = []units.Trust{o.Trust}
	case SetBuffers:
		*l.DCB.Buffer = o.Buffers
		for i, n := range o.Buffers.Size {
			l.DCB.Buffer.Size[i] = (n + 127) &^ 127 // in cells
		}
	case SetModprobe:
		st.Modprobe = o.Text
	case AddSoft:
		l.Soft = append(l.Soft, SoftDevice{Name: o.Name, Driver: o.Driver})
	case AddVLAN:
		s.Links = append(s.Links, link.Link{Index: 100 + len(s.Links), Name: o.Name, Kind: "vlan", Type: 1, Parent: on.Ifindex, VLAN: &link.VLAN{
			ID: o.VLAN.Id.V, Protocol: uint16(o.VLAN.Protocol.Or(units.VLAN8021Q)), Flags: link.VLANReorderHeader}})
		setVLAN(&s.Links[len(s.Links)-1], &o.VLAN)
	case SetVLAN:
		i := slices.IndexFunc(s.Links, func(l link.Link) bool { return l.Name == o.Name })
		for _, from := range o.DropIngress {
			delete(s.Links[i].VLAN.Ingress, from)
		}
		for _, from := range o.DropEgress {
			delete(s.Links[i].VLAN.Egress, from)
		}
		setVLAN(&s.Links[i], &o.VLAN)
	case DelVLAN:
		s.Links = slices.DeleteFunc(s.Links, func(l link.Link) bool { return l.Name == o.Name })
	case DelSoft:
		l.Soft = slices.DeleteFunc(l.Soft, func(d SoftDevice) bool { return d.Name == o.Name })
	case SetAutoprobe:
		*l.SRIOV.Autoprobe = o.Probe
	case SetVFs:
		l.SRIOV.VFs = nil
		for range o.Count {
			l.SRIOV.VFs = append(l.SRIOV.VFs, VF{Dev: "x", Driver: "d", OwnGUID: 5, NodeGUID: ptr(ib.GUID(0)), PortGUID: ptr(ib.GUID(0)),
				LinkState: ptr(units.VFLinkAuto), Trust: ptr(false), Spoof: ptr(false)})
		}
	case SetVF:
		v := &l.SRIOV.VFs[o.VF]
		switch a := o.Attr; {
		case a.NodeGUID != nil:
			v.NodeGUID = a.NodeGUID
		case a.PortGUID != nil:
			v.PortGUID = a.PortGUID
		case a.LinkState != nil:
			v.LinkState = a.LinkState
		case a.Trust != nil:
			v.Trust = a.Trust
		case a.Spoof != nil:
			v.Spoof = a.Spoof
		case a.MaxRate != nil:
			v.MinRate, v.MaxRate = *a.MinRate, *a.MaxRate
		case a.MAC.IsValid():
			v.MAC = a.MAC
		case a.VLAN != nil:
			v.VLAN, v.QoS, v.Proto = *a.VLAN, a.QoS, a.Proto
		default:
			t.Fatalf("%s: sets nothing", op)
		}
	case SetVFGUIDs:
		v := &l.SRIOV.VFs[o.VF]
		for _, a := range o.Attrs() {
			if a.NodeGUID != nil {
				v.NodeGUID = a.NodeGUID
			} else {
				v.PortGUID = a.PortGUID
			}
		}
		v.OwnGUID = *v.NodeGUID
	case RebindVF:
		v := &l.SRIOV.VFs[o.VF]
		v.OwnGUID = *v.NodeGUID
	default:
		t.Fatalf("%T is not known", op)
	}
	st.Links[on.Ifindex] = l
}

// setVLAN does what vlan_changelink does.
func setVLAN(l *link.Link, v *units.VLAN) {
	for _, f := range vlanFlags(v) {
		if f.want.Set {
			l.VLAN.Flags &^= f.bit
			if f.want.V {
				l.VLAN.Flags |= f.bit
			}
		}
	}
	set := func(m *map[uint32]uint32, ms []units.Value[units.QOSMap]) {
		for _, x := range ms {
			if *m == nil {
				*m = map[uint32]uint32{}
			}
			if (*m)[x.V.From] = x.V.To; x.V.To == 0 {
				delete(*m, x.V.From)
			}
		}
	}
	set(&l.VLAN.Ingress, v.IngressQOSMaps)
	set(&l.VLAN.Egress, v.EgressQOSMaps)
}

// The two laws: planning twice gives the same bytes, and applying plans leads to
// where nothing is left to plan.
func TestLaws(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	planned, used, types := 0, map[string]bool{}, map[string]bool{}
	for seed := range 1500 {
		text := randomUnit(t, r, used)
		u := unit(t, text)
		index := 2 + r.IntN(2)
		s, st := system()
		if r.IntN(2) == 0 {
			st.Links[2].DCB.Trust = []units.Trust{units.TrustPCP}
		}
		if r.IntN(2) == 0 {
			st.Links[2].DCB.DSCP = map[uint8]uint8{26: 1, 8: 2}
		}
		a, b := run(s, st, index, u), run(s, st, index, u)
		if diff := cmp.Diff(a.ops, b.ops); diff != "" {
			t.Fatalf("seed %d: two plans differ:\n%s", seed, diff)
		}
		// What exists after the first plan (virtual functions) may need a second.
		for round := 1; ; round++ {
			p := run(s, st, index, u)
			for _, x := range p.steps {
				types[fmt.Sprintf("%T", x.Op)] = true
			}
			if p.restart {
				for _, x := range p.steps {
					apply(t, s, st, x.Op)
				}
				if q := run(s, st, index, u); q.restart {
					t.Fatalf("seed %d: the type is changed again: %v", seed, q.ops)
				}
				break // the link is another one now
			}
			if len(p.ops) == 0 {
				break
			}
			planned += len(p.ops)
			if round > 2 {
				t.Fatalf("seed %d: round %d still plans %v\nfor\n%s", seed, round, p.ops, text)
			}
			for _, x := range p.steps {
				apply(t, s, st, x.Op)
			}
		}
	}
	if planned < 500 {
		t.Errorf("only %d operations in all", planned)
	}
	for _, op := range Ops() {
		switch op.(type) {
		case DelVLAN, DelSoft: // of PlanRemovals
		case SetVLAN, RebindVF, SetModprobe: // of systems that TestPlans has
		default:
			if !types[fmt.Sprintf("%T", op)] {
				t.Errorf("%T was never planned", op)
			}
		}
	}
	for _, spec := range units.Schema() {
		for _, k := range spec.Keys {
			if lawValues[spec.Name] != nil && !used[spec.Name+"."+k.Name] {
				t.Errorf("[%s] %s= was never tried", spec.Name, k.Name)
			}
		}
	}
}

// lawValues are values beside the examples and words of the schema, by section.
var lawValues = map[string]map[string][]string{
	"Port": {"NodeDescription": {"x"}},
	"RoCE": {"Version": {"1"}, "DSCP": {"0"}, "Priority": {"5"}, "PFC": {"3 4"}, "ETS": {"0:100", "0:40 3:60",
		"1:strict", "0:10"}, "PriorityToClass": {"3:3 4:0"}, "DSCPToPriority": {"26:4 48:6"},
		"BufferSize": {"0:131072 1:1000", "7:1G"}, "PriorityToBuffer": {"3:1"}, "CableLength": {"0", "1", "999", "1000"}},
	"SoftRoCE": {"Name": {"mlx4_0"}},
	"VLAN": {"Id": {"9"}, "Name": {"ib0"}, "EgressQOSMaps": {"1-1 2-0"}, "IngressQOSMaps": {"0-7"},
		"ReorderHeader": {"no"}, "GVRP": {"no"}},
	"VirtualFunctions": {"Count": {"0", "2", "3", "999"}},
	"VF": {"VirtualFunction": {"1", "7"}, "MinRate": {"0"}, "MaxRate": {"100M"}, "VLANId": {"0"},
		"QualityOfService": {"0"}, "NodeGUID": {"0x0002c9030a000002"}},
}

// randomUnit writes sections of this room with keys out of the schema.
func randomUnit(t *testing.T, r *rand.Rand, used map[string]bool) string {
	need := map[string]string{"VLAN": "Id", "VF": "VirtualFunction"}
	var b strings.Builder
	for _, spec := range units.Schema() {
		more, ours := lawValues[spec.Name]
		if !ours || r.IntN(3) == 0 {
			continue
		}
		for range 1 + r.IntN(2) {
			fmt.Fprintf(&b, "[%s]\n", spec.Name)
			for _, k := range spec.Keys {
				if k.Name != need[spec.Name] && r.IntN(3) > 0 || k.Name == "Type" && r.IntN(3) > 0 {
					continue
				}
				values := slices.Concat([]string{k.Example}, k.Values, more[k.Name])
				fmt.Fprintf(&b, "%s=%s\n", k.Name, values[r.IntN(len(values))])
				used[spec.Name+"."+k.Name] = true
			}
			if !spec.Repeat {
				break
			}
		}
	}
	return b.String()
}

func TestAutoGUIDs(t *testing.T) {
	seen := map[ib.GUID]string{}
	for _, pf := range []ib.GUID{0x0002c903000abcde, 0x0002c903000abcdf, 0xb83fd20300123456, 0xb83fd2fffe123457, 0x506b4b03000abcde} {
		for vf := range 300 {
			for name, g := range map[string]ib.GUID{"node": NodeGUIDFor(pf, vf), "port": PortGUIDFor(pf, vf)} {
				id := fmt.Sprintf("%v %d %s", pf, vf, name)
				if old, dup := seen[g]; dup {
					t.Fatalf("%v is the GUID of %s and of %s", g, old, id)
				}
				seen[g] = id
				if g>>57&1 == 0 || g == pf {
					t.Fatalf("%s: %v is not marked as assigned locally", id, g)
				}
			}
		}
	}
	if a, b := NodeGUIDFor(0x0002c903000abcde, 3), NodeGUIDFor(0x0002c903000abcde, 3); a != b {
		t.Error("not the same twice")
	}
}

func entry(index int, g ib.GID, version int, dev string) GID {
	return GID{Index: index, GID: g, Version: version, Netdev: dev}
}

func TestSelect(t *testing.T) {
	addr := func(s string, flags uint32) link.Address {
		return link.Address{Prefix: netip.MustParsePrefix(s), Flags: flags}
	}
	l := &link.Link{Name: "eth0", Addresses: []link.Address{addr("fe80::1/64", 0), addr("fd00::9/64", link.AddrDeprecated),
		addr("10.0.0.1/24", 0), addr("fd00::1/64", 0)}}
	table := []GID{
		entry(0, gid("fe80::1"), 1, "eth0"), entry(1, gid("fe80::1"), 2, "eth0"), entry(2, gid("::ffff:10.0.0.1"), 2, "eth1"),
		entry(9, gid("::ffff:10.0.0.1"), 2, "eth0"), entry(8, gid("::ffff:10.0.0.1"), 1, "eth0"), entry(4, gid("fd00::9"), 2, "eth0"),
		entry(6, gid("fd00::1"), 2, "eth0"),
	}
	want := Env(l, "mlx5_0", 1, Select(table, l, nil))
	if diff := cmp.Diff(`# RDMA port of the link eth0; ibnetworkd writes this file anew when it changes.
IBNET_LINK=eth0
IBNET_RDMA_DEVICE=mlx5_0
IBNET_RDMA_PORT=1
NCCL_IB_HCA="=mlx5_0:1"
UCX_NET_DEVICES=mlx5_0:1
NCCL_IB_GID_INDEX=9
UCX_IB_GID_INDEX=9
IBNET_GID_INDEX_IPV4=9
IBNET_GID_IPV4=0000:0000:0000:0000:0000:ffff:0a00:0001
IBNET_GID_INDEX_IPV6=6
IBNET_GID_IPV6=fd00:0000:0000:0000:0000:0000:0000:0001
IBNET_GID_INDEX_V1=8
IBNET_GID_V1=0000:0000:0000:0000:0000:ffff:0a00:0001
`, want); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The order of the table does not matter.
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		r.Shuffle(len(table), func(i, j int) { table[i], table[j] = table[j], table[i] })
		if got := Env(l, "mlx5_0", 1, Select(table, l, nil)); got != want {
			t.Fatalf("another order gives\n%s", got)
		}
	}
	// The unit's own address goes before one that came first by another hand.
	two := &link.Link{Name: "eth0", Addresses: []link.Address{addr("10.9.9.9/24", 0), addr("10.0.0.1/24", 0)}}
	both := []GID{{Index: 3, GID: gid("::ffff:10.9.9.9"), Version: 2, Netdev: "eth0"}, {Index: 5, GID: gid("::ffff:10.0.0.1"),
		Version: 2, Netdev: "eth0"}}
	if x := Select(both, two, unit(t, "[Network]\nAddress=10.0.0.1/24\n")); x.V4 == nil || x.V4.Index != 5 {
		t.Errorf("with the unit: %+v", x.V4)
	}
	if x := Select(both, two, nil); x.V4 == nil || x.V4.Index != 3 {
		t.Errorf("without a unit: %+v", x.V4)
	}
	if x := Select(nil, l, nil); x.Preferred() != nil {
		t.Error("an index out of nothing")
	}
	if x := Select(table, &link.Link{Name: "eth0", Addresses: []link.Address{addr("fe80::1/64", 0)}}, nil); x.Preferred().Index != 1 {
		t.Errorf("link-local only: %+v", x)
	}
}

// A table is right when it has what the link has, and nothing of what it had.
func TestSettled(t *testing.T) {
	addr := func(s string) link.Address { return link.Address{Prefix: netip.MustParsePrefix(s)} }
	entry := func(s, netdev string) GID { return GID{GID: netip.MustParseAddr(s).As16(), Version: 2, Netdev: netdev} }
	own, v4, v6, vlan := entry("fe80::1", "eth0"), entry("::ffff:10.0.0.1", "eth0"), entry("fd00::1", "eth0"),
		entry("::ffff:10.7.0.1", "eth0.7")
	for _, c := range []struct {
		name  string
		table []GID
		addrs []link.Address
		want  bool
	}{
		{"agrees", []GID{own, v4, v6, vlan}, []link.Address{addr("10.0.0.1/24"), addr("fd00::1/64"), addr("fe80::1/64")}, true},
		{"without the link-local address", []GID{own, v4}, []link.Address{addr("10.0.0.1/24")}, true},
		{"an address to come", []GID{own}, []link.Address{addr("10.0.0.1/24")}, false},
		{"a link-local address to come", []GID{v4}, []link.Address{addr("10.0.0.1/24"), addr("fe80::1/64")}, false},
		{"an address that has gone", []GID{own, v4, v6}, []link.Address{addr("10.0.0.1/24")}, false},
		{"the address of another interface", []GID{own, entry("::ffff:10.0.0.1", "eth1")}, []link.Address{addr("10.0.0.1/24")}, false},
	} {
		if got := Settled(c.table, &link.Link{Name: "eth0", Addresses: c.addrs}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Every operation is a command of a shell about its target, which the planner's model
// takes, and the record has what it makes.
func TestOps(t *testing.T) {
	s, _ := system()
	s.Links = []link.Link{{Index: 7, Name: "net7"}}
	for _, op := range Ops() {
		word, _, _ := strings.Cut(op.String(), " ")
		if !slices.Contains([]string{"ip", "rdma", "dcb", "devlink", "echo", "mkdir"}, word) {
			t.Errorf("%T: %q is not a command", op, op)
		}
		if op.Target().Link != "net7" || op.Target().Port != 1 {
			t.Errorf("%T is about %s", op, op.Target())
		}
		if err := link.NewModel(s).Apply(op); err != nil {
			t.Errorf("%T: %v", op, err)
		}
		if x, ok := op.(link.Maker); ok {
			m, remove := x.Makes()
			if m.Kind == "" || m.Name == "" || m.On != op.Target().Ifindex ||
				!strings.Contains(op.String(), m.Name) || remove != strings.Contains(op.String(), "delete") {
				t.Errorf("%T makes %+v, remove %v", op, m, remove)
			}
		}
	}
}

func TestContestedKeys(t *testing.T) {
	on := link.Target{Link: "eth0", Ifindex: 2}
	keys := map[string]bool{}
	for _, op := range []link.Op{SetPFC{On: on}, SetETS{On: on}, SetTrust{On: on}, SetBuffers{On: on}, SetDCBX{On: on},
		SetVersion{On: on}, SetToS{On: on}, MapDSCP{On: on, DSCP: 1}, MapDSCP{On: on, DSCP: 2}} {
		keys[ContestedKey(op)] = true
	}
	if len(keys) != 9 || keys[""] {
		t.Errorf("keys %v", slices.Sorted(maps.Keys(keys)))
	}
	if ContestedKey(AddVLAN{On: on}) != "" {
		t.Error("nothing else changes a VLAN back")
	}
}

// Both ports of a card change in the order that a card accepts which does not take
// Ethernet on port 1 beside InfiniBand on port 2; other cards and operations keep
// their places.
func TestOrderOfTypes(t *testing.T) {
	op := func(dev string, port int, typ units.PortType) link.Op {
		return SetPortType{On: link.Target{IBDevice: dev, Port: port}, Port: PortType{Bus: "pci", Dev: dev, Index: uint32(port)}, Type: typ}
	}
	const eth, ib = units.PortTypeEth, units.PortTypeIB
	up := link.SetUp{On: link.Target{Link: "eth0"}, Up: true}
	for _, tt := range []struct{ in, want []link.Op }{
		{[]link.Op{op("a", 1, eth), up, op("a", 2, eth)}, []link.Op{op("a", 2, eth), up, op("a", 1, eth)}},
		{[]link.Op{op("a", 2, ib), op("a", 1, ib)}, []link.Op{op("a", 1, ib), op("a", 2, ib)}},
		{[]link.Op{op("a", 1, eth), op("b", 1, ib), op("b", 2, ib), op("a", 2, eth)}, []link.Op{op("a", 2, eth), op("b", 1, ib),
			op("b", 2, ib), op("a", 1, eth)}},
		{[]link.Op{op("a", 1, eth), op("a", 2, ib)}, []link.Op{op("a", 1, eth), op("a", 2, ib)}},
	} {
		var steps, want []link.Step
		for i := range tt.in {
			steps, want = append(steps, link.Step{Op: tt.in[i]}), append(want, link.Step{Op: tt.want[i]})
		}
		orderTypes(steps)
		if diff := cmp.Diff(want, steps); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A recorded snapshot plans as the observed one does.
func TestRecorded(t *testing.T) {
	s, st := system()
	u := unit(t, "[RoCE]\nVersion=2\n")
	if got := run(s, nil, 2, u).ops; got != nil {
		t.Errorf("without a state: %v", got)
	}
	want := run(s, st, 2, u).ops
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back := &link.Snapshot{}
	if err := errors.Join(json.Unmarshal(text, back), back.Check()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, run(back, back.Card, 2, u).ops); diff != "" || len(want) == 0 {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// A driver with an empty trust table is not one without: what it trusts is then
// set in the table and not by an entry of the DSCP map.
func TestEmptyTrustTable(t *testing.T) {
	s, st := system()
	l := st.Links[2]
	l.DCB.DCBX, l.DCB.Trust = ptr(DCBXHost|DCBXIEEE), []units.Trust{}
	text, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	back := &State{}
	if err := json.Unmarshal(text, back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"dcb apptrust set dev eth0 order dscp"}, run(s, back, 2, unit(t, "[RoCE]\nTrust=dscp\n")).ops); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestChanged(t *testing.T) {
	state := func(f func(*State)) *State {
		_, st := system()
		if f != nil {
			f(st)
		}
		return st
	}
	for name, tt := range map[string]struct {
		f     func(*State)
		links map[int]bool
		ports bool
	}{
		"OK nothing": {nil, map[int]bool{}, false},
		"OK one":     {func(s *State) { *s.Links[2].DCB.PFC = 1 }, map[int]bool{2: true}, false},
		"OK gone":    {func(s *State) { delete(s.Links, 3) }, map[int]bool{3: true}, false},
		"OK all":     {func(s *State) { s.Agents = []string{"lldpad"} }, map[int]bool{2: true, 3: true}, true},
	} {
		links, ports := Changed(state(nil), state(tt.f))
		if diff := cmp.Diff(tt.links, links); diff != "" || ports != tt.ports {
			t.Errorf("%s: ports %v (-want +got):\n%s", name, ports, diff)
		}
	}
	if links, ports := Changed(nil, state(nil)); len(links) != 2 || !ports {
		t.Errorf("from nothing: %v, %v", links, ports)
	}
}

// What a unit asks for is read, and nothing else; each section makes the planner
// look at the cards.
func TestNeeds(t *testing.T) {
	for text, want := range map[string]Needs{
		"":                                       {},
		"[Network]\nAddress=10.0.0.1/24\n":       {},
		"[Port]\nType=eth\n":                     {Sections: true, PortType: true},
		"[Port]\nNodeDescription=x\n":            {Sections: true, NodeDesc: true},
		"[RoCE]\nVersion=2\n":                    {Sections: true, Defaults: true},
		"[RoCE]\nDSCP=26\nPriority=3\n":          {Sections: true, Defaults: true, DCB: true},
		"[RoCE]\nPFC=3\nWriteModprobeFile=yes\n": {Sections: true, DCB: true, Modprobe: true},
		"[RoCE]\nECN=3\n":                        {Sections: true, ECN: true},
		"[SoftRoCE]\n":                           {Sections: true, Soft: true},
		"[VLAN]\nId=7\n":                         {Sections: true},
		"[VF]\nVirtualFunction=0\nTrust=yes\n":   {Sections: true, Functions: true},
		"[VirtualFunctions]\nCount=2\n":          {Sections: true, Functions: true},
	} {
		u := unit(t, text)
		if diff := cmp.Diff(want, NeedsOf(u)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
		if got := NeedsCards(nil, []*units.Unit{u}); got != want.Sections {
			t.Errorf("%q: NeedsCards %v", text, got)
		}
	}
	s, _ := system()
	if !NeedsCards(s, nil) {
		t.Error("the GIDs of an Ethernet port are not read")
	}
}

func FuzzState(f *testing.F) {
	_, st := system()
	b, err := json.Marshal(st)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"links":{"2":{"dcb":{}}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		st := &State{}
		if json.Unmarshal(b, st) != nil {
			return
		}
		s, _ := system()
		u := unit(t, "[Port]\nType=eth\n[RoCE]\nVersion=2\nPFC=3\nETS=0:100\nBufferSize=0:1000\nTrust=dscp\n[VirtualFunctions]\n"+
			"NodeGUID=auto\nLinkState=enable\n")
		before, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{2, 3} {
			run(s, st, i, u)
		}
		if after, err := json.Marshal(st); err != nil || string(before) != string(after) {
			t.Errorf("planning changed the state: %v\n%s\n%s", err, before, after)
		}
	})
}

// What was made for a unit goes with it; what others made stays; a link whose
// unit is not known yet keeps all.
func TestRemovals(t *testing.T) {
	s, _ := system()
	s.Devices = append(s.Devices, link.Device{Name: "rxe_eth0", Index: 9, Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerEthernet,
		Netdev: 2}}},
		link.Device{Name: "foreign0", Index: 10})
	s.Links = append(s.Links, link.Link{Index: 7, Name: "eth0.7", Kind: "vlan", Parent: 2}, link.Link{Index: 8, Name: "eth0.8",
		Kind: "vlan", Parent: 2})
	rec := &link.Record{}
	for _, op := range []link.Op{AddSoft{On: link.Target{Link: "eth0", Ifindex: 2}, Name: "rxe_eth0"},
		AddVLAN{On: link.Target{Link: "eth0", Ifindex: 2}, Name: "eth0.7"}, AddVLAN{On: link.Target{Link: "eth0", Ifindex: 2}, Name: "gone"}} {
		rec.Intend(op)
	}
	ops := func(text string, settled bool) (out []string) {
		var u *units.Unit
		if text != "none" {
			u = unit(t, text)
		}
		b := link.NewBuilder(s, rec, nil)
		PlanRemovals(b, func(int) (*units.Unit, bool) { return u, settled })
		for _, x := range b.Plan.Steps {
			out = append(out, x.Op.String())
		}
		return out
	}
	for _, tt := range []struct {
		name, text string
		settled    bool
		want       []string
	}{
		{"OK wanted", "[SoftRoCE]\nDriver=rxe\n[VLAN]\nId=7\n", true, nil},
		{"OK one wanted", "[SoftRoCE]\nDriver=rxe\n", true, []string{"ip link delete eth0.7"}},
		{"OK unit gone", "none", true, []string{"rdma link delete rxe_eth0", "ip link delete eth0.7"}},
		{"OK not settled", "none", false, nil},
	} {
		if diff := cmp.Diff(tt.want, ops(tt.text, tt.settled)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	// What is removed and made again in one plan is ours after it.
	again := []link.Op{DelVLAN{On: link.Target{Ifindex: 2}, Name: "eth0.7"}, AddVLAN{On: link.Target{Ifindex: 2}, Name: "eth0.7"}}
	for _, op := range again {
		rec.Intend(op)
	}
	for _, op := range again {
		rec.Done(op)
	}
	rec.Done(DelSoft{On: link.Target{Ifindex: 2}, Name: "rxe_eth0"})
	rec.Failed(AddVLAN{On: link.Target{Ifindex: 2}, Name: "gone"})
	if diff := cmp.Diff([]link.Made{{Kind: "vlan", Name: "eth0.7", On: 2}}, rec.Made); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

// What is made anew under another name, number or tag finds its place free: each
// edit of a unit takes one plan.
func TestEdits(t *testing.T) {
	s, st := system()
	rec := &link.Record{}
	settle := func(text string, held map[string]link.Reason) (out []string) {
		t.Helper()
		s.Card = st
		u := unit(t, text)
		b := link.NewBuilder(s, rec, held)
		PlanRemovals(b, func(i int) (*units.Unit, bool) { return u, i == 2 })
		Plan(b, 2, u)
		for _, x := range b.Plan.Steps {
			rec.Intend(x.Op)
		}
		for _, x := range b.Plan.Steps {
			switch o := x.Op.(type) {
			case AddVLAN:
				if slices.ContainsFunc(s.Links, func(l link.Link) bool {
					return l.Name == o.Name || l.VLAN != nil && l.VLAN.ID == o.VLAN.Id.V && l.VLAN.Protocol == uint16(o.VLAN.Protocol.Or(units.VLAN8021Q))
				}) {
					t.Errorf("%s: file exists", o)
				}
			case AddSoft:
				if slices.ContainsFunc(st.Links[2].Soft, func(d SoftDevice) bool { return d.Name == o.Name || d.Driver == o.Driver }) {
					t.Errorf("%s: file exists", o)
				}
				s.Devices = append(s.Devices, link.Device{Name: o.Name, Index: 9})
			case DelSoft:
				s.Devices = slices.DeleteFunc(s.Devices, func(d link.Device) bool { return d.Name == o.Name })
			}
			apply(t, s, st, x.Op)
			rec.Done(x.Op)
			out = append(out, x.Op.String())
		}
		return out
	}
	const soft, vlan = "[SoftRoCE]\nDriver=%s\nName=%s\n", "[VLAN]\nName=%s\nId=%d\n%s"
	two := func(a string, ida int, b string, idb int) string {
		return fmt.Sprintf(vlan+vlan, a, ida, "", b, idb, "")
	}
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"OK begin", two("a", 7, "b", 8), []string{"ip link add link eth0 name a type vlan id 7", "ip link add link eth0 name b type vlan id 8"}},
		{"OK another name", two("c", 7, "b", 8), []string{"ip link delete a", "ip link add link eth0 name c type vlan id 7"}},
		{"OK numbers swap", two("c", 8, "b", 7), []string{"ip link delete b", "ip link delete c", "ip link add link eth0 name c " +
			"type vlan id 8", "ip link add link eth0 name b type vlan id 7"}},
		{"OK names swap", two("b", 8, "c", 7), []string{"ip link delete c", "ip link delete b", "ip link add link eth0 name b type " +
			"vlan id 8", "ip link add link eth0 name c type vlan id 7"}},
		{"OK another tag", fmt.Sprintf(vlan, "b", 8, "Protocol=802.1ad\n"), []string{"ip link delete b", "ip link delete c",
			"ip link add link eth0 name b type vlan protocol 802.1ad id 8"}},
		{"OK a soft device", fmt.Sprintf(soft, "rxe", "r"), []string{"ip link delete b", "rdma link add r type rxe netdev eth0"}},
		{"OK its name", fmt.Sprintf(soft, "rxe", "q"), []string{"rdma link delete r", "rdma link add q type rxe netdev eth0"}},
		{"OK its driver", fmt.Sprintf(soft, "siw", "q"), []string{"rdma link delete q", "rdma link add q type siw netdev eth0"}},
		{"OK nothing more", "", []string{"rdma link delete q"}},
	} {
		if diff := cmp.Diff(tt.want, settle(tt.text, nil)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if again := settle(tt.text, nil); again != nil {
			t.Errorf("%s: a second plan has %q", tt.name, again)
		}
	}
	// What cannot go now keeps what is to come in its place from being tried.
	settle(fmt.Sprintf(vlan, "a", 7, ""), nil)
	held := map[string]link.Reason{link.HoldKey(DelVLAN{On: link.Target{Link: "eth0", Ifindex: 2},
		Name: "a"}): {Code: link.CodeRetry, Text: "busy"}}
	if got := settle(fmt.Sprintf(vlan, "a", 8, ""), held); got != nil {
		t.Errorf("made although the old one stays: %q", got)
	}
}

// A port without an interface gets its type and description.
func TestPorts(t *testing.T) {
	s, st := system()
	s.Links = s.Links[:1]
	s.Card = st
	u := unit(t, "[Port]\nType=eth\n")
	b := link.NewBuilder(s, nil, nil)
	PlanPorts(b, func(d *link.Device, _ *link.Port) *units.Unit {
		if d.Name == "mlx4_0" {
			return u
		}
		return nil
	})
	if len(b.Plan.Steps) != 1 || b.Plan.Steps[0].Op.String() != "devlink port set pci/0000:03:00.0/1 type eth" || b.Plan.Steps[0].Unit == "" {
		t.Errorf("%+v %+v", b.Plan.Steps, b.Plan.Blocked)
	}
}
