package packet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An Opener opens sockets: by itself, or where that is not permitted by the process that
// listens to a socket of this path (Serve). So the daemon needs neither CAP_NET_RAW
// nor packet sockets of its own.
type Opener string

// Listen opens a socket that receives.
func (o Opener) Listen(r Request) (*Conn, error) {
	fd, err := o.open(r)
	if err != nil {
		return nil, err
	}
	c := &Conn{f: os.NewFile(uintptr(fd), "packet")}
	if c.rc, err = c.f.SyscallConn(); err != nil {
		_ = c.f.Close()
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	return c, nil
}

// Sender opens a socket that sends.
func (o Opener) Sender() (*Sender, error) {
	fd, err := o.open(Request{Kind: ForSend})
	if err != nil {
		return nil, err
	}
	return &Sender{fd}, nil
}

func (o Opener) open(r Request) (int, error) {
	fd, err := r.open()
	if o == "" || !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EAFNOSUPPORT) {
		return fd, err
	}
	fd, berr := o.ask(r)
	if berr != nil {
		return -1, fmt.Errorf("%w; %w", err, berr)
	}
	return fd, nil
}

// patience bounds, in seconds, the wait for the other side, in both directions.
const patience = 5

func patient(fd int) error {
	limit := unix.Timeval{Sec: patience}
	return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
}

// ask has the other process open a socket.
func (o Opener) ask(r Request) (int, error) {
	wrap := func(err error) error { return fmt.Errorf("%s: %w", string(o), err) }
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, wrap(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := patient(fd); err != nil {
		return -1, wrap(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: string(o)}); err != nil {
		return -1, wrap(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return -1, wrap(err)
	}
	if err := unix.Sendto(fd, text, unix.MSG_NOSIGNAL, nil); err != nil {
		return -1, wrap(err)
	}
	var b [256]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, on, _, _, err := unix.Recvmsg(fd, b[:], oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return -1, wrap(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil || len(msgs) != 1 {
		return -1, wrap(fmt.Errorf("no socket: %s", b[:n]))
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return -1, wrap(errors.New("not one socket"))
	}
	return fds[0], nil
}

// idle is how long Serve waits for a further request: socket activation starts it again.
const idle = 10 * time.Second

// Serve answers the requests that come by a listening socket of unix(7), SOCK_SEQPACKET,
// one at a time, and returns when none has come for a while.
func Serve(listener int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}, int(idle.Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("poll: %w", err)
		case n == 0:
			return nil
		}
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNABORTED) || errors.Is(err, unix.EAGAIN) {
				continue
			}
			return fmt.Errorf("accept: %w", err)
		}
		serve(fd)
		_ = unix.Close(fd)
	}
}

// serve answers one request: with a socket, or with the reason why there is none.
func serve(conn int) {
	if patient(conn) != nil {
		return
	}
	var b [256]byte
	n, _, err := unix.Recvfrom(conn, b[:], 0)
	if err != nil {
		return
	}
	var r Request
	if err := json.Unmarshal(b[:n], &r); err != nil {
		_ = unix.Sendto(conn, []byte("not a request"), unix.MSG_NOSIGNAL, nil)
		return
	}
	fd, err := r.open()
	if err != nil {
		text := err.Error()
		_ = unix.Sendto(conn, []byte(text[:min(len(text), len(b))]), unix.MSG_NOSIGNAL, nil)
		return
	}
	_ = unix.Sendmsg(conn, []byte("ok"), unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
	_ = unix.Close(fd)
}
