package units

import (
	"net/netip"
)

// Network is [Network]. Address= and Gateway= are found in Unit.Addresses and
// Unit.Routes.
type Network struct {
	Section
	Description                    Value[string]
	DHCP                           Value[DHCPMode]
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
	// DuplicateAddressDetection is that of all addresses whose section does not say it.
	DuplicateAddressDetection Value[DAD]
	IPv6HopLimit              Value[int]
	IPv6MTUBytes              Value[int]
	IPv4ReversePathFilter     Value[ReversePathFilter]
	MultiRail                 Value[bool]
	IPv4AcceptLocal           Value[bool]
	IPv4RouteLocalnet         Value[bool]
	IPv4ProxyARP              Value[bool]
	IPv6ProxyNDP              Value[bool]
	IPv4ProxyARPPrivateVLAN   Value[bool]
	KeepConfiguration         Value[KeepConfiguration]
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
	// AddressTable is the path of the file that has addresses by host.
	AddressTable Value[string]
	// Bond is the name of the bond to join, which another program makes.
	Bond Value[string]
	// VRF is the name of the VRF to be in, which another program makes.
	VRF Value[string]
	// PrimarySlave makes the link the primary one of its bond.
	PrimarySlave Value[bool]
}

// IPv6AcceptRA is [IPv6AcceptRA]: what is used of router advertisements. It has no effect
// without [Network] IPv6AcceptRA=yes, but for DHCPv6Client, which DHCPv6ByRouter reads.
type IPv6AcceptRA struct {
	Section
	UseDNS     Value[bool]
	UseDomains Value[UseDomains]
	UseGateway Value[bool]
	UseMTU     Value[bool]
	// UseAutonomousPrefix makes addresses from prefixes.
	UseAutonomousPrefix Value[bool]
	Token               Value[Token]
	// RouteMetric is of default routes.
	RouteMetric Value[uint32]
	// DHCPv6Client is which advertisements begin a DHCPv6 client.
	DHCPv6Client Value[DHCPv6ByRouter]
}

// UseDomains is what search domains of others are used for.
type UseDomains uint8

// The values of UseDomains=: for nothing, as Domains=, or only to choose the
// servers for names below them.
const (
	UseDomainsNo UseDomains = iota
	UseDomainsYes
	UseDomainsRoute
)

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

// LinkLocal is which link-local addresses are wanted.
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

// Support is how far systemd-resolved goes with something on a link. The words
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

// KeepConfiguration is what stays on the link when its unit goes.
type KeepConfiguration uint8

// The values of KeepConfiguration=. The dynamic forms mean no more than no: what a
// lease brought goes with the unit that asked for it.
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
	Address Value[netip.Prefix]
	// Template is set in place of Address for an address that each host derives.
	Template                  Value[AddressTemplate]
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

// DAD is the families for which duplicate address detection is done.
type DAD uint8

// The values of [Address] DuplicateAddressDetection=.
const (
	DADNone DAD = iota
	DADIPv4
	DADIPv6
	DADBoth
)

// IPv4 reports whether IPv4 addresses are probed.
func (d DAD) IPv4() bool { return d == DADIPv4 || d == DADBoth }
