package nl

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"ibnetworkd/internal/testkit"

	"golang.org/x/sys/unix"
)

// datagram packs messages of the given types with their payload.
func datagram(payload string, types ...uint16) (b []byte) {
	for _, typ := range types {
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		h := make([]byte, unix.NLMSG_HDRLEN)
		binary.NativeEndian.PutUint32(h, uint32(len(h)+len(payload)))
		binary.NativeEndian.PutUint16(h[4:], typ)
		b = append(append(b, h...), payload...)
	}
	return b
}

func TestMessages(t *testing.T) {
	for _, c := range []struct {
		name  string
		b     []byte
		types []uint16
		whole bool
	}{
		{"none", nil, nil, true},
		{"two, padded", datagram("abc", 16, 17), []uint16{16, 17}, true},
		{"a no-op is no message", datagram("", unix.NLMSG_NOOP, 20), []uint16{20}, true},
		{"the kernel says that some are lost", datagram("", 16, unix.NLMSG_OVERRUN), []uint16{16}, false},
		{"longer than it is", datagram("abcd", 16)[:18], nil, false},
		{"half a header", append(datagram("abcd", 16), 1, 2), []uint16{16}, false},
		{"shorter than a header", []byte{4, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, nil, false},
	} {
		var types []uint16
		if whole := messages(c.b, func(typ uint16, _ []byte) { types = append(types, typ) }); whole != c.whole || !slices.Equal(types, c.types) {
			t.Errorf("%s: types %v, whole %v", c.name, types, whole)
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(datagram("abc", 16, 17))
	f.Add(datagram("", unix.NLMSG_OVERRUN))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		messages(b, func(_ uint16, data []byte) { n += unix.NLMSG_HDRLEN + len(data) })
		if n > len(b) {
			t.Errorf("%d bytes of messages in %d", n, len(b))
		}
	})
}

// A burst of datagrams wakes once, and what comes after the reading wakes again
// only when the owner is ready for it.
func TestPoller(t *testing.T) {
	p, err := NewPoller()
	testkit.NoError(t, err)
	batch, err := NewBatch(8)
	testkit.NoError(t, err)
	var ends [2][2]int
	for i := range ends {
		if ends[i], err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = unix.Close(ends[i][0]), unix.Close(ends[i][1]) }()
		testkit.NoError(t, p.Add(ends[i][0]))
	}
	woken := make(chan error)
	go func() {
		for {
			err := p.Wait()
			woken <- err
			if err != nil {
				return
			}
		}
	}()
	send := func(i int) {
		t.Helper()
		if _, err := unix.Write(ends[i][1], []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	wakes := func(what string) {
		t.Helper()
		select {
		case err := <-woken:
			testkit.NoError(t, err)
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: not woken", what)
		}
	}
	sleeps := func(what string) {
		t.Helper()
		select {
		case <-woken:
			t.Fatalf("%s: woken", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
	read := func(i int) (n int) {
		t.Helper()
		if lost, err := batch.Datagrams(ends[i][0], func([]byte, []byte, *unix.RawSockaddrNetlink) { n++ }); lost || err != nil {
			t.Fatalf("lost %v, %v", lost, err)
		}
		return n
	}
	sleeps("nothing sent")
	send(0)
	wakes("first message")
	send(0)
	send(0)
	sleeps("more of the same socket")
	send(1)
	wakes("another socket")
	if n := read(0) + read(1); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
	send(0)
	sleeps("before the owner is ready")
	p.Ready()
	wakes("what came before the owner was ready")
	read(0)
	p.Ready()
	sleeps("nothing is left")
	testkit.NoError(t, p.Close())
	if err := <-woken; !errors.Is(err, os.ErrClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
}

// Large datagrams are cut: that counts as lost, and the reading goes on, over more datagrams
// than one batch has.
func TestDatagramsCut(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	testkit.NoError(t, err)
	defer func() { _, _ = unix.Close(ends[0]), unix.Close(ends[1]) }()
	batch, err := NewBatch(8)
	testkit.NoError(t, err)
	var sizes, want []int
	for i := range batchSize + 2 {
		n := 1 + i%8
		if i == 1 {
			n = 40
		} else {
			want = append(want, n)
		}
		if _, err := unix.Write(ends[1], bytes.Repeat([]byte{byte(i)}, n)); err != nil {
			t.Fatal(err)
		}
	}
	lost, err := batch.Datagrams(ends[0], func(b, _ []byte, _ *unix.RawSockaddrNetlink) { sizes = append(sizes, len(b)) })
	if err != nil || !lost || !slices.Equal(sizes, want) {
		t.Errorf("sizes %v, want %v, lost %v, %v", sizes, want, lost, err)
	}
	if lost, err := batch.Datagrams(ends[0], func([]byte, []byte, *unix.RawSockaddrNetlink) { t.Error("one more") }); lost || err != nil {
		t.Errorf("nothing left: lost %v, %v", lost, err)
	}
}
