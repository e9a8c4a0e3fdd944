package sa_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// BenchmarkLive is the SA's rate as hosts see it: a manager on a simulated
// subnet of 108 hosts, four hosts with 64 requests each under way.
func BenchmarkLive(b *testing.B) {
	for _, bm := range []struct {
		name string
		attr mad.AttrID
	}{{"PathRecord", mad.AttrPathRecord}, {"PortInfoRecord", mad.AttrPortInfoRecord}} {
		b.Run(bm.name, func(b *testing.B) { live(b, bm.attr) })
	}
}

func live(b *testing.B, attr mad.AttrID) {
	f := gen.FatTree2(36, 6)
	sim := simfabric.New(f, simfabric.Options{})
	defer sim.Close()
	tr, err := sim.Open(f.Ports[f.SMPort].GUID)
	if err != nil {
		b.Fatal(err)
	}
	sm := engine.New(tr, engine.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = sm.Run(ctx) })
	defer func() { cancel(); wg.Wait(); tr.Close() }()
	for !sim.AllActive() {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)

	hosts := slices.DeleteFunc(gen.Hosts(f), func(e int32) bool { return e == f.SMPort })
	const clients, window = 4, 64
	b.ResetTimer()
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			me := f.Ports[hosts[c*17]].GUID
			tr, err := sim.Open(me)
			if err != nil {
				b.Error(err)
				return
			}
			defer tr.Close()
			pi, _ := tr.Port()
			n := b.N/clients + 1
			ask := func(i int) {
				other := f.Ports[hosts[(i*7919+c)%len(hosts)]].GUID
				var msg []byte
				if attr == mad.AttrPathRecord {
					h := mad.NewSA(mad.MethodGet, attr, uint32(i+1), mad.CompPRDGID|mad.CompPRSGID|mad.CompPRNumbPath|mad.CompPRPKey)
					r := mad.PathRecord{DGID: ib.MakeGID(ib.DefaultPrefix, other), SGID: ib.MakeGID(ib.DefaultPrefix, me), NumbPath: 1, PKey: 0xffff}
					msg = r.Append(h.Append(nil))
				} else {
					h := mad.NewSA(mad.MethodGet, attr, uint32(i+1), mad.CompPIRLID)
					r := mad.PortInfoRecord{LID: pi.LID}
					msg = r.Append(h.Append(nil))
				}
				p := transport.Packet{LID: pi.SMLID, QPN: 1, Timeout: 5 * time.Second, Retries: 1}
				p.SetMessage(msg, false)
				if err := tr.Send(&p); err != nil {
					b.Error(err)
				}
			}
			sent := 0
			for ; sent < min(window, n); sent++ {
				ask(sent)
			}
			in := make([]transport.Packet, window)
			for got := 0; got < n; {
				k, err := tr.Recv(context.Background(), in)
				if err != nil {
					b.Error(err)
					return
				}
				for i := range in[:k] {
					if in[i].Err != nil || mad.StatusOf(&in[i].MAD) != 0 {
						b.Errorf("answer: %v, status %#x", in[i].Err, mad.StatusOf(&in[i].MAD))
						return
					}
					got++
					if sent < n {
						ask(sent)
						sent++
					}
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
}
