package cardwatch

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/kerneltest"
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
	timeout := time.After(10 * time.Second)
	for n := 0; n < 2; {
		if err := unix.Sethostname([]byte("test")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-news:
			n++
		case err := <-ended:
			t.Fatal(err)
		case <-timeout:
			t.Fatal("the change of the name was not seen")
		case <-time.After(20 * time.Millisecond): // set before it was watched
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
