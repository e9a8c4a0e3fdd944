package main

import (
	"context"
	"fmt"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/lab/gen"
	"ibnetworkd/lab/simfabric"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// path is the way from a switch to a LID.
type path struct {
	from int32 // switch
	in   uint8 // its port that packets of the host arrive at
	to   ib.LID
	sl   ib.SL
}

// readPaths queries the SA for the service levels from one host of each switch to all LIDs
// of hosts.
func readPaths(sim *simfabric.Sim, f *fabric.Fabric) ([]path, error) {
	var paths []path
	var source []ib.LID
	self := fabric.None
	done := map[int32]bool{}
	for _, e := range f.EndPorts {
		sw, in := f.SwitchOf(e)
		if sw == fabric.None || in == 0 {
			continue
		}
		if e != f.SMPort {
			self = e
		}
		if done[sw] {
			continue
		}
		done[sw] = true
		for _, d := range f.EndPorts {
			if t, out := f.SwitchOf(d); out != 0 && t != sw {
				paths = append(paths, path{from: sw, in: in, to: f.Ports[d].LID})
				source = append(source, f.Ports[e].LID)
			}
		}
	}
	c, err := sim.OpenClient(f.Ports[self].GUID, false)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	port, err := c.Port()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const window = 64
	in := make([]transport.Packet, window)
	for sent, answered := 0, 0; answered < len(paths); {
		for ; sent < len(paths) && sent < answered+window; sent++ {
			p := transport.Packet{LID: port.SMLID, QPN: 1, SL: port.SMSL, Timeout: time.Second, Retries: 5}
			h := mad.NewSA(mad.MethodGet, mad.AttrPathRecord, uint32(sent), mad.CompPRSLID|mad.CompPRDLID|mad.CompPRReversible|mad.CompPRNumbPath)
			rec := mad.PathRecord{SLID: source[sent], DLID: paths[sent].to, Reversible: true, NumbPath: 1}
			p.SetMessage(rec.Append(h.Append(p.MAD[:0])), false)
			if err := c.Send(&p); err != nil {
				return nil, err
			}
		}
		n, err := c.Recv(ctx, in)
		if err != nil {
			return nil, err
		}
		for i := range in[:n] {
			p, i := &in[i], int(uint32(mad.TIDOf(&in[i].MAD)))
			var rec mad.PathRecord
			if st := mad.StatusOf(&p.MAD); p.Err != nil || st != 0 || i >= len(paths) || rec.Decode(p.MAD[mad.SADataOffset:]) != nil {
				return nil, fmt.Errorf("no path record: status 0x%04x, %v", uint16(st), p.Err)
			}
			paths[i].sl = rec.SL
			answered++
		}
	}
	return paths, nil
}

// lane is a virtual lane of a link, by the port that sends.
type lane struct {
	port int32
	vl   ib.VL
}

// lanes follows the tables and mappings in the switches. It gives how many lanes between
// switches are used, and whether a credit loop closes on them.
func lanes(sim *simfabric.Sim, f *fabric.Fabric, lft [][]uint8, paths []path) (used int, loop bool, err error) {
	next, vls := map[lane]map[lane]bool{}, map[ib.VL]bool{}
	for _, p := range paths {
		var last lane
		at, in := p.from, p.in
		for n := 0; n <= len(f.Switches); n++ {
			node := f.Switches[at].Node
			out := f.Port(node, lft[at][p.to])
			if out == fabric.None || f.Ports[out].Peer == fabric.None {
				break
			}
			peer := &f.Ports[f.Ports[out].Peer]
			to := f.Nodes[peer.Node].Switch
			if to == fabric.None {
				break
			}
			m, err := sim.SLtoVL(f.Nodes[node].GUID, in, f.Ports[out].Num)
			if err != nil {
				return 0, false, err
			}
			l := lane{out, m[p.sl]}
			vls[l.vl] = true
			if n > 0 {
				if next[last] == nil {
					next[last] = map[lane]bool{}
				}
				next[last][l] = true
			}
			last, at, in = l, to, peer.Num
		}
	}
	return len(vls), gen.Cyclic(next), nil
}
