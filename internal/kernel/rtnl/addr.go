package rtnl

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// Forever is the lifetime of an address that does not expire.
const Forever uint32 = 0xffffffff

// Address is an IP address of a link.
type Address struct {
	Index int
	// Prefix is the local address with the length of its network.
	Prefix netip.Prefix
	// Peer is the other end of a point-to-point address, zero for none.
	Peer netip.Addr
	// Broadcast is zero for none; IPv4 only.
	Broadcast netip.Addr
	Label     string // IPv4 only; "" lets the kernel take the link's name
	Scope     uint8  // RT_SCOPE_*
	Flags     uint32 // IFA_F_*
	// Valid and Preferred are seconds from now; Forever for no end. Zero in
	// both is Forever in a request.
	Valid, Preferred uint32
	Protocol         uint8  // IFAPROT_*, Linux 5.18 and later, IPv6 and IPv4
	Metric           uint32 // of the prefix route, 0 for the default
}

const ifaProto = 11 // IFA_PROTO, if_addr.h

func decodeAddress(b []byte, out *Address, in *interner) error {
	if len(b) < sizeIfAddr {
		return errShort
	}
	*out = Address{Flags: uint32(b[2]), Scope: b[3], Index: int(int32(ne.Uint32(b[4:]))), Valid: Forever, Preferred: Forever}
	bits := int(b[1])
	var local, address netip.Addr
	a := nl.ParseAttrs(b[sizeIfAddr:])
	for a.Next() {
		switch a.Type() {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(a.Bytes())
		case unix.IFA_ADDRESS:
			address, _ = netip.AddrFromSlice(a.Bytes())
		case unix.IFA_BROADCAST:
			out.Broadcast, _ = netip.AddrFromSlice(a.Bytes())
		case unix.IFA_LABEL:
			out.Label = in.str(a.Text())
		case unix.IFA_FLAGS:
			out.Flags = a.Uint32()
		case unix.IFA_CACHEINFO:
			if c := a.Bytes(); len(c) >= 8 {
				out.Preferred, out.Valid = ne.Uint32(c), ne.Uint32(c[4:])
			}
		case ifaProto:
			out.Protocol = a.Uint8()
		case unix.IFA_RT_PRIORITY:
			out.Metric = a.Uint32()
		}
	}
	if a.Err() != nil {
		return a.Err()
	}
	// IFA_LOCAL is the own address and IFA_ADDRESS the prefix or the peer; IPv6
	// sends IFA_LOCAL only if there is a peer.
	if !local.IsValid() {
		local = address
	}
	if address.IsValid() && address != local {
		out.Peer = address
	}
	if local.IsValid() && bits <= local.BitLen() {
		out.Prefix = netip.PrefixFrom(local, bits)
	}
	return nil
}
