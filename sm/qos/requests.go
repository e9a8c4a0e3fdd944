package qos

import (
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
)

// Requests gives the SMPs that write the tables of all linked ports with more
// than one lane; a port with one lane has nothing to map. Ports that skip names
// are left out: those that were told before. Tag is the port's index. Tables
// are never read back, which would cost as much as writing them.
func (t *Tables) Requests(skip func(port int32) bool) (out []smp.Request) {
	f := t.f
	for i := range f.Ports {
		port := int32(i)
		p := &f.Ports[i]
		// Port 0 of a switch has no link; it sends on the lanes of the
		// output port.
		if p.Num == 0 || p.Peer == fabric.None || !p.Known || t.lanes[i] < 2 || skip != nil && skip(port) {
			continue
		}
		path, ok := program.PathTo(f, port)
		if !ok {
			continue
		}
		n := &f.Nodes[p.Node]
		set := func(attr mad.AttrID, mod uint32, data interface{ Append([]byte) []byte }) {
			r := smp.Request{Method: mad.MethodSet, Attr: attr, Mod: mod, Path: path, Tag: uint64(port)}
			data.Append(r.Data[:0])
			out = append(out, r)
		}
		m := t.SLtoVL(port)
		if n.Switch == fabric.None {
			set(mad.AttrSLtoVL, 0, &m)
		} else {
			for in := range n.NumPorts + 1 {
				// Nothing comes in by a port without a link, nor goes
				// out where it came in.
				if from := f.Port(p.Node, in); in == p.Num || in != 0 && f.Ports[from].Peer == fabric.None {
					continue
				}
				set(mad.AttrSLtoVL, mad.SLtoVLMod(in, p.Num), &m)
			}
		}
		for _, block := range []uint8{1, 3} {
			if block == 1 && p.Info.VLArbLowCap() == 0 || block == 3 && p.Info.VLArbHighCap() == 0 {
				continue
			}
			b := t.VLArb(port, block)
			set(mad.AttrVLArb, mad.VLArbMod(p.Num, block), &b)
		}
	}
	return out
}
