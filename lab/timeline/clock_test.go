package timeline

import (
	"slices"
	"testing"
	"time"
)

func TestAlign(t *testing.T) {
	t0 := time.Unix(1000, 0)
	guest := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	look := func(ms, ahead, trip int) Record {
		return Record{At: guest(ms), Clock: guest(ms + ahead), Trip: time.Duration(trip) * time.Millisecond}
	}
	mark := func(ms int) Record { return Record{At: guest(ms), Row: "r", Text: "x", Mark: true} }
	for _, tc := range []struct {
		name string
		recs []Record
		want []int // ms
	}{
		{"none", nil, nil},
		{"no look", []Record{mark(0), mark(10)}, []int{0, 10}},
		{"constant", []Record{look(0, 700, 1), mark(-5), mark(100)}, []int{695, 800}},
		{"the quickest counts", []Record{look(0, 900, 400), look(100, 700, 1), look(200, 800, 90), mark(100)}, []int{800}},
		{"another speed", []Record{look(0, 100, 1), mark(5000), look(10000, 200, 1), mark(20000)}, []int{5150, 20200}},
		{"a clock that was set", []Record{look(0, 3600e3, 1), mark(0), look(3600e3, 0, 1), mark(3600e3 + 5)}, []int{3600e3, 3600e3 + 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []int
			for _, r := range Align(tc.recs) {
				got = append(got, int(r.At.Sub(t0).Milliseconds()))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}
