package engine

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/discover"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mcast"
	"ibnetworkd/sm/program"
)

// tables are the known contents of the fabric's nodes, by the indices of a fabric.
type tables struct {
	lft          [][]uint8 // by switch; nil where nothing is known
	mft          mcast.Tables
	unknownMFT   []bool // by switch: nothing is known of its multicast table
	unprobed     []bool // by switch: its ports without a link are to be asked again; set by switchSet, cleared by lightSweep
	pkeys        [][]ib.PKey
	declined     program.Declined
	lanes        program.Lanes
	kept         []bool // by port: its link is in use and did not take more lanes
	reregistered []bool // by port: its clients were asked to register with this manager
}

func newTables(f *fabric.Fabric) tables {
	sw, ports := len(f.Switches), len(f.Ports)
	return tables{lft: make([][]uint8, sw), mft: make(mcast.Tables, sw), unknownMFT: make([]bool, sw), unprobed: make([]bool, sw),
		declined: make(program.Declined, ports), reregistered: make([]bool, ports),
		lanes: program.Lanes{VLs: make([]uint8, ports), In: make([]bool, ports)}, kept: make([]bool, ports)}
}

// remap carries the known contents of the nodes of a fabric, which may be nil, over to
// the indices of a new one.
func remap(old *fabric.Fabric, had *tables, f *fabric.Fabric, res *discover.Result) tables {
	t := newTables(f)
	t.pkeys = res.PKeys
	if old == nil {
		for i := range t.unknownMFT {
			t.unknownMFT[i] = true
		}
		return t
	}
	for n := range f.Nodes {
		o := old.NodeByGUID(f.Nodes[n].GUID)
		if o == fabric.None || res.Unknown[n] || old.Nodes[o].NumPorts != f.Nodes[n].NumPorts {
			if sw := f.Nodes[n].Switch; sw != fabric.None {
				t.unknownMFT[sw] = true
			}
			continue
		}
		a, count := f.PortRange(int32(n))
		b, _ := old.PortRange(o)
		copy(t.declined[a:a+count], had.declined[b:b+count])
		copy(t.kept[a:a+count], had.kept[b:b+count])
		copy(t.lanes.VLs[a:a+count], had.lanes.VLs[b:b+count])
		copy(t.lanes.In[a:a+count], had.lanes.In[b:b+count])
		for k := range count {
			// The SA forgets a port that is not connected.
			t.reregistered[a+k] = had.reregistered[b+k] && old.EndPortByGUID(old.Ports[b+k].GUID) == b+k
		}
		if sw, was := f.Nodes[n].Switch, old.Nodes[o].Switch; sw != fabric.None && was != fabric.None {
			t.lft[sw], t.unknownMFT[sw], t.unprobed[sw] = had.lft[was], had.unknownMFT[was], had.unprobed[was]
			if int(was) < len(had.mft) {
				t.mft[sw] = had.mft[was]
			}
		}
	}
	return t
}

// sameShape reports whether two fabrics have the same nodes, links and LIDs, and links
// between switches of the same speed and lanes, so that the routes of one serve the other.
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
		if betweenSwitches(b, int32(i)) && (a.LinkRate(int32(i)) != b.LinkRate(int32(i)) || a.LinkVLCap(int32(i)) != b.LinkVLCap(int32(i))) {
			return false
		}
	}
	return true
}
