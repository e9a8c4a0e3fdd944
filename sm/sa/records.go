package sa

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// Bits of the SA's CapabilityMask2 that opensm announces as well (its
// ib_types.h names them IS_MULTICAST_SERVICE_RECS_SUPPORTED and
// IS_PORT_INFO_CAPMASK2_MATCH_SUPPORTED).
const (
	cap2MulticastServices = 1 << 8
	cap2CapMask2Match     = 1 << 10
)

// classPortInfo answers with what this SA can do.
func (q *query) classPortInfo() mad.Status {
	c := mad.ClassPortInfo{
		BaseVersion: mad.BaseVer, ClassVersion: mad.SAClassV,
		CapMask: mad.SACapGetSetSupported | mad.SACapOptionalRecords | mad.SACapUDMulticast | mad.SACapMultiPath | mad.SACapPortInfoCapMask,
		// The kernel joins groups as send-only full member only with this bit
		// (ipoib_multicast.c).
		CapMask2: mad.SACap2FullPortInfo | mad.SACap2ExtendedSpeeds | mad.SACap2AliasGUID | mad.SACap2SendOnlyFullMember |
			cap2MulticastServices | cap2CapMask2Match,
		RespTimeValue: q.cfg.ResponseTime, RedirectQP: 1, RedirectQKey: ib.QKeyGSI, TrapQKey: ib.QKeyGSI,
	}
	q.out = c.Append(q.out)
	q.took()
	return mad.StatusOK
}

// endPorts calls f for the end ports that the requester may know about and that
// can match: those with the LID, if the mask has lidBit and the record starts
// with a LID, or those with one of the GUIDs.
func (q *query) endPorts(lidBit mad.CompMask, f func(port int32)) {
	try := func(p int32) {
		if p != fabric.None && q.f.Ports[p].LID != 0 && q.visible(p) && !q.enough() {
			f(p)
		}
	}
	if lidBit != 0 && q.has(lidBit) {
		// Any LID of the port will do, not only the base LID that
		// records carry.
		q.mask &^= lidBit
		try(q.byLID(mad.LIDOfRecord(q.data)))
		return
	}
	for _, p := range q.f.EndPorts {
		try(p)
	}
}

func (q *query) nodes() mad.Status {
	record := func(p int32) {
		port := &q.f.Ports[p]
		n := &q.f.Nodes[port.Node]
		r := mad.NodeRecord{LID: port.LID, Info: mad.NodeInfo{
			BaseVersion: n.Base, ClassVersion: n.Class, NodeType: n.Type, NumPorts: n.NumPorts,
			SystemImageGUID: n.SystemGUID, NodeGUID: n.GUID, PortGUID: port.GUID, PartitionCap: n.PKeyCap,
			DeviceID: n.DeviceID, Revision: n.Revision, LocalPortNum: port.Num, VendorID: n.VendorID,
		}, Description: mad.NewNodeDescription(n.Desc)}
		q.emit(r.Append(q.out), mad.NodeLayout)
	}
	var want mad.NodeRecord
	_ = want.Decode(q.data)
	// Queries by GUID are what hosts send most; they need no walk.
	if q.has(mad.CompNRPortGUID) && !q.has(mad.CompNRLID) {
		if p := q.f.EndPortByGUID(want.Info.PortGUID); p != fabric.None && q.f.Ports[p].LID != 0 && q.visible(p) {
			record(p)
		}
		return mad.StatusOK
	}
	if q.has(mad.CompNRNodeGUID) && !q.has(mad.CompNRLID) {
		if n := q.f.NodeByGUID(want.Info.NodeGUID); n != fabric.None {
			first, count := q.f.PortRange(n)
			for p := first; p < first+count; p++ {
				if q.f.IsEndPort(p) && q.f.Ports[p].LID != 0 && q.visible(p) {
					record(p)
				}
			}
		}
		return mad.StatusOK
	}
	q.endPorts(mad.CompNRLID, record)
	return mad.StatusOK
}

// physical calls f for each port of an end port's node that it speaks for: all
// ports of a switch, itself otherwise.
func (q *query) physical(p int32, f func(port int32)) {
	n := q.f.Ports[p].Node
	if q.f.Nodes[n].Switch == fabric.None {
		f(p)
		return
	}
	first, count := q.f.PortRange(n)
	for i := first; i < first+count && !q.full; i++ {
		f(i)
	}
}

