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

func boolKey[S any](name, doc, def string, networkd bool, field func(*S) *Value[bool]) Key {
	return Key{Name: name, Doc: doc, Syntax: "BOOLEAN", Values: boolWords, Default: def, Example: "yes", Networkd: networkd, apply: scalar(field, parseBool)}
}

func numKey[S any, T ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64](name, doc, def, example string, lo, hi uint64, networkd bool, field func(*S) *Value[T]) Key {
	return Key{Name: name, Doc: doc, Syntax: fmt.Sprintf("%d-%d", lo, hi), Default: def, Example: example, Networkd: networkd, apply: scalar(field, number[T](lo, hi))}
}

func enumKey[S any, T comparable](name, doc, def, example string, networkd bool, ws []word[T], field func(*S) *Value[T]) Key {
	return Key{Name: name, Doc: doc, Syntax: strings.Join(wordList(ws), "|"), Values: wordList(ws), Default: def, Example: example, Networkd: networkd, apply: scalar(field, enum(ws))}
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
		return k, &caution{fmt.Sprintf("%s is a decimal number, which is P_Key %s", s, k), fmt.Sprintf("it is read as %s; write 0x%s if it is hexadecimal", k, s)}
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
	glob := func(name, doc, example string, networkd bool, field func(*Match) *[]Value[Pattern]) Key {
		return Key{Name: name, Doc: doc, Syntax: "[!]GLOB...", Example: example, List: true, Networkd: networkd, apply: negatable(field, quotedWords, quoteGlob, parseGlob)}
	}
	hw := func(name, doc, example string, field func(*Match) *[]Value[HWPattern]) Key {
		return Key{Name: name, Doc: doc, Syntax: "[!]ADDRESS...", Example: example, List: true, Networkd: true, apply: negatable(field, words, plain, parseHWPattern)}
	}
	guid := func(name, doc, example string, field func(*Match) *[]Value[GUIDPattern]) Key {
		return Key{Name: name, Doc: doc, Syntax: "[!]GUID...", Example: example, List: true, apply: negatable(field, words, plain, parseGUIDPattern)}
	}
	cond := func(name, doc, syntax, example string, check func(string) error, field func(*Match) *Value[Condition]) Key {
		return Key{Name: name, Doc: doc, Syntax: "[!]" + syntax, Example: example, Networkd: true, apply: condition(field, check)}
	}
	name := glob("Name", "Names of the interface, current or alternative. The link matches if one of its names fits and none of them hits a negative pattern (systemd-networkd lets Name=!ib0 match ib0 when an alternative name passes; here it does not).", "ib* !ib9", true, func(m *Match) *[]Value[Pattern] { return &m.Name })
	name.Example = "ib0 ibp*"
	name.apply = negatable(func(m *Match) *[]Value[Pattern] { return &m.Name }, words, plain, parseNameGlob)
	layer := Key{Name: "LinkLayer", Doc: "What the RDMA port's wire is.", Syntax: "[!]InfiniBand|Ethernet...", Values: []string{"InfiniBand", "Ethernet"}, Example: "InfiniBand", List: true,
		apply: negatable(func(m *Match) *[]Value[LayerPattern] { return &m.LinkLayer }, words, plain, parseLayer)}
	return SectionSpec{
		Name: "Match", Networkd: true, open: func(u *Unit) (any, *Section) { return &u.Match, &u.Match.Section },
		Doc: "Which links the unit is for. All keys that are given must hold; within a key one item is enough. A \"!\" before the first item negates every item of that assignment. The first unit in file name order that matches a link is the only one used for it. A unit with an empty [Match] is refused; Name=* matches every link. A unit that has nothing but [Modules] needs no [Match].",
		Keys: []Key{
			name,
			glob("OriginalName", "The name the kernel first gave the interface.", "ib0", false, func(m *Match) *[]Value[Pattern] { return &m.OriginalName }),
			hw("MACAddress", "Hardware addresses of 6 (Ethernet), 8 (port GUID) or 20 bytes (IPoIB), with colons, hyphens or dots. 8 bytes fit every IPoIB address that ends with them; prefer them, because the queue pair number in the 20-byte form changes.", "00:02:c9:03:00:0a:bc:df", func(m *Match) *[]Value[HWPattern] { return &m.MACAddress }),
			hw("PermanentMACAddress", "As MACAddress=, for the address the hardware came with.", "0c:42:a1:00:00:01", func(m *Match) *[]Value[HWPattern] { return &m.PermanentMACAddress }),
			glob("Path", "The udev property ID_PATH. It is known from the PCI address before the interface exists.", "pci-0000:08:00.0*", true, func(m *Match) *[]Value[Pattern] { return &m.Path }),
			glob("Driver", "The driver. Two words count, and the link matches if one of them fits and neither hits a negative pattern: that of the device on its bus (mlx4_core, mlx5_core), and that of the interface, which ethtool -i prints and udev keeps as ID_NET_DRIVER (ib_ipoib, mlx4_en, mlx5_core[ib_ipoib]; it is known where udevd runs). A pattern that is the word itself matches it, with its brackets. A port without an interface has the first word only.", "mlx4_core mlx5_core", true, func(m *Match) *[]Value[Pattern] { return &m.Driver }),
			glob("Type", "The type of the link as networkctl prints it.", "infiniband", true, func(m *Match) *[]Value[Pattern] { return &m.Type }),
			glob("Kind", "The kind of the link as ip -details link prints it.", "ipoib", true, func(m *Match) *[]Value[Pattern] { return &m.Kind }),
			{Name: "Property", Doc: "Properties of the udev database, NAME=GLOB each. All of them must hold; \"!\" wants that the assignment's do not.", Syntax: "[!]NAME=GLOB...", Example: "ID_VENDOR_ID=0x15b3", List: true, Networkd: true,
				apply: negatable(func(m *Match) *[]Value[PropertyPattern] { return &m.Property }, escapedWords, quoteEscaped, parseProperty)},
			glob("IBDevice", "The RDMA device, as rdma link prints it: rdma-core renames devices on many distributions (mlx5_0 to ibp59s0 or rocep59s0f0).", "mlx5_0 ibp8s0*", false, func(m *Match) *[]Value[Pattern] { return &m.IBDevice }),
			{Name: "Port", Doc: "The number of the RDMA device's port, from 1.", Syntax: "[!]NUMBER...", Example: "1", List: true,
				apply: negatable(func(m *Match) *[]Value[NumPattern] { return &m.Port }, words, plain, parsePortNumber)},
			guid("PortGUID", "The GUID of the port, as ibstat prints it. It is known before the interface exists. A port has one only while it is InfiniBand: for a port that is or becomes Ethernet, match NodeGUID= and Port=.", "0x0002c903000abcdf", func(m *Match) *[]Value[GUIDPattern] { return &m.PortGUID }),
			guid("NodeGUID", "The GUID of the adapter.", "0002:c903:000a:bcde", func(m *Match) *[]Value[GUIDPattern] { return &m.NodeGUID }),
			glob("BoardID", "The board id (PSID) of the adapter.", "MT_1090120019", false, func(m *Match) *[]Value[Pattern] { return &m.BoardID }),
			layer,
			{Name: "PartitionKey", Doc: "The P_Key of the IPoIB interface; the membership bit does not count. A parent has its port's first key, 0xffff as a rule.", Syntax: "[!]PKEY...", Example: "0x8001", List: true,
				apply: negatable(func(m *Match) *[]Value[PKeyPattern] { return &m.PartitionKey }, words, plain, parsePKeyPattern)},
			cond("Host", "The host name (a glob, case does not count) or the machine ID.", "GLOB|ID", "node[0-9]*", checkAny, func(m *Match) *Value[Condition] { return &m.Host }),
			cond("Virtualization", "Whether and in what the host runs virtualized: a boolean, vm, container, private-users, or a word of systemd-detect-virt.", "BOOLEAN|WORD", "no", checkWord, func(m *Match) *Value[Condition] { return &m.Virtualization }),
			cond("KernelCommandLine", "A word of the kernel command line, alone or with its value.", "WORD[=VALUE]", "ibnet.lab", checkAny, func(m *Match) *Value[Condition] { return &m.KernelCommandLine }),
			cond("KernelVersion", "Comparisons with the kernel's release, all of which must hold: <, <=, ==, <>, >=, > for versions, = and != for text, $= and !$= for globs. Without an operator it is a glob.", "COMPARISON...", ">=6.1", checkVersions, func(m *Match) *Value[Condition] { return &m.KernelVersion }),
			cond("Version", "As KernelVersion=, for what is named first: kernel, systemd, glibc or ibnetworkd. Without a name it is the kernel.", "[NAME]COMPARISON...", "systemd>=252", checkVersion, func(m *Match) *Value[Condition] { return &m.Version }),
			cond("Architecture", "The machine's architecture in systemd's words, or native.", "WORD", "x86-64", checkArchitecture, func(m *Match) *Value[Condition] { return &m.Architecture }),
			cond("Credential", "A credential that was passed to the service.", "NAME", "ibnetwork.site", checkWord, func(m *Match) *Value[Condition] { return &m.Credential }),
			cond("Firmware", "The firmware: uefi, device-tree, device-tree-compatible(WORD), or smbios-field(FIELD OPERATOR VALUE).", "WORD", "uefi", checkFirmware, func(m *Match) *Value[Condition] { return &m.Firmware }),
		},
	}
}

