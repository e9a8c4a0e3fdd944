package units

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"ibnetworkd/ib"
)

func networkSection() SectionSpec {
	type N = Network
	llWords := linkLocalWords
	support := func(name string, ws []word[Support], field func(*N) *Value[Support]) Key {
		syntax := strings.Replace(strings.Join(wordList(ws), "|"), "yes|no", "BOOLEAN", 1)
		return Key{Name: name, Syntax: syntax, Values: wordList(ws), Networkd: true,
			apply: scalar(field, boolOr(SupportYes, SupportNo, ws))}
	}
	forward := func(name string, field func(*N) *Value[bool]) Key {
		return boolKey(name, true, field)
	}
	return SectionSpec{
		Name: "Network", open: func(u *Unit) (any, *Section) { return &u.Network, &u.Network.Section },
		Keys: []Key{
			{Name: "Description", Networkd: true, apply: scalar(func(n *N) *Value[string] { return &n.Description }, parseText)},
			{Name: "DHCP", Syntax: "BOOLEAN|ipv4|ipv6", Values: wordList(dhcpWords), Networkd: true,
				apply: scalar(func(n *N) *Value[DHCPMode] { return &n.DHCP }, boolOr(DHCPYes, DHCPNo, dhcpWords))},
			{Name: "Address", List: true, Networkd: true, apply: setter{set: networkAddress}},
			{Name: "AddressTable", apply: scalar(func(n *N) *Value[string] { return &n.AddressTable }, parseAbsPath)},
			{Name: "Gateway", List: true, Networkd: true, apply: setter{set: networkGateway}},
			{Name: "DNS", List: true, Networkd: true, apply: list(func(n *N) *[]Value[DNSServer] { return &n.DNS }, words, parseDNS)},
			{Name: "Domains", List: true, Networkd: true,
				apply: list(func(n *N) *[]Value[Domain] { return &n.Domains }, words, parseDomain)},
			boolKey("DNSDefaultRoute", true, func(n *N) *Value[bool] { return &n.DNSDefaultRoute }),
			support("LLMNR", resolveWords, func(n *N) *Value[Support] { return &n.LLMNR }),
			support("MulticastDNS", resolveWords, func(n *N) *Value[Support] { return &n.MulticastDNS }),
			support("DNSOverTLS", tlsWords, func(n *N) *Value[Support] { return &n.DNSOverTLS }),
			support("DNSSEC", dnssecWords, func(n *N) *Value[Support] { return &n.DNSSEC }),
			{Name: "DNSSECNegativeTrustAnchors", List: true, Networkd: true,
				apply: list(func(n *N) *[]Value[Domain] { return &n.DNSSECNegativeTrustAnchors }, words, parsePlainDomain)},
			{Name: "LinkLocalAddressing", Values: wordList(llWords), Networkd: true,
				apply: scalar(func(n *N) *Value[LinkLocal] { return &n.LinkLocalAddressing }, boolOr(LinkLocalYes, LinkLocalNo, llWords))},
			enumKey("IPv6LinkLocalAddressGenerationMode", true, addrGenWords,
				func(n *N) *Value[AddrGen] { return &n.IPv6LinkLocalAddressGeneration }),
			boolKey("IPv6AcceptRA", true, func(n *N) *Value[bool] { return &n.IPv6AcceptRA }),
			{Name: "IPv6Token", Values: []string{"eui64"}, Networkd: true, apply: setter{set: networkToken}},
			{Name: "IPv6PrivacyExtensions", Values: wordList(privacyWords), Networkd: true,
				apply: scalar(func(n *N) *Value[PrivacyExtensions] { return &n.IPv6PrivacyExtensions },
					boolOr(PrivacyYes, PrivacyNo, privacyWords))},
			forward("IPv4Forwarding", func(n *N) *Value[bool] { return &n.IPv4Forwarding }),
			forward("IPv6Forwarding", func(n *N) *Value[bool] { return &n.IPv6Forwarding }),
			{Name: "IPForward", Values: []string{"yes", "no", "ipv4", "ipv6"}, Networkd: true, apply: setter{set: ipForward}},
			{Name: "DuplicateAddressDetection", Values: wordList(dadWords),
				apply: scalar(func(n *N) *Value[DAD] { return &n.DuplicateAddressDetection }, boolOr(DADBoth, DADNone, dadWords))},
			numKey("IPv6DuplicateAddressDetection", 0, 255, true, func(n *N) *Value[int] { return &n.IPv6DuplicateAddressDetection }),
			numKey("IPv6HopLimit", 1, 255, true, func(n *N) *Value[int] { return &n.IPv6HopLimit }),
			{Name: "IPv6MTUBytes", Networkd: true, apply: scalar(func(n *N) *Value[int] { return &n.IPv6MTUBytes }, parseIPv6MTU)},
			{Name: "IPv4ReversePathFilter", Values: wordList(rpfWords), Networkd: true,
				apply: scalar(func(n *N) *Value[ReversePathFilter] { return &n.IPv4ReversePathFilter }, enum(rpfWords))},
			boolKey("MultiRail", false, func(n *N) *Value[bool] { return &n.MultiRail }),
			boolKey("IPv4AcceptLocal", true, func(n *N) *Value[bool] { return &n.IPv4AcceptLocal }),
			boolKey("IPv4RouteLocalnet", true, func(n *N) *Value[bool] { return &n.IPv4RouteLocalnet }),
			boolKey("IPv4ProxyARP", true, func(n *N) *Value[bool] { return &n.IPv4ProxyARP }),
			boolKey("IPv6ProxyNDP", true, func(n *N) *Value[bool] { return &n.IPv6ProxyNDP }),
			boolKey("IPv4ProxyARPPrivateVLAN", true, func(n *N) *Value[bool] { return &n.IPv4ProxyARPPrivateVLAN }),
			boolKey("DefaultRouteOnDevice", true, func(n *N) *Value[bool] { return &n.DefaultRouteOnDevice }),
			{Name: "BindCarrier", List: true, Networkd: true,
				apply: list(func(n *N) *[]Value[Pattern] { return &n.BindCarrier }, words,
					func(s string) (Pattern, error) { return parseNameGlob(s, false) })},
			{Name: "KeepConfiguration", Values: []string{"yes", "no", "static", "dynamic", "dynamic-on-stop"}, Networkd: true,
				apply: scalar(func(n *N) *Value[KeepConfiguration] { return &n.KeepConfiguration }, boolOr(KeepYes, KeepNo, keepWords))},
			{Name: "Bond", Networkd: true, apply: scalar(func(n *N) *Value[string] { return &n.Bond }, parseIfName)},
			{Name: "VRF", Networkd: true, apply: scalar(func(n *N) *Value[string] { return &n.VRF }, parseIfName)},
			boolKey("PrimarySlave", true, func(n *N) *Value[bool] { return &n.PrimarySlave }),
			boolKey("ConfigureWithoutCarrier", true, func(n *N) *Value[bool] { return &n.ConfigureWithoutCarrier }),
		},
	}
}

