package rtnl

import (
	"cmp"
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

// LinkChange is what SetLink sets; nil and zero leave things as they are.
type LinkChange struct {
	Up        *bool
	Promisc   *bool
	AllMulti  *bool
	Multicast *bool
	ARP       *bool
	MTU       int // bytes
	// Address is the whole hardware address. ib_ipoib takes 20 bytes of which
	// the first 12 must be the present ones.
	Address ib.HWAddr
	Mode    *ib.IPoIBMode // IPoIB only
	UMcast  *bool         // IPoIB only
	Master  *int          // 0 releases the link
	Group   *uint32
	Token   *netip.Addr // :: removes it
}

// SetLink changes a link. It is RTM_NEWLINK without NLM_F_CREATE, the only form
// in which ib_ipoib takes a mode (ipoib_changelink); the kernel applies the
// parts in an order of its own and stops at the first that it refuses.
func SetLink(index int, c LinkChange) Request {
	m := &rtnetlink.LinkMessage{Index: uint32(index), Attributes: &rtnetlink.LinkAttributes{
		MTU: uint32(c.MTU), Address: net.HardwareAddr(c.Address.Bytes()),
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
		m.Attributes.Master = new(uint32(*c.Master))
	}
	return encode(fmt.Sprintf("change link %d", index), unix.RTM_NEWLINK, 0, m, func(w *nl.Builder) {
		if c.Group != nil {
			w.Uint32(unix.IFLA_GROUP, *c.Group)
		}
		if c.Token != nil {
			w.Nest(unix.IFLA_AF_SPEC, func(w *nl.Builder) {
				w.Nest(unix.AF_INET6, func(w *nl.Builder) { w.Raw(iflaInet6Token, c.Token.AsSlice()) })
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
}

// NewIPoIBChild makes a P_Key child (RTM_NEWLINK with NLM_F_CREATE|EXCL).
func NewIPoIBChild(c IPoIBChild) Request {
	what := fmt.Sprintf("add IPoIB child %s with P_Key %s on link %d", c.Name, c.PKey, c.Parent)
	key := c.PKey
	m := &rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
		Name: c.Name, Type: uint32(c.Parent), // the library's name for IFLA_LINK
		Info: &rtnetlink.LinkInfo{Kind: ipoib.Kind, Data: &ipoib.Driver{PKey: &key}},
	}}
	return encode(what, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, m, nil)
}

// VLANSpec describes a VLAN link to be made, or a macvlan or ipvlan of Kind, which have Mode and
// Flags alone. Nil and zero leave the kernel's defaults.
type VLANSpec struct {
	Parent   int
	Name     string
	Kind     string    // "" is vlan
	Address  ib.HWAddr // of a macvlan
	Mode     *uint16   // MACVLAN_MODE_* or IPVLAN_MODE_*
	Flags    *uint16   // IPVLAN_F_*
	ID       uint16    // 0 to 4094
	Protocol uint16    // EtherType of the tag: 0x8100, 0x88a8; 0 is 0x8100
	MTU      int
	// Flags (VLAN_FLAG_* of if_vlan.h)
	ReorderHeader, GVRP, MVRP, LooseBinding *bool
	// Ingress maps the tag's priority to the kernel's, Egress the other way.
	Ingress, Egress []QoSMap
	// Namespace is an open file, nil for none: the link is made in that network
	// namespace. Up brings it up, ENETDOWN while its parent is down.
	Namespace *int
	Up        bool
}

// QoSMap is one entry of a VLAN's priority map.
type QoSMap struct{ From, To uint32 }

// NewVLAN makes a VLAN link.
func NewVLAN(v VLANSpec) Request {
	what := fmt.Sprintf("add VLAN %s with id %d on link %d", v.Name, v.ID, v.Parent)
	if v.Kind != "" {
		what = fmt.Sprintf("add %s %s on link %d", v.Kind, v.Name, v.Parent)
	}
	if v.ID > 4094 {
		return Request{What: what, Err: fmt.Errorf("a VLAN id is 0 to 4094")}
	}
	// The order and the form of the attributes are those of ip link add.
	h := make([]byte, sizeIfInfo)
	if v.Up {
		ne.PutUint32(h[8:], unix.IFF_UP)
		ne.PutUint32(h[12:], unix.IFF_UP)
	}
	w := nl.Build(h...)
	if v.Address.IsValid() {
		w.Raw(unix.IFLA_ADDRESS, v.Address.Bytes())
	}
	w.Uint32(unix.IFLA_LINK, uint32(v.Parent)).String(unix.IFLA_IFNAME, v.Name)
	if v.MTU != 0 {
		w.Uint32(unix.IFLA_MTU, uint32(v.MTU))
	}
	if v.Namespace != nil {
		w.Uint32(unix.IFLA_NET_NS_FD, uint32(*v.Namespace))
	}
	v.encode(w, true)
	return nl.NewRequest(what, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, w)
}

// SetVLAN changes mode, flags and maps of a VLAN link or the like; what else there is in the
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
		w.Raw(iflaInfoKind, []byte(cmp.Or(v.Kind, "vlan")))
		w.Nest(iflaInfoData, func(w *nl.Builder) {
			if v.Kind != "" {
				v.encodeMode(w)
				return
			}
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

func (v *VLANSpec) encodeMode(w *nl.Builder) {
	switch {
	case v.Kind == "macvlan" && v.Mode != nil:
		w.Uint32(iflaMACVLANMode, uint32(*v.Mode))
	case v.Kind == "ipvlan":
		if v.Mode != nil {
			w.Uint16(iflaIPVLANMode, *v.Mode)
		}
		if v.Flags != nil {
			w.Uint16(iflaIPVLANFlags, *v.Flags)
		}
	}
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
