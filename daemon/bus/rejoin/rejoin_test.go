package rejoin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pause
		var got []time.Duration
		for range 5 {
			start := time.Now()
			if !p.Wait(t.Context()) {
				t.Fatal("ended")
			}
			got = append(got, time.Since(start))
		}
		if got[0] != Min || got[4] != 16*Min {
			t.Errorf("pauses %v", got)
		}
		p.Reset()
		start := time.Now()
		p.Wait(t.Context())
		if d := time.Since(start); d != Min {
			t.Errorf("after a reset %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if p.Wait(ctx) {
			t.Error("it waited on after the end")
		}
	})
}
