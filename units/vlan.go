package units

import (
	"fmt"
	"slices"
	"strings"
)

// VLAN is one [VLAN], [MACVLAN] or [IPVLAN], as Kind says: an interface on the matched
// Ethernet link. Id is always set for a VLAN, Name for the others.
type VLAN struct {
	Section
	Kind VLANKind
	// Id is 0 to 4094.
	Id Value[uint16]
	// Name is the interface name; not set means PARENT.ID.
	Name           Value[string]
	Protocol       Value[VLANProtocol]
	MTUBytes       Value[MTU]
	EgressQOSMaps  []Value[QOSMap]
	IngressQOSMaps []Value[QOSMap]
	ReorderHeader  Value[bool]
	GVRP           Value[bool]
	MVRP           Value[bool]
	LooseBinding   Value[bool]
	// NetworkNamespace is as in Partition.
	NetworkNamespace Value[string]
	// MACVLANMode is Mode= of a macvlan, not set for the kernel's.
	MACVLANMode Value[MACVLANMode]
	// IPVLANMode and IPVLANFlags are Mode= and Flags= of an ipvlan; not set means L2 and bridge.
	IPVLANMode  Value[IPVLANMode]
	IPVLANFlags Value[IPVLANFlags]
}

// VLANKind is what a VLAN is.
type VLANKind uint8

// The kinds, in the order of the schema.
const (
	KindVLAN VLANKind = iota
	KindMACVLAN
	KindIPVLAN
)

var vlanKindWords = []word[VLANKind]{{KindVLAN, "vlan"}, {KindMACVLAN, "macvlan"}, {KindIPVLAN, "ipvlan"}}

// VLANKinds are all of them.
func VLANKinds() []VLANKind { return []VLANKind{KindVLAN, KindMACVLAN, KindIPVLAN} }

// String is IFLA_INFO_KIND, and the type for ip link.
func (k VLANKind) String() string { return printWord(vlanKindWords, k) }

// Section is the section of a unit for this kind.
func (k VLANKind) Section() string { return strings.ToUpper(k.String()) }

// MACVLANMode is IFLA_MACVLAN_MODE.
type MACVLANMode uint16

// The modes of [MACVLAN] Mode=; MACVLANPassthru cannot be set later or changed.
const (
	MACVLANPrivate  MACVLANMode = 1
	MACVLANVEPA     MACVLANMode = 2
	MACVLANBridge   MACVLANMode = 4
	MACVLANPassthru MACVLANMode = 8
)

// IPVLANMode is IFLA_IPVLAN_MODE.
type IPVLANMode uint16

// The modes of [IPVLAN] Mode=.
const (
	IPVLANL2 IPVLANMode = iota
	IPVLANL3
	IPVLANL3S
)

// IPVLANFlags is IFLA_IPVLAN_FLAGS.
type IPVLANFlags uint16

// The words of [IPVLAN] Flags=.
const (
	IPVLANBridge IPVLANFlags = iota
	IPVLANPrivate
	IPVLANVEPA
)

var (
	macvlanModeWords = []word[MACVLANMode]{{MACVLANPrivate, "private"}, {MACVLANVEPA, "vepa"}, {MACVLANBridge, "bridge"},
		{MACVLANPassthru, "passthru"}}
	ipvlanModeWords  = []word[IPVLANMode]{{IPVLANL2, "L2"}, {IPVLANL3, "L3"}, {IPVLANL3S, "L3S"}}
	ipvlanFlagsWords = []word[IPVLANFlags]{{IPVLANBridge, "bridge"}, {IPVLANPrivate, "private"}, {IPVLANVEPA, "vepa"}}
)

// String prints the word of the unit file, which is also that of ip link but for source.
func (m MACVLANMode) String() string {
	if m == 16 {
		return "source"
	}
	return printWord(macvlanModeWords, m)
}

// String prints the word of the unit file.
func (m IPVLANMode) String() string  { return printWord(ipvlanModeWords, m) }
func (f IPVLANFlags) String() string { return printWord(ipvlanFlagsWords, f) }

