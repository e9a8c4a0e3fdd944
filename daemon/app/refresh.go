package app

import (
	"context"
	"sync"
	"time"
)

// Bounds of what a caller of Describe makes the daemon do.
const (
	refreshEvery = time.Second            // at most so often
	refreshWait  = 500 * time.Millisecond // what a caller waits at most
)

// refresher reads what changes without an event when a caller asks for it.
type refresher struct {
	// refresh reads it, and gives the number of the change that has it, 0 for none.
	refresh func(context.Context) (uint64, error)

	mu    sync.Mutex // guards what follows
	last  time.Time
	shown uint64        // number of the last change that the bus has
	next  chan struct{} // closed when shown grows
}

// run returns when the bus has what was read, or after refreshWait: a daemon that
// is busy answers with what it knows.
func (r *refresher) run(ctx context.Context) {
	r.mu.Lock()
	recent := time.Since(r.last) < refreshEvery
	if !recent {
		r.last = time.Now()
	}
	r.mu.Unlock()
	if recent {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refreshWait)
	defer cancel()
	seq, err := r.refresh(ctx)
	if err != nil {
		return
	}
	for {
		r.mu.Lock()
		if r.next == nil {
			r.next = make(chan struct{})
		}
		next, done := r.next, r.shown >= seq
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// published notes the number of a change that the bus has now.
func (r *refresher) published(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shown = max(r.shown, seq)
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
}
