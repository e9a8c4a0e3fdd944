package busconn

import "time"

// maxStall is for how long the bus may keep this connection from writing. It
// stops reading from a member whose messages others do not read: at 127 MB of
// them by default, and until they are read.
const maxStall = 5 * time.Second

// slow is from what duration on a write counts as kept waiting.
const slow = 50 * time.Millisecond

// stall sums up how long writes have waited. Time without a write counts back, so
// a member that reads a message now and then does not keep a connection waiting.
type stall struct {
	waited time.Duration
	at     time.Time // of the last write's end
}

// deadline is until when a write that begins now may take.
func (s *stall) deadline(now time.Time) time.Time {
	s.waited = max(0, s.waited-now.Sub(s.at))
	return now.Add(maxStall - s.waited)
}

// wrote notes a write.
func (s *stall) wrote(start, end time.Time) {
	s.at = end
	if took := end.Sub(start); took >= slow {
		s.waited += took
	}
}
