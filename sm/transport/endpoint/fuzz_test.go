package endpoint

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/internal/testkit"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// FuzzDeliver plays packets from the wire, whatever they are, to an endpoint
// with requests and long messages under way in both directions: it ends all of
// them in time and keeps nothing.
func FuzzDeliver(f *testing.F) {
	whole := func(b ...*mad.Buf) (out []byte) {
		for _, x := range b {
			out = append(out, x[:]...)
		}
		return out
	}
	long := func(m mad.Method, tid uint32) []*mad.Buf {
		h := mad.NewSA(m, mad.AttrPathRecord, tid, 0)
		s, err := mad.NewRMPPSender(append(h.Append(nil), make([]byte, 900)...), 3)
		testkit.NoError(f, err)
		var out []*mad.Buf
		for {
			b := new(mad.Buf)
			if !s.Next(b) {
				return out
			}
			out = append(out, b)
		}
	}
	f.Add(whole(long(mad.MethodGetTableResp, 1)...))
	f.Add(whole(long(mad.MethodGetMulti, 9)...))
	one := query(1, 0)
	one.MAD[3] |= 0x80
	f.Add(whole(&one.MAD, &one.MAD))
	for _, typ := range []byte{mad.RMPPAck, mad.RMPPStop, mad.RMPPAbort} {
		b := *long(mad.MethodGetTable, 2)[0]
		b[25], b[26] = typ, 1
		f.Add(whole(&b))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		synctest.Test(t, func(t *testing.T) {
			var sent atomic.Int32
			e := New(Config{Write: func(*transport.Packet) error { sent.Add(1); return nil }, Queue: 64, MaxMessage: 4096})
			for i := range uint32(2) {
				p := query(i+1, 0)
				p.LID = 3
				testkit.NoError(t, e.Send(&p))
			}
			h := mad.NewSA(mad.MethodGetTableResp, mad.AttrPathRecord, 2, 0)
			out := transport.Packet{LID: 3, QPN: 1}
			out.SetMessage(append(h.Append(nil), make([]byte, 1000)...), true)
			testkit.NoError(t, e.Send(&out))
			for ; len(wire) > 0 && sent.Load() < 10000; wire = wire[min(len(wire), mad.Size):] {
				p := transport.Packet{LID: ib.LID(3), QPN: 1}
				copy(p.MAD[:], wire)
				e.Deliver(&p)
			}
			time.Sleep(10 * time.Minute)
			in := make([]transport.Packet, 128)
			n, _ := e.TryRecv(in)
			if n > 64 {
				t.Errorf("%d packets in a queue of 64", n)
			}
			for i := range in[:n] {
				if len(in[i].Long) > 4096 {
					t.Errorf("a message of %d bytes", len(in[i].Long))
				}
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if len(e.pending) != 0 || len(e.sends) != 0 || len(e.recvs) != 0 || e.sendsN != 0 || e.recvsN != 0 {
				t.Errorf("kept: %d requests, %d and %d transfers of %d and %d bytes", len(e.pending), len(e.sends), len(e.recvs), e.sendsN, e.recvsN)
			}
		})
	})
}
