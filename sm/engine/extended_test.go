package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
	"ibnetworkd/sm/transport"
)

// oldNodes makes the nodes behind the given first hop refuse PortInfo from
// managers that know extended speeds, as one from before there was such a
// bit may, and counts what was asked of PortInfo.
type oldNodes struct {
	transport.Transport
	old        func(path []uint8) bool
	mu         sync.Mutex
	with, sans int // PortInfo with the bit and without
	refused    int
}

func (o *oldNodes) Send(p *transport.Packet) error {
	if mad.ClassOf(&p.MAD) == mad.ClassSubnDR && mad.AttrOf(&p.MAD) == mad.AttrPortInfo && p.Timeout > 0 {
		var s mad.SMP
		s.Decode(&p.MAD)
		o.mu.Lock()
		defer o.mu.Unlock()
		if mad.ModOf(&p.MAD)&smp.ExtendedSpeeds == 0 {
			o.sans++
		} else if o.with++; o.old(s.Path()) {
			o.refused++
			q := *p
			q.MAD[23] = 0xff // a port that is not there: status 0x1c
			return o.Transport.Send(&q)
		}
	}
	return o.Transport.Send(p)
}

// Every PortInfo announces support of extended speeds: without it NDR links do not
// work. A node that refuses it gets requests without from then on.
func TestExtendedSpeeds(t *testing.T) {
	for _, old := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := gen.Star(3, 8)
			for i := range f.Ports {
				f.Ports[i].Info.SetCapMask(f.Ports[i].Info.CapMask() &^ mad.CapExtendedSpeeds) // nothing here claims extended speeds
			}
			w := newWorld(t, f, simfabric.Options{})
			defer w.close()
			tr, err := w.sim.Open(f.Ports[f.SMPort].GUID)
			testkit.NoError(t, err)
			o := &oldNodes{Transport: tr, old: func(path []uint8) bool { return old && len(path) == 1 }}
			s := engine.New(o, engine.Config{Log: logger(), Sweep: -1})
			ctx, cancel := context.WithCancel(context.Background())
			w.wg.Go(func() { s.Run(ctx) })
			defer cancel()
			time.Sleep(time.Second)
			synctest.Wait()
			testkit.NoError(t, w.check(f.SMPort, s))
			x := s.Snapshot()
			if old == (o.refused == 0) || o.refused > 7 || old == (o.sans == 0) || o.with == 0 || x.LastSweep.Failed != 0 {
				t.Errorf("old switch %v: %d PortInfo with the bit, %d without, %d refused; %d failed", old, o.with, o.sans, o.refused,
					x.LastSweep.Failed)
			}
			for i := range x.Fabric.Nodes {
				n := &x.Fabric.Nodes[i]
				if n.NoExtendedSpeeds != (old && n.Type == ib.NodeSwitch) {
					t.Errorf("%s: plain %v", n.Name(), n.NoExtendedSpeeds)
				}
			}
		})
	}
}
