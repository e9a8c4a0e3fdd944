package engine_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
)

var long = flag.Bool("long", false, "thousands of random subnets, and the whole LID space (make test-sm-long)")

// The number of SMPs of a first sweep is exact: by the rules of discover and
// program, each attribute is read once and each port set twice. opensm is what
// opensm 3.3.23 sends on the same fabric (measured on ibsim); the reference it
// is compared with is 0.55 of that where most switch ports are in use.
func TestFirstSweepSMPs(t *testing.T) {
	for _, tt := range []struct {
		name         string
		f            func() *fabric.Fabric
		want, opensm int
		most         float64
	}{
		{"b2b", gen.Pair, 10, 18, 0.56},
		{"sw2", func() *fabric.Fabric { return gen.Star(2, 36) }, 56, 75, 0.75},
		{"ft2-108", func() *fabric.Fabric { return gen.FatTree2(36, 6) }, 1566, 3314, 0.55},
		{"ft2-648", func() *fabric.Fabric { return gen.FatTree2(36, 36) }, 9882, 20360, 0.55},
		{"ft3-972", func() *fabric.Fabric { return gen.FatTree3(36, 3, 18) }, 22410, 46010, 0.55},
		{"ft2-1024", func() *fabric.Fabric { return gen.FatTree2(64, 32) }, 15344, 31826, 0.55},
		{"ft3-5184", func() *fabric.Fabric { return gen.FatTree3(36, 16, 18) }, 173520, 299378, 0.6},
	} {
		if testing.Short() && tt.opensm > 50_000 {
			continue
		}
		f := tt.f()
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, f, simfabric.Options{})
				defer w.close()
				s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1})
				synctest.Wait()
				if len(f.EndPorts) < 300 {
					if err := w.check(f.SMPort, s); err != nil {
						t.Fatal(err)
					}
				}
				if n := w.total(); n != tt.want || float64(n) > tt.most*float64(tt.opensm) {
					t.Errorf("%d SMPs, want %d and at most %.2f of opensm's %d", n, tt.want, tt.most, tt.opensm)
				}
				// Ports without a link are read again once: one may have come up before
				// its switch was configured.
				for _, more := range []int{unlinked(f), 0} {
					before := w.total()
					s.Resweep(false, "test")
					synctest.Wait()
					if n := w.total() - before; n != len(f.Switches)+more {
						t.Errorf("a resweep with nothing changed takes %d SMPs, want one for each of %d switches and %d ports without a link", n,
							len(f.Switches), more)
					}
				}
			})
		})
	}
}

func TestShapes(t *testing.T) {
	for name, f := range map[string]*fabric.Fabric{
		"pair": gen.Pair(), "star": gen.Star(3, 8), "ft2": gen.FatTree2(8, 4), "ft3": gen.FatTree3(4, 2, 2),
		"ring": gen.Ring(6, 2), "torus": gen.Torus([]int{3, 3}, 1), "mesh": gen.Mesh([]int{4, 3}, 1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, f, simfabric.Options{})
				defer w.close()
				s, _ := w.manager(f.SMPort, engine.Config{})
				w.settle(f.SMPort, s, time.Second)
			})
		})
	}
}

// A torus routed by dimension order over service levels: the tables that keep
// the levels apart are written, to every port.
func TestQoS(t *testing.T) {
	inWorld(t, gen.Torus([]int{5, 5}, 1), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		s, _ := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}})
		synctest.Wait()
		x := s.Snapshot()
		levels := map[ib.SL]int{}
		if x.Routing != "dor" || !w.sim.AllActive() {
			t.Fatalf("routing %q, all active %v", x.Routing, w.sim.AllActive())
		}
		for i := range x.Fabric.Ports {
			p := &x.Fabric.Ports[i]
			if p.Peer == fabric.None || p.Num == 0 {
				continue
			}
			g := x.Fabric.Nodes[p.Node].GUID
			pi, _ := w.sim.PortInfo(g, p.Num)
			if x.Fabric.IsEndPort(int32(i)) {
				levels[pi.MasterSMSL()]++
			}
			tab, err := w.sim.SLtoVL(g, 0, p.Num)
			if err != nil || pi.OperVLs() < 2 || tab[0] == tab[1] {
				t.Fatalf("%s: OperVLs %d, SL to VL %v, %v", x.Fabric.PortName(int32(i)), pi.OperVLs(), tab, err)
			}
		}
		// Over both date lines, one of them, none.
		if len(levels) != 4 || levels[0] == len(f.EndPorts) {
			t.Errorf("service levels to the manager: %v", levels)
		}
		before := w.total()
		s.Resweep(false, "test")
		synctest.Wait()
		if n := w.total() - before; n != len(f.Switches) {
			t.Errorf("a resweep takes %d SMPs", n)
		}
	})
}

