package app

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"ibnetworkd/daemon/metrics"
)

const (
	textfileEvery = 15 * time.Second
	metricsRetry  = time.Minute // pause after metrics could not be served
)

// serveMetrics serves and writes metrics. Links matter more: a failure here is logged,
// and tried again.
func (a *App) serveMetrics(ctx context.Context) error {
	text := func() []byte { return a.metrics.Text(time.Now()) }
	warn := func(err error) { a.log.Warn("metrics", "error", err) }
	var parts sync.WaitGroup
	if a.o.MetricsTextfile != "" {
		parts.Go(func() {
			if err := metrics.Textfile(ctx, a.o.MetricsTextfile, textfileEvery, text, warn); err != nil {
				warn(err)
			}
		})
	}
	for _, at := range metricsPlaces(a.o.Metrics, a.o.StateDir) {
		parts.Go(func() { a.serveMetricsAt(ctx, at, text, warn) })
	}
	parts.Wait()
	return nil
}

// metricsPlaces is where metrics are served: on a unix socket of the daemon's
// own, and where --metrics= says.
func metricsPlaces(option, stateDir string) []string {
	own := "unix:" + filepath.Join(stateDir, metrics.Socket)
	switch option {
	case "no":
		return nil
	case "", own:
		return []string{own}
	}
	return []string{own, option}
}

func (a *App) serveMetricsAt(ctx context.Context, at string, text func() []byte, warn func(error)) {
	for logged := false; ; logged = true {
		l, err := metrics.Listen(at)
		if err == nil {
			err = metrics.Serve(ctx, l, text, warn)
		}
		if ctx.Err() != nil {
			return
		}
		if !logged {
			a.log.Error("metrics are not served; will retry each minute", "at", at, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(metricsRetry):
		}
	}
}
