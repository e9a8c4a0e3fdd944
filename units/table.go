package units

import (
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
)

var boolWords = []string{"yes", "no"}

func boolKey[S any](name string, networkd bool, field func(*S) *Value[bool]) Key {
	return Key{Name: name, Values: boolWords, Networkd: networkd, apply: scalar(field, parseBool)}
}

func numKey[S any, T ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64](
	name string, lo, hi uint64, networkd bool, field func(*S) *Value[T],
) Key {
	return Key{Name: name, Syntax: fmt.Sprintf("%d-%d", lo, hi), Networkd: networkd, apply: scalar(field, number[T](lo, hi))}
}

func enumKey[S any, T comparable](name string, networkd bool, ws []word[T], field func(*S) *Value[T]) Key {
	return Key{Name: name, Syntax: strings.Join(wordList(ws), "|"), Values: wordList(ws), Networkd: networkd,
		apply: scalar(field, enum(ws))}
}

// prefixValue is a parser for networks: host bits are cleared with a caution.
func prefixValue(s string) (netip.Prefix, error) {
	pfx, _, err := parsePrefix(s)
	if err != nil {
		return pfx, err
	}
	if m := pfx.Masked(); m != pfx {
		return m, &caution{fmt.Sprintf("%q has bits behind the prefix length", ib.Clip(s)), fmt.Sprintf("it is read as %s", m)}
	}
	return pfx, nil
}

// addressValue is a parser for an address with its prefix length.
func addressValue(s string) (netip.Prefix, error) {
	pfx, bare, err := parsePrefix(s)
	if err != nil {
		return pfx, err
	}
	a := pfx.Addr()
	switch {
	case a.IsUnspecified():
		return pfx, fmt.Errorf("%q asks for an address out of a pool, which is not possible here; write the address", ib.Clip(s))
	case a.IsMulticast():
		return pfx, fmt.Errorf("%q is a multicast address, which no link can have", ib.Clip(s))
	case a.Is4() && a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return pfx, fmt.Errorf("%q is the broadcast address", ib.Clip(s))
	case bare:
		return pfx, &caution{fmt.Sprintf("%q has no prefix length", ib.Clip(s)), fmt.Sprintf("it is read as %s", pfx)}
	case a.Is4() && pfx.Bits() < 31 && pfx.Masked().Addr() == a:
		return pfx, &caution{fmt.Sprintf("%s is the address of the network itself", pfx), "it is used as written"}
	}
	return pfx, nil
}

// partitionKey is parsePKey with a word about keys that were meant to be
// hexadecimal.
func partitionKey(s string) (ib.PKey, error) {
	k, err := parsePKey(s)
	if err == nil && len(s) == 4 && strings.Trim(s, "0123456789") == "" {
		return k, &caution{fmt.Sprintf("%s is a decimal number, which is P_Key %s", s, k),
			fmt.Sprintf("it is read as %s; write 0x%s if it is hexadecimal", k, s)}
	}
	return k, err
}

func buildSchema() []SectionSpec {
	out := []SectionSpec{
		matchSection(), linkSection(), ipoibSection(), partitionSection(), networkSection(), addressSection(), routeSection(),
		ruleSection(), subnetManagerSection(), portSection(), roceSection(), vlanSection(), softRoCESection(),
		virtualFunctionsSection(), vfSection(), modulesSection(),
	}
	for i := range out {
		for k := range out[i].Keys {
			if key := &out[i].Keys[k]; key.Since == "" {
				key.Since = "0.1"
			}
		}
	}
	return out
}

