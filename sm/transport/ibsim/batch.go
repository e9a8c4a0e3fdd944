package ibsim

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchLen is how many datagrams one system call carries.
const batchLen = 64

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

// batch is the buffers of one recvmmsg or sendmmsg.
type batch struct {
	buf  [batchLen][DataLen]byte
	iov  [batchLen]unix.Iovec
	msgs [batchLen]mmsghdr
}

func newBatch() *batch {
	b := new(batch)
	for i := range b.msgs {
		b.iov[i].Base = &b.buf[i][0]
		b.iov[i].SetLen(DataLen)
		b.msgs[i].hdr.Iov = &b.iov[i]
		b.msgs[i].hdr.SetIovlen(1)
	}
	return b
}

// call makes one system call for n datagrams and returns how many were carried.
func (b *batch) call(fd uintptr, nr uintptr, n int) (int, error) {
	for {
		r, _, e := unix.Syscall6(nr, fd, uintptr(unsafe.Pointer(&b.msgs[0])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
		switch e {
		case 0:
			return int(r), nil
		case unix.EINTR:
		default:
			return 0, e
		}
	}
}

// recv waits for datagrams and returns how many stand in buf.
func (b *batch) recv(c syscall.RawConn) (n int, err error) {
	rerr := c.Read(func(fd uintptr) bool {
		n, err = b.call(fd, unix.SYS_RECVMMSG, batchLen)
		return err != unix.EAGAIN
	})
	if rerr != nil {
		return 0, rerr
	}
	return n, err
}

// send sends the first n datagrams of buf, waiting where the peer does not
// read.
func (b *batch) send(c syscall.RawConn, n int) (err error) {
	for done := 0; done < n; {
		if done > 0 {
			copy(b.buf[:], b.buf[done:n])
			n, done = n-done, 0
		}
		k := 0
		werr := c.Write(func(fd uintptr) bool {
			k, err = b.call(fd, unix.SYS_SENDMMSG, n)
			return err != unix.EAGAIN
		})
		if werr != nil {
			return werr
		}
		if err != nil {
			return err
		}
		done += k
	}
	return nil
}
