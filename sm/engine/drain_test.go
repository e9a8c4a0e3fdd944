package engine_test

import (
	"slices"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
)

// memoryStore is a Store that outlives a manager.
type memoryStore struct{ b []byte }

func (m *memoryStore) Load() ([]byte, error) { return m.b, nil }
func (m *memoryStore) Save(b []byte) error   { m.b = slices.Clone(b); return nil }

// tables are the forwarding tables of the switches.
func (w *world) tables(t *testing.T, x *engine.Snapshot) [][]uint8 {
	t.Helper()
	out := make([][]uint8, len(x.Fabric.Switches))
	for i := range out {
		_, lft, _, err := w.sim.SwitchTables(x.Fabric.Nodes[x.Fabric.Switches[i].Node].GUID)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = lft
	}
	return out
}

// passes counts the pairs of hosts whose path passes a switch that neither is on.
func (w *world) passes(t *testing.T, x *engine.Snapshot, guid ib.GUID) (n int) {
	t.Helper()
	f, tables := x.Fabric, w.tables(t, x)
	for _, a := range hostsOf(f) {
		for _, b := range hostsOf(f) {
			at, _ := f.SwitchOf(a)
			end, _ := f.SwitchOf(b)
			first := at
			for range len(f.Switches) {
				if at == end {
					break
				}
				if at != first && f.Nodes[f.Switches[at].Node].GUID == guid {
					n++
					break
				}
				out := f.Port(f.Switches[at].Node, tables[at][f.Ports[b].LID])
				at = f.Nodes[f.Ports[f.Ports[out].Peer].Node].Switch
			}
		}
	}
	return n
}

// Nothing passes through a drained switch, through sweeps and a restart of the manager;
// hosts on one stay reachable, and what it alone leads to keeps it in the routes.
func TestDrain(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		store := &memoryStore{}
		cfg := engine.Config{Drains: store}
		s, stop := w.manager(hosts[0], cfg)
		w.settle(hosts[0], s, time.Second)
		var spine, leaf ib.GUID
		x := s.Snapshot()
		for i := range x.Fabric.Switches {
			g := x.Fabric.Nodes[x.Fabric.Switches[i].Node].GUID
			if on, _ := x.Fabric.SwitchOf(x.Fabric.EndPortByGUID(f.Ports[hosts[9]].GUID)); on == int32(i) {
				leaf = g
			} else if w.passes(t, x, g) > 0 {
				spine = g
			}
		}
		was := w.passes(t, x, spine)
		drained := func(want ...ib.GUID) {
			t.Helper()
			w.settle(hosts[0], s, 10*time.Second)
			x := s.Refresh()
			got := []ib.GUID{}
			for _, d := range x.Drained {
				if got = append(got, d.GUID); len(d.Kept) > 0 || d.Name == "" || d.Via == "" {
					t.Errorf("%+v", d)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("drained are %v, want %v", got, want)
			}
			for _, g := range want {
				if n := w.passes(t, x, g); n > 0 {
					t.Errorf("%d paths pass the drained switch %v", n, g)
				}
			}
		}
		if was == 0 {
			t.Fatal("no switch that paths pass")
		}
		now, ok := s.Drain([]ib.GUID{spine}, nil)
		if !ok || len(now) != 1 || len(now[0].Hosts) != 0 {
			t.Fatalf("%+v, %v", now, ok)
		}
		time.Sleep(time.Second)
		drained(spine)
		s.Resweep(true, "test")
		time.Sleep(time.Second)
		drained(spine)
		if now, _ = s.Drain([]ib.GUID{leaf}, nil); len(now) != 2 {
			t.Fatalf("%+v", now)
		}
		for _, d := range now {
			if d.GUID == leaf && len(d.Hosts) != 4 {
				t.Errorf("hosts on the leaf: %v", d.Hosts)
			}
		}
		time.Sleep(time.Second)
		want := []ib.GUID{spine, leaf}
		slices.Sort(want)
		drained(want...)
		stop()
		s, _ = w.manager(hosts[0], cfg)
		time.Sleep(time.Second)
		drained(want...)
		s.Drain(nil, want)
		time.Sleep(time.Second)
		drained()
		if n := w.passes(t, s.Refresh(), spine); n == 0 || len(store.b) != 0 {
			t.Errorf("%d paths pass the switch that is drained no more; kept: %q", n, store.b)
		}
	})
}

// What becomes of switches in shapes where not all can be drained.
func TestDrained(t *testing.T) {
	ring := gen.Ring(5, 1)
	all := []ib.GUID{}
	for i := range ring.Switches {
		all = append(all, ring.Nodes[ring.Switches[i].Node].GUID)
	}
	g, ds := ring.Drained(all[:1])
	if len(ds) != 1 || len(ds[0].Hosts) != 1 || len(ds[0].Behind) != 0 || g.Links() != ring.Links()-1 || ring.Links() != 10 {
		t.Errorf("one of a ring: %+v, %d links", ds, g.Links())
	}
	// The second makes a chain of the ring: the third leads to others alone.
	_, ds = ring.Drained([]ib.GUID{all[0], all[2], 0x4242})
	kept := 0
	for _, d := range ds {
		if d.Node == fabric.None && d.GUID != 0x4242 {
			t.Errorf("%+v", d)
		}
		if len(d.Behind) > 0 {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("two of a ring of five: %d are kept, want 1: %+v", kept, ds)
	}
}
