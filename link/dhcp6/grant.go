package dhcp6

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
)

// Bounds of what one lease may bring.
const (
	mostServers = 8
	// leastLifetime is the shortest lease that is taken, in seconds, and leastT1 the
	// shortest T1: shorter ones would have the client send without end.
	leastLifetime = 10
	leastT1       = 5
	// RFC 8415, section 7.6 and 21.23.
	defaultRefresh = 86400
	leastRefresh   = 600
	leastMaxRT     = time.Minute
	mostMaxRT      = 24 * time.Hour
)

// usable reports whether an address can be a host's.
func usable(a netip.Addr) bool { return a.Is6() && !a.Is4In6() && a.IsGlobalUnicast() }

// binding is the address that a message gives: the one that is wanted if it is among
// them, else the first. An address that cannot be used does not spoil the others: code and
// err are of the message, or of the last such address where no other is left.
func (m *message) binding(iaid uint32, want netip.Addr, now uint64) (l *link.Lease, code status, err error) {
	if code, err = m.opts.status(); err != nil || code != statusSuccess {
		return nil, code, err
	}
	ia, err := m.identity(iaid)
	if err != nil {
		return nil, 0, err
	}
	opts, err := decodeOptions(ia[12:])
	if err != nil {
		return nil, 0, err
	}
	if code, err = opts.status(); err != nil || code != statusSuccess {
		return nil, code, err
	}
	err = errors.New("no address")
	for _, o := range opts {
		if o.code != optIAAddr {
			continue
		}
		x, c, e := address(o.value)
		switch {
		case x == nil:
			code, err = c, e
		case l == nil || better(x, l, want):
			l = x
		}
	}
	if l == nil {
		return nil, code, err
	}
	l.Granted = now
	return l, 0, times(l, binary.BigEndian.Uint32(ia[4:]), binary.BigEndian.Uint32(ia[8:]))
}

// better reports whether an address is to be used in place of another: one that is not taken
// back, and of two the one that is wanted.
func better(x, than *link.Lease, want netip.Addr) bool {
	if (x.Lifetime == 0) != (than.Lifetime == 0) {
		return x.Lifetime != 0
	}
	return x.Address.Addr() == want
}

// identity is the IA_NA of this client.
func (m *message) identity(iaid uint32) (ia []byte, err error) {
	for _, o := range m.opts {
		if o.code != optIANA {
			continue
		}
		switch {
		case len(o.value) < 12:
			return nil, errors.New("an IA_NA of less than 12 bytes")
		case binary.BigEndian.Uint32(o.value) != iaid:
		case ia != nil:
			return nil, errors.New("two IA_NA with one IAID")
		default:
			ia = o.value
		}
	}
	if ia == nil {
		return nil, errors.New("no IA_NA of this client")
	}
	return ia, nil
}

// address reads an IA Address option. A valid lifetime of 0 takes an address back.
func address(v []byte) (*link.Lease, status, error) {
	if len(v) < 24 {
		return nil, 0, errors.New("an IA Address of less than 24 bytes")
	}
	opts, err := decodeOptions(v[24:])
	if err != nil {
		return nil, 0, err
	}
	a := netip.AddrFrom16([16]byte(v[:16]))
	l := &link.Lease{Address: netip.PrefixFrom(a, 128), Preferred: binary.BigEndian.Uint32(v[16:]), Lifetime: binary.BigEndian.Uint32(v[20:])}
	code, err := opts.status()
	switch {
	case err != nil || code != statusSuccess:
		return nil, code, err
	case !usable(a):
		return nil, 0, fmt.Errorf("%s is not an address of a host", a)
	case l.Preferred > l.Lifetime:
		return nil, 0, fmt.Errorf("%s is preferred for %d s and valid for %d s", a, l.Preferred, l.Lifetime)
	case l.Lifetime != 0 && l.Lifetime < leastLifetime:
		return nil, 0, fmt.Errorf("a lease of %d s, shorter than %d s", l.Lifetime, leastLifetime)
	}
	return l, 0, nil
}

// times sets when a lease is renewed. Where T1 and T2 are left to the client, or do not fit
// to the lifetimes, they are half and four fifths of the preferred lifetime.
func times(l *link.Lease, t1, t2 uint32) error {
	switch {
	case l.Lifetime == 0:
		return nil
	case t1 != 0 && t2 != 0 && t1 > t2:
		return fmt.Errorf("T1 is %d s, after T2 of %d s", t1, t2)
	case t1 < leastT1 || t2 < t1 || t2 >= l.Lifetime:
		n := l.Preferred
		if n < leastLifetime {
			n = l.Lifetime
		}
		if n == link.Forever {
			return nil // is never renewed
		}
		t1, t2 = n/2, uint32(uint64(n)*4/5)
	}
	l.Renew, l.Rebind = l.Granted+uint64(t1), l.Granted+uint64(t2)
	return nil
}

// information fills in what a message says beside the address.
func (m *message) information(l *link.Lease) {
	l.DNS = addresses(m.opts.get(optDNS), nil)
	l.NTP = addresses(m.opts.get(optSNTP), m.ntp())
	l.Search = dhcp.Domains(m.opts.get(optDomains))
}

// ntp are the servers of all options 56 that are addresses: RFC 5908 has one of each server.
func (m *message) ntp() (out []netip.Addr) {
	for _, o := range m.opts {
		if o.code != optNTP {
			continue
		}
		sub, _ := splitOptions(o.value) // none of one that is cut
		for _, x := range sub {
			if x.code == ntpServer {
				out = addresses(x.value, out)
			}
		}
	}
	return out
}

// addresses adds those of a list to others.
func addresses(v []byte, out []netip.Addr) []netip.Addr {
	for ; len(v) >= 16 && len(out) < mostServers; v = v[16:] {
		a := netip.AddrFrom16([16]byte(v))
		if (usable(a) || a.IsLinkLocalUnicast()) && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// refresh is for how many seconds information counts.
func (m *message) refresh() uint64 {
	n, ok := m.opts.seconds(optRefresh)
	if !ok {
		n = defaultRefresh
	}
	return uint64(max(n, leastRefresh))
}

// server is the DUID of a server in hexadecimal.
func (m *message) server() (string, error) {
	v := m.opts.get(optServerID)
	if len(v) < 3 || len(v) > longestID {
		return "", errors.New("no server identifier, or not of 3 to 130 bytes")
	}
	return hex.EncodeToString(v), nil
}

// fqdn is option 39 with the server in charge of the name service; a name without a
// domain is a partial one, which has no label of the root.
func fqdn(name string) []byte {
	b := dhcp.Labels([]byte{0x01}, name)
	if strings.Contains(name, ".") {
		b = append(b, 0)
	}
	return b
}
