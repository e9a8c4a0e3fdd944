package lab

import (
	"testing"
	"time"
)

func TestOpRecord(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	for _, tc := range []struct {
		name, line, text string
		at               time.Time
		bad              bool
	}{
		{"OK log", `time=2026-01-02T03:04:05.006Z level=INFO msg=done op="ip link set ib0 up" link=ib0 unit=/a.ibnetwork`, "ip link set ib0 up", at, false},
		{"OK quotes", `time=2026-01-02T03:04:05.006Z level=INFO msg=done op="echo \"ib\" > x" link=ib0`, `echo "ib" > x`, at, false},
		{"OK journal", `1767323045.006000 host ibnetworkd[30]: done op="ip link set ib0 mtu 65520" link=ib0`, "ip link set ib0 mtu 65520", at, false},
		{"OK refused", `time=2026-01-02T03:04:05.006Z level=WARN msg="the kernel refuses" op="ip link set ib0 mtu 9" error=EINVAL`, "ip link set ib0 mtu 9", at, true},
		{"bad other line", `time=2026-01-02T03:04:05.006Z level=INFO msg="ibnetworkd starts" version=devel`, "", time.Time{}, false},
		{"bad open quote", `1767323045.006000 host x: done op="ip link`, "", at, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, ok := opRecord(tc.line + "\n")
			if ok != (tc.text != "") {
				t.Fatalf("told %v: %+v", ok, r)
			}
			if ok && (r.Text != tc.text || r.Bad != tc.bad || !r.Mark || r.At.Sub(tc.at).Abs() > time.Millisecond) {
				t.Errorf("got %+v", r)
			}
		})
	}
}