func matchSection() SectionSpec {
	glob := func(name string, networkd bool, field func(*Match) *[]Value[Pattern]) Key {
		return Key{Name: name, List: true, Networkd: networkd, apply: negatable(field, quotedWords, quoteGlob, parseGlob)}
	}
	hw := func(name string, field func(*Match) *[]Value[HWPattern]) Key {
		return Key{Name: name, List: true, Networkd: true, apply: negatable(field, words, plain, parseHWPattern)}
	}
	guid := func(name string, field func(*Match) *[]Value[GUIDPattern]) Key {
		return Key{Name: name, List: true, apply: negatable(field, words, plain, parseGUIDPattern)}
	}
	cond := func(name string, check func(string) error, field func(*Match) *Value[Condition]) Key {
		return Key{Name: name, Networkd: true, apply: condition(field, check)}
	}
	name := glob("Name", true, func(m *Match) *[]Value[Pattern] { return &m.Name })
	name.apply = negatable(func(m *Match) *[]Value[Pattern] { return &m.Name }, words, plain, parseNameGlob)
	layer := Key{Name: "LinkLayer", Values: []string{"InfiniBand", "Ethernet"}, List: true,
		apply: negatable(func(m *Match) *[]Value[LayerPattern] { return &m.LinkLayer }, words, plain, parseLayer)}
	return SectionSpec{
		Name: "Match", Networkd: true, open: func(u *Unit) (any, *Section) { return &u.Match, &u.Match.Section },
		Keys: []Key{
			name,
			glob("OriginalName", false, func(m *Match) *[]Value[Pattern] { return &m.OriginalName }),
			hw("MACAddress", func(m *Match) *[]Value[HWPattern] { return &m.MACAddress }),
			hw("PermanentMACAddress", func(m *Match) *[]Value[HWPattern] { return &m.PermanentMACAddress }),
			glob("Path", true, func(m *Match) *[]Value[Pattern] { return &m.Path }),
			glob("Driver", true, func(m *Match) *[]Value[Pattern] { return &m.Driver }),
			glob("Type", true, func(m *Match) *[]Value[Pattern] { return &m.Type }),
			glob("Kind", true, func(m *Match) *[]Value[Pattern] { return &m.Kind }),
			{Name: "Property", List: true, Networkd: true,
				apply: negatable(func(m *Match) *[]Value[PropertyPattern] { return &m.Property }, escapedWords, quoteEscaped, parseProperty)},
			glob("IBDevice", false, func(m *Match) *[]Value[Pattern] { return &m.IBDevice }),
			{Name: "Port", List: true,
				apply: negatable(func(m *Match) *[]Value[NumPattern] { return &m.Port }, words, plain, parsePortNumber)},
			guid("PortGUID", func(m *Match) *[]Value[GUIDPattern] { return &m.PortGUID }),
			guid("NodeGUID", func(m *Match) *[]Value[GUIDPattern] { return &m.NodeGUID }),
			glob("BoardID", false, func(m *Match) *[]Value[Pattern] { return &m.BoardID }),
			layer,
			{Name: "PartitionKey", List: true,
				apply: negatable(func(m *Match) *[]Value[PKeyPattern] { return &m.PartitionKey }, words, plain, parsePKeyPattern)},
			cond("Host", checkAny, func(m *Match) *Value[Condition] { return &m.Host }),
			cond("Virtualization", checkWord, func(m *Match) *Value[Condition] { return &m.Virtualization }),
			cond("KernelCommandLine", checkAny, func(m *Match) *Value[Condition] { return &m.KernelCommandLine }),
			cond("KernelVersion", checkVersions, func(m *Match) *Value[Condition] { return &m.KernelVersion }),
			cond("Version", checkVersion, func(m *Match) *Value[Condition] { return &m.Version }),
			cond("Architecture", checkArchitecture, func(m *Match) *Value[Condition] { return &m.Architecture }),
			cond("Credential", checkWord, func(m *Match) *Value[Condition] { return &m.Credential }),
			cond("Firmware", checkFirmware, func(m *Match) *Value[Condition] { return &m.Firmware }),
		},
	}
}

