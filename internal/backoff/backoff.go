// Package backoff is the pauses between attempts to reach something that is not
// there, each twice as long as the one before.
package backoff

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Min is the first pause after a bus was lost, Max the longest while something
// may come without being noticed.
const (
	Min = 200 * time.Millisecond
	Max = 5 * time.Minute
)

// SystemBus is the socket of the system bus.
const SystemBus = "/run/dbus/system_bus_socket"

// Pause is a series of waits, each twice as long as the one before. The zero
// value waits for time alone.
type Pause struct {
	// Socket is a path whose appearance ends a wait, "" for none.
	Socket string

	last  time.Duration
	tried time.Time // when the last wait ended
}

// Reset begins the series again, after a time with a bus.
func (p *Pause) Reset() { p.last = 0 }

// Wait returns when it is time for another attempt: when the pause is over, or
// a socket has appeared. It reports false when ctx has ended.
func (p *Pause) Wait(ctx context.Context) bool {
	p.last = min(max(2*p.last, Min), Max)
	defer func() { p.tried = time.Now() }()
	var events chan fsnotify.Event
	// Short pauses are not worth a watch.
	if p.Socket != "" && p.last > 5*time.Second {
		if w, err := fsnotify.NewWatcher(); err == nil {
			defer w.Close()
			go func() {
				for range w.Errors { // fsnotify keeps its lock until one is received
				}
			}()
			if w.Add(filepath.Dir(p.Socket)) == nil {
				events = w.Events
			}
		}
		// It may have come between the attempt and the watch.
		if st, err := os.Stat(p.Socket); err == nil && st.ModTime().After(p.tried) {
			p.last = 0
			return ctx.Err() == nil
		}
	}
	t := time.NewTimer(p.last)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-events:
		p.last = 0
	case <-t.C:
	}
	return ctx.Err() == nil
}

// Sooner is the earliest of some times, of which zero ones are none.
func Sooner(times ...time.Time) (first time.Time) {
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
