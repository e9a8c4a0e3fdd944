package engine_test

import (
	"testing"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/engine"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// lowers has ports that take a lower MTU than that of a Set, without an error.
type lowers struct {
	transport.Transport
	mtu ib.MTU
}

func (l lowers) Send(p *transport.Packet) error {
	if q := *p; mad.MethodOf(&q.MAD) == mad.MethodSet && mad.AttrOf(&q.MAD) == mad.AttrPortInfo {
		info := mad.PortInfoOf(mad.SMPData(&q.MAD))
		info.SetNeighborMTU(min(info.NeighborMTU(), l.mtu))
		info.Append(mad.SMPData(&q.MAD)[:0])
		return l.Transport.Send(&q)
	}
	return l.Transport.Send(p)
}

// A walk does not read a switch port in Initializing that it finds from the other end of its
// link. The MTU that such a port says when it is armed bounds paths from the first sweep on.
func TestPathMTUOfFarPorts(t *testing.T) {
	whole := gen.FatTree2(8, 4)
	for i := range whole.Ports {
		whole.Ports[i].Info.SetMTUCap(ib.MTU4096)
	}
	ends := hostsOf(whole)
	leaf, _ := whole.SwitchOf(ends[len(ends)-1])
	first, count := whole.PortRange(whole.Switches[leaf].Node)
	for i := first; i < first+count; i++ {
		if p := &whole.Ports[i]; p.Peer != fabric.None && whole.Nodes[whole.Ports[p.Peer].Node].Switch != fabric.None {
			p.Info.SetMTUCap(ib.MTU1024)
		}
	}
	inWorld(t, whole, simfabric.Options{}, func(t *testing.T, w *world, f *fabric.Fabric, hosts []int32) {
		w.managerOn(hosts[0], engine.Config{}, func(tr transport.Transport) transport.Transport { return lowers{tr, ib.MTU1024} })
		time.Sleep(100 * time.Millisecond)
		a, b := hosts[1], hosts[len(hosts)-1]
		rec := mad.PathRecord{SGID: ib.MakeGID(f.Prefix, f.Ports[a].GUID), DGID: ib.MakeGID(f.Prefix, f.Ports[b].GUID)}
		st, data, err := w.client(t, a).ask(mad.MethodGet, mad.AttrPathRecord, mad.CompPRSGID|mad.CompPRDGID, &rec)
		var got mad.PathRecord
		if err != nil || st != mad.StatusOK || got.Decode(data) != nil || got.MTU != ib.MTU1024 {
			t.Errorf("path: status %#x, %v, MTU %v; a link on it has %v", uint16(st), err, got.MTU, ib.MTU1024)
		}
	})
}
