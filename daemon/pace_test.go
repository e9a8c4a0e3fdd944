package daemon

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/link"
)

// slow takes its time for each look and notes when it began.
type slow struct {
	*memory
	took  time.Duration
	began []time.Time
}

func (s *slow) Observe(sc Scope, n Needs) (*link.Snapshot, error) {
	s.began = append(s.began, time.Now())
	time.Sleep(s.took)
	return s.memory.Observe(sc, n)
}

// What happens after a pause is seen at once however long the last cycle took; in a
// storm the loop is busy for half of the time at most.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := &slow{memory: system(t, 1), took: 80 * time.Millisecond}
		r := start(t, sys, &notes{}, &files{m: map[string]string{"10.ibnetwork": unit0}}, nil, func(w func(Scope)) { sys.wake = w })
		event := Scope{Links: map[int]bool{10: true}}
		time.Sleep(10 * time.Second)
		for _, quiet := range []time.Duration{5 * time.Second, 300 * time.Millisecond, 100 * time.Millisecond} {
			sys.began = nil
			r.Wake(event)
			time.Sleep(sys.took + quiet)
			synctest.Wait()
			if len(sys.began) != 1 {
				t.Fatalf("%d looks for one event", len(sys.began))
			}
			sys.began = nil
			at := time.Now()
			r.Wake(event)
			time.Sleep(time.Second)
			if len(sys.began) != 1 || sys.began[0].Sub(at) > coalesceNext {
				t.Errorf("%v after a cycle: looks after %v", quiet, since(at, sys.began))
			}
		}
		sys.began = nil
		for range 2000 {
			r.Wake(event)
			time.Sleep(time.Millisecond)
		}
		if n := len(sys.began); n < 10 || n > 14 {
			t.Errorf("%d looks of 80 ms in a storm of 2 s", n)
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
