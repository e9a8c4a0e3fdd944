package nl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

var ne = binary.NativeEndian

// socket carries requests and their answers for the library, which checks them. It blocks: the
// kernel answers a request before the send returns, and makes the next part of a dump while
// one is read, so a socket in the runtime's poller would wake the process for nothing.
type socket struct {
	fd    int // -1 once closed
	batch *Batch
	next  int    // datagram of the batch
	out   []byte // what was sent last; its memory is used again
	// first and last are the sequence numbers of what was sent last.
	first, last uint32
}

// bind opens a socket of a family in the calling thread's network namespace.
func bind(family, flags int) (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|flags, family)
	if err == nil {
		if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err == nil {
			return fd, nil
		}
		_ = unix.Close(fd)
	}
	return -1, wrapError(fmt.Sprintf("open netlink family %d", family), err)
}

// growReadBuffer raises a socket's receive buffer, above net.core.rmem_max where the process
// has CAP_NET_ADMIN, to at least n bytes of payload.
func growReadBuffer(fd, n int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, n) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, n)
	}
}

// Close implements netlink.Socket. No other call may run: the number is soon that of another file.
func (s *socket) Close() error {
	fd := s.fd
	s.fd = -1
	return os.NewSyscallError("close", unix.Close(fd))
}

func (s *socket) Send(m netlink.Message) error { return s.SendMessages([]netlink.Message{m}) }

// SendMessages implements netlink.Socket: all in one system call, numbered in order.
func (s *socket) SendMessages(ms []netlink.Message) error {
	s.out, s.first, s.last = s.out[:0], ms[0].Header.Sequence, ms[len(ms)-1].Header.Sequence
	for _, m := range ms {
		s.out = append(appendHeader(s.out, m.Header), m.Data...)
		for len(s.out)%unix.NLMSG_ALIGNTO != 0 {
			s.out = append(s.out, 0)
		}
	}
	for {
		err := unix.Sendto(s.fd, s.out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("sendto", err)
		}
	}
}

func appendHeader(b []byte, h netlink.Header) []byte {
	b = ne.AppendUint32(b, h.Length)
	b = ne.AppendUint16(b, uint16(h.Type))
	b = ne.AppendUint16(b, uint16(h.Flags))
	b = ne.AppendUint32(b, h.Sequence)
	return ne.AppendUint32(b, h.PID)
}

func (s *socket) Receive() (out []netlink.Message, err error) {
	for m, err := range s.ReceiveIter() {
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// ReceiveIter implements netlink.Socket: of one datagram of the kernel, what answers the messages
// that were sent last, valid until the next call. An exchange that failed leaves the rest of its
// answers behind: the end of such a dump would be taken for that of the next one.
func (s *socket) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		for answered := false; !answered; {
			b, err := s.datagram()
			for err == nil && len(b) >= unix.NLMSG_HDRLEN {
				n := ne.Uint32(b)
				if n < unix.NLMSG_HDRLEN || uint64(n) > uint64(len(b)) {
					err = ErrMalformed
					break
				}
				m := netlink.Message{Header: netlink.Header{Length: n, Type: netlink.HeaderType(ne.Uint16(b[4:])),
					Flags: netlink.HeaderFlags(ne.Uint16(b[6:])), Sequence: ne.Uint32(b[8:]), PID: ne.Uint32(b[12:])},
					Data: b[unix.NLMSG_HDRLEN:n]}
				if m.Header.Sequence-s.first <= s.last-s.first {
					if answered = true; !yield(m, nil) {
						return
					}
				}
				b = b[min(align(int(n)), len(b)):]
			}
			if err != nil {
				yield(netlink.Message{}, err)
				return
			}
		}
	}
}

// datagram is the next of the kernel's, whose port is 0.
func (s *socket) datagram() ([]byte, error) {
	for {
		if s.next >= s.batch.n {
			s.next = 0
			if err := s.batch.receive(s.fd, 0); err != nil {
				return nil, os.NewSyscallError("recvmmsg", err)
			}
		}
		b, _, from, whole := s.batch.datagram(s.next)
		s.next++
		switch {
		case from == nil || from.Pid != 0:
		case !whole:
			return nil, fmt.Errorf("a netlink message of more than %d bytes", receiveBuffer)
		default:
			return b, nil
		}
	}
}