const (
	docMode = "The IPoIB transport. auto takes connected where the adapter offers it and datagram where it does not, without a warning."
	docMTU  = "The MTU in bytes. max is the largest that the mode, the adapter and the fabric allow, and follows when the fabric changes."
)

func linkSection() SectionSpec {
	online := Key{Name: "RequiredForOnline", Doc: "Whether ibnetctl wait-online waits for the link, and for which operational state or range of states (MIN:MAX); yes is degraded:routable.", Syntax: "BOOLEAN|STATE[:STATE]", Default: "degraded, without an IP part carrier; no where ActivationPolicy= is manual, down or always-down", Example: "carrier:routable", Networkd: true,
		Values: append([]string{"yes", "no"}, wordList(operWords)...), apply: scalar(func(l *Link) *Value[Online] { return &l.RequiredForOnline }, parseOnline)}
	return SectionSpec{
		Name: "Link", Networkd: true, open: func(u *Unit) (any, *Section) { return &u.Link, &u.Link.Section },
		Doc: "The link itself.",
		Keys: []Key{
			{Name: "MTUBytes", Doc: docMTU, Syntax: "BYTES|max", Values: []string{"max"}, Default: "the kernel's", Example: "65520", Networkd: true, apply: scalar(func(l *Link) *Value[MTU] { return &l.MTUBytes }, parseMTU)},
			{Name: "GUID", Doc: "The last 8 bytes of the IPoIB hardware address, the only ones that can be set.", Syntax: "GUID", Default: "the port's", Example: "0x0002c903000abcdf", apply: scalar(func(l *Link) *Value[ib.GUID] { return &l.GUID }, parseGUID)},
			enumKey("ActivationPolicy", "Whether the link is taken up or down, once (up, down), whenever it changes (always-up, always-down), never (manual), or with the links of [Network] BindCarrier= (bound).", "up", "always-up", true, activationWords, func(l *Link) *Value[ActivationPolicy] { return &l.ActivationPolicy }),
			online,
			enumKey("RequiredFamilyForOnline", "The address families of which wait-online wants an address; a routable one if RequiredForOnline= asks for that.", "any", "ipv4", true, requiredFamilyWords, func(l *Link) *Value[Family] { return &l.RequiredFamilyForOnline }),
			boolKey("Unmanaged", "Leave the link alone; no later unit is looked at for it.", "no", true, func(l *Link) *Value[bool] { return &l.Unmanaged }),
			boolKey("AllMulticast", "Receive all multicast packets.", "the kernel's", true, func(l *Link) *Value[bool] { return &l.AllMulticast }),
			boolKey("Multicast", "Whether the link carries multicast.", "the kernel's", true, func(l *Link) *Value[bool] { return &l.Multicast }),
			boolKey("Promiscuous", "Receive all packets, also those for others. Ethernet only: IPoIB has no such mode.", "the kernel's", true, func(l *Link) *Value[bool] { return &l.Promiscuous }),
			boolKey("ARP", "Whether neighbours are asked for by ARP. Ethernet only: IPoIB cannot work without.", "the kernel's", true, func(l *Link) *Value[bool] { return &l.ARP }),
			numKey("Group", "The group of the link, for ip link show group and for SuppressInterfaceGroup=.", "the kernel's", "7", 0, math.MaxInt32, true, func(l *Link) *Value[uint32] { return &l.Group }),
		},
	}
}

func ipoibSection() SectionSpec {
	return SectionSpec{
		Name: "IPoIB", Networkd: true, open: func(u *Unit) (any, *Section) { return &u.IPoIB, &u.IPoIB.Section },
		Doc: "IP over InfiniBand on the matched link.",
		Keys: []Key{
			enumKey("Mode", docMode, "the kernel's", "connected", true, modeWords, func(i *IPoIB) *Value[Mode] { return &i.Mode }),
			boolKey("IgnoreUserspaceMulticastGroups", "Do not join the multicast groups that programs join by verbs (the kernel's umcast).", "the kernel's", true, func(i *IPoIB) *Value[bool] { return &i.IgnoreUserspaceMulticastGroups }),
		},
	}
}

func partitionSection() SectionSpec {
	return SectionSpec{
		Name: "Partition", Repeat: true, open: func(u *Unit) (any, *Section) { o := &Partition{}; return o, &o.Section },
		Doc: "An IPoIB child interface on a P_Key. A unit of its own can match the child, by Name= or PartitionKey=, and give it addresses. The child waits until the subnet manager has granted the key.",
		Keys: []Key{
			{Name: "PartitionKey", Doc: "The P_Key, hexadecimal with 0x. The membership bit is set as the kernel does. 0x0000 and 0x8000 are refused. Required.", Syntax: "0x0001-0xffff", Example: "0x8001", essential: true, apply: scalar(func(x *Partition) *Value[ib.PKey] { return &x.PartitionKey }, partitionKey)},
			{Name: "Name", Doc: "The interface name of the child.", Syntax: "NAME", Default: "PARENT.PKEY as the kernel names it, ib0.8001", Example: "ib0.storage", essential: true, apply: scalar(func(x *Partition) *Value[string] { return &x.Name }, parseIfName)},
			enumKey("Mode", docMode, "the kernel's", "datagram", false, modeWords, func(x *Partition) *Value[Mode] { return &x.Mode }),
			{Name: "MTUBytes", Doc: docMTU, Syntax: "BYTES|max", Values: []string{"max"}, Default: "the kernel's", Example: "2044", apply: scalar(func(x *Partition) *Value[MTU] { return &x.MTUBytes }, parseMTU)},
			boolKey("IgnoreUserspaceMulticastGroups", "As in [IPoIB].", "the kernel's", false, func(x *Partition) *Value[bool] { return &x.IgnoreUserspaceMulticastGroups }),
		},
	}
}

