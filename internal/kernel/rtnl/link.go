package rtnl

import (
	"bytes"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/nl"
	ipoib "ibnetworkd/internal/kernel/rtnl/ipoib"
)

// Link is an interface as the kernel reports it. The zero value of a field is
// "not reported" unless the comment says otherwise.
type Link struct {
	Index    int
	Name     string
	AltNames []string
	Type     uint16 // ARPHRD_*: 1 Ethernet, 32 InfiniBand, 772 loopback
	Flags    uint32 // IFF_*
	MTU      int    // bytes, as in use now
	MaxMTU   int    // ib_ipoib says 65520 in every mode
	Kind     string // IFLA_INFO_KIND: "ipoib", "vlan", "" for a plain device
	// Parent is the interface below (IFLA_LINK): of a P_Key child or a VLAN.
	// 0 is none. The kernel reports a device without parent as its own; that
	// is 0 here too.
	Parent int
	// ParentElsewhere reports that Parent is an index of another network
	// namespace (IFLA_LINK_NETNSID).
	ParentElsewhere bool
	Master          int    // bond, bridge or VRF above, 0 for none
	Group           uint32 // IFLA_GROUP
	// Address and PermAddress are zero for addresses that have neither 6, 8 nor 20 bytes.
	Address     ib.HWAddr
	PermAddress ib.HWAddr
	// Broadcast is the hardware address of all hosts, of InfiniBand links only.
	Broadcast ib.HWAddr `json:",omitzero"`
	OperState uint8     // RFC 2863: 2 down, 6 up (include/uapi/linux/if.h)
	Carrier   bool
	// CarrierDowns is how often the link lost its carrier (IFLA_CARRIER_DOWN_COUNT).
	CarrierDowns uint32 `json:",omitempty"`
	// RouterFlags are IF_RA_* of the last router advertisement (IFLA_INET6_FLAGS).
	RouterFlags uint32 `json:",omitempty"`
	// Token has the last 64 bits of addresses by router advertisements (IFLA_INET6_TOKEN), the
	// zero value for none.
	Token     netip.Addr `json:",omitzero"`
	ParentDev string     // the name of its device on the bus: "0000:3b:00.0"
	// IPoIB is nil unless Kind is "ipoib".
	IPoIB *IPoIB
	// VLAN is nil unless Kind is "vlan", "macvlan" or "ipvlan".
	VLAN      *VLAN
	SlaveKind string `json:",omitempty"` // IFLA_INFO_SLAVE_KIND: bond, vrf ...; empty without a master
	VRFTable  uint32 `json:",omitempty"` // routing table of a link of kind vrf
	// Bond is nil unless Kind is "bond".
	Bond *Bond `json:",omitempty"`
	VFs  []VF  // virtual functions, if they were asked for
	// Settings are sysctls of the link.
	Settings Settings `json:"-"`
}

// IPoIB is what ib_ipoib reports of its interface.
type IPoIB struct {
	PKey   ib.PKey // always with the bit of full membership set
	Mode   ib.IPoIBMode
	UMcast bool
}

// VLAN is what the 8021q module reports of its interface, or macvlan (Mode) and ipvlan (Mode
// and Flags) of theirs.
type VLAN struct {
	ID       uint16
	Protocol uint16 // EtherType of the tag
	Flags    uint32 // VLAN_FLAG_* of if_vlan.h, IPVLAN_F_* of if_link.h
	Mode     uint16 `json:",omitempty"` // MACVLAN_MODE_*, IPVLAN_MODE_* of if_link.h
	// Ingress and Egress map priorities, nil for none; the kernel reports only
	// those that are not mapped to 0.
	Ingress, Egress map[uint32]uint32
}

// Up, Running and NoCarrier read the flags.
func (l *Link) Up() bool { return l.Flags&unix.IFF_UP != 0 }

// VFLinkState is IFLA_VF_LINK_STATE_*.
type VFLinkState uint32

// The link states that a physical function can give a virtual function.
const (
	VFAuto VFLinkState = iota
	VFEnable
	VFDisable
)

