package daemon

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
)

// request is the rtnetlink message for an operation.
func request(op link.Op, index int) (rtnl.Request, bool) {
	switch o := op.(type) {
	case link.SetUp:
		return rtnl.SetLink(index, rtnl.LinkChange{Up: &o.Up}), true
	case link.SetMTU:
		return rtnl.SetLink(index, rtnl.LinkChange{MTU: o.MTU}), true
	case link.SetMode:
		return rtnl.SetLink(index, rtnl.LinkChange{Mode: &o.Mode}), true
	case link.SetUmcast:
		return rtnl.SetLink(index, rtnl.LinkChange{UMcast: &o.Set}), true
	case link.SetFlag:
		if o.Flag == link.FlagAllMulti {
			return rtnl.SetLink(index, rtnl.LinkChange{AllMulti: &o.Set}), true
		}
		switch arp := !o.Set; o.Flag {
		case link.FlagPromisc:
			return rtnl.SetLink(index, rtnl.LinkChange{Promisc: &o.Set}), true
		case link.FlagNoARP:
			return rtnl.SetLink(index, rtnl.LinkChange{ARP: &arp}), true
		}
		return rtnl.SetLink(index, rtnl.LinkChange{Multicast: &o.Set}), true
	case link.SetGroup:
		return rtnl.SetLink(index, rtnl.LinkChange{Group: &o.Group}), true
	case link.SetToken:
		return rtnl.SetLink(index, rtnl.LinkChange{Token: &o.Token}), true
	case link.SetGUID:
		return rtnl.SetLink(index, rtnl.LinkChange{Address: o.Addr}), true
	case link.AddChild:
		return rtnl.NewIPoIBChild(rtnl.IPoIBChild{Parent: o.Parent.Ifindex, Name: o.On.Link, PKey: o.PKey}), true
	case link.AddBond:
		return rtnl.NewBond(rtnl.BondSpec{Name: o.On.Link, MTU: o.MTU, BondOptions: rtnl.BondOptions(o.BondOptions)}), true
	case link.AddVRF:
		return rtnl.NewVRF(o.On.Link, o.Table), true
	case link.SetMaster:
		master := o.Master.Ifindex
		if o.Release {
			master = 0
		}
		return rtnl.SetLink(index, rtnl.LinkChange{Master: &master}), true
	case link.SetBond:
		return rtnl.SetBond(index, rtnl.BondOptions(o.Has), rtnl.BondOptions(o.BondOptions)), true
	case link.SetPrimary:
		return rtnl.SetBondPrimary(index, o.Slave.Ifindex), true
	case link.DelLink:
		return rtnl.DelLink(index), true
	case link.AddAddress:
		if o.Replace {
			return rtnl.ReplaceAddress(address(o.Address, index)), true
		}
		return rtnl.AddAddress(address(o.Address, index)), true
	case link.RestoreAddress:
		return rtnl.ReplaceAddress(address(o.Address, index)), true
	case link.DelAddress:
		return rtnl.DelAddress(address(o.Address, index)), true
	case link.AddRoute:
		if o.Replace {
			return rtnl.ReplaceRoute(route(o.Route, o.On.Link, index)), true
		}
		return rtnl.AddRoute(route(o.Route, o.On.Link, index)), true
	case link.DelRoute:
		return rtnl.DelRoute(route(o.Route, o.On.Link, index)), true
	case link.SetNeighbor:
		return rtnl.SetNeighbor(rtnl.Neighbor{Index: index, IP: o.Neighbor.IP, Address: o.Neighbor.HWAddr}), true
	case link.DelNeighbor:
		return rtnl.DelNeighbor(rtnl.Neighbor{Index: index, IP: o.Neighbor.IP}), true
	case link.SetNextHop:
		if o.Replace {
			return rtnl.ReplaceNextHop(nextHop(o.NextHop, index)), true
		}
		return rtnl.AddNextHop(nextHop(o.NextHop, index)), true
	case link.DelNextHop:
		return rtnl.DelNextHop(o.NextHop.ID), true
	case link.AddRule:
		return rtnl.AddRule(rule(o.Rule)), true
	case link.DelRule:
		return rtnl.DelRule(rule(o.Rule)), true
	}
	return rtnl.Request{}, false
}

// readOnlyFlags are set by the kernel alone.
const readOnlyFlags = link.AddrSecondary | link.AddrDADFailed | link.AddrDeprecated | link.AddrTentative |
	link.AddrPermanent | link.AddrStablePrivacy

