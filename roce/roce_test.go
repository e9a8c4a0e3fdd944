package roce

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

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
			"mlx4_0": {NodeDesc: new("old"), Ports: map[int]Port{1: {Type: &PortType{Configured: units.PortTypeIB,
				Current: units.PortTypeIB, Bus: "pci", Dev: "0000:03:00.0", Index: 1}}}},
			"mlx5_0": {NodeDesc: new("old"), Ports: map[int]Port{1: {Defaults: &Defaults{Version: 1}, GIDs: []GID{
				{Index: 0, GID: gid("fe80::1"), Version: 1, Netdev: "eth0"}, {Index: 1, GID: gid("fe80::1"), Version: 2, Netdev: "eth0"},
				{Index: 4, GID: gid("::ffff:10.0.0.1"), Version: 1, Netdev: "eth0"}, {Index: 5, GID: gid("::ffff:10.0.0.1"), Version: 2,
					Netdev: "eth0"},
			}}}},
		},
		Links: map[int]Link{
			2: {
				DCB: &DCB{Driver: "mlx5_core", DCBX: new(uint8(DCBXManaged | DCBXIEEE)), PFC: new(uint8(0)), PFCCap: 8, Delay: 7,
					ETS:    &Classes{Class: [8]uint8{0, 1, 2, 3, 4, 5, 6, 7}},
					Buffer: &Buffers{Size: [8]uint32{0: 130944}, Total: 262016}, DSCP: map[uint8]uint8{}},
				SRIOV: &SRIOV{Bus: "pci", Dev: "0000:3b:00.1", Total: 8, Autoprobe: new(true)},
				ECN:   new(uint8(0)),
				Ethtool: map[units.EthtoolParam]Ethtool{0: {N: 1024, Max: 8192}, 3: {N: 1024, Max: 8192}, 7: {N: 4, Max: 8},
					units.RxCoalesceSec: {N: 8}, units.RxMaxCoalescedFrames: {N: 128}, units.UseAdaptiveRxCoalesce: {N: 1}},
				EthtoolRead: map[units.EthtoolGroup]string{units.EthtoolRings: "", units.EthtoolChannels: "", units.EthtoolCoalesce: ""},
			},
			3: {SRIOV: &SRIOV{Bus: "pci", Dev: "0000:03:00.0", Total: 16, VFs: []VF{
				{Dev: "0000:03:00.1", Driver: "mlx4_core", NodeGUID: new(ib.GUID(0)), PortGUID: new(ib.GUID(0)),
					LinkState: new(units.VFLinkAuto), OwnGUID: 0x1},
				{Dev: "0000:03:00.2", NodeGUID: new(ib.GUID(0)), PortGUID: new(ib.GUID(0)), LinkState: new(units.VFLinkAuto)},
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

// upper adds a link job0 of a kind on eth0, which others made.
func upper(kind string, mode uint16, flags uint32) func(*link.Snapshot, *State) {
	return func(s *link.Snapshot, _ *State) {
		s.Links = append(s.Links, link.Link{Index: 9, Name: "job0", Kind: kind, Type: 1, Parent: 2, VLAN: &link.VLAN{Mode: mode, Flags: flags}})
	}
}

// slave puts eth0 into a link of a kind.
func slave(kind string) func(*link.Snapshot, *State) {
	return func(s *link.Snapshot, _ *State) {
		s.Links = append(s.Links, link.Link{Index: 9, Name: "br0", Kind: kind, Type: 1})
		s.Links[0].Master, s.Links[0].SlaveKind = 9, kind
	}
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
		silent  bool // reported as attributes alone
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
		{name: "OK ice, whose first DSCP resets the classes", index: eth0, text: "[RoCE]\nETS=0:40 3:60\nDSCPToPriority=26:3\n",
			change: func(_ *link.Snapshot, st *State) { st.Links[2].DCB.Driver = "ice" },
			ops: []string{host, "dcb app add dev eth0 dscp-prio 26:3",
				"dcb ets set dev eth0 tc-tsa 0:ets 1:strict 2:strict 3:ets 4:strict 5:strict 6:strict 7:strict " +
					"tc-bw 0:40 1:0 2:0 3:60 4:0 5:0 6:0 7:0 prio-tc 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7"}},
		{name: "bad ice, classes of priorities beside DSCP", index: eth0, text: "[RoCE]\nPriorityToClass=3:3 4:0\nDSCPToPriority=26:3\n",
			change: func(_ *link.Snapshot, st *State) {
				st.Links[2].DCB.Driver, st.Links[2].DCB.DSCP = "ice", map[uint8]uint8{26: 3}
				st.Links[2].DCB.ETS.Class = [Priorities]uint8{0, 1, 2, 3, 4, 5, 6, 7}
			},
			ops: []string{host},
			blocked: []string{"4:0: ice has each priority in the class of its number while a DSCP has a priority / remove 4:0 of " +
				"PriorityToClass=; or write Trust=pcp, and remove DSCPToPriority= and Priority="}},
		{name: "bad ice, classes of priorities beside DSCPs of the card", index: eth0, text: "[RoCE]\nPriorityToClass=4:0\n",
			change: func(_ *link.Snapshot, st *State) {
				st.Links[2].DCB.Driver, st.Links[2].DCB.DSCP = "ice", map[uint8]uint8{26: 3}
				st.Links[2].DCB.ETS.Class = [Priorities]uint8{0, 1, 2, 3, 4, 5, 6, 7}
			},
			ops: []string{host},
			blocked: []string{"4:0: ice has each priority in the class of its number while a DSCP has a priority / remove 4:0 of " +
				"PriorityToClass=; or write Trust=pcp, which removes the DSCPs of the card"}},
		{name: "OK ice, Trust=pcp removes the DSCPs before the classes", index: eth0, text: "[RoCE]\nPriorityToClass=4:0\nTrust=pcp\n",
			change: func(_ *link.Snapshot, st *State) {
				st.Links[2].DCB.Driver, st.Links[2].DCB.DSCP = "ice", map[uint8]uint8{26: 3}
				st.Links[2].DCB.ETS.Class = [Priorities]uint8{0, 1, 2, 3, 4, 5, 6, 7}
			},
			ops: []string{host, "dcb app flush dev eth0 dscp-prio",
				"dcb ets set dev eth0 tc-tsa 0:strict 1:strict 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict " +
					"tc-bw 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 prio-tc 0:0 1:1 2:2 3:3 4:0 5:5 6:6 7:7"}},
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
		{name: "bad priorities by DSCP of mlx4, which the kernel keeps and the card does not use", index: eth0,
			text: "[RoCE]\nDSCPToPriority=26:3\nTrust=dscp\n", change: func(_ *link.Snapshot, st *State) {
				st.Links[2].DCB.DCBX, st.Links[2].DCB.Driver = nil, "mlx4_core"
			}, blocked: []string{"the driver mlx4_core of eth0 has no priorities by DSCP: the kernel keeps such a list and the card does " +
				"not use it / remove DSCPToPriority=, Priority= and Trust=dscp; use the priority of a VLAN: EgressQOSMaps= in [VLAN]"}},
		{name: "OK cable of mlx5", index: eth0, text: "[RoCE]\nPFC=3\nCableLength=5\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Links[2].DCB.DCBX = nil
		},
			ops: []string{"dcb pfc set dev eth0 prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off", "dcb pfc set dev eth0 " +
				"prio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off delay 5"}},
		{name: "bad cable that is not taken", index: eth0, text: "[RoCE]\nPFC=3\nCableLength=5\n", change: func(_ *link.Snapshot, st *State) {
			st.Links[2].DCB.DCBX, st.Links[2].DCB.PFC = nil, new(uint8(8))
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
			"and Name=theirs in [SoftRoCE], or: rdma link delete theirs"}},
		{name: "bad soft RoCE elsewhere", index: eth0, text: "[SoftRoCE]\nName=mlx4_0\n", blocked: []string{"an RDMA device mlx4_0 " +
			"exists and is not on eth0 / write another Name= in [SoftRoCE]"}},
		{name: "OK VLAN", index: eth0, text: "[VLAN]\nId=7\nName=storage\nMTUBytes=1400\nEgressQOSMaps=3-3 4-4\n",
			ops: []string{"ip link add link eth0 name storage mtu 1400 type vlan id 7 egress-qos-map 3:3 4:4"}},
		{name: "OK VLAN is as asked", index: eth0, text: "[VLAN]\nId=7\nName=storage\nGVRP=no\nEgressQOSMaps=3-3 4-0\n", change: storage},
		{name: "OK VLAN changes", index: eth0, text: "[VLAN]\nId=7\nName=storage\nGVRP=yes\nReorderHeader=yes\nEgressQOSMaps=5-5\n",
			change: storage,
			ops:    []string{"ip link set dev storage type vlan reorder_hdr on gvrp on egress-qos-map 3:0 5:5"}},
		{name: "bad VLAN of another tag", index: eth0, text: "[VLAN]\nId=7\nName=storage\nProtocol=802.1ad\n", change: storage,
			blocked: []string{"storage has tags of a protocol other than 802.1ad, and was not made by ibnetworkd / ip link delete " +
				"storage, or write another Name= in [VLAN]"}},
		{name: "OK macvlan", index: eth0, text: "[MACVLAN]\nName=job0\nMode=bridge\nMTUBytes=1400\n",
			change: func(s *link.Snapshot, _ *State) { s.Links[0].HWAddr, _ = ib.ParseHWAddr("02:00:00:00:00:05") },
			ops:    []string{"ip link add link eth0 name job0 address ea:0f:98:5a:c3:6a mtu 1400 type macvlan mode bridge"}},
		{name: "OK macvlan is as asked", index: eth0, text: "[MACVLAN]\nName=job0\nMode=vepa\n", change: upper("macvlan", 2, 0)},
		{name: "OK macvlan of any mode", index: eth0, text: "[MACVLAN]\nName=job0\n", change: upper("macvlan", 8, 0)},
		{name: "OK macvlan changes", index: eth0, text: "[MACVLAN]\nName=job0\nMode=private\n", change: upper("macvlan", 2, 0),
			ops: []string{"ip link set dev job0 type macvlan mode private"}},
		{name: "bad macvlan of others to passthru", index: eth0, text: "[MACVLAN]\nName=job0\nMode=passthru\n", change: upper("macvlan", 2, 0),
			blocked: []string{"job0 has Mode=vepa, which the kernel does not change to passthru, and was not made by ibnetworkd / " +
				"ip link delete job0, or write another Name= in [MACVLAN]"}},
		{name: "OK macvlan with the address of its link", index: eth0, text: "[MACVLAN]\nName=job0\nMode=passthru\n",
			ops: []string{"ip link add link eth0 name job0 type macvlan mode passthru"}},
		{name: "bad macvlan name", index: eth0, text: "[MACVLAN]\nName=job0\n", change: upper("ipvlan", 0, 0),
			blocked: []string{"a link job0 exists and is not of kind macvlan on eth0 / write another Name= in [MACVLAN]"}},
		{name: "OK ipvlans", index: eth0, text: "[IPVLAN]\nName=job0\n[IPVLAN]\nName=job1\n",
			ops: []string{"ip link add link eth0 name job0 type ipvlan mode l2 bridge",
				"ip link add link eth0 name job1 type ipvlan mode l2 bridge"}},
		{name: "OK ipvlan is as asked", index: eth0, text: "[IPVLAN]\nName=job0\nMode=L3S\nFlags=vepa\n", change: upper("ipvlan", 2, 2)},
		{name: "OK ipvlan changes", index: eth0, text: "[IPVLAN]\nName=job0\nFlags=private\n", change: upper("ipvlan", 1, 0),
			ops: []string{"ip link set dev job0 type ipvlan mode l2 private"}},
		{name: "bad macvlan on a slave", index: eth0, text: "[MACVLAN]\nName=job0\n", change: slave("bridge"),
			blocked: []string{"eth0 is in br0, which gets all its packets: the kernel makes no macvlan on it / " +
				"write [MACVLAN] into a unit with [Match] Name=br0"}},
		{name: "OK ipvlan on a link in a VRF", index: eth0, text: "[IPVLAN]\nName=job0\n", change: slave("vrf"),
			ops: []string{"ip link add link eth0 name job0 type ipvlan mode l2 bridge"}},
		{name: "OK nothing on a macvlan", index: eth0, text: "[IPVLAN]\nName=job1\n", change: func(s *link.Snapshot, _ *State) {
			s.Links[0].Kind, s.Links[0].Parent = "macvlan", 3
		}},
		{name: "bad VLAN name", index: eth0, text: "[VLAN]\nId=7\nName=ib0\n", blocked: []string{"a link ib0 exists and is not of kind " +
			"vlan on eth0 / write another Name= in [VLAN]"}},
		{name: "bad firmware's type", index: eth0, text: "[Port]\nType=ib\n",
			blocked: []string{"eth0 is Ethernet, wanted InfiniBand: on this card the type is a setting of the firmware, which takes " +
				"effect after a reset / mstconfig -d 0000:3b:00.1 set LINK_TYPE_P2=1, then mstfwreset -d 0000:3b:00.1 reset, or reboot; a " +
				"board on which mstconfig has no LINK_TYPE_P1 has one type only"}},
		{name: "bad firmware's type of a virtual function", index: eth0, text: "[Port]\nType=ib\n", change: func(s *link.Snapshot, _ *State) {
			d, _ := s.Device("mlx5_0")
			d.Virtual, d.Parent = true, "0000:3b:00.5"
		}, blocked: []string{"eth0 is Ethernet, wanted InfiniBand: mlx5_0 is a virtual function, whose type is that of its card's " +
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
			blocked: []string{"wanted 9 virtual functions, eth0 has at most 8 / mstconfig -d 0000:3b:00.1 set NUM_OF_VFS=9, then reboot"}},

		{name: "bad keys of Ethernet on InfiniBand", index: ib0, silent: true,
			text: "[SoftRoCE]\n[VLAN]\nId=7\n[MACVLAN]\nName=x\n[RoCE]\nPFC=3\n"},
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
				"ChangeWhileInUse=yes in [Port], or bring the link down: ibnetctl down ib0"}},
		{name: "bad port whose device is in " +
			"use", index: ib0, text: "[Port]\nType=eth\n", change: func(_ *link.Snapshot,
			st *State) {
			st.Devices["mlx4_0"].Ports[1].Type.Programs = 2
		},
			blocked: []string{"ib0 is in use (2 programs have its device open): changing its type would remove it / write " +
				"ChangeWhileInUse=yes in [Port], or end them: rdma resource show cm_id; rdma resource show ctx"}},
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
			blocked: []string{"ib0 has no virtual function 2, it has 2 of them (the first is 0) / write Count=3 in [VirtualFunctions]"}},
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
			blocked: []string{"eth0 is Ethernet: its virtual functions have MAC addresses, no GUIDs / write MACAddress= in [VF]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, st := system()
			if tt.change != nil {
				tt.change(s, st)
			}
			r := run(s, st, tt.index, unit(t, tt.text))
			testkit.Diff(t, "ops", tt.ops, r.ops)
			testkit.Diff(t, "blocked", tt.blocked, r.blocked)
			if len(r.ops) == 0 && (len(r.blocked) > 0 || tt.silent) && !slices.ContainsFunc(r.attrs,
				func(a link.Attribute) bool { return a.Why != (link.Reason{}) }) {
				t.Errorf("what is blocked is in no attribute: %+v", r.attrs)
			}
		})
	}
}

