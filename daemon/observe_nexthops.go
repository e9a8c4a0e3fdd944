package daemon

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// nextHopsOf are the IDs of nexthop objects that units or the record name: a router has
// many others. It is nil where there are none.
func nextHopsOf(set *units.Set, rec *link.Record) map[uint32]bool {
	out := map[uint32]bool{}
	for _, u := range set.Units {
		for i := range u.NextHops {
			n := &u.NextHops[i]
			out[n.ID.V] = true
			for _, m := range n.Group {
				out[m.V.ID] = true
			}
		}
		for i := range u.Routes {
			if id, ok := u.Routes[i].NextHop.Get(); ok {
				out[id] = true
			}
		}
	}
	for _, id := range rec.NextHopIDs() {
		out[id] = true
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// observeNextHops reads nexthop objects. The kernel reports none of those that it
// deletes with a link or its carrier, so they are read with links, and with routes.
func (o *Observer) observeNextHops(s *link.Snapshot, want map[uint32]bool) error {
	if want == nil {
		s.NextHops = nil
		return nil
	}
	ids := slices.Sorted(maps.Keys(want))
	var now []link.NextHopObject
	// A group needs its members, to say of which family it is; no group has a group.
	for range 2 {
		raw, err := o.rt.NextHopObjects(ids)
		if errors.Is(err, unix.EOPNOTSUPP) {
			s.NextHops = nil // before Linux 5.3
			return nil
		} else if err != nil {
			return fmt.Errorf("read nexthops: %w", err)
		}
		ids = nil
		for i := range raw {
			now = append(now, nextHopObject(s, &raw[i]))
			for _, m := range raw[i].Group {
				if !want[m.ID] {
					want[m.ID] = true
					ids = append(ids, m.ID)
				}
			}
		}
	}
	slices.SortFunc(now, func(a, b link.NextHopObject) int { return int(int64(a.ID) - int64(b.ID)) })
	if !reflect.DeepEqual(s.NextHops, now) {
		s.NextHops = now
	}
	return nil
}

func nextHopObject(s *link.Snapshot, n *rtnl.NextHopObject) link.NextHopObject {
	out := link.NextHopObject{
		ID: n.ID, Gateway: n.Gateway, Ifindex: n.OutIf, OnLink: n.Flags&unix.RTNH_F_ONLINK != 0,
		Blackhole: n.Blackhole, Proto: n.Proto, Other: n.FDB || n.GroupType != 0,
	}
	switch {
	case len(n.Group) > 0:
	case n.Family == unix.AF_INET6:
		out.Family = 6
	default:
		out.Family = 4
	}
	if l, ok := s.Link(n.OutIf); ok {
		out.Dev = l.Name
	}
	for _, m := range n.Group {
		out.Group = append(out.Group, link.GroupMember{ID: m.ID, Weight: m.Weight})
	}
	return out
}
