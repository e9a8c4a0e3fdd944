package daemon

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
)

// A unit that matches nothing while a card is being changed is reported when that lasts, one that
// was reported before stays so.
func TestUnmatchedWhileCardChanges(t *testing.T) {
	f := &files{m: map[string]string{"10.ibnetwork": "[Match]\nName=nosuch\n[Network]\nAddress=10.0.0.1/24\n"}}
	d := New(Config{System: system(t, 1), Store: &notes{}, Load: f.load})
	d.rec = &link.Record{}
	unmatched := func() bool {
		return slices.ContainsFunc(d.notices(), func(n link.Notice) bool { return n.Code == link.CodeUnmatched })
	}
	testkit.NoError(t, d.cycle(t.Context(), everything))
	d.report.Notices = nil
	d.ongoing["change"] = ongoingOp{queued: true}
	if unmatched() {
		t.Error("reported while a card is being changed")
	}
	delete(d.ongoing, "change")
	if !unmatched() {
		t.Error("not reported when the card is done")
	}
	d.report.Notices = d.notices()
	d.ongoing["change"] = ongoingOp{queued: true}
	if !unmatched() {
		t.Error("one that was reported is taken back")
	}
}

// One that was reported while a card is being changed, because that lasts, is the same notice when the card is done.
func TestUnmatchedIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &files{m: map[string]string{"10.ibnetwork": "[Match]\nName=nosuch\n[Network]\nAddress=10.0.0.1/24\n"}}
		d := New(Config{System: system(t, 1), Store: &notes{}, Load: f.load})
		d.rec = &link.Record{}
		testkit.NoError(t, d.cycle(t.Context(), everything))
		d.report.Notices = nil
		d.ongoing["change"] = ongoingOp{queued: true}
		if got := d.notices(); len(got) > 0 {
			t.Errorf("reported at once: %v", got)
		}
		time.Sleep(settleNotice)
		first := d.notices()
		if len(first) != 1 || first[0].Code != link.CodeUnmatched {
			t.Fatalf("reported after %v: %v", settleNotice, first)
		}
		for _, when := range []string{"a cycle later", "when the card is done", "at its next change"} {
			d.report.Notices = first
			if got := d.notices(); !slices.Equal(got, first) {
				t.Errorf("%s it is another notice: %+v, was %+v", when, got, first)
			}
			if when == "a cycle later" {
				delete(d.ongoing, "change")
			} else {
				d.ongoing["change"] = ongoingOp{queued: true}
			}
		}
	})
}