// A firmware that keeps DCBX gets no other setting of data centre bridging: each would
// be refused for a reason of its own.
func TestFirmwareKeepsDCBX(t *testing.T) {
	u := unit(t, "[RoCE]\nPFC=3\nETS=0:40 3:60\nDSCPToPriority=26:3\n")
	host := SetDCBX{On: link.Target{Ifindex: 2, Link: "eth0"}, Flags: DCBXHost | DCBXIEEE, Driver: "mlx5_core"}
	for _, name := range []string{"", "refused", "taken back"} {
		s, st := system()
		delayed := map[string]link.Reason{}
		switch s.Card = st; name {
		case "refused":
			delayed[link.DelayKey(host)] = link.Reason{Code: link.CodeRefused, Text: "no"}
		case "taken back":
			st.Contested = map[string]int{ContestedKey(host): flapLimit}
		}
		b := link.NewBuilder(s, &link.Record{}, delayed)
		b.For(u)
		Plan(b, 2, u)
		n := 0
		for _, a := range b.Attributes(2) {
			if a.Name == "PFC" || a.Name == "ETS" || a.Name == "DSCPToPriority" {
				n++
			}
		}
		if (n > 0) != (name == "") {
			t.Errorf("DCBX %s: %d other settings: %+v", name, n, b.Attributes(2))
		}
	}
}

