package nl

import (
	"errors"
	"fmt"
	"iter"
	"testing"

	"ibnetworkd/internal/testkit"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// counting counts the system calls that take answers.
type counting struct {
	*socket
	receives int
}

func (c *counting) ReceiveIter() iter.Seq2[netlink.Message, error] {
	return func(yield func(netlink.Message, error) bool) {
		if c.next >= c.batch.n {
			c.receives++
		}
		c.socket.ReceiveIter()(yield)
	}
}

func dialCounting(t *testing.T) (*Conn, *counting) {
	t.Helper()
	fd, err := bind(unix.NETLINK_ROUTE, 0)
	testkit.NoError(t, err)
	b, err := NewBatch(receiveBuffer)
	testkit.NoError(t, err)
	s := &counting{socket: &socket{fd: fd, batch: b}}
	c := NewConn(realSocket{netlink.NewConn(s, 0)})
	t.Cleanup(func() { _ = c.Close() })
	return c, s
}

// getLink reads a link, of which the loopback device has the index 1.
func getLink(index int) Request {
	h := make([]byte, unix.SizeofIfInfomsg)
	ne.PutUint32(h[4:], uint32(index))
	return NewRequest(fmt.Sprintf("read link %d", index), unix.RTM_GETLINK, 0, Build(h...))
}

// Answers to pipelined requests and the parts of a dump are taken together.
func TestSocketBatches(t *testing.T) {
	c, s := dialCounting(t)
	rs := make([]Request, 2*batchSize)
	for i := range rs {
		rs[i] = getLink(1 + i%2*1_000_000) // every other one does not exist
	}
	answers := 0
	for i, err := range c.Ask(rs, func(_ int, typ uint16, b []byte) error {
		answers++
		if typ != unix.RTM_NEWLINK || ne.Uint32(b[4:]) != 1 {
			t.Errorf("message %d of link %d", typ, ne.Uint32(b[4:]))
		}
		return nil
	}) {
		if i%2 == 0 && err != nil || i%2 == 1 && !errors.Is(err, unix.ENODEV) {
			t.Errorf("%s: %v", rs[i].What, err)
		}
	}
	if answers != batchSize || s.receives > 3 {
		t.Errorf("%d answers in %d system calls", answers, s.receives)
	}
	s.receives = 0
	links := 0
	dump := Request{What: "list links", Type: unix.RTM_GETLINK, Data: make([]byte, unix.SizeofIfInfomsg)}
	if err := c.Dump(dump, func() { links = 0 }, func(uint16, []byte) error { links++; return nil }); err != nil || links == 0 {
		t.Fatalf("%d links, %v", links, err)
	}
	if s.receives != 1 {
		t.Errorf("%d links in %d system calls", links, s.receives)
	}
}

// What an exchange leaves behind is not taken for an answer to the next one: neither links, nor the end of a
// dump, nor an error.
func TestSocketLeftBehind(t *testing.T) {
	c, s := dialCounting(t)
	dump := Request{What: "list links", Type: unix.RTM_GETLINK, Data: make([]byte, unix.SizeofIfInfomsg)}
	for _, left := range []struct {
		typ   uint16
		flags netlink.HeaderFlags
		data  []byte
	}{
		{unix.RTM_GETLINK, netlink.Dump, dump.Data},
		{unix.RTM_GETNEXTHOP, netlink.Dump, make([]byte, unix.SizeofNhmsg)}, // of none
		{unix.RTM_GETLINK, 0, getLink(1_000_000).Data},
	} {
		leave := func() {
			t.Helper()
			h := netlink.Header{Length: uint32(unix.NLMSG_HDRLEN + len(left.data)), Type: netlink.HeaderType(left.typ),
				Flags: netlink.Request | left.flags, Sequence: 1 << 31}
			testkit.NoError(t, s.Send(netlink.Message{Header: h, Data: left.data}))
		}
		leave()
		if err := c.Ask([]Request{getLink(1)}, func(int, uint16, []byte) error { return nil })[0]; err != nil {
			t.Errorf("%+v: %v", left, err)
		}
		leave()
		links := 0
		err := c.Dump(dump, func() { links = 0 }, func(uint16, []byte) error { links++; return nil })
		if busy := left.typ == dump.Type && errors.Is(err, unix.EBUSY); !busy && (err != nil || links == 0) {
			t.Errorf("%+v: %d links, %v", left, links, err)
		}
	}
}

// A closed connection does not use the number of its socket, which is that of another file then.
func TestSocketClosed(t *testing.T) {
	c, _ := dialCounting(t)
	testkit.NoError(t, c.Close())
	other, err := bind(unix.NETLINK_ROUTE, 0)
	testkit.NoError(t, err)
	defer func() { _ = unix.Close(other) }()
	if err := c.Ask([]Request{getLink(1)}, func(int, uint16, []byte) error { return nil })[0]; !errors.Is(err, unix.EBADF) {
		t.Errorf("a request: %v", err)
	}
	if err := c.Close(); !errors.Is(err, unix.EBADF) {
		t.Errorf("closed again: %v", err)
	}
	if _, err := unix.Getsockname(other); err != nil {
		t.Errorf("the other file: %v", err)
	}
}