// Namespace is the path of the network namespace that the interface is for, empty for
// that of its parent.
func (v *VLAN) Namespace() string { return namespacePath(v.NetworkNamespace) }

// ChildName is the name of the interface on parent.
func (v *VLAN) ChildName(parent string) string {
	if n, ok := v.Name.Get(); ok {
		return n
	}
	return fmt.Sprintf("%s.%d", parent, v.Id.V)
}

// QOSMap is one item "from-to" of EgressQOSMaps= or IngressQOSMaps=.
type QOSMap struct{ From, To uint32 }

// VLANProtocol is the EtherType of the tag.
type VLANProtocol uint16

// The tag protocols.
const (
	VLAN8021Q  VLANProtocol = 0x8100
	VLAN8021AD VLANProtocol = 0x88a8
)

func openVLAN(k VLANKind) func(*Unit) (any, *Section) {
	return func(*Unit) (any, *Section) { o := &VLAN{Kind: k}; return o, &o.Section }
}

func vlanSection() SectionSpec {
	type V = VLAN
	maps := func(name string, field func(*V) *[]Value[QOSMap]) Key {
		return Key{Name: name, List: true, apply: list(field, words, parseQOSMap)}
	}
	return SectionSpec{
		Name: "VLAN", Repeat: true, open: openVLAN(KindVLAN),
		Keys: []Key{
			{Name: "Id", essential: true, apply: scalar(func(x *V) *Value[uint16] { return &x.Id }, number[uint16](0, 4094))},
			vlanName(),
			{Name: "Protocol", Values: []string{"802.1q", "802.1ad"}, essential: true,
				apply: scalar(func(x *V) *Value[VLANProtocol] { return &x.Protocol }, enum(vlanProtocolWords))},
			vlanMTU(),
			maps("EgressQOSMaps", func(x *V) *[]Value[QOSMap] { return &x.EgressQOSMaps }),
			maps("IngressQOSMaps", func(x *V) *[]Value[QOSMap] { return &x.IngressQOSMaps }),
			boolKey("ReorderHeader", false, func(x *V) *Value[bool] { return &x.ReorderHeader }),
			boolKey("GVRP", false, func(x *V) *Value[bool] { return &x.GVRP }),
			boolKey("MVRP", false, func(x *V) *Value[bool] { return &x.MVRP }),
			boolKey("LooseBinding", false, func(x *V) *Value[bool] { return &x.LooseBinding }),
			namespaceKey(func(x *V) *Value[string] { return &x.NetworkNamespace }),
		},
	}
}

func macvlanSection() SectionSpec {
	mode := enumKey("Mode", false, macvlanModeWords, func(x *VLAN) *Value[MACVLANMode] { return &x.MACVLANMode })
	mode.essential = true
	return SectionSpec{Name: "MACVLAN", Repeat: true, open: openVLAN(KindMACVLAN),
		Keys: []Key{vlanName(), mode, vlanMTU(), namespaceKey(func(x *VLAN) *Value[string] { return &x.NetworkNamespace })}}
}

func ipvlanSection() SectionSpec {
	mode := enumKey("Mode", false, ipvlanModeWords, func(x *VLAN) *Value[IPVLANMode] { return &x.IPVLANMode })
	flags := enumKey("Flags", false, ipvlanFlagsWords, func(x *VLAN) *Value[IPVLANFlags] { return &x.IPVLANFlags })
	mode.essential, flags.essential = true, true
	return SectionSpec{Name: "IPVLAN", Repeat: true, open: openVLAN(KindIPVLAN),
		Keys: []Key{vlanName(), mode, flags, vlanMTU(), namespaceKey(func(x *VLAN) *Value[string] { return &x.NetworkNamespace })}}
}

func vlanName() Key {
	return Key{Name: "Name", essential: true, apply: scalar(func(x *VLAN) *Value[string] { return &x.Name }, parseIfName)}
}

func vlanMTU() Key {
	return Key{Name: "MTUBytes", Values: []string{"max"}, apply: scalar(func(x *VLAN) *Value[MTU] { return &x.MTUBytes }, parseMTU)}
}

