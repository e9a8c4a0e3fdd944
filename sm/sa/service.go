package sa

import (
	"bytes"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// serviceID is what makes a service record different from others (IBTA
// 15.2.5.14, the RID).
type serviceID struct {
	id   uint64
	gid  ib.GID
	pkey ib.PKey
}

func (a serviceID) less(b serviceID) int {
	switch {
	case a.id != b.id:
		if a.id < b.id {
			return -1
		}
		return 1
	case a.gid != b.gid:
		return bytes.Compare(a.gid[:], b.gid[:])
	}
	return int(a.pkey) - int(b.pkey)
}

type service struct {
	rec    mad.ServiceRecord
	owner  ib.GUID       // the port that registered it
	expire time.Duration // 0: never
}

// sortedServices gives the keys of the services in order.
func (s *Service) sortedServices() []serviceID {
	if s.serviceOrder == nil {
		s.serviceOrder = make([]serviceID, 0, len(s.services))
		for k := range s.services {
			s.serviceOrder = append(s.serviceOrder, k)
		}
		slices.SortFunc(s.serviceOrder, serviceID.less)
	}
	return s.serviceOrder
}

// mayReplace reports whether the requester may replace or delete a record: the port
// that registered it, one that knows its key, and trusted ones. A record without a
// key may be replaced by any (IBTA 15.2.5.14).
func (q *query) mayReplace(x *service, r *mad.ServiceRecord) bool {
	return x.rec.Key == [16]byte{} || q.trusted || x.owner == q.f.Ports[q.port].GUID || x.rec.Key == r.Key
}

// serviceKey is the key of a record; a request without a P_Key means the
// default partition.
func (q *query) serviceKey(r *mad.ServiceRecord) serviceID {
	if !q.has(mad.CompSRPKey) || !r.PKey.IsValid() {
		r.PKey = ib.DefaultPKey
	}
	return serviceID{r.ServiceID, r.GID, r.PKey}
}

// validService checks that the requester, and the port of the service, belong
// to the partition that the request names.
func (q *query) validService(r *mad.ServiceRecord) bool {
	if !q.has(mad.CompSRPKey) || !r.PKey.IsValid() {
		return true
	}
	if !q.inPartition(q.port, r.PKey) {
		return false
	}
	if q.has(mad.CompSRGID) && !r.GID.IsMulticast() {
		p := q.byGUID(r.GID.GUID())
		return p != fabric.None && q.inPartition(p, r.PKey)
	}
	return true
}

// answerService emits a record. The service key is a secret of who registered
// it: others get zeros.
func (q *query) answerService(r mad.ServiceRecord) {
	if !q.trusted {
		r.Key = [16]byte{}
	}
	q.out = r.Append(q.out)
	q.took()
}

func (q *query) findServices() mad.Status {
	var r mad.ServiceRecord
	if r.Decode(q.data) != nil || !q.validService(&r) {
		return mad.StatusSAReqInvalid
	}
	buf := make([]byte, 0, mad.ServiceRecordLen)
	for _, k := range q.sortedServices() {
		if q.full {
			break
		}
		x := q.services[k]
		if !q.all && !q.inPartition(q.port, x.rec.PKey) {
			continue
		}
		// Two limited members of a partition cannot use each other's services.
		if p := q.byGUID(x.rec.GID.GUID()); !x.rec.GID.IsMulticast() && p != fabric.None && !q.visible(p) {
			continue
		}
		rec := q.leaseLeft(x)
		buf = rec.Append(buf[:0])
		if mad.ServiceLayout.Matches(buf, q.data, q.h.CompMask) && (!q.has(mad.CompSRLease) || rec.Lease == r.Lease) {
			q.answerService(rec)
		}
	}
	return mad.StatusOK
}

// leaseLeft is the record with the lease that it has left, in whole seconds.
func (s *Service) leaseLeft(x *service) mad.ServiceRecord {
	r := x.rec
	if x.expire != 0 {
		r.Lease = uint32(max(0, (x.expire-s.now+time.Second-1)/time.Second))
	}
	return r
}

func (q *query) setService() mad.Status {
	var r mad.ServiceRecord
	if r.Decode(q.data) != nil || !q.has(mad.CompSRServiceID|mad.CompSRGID) || !q.validService(&r) {
		return mad.StatusSAReqInvalid
	}
	if !q.has(mad.CompSRLease) {
		r.Lease = mad.LeaseForever
	}
	k := q.serviceKey(&r)
	x := q.services[k]
	if x == nil {
		owner := q.f.Ports[q.port].GUID
		if len(q.services) >= q.cfg.MaxServices || q.perPort[owner] >= q.cfg.MaxPerPort {
			return mad.StatusSANoResources
		}
		x = &service{owner: owner}
		q.services[k] = x
		q.serviceOrder = nil
		q.perPort[owner]++
	} else if !q.mayReplace(x, &r) {
		return mad.StatusSADenied
	}
	q.leaseKnown = q.leaseKnown && (x.expire == 0 || x.expire != q.leaseNext)
	x.rec, x.expire = r, 0
	if r.Lease != mad.LeaseForever {
		x.expire = q.now + time.Duration(r.Lease)*time.Second
		if q.leaseNext == 0 || x.expire < q.leaseNext {
			q.leaseNext = x.expire
		}
	}
	q.touch()
	q.answerService(r)
	return mad.StatusOK
}

func (q *query) deleteService() mad.Status {
	var r mad.ServiceRecord
	if r.Decode(q.data) != nil || !q.validService(&r) {
		return mad.StatusSAReqInvalid
	}
	k := q.serviceKey(&r)
	x := q.services[k]
	if x == nil {
		return mad.StatusSANoRecords
	}
	if !q.mayReplace(x, &r) {
		return mad.StatusSADenied
	}
	q.answerService(x.rec)
	q.removeService(k)
	return mad.StatusOK
}

func (s *Service) removeService(k serviceID) {
	x := s.services[k]
	delete(s.services, k)
	s.touch()
	s.serviceOrder = nil
	s.leaseKnown = s.leaseKnown && x.expire != s.leaseNext
	s.release(x.owner)
}

// release gives back one of the things that a port may own.
func (s *Service) release(owner ib.GUID) {
	if s.perPort[owner]--; s.perPort[owner] <= 0 {
		delete(s.perPort, owner)
	}
}

// dropServices forgets services whose registrar left the subnet.
func (s *Service) dropServices() {
	for k := range s.services {
		if s.f.EndPortByGUID(s.services[k].owner) == fabric.None {
			s.removeService(k)
		}
	}
}

// Tick forgets services whose lease has run out. Call it at NextTick or later.
func (s *Service) Tick(now time.Duration) {
	s.now = now
	for k, x := range s.services {
		if x.expire != 0 && x.expire <= now {
			s.removeService(k)
		}
	}
}

// NextTick is when the next lease runs out; ok is false when none will.
func (s *Service) NextTick() (at time.Duration, ok bool) {
	if !s.leaseKnown {
		s.leaseNext, s.leaseKnown = 0, true
		for _, x := range s.services {
			if x.expire != 0 && (s.leaseNext == 0 || x.expire < s.leaseNext) {
				s.leaseNext = x.expire
			}
		}
	}
	return s.leaseNext, s.leaseNext != 0
}
