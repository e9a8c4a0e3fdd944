package engine_test

import (
	"context"
	"log/slog"
	"maps"
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
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos"
	"ibnetworkd/sm/transport"
)

// askings are the hosts that were asked to register again.
type askings struct {
	mu    sync.Mutex
	hosts map[ib.GUID]int
}

func (a *askings) note(g ib.GUID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts[g]++
}

func (a *askings) take() map[ib.GUID]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := maps.Clone(a.hosts)
	clear(a.hosts)
	return out
}

// Whatever --reregister says, each host for which the level of a path changed is asked to
// register again, once, and no other.
func TestChangedLevelsReachHosts(t *testing.T) {
	changed := 0
	for n := range 4 {
		synctest.Test(t, func(t *testing.T) {
			f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
			a := &askings{hosts: map[ib.GUID]int{}}
			w := newWorld(t, f, simfabric.Options{Reregister: a.note})
			defer w.close()
			log := new(testkit.Buffer)
			s, _ := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}, Reregister: engine.ReregisterNever,
				Log: slog.New(slog.NewTextHandler(log, nil))})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			var hosts []*client
			for _, h := range hostsOf(f) {
				hosts = append(hosts, w.client(t, h))
			}
			before := w.levels(t, s.Snapshot().Fabric, hosts)
			a.take()
			p := w.linkBetweenSwitches(5 + 7*n)
			w.sim.Cut(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			x := s.Snapshot()
			after := w.levels(t, x.Fabric, hosts)
			lids := x.Fabric.LIDs()
			want := map[ib.GUID]int{}
			for k, l := range after {
				if before[k] != l {
					want[x.Fabric.Ports[lids[k[0]]].GUID] = 1
				}
			}
			if got := a.take(); !maps.Equal(got, want) {
				t.Errorf("cable %d: %d hosts are asked, want %d", n, len(got), len(want))
			}
			if said := strings.Count(log.String(), "service levels of paths changed"); (said == 1) != (len(want) > 0) || said > 1 {
				t.Errorf("cable %d: %d lines of the log for %d hosts", n, said, len(want))
			}
			changed += len(want)
		})
	}
	if changed == 0 {
		t.Error("no level changed: nothing was tested")
	}
}

// losing is a transport that loses some packets.
type losing struct {
	transport.Transport
	lose func(*transport.Packet) bool
}

func (l losing) Send(p *transport.Packet) error {
	if l.lose(p) {
		return nil
	}
	return l.Transport.Send(p)
}

// When the first block of new tables is sent, the SA already gives the levels of these.
func TestLevelsBeforeTables(t *testing.T) {
	changed := 0
	for n := range 6 {
		synctest.Test(t, func(t *testing.T) {
			f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
			w := newWorld(t, f, simfabric.Options{DelayMin: 100 * time.Microsecond, DelayMax: 100 * time.Microsecond})
			defer w.close()
			var armed, lost atomic.Bool
			cfg := engine.Config{QoS: &qos.Options{}, Timeout: 5 * time.Second}
			s, _ := w.managerOn(f.SMPort, cfg, func(tr transport.Transport) transport.Transport {
				return losing{tr, func(p *transport.Packet) bool {
					if !armed.Load() || mad.ClassOf(&p.MAD) != mad.ClassSubnDR || mad.AttrOf(&p.MAD) != mad.AttrLFT {
						return false
					}
					lost.Store(true)
					return true
				}}
			})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			// All is asked from the manager's own host, which no cable cuts off.
			hosts := slices.Repeat([]*client{w.client(t, f.SMPort)}, len(hostsOf(f)))
			x := s.Snapshot().Fabric
			old := w.levels(t, x, hosts)
			armed.Store(true)
			p := w.linkBetweenSwitches(5 + 7*n)
			w.sim.Cut(f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num)
			for !lost.Load() {
				time.Sleep(time.Millisecond)
			}
			early := w.levels(t, x, hosts)
			armed.Store(false)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			late := w.levels(t, s.Snapshot().Fabric, hosts)
			if !maps.Equal(old, late) {
				changed++
			}
			if !maps.Equal(early, late) {
				t.Error("the SA gives other levels while the new tables are written")
			}
		})
	}
	if changed == 0 {
		t.Error("no level changed: nothing was tested")
	}
}

