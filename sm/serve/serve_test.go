package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/control"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/guidfile"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/serve"
	"ibnetworkd/sm/transport"
)

// host offers ports of simulated subnets that come and go.
type host struct {
	mu    sync.Mutex
	ports map[serve.Port]*simfabric.Sim
}

func (h *host) Ports() ([]serve.Port, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.ports)), nil
}

func (h *host) Open(p serve.Port) (transport.Transport, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.ports[p]
	if s == nil {
		return nil, errors.New("no such port")
	}
	return s.Open(p.GUID)
}

func (h *host) set(p serve.Port, s *simfabric.Sim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s == nil {
		delete(h.ports, p)
		return
	}
	h.ports[p] = s
}

// Two subnets of one host, one of which appears later; the socket reports both.
func TestManager(t *testing.T) {
	h := &host{ports: map[serve.Port]*simfabric.Sim{}}
	m := &serve.Manager{Host: h, Log: slog.New(slog.DiscardHandler), Every: 10 * time.Millisecond, Again: 10 * time.Millisecond,
		Wanted: func(p serve.Port) bool { return p.Device != "other" },
		Config: func(serve.Port) engine.Config {
			return engine.Config{Route: route.Options{Roots: []ib.GUID{9}, HopWeights: []guidfile.Weight{{Switch: 5, Port: 1, Hops: 4}}}}
		}}
	ctx, cancel := context.WithCancel(context.Background())
	path := filepath.Join(t.TempDir(), "sm.sock")
	l, err := serve.Listen(path)
	testkit.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { m.Run(ctx) })
	wg.Go(func() { m.Serve(ctx, l) })
	defer wg.Wait()
	defer cancel()
	ask := func(what string) string {
		var b bytes.Buffer
		c, stop := context.WithTimeout(ctx, 5*time.Second)
		defer stop()
		testkit.NoError(t, control.Ask(c, path, what, &b))
		return b.String()
	}
	until := func(what string, f func([]*engine.Snapshot) bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; {
			var xs []*engine.Snapshot
			testkit.NoError(t, json.Unmarshal([]byte(ask(control.AskStatus)), &xs))
			if f(xs) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("waited in vain: %s", what)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	masters := func(n int) func([]*engine.Snapshot) bool {
		return func(xs []*engine.Snapshot) bool {
			k := 0
			for _, x := range xs {
				if x.State == "Master" {
					k++
				}
			}
			return k == n
		}
	}
	until("no subnet", masters(0))
	a, b := simfabric.New(gen.Star(3, 8), simfabric.Options{}), simfabric.New(gen.Pair(), simfabric.Options{})
	defer a.Close()
	defer b.Close()
	h.set(serve.Port{Device: "a", Num: 1, GUID: gen.HostGUID + 1}, a)
	until("the first", masters(1))
	h.set(serve.Port{Device: "b", Num: 1, GUID: gen.HostGUID + 1}, b)
	h.set(serve.Port{Device: "other", Num: 1, GUID: ib.GUID(7)}, b)
	until("the second", masters(2))
	if s := ask(control.AskTopology); strings.Count(s, "Switch\t") != 1 || strings.Count(s, "\nCa\t") != 5 {
		t.Errorf("topology:\n%s", s)
	}
	if s := ask(control.AskPicture); !strings.HasPrefix(s, "<svg") {
		t.Errorf("picture: %.100s", s)
	}
	if s := ask(control.AskMetrics); !strings.Contains(s, "ibnetsm_master{") || !strings.Contains(s, `kind="Set PortInfo"`) {
		t.Errorf("metrics:\n%s", s)
	}
	r, err := control.QueryRouting(ctx, path, gen.HostGUID+1)
	if err != nil || r == nil || r.State != "Master" || r.PortGUID != gen.HostGUID+1 || len(r.Roots) != 1 || r.Roots[0] != 9 ||
		r.HopWeights[0].Hops != 4 || r.InForce == "" || r.Layers != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := control.QueryRouting(ctx, path, gen.HostGUID+2); r != nil || err != nil {
		t.Errorf("of a port without a manager: %+v, %v", r, err)
	}
	if s := ask("nonsense"); !strings.Contains(s, "unknown request") {
		t.Error(s)
	}
	if s := ask(control.AskFull); s != "ok\n" {
		t.Error(s)
	}
	// A device that goes stops only its subnet, and one that comes back is managed again.
	g := gen.HostGUID
	a.PowerOff(g)
	until("one is left", masters(1))
	a.PowerOn(g)
	until("both again", masters(2))
	if _, err := serve.Listen(path); err == nil {
		t.Error("a socket in use was taken over")
	}
}

// While all ports that are wanted have a subnet manager none is searched for; one that
// has gone is searched for until it is back.
func TestManagerLooksNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve.Port{Device: "a", Num: 1, GUID: gen.HostGUID + 1}
		sim := simfabric.New(gen.Pair(), simfabric.Options{})
		defer sim.Close()
		h := &counting{host: host{ports: map[serve.Port]*simfabric.Sim{p: sim}}}
		m := &serve.Manager{Host: h, Log: slog.New(slog.DiscardHandler), Number: 1,
			Config: func(serve.Port) engine.Config { return engine.Config{} }}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = m.Run(ctx) })
		defer wg.Wait()
		defer cancel()
		time.Sleep(time.Minute)
		if n := h.looks.Load(); n != 1 {
			t.Errorf("looked for ports %d times in a minute, want once", n)
		}
		h.set(p, nil)
		sim.PowerOff(gen.HostGUID)
		time.Sleep(time.Minute)
		if n := h.looks.Load(); n < 20 || len(m.Subnets()) != 0 {
			t.Errorf("after the port's end: looked %d times, %d subnets", n, len(m.Subnets()))
		}
		sim.PowerOn(gen.HostGUID)
		h.set(p, sim)
		time.Sleep(10 * time.Second)
		n := h.looks.Load()
		time.Sleep(time.Minute)
		if now := h.looks.Load(); now != n || len(m.Subnets()) != 1 {
			t.Errorf("after its return: looked %d times more, %d subnets", now-n, len(m.Subnets()))
		}
	})
}

