package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Of a state that stays the journal has each reason once, and which one is gone.
func TestLogState(t *testing.T) {
	var log bytes.Buffer
	d := &Daemon{log: slog.New(slog.NewTextHandler(&log, nil)), logMemory: logMemory{logged: map[string]string{}}}
	st := link.Status{Name: "ib1", State: link.StateConfigured, Oper: units.OperDegraded}
	for _, reason := range []string{"the address is tentative", "the address is tentative", "no route", "", ""} {
		st.Reasons = nil
		if reason != "" {
			st.Reasons = []link.Reason{{Code: link.CodeRetry, Text: reason}}
		}
		d.logState(st)
	}
	var got []string
	for line := range strings.Lines(log.String()) {
		_, rest, _ := strings.Cut(line, `msg="`)
		text, _, _ := strings.Cut(rest, `"`)
		got = append(got, text)
	}
	want := "ib1: new -> configured/degraded\nib1: still configured/degraded: no route\nib1: still configured/degraded, no longer: no route"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got:\n%s\nwant:\n%s", s, want)
	}
}
