// Package uevent reads kobject uevents: the kernel's own (group 1 of
// NETLINK_KOBJECT_UEVENT) and systemd-udevd's after its rules have run (group
// 2). An event is a hint which device to read; its properties are not trusted
// for state.
//
// Any process in the network namespace may send to a multicast group, so the sender
// is checked as libudev does: a kernel event comes from netlink port 0, an
// event of udevd from a process of user 0.
package uevent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// Group selects whose events are read.
type Group uint32

// The groups of NETLINK_KOBJECT_UEVENT.
const (
	Kernel Group = 1
	Udev   Group = 2
)

// Event is one uevent. The zero value of a field means that it was absent.
type Event struct {
	Action    string // add, remove, change, move, online, offline, bind, unbind
	DevPath   string // below /sys: /devices/pci0000:00/.../infiniband/mlx5_0
	Subsystem string // net, infiniband, infiniband_mad, pci, ...
	Name      string // last element of DevPath: the device's kernel name
	IfIndex   int    // of the subsystem net
	OldPath   string // DEVPATH_OLD of a move, which is a rename
}

// MaxMessage bounds one event: the kernel's buffer has 2 KiB
// (UEVENT_BUFFER_SIZE), udevd's properties are below 8 KiB in practice and it
// sends at most its own limit of 128 KiB.
const MaxMessage = 128 << 10

var (
	errNotKernel = errors.New("not a kernel uevent: no ACTION@DEVPATH line")
	errNotUdev   = errors.New("not a message of udevd")
)

// parseKernel reads a message of group 1: "ACTION@DEVPATH", NUL, then
// KEY=VALUE strings, each with its NUL (kobject_uevent_env).
func parseKernel(b []byte) (Event, error) {
	head, rest, ok := bytes.Cut(b, []byte{0})
	if !ok || !bytes.ContainsRune(head, '@') || len(b) > MaxMessage {
		return Event{}, errNotKernel
	}
	return parseProps(rest)
}

// The header of udevd's messages, struct monitor_netlink_header in systemd's
// device-monitor: "libudev" and NUL; magic u32 big-endian; header size,
// properties' offset and length u32 in host order; four u32 of filter hashes.
const (
	udevPrefix   = "libudev\x00"
	udevMagic    = 0xfeedcafe
	udevHeadSize = 40
)

// parseUdev reads a message of group 2.
func parseUdev(b []byte) (Event, error) {
	if len(b) < udevHeadSize || len(b) > MaxMessage || string(b[:8]) != udevPrefix || binary.BigEndian.Uint32(b[8:]) != udevMagic {
		return Event{}, errNotUdev
	}
	off, n := binary.NativeEndian.Uint32(b[16:]), binary.NativeEndian.Uint32(b[20:])
	if off < udevHeadSize || uint64(off)+uint64(n) > uint64(len(b)) {
		return Event{}, errors.New("udevd's message says that its properties lie outside of it")
	}
	return parseProps(b[off : off+n])
}

func parseProps(b []byte) (e Event, err error) {
	for len(b) > 0 {
		var kv []byte
		kv, b, _ = bytes.Cut(b, []byte{0})
		k, v, ok := bytes.Cut(kv, []byte{'='})
		if !ok {
			continue
		}
		switch string(k) {
		case "ACTION":
			e.Action = string(v)
		case "DEVPATH":
			e.DevPath = string(v)
		case "SUBSYSTEM":
			e.Subsystem = string(v)
		case "DEVPATH_OLD":
			e.OldPath = string(v)
		case "IFINDEX":
			if i, err := strconv.ParseInt(string(v), 10, 32); err == nil && i > 0 {
				e.IfIndex = int(i)
			}
		}
	}
	if e.Action == "" || e.DevPath == "" {
		return Event{}, errors.New("uevent without ACTION or DEVPATH")
	}
	for i := len(e.DevPath) - 1; i >= 0; i-- {
		if e.DevPath[i] == '/' {
			e.Name = e.DevPath[i+1:]
			break
		}
	}
	return e, nil
}

// Events is a source of uevents that is read when its owner wants and never
// waits.
type Events struct {
	fd    int
	group Group
	keep  map[string]bool
	batch *nl.Batch
}

// Listen opens a source of a group's events, in the calling thread's network
// namespace. subsystems limits what is kept; none keeps all. recvBuffer is the
// socket's receive buffer in bytes, 0 for a large one.
func Listen(g Group, recvBuffer int, subsystems ...string) (*Events, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open the uevent socket: %w", err)
	}
	fail := func(what string, err error) (*Events, error) {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("%s of the uevent socket: %w", what, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return fail("ask for the credentials", err)
	}
	switch {
	case recvBuffer != 0:
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, recvBuffer)
	default:
		const large = 16 << 20
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, large); err != nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, large)
		}
	}
	if err != nil {
		return fail("set the receive buffer", err)
	}
	if g == Udev && len(subsystems) > 0 {
		if err := attachFilter(fd, subsystems); err != nil {
			return fail("set the filter", err)
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: uint32(g)}); err != nil {
		return fail("join a group", err)
	}
	batch, err := nl.NewBatch(MaxMessage)
	if err != nil {
		return fail("buffers", err)
	}
	e := &Events{fd: fd, group: g, batch: batch}
	if len(subsystems) > 0 {
		e.keep = map[string]bool{}
		for _, s := range subsystems {
			e.keep[s] = true
		}
	}
	return e, nil
}

// FD is the descriptor, for a poller.
func (e *Events) FD() int { return e.fd }

// Close closes the socket.
func (e *Events) Close() error { return unix.Close(e.fd) }

// Read calls put for all waiting events. lost reports that some did not fit the
// socket's buffer. An error ends the source for good.
func (e *Events) Read(put func(Event)) (lost bool, err error) {
	return e.batch.Datagrams(e.fd, func(b, oob []byte, from *unix.RawSockaddrNetlink) {
		if ev, err := accept(e.group, b, oob, from); err == nil && (e.keep == nil || e.keep[ev.Subsystem]) {
			put(ev)
		}
	})
}

// accept checks the sender and parses.
func accept(g Group, b, oob []byte, from *unix.RawSockaddrNetlink) (Event, error) {
	if from == nil {
		return Event{}, errors.New("uevent without a sender")
	}
	uid, err := senderUID(oob)
	if err != nil {
		return Event{}, err
	}
	if g == Kernel {
		if from.Pid != 0 {
			return Event{}, fmt.Errorf("kernel uevent from netlink port %d", from.Pid)
		}
		return parseKernel(b)
	}
	// Port 0 with a group other than 1, or a multicast without a group, is
	// nothing that udevd does.
	if from.Pid == 0 || from.Groups&uint32(Udev) == 0 {
		return Event{}, errors.New("message of udevd was not sent to its group")
	}
	if uid != 0 {
		return Event{}, fmt.Errorf("message of udevd from user %d", uid)
	}
	return parseUdev(b)
}

func senderUID(oob []byte) (uint32, error) {
	cs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, err
	}
	for i := range cs {
		if c, err := unix.ParseUnixCredentials(&cs[i]); err == nil {
			return c.Uid, nil
		}
	}
	return 0, errors.New("uevent without credentials")
}