// counting is a host that counts how often it is asked for its ports.
type counting struct {
	host
	looks atomic.Int64
}

func (c *counting) Ports() ([]serve.Port, error) {
	c.looks.Add(1)
	return c.host.Ports()
}

// refusing is a host whose ports let no subnet manager in.
type refusing struct {
	host
	err error
}

func (r *refusing) Open(serve.Port) (transport.Transport, error) { return nil, r.err }

// A manager of named ports ends when they let no subnet manager in, and after its
// time when they cannot be opened or are not there; each with the reason.
func TestManagerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serve.Port{Device: "a", Num: 1, GUID: gen.HostGUID + 1}
		run := func(h serve.Host, number int, wait time.Duration) (time.Duration, error) {
			m := &serve.Manager{Host: h, Log: slog.New(slog.DiscardHandler), Number: number, Wait: wait,
				Config: func(serve.Port) engine.Config { return engine.Config{} }}
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := m.Run(ctx)
			return time.Since(begin), err
		}
		there := func(err error) *refusing {
			return &refusing{host{ports: map[serve.Port]*simfabric.Sim{p: nil}}, err}
		}
		took, err := run(there(fmt.Errorf("port a/1: %w", transport.ErrNoQP0)), 1, 15*time.Second)
		if !errors.Is(err, transport.ErrNoQP0) || took > time.Second {
			t.Errorf("no QP0: %v after %v", err, took)
		}
		took, err = run(there(errors.New("input/output error")), 1, 15*time.Second)
		if err == nil || !strings.Contains(err.Error(), "input/output error") || took < 15*time.Second || took > 20*time.Second {
			t.Errorf("cannot be opened: %v after %v", err, took)
		}
		took, err = run(&host{}, 1, 15*time.Second)
		if err == nil || !strings.Contains(err.Error(), "the port does not exist") || took > 20*time.Second {
			t.Errorf("not there: %v after %v", err, took)
		}
		// Without a limit, and of ports that were not named, it waits.
		for _, number := range []int{0, 1} {
			if took, err := run(&host{}, number, 0); err != nil || took != time.Hour {
				t.Errorf("%d ports: %v after %v", number, err, took)
			}
		}
		if took, err := run(there(transport.ErrNoQP0), 0, 0); err != nil || took != time.Hour {
			t.Errorf("one of all ports has no QP0: %v after %v", err, took)
		}
	})
}
