package engine

import (
	"context"
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/smp"
)

// askSwitches reads the state of the other managers and of every switch, and gives
// the nodes to read again. Every fourth light sweep asks switches for the same; an
// administrator's resweep always asks SwitchInfo.
func (s *Subnet) askSwitches(ctx context.Context, f *fabric.Fabric, resweep bool) ([]int32, error) {
	turn := 0
	if !resweep {
		turn = s.sweeps.light
		s.sweeps.light++
	}
	if err := s.askPeers(ctx, false); err != nil {
		return nil, err
	}
	return s.lightSweep(ctx, f, turn)
}

// light ends a sweep that found no change; one on request is reported.
func (w *sweep) light(ctx context.Context, f *fabric.Fabric, say bool) error {
	w.kind = "light"
	if w.s.knowsPeers() {
		if err := w.s.handOver(ctx, w.s.elect.Discovered(w.s.elect.Peers())); err != nil {
			return err
		}
	}
	if say {
		w.report(f, true)
	}
	return nil
}

// lightSweep sends each switch one request and gives the nodes to read again:
// switches with changed ports, restarted ones, and the neighbours of silent ones.
// Most turns read SwitchInfo; some read port 0 or one other port after the other
// instead, so that in the end no change in the middle of a sweep is missed. The
// ports without a link of switches that were new are read as well, once: see
// program.Switches.
func (s *Subnet) lightSweep(ctx context.Context, f *fabric.Fabric, turn int) ([]int32, error) {
	var suspects []int32
	l := smp.List{}
	for i := range f.Switches {
		n := f.Switches[i].Node
		r := smp.Request{Method: mad.MethodGet, Attr: mad.AttrSwitchInfo, Path: f.Nodes[n].Path, Tag: uint64(i)}
		switch turn % 4 {
		case 1:
			r.Attr = mad.AttrPortInfo
		case 3:
			r.Attr, r.Mod = mad.AttrPortInfo, uint32(1+turn/4%int(f.Nodes[n].NumPorts))
		}
		l.Requests = append(l.Requests, r)
	}
	for i, unprobed := range s.prog.have.unprobed {
		if unprobed {
			l.Requests = appendUnprobed(l.Requests, f, f.Switches[i].Node)
		}
	}
	l.Done = func(r *smp.Reply) {
		sw := &f.Switches[r.Tag]
		if !r.OK() || changed(f, sw, r) {
			suspects = append(suspects, sw.Node)
		}
		if !r.OK() {
			suspects = appendNeighbours(suspects, f, sw.Node)
		}
	}
	if err := s.pump(ctx, &l); err != nil {
		return nil, err
	}
	clear(s.prog.have.unprobed)
	return suspects, nil
}

// changed reports whether what a switch answers to a light sweep is not what is
// known of it.
func changed(f *fabric.Fabric, sw *fabric.Switch, r *smp.Reply) bool {
	switch r.Attr {
	case mad.AttrSwitchPortState:
		first, count := f.PortRange(sw.Node)
		for i := first; i < first+count; i++ {
			p := &f.Ports[i]
			if p.Num == 0 || p.Peer != fabric.None || int(p.Num)/fabric.TablePorts != int(r.Mod) {
				continue
			}
			up := fabric.StateInTable(r.Data[:], int(p.Num)%fabric.TablePorts) >= ib.PortInit
			if up != (p.Info.State() >= ib.PortInit) {
				return true
			}
		}
		return false
	case mad.AttrPortInfo:
		pi, p := mad.PortInfoOf(&r.Data), &f.Ports[f.Port(sw.Node, uint8(r.Mod))]
		return r.Mod == 0 && pi.LID() != p.LID || r.Mod != 0 && pi.State() != p.Info.State()
	}
	si := mad.SwitchInfoOf(&r.Data)
	return si.PortStateChange() || si.LinearFDBTop() != sw.Info.LinearFDBTop()
}

// appendNeighbours appends the switches that a node has links with.
func appendNeighbours(out []int32, f *fabric.Fabric, node int32) []int32 {
	first, count := f.PortRange(node)
	for p := first; p < first+count; p++ {
		if q := f.Ports[p].Peer; q != fabric.None && f.Nodes[f.Ports[q].Node].Switch != fabric.None {
			out = append(out, f.Ports[q].Node)
		}
	}
	return out
}

// appendUnprobed appends the requests for the ports of a switch that had no link:
// for the table of their states if the switch has one.
func appendUnprobed(out []smp.Request, f *fabric.Fabric, n int32) []smp.Request {
	r := smp.Request{Method: mad.MethodGet, Path: f.Nodes[n].Path, Tag: uint64(f.Nodes[n].Switch)}
	tells := f.Ports[f.Port(n, 0)].Info.HasPortStateTable()
	first, count := f.PortRange(n)
	from := len(out)
	for i := first; i < first+count; i++ {
		p := &f.Ports[i]
		if p.Num == 0 || p.Peer != fabric.None {
			continue
		}
		if !p.Known && tells {
			out = out[:from]
			r.Attr = mad.AttrSwitchPortState
			for r.Mod = 0; int(r.Mod) <= int(f.Nodes[n].NumPorts)/fabric.TablePorts; r.Mod++ {
				out = append(out, r)
			}
			return out
		}
		r.Attr, r.Mod = mad.AttrPortInfo, uint32(p.Num)
		out = append(out, r)
	}
	return out
}
