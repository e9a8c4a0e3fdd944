package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/link"
)

// slow takes its time for each observation and notes when it began.
type slow struct {
	*memory
	took  time.Duration
	began chan time.Time
}

func (s *slow) Observe(sc Scope, n Needs) (*link.Snapshot, error) {
	s.began <- time.Now()
	time.Sleep(s.took)
	return s.memory.Observe(sc, n)
}

// take gives when observations began since the last call.
func (s *slow) take() (out []time.Time) {
	for len(s.began) > 0 {
		out = append(out, <-s.began)
	}
	return out
}

// What happens after a pause is seen at once however long the last cycle took; in a
// storm the loop is busy for half of the time at most.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &slow{memory: system(t, 1), took: 80 * time.Millisecond, began: make(chan time.Time, 1000)}
		r := start(t, sys, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}}, nil, func(w func(Scope)) { sys.wake = w })
		event := Scope{Links: map[int]bool{10: true}}
		time.Sleep(10 * time.Second)
		for _, quiet := range []time.Duration{5 * time.Second, 300 * time.Millisecond, 100 * time.Millisecond, 30 * time.Millisecond} {
			sys.take()
			r.Wake(event)
			time.Sleep(sys.took + quiet)
			synctest.Wait()
			if n := len(sys.take()); n != 1 {
				t.Fatalf("%d observations for one event", n)
			}
			at := time.Now()
			r.Wake(event)
			time.Sleep(time.Second)
			if began := sys.take(); len(began) != 1 || began[0].Sub(at) > coalesceNext {
				t.Errorf("%v after a cycle: observed after %v", quiet, since(at, began))
			}
		}
		sys.take()
		for range 2000 {
			r.Wake(event)
			time.Sleep(time.Millisecond)
		}
		if n := len(sys.take()); n < 10 || n > 14 {
			t.Errorf("%d observations of 80 ms in a storm of 2 s", n)
		}
		r.stop()
	})
}

// The cycle of a request that is answered meanwhile does not make an event wait for others of the same change.
func TestPaceBesideRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &slow{memory: system(t, 1), took: time.Millisecond, began: make(chan time.Time, 1000)}
		r := start(t, sys, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}}, nil, func(w func(Scope)) { sys.wake = w })
		time.Sleep(10 * time.Second)
		sys.take()
		at := time.Now()
		r.Wake(Scope{Links: map[int]bool{10: true}})
		time.Sleep(time.Millisecond)
		if err := r.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if began := sys.take(); len(began) != 2 || began[1].Sub(at) > 2*coalesceLeast {
			t.Errorf("observed after %s", since(at, began))
		}
		r.stop()
	})
}

// One long cycle does not make what follows it wait for longer than once.
func TestPaceAfterLongCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &slow{memory: system(t, 1), took: 5 * time.Second, began: make(chan time.Time, 1000)}
		r := start(t, sys, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}}, nil, func(w func(Scope)) { sys.wake = w })
		event := Scope{Links: map[int]bool{10: true}}
		time.Sleep(time.Minute)
		sys.take()
		r.Wake(event)
		time.Sleep(sys.took + coalesceLeast)
		synctest.Wait()
		sys.take()
		sys.took = 2 * time.Millisecond
		at := time.Now()
		for range 1000 {
			r.Wake(event)
			time.Sleep(time.Millisecond)
		}
		began := sys.take()
		if len(began) < 30 || len(began) > 40 || began[0].Sub(at) > coalesceMost {
			t.Errorf("%d observations in a second, after %s", len(began), since(at, began))
		}
		r.stop()
	})
}

