package nl

import (
	"slices"
	"sync"
)

// A Queue hands events from a reader that must never wait to an owner that may
// be busy. Equal events that the owner has not taken yet are kept once. A queue
// that would grow past its limit drops what it holds and says so, which for the
// owner is the same as a socket overrun: look at everything.
type Queue[E comparable] struct {
	mu      sync.Mutex
	order   []E
	seen    map[E]struct{}
	limit   int
	overrun bool
	err     error
	count   uint64
	wake    chan struct{}
}

// NewQueue makes a queue of at most limit different events.
func NewQueue[E comparable](limit int) *Queue[E] {
	return &Queue[E]{seen: map[E]struct{}{}, limit: limit, wake: make(chan struct{}, 1)}
}

// C is readable when Take has something to give. It is never closed.
func (q *Queue[E]) C() <-chan struct{} { return q.wake }

func (q *Queue[E]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Put adds an event unless an equal one waits already.
func (q *Queue[E]) Put(e E) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, dup := q.seen[e]; dup {
		return
	}
	if len(q.order) >= q.limit {
		q.drop()
		return
	}
	q.seen[e] = struct{}{}
	q.order = append(q.order, e)
	q.signal()
}

func (q *Queue[E]) drop() {
	clear(q.seen)
	q.order = nil
	q.overrun = true
	q.count++
	q.signal()
}

// Overrun notes that events were lost; those that wait stay, for they may tell
// things that a look at everything does not (a rename's old name).
func (q *Queue[E]) Overrun() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.overrun = true
	q.count++
	q.signal()
}

// Fail notes the error that ended the reader.
func (q *Queue[E]) Fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.signal()
}

// Batch is what waited in a queue.
type Batch[E comparable] struct {
	// Events in the order of their first arrival, each once.
	Events []E
	// Overrun says that events were lost and everything must be looked at.
	Overrun bool
	// Err ended the reader: no event will come any more. It repeats in every
	// later batch.
	Err error
}

// Take empties the queue.
func (q *Queue[E]) Take() Batch[E] {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := Batch[E]{Events: q.order, Overrun: q.overrun, Err: q.err}
	q.order, q.overrun = nil, false
	clear(q.seen)
	return b
}

// Forget takes back waiting events that f reports true for.
func (q *Queue[E]) Forget(f func(E) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.order = slices.DeleteFunc(q.order, func(e E) bool {
		if !f(e) {
			return false
		}
		delete(q.seen, e)
		return true
	})
}

// Overruns counts the overruns so far, of the socket and of the queue.
func (q *Queue[E]) Overruns() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}
