package engine_test

import (
	"cmp"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/route"
	"ibnetworkd/sm/transport"
)

// restart is a manager that ends and starts again.
type restart struct {
	name    string
	f       *fabric.Fabric
	lanes   bool
	history bool // hosts went off and cables out before
	away    bool // a cable was cut meanwhile
	engine  string
}

// A manager that starts again, alone, finds what it has programmed itself and writes no
// table, also after hosts went off and cables came and went.
func TestRestartWritesNothing(t *testing.T) {
	for _, r := range []restart{
		{name: "leaf empty", f: gen.EmptyLeaf(gen.FatTree3(16, 8, 8), 27, 0)},
		{name: "uneven", f: gen.CutCables(gen.Uneven(1, 64, 26, 14, 542), 1, 5), history: true},
		{name: "DragonFly+", f: gen.DragonFlyPlus(9, 4, 4, 1), history: true},
		{name: "torus", f: gen.CutCables(gen.Torus([]int{8, 8}, 2), 2, 2), history: true},
		{name: "torus, lanes", f: gen.CutCables(gen.Torus([]int{8, 8}, 2), 2, 2), lanes: true, history: true},
		{name: "at random", f: gen.RandomRegular(1, 40, 6, 2), lanes: true, history: true},
		{name: "HyperX", f: gen.CutCables(gen.HyperX([]int{6, 6}, 4), 1, 2), lanes: true, history: true},
	} {
		t.Run(r.name, func(t *testing.T) {
			was, now, sets := r.run(t, &memoryStore{})
			for a, n := range sets {
				if n > 0 {
					t.Errorf("%d Sets of %s; routing %s, %v flows before, %s, %v after", n, mad.AttrName(mad.ClassSubnDR, a), was.Routing,
						was.BusiestLink, now.Routing, now.BusiestLink)
				}
			}
			if now.Routing != was.Routing || now.Layers != was.Layers || now.BusiestLink != was.BusiestLink || now.AtBest != was.AtBest {
				t.Errorf("routing %s on %d levels, %v flows, %v at best before, %s, %d, %v, %v after", was.Routing, was.Layers, was.BusiestLink,
					was.AtBest, now.Routing, now.Layers, now.BusiestLink, now.AtBest)
			}
		})
	}
}

// What was remembered is not used for another fabric or other options: tables follow those
// in force after a cut, and are others where another engine is to make them.
func TestRestartElsewhere(t *testing.T) {
	r := restart{f: gen.CutCables(gen.Torus([]int{8, 8}, 2), 2, 2), history: true, away: true}
	_, _, from := r.run(t, nil)
	was, now, sets := r.run(t, &memoryStore{})
	t.Logf("a cable cut meanwhile: %d blocks, %d with nothing remembered", sets[mad.AttrLFT], from[mad.AttrLFT])
	if n := sets[mad.AttrLFT]; n == 0 || n >= from[mad.AttrLFT] || now.BusiestLink > 1.1*was.BusiestLink {
		t.Errorf("cut meanwhile: %d blocks, %d with nothing remembered; %v flows, %v before", n, from[mad.AttrLFT], now.BusiestLink,
			was.BusiestLink)
	}
	r = restart{f: gen.Torus([]int{4, 4}, 2), engine: route.UpDown}
	if was, now, sets = r.run(t, &memoryStore{}); sets[mad.AttrLFT] == 0 || was.Routing == now.Routing {
		t.Errorf("another engine: %d blocks, %s, then %s", sets[mad.AttrLFT], was.Routing, now.Routing)
	}
}

// A switch whose SwitchInfo is set by the first sweep gets its table again, and has it after that.
func TestRestartSetsSwitch(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		cfg := engine.Config{Store: &memoryStore{}, Routes: &memoryStore{}}
		_, stop := w.manager(f.SMPort, cfg)
		time.Sleep(20 * time.Second)
		stop()
		a, b := hosts[1], hosts[len(hosts)-1]
		leaf, _ := f.SwitchOf(a)
		err := w.sim.SetSwitchInfo(f.Nodes[f.Switches[leaf].Node].GUID, func(i *mad.SwitchInfo) { i.SetLifeTime(9) })
		testkit.NoError(t, err)
		before := w.sim.Counters().SMPs[mad.AttrLFT].Set
		s, _ := w.manager(f.SMPort, cfg)
		time.Sleep(10 * time.Second)
		x := s.Snapshot().Fabric
		lid := func(p int32) ib.LID { return x.Ports[x.EndPortByGUID(f.Ports[p].GUID)].LID }
		w.client(t, a).level(t, [2]ib.LID{lid(a), lid(b)})
		if n := w.sim.Counters().SMPs[mad.AttrLFT].Set - before; n != 1 {
			t.Errorf("%d blocks of tables, want that of one switch", n)
		}
	})
}