// The RDMA port of a bond is that of a slave, soft RoCE is never advised beside a card,
// and a slave has no GIDs of its own.
func TestBond(t *testing.T) {
	s, st := system()
	s.Links[0].Master = 9
	s.Links = append(s.Links, link.Link{Index: 9, Name: "bond0", Type: 1, Kind: "bond", Flags: link.FlagUp})
	bond, slave := &s.Links[2], &s.Links[0]
	if d, p := RoCEPortOf(s, st, bond); p == nil || d.Name != "mlx5_0" {
		t.Errorf("the port of the bond is %v of %v", p, d)
	}
	if !IsSlave(s, slave) {
		t.Error("eth0 is no slave")
	}
	s.Devices = s.Devices[:1]
	for _, l := range []int{9, 2} {
		for _, a := range run(s, st, l, unit(t, "[RoCE]\nVersion=2\n")).attrs {
			if a.Name == "Version" && (a.Why.Text == "" || strings.Contains(a.Why.Next, "SoftRoCE")) {
				t.Errorf("link %d without a device: %+v", l, a)
			}
		}
	}
}

func storage(s *link.Snapshot, _ *State) {
	s.Links = append(s.Links, link.Link{Index: 9, Name: "storage", Kind: "vlan", Type: 1, Parent: 2, VLAN: &link.VLAN{ID: 7,
		Protocol: 0x8100, Flags: link.VLANReorderHeader, Egress: map[uint32]uint32{3: 3}}})
}

