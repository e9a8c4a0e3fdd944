package sa

import (
	"testing"

	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/mad"
)

// BenchmarkHandle is what the SA itself takes for a query, without the way to it.
func BenchmarkHandle(b *testing.B) {
	w := newWorld(b, gen.LIDs(gen.FatTree2(36, 6), 0), "")
	c := w.cas()
	for _, bm := range []struct {
		name string
		attr mad.AttrID
		mask mad.CompMask
		rec  func(i int) appender
	}{
		{"PathRecord", mad.AttrPathRecord, mad.CompPRSGID | mad.CompPRDGID | mad.CompPRNumbPath | mad.CompPRReversible, func(i int) appender {
			return &mad.PathRecord{SGID: w.gid(c[1]), DGID: w.gid(c[i%len(c)]), NumbPath: 1, Reversible: true}
		}},
		{"PortInfoRecord", mad.AttrPortInfoRecord, mad.CompPIRLID, func(int) appender { return &mad.PortInfoRecord{LID: w.f.Ports[c[0]].LID} }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var msgs [][]byte
			for i := range 256 {
				h := mad.NewSA(mad.MethodGet, bm.attr, uint32(i), bm.mask)
				m := bm.rec(i).Append(h.Append(nil))
				msgs = append(msgs, append(m, make([]byte, mad.Size-len(m))...))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				r, _ := w.s.Handle(0, Request{LID: w.f.Ports[c[1]].LID, QP: 1, MAD: msgs[i%256]})
				if r.MAD == nil {
					b.Fatal("no answer")
				}
				i++
			}
		})
	}
}
