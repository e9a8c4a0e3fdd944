package dhcpclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// now is the time since boot, sleep included.
func now() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func seconds(t time.Duration) uint64 { return uint64(t / time.Second) }

// present reports whether a link is still there.
func present(index int, name string) bool {
	i, err := net.InterfaceByIndex(index)
	return err == nil && i.Name == name
}

// timer is one of CLOCK_BOOTTIME: a lease ends also while the host sleeps.
type timer struct {
	f   *os.File
	fd  int
	due chan struct{}
	at  time.Duration
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timer: %w", err)
	}
	t := &timer{f: os.NewFile(uintptr(fd), "timer"), fd: fd, due: make(chan struct{}, 1)}
	go func() {
		var b [8]byte
		for {
			if _, err := t.f.Read(b[:]); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ECANCELED) {
				return
			}
			if binary.NativeEndian.Uint64(b[:]) > 0 {
				select {
				case t.due <- struct{}{}:
				default:
				}
			}
		}
	}()
	return t, nil
}

// set has the timer run out at a time since boot, 0 for never.
func (t *timer) set(at time.Duration) {
	if at == t.at && at > now() {
		return
	}
	t.at = at
	spec := unix.ItimerSpec{}
	if at != 0 {
		spec.Value = unix.NsecToTimespec(int64(max(at, 1)))
	}
	_ = unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &spec, nil)
}