func acceptRASection() SectionSpec {
	type R = IPv6AcceptRA
	return SectionSpec{
		Name: "IPv6AcceptRA", open: func(u *Unit) (any, *Section) { return &u.IPv6AcceptRA, &u.IPv6AcceptRA.Section },
		Keys: []Key{
			boolKey("UseDNS", true, func(r *R) *Value[bool] { return &r.UseDNS }),
			{Name: "UseDomains", Syntax: "BOOLEAN|route", Values: wordList(useDomainsWords), Networkd: true,
				apply: scalar(func(r *R) *Value[UseDomains] { return &r.UseDomains }, boolOr(UseDomainsYes, UseDomainsNo, useDomainsWords))},
			boolKey("UseGateway", true, func(r *R) *Value[bool] { return &r.UseGateway }),
			numKey("RouteMetric", 1, math.MaxUint32, true, func(r *R) *Value[uint32] { return &r.RouteMetric }),
			boolKey("UseMTU", true, func(r *R) *Value[bool] { return &r.UseMTU }),
			boolKey("UseAutonomousPrefix", true, func(r *R) *Value[bool] { return &r.UseAutonomousPrefix }),
			{Name: "Token", Values: []string{"eui64"}, Networkd: true, apply: tokenSetter()},
			{Name: "DHCPv6Client", Syntax: "BOOLEAN|always", Values: wordList(byRouterWords), Networkd: true,
				apply: scalar(func(r *R) *Value[DHCPv6ByRouter] { return &r.DHCPv6Client }, boolOr(DHCPv6ByFlags, DHCPv6Never, byRouterWords))},
		},
	}
}

func (p *parser) checkAcceptRA() {
	u := p.u
	byDHCPv6 := u.acceptsRA() && u.IPv6AcceptRA.DHCPv6Client.Set // as DHCPv6ByRouter has it
	if u.IPv6AcceptRA.Present && !u.Network.IPv6AcceptRA.V && !byDHCPv6 {
		p.at("IPv6AcceptRA", "").problem(u.IPv6AcceptRA.Pos, Warning, "the section has no effect",
			"[IPv6AcceptRA] needs IPv6AcceptRA=yes in [Network], and DHCPv6Client= that or DHCP=ipv6 or yes with WithoutRA=no")
	}
}

