package nl

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Request is one message to the kernel that is answered by an
// acknowledgement. Requests are values: build them anywhere, send them with
// Conn.Do or pipelined with Conn.DoAll.
type Request struct {
	// What describes in a few words what the request does ("add address
	// 10.0.0.1/24 to ifindex 4"); it opens the error.
	What string
	// Type and Flags go into the netlink header; NLM_F_REQUEST and NLM_F_ACK
	// are added when the request is sent.
	Type  uint16
	Flags netlink.HeaderFlags
	// Data is the family's header and the attributes.
	Data []byte
	// Err is a mistake found while building; the request is not sent then and
	// Err is its result.
	Err error
}

// NewRequest takes a builder's bytes, or its error.
func NewRequest(what string, typ uint16, flags netlink.HeaderFlags, w *Builder) Request {
	b, err := w.Bytes()
	return Request{What: what, Type: typ, Flags: flags, Data: b, Err: err}
}

// An Error is a refusal by the kernel, or a failure to ask it.
type Error struct {
	What    string // the request's What
	Errno   syscall.Errno
	Message string // the kernel's extended acknowledgement, "" if it gave none
	Err     error  // the *netlink.OpError or other cause
}

// Error names the request and gives the kernel's own words where there are
// some: "set mode of ifindex 4: invalid argument (kernel: ...)".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.What)
	b.WriteString(": ")
	if e.Errno != 0 {
		b.WriteString(e.Errno.Error())
	} else {
		fmt.Fprint(&b, e.Err)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, " (kernel: %s)", strings.TrimSuffix(e.Message, "."))
	}
	return b.String()
}

// Unwrap gives the errno, so that errors.Is(err, syscall.EEXIST) works.
func (e *Error) Unwrap() error {
	if e.Errno != 0 {
		return e.Errno
	}
	return e.Err
}

// wrapError turns an error of the netlink library into an Error; nil stays nil.
func wrapError(what string, err error) error {
	if err == nil {
		return nil
	}
	out := &Error{What: what, Err: err}
	var oe *netlink.OpError
	if errors.As(err, &oe) {
		out.Message = oe.Message
	}
	errors.As(err, &out.Errno)
	return out
}

// Socket is the part of *netlink.Conn that a Conn uses; tests give a twin that
// replays recorded messages.
type Socket interface {
	SendMessages([]netlink.Message) ([]netlink.Message, error)
	// ReceiveIter gives the messages of an answer to what was sent last, or of a whole dump, which
	// are valid until the next.
	ReceiveIter() func(yield func(netlink.Message, error) bool)
	Close() error
}

// Conn talks to one netlink family. Its methods may be called from several
// goroutines; each exchange has the socket for itself.
type Conn struct {
	mu  sync.Mutex
	s   Socket
	seq uint32
}

// realSocket gives *netlink.Conn the unnamed iterator type of Socket.
type realSocket struct{ *netlink.Conn }

func (r realSocket) ReceiveIter() func(yield func(netlink.Message, error) bool) {
	return r.Conn.ReceiveIter()
}

// receiveBuffer is large enough for the largest piece of a dump: the kernel
// fills at most 32 KiB (netlink_dump, NLMSG_GOODSIZE's limit), except for one
// message that is larger by itself, a link with very many virtual functions.
const receiveBuffer = 128 << 10

// socketBuffer is the kernel side's limit for queued answers. One pipelined
// chunk is far below it.
const socketBuffer = 1 << 20

// Dial opens a socket of the family (unix.NETLINK_ROUTE, ...) in the calling thread's network
// namespace. Strict checking of dump requests is requested if strict is set; extended
// acknowledgements always are, where the kernel has them.
func Dial(family int, strict bool) (*Conn, error) {
	fd, err := bind(family, 0)
	if err != nil {
		return nil, err
	}
	fail := func(what string, err error) (*Conn, error) {
		_ = unix.Close(fd)
		return nil, wrapError(what, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1); err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return fail("ask netlink for extended acknowledgements", err)
	}
	if strict {
		// Absent before Linux 4.20; the kernel then ignores filters and a dump
		// is larger, which the decoders cope with.
		err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
		if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
			return fail("ask netlink for strict checking", err)
		}
	}
	growReadBuffer(fd, socketBuffer)
	batch, err := NewBatch(receiveBuffer)
	if err != nil {
		return fail("open a netlink socket", err)
	}
	return NewConn(realSocket{netlink.NewConn(&socket{fd: fd, batch: batch}, 0)}), nil
}

// NewConn wraps a socket.
func NewConn(s Socket) *Conn { return &Conn{s: s, seq: 1} }

// Close closes the socket after an exchange that runs: the kernel answers each request before its
// send returns.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s.Close()
}

func (c *Conn) next() uint32 {
	c.seq++
	c.seq = cmp.Or(c.seq, 1)
	return c.seq
}

// An answer handler gets the index of the request and the type and payload of a
// message that answers it. The payload is valid during the call; an error
// becomes the request's result.
type answer func(i int, typ uint16, data []byte) error

// Do sends r and waits for its acknowledgement. A refusal is an *Error.
func (c *Conn) Do(r Request) error { return c.DoAll([]Request{r})[0] }

