package program

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// maxKeyBlocks bounds what is read of one port's P_Key table, whatever capacity
// it claims: adapters have up to 128 keys, and 2048 are worth keeping.
const maxKeyBlocks = 64

// ReadPKeys is the source of Gets of the P_Key tables of adapter ports that a
// former manager configured (their LID is set) and whose tables are unknown: a port
// out of reset has the default P_Key alone (IBA vol 1, 10.9.2). Each table is read
// whole, because removed keys leave holes, and keys behind a hole apply as well.
// Tables has the tables by index into Fabric.Ports; one that cannot be read stays
// nil.
type ReadPKeys struct {
	Fabric   *fabric.Fabric
	Tables   [][]ib.PKey
	Failed   []int32 // ports that did not answer
	at, next int     // the end port whose turn it is, its next block
	lost     map[uint64]bool
}

// Next implements smp.Source.
func (s *ReadPKeys) Next() (smp.Request, bool) {
	for ; s.at < len(s.Fabric.EndPorts); s.at, s.next = s.at+1, 0 {
		e := s.Fabric.EndPorts[s.at]
		p := &s.Fabric.Ports[e]
		blocks := min((int(s.Fabric.Nodes[p.Node].PKeyCap)+31)/32, maxKeyBlocks)
		if p.Num == 0 || !p.Info.LID().IsUnicast() || s.next == 0 && s.Tables[e] != nil || s.next >= max(blocks, 1) || s.lost[uint64(e)] {
			continue
		}
		path, ok := PathTo(s.Fabric, e)
		if !ok {
			continue
		}
		s.next++
		return smp.Request{Method: mad.MethodGet, Attr: mad.AttrPKeyTable, Mod: uint32(s.next - 1), Path: path, Tag: uint64(e)}, true
	}
	return smp.Request{}, false
}

// Step implements smp.Source.
func (s *ReadPKeys) Step(r *smp.Reply) {
	var b mad.PKeyBlock
	switch {
	case s.lost[r.Tag]:
	case !r.OK() || b.Decode(r.Data[:]) != nil:
		if s.lost == nil {
			s.lost = map[uint64]bool{}
		}
		s.lost[r.Tag], s.Tables[r.Tag] = true, nil
		s.Failed = append(s.Failed, int32(r.Tag))
	default:
		t, at := s.Tables[r.Tag], int(r.Mod)*32
		for len(t) < at+32 {
			t = append(t, 0)
		}
		copy(t[at:], b[:])
		s.Tables[r.Tag] = t
	}
}

// Late implements smp.Source.
func (s *ReadPKeys) Late(uint64) {}

// PKeys gives the blocks of the P_Key tables that differ, tagged with the port index. A nil row of
// want leaves the port alone; a nil row of have is an end port out of reset, with the default
// P_Key alone (IBA vol 1, 10.9.1.2), or a switch port with an unknown table.
func PKeys(f *fabric.Fabric, have, want [][]ib.PKey) []smp.Request {
	var out []smp.Request
	for i := range want {
		if want[i] == nil {
			continue
		}
		h := []ib.PKey{ib.DefaultPKey}
		blind := false
		if i < len(have) && have[i] != nil {
			h = have[i]
		} else if !f.IsEndPort(int32(i)) {
			h, blind = nil, true
		}
		path, ok := PathTo(f, int32(i))
		if !ok {
			continue
		}
		n := max(len(h), len(want[i]))
		for at := 0; at < n; at += 32 {
			var a, b mad.PKeyBlock
			if at < len(h) {
				copy(a[:], h[at:])
			}
			if at < len(want[i]) {
				copy(b[:], want[i][at:])
			}
			if a == b && !blind {
				continue
			}
			num := uint8(0)
			if f.Nodes[f.Ports[i].Node].Switch != fabric.None {
				num = f.Ports[i].Num
			}
			r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrPKeyTable, Mod: mad.PKeyMod(num, uint16(at/32)), Path: path,
				Tag: uint64(i), MKey: Key(f, int32(i))}
			b.Append(r.Data[:0])
			out = append(out, r)
		}
	}
	return out
}
