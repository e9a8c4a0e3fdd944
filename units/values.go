package units

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"ibnetworkd/ib"
)

// parseBool reads systemd's words for yes and no, in any case.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "yes", "y", "true", "t", "on":
		return true, nil
	case "0", "no", "n", "false", "f", "off":
		return false, nil
	}
	return false, fmt.Errorf("%q is not a boolean (yes or no)", ib.Clip(s))
}

// suffix is a unit of a size or a time span, with its factor.
type suffix struct {
	name   string
	factor uint64
}

var sizeSuffixes = []suffix{{"E", 1 << 60}, {"P", 1 << 50}, {"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}, {"B", 1}, {"", 1}}

var rateSuffixes = []suffix{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"K", 1e3}, {"", 1}}

// spanSuffixes are in microseconds. A longer name comes before its beginning.
var spanSuffixes = []suffix{
	{"seconds", 1e6}, {"second", 1e6}, {"sec", 1e6}, {"s", 1e6},
	{"minutes", 60e6}, {"minute", 60e6}, {"min", 60e6},
	{"months", 2629800e6}, {"month", 2629800e6}, {"M", 2629800e6},
	{"msec", 1e3}, {"ms", 1e3}, {"m", 60e6},
	{"hours", 3600e6}, {"hour", 3600e6}, {"hr", 3600e6}, {"h", 3600e6},
	{"days", 86400e6}, {"day", 86400e6}, {"d", 86400e6},
	{"weeks", 604800e6}, {"week", 604800e6}, {"w", 604800e6},
	{"years", 31557600e6}, {"year", 31557600e6}, {"y", 31557600e6},
	{"usec", 1}, {"us", 1}, {"µs", 1}, {"μs", 1},
}

// leadingDigits is the number of decimal digits that s begins with.
func leadingDigits(s string) int { return run(s, func(c byte) bool { return c >= '0' && c <= '9' }) }

// cSpace is what isspace(3) skips before a number.
const cSpace = " \t\n\v\f\r"

// cutInt cuts an integer off as strtoull(3) does, with blanks and a "+" before it.
// sized is false where it does not fit into 64 bits.
func cutInt(s string) (v uint64, rest string, found, sized bool) {
	t := strings.TrimPrefix(strings.TrimLeft(s, cSpace), "+")
	n := leadingDigits(t)
	if n == 0 {
		return 0, s, false, true
	}
	v, err := strconv.ParseUint(t[:n], 10, 64)
	return v, t[n:], true, err == nil
}

// cutSuffix finds the first suffix that s begins with.
func cutSuffix(s string, suffixes []suffix) (i int, rest string) {
	for i, x := range suffixes {
		if r, ok := strings.CutPrefix(s, x.name); ok {
			return i, r
		}
	}
	return -1, s
}

// wordOf is what a message quotes of an unknown unit.
func wordOf(s string) string {
	n := run(s, func(c byte) bool { return c > ' ' && c != '.' && (c < '0' || c > '9') })
	return ib.Clip(s[:max(n, min(1, len(s)))])
}

// notANumber says why no term begins at rest.
func notANumber(s, rest, what string) error {
	if strings.HasPrefix(rest, "-") {
		return fmt.Errorf("%q is not a %s: it is negative", ib.Clip(s), what)
	}
	if rest == "" {
		return fmt.Errorf("%q is not a %s: no number at its end", ib.Clip(s), what)
	}
	return fmt.Errorf("%q is not a %s: no number at %q", ib.Clip(s), what, ib.Clip(rest))
}

// parseSizes adds terms "NUMBER[.FRACTION][ ][SUFFIX]" with ever smaller suffixes,
// as systemd's sizes are (systemd.syntax(7); the cases are judged by the installed
// systemd in a test).
func parseSizes(s string, suffixes []suffix, what string) (uint64, error) {
	large := fmt.Errorf("%q is too large", ib.Clip(s))
	var sum uint64
	for rest := s; ; {
		rest = strings.TrimLeft(rest, blanks)
		v, after, ok, sized := cutInt(rest)
		if !ok {
			return 0, notANumber(s, rest, what)
		}
		if !sized {
			return 0, large
		}
		fraction := 0.0
		if r, ok := strings.CutPrefix(after, "."); ok {
			n := leadingDigits(r)
			if _, err := strconv.ParseUint(r[:n], 10, 64); n > 0 && err != nil {
				return 0, large
			}
			fraction, _ = strconv.ParseFloat("0."+r[:n]+"0", 64)
			after = r[n:]
		}
		after = strings.TrimLeft(after, blanks)
		i, r := cutSuffix(after, suffixes)
		if i < 0 {
			return 0, fmt.Errorf("%q is not a %s: suffixes go from large to small, each once", ib.Clip(s), what)
		}
		f := suffixes[i].factor
		whole := v
		if fraction > 0 {
			whole++
		}
		if whole < v || whole > math.MaxUint64/f {
			return 0, large
		}
		term := v*f + uint64(fraction*float64(f))
		if sum+term < sum {
			return 0, large
		}
		sum += term
		if r == "" {
			return sum, nil
		}
		if suffixes[i].name == "" {
			if t := strings.TrimLeft(r, blanks); t == "" || leadingDigits(t) == 0 {
				return 0, fmt.Errorf("%q is not a %s: unknown suffix %q", ib.Clip(s), what, wordOf(after))
			}
		}
		rest, suffixes = r, suffixes[i+1:]
	}
}

// parseSize reads a size in bytes, base 1024.
func parseSize(s string) (uint64, error) { return parseSizes(s, sizeSuffixes, "size") }

// parseBitRate reads bits per second, base 1000, and gives Mbit/s.
func parseBitRate(s string) (uint32, error) {
	v, err := parseSizes(s, rateSuffixes, "rate in bits per second")
	switch {
	case err != nil:
		return 0, err
	case v > 0 && v < 1e6:
		return 0, fmt.Errorf("%q is less than 1M; the kernel counts in Mbit/s", ib.Clip(s))
	case v/1e6 > math.MaxUint32:
		return 0, fmt.Errorf("%q is too large", ib.Clip(s))
	}
	return uint32(v / 1e6), nil
}

// maxSpan stands for "infinity", and for what is longer than a time.Duration.
const maxSpan = time.Duration(math.MaxInt64)

// parseSpan reads a time span as systemd.time(7) has it; a bare number is seconds.
func parseSpan(s string) (time.Duration, error) {
	us, err := parseMicroseconds(s)
	if err != nil || us > math.MaxInt64/1000 {
		return maxSpan, err
	}
	return time.Duration(us) * time.Microsecond, nil
}

// foreverUS is systemd's "infinity".
const foreverUS = math.MaxUint64

func parseMicroseconds(s string) (uint64, error) {
	const what = "time span"
	large := fmt.Errorf("%q is too large", ib.Clip(s))
	rest := strings.TrimLeft(s, blanks)
	if strings.Trim(rest, blanks) == "infinity" {
		return foreverUS, nil
	}
	if rest == "" {
		return 0, errors.New("is empty")
	}
	var sum uint64
	add := func(v, factor uint64) bool {
		if v >= foreverUS/factor || v*factor >= foreverUS-sum {
			return false
		}
		sum += v * factor
		return true
	}
	for ; rest != ""; rest = strings.TrimLeft(rest, blanks) {
		v, after, found, sized := cutInt(rest)
		if !sized || v > math.MaxInt64 {
			return 0, large
		}
		fraction, point := strings.CutPrefix(after, ".")
		if !found && (!point || after != rest) {
			if sum > 0 && rest[0] > '9' {
				return 0, fmt.Errorf("%q is not a %s: unknown unit %q", ib.Clip(s), what, wordOf(rest))
			}
			return 0, notANumber(s, rest, what)
		}
		n := 0
		if point {
			n = leadingDigits(fraction)
			if n == 0 {
				return 0, fmt.Errorf("%q is not a %s: no digit after the point", ib.Clip(s), what)
			}
			after = fraction[n:]
		}
		factor := uint64(1e6)
		i, r := cutSuffix(strings.TrimLeft(after, blanks), spanSuffixes)
		if i >= 0 {
			factor = spanSuffixes[i].factor
		} else if r == after && r != "" {
			return 0, fmt.Errorf("%q is not a %s: unknown unit %q", ib.Clip(s), what, wordOf(r))
		}
		rest = r
		if !add(v, factor) {
			return 0, large
		}
		for k, digit := 0, factor/10; k < n; k, digit = k+1, digit/10 {
			if digit > 0 && !add(uint64(fraction[k]-'0'), digit) {
				return 0, large
			}
		}
	}
	return sum, nil
}

// spanTo is a parser for spans from lo to hi.
func spanTo(lo, hi time.Duration) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := parseSpan(s)
		if err == nil && (d < lo || d > hi) {
			err = fmt.Errorf("%q is not from %s to %s", ib.Clip(s), formatSpan(lo), formatSpan(hi))
		}
		return d, err
	}
}

