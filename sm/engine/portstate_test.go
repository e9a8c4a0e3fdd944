package engine_test

import (
	"context"
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
	"ibnetworkd/sm/transport"
)

// shifted is a transport to switches whose tables of port states are off by one.
type shifted struct {
	transport.Transport
	tables int
}

func (s *shifted) Recv(ctx context.Context, b []transport.Packet) (int, error) {
	n, err := s.Transport.Recv(ctx, b)
	for i := range b[:n] {
		if p := &b[i]; p.Err == nil && mad.AttrOf(&p.MAD) == mad.AttrSwitchPortState {
			s.tables++
			d := mad.SMPData(&p.MAD)
			for k := 63; k >= 0; k-- {
				d[k] >>= 4
				if k > 0 {
					d[k] |= d[k-1] << 4
				}
			}
		}
	}
	return n, err
}

// tabulate gives a switch a table of the states of its ports.
func (w *world) tabulate(t *testing.T, sw ib.GUID) {
	t.Helper()
	testkit.NoError(t, w.sim.SetPortInfo(sw, 0, func(p *mad.PortInfo) {
		p.SetCapMask(p.CapMask() | mad.CapMask2Supported)
		p.SetCapMask2(p.CapMask2() | mad.Cap2SwitchPortState)
	}))
}

// A switch that has the states of all its ports in a table gets no requests for those
// without a link, wherever the others are; one with a nonsensical table does.
func TestPortStateTable(t *testing.T) {
	type shape struct {
		hosts, ports int
		wrong        bool
	}
	for seed, tt := range []shape{{2, 36, false}, {5, 64, false}, {3, 130, false}, {7, 250, false}, {30, 36, false}, {4, 40, true},
		{9, 200, true}} {
		inWorld(t, gen.Star(tt.hosts, tt.ports), simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
			sw := f.Nodes[f.Switches[0].Node].GUID
			w.tabulate(t, sw)
			// The hosts' cables go to any ports.
			r := rand.New(rand.NewPCG(uint64(seed), 9))
			to := r.Perm(tt.ports)
			at := map[int]bool{}
			for h := 1; h <= tt.hosts; h++ {
				at[h] = true
			}
			for h := 1; h <= tt.hosts; h++ {
				if p := to[h] + 1; !at[p] {
					testkit.NoError(t, w.sim.Move(sw, uint8(h), sw, uint8(p)))
					delete(at, h)
					at[p] = true
				}
			}
			time.Sleep(1100 * time.Millisecond) // between two repeats of the traps of the moves
			tr, err := w.sim.Open(f.Ports[f.SMPort].GUID)
			testkit.NoError(t, err)
			x := &shifted{Transport: tr}
			if tt.wrong {
				tr = x
			}
			s := engine.New(tr, engine.Config{Log: logger()})
			ctx, cancel := context.WithCancel(context.Background())
			w.wg.Go(func() { s.Run(ctx) })
			defer cancel()
			time.Sleep(time.Second)
			synctest.Wait()
			c := w.sim.Counters().SMPs
			gets, tables := int(c[mad.AttrPortInfo].Get), int(c[mad.AttrSwitchPortState].Get)
			t.Logf("%d hosts on %d ports, wrong %v: %d Gets of PortInfo, %d of the table", tt.hosts, tt.ports, tt.wrong, gets, tables)
			if n := len(s.Snapshot().Fabric.EndPorts); n != tt.hosts+1 || !w.sim.AllActive() {
				t.Fatalf("%d end ports of %d, all active: %v", n, tt.hosts+1, w.sim.AllActive())
			}
			switch {
			case tt.hosts == 30:
				if tables != 0 {
					t.Error("a full switch was asked for the table")
				}
			case !tt.wrong && tables != 2*((tt.ports+128)/128) || tt.wrong && tables != (tt.ports+128)/128:
				// Again with the light sweep that the traps of the moves ask for.
				t.Errorf("%d Gets of the table", tables)
			case tt.wrong != (gets > 8+3*tt.hosts):
				t.Errorf("%d Gets of PortInfo", gets)
			}
			// What was not asked is seen when it changes.
			free := 1
			for at[free] {
				free++
			}
			from := 0
			for p := range at {
				if q := s.Snapshot().Fabric; p != 0 && q.Ports[q.Port(q.Switches[0].Node, uint8(p))].Peer != q.SMPort {
					from = p
				}
			}
			testkit.NoError(t, w.sim.Move(sw, uint8(from), sw, uint8(free)))
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if n := len(s.Snapshot().Fabric.EndPorts); n != tt.hosts+1 || !w.sim.AllActive() {
				t.Errorf("after a move: %d end ports of %d, all active: %v", n, tt.hosts+1, w.sim.AllActive())
			}
			before := w.total()
			s.Resweep(false, "test")
			synctest.Wait()
			if n := w.total() - before; n != 1 {
				t.Errorf("a resweep takes %d SMPs", n)
			}
		})
	}
}

// Lost packets do not lose ports, whatever stage of asking they hit.
func TestPortStateTableUnderLoss(t *testing.T) {
	for seed := range uint64(30) {
		opt := simfabric.Options{Seed: seed, Loss: 0.1, DelayMin: time.Microsecond, DelayMax: 50 * time.Microsecond}
		inWorld(t, gen.FatTree2(36, 3), opt, func(t *testing.T, w *world, f *fabric.Fabric, _ []int32) {
			for i := range f.Switches {
				if seed%3 > 0 {
					w.sim.SetPortInfo(f.Nodes[f.Switches[i].Node].GUID, 0, func(p *mad.PortInfo) {
						p.SetCapMask(p.CapMask() | mad.CapMask2Supported)
						p.SetCapMask2(p.CapMask2() | mad.Cap2SwitchPortState)
					})
				}
			}
			// Most hosts are off: their ports have no link.
			r := rand.New(rand.NewPCG(seed, 10))
			for _, e := range f.EndPorts {
				if f.Ports[e].Num != 0 && e != f.SMPort && r.IntN(8) > 0 {
					w.off[f.Ports[e].Node] = true
					w.sim.PowerOff(f.Nodes[f.Ports[e].Node].GUID)
				}
			}
			s, _ := w.manager(f.SMPort, engine.Config{Window: 1 + int(seed)})
			w.settle(f.SMPort, s, 5*time.Minute)
		})
	}
}
