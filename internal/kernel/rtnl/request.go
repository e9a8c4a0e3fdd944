package rtnl

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/nl"
	ipoib "ibnetworkd/internal/kernel/rtnl/ipoib"
)

// Request is one change, to be sent with Conn.Do or many at once with
// Conn.DoAll.
type Request = nl.Request

// encode takes a message of the rtnetlink library and lets more append what
// that cannot express.
func encode(what string, typ uint16, flags netlink.HeaderFlags, m rtnetlink.Message, more func(*nl.Builder)) Request {
	b, err := m.MarshalBinary()
	if err != nil {
		return Request{What: what, Err: err}
	}
	w := nl.Extend(b)
	if more != nil {
		more(w)
	}
	return nl.NewRequest(what, typ, flags, w)
}

// LinkChange is what SetLink sets; nil, zero and "" leave things as they are.
type LinkChange struct {
	Up        *bool
	Promisc   *bool
	AllMulti  *bool
	Multicast *bool
	ARP       *bool
	MTU       int // bytes
	Name      string
	Alias     *string // "" removes it
	// Address is the whole hardware address. ib_ipoib takes 20 bytes of which
	// the first 12 must be the present ones.
	Address     ib.HWAddr
	AddrGenMode *AddrGenMode
	Mode        *ib.IPoIBMode // IPoIB only
	UMcast      *bool         // IPoIB only
	Master      *int          // 0 releases the link
	TxQueueLen  *int
	Group       *uint32
}

// SetLink changes a link. It is RTM_NEWLINK without NLM_F_CREATE, the only form
// in which ib_ipoib takes a mode (ipoib_changelink); the kernel applies the
// parts in an order of its own and stops at the first that it refuses.
func SetLink(index int, c LinkChange) Request {
	m := &rtnetlink.LinkMessage{Index: uint32(index), Attributes: &rtnetlink.LinkAttributes{
		MTU: uint32(c.MTU), Name: c.Name, Address: net.HardwareAddr(c.Address.Bytes()), Alias: c.Alias,
	}}
	flag := func(v *bool, bit uint32, inverted bool) {
		if v == nil {
			return
		}
		m.Change |= bit
		if *v != inverted {
			m.Flags |= bit
		}
	}
	flag(c.Up, unix.IFF_UP, false)
	flag(c.Promisc, unix.IFF_PROMISC, false)
	flag(c.AllMulti, unix.IFF_ALLMULTI, false)
	flag(c.Multicast, unix.IFF_MULTICAST, false)
	flag(c.ARP, unix.IFF_NOARP, true)
	if c.Mode != nil || c.UMcast != nil {
		d := &ipoib.Driver{Mode: c.Mode, UMcast: u16(c.UMcast)}
		m.Attributes.Info = &rtnetlink.LinkInfo{Kind: ipoib.Kind, Data: d}
	}
	if c.Master != nil {
		v := uint32(*c.Master)
		m.Attributes.Master = &v
	}
	return encode(fmt.Sprintf("change link %d", index), unix.RTM_NEWLINK, 0, m, func(w *nl.Builder) {
		if c.TxQueueLen != nil {
			w.Uint32(unix.IFLA_TXQLEN, uint32(*c.TxQueueLen))
		}
		if c.Group != nil {
			w.Uint32(unix.IFLA_GROUP, *c.Group)
		}
		if c.AddrGenMode != nil {
			w.Nest(unix.IFLA_AF_SPEC|nl.Nested, func(w *nl.Builder) {
				w.Nest(unix.AF_INET6|nl.Nested, func(w *nl.Builder) { w.Uint8(iflaInet6AddrGen, uint8(*c.AddrGenMode)) })
			})
		}
	})
}

func u16(v *bool) *uint16 {
	if v == nil {
		return nil
	}
	var n uint16
	if *v {
		n = 1
	}
	return &n
}

// IPoIBChild describes a P_Key child to be made.
type IPoIBChild struct {
	Parent int    // ifindex of the parent link
	Name   string // "" lets the kernel choose ib%d
	PKey   ib.PKey
	Mode   *ib.IPoIBMode // nil is datagram
	UMcast *bool
}

