package program

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/smp"
)

// Switches gives the Sets of SwitchInfo that are needed: the highest LID and the
// packet lifetime. The tag is the switch index.
//
// PortStateChange is cleared, by a Set that has it, in a switch that was not
// configured before: there it means only that the switch was turned on, and the
// links that were found are still to be set up. Its ports without a link are to be
// declined again. In others it stays until the ports are read after it was
// cleared: these were read before.
//
// The whole multicast table matters: packets to a group above MulticastFDBTop go
// by the default ports, and a switch may come up with 0xbfff there, no group at
// all. A switch without that limit shows 0, and ignores what is set.
func Switches(f *fabric.Fabric, pol Policy, top ib.LID) []smp.Request {
	var out []smp.Request
	for i := range f.Switches {
		s := &f.Switches[i]
		have := s.Info
		if have.LinearFDBTop() != 0 {
			have.SetPortStateChange(false)
		}
		w := have
		w.SetLinearFDBTop(min(uint16(top), max(w.LinearFDBCap(), 1)-1))
		w.SetLifeTime(pol.PacketLife)
		if have.MulticastFDBTop() != 0 {
			multicastTop(&w)
		}
		if w == have {
			continue
		}
		multicastTop(&w)
		out = append(out, smp.Request{Method: mad.MethodSet, Attr: mad.AttrSwitchInfo, Path: f.Nodes[s.Node].Path, Tag: uint64(i),
			Data: w.Wire(), MKey: Key(f, f.Port(s.Node, 0))})
	}
	return out
}

func multicastTop(w *fabric.SwitchInfo) {
	if n := w.MulticastFDBCap(); n > 0 {
		w.SetMulticastFDBTop(uint16(ib.LIDMulticastMin) + min(n, uint16(ib.LIDMulticastMax-ib.LIDMulticastMin)+1) - 1)
	}
}

// LFTBlock is the number of entries of a block of a linear forwarding table.
const LFTBlock = 64

// LFT is the source of the blocks of the linear forwarding tables that differ, tagged with the
// switch index: made one at a time, for those of a large subnet would fill the memory. Have and
// Want have a row for each switch: LID to port, 255 for none; a nil row of Have is unknown.
type LFT struct {
	Fabric     *fabric.Fabric
	Have, Want [][]uint8
	Done       func(*smp.Reply)
	Count      int // requests made
	sw, at     int // the block that is compared next
}

// blocksOnce is how many blocks are compared in one search.
const blocksOnce = 1 << 13

// Search implements smp.Searcher.
func (l *LFT) Search() bool {
	for n := 0; l.sw < len(l.Fabric.Switches); l.sw, l.at = l.sw+1, 0 {
		var h []uint8
		if l.sw < len(l.Have) {
			h = l.Have[l.sw]
		}
		for w := l.Want[l.sw]; l.at < len(w); l.at += LFTBlock {
			if h == nil || !same(h, w, l.at) {
				return true
			}
			if n++; n > blocksOnce {
				return false
			}
		}
	}
	return true
}

// Next implements smp.Source.
func (l *LFT) Next() (smp.Request, bool) {
	for !l.Search() {
	}
	if l.sw == len(l.Fabric.Switches) {
		return smp.Request{}, false
	}
	at, w, node := l.at, l.Want[l.sw], l.Fabric.Switches[l.sw].Node
	r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrLFT, Mod: uint32(at / LFTBlock), Path: l.Fabric.Nodes[node].Path, Tag: uint64(l.sw),
		MKey: Key(l.Fabric, l.Fabric.Port(node, 0))}
	n := copy(r.Data[:], w[at:])
	for ; n < LFTBlock; n++ {
		r.Data[n] = 255
	}
	l.at += LFTBlock
	l.Count++
	return r, true
}

// Step implements smp.Source.
func (l *LFT) Step(r *smp.Reply) { l.Done(r) }

// Late implements smp.Source.
func (l *LFT) Late(uint64) {}

