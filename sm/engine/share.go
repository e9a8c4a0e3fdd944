package engine

import (
	"time"

	"ibnetworkd/sm/mad"
)

// shares bounds what long answers one host gets: they are kept whole until it has
// acknowledged them, at most for some seconds, and one that asks for much and
// acknowledges nothing must leave the others their part of the memory.
type shares map[source]*share

// share is what was sent to a host lately, in bytes at a time.
type share struct {
	bytes int
	at    time.Time
}

const (
	// shareBurst is what a host may be sent at once, shareRate a second on
	// average: the transport keeps an answer for 8 s at most, and
	// transport.MaxSending of all.
	shareBurst = 64 << 20
	shareRate  = 16 << 20
	sharesMost = 1024 // that are remembered without need
)

// used brings a share up to date.
func (s *share) used(now time.Time) int {
	s.bytes = max(0, s.bytes-int(now.Sub(s.at).Seconds()*shareRate))
	s.at = now
	return s.bytes
}

// spent reports whether a host has used up its share.
func (h shares) spent(l source, now time.Time) bool {
	s := h[l]
	return s != nil && s.used(now) >= shareBurst
}

// sent counts an answer.
func (h shares) sent(l source, n int, now time.Time) {
	if h[l] == nil {
		if len(h) >= sharesMost {
			for k, s := range h {
				if s.used(now) == 0 {
					delete(h, k)
				}
			}
		}
		h[l] = &share{at: now}
	}
	h[l].used(now)
	h[l].bytes += n
}

// asksTable reports whether the answer to a request may be long.
func asksTable(m mad.Method) bool { return m == mad.MethodGetTable || m == mad.MethodGetMulti }