func address(a link.Address, index int) rtnl.Address {
	out := rtnl.Address{
		Index: index, Prefix: a.Prefix, Broadcast: a.Broadcast, Label: a.Label, Scope: a.Scope, Flags: a.Flags &^ readOnlyFlags,
		Valid: a.Valid, Preferred: a.Preferred, Metric: a.Metric, Protocol: a.Protocol,
	}
	if a.Until != 0 {
		out.Valid, out.Preferred = lifetimes(a, sinceBoot())
	}
	if a.Peer.IsValid() {
		out.Peer = a.Peer.Addr()
		out.Prefix = netip.PrefixFrom(a.Prefix.Addr(), a.Peer.Bits())
	}
	return out
}

// lifetimes are what is left of those of an address with an end.
func lifetimes(a link.Address, now uint64) (valid, preferred uint32) {
	left := uint32(max(a.Until, now) - now)
	if a.Valid == link.Forever {
		return a.Valid, left
	}
	left = max(left, 1) // the kernel refuses 0
	return left, left - min(left, a.Valid-a.Preferred)
}

// route is for the link of that name and index, which the plan may not have known
// yet.
func route(r link.Route, name string, index int) rtnl.Route {
	out := rtnl.Route{
		Family: unix.AF_INET, Dst: r.Dst, Src: r.Src, Gateway: r.Gateway, OutIf: index, PrefSrc: r.PrefSrc, Table: r.Table, Metric: r.Metric,
		Type: r.Type, Scope: r.Scope, Proto: r.Protocol, TOS: r.TOS, Pref: r.Pref,
		Metrics: rtnl.Metrics{MTU: r.MTU, AdvMSS: r.AdvMSS, HopLimit: r.HopLimit, InitCwnd: r.InitCwnd, InitRwnd: r.InitRwnd,
			RTOMin: r.RTOMin, QuickAck: r.QuickAck, FastOpenNoCookie: r.FastOpenNoCookie, CongestionControl: r.Congestion},
	}
	if r.Dst.Addr().Is6() {
		out.Family = unix.AF_INET6
	}
	if r.OnLink {
		out.Flags |= unix.RTNH_F_ONLINK
	}
	if r.LeadsNowhere() {
		out.OutIf = 0
	}
	if r.NextHopID != 0 {
		out.NextHopID, out.OutIf, out.Gateway = r.NextHopID, 0, netip.Addr{}
		return out
	}
	for _, h := range r.NextHops {
		n := h.Ifindex
		if h.Dev == name {
			n = index
		}
		out.NextHops = append(out.NextHops, rtnl.NextHop{OutIf: n, Gateway: h.Gateway, Weight: h.Weight})
		out.OutIf = 0
	}
	return out
}

// nextHop is for the link of that index, which the plan may not have known yet.
func nextHop(n link.NextHopObject, index int) rtnl.NextHopObject {
	out := rtnl.NextHopObject{ID: n.ID, Family: unix.AF_INET, Proto: link.ProtoStatic, Gateway: n.Gateway, Blackhole: n.Blackhole}
	if n.Family == 6 {
		out.Family = unix.AF_INET6
	}
	if n.OnLink {
		out.Flags = unix.RTNH_F_ONLINK
	}
	if !n.Blackhole && len(n.Group) == 0 {
		out.OutIf = index
	}
	for _, m := range n.Group {
		out.Group = append(out.Group, rtnl.GroupMember{ID: m.ID, Weight: m.Weight})
	}
	return out
}

func rule(r link.Rule) rtnl.Rule {
	out := rtnl.Rule{
		Family: unix.AF_INET, Priority: r.Priority, HasPriority: r.Priority != 0, Action: r.Type, From: r.From, To: r.To, TOS: r.TOS,
		Table:  r.Table,
		FwMark: r.FWMark, FwMask: r.FWMask, IIF: r.IIF, OIF: r.OIF, IPProto: r.IPProto,
		SPort: rtnl.PortRange{First: r.SrcPort[0], Last: r.SrcPort[1]}, DPort: rtnl.PortRange{First: r.DstPort[0], Last: r.DstPort[1]},
		UID: rtnl.UIDRange{First: r.UIDRange[0], Last: r.UIDRange[1], Set: r.HasUIDRange}, L3MDev: r.L3MDev, Goto: r.Goto,
		Proto: r.Protocol, Invert: r.Invert,
	}
	if r.Family == 6 {
		out.Family = unix.AF_INET6
	}
	if r.SuppressPrefix >= 0 {
		out.SuppressPrefixLen = rtnl.Optional{Value: uint32(r.SuppressPrefix), Set: true}
	}
	if r.SuppressIfGroup >= 0 {
		out.SuppressIfGroup = rtnl.Optional{Value: uint32(r.SuppressIfGroup), Set: true}
	}
	return out
}