// Tables of lanes are written again after a restart where a node or the options are others, and
// nowhere else.
func TestRestartLanes(t *testing.T) {
	host := func(w *world) ib.GUID { h := hostsOf(w.f); return w.f.Nodes[w.f.Ports[h[len(h)-1]].Node].GUID }
	for _, c := range []struct {
		name      string
		meanwhile func(*world, *engine.Config) error
		maps, arb uint64 // Sets
	}{
		{"nothing", func(*world, *engine.Config) error { return nil }, 0, 0},
		{"a host restarts", func(w *world, _ *engine.Config) error { return w.sim.Reboot(host(w)) }, 16, 4},
		{"a cable is out", func(w *world, _ *engine.Config) error {
			p := &w.f.Ports[w.linkBetweenSwitches(0)]
			return w.sim.Cut(w.f.Nodes[p.Node].GUID, p.Num)
		}, 0, 0},
		{"a switch restarts", func(w *world, _ *engine.Config) error { return w.sim.Reboot(w.f.Nodes[w.f.Switches[1].Node].GUID) }, 124, 32},
		{"weights", func(_ *world, cfg *engine.Config) error { cfg.QoS.Weights[1] = 9; return nil }, 400, 128},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
				cfg := engine.Config{Store: &memoryStore{}, Routes: &memoryStore{}, QoS: &qos.Options{}}
				_, stop := w.manager(f.SMPort, cfg)
				time.Sleep(20 * time.Second)
				stop()
				cfg.QoS = &qos.Options{}
				testkit.NoError(t, c.meanwhile(w, &cfg))
				before := w.sim.Counters().SMPs
				w.manager(f.SMPort, cfg)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				now := w.sim.Counters().SMPs
				maps, arb := now[mad.AttrSLtoVL].Set-before[mad.AttrSLtoVL].Set, now[mad.AttrVLArb].Set-before[mad.AttrVLArb].Set
				if maps != c.maps || arb != c.arb {
					t.Errorf("%d Sets of mappings, %d of arbitration, want %d and %d", maps, arb, c.maps, c.arb)
				}
				w.lanesWritten(t)
			})
		})
	}
}

// Tables of lanes that a manager wrote with other options are written again also where it
// could not remember them.
func TestRestartLanesUnsaved(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		cfg := engine.Config{Store: &memoryStore{}, Routes: &memoryStore{}, QoS: &qos.Options{}}
		arb := func(s *engine.Subnet, stop func()) uint64 {
			t.Helper()
			before := w.sim.Counters().SMPs[mad.AttrVLArb].Set
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if x := s.Snapshot(); x.State != "Master" {
				t.Fatal(x.State)
			}
			stop()
			return w.sim.Counters().SMPs[mad.AttrVLArb].Set - before
		}
		arb(w.manager(f.SMPort, cfg))
		other := cfg
		other.QoS = &qos.Options{}
		other.QoS.Weights[1] = 9
		arb(w.managerOn(f.SMPort, other, func(tr transport.Transport) transport.Transport {
			refused := func(path []uint8, a mad.AttrID, _ uint32) bool { return a == mad.AttrVLArb && len(path) == 4 }
			return refusal{tr, refused, false}
		}))
		if n := arb(w.manager(f.SMPort, cfg)); n != 128 {
			t.Errorf("%d Sets of arbitration, want 128", n)
		}
		if n := arb(w.manager(f.SMPort, cfg)); n != 0 {
			t.Errorf("%d Sets of arbitration where nothing changed", n)
		}
	})
}

// run gives the state before and after, and the Sets of tables after the start.
func (r *restart) run(t *testing.T, routes engine.Store) (was, now *engine.Snapshot, sets map[mad.AttrID]uint64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, r.f, simfabric.Options{})
		defer w.close()
		cfg := engine.Config{Store: &memoryStore{}, Routes: routes}
		if r.lanes {
			cfg.QoS = &qos.Options{}
		}
		s, stop := w.manager(r.f.SMPort, cfg)
		time.Sleep(5 * time.Second)
		rnd := rand.New(rand.NewPCG(7, 7))
		if r.history {
			w.history(t, rnd)
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		was = s.Snapshot()
		stop()
		time.Sleep(time.Second)
		if r.away {
			w.cutOne(t, rnd)
		}
		cfg.Route.Engine = cmp.Or(r.engine, cfg.Route.Engine)
		before := w.sim.Counters().SMPs
		s, _ = w.manager(r.f.SMPort, cfg)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		now, sets = s.Snapshot(), map[mad.AttrID]uint64{}
		for a, n := range w.sim.Counters().SMPs {
			if a == mad.AttrLFT || a == mad.AttrMFT || a == mad.AttrPKeyTable || a == mad.AttrSLtoVL || a == mad.AttrVLArb {
				sets[a] = n.Set - before[a].Set
			}
		}
	})
	return was, now, sets
}

// history turns every third host off, and cuts three cables.
func (w *world) history(t *testing.T, r *rand.Rand) {
	for i, h := range hostsOf(w.f) {
		if h != w.f.SMPort && i%3 == 1 {
			testkit.NoError(t, w.sim.PowerOff(w.f.Nodes[w.f.Ports[h].Node].GUID))
		}
	}
	time.Sleep(15 * time.Second)
	for range 3 {
		w.cutOne(t, r)
		time.Sleep(5 * time.Second)
	}
}

// cutOne cuts a cable between switches.
func (w *world) cutOne(t *testing.T, r *rand.Rand) {
	var cables []int32
	for p := range w.f.Ports {
		if q := w.f.Ports[p].Peer; q > int32(p) && w.f.Nodes[w.f.Ports[p].Node].Switch != fabric.None &&
			w.f.Nodes[w.f.Ports[q].Node].Switch != fabric.None {
			cables = append(cables, int32(p))
		}
	}
	c := &w.f.Ports[cables[r.IntN(len(cables))]]
	testkit.NoError(t, w.sim.Cut(w.f.Nodes[c.Node].GUID, c.Num))
}
