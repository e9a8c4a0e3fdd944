package dhcp

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// EtherIP is the EtherType of DHCP.
const EtherIP = 0x0800

const (
	serverPort, clientPort = 67, 68
	ipHeader, udpHeader    = 20, 8
	protoUDP               = 17
)

var limitedBroadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// Checksum is the internet checksum of b, beginning with sum.
func Checksum(sum uint32, b []byte) uint16 {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// pseudo is the sum of the pseudo header of UDP over IPv4; addrs are both addresses.
func pseudo(addrs []byte, length int) uint32 {
	return uint32(^Checksum(0, addrs)) + protoUDP + uint32(length)
}

// datagram is an IPv4 packet from a client's port to a server's.
func datagram(src, dst netip.Addr, payload []byte) []byte {
	b := make([]byte, ipHeader+udpHeader, ipHeader+udpHeader+len(payload))
	b[0], b[1], b[8], b[9] = 0x45, 0xc0, 64, protoUDP // CS6, as other clients send
	binary.BigEndian.PutUint16(b[2:], uint16(cap(b)))
	copy(b[12:], src.AsSlice())
	copy(b[16:], dst.AsSlice())
	binary.BigEndian.PutUint16(b[10:], Checksum(0, b[:ipHeader]))
	udp := b[ipHeader:]
	binary.BigEndian.PutUint16(udp, clientPort)
	binary.BigEndian.PutUint16(udp[2:], serverPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(udpHeader+len(payload)))
	b = append(b, payload...)
	sum := Checksum(pseudo(b[12:20], udpHeader+len(payload)), b[ipHeader:])
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[ipHeader+6:], sum)
	return b
}

var (
	errPacket   = errors.New("not an IPv4 packet of UDP to port 68")
	errChecksum = errors.New("the checksum is wrong")
)

// parseDatagram gives the payload of a UDP packet to a client's port. checked says that
// the kernel vouches for the checksum of UDP.
func parseDatagram(b []byte, checked bool) ([]byte, error) {
	if len(b) < ipHeader || b[0]>>4 != 4 {
		return nil, errPacket
	}
	head, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if head < ipHeader || total < head+udpHeader || total > len(b) || b[9] != protoUDP ||
		binary.BigEndian.Uint16(b[6:])&0x3fff != 0 { // a fragment
		return nil, errPacket
	}
	if Checksum(0, b[:head]) != 0 {
		return nil, errChecksum
	}
	udp := b[head:total]
	n := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[2:]) != clientPort || n < udpHeader || n > len(udp) {
		return nil, errPacket
	}
	udp = udp[:n]
	if binary.BigEndian.Uint16(udp[6:]) != 0 && !checked && Checksum(pseudo(b[12:20], n), udp) != 0 {
		return nil, errChecksum
	}
	return udp[udpHeader:], nil
}
