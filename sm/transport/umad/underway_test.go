package umad

import (
	"testing"
	"time"

	"ibnetworkd/sm/transport"
)

// No more than MaxSending is handed over within the time that the kernel keeps a
// message that nobody acknowledges, and there is room again after it.
func TestUnderway(t *testing.T) {
	var u underway
	now := time.Unix(1000, 0)
	const n = transport.MaxSending / 16
	took := 0
	for range 40 {
		if u.room(now, n) {
			took++
		}
		if u.room(now, 1) {
			u.refused(1) // what the kernel does not take does not count
		}
		now = now.Add(holds / 40)
	}
	if took != 16 {
		t.Errorf("%d messages within %v, want 16", took, holds)
	}
	if now = now.Add(holds + holds/8); !u.room(now, transport.MaxSending) || u.room(now, 1) {
		t.Error("no room after all that was sent is gone, or too much")
	}
	if now = now.Add(100 * holds); !u.room(now, transport.MaxSending) {
		t.Error("no room after a long time")
	}
}
