package roce

import (
	"net/netip"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Ops is one sample at least of each operation of this package, as link.Ops.
func Ops() []link.Op {
	on := link.Target{Link: "net7", Ifindex: 7, IBDevice: "mlx5_0", Port: 1}
	const bus, card, function = "pci", "0000:03:00.0", "0000:03:00.1"
	guid := ib.GUID(0x0002c903000abcde)
	mac, _ := ib.ParseHWAddr("02:00:00:00:00:01")
	yes, rate, id, state := true, uint32(10), uint16(7), units.VFLinkEnable
	vf := func(a VFAttr) link.Op { return SetVF{On: on, VF: 1, Attr: a} }
	return []link.Op{
		SetPortType{On: on, Port: PortType{Bus: bus, Dev: card, Index: 1}, Type: units.PortTypeEth},
		SetNodeDesc{On: on, Desc: "node7"},
		SetVersion{On: on, Version: 2},
		SetToS{On: on, ToS: 104},
		SetDCBX{On: on, Flags: DCBXHost | DCBXIEEE},
		SetPFC{On: on, Priority: 8},
		SetECN{On: on, Priority: 3, Enable: true},
		SetModprobe{On: on, Text: "x"},
		SetETS{On: on},
		MapDSCP{On: on, DSCP: 26, Priority: 3},
		ClearDSCP{On: on},
		SetTrust{On: on, Trust: units.TrustDSCP},
		SetBuffers{On: on},
		moveSample(on),
		AddVLAN{On: on, Name: "v7", VLAN: units.VLAN{Id: units.Some(id)}},
		DelVLAN{On: on, Name: "v7"},
		SetVLAN{On: on, Name: "v7", VLAN: units.VLAN{GVRP: units.Some(true)}},
		AddVLAN{On: on, Name: "v7", Address: mac, VLAN: units.VLAN{Kind: units.KindMACVLAN, MACVLANMode: units.Some(units.MACVLANBridge)}},
		SetVLAN{On: on, Name: "v7", VLAN: units.VLAN{Kind: units.KindMACVLAN, MACVLANMode: units.Some(units.MACVLANPrivate)}},
		AddVLAN{On: on, Name: "v7", VLAN: units.VLAN{Kind: units.KindIPVLAN}},
		DelVLAN{On: on, Name: "v7", Kind: units.KindIPVLAN},
		AddSoft{On: on, Name: "rxe0"},
		DelSoft{On: on, Name: "rxe0", Index: 3},
		SetAutoprobe{On: on, Bus: bus, Dev: card},
		SetVFs{On: on, Bus: bus, Dev: card, Count: 4},
		SetVFs{On: on, Bus: bus, Dev: card, Old: 2, Count: 4},
		vf(VFAttr{NodeGUID: &guid}),
		vf(VFAttr{LinkState: &state}),
		vf(VFAttr{Trust: &yes}),
		vf(VFAttr{MinRate: &rate, MaxRate: &rate}),
		vf(VFAttr{MAC: mac}),
		vf(VFAttr{VLAN: &id}),
		SetVFGUIDs{On: on, VF: 1, Node: &guid, Bus: bus, Dev: function},
		RebindVF{On: on, VF: 1, Bus: bus, Dev: function, Node: guid},
		SetEthtool{On: on, Group: units.EthtoolRings, Settings: []units.EthtoolSetting{{Param: 0, N: 8192}, {Param: 3, N: 4096}}},
		SetEthtool{On: on, Group: units.EthtoolChannels, Settings: []units.EthtoolSetting{{Param: 7, N: 8}}},
		SetEthtool{On: on, Group: units.EthtoolCoalesce, Settings: []units.EthtoolSetting{{Param: units.RxCoalesceSec, N: 20},
			{Param: units.UseAdaptiveRxCoalesce}}},
	}
}

// moveSample moves an address of a link that has no other one.
func moveSample(on link.Target) MoveGID {
	ip := netip.AddrFrom4([4]byte{10, 0, 0, 1})
	a := link.AddAddress{On: on, Address: link.Address{Prefix: netip.PrefixFrom(ip, 24)}}
	return MoveGID{On: on, Index: 5, Move: []link.AddAddress{a},
		Fill: []link.AddAddress{helper(on, helpers.Addr().Next().Next(), 32)}, Keep: []link.AddAddress{helper(on, helpers.Addr().Next(), 32)}}
}
