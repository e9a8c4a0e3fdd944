package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
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

// answered is a transport that drops traps and does something when the attribute of
// a switch port has been answered and before the manager reads it.
type answered struct {
	transport.Transport
	attr mad.AttrID
	port uint8
	then atomic.Pointer[func()]
}

func (s *answered) Recv(ctx context.Context, b []transport.Packet) (int, error) {
	for {
		n, err := s.Transport.Recv(ctx, b)
		keep := 0
		for i := range b[:n] {
			p := &b[i]
			if p.Err == nil && mad.MethodOf(&p.MAD) == mad.MethodTrap {
				continue
			}
			if p.Err == nil && mad.MethodOf(&p.MAD) == mad.MethodGetResp && mad.AttrOf(&p.MAD) == s.attr && uint8(mad.ModOf(&p.MAD)) == s.port {
				if f := s.then.Swap(nil); f != nil {
					(*f)()
				}
			}
			b[keep] = *p
			keep++
		}
		if keep > 0 || err != nil || n == 0 {
			return keep, err
		}
	}
}

// beyond is a switch of four ports with one of eight behind it.
const beyond = `Hca 1 "Hca1"
[1] "Switch1"[1]

Switch 4 "Switch1"
[1] "Hca1"[1]
[2] "Switch2"[1]

Switch 8 "Switch2"
[1] "Switch1"[2]
[7] "Hca2"[1]

Hca 1 "Hca2"
[1] "Switch2"[7]
`

// twice are two switches with two cables between them.
const twice = `Hca 1 "Hca1"
[1] "Switch1"[1]

Switch 4 "Switch1"
[1] "Hca1"[1]
[3] "Switch2"[1]
[4] "Switch2"[5]

Switch 5 "Switch2"
[1] "Switch1"[3]
[3] "Hca2"[1]
[5] "Switch1"[4]

Hca 1 "Hca2"
[1] "Switch2"[3]
`

// A link that comes up after its port was read and before the sweep ends is found
// by the next light sweep that reads the switches, before one has come to read that
// port: PortStateChange of its switch is not cleared, or the ports without a link
// are read again.
func TestLinkDuringSweep(t *testing.T) {
	const sweep = 10 * time.Second
	line, err := fabric.ReadText("beyond", strings.NewReader(beyond))
	testkit.NoError(t, err)
	cables, err := fabric.ReadText("twice", strings.NewReader(twice))
	testkit.NoError(t, err)
	for name, tt := range map[string]struct {
		f    *fabric.Fabric
		port uint8
		of   uint8 // a switch of so many ports
		// before is done before the manager starts, and during once it has the subnet.
		before func(*world, ib.GUID)
		during func(*world, ib.GUID, *engine.Subnet)
		looks  int  // light sweeps until it is found
		table  bool // the switch has the states of all ports in one table
		goes   bool // the link was there, and goes away
	}{
		"first": {f: gen.Star(3, 8), port: 3, of: 8, looks: 1},
		// So many LIDs that the switch's limit is set in the end.
		"first of many":            {f: gen.Star(70, 80), port: 70, of: 80, looks: 1},
		"first, with a table":      {f: gen.Star(3, 36), port: 3, of: 36, looks: 1, table: true},
		"found from its other end": {f: cables, port: 4, of: 4, looks: 1},
		// A switch that reports changes from before, and gets another LID: that
		// may not keep it from reporting this one.
		"takeover, link goes": {f: cables, port: 5, of: 5, looks: 1, goes: true, before: func(w *world, sw ib.GUID) {
			w.sim.Cut(sw, 3)
			_, end := w.manager(w.f.SMPort, engine.Config{Sweep: -1})
			time.Sleep(time.Second)
			end()
			w.sim.Cut(sw, 1)
			if err := errors.Join(w.sim.Restore(sw, 1), w.sim.Restore(sw, 3)); err != nil {
				w.t.Error(err)
			}
		}},
		"takeover": {f: gen.Star(3, 8), port: 3, of: 8, looks: 1, before: func(w *world, sw ib.GUID) {
			_, end := w.manager(w.f.SMPort, engine.Config{Sweep: -1})
			time.Sleep(time.Second)
			end()
		}},
		"known switch": {f: gen.Star(3, 8), port: 3, of: 8, looks: 2, during: func(w *world, sw ib.GUID, _ *engine.Subnet) {
			w.sim.Cut(sw, 3)
			time.Sleep(2 * sweep)
		}},
		"full sweep of the master": {f: gen.Star(3, 8), port: 3, of: 8, looks: 2, during: func(w *world, sw ib.GUID, s *engine.Subnet) {
			w.sim.Cut(sw, 3)
			s.Resweep(true, "test")
			time.Sleep(time.Second)
		}},
		"new switch": {f: line, port: 7, of: 8, looks: 2, before: func(w *world, sw ib.GUID) {
			w.sim.PowerOff(sw)
		}, during: func(w *world, sw ib.GUID, _ *engine.Subnet) {
			w.sim.PowerOn(sw)
			time.Sleep(2 * sweep)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tt.f, simfabric.Options{})
				defer w.close()
				var sw ib.GUID
				for i := range tt.f.Switches {
					if n := &tt.f.Nodes[tt.f.Switches[i].Node]; n.NumPorts == tt.of {
						sw = n.GUID
					}
				}
				attr, mod := mad.AttrPortInfo, tt.port
				if tt.table {
					attr, mod = mad.AttrSwitchPortState, 0
					w.tabulate(t, sw)
				}
				if tt.before != nil {
					tt.before(w, sw)
				}
				if (tt.during == nil || name == "new switch") && !tt.goes {
					w.sim.Cut(sw, tt.port)
				}
				tr, err := w.sim.Open(tt.f.Ports[tt.f.SMPort].GUID)
				testkit.NoError(t, err)
				var at time.Time
				x := &answered{Transport: tr, attr: attr, port: mod}
				up := func() {
					at = time.Now()
					if tt.goes {
						w.sim.Cut(sw, tt.port)
					} else if err := w.sim.Restore(sw, tt.port); err != nil {
						t.Error(err)
					}
				}
				if tt.during == nil {
					x.then.Store(&up)
				}
				s := engine.New(x, engine.Config{Sweep: sweep, Log: logger()})
				ctx, cancel := context.WithCancel(t.Context())
				w.wg.Go(func() { s.Run(ctx) })
				defer cancel()
				time.Sleep(time.Second)
				synctest.Wait()
				if tt.during != nil {
					x.then.Store(&up)
					tt.during(w, sw, s)
					synctest.Wait()
				}
				if at.IsZero() {
					t.Fatal("the port was not asked")
				}
				time.Sleep(time.Until(at.Add(time.Duration(tt.looks)*sweep + time.Second)))
				synctest.Wait()
				f := s.Snapshot().Fabric
				if linked := f.Ports[f.Port(f.NodeByGUID(sw), tt.port)].Peer != fabric.None; linked == tt.goes {
					t.Errorf("port %d is held to have a link: %v", tt.port, linked)
				}
				if n, want := len(f.EndPorts), len(tt.f.EndPorts); n != want || !w.sim.AllActive() {
					t.Errorf("%d end ports of %d, all Active: %v", n, want, w.sim.AllActive())
				}
			})
		})
	}
}
