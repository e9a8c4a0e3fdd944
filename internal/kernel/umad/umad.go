// Package umad sends and receives management datagrams through the kernel's
// ib_umad devices (/dev/infiniband/umadN, ABI 5; drivers/infiniband/core/
// user_mad.c, include/uapi/rdma/ib_user_mad.h).
//
// It moves bytes: a MAD is opaque here but for its length, and no request is
// matched with its response. What the kernel does with the header is its own:
// it retries a request that has a timeout, puts RMPP segments together if the
// agent asked for that, and gives an unanswered request back with a status.
package umad

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ibnetworkd/ib"
)

// HeaderSize is struct ib_user_mad_hdr with the P_Key index enabled.
const HeaderSize = 64

// Sizes of MADs in bytes.
const (
	MADSize = 256 // one datagram (IBTA 13.4)
	// MaxMAD bounds a received RMPP message. The answer to a query for all paths
	// among 10,000 ports would be larger; do not send one.
	MaxMAD = 64 << 20
	minMAD = 36 // the kernel refuses less (IB_MGMT_RMPP_HDR)
)

// Where the devices are. The units of ibnetworkd and ibnetsm have a private /dev
// (PrivateDevices=), and the host's at HostDev, read-only. It is all of the host's
// /dev: the kernel removes its directory infiniband with the last device and makes
// another one with the next, which a mount of that directory would not show. It is
// not below the private /dev, where systemd 255 cannot mount (systemd issue 30372).
const (
	Dev     = "/dev"
	HostDev = "/run/ibnetworkd/dev"
	subdir  = "infiniband"
)

// Address is the other end of a MAD.
type Address struct {
	QPN       uint32 // 0 for SMPs, 1 for general services
	QKey      uint32 // 0x80010000 for QP1
	LID       ib.LID // 0xffff permissive for directed routes
	SL        uint8
	PathBits  uint8 // low bits of the source LID, when LMC is not 0
	PKeyIndex uint16
	// GRH is nil for none.
	GRH *GRH
}

// GRH is the global route header of a MAD.
type GRH struct {
	GID          ib.GID // destination when sent, source when received
	GIDIndex     uint8
	HopLimit     uint8
	TrafficClass uint8
	FlowLabel    uint32 // 20 bits
}

// Packet is one MAD with its header.
type Packet struct {
	// Agent is the id that Register gave: who sends, or whose MAD it is.
	Agent uint32
	// Status is 0 for a MAD from the wire. A request that was not answered in
	// time comes back with ETIMEDOUT, one that could not be sent with another.
	Status syscall.Errno
	// Timeout makes the kernel wait for a response and resend Retries times; 0
	// sends once and forgets. Rounded to milliseconds.
	Timeout time.Duration
	Retries uint32
	Addr    Address
	// MAD is the datagram, or all data of an RMPP message with the headers of
	// its first segment. Recv reuses its capacity.
	MAD []byte
}

// Agent describes the MADs from the wire that go to this file.
type Agent struct {
	QPN     uint32 // 0 (SMPs) or 1
	Class   uint8  // management class; 0x81 covers LID-routed 0x01 too
	Version uint8  // class version: 1, SA 2
	// Methods are the unsolicited methods that the agent answers (0x01 Get,
	// 0x02 Set, 0x05 Trap, ...); responses to own requests need none. One agent
	// on a port can have a method.
	Methods []uint8
	OUI     uint32 // vendor classes 0x30-0x4f
	// RMPP 1 lets the kernel segment and reassemble; 0 with UserRMPP leaves
	// that to the caller.
	RMPP     uint8
	UserRMPP bool
}

// Port is an open umad device. Send, Recv and Register may be called from
// different goroutines at the same time.
type Port struct {
	f    *os.File
	rc   syscall.RawConn
	stop func() bool
}

// ioctls, magic 0x1b
var (
	ioctlUnregister = ioc(1, 2, 4)  // IB_USER_MAD_UNREGISTER_AGENT
	ioctlEnablePKey = ioc(0, 3, 0)  // IB_USER_MAD_ENABLE_PKEY
	ioctlRegister2  = ioc(3, 4, 40) // IB_USER_MAD_REGISTER_AGENT2
)

func ioc(dir, nr, size uintptr) uintptr { return dir<<30 | size<<16 | 0x1b<<8 | nr }

// Open opens a device: "umad0", or a path. It is closed when ctx ends; a
// waiting Recv then returns os.ErrClosed.
func Open(ctx context.Context, dev string) (*Port, error) {
	fd, path, err := open(dev, Dev, HostDev)
	if err != nil {
		return nil, err
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlEnablePKey, 0); errno != 0 {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s: enable P_Key index: %w", path, errno)
	}
	f := os.NewFile(uintptr(fd), path)
	rc, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	p := &Port{f: f, rc: rc}
	p.stop = context.AfterFunc(ctx, func() { _ = f.Close() })
	return p, nil
}

