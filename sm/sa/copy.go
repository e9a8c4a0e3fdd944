package sa

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/sm/fabric"
	"ibnetworkd/sm/mad"
)

// Version changes with everything that hosts have registered: members, services,
// subscriptions and alias GUIDs, and with the service levels of paths.
func (s *Service) Version() uint64 { return s.version }

// CanCopy reports whether the tables that a manager is shown have all of it: a
// service that is registered for another port's GID, or for none, has its owner in
// no record.
func (s *Service) CanCopy() bool {
	if s.f == nil {
		return false
	}
	if !s.copyKnown {
		s.copyKnown, s.canCopy = true, true
		for _, x := range s.services {
			if p := s.byGUID(x.rec.GID.GUID()); x.rec.GID.IsMulticast() || p == fabric.None || s.f.Ports[p].GUID != x.owner {
				s.canCopy = false
				break
			}
		}
	}
	return s.canCopy
}

// touch notes that a registration changed.
func (s *Service) touch() {
	s.version++
	s.copyKnown = false
}

// trustedEnum in InformInfoRecord:SubscriberEnum, which only has to tell the
// subscriptions of a port apart, marks one that gets security traps.
const trustedEnum = 0x8000

// Copies are the tables that have what hosts registered with an SA, and the service levels
// that it gave them, in the order in which they are to be read: alias GUIDs last, for
// members may be such.
var Copies = [...]mad.AttrID{mad.AttrPathLevelsRecord, mad.AttrMCMemberRecord, mad.AttrServiceRecord, mad.AttrInformInfoRecord,
	mad.AttrGUIDInfoRecord}

// Registrations are what hosts registered with another SA.
type Registrations struct {
	members  []mad.MCMemberRecord
	services []mad.ServiceRecord
	subs     []mad.InformInfoRecord
	aliases  map[ib.GUID]ib.GUID         // to the port's own
	guids    map[ib.GUID]map[int]ib.GUID // by port and index
	levels   Levels
}

// Levels are the service levels that hosts have of the other SA.
func (r *Registrations) Levels() Levels { return r.levels }

// Members is the number of memberships.
func (r *Registrations) Members() int { return len(r.members) }

// ParseRegistrations reads the answers to GetTable of Copies.
func ParseRegistrations(answers [len(Copies)][]byte) (r Registrations, err error) {
	r.aliases, r.guids = map[ib.GUID]ib.GUID{}, map[ib.GUID]map[int]ib.GUID{}
	var levels []mad.PathLevelsRecord
	for i, b := range answers {
		var h mad.SAHeader
		if h.Decode(b) != nil || h.Attr != Copies[i] || h.Status != 0 {
			return Registrations{}, fmt.Errorf("no table of %ss", mad.AttrName(mad.ClassSA, Copies[i]))
		}
		step, least := int(h.AttrOffset)*8, recordLen[Copies[i]]
		b = b[mad.SADataOffset:]
		if step < least && len(b) >= least {
			return Registrations{}, fmt.Errorf("%ss of %d bytes", mad.AttrName(mad.ClassSA, Copies[i]), step)
		}
		port := ib.GUID(0)
		for ; len(b) >= least; b = b[min(step, len(b)):] {
			if Copies[i] == mad.AttrPathLevelsRecord {
				var x mad.PathLevelsRecord
				_ = x.Decode(b)
				levels = append(levels, x)
			} else if err := r.add(Copies[i], b[:least], &port); err != nil {
				return Registrations{}, err
			}
		}
	}
	if r.levels, err = parseLevels(levels); err != nil {
		return Registrations{}, err
	}
	return r, nil
}

// add takes one record; port is the one that the GUIDInfoRecords before it were of.
func (r *Registrations) add(a mad.AttrID, b []byte, port *ib.GUID) error {
	switch a {
	case mad.AttrMCMemberRecord:
		var m mad.MCMemberRecord
		_ = m.Decode(b)
		r.members = append(r.members, m)
	case mad.AttrServiceRecord:
		var x mad.ServiceRecord
		_ = x.Decode(b)
		r.services = append(r.services, x)
	case mad.AttrInformInfoRecord:
		var x mad.InformInfoRecord
		if err := x.Decode(b); err != nil {
			return err
		}
		r.subs = append(r.subs, x)
	case mad.AttrGUIDInfoRecord:
		var x mad.GUIDInfoRecord
		_ = x.Decode(b)
		if x.Block == 0 {
			*port = x.Info[0]
			x.Info[0] = 0
		}
		for i, g := range x.Info {
			if g == 0 {
				continue
			}
			if _, twice := r.aliases[g]; twice || *port == 0 || g == *port {
				return fmt.Errorf("alias GUID %s of port %s is used twice", g, *port)
			}
			if r.guids[*port] == nil {
				r.guids[*port] = map[int]ib.GUID{}
			}
			r.aliases[g], r.guids[*port][int(x.Block)*8+i] = *port, g
		}
	}
	return nil
}

