package engine_test

import (
	"context"
	"slices"
	"sync"
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

// A manager with another M_Key than the one before, or with none, takes the
// subnet over: at once where the ports show their key, and else when the lease
// has run out.
func TestForeignMKey(t *testing.T) {
	for _, tt := range []struct {
		name    string
		old     uint64
		protect uint8
		new     uint64
		most    time.Duration
	}{
		{"shown, then none", 0x1234, 0, 0, 2 * time.Second},
		{"shown, then another", 0x1234, 0, 0x5678, 2 * time.Second},
		{"the same", 0x1234, 3, 0x1234, 2 * time.Second},
		{"hidden, then none", 0x1234, 1, 0, 5 * time.Minute},
		{"hidden, then another", 0x1234, 1, 0x5678, 5 * time.Minute},
		{"nothing to be read, then another", 0x1234, 2, 0x5678, 10 * time.Minute},
		{"none, then one", 0, 0, 0x5678, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
				pol := program.DefaultPolicy()
				pol.MKey, pol.Protect = ib.MKey(tt.old), tt.protect
				if tt.old != 0 {
					pol.MKeyLease = 60
				}
				hosts := hostsOf(f)
				a, stop := w.manager(hosts[1], engine.Config{Policy: pol, SMKey: 7})
				w.settle(hosts[1], a, time.Second)
				stop()
				pol.MKey, pol.Protect, pol.MKeyLease = ib.MKey(tt.new), 1, 60
				if tt.new == 0 {
					pol.Protect, pol.MKeyLease = 0, 0
				}
				// A host that came since would not be served before.
				w.sim.Reboot(f.Nodes[f.Ports[hosts[4]].Node].GUID)
				s, _ := w.manager(hosts[2], engine.Config{Policy: pol})
				t0 := time.Now()
				for {
					synctest.Wait()
					wrong := ""
					for _, e := range f.EndPorts {
						pi, err := w.sim.PortInfo(f.Nodes[f.Ports[e].Node].GUID, f.Ports[e].Num)
						if err != nil || pi.MKey() != ib.MKey(tt.new) {
							wrong = w.f.PortName(e)
						}
					}
					if err := w.check(hosts[2], s); wrong == "" && err == nil {
						break
					} else if time.Since(t0) > tt.most {
						t.Fatalf("after %v: key of %s, %v", time.Since(t0), wrong, err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				t.Logf("taken over after %v", time.Since(t0))
			})
		})
	}
}

// unreported is a port as the kernel has it: of what the adapter does not answer to its
// own host nothing comes back.
type unreported struct{ transport.Transport }

func (unreported) Forgets() bool { return true }

func (u unreported) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	for {
		n, err := u.Transport.Recv(ctx, into)
		n = len(slices.DeleteFunc(into[:n], func(p transport.Packet) bool {
			return p.Err != nil && mad.ClassOf(&p.MAD) == mad.ClassSubnDR && p.MAD[7] == 0
		}))
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// late is a port whose reader was not let run for a while.
type late struct {
	transport.Transport
	once sync.Once
}

func (*late) Forgets() bool { return true }

func (l *late) Recv(ctx context.Context, into []transport.Packet) (int, error) {
	n, err := l.Transport.Recv(ctx, into)
	l.once.Do(func() { time.Sleep(3 * time.Second) })
	return n, err
}

// Late answers are answers: what waited for them while the process did not run at worst
// asks again.
func TestLateReader(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		port := hostsOf(f)[2]
		s, _ := w.managerOn(port, engine.Config{}, func(tr transport.Transport) transport.Transport { return &late{Transport: tr} })
		w.settle(port, s, 10*time.Second)
	})
}

// A manager whose own port has another's key serves all others, and says which does not
// obey.
func TestOwnPortSilent(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		pol := program.DefaultPolicy()
		pol.MKey, pol.Protect = 0x1234, 1
		a, stop := w.manager(hosts[1], engine.Config{Policy: pol})
		w.settle(hosts[1], a, time.Second)
		stop()
		for _, e := range f.EndPorts {
			if e != hosts[2] {
				w.sim.Reboot(f.Nodes[f.Ports[e].Node].GUID)
			}
		}
		s, end := w.managerOn(hosts[2], engine.Config{}, func(tr transport.Transport) transport.Transport { return unreported{tr} })
		defer end()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		x := s.Snapshot()
		if own := f.Nodes[f.Ports[hosts[2]].Node].GUID; x.State != "Master" || !slices.Equal(x.Retrying, []ib.GUID{own}) {
			t.Errorf("%s after %d sweeps, trouble with %v; want %v", x.State, x.Sweeps, x.Retrying, own)
		}
	})
}

