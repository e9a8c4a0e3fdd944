package units

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/ib"
)

// NextHopObject is one [NextHop]: a nexthop object of the kernel. Id is always set;
// with Group nothing else is.
type NextHopObject struct {
	Section
	ID        Value[uint32] // from 1
	Gateway   Value[netip.Addr]
	Family    Value[Family] // FamilyIPv4 or FamilyIPv6
	OnLink    Value[bool]
	Blackhole Value[bool]
	// Group has no ID twice.
	Group []Value[GroupMember]
}

// Is6 reports an IPv6 nexthop; a group is of no family.
func (n *NextHopObject) Is6() bool {
	if n.Gateway.Set {
		return n.Gateway.V.Is6()
	}
	return n.Family.V == FamilyIPv6
}

// GroupMember is one item of Group=: "id[:weight]", with a weight of 1 to 255.
type GroupMember struct {
	ID     uint32
	Weight int
}

// String prints the item of the unit file.
func (m GroupMember) String() string {
	if m.Weight == 1 {
		return strconv.FormatUint(uint64(m.ID), 10)
	}
	return fmt.Sprintf("%d:%d", m.ID, m.Weight)
}

var nextHopFamilyWords = []word[Family]{{FamilyIPv4, "ipv4"}, {FamilyIPv6, "ipv6"}}

func nextHopSection() SectionSpec {
	type N = NextHopObject
	ess := func(k Key) Key { k.essential = true; return k }
	return SectionSpec{
		Name: "NextHop", Repeat: true, open: func(u *Unit) (any, *Section) { o := &N{}; return o, &o.Section },
		Keys: []Key{
			ess(numKey("Id", 1, math.MaxUint32, true, func(x *N) *Value[uint32] { return &x.ID })),
			{Name: "Gateway", Networkd: true, essential: true,
				apply: scalar(func(x *N) *Value[netip.Addr] { return &x.Gateway }, parseGateway)},
			ess(enumKey("Family", true, nextHopFamilyWords, func(x *N) *Value[Family] { return &x.Family })),
			boolKey("OnLink", true, func(x *N) *Value[bool] { return &x.OnLink }),
			ess(boolKey("Blackhole", true, func(x *N) *Value[bool] { return &x.Blackhole })),
			{Name: "Group", List: true, Networkd: true, essential: true, apply: groupSetter()},
		},
	}
}

// nextHopKey is NextHop= of [Route].
func nextHopKey() Key {
	k := numKey("NextHop", 1, math.MaxUint32, true, func(x *Route) *Value[uint32] { return &x.NextHop })
	k.essential = true
	return k
}

// groupSetter is that of a list without which the section would mean something else.
func groupSetter() setter {
	s := list(func(x *NextHopObject) *[]Value[GroupMember] { return &x.Group }, words, parseGroupMember)
	set := s.set
	s.set = func(p *parser, obj any, a *assign) {
		set(p, obj, a)
		if a.val != "" && len(obj.(*NextHopObject).Group) == 0 {
			p.lose()
		} else {
			p.forgive()
		}
	}
	return s
}

func parseGroupMember(s string) (GroupMember, error) {
	id, weight, weighted := strings.Cut(s, ":")
	n, err := parseUint(id, 1, math.MaxUint32)
	if err != nil {
		return GroupMember{}, fmt.Errorf("%q is not ID[:WEIGHT]: ID %w", ib.Clip(s), err)
	}
	m := GroupMember{ID: uint32(n), Weight: 1}
	if weighted {
		w, err := parseUint(weight, 1, 255)
		if err != nil {
			return GroupMember{}, fmt.Errorf("%q is not ID[:WEIGHT]: weight %w", ib.Clip(s), err)
		}
		m.Weight = int(w)
	}
	return m, nil
}

