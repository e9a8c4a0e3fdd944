package rtnl

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// NextHopObject is a nexthop object (include/uapi/linux/nexthop.h, Linux 5.3).
type NextHopObject struct {
	ID uint32 // from 1
	// Family is unix.AF_INET or unix.AF_INET6, unix.AF_UNSPEC of a group.
	Family    uint8
	Proto     uint8 // RTPROT_*
	Flags     uint32
	OutIf     int // 0 of a group or blackhole
	Gateway   netip.Addr
	Blackhole bool
	Group     []GroupMember
	// GroupType is NEXTHOP_GRP_TYPE_*: 0 for multipath, 1 for resilient.
	GroupType uint16
	// FDB marks one for the forwarding database of a VXLAN link.
	FDB bool
}

// GroupMember is a nexthop object in a group.
type GroupMember struct {
	ID     uint32
	Weight int // from 1; to 255 in a request
}

const (
	sizeNhMsg      = 8 // struct nhmsg: family, scope, protocol, a reserved byte, flags
	sizeNextHopGrp = 8 // struct nexthop_grp: identifier, weight less 1, its high byte (Linux 6.13), two reserved bytes

	nhaFDB = 11 // NHA_FDB
)

// NextHopObjects reads the nexthop objects with these IDs, in this order and without
// those that do not exist; EOPNOTSUPP before Linux 5.3. A dump has all those of a router.
func (c *Conn) NextHopObjects(ids []uint32) ([]NextHopObject, error) {
	rs := make([]nl.Request, len(ids))
	for i, id := range ids {
		w := nl.Build(make([]byte, sizeNhMsg)...).Uint32(unix.NHA_ID, id)
		rs[i] = nl.NewRequest(fmt.Sprintf("read nexthop %d", id), unix.RTM_GETNEXTHOP, 0, w)
	}
	found := make([]NextHopObject, len(ids))
	errs := c.Ask(rs, func(i int, typ uint16, data []byte) (err error) {
		if typ == unix.RTM_NEWNEXTHOP {
			found[i], err = decodeNextHop(data)
		}
		return err
	})
	var out []NextHopObject
	for i, n := range found {
		switch err := errs[i]; {
		case errors.Is(err, unix.ENOENT):
		case err != nil:
			return nil, err
		case n.ID == ids[i]:
			out = append(out, n)
		}
	}
	return out, nil
}

func decodeNextHop(b []byte) (n NextHopObject, err error) {
	if len(b) < sizeNhMsg {
		return n, errShort
	}
	n.Family, n.Proto, n.Flags = b[0], b[2], ne.Uint32(b[4:])
	a := nl.ParseAttrs(b[sizeNhMsg:])
	for a.Next() {
		switch a.Type() {
		case unix.NHA_ID:
			n.ID = a.Uint32()
		case unix.NHA_GROUP:
			n.Group = nil
			for g := a.Bytes(); len(g) >= sizeNextHopGrp && len(n.Group) < maxNextHops; g = g[sizeNextHopGrp:] {
				n.Group = append(n.Group, GroupMember{ne.Uint32(g), int(g[5])<<8 + int(g[4]) + 1})
			}
		case unix.NHA_GROUP_TYPE:
			n.GroupType = a.Uint16()
		case unix.NHA_BLACKHOLE:
			n.Blackhole = true
		case unix.NHA_OIF:
			n.OutIf = a.Index()
		case unix.NHA_GATEWAY:
			n.Gateway, _ = netip.AddrFromSlice(a.Bytes())
		case nhaFDB:
			n.FDB = true
		}
	}
	return n, a.Err()
}

// AddNextHop adds a nexthop object; EEXIST if there is one with its ID.
func AddNextHop(n NextHopObject) Request {
	return nextHop("add", netlink.Create|netlink.Excl, n)
}

// ReplaceNextHop adds a nexthop object or changes the one with its ID.
func ReplaceNextHop(n NextHopObject) Request {
	return nextHop("set", netlink.Create|netlink.Replace, n)
}

// DelNextHop removes a nexthop object, and with it the routes that use it; ENOENT if
// there is none.
func DelNextHop(id uint32) Request {
	w := nl.Build(make([]byte, sizeNhMsg)...).Uint32(unix.NHA_ID, id)
	return nl.NewRequest(fmt.Sprintf("remove nexthop %d", id), unix.RTM_DELNEXTHOP, 0, w)
}

func nextHop(verb string, flags netlink.HeaderFlags, n NextHopObject) Request {
	what := fmt.Sprintf("%s nexthop %d", verb, n.ID)
	if n.ID == 0 {
		return Request{What: what, Err: fmt.Errorf("the nexthop has no ID")}
	}
	h := make([]byte, sizeNhMsg)
	h[2] = n.Proto
	if len(n.Group) == 0 {
		h[0] = n.Family
		ne.PutUint32(h[4:], n.Flags)
	}
	w := nl.Build(h...).Uint32(unix.NHA_ID, n.ID)
	switch {
	case len(n.Group) > 0:
		var g []byte
		for _, m := range n.Group {
			g = ne.AppendUint32(g, m.ID)
			g = append(g, uint8(min(max(m.Weight, 1), 255)-1), 0, 0, 0)
		}
		w.Raw(unix.NHA_GROUP, g)
	case n.Blackhole:
		w.Flag(unix.NHA_BLACKHOLE)
	default:
		w.Uint32(unix.NHA_OIF, uint32(n.OutIf))
		if n.Gateway.IsValid() {
			w.Raw(unix.NHA_GATEWAY, n.Gateway.AsSlice())
		}
	}
	return nl.NewRequest(what, unix.RTM_NEWNEXTHOP, flags, w)
}
