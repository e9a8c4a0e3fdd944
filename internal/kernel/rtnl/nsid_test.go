package rtnl

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/kernel/nl"
)

// The message about a link that is moved has the number of its namespace, which names
// none once that has ended.
func TestNumbersOfNamespaces(t *testing.T) {
	c := dial(t)
	pair(t, c)
	ev, err := Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ev.Close() }()
	// The thread ends with its goroutine, and leaves the namespace to the descriptor.
	other := make(chan int)
	go func() {
		runtime.LockOSThread()
		fd := -1
		if unix.Unshare(unix.CLONE_NEWNET) == nil {
			fd, _ = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		other <- fd
	}()
	fd := <-other
	if fd < 0 {
		t.Fatal("no other namespace")
	}
	w := nl.Build(make([]byte, sizeIfInfo)...).String(unix.IFLA_IFNAME, "va").Uint32(unix.IFLA_NET_NS_FD, uint32(fd))
	do(t, c, nl.NewRequest("move va", unix.RTM_NEWLINK, 0, w))
	var moved Event
	if err := kerneltest.Until(ev, func(all []Event, _ bool) bool {
		i := slices.IndexFunc(all, func(e Event) bool { return e.Type == LinkMoved })
		if i >= 0 {
			moved = all[i]
		}
		return i >= 0
	}); err != nil {
		t.Fatal(err)
	}
	if gone := c.GoneNamespaces([]int{moved.NSID, 4711}); moved.Name != "va" || !slices.Equal(gone, []int{4711}) {
		t.Fatalf("%+v, these are gone: %v", moved, gone)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); !slices.Equal(c.GoneNamespaces([]int{moved.NSID}), []int{moved.NSID}); {
		if time.Now().After(end) {
			t.Fatal("the number stays")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