// nextHop checks a section by itself and against those before it, of which the kernel
// has one for each ID.
func (p *parser) nextHop(x *NextHopObject) bool {
	at := func(key string, pos Place, kept, format string, args ...any) {
		p.at("NextHop", key).problem(pos, Warning, kept, format, args...)
	}
	if !x.ID.Set {
		at("", x.Pos, notUsed, "[NextHop] has no Id=, by which routes and groups name it")
		return false
	}
	id := x.ID.V
	if len(x.Group) > 0 {
		for _, k := range []struct {
			key string
			set bool
			pos Place
		}{{"Gateway", x.Gateway.Set, x.Gateway.Pos}, {"Family", x.Family.Set, x.Family.Pos},
			{"OnLink", x.OnLink.Set && x.OnLink.V, x.OnLink.Pos}, {"Blackhole", x.Blackhole.Set && x.Blackhole.V, x.Blackhole.Pos}} {
			if k.set {
				at(k.key, k.pos, notUsed, "nexthop %d is a group (%s), which has no %s=; write that into the sections of its members",
					id, x.Group[0].Pos, k.key)
				return false
			}
		}
		x.OnLink, x.Blackhole = Value[bool]{}, Value[bool]{}
		p.groupMembers(x)
		if len(x.Group) == 0 {
			return false
		}
	}
	switch gw := x.Gateway; {
	case gw.Set && x.Blackhole.V:
		at("Gateway", gw.Pos, notUsed, "nexthop %d with Blackhole=yes (%s) has no gateway", id, x.Blackhole.Pos)
		return false
	case gw.Set && x.Family.Set && gw.V.Is6() != (x.Family.V == FamilyIPv6):
		at("Family", x.Family.Pos, "the family of Gateway= is used",
			"Family=%s of nexthop %d is not that of Gateway=%s (%s)", x.Family.V, id, gw.V, gw.Pos)
		x.Family = Value[Family]{}
	}
	if !x.Gateway.Set && x.OnLink.Set {
		if x.OnLink.V {
			at("OnLink", x.OnLink.Pos, "the key is ignored", "OnLink=yes of nexthop %d needs Gateway=", id)
		}
		x.OnLink = Value[bool]{}
	}
	// The later one counts, as in systemd-networkd.
	p.u.NextHops = slices.DeleteFunc(p.u.NextHops, func(o NextHopObject) bool {
		same := o.ID.V == id
		if same {
			at("Id", o.ID.Pos, "the first one is not used", "nexthop %d is given twice, again at %s", id, x.ID.Pos)
		}
		return same
	})
	return true
}

// groupMembers leaves out members that the kernel refuses.
func (p *parser) groupMembers(x *NextHopObject) {
	seen := map[uint32]Place{}
	x.Group = slices.DeleteFunc(x.Group, func(m Value[GroupMember]) bool {
		first, twice := seen[m.V.ID]
		switch {
		case m.V.ID == x.ID.V:
			p.at("NextHop", "Group").problem(m.Pos, Warning, "the item is ignored", "nexthop %d is a member of itself", m.V.ID)
		case twice:
			p.at("NextHop", "Group").problem(m.Pos, Warning, "the second one is ignored",
				"nexthop %d is in the group %d twice, first at %s; write a weight to prefer it", m.V.ID, x.ID.V, first)
		default:
			seen[m.V.ID] = m.Pos
			return false
		}
		return true
	})
	if len(x.Group) == 0 {
		p.at("NextHop", "Group").problem(x.Pos, Warning, notUsed, "the group %d has no member", x.ID.V)
	}
}