func (p *parser) vlan(x *VLAN) bool {
	section := x.Kind.Section()
	drop := func(key string, pos Place, format string, args ...any) bool {
		p.at(section, key).problem(pos, Warning, notUsed, format, args...)
		return false
	}
	switch {
	case x.Kind == KindVLAN && !x.Id.Set:
		p.problem(x.Pos, Warning, notUsed, "[VLAN] has no Id=")
		return false
	case x.Kind != KindVLAN && !x.Name.Set:
		p.problem(x.Pos, Warning, notUsed, "[%s] has no Name=", section)
		return false
	}
	for i := range p.u.VLANs {
		switch o := &p.u.VLANs[i]; {
		case x.Name.Set && o.Name.Set && x.Name.V == o.Name.V:
			return drop("Name", x.Name.Pos, "interface name %s is already used by the [%s] at %s", x.Name.V, o.Kind.Section(), o.Pos)
		case x.Kind == KindVLAN && o.Kind == KindVLAN && o.Id.V == x.Id.V && o.Protocol.Or(VLAN8021Q) == x.Protocol.Or(VLAN8021Q):
			return drop("Id", x.Id.Pos, "VLAN %d is already used by the [VLAN] at %s", x.Id.V, o.Pos)
		case x.Kind == KindVLAN || o.Kind == KindVLAN:
		case x.Kind != o.Kind:
			return drop("Name", x.Name.Pos, "a link's packets go to its macvlans or to its ipvlans, and the [%s] at %s has one",
				o.Kind.Section(), o.Pos)
		case x.MACVLANMode.V == MACVLANPassthru || o.MACVLANMode.V == MACVLANPassthru:
			return drop("Name", x.Name.Pos, "a macvlan with Mode=passthru is the only one of its link, which also has the [MACVLAN] at %s", o.Pos)
		case x.IPVLANMode.V != o.IPVLANMode.V:
			return drop("Name", x.Name.Pos, "the ipvlans of a link have one mode, which is %s by the [IPVLAN] at %s", o.IPVLANMode.V, o.Pos)
		case x.IPVLANFlags.V != o.IPVLANFlags.V:
			return drop("Name", x.Name.Pos, "the ipvlans of a link have the same Flags=, which is %s by the [IPVLAN] at %s",
				o.IPVLANFlags.V, o.Pos)
		}
	}
	return true
}

// checkVLANs reports what IPoIB links cannot have, removes from a slave of a bond what that cannot
// have, and brings the list into the order of the schema.
func (p *parser) checkVLANs() {
	u := p.u
	bond, _ := u.MasterBond()
	u.VLANs = slices.DeleteFunc(u.VLANs, func(v VLAN) bool {
		drop := bond != "" && v.Kind != KindVLAN
		switch p.at(v.Kind.Section(), ""); {
		case drop:
			p.problem(v.Pos, Warning, notUsed, "a slave of a bond gives all packets to it and has no %ss: write [%s] into a unit with "+
				"[Match] Name=%s", v.Kind, v.Kind.Section(), bond)
		case u.wantsInfiniBand():
			p.problem(v.Pos, Warning, "it has no effect on IPoIB", "%s; %s", v.Kind.RefusedOnIPoIB(), InsteadOfVLAN)
		}
		return drop
	})
	slices.SortStableFunc(u.VLANs, func(a, b VLAN) int { return int(a.Kind) - int(b.Kind) })
}

// InsteadOfVLAN is what an IPoIB link has instead of a VLAN and the like.
const InsteadOfVLAN = "write a [Partition] instead"

// RefusedOnIPoIB is why an IPoIB link cannot have one (Linux 6.12: register_vlan_dev,
// macvlan_port_create, ipvlan_link_new).
func (k VLANKind) RefusedOnIPoIB() string {
	if k == KindVLAN {
		return "the kernel makes no VLAN on IPoIB, whose header has no room for a tag (NETIF_F_VLAN_CHALLENGED)"
	}
	return "the kernel makes no " + k.String() + " on IPoIB, only on links of type Ethernet (ARPHRD_ETHER)"
}
