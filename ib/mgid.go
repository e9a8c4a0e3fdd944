package ib

import "encoding/binary"

// Signatures of multicast GIDs, the 16 bits behind flags and scope: groups of IPv4 and
// of IPv6 (RFC 4391 section 4), and those whose GID a subnet administrator chose, as
// opensm does.
const (
	signatureIPv4     = 0x401b
	signatureIPv6     = 0x601b
	signatureAssigned = 0xa01b
)

// AssignedMGID is the multicast GID that a subnet administrator gives a group whose
// creator named none: the subnet prefix and a number make it unique.
func AssignedMGID(scope uint8, prefix uint64, number uint32) GID {
	g := GID{0: 0xff, 1: 0x10 | scope&0xf}
	binary.BigEndian.PutUint16(g[2:], signatureAssigned)
	binary.BigEndian.PutUint64(g[4:], prefix)
	binary.BigEndian.PutUint32(g[12:], number)
	return g
}

func (g GID) signature() uint16 { return binary.BigEndian.Uint16(g[2:]) }

// IsIP reports whether g is the group of an IPv4 or IPv6 address.
func (g GID) IsIP() bool { return g.signature() == signatureIPv4 || g.signature() == signatureIPv6 }

// IsAssigned reports whether g has the form of AssignedMGID.
func (g GID) IsAssigned() bool { return g.signature() == signatureAssigned }

// Flags are the four flags of a multicast GID; 1 is "transient", the others are reserved.
func (g GID) Flags() uint8 { return g[1] >> 4 }

// Scope is the scope of a multicast GID, 4 bits.
func (g GID) Scope() uint8 { return g[1] & 0xf }

// WithScope is g with another scope.
func (g GID) WithScope(s uint8) GID {
	g[1] = g[1]&0xf0 | s&0xf
	return g
}

// GroupPKey is the P_Key in the GID of a group of IP, as the members wrote it.
func (g GID) GroupPKey() PKey { return PKey(binary.BigEndian.Uint16(g[4:])) }

// WithGroupPKey is g with another P_Key.
func (g GID) WithGroupPKey(k PKey) GID {
	binary.BigEndian.PutUint16(g[4:], uint16(k))
	return g
}
