// Package packet sends and receives frames of one protocol on a link by AF_PACKET
// sockets, also on links with hardware addresses of 20 bytes (IPoIB), for which the
// structures of x/sys are too short.
package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// EtherTypes that Open has filters for.
const (
	IP   = unix.ETH_P_IP
	IPv6 = unix.ETH_P_IPV6
	ARP  = unix.ETH_P_ARP
)

// MaxPacket bounds a packet that is read, in bytes.
const MaxPacket = 4096

// ErrOversized is a packet of more than MaxPacket bytes, which was not read whole.
var ErrOversized = errors.New("the packet is longer than any that is read")

// Kind is what a socket is for.
type Kind string

// The kinds of sockets.
const (
	ForDHCP   Kind = "dhcp"   // receives the IPv4 packets of a link to UDP port 68
	ForDHCPv6 Kind = "dhcpv6" // receives the IPv6 packets of a link to UDP port 546, without extension headers
	ForARP    Kind = "arp"    // receives the ARP packets of a link that are from an address or about it
	ForSend   Kind = "send"   // sends on any link, receives nothing
)

// Request is a socket that is asked for.
type Request struct {
	Kind  Kind       `json:"kind"`
	Index int        `json:"index,omitempty"` // of the link
	About netip.Addr `json:"about,omitzero"`
	HWLen int        `json:"hw_len,omitempty"` // length of the link's hardware addresses
}

// Conn receives packets of one link.
type Conn struct {
	f  *os.File
	rc syscall.RawConn
}

// filter is the program that passes what a socket is to receive.
func (r Request) filter() (etherType uint16, prog []unix.SockFilter, err error) {
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(code uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | code, K: k, Jt: yes, Jf: no}
	}
	const byteAt, halfAt, wordAt = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, unix.BPF_LD | unix.BPF_H | unix.BPF_ABS,
		unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	pass, drop := stmt(unix.BPF_RET|unix.BPF_K, 0xffff), stmt(unix.BPF_RET|unix.BPF_K, 0)
	switch {
	case r.Kind == ForDHCP && r.Index > 0:
		return IP, []unix.SockFilter{
			stmt(byteAt, 9), jump(unix.BPF_JEQ, unix.IPPROTO_UDP, 0, 6), // protocol
			stmt(halfAt, 6), jump(unix.BPF_JSET, 0x1fff, 4, 0), // fragment
			stmt(unix.BPF_LDX|unix.BPF_B|unix.BPF_MSH, 0), // X is the length of the header
			stmt(unix.BPF_LD|unix.BPF_H|unix.BPF_IND, 2), jump(unix.BPF_JEQ, 68, 0, 1), pass, drop,
		}, nil
	case r.Kind == ForDHCPv6 && r.Index > 0:
		return IPv6, []unix.SockFilter{
			stmt(byteAt, 6), jump(unix.BPF_JEQ, unix.IPPROTO_UDP, 0, 3), // next header
			stmt(halfAt, 42), jump(unix.BPF_JEQ, 546, 0, 1), pass, drop,
		}, nil
	case r.Kind == ForARP && r.Index > 0 && r.About.Is4() && (r.HWLen == 6 || r.HWLen == 20):
		ip := r.About.As4()
		k := binary.BigEndian.Uint32(ip[:])
		return ARP, []unix.SockFilter{
			stmt(wordAt, uint32(8+r.HWLen)), jump(unix.BPF_JEQ, k, 2, 0), // sender
			stmt(wordAt, uint32(12+2*r.HWLen)), jump(unix.BPF_JEQ, k, 0, 1), pass, drop, // target
		}, nil
	case r.Kind == ForSend:
		return 0, []unix.SockFilter{drop}, nil
	}
	return 0, nil, fmt.Errorf("packet socket: %w: %+v", unix.EINVAL, r)
}

func htons(v uint16) uint16 { return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v)) }

// open makes a socket, which receives nothing until its filter is in place.
func (r Request) open() (fd int, err error) {
	etherType, filter, err := r.filter()
	if err != nil {
		return -1, err
	}
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return -1, fmt.Errorf("packet socket: %w", err)
	}
	fail := func(what string, err error) (int, error) {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("packet socket: %s: %w", what, err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
		return fail("filter", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1); err != nil {
		return fail("filter", err)
	}
	if etherType == 0 {
		return fd, nil
	}
	// Says of each packet whether the kernel vouches for its checksum.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return fail("auxiliary data", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(etherType), Ifindex: r.Index}); err != nil {
		return fail(fmt.Sprintf("link %d", r.Index), err)
	}
	return fd, nil
}

// Close ends Read.
func (c *Conn) Close() error { return c.f.Close() }

// Read waits for a packet, without its link-layer header. checked says that a checksum
// that is not complete is no fault: the packet has not been on a wire, or the adapter
// has checked it.
func (c *Conn) Read(b []byte) (n int, checked bool, err error) {
	var oob [64]byte
	var on, flags int
	rerr := c.rc.Read(func(fd uintptr) bool {
		n, on, flags, _, err = unix.Recvmsg(int(fd), b, oob[:], 0)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	switch {
	case rerr != nil:
		return 0, false, fmt.Errorf("packet socket: %w", rerr)
	case err != nil:
		return 0, false, fmt.Errorf("packet socket: %w", err)
	case flags&unix.MSG_TRUNC != 0:
		return 0, false, ErrOversized
	}
	return n, vouched(oob[:on]), nil
}

// vouched reads tpacket_auxdata (include/uapi/linux/if_packet.h): status comes first.
func vouched(oob []byte) bool {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return false
	}
	for _, m := range msgs {
		if m.Header.Level == unix.SOL_PACKET && m.Header.Type == unix.PACKET_AUXDATA && len(m.Data) >= 4 {
			return binary.NativeEndian.Uint32(m.Data)&(unix.TP_STATUS_CSUMNOTREADY|unix.TP_STATUS_CSUM_VALID) != 0
		}
	}
	return false
}

// Sender sends packets on any link.
type Sender struct{ fd int }

// Close closes the socket.
func (s *Sender) Close() error { return unix.Close(s.fd) }

// sockaddr is struct sockaddr_ll with room for 20 bytes. The kernel takes it for links
// whose addresses are that long (packet_snd, net/packet/af_packet.c).
type sockaddr struct {
	family, protocol uint16
	index            int32
	hatype           uint16
	pkttype, halen   uint8
	addr             [20]byte
}

// Send sends a packet to a hardware address.
func (s *Sender) Send(index int, etherType uint16, to, b []byte) error {
	sa := sockaddr{family: unix.AF_PACKET, protocol: htons(etherType), index: int32(index), halen: uint8(len(to))}
	if copy(sa.addr[:], to) != len(to) || len(b) == 0 {
		return fmt.Errorf("packet socket: hardware address of %d bytes: %w", len(to), unix.EINVAL)
	}
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0,
		uintptr(unsafe.Pointer(&sa)), unsafe.Sizeof(sa))
	if errno != 0 {
		return fmt.Errorf("packet socket: send: %w", errno)
	}
	return nil
}