// open opens a device by its path, or by its name in the first of the directories
// that has it. The path and the error have the name that it has on the host, which
// is below the first.
func open(dev string, in ...string) (fd int, path string, err error) {
	paths := []string{dev}
	if filepath.Base(dev) == dev {
		paths = nil
		for _, d := range in {
			paths = append(paths, filepath.Join(d, subdir, dev))
		}
	}
	for _, p := range paths {
		// Without O_NONBLOCK the open of an issm device would wait until the other
		// holder closes.
		fd, err = unix.Open(p, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	if err != nil {
		err = &os.PathError{Op: "open", Path: paths[0], Err: err}
	}
	return fd, paths[0], err
}

// Close closes the device; its agents go with it.
func (p *Port) Close() error {
	p.stop()
	return p.f.Close()
}

// SetReadDeadline ends a waiting Recv at t with os.ErrDeadlineExceeded; the zero
// time is never.
func (p *Port) SetReadDeadline(t time.Time) error { return p.f.SetReadDeadline(t) }

// Register makes an agent and gives its id. EINVAL means that another agent of
// the port, in this or another process, has one of the methods: a second subnet
// manager on the same port gets it.
func (p *Port) Register(a Agent) (id uint32, err error) {
	req := encodeRegister(a)
	if err := p.ioctl(ioctlRegister2, unsafe.Pointer(&req)); err != nil {
		return 0, fmt.Errorf("%s: register for management class %#02x: %w", p.f.Name(), a.Class, err)
	}
	return binary.NativeEndian.Uint32(req[:]), nil
}

// encodeRegister is struct ib_user_mad_reg_req2: id, qpn u32; class, version u8;
// 2 bytes; flags u32; method mask 2 x u64; oui u32; rmpp u8; 3 bytes.
func encodeRegister(a Agent) (b [40]byte) {
	e := binary.NativeEndian
	e.PutUint32(b[4:], a.QPN)
	b[8], b[9] = a.Class, a.Version
	if a.UserRMPP {
		e.PutUint32(b[12:], 1) // IB_USER_MAD_USER_RMPP
	}
	var mask [2]uint64
	for _, m := range a.Methods {
		if m < 128 {
			mask[m/64] |= 1 << (m % 64)
		}
	}
	e.PutUint64(b[16:], mask[0])
	e.PutUint64(b[24:], mask[1])
	e.PutUint32(b[32:], a.OUI)
	b[36] = a.RMPP
	return b
}

// Unregister removes an agent; requests it waits for are dropped.
func (p *Port) Unregister(id uint32) error {
	if err := p.ioctl(ioctlUnregister, unsafe.Pointer(&id)); err != nil {
		return fmt.Errorf("%s: unregister agent %d: %w", p.f.Name(), id, err)
	}
	return nil
}

func (p *Port) ioctl(req uintptr, arg unsafe.Pointer) error {
	var errno syscall.Errno
	err := p.rc.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, req, uintptr(arg))
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// Send sends a MAD. ENOMEM and EAGAIN mean to try later, EINVAL a bad header or
// address, EIO that the device is gone.
func (p *Port) Send(k *Packet) error {
	if len(k.MAD) < minMAD || len(k.MAD) > MaxMAD {
		return fmt.Errorf("%s: a MAD of %d bytes cannot be sent", p.f.Name(), len(k.MAD))
	}
	b := make([]byte, HeaderSize+len(k.MAD))
	encodeHeader((*[HeaderSize]byte)(b), k)
	copy(b[HeaderSize:], k.MAD)
	n, err := p.f.Write(b)
	if err == nil && n != len(b) {
		return fmt.Errorf("%s: %w", p.f.Name(), io.ErrShortWrite)
	}
	return p.gone(err)
}

// Recv waits for the next MAD and puts it into k, whose MAD's capacity is used
// if it suffices. os.ErrClosed after Close; EIO when the device is gone.
func (p *Port) Recv(k *Packet) error { return p.recv(k, p.f.Read) }

// TryRecv is Recv that does not wait: false when there is nothing.
func (p *Port) TryRecv(k *Packet) (bool, error) {
	err := p.recv(k, func(b []byte) (n int, err error) {
		rerr := p.rc.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), b)
			return true
		})
		return max(n, 0), cmp.Or(rerr, err)
	})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// recv is Recv with a way to read.