// Restore begins with what hosts registered with another SA, as it was at a time. It
// leaves out what belongs to ports of the fabric that are gone or not Active: their
// hosts register when they are. SetState is to follow. With an error nothing changes.
func (s *Service) Restore(at time.Duration, r *Registrations, f *fabric.Fabric) (c Changes, err error) {
	n := *s
	n.Forget()
	n.levels = s.levels
	n.now, n.mlidCap = at, multicastLIDs(f)
	keep := func(g ib.GUID) bool {
		p := f.EndPortByGUID(g)
		return p != fabric.None && (f.Ports[p].Num == 0 || f.Ports[p].Info.State() == ib.PortActive)
	}
	for p, m := range r.guids {
		if keep(p) {
			n.guids[p] = m
			for index := range m {
				if b := uint8(index / 8); !slices.ContainsFunc(c.GUIDs, func(g GUIDBlock) bool { return g.Port == p && g.Block == b }) {
					c.GUIDs = append(c.GUIDs, GUIDBlock{p, b, blockOf(p, m, int(b))})
				}
			}
		}
	}
	// own is the port that a GUID belongs to.
	own := func(g ib.GUID) ib.GUID {
		if p, ok := r.aliases[g]; ok {
			return p
		}
		return g
	}
	for i := range r.members {
		m := &r.members[i]
		if p := own(m.PortGID.GUID()); keep(p) {
			if err := n.restoreMember(m, p); err != nil {
				return Changes{}, err
			}
		}
	}
	for i := range r.services {
		x := &r.services[i]
		if p := own(x.GID.GUID()); keep(p) {
			if err := n.restoreService(x, p); err != nil {
				return Changes{}, err
			}
		}
	}
	for i := range r.subs {
		x := &r.subs[i]
		if p := x.SubscriberGID.GUID(); keep(p) {
			if err := n.restoreSubscription(x, p); err != nil {
				return Changes{}, err
			}
		}
	}
	// A group that only members that are gone have kept is gone with them.
	for _, g := range slices.Clone(n.sortedGroups()) {
		if !slices.ContainsFunc(g.sortedMembers(), func(k ib.GUID) bool { return g.members[k].keeps() }) {
			for k := range g.members {
				n.dropMember(g, k)
			}
			n.dropGroup(g)
		}
	}
	*s = n
	s.touch()
	return c, nil
}

var errTooMuch = errors.New("more is registered than this manager keeps")

func (s *Service) restoreMember(r *mad.MCMemberRecord, port ib.GUID) error {
	guid := r.PortGID.GUID()
	rec := *r
	rec.PortGID, rec.JoinState, rec.ProxyJoin = ib.GID{}, 0, false
	rec.MTUSel, rec.RateSel, rec.LifeTimeSel = mad.SelExact, mad.SelExact, mad.SelExact
	g := s.groups[r.MGID]
	switch {
	case !r.MGID.IsMulticast() || !r.MLID.IsMulticast() || int(r.MLID-ib.LIDMulticastMin) >= s.mlidCap || !r.MTU.IsValid() ||
		!r.Rate.IsValid() || !r.PKey.IsValid() || r.JoinState == 0:
		return fmt.Errorf("invalid membership of %s in %s", guid, r.MGID)
	case g != nil && (g.rec != rec || g.members[guid] != nil):
		return fmt.Errorf("group %s has two descriptions, or member %s twice", r.MGID, guid)
	case s.members >= s.cfg.MaxMembers, s.joins[port] >= s.cfg.MaxJoins, g == nil && len(s.groups) >= s.cfg.MaxGroups:
		return errTooMuch
	}
	if g == nil {
		for _, o := range s.groups {
			// As newMLID shares them.
			if o.rec.MLID == rec.MLID && (!o.rec.MGID.IsIP() || !rec.MGID.IsIP() || o.rec.PKey != rec.PKey || o.rec.SL != rec.SL ||
				o.rec.MTU != rec.MTU || o.rec.Rate != rec.Rate) {
				return fmt.Errorf("groups %s and %s have one multicast LID", o.rec.MGID, rec.MGID)
			}
		}
		g = &group{rec: rec, by: port, members: map[ib.GUID]*member{}}
		s.addGroup(g)
	}
	g.members[guid] = &member{guid: port, by: port, state: r.JoinState, proxy: r.ProxyJoin}
	s.joins[port]++
	s.members++
	return nil
}

func (s *Service) restoreService(r *mad.ServiceRecord, port ib.GUID) error {
	k := serviceID{r.ServiceID, r.GID, r.PKey}
	switch {
	case r.GID.IsMulticast() || !r.PKey.IsValid() || s.services[k] != nil:
		return fmt.Errorf("invalid service %#x of %s", r.ServiceID, r.GID)
	case len(s.services) >= s.cfg.MaxServices || s.perPort[port] >= s.cfg.MaxPerPort:
		return errTooMuch
	}
	x := &service{rec: *r, owner: port}
	if r.Lease != mad.LeaseForever {
		x.expire = max(1, s.now+time.Duration(r.Lease)*time.Second)
	}
	s.services[k] = x
	s.serviceOrder, s.leaseKnown = nil, false
	s.perPort[port]++
	return nil
}

func (s *Service) restoreSubscription(r *mad.InformInfoRecord, port ib.GUID) error {
	trusted := r.Enum&trustedEnum != 0
	switch {
	case !r.Info.Subscribe || !trusted && r.Info.Generic && isSecurity(r.Info.TrapNumber),
		slices.ContainsFunc(s.subsOf[port], func(x *subscription) bool { return x.same(port, &r.Info) }):
		return fmt.Errorf("invalid subscription of %s", port)
	case len(s.subs) >= s.cfg.MaxSubscriptions || s.perPort[port] >= s.cfg.MaxPerPort:
		return errTooMuch
	}
	x := &subscription{owner: port, gid: r.SubscriberGID, info: r.Info, trusted: trusted}
	s.subs, s.subsOf[port] = append(s.subs, x), append(s.subsOf[port], x)
	s.perPort[port]++
	return nil
}
