package ib

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// GUID is an EUI-64 that names a node, a port or a system image (IBTA 4.1.1).
// The zero GUID names nothing; a virtual function without a GUID shows it.
type GUID uint64

// ParseGUID parses the forms that the tools of the field print: 0x0002c903000abcde
// (ibstat), 0002:c903:000a:bcde (sysfs), 00:02:c9:03:00:0a:bc:de or
// 00-02-c9-03-00-0a-bc-de (ip link), or 16 hexadecimal digits without a prefix.
// With the prefix 0x up to 16 digits are accepted; the other forms must be complete.
func ParseGUID(s string) (GUID, error) {
	if h, ok := cutHexPrefix(s); ok {
		if len(h) == 0 || len(h) > 16 {
			return 0, fmt.Errorf("GUID %q must have 1 to 16 hexadecimal digits after 0x", Clip(s))
		}
		v, err := strconv.ParseUint(h, 16, 64)
		if err != nil {
			return 0, fmt.Errorf("GUID %q has a character that is not a hexadecimal digit", Clip(s))
		}
		return GUID(v), nil
	}
	var b [8]byte
	n, err := parseHexBytes(s, b[:])
	if err != nil {
		return 0, fmt.Errorf("GUID %q: %w", Clip(s), err)
	}
	if n != 8 {
		return 0, fmt.Errorf("GUID %q has %d bytes, a GUID has 8", Clip(s), n)
	}
	return GUID(binary.BigEndian.Uint64(b[:])), nil
}

// String prints the GUID as ibstat does: 0x and 16 digits.
func (g GUID) String() string { return fmt.Sprintf("0x%016x", uint64(g)) }

// Colons prints the GUID as sysfs does: four groups of four digits.
func (g GUID) Colons() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// Bytes is the GUID in wire order (big-endian).
func (g GUID) Bytes() (b [8]byte) {
	binary.BigEndian.PutUint64(b[:], uint64(g))
	return b
}

// IsZero reports whether g names nothing.
func (g GUID) IsZero() bool { return g == 0 }

// MarshalText implements encoding.TextMarshaler with String's form.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseGUID.
func (g *GUID) UnmarshalText(b []byte) (err error) {
	*g, err = ParseGUID(string(b))
	return err
}

// GID is a 128-bit port identifier: a subnet prefix and a GUID, or a multicast
// group, in wire order (IBTA 4.1.1). It has the form of an IPv6 address.
type GID [16]byte

// DefaultPrefix is the subnet prefix of a subnet that was given none,
// fe80::/64 (IBTA 4.1.1).
const DefaultPrefix uint64 = 0xfe80000000000000

// MakeGID joins a subnet prefix and an interface identifier.
func MakeGID(prefix uint64, guid GUID) (g GID) {
	binary.BigEndian.PutUint64(g[:8], prefix)
	binary.BigEndian.PutUint64(g[8:], uint64(guid))
	return g
}

// ParseGID reads a GID in any form of an IPv6 address without a zone.
func ParseGID(s string) (GID, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || !a.Is6() || a.Zone() != "" {
		return GID{}, fmt.Errorf("GID %q is not of the form of an IPv6 address", Clip(s))
	}
	return GID(a.As16()), nil
}

// Prefix is the subnet prefix, the first 64 bits.
func (g GID) Prefix() uint64 { return binary.BigEndian.Uint64(g[:8]) }

// GUID is the interface identifier, the last 64 bits.
func (g GID) GUID() GUID { return GUID(binary.BigEndian.Uint64(g[8:])) }

// IsMulticast reports whether g names a multicast group (ff00::/8).
func (g GID) IsMulticast() bool { return g[0] == 0xff }

// IsZero reports whether g is the unspecified GID.
func (g GID) IsZero() bool { return g == GID{} }

// String formats the GID as sysfs and saquery do: all eight groups, with leading
// zeros, so that columns line up.
func (g GID) String() string {
	var b strings.Builder
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x%02x", g[i], g[i+1])
	}
	return b.String()
}