// NewIPoIBChild makes a P_Key child (RTM_NEWLINK with NLM_F_CREATE|EXCL).
func NewIPoIBChild(c IPoIBChild) Request {
	what := fmt.Sprintf("add IPoIB child %s with P_Key %s on link %d", c.Name, c.PKey, c.Parent)
	key := c.PKey
	m := &rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
		Name: c.Name, Type: uint32(c.Parent), // the library's name for IFLA_LINK
		Info: &rtnetlink.LinkInfo{Kind: ipoib.Kind, Data: &ipoib.Driver{PKey: &key, Mode: c.Mode, UMcast: u16(c.UMcast)}},
	}}
	return encode(what, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, m, nil)
}

// VLANSpec describes a VLAN link to be made. Nil and zero leave the kernel's
// defaults.
type VLANSpec struct {
	Parent   int
	Name     string
	ID       uint16 // 0 to 4094
	Protocol uint16 // EtherType of the tag: 0x8100, 0x88a8; 0 is 0x8100
	MTU      int
	// Flags (VLAN_FLAG_* of if_vlan.h)
	ReorderHeader, GVRP, MVRP, LooseBinding *bool
	// Ingress maps the tag's priority to the kernel's, Egress the other way.
	Ingress, Egress []QoSMap
}

// QoSMap is one entry of a VLAN's priority map.
type QoSMap struct{ From, To uint32 }

// NewVLAN makes a VLAN link.
func NewVLAN(v VLANSpec) Request {
	what := fmt.Sprintf("add VLAN %s with id %d on link %d", v.Name, v.ID, v.Parent)
	if v.ID > 4094 {
		return Request{What: what, Err: fmt.Errorf("a VLAN id is 0 to 4094")}
	}
	// The order and the form of the attributes are those of ip link add.
	w := nl.Build(make([]byte, sizeIfInfo)...).Uint32(unix.IFLA_LINK, uint32(v.Parent)).String(unix.IFLA_IFNAME, v.Name)
	if v.MTU != 0 {
		w.Uint32(unix.IFLA_MTU, uint32(v.MTU))
	}
	v.encode(w, true)
	return nl.NewRequest(what, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, w)
}

// SetVLAN changes flags and maps of a VLAN link; what else there is in the
// description is fixed for the life of the link. An entry To 0 takes one away.
func SetVLAN(index int, v VLANSpec) Request {
	m := make([]byte, sizeIfInfo)
	ne.PutUint32(m[4:], uint32(index))
	w := nl.Build(m...)
	v.encode(w, false)
	return nl.NewRequest(fmt.Sprintf("change VLAN link %d", index), unix.RTM_NEWLINK, 0, w)
}

func (v *VLANSpec) encode(w *nl.Builder, fresh bool) {
	var flags, mask uint32
	for i, f := range []*bool{v.ReorderHeader, v.GVRP, v.LooseBinding, v.MVRP} {
		if f != nil {
			mask |= 1 << i
			if *f {
				flags |= 1 << i
			}
		}
	}
	maps := func(w *nl.Builder, typ uint16, ms []QoSMap) {
		if len(ms) == 0 {
			return
		}
		w.Nest(typ, func(w *nl.Builder) {
			for _, m := range ms {
				w.Raw(iflaVlanQoSMapping, ne.AppendUint32(ne.AppendUint32(nil, m.From), m.To))
			}
		})
	}
	w.Nest(unix.IFLA_LINKINFO, func(w *nl.Builder) {
		w.Raw(iflaInfoKind, []byte("vlan"))
		w.Nest(iflaInfoData, func(w *nl.Builder) {
			if fresh {
				if v.Protocol != 0 {
					w.Raw(iflaVlanProtocol, []byte{byte(v.Protocol >> 8), byte(v.Protocol)}) // network order
				}
				w.Uint16(iflaVlanID, v.ID)
			}
			maps(w, iflaVlanIngress, v.Ingress)
			maps(w, iflaVlanEgress, v.Egress)
			if mask != 0 {
				w.Raw(iflaVlanFlags, ne.AppendUint32(ne.AppendUint32(nil, flags), mask))
			}
		})
	})
}

