package sa

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// guidTable is a block of the GUIDs of a port: its own at index 0 and the alias
// GUIDs that were set.
func (s *Service) guidTable(port int32, block int) (t mad.GUIDInfo) {
	g := s.f.Ports[port].GUID
	return blockOf(g, s.guids[g], block)
}

func blockOf(own ib.GUID, aliases map[int]ib.GUID, block int) (t mad.GUIDInfo) {
	if block == 0 {
		t[0] = own
	}
	for i, g := range aliases {
		if i/8 == block {
			t[i%8] = g
		}
	}
	return t
}

// guidCap is the number of GUIDs that fit a port's table.
func (s *Service) guidCap(port int32) int { return max(1, int(s.f.Ports[port].Info.GUIDCap())) }

func (q *query) guidInfos() mad.Status {
	q.endPorts(mad.CompGIRLID, func(p int32) {
		for b := 0; b*8 < q.guidCap(p) && !q.full; b++ {
			r := mad.GUIDInfoRecord{LID: q.f.Ports[p].LID, Block: uint8(b), Info: q.guidTable(p, b)}
			if own := q.guids[q.f.Ports[p].GUID]; q.all && (len(own) == 0 || b > 0 && r.Info == mad.GUIDInfo{}) {
				continue // to a copy only aliases matter
			}
			q.emit(r.Append(q.out), mad.GUIDInfoLayout)
		}
	})
	return mad.StatusOK
}

// guidRequest reads a Set or Delete of alias GUIDs, which only the port itself
// may do, or who is trusted.
func (q *query) guidRequest(r *mad.GUIDInfoRecord) (int32, mad.Status) {
	if !q.has(mad.CompGIRLID | mad.CompGIRBlock) {
		return 0, mad.StatusSAInsufComps
	}
	if r.Decode(q.data) != nil {
		return 0, mad.StatusSAReqInvalid
	}
	p := q.byLID(r.LID)
	if p == fabric.None {
		return 0, mad.StatusSANoRecords
	}
	if p != q.port && !q.trusted {
		return 0, mad.StatusSADenied
	}
	if int(r.Block)*8 >= q.guidCap(p) {
		return 0, mad.StatusSANoRecords
	}
	return p, mad.StatusOK
}

// allOnes is the GUID that asks the SA not to choose one but to clear the entry.
const allOnes = ib.GUID(0xffffffffffffffff)

// setGUIDs gives a port alias GUIDs, as virtual functions of mlx4 need them. A
// zero asks the SA to make one up.
func (q *query) setGUIDs() mad.Status {
	var r mad.GUIDInfoRecord
	port, st := q.guidRequest(&r)
	if st != mad.StatusOK {
		return st
	}
	own := q.f.Ports[port].GUID
	next := map[int]ib.GUID{}
	for i := range 8 {
		index := int(r.Block)*8 + i
		if !q.has(mad.CompGIRGID0<<i) || index == 0 || index >= q.guidCap(port) {
			continue
		}
		g := r.Info[i]
		switch g {
		case allOnes:
			next[index] = 0
			continue
		case 0:
			if g = q.guids[own][index]; g == 0 {
				g = q.newAlias()
			}
		}
		if holder := q.byGUID(g); holder != fabric.None && q.guids[own][index] != g {
			// A GUID twice in a subnet would make both useless.
			return mad.StatusSAReqInvalid
		}
		for _, other := range next {
			if other == g {
				return mad.StatusSAReqInvalid
			}
		}
		next[index] = g
	}
	q.applyGUIDs(port, next)
	q.answerGUIDs(port, r.Block)
	return mad.StatusOK
}

func (q *query) deleteGUIDs() mad.Status {
	var r mad.GUIDInfoRecord
	port, st := q.guidRequest(&r)
	if st != mad.StatusOK {
		return st
	}
	next := map[int]ib.GUID{}
	for i := range 8 {
		if index := int(r.Block)*8 + i; q.has(mad.CompGIRGID0<<i) && index != 0 {
			next[index] = 0
		}
	}
	q.applyGUIDs(port, next)
	q.answerGUIDs(port, r.Block)
	return mad.StatusOK
}

func (q *query) answerGUIDs(port int32, block uint8) {
	a := mad.GUIDInfoRecord{LID: q.f.Ports[port].LID, Block: block, Info: q.guidTable(port, int(block))}
	q.out = a.Append(q.out)
	q.took()
}

// applyGUIDs changes entries of a port; 0 removes one, along with what it had
// joined.
func (q *query) applyGUIDs(port int32, next map[int]ib.GUID) {
	own := q.f.Ports[port].GUID
	touched := map[uint8]bool{}
	for index, g := range next {
		old := q.guids[own][index]
		if old == g {
			continue
		}
		touched[uint8(index/8)] = true
		q.touch()
		if old != 0 {
			delete(q.alias, old)
			delete(q.guids[own], index)
			for _, x := range append([]*group(nil), q.sortedGroups()...) {
				if x.members[old] != nil {
					q.dropMember(x, old)
					q.changes.Groups = true
					q.changes.add(q.reap(x))
				}
			}
		}
		if g != 0 {
			if q.guids[own] == nil {
				q.guids[own] = map[int]ib.GUID{}
			}
			q.guids[own][index] = g
			q.alias[g] = port
		}
	}
	if len(q.guids[own]) == 0 {
		delete(q.guids, own)
	}
	for b := range uint8(32) {
		if touched[b] {
			q.changes.GUIDs = append(q.changes.GUIDs, GUIDBlock{own, b, q.guidTable(port, int(b))})
		}
	}
}

// newAlias makes a GUID up: locally administered, with a number.
func (s *Service) newAlias() ib.GUID {
	for {
		s.aliasSeq++
		g := ib.GUID(0x0200000000000000) | ib.GUID(s.aliasSeq)
		if s.byGUID(g) == fabric.None {
			return g
		}
	}
}