func ethernetVF(_ *link.Snapshot, st *State) {
	st.Links[2].SRIOV.VFs = []VF{{Dev: "0000:3b:00.2", LinkState: new(units.VFLinkAuto), Trust: new(false), Spoof: new(false)}}
}

func inUse(s *link.Snapshot, _ *State) {
	s.Links[1].Flags |= link.FlagUp
	s.Links[1].Addresses = []link.Address{{Prefix: netip.MustParsePrefix("10.1.0.1/24")}}
}

// A driver with an empty trust table is not one without: what it trusts is then
// set in the table and not by an entry of the DSCP map.
func TestEmptyTrustTable(t *testing.T) {
	s, st := system()
	l := st.Links[2]
	l.DCB.DCBX, l.DCB.Trust = new(DCBXHost|DCBXIEEE), []units.Trust{}
	text, err := json.Marshal(st)
	testkit.NoError(t, err)
	back := &State{}
	testkit.NoError(t, json.Unmarshal(text, back))
	testkit.Diff(t, "", []string{"dcb apptrust set dev eth0 order dscp"}, run(s, back, 2, unit(t, "[RoCE]\nTrust=dscp\n")).ops)
}

// The file with the module option of mlx4 says that an initramfs has a copy of it.
func TestModprobeNamesInitramfs(t *testing.T) {
	s, st := system()
	l, _ := s.Link(2)
	l.Driver, st.Links[2].DCB.Driver = "mlx4_core", "mlx4_core"
	ops := strings.Join(run(s, st, 2, unit(t, "[RoCE]\nPFC=3\nWriteModprobeFile=yes\n")).ops, "\n")
	for _, want := range []string{"update-initramfs -u, or dracut --force", "\noptions mlx4_en pfctx=0x08 pfcrx=0x08' > " + ModprobeFile} {
		if !strings.Contains(ops, want) {
			t.Errorf("no %q in\n%s", want, ops)
		}
	}
}