// What the observer reads again after a time of its own does not wait for the events that follow others, and does not
// take more than half of the time either.
func TestPaceOfReadingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &slow{memory: system(t, 1), took: 2 * time.Millisecond, began: make(chan time.Time, 1000)}
		r := start(t, sys, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}}, nil, func(w func(Scope)) { sys.wake = w })
		links := map[int]bool{10: true}
		time.Sleep(10 * time.Second)
		r.Wake(Scope{Links: links})
		time.Sleep(coalesceLeast + sys.took)
		synctest.Wait()
		sys.take()
		at := time.Now()
		r.Wake(Scope{Links: links, Reread: true})
		time.Sleep(time.Second)
		if began := sys.take(); len(began) != 1 || began[0].Sub(at) > coalesceLeast {
			t.Errorf("observed after %s", since(at, began))
		}
		after := func(event Scope) {
			t.Helper()
			sys.take()
			r.Wake(event)
			time.Sleep(2 * coalesceLeast)
			at := time.Now()
			r.Wake(Scope{Links: links, Reread: true})
			time.Sleep(time.Second)
			if began := sys.take(); len(began) != 1 || !began[0].Equal(at) {
				t.Errorf("after an event of the same change: observed after %s", since(at, began))
			}
		}
		after(Scope{Addrs: true})
		time.Sleep(time.Second)
		r.Wake(Scope{Links: links})
		time.Sleep(coalesceLeast + sys.took)
		synctest.Wait()
		after(Scope{Links: links}) // one that follows a cycle closely
		for range 400 {
			r.Wake(Scope{Links: links, Reread: true})
			time.Sleep(100 * time.Microsecond)
		}
		if n := len(sys.take()); n < 5 || n > 8 {
			t.Errorf("%d observations of %v in 40 ms", n, sys.took)
		}
		r.stop()
	})
}

// What nothing waits for is observed later; what happens meanwhile does not wait with it.
func TestPaceOfLazyHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &slow{memory: system(t, 1), took: 2 * time.Millisecond, began: make(chan time.Time, 1000)}
		r := start(t, sys, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}}, nil, func(w func(Scope)) { sys.wake = w })
		time.Sleep(10 * time.Second)
		sys.take()
		at := time.Now()
		r.Wake(Scope{Addrs: true})
		time.Sleep(time.Second)
		if began := sys.take(); len(began) != 1 || began[0].Sub(at) < lazyWait || began[0].Sub(at) > lazyWait+coalesceNext {
			t.Errorf("lazy: observed after %s", since(at, began))
		}
		for after := 10 * time.Millisecond; after < lazyWait; after += 10 * time.Millisecond {
			r.Wake(Scope{Addrs: true})
			time.Sleep(after)
			at := time.Now()
			r.Wake(Scope{Links: map[int]bool{10: true}})
			time.Sleep(time.Second)
			if began := sys.take(); len(began) != 1 || began[0].Sub(at) > coalesceNext {
				t.Errorf("%v after a lazy hint: observed after %s", after, since(at, began))
			}
		}
		r.stop()
	})
}

func since(at time.Time, times []time.Time) string {
	var out []string
	for _, x := range times {
		out = append(out, x.Sub(at).String())
	}
	return strings.Join(out, " ")
}

// The last link that udevd finishes with is not made to wait for others.
func TestCompletes(t *testing.T) {
	waits := link.Status{Reasons: []link.Reason{{Code: link.CodeUdev}}}
	d := New(Config{})
	d.status = map[int]link.Status{3: {}, 4: waits, 5: waits}
	for _, c := range []struct {
		finished []int
		want     bool
	}{{nil, false}, {[]int{3}, false}, {[]int{4}, false}, {[]int{4, 5}, true}, {[]int{3, 4, 5}, true}} {
		s := Scope{Udev: map[int]bool{}}
		for _, i := range c.finished {
			s.Udev[i] = true
		}
		if got := d.completes(s); got != c.want {
			t.Errorf("%v: %v", c.finished, got)
		}
	}
	d.status = map[int]link.Status{3: {}}
	if d.completes(Scope{Udev: map[int]bool{3: true}}) {
		t.Error("no link waits")
	}
}
