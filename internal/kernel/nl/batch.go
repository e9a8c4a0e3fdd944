package nl

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// batchSize is how many datagrams one system call takes: what a device that comes makes of
// events, and most dumps.
const batchSize = 8

// oobSize fits the credentials of a sender, the only control message that is asked for.
const oobSize = 64

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// A Batch takes up to eight datagrams from a netlink socket in one system call. Its buffers
// are outside of Go's heap: a page that no message has filled takes no memory, and the
// collector does not count them.
type Batch struct {
	mem   []byte
	most  int // bytes of one datagram
	hdrs  [batchSize]mmsghdr
	iovs  [batchSize]unix.Iovec
	names [batchSize]unix.RawSockaddrNetlink
	oobs  [batchSize][oobSize]byte
	n     int // datagrams of the last receive
}

// NewBatch makes buffers for datagrams of at most most bytes.
func NewBatch(most int) (*Batch, error) {
	mem, err := unix.Mmap(-1, 0, batchSize*most, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory for %d datagrams of %d bytes: %w", batchSize, most, err)
	}
	b := &Batch{mem: mem, most: most}
	for i := range b.hdrs {
		b.iovs[i].Base = &mem[i*most]
		b.iovs[i].SetLen(most)
	}
	runtime.AddCleanup(b, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return b, nil
}

// receive waits for the first datagram, unless flags has MSG_DONTWAIT, and takes the others
// that wait at the socket.
func (b *Batch) receive(fd, flags int) error {
	for i := range b.hdrs {
		h := &b.hdrs[i].hdr
		*h = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&b.names[i])), Namelen: unix.SizeofSockaddrNetlink,
			Iov: &b.iovs[i], Control: &b.oobs[i][0]}
		h.SetIovlen(1)
		h.SetControllen(oobSize)
	}
	b.n = 0
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&b.hdrs[0])), batchSize,
			uintptr(flags|unix.MSG_WAITFORONE), 0, 0)
		switch errno {
		case 0:
			b.n = int(n)
			return nil
		case unix.EINTR:
		default:
			return syscall.Errno(errno)
		}
	}
}

// datagram is the i-th of the last receive: valid until the next. whole is false if it was cut.
func (b *Batch) datagram(i int) (data, oob []byte, from *unix.RawSockaddrNetlink, whole bool) {
	h := &b.hdrs[i]
	if h.hdr.Namelen >= unix.SizeofSockaddrNetlink && b.names[i].Family == unix.AF_NETLINK {
		from = &b.names[i]
	}
	at := i * b.most
	return b.mem[at : at+min(int(h.n), b.most)], b.oobs[i][:min(uint64(h.hdr.Controllen), oobSize)], from,
		h.hdr.Flags&unix.MSG_TRUNC == 0
}
