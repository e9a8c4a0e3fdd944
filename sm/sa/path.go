package sa

import (
	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/qos/policy"
)

// pathAttr is what all links of a path can carry.
type pathAttr struct {
	mtu  ib.MTU
	rate ib.Rate
}

func (a pathAttr) and(b pathAttr) pathAttr {
	if b.mtu < a.mtu {
		a.mtu = b.mtu
	}
	if a.rate == 0 || b.rate != 0 && b.rate.Less(a.rate) {
		a.rate = b.rate
	}
	return a
}

// walk follows the forwarding tables from a port to a LID and sums up what the
// links can carry. A walk is a few steps; remembering results for all pairs would
// take more memory than the tables themselves.
func (s *Service) walk(from int32, dlid ib.LID) (a pathAttr, ok bool) {
	f := s.f
	if s.byLID(dlid) != from {
		a = pathAttr{mtu: ib.MTU4096}
		return a, s.follow(from, dlid, &a)
	}
	if from == fabric.None {
		return a, false
	}
	p := &f.Ports[from]
	if p.Num != 0 {
		return s.linkAttr(from), true
	}
	// Port 0 of a switch has no link.
	m := p.Info.MTUCap()
	if !m.IsValid() {
		m = ib.MTU2048
	}
	return pathAttr{m, p.Info.Rate()}, true
}

// follow reports whether the forwarding tables lead from a port to a LID. It
// adds what each link on the way can carry to a, which may be nil.
func (s *Service) follow(from int32, dlid ib.LID, a *pathAttr) bool {
	to := s.byLID(dlid)
	if to == fabric.None || to == from {
		return to != fabric.None
	}
	out, sw := from, s.f.Nodes[s.f.Ports[from].Node].Switch
	for range len(s.f.Switches) + 2 {
		if sw != fabric.None {
			if int(sw) >= len(s.state.LFT) || int(dlid) >= len(s.state.LFT[sw]) {
				return false
			}
			p, w := s.state.LFT[sw][dlid], &s.switches[sw]
			if p == 0 {
				return w.port0 == to
			}
			if p > w.ports {
				return false
			}
			out = w.port0 + int32(p)
		}
		h := &s.hops[out]
		if h.peer == fabric.None {
			return false
		}
		if a != nil {
			*a = a.and(h.attr)
		}
		if h.peer == to {
			return true
		}
		if sw = h.sw; sw == fabric.None {
			return false
		}
	}
	return false
}

// knownRate replaces rates that a port's software may not know: those of 2x
// widths and of speeds from HDR on came later, and PortInfo:CapabilityMask2 has
// which of them it knows.
func (s *Service) knownRate(r ib.Rate, ports ...int32) ib.Rate {
	const w2x, hdr = mad.Cap2Width2x, mad.Cap2HDR
	for _, p := range ports {
		info := &s.f.Ports[p].Info
		caps := uint16(0)
		if info.CapMask()&mad.CapMask2Supported != 0 {
			caps = info.CapMask2()
		}
		switch {
		case r == ib.Rate28 && caps&w2x == 0:
			r = ib.Rate25
		case r == ib.Rate50 && caps&(w2x|hdr) == 0:
			r = ib.Rate40
		case r.Tenths() >= ib.Rate400.Tenths() && caps&(w2x|hdr) == 0 && info.SpeedExtActive() < mad.SpeedExtHDR:
			r = ib.Rate300
		}
	}
	return r
}

// pathRequest is what PathRecord and MultiPathRecord have in common.
type pathRequest struct {
	mask mad.CompMask // PathRecord's bits
	rec  mad.PathRecord
}

func (r *pathRequest) has(m mad.CompMask) bool { return r.mask&m == m }

// fits applies a selector to a value in force. It returns the value to report.
// Values are compared by cmp, negative when a is less than b.
func fits[T any](have, want T, sel mad.Selector, cmp func(a, b T) int) bool {
	switch sel {
	case mad.SelGreater:
		return cmp(have, want) > 0
	case mad.SelLess:
		return true // a path may be used below what it can do
	case mad.SelExact:
		return cmp(have, want) >= 0
	}
	return true
}

func cmpMTU(a, b ib.MTU) int   { return int(a) - int(b) }
func cmpRate(a, b ib.Rate) int { return a.Tenths() - b.Tenths() }

