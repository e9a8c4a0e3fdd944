// Package kerneltest lets tests of the kernel clients run against the real
// kernel without touching the machine's own network.
package kerneltest

import (
	"errors"
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Isolate moves the test's goroutine to a thread with a network namespace of
// its own, with the loopback interface down, or skips the test with the reason
// why that cannot be had. The thread and the namespace end with the test.
func Isolate(t testing.TB) {
	t.Helper()
	// Never unlocked: the runtime ends a locked thread with its goroutine, and
	// no other goroutine ever runs in this namespace.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		if errors.Is(err, unix.EPERM) {
			t.Skip("needs CAP_SYS_ADMIN for a network namespace of its own (run as root)")
		}
		t.Skipf("no network namespace of its own: %v", err)
	}
}

// NeedRoot skips the test if it does not run as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if unix.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// InterfaceIndex is the index of a link in the calling thread's namespace, 0 for
// none.
func InterfaceIndex(name string) int {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0
	}
	return i.Index
}
