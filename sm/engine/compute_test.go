package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What computes for long is announced, and its end, also where it is given up; what is
// short is not.
func TestComputing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes time.Duration
		wait  time.Duration
		want  []bool
	}{
		{"short", computeShort / 2, time.Hour, nil},
		{"long", 2 * computeShort, time.Hour, []bool{true, false}},
		{"given up", time.Hour, 2 * computeShort, []bool{true, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var got []bool
				s := &Subnet{in: newInbox(), cfg: Config{Computing: func(began bool) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, began)
				}}}
				ctx, cancel := context.WithTimeout(t.Context(), tt.wait)
				defer cancel()
				v, err := compute(ctx, s, func() int { time.Sleep(tt.takes); return 7 })
				if (err == nil) != (v == 7) || (err == nil) != (tt.takes < tt.wait) {
					t.Errorf("%d, %v", v, err)
				}
				if mu.Lock(); !slices.Equal(got, tt.want) {
					t.Errorf("announced %v, want %v", got, tt.want)
				}
				mu.Unlock()
				time.Sleep(tt.takes)
			})
		})
	}
}
