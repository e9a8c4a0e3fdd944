package engine

import (
	"testing"
	"time"

	"ibnetworkd/ib"
)

// A handover waits for the first question of a standby that has just been met, not for one
// that is master itself, and not for long: another program sends none.
func TestHandoverWaitsForFirstQuestion(t *testing.T) {
	const g, other = ib.GUID(7), ib.GUID(8)
	var f followers
	f.begin()
	f.publish(3, true)
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		name    string
		of      ib.GUID
		standby bool
		after   time.Duration
		want    bool
	}{
		{"a master", other, false, 0, false},
		{"just met", g, true, 0, true},
		{"still silent", g, true, successorAsks - 1, true},
		{"asks nothing", g, true, successorAsks, false},
		{"retried", g, true, time.Minute, false},
	} {
		if got := f.copying(tt.of, tt.standby, now.Add(tt.after)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	c := f.grant(g, 0, true, now)
	if !f.copying(g, true, now) {
		t.Error("no wait for a copy that has begun")
	}
	if c = f.grant(g, c.Version, true, now); c.Lease == 0 || f.copying(g, true, now) {
		t.Errorf("a lease of %d ms, but the handover waits for a copy that is complete", c.Lease)
	}
}