// Where ports are protected, a trap is repressed with the port's key: without it
// the port would report a violation, and show its key when the lease has run out.
func TestTrapRepressMKey(t *testing.T) {
	opt := simfabric.Options{TrapRepeats: 5, DelayMin: time.Millisecond, DelayMax: time.Millisecond}
	inWorld(t, gen.FatTree2(8, 4), opt, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
		pol := program.DefaultPolicy()
		pol.MKey, pol.Protect, pol.MKeyLease = 0x1234, 1, 60
		s, _ := w.manager(f.SMPort, engine.Config{Policy: pol})
		w.settle(f.SMPort, s, 10*time.Second)
		host := hostsOf(f)[9]
		leaf := f.Ports[f.Ports[host].Peer]
		w.sim.Flap(f.Nodes[leaf.Node].GUID, leaf.Num)
		w.settle(f.SMPort, s, 10*time.Second)
		w.sim.SetDescription(f.Nodes[f.Ports[host].Node].GUID, "renamed")
		time.Sleep(2 * time.Minute)
		w.settle(f.SMPort, s, 10*time.Second)
		for _, at := range []struct {
			guid ib.GUID
			num  uint8
		}{{f.Nodes[leaf.Node].GUID, 0}, {f.Nodes[f.Ports[host].Node].GUID, f.Ports[host].Num}} {
			if pi, err := w.sim.PortInfo(at.guid, at.num); err != nil || pi.MKeyViolations() != 0 || pi.MKeyProtect() != 1 {
				t.Errorf("port %v/%d: %d violations, protection %d, %v", at.guid, at.num, pi.MKeyViolations(), pi.MKeyProtect(), err)
			}
		}
		if x := s.Refresh().Counters.Received; x["trap 128"] == 0 || x["trap 144"] == 0 || x["trap 256"] != 0 {
			t.Errorf("traps: %v", x)
		}
	})
}

// A port that sends no traps and got a wrong key does not give up its protection,
// and one that did, or that lost its key, is set again.
func TestMKeyLease(t *testing.T) {
	inWorld(t, gen.FatTree2(8, 4), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		at := func(p int32) (ib.GUID, uint8) { return f.Nodes[f.Ports[p].Node].GUID, f.Ports[p].Num }
		change := func(p int32, how func(*mad.PortInfo)) {
			g, n := at(p)
			testkit.NoError(t, w.sim.SetPortInfo(g, n, how))
		}
		deaf, bare, lost := hosts[9], hosts[4], hosts[5]
		change(deaf, func(i *mad.PortInfo) { i.SetCapMask(i.CapMask() &^ mad.CapTrap) })
		pol := program.DefaultPolicy()
		pol.MKey, pol.Protect, pol.MKeyLease = 0x1234, 1, 60
		s, _ := w.manager(f.SMPort, engine.Config{Policy: pol})
		w.settle(f.SMPort, s, 10*time.Second)

		g, n := at(deaf)
		pi, err := w.sim.PortInfo(g, n)
		testkit.NoError(t, err)
		c := w.client(t, hosts[3])
		if _, err := c.smp(pi.LID(), mad.MethodSet, mad.AttrPortInfo, uint32(n)); err == nil {
			t.Fatal("a Set without the key was answered")
		}
		if pi, _ = w.sim.PortInfo(g, n); pi.MKeyViolations() != 1 {
			t.Fatalf("%d violations", pi.MKeyViolations())
		}
		change(bare, func(i *mad.PortInfo) { i.SetMKeyProtect(0) })
		change(lost, func(i *mad.PortInfo) {
			i.SetMKey(0)
			i.SetMKeyProtect(0)
			i.SetMKeyLease(0)
		})
		time.Sleep(2 * time.Minute)
		for _, p := range []int32{deaf, bare, lost} {
			g, n := at(p)
			is, err := w.sim.PortInfo(g, n)
			testkit.NoError(t, err)
			d, err := c.smp(is.LID(), mad.MethodGet, mad.AttrPortInfo, uint32(n))
			var shown mad.PortInfo
			if err != nil || shown.Decode(d[:]) != nil || shown.MKey() != 0 || shown.MKeyProtect() != 1 {
				t.Errorf("%s shows the M_Key %v with protection %d, %v", f.PortName(p), shown.MKey(), shown.MKeyProtect(), err)
			}
			if is, _ = w.sim.PortInfo(g, n); is.MKey() != 0x1234 || is.MKeyLease() != 60 {
				t.Errorf("%s has the M_Key %v for %d s", f.PortName(p), is.MKey(), is.MKeyLease())
			}
		}
	})
}