func seeds(t *testing.T) uint64 {
	if testing.Short() {
		return 20
	}
	if *long {
		return 3000
	}
	return 150
}

// After any sequence of events on any graph the subnet settles.
func TestRandomEvents(t *testing.T) {
	for seed := range seeds(t) {
		var story []string
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 77))
				f := gen.Random(seed, 1+r.IntN(7), r.IntN(10), 1+r.IntN(10))
				opt := simfabric.Options{Seed: seed}
				if seed%3 == 1 {
					opt.Loss = 0.02
				}
				if seed%3 == 2 {
					opt.DelayMin, opt.DelayMax = 10*time.Microsecond, 3*time.Millisecond
				}
				w := newWorld(t, f, opt)
				defer w.close()
				s, _ := w.manager(f.SMPort, engine.Config{Window: 1 + r.IntN(40)})
				w.settle(f.SMPort, s, 20*time.Second)
				for range 3 + r.IntN(6) {
					for range 1 + r.IntN(3) {
						story = append(story, w.event(r, f.SMPort))
						if r.IntN(2) == 0 {
							time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
						}
					}
					d := w.settle(f.SMPort, s, 20*time.Minute)
					story = append(story, fmt.Sprintf("settled in %v", d))
				}
			})
		})
		if !ok {
			t.Log(strings.Join(story, "\n"))
			return
		}
	}
}

func TestEqualPriorityStartAtOnce(t *testing.T) {
	for seed := range uint64(20) {
		opt := simfabric.Options{Seed: seed, DelayMin: 5 * time.Microsecond, DelayMax: 500 * time.Microsecond}
		inWorld(t, gen.FatTree2(8, 4), opt, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
			var subs []*engine.Subnet
			var at []int32
			for _, p := range f.EndPorts {
				if f.Ports[p].Num != 0 && len(subs) < 4 {
					s, _ := w.manager(p, engine.Config{Priority: 3})
					subs, at = append(subs, s), append(at, p)
				}
			}
			time.Sleep(8 * time.Second)
			synctest.Wait()
			for i, s := range subs {
				want := "Standby"
				if i == 0 {
					want = "Master"
				}
				if x := s.Snapshot(); x.State != want {
					t.Fatalf("seed %d: manager %d is %s, want %s", seed, i, x.State, want)
				}
			}
			w.settle(at[0], subs[0], time.Second)
		})
	}
}

// LIDs survive a restart of the manager and of the whole subnet.
func TestLIDsSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := gen.Star(4, 8)
		store := &memory{}
		w := newWorld(t, f, simfabric.Options{})
		defer w.close()
		s, stop := w.manager(f.SMPort, engine.Config{Store: store})
		w.settle(f.SMPort, s, time.Second)
		was := map[ib.GUID]ib.LID{}
		for _, p := range s.Snapshot().Fabric.EndPorts {
			q := s.Snapshot().Fabric.Ports[p]
			was[q.GUID] = q.LID
		}
		stop()
		for i := range f.Nodes {
			if int32(i) != f.Ports[f.SMPort].Node {
				w.sim.Reboot(f.Nodes[i].GUID)
			}
		}
		s, _ = w.manager(f.SMPort, engine.Config{Store: store})
		w.settle(f.SMPort, s, time.Second)
		for _, p := range s.Snapshot().Fabric.EndPorts {
			if q := s.Snapshot().Fabric.Ports[p]; was[q.GUID] != q.LID {
				t.Errorf("port %v had LID %v, has %v", q.GUID, was[q.GUID], q.LID)
			}
		}
		store.b = []byte("damaged")
		s2, _ := w.manager(f.EndPorts[2], engine.Config{Store: store, Priority: 1})
		time.Sleep(time.Second)
		if s2.Snapshot() == nil {
			t.Error("a damaged memory is fatal")
		}
	})
}

// The whole LID space: 45,056 hosts behind 3,520 switches of 64 ports.
func TestFullLIDSpace(t *testing.T) {
	if !*long {
		t.Skip("with -long: it takes a minute or more, and 2 GB")
	}
	f := gen.FatTree3(64, 44, 32)
	w := newWorld(t, f, simfabric.Options{})
	defer w.close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	t0 := time.Now()
	s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1})
	for x := s.Snapshot(); x == nil || x.Sweeps == 0; x = s.Snapshot() {
		time.Sleep(50 * time.Millisecond)
	}
	d := time.Since(t0)
	runtime.GC()
	runtime.ReadMemStats(&after)
	x := s.Snapshot()
	t.Logf("%d end ports, %d switches, %d links: %d SMPs in %v; the manager holds %d MB more, with the simulator's tables",
		x.EndPorts, x.Switches, x.Links, x.LastSweep.SMPs, d, (after.HeapAlloc-before.HeapAlloc)>>20)
	if x.EndPorts != len(f.EndPorts) || !w.sim.AllActive() {
		t.Errorf("%d end ports of %d, all active: %v", x.EndPorts, len(f.EndPorts), w.sim.AllActive())
	}
}

