package umad

import "testing"

// Requests go to the agent with the fewest under way, whichever order their outcomes have,
// and an outcome that was not counted does not count.
func TestSpread(t *testing.T) {
	var s spread
	for a := range uint32(4) {
		s.add(10 + a)
	}
	most := func(n int) {
		t.Helper()
		sum := 0
		for _, k := range s.open {
			if sum += k; k > n {
				t.Errorf("%v, at most %d of an agent", s.open, n)
			}
		}
	}
	for range 20 {
		s.pick()
	}
	most(5)
	for range 5 {
		s.done(12)
	}
	s.done(12)
	s.done(99)
	for range 5 {
		if a := s.pick(); a != 12 {
			t.Errorf("agent %d with %v", a, s.open)
		}
	}
	s.pick()
	most(6)
}