// VF is what a physical function reports of one virtual function. A nil pointer
// means that the driver does not report it.
type VF struct {
	Index     int
	MAC       ib.HWAddr
	VLAN, QoS int
	VLANProto uint16 // EtherType of VLAN's tag, 0 if the kernel does not say
	LinkState *VFLinkState
	// NodeGUID and PortGUID travel in host order, the first field of their
	// struct being the VF's index (struct ifla_vf_guid, 16 bytes with padding).
	NodeGUID, PortGUID   *ib.GUID
	Trust, SpoofCheck    *bool
	MinTxRate, MaxTxRate int // Mbit/s, 0 for no limit
}

// Flags of RouterFlags (include/net/if_inet6.h).
const (
	RouterSeen    = 0x20
	RouterManaged = 0x40
	RouterOther   = 0x80
)

// sizes of the fixed headers, include/uapi/linux/{rtnetlink,if_addr,fib_rules}.h
const (
	sizeIfInfo  = 16
	sizeIfAddr  = 8
	sizeRtMsg   = 12
	sizeFibRule = 12
)

var errShort = errors.New("rtnetlink message is shorter than its header")

// attributes that golang.org/x/sys has no names for (if_link.h)
const (
	iflaInfoKind        = 1
	iflaInfoData        = 2
	iflaInfoSlaveKind   = 4
	iflaVRFTable        = 1 // IFLA_VRF_TABLE
	iflaVlanID          = 1
	iflaVlanFlags       = 2
	iflaVlanEgress      = 3
	iflaVlanIngress     = 4
	iflaVlanProtocol    = 5
	iflaVlanQoSMapping  = 1
	iflaMACVLANMode     = 1 // u32
	iflaIPVLANMode      = 1 // u16
	iflaIPVLANFlags     = 2 // u16
	iflaVFVLANInfo      = 1 // in IFLA_VF_VLAN_LIST
	rtextFilterVF       = 1 << 0
	rtextFilterSkipStat = 1 << 3
)

// limits of what one link may make the decoder allocate
const (
	maxAltNames = 256
	maxVFs      = 4096
)

// decodeLink reads an RTM_NEWLINK or RTM_DELLINK message. Strings go through
// in, so that a dump of the same links allocates no new ones.
func decodeLink(b []byte, l *Link, in *interner) error {
	if len(b) < sizeIfInfo {
		return errShort
	}
	*l = Link{
		Type:  ne.Uint16(b[2:]),
		Index: int(int32(ne.Uint32(b[4:]))),
		Flags: ne.Uint32(b[8:]),
	}
	a := nl.ParseAttrs(b[sizeIfInfo:])
	for a.Next() {
		switch a.Type() {
		case unix.IFLA_IFNAME:
			l.Name = in.str(a.Text())
		case unix.IFLA_ADDRESS:
			l.Address, _ = ib.HWAddrFrom(a.Bytes())
		case unix.IFLA_BROADCAST:
			if b := a.Bytes(); len(b) == 20 {
				l.Broadcast, _ = ib.HWAddrFrom(b)
			}
		case unix.IFLA_PERM_ADDRESS:
			l.PermAddress, _ = ib.HWAddrFrom(a.Bytes())
		case unix.IFLA_MTU:
			l.MTU = a.Index()
		case unix.IFLA_GROUP:
			l.Group = a.Uint32()
		case unix.IFLA_MAX_MTU:
			l.MaxMTU = a.Index()
		case unix.IFLA_LINK:
			if l.Parent = a.Index(); l.Parent == l.Index {
				l.Parent = 0
			}
		case unix.IFLA_LINK_NETNSID:
			l.ParentElsewhere = true
		case unix.IFLA_MASTER:
			l.Master = a.Index()
		case unix.IFLA_OPERSTATE:
			l.OperState = a.Uint8()
		case unix.IFLA_CARRIER:
			l.Carrier = a.Uint8() != 0
		case unix.IFLA_CARRIER_DOWN_COUNT:
			l.CarrierDowns = a.Uint32()
		case unix.IFLA_PARENT_DEV_NAME:
			l.ParentDev = in.str(a.Text())
		case unix.IFLA_PROP_LIST:
			n := a.Nested()
			for n.Next() {
				if n.Type() == unix.IFLA_ALT_IFNAME && len(l.AltNames) < maxAltNames {
					l.AltNames = append(l.AltNames, in.str(n.Text()))
				}
			}
			if n.Err() != nil {
				return n.Err()
			}
		case unix.IFLA_AF_SPEC:
			n := a.Nested()
			for n.Next() {
				switch n.Type() {
				case unix.AF_INET:
					decodeInet(n.Nested(), &l.Settings)
				case unix.AF_INET6:
					l.decodeInet6(n.Nested())
				}
			}
			if n.Err() != nil {
				return n.Err()
			}
		case unix.IFLA_LINKINFO:
			if err := decodeLinkInfo(a.Nested(), l, in); err != nil {
				return err
			}
		case unix.IFLA_VFINFO_LIST:
			n := a.Nested()
			for n.Next() {
				if n.Type() != unix.IFLA_VF_INFO || len(l.VFs) == maxVFs {
					continue
				}
				var vf VF
				if err := decodeVF(n.Nested(), &vf); err != nil {
					return err
				}
				l.VFs = append(l.VFs, vf)
			}
			if n.Err() != nil {
				return n.Err()
			}
		}
	}
	return a.Err()
}

