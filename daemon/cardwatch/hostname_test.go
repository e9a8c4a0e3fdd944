package cardwatch

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
	"ibnetworkd/internal/testkit"
)

// In a UTS namespace of its own, the host's name is the test's to change.
func TestHostname(t *testing.T) {
	kerneltest.Isolate(t)
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		t.Skipf("no UTS namespace: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	news := make(chan struct{}, 10)
	ended := make(chan error)
	// The file and its events are global, so another thread may watch.
	go func() { ended <- Hostname(ctx, func() { news <- struct{}{} }) }()
	set := func() {
		testkit.NoError(t, unix.Sethostname([]byte("test")))
	}
	timeout := time.After(10 * time.Second)
	for watched := false; !watched; {
		set()
		select {
		case <-news:
			watched = true
		case err := <-ended:
			t.Fatal(err)
		case <-timeout:
			t.Fatal("the change of the name was not seen")
		case <-time.After(20 * time.Millisecond): // set before it was watched
		}
	}
	for quiet := false; !quiet; {
		select {
		case <-news:
		case <-time.After(100 * time.Millisecond):
			quiet = true
		}
	}
	// Each change is reported, however often: no other reader may take it.
	for i := range 20 {
		set()
		select {
		case <-news:
		case <-time.After(10 * time.Second):
			t.Fatalf("change %d of the name was not seen", i)
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("does not end with its context")
	}
}

func TestIndexOf(t *testing.T) {
	kerneltest.Isolate(t)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	testkit.NoError(t, err)
	defer func() { _ = unix.Close(fd) }()
	if i, err := indexOf(fd, "lo"); i != 1 || err != nil {
		t.Errorf("lo has the index %d, %v", i, err)
	}
	for _, name := range []string{"none", "averyveryverylongname", ""} {
		if i, err := indexOf(fd, name); err == nil {
			t.Errorf("%q has the index %d", name, i)
		}
	}
}
