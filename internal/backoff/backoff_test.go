package backoff

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/internal/testkit"
)

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pause
		var got []time.Duration
		for range 5 {
			start := time.Now()
			if !p.Wait(t.Context()) {
				t.Fatal("ended")
			}
			got = append(got, time.Since(start))
		}
		if got[0] != Min || got[4] != 16*Min {
			t.Errorf("pauses %v", got)
		}
		p.Reset()
		start := time.Now()
		p.Wait(t.Context())
		if d := time.Since(start); d != Min {
			t.Errorf("after a reset %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if p.Wait(ctx) {
			t.Error("it waited on after the end")
		}
	})
}

// A socket that comes between an attempt and the watch is not waited for.
func TestSocketComesBeforeTheWatch(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p := Pause{Socket: socket, last: Max, tried: time.Now().Add(-time.Second)}
	testkit.NoError(t, os.WriteFile(socket, nil, 0o600))
	if !p.Wait(ctx) {
		t.Error("it was waited for")
	}
	// One that was there at the attempt is no news.
	p = Pause{Socket: socket, last: Max, tried: time.Now().Add(time.Second)}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if p.Wait(short) {
		t.Error("an old socket passed for a new one")
	}
}

// A directory that is moved and removed at once ends a wait as any event does.
func TestDirectoryMovedAndRemoved(t *testing.T) {
	for range 20 {
		dir := filepath.Join(t.TempDir(), "dbus")
		testkit.NoError(t, os.Mkdir(dir, 0o755))
		p := Pause{Socket: filepath.Join(dir, "socket"), last: Max}
		over := make(chan struct{})
		go func() { defer close(over); p.Wait(t.Context()) }()
		time.Sleep(20 * time.Millisecond)
		testkit.NoError(t, errors.Join(os.Rename(dir, dir+"2"), os.Remove(dir+"2")))
		select {
		case <-over:
		case <-time.After(5 * time.Second):
			t.Fatal("the wait goes on")
		}
	}
}
