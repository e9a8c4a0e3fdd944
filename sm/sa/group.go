package sa

import (
	"hash/fnv"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
	"ibnetworkd/sm/mcast"
)

type group struct {
	rec     mad.MCMemberRecord  // parameters; PortGID, JoinState and ProxyJoin are of members
	fixed   bool                // made by the configuration, stays without members
	by      ib.GUID             // the port that made it, 0 of those of the configuration
	members map[ib.GUID]*member // by port GUID or alias GUID
}

// member is a port in a group.
type member struct {
	guid  ib.GUID // the port's own
	by    ib.GUID // the port that asked
	state uint8   // join states, bits
	proxy bool    // joined by another port
}

// receives reports whether the member gets the group's packets. Non-members get
// them too: the state says that the group may vanish without them (IBTA
// 10.5.2.1).
func (m *member) receives() bool { return m.state&(mad.JoinFull|mad.JoinNon) != 0 }

// keeps reports whether the group lives on because of the member.
func (m *member) keeps() bool { return m.state&(mad.JoinFull|mad.JoinSendOnlyFull) != 0 }

func (g *group) sortedMembers() []ib.GUID {
	out := make([]ib.GUID, 0, len(g.members))
	for k := range g.members {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// NumGroups is the number of groups, those that are there from the start and
// have no member yet included.
func (s *Service) NumGroups() int { return len(s.groups) }

// Groups gives what the multicast tables are made of, by MGID.
func (s *Service) Groups() []mcast.Group {
	if s.f == nil {
		return nil
	}
	out := make([]mcast.Group, 0, len(s.groups))
	for _, g := range s.sortedGroups() {
		if len(g.members) == 0 {
			continue
		}
		x := mcast.Group{MLID: g.rec.MLID, Members: make([]mcast.Member, 0, len(g.members))}
		for _, k := range g.sortedMembers() {
			m := g.members[k]
			if p := s.f.EndPortByGUID(m.guid); p != fabric.None {
				x.Members = append(x.Members, mcast.Member{Port: p, SendOnly: !m.receives()})
			}
		}
		out = append(out, x)
	}
	return out
}

// GroupInfo describes a group for people.
type GroupInfo struct {
	Record  mad.MCMemberRecord
	Members int
	Fixed   bool // made by the configuration
}

// GroupList describes all groups, by MGID.
func (s *Service) GroupList() []GroupInfo {
	out := make([]GroupInfo, 0, len(s.groups))
	for _, g := range s.sortedGroups() {
		out = append(out, GroupInfo{g.rec, len(g.members), g.fixed})
	}
	return out
}

// updateGroups makes the groups of the configuration, adapts their parameters
// and drops members that are gone or no longer in the partition.
func (s *Service) updateGroups() (c Changes) {
	wanted := map[ib.GID]bool{}
	for _, w := range s.state.Groups {
		wanted[w.MGID] = true
		rec := mad.MCMemberRecord{MGID: w.MGID, QKey: w.QKey, MTUSel: mad.SelExact, MTU: w.MTU, TClass: w.TClass, PKey: w.PKey,
			RateSel: mad.SelExact, Rate: w.Rate, LifeTimeSel: mad.SelExact, LifeTime: s.cfg.PacketLife, SL: w.SL,
			FlowLabel: w.FlowLabel, HopLimit: w.HopLimit, Scope: w.Scope}
		g := s.groups[w.MGID]
		if g == nil {
			mlid, ok := s.newMLID(&rec, true)
			if !ok {
				continue // every switch's table is full; a later sweep tries again
			}
			rec.MLID = mlid
			s.addGroup(&group{rec: rec, fixed: true, members: map[ib.GUID]*member{}})
			continue
		}
		g.fixed = true
		if g.by != 0 { // restored: who made it is not known
			if s.made[g.by]--; s.made[g.by] <= 0 {
				delete(s.made, g.by)
			}
			g.by = 0
		}
		// A group of the slowest member's speed gets slower at once, for
		// the slow one could not join; it gets faster only while empty,
		// so that hosts do not register again each time one goes to sleep.
		if len(g.members) > 0 {
			if w.AutoMTU && rec.MTU > g.rec.MTU {
				rec.MTU = g.rec.MTU
			}
			if w.AutoRate && g.rec.Rate.Less(rec.Rate) {
				rec.Rate = g.rec.Rate
			}
		}
		rec.MLID = g.rec.MLID
		if rec != g.rec {
			g.rec = rec
			s.touch()
			for _, k := range g.sortedMembers() {
				if own := g.members[k].guid; s.f.EndPortByGUID(own) != fabric.None && !slices.Contains(c.Reregister, own) {
					c.Reregister = append(c.Reregister, own)
				}
			}
		}
	}
	for _, g := range slices.Clone(s.sortedGroups()) {
		if g.fixed && !wanted[g.rec.MGID] {
			g.fixed = false
		}
		before := len(g.members)
		for _, k := range g.sortedMembers() {
			p := s.f.EndPortByGUID(g.members[k].guid)
			if p == fabric.None || !s.inPartition(p, g.rec.PKey) {
				s.dropMember(g, k)
			}
		}
		if len(g.members) != before {
			c.Groups = true
		}
		c.add(s.reap(g))
	}
	return c
}

func (s *Service) addGroup(g *group) {
	s.groups[g.rec.MGID] = g
	s.mlids[g.rec.MLID]++
	if g.by != 0 {
		s.made[g.by]++
	}
	s.order = nil
}

// groupShare is how many groups one port may create, so that one host cannot use
// up all: a quarter of the multicast LIDs that fit all switches, 64 at least,
// MaxGroupsPerPort at most.
func (s *Service) groupShare() int {
	return min(s.cfg.MaxGroupsPerPort, max(s.mlidCap/4, 64))
}

// reap deletes a group without members that keep it.
func (s *Service) reap(g *group) (c Changes) {
	if g.fixed {
		return c
	}
	for _, m := range g.members {
		if m.keeps() {
			return c
		}
	}
	c.Groups = len(g.members) > 0
	c.Reports = s.groupEvent(nil, mad.TrapMcastGroupDeleted, g)
	for k := range g.members {
		s.dropMember(g, k)
	}
	s.dropGroup(g)
	return c
}

// dropGroup removes a group without members.
func (s *Service) dropGroup(g *group) {
	delete(s.groups, g.rec.MGID)
	if g.by != 0 {
		if s.made[g.by]--; s.made[g.by] <= 0 {
			delete(s.made, g.by)
		}
	}
	if s.mlids[g.rec.MLID]--; s.mlids[g.rec.MLID] == 0 {
		delete(s.mlids, g.rec.MLID)
	}
	s.order = nil
}

// dropMember takes a member out of a group.
func (s *Service) dropMember(g *group, key ib.GUID) {
	by := g.members[key].by
	delete(g.members, key)
	s.touch()
	s.members--
	if s.joins[by]--; s.joins[by] <= 0 {
		delete(s.joins, by)
	}
}

// newMLID finds a multicast LID for a group: the one asked for if it is free,
// the lowest free one for groups of the configuration, and for others one that
// follows from the MGID. The next manager gives most groups the same LID then,
// and the tables that the last one left go on serving them. When all are taken,
// groups of IPoIB that agree in everything share one, for IP filters by MGID
// anyway.
func (s *Service) newMLID(rec *mad.MCMemberRecord, fixed bool) (ib.LID, bool) {
	free := func(n int) (ib.LID, bool) {
		l := ib.LIDMulticastMin + ib.LID(n)
		return l, n < s.mlidCap && s.mlids[l] == 0
	}
	if rec.MLID.IsMulticast() {
		if l, ok := free(int(rec.MLID - ib.LIDMulticastMin)); ok {
			return l, true
		}
	}
	if len(s.mlids) < s.mlidCap {
		if !fixed {
			// Few blocks of the tables, as long as they are not full.
			window := mlidWindow
			for len(s.mlids)*4 > window*3 {
				window *= 2
			}
			h := fnv.New32a()
			h.Write(rec.MGID[:])
			at := int(h.Sum32() % uint32(window))
			for i := range window {
				if l, ok := free((at + i) % window); ok {
					return l, true
				}
			}
		}
		for n := range s.mlidCap {
			if l, ok := free(n); ok {
				return l, true
			}
		}
	}
	if !rec.MGID.IsIP() {
		return 0, false
	}
	best := ib.LID(0)
	for _, g := range s.sortedGroups() {
		r := &g.rec
		if r.MGID.IsIP() && !g.fixed && r.PKey == rec.PKey && r.SL == rec.SL && r.MTU == rec.MTU && r.Rate == rec.Rate &&
			(best == 0 || s.mlids[r.MLID] < s.mlids[best]) {
			best = r.MLID
		}
	}
	return best, best != 0
}