// attributes of IFLA_AF_SPEC, AF_INET6 (if_link.h)
const (
	iflaInet6Flags = 1
	iflaInet6Token = 7
)

func (l *Link) decodeInet6(a nl.Attrs) {
	for a.Next() {
		switch a.Type() {
		case iflaInet6Flags:
			l.RouterFlags = a.Uint32() & (RouterSeen | RouterManaged | RouterOther)
		case unix.IFLA_INET6_CONF:
			l.Settings.Inet6 = bytes.Clone(a.Bytes())
		case iflaInet6Token:
			if t, ok := netip.AddrFromSlice(a.Bytes()); ok && t.Is6() && !t.IsUnspecified() {
				l.Token = t
			}
		}
	}
}

func decodeLinkInfo(a nl.Attrs, l *Link, in *interner) error {
	var data nl.Attrs
	for a.Next() {
		switch a.Type() {
		case iflaInfoKind:
			l.Kind = in.str(a.Text())
		case iflaInfoData:
			data = a.Nested()
		case iflaInfoSlaveKind:
			l.SlaveKind = in.str(a.Text())
		}
	}
	if a.Err() != nil {
		return a.Err()
	}
	switch l.Kind {
	case ipoib.Kind:
		p := &IPoIB{}
		for data.Next() {
			switch data.Type() {
			case unix.IFLA_IPOIB_PKEY:
				p.PKey = ib.PKey(data.Uint16())
			case unix.IFLA_IPOIB_MODE:
				p.Mode = ib.IPoIBMode(data.Uint16())
			case unix.IFLA_IPOIB_UMCAST:
				p.UMcast = data.Uint16() != 0
			}
		}
		l.IPoIB = p
	case "bond":
		l.Bond = decodeBond(&data)
	case "vrf":
		for data.Next() {
			if data.Type() == iflaVRFTable {
				l.VRFTable = data.Uint32()
			}
		}
	case "vlan":
		v := &VLAN{}
		for data.Next() {
			switch data.Type() {
			case iflaVlanID:
				v.ID = data.Uint16()
			case iflaVlanProtocol:
				if b := data.Bytes(); len(b) >= 2 {
					v.Protocol = uint16(b[0])<<8 | uint16(b[1]) // network order
				}
			case iflaVlanFlags:
				if b := data.Bytes(); len(b) >= 4 {
					v.Flags = ne.Uint32(b) // struct ifla_vlan_flags
				}
			case iflaVlanIngress:
				v.Ingress = decodeQoSMap(data.Nested())
			case iflaVlanEgress:
				v.Egress = decodeQoSMap(data.Nested())
			}
		}
		l.VLAN = v
	case "macvlan":
		l.VLAN = &VLAN{}
		for data.Next() {
			if data.Type() == iflaMACVLANMode {
				l.VLAN.Mode = uint16(data.Uint32())
			}
		}
	case "ipvlan":
		l.VLAN = &VLAN{}
		for data.Next() {
			switch data.Type() {
			case iflaIPVLANMode:
				l.VLAN.Mode = data.Uint16()
			case iflaIPVLANFlags:
				l.VLAN.Flags = uint32(data.Uint16())
			}
		}
	}
	return data.Err()
}