func (p *Port) recv(k *Packet, read func([]byte) (int, error)) error {
	want := HeaderSize + MADSize
	buf := k.MAD[:0]
	for {
		if cap(buf) < want {
			buf = make([]byte, want)
		}
		buf = buf[:cap(buf)]
		n, err := read(buf)
		if errors.Is(err, unix.ENOSPC) && len(buf) >= HeaderSize {
			// The message has more segments than fit. Its header was copied,
			// it stays the next to be read, and the header has the length.
			need := uint64(binary.NativeEndian.Uint32(buf[16:])) + HeaderSize
			if need <= uint64(len(buf)) || need > MaxMAD+HeaderSize {
				return fmt.Errorf("%s: RMPP message of %d bytes is larger than %d", p.f.Name(), need-HeaderSize, MaxMAD)
			}
			want = int(need)
			continue
		}
		if err != nil {
			return p.gone(err)
		}
		if n < HeaderSize {
			return fmt.Errorf("%s: read of %d bytes is shorter than its header", p.f.Name(), n)
		}
		decodeHeader((*[HeaderSize]byte)(buf), k)
		// The header goes in front of the data on the wire of this interface;
		// moving the data to the front keeps the whole capacity for next time.
		copy(buf, buf[HeaderSize:n])
		k.MAD = buf[:n-HeaderSize]
		return nil
	}
}

// gone turns the poller's refusal into EIO: ib_umad_poll gives nothing but EPOLLERR
// when the device has left, and the runtime then says "not pollable" instead of
// reading, with an error that it does not export.
func (p *Port) gone(err error) error {
	var errno unix.Errno
	if err == nil || errors.As(err, &errno) || errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s: %w (%w)", p.f.Name(), unix.EIO, err)
}

// encodeHeader writes struct ib_user_mad_hdr. id, status, timeouts, length and
// P_Key index are in host order; queue pair, Q_Key, LID and flow label in
// network order.
func encodeHeader(b *[HeaderSize]byte, k *Packet) {
	h, n := binary.NativeEndian, binary.BigEndian
	*b = [HeaderSize]byte{}
	h.PutUint32(b[0:], k.Agent)
	ms := (k.Timeout + time.Millisecond - 1) / time.Millisecond
	h.PutUint32(b[8:], uint32(min(max(ms, 0), 1<<31-1)))
	h.PutUint32(b[12:], k.Retries)
	h.PutUint32(b[16:], uint32(len(k.MAD)))
	n.PutUint32(b[20:], k.Addr.QPN)
	n.PutUint32(b[24:], k.Addr.QKey)
	n.PutUint16(b[28:], uint16(k.Addr.LID))
	b[30], b[31] = k.Addr.SL, k.Addr.PathBits
	if g := k.Addr.GRH; g != nil {
		b[32], b[33], b[34], b[35] = 1, g.GIDIndex, g.HopLimit, g.TrafficClass
		copy(b[36:], g.GID[:])
		n.PutUint32(b[52:], g.FlowLabel)
	}
	h.PutUint16(b[56:], k.Addr.PKeyIndex)
}

// decodeHeader reads what encodeHeader writes, and the status.
func decodeHeader(b *[HeaderSize]byte, k *Packet) {
	h, n := binary.NativeEndian, binary.BigEndian
	k.Agent = h.Uint32(b[0:])
	k.Status = syscall.Errno(h.Uint32(b[4:]))
	k.Timeout = time.Duration(h.Uint32(b[8:])) * time.Millisecond
	k.Retries = h.Uint32(b[12:])
	k.Addr = Address{
		QPN: n.Uint32(b[20:]), QKey: n.Uint32(b[24:]), LID: ib.LID(n.Uint16(b[28:])),
		SL: b[30], PathBits: b[31], PKeyIndex: h.Uint16(b[56:]),
	}
	if b[32] != 0 {
		g := &GRH{GIDIndex: b[33], HopLimit: b[34], TrafficClass: b[35], FlowLabel: n.Uint32(b[52:])}
		copy(g.GID[:], b[36:52])
		k.Addr.GRH = g
	}
}

// ErrSMRunning means that another process of this host has the port's issm device
// open: it is its subnet manager.
var ErrSMRunning = errors.New("another process on this host is the port's subnet manager")

// OpenISSM opens an issm device ("issm0", or a path). While it is open, the port
// announces a subnet manager to the fabric (PortInfo:CapabilityMask IsSM).
func OpenISSM(dev string) (io.Closer, error) {
	fd, path, err := open(dev, Dev, HostDev)
	if errors.Is(err, unix.EAGAIN) {
		return nil, fmt.Errorf("%s: %w", path, ErrSMRunning)
	}
	if err != nil {
		return nil, err
	}
	return issm(fd), nil
}

type issm int

func (i issm) Close() error { return unix.Close(int(i)) }