func (q *query) portInfos() mad.Status {
	var want mad.PortInfoRecord
	_ = want.Decode(q.data)
	options := uint8(0)
	if q.has(mad.CompPIROptions) {
		options = want.Options & mad.PIROptionFull // as it always is
	}
	q.endPorts(mad.CompPIRLID, func(p int32) {
		lid := q.f.Ports[p].LID
		q.physical(p, func(x int32) {
			port := &q.f.Ports[x]
			if !port.Known || q.has(mad.CompPIRPort) && want.Port != port.Num {
				return
			}
			r := mad.PortInfoRecord{LID: lid, Port: port.Num, Options: options, Info: port.Info}
			if !q.trusted {
				r.Info.SetMKey(0)
			}
			if x == q.f.SMPort {
				// The bit may have been set after the port was read.
				r.Info.SetCapMask(r.Info.CapMask() | mad.CapIsSM)
			}
			if !q.capMaskMatches(&want.Info, &r.Info) {
				return
			}
			q.emit(r.Append(q.out), mad.PortInfoLayout)
		})
	})
	return mad.StatusOK
}

// capMaskMatches compares the capability masks: exactly, or, with bit 31 of the
// attribute modifier set, the bits asked for only (IBTA 15.2.5.3).
func (q *query) capMaskMatches(asked, info *mad.PortInfo) bool {
	bits := q.h.Mod&(1<<31) != 0
	if q.has(mad.CompPIRCapMask) {
		want, have := asked.CapMask(), info.CapMask()
		if bits && want&have != want || !bits && want != have {
			return false
		}
	}
	if q.has(mad.CompPIRCapMask2) {
		want, have := asked.CapMask2(), info.CapMask2()
		if bits && want&have != want || !bits && want != have {
			return false
		}
	}
	return true
}

// switches calls f for each switch that can match a mask with a LID first.
func (q *query) switches(lidBit mad.CompMask, f func(sw int32, lid ib.LID)) {
	q.endPorts(lidBit, func(p int32) {
		if sw := q.f.Nodes[q.f.Ports[p].Node].Switch; sw != fabric.None {
			f(sw, q.f.Ports[p].LID)
		}
	})
}

func (q *query) switchInfos() mad.Status {
	q.switches(mad.CompSWIRLID, func(sw int32, lid ib.LID) {
		r := mad.SwitchInfoRecord{LID: lid, Info: q.f.Switches[sw].Info}
		q.emit(r.Append(q.out), mad.SwitchLayout)
	})
	return mad.StatusOK
}

func (q *query) lfts() mad.Status {
	var want mad.LFTRecord
	_ = want.Decode(q.data)
	q.switches(mad.CompLFTLID, func(sw int32, lid ib.LID) {
		if int(sw) >= len(q.state.LFT) {
			return
		}
		t := q.state.LFT[sw]
		for b := 0; b*64 < len(t); b++ {
			if q.has(mad.CompLFTBlock) && int(want.Block) != b {
				continue
			}
			r := mad.LFTRecord{LID: lid, Block: uint16(b)}
			for i := range r.Table {
				r.Table[i] = mad.LFTDrop
			}
			copy(r.Table[:], t[b*64:])
			q.emit(r.Append(q.out), mad.LFTLayout)
		}
	})
	return mad.StatusOK
}

func (q *query) mfts() mad.Status {
	var want mad.MFTRecord
	_ = want.Decode(q.data)
	q.switches(mad.CompMFTLID, func(sw int32, lid ib.LID) {
		blocks := 0
		if int(sw) < len(q.state.MFT) {
			if rows := q.state.MFT[sw]; len(rows) > 0 {
				blocks = (int(rows[len(rows)-1].MLID)-int(ib.LIDMulticastMin))/32 + 1
			}
		}
		positions := (int(q.f.Nodes[q.f.Switches[sw].Node].NumPorts) + 16) / 16
		for b := range blocks {
			if q.has(mad.CompMFTBlock) && int(want.Block) != b {
				continue
			}
			for pos := range positions {
				r := mad.MFTRecord{LID: lid, Position: uint8(pos), Block: uint16(b), Table: q.state.MFT.Block(sw, b, pos)}
				q.emit(r.Append(q.out), mad.MFTLayout)
			}
		}
	})
	return mad.StatusOK
}

func (q *query) slvls() mad.Status {
	var want mad.SLtoVLRecord
	_ = want.Decode(q.data)
	q.endPorts(mad.CompSLVLLID, func(p int32) {
		lid := q.f.Ports[p].LID
		node := q.f.Ports[p].Node
		isSwitch := q.f.Nodes[node].Switch != fabric.None
		q.physical(p, func(out int32) {
			port := &q.f.Ports[out]
			if q.has(mad.CompSLVLOutPort) && isSwitch && want.OutPort != port.Num {
				return
			}
			r := mad.SLtoVLRecord{LID: lid}
			if q.state.QoS != nil {
				r.Table = q.state.QoS.SLtoVL(out)
			}
			mask := q.mask
			emit := func() {
				q.emitMask(r.Append(q.out), mad.SLtoVLLayout, mask)
			}
			r.OutPort = port.Num
			if !isSwitch {
				mask = 0 // see vlArbs
				emit()
				return
			}
			for in := range int(q.f.Nodes[node].NumPorts) + 1 {
				if q.full || q.has(mad.CompSLVLInPort) && int(want.InPort) != in {
					continue
				}
				r.InPort = uint8(in)
				emit()
			}
		})
	})
	return mad.StatusOK
}

