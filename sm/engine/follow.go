package engine

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/transport"
)

// followers are the standbys of a master that keep a copy of what hosts registered
// with it. Their polls carry the version of the copy. The answer to one whose copy is
// up to date has a lease: while that lasts, no host gets the answer to a request that
// changed something before the copy has the change. So a copy whose last lease has not
// run out when the master is found dead has all that any host was answered.
type followers struct {
	mu      sync.Mutex
	base    uint64 // of versions, at random for each time as master
	version uint64 // of what the SA has
	whole   bool   // its tables have all of it: set by publish, cleared by begin
	by      map[ib.GUID]*follower
	// early is the last one that asked before its port was known, which gets no lease,
	// and since when.
	early   ib.GUID
	earlyAt time.Time
	// met is the last successor that was chosen without a question from it, and since when.
	met   ib.GUID
	metAt time.Time
}

type follower struct {
	acked  uint64
	first  time.Time // question
	last   time.Time // question
	until  time.Time // end of the lease
	barred time.Time // no lease before that
}

const (
	// copyLease is longer than a standby with the default settings takes to find the
	// master dead.
	copyLease = 1500 * time.Millisecond
	// followersMost bounds the standbys that get leases.
	followersMost = 8
	// deferredLate is how long an answer waits before the standbys that it waits for get no
	// leases for followerBarred; deferredMost bounds the answers that wait.
	deferredLate   = 500 * time.Millisecond
	followerBarred = time.Minute
	deferredMost   = 1 << 13
	// successorWait is how long a handover waits for a successor that has begun a copy,
	// successorAsks for the first question of one, which another program does not send.
	successorWait = 2 * time.Second
	successorAsks = 500 * time.Millisecond
	// followerGone is how long one is remembered that asks no more.
	followerGone = 10 * time.Second
)

// begin is the start as master.
func (f *followers) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.base, f.version, f.whole, f.by, f.early = rand.Uint64()>>1, 0, false, map[ib.GUID]*follower{}, 0
	f.met = 0
}

// end is the end of it.
func (f *followers) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by = nil
}

// publish notes the version of what the SA has.
func (f *followers) publish(version uint64, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version, f.whole = f.base+version, whole
}

// grant answers the question of a standby whose copy has a version; known says that
// the question came from its port.
func (f *followers) grant(g ib.GUID, acked uint64, known bool, now time.Time) (c mad.SMInfoCopy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Version = f.version
	x := f.by[g]
	switch {
	case !known && g != f.early:
		f.early, f.earlyAt = g, now
	case !known || f.by == nil:
	case x == nil && len(f.by) >= followersMost:
		maps.DeleteFunc(f.by, func(_ ib.GUID, o *follower) bool { return now.Sub(o.last) > followerGone })
	case x == nil:
		x = &follower{first: now}
		f.by[g] = x
	}
	if x == nil || !known {
		return c
	}
	x.acked, x.last = acked, now
	if acked-f.base > f.version-f.base {
		x.until = time.Time{} // a version of another master
	}
	// One that had a lease may be behind: what it lacks was not answered.
	if f.whole && now.After(x.barred) && (acked == f.version || now.Before(x.until)) {
		x.until = now.Add(copyLease)
		c.Lease = uint32(copyLease.Milliseconds())
	}
	return c
}

// follows reports whether a port's manager keeps a copy.
func (f *followers) follows(g ib.GUID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.by[g] != nil
}

// now is the version of what the SA has.
func (f *followers) now() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// copied reports whether the answer to what led to a version may be given. With bar,
// those that it waits for get no more leases for a while.
func (f *followers) copied(version uint64, now time.Time, bar bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	ok := true
	for _, x := range f.by {
		// Versions are compared within one time as master.
		if now.Before(x.until) && x.acked-f.base < version-f.base {
			ok = false
			if bar {
				x.barred = now.Add(followerBarred)
			}
		}
	}
	return ok
}

// copying reports whether a successor has begun a copy that is not complete yet, or, as a
// standby, may begin one now that it has been met.
func (f *followers) copying(g ib.GUID, standby bool, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.by[g]; x != nil {
		return f.whole && !now.Before(x.until) && now.After(x.barred) && now.Sub(x.first) < successorWait
	}
	if g == f.early {
		return f.whole && now.Sub(f.earlyAt) < successorWait
	}
	if g != f.met {
		f.met, f.metAt = g, now
	}
	return f.whole && standby && now.Sub(f.metAt) < successorAsks
}

// deferredAnswer waits until the standbys have copied what it acknowledges.
type deferredAnswer struct {
	p       transport.Packet
	version uint64
	at      time.Time
}

// publishVersion lets the receiver answer standbys from what the SA has now.
func (s *Subnet) publishVersion() {
	s.followers.publish(s.served.admin.Version(), s.served.admin.CanCopy() && len(s.served.reregister) == 0)
}

// deferAnswer keeps the answer to a request that changed something while a standby may not
// have the change yet, and reports whether it did.
func (s *Subnet) deferAnswer(p *transport.Packet, now time.Time) bool {
	s.publishVersion()
	v := s.followers.now()
	if len(s.served.deferred) == 0 && s.followers.copied(v, now, false) {
		return false
	}
	if len(s.served.deferred) >= deferredMost {
		mad.SetStatus(&p.MAD, mad.StatusBusy) // to be asked for again
		return false
	}
	s.served.deferred = append(s.served.deferred, deferredAnswer{*p, v, now})
	s.retryDeferred()
	return true
}

// retryDeferred has sendDeferred called again soon.
func (s *Subnet) retryDeferred() {
	if !s.served.deferredTimer {
		s.served.deferredTimer = true
		time.AfterFunc(100*time.Millisecond, func() { s.do(func() { s.served.deferredTimer = false; s.sendDeferred() }) })
	}
}

// sendDeferred sends the answers that wait no longer.
func (s *Subnet) sendDeferred() {
	if s.elect.State() != mad.SMMaster {
		s.served.deferred = nil // to be asked for again, of the next master
	}
	n, now := 0, time.Now()
	for ; n < len(s.served.deferred); n++ {
		h := &s.served.deferred[n]
		if !s.followers.copied(h.version, now, now.Sub(h.at) > deferredLate) {
			break
		}
		if s.put(&h.p) != nil {
			s.counters.Dropped++
		}
	}
	if s.served.deferred = s.served.deferred[n:]; len(s.served.deferred) > 0 {
		s.retryDeferred()
	} else {
		s.served.deferred = nil
	}
}

// answerCopy answers the poll of a standby that keeps a copy, in the receiver. It
// reports whether p is one.
func (s *Subnet) answerCopy(n *standing, p, answer *transport.Packet) bool {
	data := mad.SMPData(&p.MAD)
	q := mad.SMInfoCopyOf(data, true)
	var asker mad.SMInfo
	if n.info.State != mad.SMMaster || q.Proof == [16]byte{} || asker.Decode(data[:]) != nil || asker.GUID == n.info.GUID {
		return false
	}
	nonce, known := *mad.SMInfoProof(data), s.self.senders.Load()
	at := known.port(p)
	if at != fabric.None && known.fab.Ports[at].GUID != asker.GUID ||
		q.Proof != n.trust.CopyProof(nonce, asker.GUID, n.info.GUID, q.Version) {
		return false
	}
	c := s.followers.grant(asker.GUID, q.Version, at != fabric.None, time.Now())
	out := mad.SMPData(&answer.MAD)
	mad.PutSMInfoCopy(out, c)
	*mad.SMInfoProof(out) = n.trust.CopyAnswer(nonce, asker.GUID, n.info.GUID, c)
	return true
}