// After a takeover with a copy of the registrations no host is asked, where levels are in
// use and where not. What the standby sends the master for the copy is on the level of its
// port.
func TestTakeoverWithLevels(t *testing.T) {
	for name, layered := range map[string]bool{"layered": true, "tree": false} {
		synctest.Test(t, func(t *testing.T) {
			f := gen.FatTree2(8, 4)
			if layered {
				f = gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
			}
			hosts := hostsOf(f)
			m := &members{hosts: map[ib.GUID]*listener{}}
			w := newWorld(t, f, simfabric.Options{Reregister: m.reregister})
			ctx, cancel := context.WithCancel(context.Background())
			defer w.close()
			defer cancel()
			at := &seat{port: hosts[0], prio: 5}
			w.sit(at, engine.Config{QoS: &qos.Options{}})
			time.Sleep(5 * time.Second)
			var mu sync.Mutex
			used := map[ib.SL]int{}
			self := hosts[len(hosts)-3]
			b, _ := w.managerOn(self, engine.Config{QoS: &qos.Options{}, Priority: 1, Reregister: engine.ReregisterNever},
				func(tr transport.Transport) transport.Transport {
					return losing{tr, func(p *transport.Packet) bool {
						if mad.ClassOf(&p.MAD) == mad.ClassSA && mad.MethodOf(&p.MAD) == mad.MethodGetTable {
							mu.Lock()
							used[p.SL]++
							mu.Unlock()
						}
						return false
					}}
				})
			ls := m.begin(ctx, w, hosts)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			pi, err := w.sim.PortInfo(f.Nodes[f.Ports[self].Node].GUID, 1)
			if err != nil || joined(ls) != 2*len(hosts) || layered && pi.MasterSMSL() == 0 {
				t.Fatalf("%s: %d memberships, level %d, %v", name, joined(ls), pi.MasterSMSL(), err)
			}
			mu.Lock()
			if used[pi.MasterSMSL()] == 0 || len(used) != 1 {
				t.Errorf("%s: the standby asked on levels %v, its port has %d", name, used, pi.MasterSMSL())
			}
			mu.Unlock()
			asked := m.asked.Load()
			at.kill()
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if n := m.asked.Load() - asked; b.Snapshot().State != "Master" || n != 0 {
				t.Errorf("%s: %s asks %d of %d hosts", name, b.Snapshot().State, n, len(hosts))
			}
		})
	}
}

// A switch that was away comes back with other levels perhaps: hosts elsewhere may still
// have the old ones of paths to it.
func TestLevelsOfReturningSwitch(t *testing.T) {
	changed := 0
	for _, n := range []int{6, 12, 18} {
		synctest.Test(t, func(t *testing.T) {
			f := gen.CutCables(gen.Torus([]int{5, 5}, 1), 3, 6)
			a := &askings{hosts: map[ib.GUID]int{}}
			w := newWorld(t, f, simfabric.Options{Reregister: a.note})
			defer w.close()
			s, _ := w.manager(f.SMPort, engine.Config{QoS: &qos.Options{}})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			all := slices.Repeat([]*client{w.client(t, f.SMPort)}, len(hostsOf(f)))
			before := w.levels(t, s.Snapshot().Fabric, all)
			a.take()
			g := f.Nodes[f.Switches[n].Node].GUID
			w.sim.PowerOff(g)
			time.Sleep(10 * time.Second)
			w.sim.PowerOn(g)
			time.Sleep(20 * time.Second)
			synctest.Wait()
			x := s.Snapshot()
			asked := a.take()
			missed := map[ib.GUID]bool{}
			lids := x.Fabric.LIDs()
			for k, l := range w.levels(t, x.Fabric, all) {
				if g := x.Fabric.Ports[lids[k[0]]].GUID; before[k] != l {
					changed++
					missed[g] = missed[g] || asked[g] == 0
				}
			}
			for g, m := range missed {
				if m {
					t.Errorf("switch %d: host %s is not asked, %q on %d layers", n, g, x.Routing, x.Layers)
				}
			}
		})
	}
	if changed == 0 {
		t.Error("no level changed: nothing was tested")
	}
}