// formatSpan prints a span as a unit file has it.
func formatSpan(d time.Duration) string {
	if d == maxSpan {
		return "infinity"
	}
	if d == 0 {
		return "0"
	}
	var out []string
	for _, u := range []struct {
		d time.Duration
		s string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}} {
		if n := d / u.d; n > 0 {
			out = append(out, fmt.Sprintf("%d%s", n, u.s))
			d -= n * u.d
		}
	}
	return strings.Join(out, " ")
}

// parseUint reads a number as systemd's safe_atou does, decimal, octal with 0 or
// 0o, or with 0x or 0b, between lo and hi.
func parseUint(s string, lo, hi uint64) (uint64, error) {
	t := strings.TrimLeft(s, blanks)
	t, minus := strings.CutPrefix(t, "-")
	if !minus {
		t = strings.TrimPrefix(t, "+")
	}
	v, err := strconv.ParseUint(t, 0, 64)
	// The C library knows a sign before 0x, but systemd none before its 0o and 0b.
	signed := t != strings.TrimLeft(s, blanks)
	if strings.Contains(s, "_") || signed && len(t) > 1 && strings.IndexByte("oObB", t[1]) >= 0 || err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%q is not a number from %d to %d", ib.Clip(s), lo, hi)
	}
	if err != nil || v < lo || v > hi || minus && v > 0 {
		return 0, fmt.Errorf("%q is not from %d to %d", ib.Clip(s), lo, hi)
	}
	return v, nil
}

