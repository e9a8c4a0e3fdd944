package sa

import (
	"cmp"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// subscription is an InformInfo that a port has set.
type subscription struct {
	owner ib.GUID // port GUID of the subscriber
	gid   ib.GID
	lid   ib.LID
	info  mad.InformInfo // QPN is where reports go
	// trusted subscribers get security traps too.
	trusted bool
}

// same reports whether an InformInfo names this subscription: all that decides
// what is reported and where to (IBTA 13.4.8.3).
func (x *subscription) same(owner ib.GUID, i *mad.InformInfo) bool {
	a, b := x.info, *i
	a.Subscribe, b.Subscribe, a.RespTimeValue, b.RespTimeValue = false, false, 0, 0
	return x.owner == owner && a == b
}

func (q *query) setInformInfo() mad.Status {
	var i mad.InformInfo
	if i.Decode(q.data) != nil || mad.InformInfoReserved(q.data) {
		return mad.StatusSAReqInvalid
	}
	// Security traps are for the trusted (IBTA C15-0.2-1.16). They carry keys.
	if !q.trusted && i.Generic && isSecurity(i.TrapNumber) {
		return mad.StatusSAReqInvalid
	}
	me := &q.f.Ports[q.port]
	// Reports go to the queue pair that the request came from; in an
	// unsubscription the field says which one had subscribed.
	if i.Subscribe || i.QPN == 0 {
		i.QPN = q.req.QP
	}
	own := q.subsOf[me.GUID]
	at := slices.IndexFunc(own, func(x *subscription) bool { return x.same(me.GUID, &i) })
	if !i.Subscribe {
		if at < 0 {
			return mad.StatusSAReqInvalid
		}
		q.dropSubscription(own[at])
	} else {
		if !q.mayWatch(&i) {
			return mad.StatusSAReqInvalid
		}
		if at < 0 {
			if len(q.subs) >= q.cfg.MaxSubscriptions || q.perPort[me.GUID] >= q.cfg.MaxPerPort {
				return mad.StatusSANoResources
			}
			x := &subscription{owner: me.GUID}
			q.subs = append(q.subs, x)
			at, own = len(own), append(own, x)
			q.subsOf[me.GUID] = own
			q.perPort[me.GUID]++
		}
		q.touch()
		*own[at] = subscription{owner: me.GUID, gid: ib.MakeGID(q.f.Prefix, me.GUID), lid: q.req.LID, info: i, trusted: q.trusted}
	}
	q.out = append(q.out, q.data[:mad.InformInfoLen]...)
	q.took()
	return mad.StatusOK
}

func isSecurity(trap uint16) bool { return trap >= mad.TrapBadMKey && trap <= mad.TrapSwitchBadPKey }

func (s *Service) dropSubscription(x *subscription) {
	s.touch()
	s.release(x.owner)
	is := func(y *subscription) bool { return x == y }
	s.subs = slices.DeleteFunc(s.subs, is)
	if own := slices.DeleteFunc(s.subsOf[x.owner], is); len(own) > 0 {
		s.subsOf[x.owner] = own
	} else {
		delete(s.subsOf, x.owner)
	}
}

// mayWatch reports whether the requester may talk to the ports that a
// subscription names (IBTA o13-14.1.1).
func (q *query) mayWatch(i *mad.InformInfo) bool {
	if !i.GID.IsZero() {
		p := q.byGUID(i.GID.GUID())
		return p != fabric.None && q.visible(p)
	}
	if i.LIDRangeBegin == ib.LIDPermissive {
		return true
	}
	end := cmp.Or(i.LIDRangeEnd, i.LIDRangeBegin)
	if int(i.LIDRangeBegin) >= len(q.owner) {
		return false
	}
	for l := int(i.LIDRangeBegin); l <= min(int(end), len(q.owner)-1); l++ {
		if p := q.owner[l]; p != fabric.None && !q.visible(p) {
			return false
		}
	}
	return true
}

func (q *query) informRecords() mad.Status {
	for _, x := range q.subs {
		p := q.f.EndPortByGUID(x.owner)
		if p == fabric.None || !q.visible(p) || q.enough() {
			continue
		}
		r := mad.InformInfoRecord{SubscriberGID: x.gid, Info: x.info}
		if !q.trusted {
			r.Info.QPN = 0
		}
		if q.all && x.trusted {
			r.Enum = trustedEnum
		}
		q.emit(r.Append(q.out), mad.InformLayout)
	}
	return mad.StatusOK
}

// dropSubscribers forgets subscribers that left the subnet and follows those
// whose LID changed.
func (s *Service) dropSubscribers() {
	s.subs = slices.DeleteFunc(s.subs, func(x *subscription) bool {
		p := s.f.EndPortByGUID(x.owner)
		if p == fabric.None {
			s.release(x.owner)
			s.touch()
			delete(s.subsOf, x.owner)
			return true
		}
		port := &s.f.Ports[p]
		if x.lid < port.LID || int(x.lid) >= int(port.LID)+port.LMC.Count() {
			x.lid = port.LID
		}
		x.gid = ib.MakeGID(s.f.Prefix, port.GUID)
		return false
	})
}

// event makes the reports of a port's coming or going.
func (s *Service) event(out []Report, trap uint16, gid ib.GID, port int32) []Report {
	n := s.notice(trap, gid)
	return s.forward(out, &n, func(sub int32) bool { return port == fabric.None || sub == port || s.sharedKey(sub, port) != 0 })
}

// groupEvent makes the reports of a group's creation or deletion, for the
// members of its partition.
func (s *Service) groupEvent(out []Report, trap uint16, g *group) []Report {
	n := s.notice(trap, g.rec.MGID)
	return s.forward(out, &n, func(sub int32) bool { return s.inPartition(sub, g.rec.PKey) })
}

// notice is a notice of the SA itself about a GID.
func (s *Service) notice(trap uint16, gid ib.GID) mad.Notice {
	n := mad.Notice{Generic: true, Type: mad.NoticeSubnMgmt, Producer: mad.ProducerClassMgr, TrapNumber: trap}
	n.SetDetailGID(gid)
	if sm := s.f.SMPort; sm != fabric.None {
		n.IssuerLID = s.f.Ports[sm].LID
		n.IssuerGID = ib.MakeGID(s.f.Prefix, s.f.Ports[sm].GUID)
	}
	return n
}

// Forward makes the reports of a trap that the subnet manager received from a
// port of the subnet.
func (s *Service) Forward(n mad.Notice) []Report {
	if s.f == nil {
		return nil
	}
	p := s.byLID(n.IssuerLID)
	if p == fabric.None {
		return nil
	}
	n.IssuerGID = ib.MakeGID(s.f.Prefix, s.f.Ports[p].GUID)
	return s.forward(nil, &n, func(sub int32) bool { return sub == p || s.sharedKey(sub, p) != 0 })
}

// forward makes a report for each subscription that a notice fits.
func (s *Service) forward(out []Report, n *mad.Notice, allowed func(subscriber int32) bool) []Report {
	for _, x := range s.subs {
		if !x.wants(n) || n.Generic && isSecurity(n.TrapNumber) && !x.trusted {
			continue
		}
		if len(out) >= s.cfg.MaxReports {
			s.counters.Unsent++
			continue
		}
		p := s.f.EndPortByGUID(x.owner)
		if p == fabric.None || !allowed(p) {
			continue
		}
		r := Report{LID: x.lid, QP: x.info.QPN}
		h := mad.SAHeader{Header: mad.Header{BaseVersion: mad.BaseVer, Class: mad.ClassSA, ClassVersion: mad.SAClassV,
			Method: mad.MethodReport, Attr: mad.AttrNotice}}
		h.Put(&r.MAD)
		n.Append(r.MAD[:mad.SADataOffset])
		out = append(out, r)
		s.counters.Reports++
	}
	return out
}

// wants applies the matching rules of IBTA 13.4.8.3: a field of all ones takes
// anything, a GID goes before a LID range.
func (x *subscription) wants(n *mad.Notice) bool {
	i := &x.info
	switch {
	case !i.GID.IsZero():
		if i.GID != n.IssuerGID {
			return false
		}
	case i.LIDRangeBegin != ib.LIDPermissive:
		end := cmp.Or(i.LIDRangeEnd, i.LIDRangeBegin)
		if n.IssuerLID < i.LIDRangeBegin || n.IssuerLID > end {
			return false
		}
	}
	return i.Generic == n.Generic && (i.Type == 0xffff || i.Type == uint16(n.Type)) &&
		(i.TrapNumber == mad.TrapAll || i.TrapNumber == n.TrapNumber) &&
		(i.Producer == 0xffffff || i.Producer == n.Producer)
}
