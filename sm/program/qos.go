package program

import (
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// VLTables is what qos.Tables says of a port.
type VLTables interface {
	OperVLs(port int32) uint8
	SLtoVL(out int32) mad.SLtoVL
	VLArb(port int32, block uint8) mad.VLArbBlock
}

// Lanes is, by port index, what was written of SL-to-VL mapping and VL arbitration tables.
type Lanes struct {
	VLs []uint8 // code of the lanes that an output port's tables are for; 0: not written
	In  []bool  // the tables of output ports have a mapping for packets that come in here
}

// Wrote notes requests of QoS as acknowledged.
func (l *Lanes) Wrote(f *fabric.Fabric, t VLTables, reqs []smp.Request) {
	for i := range reqs {
		r := &reqs[i]
		p := int32(r.Tag)
		l.VLs[p] = t.OperVLs(p)
		if n := f.Ports[p].Node; r.Attr == mad.AttrSLtoVL && f.Nodes[n].Switch != fabric.None {
			l.In[f.Port(n, uint8(r.Mod>>8))] = true
		}
	}
}

// QoS gives the Sets of the SL-to-VL mapping and VL arbitration tables of every
// linked port whose lanes differ from those in have, and the mappings of others for
// ports of their switch that had no link before. The tag is the index of the output port.
func QoS(f *fabric.Fabric, t VLTables, have *Lanes) []smp.Request {
	var out []smp.Request
	for i := range f.Ports {
		i := int32(i)
		p := &f.Ports[i]
		if p.Peer == fabric.None || p.Num == 0 {
			continue
		}
		written, sw := have.VLs[i] == t.OperVLs(i), f.Nodes[p.Node].Switch != fabric.None
		if written && !sw {
			continue
		}
		path, ok := PathTo(f, i)
		if !ok {
			continue
		}
		set := func(a mad.AttrID, mod uint32, data []byte) {
			r := smp.Request{Method: mad.MethodSet, Attr: a, Mod: mod, Path: path, Tag: uint64(i), MKey: Key(f, i)}
			copy(r.Data[:], data)
			out = append(out, r)
		}
		m := t.SLtoVL(i)
		num := uint8(0) // what adapters go by is the port that the SMP comes in at
		if sw {
			num = p.Num
			first, count := f.PortRange(p.Node)
			for in := first; in < first+count; in++ {
				// Nothing comes in without a link, nor goes out where it came in.
				if q := &f.Ports[in]; q.Num != num && (q.Num == 0 || q.Peer != fabric.None) && !(written && (q.Num == 0 || have.In[in])) {
					set(mad.AttrSLtoVL, mad.SLtoVLMod(q.Num, num), m.Append(nil))
				}
			}
		} else if p.Info.CapMask()&mad.CapSLMapping == 0 {
			continue
		} else {
			set(mad.AttrSLtoVL, 0, m.Append(nil))
		}
		if written {
			continue
		}
		if p.Info.VLArbLowCap() > 0 {
			b := t.VLArb(i, 1)
			set(mad.AttrVLArb, mad.VLArbMod(num, 1), b.Append(nil))
		}
		if p.Info.VLArbHighCap() > 0 {
			b := t.VLArb(i, 3)
			set(mad.AttrVLArb, mad.VLArbMod(num, 3), b.Append(nil))
		}
	}
	return out
}

// OperVLs gives the Set that changes the lanes of a switch's external port and nothing
// else; false without a way to it. The tag is the port index.
func OperVLs(f *fabric.Fabric, i int32, code uint8) (smp.Request, bool) {
	path, ok := PathTo(f, i)
	if !ok {
		return smp.Request{}, false
	}
	p := &f.Ports[i]
	w := p.Info
	w.SetState(0)
	w.SetPhysState(0)
	w.SetLinkDownDefault(0)
	w.SetOperVLs(code)
	r := smp.Request{Method: mad.MethodSet, Attr: mad.AttrPortInfo, Mod: uint32(p.Num), Path: path, Tag: uint64(i), MKey: Key(f, i)}
	if !f.Nodes[p.Node].NoExtendedSpeeds {
		r.Mod |= smp.ExtendedSpeeds
	}
	r.Data = w.Wire()
	return r, true
}
