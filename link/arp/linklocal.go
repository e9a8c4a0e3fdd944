package arp

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"ibnetworkd/ib"
)

// MaxConflicts is how many link-local addresses are tried one after the other, before there
// is RateLimitInterval between them (RFC 3927, section 9).
const MaxConflicts = 10

// LinkLocal is the IPv4 link-local address to try on a link after n conflicts, from
// 169.254.1.0 to 169.254.254.255 (RFC 3927, section 2.1). It depends on the port GUID of an
// IPoIB link and the MAC address of another, so that a host has the same one again.
func LinkLocal(a ib.HWAddr, n int) netip.Addr {
	id := a.Bytes()
	if a.IsIPoIB() {
		id = id[12:] // the queue pair changes when the driver restarts
	}
	h := fnv.New64a()
	_, _ = h.Write(binary.BigEndian.AppendUint64(id, uint64(n)))
	v := h.Sum64() % (254 << 8)
	return netip.AddrFrom4([4]byte{169, 254, byte(1 + v>>8), byte(v)})
}
