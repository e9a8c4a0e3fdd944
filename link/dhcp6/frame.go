package dhcp6

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/link/dhcp"
)

// EtherIPv6 is the EtherType of DHCPv6.
const EtherIPv6 = 0x86dd

const (
	serverPort, clientPort = 547, 546
	ipHeader, udpHeader    = 40, 8
	protoUDP               = 17
)

// servers is All_DHCP_Relay_Agents_and_Servers.
var servers = netip.MustParseAddr("ff02::1:2")

// HWServers is the hardware address of ff02::1:2 on a link: by RFC 4391, section 4, with the
// P_Key of the link's broadcast address, or by RFC 2464, section 7.
func HWServers(htype uint16, broadcast ib.HWAddr) []byte {
	ip := servers.As16()
	if htype != link.ARPHRDInfiniBand {
		return append([]byte{0x33, 0x33}, ip[12:]...)
	}
	b := broadcast.Bytes()
	if len(b) != 20 {
		return nil
	}
	// 0xff1S:601b:P_Key and the last 80 bits; the scope S is that of the broadcast group.
	out := append([]byte(nil), b[:6]...)
	return append(append(append(out, 0x60, 0x1b), b[8:10]...), ip[6:]...)
}

// pseudo is the sum of the pseudo header of UDP over IPv6; addrs are both addresses.
func pseudo(addrs []byte, length int) uint32 {
	return uint32(^dhcp.Checksum(0, addrs)) + protoUDP + uint32(length)
}

// datagram is an IPv6 packet from a client's port to the servers'.
func datagram(src netip.Addr, payload []byte) []byte {
	n := udpHeader + len(payload)
	b := make([]byte, ipHeader+udpHeader, ipHeader+n)
	b[0], b[1], b[6], b[7] = 0x6c, 0, protoUDP, 1 // CS6; ff02::1:2 is of this link only
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	copy(b[8:], src.AsSlice())
	copy(b[24:], servers.AsSlice())
	udp := b[ipHeader:]
	binary.BigEndian.PutUint16(udp, clientPort)
	binary.BigEndian.PutUint16(udp[2:], serverPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(n))
	b = append(b, payload...)
	sum := dhcp.Checksum(pseudo(b[8:40], n), b[ipHeader:])
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[ipHeader+6:], sum)
	return b
}

var (
	errPacket   = errors.New("not an IPv6 packet of UDP to port 546")
	errChecksum = errors.New("the checksum is wrong")
)

// parseDatagram gives the payload and the sender of a UDP packet to a client's port and
// address. checked says that the kernel vouches for the checksum of UDP.
func parseDatagram(b []byte, own netip.Addr, checked bool) ([]byte, netip.Addr, error) {
	none := netip.Addr{}
	if len(b) < ipHeader+udpHeader || b[0]>>4 != 6 || b[6] != protoUDP {
		return nil, none, errPacket
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	udp := b[ipHeader:]
	if n < udpHeader || n > len(udp) || int(binary.BigEndian.Uint16(udp[4:])) != n || binary.BigEndian.Uint16(udp[2:]) != clientPort {
		return nil, none, errPacket
	}
	udp = udp[:n]
	from, to := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	if to != own || !from.IsLinkLocalUnicast() && !usable(from) {
		return nil, none, errPacket
	}
	if !checked && dhcp.Checksum(pseudo(b[8:40], n), udp) != 0 {
		return nil, none, errChecksum
	}
	return udp[udpHeader:], from, nil
}
