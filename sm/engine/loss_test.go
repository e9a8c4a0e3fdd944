package engine_test

import (
	"fmt"
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
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/transport"
)

// up waits until all ports are Active, and gives how long that took.
func (w *world) up(most time.Duration) time.Duration {
	begin := time.Now()
	for synctest.Wait(); !w.sim.AllActive() && time.Since(begin) < most; synctest.Wait() {
		time.Sleep(time.Millisecond)
	}
	return time.Since(begin)
}

// whole fails unless a manager knows all of the fabric.
func (w *world) whole(s *engine.Subnet, about string) {
	w.t.Helper()
	if x := s.Snapshot(); x.Fabric == nil || len(x.Fabric.Nodes) != len(w.f.Nodes) || x.Fabric.Links() != w.f.Links() {
		w.t.Errorf("%s: a part of the fabric is left out", about)
	}
}

// 972 hosts come up in three times the usual time where one SMP of fifty is lost on each
// way, and within seconds where it is one of ten; without loss no SMP is repeated.
func TestLoss(t *testing.T) {
	f := gen.FatTree3(36, 3, 18)
	var lossless time.Duration
	for _, tt := range []struct {
		loss  float64
		seeds uint64
		most  float64
	}{{0, 1, 1}, {0.02, 3, 3}, {0.1, 2, 50}} {
		for seed := range tt.seeds {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, f, simfabric.Options{Seed: seed, Loss: tt.loss, DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
				defer w.close()
				s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1})
				took := w.up(time.Minute)
				if lossless == 0 {
					lossless = took
				}
				ratio := float64(took) / float64(lossless)
				about := fmt.Sprintf("%.0f %% lost, seed %d: %v, %.1f times the usual time, %d SMPs", 100*tt.loss, seed, took, ratio, w.total())
				t.Log(about)
				if ratio > tt.most || tt.loss == 0 && w.total() != 22410 {
					t.Error(about)
				}
				w.sim.SetLoss(0)
				time.Sleep(5 * time.Second)
				synctest.Wait()
				w.whole(s, about)
				if err := s.Leaks(0); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A node that takes long for each answer comes up, with the fabric behind it, whatever
// else is lost: its answers count although a repeat is on the way.
func TestSlowNode(t *testing.T) {
	f := gen.FatTree2(8, 4)
	for _, slow := range []time.Duration{90, 150, 190, 250} {
		for _, node := range []int32{f.Ports[f.Ports[f.SMPort].Peer].Node, f.Switches[len(f.Switches)-1].Node, f.Ports[hostsOf(f)[9]].Node} {
			for _, loss := range []float64{0, 0.02} {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, f, simfabric.Options{Loss: loss, DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
					defer w.close()
					testkit.NoError(t, w.sim.Slow(f.Nodes[node].GUID, slow*time.Millisecond))
					s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1})
					took := w.up(time.Minute)
					time.Sleep(5 * time.Second)
					x := s.Refresh()
					about := fmt.Sprintf("%s answers after %d ms, %.0f %% lost: %v, %d SMPs, %d repeated", f.Nodes[node].Name(), slow, 100*loss, took,
						x.Counters.SMPs, x.Counters.Repeats)
					t.Log(about)
					w.whole(s, about)
					if !w.sim.AllActive() || loss == 0 && (x.Counters.Timeouts > 0 || x.Sweeps > 1) {
						t.Error(about)
					}
					// Without loss nothing else is read than of a fast node, unless a turn has
					// not waited for one that takes longer than the time-out.
					if n := x.Counters.SMPs - x.Counters.Repeats; loss == 0 && (n != 254 || x.Counters.Repeats > 5) && (slow < 200 || n > 258) {
						t.Errorf("%s: %d requests, want 254", about, n)
					}
				})
			}
		}
	}
}

// lateTable is a transport to switches that take some time for their tables of port states.
type lateTable struct {
	transport.Transport
	slow time.Duration
}

func (x *lateTable) Send(p *transport.Packet) error {
	if mad.AttrOf(&p.MAD) != mad.AttrSwitchPortState || x.slow == 0 {
		return x.Transport.Send(p)
	}
	late := *p
	time.AfterFunc(x.slow, func() { _ = x.Transport.Send(&late) })
	return nil
}

