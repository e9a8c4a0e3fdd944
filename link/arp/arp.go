// Package arp has the packets of ARP on links whose hardware addresses have 6 or 20
// bytes, and finds out by them whether an IPv4 address is another host's (RFC 5227). It
// neither sends nor receives.
package arp

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"ibnetworkd/ib"
)

// EtherType is that of ARP.
const EtherType = 0x0806

const etherIP = 0x0800

// Operations of ARP (RFC 826).
const (
	Request = 1
	Reply   = 2
)

// Packet is an ARP packet for IPv4 with hardware addresses of 6 or 20 bytes (RFC 4391).
type Packet struct {
	Op       uint16
	From, To ib.HWAddr // To may be zero
	Sender   netip.Addr
	Target   netip.Addr
}

// Encode gives the packet for a link of a hardware type (ARPHRD).
func (p Packet) Encode(htype uint16) []byte {
	n := p.From.Len()
	b := make([]byte, 8+2*(n+4))
	binary.BigEndian.PutUint16(b, htype)
	binary.BigEndian.PutUint16(b[2:], etherIP)
	b[4], b[5] = byte(n), 4
	binary.BigEndian.PutUint16(b[6:], p.Op)
	copy(b[8:], p.From.Bytes())
	copy(b[8+n:], p.Sender.AsSlice())
	copy(b[12+n:], p.To.Bytes())
	copy(b[12+2*n:], p.Target.AsSlice())
	return b
}

// Parse reads a request or a reply of a link with hardware addresses of n bytes. What
// follows it is padding.
func Parse(b []byte, n int) (p Packet, ok bool) {
	if n < 0 || n > 255 || len(b) < 8+2*(n+4) || binary.BigEndian.Uint16(b[2:]) != etherIP || int(b[4]) != n || b[5] != 4 {
		return p, false
	}
	from, err := ib.HWAddrFrom(b[8 : 8+n])
	if err != nil {
		return p, false
	}
	to, err := ib.HWAddrFrom(b[12+n : 12+2*n])
	if err != nil {
		return p, false
	}
	p = Packet{Op: binary.BigEndian.Uint16(b[6:]), From: from, To: to, Sender: netip.AddrFrom4([4]byte(b[8+n:])),
		Target: netip.AddrFrom4([4]byte(b[12+2*n:]))}
	return p, p.Op == Request || p.Op == Reply
}

// SameHost reports whether two hardware addresses are one interface's. Of IPoIB the
// flags of the first byte do not count.
func SameHost(a, b ib.HWAddr) bool {
	if a == b {
		return true
	}
	return a.IsIPoIB() && b.IsIPoIB() && bytes.Equal(a.Bytes()[1:], b.Bytes()[1:])
}
