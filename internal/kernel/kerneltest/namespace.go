package kerneltest

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OtherNamespace is another network namespace, open until the test ends or the file is
// closed. No thread stays in it: the first thread of a process does not end with its
// goroutine. Where none can be made the test is skipped.
func OtherNamespace(t testing.TB) *os.File {
	t.Helper()
	made := make(chan *os.File)
	go func() {
		defer close(made)
		runtime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil || unix.Unshare(unix.CLONE_NEWNET) != nil {
			return
		}
		f, _ := os.Open("/proc/thread-self/ns/net")
		if unix.Setns(int(own.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		_ = own.Close()
		made <- f
	}()
	f := <-made
	if f == nil {
		t.Skip("no other network namespace")
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