func parsePlainDomain(s string) (Domain, error) {
	d, err := parseDomain(s)
	if err == nil && d.RouteOnly {
		err = fmt.Errorf("%q: a domain without \"~\" is meant here", ib.Clip(s))
	}
	return d, err
}

func parseIPv6MTU(s string) (int, error) {
	n, err := parseMTUBytes(s)
	if err == nil && n < 1280 {
		return 0, fmt.Errorf("%q is less than 1280, the minimum of IPv6", ib.Clip(s))
	}
	return n, err
}

func networkAddress(p *parser, obj any, a *assign) { shorthand(p, a, "Address") }

func networkGateway(p *parser, obj any, a *assign) { shorthand(p, a, "Route") }

func shorthand(p *parser, a *assign, section string) {
	spec := p.sections[section]
	if a.val == "" {
		for _, o := range p.objs {
			if o.spec == spec && o.shorthand {
				o.dropped = true
			}
		}
		return
	}
	o := p.instance(spec, a.keyPos)
	o.shorthand = true
	var err error
	switch x := o.ptr.(type) {
	case *Address:
		var v netip.Prefix
		if strings.ContainsAny(a.val, "{}") {
			x.Template.V, err = parseTemplate(a.val)
			x.Template.Set, x.Template.Pos = err == nil, a.pos()
			break
		}
		if v, err = addressValue(a.val); err == nil || isCaution(err) {
			x.Address = Value[netip.Prefix]{V: v, Set: true, Pos: a.pos()}
		} else {
			err = noQuotes(a.val, err, addressValue)
		}
	case *Route:
		var v netip.Addr
		if v, err = parseGateway(a.val); err == nil {
			x.Gateway = Value[netip.Addr]{V: v, Set: true, Pos: a.pos()}
		} else {
			err = noQuotes(a.val, err, parseGateway)
		}
	}
	if c, ok := err.(*caution); ok {
		p.problem(a.pos(), Warning, c.kept, "[Network] %s=: %s", p.key.Name, c.msg)
	} else if err != nil {
		o.dropped = true
		p.bad(a.pos(), err, "the assignment is ignored")
	}
}

func isCaution(err error) bool {
	_, ok := err.(*caution)
	return ok
}

// ipForward sets both families' keys.
func ipForward(p *parser, obj any, a *assign) {
	n := obj.(*Network)
	if a.val == "" {
		n.IPv4Forwarding, n.IPv6Forwarding = Value[bool]{}, Value[bool]{}
		return
	}
	var v4, v6 bool
	switch a.val {
	case "ipv4":
		v4 = true
	case "ipv6":
		v6 = true
	case "kernel":
		return
	default:
		b, err := parseBool(a.val)
		if err != nil {
			p.bad(a.pos(), fmt.Errorf("%q is not a boolean, ipv4 or ipv6", ib.Clip(a.val)), "forwarding stays as it is")
			return
		}
		v4, v6 = b, b
	}
	n.IPv4Forwarding = Value[bool]{V: v4, Set: true, Pos: a.pos()}
	n.IPv6Forwarding = Value[bool]{V: v6, Set: true, Pos: a.pos()}
}

func addressSection() SectionSpec {
	type A = Address
	return SectionSpec{
		Name: "Address", Repeat: true, open: func(u *Unit) (any, *Section) { o := &Address{}; return o, &o.Section },
		Keys: []Key{
			{Name: "Address", Networkd: true, essential: true, apply: addressSetter()},
			{Name: "Peer", Networkd: true, essential: true,
				apply: scalar(func(x *A) *Value[netip.Prefix] { return &x.Peer },
					func(s string) (netip.Prefix, error) { p, _, err := parsePrefix(s); return p, err })},
			{Name: "Broadcast", Networkd: true, apply: scalar(func(x *A) *Value[Broadcast] { return &x.Broadcast }, parseBroadcast)},
			{Name: "Label", Networkd: true, apply: scalar(func(x *A) *Value[string] { return &x.Label }, parseLabel)},
			{Name: "PreferredLifetime", Values: []string{"forever", "infinity", "0"}, Networkd: true,
				apply: scalar(func(x *A) *Value[Lifetime] { return &x.PreferredLifetime }, parseLifetime)},
			{Name: "Scope", Values: []string{"global", "link", "host"}, Networkd: true,
				apply: scalar(func(x *A) *Value[Scope] { return &x.Scope }, enumOrByte(scopeWords))},
			numKey("RouteMetric", 0, math.MaxUint32, true, func(x *A) *Value[uint32] { return &x.RouteMetric }),
			boolKey("HomeAddress", true, func(x *A) *Value[bool] { return &x.HomeAddress }),
			{Name: "DuplicateAddressDetection", Values: []string{"ipv4", "ipv6", "both", "none"}, Networkd: true,
				apply: scalar(func(x *A) *Value[DAD] { return &x.DuplicateAddressDetection }, boolOr(DADBoth, DADNone, dadWords))},
			boolKey("ManageTemporaryAddress", true, func(x *A) *Value[bool] { return &x.ManageTemporaryAddress }),
			boolKey("AddPrefixRoute", true, func(x *A) *Value[bool] { return &x.AddPrefixRoute }),
			boolKey("AutoJoin", true, func(x *A) *Value[bool] { return &x.AutoJoin }),
		},
	}
}

