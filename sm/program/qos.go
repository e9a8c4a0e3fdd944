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

// QoS gives the Sets of the SL-to-VL mapping and VL arbitration tables of every
// linked port whose lanes differ from the last Set, by port index in have (0: never
// set). The tag is the port index.
func QoS(f *fabric.Fabric, t VLTables, have []uint8) []smp.Request {
	var out []smp.Request
	for i := range f.Ports {
		i := int32(i)
		p := &f.Ports[i]
		if p.Peer == fabric.None || p.Num == 0 || int(i) < len(have) && have[i] == t.OperVLs(i) {
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
		if f.Nodes[p.Node].Switch != fabric.None {
			num = p.Num
			first, count := f.PortRange(p.Node)
			for in := first; in < first+count; in++ {
				// Nothing comes in without a link, nor goes out where it came in.
				if q := &f.Ports[in]; q.Num != num && (q.Num == 0 || q.Peer != fabric.None) {
					set(mad.AttrSLtoVL, mad.SLtoVLMod(q.Num, num), m.Append(nil))
				}
			}
		} else if p.Info.CapMask()&mad.CapSLMapping == 0 {
			continue
		} else {
			set(mad.AttrSLtoVL, 0, m.Append(nil))
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
