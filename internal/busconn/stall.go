package busconn

import "time"

// maxStall is for how long the bus may keep this connection from writing. It
// stops reading from a member whose messages others do not read: at 127 MB of
// them by default, and until they are read.
const maxStall = 5 * time.Second

// slow is from what duration on a write counts as kept waiting.
const slow = 50 * time.Millisecond

// copying is how long a write of n bytes takes on a busy machine: 10 MB/s.
func copying(n int) time.Duration { return time.Duration(n) * 100 * time.Nanosecond }

// stall sums up how long writes have waited. Time without a write counts back, so
// a member that reads a message now and then does not keep a connection waiting.
type stall struct {
	waited time.Duration
	at     time.Time // of the last write's end
}

// deadline is until when a write of n bytes that begins now may take.
func (s *stall) deadline(n int, now time.Time) time.Time {
	s.waited = max(0, s.waited-now.Sub(s.at))
	return now.Add(maxStall - s.waited + copying(n))
}

// wrote notes a write of n bytes that succeeded. One that took longer than its
// deadline did so because this process was stopped, not because of the bus.
func (s *stall) wrote(n int, start, end time.Time) {
	s.at = end
	if took := end.Sub(start) - copying(n); took >= slow && took < maxStall {
		s.waited += took
	}
}
