package units

import (
	"fmt"
	"strings"

	"ibnetworkd/ib"
)

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
	// Ethtool are the settings of the queues that are given, in the order of EthtoolParam.
	Ethtool []Value[EthtoolSetting]
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

// Online is the range of operational states that count as online for wait-online.
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
	// NetworkNamespace is a name in NamespaceDir or an absolute path; see Namespace.
	NetworkNamespace Value[string]
}

// NamespaceDir is where ip netns has the network namespaces that it makes.
const NamespaceDir = "/run/netns/"

// Namespace is the path of the network namespace that the child is for, empty for that of
// its parent.
func (p *Partition) Namespace() string { return namespacePath(p.NetworkNamespace) }

func namespacePath(v Value[string]) string {
	if !v.Set || strings.HasPrefix(v.V, "/") {
		return v.V
	}
	return NamespaceDir + v.V
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
