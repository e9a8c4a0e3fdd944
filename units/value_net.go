package units

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"ibnetworkd/ib"
)

// parseIfName reads the name of a network interface by the kernel's rules
// (dev_valid_name, net/core/dev.c) and systemd's (no name that is a number or
// that a sysctl directory has).
func parseIfName(s string) (string, error) {
	if err := validIfName(s, 15); err != nil {
		return "", err
	}
	return s, nil
}

func validIfName(s string, most int) error {
	bad := func(why string) error { return fmt.Errorf("%q is not an interface name: %s", ib.Clip(s), why) }
	switch {
	case s == "":
		return bad("it is empty")
	case len(s) > most:
		return bad(fmt.Sprintf("%d characters, at most %d are allowed", len(s), most))
	case s == "." || s == ".." || s == "all" || s == "default":
		return bad("it is reserved")
	}
	numeric := true
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || c == '/' || c == ':' || c == '%' {
			return bad(fmt.Sprintf("character %q is not allowed", c))
		}
		numeric = numeric && c >= '0' && c <= '9'
	}
	if numeric {
		return bad("a number would be taken for an index")
	}
	return nil
}

func parseAddr(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, fmt.Errorf("%q is not an IP address", ib.Clip(s))
	}
	if a.Zone() != "" {
		return a, fmt.Errorf("%q has a zone; the link is the matched one", ib.Clip(s))
	}
	return a.Unmap(), nil
}

// parsePrefix parses "ADDRESS[/LENGTH]"; bare is set without a length, and the
// prefix is then that single address.
func parsePrefix(s string) (p netip.Prefix, bare bool, err error) {
	addr, length, slash := strings.Cut(s, "/")
	a, err := parseAddr(addr)
	if err != nil {
		return p, false, err
	}
	bits := a.BitLen()
	if slash {
		n, err := strconv.ParseUint(length, 10, 8)
		if err != nil || int(n) > bits {
			// A dotted netmask is a common slip with a known answer.
			if m, merr := netip.ParseAddr(length); merr == nil && m.Is4() && a.Is4() {
				if ones, ok := maskBits(m); ok {
					return p, false, fmt.Errorf("%q has a netmask; write %s/%d", ib.Clip(s), a, ones)
				}
			}
			return p, false, fmt.Errorf("%q: prefix length %q is out of range, 0 to %d", ib.Clip(s), ib.Clip(length), bits)
		}
		bits = int(n)
	}
	return netip.PrefixFrom(a, bits), !slash, nil
}

// maskBits is the prefix length of an IPv4 netmask.
func maskBits(m netip.Addr) (int, bool) {
	b := m.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n := 0
	for v&(1<<31) != 0 {
		v <<= 1
		n++
	}
	return n, v == 0
}

func parseGateway(s string) (netip.Addr, error) {
	switch s {
	case "_dhcp4", "_ipv6ra", "_dhcp":
		return netip.Addr{}, fmt.Errorf("%q requests a gateway learned by systemd-networkd's own clients, which this daemon does "+
			"not have; write the address, or leave the IP part to systemd-networkd", s)
	}
	a, err := parseAddr(s)
	if err == nil && a.IsUnspecified() {
		return a, fmt.Errorf("%q is not a gateway", s)
	}
	if err == nil && a.IsMulticast() {
		return a, fmt.Errorf("%q is a multicast address, not a gateway", s)
	}
	return a, err
}

func parseOnline(s string) (Online, error) {
	if b, err := parseBool(s); err == nil {
		return Online{Required: b, Min: OperDegraded, Max: OperRoutable}, nil
	}
	lo, hi, ranged := strings.Cut(s, ":")
	o := Online{Required: true, Min: OperDegraded, Max: OperRoutable}
	var err error
	if lo != "" || !ranged {
		if o.Min, err = ParseOperState(lo); err != nil {
			return o, fmt.Errorf("%w, nor a boolean", err)
		}
	}
	if hi != "" {
		if o.Max, err = ParseOperState(hi); err != nil {
			return o, err
		}
	}
	if o.Min.Rank() > o.Max.Rank() {
		return o, fmt.Errorf("%q starts above its end; the order is %s", ib.Clip(s), strings.Join(wordList(operWords), ", "))
	}
	return o, nil
}

