package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// onHangup reloads on SIGHUP, and reports to the service manager what Type=notify-reload
// asks for (sd_notify(3)). Its READY=1 must not come before that of the start.
func (a *App) onHangup(ctx context.Context, hangup <-chan os.Signal) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.started:
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			var ts unix.Timespec
			_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
			a.notify(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", sd.SdNotifyReloading, ts.Nano()/1000))
			if err := a.reload(ctx); err != nil && ctx.Err() == nil {
				a.notify("STATUS=the reload failed: " + err.Error())
			}
			a.notify(sd.SdNotifyReady)
		}
	}
}

// notifier gives the function that reports a state to the service manager (sd_notify(3)), by
// one socket that stays open; none without NOTIFY_SOCKET.
func notifier() (notify func(state string), done func()) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return func(string) {}, func() {}
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return func(string) {}, func() {}
	}
	return func(state string) {
		// The address is of this call alone: Sendto writes into it, and several tasks report.
		for errors.Is(unix.Sendto(fd, []byte(state), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: name}), unix.EINTR) {
		}
	}, func() { _ = unix.Close(fd) }
}

// freeAfter is how long there is no work before its memory is given back: events and calls
// that follow from it are over.
const freeAfter = 20 * time.Second

// giveBack notes work, and returns its memory to the system when there was none for a while.
// The runtime would do so by itself, but in small steps over minutes, each of which wakes
// the process.
func giveBack(free func()) (worked func()) {
	t := time.AfterFunc(time.Hour, free)
	t.Stop()
	return func() { t.Reset(freeAfter) }
}