// limitMTU applies a request's selector to the MTU of a path; false when it cannot
// be met.
func (r *pathRequest) limitMTU(mtu ib.MTU) (ib.MTU, bool) {
	if !r.has(mad.CompPRMTUSel | mad.CompPRMTU) {
		return mtu, true
	}
	if !fits(mtu, r.rec.MTU, r.rec.MTUSel, cmpMTU) {
		return 0, false
	}
	switch {
	case r.rec.MTUSel == mad.SelExact:
		mtu = r.rec.MTU
	case r.rec.MTUSel == mad.SelLess && mtu >= r.rec.MTU:
		mtu = r.rec.MTU - 1
		return mtu, mtu.IsValid()
	}
	return mtu, true
}

// limitRate is limitMTU for the rate.
func (q *query) limitRate(r *pathRequest, rate ib.Rate, src, dst int32) (ib.Rate, bool) {
	if !r.has(mad.CompPRRateSel | mad.CompPRRate) {
		return rate, true
	}
	if !fits(rate, r.rec.Rate, r.rec.RateSel, cmpRate) {
		return 0, false
	}
	switch {
	case r.rec.RateSel == mad.SelExact:
		rate = r.rec.Rate
	case r.rec.RateSel == mad.SelLess && !rate.Less(r.rec.Rate):
		if rate = ib.RateAtMost(r.rec.Rate.Tenths() - 1); rate == 0 {
			return 0, false
		}
		rate = q.knownRate(rate, src, dst)
	}
	return rate, true
}

// limitLife is limitMTU for the packet lifetime: a bound that one may go below,
// as with MTU and rate.
func (r *pathRequest) limitLife(life uint8) (uint8, bool) {
	if !r.has(mad.CompPRLifeTimeSel | mad.CompPRLifeTime) {
		return life, true
	}
	switch want := r.rec.LifeTime; r.rec.LifeTimeSel {
	case mad.SelGreater:
		return life, life > want
	case mad.SelLess:
		if life >= want {
			return want - 1, want > 1
		}
	case mad.SelExact:
		return want, life >= want
	}
	return life, true
}

// path makes the record of one path; ok is false when there is none that meets
// the request.
func (q *query) path(r *pathRequest, src int32, slid ib.LID, dst int32, dlid ib.LID, out *mad.PathRecord) bool {
	if q.work++; q.work > q.cfg.MaxWork {
		q.full = true
		return false
	}
	if slid == 0 {
		return false
	}
	a, ok := q.walk(src, dlid)
	if !ok {
		return false
	}
	*out = mad.PathRecord{
		DLID: dlid, SLID: slid, MTUSel: mad.SelExact, RateSel: mad.SelExact, LifeTimeSel: mad.SelExact,
		DGID: ib.MakeGID(q.f.Prefix, q.f.Ports[dst].GUID), SGID: ib.MakeGID(q.f.Prefix, q.f.Ports[src].GUID),
	}
	// Links are as fast one way as the other, and the tables lead back to every
	// port with a LID: a path is reversible when there is a way back.
	if out.Reversible = q.follow(dst, slid, nil); !out.Reversible && r.has(mad.CompPRReversible) && r.rec.Reversible {
		return false
	}
	rate := a.rate
	life := q.cfg.PacketLife
	if src == dst {
		life = 0
	}
	level := q.level(r, src, dst)
	if level.Has.MTU {
		a.mtu = min(a.mtu, level.MTU)
	}
	if level.Has.Rate && level.Rate.Less(rate) {
		rate = level.Rate
	}
	if level.Has.Life {
		life = min(life, level.Life)
	}
	rate = q.knownRate(rate, src, dst)
	if a.mtu, ok = r.limitMTU(a.mtu); !ok {
		return false
	}
	if rate, ok = q.limitRate(r, rate, src, dst); !ok {
		return false
	}
	if life, ok = r.limitLife(life); !ok {
		return false
	}
	out.MTU, out.Rate, out.LifeTime = a.mtu, rate, life
	switch {
	case r.has(mad.CompPRRawTraffic) && r.rec.RawTraffic:
		out.RawTraffic = true
		if q.sharedKey(src, dst) == 0 {
			return false
		}
	case r.has(mad.CompPRPKey):
		out.PKey = r.rec.PKey
		if !q.shareThis(src, dst, out.PKey) || !level.Allows(out.PKey) {
			return false
		}
	default:
		if out.PKey = q.sharedKey(src, dst); !level.Allows(out.PKey) {
			out.PKey = q.allowedKey(&level, src, dst)
		}
		if out.PKey == 0 {
			return false
		}
	}
	if r.has(mad.CompPRQoSClass) {
		out.QoSClass = r.rec.QoSClass
	}
	sl := q.partitionSL(out.PKey)
	if level.Has.SL {
		sl = level.SL
	}
	if q.state.SL != nil {
		// Layers keep the fabric free of deadlock; they override requests.
		a, _ := q.f.SwitchOf(src)
		b, _ := q.f.SwitchOf(dst)
		if a != fabric.None && b != fabric.None {
			sl = q.state.SL.SL(a, b)
		}
		if r.has(mad.CompPRSL) && r.rec.SL != sl {
			return false
		}
	} else if r.has(mad.CompPRSL) {
		if level.Has.SL && r.rec.SL != sl {
			return false
		}
		sl = r.rec.SL
	}
	out.SL = sl
	return true
}