// DoAll sends all requests in order, many in one system call, and gives each
// its result. A refusal of one does not keep the others from being tried.
func (c *Conn) DoAll(rs []Request) []error { return c.exchange(rs, true, nil) }

// Talk sends one request that is answered by messages and an acknowledgement
// after them.
func (c *Conn) Talk(r Request, f func(typ uint16, data []byte) error) error {
	return c.exchange([]Request{r}, true, func(_ int, typ uint16, data []byte) error { return f(typ, data) })[0]
}

// Ask sends requests that are answered by one message each (a get without NLM_F_DUMP), pipelined,
// and calls f with the index of the request and the answer's type and payload, which is valid
// during the call. Each request gets its result; an error of f becomes the request's.
func (c *Conn) Ask(rs []Request, f func(i int, typ uint16, data []byte) error) []error {
	return c.exchange(rs, false, f)
}

// pipeline is how many requests are sent at once. The kernel handles all messages of one send
// before it returns, and queues an acknowledgement for each: 64 of them, each with a copy of
// the request if it failed, stay far below the receive buffer.
const pipeline = 64

func (c *Conn) exchange(rs []Request, ack bool, f answer) []error {
	errs := make([]error, len(rs))
	c.mu.Lock()
	defer c.mu.Unlock()
	for lo := 0; lo < len(rs); lo += pipeline {
		c.chunk(rs, errs, lo, min(lo+pipeline, len(rs)), ack, f)
	}
	return errs
}

// chunk sends rs[lo:hi] and waits until each is answered.
func (c *Conn) chunk(rs []Request, errs []error, lo, hi int, ack bool, f answer) {
	flags := netlink.Request
	if ack {
		flags |= netlink.Acknowledge
	}
	msgs := make([]netlink.Message, 0, hi-lo)
	open := make(map[uint32]int, hi-lo) // sequence -> index in rs
	for i := lo; i < hi; i++ {
		r := &rs[i]
		if r.Err != nil {
			errs[i] = fmt.Errorf("%s: %w", r.What, r.Err)
			continue
		}
		seq := c.next()
		open[seq] = i
		msgs = append(msgs, netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(r.Type), Flags: r.Flags | flags, Sequence: seq},
			Data:   r.Data,
		})
	}
	if len(msgs) == 0 {
		return
	}
	abandon := func(err error) {
		for _, i := range open {
			errs[i] = wrapError(rs[i].What, err)
		}
	}
	if _, err := c.s.SendMessages(msgs); err != nil {
		abandon(err)
		return
	}
	for len(open) > 0 {
		for m, err := range c.s.ReceiveIter() {
			var oe *netlink.OpError
			switch {
			case err == nil:
				c.answered(m, rs, errs, open, ack, f)
			case !errors.As(err, &oe) || oe.Sequence == 0:
				abandon(err)
				return
			default:
				// An answer that an earlier failure left behind is not in open.
				if i, ok := open[oe.Sequence]; ok {
					errs[i] = wrapError(rs[i].What, err)
					delete(open, oe.Sequence)
				}
			}
		}
	}
}

// answered takes a message that answers one of the open requests, or none of them.
func (c *Conn) answered(m netlink.Message, rs []Request, errs []error, open map[uint32]int, ack bool, f answer) {
	i, ok := open[m.Header.Sequence]
	if !ok {
		return
	}
	if m.Header.Type == netlink.Error || !ack {
		delete(open, m.Header.Sequence)
	}
	if m.Header.Type == netlink.Error || f == nil || errs[i] != nil {
		return
	}
	if err := f(i, uint16(m.Header.Type), m.Data); err != nil {
		errs[i] = fmt.Errorf("%s: %w", rs[i].What, err)
	}
}

// dumpTries is how often a dump that changed under the reader is repeated. The
// last try's result is used although it may mix two moments: the change that
// disturbed it also sends an event.
const dumpTries = 3

// Dump requests all objects that r selects and calls f for each with its type and payload, which
// is valid during the call. If the set changed while it was read (NLM_F_DUMP_INTR), restart is
// called and the dump begins again. An error of f ends it once its messages are drained.
func (c *Conn) Dump(r Request, restart func(), f func(typ uint16, data []byte) error) error {
	if r.Err != nil {
		return fmt.Errorf("%s: %w", r.What, r.Err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for try := 1; ; try++ {
		intr, err := c.dump(r, f)
		if err != nil {
			return err
		}
		if !intr || try == dumpTries {
			return nil
		}
		restart()
	}
}

func (c *Conn) dump(r Request, f func(typ uint16, data []byte) error) (interrupted bool, err error) {
	_, err = c.s.SendMessages([]netlink.Message{{
		Header: netlink.Header{Type: netlink.HeaderType(r.Type), Flags: r.Flags | netlink.Request | netlink.Dump, Sequence: c.next()},
		Data:   r.Data,
	}})
	if err != nil {
		return false, wrapError(r.What, err)
	}
	var ferr error
	for m, err := range c.s.ReceiveIter() {
		if err != nil {
			return false, wrapError(r.What, err)
		}
		if m.Header.Flags&netlink.DumpInterrupted != 0 {
			interrupted = true
		}
		if ferr == nil {
			ferr = f(uint16(m.Header.Type), m.Data)
		}
	}
	if ferr != nil {
		return false, fmt.Errorf("%s: %w", r.What, ferr)
	}
	return interrupted, nil
}