// A switch that takes longer for its table of port states than the silence after which a
// request is repeated early is still asked for nothing else.
func TestSlowTable(t *testing.T) {
	for _, slow := range []time.Duration{0, 20 * time.Millisecond, 90 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			m := gen.New()
			far, near := m.Switch(64), m.Switch(36)
			for i := range 12 {
				m.Link(near, i+1, m.Host(1), 1)
			}
			m.Link(near, 36, far, 1)
			m.Link(far, 2, m.Host(1), 1)
			f := m.Done(near + 2)
			w := newWorld(t, f, simfabric.Options{DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
			defer w.close()
			sw := f.Nodes[f.Switches[0].Node].GUID
			w.tabulate(t, sw)
			late := func(tr transport.Transport) transport.Transport { return &lateTable{tr, slow} }
			s, _ := w.managerOn(f.SMPort, engine.Config{Sweep: -1}, late)
			w.up(time.Minute)
			x, c := s.Refresh(), w.sim.Counters().SMPs
			about := fmt.Sprintf("%v: %d SMPs, %d repeated, %d Gets of PortInfo, %d of the table", slow, x.Counters.SMPs, x.Counters.Repeats,
				c[mad.AttrPortInfo].Get, c[mad.AttrSwitchPortState].Get)
			t.Log(about)
			if x.Counters.SMPs-x.Counters.Repeats != 152 || x.Counters.Repeats > 2 {
				t.Error(about)
			}
		})
	}
}

// stalling is a transport at which the manager stands still for a while now and then, as
// a process that is stopped; what arrives waits.
type stalling struct {
	transport.Transport
	n int
}

func (x *stalling) Send(p *transport.Packet) error {
	err := x.Transport.Send(p)
	if x.n++; mad.ClassOf(&p.MAD).IsSMP() && x.n%100 == 0 {
		time.Sleep(150 * time.Millisecond)
	}
	return err
}

// A manager that stands still repeats nothing for that.
func TestStallIsNoLoss(t *testing.T) {
	opt := simfabric.Options{DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond}
	inWorld(t, gen.FatTree2(8, 4), opt, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		stall := func(tr transport.Transport) transport.Transport { return &stalling{Transport: tr} }
		s, _ := w.managerOn(f.SMPort, engine.Config{Sweep: -1}, stall)
		if w.up(time.Minute); !w.sim.AllActive() || s.Refresh().Counters.Repeats != 0 {
			t.Errorf("%d SMPs were repeated", s.Refresh().Counters.Repeats)
		}
		time.Sleep(time.Second)
		w.whole(s, "stalls")
	})
}

// A node that never answers is sent each request as often as ever.
func TestSilentNode(t *testing.T) {
	f := gen.FatTree2(8, 4)
	for _, tt := range []struct {
		node int32
		smps int
	}{{f.Ports[hostsOf(f)[9]].Node, 279}, {f.Switches[len(f.Switches)-1].Node, 385}, {f.Switches[1].Node, 285}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, f, simfabric.Options{DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
			defer w.close()
			testkit.NoError(t, w.sim.Mute(f.Nodes[tt.node].GUID, true))
			s, _ := w.manager(f.SMPort, engine.Config{Sweep: -1})
			time.Sleep(8 * time.Second)
			if x := s.Refresh(); w.total() != tt.smps || x.Sweeps == 0 {
				t.Errorf("%s: %d SMPs in %d sweeps, want %d", f.Nodes[tt.node].Name(), w.total(), x.Sweeps, tt.smps)
			}
		})
	}
}

// Visible keys of the manager's own do not keep it from repeating Sets early.
func TestLossWithVisibleKeys(t *testing.T) {
	f := gen.FatTree2(8, 4)
	var took [2]time.Duration
	for i, key := range []ib.MKey{0, 0x1234} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, f, simfabric.Options{Loss: 0.05, DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
			defer w.close()
			for p := range f.Ports {
				if f.Ports[p].Known && key != 0 {
					testkit.NoError(t, w.sim.SetPortInfo(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num, func(x *mad.PortInfo) { x.SetMKey(key) }))
				}
			}
			pol := program.DefaultPolicy()
			pol.MKey = key
			w.manager(f.SMPort, engine.Config{Sweep: -1, Policy: pol})
			took[i] = w.up(time.Minute)
		})
	}
	t.Log(took)
	if took[1] > 10*took[0] {
		t.Errorf("up after %v with visible keys, %v without", took[1], took[0])
	}
}