// routeNextHop checks NextHop= against the keys of a route that say the same, and
// those with which the kernel refuses it.
func (p *parser) routeNextHop(x *Route, is6 bool) bool {
	n := x.NextHop
	bad := func(format string, args ...any) bool {
		p.at("Route", "NextHop").problem(n.Pos, Warning, notUsed, format, args...)
		return false
	}
	switch {
	case x.Gateway.Set:
		return bad("NextHop=%d and Gateway=%s (%s) exclude each other", n.V, x.Gateway.V, x.Gateway.Pos)
	case len(x.MultiPathRoute) > 0:
		return bad("NextHop=%d and MultiPathRoute= (%s) exclude each other", n.V, x.MultiPathRoute[0].Pos)
	case x.GatewayOnLink.Set && x.GatewayOnLink.V:
		return bad("NextHop=%d and GatewayOnLink=yes (%s) exclude each other; write OnLink=yes in [NextHop]", n.V, x.GatewayOnLink.Pos)
	case x.Type.Set && x.Type.V != RouteUnicast:
		return bad("a route of type %s (%s) leads over no nexthop; write Blackhole=yes in [NextHop] to discard packets",
			x.Type.V, x.Type.Pos)
	case !is6 && x.Scope.Set && x.Scope.V >= ScopeHost:
		return bad("a route of scope %s (%s) leads over no gateway and no group, so not over NextHop=%d; remove Scope=",
			x.Scope.V, x.Scope.Pos, n.V)
	case is6 && x.Source.Set:
		return bad("the kernel has no IPv6 routes with both NextHop= and Source= (%s)", x.Source.Pos)
	}
	return true
}

// checkNextHops finds groups and routes that the kernel refuses for what the unit's own
// nexthops are. Others may be of other units or programs.
func (p *parser) checkNextHops() {
	u := p.u
	own := map[uint32]*NextHopObject{}
	for i := range u.NextHops {
		own[u.NextHops[i].ID.V] = &u.NextHops[i]
	}
	u.NextHops = slices.DeleteFunc(slices.Clone(u.NextHops), func(n NextHopObject) bool {
		for _, m := range n.Group {
			o := own[m.V.ID]
			switch {
			case o == nil:
			case len(o.Group) > 0:
				p.at("NextHop", "Group").problem(m.Pos, Warning, notUsed,
					"nexthop %d is a group (%s), and the kernel has no groups of groups: write its members", m.V.ID, o.Pos)
				return true
			case o.Blackhole.V && len(n.Group) > 1:
				p.at("NextHop", "Group").problem(m.Pos, Warning, notUsed,
					"nexthop %d discards packets (%s): a group with it has no other member", m.V.ID, o.Blackhole.Pos)
				return true
			}
		}
		return false
	})
	u.Routes = slices.DeleteFunc(u.Routes, func(r Route) bool {
		o := own[r.NextHop.V]
		if !r.NextHop.Set || o == nil {
			return false
		}
		if !r.Is6() {
			return p.onLinkScope(&r, o, own)
		}
		v4 := len(o.Group) == 0 && !o.Is6()
		for _, m := range o.Group {
			if x := own[m.V.ID]; x != nil && !x.Is6() {
				v4 = true
			}
		}
		if v4 {
			p.at("Route", "NextHop").problem(r.NextHop.Pos, Warning, notUsed,
				"the IPv6 route to %s cannot lead over nexthop %d, which is IPv4 (%s)", r.dest(), r.NextHop.V, o.Pos)
		}
		return v4
	})
}

// onLinkScope reports a route of a scope that the kernel refuses over a nexthop with
// OnLink=, or over a group with such a one.
func (p *parser) onLinkScope(r *Route, n *NextHopObject, own map[uint32]*NextHopObject) bool {
	all := []*NextHopObject{n}
	for _, m := range n.Group {
		if x := own[m.V.ID]; x != nil {
			all = append(all, x)
		}
	}
	i := slices.IndexFunc(all, func(x *NextHopObject) bool { return x.OnLink.V })
	if i < 0 || !r.Scope.Set || r.Scope.V < ScopeLink {
		return false
	}
	p.at("Route", "NextHop").problem(r.NextHop.Pos, Warning, notUsed,
		"a route of scope %s (%s) cannot lead over nexthop %d with OnLink=yes (%s); remove Scope=", r.Scope.V, r.Scope.Pos, all[i].ID.V,
		all[i].OnLink.Pos)
	return true
}

// UsesNextHops reports that the unit has nexthop objects, or routes over some or over
// several links, and so depends on other links.
func (u *Unit) UsesNextHops() bool {
	return len(u.NextHops) > 0 || slices.ContainsFunc(u.Routes, func(r Route) bool { return r.NextHop.Set || len(r.MultiPathRoute) > 0 })
}