func linkSection() SectionSpec {
	online := Key{Name: "RequiredForOnline", Networkd: true,
		Values: append([]string{"yes", "no"}, wordList(operWords)...),
		apply:  scalar(func(l *Link) *Value[Online] { return &l.RequiredForOnline }, parseOnline)}
	return SectionSpec{
		Name: "Link", Networkd: true, open: func(u *Unit) (any, *Section) { return &u.Link, &u.Link.Section },
		Keys: []Key{
			{Name: "MTUBytes", Values: []string{"max"}, Networkd: true,
				apply: scalar(func(l *Link) *Value[MTU] { return &l.MTUBytes }, parseMTU)},
			{Name: "GUID", apply: scalar(func(l *Link) *Value[ib.GUID] { return &l.GUID }, parseGUID)},
			enumKey("ActivationPolicy", true, activationWords, func(l *Link) *Value[ActivationPolicy] { return &l.ActivationPolicy }),
			online,
			enumKey("RequiredFamilyForOnline", true, requiredFamilyWords, func(l *Link) *Value[Family] { return &l.RequiredFamilyForOnline }),
			boolKey("Unmanaged", true, func(l *Link) *Value[bool] { return &l.Unmanaged }),
			boolKey("AllMulticast", true, func(l *Link) *Value[bool] { return &l.AllMulticast }),
			boolKey("Multicast", true, func(l *Link) *Value[bool] { return &l.Multicast }),
			boolKey("Promiscuous", true, func(l *Link) *Value[bool] { return &l.Promiscuous }),
			boolKey("ARP", true, func(l *Link) *Value[bool] { return &l.ARP }),
			numKey("Group", 0, math.MaxInt32, true, func(l *Link) *Value[uint32] { return &l.Group }),
		},
	}
}

func ipoibSection() SectionSpec {
	return SectionSpec{
		Name: "IPoIB", Networkd: true, open: func(u *Unit) (any, *Section) { return &u.IPoIB, &u.IPoIB.Section },
		Keys: []Key{
			enumKey("Mode", true, modeWords, func(i *IPoIB) *Value[Mode] { return &i.Mode }),
			boolKey("IgnoreUserspaceMulticastGroups", true, func(i *IPoIB) *Value[bool] { return &i.IgnoreUserspaceMulticastGroups }),
		},
	}
}

func partitionSection() SectionSpec {
	return SectionSpec{
		Name: "Partition", Repeat: true, open: func(u *Unit) (any, *Section) { o := &Partition{}; return o, &o.Section },
		Keys: []Key{
			{Name: "PartitionKey", essential: true,
				apply: scalar(func(x *Partition) *Value[ib.PKey] { return &x.PartitionKey }, partitionKey)},
			{Name: "Name", essential: true, apply: scalar(func(x *Partition) *Value[string] { return &x.Name }, parseIfName)},
			enumKey("Mode", false, modeWords, func(x *Partition) *Value[Mode] { return &x.Mode }),
			{Name: "MTUBytes", Values: []string{"max"}, apply: scalar(func(x *Partition) *Value[MTU] { return &x.MTUBytes }, parseMTU)},
			boolKey("IgnoreUserspaceMulticastGroups", false, func(x *Partition) *Value[bool] { return &x.IgnoreUserspaceMulticastGroups }),
		},
	}
}

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
		Name: "Network", Networkd: true, open: func(u *Unit) (any, *Section) { return &u.Network, &u.Network.Section },
		Keys: []Key{
			{Name: "Description", Networkd: true, apply: scalar(func(n *N) *Value[string] { return &n.Description }, parseText)},
			{Name: "Address", List: true, Networkd: true, apply: setter{set: networkAddress}},
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
			{Name: "IPv6PrivacyExtensions", Values: wordList(privacyWords), Networkd: true,
				apply: scalar(func(n *N) *Value[PrivacyExtensions] { return &n.IPv6PrivacyExtensions },
					boolOr(PrivacyYes, PrivacyNo, privacyWords))},
			forward("IPv4Forwarding", func(n *N) *Value[bool] { return &n.IPv4Forwarding }),
			forward("IPv6Forwarding", func(n *N) *Value[bool] { return &n.IPv6Forwarding }),
			{Name: "IPForward", Values: []string{"yes", "no", "ipv4", "ipv6"}, Networkd: true, apply: setter{set: ipForward}},
			numKey("IPv6DuplicateAddressDetection", 0, 255, true, func(n *N) *Value[int] { return &n.IPv6DuplicateAddressDetection }),
			numKey("IPv6HopLimit", 1, 255, true, func(n *N) *Value[int] { return &n.IPv6HopLimit }),
			{Name: "IPv6MTUBytes", Networkd: true, apply: scalar(func(n *N) *Value[int] { return &n.IPv6MTUBytes }, parseIPv6MTU)},
			{Name: "IPv4ReversePathFilter", Values: wordList(rpfWords), Networkd: true,
				apply: scalar(func(n *N) *Value[ReversePathFilter] { return &n.IPv4ReversePathFilter }, enum(rpfWords))},
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
			boolKey("ConfigureWithoutCarrier", true, func(n *N) *Value[bool] { return &n.ConfigureWithoutCarrier }),
		},
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
		return 0, fmt.Errorf("%q is less than 1280, the least IPv6 works with", ib.Clip(s))
	}
	return n, err
}

