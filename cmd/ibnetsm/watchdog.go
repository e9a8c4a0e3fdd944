package main

import (
	"context"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"ibnetworkd/sm/serve"
)

// watchdog reports to systemd that every subnet's own goroutine still answers, as often as
// the unit's WatchdogSec= requires. A subnet manager that hangs is master for ever to its own
// host: its ports stay Active, and nothing else would end it.
func watchdog(ctx context.Context, m *serve.Manager) error {
	limit, err := sd.SdWatchdogEnabled(false)
	if err != nil || limit <= 0 {
		return nil
	}
	t := time.NewTicker(limit / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		if alive(m, time.Now()) {
			_, _ = sd.SdNotify(false, sd.SdNotifyWatchdog)
		}
	}
}

// alive reports whether every subnet has published its state since now.
func alive(m *serve.Manager, now time.Time) bool {
	for _, s := range m.Subnets() {
		if x := s.Refresh(); x == nil || x.At.Before(now) {
			return false
		}
	}
	return true
}
