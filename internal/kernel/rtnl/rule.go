package rtnl

import (
	"math"
	"net/netip"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// Rule is a routing policy rule.
type Rule struct {
	Family   uint8 // unix.AF_INET or unix.AF_INET6
	Priority uint32
	// HasPriority reports whether Priority is meant; without it the kernel takes
	// one below the lowest in a request.
	HasPriority bool
	Action      uint8 // FR_ACT_*; 0 in a request is FR_ACT_TO_TBL
	From, To    netip.Prefix
	TOS         uint8
	Table       uint32 // 0 for actions without a table
	FwMark      uint32
	FwMask      uint32 // 0 in a request is the whole mark
	IIF, OIF    string
	IPProto     uint8
	SPort       PortRange
	DPort       PortRange
	UID         UIDRange
	// SuppressPrefixLen rejects a route of this prefix length or shorter.
	SuppressPrefixLen Optional
	SuppressIfGroup   Optional // rejects a route through a link of this group
	L3MDev            bool
	Goto              uint32 // priority of the rule to go on with, for FR_ACT_GOTO
	Proto             uint8  // RTPROT_*, who made it
	Invert            bool
}

// PortRange is a range of transport ports, both ends included; zero is unset.
type PortRange struct{ First, Last uint16 }

// UIDRange is a range of user ids, both ends included; 0 to 0 is root.
type UIDRange struct {
	First, Last uint32
	Set         bool
}

// Optional is a number of which 0 is a value too.
type Optional struct {
	Value uint32
	Set   bool
}

const (
	fibRuleInvert = 0x2 // FIB_RULE_INVERT
	frActToTable  = 1   // FR_ACT_TO_TBL
	fraDSCP       = 25  // FRA_DSCP, Linux 6.13
)

func decodeRule(b []byte, r *Rule, in *interner) error {
	if len(b) < sizeFibRule {
		return errShort
	}
	*r = Rule{
		Family: b[0], TOS: b[3], Table: uint32(b[4]), Action: b[7], HasPriority: true,
		Invert: ne.Uint32(b[8:])&fibRuleInvert != 0,
	}
	dstBits, srcBits := int(b[1]), int(b[2])
	a := nl.ParseAttrs(b[sizeFibRule:])
	for a.Next() {
		switch a.Type() {
		case unix.FRA_PRIORITY:
			r.Priority = a.Uint32()
		case unix.FRA_DST:
			r.To = prefix(a.Bytes(), dstBits)
		case unix.FRA_SRC:
			r.From = prefix(a.Bytes(), srcBits)
		case unix.FRA_TABLE:
			r.Table = a.Uint32()
		case unix.FRA_FWMARK:
			r.FwMark = a.Uint32()
		case unix.FRA_FWMASK:
			r.FwMask = a.Uint32()
		case unix.FRA_IIFNAME:
			r.IIF = in.str(a.Text())
		case unix.FRA_OIFNAME:
			r.OIF = in.str(a.Text())
		case unix.FRA_IP_PROTO:
			r.IPProto = a.Uint8()
		case unix.FRA_SPORT_RANGE:
			r.SPort = portRange(a.Bytes())
		case unix.FRA_DPORT_RANGE:
			r.DPort = portRange(a.Bytes())
		case unix.FRA_UID_RANGE:
			if v := a.Bytes(); len(v) >= 8 {
				r.UID = UIDRange{ne.Uint32(v), ne.Uint32(v[4:]), true}
			}
		case unix.FRA_SUPPRESS_PREFIXLEN:
			r.SuppressPrefixLen = optional(a.Uint32())
		case unix.FRA_SUPPRESS_IFGROUP:
			r.SuppressIfGroup = optional(a.Uint32())
		case unix.FRA_L3MDEV:
			r.L3MDev = a.Uint8() != 0
		case unix.FRA_GOTO:
			r.Goto = a.Uint32()
		case unix.FRA_PROTOCOL:
			r.Proto = a.Uint8()
		case fraDSCP:
			r.TOS = a.Uint8() << 2
		}
	}
	return a.Err()
}

// optional takes -1, which the kernel reports for unset, for no value.
func optional(v uint32) Optional {
	if v == math.MaxUint32 {
		return Optional{}
	}
	return Optional{v, true}
}

func portRange(b []byte) PortRange {
	if len(b) < 4 {
		return PortRange{}
	}
	return PortRange{ne.Uint16(b), ne.Uint16(b[2:])}
}
