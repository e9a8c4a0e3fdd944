package sa

import (
	"testing"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/sm/mad"
)

// Tables of a subnet that fills the LID space are answered whole; what is longer
// than one answer may be is refused, not cut.
func TestWholeLIDSpace(t *testing.T) {
	f := gen.LIDs(gen.FatTree3(128, 12, 61), 0)
	if len(f.EndPorts) < 48_000 {
		t.Fatalf("%d end ports", len(f.EndPorts))
	}
	for i := range f.Ports {
		f.Ports[i].Known = true
	}
	w := &world{t: t, s: New(Config{}), f: f}
	w.s.SetState(0, State{Fabric: f})
	for _, tt := range []struct {
		name string
		attr mad.AttrID
		rec  appender
		want int
	}{
		{"nodes", mad.AttrNodeRecord, &mad.NodeRecord{}, len(f.EndPorts)},
		{"ports", mad.AttrPortInfoRecord, &mad.PortInfoRecord{}, len(f.Ports)},
		{"links", mad.AttrLinkRecord, &mad.LinkRecord{}, 2 * f.Links()},
	} {
		st, recs := w.ask(f.SMPort, 0, mad.MethodGetTable, tt.attr, 0, tt.rec)
		if st != 0 || len(recs) != tt.want {
			t.Errorf("%s: status %#x, %d records, want %d", tt.name, uint16(st), len(recs), tt.want)
		}
	}
	w.s.cfg.MaxAnswer = 1 << 20
	if st, recs := w.ask(f.SMPort, 0, mad.MethodGetTable, mad.AttrNodeRecord, 0, &mad.NodeRecord{}); st != mad.StatusSANoResources {
		t.Errorf("too long: status %#x, %d records", uint16(st), len(recs))
	}
	if st, recs := w.ask(f.SMPort, 0, mad.MethodGetTable, mad.AttrNodeRecord, mad.CompNRNodeType,
		&mad.NodeRecord{Info: mad.NodeInfo{NodeType: ib.NodeSwitch}}); st != 0 || len(recs) != len(f.Switches) {
		t.Errorf("a part of it: status %#x, %d records", uint16(st), len(recs))
	}
}

// A P_Key is shown at the index that it has in the port's table, and a free
// entry between is no partition.
func TestPKeyGaps(t *testing.T) {
	w := newWorld(t, gen.LIDs(gen.Star(3, 8), 0), "")
	p := w.cas()
	st := w.s.state
	st.PKeys[p[1]] = []ib.PKey{ib.DefaultPKey, 0, 0x8001}
	st.PKeys[p[2]] = []ib.PKey{0x7fff, 0, 0, 0x8001}
	w.s.SetState(0, st)
	_, recs := w.ask(p[0], 1, mad.MethodGetTable, mad.AttrPKeyTableRecord, mad.CompPKTRLID|mad.CompPKTRBlock,
		&mad.PKeyTableRecord{LID: w.f.Ports[p[1]].LID})
	var r mad.PKeyTableRecord
	if len(recs) != 1 || r.Decode(recs[0]) != nil || r.Table[1] != 0 || r.Table[2] != 0x8001 {
		t.Errorf("%d records, table %v", len(recs), r.Table)
	}
	rec := mad.PathRecord{SGID: w.gid(p[1]), DGID: w.gid(p[2]), NumbPath: 1}
	for _, k := range []ib.PKey{0, 0x8000} {
		rec.PKey = k
		if st, recs := w.ask(p[1], 0, mad.MethodGetTable, mad.AttrPathRecord,
			mad.CompPRSGID|mad.CompPRDGID|mad.CompPRNumbPath|mad.CompPRPKey, &rec); len(recs) != 0 {
			t.Errorf("P_Key %v: status %#x, %d paths", k, uint16(st), len(recs))
		}
	}
}