// boolOr reads a boolean as one of two values, or one of the words.
func boolOr[T comparable](yes, no T, ws []word[T]) func(string) (T, error) {
	return func(s string) (T, error) {
		for _, w := range ws {
			if w.s == s {
				return w.v, nil
			}
		}
		if b, err := parseBool(s); err == nil {
			if b {
				return yes, nil
			}
			return no, nil
		}
		return parseWord(ws, s)
	}
}

func enum[T comparable](ws []word[T]) func(string) (T, error) {
	return func(s string) (T, error) { return parseWord(ws, s) }
}

// enumOrByte reads one of the words, or a number.
func enumOrByte[T ~uint8](ws []word[T]) func(string) (T, error) {
	return func(s string) (T, error) {
		if v, err := strconv.ParseUint(s, 0, 8); err == nil {
			return T(v), nil
		}
		v, err := parseWord(ws, s)
		if err != nil {
			return 0, fmt.Errorf("%w, nor a number from 0 to 255", err)
		}
		return v, nil
	}
}

var tableWords = []word[uint32]{{TableDefault, "default"}, {TableMain, "main"}, {TableLocal, "local"}}

func parseTable(s string) (uint32, error) {
	if v, err := parseWord(tableWords, s); err == nil {
		return v, nil
	}
	v, err := parseUint(s, 1, math.MaxUint32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a routing table: default, main, local, or a number from 1 to %d", ib.Clip(s),
			uint32(math.MaxUint32))
	}
	return uint32(v), nil
}

var routeProtocolWords = []word[uint8]{{2, "kernel"}, {3, "boot"}, {4, "static"}, {9, "ra"}, {16, "dhcp"}}

var ipProtocolWords = []word[uint8]{
	{1, "icmp"}, {2, "igmp"}, {4, "ipip"}, {6, "tcp"}, {17, "udp"}, {33, "dccp"}, {41, "ipv6"}, {47, "gre"}, {50, "esp"},
	{51, "ah"}, {58, "ipv6-icmp"}, {58, "icmpv6"}, {89, "ospf"}, {103, "pim"}, {112, "vrrp"}, {115, "l2tp"}, {132, "sctp"}, {136,
		"udplite"},
}

func parseIPProtocol(s string) (uint8, error) {
	if v, err := strconv.ParseUint(s, 0, 8); err == nil {
		return uint8(v), nil
	}
	v, err := parseWord(ipProtocolWords, strings.ToLower(s))
	if err != nil {
		return 0, fmt.Errorf("%q is not an IP protocol: a number from 0 to 255, or a name such as tcp, udp, icmp", ib.Clip(s))
	}
	return v, nil
}

func parseNextHop(s string) (NextHop, error) {
	fields := strings.Fields(s)
	if len(fields) == 0 || len(fields) > 2 {
		return NextHop{}, fmt.Errorf("%q is not ADDRESS[@INTERFACE] [WEIGHT]", ib.Clip(s))
	}
	addr, iface, at := strings.Cut(fields[0], "@")
	n := NextHop{Weight: 1}
	var err error
	if n.Gateway, err = parseGateway(addr); err != nil {
		return n, err
	}
	if at {
		if n.Interface, err = parseIfName(iface); err != nil {
			return n, err
		}
	}
	if len(fields) == 2 {
		w, err := parseUint(fields[1], 1, 256)
		if err != nil {
			return n, fmt.Errorf("weight %w", err)
		}
		n.Weight = int(w)
	}
	return n, nil
}