// level is what the QoS policy has for a path; the zero value limits nothing.
func (q *query) level(r *pathRequest, src, dst int32) (out policy.Level) {
	if q.state.Policy == nil {
		return out
	}
	if l := q.state.Policy.Level(&policy.Request{Source: src, Target: dst, ServiceID: r.rec.ServiceID, PKey: r.rec.PKey, Class: r.rec.QoSClass,
		HasServiceID: r.has(mad.CompPRServiceID), HasPKey: r.has(mad.CompPRPKey), HasClass: r.has(mad.CompPRQoSClass)}); l != nil {
		out = *l
	}
	return out
}

// allowedKey is a key with which two ports may talk that a level allows, 0 if there is
// none.
func (s *Service) allowedKey(l *policy.Level, a, b int32) ib.PKey {
	for _, x := range s.keys(a) {
		if x.IsValid() && l.Allows(x) && s.shareThis(a, b, x) {
			return x
		}
	}
	return 0
}

// shareThis reports whether two ports may talk with this key: not both limited.
func (s *Service) shareThis(a, b int32, k ib.PKey) bool {
	for _, x := range s.keys(a) {
		if !x.IsValid() || x.Base() != k.Base() {
			continue
		}
		for _, y := range s.keys(b) {
			if x.Matches(y) || a == b {
				return true
			}
		}
	}
	return false
}

func (s *Service) partitionSL(k ib.PKey) ib.SL {
	for i := range s.state.Groups {
		if g := &s.state.Groups[i]; g.PKey.Base() == k.Base() {
			return g.SL
		}
	}
	return 0
}

// side is one end of the paths asked for: a port and the LIDs of it that count,
// or any port.
type side struct {
	port int32 // None: any
	lid  ib.LID
	gid  ib.GID // as it was asked for
	has  bool   // gid is set
}

// statusNone is not sent: it means that nothing can match.
const statusNone mad.Status = 0xffff

// find settles one side from GID and LID.
func (q *query) find(gid ib.GID, hasGID bool, lid ib.LID, hasLID bool) (side, mad.Status) {
	s := side{port: fabric.None}
	if hasGID {
		if !q.validPrefix(gid) {
			return s, mad.StatusSAInvalidGID
		}
		if s.port = q.byGUID(gid.GUID()); s.port == fabric.None {
			return s, mad.StatusSAInvalidGID
		}
		s.gid, s.has = gid, true
	}
	if hasLID {
		p := q.byLID(lid)
		if p == fabric.None {
			return s, statusNone
		}
		if s.port != fabric.None && s.port != p {
			return s, mad.StatusSAReqInvalid
		}
		s.port, s.lid = p, lid
	}
	return s, mad.StatusOK
}

