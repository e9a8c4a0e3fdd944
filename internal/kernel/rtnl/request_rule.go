package rtnl

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// AddRule adds a policy rule; EEXIST if there is an equal one.
func AddRule(r Rule) Request {
	return rule("add", unix.RTM_NEWRULE, netlink.Create|netlink.Excl, r)
}

// DelRule removes the first rule that has the given fields.
func DelRule(r Rule) Request { return rule("remove", unix.RTM_DELRULE, 0, r) }

func rule(verb string, typ uint16, flags netlink.HeaderFlags, r Rule) Request {
	what := fmt.Sprintf("%s routing policy rule %d from %s to %s", verb, r.Priority, all(r.From), all(r.To))
	if r.Family == 0 {
		switch {
		case r.From.IsValid():
			r.Family = family(r.From.Addr())
		case r.To.IsValid():
			r.Family = family(r.To.Addr())
		default:
			return Request{What: what, Err: fmt.Errorf("the rule has no address family")}
		}
	}
	at := &rtnetlink.RuleAttributes{}
	m := &rtnetlink.RuleMessage{Family: r.Family, TOS: r.TOS, Action: r.Action, Attributes: at}
	m.Action = cmp.Or(m.Action, frActToTable)
	if r.Invert {
		m.Flags |= fibRuleInvert
	}
	if r.HasPriority {
		at.Priority = &r.Priority
	}
	if r.From.IsValid() && r.From.Bits() > 0 {
		ip := net.IP(r.From.Masked().Addr().AsSlice())
		m.SrcLength, at.Src = uint8(r.From.Bits()), &ip
	}
	if r.To.IsValid() && r.To.Bits() > 0 {
		ip := net.IP(r.To.Masked().Addr().AsSlice())
		m.DstLength, at.Dst = uint8(r.To.Bits()), &ip
	}
	if r.Table != 0 {
		at.Table = &r.Table
		if r.Table < 256 {
			m.Table = uint8(r.Table)
		}
	}
	if r.FwMark != 0 || r.FwMask != 0 {
		at.FwMark = &r.FwMark
	}
	if r.FwMask != 0 {
		at.FwMask = &r.FwMask
	}
	if r.IIF != "" {
		at.IIFName = &r.IIF
	}
	if r.OIF != "" {
		at.OIFName = &r.OIF
	}
	if r.IPProto != 0 {
		at.IPProto = &r.IPProto
	}
	if r.SPort != (PortRange{}) {
		at.SPortRange = &rtnetlink.RulePortRange{Start: r.SPort.First, End: r.SPort.Last}
	}
	if r.DPort != (PortRange{}) {
		at.DPortRange = &rtnetlink.RulePortRange{Start: r.DPort.First, End: r.DPort.Last}
	}
	if r.SuppressPrefixLen.Set {
		at.SuppressPrefixLen = &r.SuppressPrefixLen.Value
	}
	if r.SuppressIfGroup.Set {
		at.SuppressIFGroup = &r.SuppressIfGroup.Value
	}
	if r.L3MDev {
		at.L3MDev = new(uint8(1))
	}
	if r.Goto != 0 {
		at.Goto = &r.Goto
	}
	if r.Proto != 0 {
		at.Protocol = &r.Proto
	}
	return encode(what, typ, flags, m, func(w *nl.Builder) {
		if r.UID.Set { // the library keeps user ids in 16 bits
			w.Raw(unix.FRA_UID_RANGE, ne.AppendUint32(ne.AppendUint32(nil, r.UID.First), r.UID.Last))
		}
	})
}

func all(p netip.Prefix) string {
	if !p.IsValid() {
		return "all"
	}
	return p.String()
}