// DelLink removes a link that can be removed (a child, a VLAN).
func DelLink(index int) Request {
	return encode(fmt.Sprintf("delete link %d", index), unix.RTM_DELLINK, 0, &rtnetlink.LinkMessage{Index: uint32(index)}, nil)
}

// VFChange is what SetVF sets of a virtual function; nil leaves things alone.
type VFChange struct {
	NodeGUID, PortGUID   *ib.GUID
	MAC                  ib.HWAddr // 6 bytes
	LinkState            *VFLinkState
	Trust, SpoofCheck    *bool
	MinTxRate, MaxTxRate *int    // Mbit/s, 0 for no limit; set both or none
	VLAN                 *uint16 // 0 removes it
	QoS                  uint8   // priority of VLAN
	VLANProto            uint16  // EtherType of VLAN's tag; 0 is 802.1Q
}

// SetVF changes virtual function vf of the physical function's link: the
// message that ip link set vf sends, RTM_NEWLINK with IFLA_VFINFO_LIST. The
// GUIDs take effect when the VF's driver probes.
func SetVF(index, vf int, c VFChange) Request {
	what := fmt.Sprintf("change virtual function %d of link %d", vf, index)
	return encode(what, unix.RTM_NEWLINK, 0, &rtnetlink.LinkMessage{Index: uint32(index)}, func(w *nl.Builder) {
		w.Nest(unix.IFLA_VFINFO_LIST, func(w *nl.Builder) {
			w.Nest(unix.IFLA_VF_INFO, func(w *nl.Builder) { c.encode(uint32(vf), w) })
		})
	})
}

func (c VFChange) encode(vf uint32, w *nl.Builder) {
	words := func(typ uint16, vs ...uint32) {
		b := ne.AppendUint32(nil, vf)
		for _, v := range vs {
			b = ne.AppendUint32(b, v)
		}
		w.Raw(typ, b)
	}
	if c.MAC.IsValid() {
		var b [36]byte // struct ifla_vf_mac
		ne.PutUint32(b[:], vf)
		copy(b[4:], c.MAC.Bytes())
		w.Raw(unix.IFLA_VF_MAC, b[:])
	}
	switch {
	case c.VLAN != nil && c.VLANProto != 0 && c.VLANProto != unix.ETH_P_8021Q:
		// Other tags than 802.1Q are in a list of one (struct ifla_vf_vlan_info,
		// protocol in network order).
		w.Nest(unix.IFLA_VF_VLAN_LIST, func(w *nl.Builder) {
			b := ne.AppendUint32(nil, vf)
			b = ne.AppendUint32(b, uint32(*c.VLAN))
			b = ne.AppendUint32(b, uint32(c.QoS))
			b = append(b, byte(c.VLANProto>>8), byte(c.VLANProto), 0, 0)
			w.Raw(iflaVFVLANInfo, b)
		})
	case c.VLAN != nil:
		words(unix.IFLA_VF_VLAN, uint32(*c.VLAN), uint32(c.QoS))
	}
	if c.MinTxRate != nil || c.MaxTxRate != nil {
		var lo, hi uint32
		if c.MinTxRate != nil {
			lo = uint32(*c.MinTxRate)
		}
		if c.MaxTxRate != nil {
			hi = uint32(*c.MaxTxRate)
		}
		words(unix.IFLA_VF_RATE, lo, hi)
	}
	onOff := func(typ uint16, v *bool) {
		if v == nil {
			return
		}
		if *v {
			words(typ, 1)
		} else {
			words(typ, 0)
		}
	}
	onOff(unix.IFLA_VF_SPOOFCHK, c.SpoofCheck)
	if c.LinkState != nil {
		words(unix.IFLA_VF_LINK_STATE, uint32(*c.LinkState))
	}
	onOff(unix.IFLA_VF_TRUST, c.Trust)
	guid := func(typ uint16, g *ib.GUID) {
		if g == nil {
			return
		}
		// struct ifla_vf_guid { __u32 vf; __u64 guid; }: four bytes of padding
		// put the GUID, a number in host order, on an 8-byte boundary.
		var b [16]byte
		ne.PutUint32(b[:], vf)
		ne.PutUint64(b[8:], uint64(*g))
		w.Raw(typ, b[:])
	}
	guid(unix.IFLA_VF_IB_NODE_GUID, c.NodeGUID)
	guid(unix.IFLA_VF_IB_PORT_GUID, c.PortGUID)
}

