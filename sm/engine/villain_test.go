package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// villain is a host whose root means harm, with what its port can send, and whose
// adapter answers what it likes.
type villain struct {
	*flooder
	w     *world
	port  int32
	keyed bool          // the managers have keys of their own
	mkeys bool          // an M_Key too
	poses atomic.Uint32 // as a manager in this state, 0xff: as none
	key   atomic.Uint64
	guid  atomic.Uint64 // that it shows
	shape atomic.Uint32 // of the subnet that it answers for, index of shapes
	stole atomic.Bool   // it was shown the managers' SM_Key
}

// shapes are the subnets without end that a villain's adapter answers for, by the
// path behind the villain's port; none and the usual adapter first.
var shapes = []func([]uint8) mad.NodeInfo{nil, liarNode(254, false), liarNode(5, true), doubled(36), ring(36, 4), ring(254, 200)}

func (w *world) villain(r *rand.Rand, port int32, keyed, mkeys bool) *villain {
	v := &villain{w: w, port: port, keyed: keyed, mkeys: mkeys}
	v.poses.Store(0xff)
	v.guid.Store(uint64(w.f.Ports[port].GUID))
	raw, err := w.sim.OpenRaw(w.f.Ports[port].GUID, func(p *transport.Packet) {
		if mad.AttrOf(&p.MAD) != mad.AttrSMInfo || !mad.ClassOf(&p.MAD).IsSMP() {
			return
		}
		var i mad.SMInfo
		if i.Decode(mad.SMPData(&p.MAD)[:]) == nil && i.SMKey == secret {
			v.stole.Store(true)
		}
		if s := v.poses.Load(); s != 0xff && !mad.MethodOf(&p.MAD).IsResponse() {
			q := *p
			mad.SetAnswer(&q.MAD, mad.MethodGetResp)
			i := mad.SMInfo{GUID: ib.GUID(v.guid.Load()), SMKey: v.key.Load(), ActCount: 1, Priority: 15, State: mad.SMState(s)}
			d := mad.SMPData(&q.MAD)
			*d = [64]byte{}
			i.Append(d[:0])
			go v.raw.Send(&q)
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	v.flooder = &flooder{raw: raw, gid: ib.MakeGID(ib.DefaultPrefix, w.f.Ports[port].GUID)}
	return v
}

// turn makes its adapter another device, whose link comes up again.
func (v *villain) turn(shape uint32) {
	if v.shape.Swap(shape) != shape {
		f := v.w.f
		_ = v.w.sim.Flap(f.Nodes[f.Ports[v.port].Node].GUID, f.Ports[v.port].Num)
	}
}

// strike does one evil thing and says what.
func (v *villain) strike(r *rand.Rand) string {
	f := v.w.f
	if pi, err := v.w.sim.PortInfo(f.Nodes[f.Ports[v.port].Node].GUID, f.Ports[v.port].Num); err == nil {
		v.sm = pi.MasterSMLID()
	}
	n := 1 << r.IntN(9)
	many := func(what string, f func()) string {
		for range n {
			f()
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	lids := len(f.EndPorts) + 3
	switch r.IntN(12) {
	case 0:
		return many("requests for all paths", v.paths)
	case 1:
		return many("joins", v.join)
	case 2:
		return many("subscriptions", v.subscribe)
	case 3:
		return many("traps 128", func() { v.trap(mad.TrapLinkStateChange, lids) })
	case 4:
		return many("traps 144", func() { v.trap(mad.TrapCapMaskChange, lids) })
	case 5:
		return many("noise", func() { v.noise(r) })
	case 6:
		// A partition's group, with a key that the host may not have.
		key := ib.PKey(0x8000 | r.IntN(5))
		g := ib.GID{0xff, 0x12, 0x40, 0x1b, byte(key >> 8), byte(key), 12: 0xff, 13: 0xff, 14: 0xff, 15: 0xff}
		return many("joins of partitions", func() {
			v.sa(mad.MethodSet, mad.AttrMCMemberRecord, mad.CompMCMGID|mad.CompMCPortGID|mad.CompMCJoinState|mad.CompMCPKey,
				&mad.MCMemberRecord{MGID: g, PortGID: v.gid, JoinState: mad.JoinFull, PKey: key})
		})
	case 7:
		s := r.IntN(len(shapes))
		v.turn(uint32(s))
		return fmt.Sprintf("its adapter answers as subnet %d", s)
	}
	if !v.keyed {
		return "nothing"
	}
	return v.pose(r, n, lids, many)
}

// pose does what only a key protects from.
func (v *villain) pose(r *rand.Rand, n, lids int, many func(string, func()) string) string {
	f := v.w.f
	switch k := r.IntN(5); {
	case k <= 1:
		state := []uint32{0xff, uint32(mad.SMMaster), uint32(mad.SMStandby), uint32(mad.SMDiscovering), uint32(mad.SMNotActive)}[r.IntN(5)]
		v.key.Store([]uint64{0, 1, 77}[r.IntN(3)])
		v.guid.Store([]uint64{uint64(f.Ports[v.port].GUID), uint64(f.Ports[f.EndPorts[r.IntN(len(f.EndPorts))]].GUID), r.Uint64()}[r.IntN(3)])
		v.poses.Store(state)
		_ = v.raw.SetIsSM(state != 0xff)
		return fmt.Sprintf("poses as manager %v in state %#x with key %d", ib.GUID(v.guid.Load()), state, v.key.Load())
	case k == 2:
		return many("orders to managers", func() {
			v.n++
			info := mad.SMInfo{GUID: ib.GUID(v.guid.Load()), SMKey: v.key.Load(), State: mad.SMMaster, Priority: 15}
			p := transport.Packet{LID: ib.LID(1 + r.IntN(lids))}
			mad.PutLR(&p.MAD, mad.MethodSet, mad.AttrSMInfo, uint32(1+r.IntN(5)), v.n, ib.MKey(r.IntN(3)), info.Append(nil))
			v.raw.Send(&p)
		})
	case k == 3:
		return many("questions for the SM_Key", func() {
			v.n++
			var data [64]byte
			if r.IntN(2) == 0 {
				info := mad.SMInfo{GUID: ib.GUID(v.guid.Load()), State: mad.SMMaster, Priority: 15}
				info.Append(data[:0])
			}
			p := transport.Packet{LID: ib.LID(1 + r.IntN(lids))}
			mad.PutLR(&p.MAD, mad.MethodGet, mad.AttrSMInfo, 0, v.n, ib.MKey(r.IntN(3)), data[:])
			v.raw.Send(&p)
		})
	}
	if !v.mkeys {
		return "nothing"
	}
	return many("Sets without the M_Key", func() {
		v.n++
		p := transport.Packet{LID: ib.LID(1 + r.IntN(lids))}
		var data [64]byte
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		a := []mad.AttrID{mad.AttrPortInfo, mad.AttrSwitchInfo, mad.AttrLFT, mad.AttrPKeyTable, mad.AttrMFT}[r.IntN(5)]
		mad.PutLR(&p.MAD, mad.MethodSet, a, uint32(r.IntN(3)), v.n, ib.MKey(r.IntN(3)), data[:])
		v.raw.Send(&p)
	})
}

// deceived is a manager's transport in a subnet with villains whose adapters lie:
// a request that reaches or passes one is sent to it alone, and its answer changed.
type deceived struct {
	transport.Transport
	f     *fabric.Fabric
	port  int32
	liars []*villain

	mu    sync.Mutex
	asked map[uint32]deceit
}

type deceit struct {
	request mad.Buf
	node    mad.NodeInfo
}

// liar finds the first villain on a route that answers falsely, its distance in hops,
// and what it shows there.
func (d *deceived) liar(path []uint8) (hops int, n mad.NodeInfo, ok bool) {
	at := d.port
	for hops = 1; hops <= len(path); hops++ {
		q := d.f.Port(d.f.Ports[at].Node, path[hops-1])
		if q == fabric.None || d.f.Ports[q].Peer == fabric.None {
			return 0, n, false
		}
		at = d.f.Ports[q].Peer
		for _, v := range d.liars {
			if shape := shapes[v.shape.Load()]; shape != nil && v.port == at {
				return hops, shape(append([]uint8{0, 0, 0, uint8(v.port)}, path[hops:]...)), true
			}
		}
		if d.f.Nodes[d.f.Ports[at].Node].Switch == fabric.None {
			return 0, n, false
		}
	}
	return 0, n, false
}

func (d *deceived) Send(p *transport.Packet) error {
	if mad.ClassOf(&p.MAD) != mad.ClassSubnDR || mad.MethodOf(&p.MAD).IsResponse() || mad.AttrOf(&p.MAD) == mad.AttrSMInfo {
		return d.Transport.Send(p)
	}
	var m mad.SMP
	m.Decode(&p.MAD)
	hops, n, ok := d.liar(m.Path())
	if !ok {
		return d.Transport.Send(p)
	}
	q := *p
	mad.PutDR(&q.MAD, mad.MethodGet, mad.AttrNodeInfo, 0, mad.TIDOf(&p.MAD), mad.MKeyOf(&p.MAD), m.Path()[:hops], nil)
	d.mu.Lock()
	d.asked[uint32(mad.TIDOf(&p.MAD))] = deceit{p.MAD, n}
	d.mu.Unlock()
	return d.Transport.Send(&q)
}

func (d *deceived) Recv(ctx context.Context, in []transport.Packet) (int, error) {
	n, err := d.Transport.Recv(ctx, in)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range in[:n] {
		p := &in[i]
		a, ok := d.asked[uint32(mad.TIDOf(&p.MAD))]
		if !ok || p.Err == nil && !mad.MethodOf(&p.MAD).IsResponse() {
			continue
		}
		delete(d.asked, uint32(mad.TIDOf(&p.MAD)))
		if p.MAD = a.request; p.Err == nil {
			lie(&p.MAD, mad.AttrOf(&p.MAD), a.node)
		}
	}
	return n, err
}
