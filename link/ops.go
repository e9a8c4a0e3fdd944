package link

import (
	"net/netip"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Ops is one sample at least of each operation of this package, all on the link
// net7 of port mlx5_0/1. It is for tests of what must know every operation: the
// model, the executor, the sentences about errors, the status.
func Ops() []Op {
	on := Target{Link: "net7", Ifindex: 7, IBDevice: "mlx5_0", Port: 1}
	v4 := Address{Prefix: netip.MustParsePrefix("10.1.0.1/24"), Valid: Forever, Preferred: Forever}
	v6 := Address{Prefix: netip.MustParsePrefix("fd00::1/64"), Valid: Forever, Preferred: Forever}
	route := Route{Dst: netip.MustParsePrefix("10.9.0.0/16"), Table: TableMain, Type: RouteUnicast}
	rule := Rule{Family: 4, Priority: 9, Table: 7, Type: RuleToTable, SuppressPrefix: -1, SuppressIfGroup: -1}
	hop := NextHopObject{ID: 7, Family: 4, Ifindex: 7, Dev: "net7"}
	mac, _ := ib.ParseHWAddr("80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:0a:bc:de")
	return []Op{
		SetUp{On: on, Up: true},
		SetMTU{On: on, MTU: 1500},
		SetMode{On: on, Mode: ib.ModeConnected},
		SetUmcast{On: on, Set: true},
		SetFlag{On: on, Flag: FlagAllMulti, Set: true},
		SetGroup{On: on, Group: 7},
		SetToken{On: on, Token: netip.MustParseAddr("::1")},
		SetGUID{On: on, Addr: mac},
		AddChild{On: Target{Link: "net7.8001", IBDevice: on.IBDevice, Port: on.Port}, Parent: on, PKey: 0x8001},
		AddBond{On: Target{Link: "bond7"}, MTU: 2044, BondOptions: BondOptions{Mode: 4, MIIMon: 20, LACPRate: 1}},
		AddVRF{On: Target{Link: "vrf7"}, Table: 107},
		SetMaster{On: on, Master: Target{Link: "bond9", Ifindex: 9}},
		SetMaster{On: on, Master: Target{Link: "vrf9", Ifindex: 9}, VRF: true},
		SetMaster{On: on, Master: Target{Link: "bond9", Ifindex: 9}, Release: true},
		SetBond{On: on, Has: BondOptions{Mode: 1, MIIMon: 20}, BondOptions: BondOptions{Mode: 1, MIIMon: 10, UpDelay: 100}},
		SetPrimary{On: on, Slave: Target{Link: "net9", Ifindex: 9}},
		DelLink{On: on},
		MoveLink{On: on, Parent: 6, PKey: 0x8001, Namespace: units.NamespaceDir + "job"},
		DelMoved{On: on, Moved: Moved{Made: Made{Kind: "ipoib", Name: "net7.8001", On: 7}, Namespace: units.NamespaceDir + "job"}},
		AddAddress{On: on, Address: v4},
		AddAddress{On: on, Address: v6},
		DelAddress{On: on, Address: v4},
		RestoreAddress{On: on, Address: v4},
		AddRoute{On: on, Route: route},
		DelRoute{On: on, Route: route},
		SetNeighbor{On: on, Neighbor: Neighbor{IP: v4.Prefix.Addr(), HWAddr: mac}},
		DelNeighbor{On: on, Neighbor: Neighbor{IP: v4.Prefix.Addr(), HWAddr: mac}},
		SetNextHop{On: on, NextHop: hop},
		DelNextHop{On: on, NextHop: hop},
		AddRule{Rule: rule},
		DelRule{Rule: rule},
		SetSysctl{On: on, Key: "ipv4/rp_filter", Value: "1"},
		SetDNS{On: on, Servers: []string{"10.1.0.53"}},
	}
}