// number is a parser for numbers of one range.
func number[T ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64](lo, hi uint64) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := parseUint(s, lo, hi)
		return T(v), err
	}
}

// minMTU is the smallest MTU in bytes that IPv4 works with (RFC 791).
const minMTU = 68

func parseMTUBytes(s string) (int, error) {
	v, err := parseSize(s)
	if err != nil {
		return 0, err
	}
	if v < minMTU || v > math.MaxInt32 {
		return 0, fmt.Errorf("%q is not an MTU from %d to %d bytes", ib.Clip(s), minMTU, math.MaxInt32)
	}
	return int(v), nil
}

func parseMTU(s string) (MTU, error) {
	if s == "max" {
		return MTU{Max: true}, nil
	}
	n, err := parseMTUBytes(s)
	if err != nil && strings.EqualFold(s, "max") {
		return MTU{}, fmt.Errorf("%q must be written max", ib.Clip(s))
	}
	return MTU{Bytes: n}, err
}

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
		return bad(fmt.Sprintf("%d characters, %d are possible", len(s), most))
	case s == "." || s == ".." || s == "all" || s == "default":
		return bad("it is reserved")
	}
	numeric := true
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || c == '/' || c == ':' || c == '%' {
			return bad(fmt.Sprintf("character %q is not possible", c))
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

// parsePrefix reads "ADDRESS[/LENGTH]"; without a length it is a single address
// and bare is true.
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
			return p, false, fmt.Errorf("%q has the prefix length %q, possible is 0 to %d", ib.Clip(s), ib.Clip(length), bits)
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
		return netip.Addr{}, fmt.Errorf("%q asks for a gateway learned by systemd-networkd's own clients, which this daemon does not run; write the address, or leave the IP part to systemd-networkd", s)
	}
	a, err := parseAddr(s)
	if err == nil && a.IsUnspecified() {
		return a, fmt.Errorf("%q is no gateway", s)
	}
	if err == nil && a.IsMulticast() {
		return a, fmt.Errorf("%q is a multicast address, no gateway", s)
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
		return o, fmt.Errorf("%q begins above its end; the order is %s", ib.Clip(s), strings.Join(wordList(operWords), ", "))
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

// enum reads one of the words.
func enum[T comparable](ws []word[T]) func(string) (T, error) {
	return func(s string) (T, error) { return parseWord(ws, s) }
}

func parseScope(s string) (Scope, error) {
	if v, err := strconv.ParseUint(s, 0, 8); err == nil {
		return Scope(v), nil
	}
	v, err := parseWord(scopeWords, s)
	if err != nil {
		return 0, fmt.Errorf("%w, nor a number from 0 to 255", err)
	}
	return v, nil
}

var tableWords = []word[uint32]{{TableDefault, "default"}, {TableMain, "main"}, {TableLocal, "local"}}

func parseTable(s string) (uint32, error) {
	if v, err := parseWord(tableWords, s); err == nil {
		return v, nil
	}
	v, err := parseUint(s, 1, math.MaxUint32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a routing table: default, main, local, or a number from 1 to %d", ib.Clip(s), uint32(math.MaxUint32))
	}
	return uint32(v), nil
}

var routeProtocolWords = []word[uint8]{{2, "kernel"}, {3, "boot"}, {4, "static"}, {9, "ra"}, {16, "dhcp"}}

func parseRouteProtocol(s string) (uint8, error) {
	if v, err := strconv.ParseUint(s, 0, 8); err == nil {
		return uint8(v), nil
	}
	v, err := parseWord(routeProtocolWords, s)
	if err != nil {
		return 0, fmt.Errorf("%w, nor a number from 0 to 255", err)
	}
	return v, nil
}

var ipProtocolWords = []word[uint8]{
	{1, "icmp"}, {2, "igmp"}, {4, "ipip"}, {6, "tcp"}, {17, "udp"}, {33, "dccp"}, {41, "ipv6"}, {47, "gre"}, {50, "esp"},
	{51, "ah"}, {58, "ipv6-icmp"}, {58, "icmpv6"}, {89, "ospf"}, {103, "pim"}, {112, "vrrp"}, {115, "l2tp"}, {132, "sctp"}, {136, "udplite"},
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

func parseMark(s string) (Mark, error) {
	v, m, masked := strings.Cut(s, "/")
	n, err := parseUint(v, 0, math.MaxUint32)
	if err != nil {
		return Mark{}, err
	}
	out := Mark{uint32(n), math.MaxUint32}
	if masked {
		k, err := parseUint(m, 1, math.MaxUint32)
		if err != nil {
			return Mark{}, fmt.Errorf("mask %w", err)
		}
		out.Mask = uint32(k)
	}
	return out, nil
}

// parseRange reads "N" or "N-M".
func parseRange(s string, lo, hi uint64) (a, b uint64, err error) {
	first, last, ranged := strings.Cut(s, "-")
	if a, err = parseUint(strings.TrimSpace(first), lo, hi); err != nil {
		return 0, 0, err
	}
	b = a
	if ranged {
		if b, err = parseUint(strings.TrimSpace(last), lo, hi); err != nil {
			return 0, 0, err
		}
	}
	if a > b {
		return 0, 0, fmt.Errorf("range %q begins above its end", ib.Clip(s))
	}
	return a, b, nil
}

func parsePortRange(s string) (PortRange, error) {
	a, b, err := parseRange(s, 1, 65535)
	return PortRange{uint16(a), uint16(b)}, err
}

func parseUIDRange(s string) (UIDRange, error) {
	if s == "root" {
		return UIDRange{}, nil
	}
	a, b, err := parseRange(s, 0, math.MaxUint32-1)
	if err != nil {
		return UIDRange{}, fmt.Errorf("%w; write the user's number or a range of numbers (id -u NAME prints it)", err)
	}
	return UIDRange{uint32(a), uint32(b)}, nil
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
				return bad("the port stands before %INTERFACE")
			}
			return bad("the interface name is not possible")
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
			return bad("an IPv6 address stands in the brackets")
		}
	} else if strings.Count(rest, ":") == 1 {
		host, port, _ = strings.Cut(rest, ":")
	}
	a, err := parseAddr(host)
	if err != nil {
		return bad(err.Error())
	}
	if a.IsUnspecified() || a.IsMulticast() {
		return bad("no server can have this address")
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
			if r <= ' ' || r == 0x7f || r == utf8.RuneError || r < 0x80 && !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
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
			return Domain{}, fmt.Errorf("%q: the root is no search domain; write ~. to route all names", ib.Clip(s))
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

func parseGUID(s string) (ib.GUID, error) {
	g, err := ib.ParseGUID(s)
	if err == nil && g.IsZero() {
		return g, errors.New("the GUID 0 names nothing")
	}
	if err != nil {
		err = fmt.Errorf("%w; a GUID has 16 hexadecimal digits: 0x0002c903000abcdf or 0002:c903:000a:bcdf", err)
	}
	return g, err
}

func parsePKey(s string) (ib.PKey, error) {
	k, err := ib.ParsePKey(s)
	if err == nil && !k.IsValid() {
		return k, fmt.Errorf("P_Key %s names no partition (0x0000 and 0x8000 are invalid)", k)
	}
	return k, err
}

func parseVFGUID(s string) (VFGUID, error) {
	if s == "auto" {
		return VFGUID{Auto: true}, nil
	}
	g, err := parseGUID(s)
	if err != nil {
		return VFGUID{}, fmt.Errorf("%w; or write auto", err)
	}
	return VFGUID{GUID: g}, nil
}

// parseSubnetPrefix reads 0xfe80000000000000, fe80:0000:0000:0000 or fe80::/64.
func parseSubnetPrefix(s string) (uint64, error) {
	t := strings.TrimSuffix(s, "/64")
	if g, err := ib.ParseGUID(t); err == nil {
		return checkSubnetPrefix(uint64(g), s)
	}
	g, err := ib.ParseGID(t)
	if err != nil || g.GUID() != 0 {
		return 0, fmt.Errorf("%q is not a subnet prefix of 64 bits (0xfe80000000000000, fe80:0000:0000:0000 or fe80::/64)", ib.Clip(s))
	}
	return checkSubnetPrefix(g.Prefix(), s)
}

func checkSubnetPrefix(p uint64, s string) (uint64, error) {
	if p == 0 || p>>56 == 0xff {
		return 0, fmt.Errorf("%q cannot be a subnet prefix", ib.Clip(s))
	}
	return p, nil
}

func parseAbsPath(s string) (string, error) {
	if !strings.HasPrefix(s, "/") || len(s) >= 4096 {
		return "", fmt.Errorf("%q is not an absolute path", ib.Clip(s))
	}
	for _, e := range strings.Split(s, "/") {
		if e == ".." {
			return "", fmt.Errorf("%q goes up with \"..\"", ib.Clip(s))
		}
	}
	return s, nil
}

// parseRoutingEngines reads a comma-separated list of engine names.
func parseRoutingEngines(s string) (string, error) {
	var out []string
	for _, e := range strings.Split(s, ",") {
		e = strings.TrimSpace(e)
		if e == "" || strings.Trim(e, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
			return "", fmt.Errorf("%q is not a list of routing engines such as minhop, updn or ftree", ib.Clip(s))
		}
		out = append(out, e)
	}
	return strings.Join(out, ","), nil
}

func parseModule(s string) (string, error) {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || len(s) > 64 || s == "" {
		return "", fmt.Errorf("%q is not a kernel module's name", ib.Clip(s))
	}
	return s, nil
}

func parseDeviceName(s string) (string, error) {
	if len(s) > 63 || s == "" || s[0] == '-' || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" || s == "." || s == ".." {
		return "", fmt.Errorf("%q is not an RDMA device name", ib.Clip(s))
	}
	return s, nil
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

// parsePriorityMap reads "from:to".
func parsePriorityMap(maxFrom, maxTo uint64) func(string) (PriorityMap, error) {
	return func(s string) (PriorityMap, error) {
		from, to, ok := strings.Cut(s, ":")
		if !ok {
			return PriorityMap{}, fmt.Errorf("%q is not FROM:TO", ib.Clip(s))
		}
		a, err := parseUint(from, 0, maxFrom)
		if err != nil {
			return PriorityMap{}, err
		}
		b, err := parseUint(to, 0, maxTo)
		return PriorityMap{uint8(a), uint8(b)}, err
	}
}

// String prints the item as a unit file has it.
func (m PriorityMap) String() string { return fmt.Sprintf("%d:%d", m.From, m.To) }

func parseETS(s string) (ETSClass, error) {
	class, share, ok := strings.Cut(s, ":")
	if !ok {
		return ETSClass{}, fmt.Errorf("%q is not CLASS:strict or CLASS:PERCENT", ib.Clip(s))
	}
	n, err := parseUint(class, 0, 7)
	if err != nil {
		return ETSClass{}, fmt.Errorf("traffic class %w", err)
	}
	if share == "strict" {
		return ETSClass{Class: uint8(n), Strict: true}, nil
	}
	p, err := parseUint(strings.TrimSuffix(share, "%"), 0, 100)
	if err != nil {
		return ETSClass{}, fmt.Errorf("%q is neither strict nor a share from 0 to 100 percent", ib.Clip(share))
	}
	return ETSClass{Class: uint8(n), Percent: uint8(p)}, nil
}

// String prints the item as a unit file has it.
func (e ETSClass) String() string {
	if e.Strict {
		return fmt.Sprintf("%d:strict", e.Class)
	}
	return fmt.Sprintf("%d:%d%%", e.Class, e.Percent)
}

func parseBufferSize(s string) (BufferSize, error) {
	buf, size, ok := strings.Cut(s, ":")
	if !ok {
		return BufferSize{}, fmt.Errorf("%q is not BUFFER:SIZE", ib.Clip(s))
	}
	n, err := parseUint(buf, 0, 7)
	if err != nil {
		return BufferSize{}, fmt.Errorf("buffer %w", err)
	}
	b, err := parseSize(size)
	if err == nil && b > math.MaxUint32 {
		err = fmt.Errorf("%q is too large", ib.Clip(size))
	}
	return BufferSize{Buffer: uint8(n), Bytes: uint32(b)}, err
}

// String prints the item as a unit file has it.
func (b BufferSize) String() string { return fmt.Sprintf("%d:%d", b.Buffer, b.Bytes) }

func parseQOSMap(s string) (QOSMap, error) {
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		return QOSMap{}, fmt.Errorf("%q is not FROM-TO", ib.Clip(s))
	}
	a, err := parseUint(from, 0, math.MaxUint32)
	if err != nil {
		return QOSMap{}, err
	}
	b, err := parseUint(to, 0, math.MaxUint32)
	return QOSMap{uint32(a), uint32(b)}, err
}

