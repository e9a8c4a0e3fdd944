package lab

import (
	"testing"
	"time"
)

// A silence is as long as the requests in a row that were lost, and no longer because
// the guest stood still in between.
func TestSilence(t *testing.T) {
	s := &Pinging{interval: 100 * time.Millisecond}
	at := time.Now()
	fate := func(lost ...bool) {
		for i, l := range lost {
			s.open = append(s.open, request{seq: uint16(i), at: at, until: at.Add(answerLimit), known: true, lost: l})
			at = at.Add(s.interval)
		}
		s.tell(at, "")
	}
	fate(false, false)
	if d := s.Silence(); d != 0 {
		t.Errorf("all were answered, and it was silent for %v", d)
	}
	fate(true, true, true, false, true)
	at = at.Add(time.Hour)
	fate(true, false)
	if d, want := s.Silence(), 3*s.interval+answerLimit; d != want {
		t.Errorf("silent for %v, want %v", d, want)
	}
	if gaps := s.Gaps(); len(gaps) != 2 || gaps[0].Lost != 3 || gaps[0].To.Sub(gaps[0].From) != 2*s.interval || gaps[1].Lost != 2 {
		t.Errorf("gaps: %v", gaps)
	}
	if sent, lost := s.Count(); sent != 9 || lost != 5 {
		t.Errorf("%d of %d", lost, sent)
	}
}
