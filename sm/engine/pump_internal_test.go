package engine

import (
	"testing"

	"ibnetworkd/sm/smp"
)

// longSearch is a source without requests that takes many searches to find out.
type longSearch struct {
	smp.List
	search func() bool
}

func (l *longSearch) Search() bool { return l.search() }

// While a source searches for its next request others are served, and what they wait
// longer than that is counted.
func TestServedWhileSearching(t *testing.T) {
	s := New(nil, Config{})
	served, searches := false, 0
	s.cmds <- func() { served = true }
	err := s.pump(t.Context(), &longSearch{search: func() bool {
		searches++
		return served && searches >= 20 || searches == 1000
	}})
	if err != nil || !served || searches < 20 {
		t.Errorf("served %v after %d searches: %v", served, searches, err)
	}
	n := uint64(0)
	for _, k := range s.counters.Pauses.AtMost {
		n += k
	}
	if n < uint64(searches)-2 || s.counters.Pauses.Longest > s.counters.Pauses.Sum || s.counters.Pauses.Sum == 0 {
		t.Errorf("%d searches: %+v", searches, s.counters.Pauses)
	}
}
