package nl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Source is an event socket of a family that is read when its owner wants and never waits; a
// Poller waits for it. The library opens it and joins the groups; reading is our own: a socket
// in the runtime's poller wakes the process for each message, of which a device brings dozens.
type Source struct {
	fd  int
	buf []byte
}

// eventBuffer fits the largest notification: one of a link with very many virtual
// functions.
const eventBuffer = 64 << 10

// Open joins groups of a family. recvBuffer is the socket's receive buffer in
// bytes, 0 for a large one; tests make it small to provoke overruns.
func Open(family int, groups []uint32, recvBuffer int) (*Source, error) {
	c, err := netlink.Dial(family, nil)
	if err != nil {
		return nil, WrapError(fmt.Sprintf("open netlink family %d", family), err)
	}
	defer func() { _ = c.Close() }()
	if recvBuffer == 0 {
		// A notification of a link takes about 2 KiB, and the socket is not read while
		// the owner works: this is enough for the storm when a driver with 900
		// children restarts. It is a limit, not memory.
		GrowReadBuffer(c, 64<<20)
	} else if err := c.SetReadBuffer(recvBuffer); err != nil {
		return nil, WrapError("set the receive buffer", err)
	}
	for _, g := range groups {
		if err := c.JoinGroup(g); err != nil {
			return nil, WrapError(fmt.Sprintf("join group %d of netlink family %d", g, family), err)
		}
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return nil, WrapError("event socket", err)
	}
	s := &Source{fd: -1, buf: make([]byte, eventBuffer)}
	var derr error
	err = rc.Control(func(fd uintptr) { s.fd, derr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, derr); err != nil {
		return nil, fmt.Errorf("event socket: %w", err)
	}
	return s, nil
}

// FD is the descriptor, for a Poller.
func (s *Source) FD() int { return s.fd }

// Close closes the socket.
func (s *Source) Close() error { return unix.Close(s.fd) }

// Read calls f for all waiting messages, whose data is valid during the call. lost
// reports that some did not fit the socket's buffer: read the whole state again. An
// error ends the source for good.
func (s *Source) Read(f func(typ uint16, data []byte)) (lost bool, err error) {
	more, err := Datagrams(s.fd, s.buf, nil, func(b, _ []byte, from *unix.SockaddrNetlink) {
		// The kernel's port is 0; other senders are ignored.
		if from == nil || from.Pid != 0 {
			return
		}
		lost = !messages(b, f) || lost
	})
	return lost || more, err
}

// messages splits a datagram and reports whether it was whole.
func messages(b []byte, f func(typ uint16, data []byte)) bool {
	for len(b) >= unix.NLMSG_HDRLEN {
		n := binary.NativeEndian.Uint32(b)
		if n < unix.NLMSG_HDRLEN || uint64(n) > uint64(len(b)) {
			return false
		}
		switch typ := binary.NativeEndian.Uint16(b[4:]); typ {
		case unix.NLMSG_NOOP, unix.NLMSG_DONE:
		case unix.NLMSG_ERROR, unix.NLMSG_OVERRUN:
			return false
		default:
			f(typ, b[unix.NLMSG_HDRLEN:n])
		}
		b = b[min(align(int(n)), len(b)):]
	}
	return len(b) == 0
}

// mostAtOnce bounds one reading: a sender that is faster than we read is left for
// the next.
const mostAtOnce = 1 << 15

// Datagrams reads what waits at a non-blocking or blocking netlink socket until
// nothing more does. lost says that something was lost or cut. oob is the buffer
// for control messages, nil for none.
func Datagrams(fd int, buf, oob []byte, f func(b, oob []byte, from *unix.SockaddrNetlink)) (lost bool, err error) {
	for range mostAtOnce {
		n, on, flags, from, err := unix.Recvmsg(fd, buf, oob, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return lost, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
			lost = true
			continue
		case err != nil:
			return lost, fmt.Errorf("receive events: %w", err)
		case flags&unix.MSG_TRUNC != 0:
			lost = true
			continue
		}
		sa, _ := from.(*unix.SockaddrNetlink)
		f(buf[:n], oob[:on], sa)
	}
	return lost, nil
}

// Events is a source of one family's events, decoded.
type Events[E any] struct {
	*Source
	decode func(typ uint16, data []byte, put func(E))
}

// OpenEvents opens a source whose messages decode turns into zero or more events.
func OpenEvents[E any](family int, groups []uint32, recvBuffer int, decode func(typ uint16, data []byte, put func(E))) (*Events[E], error) {
	s, err := Open(family, groups, recvBuffer)
	if err != nil {
		return nil, err
	}
	return &Events[E]{s, decode}, nil
}

// Read calls put for all waiting events. See Source.Read.
func (e *Events[E]) Read(put func(E)) (lost bool, err error) {
	return e.Source.Read(func(typ uint16, data []byte) { e.decode(typ, data, put) })
}