func parseDNS(s string) (DNSServer, error) {
	var d DNSServer
	bad := func(why string) (DNSServer, error) {
		return DNSServer{}, fmt.Errorf("%q is not ADDRESS[:PORT][%%INTERFACE][#SERVERNAME]: %s", ib.Clip(s), why)
	}
	rest, name, named := strings.Cut(s, "#")
	if named {
		if d.Name = name; validDomain(name) != nil {
			return bad("the server name is not a domain")
		}
	}
	rest, iface, scoped := strings.Cut(rest, "%")
	if scoped {
		// "fe80::1%ib0" carries the interface where netip has the zone.
		if validIfName(iface, 15) != nil {
			if i := strings.LastIndexByte(iface, ':'); i > 0 && strings.HasPrefix(rest, "[") {
				return bad("the port must be before %INTERFACE")
			}
			return bad("the interface name is not valid")
		}
		d.Interface = iface
	}
	host, port := rest, ""
	if strings.HasPrefix(rest, "[") {
		end := strings.IndexByte(rest, ']')
		if end < 0 {
			return bad("\"]\" is missing")
		}
		host, port = rest[1:end], rest[end+1:]
		if port != "" && port[0] != ':' {
			return bad("\":\" must follow \"]\"")
		}
		port = strings.TrimPrefix(port, ":")
		if a, err := netip.ParseAddr(host); err != nil || !a.Is6() {
			return bad("the brackets must contain an IPv6 address")
		}
	} else if strings.Count(rest, ":") == 1 {
		host, port, _ = strings.Cut(rest, ":")
	}
	a, err := parseAddr(host)
	if err != nil {
		return bad(err.Error())
	}
	if a.IsUnspecified() || a.IsMulticast() {
		return bad("a server cannot have this address")
	}
	d.Addr = a
	if port != "" {
		n, err := parseUint(port, 1, 65535)
		if err != nil {
			return bad("the port " + err.Error())
		}
		d.Port = uint16(n)
	}
	return d, nil
}

// String prints the server as a unit file has it.
func (d DNSServer) String() string {
	s := d.Addr.String()
	if d.Port != 0 {
		s = netip.AddrPortFrom(d.Addr, d.Port).String()
	}
	if d.Interface != "" {
		s += "%" + d.Interface
	}
	if d.Name != "" {
		s += "#" + d.Name
	}
	return s
}

// validDomain checks a domain name by the length and character rules of DNS.
func validDomain(s string) error {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return fmt.Errorf("%q is not a domain name", ib.Clip(s))
	}
	for _, label := range strings.Split(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%q is not a domain name: label %q", ib.Clip(s), ib.Clip(label))
		}
		for _, r := range label {
			if r <= ' ' || r == 0x7f || r == utf8.RuneError || r < 0x80 &&
				!(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
				return fmt.Errorf("%q is not a domain name: character %q", ib.Clip(s), r)
			}
		}
	}
	return nil
}

func parseDomain(s string) (Domain, error) {
	name, routeOnly := strings.CutPrefix(s, "~")
	if name == "*" {
		return Domain{}, fmt.Errorf("%q: write \"~.\" for the domain of all names", ib.Clip(s))
	}
	if name == "." || name == "" && routeOnly {
		if !routeOnly {
			return Domain{}, fmt.Errorf("%q: the root cannot be a search domain; write ~. to route all names", ib.Clip(s))
		}
		return Domain{Name: ".", RouteOnly: true}, nil
	}
	if err := validDomain(name); err != nil {
		return Domain{}, err
	}
	if strings.EqualFold(strings.TrimSuffix(name, "."), "localhost") {
		return Domain{}, fmt.Errorf("%q cannot be a search domain", ib.Clip(s))
	}
	return Domain{Name: strings.TrimSuffix(name, "."), RouteOnly: routeOnly}, nil
}

// String prints the domain as a unit file has it.
func (d Domain) String() string {
	if d.RouteOnly {
		return "~" + d.Name
	}
	return d.Name
}

func parseText(s string) (string, error) { return s, nil }

// parseLabel reads an IPv4 address label (IFNAMSIZ bytes with the NUL).
func parseLabel(s string) (string, error) {
	if len(s) > 15 || strings.ContainsAny(s, " \t/") {
		return "", fmt.Errorf("%q is not an address label of 1 to 15 characters", ib.Clip(s))
	}
	return s, nil
}

func parseLifetime(s string) (Lifetime, error) { return parseWord(lifetimeWords, s) }

func parseBroadcast(s string) (Broadcast, error) {
	if b, err := parseBool(s); err == nil {
		return Broadcast{Derive: b}, nil
	}
	a, err := parseAddr(s)
	if err != nil || !a.Is4() {
		return Broadcast{}, fmt.Errorf("%q is not an IPv4 address or a boolean", ib.Clip(s))
	}
	return Broadcast{Addr: a}, nil
}

// String prints the broadcast address as a unit file has it.
func (b Broadcast) String() string {
	switch {
	case b.Addr.IsValid():
		return b.Addr.String()
	case b.Derive:
		return "yes"
	}
	return "no"
}
