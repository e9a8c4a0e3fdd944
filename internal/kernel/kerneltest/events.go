package kerneltest

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Until reads a source's events as they come until ok accepts all of
// them so far, for at most ten seconds.
func Until[E any](ev interface {
	FD() int
	Read(func(E)) (bool, error)
}, ok func(all []E, lost bool) bool) error {
	var all []E
	lost := false
	for end := time.Now().Add(10 * time.Second); ; {
		l, err := ev.Read(func(e E) { all = append(all, e) })
		if err != nil {
			return err
		}
		lost = lost || l
		if ok(all, lost) {
			return nil
		}
		left := time.Until(end)
		if left <= 0 {
			return fmt.Errorf("not among %d events (lost some: %v): %v", len(all), lost, all)
		}
		fds := []unix.PollFd{{Fd: int32(ev.FD()), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && err != unix.EINTR {
			return err
		}
	}
}
