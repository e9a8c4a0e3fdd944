package engine

import (
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/program"
	"ibnetworkd/sm/smp"
)

// answered takes the outcome of a Set: what the fabric has acknowledged is recorded
// as its state. The tag is a switch for tables of switches, a port for all else.
func (w *sweep) answered(r *smp.Reply) {
	ok := r.OK()
	if !ok {
		node := int32(0)
		if r.Attr == mad.AttrLFT || r.Attr == mad.AttrSwitchInfo {
			node = w.f.Switches[r.Tag].Node
		} else {
			node = w.f.Ports[r.Tag].Node
		}
		w.fail(node, r)
	}
	switch r.Attr {
	case mad.AttrSwitchInfo:
		if ok {
			w.switchSet(r)
		}
	case mad.AttrLFT:
		if ok {
			w.blockSet(r)
		}
	case mad.AttrPortInfo:
		if ok {
			w.portSet(r)
		}
	case mad.AttrSLtoVL, mad.AttrVLArb:
		if !ok {
			w.have.lanes.VLs[r.Tag] = 0
		}
	case mad.AttrPKeyTable:
		if !ok {
			w.refusedKeys[r.Tag] = true
		}
	}
}

func (w *sweep) switchSet(r *smp.Reply) {
	info := &w.f.Switches[r.Tag].Info
	*info = mad.SwitchInfoOf(&r.Data)
	if sent := mad.SwitchInfoOf(&r.Request.Data); sent.PortStateChange() {
		info.SetPortStateChange(false)
		w.have.unprobed[r.Tag] = true
	}
}

// blockSet takes an acknowledged block of a forwarding table.
func (w *sweep) blockSet(r *smp.Reply) {
	sw := r.Tag
	if w.have.lft[sw] == nil && !w.ownLFT[sw] {
		return // a new switch has the wanted table when no block failed
	}
	if !w.ownLFT[sw] {
		w.have.lft[sw], w.ownLFT[sw] = slices.Clone(w.have.lft[sw]), true
	}
	w.have.lft[sw] = program.PutLFT(w.have.lft[sw], &r.Request)
}

func (w *sweep) portSet(r *smp.Reply) {
	p, i := &w.f.Ports[r.Tag], int32(r.Tag)
	if sent := mad.PortInfoOf(&r.Request.Data); sent.ClientReregister() {
		w.have.reregistered[i] = true
	}
	known, was := p.Known, p.Info.State()
	program.Answered(w.f, w.have.declined, r)
	w.s.served.admin.Answered(w.f, i)
	if known && was >= ib.PortArmed && p.Info.State() <= ib.PortInit {
		if w.f.IsEndPort(i) {
			// Its host restarted after the walk: what was read of it before is stale.
			w.have.pkeys[i], w.have.reregistered[i] = nil, false
			w.s.ev.guids, w.s.ev.reason = append(w.s.ev.guids, w.f.Nodes[p.Node].GUID), "a port restarted during the sweep"
		} else if p.Peer != fabric.None {
			// This end is armed below, the other is still taken for Active.
			w.s.ev.guids, w.s.ev.reason = append(w.s.ev.guids, w.f.Nodes[w.f.Ports[p.Peer].Node].GUID), "a link went down during the sweep"
		}
	}
	if !known && p.Num == 0 && p.Info.CapMask()&mad.CapIsSM != 0 && i != w.f.SMPort {
		// A manager inside a switch whose port 0 the walk did not read.
		w.s.ev.ports, w.s.ev.reason = append(w.s.ev.ports, p.LID), "another manager in a switch"
	}
}