func (q *query) paths() mad.Status {
	r := pathRequest{mask: q.h.CompMask}
	if r.rec.Decode(q.data) != nil {
		return mad.StatusSAReqInvalid
	}
	if r.has(mad.CompPRMTUSel|mad.CompPRMTU) && !r.rec.MTU.IsValid() || r.has(mad.CompPRRateSel|mad.CompPRRate) && !r.rec.Rate.IsValid() {
		return mad.StatusSAReqInvalid
	}
	if m := r.mask & mad.CompPRServiceID; m != 0 && m != mad.CompPRServiceID {
		return mad.StatusSAInsufComps
	}
	src, st := q.find(r.rec.SGID, r.has(mad.CompPRSGID), r.rec.SLID, r.has(mad.CompPRSLID))
	if st == mad.StatusOK && (r.has(mad.CompPRDGID) && r.rec.DGID.IsMulticast() || r.has(mad.CompPRDLID) && r.rec.DLID.IsMulticast()) {
		q.groupPath(&r, src)
		return mad.StatusOK
	}
	var dst side
	if st == mad.StatusOK {
		dst, st = q.findTarget(r.rec.DGID, r.has(mad.CompPRDGID), r.rec.DLID, r.has(mad.CompPRDLID))
	}
	if st == statusNone {
		return mad.StatusOK
	} else if st != mad.StatusOK {
		return st
	}
	limit := 1 << 20
	switch {
	case q.h.Method == mad.MethodGet:
		limit = 1
	case r.has(mad.CompPRNumbPath):
		limit = int(r.rec.NumbPath)
	}
	each := func(s side, f func(side)) {
		if s.port != fabric.None {
			if q.visible(s.port) {
				f(s)
			}
			return
		}
		for _, p := range q.f.EndPorts {
			if q.full || q.n >= 1 && q.h.Method == mad.MethodGet {
				return
			}
			if q.f.Ports[p].LID != 0 && q.visible(p) {
				f(side{port: p})
			}
		}
	}
	each(src, func(a side) { each(dst, func(b side) { q.pair(&r, a, b, limit) }) })
	return mad.StatusOK
}

// pair adds the paths between two ports, at most limit. The LIDs of ports with
// several are paired in step first, which gives paths that share the least.
func (q *query) pair(r *pathRequest, a, b side, limit int) {
	span := func(s side) (ib.LID, int) {
		if s.lid != 0 {
			return s.lid, 1
		}
		p := &q.f.Ports[s.port]
		return p.LID, p.LMC.Count()
	}
	sl, sn := span(a)
	dl, dn := span(b)
	for turn := 0; turn < dn && limit > 0 && !q.full; turn++ {
		for i := 0; i < max(sn, 1) && limit > 0 && !q.full; i++ {
			var rec mad.PathRecord
			if !q.path(r, a.port, sl+ib.LID(i), b.port, dl+ib.LID((i+turn)%dn), &rec) {
				continue
			}
			if a.has {
				rec.SGID = a.gid
			}
			if b.has {
				if rec.DGID = b.gid; !q.validPrefix(b.gid) {
					rec.HopLimit = manyHops
				}
			}
			if r.has(mad.CompPRServiceID) {
				rec.ServiceID = r.rec.ServiceID
			}
			rec.Preference = uint8(min(turn*sn+i, 255))
			q.out = rec.Append(q.out)
			q.took()
			limit--
		}
	}
}

// groupPath answers with the parameters of a multicast group. A source that is
// named must be a member.
func (q *query) groupPath(r *pathRequest, src side) {
	var g *group
	if r.has(mad.CompPRDGID) {
		g = q.groups[r.rec.DGID]
	} else {
		for _, x := range q.sortedGroups() {
			if x.rec.MLID == r.rec.DLID {
				g = x
				break
			}
		}
	}
	if g == nil {
		return
	}
	m := &g.rec
	if r.has(mad.CompPRDLID) && r.rec.DLID != m.MLID || r.has(mad.CompPRPKey) && r.rec.PKey.Base() != m.PKey.Base() ||
		r.has(mad.CompPRSL) && r.rec.SL != m.SL || r.has(mad.CompPRTClass) && r.rec.TClass != m.TClass ||
		r.has(mad.CompPRFlowLabel) && r.rec.FlowLabel != m.FlowLabel || r.has(mad.CompPRHopLimit) && r.rec.HopLimit != m.HopLimit ||
		r.has(mad.CompPRNumbPath) && r.rec.NumbPath == 0 && q.h.Method != mad.MethodGet {
		return
	}
	switch {
	case src.port == fabric.None:
		src.port = q.port
	case src.has && g.members[src.gid.GUID()] == nil, !src.has && g.members[q.f.Ports[src.port].GUID] == nil:
		return
	}
	if !q.visible(src.port) || !q.inPartition(src.port, m.PKey) {
		return
	}
	p := &q.f.Ports[src.port]
	rec := mad.PathRecord{
		DGID: m.MGID, SGID: ib.MakeGID(q.f.Prefix, p.GUID), DLID: m.MLID, SLID: p.LID, FlowLabel: m.FlowLabel, HopLimit: m.HopLimit,
		TClass: m.TClass, PKey: m.PKey, SL: m.SL, MTUSel: mad.SelExact, MTU: m.MTU, RateSel: mad.SelExact, Rate: m.Rate,
		LifeTimeSel: mad.SelExact, LifeTime: m.LifeTime, Reversible: true,
	}
	if src.has {
		rec.SGID = src.gid
	}
	if src.lid != 0 {
		rec.SLID = src.lid
	}
	q.out = rec.Append(q.out)
	q.took()
}

