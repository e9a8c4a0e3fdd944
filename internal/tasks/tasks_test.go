package tasks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// READY=1 waits for each task that has a ready channel, and no longer than the task
// allows; one that fails ends all.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		loop, never := make(chan struct{}), make(chan struct{})
		wait := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		ready := 0
		ended := make(chan error)
		start := time.Now()
		go func() {
			ended <- Run(ctx, []Task{{Name: "loop", Run: wait, Ready: loop}, {Name: "bus", Run: wait, Ready: never, Within: 5 * time.Second},
				{Name: "other", Run: wait}}, func() { ready++ })
		}()
		time.Sleep(time.Minute)
		if synctest.Wait(); ready != 0 {
			t.Error("ready without the loop")
		}
		close(loop)
		if synctest.Wait(); ready != 1 {
			t.Errorf("ready %d times after %v", ready, time.Since(start))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end is %v", err)
		}

		broken := errors.New("broken")
		start = time.Now()
		breaks := func(context.Context) error { time.Sleep(time.Second); return broken }
		err := Run(t.Context(), []Task{{Name: "a", Run: wait, Ready: never}, {Name: "b", Run: breaks}}, func() { ready++ })
		if !errors.Is(err, broken) || err.Error() != "b: broken" || ready != 1 || time.Since(start) != time.Second {
			t.Errorf("got %v after %v, ready %d times", err, time.Since(start), ready)
		}
	})
}

// The bus is waited for a time that is counted from the start.
func TestWaitReadyWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loop := make(chan struct{})
		time.AfterFunc(3*time.Second, func() { close(loop) })
		start := time.Now()
		list := []Task{{Ready: loop}, {Ready: make(chan struct{}), Within: 5 * time.Second}}
		if !waitReady(t.Context(), list) || time.Since(start) != 5*time.Second {
			t.Errorf("after %v", time.Since(start))
		}
	})
}
