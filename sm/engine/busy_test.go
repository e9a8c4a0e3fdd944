package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// full is a transport that accepts no long messages.
type full struct{ transport.Transport }

func (f full) Send(p *transport.Packet) error {
	if p.Long != nil {
		return transport.ErrBusy
	}
	return f.Transport.Send(p)
}

// A query for a table while too many are under way gets the status busy.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gen.FatTree2(8, 4), simfabric.Options{})
		defer w.close()
		tr, err := w.sim.Open(w.f.Ports[w.f.SMPort].GUID)
		if err != nil {
			t.Fatal(err)
		}
		s := engine.New(full{tr}, engine.Config{Log: logger()})
		ctx, cancel := context.WithCancel(context.Background())
		w.wg.Go(func() { _ = s.Run(ctx) })
		w.stop = append(w.stop, cancel)
		w.settle(w.f.SMPort, s, time.Second)
		c := w.client(t, hostsOf(w.f)[3])
		if st, _, err := c.ask(mad.MethodGetTable, mad.AttrNodeRecord, 0, &mad.NodeRecord{}); st != mad.StatusBusy || err != nil {
			t.Errorf("status %#x, %v", uint16(st), err)
		}
	})
}