func (q *query) vlArbs() mad.Status {
	q.endPorts(mad.CompVLARLID, func(p int32) {
		q.physical(p, func(x int32) {
			port := &q.f.Ports[x]
			for b := uint8(1); b <= 4; b++ {
				r := mad.VLArbRecord{LID: q.f.Ports[p].LID, Port: port.Num, Block: b}
				if q.state.QoS != nil {
					r.Table = q.state.QoS.VLArb(x, b)
				}
				mask := q.mask
				if q.f.Nodes[port.Node].Switch == fabric.None {
					// The LID says which port of an adapter is
					// meant; the number is often given as 0.
					mask &^= mad.CompVLARPort
				}
				q.emitMask(r.Append(q.out), mad.VLArbLayout, mask)
			}
		})
	})
	return mad.StatusOK
}

func (q *query) smInfos() mad.Status {
	for i := range q.state.SMs {
		sm := &q.state.SMs[i]
		if sm.Port < 0 || int(sm.Port) >= len(q.f.Ports) || !q.visible(sm.Port) || q.enough() {
			continue
		}
		r := mad.SMInfoRecord{LID: q.f.Ports[sm.Port].LID, Info: sm.Info}
		if !q.trusted {
			r.Info.SMKey = 0
		}
		q.emit(r.Append(q.out), mad.SMInfoLayout)
	}
	return mad.StatusOK
}

// lidOf is the LID that a port answers to: its own, or that of port 0.
func (s *Service) lidOf(port int32) ib.LID {
	p := &s.f.Ports[port]
	if s.f.Nodes[p.Node].Switch != fabric.None {
		return s.f.Ports[s.f.Port(p.Node, 0)].LID
	}
	return p.LID
}

func (q *query) links() mad.Status {
	var want mad.LinkRecord
	_ = want.Decode(q.data)
	to := fabric.None
	if q.has(mad.CompLRToLID) {
		if to = q.byLID(want.ToLID); to == fabric.None {
			return mad.StatusOK
		}
		q.mask &^= mad.CompLRToLID
	}
	from := func(x int32) {
		peer := q.f.Ports[x].Peer
		if peer == fabric.None {
			return
		}
		r := mad.LinkRecord{FromLID: q.lidOf(x), FromPort: q.f.Ports[x].Num, ToPort: q.f.Ports[peer].Num, ToLID: q.lidOf(peer)}
		if r.FromLID == 0 || r.ToLID == 0 {
			return
		}
		if end := q.byLID(r.ToLID); to != fabric.None && end != to || !q.visible(end) {
			return
		}
		q.emit(r.Append(q.out), mad.LinkLayout)
	}
	if !q.has(mad.CompLRFromLID) && to != fabric.None {
		// Links are the same from both ends: start at the far one.
		if q.visible(to) {
			q.physical(to, func(x int32) {
				if peer := q.f.Ports[x].Peer; peer != fabric.None && q.visible(q.byLID(q.lidOf(peer))) {
					from(peer)
				}
			})
		}
		return mad.StatusOK
	}
	q.endPorts(mad.CompLRFromLID, func(p int32) { q.physical(p, from) })
	return mad.StatusOK
}

// pkeys answers trusted requests only: the keys of a port are no business of
// others (IBTA C15-0.1.21).
func (q *query) pkeys() mad.Status {
	if !q.trusted {
		return mad.StatusSAReqInvalid
	}
	var want mad.PKeyTableRecord
	_ = want.Decode(q.data)
	q.endPorts(mad.CompPKTRLID, func(p int32) {
		q.physical(p, func(x int32) {
			port := &q.f.Ports[x]
			if q.has(mad.CompPKTRPort) && want.Port != port.Num {
				return
			}
			keys, room := q.keys(x), int(q.f.Nodes[port.Node].PKeyCap)
			if !q.f.IsEndPort(x) {
				room = int(q.f.Switches[q.f.Nodes[port.Node].Switch].Info.PartitionEnforcementCap())
			}
			room = max(room, len(keys))
			for b := 0; b*32 < room && !q.full; b++ {
				r := mad.PKeyTableRecord{LID: q.f.Ports[p].LID, Block: uint16(b), Port: port.Num}
				if b*32 < len(keys) {
					copy(r.Table[:], keys[b*32:])
				}
				q.emit(r.Append(q.out), mad.PKeyTableLayout)
			}
		})
	})
	return mad.StatusOK
}
