package main

import (
	"os"
	"runtime"
	"sync"

	"ibnetworkd/sm/serve"
)

// threads sets how many threads run at once: one for each subnet, because what a manager
// does is one goroutine's and to hand packets from thread to thread takes longer than the
// work on them, and two for each long computation, as it takes where there are so many, which would delay answers otherwise.
type threads struct {
	set func(n int) // nil to leave the number alone

	mu        sync.Mutex
	ports     map[serve.Port]bool
	computing int
}

// newThreads begins with one thread, unless the environment gives a number.
func newThreads() *threads {
	t := &threads{ports: map[serve.Port]bool{}}
	if os.Getenv("GOMAXPROCS") == "" {
		t.set = func(n int) { runtime.GOMAXPROCS(min(n, runtime.NumCPU())) }
		t.set(1)
	}
	return t
}

// port counts a port with a subnet of its own.
func (t *threads) port(p serve.Port) {
	t.change(func() { t.ports[p] = true })
}

// compute counts a long computation that began or ended.
func (t *threads) compute(began bool) {
	t.change(func() {
		if began {
			t.computing++
		} else {
			t.computing--
		}
	})
}

func (t *threads) change(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.number()
	if f(); t.set != nil && t.number() != before {
		t.set(t.number())
	}
}

// spare is how many processors are left beside that of the goroutine that answers.
func (t *threads) spare() int {
	if t.set == nil {
		return runtime.GOMAXPROCS(0) - 1
	}
	return runtime.NumCPU() - 1
}

func (t *threads) number() int { return max(len(t.ports), 1) + 2*max(t.computing, 0) }