// ReadLFT is the source of Gets of the forwarding tables of the switches that
// Skip does not leave out, as far as their LinearFDBTop reaches. Rows has, by
// switch index, the tables that were read whole.
type ReadLFT struct {
	Fabric   *fabric.Fabric
	Skip     func(sw int) bool
	Rows     [][]uint8
	lost     []bool
	sw, next int
}

// Next implements smp.Source.
func (l *ReadLFT) Next() (smp.Request, bool) {
	if l.Rows == nil {
		l.Rows, l.lost = make([][]uint8, len(l.Fabric.Switches)), make([]bool, len(l.Fabric.Switches))
	}
	for ; l.sw < len(l.Fabric.Switches); l.sw, l.next = l.sw+1, 0 {
		s := &l.Fabric.Switches[l.sw]
		top := min(s.Info.LinearFDBTop(), uint16(ib.LIDUnicastMax))
		if top == 0 || l.Skip(l.sw) || l.lost[l.sw] || l.next > int(top)/LFTBlock {
			continue
		}
		l.next++
		return smp.Request{Method: mad.MethodGet, Attr: mad.AttrLFT, Mod: uint32(l.next - 1), Path: l.Fabric.Nodes[s.Node].Path,
			Tag: uint64(l.sw)}, true
	}
	return smp.Request{}, false
}

// Step implements smp.Source.
func (l *ReadLFT) Step(r *smp.Reply) {
	sw := r.Tag
	if !r.OK() || l.lost[sw] {
		l.lost[sw], l.Rows[sw] = true, nil
		return
	}
	q := r.Request
	q.Data = r.Data
	l.Rows[sw] = PutLFT(l.Rows[sw], &q)
}

// Late implements smp.Source.
func (l *ReadLFT) Late(uint64) {}

// same compares one block, a row's end counting as 255.
func same(h, w []uint8, at int) bool {
	if end := at + LFTBlock; end <= len(h) && end <= len(w) {
		return string(h[at:end]) == string(w[at:end])
	}
	if at >= len(h) {
		return false // never written
	}
	for k := at; k < at+LFTBlock; k++ {
		x, y := uint8(255), uint8(255)
		if k < len(h) {
			x = h[k]
		}
		if k < len(w) {
			y = w[k]
		}
		if x != y {
			return false
		}
	}
	return true
}

// PutLFT puts an acknowledged block into a row of what the fabric has.
func PutLFT(row []uint8, r *smp.Request) []uint8 {
	end := (int(r.Mod) + 1) * LFTBlock
	for len(row) < end {
		row = append(row, 255)
	}
	copy(row[end-LFTBlock:], r.Data[:])
	return row
}

// MFT gives the blocks of the multicast forwarding tables that differ, tagged with the switch
// index. unknown (by switch index) is set where the switch's table is unknown: entries for
// groups that do not exist do no harm, because no packets are sent to them.
func MFT(f *fabric.Fabric, have, want mcast.Tables, unknown []bool) []smp.Request {
	var out []smp.Request
	for i := range f.Switches {
		blocks := map[uint16]bool{}
		var order []uint16
		note := func(t mcast.Tables) {
			if i >= len(t) {
				return
			}
			for _, e := range t[i] {
				if b := uint16(e.MLID-ib.LIDMulticastMin) / 32; !blocks[b] {
					blocks[b] = true
					order = append(order, b)
				}
			}
		}
		old := have
		if i < len(unknown) && unknown[i] {
			old = nil
		}
		note(old)
		note(want)
		ports := int(f.Nodes[f.Switches[i].Node].NumPorts)
		for _, b := range order {
			for pos := 0; pos*16 <= ports; pos++ {
				w := want.Block(int32(i), int(b), pos)
				if old != nil && old.Block(int32(i), int(b), pos) == w || old == nil && w == [32]uint16{} {
					continue
				}
				r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrMFT, Mod: mad.MFTMod(uint8(pos), b),
					Path: f.Nodes[f.Switches[i].Node].Path, Tag: uint64(i),
					MKey: Key(f, f.Port(f.Switches[i].Node, 0))}
				blk := mad.MFTBlock(w)
				blk.Append(r.Data[:0])
				out = append(out, r)
			}
		}
	}
	return out
}
