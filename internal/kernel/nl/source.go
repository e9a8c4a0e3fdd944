package nl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A Source is an event socket of a family that is read when its owner wants and never waits; a
// Poller waits for it: a socket in the runtime's poller wakes the process for each message, of
// which a device brings dozens.
type Source struct {
	fd    int
	batch *Batch
}

// eventBuffer fits the largest notification: one of a link with very many virtual
// functions.
const eventBuffer = 64 << 10

// Open joins groups of a family. recvBuffer is the socket's receive buffer in
// bytes, 0 for a large one; tests make it small to provoke overruns.
func Open(family int, groups []uint32, recvBuffer int) (*Source, error) {
	fd, err := bind(family, unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	fail := func(what string, err error) (*Source, error) {
		_ = unix.Close(fd)
		return nil, wrapError(what, err)
	}
	if recvBuffer == 0 {
		// A notification of a link takes about 2 KiB, and the socket is not read while
		// the owner works: this is enough for the storm when a driver with 900
		// children restarts. It is a limit, not memory.
		growReadBuffer(fd, 64<<20)
	} else if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, recvBuffer); err != nil {
		return fail("set the receive buffer", err)
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g)); err != nil {
			return fail(fmt.Sprintf("join group %d of netlink family %d", g, family), err)
		}
	}
	batch, err := NewBatch(eventBuffer)
	if err != nil {
		return fail("event socket", err)
	}
	return &Source{fd: fd, batch: batch}, nil
}

// FD is the descriptor, for a Poller.
func (s *Source) FD() int { return s.fd }

// Close closes the socket.
func (s *Source) Close() error { return unix.Close(s.fd) }

// Read calls f for all waiting messages, whose data is valid during the call. lost
// reports that some did not fit the socket's buffer: read the whole state again. An
// error ends the source for good.
func (s *Source) Read(f func(typ uint16, data []byte)) (lost bool, err error) {
	more, err := s.batch.Datagrams(s.fd, func(b, _ []byte, from *unix.RawSockaddrNetlink) {
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
const mostAtOnce = 1 << 12

// Datagrams reads what waits at a netlink socket until nothing more does. lost says that
// something was lost or cut. After a batch that was not full the socket is not asked again:
// what has come since, an error too, has a Poller wake.
func (b *Batch) Datagrams(fd int, f func(data, oob []byte, from *unix.RawSockaddrNetlink)) (lost bool, err error) {
	for range mostAtOnce {
		switch err := b.receive(fd, unix.MSG_DONTWAIT); {
		case errors.Is(err, unix.EAGAIN):
			return lost, nil
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
			lost = true
			continue
		case err != nil:
			return lost, fmt.Errorf("receive events: %w", err)
		}
		for i := range b.n {
			data, oob, from, whole := b.datagram(i)
			if !whole {
				lost = true
				continue
			}
			f(data, oob, from)
		}
		if b.n < batchSize {
			return lost, nil
		}
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
