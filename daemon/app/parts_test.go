package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// A SIGHUP during the start does not report that the start is done.
func TestHangupDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		a := &App{notify: func(s string) { said = append(said, s) }, started: make(chan struct{})}
		hangup := make(chan os.Signal, 1)
		hangup <- syscall.SIGHUP
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.onHangup(ctx, hangup) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(said) != 0 || len(hangup) != 1 {
			t.Errorf("before the start is done: %q", said)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Only a load that was requested reads the files.
func TestOnRequest(t *testing.T) {
	reads, requests := 0, 0
	load, request := onRequest(func() *units.Set { reads++; return &units.Set{} }, func() { requests++ })
	first := load()
	if load() != first || reads != 1 {
		t.Errorf("%d reads of two loads that were not requested", reads)
	}
	request()
	if load() == first || reads != 2 || requests != 1 {
		t.Errorf("%d reads after a request", reads)
	}
}

func TestMetricsPlaces(t *testing.T) {
	for option, want := range map[string][]string{
		"": {"unix:/run/x/metrics.sock"}, "no": nil, "unix:/run/x/metrics.sock": {"unix:/run/x/metrics.sock"},
		"127.0.0.1:9717": {"unix:/run/x/metrics.sock", "127.0.0.1:9717"},
	} {
		if got := metricsPlaces(option, "/run/x"); !slices.Equal(got, want) {
			t.Errorf("--metrics=%q: %q, want %q", option, got, want)
		}
	}
}

// Metrics that cannot be served are logged once, and tried again.
func TestMetricsCannotBeServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text testkit.Buffer
		a := &App{log: slog.New(slog.NewTextHandler(&text, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			a.serveMetricsAt(ctx, "unix:/nonexistent/metrics.sock", nil, nil)
			close(ended)
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := strings.Count(text.String(), "will retry each minute"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		cancel()
		<-ended
	})
}

// The ports whose node description may have the host's name are observed again.
func TestRenamed(t *testing.T) {
	s := &link.Snapshot{Devices: []link.Device{{Name: "mlx5_0", Ports: []link.Port{{Num: 1, Layer: ib.LinkLayerInfiniBand}}}}}
	s.Links = []link.Link{
		{Index: 1, Name: "lo"}, {Index: 2, Name: "ib0", IPoIB: &link.IPoIB{PKey: 0xffff}, IBDevice: "mlx5_0", Port: 1},
		{Index: 3, Name: "ib0.8001", IPoIB: &link.IPoIB{PKey: 0x8001}, IBDevice: "mlx5_0", Port: 1, Parent: 2, Kind: "ipoib"}}
	if sc := renamed(s); !sc.Reload || !sc.RDMA || !maps.Equal(sc.Force, map[int]bool{2: true}) {
		t.Errorf("%+v", sc)
	}
	if sc := renamed(nil); len(sc.Force) != 0 || !sc.Reload {
		t.Errorf("before the first snapshot: %+v", sc)
	}
}

// A caller gets what was read once it is on the bus, waits a bounded time, and does not
// make the daemon read more often than refreshEvery.
func TestRefresher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads, seq, fail := 0, uint64(1), error(nil)
		r := &refresher{refresh: func(context.Context) (uint64, error) { reads++; return seq, fail }}
		took := func(f func()) time.Duration {
			start := time.Now()
			f()
			return time.Since(start)
		}
		run := func() { r.run(t.Context()) }
		if d := took(run); d != refreshWait || reads != 1 {
			t.Errorf("the bus never gets it: %v, %d reads", d, reads)
		}
		if d := took(run); d != 0 || reads != 1 {
			t.Errorf("at once again: %v, %d reads", d, reads)
		}
		time.Sleep(refreshEvery)
		seq = 2
		time.AfterFunc(100*time.Millisecond, func() { r.published(1) })
		time.AfterFunc(200*time.Millisecond, func() { r.published(2) })
		if d := took(run); d != 200*time.Millisecond || reads != 2 {
			t.Errorf("published after 200 ms: %v, %d reads", d, reads)
		}
		time.Sleep(refreshEvery)
		seq = 0 // nothing has changed
		if d := took(run); d != 0 || reads != 3 {
			t.Errorf("without a change: %v, %d reads", d, reads)
		}
		time.Sleep(refreshEvery)
		fail = errors.New("the daemon is busy")
		if d := took(run); d != 0 || reads != 4 {
			t.Errorf("an error: %v, %d reads", d, reads)
		}
	})
}

// Memory is given back once, when the last work is a while ago.
func TestGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var freed []time.Duration
		start := time.Now()
		worked := giveBack(func() { freed = append(freed, time.Since(start)) })
		worked()
		time.Sleep(freeAfter / 2)
		worked()
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []time.Duration{freeAfter + freeAfter/2}; !slices.Equal(freed, want) {
			t.Errorf("freed after %v, want %v", freed, want)
		}
	})
}

// States go to the socket of NOTIFY_SOCKET, also to an abstract one and after it was made again; without one, and
// with a path that is none, nothing is sent.
func TestNotifier(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notify")
	for _, name := range []string{file, "@ibnetworkd-test-" + strconv.Itoa(os.Getpid()), "/" + strings.Repeat("x", 200), ""} {
		t.Setenv("NOTIFY_SOCKET", name)
		notify, done := notifier()
		notify("STATUS=nobody listens")
		for range 2 {
			if name == "" || len(name) > 108 {
				notify("WATCHDOG=1")
				continue
			}
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
			testkit.NoError(t, err)
			notify("WATCHDOG=1")
			b := make([]byte, 64)
			testkit.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
			if n, err := c.Read(b); err != nil || string(b[:n]) != "WATCHDOG=1" {
				t.Errorf("%s: %q, %v", name, b[:n], err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			_ = os.Remove(file)
		}
		done()
	}
}
