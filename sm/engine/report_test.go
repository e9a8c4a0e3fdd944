package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// Subscribers that do not answer, as hosts that have crashed, do not delay the reports to
// another one, although linux keeps back what an agent of the SA class sends beyond 16.
func TestSilentSubscribers(t *testing.T) {
	f := gen.FatTree2(24, 6)
	hosts := hostsOf(f)
	const silent = 40
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, f, simfabric.Options{DelayMin: 20 * time.Microsecond, DelayMax: 20 * time.Microsecond})
		defer w.close()
		a := newAgents(1, 16)
		a.class = mad.ClassSA
		s, _ := w.managerOn(f.SMPort, engine.Config{}, a.between)
		w.settle(f.SMPort, s, time.Minute)
		info := &mad.InformInfo{LIDRangeBegin: ib.LIDPermissive, Subscribe: true, Generic: true, Type: 0xffff, TrapNumber: mad.TrapAll,
			Producer: 0xffffff}
		subscribe := func(c *client) {
			t.Helper()
			if st, _, err := c.ask(mad.MethodSet, mad.AttrInformInfo, 0, info); err != nil || st != 0 {
				t.Fatalf("subscription: status %#x, %v", st, err)
			}
		}
		for _, p := range hosts[2 : 2+silent] {
			subscribe(w.client(t, p))
		}
		tr, err := w.sim.OpenClient(f.Ports[hosts[1]].GUID, true)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		subscribe(&client{t: t, tr: tr})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan time.Time, 100)
		last, came := f.Nodes[f.Ports[hosts[len(hosts)-1]].Node].GUID, 0
		go func() {
			for in := make([]transport.Packet, 1); ; {
				if _, err := tr.Recv(ctx, in); err != nil {
					return
				}
				if mad.MethodOf(&in[0].MAD) == mad.MethodReport {
					var n mad.Notice
					if n.Decode(in[0].MAD[mad.SADataOffset:]) == nil && n.TrapNumber == mad.TrapGIDInService {
						p, err := w.sim.PortInfo(last, 1)
						if came++; err != nil || p.State() != ib.PortActive {
							t.Errorf("in service while the port is %v, %v", p.State(), err)
						}
					}
					mad.SetMethod(&in[0].MAD, mad.MethodReportResp)
					_ = tr.Send(&in[0])
					got <- time.Now()
				}
			}
		}()
		for i := range 6 {
			begin := time.Now()
			if i%2 == 0 {
				w.sim.PowerOff(last)
			} else {
				w.sim.PowerOn(last)
			}
			select {
			case at := <-got:
				// The first event shows who does not answer.
				if took := at.Sub(begin); took > 1300*time.Millisecond || i > 0 && took > 200*time.Millisecond {
					t.Errorf("event %d: the report arrives after %v", i, took)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("event %d: no report within 5 s", i)
			}
			time.Sleep(3 * time.Second)
			for len(got) > 0 {
				<-got
			}
		}
		if came != 3 {
			t.Errorf("%d reports that the port is in service, want 3", came)
		}
		if a.queued > 0 {
			t.Errorf("%d were kept back", a.queued)
		}
	})
}