// networkAddress makes an [Address] of a [Network] Address=.
func networkAddress(p *parser, obj any, a *assign) { shorthand(p, a, "Address") }

// networkGateway makes a [Route] of a [Network] Gateway=.
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
		Name: "Address", Repeat: true, Networkd: true, open: func(u *Unit) (any, *Section) { o := &Address{}; return o, &o.Section },
		Keys: []Key{
			{Name: "Address", Networkd: true, essential: true,
				apply: scalar(func(x *A) *Value[netip.Prefix] { return &x.Address }, addressValue)},
			{Name: "Peer", Networkd: true, essential: true,
				apply: scalar(func(x *A) *Value[netip.Prefix] { return &x.Peer },
					func(s string) (netip.Prefix, error) { p, _, err := parsePrefix(s); return p, err })},
			{Name: "Broadcast", Networkd: true, apply: scalar(func(x *A) *Value[Broadcast] { return &x.Broadcast }, parseBroadcast)},
			{Name: "Label", Networkd: true, apply: scalar(func(x *A) *Value[string] { return &x.Label }, parseLabel)},
			{Name: "PreferredLifetime", Values: []string{"forever", "infinity", "0"}, Networkd: true,
				apply: scalar(func(x *A) *Value[Lifetime] { return &x.PreferredLifetime }, parseLifetime)},
			{Name: "Scope", Values: []string{"global", "link", "host"}, Networkd: true,
				apply: scalar(func(x *A) *Value[Scope] { return &x.Scope }, parseScope)},
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

func routeSection() SectionSpec {
	type R = Route
	return SectionSpec{
		Name: "Route", Repeat: true, Networkd: true, open: func(u *Unit) (any, *Section) { o := &Route{}; return o, &o.Section },
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
				apply: scalar(func(x *R) *Value[Scope] { return &x.Scope }, parseScope)},
			{Name: "PreferredSource", Networkd: true,
				apply: scalar(func(x *R) *Value[netip.Addr] { return &x.PreferredSource }, parseAddr)},
			{Name: "Table", Values: wordList(tableWords), Networkd: true, essential: true,
				apply: scalar(func(x *R) *Value[uint32] { return &x.Table }, parseTable)},
			numKey("HopLimit", 1, 255, true, func(x *R) *Value[int] { return &x.HopLimit }),
			{Name: "Protocol", Values: []string{"kernel", "boot", "static", "ra", "dhcp"}, Networkd: true,
				apply: scalar(func(x *R) *Value[uint8] { return &x.Protocol }, parseRouteProtocol)},
			{Name: "Type", Syntax: strings.Join(wordList(routeTypeWords), "|"), Values: wordList(routeTypeWords), Networkd: true,
				essential: true,
				apply:     scalar(func(x *R) *Value[RouteType] { return &x.Type }, enum(routeTypeWords))},
			{Name: "MTUBytes", Networkd: true, apply: scalar(func(x *R) *Value[int] { return &x.MTUBytes }, parseMTUBytes)},
			numKey("InitialCongestionWindow", 1, 1023, true, func(x *R) *Value[int] { return &x.InitialCongestionWindow }),
			numKey("InitialAdvertisedReceiveWindow", 1, 1023, true, func(x *R) *Value[int] { return &x.InitialAdvertisedReceiveWindow }),
			boolKey("QuickAck", true, func(x *R) *Value[bool] { return &x.QuickAck }),
			boolKey("FastOpenNoCookie", true, func(x *R) *Value[bool] { return &x.FastOpenNoCookie }),
			numKey("TCPAdvertisedMaximumSegmentSize", 1, 4294967294, true, func(x *R) *Value[int] { return &x.TCPAdvertisedMaximumSegmentSize }),
			{Name: "TCPCongestionControlAlgorithm", Networkd: true,
				apply: scalar(func(x *R) *Value[string] { return &x.TCPCongestionControlAlgorithm }, parseModule)},
			{Name: "TCPRetransmissionTimeoutSec", Networkd: true,
				apply: scalar(func(x *R) *Value[time.Duration] { return &x.TCPRetransmissionTimeoutSec }, parseSpan)},
			{Name: "MultiPathRoute", List: true, Networkd: true,
				apply: list(func(x *R) *[]Value[NextHop] { return &x.MultiPathRoute }, whole, parseNextHop)},
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
		Name: "RoutingPolicyRule", Repeat: true, Networkd: true,
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

func subnetManagerSection() SectionSpec {
	type S = SubnetManager
	return SectionSpec{
		Name: "SubnetManager", open: func(u *Unit) (any, *Section) { return &u.SubnetManager, &u.SubnetManager.Section },
		Keys: []Key{
			enumKey("Manage", false, manageWords, func(x *S) *Value[Manage] { return &x.Manage }),
			enumKey("Engine", false, engineWords, func(x *S) *Value[Engine] { return &x.Engine }),
			{Name: "StartDelaySec", apply: scalar(func(x *S) *Value[time.Duration] { return &x.StartDelaySec }, parseSpan)},
			numKey("Priority", 0, 15, false, func(x *S) *Value[int] { return &x.Priority }),
			{Name: "SubnetPrefix",
				apply: scalar(func(x *S) *Value[uint64] { return &x.SubnetPrefix }, parseSubnetPrefix).
					showing(func(v any) string { return fmt.Sprintf("0x%016x", v) })},
			{Name: "RoutingEngine", Values: []string{"minhop", "updn", "dnup", "ftree", "dor", "lash", "dfsssp", "sssp", "torus-2QoS"},
				apply: scalar(func(x *S) *Value[string] { return &x.RoutingEngine }, parseRoutingEngines)},
			{Name: "PartitionsFile", apply: scalar(func(x *S) *Value[string] { return &x.PartitionsFile }, parseAbsPath)},
			{Name: "Partition", List: true, apply: list(func(x *S) *[]Value[string] { return &x.Partition }, whole, parsePartitionRule)},
			numKey("LMC", 0, 7, false, func(x *S) *Value[ib.LMC] { return &x.LMC }),
			boolKey("StopWhenForeignMaster", false, func(x *S) *Value[bool] { return &x.StopWhenForeignMaster }),
			{Name: "StopDelaySec", apply: scalar(func(x *S) *Value[time.Duration] { return &x.StopDelaySec }, parseSpan)},
			{Name: "KeyFile", apply: scalar(func(x *S) *Value[string] { return &x.KeyFile }, parseAbsPath)},
			numKey("MKeyProtect", 0, 3, false, func(x *S) *Value[int] { return &x.MKeyProtect }),
			{Name: "MKeyLeaseSec",
				apply: scalar(func(x *S) *Value[time.Duration] { return &x.MKeyLeaseSec }, spanTo(0, 65535*time.Second))},
			boolKey("QoS", false, func(x *S) *Value[bool] { return &x.QoS }),
			enumKey("PartitionEnforcement", false, enforcementWords, func(x *S) *Value[Enforcement] { return &x.PartitionEnforcement }),
			{Name: "NodeNameMap", apply: scalar(func(x *S) *Value[string] { return &x.NodeNameMap }, parseAbsPath)},
			{Name: "SweepSec", apply: scalar(func(x *S) *Value[time.Duration] { return &x.SweepSec }, spanTo(0, 24*time.Hour))},
			{Name: "TimeoutSec",
				apply: scalar(func(x *S) *Value[time.Duration] { return &x.TimeoutSec }, spanTo(time.Millisecond, 10*time.Second))},
			numKey("Retries", 0, 100, false, func(x *S) *Value[int] { return &x.Retries }),
			numKey("Window", 1, 4096, false, func(x *S) *Value[int] { return &x.Window }),
			boolKey("Verbose", false, func(x *S) *Value[bool] { return &x.Verbose }),
		},
	}
}

func portSection() SectionSpec {
	return SectionSpec{
		Name: "Port", open: func(u *Unit) (any, *Section) { return &u.Port, &u.Port.Section },
		Keys: []Key{
			enumKey("Type", false, portTypeWords, func(x *Port) *Value[PortType] { return &x.Type }),
			boolKey("ChangeWhileInUse", false, func(x *Port) *Value[bool] { return &x.ChangeWhileInUse }),
			{Name: "NodeDescription", apply: scalar(func(x *Port) *Value[string] { return &x.NodeDescription }, parseNodeDescription)},
		},
	}
}

func roceSection() SectionSpec {
	type R = RoCE
	pmap := func(name string, maxFrom, maxTo uint64, field func(*R) *[]Value[PriorityMap]) Key {
		return Key{Name: name, Syntax: fmt.Sprintf("0-%d:0-%d...", maxFrom, maxTo), List: true,
			apply: list(field, commaWords, parsePriorityMap(maxFrom, maxTo))}
	}
	set := func(name string, field func(*R) *Value[uint8]) Key {
		return Key{Name: name, Values: []string{"none"}, List: true, apply: prioritySet(field)}
	}
	return SectionSpec{
		Name: "RoCE", open: func(u *Unit) (any, *Section) { return &u.RoCE, &u.RoCE.Section },
		Keys: []Key{
			numKey("Version", 1, 2, false, func(x *R) *Value[int] { return &x.Version }),
			numKey("DSCP", 0, 63, false, func(x *R) *Value[uint8] { return &x.DSCP }),
			numKey("TypeOfService", 0, 255, false, func(x *R) *Value[uint8] { return &x.TypeOfService }),
			numKey("Priority", 0, 7, false, func(x *R) *Value[uint8] { return &x.Priority }),
			set("PFC", func(x *R) *Value[uint8] { return &x.PFC }),
			enumKey("Trust", false, trustWords, func(x *R) *Value[Trust] { return &x.Trust }),
			{Name: "ETS", List: true, apply: list(func(x *R) *[]Value[ETSClass] { return &x.ETS }, commaWords, parseETS)},
			pmap("PriorityToClass", 7, 7, func(x *R) *[]Value[PriorityMap] { return &x.PriorityToClass }),
			pmap("DSCPToPriority", 63, 7, func(x *R) *[]Value[PriorityMap] { return &x.DSCPToPriority }),
			{Name: "BufferSize", List: true,
				apply: list(func(x *R) *[]Value[BufferSize] { return &x.BufferSize }, commaWords, parseBufferSize)},
			pmap("PriorityToBuffer", 7, 7, func(x *R) *[]Value[PriorityMap] { return &x.PriorityToBuffer }),
			numKey("CableLength", 1, 999, false, func(x *R) *Value[int] { return &x.CableLength }),
			set("ECN", func(x *R) *Value[uint8] { return &x.ECN }),
			boolKey("WriteModprobeFile", false, func(x *R) *Value[bool] { return &x.WriteModprobeFile }),
		},
	}
}

// prioritySet is a key with a set of priorities in bits; assignments add.
func prioritySet(field func(*RoCE) *Value[uint8]) setter {
	print := func(obj any) []string {
		f := field(obj.(*RoCE))
		if !f.Set {
			return nil
		}
		if f.V == 0 {
			return []string{"none"}
		}
		var out []string
		for i := range 8 {
			if f.V&(1<<i) != 0 {
				out = append(out, fmt.Sprint(i))
			}
		}
		return out
	}
	return setter{show: print, set: func(p *parser, obj any, a *assign) {
		f := field(obj.(*RoCE))
		if a.val == "" {
			*f = Value[uint8]{}
			return
		}
		eachItem(p, a, 0, commaWords, func(item string, pos Position) {
			if item == "none" {
				*f = Value[uint8]{Set: true, Pos: pos}
				return
			}
			lo, hi, err := parseRange(item, 0, 7)
			if err != nil {
				p.bad(pos, fmt.Errorf("%w; or none", err), "the item is ignored")
				return
			}
			v := f.V
			for i := lo; i <= hi; i++ {
				v |= 1 << i
			}
			*f = Value[uint8]{V: v, Set: true, Pos: pos}
		})
	}}
}

func vlanSection() SectionSpec {
	type V = VLAN
	maps := func(name string, field func(*V) *[]Value[QOSMap]) Key {
		return Key{Name: name, List: true, apply: list(field, words, parseQOSMap)}
	}
	return SectionSpec{
		Name: "VLAN", Repeat: true, open: func(u *Unit) (any, *Section) { o := &VLAN{}; return o, &o.Section },
		Keys: []Key{
			{Name: "Id", essential: true, apply: scalar(func(x *V) *Value[uint16] { return &x.Id }, number[uint16](0, 4094))},
			{Name: "Name", essential: true, apply: scalar(func(x *V) *Value[string] { return &x.Name }, parseIfName)},
			{Name: "Protocol", Values: []string{"802.1q", "802.1ad"}, essential: true,
				apply: scalar(func(x *V) *Value[VLANProtocol] { return &x.Protocol }, enum(vlanProtocolWords))},
			{Name: "MTUBytes", Values: []string{"max"}, apply: scalar(func(x *V) *Value[MTU] { return &x.MTUBytes }, parseMTU)},
			maps("EgressQOSMaps", func(x *V) *[]Value[QOSMap] { return &x.EgressQOSMaps }),
			maps("IngressQOSMaps", func(x *V) *[]Value[QOSMap] { return &x.IngressQOSMaps }),
			boolKey("ReorderHeader", false, func(x *V) *Value[bool] { return &x.ReorderHeader }),
			boolKey("GVRP", false, func(x *V) *Value[bool] { return &x.GVRP }),
			boolKey("MVRP", false, func(x *V) *Value[bool] { return &x.MVRP }),
			boolKey("LooseBinding", false, func(x *V) *Value[bool] { return &x.LooseBinding }),
		},
	}
}

func softRoCESection() SectionSpec {
	return SectionSpec{
		Name: "SoftRoCE", open: func(u *Unit) (any, *Section) { return &u.SoftRoCE, &u.SoftRoCE.Section },
		Keys: []Key{
			enumKey("Driver", false, softDriverWords, func(x *SoftRoCE) *Value[SoftDriver] { return &x.Driver }),
			{Name: "Name", apply: scalar(func(x *SoftRoCE) *Value[string] { return &x.Name }, parseDeviceName)},
		},
	}
}

func virtualFunctionsSection() SectionSpec {
	type V = VirtualFunctions
	autoOnly := func(s string) (VFGUID, error) {
		g, err := parseVFGUID(s)
		if err == nil && !g.Auto {
			return g, fmt.Errorf("%q cannot be the GUID of all virtual functions; write auto, or GUIDs in [VF] sections", ib.Clip(s))
		}
		return g, err
	}
	return SectionSpec{
		Name: "VirtualFunctions", open: func(u *Unit) (any, *Section) { return &u.VirtualFunctions, &u.VirtualFunctions.Section },
		Keys: []Key{
			numKey("Count", 0, 65535, false, func(x *V) *Value[int] { return &x.Count }),
			boolKey("Autoprobe", false, func(x *V) *Value[bool] { return &x.Autoprobe }),
			{Name: "NodeGUID", Values: []string{"auto"}, apply: scalar(func(x *V) *Value[VFGUID] { return &x.NodeGUID }, autoOnly)},
			{Name: "PortGUID", Values: []string{"auto"}, apply: scalar(func(x *V) *Value[VFGUID] { return &x.PortGUID }, autoOnly)},
			{Name: "LinkState", Values: wordList(vfLinkWords),
				apply: scalar(func(x *V) *Value[VFLinkState] { return &x.LinkState }, boolOr(VFLinkEnable, VFLinkDisable, vfLinkWords))},
			boolKey("Trust", false, func(x *V) *Value[bool] { return &x.Trust }),
		},
	}
}

func vfSection() SectionSpec {
	type V = VF
	guid := func(name string, field func(*V) *Value[VFGUID]) Key {
		return Key{Name: name, Values: []string{"auto"}, essential: true, apply: scalar(field, parseVFGUID)}
	}
	rate := func(name string, field func(*V) *Value[uint32]) Key {
		return Key{Name: name, apply: scalar(field, parseBitRate).showing(func(v any) string { return fmt.Sprintf("%dM", v) })}
	}
	return SectionSpec{
		Name: "VF", Repeat: true, open: func(u *Unit) (any, *Section) { o := &VF{}; return o, &o.Section },
		Keys: []Key{
			{Name: "VirtualFunction", essential: true,
				apply: scalar(func(x *V) *Value[int] { return &x.VirtualFunction }, number[int](0, 65534))},
			guid("NodeGUID", func(x *V) *Value[VFGUID] { return &x.NodeGUID }),
			guid("PortGUID", func(x *V) *Value[VFGUID] { return &x.PortGUID }),
			{Name: "LinkState", Values: wordList(vfLinkWords),
				apply: scalar(func(x *V) *Value[VFLinkState] { return &x.LinkState }, boolOr(VFLinkEnable, VFLinkDisable, vfLinkWords))},
			boolKey("Trust", false, func(x *V) *Value[bool] { return &x.Trust }),
			rate("MinRate", func(x *V) *Value[uint32] { return &x.MinRate }),
			rate("MaxRate", func(x *V) *Value[uint32] { return &x.MaxRate }),
			{Name: "MACAddress", apply: scalar(func(x *V) *Value[ib.HWAddr] { return &x.MACAddress }, parseMAC)},
			boolKey("MACSpoofCheck", false, func(x *V) *Value[bool] { return &x.MACSpoofCheck }),
			numKey("VLANId", 0, 4095, false, func(x *V) *Value[uint16] { return &x.VLANId }),
			numKey("QualityOfService", 0, 7, false, func(x *V) *Value[uint8] { return &x.QualityOfService }),
			enumKey("VLANProtocol", false, vlanProtocolWords, func(x *V) *Value[VLANProtocol] { return &x.VLANProtocol }),
		},
	}
}

func modulesSection() SectionSpec {
	return SectionSpec{
		Name: "Modules", open: func(u *Unit) (any, *Section) { return &u.Modules, &u.Modules.Section },
		Keys: []Key{
			{Name: "Load", List: true, apply: list(func(x *Modules) *[]Value[string] { return &x.Load }, words, parseModule)},
		},
	}
}

// parsePartitionRule checks a rule; it is handed on as it is written.
func parsePartitionRule(s string) (string, error) {
	_, err := partition.ParseRule(s)
	return s, err
}