// addressSetter sets Address or Template.
func addressSetter() setter {
	literal := scalar(func(x *Address) *Value[netip.Prefix] { return &x.Address }, addressValue)
	derived := scalar(func(x *Address) *Value[AddressTemplate] { return &x.Template }, parseTemplate)
	return setter{
		show: func(obj any) []string { return append(literal.show(obj), derived.show(obj)...) },
		set: func(p *parser, obj any, a *assign) {
			x := obj.(*Address)
			old := *x
			if strings.ContainsAny(a.val, "{}") {
				x.Address = Value[netip.Prefix]{}
				derived.set(p, obj, a)
			} else {
				x.Template = Value[AddressTemplate]{}
				literal.set(p, obj, a)
			}
			if a.val != "" && !x.Address.Set && !x.Template.Set {
				*x = old // the value before a bad one is kept
				if x.Address.Set || x.Template.Set {
					p.forgive()
					p.problems[len(p.problems)-1].Kept = "the previous value is kept"
				}
			}
		},
	}
}

func routeSection() SectionSpec {
	type R = Route
	return SectionSpec{
		Name: "Route", Repeat: true, open: func(u *Unit) (any, *Section) { o := &Route{}; return o, &o.Section },
		Keys: []Key{
			{Name: "Gateway", Networkd: true, essential: true,
				apply: scalar(func(x *R) *Value[netip.Addr] { return &x.Gateway }, parseGateway)},
			boolKey("GatewayOnLink", true, func(x *R) *Value[bool] { return &x.GatewayOnLink }),
			{Name: "Destination", Networkd: true, essential: true,
				apply: scalar(func(x *R) *Value[netip.Prefix] { return &x.Destination }, prefixValue)},
			{Name: "Source", Networkd: true, essential: true,
				apply: scalar(func(x *R) *Value[netip.Prefix] { return &x.Source }, prefixValue)},
			numKey("Metric", 0, math.MaxUint32, true, func(x *R) *Value[uint32] { return &x.Metric }),
			enumKey("IPv6Preference", true, preferenceWords, func(x *R) *Value[RoutePreference] { return &x.IPv6Preference }),
			{Name: "Scope", Values: wordList(scopeWords), Networkd: true,
				apply: scalar(func(x *R) *Value[Scope] { return &x.Scope }, enumOrByte(scopeWords))},
			{Name: "PreferredSource", Networkd: true,
				apply: scalar(func(x *R) *Value[netip.Addr] { return &x.PreferredSource }, parseAddr)},
			{Name: "Table", Values: wordList(tableWords), Networkd: true, essential: true,
				apply: scalar(func(x *R) *Value[uint32] { return &x.Table }, parseTable)},
			numKey("HopLimit", 1, 255, true, func(x *R) *Value[int] { return &x.HopLimit }),
			{Name: "Protocol", Values: []string{"kernel", "boot", "static", "ra", "dhcp"}, Networkd: true,
				apply: scalar(func(x *R) *Value[uint8] { return &x.Protocol }, enumOrByte(routeProtocolWords))},
			{Name: "Type", Syntax: strings.Join(wordList(routeTypeWords), "|"), Values: wordList(routeTypeWords), Networkd: true,
				essential: true,
				apply:     scalar(func(x *R) *Value[RouteType] { return &x.Type }, enum(routeTypeWords))},
			{Name: "MTUBytes", Networkd: true, apply: scalar(func(x *R) *Value[int] { return &x.MTUBytes }, parseMTUBytes)},
			numKey("InitialCongestionWindow", 1, 1023, true, func(x *R) *Value[int] { return &x.InitialCongestionWindow }),
			numKey("InitialAdvertisedReceiveWindow", 1, 1023, true, func(x *R) *Value[int] { return &x.InitialAdvertisedReceiveWindow }),
			boolKey("QuickAck", true, func(x *R) *Value[bool] { return &x.QuickAck }),
			boolKey("FastOpenNoCookie", true, func(x *R) *Value[bool] { return &x.FastOpenNoCookie }),
			numKey("TCPAdvertisedMaximumSegmentSize", 1, 4294967294, true,
				func(x *R) *Value[int] { return &x.TCPAdvertisedMaximumSegmentSize }),
			{Name: "TCPCongestionControlAlgorithm", Networkd: true,
				apply: scalar(func(x *R) *Value[string] { return &x.TCPCongestionControlAlgorithm }, parseModule)},
			{Name: "TCPRetransmissionTimeoutSec", Networkd: true,
				apply: scalar(func(x *R) *Value[time.Duration] { return &x.TCPRetransmissionTimeoutSec }, parseSpan)},
			{Name: "MultiPathRoute", List: true, Networkd: true,
				apply: list(func(x *R) *[]Value[NextHop] { return &x.MultiPathRoute }, whole, parseNextHop)},
			nextHopKey(),
		},
	}
}

