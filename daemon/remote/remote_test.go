package remote

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// bonded is a host with two ports below one bond, and one port beside it.
func bonded() *link.Snapshot {
	s := &link.Snapshot{Links: []link.Link{{Index: 9, Name: "ipbond", Type: link.ARPHRDInfiniBand, Bond: &link.Bond{}}}}
	for i, name := range []string{"ib0", "ib1", "ib2"} {
		dev := []string{"mlx5_0", "mlx5_1", "mlx5_2"}[i]
		l := link.Link{Index: 2 + i, Name: name, Type: link.ARPHRDInfiniBand, IBDevice: dev, Port: 1}
		if i < 2 {
			l.Master = 9
		}
		s.Links = append(s.Links, l)
		s.Devices = append(s.Devices, link.Device{Name: dev, Ports: []link.Port{{Num: 1, GUID: ib.GUID(1 + i), State: ib.PortActive}}})
	}
	return s
}

// Ports below a bond are asked once each time that they come up, one that does not answer
// again after a minute, and others never.
func TestAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		mute, woken := "mlx5_1", 0
		p := New(slog.New(slog.DiscardHandler), func(_ context.Context, dev string, _ int) (link.Remote, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, dev)
			if dev == mute {
				return link.Remote{}, errors.New("no answer")
			}
			return link.Remote{Node: 7, Switch: true, Port: len(asked)}, nil
		}, func() { mu.Lock(); woken++; mu.Unlock() })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(asked)
			if !slices.Equal(asked, want) {
				t.Errorf("%s: asked %v, want %v", what, asked, want)
			}
			asked = nil
		}
		s := bonded()
		update := func() { p.Update(daemon.View{Snapshot: s}) }
		update()
		expect("both slaves", "mlx5_0", "mlx5_1")
		mu.Lock()
		mute = ""
		mu.Unlock()
		time.Sleep(again)
		expect("the mute one again", "mlx5_1")
		update()
		time.Sleep(time.Hour)
		expect("both are known")
		if woken != 2 {
			t.Errorf("woken %d times", woken)
		}
		got := *s
		p.Complete(&got)
		if got.Devices[0].Ports[0].Remote.Node != 7 || got.Devices[2].Ports[0].Remote != (link.Remote{}) ||
			s.Devices[0].Ports[0].Remote != (link.Remote{}) {
			t.Errorf("%+v\n%+v", got.Devices, s.Devices)
		}
		s.Links[1].CarrierDowns++ // ib0 was unplugged
		update()
		expect("a cable that was moved", "mlx5_0")
		s.Devices[1].Ports[0].State = ib.PortDown
		update()
		s.Links[2].Master = 0 // one slave is left
		update()
		expect("no bond of two")
		if k := p.byPort(); len(k) != 0 {
			t.Errorf("still known: %v", k)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Without a port below a bond nothing wakes the task.
func TestAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		ask := func(context.Context, string, int) (link.Remote, error) { asked++; return link.Remote{}, nil }
		p := New(slog.New(slog.DiscardHandler), ask, func() {})
		p.want = wants(bonded()) // without Update, to see when it is read
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if asked != 0 {
			t.Errorf("the timer has run: %d questions", asked)
		}
		cancel()
		<-ended
	})
}
