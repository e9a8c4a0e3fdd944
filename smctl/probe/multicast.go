package probe

import (
	"context"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/smp"
)

// mftBlock is the number of entries in a block of a multicast forwarding table.
const mftBlock = 32

// readMFT is the source of Gets of the multicast forwarding tables, as far as
// MulticastFDBTop or the capacity reaches.
type readMFT struct {
	f        *fabric.Fabric
	rows     []map[ib.LID]mcast.PortSet
	silent   []bool // by switch: an answer is missing
	sw, next int
}

// blocks is the number of blocks of a switch's table, and of positions in each.
func (r *readMFT) blocks(sw int) (blocks, positions int) {
	s := &r.f.Switches[sw]
	n := int(s.Info.MulticastFDBCap())
	// 0xbfff, the LID before the first, means that no entry is used; 0 that the switch
	// does not say (IBA vol 1, 14.2.5.4).
	if t := ib.LID(s.Info.MulticastFDBTop()); t >= ib.LIDMulticastMin-1 {
		n = min(n, int(t)-int(ib.LIDMulticastMin)+1)
	}
	n = min(n, int(ib.LIDMulticastMax)-int(ib.LIDMulticastMin)+1)
	return (n + mftBlock - 1) / mftBlock, int(r.f.Nodes[s.Node].NumPorts)/16 + 1
}

func (r *readMFT) Next() (smp.Request, bool) {
	for ; r.sw < len(r.f.Switches); r.sw, r.next = r.sw+1, 0 {
		blocks, positions := r.blocks(r.sw)
		if r.next >= blocks*positions || r.silent[r.sw] {
			continue
		}
		at := r.next
		r.next++
		return smp.Request{Method: mad.MethodGet, Attr: mad.AttrMFT, Mod: mad.MFTMod(uint8(at%positions), uint16(at/positions)),
			Path: r.f.Nodes[r.f.Switches[r.sw].Node].Path, Tag: uint64(r.sw)}, true
	}
	return smp.Request{}, false
}

func (r *readMFT) Step(a *smp.Reply) {
	var b mad.MFTBlock
	if !a.OK() || b.Decode(a.Data[:]) != nil {
		r.silent[a.Tag] = true
		return
	}
	first, position := ib.LIDMulticastMin+ib.LID(a.Mod&0x1ff)*mftBlock, uint8(a.Mod>>28)
	for i, mask := range b {
		for bit := range uint8(16) {
			if mask>>bit&1 != 0 {
				l := first + ib.LID(i)
				set := r.rows[a.Tag][l]
				set.Add(16*position + bit)
				r.rows[a.Tag][l] = set
			}
		}
	}
}

func (r *readMFT) Late(uint64) {}

// Multicast reads the multicast forwarding tables of the switches of a fabric that
// Tables found, and gives the switches whose table was not read whole.
func Multicast(ctx context.Context, c Conn, f *fabric.Fabric) (t mcast.Tables, silent []int32, err error) {
	r := readMFT{f: f, rows: make([]map[ib.LID]mcast.PortSet, len(f.Switches)), silent: make([]bool, len(f.Switches))}
	for i := range r.rows {
		r.rows[i] = map[ib.LID]mcast.PortSet{}
	}
	if err := run(ctx, c, &r); err != nil {
		return nil, nil, err
	}
	t = make(mcast.Tables, len(f.Switches))
	for i, row := range r.rows {
		for l, set := range row {
			t[i] = append(t[i], mcast.Entry{MLID: l, Ports: set})
		}
		slices.SortFunc(t[i], func(a, b mcast.Entry) int { return int(a.MLID) - int(b.MLID) })
		if r.silent[i] {
			silent = append(silent, int32(i))
		}
	}
	return t, silent, nil
}
