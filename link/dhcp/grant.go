package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"ibnetworkd/link"
)

// Bounds of what one lease may bring.
const (
	mostServers = 8
	mostRoutes  = 64
	mostDomains = 16
	// leastLifetime is the shortest lease that is taken, in seconds: a shorter one
	// would have the client send without end.
	leastLifetime = 10
)

// grant reads the lease of an offer or an acknowledgement. now is in seconds since boot.
func (m *message) grant(now uint64) (*link.Lease, error) {
	l := &link.Lease{Server: m.addr(optServer), Granted: now}
	switch {
	case !usable(l.Server):
		return nil, errors.New("no server identifier, or not one address")
	case !usable(m.yiaddr):
		return nil, fmt.Errorf("%s is not an address of a host", m.yiaddr)
	case m.yiaddr == l.Server:
		return nil, fmt.Errorf("the server offers its own address %s", m.yiaddr)
	}
	bits, err := m.prefixLen()
	if err != nil {
		return nil, err
	}
	l.Address = netip.PrefixFrom(m.yiaddr, bits)
	if bits < 31 && (l.Address.Masked().Addr() == m.yiaddr || lastOf(l.Address) == m.yiaddr) {
		return nil, fmt.Errorf("%s is the address of a network or its broadcast address", l.Address)
	}
	if err := m.times(l); err != nil {
		return nil, err
	}
	l.DNS, l.NTP = m.servers(optDNS), m.servers(optNTP)
	if v := m.options[optMTU]; len(v) == 2 {
		l.MTU = int(binary.BigEndian.Uint16(v))
	}
	if d := strings.TrimRight(string(m.options[optDomain]), "\x00."); ValidName(d) {
		l.Domain = d
	}
	const most = 64 // HOST_NAME_MAX
	if n := strings.TrimRight(string(m.options[OptionHostname]), "\x00."); ValidName(n) && len(n) <= most && n != "localhost" {
		l.Hostname = n
	}
	l.Search = Domains(m.options[optSearch])
	m.routes(l)
	return l, nil
}

// usable reports whether an address can be a host's.
func usable(a netip.Addr) bool {
	return a.Is4() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() && a.As4()[0] != 0 && a.As4()[0] < 224
}

// prefixLen is the length of the subnet mask. Without one it is the class's, as in
// other clients.
func (m *message) prefixLen() (int, error) {
	v, ok := m.options[optMask]
	if !ok {
		switch a := m.yiaddr.As4()[0]; {
		case a < 128:
			return 8, nil
		case a < 192:
			return 16, nil
		}
		return 24, nil
	}
	if len(v) != 4 {
		return 0, errors.New("the subnet mask is not 4 bytes")
	}
	mask := binary.BigEndian.Uint32(v)
	n := 0
	for ; n < 32 && mask&(1<<(31-n)) != 0; n++ {
	}
	if n == 0 || mask != uint32(math.MaxUint32)<<(32-n) {
		return 0, fmt.Errorf("the subnet mask %s has holes or is empty", addrAt(v, 0))
	}
	return n, nil
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	n := binary.BigEndian.Uint32(b[:]) | (uint32(1)<<(32-p.Bits()) - 1)
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// times reads the lifetime with T1 and T2. Where those contradict each other the
// proportions of RFC 2131, section 4.4.5, are used.
func (m *message) times(l *link.Lease) error {
	seconds := func(code byte) (uint32, bool) {
		v := m.options[code]
		if len(v) != 4 {
			return 0, false
		}
		return binary.BigEndian.Uint32(v), true
	}
	n, ok := seconds(optLifetime)
	switch {
	case !ok:
		return errors.New("no lease time")
	case n < leastLifetime:
		return fmt.Errorf("a lease of %d s, shorter than %d s", n, leastLifetime)
	}
	if l.Lifetime = n; n == link.Forever {
		return nil
	}
	t1, ok1 := seconds(optT1)
	t2, ok2 := seconds(optT2)
	if !ok2 {
		t2 = uint32(uint64(n) * 7 / 8)
	}
	if !ok1 {
		t1 = n / 2
	}
	if t1 == 0 || t1 >= t2 || t2 >= n {
		t1, t2 = n/2, uint32(uint64(n)*7/8)
	}
	l.Renew, l.Rebind = l.Granted+uint64(t1), l.Granted+uint64(t2)
	return nil
}

func (m *message) servers(code byte) (out []netip.Addr) {
	v := m.options[code]
	for ; len(v) >= 4 && len(out) < mostServers; v = v[4:] {
		if a := addrAt(v, 0); usable(a) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// routes reads option 121, without which options 33 and 3 count (RFC 3442).
func (m *message) routes(l *link.Lease) {
	if v := m.options[optRoutes]; len(v) > 0 {
		if l.Routes = classless(v); l.Routes != nil {
			return
		}
	}
	for v := m.options[optStaticRoute]; len(v) >= 8 && len(l.Routes) < mostRoutes; v = v[8:] {
		dst, via := addrAt(v, 0), addrAt(v, 4)
		if usable(dst) && usable(via) {
			l.Routes = append(l.Routes, link.LeaseRoute{Dst: netip.PrefixFrom(dst, 32), Gateway: via})
		}
	}
	if v := m.servers(optRouter); len(v) > 0 && v[0] != l.Address.Addr() {
		l.Gateway = v[0]
	}
}

// classless reads the routes of option 121, nil if they are malformed.
func classless(v []byte) (out []link.LeaseRoute) {
	for len(v) > 0 {
		bits := int(v[0])
		n := (bits + 7) / 8
		if bits > 32 || len(v) < 1+n+4 || len(out) == mostRoutes {
			return nil
		}
		var dst [4]byte
		copy(dst[:], v[1:1+n])
		via := addrAt(v, 1+n)
		if !usable(via) && !via.IsUnspecified() {
			return nil
		}
		out = append(out, link.LeaseRoute{Dst: netip.PrefixFrom(netip.AddrFrom4(dst), bits).Masked(), Gateway: via})
		v = v[1+n+4:]
	}
	return out
}

// Domains reads a list of names with compression (RFC 3397), nil if it is malformed.
func Domains(v []byte) (out []string) {
	for at := 0; at < len(v); {
		name, next, ok := domainAt(v, at)
		if !ok || len(out) == mostDomains {
			return nil
		}
		if ValidName(name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
		at = next
	}
	return out
}

// domainAt reads one name; next is the place after it. Pointers lead backwards only, so
// that the reading ends.
func domainAt(v []byte, at int) (name string, next int, ok bool) {
	next = -1
	for limit := at; at < len(v); {
		n := int(v[at])
		switch {
		case n == 0:
			if next < 0 {
				next = at + 1
			}
			return name, next, true
		case n&0xc0 == 0xc0:
			if at+1 >= len(v) {
				return "", 0, false
			}
			to := n&0x3f<<8 | int(v[at+1])
			if to >= limit {
				return "", 0, false
			}
			if next < 0 {
				next = at + 2
			}
			at, limit = to, to
		case n > 63 || at+1+n > len(v) || len(name)+1+n > 253:
			return "", 0, false
		default:
			if name != "" {
				name += "."
			}
			name += string(v[at+1 : at+1+n])
			at += 1 + n
		}
	}
	return "", 0, false
}

// ValidName reports whether a text of a server may go to systemd-resolved as a domain.
func ValidName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}
