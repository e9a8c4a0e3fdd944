package ibsim

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BatchLen is how many datagrams one system call carries.
const BatchLen = 64

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   [4]byte
}

// Batch is the buffers of one recvmmsg or sendmmsg.
type Batch struct {
	Buf  [BatchLen][DataLen]byte
	iov  [BatchLen]unix.Iovec
	msgs [BatchLen]mmsghdr
}

// NewBatch makes the buffers.
func NewBatch() *Batch {
	b := new(Batch)
	for i := range b.msgs {
		b.iov[i].Base = &b.Buf[i][0]
		b.iov[i].SetLen(DataLen)
		b.msgs[i].hdr.Iov = &b.iov[i]
		b.msgs[i].hdr.SetIovlen(1)
	}
	return b
}

// call makes one system call for n datagrams and returns how many were carried.
func (b *Batch) call(fd uintptr, nr uintptr, n int) (int, error) {
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

// Recv waits for datagrams and returns how many are in Buf, see Datagram.
func (b *Batch) Recv(c syscall.RawConn) (n int, err error) {
	rerr := c.Read(func(fd uintptr) bool {
		n, err = b.call(fd, unix.SYS_RECVMMSG, BatchLen)
		return err != unix.EAGAIN
	})
	if rerr != nil {
		return 0, rerr
	}
	return n, err
}

// Datagram is what was received as number i.
func (b *Batch) Datagram(i int) []byte { return b.Buf[i][:b.msgs[i].n] }

// Send sends the first n datagrams of Buf on a connected socket, waiting where
// the peer does not read.
func (b *Batch) Send(c syscall.RawConn, n int) (err error) {
	for done := 0; done < n; {
		if done > 0 {
			copy(b.Buf[:], b.Buf[done:n])
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
