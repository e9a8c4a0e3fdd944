package umad

import (
	"testing"
	"time"

	"ibnetworkd/sm/transport"
)

// No more than MaxSending is sent within the time that the kernel keeps an
// unacknowledged message, and more can be sent after it.
func TestUnderway(t *testing.T) {
	var u underway
	now := time.Unix(1000, 0)
	const n = transport.MaxSending / 16
	took := 0
	for range 40 {
		if u.reserve(now, n) {
			took++
		}
		if u.reserve(now, 1) {
			u.refused(1) // what the kernel does not take does not count
		}
		now = now.Add(retries / 40)
	}
	if took != 16 {
		t.Errorf("%d messages within %v, want 16", took, retries)
	}
	if now = now.Add(retries + retries/8); !u.reserve(now, transport.MaxSending) || u.reserve(now, 1) {
		t.Error("no room after all that was sent is gone, or too much")
	}
	if now = now.Add(100 * retries); !u.reserve(now, transport.MaxSending) {
		t.Error("no room after a long time")
	}
}
