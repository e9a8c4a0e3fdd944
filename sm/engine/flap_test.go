package engine_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib/partition"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
)

// A link between switches that goes down every two seconds is left out of the routes
// after five times, while the subnet works; it is used again when it was quiet for long
// enough, at once when a person asks, and never left out where it alone leads to a part.
func TestFlappingLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.Ring(4, 1)
		var text testkit.Buffer
		w := newWorld(t, f, simfabric.Options{Seed: 1})
		defer w.close()
		sm := f.EndPorts[len(f.EndPorts)-1]
		s, _ := w.manager(sm, engine.Config{Log: slog.New(slog.NewTextHandler(&text, nil))})
		w.settle(sm, s, time.Minute)
		link := switchLink(f)
		node, num := f.Nodes[f.Ports[link].Node].GUID, f.Ports[link].Num
		used := func() bool {
			x := s.Snapshot().Fabric
			return x.Ports[x.Port(x.NodeByGUID(node), num)].Peer != fabric.None
		}
		flap := func(times int) {
			for range times {
				testkit.NoError(t, w.sim.Flap(node, num))
				time.Sleep(2 * time.Second)
				w.settle(sm, s, time.Minute)
			}
		}
		if flap(4); !used() {
			t.Fatal("left out after four times")
		}
		if flap(1); used() {
			t.Fatal("used after five times")
		}
		if n := strings.Count(text.String(), "is left out of the routes for 1m0s"); n == 0 {
			t.Errorf("nothing says so:\n%s", text.String())
		}
		shown := func() string { return strings.Join(s.Refresh().Problems, "\n") }
		if !strings.Contains(shown(), "goes down too often; it is left out of the routes until ") {
			t.Errorf("the status has %q", shown())
		}
		before := w.total()
		if flap(10); used() {
			t.Error("used while it goes on")
		}
		if n := (w.total() - before) / 10; n > 40 {
			t.Errorf("%d SMPs each time that it goes down while it is left out", n)
		}
		time.Sleep(time.Minute)
		if w.settle(sm, s, time.Minute); !used() {
			t.Error("not used after a minute")
		}
		if shown() != "" {
			t.Errorf("the status has %q", shown())
		}
		if flap(5); used() {
			t.Error("used when it goes on after that")
		}
		if !strings.Contains(text.String(), "is left out of the routes for 2m0s") {
			t.Errorf("not left out for longer:\n%s", text.String())
		}
		s.Resweep(false, "a person asks")
		time.Sleep(time.Second)
		if w.settle(sm, s, time.Minute); !used() {
			t.Error("not used when a person asks")
		}
		// Without the other way round the ring it is needed.
		for p := range f.Ports {
			if q := f.Ports[p].Peer; q > int32(p) && int32(p) != link && f.Ports[link].Peer != int32(p) &&
				f.Nodes[f.Ports[p].Node].Switch != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
				w.cut[int32(p)] = true
				testkit.NoError(t, w.sim.Cut(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num))
				break
			}
		}
		time.Sleep(time.Second)
		w.settle(sm, s, time.Minute)
		if flap(12); !used() {
			t.Error("left out although it alone leads to a part")
		}
	})
}

// A walk of everything uses a link that was left out; the status then does not say that it is.
func TestFlappingLinkInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.Ring(4, 1)
		w := newWorld(t, f, simfabric.Options{Seed: 1})
		defer w.close()
		s, _ := w.manager(f.SMPort, engine.Config{})
		w.settle(f.SMPort, s, time.Minute)
		link := f.Ports[switchLink(f)]
		for range 5 {
			testkit.NoError(t, w.sim.Flap(f.Nodes[link.Node].GUID, link.Num))
			time.Sleep(2 * time.Second)
		}
		shown := func(used bool) {
			t.Helper()
			w.settle(f.SMPort, s, time.Minute)
			x := s.Refresh()
			p := x.Fabric.Port(x.Fabric.NodeByGUID(f.Nodes[link.Node].GUID), link.Num)
			if got := x.Fabric.Ports[p].Peer != fabric.None; got != used || (len(x.Problems) == 0) != used {
				t.Errorf("used: %v, want %v; the status has %q", got, used, x.Problems)
			}
		}
		shown(false)
		s.SetPartitions(partition.Default(), "other partitions")
		time.Sleep(time.Second)
		shown(true)
	})
}

