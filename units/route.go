package units

import (
	"net/netip"
	"time"
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
	NextHop                         Value[uint32] // a nexthop object's, from 1
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
