package engine

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/program"
)

// tables is what the fabric is known to hold, by the indices of fab.
type tables struct {
	lft   [][]uint8
	mft   mcast.Tables
	fresh []bool // by switch: nothing is known of its multicast table
	dark  []bool // by switch: its ports without a link are to be asked again
	pkeys [][]ib.PKey
	asked program.Asked
	lanes []uint8 // by port: the lanes that its QoS tables are written for
	heard []bool  // by port: its clients were told to register with this manager
}

// remap carries what the fabric is known to hold over to a new set of indices.
func (s *Subnet) remap(f *fabric.Fabric, res *discover.Result) tables {
	t := tables{lft: make([][]uint8, len(f.Switches)), mft: make(mcast.Tables, len(f.Switches)), fresh: make([]bool, len(f.Switches)),
		dark: make([]bool, len(f.Switches)), pkeys: res.PKeys, asked: make(program.Asked, len(f.Ports)), lanes: make([]uint8, len(f.Ports)), heard: make([]bool, len(f.Ports))}
	if s.fab == nil {
		for i := range t.fresh {
			t.fresh[i] = true
		}
		return t
	}
	for n := range f.Nodes {
		o := s.fab.NodeByGUID(f.Nodes[n].GUID)
		if o == fabric.None || res.Fresh[n] || s.fab.Nodes[o].NumPorts != f.Nodes[n].NumPorts {
			if sw := f.Nodes[n].Switch; sw != fabric.None {
				t.fresh[sw] = true
			}
			continue
		}
		a, count := f.PortRange(int32(n))
		b, _ := s.fab.PortRange(o)
		copy(t.asked[a:a+count], s.have.asked[b:b+count])
		copy(t.lanes[a:a+count], s.have.lanes[b:b+count])
		for k := range count {
			// The SA forgets a port that is not connected.
			t.heard[a+k] = s.have.heard[b+k] && s.fab.EndPortByGUID(s.fab.Ports[b+k].GUID) == b+k
		}
		if sw, old := f.Nodes[n].Switch, s.fab.Nodes[o].Switch; sw != fabric.None && old != fabric.None {
			t.lft[sw], t.fresh[sw], t.dark[sw] = s.have.lft[old], s.have.fresh[old], s.have.dark[old]
			if int(old) < len(s.have.mft) {
				t.mft[sw] = s.have.mft[old]
			}
		}
	}
	return t
}

// sameShape tells that two fabrics have the same nodes, links and LIDs, so that
// the routes of one serve the other.
func sameShape(a, b *fabric.Fabric) bool {
	if a == nil || len(a.Nodes) != len(b.Nodes) || len(a.Ports) != len(b.Ports) {
		return false
	}
	for i := range a.Nodes {
		if a.Nodes[i].GUID != b.Nodes[i].GUID {
			return false
		}
	}
	for i := range a.Ports {
		x, y := &a.Ports[i], &b.Ports[i]
		if x.Peer != y.Peer || x.LID != y.LID || x.LMC != y.LMC {
			return false
		}
	}
	return true
}