// multiPaths gives paths between any of the sources and any of the destinations.
func (q *query) multiPaths() mad.Status {
	var m mad.MultiPathRecord
	has := func(c mad.CompMask) bool { return q.h.CompMask&c == c }
	if !has(mad.CompMPRSGIDCount | mad.CompMPRDGIDCount) {
		return mad.StatusSAInsufComps
	}
	if m.Decode(q.data) != nil {
		return mad.StatusSAReqInvalid
	}
	if has(mad.CompMPRMTUSel|mad.CompMPRMTU) && !m.MTU.IsValid() || has(mad.CompMPRRateSel|mad.CompMPRRate) && !m.Rate.IsValid() {
		return mad.StatusSAReqInvalid
	}
	if c := q.h.CompMask & mad.CompMPRServiceID; c != 0 && c != mad.CompMPRServiceID {
		return mad.StatusSAInsufComps
	}
	if len(m.SGIDs) == 0 || len(m.DGIDs) == 0 {
		return mad.StatusSAReqInvalid
	}
	type finder func(ib.GID, bool, ib.LID, bool) (side, mad.Status)
	ends := func(gids []ib.GID, find finder) ([]side, mad.Status) {
		out := make([]side, len(gids))
		for i, g := range gids {
			var st mad.Status
			if out[i], st = find(g, true, 0, false); st != mad.StatusOK {
				return nil, st
			}
		}
		return out, mad.StatusOK
	}
	src, st := ends(m.SGIDs, q.find)
	if st != mad.StatusOK {
		return st
	}
	dst, st := ends(m.DGIDs, q.findTarget)
	if st != mad.StatusOK {
		return st
	}
	r := pathRequest{rec: mad.PathRecord{RawTraffic: m.RawTraffic, Reversible: m.Reversible, PKey: m.PKey, SL: m.SL,
		MTUSel: m.MTUSel, MTU: m.MTU,
		RateSel: m.RateSel, Rate: m.Rate, LifeTimeSel: m.LifeTimeSel, LifeTime: m.LifeTime, ServiceID: m.ServiceID, QoSClass: m.QoSClass}}
	for from, to := range multiPathBits {
		if has(from) {
			r.mask |= to
		}
	}
	limit := 1 << 20
	if has(mad.CompMPRNumbPath) {
		limit = int(m.NumbPath)
	}
	for _, a := range src {
		for _, b := range dst {
			if q.n < limit && !q.full && q.visible(a.port) && q.visible(b.port) {
				q.pair(&r, a, b, limit-q.n)
			}
		}
	}
	return mad.StatusOK
}

// multiPathBits translates the components of a MultiPathRecord.
var multiPathBits = map[mad.CompMask]mad.CompMask{
	mad.CompMPRRawTraffic: mad.CompPRRawTraffic, mad.CompMPRReversible: mad.CompPRReversible, mad.CompMPRPKey: mad.CompPRPKey,
	mad.CompMPRSL: mad.CompPRSL, mad.CompMPRMTUSel: mad.CompPRMTUSel, mad.CompMPRMTU: mad.CompPRMTU,
	mad.CompMPRRateSel: mad.CompPRRateSel, mad.CompMPRRate: mad.CompPRRate, mad.CompMPRLifeTimeSel: mad.CompPRLifeTimeSel,
	mad.CompMPRLifeTime: mad.CompPRLifeTime, mad.CompMPRServiceID: mad.CompPRServiceID, mad.CompMPRQoSClass: mad.CompPRQoSClass,
}
