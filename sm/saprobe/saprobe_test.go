package saprobe_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/saprobe"
)

// The silence of a subnet administrator that is away for two seconds is two
// seconds, and what was before and after does not count.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.Star(3, 8)
		sim := simfabric.New(f, simfabric.Options{})
		defer sim.Close()
		run := func() func() {
			tr, err := sim.Open(f.Ports[f.SMPort].GUID)
			testkit.NoError(t, err)
			s := engine.New(tr, engine.Config{Log: slog.New(slog.DiscardHandler)})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = s.Run(ctx) }()
			return func() { cancel(); <-done }
		}
		stop := run()
		synctest.Wait()
		tr, err := sim.OpenClient(sim.FindHost(f.Nodes[f.Ports[f.EndPorts[len(f.EndPorts)-1]].Node].Desc)[0].PortGUID, false)
		testkit.NoError(t, err)
		p := saprobe.Start(tr)
		defer p.Stop()
		testkit.NoError(t, p.WaitAnswer(time.Now(), time.Second))
		begin := time.Now()
		time.Sleep(time.Second)
		if d := p.Silence(begin); d > 2*saprobe.Every {
			t.Errorf("silent for %v while the SA was there", d)
		}
		stop()
		gone := time.Now()
		time.Sleep(2 * time.Second)
		stop = run()
		defer func() { stop() }()
		testkit.NoError(t, p.WaitAnswer(time.Now(), 5*time.Second))
		back := time.Now()
		time.Sleep(time.Second)
		if d := p.Silence(begin); d < 2*time.Second || d > back.Sub(gone)+2*saprobe.Every {
			t.Errorf("silent for %v, the SA was away from %v to %v", d, gone.Sub(begin), back.Sub(begin))
		}
		if d := p.Silence(back); d > 2*saprobe.Every {
			t.Errorf("silent for %v after it was back", d)
		}
	})
}
