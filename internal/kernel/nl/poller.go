package nl

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Poller waits for several sockets in one sleep. A socket that had something to
// read is not polled again until Ready is called: a burst of messages wakes the
// process once, and none wakes it while the messages are processed.
type Poller struct {
	f  *os.File // the epoll instance; the runtime polls it like a socket
	rc syscall.RawConn

	mu    sync.Mutex // guards fired
	fired []int32
}

// NewPoller makes one without sockets.
func NewPoller() (*Poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("epoll: %w", err)
	}
	p := &Poller{f: os.NewFile(uintptr(fd), "epoll")}
	if p.rc, err = p.f.SyscallConn(); err != nil {
		_ = p.f.Close()
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return p, nil
}

const once = unix.EPOLLIN | unix.EPOLLONESHOT

// Add has the poller wait for fd. Closing fd takes it away again.
func (p *Poller) Add(fd int) error { return p.control(unix.EPOLL_CTL_ADD, fd) }

func (p *Poller) control(op, fd int) error {
	var err error
	cerr := p.rc.Control(func(ep uintptr) {
		err = unix.EpollCtl(int(ep), op, fd, &unix.EpollEvent{Events: once, Fd: int32(fd)})
	})
	if err := errors.Join(cerr, err); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// Wait returns when a socket has something to read, or with os.ErrClosed after
// Close.
func (p *Poller) Wait() error {
	var evs [16]unix.EpollEvent
	n := 0
	var err error
	if rerr := p.rc.Read(func(ep uintptr) bool {
		n, err = unix.EpollWait(int(ep), evs[:], 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	}); rerr != nil {
		return fmt.Errorf("epoll: %w (%w)", os.ErrClosed, rerr) // nothing else ends it
	}
	if err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range evs[:n] {
		p.fired = append(p.fired, e.Fd)
	}
	return nil
}

// Ready waits for those again that had something to read. What came in between
// makes the next Wait return at once.
func (p *Poller) Ready() {
	p.mu.Lock()
	fired := p.fired
	p.fired = nil
	p.mu.Unlock()
	for _, fd := range fired {
		// It was closed meanwhile.
		_ = p.control(unix.EPOLL_CTL_MOD, int(fd))
	}
}

// Close ends Wait.
func (p *Poller) Close() error { return p.f.Close() }
