package nl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Receiver is the part of *netlink.Conn that a subscription reads.
type Receiver interface {
	Receive() ([]netlink.Message, error)
	Close() error
}

// A Subscription reads the multicast messages of a family until it is closed.
type Subscription[E comparable] struct {
	*Queue[E]
	r      Receiver
	closed atomic.Bool
	done   chan struct{}
	once   sync.Once
	err    error
}

// queueLimit bounds what a subscriber that does not take its events can make
// the reader keep.
const queueLimit = 8192

// Subscribe joins groups of a family and hands each message to decode, which
// puts zero or more events into the queue. recvBuffer is the socket's receive
// buffer in bytes, 0 for a large one; tests make it small to provoke overruns.
// The reader lives until ctx ends, Close is called or the socket fails for
// good; a lost message (ENOBUFS) is an overrun in the queue and nothing else.
func Subscribe[E comparable](ctx context.Context, family int, groups []uint32, recvBuffer int, decode func(typ uint16, data []byte, put func(E))) (*Subscription[E], error) {
	c, err := netlink.Dial(family, &netlink.Config{MessageBufferSize: receiveBuffer})
	if err != nil {
		return nil, WrapError(fmt.Sprintf("open netlink family %d", family), err)
	}
	if recvBuffer == 0 {
		// A notification of a link is about 2 KiB of the buffer: 8 MiB hold
		// the storm that a restart of a driver with 900 children makes.
		GrowReadBuffer(c, 8<<20)
	} else if err := c.SetReadBuffer(recvBuffer); err != nil {
		_ = c.Close()
		return nil, WrapError("set the receive buffer", err)
	}
	for _, g := range groups {
		if err := c.JoinGroup(g); err != nil {
			_ = c.Close()
			return nil, WrapError(fmt.Sprintf("join group %d of netlink family %d", g, family), err)
		}
	}
	s := subscribe(ctx, c, decode)
	return s, nil
}

func subscribe[E comparable](ctx context.Context, r Receiver, decode func(typ uint16, data []byte, put func(E))) *Subscription[E] {
	s := &Subscription[E]{Queue: NewQueue[E](queueLimit), r: r, done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	go func() {
		s.read(decode)
		stop()
	}()
	return s
}

// Close ends the reader and waits for it.
func (s *Subscription[E]) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.err = s.r.Close()
	})
	<-s.done
	return s.err
}

func (s *Subscription[E]) read(decode func(typ uint16, data []byte, put func(E))) {
	defer close(s.done)
	for {
		msgs, err := s.r.Receive()
		switch {
		case err == nil:
			for _, m := range msgs {
				decode(uint16(m.Header.Type), m.Data, s.Put)
			}
		case s.closed.Load():
			return
		case errors.Is(err, unix.ENOBUFS):
			s.Overrun()
		case transient(err):
			// A message that the library could not frame or that carries an
			// error: its news is lost, so it counts as an overrun too.
			s.Overrun()
		default:
			s.Fail(WrapError("receive netlink events", err))
			return
		}
	}
}

// transient tells an error about one message from one of the socket: the
// library wraps failed system calls, and only those, with their names.
func transient(err error) bool {
	var oe *netlink.OpError
	if !errors.As(err, &oe) {
		return false
	}
	if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOMEM) {
		return true
	}
	var errno unix.Errno
	isErrno := errors.As(err, &errno)
	return !isErrno && oe.Op == "receive" && !errors.Is(err, os.ErrClosed)
}
