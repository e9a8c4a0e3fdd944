package sa

import (
	"cmp"

	"ibnetworkd/ib"
	"ibnetworkd/ib/partition"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// decodeJoin reads the record of a request to join or to leave.
func (q *query) decodeJoin(r *mad.MCMemberRecord) mad.Status {
	if !q.has(joinMask) {
		return mad.StatusSAInsufComps
	}
	if st := q.decodeMember(r); st != mad.StatusOK {
		return st
	}
	if !q.validPrefix(r.PortGID) {
		return mad.StatusSAInvalidGID
	}
	return mad.StatusOK
}

// decodeMember reads the record of a request and checks codes for MTU and rate.
func (q *query) decodeMember(r *mad.MCMemberRecord) mad.Status {
	if r.Decode(q.data) != nil {
		return mad.StatusSAReqInvalid
	}
	if q.has(mad.CompMCMTUSel|mad.CompMCMTU) && !r.MTU.IsValid() || q.has(mad.CompMCRateSel|mad.CompMCRate) && !r.Rate.IsValid() {
		return mad.StatusSAReqInvalid
	}
	return mad.StatusOK
}

// mlidWindow is the number of multicast LIDs that MGIDs are spread over at
// first: eight blocks of a switch's table.
const mlidWindow = 256

const (
	joinMask   = mad.CompMCMGID | mad.CompMCPortGID | mad.CompMCJoinState
	createMask = joinMask | mad.CompMCQKey | mad.CompMCTClass | mad.CompMCPKey | mad.CompMCFlowLabel | mad.CompMCSL
)

// join adds a port to a group, which it makes if the request says enough (IBTA
// 15.2.5.17.2).
func (q *query) join() mad.Status {
	var r mad.MCMemberRecord
	if st := q.decodeJoin(&r); st != mad.StatusOK {
		return st
	}
	guid := r.PortGID.GUID()
	port := q.byGUID(guid)
	if port == fabric.None {
		return mad.StatusSAReqInvalid
	}
	proxy := port != q.port
	if proxy && q.sharedKey(port, q.port) == 0 || q.has(mad.CompMCPKey) && !r.PKey.IsValid() {
		return mad.StatusSAReqInvalid
	}
	g := q.groups[r.MGID]
	created := g == nil
	if created {
		if r.JoinState&(mad.JoinFull|mad.JoinSendOnlyFull) == 0 {
			return mad.StatusSAReqInvalid
		}
		if !q.has(createMask) {
			return mad.StatusSAInsufComps
		}
		var st mad.Status
		if g, st = q.newGroup(&r, port); st != mad.StatusOK {
			return st
		}
	} else if !q.sameParams(&r, &g.rec) {
		return mad.StatusSAReqInvalid
	}
	old := g.members[guid]
	link := q.linkAttr(port)
	switch {
	case old == nil && (q.joins[q.f.Ports[q.port].GUID] >= q.cfg.MaxJoins || q.members >= q.cfg.MaxMembers):
		return mad.StatusSANoResources
	case r.JoinState == 0, !q.selectorsMatch(&r, &g.rec), !q.inPartition(port, g.rec.PKey),
		q.f.Ports[port].Num != 0 && (link.mtu < g.rec.MTU || link.rate.Less(g.rec.Rate)),
		old != nil && !q.mayModify(g, old):
		return mad.StatusSAReqInvalid
	}
	if created {
		if g.by = q.f.Ports[q.port].GUID; q.made[g.by] >= q.groupShare() {
			return mad.StatusSANoResources
		}
		g.rec.MLID, _ = q.newMLID(&g.rec, false)
		if g.rec.MLID == 0 || len(q.groups) >= q.cfg.MaxGroups {
			return mad.StatusSANoResources
		}
		q.addGroup(g)
		q.changes.Reports = q.groupEvent(q.changes.Reports, mad.TrapMcastGroupCreated, g)
	}
	if old == nil {
		old = &member{guid: q.f.Ports[port].GUID, by: q.f.Ports[q.port].GUID, proxy: proxy}
		g.members[guid] = old
		q.joins[old.by]++
		q.members++
		q.changes.Groups = true
	}
	had := old.receives()
	if old.state|r.JoinState != old.state {
		q.touch()
	}
	old.state |= r.JoinState
	q.changes.Groups = q.changes.Groups || had != old.receives()
	q.answerMember(g, &r, old.state, old.proxy)
	return mad.StatusOK
}

// answerMember emits the group's parameters with what the request named of the
// member.
func (q *query) answerMember(g *group, r *mad.MCMemberRecord, state uint8, proxy bool) {
	out := g.rec
	out.PortGID, out.JoinState, out.ProxyJoin = r.PortGID, state, proxy
	q.out = out.Append(q.out)
	q.took()
}

// mayModify reports whether the requester may change a membership: the member
// itself, or, when another port joined for it, anybody of the partition.
func (q *query) mayModify(g *group, m *member) bool {
	if m.proxy {
		return q.inPartition(q.port, g.rec.PKey)
	}
	return q.f.Ports[q.port].GUID == m.guid
}

// sameParams compares the components that must be those of the group.
func (q *query) sameParams(r, g *mad.MCMemberRecord) bool {
	return !(q.has(mad.CompMCQKey) && r.QKey != g.QKey ||
		q.has(mad.CompMCPKey) && !r.PKey.Matches(g.PKey) ||
		q.has(mad.CompMCTClass) && r.TClass != g.TClass ||
		q.has(mad.CompMCSL) && r.SL != g.SL ||
		q.has(mad.CompMCFlowLabel) && r.FlowLabel != g.FlowLabel ||
		q.has(mad.CompMCHopLimit) && r.HopLimit != g.HopLimit)
}

// selectorsMatch applies the selectors for MTU and rate to a group. An MTU or
// rate without a selector does not count, nor does one without a value.
func (q *query) selectorsMatch(r, g *mad.MCMemberRecord) bool {
	return (!q.has(mad.CompMCMTUSel|mad.CompMCMTU) || selects(r.MTUSel, cmpMTU(g.MTU, r.MTU))) &&
		(!q.has(mad.CompMCRateSel|mad.CompMCRate) || selects(r.RateSel, cmpRate(g.Rate, r.Rate)))
}

// selects reports whether a selector takes what compares so with its value.
func selects(s mad.Selector, d int) bool {
	switch s {
	case mad.SelGreater:
		return d > 0
	case mad.SelLess:
		return d < 0
	case mad.SelExact:
		return d == 0
	}
	return true
}

// newGroup makes a group from a join request; it is not known yet.
func (q *query) newGroup(r *mad.MCMemberRecord, port int32) (*group, mad.Status) {
	rec := *r
	rec.PortGID, rec.JoinState, rec.ProxyJoin = ib.GID{}, 0, false
	if !q.has(mad.CompMCMLID) {
		rec.MLID = 0
	}
	switch {
	case rec.MGID.IsZero():
		scope := uint8(mad.ScopeLinkLocal)
		if q.has(mad.CompMCScope) {
			scope = r.Scope
		}
		rec.MGID = q.newMGID(scope)
	case !q.validMGID(&rec):
		return nil, mad.StatusSAReqInvalid
	}
	rec.Scope = rec.MGID.Scope()
	link := q.linkAttr(port)
	if q.f.Ports[port].Num == 0 {
		link = pathAttr{ib.MTU2048, 3}
		if m := q.f.Ports[port].Info.MTUCap(); m.IsValid() {
			link.mtu = m
		}
	}
	if !q.has(mad.CompMCMTUSel | mad.CompMCMTU) {
		rec.MTU = link.mtu
	} else {
		switch r.MTUSel {
		case mad.SelGreater:
			if rec.MTU = link.mtu; rec.MTU <= r.MTU {
				return nil, mad.StatusSAReqInvalid
			}
		case mad.SelLess:
			rec.MTU = min(link.mtu, r.MTU-1)
		case mad.SelBest:
			rec.MTU = link.mtu
		}
	}
	if !q.has(mad.CompMCRateSel | mad.CompMCRate) {
		rec.Rate = link.rate
	} else {
		switch r.RateSel {
		case mad.SelGreater:
			if rec.Rate = link.rate; !r.Rate.Less(rec.Rate) {
				return nil, mad.StatusSAReqInvalid
			}
		case mad.SelLess:
			if rec.Rate = link.rate; !rec.Rate.Less(r.Rate) {
				rec.Rate = ib.RateAtMost(r.Rate.Tenths() - 1)
			}
		case mad.SelBest:
			rec.Rate = link.rate
		}
	}
	if !rec.MTU.IsValid() || !rec.Rate.IsValid() {
		return nil, mad.StatusSAReqInvalid
	}
	switch life := r.LifeTime; {
	case !q.has(mad.CompMCLifeTimeSel | mad.CompMCLifeTime):
		rec.LifeTime = q.cfg.PacketLife
	case r.LifeTimeSel == mad.SelGreater:
		if life == 63 {
			return nil, mad.StatusSAReqInvalid
		}
		rec.LifeTime = max(q.cfg.PacketLife, life+1)
	case r.LifeTimeSel == mad.SelLess:
		if life == 0 {
			return nil, mad.StatusSAReqInvalid
		}
		rec.LifeTime = min(q.cfg.PacketLife, life-1)
	case r.LifeTimeSel == mad.SelBest:
		rec.LifeTime = q.cfg.PacketLife
	}
	rec.MTUSel, rec.RateSel, rec.LifeTimeSel = mad.SelExact, mad.SelExact, mad.SelExact
	return &group{rec: rec, members: map[ib.GUID]*member{}}, mad.StatusOK
}

// validMGID checks an MGID that a request names for a new group (IBTA
// 15.2.5.17.2, o15-0.1.6). A group of IPoIB needs the broadcast group of its
// partition and scope and the same parameters (RFC 4391 section 6).
func (q *query) validMGID(r *mad.MCMemberRecord) bool {
	id := r.MGID
	switch {
	case !id.IsMulticast():
		return false
	case id.IsIP():
		// The MGID has the P_Key as the members wrote it.
		all := partition.BroadcastMGID(id.GroupPKey()).WithScope(id.Scope()).WithGroupPKey(id.GroupPKey())
		if id == all {
			return true
		}
		b := q.groups[all]
		return b != nil && q.sameParams(r, &b.rec)
	case id.Flags()&^1 != 0:
		return false // flags other than "transient" are reserved
	case id.IsAssigned() && id.Scope() == mad.ScopeLinkLocal:
		return false // those the SA itself assigns
	}
	return true
}

// newMGID makes up an MGID.
func (q *query) newMGID(scope uint8) (id ib.GID) {
	for {
		id = ib.AssignedMGID(scope, q.f.Prefix, q.mgidSeq)
		q.mgidSeq++
		if q.groups[id] == nil {
			return id
		}
	}
}

// leave takes join states from a member (IBTA 15.2.5.17.3).
func (q *query) leave() mad.Status {
	var r mad.MCMemberRecord
	if st := q.decodeJoin(&r); st != mad.StatusOK {
		return st
	}
	guid := r.PortGID.GUID()
	g := q.groups[r.MGID]
	if g == nil {
		return mad.StatusSAReqInvalid
	}
	m := g.members[guid]
	if m == nil || r.JoinState == 0 || r.JoinState&^m.state != 0 || !q.mayModify(g, m) {
		return mad.StatusSAReqInvalid
	}
	had := m.receives()
	m.state &^= r.JoinState
	left := m.state
	q.touch()
	if left == 0 {
		q.dropMember(g, guid)
	}
	q.changes.Groups = left == 0 || had != m.receives()
	q.answerMember(g, &r, left, m.proxy)
	q.changes.add(q.reap(g))
	return mad.StatusOK
}

// findMembers answers queries for groups and members. Members are shown to trusted
// requests, and to any request that names the port.
func (q *query) findMembers() mad.Status {
	var r mad.MCMemberRecord
	if st := q.decodeMember(&r); st != mad.StatusOK {
		return st
	}
	one := func(g *group) {
		m := &g.rec
		if q.has(mad.CompMCMGID) && r.MGID != m.MGID || q.has(mad.CompMCMLID) && r.MLID != m.MLID ||
			!q.all && !q.inPartition(q.port, m.PKey) || !q.sameParams(&r, m) || !q.selectorsMatch(&r, m) ||
			q.has(mad.CompMCScope) && r.Scope != m.Scope ||
			q.has(mad.CompMCLifeTimeSel|mad.CompMCLifeTime) && !selects(r.LifeTimeSel, cmp.Compare(m.LifeTime, r.LifeTime)) {
			return
		}
		emit := func(guid ib.GUID, x *member) {
			if q.has(mad.CompMCJoinState) && x.state != r.JoinState || q.has(mad.CompMCProxyJoin) && x.proxy != r.ProxyJoin {
				return
			}
			out := *m
			if q.trusted {
				out.PortGID, out.JoinState, out.ProxyJoin = ib.MakeGID(q.f.Prefix, guid), x.state, x.proxy
			}
			q.out = out.Append(q.out)
			q.took()
		}
		switch {
		case q.has(mad.CompMCPortGID):
			if x := g.members[r.PortGID.GUID()]; x != nil && q.validPrefix(r.PortGID) {
				emit(r.PortGID.GUID(), x)
			}
		case q.trusted:
			for _, k := range g.sortedMembers() {
				if !q.full {
					emit(k, g.members[k])
				}
			}
		default:
			if q.has(mad.CompMCJoinState) && r.JoinState&mad.JoinFull == 0 || q.has(mad.CompMCProxyJoin) && r.ProxyJoin {
				return
			}
			q.out = m.Append(q.out)
			q.took()
		}
	}
	if q.has(mad.CompMCMGID) {
		if g := q.groups[r.MGID]; g != nil {
			one(g)
		}
		return mad.StatusOK
	}
	for _, g := range q.sortedGroups() {
		if q.enough() {
			break
		}
		one(g)
	}
	return mad.StatusOK
}
