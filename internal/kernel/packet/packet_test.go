package packet

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"

	"golang.org/x/sys/unix"
)

const loopback = 1

// root skips a test that cannot open packet sockets.
func root(t *testing.T) {
	t.Helper()
	if _, err := (Request{Kind: ForSend}).open(); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skip("needs CAP_NET_RAW")
	}
}

// exchange sends packets on the loopback and gives those that a socket receives.
func exchange(t *testing.T, o Opener, r Request, packets ...[]byte) (got [][]byte) {
	t.Helper()
	c, err := o.Listen(r)
	testkit.NoError(t, err)
	s, err := o.Sender()
	testkit.NoError(t, err)
	defer func() { _ = s.Close() }()
	etherType := map[Kind]uint16{ForDHCP: IP, ForDHCPv6: IPv6, ForARP: ARP}[r.Kind]
	for _, p := range packets {
		testkit.NoError(t, s.Send(loopback, etherType, make([]byte, 6), p))
	}
	time.AfterFunc(300*time.Millisecond, func() { _ = c.Close() })
	b := make([]byte, MaxPacket)
	for {
		n, _, err := c.Read(b)
		if errors.Is(err, ErrOversized) {
			got = append(got, nil)
			continue
		}
		if err != nil {
			return got
		}
		got = append(got, append([]byte(nil), b[:n]...))
	}
}

// udp is a packet of UDP to a port, padded to a size.
func udp(port byte, size int) []byte {
	b := make([]byte, size)
	b[0], b[9], b[23] = 0x45, unix.IPPROTO_UDP, port
	return b
}

func arp(hwlen int, sender, target byte) []byte {
	b := make([]byte, 8+2*(hwlen+4))
	copy(b[8+hwlen:], []byte{10, 0, 0, sender})
	copy(b[12+2*hwlen:], []byte{10, 0, 0, target})
	return b
}

// A socket receives what it is for and nothing else.
func TestFilters(t *testing.T) {
	root(t)
	other := udp(68, 40)
	other[9] = unix.IPPROTO_TCP
	fragment := udp(68, 40)
	fragment[7] = 1
	got := exchange(t, "", Request{Kind: ForDHCP, Index: loopback}, udp(67, 40), other, fragment, udp(68, 41), udp(68, MaxPacket+1))
	if len(got) != 2 || len(got[0]) != 41 || got[1] != nil {
		t.Errorf("%d packets: % x", len(got), got)
	}
	udp6 := func(next byte, port byte) []byte {
		b := make([]byte, 60)
		b[0], b[6], b[42], b[43] = 0x60, next, 2, port
		return b
	}
	got = exchange(t, "", Request{Kind: ForDHCPv6, Index: loopback}, udp6(unix.IPPROTO_UDP, 0x23), udp6(unix.IPPROTO_TCP, 0x22),
		udp6(unix.IPPROTO_UDP, 0x22))
	if len(got) != 1 || got[0][43] != 0x22 {
		t.Errorf("%d packets of IPv6: % x", len(got), got)
	}
	about := netip.MustParseAddr("10.0.0.7")
	for _, n := range []int{6, 20} {
		got := exchange(t, "", Request{Kind: ForARP, Index: loopback, About: about, HWLen: n}, arp(n, 1, 2), arp(n, 7, 2), arp(n, 1, 7))
		if len(got) != 2 {
			t.Errorf("%d bytes: %d packets", n, len(got))
		}
	}
}

// Where sockets are not permitted another process opens them. It refuses what is no
// request, and ends when none comes.
func TestBroker(t *testing.T) {
	root(t)
	path := filepath.Join(t.TempDir(), "packet.sock")
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	testkit.NoError(t, err)
	testkit.NoError(t, errors.Join(unix.Bind(l, &unix.SockaddrUnix{Name: path}), unix.Listen(l, 4)))
	ended := make(chan error, 1)
	go func() { ended <- Serve(l) }()
	o := Opener(path)
	fd, err := o.ask(Request{Kind: ForDHCP, Index: loopback})
	testkit.NoError(t, err)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("the filter can be removed: %v", err)
	}
	_ = unix.Close(fd)
	for _, r := range []Request{{Kind: "raw", Index: loopback}, {Kind: ForDHCP}, {Kind: ForDHCPv6}, {Kind: ForARP, Index: loopback, HWLen: 6},
		{Kind: ForARP, Index: loopback, HWLen: 7, About: netip.MustParseAddr("10.0.0.7")}, {Kind: ForDHCP, Index: 1 << 30}} {
		if fd, err := o.ask(r); err == nil {
			_ = unix.Close(fd)
			t.Errorf("%+v is opened", r)
		}
	}
	if _, err := Opener(path + "x").ask(Request{Kind: ForSend}); !errors.Is(err, unix.ENOENT) {
		t.Errorf("without the other process: %v", err)
	}
	_ = unix.Shutdown(l, unix.SHUT_RDWR)
	_ = unix.Close(l)
	if err := <-ended; err == nil {
		t.Error("a closed socket is no error")
	}
}