func networkSection() SectionSpec {
	type N = Network
	llWords := linkLocalWords
	support := func(name, doc, example string, ws []word[Support], field func(*N) *Value[Support]) Key {
		return Key{Name: name, Doc: doc, Syntax: strings.Replace(strings.Join(wordList(ws), "|"), "yes|no", "BOOLEAN", 1), Values: wordList(ws), Default: "resolved's", Example: example, Networkd: true, apply: scalar(field, boolOr(SupportYes, SupportNo, ws))}
	}
	forward := func(name, doc string, field func(*N) *Value[bool]) Key {
		return boolKey(name, doc, "the host's", true, field)
	}
	return SectionSpec{
		Name: "Network", Networkd: true, open: func(u *Unit) (any, *Section) { return &u.Network, &u.Network.Section },
		Doc: "The IP part. Without [Network], [Address], [Route] and [RoutingPolicyRule] the IP part is left to systemd-networkd or the program that manages it.",
		Keys: []Key{
			{Name: "Description", Doc: "A text for people.", Syntax: "TEXT", Example: "storage rail 1", Networkd: true, apply: scalar(func(n *N) *Value[string] { return &n.Description }, parseText)},
			{Name: "Address", Doc: "An address with its prefix length; short for an [Address] section with this key alone. An empty one takes back those of [Network].", Syntax: "ADDRESS/LENGTH", Example: "192.168.151.1/24", List: true, Networkd: true, apply: setter{set: networkAddress}},
			{Name: "Gateway", Doc: "A default gateway; short for a [Route] section with this key alone. An empty one takes back those of [Network].", Syntax: "ADDRESS", Example: "192.168.151.254", List: true, Networkd: true, apply: setter{set: networkGateway}},
			{Name: "DNS", Doc: "Name servers for systemd-resolved. Where it does not run, this key and those below have no effect; the link is configured all the same, and its status has the reason.", Syntax: "ADDRESS[:PORT][%INTERFACE][#NAME]...", Example: "192.168.151.254 fd00:151::53", List: true, Networkd: true, apply: list(func(n *N) *[]Value[DNSServer] { return &n.DNS }, words, parseDNS)},
			{Name: "Domains", Doc: "Search domains for systemd-resolved; with \"~\" the domain only routes names to this link's servers.", Syntax: "[~]DOMAIN...", Example: "ib.example ~storage.example", List: true, Networkd: true, apply: list(func(n *N) *[]Value[Domain] { return &n.Domains }, words, parseDomain)},
			boolKey("DNSDefaultRoute", "Whether names that fit no domain are asked of this link's servers.", "resolved's", true, func(n *N) *Value[bool] { return &n.DNSDefaultRoute }),
			support("LLMNR", "Whether systemd-resolved asks and answers by LLMNR on the link; resolve asks only.", "resolve", resolveWords, func(n *N) *Value[Support] { return &n.LLMNR }),
			support("MulticastDNS", "Whether systemd-resolved asks and answers by multicast DNS on the link; resolve asks only.", "resolve", resolveWords, func(n *N) *Value[Support] { return &n.MulticastDNS }),
			support("DNSOverTLS", "Whether systemd-resolved speaks TLS with this link's servers; opportunistic tries.", "opportunistic", tlsWords, func(n *N) *Value[Support] { return &n.DNSOverTLS }),
			support("DNSSEC", "Whether systemd-resolved validates answers of this link's servers; allow-downgrade where they can.", "allow-downgrade", dnssecWords, func(n *N) *Value[Support] { return &n.DNSSEC }),
			{Name: "DNSSECNegativeTrustAnchors", Doc: "Domains below which systemd-resolved does not validate.", Syntax: "DOMAIN...", Example: "ib.example", List: true, Networkd: true, apply: list(func(n *N) *[]Value[Domain] { return &n.DNSSECNegativeTrustAnchors }, words, parsePlainDomain)},
			{Name: "LinkLocalAddressing", Doc: "Link-local addresses. The IPv6 one is the kernel's. There is no IPv4 link-local addressing here (RFC 3927): ipv4 and yes are reported and make no IPv4 address. systemd-networkd has it on Ethernet links only, so for IPoIB nobody has; write a fixed Address=169.254.X.Y/16, or on Ethernet leave [Network] out and the IP part to systemd-networkd.", Syntax: "BOOLEAN|ipv4|ipv6", Values: wordList(llWords), Default: "ipv6", Example: "ipv6", Networkd: true, apply: scalar(func(n *N) *Value[LinkLocal] { return &n.LinkLocalAddressing }, boolOr(LinkLocalYes, LinkLocalNo, llWords))},
			enumKey("IPv6LinkLocalAddressGenerationMode", "How the IPv6 link-local address is made.", "the kernel's", "eui64", true, addrGenWords, func(n *N) *Value[AddrGen] { return &n.IPv6LinkLocalAddressGeneration }),
			boolKey("IPv6AcceptRA", "Whether the kernel takes addresses and routes from router advertisements, also on a host that forwards (accept_ra is set to 2, as systemd-networkd takes them). Name servers in them are not passed to systemd-resolved.", "the kernel's", true, func(n *N) *Value[bool] { return &n.IPv6AcceptRA }),
			{Name: "IPv6PrivacyExtensions", Doc: "Temporary addresses (RFC 8981); kernel leaves the sysctl as it is.", Syntax: "BOOLEAN|prefer-public|kernel", Values: wordList(privacyWords), Default: "kernel", Example: "prefer-public", Networkd: true, apply: scalar(func(n *N) *Value[PrivacyExtensions] { return &n.IPv6PrivacyExtensions }, boolOr(PrivacyYes, PrivacyNo, privacyWords))},
			forward("IPv4Forwarding", "Forward IPv4 packets that come in on this link.", func(n *N) *Value[bool] { return &n.IPv4Forwarding }),
			forward("IPv6Forwarding", "Forward IPv6 packets that come in on this link.", func(n *N) *Value[bool] { return &n.IPv6Forwarding }),
			{Name: "IPForward", Doc: "Old name that sets IPv4Forwarding= and IPv6Forwarding= of this link.", Syntax: "BOOLEAN|ipv4|ipv6", Values: []string{"yes", "no", "ipv4", "ipv6"}, Example: "ipv4", Networkd: true, apply: setter{set: ipForward}},
			numKey("IPv6DuplicateAddressDetection", "How many probes are sent for a new IPv6 address.", "the kernel's", "1", 0, 255, true, func(n *N) *Value[int] { return &n.IPv6DuplicateAddressDetection }),
			numKey("IPv6HopLimit", "The hop limit of packets sent.", "the kernel's", "64", 1, 255, true, func(n *N) *Value[int] { return &n.IPv6HopLimit }),
			{Name: "IPv6MTUBytes", Doc: "The IPv6 MTU, at most that of the link.", Syntax: "BYTES, 1280 or more", Default: "the link's", Example: "2044", Networkd: true, apply: scalar(func(n *N) *Value[int] { return &n.IPv6MTUBytes }, parseIPv6MTU)},
			{Name: "IPv4ReversePathFilter", Doc: "Reverse path filtering (rp_filter).", Syntax: "no|strict|loose", Values: wordList(rpfWords), Default: "the kernel's", Example: "loose", Networkd: true, apply: scalar(func(n *N) *Value[ReversePathFilter] { return &n.IPv4ReversePathFilter }, enum(rpfWords))},
			boolKey("IPv4AcceptLocal", "Accept packets with a local source address.", "the kernel's", true, func(n *N) *Value[bool] { return &n.IPv4AcceptLocal }),
			boolKey("IPv4RouteLocalnet", "Route 127.0.0.0/8 as other addresses.", "the kernel's", true, func(n *N) *Value[bool] { return &n.IPv4RouteLocalnet }),
			boolKey("IPv4ProxyARP", "Answer ARP for addresses reached elsewhere.", "the kernel's", true, func(n *N) *Value[bool] { return &n.IPv4ProxyARP }),
			boolKey("IPv6ProxyNDP", "Answer neighbour solicitations for proxied addresses.", "the kernel's", true, func(n *N) *Value[bool] { return &n.IPv6ProxyNDP }),
			boolKey("IPv4ProxyARPPrivateVLAN", "Answer ARP for addresses reached over this same link, for private VLANs (RFC 3069).", "the kernel's", true, func(n *N) *Value[bool] { return &n.IPv4ProxyARPPrivateVLAN }),
			boolKey("DefaultRouteOnDevice", "Add an IPv4 default route over the link without a gateway.", "no", true, func(n *N) *Value[bool] { return &n.DefaultRouteOnDevice }),
			{Name: "BindCarrier", Doc: "Links that this one follows, by name or glob: it is brought up while one of them has carrier, and taken down when none has. It means ActivationPolicy=bound. While none of the links exists, nothing is done. Links that follow others themselves, and its own P_Key children, are not followed.", Syntax: "GLOB...", Example: "eth0 ib*", List: true, Networkd: true,
				apply: list(func(n *N) *[]Value[Pattern] { return &n.BindCarrier }, words, func(s string) (Pattern, error) { return parseNameGlob(s, false) })},
			{Name: "KeepConfiguration", Doc: "What stays on the link when its unit is taken away or no longer matches. With static or yes, the addresses, routes and name servers that the daemon set stay and are nobody's from then on; with no, dynamic or dynamic-on-stop they go. Whatever the value, a stop or restart of the daemon takes nothing away, an edited unit is followed, and what others set (a DHCP client, an administrator) stays; systemd-networkd removes it without this key.", Syntax: "BOOLEAN|static|dynamic|dynamic-on-stop", Values: []string{"yes", "no", "static", "dynamic", "dynamic-on-stop"}, Default: "no", Example: "static", Networkd: true, apply: scalar(func(n *N) *Value[KeepConfiguration] { return &n.KeepConfiguration }, boolOr(KeepYes, KeepNo, keepWords))},
			boolKey("ConfigureWithoutCarrier", "Set addresses and routes although the link has no carrier.", "no", true, func(n *N) *Value[bool] { return &n.ConfigureWithoutCarrier }),
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
		Doc: "An address of the link.",
		Keys: []Key{
			{Name: "Address", Doc: "The address with its prefix length. Required.", Syntax: "ADDRESS/LENGTH", Example: "192.168.151.1/24", Networkd: true, essential: true, apply: scalar(func(x *A) *Value[netip.Prefix] { return &x.Address }, addressValue)},
			{Name: "Peer", Doc: "The address of the other end of a point-to-point link.", Syntax: "ADDRESS[/LENGTH]", Example: "192.168.151.2/32", Networkd: true, essential: true, apply: scalar(func(x *A) *Value[netip.Prefix] { return &x.Peer }, func(s string) (netip.Prefix, error) { p, _, err := parsePrefix(s); return p, err })},
			{Name: "Broadcast", Doc: "The IPv4 broadcast address; yes takes the network's last one.", Syntax: "ADDRESS|BOOLEAN", Default: "yes, except for prefix lengths 31 and 32", Example: "192.168.151.255", Networkd: true, apply: scalar(func(x *A) *Value[Broadcast] { return &x.Broadcast }, parseBroadcast)},
			{Name: "Label", Doc: "The label of an IPv4 address.", Syntax: "TEXT, 1-15 characters", Example: "ib0:1", Networkd: true, apply: scalar(func(x *A) *Value[string] { return &x.Label }, parseLabel)},
			{Name: "PreferredLifetime", Doc: "0 makes the address deprecated: kept, but not chosen as a source.", Syntax: "forever|0", Values: []string{"forever", "infinity", "0"}, Default: "forever", Example: "forever", Networkd: true, apply: scalar(func(x *A) *Value[Lifetime] { return &x.PreferredLifetime }, parseLifetime)},
			{Name: "Scope", Doc: "The scope of an IPv4 address.", Syntax: "global|link|host|0-255", Values: []string{"global", "link", "host"}, Default: "global", Example: "link", Networkd: true, apply: scalar(func(x *A) *Value[Scope] { return &x.Scope }, parseScope)},
			numKey("RouteMetric", "The metric of the prefix route that comes with the address.", "the kernel's", "100", 0, math.MaxUint32, true, func(x *A) *Value[uint32] { return &x.RouteMetric }),
			boolKey("HomeAddress", "Mark an IPv6 address as home address (RFC 6275).", "no", true, func(x *A) *Value[bool] { return &x.HomeAddress }),
			{Name: "DuplicateAddressDetection", Doc: "For which family the address is probed before use. There is no IPv4 probing here.", Syntax: "ipv4|ipv6|both|none", Values: []string{"ipv4", "ipv6", "both", "none"}, Default: "ipv6", Example: "none", Networkd: true, apply: scalar(func(x *A) *Value[DAD] { return &x.DuplicateAddressDetection }, boolOr(DADBoth, DADNone, dadWords))},
			boolKey("ManageTemporaryAddress", "The kernel makes temporary addresses from this IPv6 one.", "no", true, func(x *A) *Value[bool] { return &x.ManageTemporaryAddress }),
			boolKey("AddPrefixRoute", "The kernel adds the route to the address's network.", "yes", true, func(x *A) *Value[bool] { return &x.AddPrefixRoute }),
			boolKey("AutoJoin", "Join the multicast group of the address.", "no", true, func(x *A) *Value[bool] { return &x.AutoJoin }),
		},
	}
}

func routeSection() SectionSpec {
	type R = Route
	return SectionSpec{
		Name: "Route", Repeat: true, Networkd: true, open: func(u *Unit) (any, *Section) { o := &Route{}; return o, &o.Section },
		Doc: "A route over the link.",
		Keys: []Key{
			{Name: "Gateway", Doc: "The next hop. A gateway learned by DHCP or router advertisement (_dhcp4, _ipv6ra) is not possible here.", Syntax: "ADDRESS", Example: "192.168.151.254", Networkd: true, essential: true, apply: scalar(func(x *R) *Value[netip.Addr] { return &x.Gateway }, parseGateway)},
			boolKey("GatewayOnLink", "The gateway is reached directly, whatever the addresses say.", "no", true, func(x *R) *Value[bool] { return &x.GatewayOnLink }),
			{Name: "Destination", Doc: "The network the route is for.", Syntax: "ADDRESS[/LENGTH]", Default: "everything (0.0.0.0/0 or ::/0)", Example: "10.20.0.0/16", Networkd: true, essential: true, apply: scalar(func(x *R) *Value[netip.Prefix] { return &x.Destination }, prefixValue)},
			{Name: "Source", Doc: "Packets from this network only; the kernel has this for IPv6.", Syntax: "ADDRESS[/LENGTH]", Example: "fd00:151::/64", Networkd: true, essential: true, apply: scalar(func(x *R) *Value[netip.Prefix] { return &x.Source }, prefixValue)},
			numKey("Metric", "The preference among routes to the same network, lower wins.", "0, IPv6 1024", "100", 0, math.MaxUint32, true, func(x *R) *Value[uint32] { return &x.Metric }),
			enumKey("IPv6Preference", "The router preference (RFC 4191).", "medium", "high", true, preferenceWords, func(x *R) *Value[RoutePreference] { return &x.IPv6Preference }),
			{Name: "Scope", Doc: "The scope of an IPv4 route.", Syntax: "global|site|link|host|nowhere|0-255", Values: wordList(scopeWords), Default: "link without a gateway, host for local and nat, global else", Example: "link", Networkd: true, apply: scalar(func(x *R) *Value[Scope] { return &x.Scope }, parseScope)},
			{Name: "PreferredSource", Doc: "The source address of packets sent.", Syntax: "ADDRESS", Example: "192.168.151.1", Networkd: true, apply: scalar(func(x *R) *Value[netip.Addr] { return &x.PreferredSource }, parseAddr)},
			{Name: "Table", Doc: "The routing table.", Syntax: "default|main|local|1-4294967295", Values: wordList(tableWords), Default: "main, local for local, broadcast, anycast and nat", Example: "100", Networkd: true, essential: true, apply: scalar(func(x *R) *Value[uint32] { return &x.Table }, parseTable)},
			numKey("HopLimit", "The hop limit of packets sent.", "the kernel's", "64", 1, 255, true, func(x *R) *Value[int] { return &x.HopLimit }),
			{Name: "Protocol", Doc: "The origin that is noted with the route.", Syntax: "kernel|boot|static|ra|dhcp|0-255", Values: []string{"kernel", "boot", "static", "ra", "dhcp"}, Default: "static", Example: "static", Networkd: true, apply: scalar(func(x *R) *Value[uint8] { return &x.Protocol }, parseRouteProtocol)},
			{Name: "Type", Doc: "The type of the route.", Syntax: strings.Join(wordList(routeTypeWords), "|"), Values: wordList(routeTypeWords), Default: "unicast", Example: "blackhole", Networkd: true, essential: true, apply: scalar(func(x *R) *Value[RouteType] { return &x.Type }, enum(routeTypeWords))},
			{Name: "MTUBytes", Doc: "The MTU of the route.", Syntax: "BYTES", Example: "2044", Networkd: true, apply: scalar(func(x *R) *Value[int] { return &x.MTUBytes }, parseMTUBytes)},
			numKey("InitialCongestionWindow", "TCP's initial congestion window in segments.", "the kernel's", "10", 1, 1023, true, func(x *R) *Value[int] { return &x.InitialCongestionWindow }),
			numKey("InitialAdvertisedReceiveWindow", "TCP's initial receive window in segments.", "the kernel's", "10", 1, 1023, true, func(x *R) *Value[int] { return &x.InitialAdvertisedReceiveWindow }),
			boolKey("QuickAck", "TCP acknowledges at once.", "no", true, func(x *R) *Value[bool] { return &x.QuickAck }),
			boolKey("FastOpenNoCookie", "TCP Fast Open without a cookie.", "no", true, func(x *R) *Value[bool] { return &x.FastOpenNoCookie }),
			numKey("TCPAdvertisedMaximumSegmentSize", "The segment size that TCP advertises, in bytes.", "the kernel's", "1460", 1, 4294967294, true, func(x *R) *Value[int] { return &x.TCPAdvertisedMaximumSegmentSize }),
			{Name: "TCPCongestionControlAlgorithm", Doc: "The congestion control of TCP connections.", Syntax: "NAME", Example: "bbr", Networkd: true, apply: scalar(func(x *R) *Value[string] { return &x.TCPCongestionControlAlgorithm }, parseModule)},
			{Name: "TCPRetransmissionTimeoutSec", Doc: "The least retransmission timeout of TCP.", Syntax: "TIME", Example: "200ms", Networkd: true, apply: scalar(func(x *R) *Value[time.Duration] { return &x.TCPRetransmissionTimeoutSec }, parseSpan)},
			{Name: "MultiPathRoute", Doc: "One of several next hops, with the interface if it is not the matched link, and a weight from 1 to 256.", Syntax: "ADDRESS[@INTERFACE] [WEIGHT]", Example: "192.168.151.254@ib0 20", List: true, Networkd: true, apply: list(func(x *R) *[]Value[NextHop] { return &x.MultiPathRoute }, whole, parseNextHop)},
		},
	}
}

func ruleSection() SectionSpec {
	type P = RoutingPolicyRule
	pfx := func(name, doc, example string, field func(*P) *Value[netip.Prefix]) Key {
		return Key{Name: name, Doc: doc, Syntax: "ADDRESS[/LENGTH]", Example: example, Networkd: true, essential: true, apply: scalar(field, prefixValue)}
	}
	iface := func(name, doc string, field func(*P) *Value[string]) Key {
		return Key{Name: name, Doc: doc, Syntax: "NAME", Example: "ib0", Networkd: true, essential: true, apply: scalar(field, parseIfName)}
	}
	ports := func(name, doc string, field func(*P) *Value[PortRange]) Key {
		return Key{Name: name, Doc: doc, Syntax: "1-65535[-1-65535]", Example: "2049-2050", Networkd: true, essential: true, apply: scalar(field, parsePortRange)}
	}
	ess := func(k Key) Key { k.essential = true; return k }
	return SectionSpec{
		Name: "RoutingPolicyRule", Repeat: true, Networkd: true, open: func(u *Unit) (any, *Section) { o := &RoutingPolicyRule{}; return o, &o.Section },
		Doc: "A rule that chooses a routing table.",
		Keys: []Key{
			ess(numKey("TypeOfService", "Packets with this type of service.", "", "8", 0, 255, true, func(x *P) *Value[uint8] { return &x.TypeOfService })),
			pfx("From", "Packets from this network.", "192.168.151.0/24", func(x *P) *Value[netip.Prefix] { return &x.From }),
			pfx("To", "Packets to this network.", "10.20.0.0/16", func(x *P) *Value[netip.Prefix] { return &x.To }),
			{Name: "FirewallMark", Doc: "Packets with this mark, under the mask if there is one.", Syntax: "NUMBER[/MASK]", Example: "0x10/0xff", Networkd: true, essential: true, apply: scalar(func(x *P) *Value[Mark] { return &x.FirewallMark }, parseMark)},
			{Name: "Table", Doc: "The table to look in.", Syntax: "default|main|local|1-4294967295", Values: wordList(tableWords), Default: "main", Example: "100", Networkd: true, essential: true, apply: scalar(func(x *P) *Value[uint32] { return &x.Table }, parseTable)},
			numKey("Priority", "The place of the rule, lower is asked first.", "the kernel's", "1000", 0, math.MaxUint32, true, func(x *P) *Value[uint32] { return &x.Priority }),
			ess(numKey("GoTo", "The priority of the rule to go on with, for Type=goto.", "", "2000", 1, math.MaxUint32, true, func(x *P) *Value[uint32] { return &x.GoTo })),
			iface("IncomingInterface", "Packets that come in on this interface.", func(x *P) *Value[string] { return &x.IncomingInterface }),
			iface("OutgoingInterface", "Packets of sockets that are bound to this interface.", func(x *P) *Value[string] { return &x.OutgoingInterface }),
			boolKey("L3MasterDevice", "Look in the table of the VRF.", "no", true, func(x *P) *Value[bool] { return &x.L3MasterDevice }),
			ports("SourcePort", "Packets from this port or range of ports.", func(x *P) *Value[PortRange] { return &x.SourcePort }),
			ports("DestinationPort", "Packets to this port or range of ports.", func(x *P) *Value[PortRange] { return &x.DestinationPort }),
			{Name: "IPProtocol", Doc: "Packets of this protocol.", Syntax: "NAME|0-255", Values: wordList(ipProtocolWords), Example: "tcp", Networkd: true, essential: true, apply: scalar(func(x *P) *Value[uint8] { return &x.IPProtocol }, parseIPProtocol)},
			ess(boolKey("InvertRule", "The rule holds for packets that do not fit.", "no", true, func(x *P) *Value[bool] { return &x.InvertRule })),
			{Name: "Family", Doc: "The family of a rule without From= and To=.", Syntax: "ipv4|ipv6|both", Values: wordList(ruleFamilyWords), Default: "ipv4", Example: "both", Networkd: true, apply: scalar(func(x *P) *Value[Family] { return &x.Family }, enum(ruleFamilyWords))},
			{Name: "User", Doc: "Packets of this user or range of users, by number.", Syntax: "UID[-UID]", Example: "1000-1999", Networkd: true, essential: true, apply: scalar(func(x *P) *Value[UIDRange] { return &x.User }, parseUIDRange)},
			numKey("SuppressPrefixLength", "Reject results with a prefix of this length or shorter.", "", "0", 0, 128, true, func(x *P) *Value[int] { return &x.SuppressPrefixLength }),
			numKey("SuppressInterfaceGroup", "Reject results over interfaces of this group.", "", "1", 0, math.MaxInt32, true, func(x *P) *Value[int] { return &x.SuppressInterfaceGroup }),
			{Name: "Type", Doc: "What the rule does.", Syntax: strings.Join(wordList(ruleTypeWords), "|"), Values: wordList(ruleTypeWords), Default: "table", Example: "table", Networkd: true, essential: true, apply: scalar(func(x *P) *Value[RuleType] { return &x.Type }, enum(ruleTypeWords))},
		},
	}
}

func subnetManagerSection() SectionSpec {
	type S = SubnetManager
	return SectionSpec{
		Name: "SubnetManager", open: func(u *Unit) (any, *Section) { return &u.SubnetManager, &u.SubnetManager.Section },
		Doc: "Whether a subnet manager runs on this host for the matched port.",
		Keys: []Key{
			enumKey("Manage", "auto starts one when the port waits in Initialize and no subnet manager answers, and stops it when another master has taken over; it is safe on every node. always keeps one running. no never starts one.", "no", "auto", false, manageWords, func(x *S) *Value[Manage] { return &x.Manage }),
			enumKey("Engine", "The program: ibnetsm (builtin) or opensm.", "builtin", "builtin", false, engineWords, func(x *S) *Value[Engine] { return &x.Engine }),
			{Name: "StartDelaySec", Doc: "How long the port must have waited before a subnet manager is started; each port adds up to as much again, spread by its GUID.", Syntax: "TIME", Default: "5s", Example: "5s", apply: scalar(func(x *S) *Value[time.Duration] { return &x.StartDelaySec }, parseSpan)},
			numKey("Priority", "The priority among subnet managers, higher wins.", "0", "5", 0, 15, false, func(x *S) *Value[int] { return &x.Priority }),
			{Name: "SubnetPrefix", Doc: "The 64-bit prefix of the subnet; two fabrics on one host need different ones.", Syntax: "PREFIX", Default: "fe80::/64", Example: "0xfec0000000000001", apply: scalar(func(x *S) *Value[uint64] { return &x.SubnetPrefix }, parseSubnetPrefix).showing(func(v any) string { return fmt.Sprintf("0x%016x", v) })},
			{Name: "RoutingEngine", Doc: "Routing engines in order of preference, with commas between.", Syntax: "NAME[,NAME...]", Values: []string{"minhop", "updn", "dnup", "ftree", "dor", "lash", "dfsssp", "sssp", "torus-2QoS"}, Default: "the subnet manager's", Example: "ftree,updn", apply: scalar(func(x *S) *Value[string] { return &x.RoutingEngine }, parseRoutingEngines)},
			{Name: "PartitionsFile", Doc: "The file of partitions, in opensm's format.", Syntax: "PATH", Default: "the subnet manager's", Example: "/etc/opensm/partitions.conf", apply: scalar(func(x *S) *Value[string] { return &x.PartitionsFile }, parseAbsPath)},
			{Name: "Partition", Doc: "A partition of the subnet, after those of PartitionsFile=; builtin only. The high bit of the P_Key is the membership of members that name none. Words: Name=, Members= (port GUIDs, ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS, SELF, each with =full, =limited or =both; ALL), MTU= and Rate= of its IPoIB broadcast group (what the slowest member can do), SL=, QKey=, IPoIB=no, Index0=yes.", Syntax: "PKEY [WORD=VALUE...]", Default: "everybody in 0xffff", Example: "0x8001 Name=storage Members=0x0002c903000abcde,SELF MTU=4096", List: true, apply: list(func(x *S) *[]Value[string] { return &x.Partition }, whole, parsePartitionRule)},
			numKey("LMC", "The LID mask count: each port has 2^LMC LIDs.", "0", "0", 0, 7, false, func(x *S) *Value[ib.LMC] { return &x.LMC }),
			boolKey("StopWhenForeignMaster", "Stop ours when a foreign master outranks it and has held for StopDelaySec=; also when one of lower rank has been there for three times as long and does not hand over.", "yes for auto, no for always", false, func(x *S) *Value[bool] { return &x.StopWhenForeignMaster }),
			{Name: "StopDelaySec", Doc: "How long a foreign master must have held before ours is stopped.", Syntax: "TIME", Default: "30s", Example: "30s", apply: scalar(func(x *S) *Value[time.Duration] { return &x.StopDelaySec }, parseSpan)},
			{Name: "KeyFile", Doc: "The file with the M_Key, the SM_Key and the SA key, lines MKey=, SMKey= and SAKey= (see ibnetsm(8)); builtin only. It belongs to the user ibnetsm and has mode 0600. Without it the keys are taken from the systemd credential keys, if ibnetsm@.service has one.", Syntax: "PATH", Default: "no M_Key, SM_Key and SA key 1", Example: "/etc/ibnetworkd/sm.keys", apply: scalar(func(x *S) *Value[string] { return &x.KeyFile }, parseAbsPath)},
			numKey("MKeyProtect", "What the M_Key protects: 0 shows it to everybody and protects writes, 1 also hides it, 2 and 3 also protect reads; builtin only.", "1", "2", 0, 3, false, func(x *S) *Value[int] { return &x.MKeyProtect }),
			{Name: "MKeyLeaseSec", Doc: "After how long ports that no subnet manager has written to show their M_Key, in whole seconds up to 65535; 0 is never; builtin only.", Syntax: "TIME", Default: "60s", Example: "60s", apply: scalar(func(x *S) *Value[time.Duration] { return &x.MKeyLeaseSec }, spanTo(0, 65535*time.Second))},
			boolKey("QoS", "Write the tables of service levels to virtual lanes; builtin only, opensm has its own file.", "no", false, func(x *S) *Value[bool] { return &x.QoS }),
			enumKey("PartitionEnforcement", "Where switches check the P_Keys of packets when there are partitions beside the default one: on the way in from a host, out to it, both, or not at all.", "both", "both", false, enforcementWords, func(x *S) *Value[Enforcement] { return &x.PartitionEnforcement }),
			{Name: "NodeNameMap", Doc: "A file of names for nodes, a GUID and a name in double quotes a line.", Syntax: "PATH", Default: "none", Example: "/etc/opensm/ib-node-name-map", apply: scalar(func(x *S) *Value[string] { return &x.NodeNameMap }, parseAbsPath)},
			{Name: "SweepSec", Doc: "The time between two light sweeps, in which the switches are asked what has changed; 0 is none.", Syntax: "TIME", Default: "10s", Example: "10s", apply: scalar(func(x *S) *Value[time.Duration] { return &x.SweepSec }, spanTo(0, 24*time.Hour))},
			{Name: "TimeoutSec", Doc: "How long the answer to a subnet management packet is waited for.", Syntax: "TIME", Default: "200ms", Example: "500ms", apply: scalar(func(x *S) *Value[time.Duration] { return &x.TimeoutSec }, spanTo(time.Millisecond, 10*time.Second))},
			numKey("Retries", "How often an unanswered packet is repeated.", "3", "5", 0, 100, false, func(x *S) *Value[int] { return &x.Retries }),
			numKey("Window", "How many packets are under way at one time.", "32", "8", 1, 4096, false, func(x *S) *Value[int] { return &x.Window }),
			boolKey("Verbose", "Log more.", "no", false, func(x *S) *Value[bool] { return &x.Verbose }),
		},
	}
}

func portSection() SectionSpec {
	return SectionSpec{
		Name: "Port", open: func(u *Unit) (any, *Section) { return &u.Port, &u.Port.Section },
		Doc: "The port of the adapter. Match it by NodeGUID= and Port=, RDMA device or path, because its interfaces come and go with its type.",
		Keys: []Key{
			enumKey("Type", "The protocol of a port that can be both. mlx4 is switched; for mlx5 the firmware command to type is shown.", "as it is", "eth", false, portTypeWords, func(x *Port) *Value[PortType] { return &x.Type }),
			boolKey("ChangeWhileInUse", "Switch the type although the port is in use: its interface is up with an address or has P_Key children, programs have its RDMA device open, or RDMA-CM has connections on it.", "no", false, func(x *Port) *Value[bool] { return &x.ChangeWhileInUse }),
			{Name: "NodeDescription", Doc: "The node description that the fabric sees, up to 64 bytes. %H is the short host name, %d the RDMA device, %% a percent sign.", Syntax: "TEXT", Default: "as it is", Example: "%H %d", apply: scalar(func(x *Port) *Value[string] { return &x.NodeDescription }, parseNodeDescription)},
		},
	}
}

func roceSection() SectionSpec {
	type R = RoCE
	pmap := func(name, doc, def, example string, maxFrom, maxTo uint64, field func(*R) *[]Value[PriorityMap]) Key {
		return Key{Name: name, Doc: doc, Syntax: fmt.Sprintf("0-%d:0-%d...", maxFrom, maxTo), Default: def, Example: example, List: true, apply: list(field, commaWords, parsePriorityMap(maxFrom, maxTo))}
	}
	set := func(name, doc, def string, field func(*R) *Value[uint8]) Key {
		return Key{Name: name, Doc: doc, Syntax: "0-7...|none", Values: []string{"none"}, Default: def, Example: "3", List: true, apply: prioritySet(field)}
	}
	return SectionSpec{
		Name: "RoCE", open: func(u *Unit) (any, *Section) { return &u.RoCE, &u.RoCE.Section },
		Doc: "RDMA over Ethernet and the lossless Ethernet under it.",
		Keys: []Key{
			numKey("Version", "The default RoCE version of connections made by RDMA-CM.", "as it is", "2", 1, 2, false, func(x *R) *Value[int] { return &x.Version }),
			numKey("DSCP", "The DSCP of connections made by RDMA-CM; it is shifted to a type of service for you (26 becomes 104).", "as it is", "26", 0, 63, false, func(x *R) *Value[uint8] { return &x.DSCP }),
			numKey("TypeOfService", "The same as the whole byte; wins over DSCP=.", "as it is", "106", 0, 255, false, func(x *R) *Value[uint8] { return &x.TypeOfService }),
			numKey("Priority", "The priority of RoCE traffic.", "as it is", "3", 0, 7, false, func(x *R) *Value[uint8] { return &x.Priority }),
			set("PFC", "Priorities with priority flow control. A change takes the link of mlx5 down and up for a moment, and resets the interface of ice. Drivers that had global pause lose it with the first priority.", "as it is", func(x *R) *Value[uint8] { return &x.PFC }),
			enumKey("Trust", "Whether a packet's priority is taken from its VLAN tag or its DSCP.", "as it is", "dscp", false, trustWords, func(x *R) *Value[Trust] { return &x.Trust }),
			{Name: "ETS", Doc: "Scheduling of traffic classes: strict, or a share of the bandwidth; the shares make 100.", Syntax: "0-7:strict|PERCENT...", Default: "as it is", Example: "0:40% 3:60% 5:strict", List: true, apply: list(func(x *R) *[]Value[ETSClass] { return &x.ETS }, commaWords, parseETS)},
			pmap("PriorityToClass", "Which traffic class a priority is in.", "as it is", "0:0 3:3", 7, 7, func(x *R) *[]Value[PriorityMap] { return &x.PriorityToClass }),
			pmap("DSCPToPriority", "Which priority a DSCP has.", "as it is", "26:3 48:6", 63, 7, func(x *R) *[]Value[PriorityMap] { return &x.DSCPToPriority }),
			{Name: "BufferSize", Doc: "The size in bytes of receive buffers. mlx5 rounds down to its cells (128 bytes and more), and refuses a buffer of a priority in PFC= that is too small for the cable and the largest MTU.", Syntax: "0-7:BYTES...", Default: "as it is", Example: "0:128K 1:96K", List: true, apply: list(func(x *R) *[]Value[BufferSize] { return &x.BufferSize }, commaWords, parseBufferSize)},
			pmap("PriorityToBuffer", "Which receive buffer a priority has.", "as it is", "0:0 3:1", 7, 7, func(x *R) *[]Value[PriorityMap] { return &x.PriorityToBuffer }),
			numKey("CableLength", "The length of the cable in metres, for the headroom of PFC: mlx5 with receive buffers that can be set.", "as it is", "5", 1, 999, false, func(x *R) *Value[int] { return &x.CableLength }),
			set("ECN", "Priorities with congestion notification. Only the drivers of MLNX_OFED have files for it; in others it is as the firmware has it.", "as it is", func(x *R) *Value[uint8] { return &x.ECN }),
			boolKey("WriteModprobeFile", "Write a modprobe.d file with PFC for mlx4: it takes PFC= while it runs as others do, and the module option keeps it over a reload of the driver. An initramfs with the driver has a copy of its own: update-initramfs -u, or dracut -f.", "no", false, func(x *R) *Value[bool] { return &x.WriteModprobeFile }),
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
	maps := func(name, doc string, field func(*V) *[]Value[QOSMap]) Key {
		return Key{Name: name, Doc: doc, Syntax: "FROM-TO...", Example: "3-3 6-6", List: true, apply: list(field, words, parseQOSMap)}
	}
	return SectionSpec{
		Name: "VLAN", Repeat: true, open: func(u *Unit) (any, *Section) { o := &VLAN{}; return o, &o.Section },
		Doc: "A VLAN interface on the matched Ethernet link, with the keys of systemd.netdev's [VLAN]. IPoIB has no VLANs; use [Partition].",
		Keys: []Key{
			{Name: "Id", Doc: "The VLAN. Required.", Syntax: "0-4094", Example: "100", essential: true, apply: scalar(func(x *V) *Value[uint16] { return &x.Id }, number[uint16](0, 4094))},
			{Name: "Name", Doc: "The interface name.", Syntax: "NAME", Default: "PARENT.ID", Example: "storage100", essential: true, apply: scalar(func(x *V) *Value[string] { return &x.Name }, parseIfName)},
			{Name: "Protocol", Doc: "The tag.", Syntax: "802.1q|802.1ad", Values: []string{"802.1q", "802.1ad"}, Default: "802.1q", Example: "802.1q", essential: true, apply: scalar(func(x *V) *Value[VLANProtocol] { return &x.Protocol }, enum(vlanProtocolWords))},
			{Name: "MTUBytes", Doc: "The MTU in bytes that the interface is made with; max is the parent's. A unit that matches the interface itself changes it later.", Syntax: "BYTES|max", Values: []string{"max"}, Default: "the parent's", Example: "4200", apply: scalar(func(x *V) *Value[MTU] { return &x.MTUBytes }, parseMTU)},
			maps("EgressQOSMaps", "Which VLAN priority a packet priority is sent with.", func(x *V) *[]Value[QOSMap] { return &x.EgressQOSMaps }),
			maps("IngressQOSMaps", "Which packet priority a VLAN priority is received as.", func(x *V) *[]Value[QOSMap] { return &x.IngressQOSMaps }),
			boolKey("ReorderHeader", "Take the tag off received packets.", "the kernel's", false, func(x *V) *Value[bool] { return &x.ReorderHeader }),
			boolKey("GVRP", "Announce the VLAN by GVRP.", "the kernel's", false, func(x *V) *Value[bool] { return &x.GVRP }),
			boolKey("MVRP", "Announce the VLAN by MVRP.", "the kernel's", false, func(x *V) *Value[bool] { return &x.MVRP }),
			boolKey("LooseBinding", "The interface's state does not follow the parent's.", "the kernel's", false, func(x *V) *Value[bool] { return &x.LooseBinding }),
		},
	}
}

func softRoCESection() SectionSpec {
	return SectionSpec{
		Name: "SoftRoCE", open: func(u *Unit) (any, *Section) { return &u.SoftRoCE, &u.SoftRoCE.Section },
		Doc: "A software RDMA device on the matched Ethernet link. The header alone is enough.",
		Keys: []Key{
			enumKey("Driver", "rxe is RoCE in software, siw is iWARP in software.", "rxe", "rxe", false, softDriverWords, func(x *SoftRoCE) *Value[SoftDriver] { return &x.Driver }),
			{Name: "Name", Doc: "The RDMA device's name.", Syntax: "NAME", Default: "DRIVER_LINK, rxe_eth0", Example: "rxe0", apply: scalar(func(x *SoftRoCE) *Value[string] { return &x.Name }, parseDeviceName)},
		},
	}
}

const (
	docVFGUID = "auto makes one from the physical function's GUID and the index, the same after every boot."
	docVFLink = "The virtual port's state: auto follows the physical port."
)

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
		Doc: "The virtual functions of the matched physical function, and what holds for those without a [VF].",
		Keys: []Key{
			numKey("Count", "How many virtual functions there are.", "as it is", "4", 0, 65535, false, func(x *V) *Value[int] { return &x.Count }),
			boolKey("Autoprobe", "Whether drivers are bound to new virtual functions.", "the kernel's", false, func(x *V) *Value[bool] { return &x.Autoprobe }),
			{Name: "NodeGUID", Doc: docVFGUID, Syntax: "auto", Values: []string{"auto"}, Default: "as it is", Example: "auto", apply: scalar(func(x *V) *Value[VFGUID] { return &x.NodeGUID }, autoOnly)},
			{Name: "PortGUID", Doc: docVFGUID, Syntax: "auto", Values: []string{"auto"}, Default: "as it is", Example: "auto", apply: scalar(func(x *V) *Value[VFGUID] { return &x.PortGUID }, autoOnly)},
			{Name: "LinkState", Doc: docVFLink, Syntax: "auto|enable|disable", Values: wordList(vfLinkWords), Default: "as it is", Example: "auto", apply: scalar(func(x *V) *Value[VFLinkState] { return &x.LinkState }, boolOr(VFLinkEnable, VFLinkDisable, vfLinkWords))},
			boolKey("Trust", "Whether the virtual functions may change privileged settings.", "as it is", false, func(x *V) *Value[bool] { return &x.Trust }),
		},
	}
}

func vfSection() SectionSpec {
	type V = VF
	guid := func(name string, field func(*V) *Value[VFGUID]) Key {
		return Key{Name: name, Doc: docVFGUID, Syntax: "GUID|auto", Values: []string{"auto"}, Default: "as in [VirtualFunctions]", Example: "0x0002c9030a000001", essential: true, apply: scalar(field, parseVFGUID)}
	}
	rate := func(name, doc string, field func(*V) *Value[uint32]) Key {
		return Key{Name: name, Doc: doc, Syntax: "BITS PER SECOND with K, M, G; 0 is no limit", Default: "as it is", Example: "10G", apply: scalar(field, parseBitRate).showing(func(v any) string { return fmt.Sprintf("%dM", v) })}
	}
	return SectionSpec{
		Name: "VF", Repeat: true, open: func(u *Unit) (any, *Section) { o := &VF{}; return o, &o.Section },
		Doc: "One virtual function, with the keys of systemd.network's [SR-IOV] and the GUIDs.",
		Keys: []Key{
			{Name: "VirtualFunction", Doc: "The index, 0 for the first. Required.", Syntax: "0-65534", Example: "0", essential: true, apply: scalar(func(x *V) *Value[int] { return &x.VirtualFunction }, number[int](0, 65534))},
			guid("NodeGUID", func(x *V) *Value[VFGUID] { return &x.NodeGUID }),
			guid("PortGUID", func(x *V) *Value[VFGUID] { return &x.PortGUID }),
			{Name: "LinkState", Doc: docVFLink, Syntax: "BOOLEAN|auto|enable|disable", Values: wordList(vfLinkWords), Default: "as in [VirtualFunctions]", Example: "enable", apply: scalar(func(x *V) *Value[VFLinkState] { return &x.LinkState }, boolOr(VFLinkEnable, VFLinkDisable, vfLinkWords))},
			boolKey("Trust", "Whether the virtual function may change privileged settings.", "as in [VirtualFunctions]", false, func(x *V) *Value[bool] { return &x.Trust }),
			rate("MinRate", "The bandwidth that is guaranteed.", func(x *V) *Value[uint32] { return &x.MinRate }),
			rate("MaxRate", "The bandwidth that is not exceeded.", func(x *V) *Value[uint32] { return &x.MaxRate }),
			{Name: "MACAddress", Doc: "The Ethernet address.", Syntax: "ADDRESS", Default: "as it is", Example: "02:00:00:00:00:01", apply: scalar(func(x *V) *Value[ib.HWAddr] { return &x.MACAddress }, parseMAC)},
			boolKey("MACSpoofCheck", "Whether packets with another Ethernet source address are dropped.", "as it is", false, func(x *V) *Value[bool] { return &x.MACSpoofCheck }),
			numKey("VLANId", "The VLAN the virtual function is put in; 0 is none.", "as it is", "100", 0, 4095, false, func(x *V) *Value[uint16] { return &x.VLANId }),
			numKey("QualityOfService", "The VLAN priority of the virtual function's packets.", "0", "3", 0, 7, false, func(x *V) *Value[uint8] { return &x.QualityOfService }),
			enumKey("VLANProtocol", "The tag of that VLAN.", "802.1q", "802.1q", false, vlanProtocolWords, func(x *V) *Value[VLANProtocol] { return &x.VLANProtocol }),
		},
	}
}

func modulesSection() SectionSpec {
	return SectionSpec{
		Name: "Modules", open: func(u *Unit) (any, *Section) { return &u.Modules, &u.Modules.Section },
		Doc: "Kernel modules that are loaded when the unit is, whether a link matches or not.",
		Keys: []Key{
			{Name: "Load", Doc: "The modules.", Syntax: "NAME...", Example: "ib_srp ib_iser rpcrdma", List: true, apply: list(func(x *Modules) *[]Value[string] { return &x.Load }, words, parseModule)},
		},
	}
}

// parsePartitionRule checks a rule; it is handed on as it is written.
func parsePartitionRule(s string) (string, error) {
	_, err := partition.ParseRule(s)
	return s, err
}