// maxQoSMap bounds the entries of a VLAN's map: what it maps from are the
// priorities of packets, of which more than a few make no sense.
const maxQoSMap = 256

// decodeQoSMap reads entries of struct ifla_vlan_qos_mapping.
func decodeQoSMap(a nl.Attrs) (out map[uint32]uint32) {
	for a.Next() {
		b := a.Bytes()
		if a.Type() != iflaVlanQoSMapping || len(b) < 8 || len(out) == maxQoSMap {
			continue
		}
		if out == nil {
			out = map[uint32]uint32{}
		}
		out[ne.Uint32(b)] = ne.Uint32(b[4:])
	}
	return out
}

// decodeVF reads IFLA_VF_INFO. Every member is a struct that begins with the
// VF's index as u32, except IFLA_VF_BROADCAST.
func decodeVF(a nl.Attrs, vf *VF) error {
	for a.Next() {
		b := a.Bytes()
		if len(b) < 8 {
			continue
		}
		v := ne.Uint32(b[4:])
		switch a.Type() {
		case unix.IFLA_VF_MAC:
			vf.Index = int(int32(ne.Uint32(b)))
			// struct ifla_vf_mac has 32 bytes whatever the address' length;
			// an InfiniBand device fills 20 of them and an Ethernet one 6.
			if len(b) >= 24 && !bytes.Equal(b[10:24], make([]byte, 14)) {
				vf.MAC, _ = ib.HWAddrFrom(b[4:24])
			} else if len(b) >= 10 {
				vf.MAC, _ = ib.HWAddrFrom(b[4:10])
			}
		case unix.IFLA_VF_VLAN:
			vf.Index = int(int32(ne.Uint32(b)))
			if len(b) >= 12 {
				vf.VLAN, vf.QoS = int(v&0xfff), int(ne.Uint32(b[8:])&7)
			}
		case unix.IFLA_VF_VLAN_LIST:
			// struct ifla_vf_vlan_info; the protocol is in network order.
			for n := a.Nested(); n.Next(); {
				if x := n.Bytes(); n.Type() == iflaVFVLANInfo && len(x) >= 14 && ne.Uint32(x[4:]) != 0 {
					vf.VLANProto = uint16(x[12])<<8 | uint16(x[13])
				}
			}
		case unix.IFLA_VF_LINK_STATE:
			vf.Index = int(int32(ne.Uint32(b)))
			s := VFLinkState(v)
			vf.LinkState = &s
		case unix.IFLA_VF_RATE:
			vf.Index = int(int32(ne.Uint32(b)))
			if len(b) >= 12 {
				vf.MinTxRate, vf.MaxTxRate = int(int32(v)), int(int32(ne.Uint32(b[8:])))
			}
		case unix.IFLA_VF_TRUST, unix.IFLA_VF_SPOOFCHK:
			vf.Index = int(int32(ne.Uint32(b)))
			if v == 0xffffffff {
				continue // the kernel's "the driver does not say"
			}
			on := v != 0
			if a.Type() == unix.IFLA_VF_TRUST {
				vf.Trust = &on
			} else {
				vf.SpoofCheck = &on
			}
		case unix.IFLA_VF_IB_NODE_GUID, unix.IFLA_VF_IB_PORT_GUID:
			if len(b) < 16 {
				continue
			}
			vf.Index = int(int32(ne.Uint32(b)))
			g := ib.GUID(ne.Uint64(b[8:]))
			if a.Type() == unix.IFLA_VF_IB_NODE_GUID {
				vf.NodeGUID = &g
			} else {
				vf.PortGUID = &g
			}
		}
	}
	return a.Err()
}