// String prints the item as a unit file has it.
func (m QOSMap) String() string { return fmt.Sprintf("%d-%d", m.From, m.To) }

// String prints the mark as a unit file has it.
func (m Mark) String() string {
	if m.Mask == math.MaxUint32 {
		return strconv.FormatUint(uint64(m.Value), 10)
	}
	return fmt.Sprintf("%d/%d", m.Value, m.Mask)
}

// String prints the range as a unit file has it.
func (r PortRange) String() string { return printRange(uint64(r.First), uint64(r.Last)) }

// String prints the range as a unit file has it.
func (r UIDRange) String() string { return printRange(uint64(r.First), uint64(r.Last)) }

func printRange(a, b uint64) string {
	if a == b {
		return strconv.FormatUint(a, 10)
	}
	return fmt.Sprintf("%d-%d", a, b)
}

// String prints the next hop as a unit file has it.
func (n NextHop) String() string {
	s := n.Gateway.String()
	if n.Interface != "" {
		s += "@" + n.Interface
	}
	return fmt.Sprintf("%s %d", s, n.Weight)
}

func parseMAC(s string) (ib.HWAddr, error) {
	a, err := ib.ParseHWAddr(s)
	if err == nil && a.Len() != 6 {
		return a, fmt.Errorf("%q has %d bytes, a MAC address has 6", ib.Clip(s), a.Len())
	}
	if err == nil && a.Bytes()[0]&1 != 0 {
		return a, fmt.Errorf("%q is a multicast address, which no function can have: the first byte must be even", ib.Clip(s))
	}
	return a, err
}
