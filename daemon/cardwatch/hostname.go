package cardwatch

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hostnameFile can be polled: the kernel says with POLLERR that the name was set
// (kernel/utsname_sysctl.c, uts_proc_notify).
const hostnameFile = "/proc/sys/kernel/hostname"

// Hostname calls changed each time the host's name is set, until ctx ends.
func Hostname(ctx context.Context, changed func()) error {
	// Not os.Open: the runtime's epoll would poll the file too, and the first to poll takes the event.
	fd, err := unix.Open(hostnameFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: hostnameFile, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	stopped := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		_, _ = unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		close(stopped)
	})
	defer func() {
		if !end() {
			<-stopped // it may still be about to write, to what then is another file
		}
		_ = unix.Close(stop)
	}()
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}, {Fd: int32(stop), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll %s: %w", hostnameFile, err)
		}
		if fds[0].Revents != 0 && ctx.Err() == nil {
			changed()
		}
	}
	return nil
}
