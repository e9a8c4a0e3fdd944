package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/internal/testkit"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// A host that has asked four times while the manager got no processor time gets
// one answer, and one that asks again after that another.
func TestStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, gen.FatTree2(8, 4), simfabric.Options{})
		defer w.close()
		s, _ := w.manager(w.f.SMPort, engine.Config{})
		w.settle(w.f.SMPort, s, time.Second)
		c := w.client(t, hostsOf(w.f)[3])
		port, err := c.tr.Port()
		testkit.NoError(t, err)
		before := s.Refresh().Counters
		s.Hold(func() { time.Sleep(700 * time.Millisecond) })
		h := mad.NewSA(mad.MethodGet, mad.AttrClassPortInfo, 1, 0)
		c.tid = 1
		p := transport.Packet{LID: port.SMLID, QPN: 1, Timeout: 200 * time.Millisecond, Retries: 5}
		p.SetMessage(h.Append(nil), false)
		testkit.NoError(t, c.tr.Send(&p))
		in := make([]transport.Packet, 1)
		if _, err := c.tr.Recv(t.Context(), in); err != nil || in[0].Err != nil {
			t.Fatal(err, in[0].Err)
		}
		synctest.Wait()
		x := s.Refresh().Counters
		if n, again := x.SA-before.SA, x.Again-before.Again; n != 1 || again != 3 {
			t.Errorf("%d requests were answered and %d passed over, want 1 and 3", n, again)
		}
		if r, err := c.exchange(&p); err != nil || mad.StatusOf(&r.MAD) != 0 {
			t.Errorf("status %#x, %v", uint16(mad.StatusOf(&r.MAD)), err)
		}
		if x := s.Refresh().Counters; x.SA-before.SA != 2 {
			t.Errorf("%d requests were answered, want 2", x.SA-before.SA)
		}
	})
}
