package rtnl

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// EventType is the kind of object that an event is about.
type EventType uint8

// The kinds.
const (
	LinkChanged EventType = iota + 1 // new or changed
	LinkGone
	LinkMoved      // to another network namespace
	AddressChanged // added or changed
	AddressGone
	RouteChanged // or a nexthop object, with which the kernel removes IPv4 routes silently
	RuleChanged
	SettingChanged // forwarding, rp_filter, proxy_arp and the like (RTM_NEWNETCONF)
)

// An Event is a hint that an object changed; its state must be read again, because
// the event may be old when it arrives.
type Event struct {
	Type EventType
	// Index is the link, where it is about a link, its settings or an address that is gone.
	Index int
	// Carrier of a LinkChanged (IFF_LOWER_UP).
	Carrier bool
	// InfiniBand reports that it is a link of that type (ARPHRD_INFINIBAND).
	InfiniBand bool
	// Name, Parent (its index, 0 for none) and NSID (the number of the network namespace
	// that it is in now, -1 for none) of a LinkMoved.
	Name         string
	Parent, NSID int
}

// gone reads whether a link that is gone is in another network namespace.
func (e *Event) gone(attrs []byte) {
	e.Type = LinkGone
	var name string
	var parent, nsid int
	for a := nl.ParseAttrs(attrs); a.Next(); {
		switch a.Type() {
		case unix.IFLA_IFNAME:
			name = a.String()
		case unix.IFLA_LINK:
			parent = a.Index()
		case unix.IFLA_NEW_NETNSID:
			e.Type, nsid = LinkMoved, int(int32(a.Uint32()))
		}
	}
	if e.Type == LinkMoved {
		e.Name, e.Parent, e.NSID = name, parent, nsid
	}
}

// netconfaIfindex is NETCONFA_IFINDEX of linux/netconf.h.
const netconfaIfindex = 1

// Events is a source of hints.
type Events = nl.Events[Event]

// Groups of rtnetlink that Listen joins, and RTNLGRP_NEXTHOP where the kernel has it.
var groups = []uint32{
	unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_IFINFO,
	unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
	unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF,
}

// Listen opens a source in the calling thread's network namespace. recvBuffer is
// the socket's receive buffer in bytes, 0 for a large one.
func Listen(recvBuffer int) (*Events, error) {
	ev, err := nl.OpenEvents(unix.NETLINK_ROUTE, append(slices.Clone(groups), unix.RTNLGRP_NEXTHOP), recvBuffer, decodeEvent)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.3
		ev, err = nl.OpenEvents(unix.NETLINK_ROUTE, groups, recvBuffer, decodeEvent)
	}
	return ev, err
}

func decodeEvent(typ uint16, b []byte, put func(Event)) {
	switch typ {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(b) < sizeIfInfo {
			return
		}
		// A bridge port that leaves its bridge sends RTM_DELLINK with family
		// AF_BRIDGE; the link itself stays.
		e := Event{Type: LinkChanged, Index: int(int32(ne.Uint32(b[4:]))), InfiniBand: ne.Uint16(b[2:]) == unix.ARPHRD_INFINIBAND}
		if typ == unix.RTM_DELLINK && b[0] == unix.AF_UNSPEC {
			e.gone(b[sizeIfInfo:])
		} else {
			e.Carrier = ne.Uint32(b[8:])&unix.IFF_LOWER_UP != 0
		}
		put(e)
	case unix.RTM_NEWADDR:
		put(Event{Type: AddressChanged})
	case unix.RTM_DELADDR:
		if len(b) >= sizeIfAddr {
			put(Event{Type: AddressGone, Index: int(int32(ne.Uint32(b[4:])))})
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if len(b) >= sizeRtMsg && ne.Uint32(b[8:])&unix.RTM_F_CLONED == 0 {
			put(Event{Type: RouteChanged})
		}
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		put(Event{Type: RouteChanged})
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		put(Event{Type: RuleChanged})
	case unix.RTM_NEWNETCONF:
		// struct netconfmsg is the family, padded. The indexes of "all" and
		// "default" are negative; links that follow have messages of their own.
		if len(b) < 4 {
			return
		}
		a := nl.ParseAttrs(b[4:])
		for a.Next() {
			if i := a.Index(); a.Type() == netconfaIfindex && i > 0 {
				put(Event{Type: SettingChanged, Index: i})
				return
			}
		}
	}
}