type memory struct{ b []byte }

func (m *memory) Load() ([]byte, error) { return m.b, nil }
func (m *memory) Save(b []byte) error   { m.b = b; return nil }

// A takeover finds everything as it should be and sets no more than it must.
func TestTakeoverSetsLittle(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		s, stop := w.manager(f.SMPort, engine.Config{})
		w.settle(f.SMPort, s, time.Second)
		stop()
		before := w.sim.Counters().SMPs
		s, _ = w.manager(f.SMPort, engine.Config{})
		w.settle(f.SMPort, s, time.Second)
		after := w.sim.Counters().SMPs
		for a, c := range after {
			t.Logf("%s: %d Gets, %d Sets", mad.AttrName(mad.ClassSubnDR, a), c.Get-before[a].Get, c.Set-before[a].Set)
		}
		for _, a := range []mad.AttrID{mad.AttrSwitchInfo, mad.AttrLFT, mad.AttrPKeyTable} {
			if n := after[a].Set - before[a].Set; n != 0 {
				t.Errorf("%d Sets of %s", n, mad.AttrName(mad.ClassSubnDR, a))
			}
		}
		// Clients get ClientReregister, those on the manager's own host too, and that
		// is all.
		hosts := 0
		for _, p := range f.EndPorts {
			if f.Ports[p].Num != 0 {
				hosts++
			}
		}
		if n := after[mad.AttrPortInfo].Set - before[mad.AttrPortInfo].Set; int(n) != hosts {
			t.Errorf("%d Sets of PortInfo, want one for each of %d hosts", n, hosts)
		}
	})
}

// Two managers and random events: at the end exactly one is master of what
// both are connected with, the better one.
func TestTwoManagersRandomEvents(t *testing.T) {
	for seed := range seeds(t) / 3 {
		var story []string
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 78))
				f := gen.Random(seed, 2+r.IntN(5), 2+r.IntN(8), 4+r.IntN(8))
				opt := simfabric.Options{Seed: seed, DelayMin: 10 * time.Microsecond, DelayMax: time.Millisecond}
				if seed%2 == 1 {
					opt.Loss = 0.01
				}
				w := newWorld(t, f, opt)
				defer w.close()
				var at []int32
				for _, p := range f.EndPorts {
					if f.Ports[p].Num == 1 && len(at) < 2 {
						at = append(at, p)
					}
				}
				if len(at) < 2 {
					t.Skip("one host")
				}
				prio := []uint8{uint8(r.IntN(3)), uint8(r.IntN(3))}
				var subs []*engine.Subnet
				for i, p := range at {
					s, _ := w.manager(p, engine.Config{Priority: prio[i]})
					subs = append(subs, s)
					time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
				}
				best := 0
				if prio[1] > prio[0] {
					best = 1
				}
				for range 3 + r.IntN(4) {
					for range 1 + r.IntN(3) {
						for {
							e := w.event(r, at[0])
							story = append(story, e)
							if e != "reboot "+f.Nodes[f.Ports[at[1]].Node].Name() {
								break
							}
							t.Skip("a manager's host restarted")
						}
					}
					t0 := time.Now()
					for {
						synctest.Wait()
						together := len(w.live(at[0])) > 1 && slices.Contains(w.live(at[0]), at[1])
						var err error
						if together {
							if err = w.check(at[best], subs[best]); err == nil && subs[1-best].Snapshot().State != "Standby" {
								err = fmt.Errorf("the worse manager is %s", subs[1-best].Snapshot().State)
							}
						} else {
							for i := range subs {
								if e := w.check(at[i], subs[i]); e != nil {
									err = fmt.Errorf("manager %d: %w", i, e)
								}
							}
						}
						if err == nil {
							break
						}
						if time.Since(t0) > 20*time.Minute {
							t.Fatalf("not settled (best is %d): %v", best, err)
						}
						time.Sleep(20 * time.Millisecond)
					}
					story = append(story, fmt.Sprintf("settled in %v", time.Since(t0)))
				}
			})
		})
		if !ok {
			t.Log(strings.Join(story, "\n"))
			return
		}
	}
}
