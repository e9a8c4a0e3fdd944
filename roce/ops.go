package roce

import (
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
		AddVLAN{On: on, Name: "v7", VLAN: units.VLAN{Id: units.Some(id)}},
		DelVLAN{On: on, Name: "v7"},
		SetVLAN{On: on, Name: "v7", VLAN: units.VLAN{GVRP: units.Some(true)}},
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
	}
}