// AddAddress adds an address; EEXIST if the link has it.
func AddAddress(a Address) Request {
	return address("add", unix.RTM_NEWADDR, netlink.Create|netlink.Excl, a)
}

// ReplaceAddress adds an address or changes its lifetimes, flags and metric.
func ReplaceAddress(a Address) Request {
	return address("set", unix.RTM_NEWADDR, netlink.Create|netlink.Replace, a)
}

// DelAddress removes an address; EADDRNOTAVAIL if the link does not have it.
func DelAddress(a Address) Request { return address("remove", unix.RTM_DELADDR, 0, a) }

func address(verb string, typ uint16, flags netlink.HeaderFlags, a Address) Request {
	what := fmt.Sprintf("%s address %s of link %d", verb, a.Prefix, a.Index)
	if !a.Prefix.IsValid() {
		return Request{What: what, Err: fmt.Errorf("the address has no prefix")}
	}
	local := a.Prefix.Addr()
	at := &rtnetlink.AddressAttributes{
		Local: local.AsSlice(), Address: local.AsSlice(), Label: a.Label, Flags: a.Flags, Priority: a.Metric,
	}
	if a.Peer.IsValid() {
		at.Address = a.Peer.AsSlice()
	}
	if a.Broadcast.IsValid() {
		at.Broadcast = a.Broadcast.AsSlice()
	}
	m := &rtnetlink.AddressMessage{
		Family: family(local), PrefixLength: uint8(a.Prefix.Bits()), Scope: a.Scope, Index: uint32(a.Index),
		Flags: uint8(a.Flags), Attributes: at,
	}
	return encode(what, typ, flags, m, func(w *nl.Builder) {
		if typ == unix.RTM_DELADDR {
			return
		}
		if valid, preferred := a.Valid, a.Preferred; valid != 0 || preferred != 0 {
			b := ne.AppendUint32(nil, preferred)
			b = ne.AppendUint32(b, valid)
			w.Raw(unix.IFA_CACHEINFO, append(b, make([]byte, 8)...))
		}
		if a.Protocol != 0 {
			w.Uint8(ifaProto, a.Protocol)
		}
	})
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// AddRoute adds a route; EEXIST if there is an equal one.
func AddRoute(r Route) Request {
	return route("add", unix.RTM_NEWROUTE, netlink.Create|netlink.Excl, r)
}

// ReplaceRoute adds a route or takes the place of the one with the same
// destination, table and metric.
func ReplaceRoute(r Route) Request {
	return route("set", unix.RTM_NEWROUTE, netlink.Create|netlink.Replace, r)
}

// DelRoute removes the first route that has the given fields.
func DelRoute(r Route) Request { return route("remove", unix.RTM_DELROUTE, 0, r) }

// fam is the family of the route's addresses, or the one that was given.
func (r *Route) fam() uint8 {
	switch {
	case r.Family != 0:
		return r.Family
	case r.Dst.IsValid():
		return family(r.Dst.Addr())
	case r.Gateway.IsValid():
		return family(r.Gateway)
	case len(r.NextHops) > 0 && r.NextHops[0].Gateway.IsValid():
		return family(r.NextHops[0].Gateway)
	case r.PrefSrc.IsValid():
		return family(r.PrefSrc)
	}
	return unix.AF_INET
}

func route(verb string, typ uint16, flags netlink.HeaderFlags, r Route) Request {
	dst := "default"
	if r.Dst.IsValid() && r.Dst.Bits() > 0 {
		dst = r.Dst.String()
	}
	what := fmt.Sprintf("%s route to %s of link %d", verb, dst, r.OutIf)
	m := &rtnetlink.RouteMessage{
		Family: r.fam(), Tos: r.TOS, Protocol: r.Proto, Scope: r.Scope, Type: r.Type, Flags: r.Flags,
		Attributes: rtnetlink.RouteAttributes{OutIface: uint32(r.OutIf), Priority: r.Metric, Expires: nonZero(r.Expires)},
	}
	if m.Type == 0 && typ == unix.RTM_NEWROUTE {
		m.Type = unix.RTN_UNICAST
	}
	table := r.Table
	if table == 0 {
		table = unix.RT_TABLE_MAIN
	}
	if table < 256 {
		m.Table = uint8(table)
	} else {
		m.Table, m.Attributes.Table = unix.RT_TABLE_UNSPEC, table
	}
	if r.Dst.IsValid() && r.Dst.Bits() > 0 {
		m.DstLength, m.Attributes.Dst = uint8(r.Dst.Bits()), r.Dst.Masked().Addr().AsSlice()
	}
	if r.PrefSrc.IsValid() {
		m.Attributes.Src = r.PrefSrc.AsSlice() // the library's name for RTA_PREFSRC
	}
	if r.Src.IsValid() && r.Src.Bits() > 0 {
		m.SrcLength = uint8(r.Src.Bits())
	}
	if r.Pref != 0 {
		pref := r.Pref
		m.Attributes.Pref = &pref
	}
	viaOther := r.Gateway.IsValid() && family(r.Gateway) != m.Family
	if r.Gateway.IsValid() && !viaOther {
		m.Attributes.Gateway = r.Gateway.AsSlice()
	}
	return encode(what, typ, flags, m, func(w *nl.Builder) {
		if r.Src.IsValid() && r.Src.Bits() > 0 {
			w.Raw(unix.RTA_SRC, r.Src.Masked().Addr().AsSlice())
		}
		if viaOther {
			w.Raw(unix.RTA_VIA, viaBytes(r.Gateway))
		}
		if r.NextHopID != 0 {
			w.Uint32(rtaNHID, r.NextHopID)
		}
		if r.TTLPropagate != nil {
			w.Uint8(unix.RTA_TTL_PROPAGATE, uint8(*u16(r.TTLPropagate)))
		}
		if r.Metrics != (Metrics{}) {
			w.Nest(unix.RTA_METRICS|nl.Nested, r.Metrics.encode)
		}
		if len(r.NextHops) > 0 {
			w.Raw(unix.RTA_MULTIPATH, encodeMultipath(r.NextHops, m.Family))
		}
	})
}

func nonZero(v uint32) *uint32 {
	if v == 0 {
		return nil
	}
	return &v
}

func viaBytes(a netip.Addr) []byte {
	return append(ne.AppendUint16(nil, uint16(family(a))), a.AsSlice()...)
}

func (m Metrics) encode(w *nl.Builder) {
	put := func(typ uint16, v uint32) {
		if v != 0 {
			w.Uint32(typ, v)
		}
	}
	if m.MTULocked {
		w.Uint32(unix.RTAX_LOCK, 1<<unix.RTAX_MTU)
	}
	put(unix.RTAX_MTU, m.MTU)
	put(unix.RTAX_RTO_MIN, m.RTOMin)
	put(unix.RTAX_ADVMSS, m.AdvMSS)
	put(unix.RTAX_HOPLIMIT, m.HopLimit)
	put(unix.RTAX_INITCWND, m.InitCwnd)
	put(unix.RTAX_FEATURES, m.Features)
	put(unix.RTAX_INITRWND, m.InitRwnd)
	if m.QuickAck {
		w.Uint32(unix.RTAX_QUICKACK, 1)
	}
	if m.CongestionControl != "" {
		w.String(unix.RTAX_CC_ALGO, m.CongestionControl)
	}
	if m.FastOpenNoCookie {
		w.Uint32(unix.RTAX_FASTOPEN_NO_COOKIE, 1)
	}
}

func encodeMultipath(hops []NextHop, fam uint8) []byte {
	var out []byte
	for _, h := range hops {
		w := nl.Build()
		if h.Gateway.IsValid() {
			if family(h.Gateway) == fam {
				w.Raw(unix.RTA_GATEWAY, h.Gateway.AsSlice())
			} else {
				w.Raw(unix.RTA_VIA, viaBytes(h.Gateway))
			}
		}
		attrs, _ := w.Bytes() // an address is never too long
		out = ne.AppendUint16(out, uint16(sizeRtNextHop+len(attrs)))
		out = append(out, h.Flags, uint8(min(max(h.Weight, 1), 256)-1))
		out = ne.AppendUint32(out, uint32(h.OutIf))
		out = append(out, attrs...)
	}
	return out
}

// AddRule adds a policy rule; EEXIST if there is an equal one.
func AddRule(r Rule) Request {
	return rule("add", unix.RTM_NEWRULE, netlink.Create|netlink.Excl, r)
}

// DelRule removes the first rule that has the given fields.
func DelRule(r Rule) Request { return rule("remove", unix.RTM_DELRULE, 0, r) }

func rule(verb string, typ uint16, flags netlink.HeaderFlags, r Rule) Request {
	what := fmt.Sprintf("%s routing policy rule %d from %s to %s", verb, r.Priority, all(r.From), all(r.To))
	if r.Family == 0 {
		switch {
		case r.From.IsValid():
			r.Family = family(r.From.Addr())
		case r.To.IsValid():
			r.Family = family(r.To.Addr())
		default:
			return Request{What: what, Err: fmt.Errorf("the rule has no address family")}
		}
	}
	at := &rtnetlink.RuleAttributes{}
	m := &rtnetlink.RuleMessage{Family: r.Family, TOS: r.TOS, Action: r.Action, Attributes: at}
	if m.Action == 0 {
		m.Action = frActToTable
	}
	if r.Invert {
		m.Flags |= fibRuleInvert
	}
	if r.HasPriority {
		at.Priority = &r.Priority
	}
	if r.From.IsValid() && r.From.Bits() > 0 {
		ip := net.IP(r.From.Masked().Addr().AsSlice())
		m.SrcLength, at.Src = uint8(r.From.Bits()), &ip
	}
	if r.To.IsValid() && r.To.Bits() > 0 {
		ip := net.IP(r.To.Masked().Addr().AsSlice())
		m.DstLength, at.Dst = uint8(r.To.Bits()), &ip
	}
	if r.Table != 0 {
		at.Table = &r.Table
		if r.Table < 256 {
			m.Table = uint8(r.Table)
		}
	}
	if r.FwMark != 0 || r.FwMask != 0 {
		at.FwMark = &r.FwMark
	}
	if r.FwMask != 0 {
		at.FwMask = &r.FwMask
	}
	if r.IIF != "" {
		at.IIFName = &r.IIF
	}
	if r.OIF != "" {
		at.OIFName = &r.OIF
	}
	if r.IPProto != 0 {
		at.IPProto = &r.IPProto
	}
	if r.SPort != (PortRange{}) {
		at.SPortRange = &rtnetlink.RulePortRange{Start: r.SPort.First, End: r.SPort.Last}
	}
	if r.DPort != (PortRange{}) {
		at.DPortRange = &rtnetlink.RulePortRange{Start: r.DPort.First, End: r.DPort.Last}
	}
	if r.SuppressPrefixLen.Set {
		at.SuppressPrefixLen = &r.SuppressPrefixLen.Value
	}
	if r.SuppressIfGroup.Set {
		at.SuppressIFGroup = &r.SuppressIfGroup.Value
	}
	if r.L3MDev {
		v := uint8(1)
		at.L3MDev = &v
	}
	if r.Goto != 0 {
		at.Goto = &r.Goto
	}
	if r.Proto != 0 {
		at.Protocol = &r.Proto
	}
	return encode(what, typ, flags, m, func(w *nl.Builder) {
		if r.UID.Set { // the library keeps user ids in 16 bits
			w.Raw(unix.FRA_UID_RANGE, ne.AppendUint32(ne.AppendUint32(nil, r.UID.First), r.UID.Last))
		}
	})
}

func all(p netip.Prefix) string {
	if !p.IsValid() {
		return "all"
	}
	return p.String()
}
