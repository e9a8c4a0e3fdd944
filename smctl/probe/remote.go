package probe

import (
	"context"
	"fmt"
	"math/rand/v2"

	"ibnetworkd/ib"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// RemotePort is the port at the other end of a cable.
type RemotePort struct {
	Node ib.GUID // of the node
	Type ib.NodeType
	Name string // its node description
	Port uint8
}

// Remote identifies the node at the other end of a port's cable, by a directed route
// of one hop. No answer is an error.
func Remote(ctx context.Context, c Conn, port uint8) (r RemotePort, err error) {
	ask := func(attr mad.AttrID) (*transport.Packet, error) {
		p := transport.Packet{LID: ib.LIDPermissive, Timeout: timeout, Retries: retries}
		mad.PutDR(&p.MAD, mad.MethodGet, attr, 0, uint64(rand.Uint32()), 0, []uint8{port}, nil)
		q, err := exchange(ctx, c, &p)
		if err == nil && q == nil {
			err = fmt.Errorf("the node behind port %d does not answer", port)
		}
		return q, err
	}
	q, err := ask(mad.AttrNodeInfo)
	if err != nil {
		return r, err
	}
	var info mad.NodeInfo
	if err := info.Decode(mad.SMPData(&q.MAD)[:]); err != nil {
		return r, err
	}
	r = RemotePort{Node: info.NodeGUID, Type: info.NodeType, Port: info.LocalPortNum}
	// Its name is for people: without it the answer counts as well.
	if q, err := ask(mad.AttrNodeDescription); err == nil {
		r.Name = mad.NodeDescription(*mad.SMPData(&q.MAD)).String()
	}
	return r, nil
}