// cutAndSettle cuts a link, lets the manager see it, and restores it.
func (w *world) cutAndSettle(sm int32, s *engine.Subnet, p int32, restore bool) {
	w.t.Helper()
	key, node, num := min(p, w.f.Ports[p].Peer), w.f.Nodes[w.f.Ports[p].Node].GUID, w.f.Ports[p].Num
	w.cut[key] = true
	testkit.NoError(w.t, w.sim.Cut(node, num))
	time.Sleep(time.Second)
	w.settle(sm, s, time.Minute)
	if !restore {
		return
	}
	delete(w.cut, key)
	testkit.NoError(w.t, w.sim.Restore(node, num))
	time.Sleep(time.Second)
	w.settle(sm, s, time.Minute)
}

// A link that is left out is used again at once when the other way fails, one that is
// down for as long as a sweep takes is counted too and never left out where it alone
// leads to a part, and what is plugged into its port instead is found.
func TestFlappingLinkIsNeeded(t *testing.T) {
	for _, f := range []*fabric.Fabric{gen.Ring(4, 1), gen.Mesh([]int{3}, 2)} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, f, simfabric.Options{Seed: 1})
			defer w.close()
			sm := f.EndPorts[len(f.EndPorts)-1]
			s, _ := w.manager(sm, engine.Config{})
			w.settle(sm, s, time.Minute)
			link := switchLink(f)
			for range 12 {
				w.cutAndSettle(sm, s, link, true)
			}
			for p := range f.Ports {
				q := f.Ports[p].Peer
				if q > int32(p) && int32(p) != link && q != link && f.Nodes[f.Ports[p].Node].Switch != fabric.None &&
					f.Nodes[f.Ports[q].Node].Switch != fabric.None {
					w.cutAndSettle(sm, s, int32(p), false)
					return
				}
			}
		})
	}
}

// switchLink is a port of a link between two switches.
func switchLink(f *fabric.Fabric) int32 {
	for p := range f.Ports {
		q := f.Ports[p].Peer
		if q != fabric.None && f.Nodes[f.Ports[p].Node].Switch != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
			return int32(p)
		}
	}
	return fabric.None
}

// The link of a host that goes down ten times a second for a minute is read once a
// second in the end; the log says so, and the port is Active when it stays up.
func TestFlappingHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.Ring(4, 2)
		var text testkit.Buffer
		w := newWorld(t, f, simfabric.Options{Seed: 1})
		defer w.close()
		hosts := hostsOf(f)
		s, _ := w.manager(hosts[0], engine.Config{Sweep: -1, Log: slog.New(slog.NewTextHandler(&text, nil))})
		w.settle(hosts[0], s, time.Minute)
		p := f.Ports[hosts[5]]
		minute := func() int {
			begun := s.Refresh().Counters.SMPs
			for range 600 {
				testkit.NoError(t, w.sim.Flap(f.Nodes[p.Node].GUID, p.Num))
				time.Sleep(100 * time.Millisecond)
			}
			return int(s.Refresh().Counters.SMPs - begun)
		}
		t.Log(minute(), "SMPs in the first minute")
		if n := minute(); n > 60*17 {
			t.Errorf("%d SMPs in the second", n)
		}
		w.settle(hosts[0], s, 2*time.Second)
		for what, want := range map[string]int{"goes down too often": 1, "it stays in use": 1, "a port sends a trap too often": 1} {
			if n := strings.Count(text.String(), what); n < want || n > 10 {
				t.Errorf("%q comes %d times, want %d", what, n, want)
			}
		}
	})
}
