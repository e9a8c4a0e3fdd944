package kerneltest

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// Requests runs f and gives the netlink requests of a family that it caused, in
// this or in other processes of the network namespace, byte for byte, and such
// answers to them as have the flag of a request (those of DCB). nlmon is the
// name of a link of kind nlmon that is up. The kernel shows it the families of its
// networking only, not NETLINK_RDMA (netlink_filter_tap).
func Requests(t testing.TB, nlmon string, family int, f func()) [][]byte {
	t.Helper()
	index := InterfaceIndex(nlmon)
	if index == 0 {
		t.Fatalf("no link %s", nlmon)
	}
	// ETH_P_ALL in network order.
	const all = uint16(unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
	if err != nil {
		t.Fatalf("packet socket: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		t.Fatalf("bind to %s: %v", nlmon, err)
	}
	f()
	var out [][]byte
	buf := make([]byte, 1<<17)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return out
		}
		if err != nil {
			t.Fatalf("read %s: %v", nlmon, err)
		}
		// The protocol of the packet is the netlink family, in network order.
		sa, ok := from.(*unix.SockaddrLinklayer)
		if !ok || sa.Protocol != uint16(family)<<8 {
			continue
		}
		for b := buf[:n]; len(b) >= 16; {
			h := binary.NativeEndian
			l := int(h.Uint32(b))
			if l < 16 || l > len(b) {
				break
			}
			if h.Uint16(b[4:]) >= 16 && h.Uint16(b[6:])&unix.NLM_F_REQUEST != 0 {
				out = append(out, append([]byte(nil), b[:l]...))
			}
			b = b[min((l+3)&^3, len(b)):]
		}
	}
}

// ClearPadding zeroes the bytes between the attributes of a message whose
// attributes begin at offset, and inside those that are marked as nested. The
// library of iproute2 leaves in them what was in its buffer before.
func ClearPadding(m []byte, offset int) {
	for b := m[min(offset, len(m)):]; len(b) >= 4; {
		l := int(binary.NativeEndian.Uint16(b))
		if l < 4 || l > len(b) {
			return
		}
		if binary.NativeEndian.Uint16(b[2:])&unix.NLA_F_NESTED != 0 {
			ClearPadding(b[:l], 4)
		}
		next := min((l+3)&^3, len(b))
		clear(b[l:next])
		b = b[next:]
	}
}
