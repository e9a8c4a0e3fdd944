package units

import (
	"fmt"
	"net/netip"
	"time"

	"ibnetworkd/ib"
)

// Suffix is the ending of unit file names; systemd-networkd ignores it, so both
// sets of files can live in one directory.
const Suffix = ".ibnetwork"

// Position is a place in a file. Lines count from 1, columns are bytes from 1.
// In a value that is continued over lines it is the physical line and column
// where the item stands. The zero Position is "nowhere".
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// IsValid reports whether p names a place.
func (p Position) IsValid() bool { return p.File != "" || p.Line != 0 }

// String prints file:line:column and leaves out what is not known.
func (p Position) String() string {
	switch {
	case !p.IsValid():
		return "-"
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Value is a setting that a unit may give or not. The zero Value is "not set".
// A key that was reset by an empty assignment is not set.
type Value[T any] struct {
	V   T
	Set bool
	Pos Position
}

// Or is the value, or def where it is not set.
func (v Value[T]) Or(def T) T {
	if v.Set {
		return v.V
	}
	return def
}

// Get is the value and whether it is set.
func (v Value[T]) Get() (T, bool) { return v.V, v.Set }

// Some is a set value without a position, for tests and generated units.
func Some[T any](v T) Value[T] { return Value[T]{V: v, Set: true} }

// Section is what every section has: whether the unit contains it (its header
// was read, with or without keys) and where its first header stands.
type Section struct {
	Present bool
	Pos     Position
}

// Unit is one .ibnetwork file with its drop-ins applied. It is immutable once
// loaded.
type Unit struct {
	// Name is the file name, "10-ib0.ibnetwork"; units are ordered and
	// overridden by it.
	Name string
	// Path is where the main file stands, "/etc/systemd/network/10-ib0.ibnetwork".
	Path string
	// Files are the main file and the drop-ins in the order they apply.
	Files []File

	Match Match
	Link  Link
	IPoIB IPoIB
	// Partitions are the P_Key children to make on the matched link, in the
	// order of the text; no two have the same base key or name.
	Partitions []Partition
	// Network is the IP part. Unit.ConfiguresIP reports whether the unit
	// has an IP part at all; without one it is left to others.
	Network Network
	// Addresses are those of [Address] sections and of [Network] Address=
	// together, in the order of the text. Each has Address set.
	Addresses []Address
	// Routes are those of [Route] sections and of [Network] Gateway= together.
	Routes []Route
	// Rules are the [RoutingPolicyRule] sections.
	Rules []RoutingPolicyRule

	SubnetManager    SubnetManager
	Port             Port
	RoCE             RoCE
	VLANs            []VLAN
	SoftRoCE         SoftRoCE
	VirtualFunctions VirtualFunctions
	// VFs are the [VF] sections, one for each virtual function index.
	VFs     []VF
	Modules Modules

	// Problems are those found in this unit's files, in the order of the text.
	Problems []Problem
	// Kept says that this is the last good version, all files of it: one of them
	// has become unusable since, as Problems tell. It ends when every file parses
	// again, when the main file is removed, or by a link to /dev/null.
	Kept bool
	// before are the problems of Files where Kept has those of other files in
	// Problems.
	before []Problem
}

// ConfiguresIP reports whether the unit has anything to say about addresses,
// routes or rules; if not, only the InfiniBand part is configured and the IP
// part is left to systemd-networkd or the program that manages it.
func (u *Unit) ConfiguresIP() bool {
	return u.Network.Present || len(u.Addresses) > 0 || len(u.Routes) > 0 || len(u.Rules) > 0
}

// Unmanaged reports [Link] Unmanaged=yes: the match stops the search and the
// link is left alone.
func (u *Unit) Unmanaged() bool { return u.Link.Unmanaged.Or(false) }

// Link is [Link].
type Link struct {
	Section
	// MTUBytes is the netdev MTU, or the largest that adapter and fabric allow.
	MTUBytes Value[MTU]
	// GUID is the settable last 8 bytes of the IPoIB hardware address.
	GUID             Value[ib.GUID]
	ActivationPolicy Value[ActivationPolicy]
	// RequiredForOnline is the range of operational states for wait-online.
	RequiredForOnline       Value[Online]
	RequiredFamilyForOnline Value[Family]
	Unmanaged               Value[bool]
	AllMulticast            Value[bool]
	Multicast               Value[bool]
	Promiscuous             Value[bool]
	ARP                     Value[bool]
	// Group is 0 to 2147483647.
	Group Value[uint32]
}

// MTU is an MTU in bytes, or Max: the best that adapter and fabric allow.
type MTU struct {
	Max   bool
	Bytes int
}

// String prints the MTU as a unit file has it.
func (m MTU) String() string {
	if m.Max {
		return "max"
	}
	return fmt.Sprint(m.Bytes)
}

// ActivationPolicy is what is done about the administrative state of a link.
type ActivationPolicy uint8

// The activation policies of systemd.network(5). Up is the default.
const (
	ActivationUp ActivationPolicy = iota
	ActivationAlwaysUp
	ActivationManual
	ActivationAlwaysDown
	ActivationDown
	ActivationBound
)

// OperState is an operational state as networkctl lists it, in rising order.
type OperState string

// The operational states of networkctl(1).
const (
	OperMissing         OperState = "missing"
	OperOff             OperState = "off"
	OperNoCarrier       OperState = "no-carrier"
	OperDormant         OperState = "dormant"
	OperDegradedCarrier OperState = "degraded-carrier"
	OperCarrier         OperState = "carrier"
	OperDegraded        OperState = "degraded"
	OperEnslaved        OperState = "enslaved"
	OperRoutable        OperState = "routable"
)

// Online says which operational states count as online for wait-online.
type Online struct {
	// Required is false for RequiredForOnline=no.
	Required bool
	Min, Max OperState
}

// String prints the range as a unit file has it.
func (o Online) String() string {
	switch {
	case !o.Required:
		return "no"
	case o.Max == OperRoutable || o.Max == o.Min && o.Min == OperRoutable:
		return string(o.Min)
	}
	return string(o.Min) + ":" + string(o.Max)
}

// Family is an address family, or both or any.
type Family uint8

// The families of RequiredFamilyForOnline= and of [RoutingPolicyRule] Family=.
const (
	FamilyAny Family = iota
	FamilyIPv4
	FamilyIPv6
	FamilyBoth
)

// IPoIB is [IPoIB].
type IPoIB struct {
	Section
	Mode                           Value[Mode]
	IgnoreUserspaceMulticastGroups Value[bool]
}

// Mode is the IPoIB transport.
type Mode uint8

// The modes. ModeAuto takes connected where the adapter offers it and datagram
// where it does not.
const (
	ModeDatagram Mode = iota
	ModeConnected
	ModeAuto
)

// Partition is one [Partition]: a P_Key child of the matched link. PartitionKey
// is always set and valid.
type Partition struct {
	Section
	PartitionKey Value[ib.PKey]
	// Name is the child's interface name; not set means the kernel's
	// PARENT.8001 (see ChildName).
	Name                           Value[string]
	Mode                           Value[Mode]
	MTUBytes                       Value[MTU]
	IgnoreUserspaceMulticastGroups Value[bool]
}

// ChildName is the name of the child on parent: Name=, or the name that
// ib_ipoib itself gives, the parent's with the full-membership key in four
// digits ("ib0.8001").
func (p *Partition) ChildName(parent string) string {
	if n, ok := p.Name.Get(); ok {
		return n
	}
	return fmt.Sprintf("%s.%04x", parent, uint16(p.PartitionKey.V.AsFull()))
}

// Network is [Network]. Address= and Gateway= are found in Unit.Addresses and
// Unit.Routes.
type Network struct {
	Section
	Description                    Value[string]
	DNS                            []Value[DNSServer]
	Domains                        []Value[Domain]
	DNSDefaultRoute                Value[bool]
	LinkLocalAddressing            Value[LinkLocal]
	IPv6LinkLocalAddressGeneration Value[AddrGen]
	IPv6AcceptRA                   Value[bool]
	IPv6PrivacyExtensions          Value[PrivacyExtensions]
	IPv4Forwarding                 Value[bool]
	IPv6Forwarding                 Value[bool]
	IPv6DuplicateAddressDetection  Value[int]
	IPv6HopLimit                   Value[int]
	IPv6MTUBytes                   Value[int]
	IPv4ReversePathFilter          Value[ReversePathFilter]
	IPv4AcceptLocal                Value[bool]
	IPv4RouteLocalnet              Value[bool]
	IPv4ProxyARP                   Value[bool]
	IPv6ProxyNDP                   Value[bool]
	IPv4ProxyARPPrivateVLAN        Value[bool]
	KeepConfiguration              Value[KeepConfiguration]
	// BindCarrier are the links that ActivationPolicy=bound follows.
	BindCarrier          []Value[Pattern]
	DefaultRouteOnDevice Value[bool]
	// What follows is for systemd-resolved, as DNS= and Domains=.
	LLMNR                      Value[Support]
	MulticastDNS               Value[Support]
	DNSOverTLS                 Value[Support]
	DNSSEC                     Value[Support]
	DNSSECNegativeTrustAnchors []Value[Domain]
	ConfigureWithoutCarrier    Value[bool]
}

// DNSServer is one item of DNS=: address, optional port, interface and server
// name for TLS ("[fd00::1]:853%ib0#dns.example").
type DNSServer struct {
	Addr netip.Addr
	// Port is 0 for the default.
	Port      uint16
	Interface string
	Name      string
}

// Domain is one item of Domains=; RouteOnly is the "~" prefix. The root domain
// is ".".
type Domain struct {
	Name      string
	RouteOnly bool
}

// LinkLocal says which link-local addresses are wanted.
type LinkLocal uint8

// The values of LinkLocalAddressing=.
const (
	LinkLocalNo LinkLocal = iota
	LinkLocalYes
	LinkLocalIPv4
	LinkLocalIPv6
)

// IPv4 reports whether an IPv4 link-local address is wanted.
func (l LinkLocal) IPv4() bool { return l == LinkLocalYes || l == LinkLocalIPv4 }

// IPv6 reports whether an IPv6 link-local address is wanted.
func (l LinkLocal) IPv6() bool { return l == LinkLocalYes || l == LinkLocalIPv6 }

// AddrGen is the way an IPv6 link-local address is made; the numbers are the
// kernel's addr_gen_mode (include/uapi/linux/if_link.h, enum in6_addr_gen_mode).
type AddrGen uint8

// The values of IPv6LinkLocalAddressGenerationMode=.
const (
	AddrGenEUI64         AddrGen = 0
	AddrGenNone          AddrGen = 1
	AddrGenStablePrivacy AddrGen = 2
	AddrGenRandom        AddrGen = 3
)

// PrivacyExtensions are the temporary addresses of RFC 8981.
type PrivacyExtensions uint8

// The values of IPv6PrivacyExtensions=. The first three have the numbers of the
// kernel's use_tempaddr; kernel leaves that sysctl as it is.
const (
	PrivacyNo           PrivacyExtensions = 0
	PrivacyPreferPublic PrivacyExtensions = 1
	PrivacyYes          PrivacyExtensions = 2
	PrivacyKernel       PrivacyExtensions = 3
)

// ReversePathFilter is rp_filter; the numbers are the kernel's.
type ReversePathFilter uint8

// The values of IPv4ReversePathFilter=.
const (
	ReversePathNo     ReversePathFilter = 0
	ReversePathStrict ReversePathFilter = 1
	ReversePathLoose  ReversePathFilter = 2
)

// Support says how far systemd-resolved goes with something on a link. The words
// differ by key: resolve is LLMNR's and mDNS's, opportunistic DNSOverTLS's,
// allow-downgrade DNSSEC's.
type Support uint8

// The values of LLMNR=, MulticastDNS=, DNSOverTLS= and DNSSEC=.
const (
	SupportNo Support = iota
	SupportYes
	SupportResolve
	SupportOpportunistic
	SupportAllowDowngrade
)

// Activation is how the link is taken up and down: ActivationPolicy=, or bound
// where BindCarrier= is given.
func (u *Unit) Activation() ActivationPolicy {
	if len(u.Network.BindCarrier) > 0 {
		return ActivationBound
	}
	return u.Link.ActivationPolicy.Or(ActivationUp)
}

// Required reports whether wait-online waits for the link: RequiredForOnline=,
// without it whether the link is brought up.
func (u *Unit) Required() bool {
	if o, ok := u.Link.RequiredForOnline.Get(); ok {
		return o.Required
	}
	switch u.Activation() {
	case ActivationManual, ActivationDown, ActivationAlwaysDown:
		return false
	}
	return true
}

// KeepsStatic reports whether what the daemon set stays on a link when the unit
// goes.
func (u *Unit) KeepsStatic() bool {
	k := u.Network.KeepConfiguration.Or(KeepNo)
	return k == KeepYes || k == KeepStatic
}

// KeepConfiguration says what stays on the link when its unit goes.
type KeepConfiguration uint8

// The values of KeepConfiguration=. There is no DHCP client here, so the
// dynamic forms mean no more than no.
const (
	KeepNo KeepConfiguration = iota
	KeepYes
	KeepStatic
	KeepDynamicOnStop
	KeepDynamic
)

// Address is one [Address] or one [Network] Address=.
type Address struct {
	Section
	// Address has the host bits, as ip address shows it.
	Address                   Value[netip.Prefix]
	Peer                      Value[netip.Prefix]
	Broadcast                 Value[Broadcast]
	Label                     Value[string]
	PreferredLifetime         Value[Lifetime]
	Scope                     Value[Scope]
	RouteMetric               Value[uint32]
	HomeAddress               Value[bool]
	DuplicateAddressDetection Value[DAD]
	ManageTemporaryAddress    Value[bool]
	AddPrefixRoute            Value[bool]
	AutoJoin                  Value[bool]
}

// Broadcast is an IPv4 broadcast address: explicit, the prefix's own
// (Derive), or none.
type Broadcast struct {
	Addr   netip.Addr
	Derive bool
}

// Lifetime is an address lifetime in seconds as the kernel takes it.
type Lifetime uint32

// Forever is INFINITY_LIFE_TIME of include/net/addrconf.h.
const Forever Lifetime = 0xffffffff

// Scope is a route or address scope with the kernel's numbers
// (include/uapi/linux/rtnetlink.h, enum rt_scope_t).
type Scope uint8

// The named scopes.
const (
	ScopeGlobal  Scope = 0
	ScopeSite    Scope = 200
	ScopeLink    Scope = 253
	ScopeHost    Scope = 254
	ScopeNowhere Scope = 255
)

// DAD says for which families duplicate address detection is done.
type DAD uint8

// The values of [Address] DuplicateAddressDetection=.
const (
	DADNone DAD = iota
	DADIPv4
	DADIPv6
	DADBoth
)

// Route is one [Route] or one [Network] Gateway=.
type Route struct {
	Section
	Gateway                         Value[netip.Addr]
	GatewayOnLink                   Value[bool]
	Destination                     Value[netip.Prefix]
	Source                          Value[netip.Prefix]
	Metric                          Value[uint32]
	IPv6Preference                  Value[RoutePreference]
	Scope                           Value[Scope]
	PreferredSource                 Value[netip.Addr]
	Table                           Value[uint32]
	HopLimit                        Value[int]
	Protocol                        Value[uint8]
	Type                            Value[RouteType]
	InitialCongestionWindow         Value[int]
	InitialAdvertisedReceiveWindow  Value[int]
	QuickAck                        Value[bool]
	FastOpenNoCookie                Value[bool]
	MTUBytes                        Value[int]
	TCPAdvertisedMaximumSegmentSize Value[int]
	TCPCongestionControlAlgorithm   Value[string]
	TCPRetransmissionTimeoutSec     Value[time.Duration]
	MultiPathRoute                  []Value[NextHop]
}

// Is6 reports whether the route is an IPv6 route.
func (r *Route) Is6() bool {
	switch {
	case r.Destination.Set:
		return r.Destination.V.Addr().Is6()
	case r.Gateway.Set:
		return r.Gateway.V.Is6()
	case r.PreferredSource.Set:
		return r.PreferredSource.V.Is6()
	case r.Source.Set:
		return r.Source.V.Addr().Is6()
	case len(r.MultiPathRoute) > 0:
		return r.MultiPathRoute[0].V.Gateway.Is6()
	}
	return false
}

// NextHop is one item of MultiPathRoute=: "address[@name] [weight]". Weight is 1
// to 256; Interface "" is the matched link.
type NextHop struct {
	Gateway   netip.Addr
	Interface string
	Weight    int
}

// RoutePreference is the router preference of RFC 4191 with its two-bit code.
type RoutePreference uint8

// The preferences.
const (
	PreferenceMedium RoutePreference = 0
	PreferenceHigh   RoutePreference = 1
	PreferenceLow    RoutePreference = 3
)

// RouteType is a route's type with the kernel's numbers
// (include/uapi/linux/rtnetlink.h, RTN_*).
type RouteType uint8

// The types that a [Route] can have.
const (
	RouteUnicast     RouteType = 1
	RouteLocal       RouteType = 2
	RouteBroadcast   RouteType = 3
	RouteAnycast     RouteType = 4
	RouteMulticast   RouteType = 5
	RouteBlackhole   RouteType = 6
	RouteUnreachable RouteType = 7
	RouteProhibit    RouteType = 8
	RouteThrow       RouteType = 9
	RouteNAT         RouteType = 10
	RouteXResolve    RouteType = 11
)

// Route tables that have names.
const (
	TableDefault uint32 = 253
	TableMain    uint32 = 254
	TableLocal   uint32 = 255
)

// RoutingPolicyRule is one [RoutingPolicyRule].
type RoutingPolicyRule struct {
	Section
	TypeOfService          Value[uint8]
	From, To               Value[netip.Prefix]
	FirewallMark           Value[Mark]
	Table                  Value[uint32]
	Priority               Value[uint32]
	GoTo                   Value[uint32]
	IncomingInterface      Value[string]
	OutgoingInterface      Value[string]
	L3MasterDevice         Value[bool]
	SourcePort             Value[PortRange]
	DestinationPort        Value[PortRange]
	IPProtocol             Value[uint8]
	InvertRule             Value[bool]
	Family                 Value[Family]
	User                   Value[UIDRange]
	SuppressPrefixLength   Value[int]
	SuppressInterfaceGroup Value[int]
	Type                   Value[RuleType]
}

// Families are the address families for which the rule is to be made.
func (r *RoutingPolicyRule) Families() (v4, v6 bool) {
	switch {
	case r.From.Set:
		v4 = r.From.V.Addr().Is4()
		return v4, !v4
	case r.To.Set:
		v4 = r.To.V.Addr().Is4()
		return v4, !v4
	}
	switch r.Family.Or(FamilyIPv4) {
	case FamilyIPv6:
		return false, true
	case FamilyBoth:
		return true, true
	}
	return true, false
}

// Mark is a firewall mark and its mask; without a mask in the text it is all
// ones.
type Mark struct{ Value, Mask uint32 }

// PortRange is a range of transport port numbers, both ends included.
type PortRange struct{ First, Last uint16 }

// UIDRange is a range of user numbers, both ends included.
type UIDRange struct{ First, Last uint32 }

// RuleType is a rule's action with the kernel's numbers
// (include/uapi/linux/fib_rules.h, FR_ACT_*).
type RuleType uint8

// The types of [RoutingPolicyRule] Type=.
const (
	RuleTable       RuleType = 1
	RuleGoTo        RuleType = 2
	RuleNop         RuleType = 3
	RuleBlackhole   RuleType = 6
	RuleUnreachable RuleType = 7
	RuleProhibit    RuleType = 8
)

// SubnetManager is [SubnetManager].
type SubnetManager struct {
	Section
	Manage        Value[Manage]
	Engine        Value[Engine]
	StartDelaySec Value[time.Duration]
	// Priority is 0 to 15, higher wins.
	Priority       Value[int]
	SubnetPrefix   Value[uint64]
	RoutingEngine  Value[string]
	PartitionsFile Value[string]
	// Partition are rules in the form of sm/partition's ParseRule.
	Partition             []Value[string]
	LMC                   Value[ib.LMC]
	StopWhenForeignMaster Value[bool]
	StopDelaySec          Value[time.Duration]
	// KeyFile holds M_Key, SM_Key and SA key; MKeyProtect is 0 to 3.
	KeyFile              Value[string]
	MKeyProtect          Value[int]
	MKeyLeaseSec         Value[time.Duration]
	QoS                  Value[bool]
	PartitionEnforcement Value[Enforcement]
	NodeNameMap          Value[string]
	SweepSec             Value[time.Duration]
	TimeoutSec           Value[time.Duration]
	Retries              Value[int]
	Window               Value[int]
	Verbose              Value[bool]
}

// Enforcement is where switches check P_Keys.
type Enforcement uint8

// The values of PartitionEnforcement=.
const (
	EnforceBoth Enforcement = iota
	EnforceIn
	EnforceOut
	EnforceOff
)

// Manage says when a subnet manager runs for the port.
type Manage uint8

// The values of Manage=.
const (
	ManageNo     Manage = iota // never
	ManageAuto                 // when the subnet has none
	ManageAlways               // whenever the link is up; the election decides who is master
)

// Engine is the subnet manager program.
type Engine uint8

// The values of Engine=.
const (
	EngineBuiltin Engine = iota
	EngineOpenSM
)

// Port is [Port].
type Port struct {
	Section
	Type Value[PortType]
	// ChangeWhileInUse allows a type change although the port's links are up or
	// have users.
	ChangeWhileInUse Value[bool]
	// NodeDescription is the text with its specifiers; see ExpandNodeDescription.
	NodeDescription Value[string]
}

// PortType is the protocol of a VPI port; the numbers are devlink's
// (include/uapi/linux/devlink.h, enum devlink_port_type).
type PortType uint8

// The values of [Port] Type=.
const (
	PortTypeAuto PortType = 1
	PortTypeEth  PortType = 2
	PortTypeIB   PortType = 3
)

// RoCE is [RoCE]. Priorities and classes are 0 to 7, DSCP values 0 to 63.
type RoCE struct {
	Section
	// Version is 1 or 2: the default RoCE mode of RDMA-CM.
	Version Value[int]
	// TypeOfService is the IP ToS byte of RDMA-CM connections, 0 to 255; see ToS.
	TypeOfService Value[uint8]
	// DSCP is 0 to 63.
	DSCP Value[uint8]
	// Priority is the priority of RoCE traffic.
	Priority Value[uint8]
	// PFC is the set of priorities with priority flow control, one bit each.
	// Set with no bit is "PFC=none".
	PFC   Value[uint8]
	Trust Value[Trust]
	// ETS has one item for each traffic class named.
	ETS []Value[ETSClass]
	// PriorityToClass maps a priority to its traffic class.
	PriorityToClass []Value[PriorityMap]
	// DSCPToPriority maps a DSCP value to a priority.
	DSCPToPriority []Value[PriorityMap]
	// BufferSize has the bytes of each receive buffer named.
	BufferSize []Value[BufferSize]
	// PriorityToBuffer maps a priority to its receive buffer.
	PriorityToBuffer []Value[PriorityMap]
	// CableLength is in metres, for PFC headroom.
	CableLength Value[int]
	// ECN is the set of priorities with explicit congestion notification.
	ECN Value[uint8]
	// WriteModprobeFile asks for a modprobe.d file with mlx4's pfctx and pfcrx.
	WriteModprobeFile Value[bool]
}

// ToS is the IP ToS byte that the unit asks for, by TypeOfService= or by DSCP=
// (shifted by the two ECN bits); TypeOfService= wins where both are set.
func (r *RoCE) ToS() Value[uint8] {
	if r.TypeOfService.Set || !r.DSCP.Set {
		return r.TypeOfService
	}
	return Value[uint8]{V: r.DSCP.V << 2, Set: true, Pos: r.DSCP.Pos}
}

// Trust is what a port takes a packet's priority from.
type Trust uint8

// The values of Trust=.
const (
	TrustPCP Trust = iota
	TrustDSCP
)

// ETSClass is the scheduling of one traffic class: strict, or a share of the
// bandwidth in percent.
type ETSClass struct {
	Class   uint8
	Strict  bool
	Percent uint8
}

// PriorityMap is one item "from:to" of a map.
type PriorityMap struct{ From, To uint8 }

// BufferSize is the size in bytes of one receive buffer.
type BufferSize struct {
	Buffer uint8
	Bytes  uint32
}

// VLAN is one [VLAN]: a VLAN interface on the matched Ethernet link. Id is
// always set.
type VLAN struct {
	Section
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
}

// ChildName is the name of the VLAN interface on parent.
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

// SoftRoCE is [SoftRoCE]: a software RDMA device on the matched Ethernet link.
type SoftRoCE struct {
	Section
	Driver Value[SoftDriver]
	// Name is the RDMA device's name; not set means the driver's name, "_" and
	// the link's ("rxe_eth0").
	Name Value[string]
}

// SoftDriver is a software RDMA driver.
type SoftDriver uint8

// The values of [SoftRoCE] Driver=.
const (
	SoftRXE SoftDriver = iota
	SoftSIW
)

// DeviceName is the name of the RDMA device on the link.
func (s *SoftRoCE) DeviceName(link string) string {
	if n, ok := s.Name.Get(); ok {
		return n
	}
	return s.Driver.V.String() + "_" + link
}

// VirtualFunctions is [VirtualFunctions]: what holds for all of them.
type VirtualFunctions struct {
	Section
	Count     Value[int]
	Autoprobe Value[bool]
	// NodeGUID and PortGUID are for those without a [VF] of their own; only auto
	// is possible here.
	NodeGUID  Value[VFGUID]
	PortGUID  Value[VFGUID]
	LinkState Value[VFLinkState]
	Trust     Value[bool]
}

// VF is one [VF]. VirtualFunction is always set.
type VF struct {
	Section
	// VirtualFunction is the index, 0 for the first.
	VirtualFunction Value[int]
	NodeGUID        Value[VFGUID]
	PortGUID        Value[VFGUID]
	LinkState       Value[VFLinkState]
	Trust           Value[bool]
	// MinRate and MaxRate are in Mbit/s, 0 is no limit.
	MinRate, MaxRate Value[uint32]
	MACAddress       Value[ib.HWAddr]
	MACSpoofCheck    Value[bool]
	VLANId           Value[uint16]
	QualityOfService Value[uint8]
	VLANProtocol     Value[VLANProtocol]
}

// VFGUID is a GUID for a virtual function: explicit, or made from the physical
// function's and the index (Auto).
type VFGUID struct {
	Auto bool
	GUID ib.GUID
}

// String prints the GUID as a unit file has it.
func (g VFGUID) String() string {
	if g.Auto {
		return "auto"
	}
	return g.GUID.String()
}

// VFLinkState is IFLA_VF_LINK_STATE; the numbers are the kernel's.
type VFLinkState uint8

// The values of LinkState=.
const (
	VFLinkAuto    VFLinkState = 0
	VFLinkEnable  VFLinkState = 1
	VFLinkDisable VFLinkState = 2
)

// Modules is [Modules]: kernel modules to load when the unit is loaded, whether
// a link matches or not.
type Modules struct {
	Section
	Load []Value[string]
}