// MarshalText implements encoding.TextMarshaler with String's form.
func (g GID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseGID.
func (g *GID) UnmarshalText(b []byte) (err error) {
	*g, err = ParseGID(string(b))
	return err
}

// HWAddr is a link-layer address of up to 20 bytes: 6 for Ethernet, 8 for a
// bare GUID, 20 for IPoIB (RFC 4391 section 9.1.1: a flag byte, a 24-bit QPN, a
// GID). It is comparable; the zero value is no address.
type HWAddr struct {
	n uint8
	b [20]byte
}

// HWAddrFrom copies b, whose length must be 6, 8 or 20.
func HWAddrFrom(b []byte) (HWAddr, error) {
	switch len(b) {
	case 6, 8, 20:
		a := HWAddr{n: uint8(len(b))}
		copy(a.b[:], b)
		return a, nil
	}
	return HWAddr{}, fmt.Errorf("hardware address has %d bytes; 6 (Ethernet), 8 (GUID) or 20 (IPoIB) are possible", len(b))
}

// ParseHWAddr reads 6, 8 or 20 hexadecimal bytes with colons or hyphens
// between them, or groups of four digits with dots or colons.
func ParseHWAddr(s string) (HWAddr, error) {
	var b [20]byte
	n, err := parseHexBytes(s, b[:])
	if err != nil {
		return HWAddr{}, fmt.Errorf("hardware address %q: %w", Clip(s), err)
	}
	a, err := HWAddrFrom(b[:n])
	if err != nil {
		return HWAddr{}, fmt.Errorf("hardware address %q: %w", Clip(s), err)
	}
	return a, nil
}

// MustParseHWAddr is ParseHWAddr for constants: it panics if s is not an address.
func MustParseHWAddr(s string) HWAddr {
	a, err := ParseHWAddr(s)
	if err != nil {
		panic(err)
	}
	return a
}

// Len is the number of bytes: 0, 6, 8 or 20.
func (a HWAddr) Len() int { return int(a.n) }

// IsValid reports whether a holds an address.
func (a HWAddr) IsValid() bool { return a.n != 0 }

// Bytes is a copy in wire order, nil for no address.
func (a HWAddr) Bytes() []byte {
	if a.n == 0 {
		return nil
	}
	return append([]byte(nil), a.b[:a.n]...)
}

// IsIPoIB reports whether a has the 20 bytes of RFC 4391.
func (a HWAddr) IsIPoIB() bool { return a.n == 20 }

// SupportsConnected reports whether the IPoIB address offers connected mode:
// the RC flag, bit 0x80 of the first byte (RFC 4755 section 3.1; the kernel's
// IPOIB_CM_SUPPORTED in drivers/infiniband/ulp/ipoib/ipoib.h).
func (a HWAddr) SupportsConnected() bool { return a.n == 20 && a.b[0]&0x80 != 0 }

// QPN is the queue pair number in an IPoIB address; it changes whenever the
// interface is re-initialised.
func (a HWAddr) QPN() uint32 {
	return uint32(a.b[1])<<16 | uint32(a.b[2])<<8 | uint32(a.b[3])
}

// GID is the port GID in an IPoIB address.
func (a HWAddr) GID() (g GID) {
	if a.n == 20 {
		copy(g[:], a.b[4:])
	}
	return g
}

// GUID is the stable part of an IPoIB address (its last 8 bytes), or the whole
// of an 8-byte one, 0 otherwise.
func (a HWAddr) GUID() GUID {
	switch a.n {
	case 8:
		return GUID(binary.BigEndian.Uint64(a.b[:8]))
	case 20:
		return GUID(binary.BigEndian.Uint64(a.b[12:]))
	}
	return 0
}

// String prints the bytes in pairs with colons, as ip link does.
func (a HWAddr) String() string {
	var b strings.Builder
	for i := 0; i < int(a.n); i++ {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x", a.b[i])
	}
	return b.String()
}

// MarshalText implements encoding.TextMarshaler with String's form.
func (a HWAddr) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler; empty text is no address.
func (a *HWAddr) UnmarshalText(b []byte) (err error) {
	if len(b) == 0 {
		*a = HWAddr{}
		return nil
	}
	*a, err = ParseHWAddr(string(b))
	return err
}

func cutHexPrefix(s string) (string, bool) {
	if len(s) >= 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') {
		return s[2:], true
	}
	return s, false
}

// Clip keeps a value that is quoted in a message readable: its first line, 64 bytes
// at most.
func Clip(s string) string {
	const most = 64
	short, _, more := strings.Cut(s, "\n")
	if len(short) > most {
		short, more = strings.ToValidUTF8(short[:most], ""), true
	}
	if more {
		short += "..."
	}
	return short
}

// parseHexBytes reads pairs of digits with one kind of separator (: - .) after
// every byte or every second byte, or with none.
func parseHexBytes(s string, dst []byte) (int, error) {
	group, sep := 0, byte(0)
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == ':' || c == '-' || c == '.' {
			group, sep = i, c
			break
		}
	}
	if sep != 0 && group != 2 && group != 4 {
		return 0, fmt.Errorf("separator %q must follow two or four digits", string(sep))
	}
	n, digits := 0, 0
	var hi byte
	for i := 0; i < len(s); i++ {
		c := s[i]
		if sep != 0 && c == sep {
			if digits != group {
				return 0, fmt.Errorf("group of %d digits among groups of %d", digits, group)
			}
			digits = 0
			continue
		}
		v, ok := hexDigit(c)
		if !ok {
			return 0, fmt.Errorf("character %q is not a hexadecimal digit", string(rune(c)))
		}
		if digits++; sep != 0 && digits > group {
			return 0, fmt.Errorf("group of more than %d digits", group)
		}
		if digits%2 == 1 {
			hi = v
			continue
		}
		if n == len(dst) {
			return 0, fmt.Errorf("more than %d bytes", len(dst))
		}
		dst[n] = hi<<4 | v
		n++
	}
	if digits%2 == 1 || sep != 0 && digits != group {
		return 0, fmt.Errorf("last group has %d digits", digits)
	}
	if n == 0 {
		return 0, fmt.Errorf("empty")
	}
	return n, nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