func ruleSection() SectionSpec {
	type P = RoutingPolicyRule
	pfx := func(name string, field func(*P) *Value[netip.Prefix]) Key {
		return Key{Name: name, Networkd: true, essential: true, apply: scalar(field, prefixValue)}
	}
	iface := func(name string, field func(*P) *Value[string]) Key {
		return Key{Name: name, Networkd: true, essential: true, apply: scalar(field, parseIfName)}
	}
	ports := func(name string, field func(*P) *Value[PortRange]) Key {
		return Key{Name: name, Networkd: true, essential: true, apply: scalar(field, parsePortRange)}
	}
	ess := func(k Key) Key { k.essential = true; return k }
	return SectionSpec{
		Name: "RoutingPolicyRule", Repeat: true,
		open: func(u *Unit) (any, *Section) { o := &RoutingPolicyRule{}; return o, &o.Section },
		Keys: []Key{
			ess(numKey("TypeOfService", 0, 255, true, func(x *P) *Value[uint8] { return &x.TypeOfService })),
			pfx("From", func(x *P) *Value[netip.Prefix] { return &x.From }),
			pfx("To", func(x *P) *Value[netip.Prefix] { return &x.To }),
			{Name: "FirewallMark", Networkd: true, essential: true,
				apply: scalar(func(x *P) *Value[Mark] { return &x.FirewallMark }, parseMark)},
			{Name: "Table", Values: wordList(tableWords), Networkd: true, essential: true,
				apply: scalar(func(x *P) *Value[uint32] { return &x.Table }, parseTable)},
			numKey("Priority", 0, math.MaxUint32, true, func(x *P) *Value[uint32] { return &x.Priority }),
			ess(numKey("GoTo", 1, math.MaxUint32, true, func(x *P) *Value[uint32] { return &x.GoTo })),
			iface("IncomingInterface", func(x *P) *Value[string] { return &x.IncomingInterface }),
			iface("OutgoingInterface", func(x *P) *Value[string] { return &x.OutgoingInterface }),
			boolKey("L3MasterDevice", true, func(x *P) *Value[bool] { return &x.L3MasterDevice }),
			ports("SourcePort", func(x *P) *Value[PortRange] { return &x.SourcePort }),
			ports("DestinationPort", func(x *P) *Value[PortRange] { return &x.DestinationPort }),
			{Name: "IPProtocol", Values: wordList(ipProtocolWords), Networkd: true, essential: true,
				apply: scalar(func(x *P) *Value[uint8] { return &x.IPProtocol }, parseIPProtocol)},
			ess(boolKey("InvertRule", true, func(x *P) *Value[bool] { return &x.InvertRule })),
			{Name: "Family", Values: wordList(ruleFamilyWords), Networkd: true,
				apply: scalar(func(x *P) *Value[Family] { return &x.Family }, enum(ruleFamilyWords))},
			{Name: "User", Networkd: true, essential: true, apply: scalar(func(x *P) *Value[UIDRange] { return &x.User }, parseUIDRange)},
			numKey("SuppressPrefixLength", 0, 128, true, func(x *P) *Value[int] { return &x.SuppressPrefixLength }),
			numKey("SuppressInterfaceGroup", 0, math.MaxInt32, true, func(x *P) *Value[int] { return &x.SuppressInterfaceGroup }),
			{Name: "Type", Syntax: strings.Join(wordList(ruleTypeWords), "|"), Values: wordList(ruleTypeWords), Networkd: true,
				essential: true,
				apply:     scalar(func(x *P) *Value[RuleType] { return &x.Type }, enum(ruleTypeWords))},
		},
	}
}
