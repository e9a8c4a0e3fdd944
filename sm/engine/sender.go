package engine

import (
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// source is the sender of a request as far as it has a share of its own: an end
// port, whatever LIDs it has and whatever route it takes; else its LID, or the first
// hops of the way back, which switches near the manager have written.
type source struct {
	kind sourceKind
	id   uint64
}

type sourceKind uint8

const (
	fromPort sourceKind = iota
	fromLID
	fromRoute
)

// routeHops is how many hops of a route to an unknown port distinguish senders.
const routeHops = 3

// senders finds the end ports that requests come from; it is immutable. nil knows
// none.
type senders struct {
	fab  *fabric.Fabric
	lids []int32
}

func newSenders(f *fabric.Fabric, lids []int32) *senders {
	if f == nil {
		return nil
	}
	return &senders{fab: f, lids: lids}
}

// port is the end port that a packet came from, None if it is not known.
func (n *senders) port(p *transport.Packet) int32 {
	if n == nil {
		return fabric.None
	}
	f := n.fab
	at := fabric.None
	if mad.ClassOf(&p.MAD) == mad.ClassSubnDR {
		// The way back is the return path from its end.
		var m mad.SMP
		m.Decode(&p.MAD)
		at = f.SMPort
		for i := int(m.HopCount); i > 0 && at != fabric.None; i-- {
			q := f.Port(f.Ports[at].Node, m.Return[i&63])
			if q == fabric.None {
				return fabric.None
			}
			at = f.Ports[q].Peer
		}
	} else if int(p.LID) < len(n.lids) {
		at = n.lids[p.LID]
	}
	if at != fabric.None && f.Nodes[f.Ports[at].Node].Switch != fabric.None {
		at = f.Port(f.Ports[at].Node, 0)
	}
	return at
}

// source is who sent a packet.
func (n *senders) source(p *transport.Packet) source {
	if at := n.port(p); at != fabric.None {
		return source{fromPort, uint64(n.fab.Ports[at].GUID)}
	}
	if mad.ClassOf(&p.MAD) != mad.ClassSubnDR {
		return source{fromLID, uint64(p.LID)}
	}
	r := origin(p)
	s := source{kind: fromRoute}
	for i := range min(len(r), routeHops) {
		s.id = s.id<<8 | uint64(r[i])
	}
	return s
}
