package rtnl

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// Route is a route of the main or any other table.
type Route struct {
	// Family is unix.AF_INET or unix.AF_INET6. It may be 0 in a request with Dst
	// or Gateway.
	Family uint8
	// Dst is the destination; an invalid prefix or one of length 0 is the
	// default route.
	Dst netip.Prefix
	// Src is the source prefix of a source-specific IPv6 route.
	Src netip.Prefix
	// Gateway is the next hop. An IPv6 gateway of an IPv4 route is allowed
	// (RTA_VIA).
	Gateway netip.Addr
	OutIf   int // ifindex, 0 for routes without (blackhole, multipath)
	PrefSrc netip.Addr
	Table   uint32 // RT_TABLE_*; 0 in a request is the main table
	Metric  uint32 // 0 lets the kernel choose (IPv6: 1024)
	Type    uint8  // RTN_*; 0 in a request is RTN_UNICAST
	Scope   uint8  // RT_SCOPE_*, IPv4 only
	Proto   uint8  // RTPROT_*
	TOS     uint8
	Flags   uint32 // RTNH_F_*: ONLINK, and what the kernel reports
	// Pref is the IPv6 router preference: 0 medium, 1 high, 3 low.
	Pref    uint8
	Expires uint32 // seconds, 0 for never, IPv6
	Metrics Metrics
	// NextHops of a multipath route; Gateway and OutIf are unset then.
	NextHops []NextHop
	// NextHopID is a nexthop object's, 0 for none.
	NextHopID uint32
	// TTLPropagate is RTA_TTL_PROPAGATE for MPLS tunnels, nil for the default.
	TTLPropagate *bool
	// Cloned marks entries of the kernel's cache (RTM_F_CLONED).
	Cloned bool
}

// Metrics are the per-route parameters of RTA_METRICS; 0 and "" are unset.
type Metrics struct {
	MTU               uint32 // bytes
	MTULocked         bool   // path MTU discovery may not lower it
	AdvMSS            uint32 // bytes
	HopLimit          uint32
	InitCwnd          uint32 // segments
	InitRwnd          uint32 // segments
	RTOMin            uint32 // milliseconds; 0 if it is not locked, for TCP then ignores it
	QuickAck          bool
	FastOpenNoCookie  bool
	CongestionControl string // algorithm
	Features          uint32 // RTAX_FEATURE_*
}

// NextHop is one path of a multipath route.
type NextHop struct {
	OutIf   int
	Gateway netip.Addr
	Weight  int   // 1 to 256
	Flags   uint8 // RTNH_F_*
}

const (
	rtaNHID       = 30 // RTA_NH_ID
	maxNextHops   = 1024
	sizeRtNextHop = 8
)

func decodeRoute(b []byte, r *Route, in *interner) error {
	if len(b) < sizeRtMsg {
		return errShort
	}
	flags := ne.Uint32(b[8:])
	*r = Route{
		Family: b[0], TOS: b[3], Table: uint32(b[4]), Proto: b[5], Scope: b[6], Type: b[7],
		Flags: flags &^ unix.RTM_F_CLONED, Cloned: flags&unix.RTM_F_CLONED != 0,
	}
	dstBits, srcBits := int(b[1]), int(b[2])
	a := nl.ParseAttrs(b[sizeRtMsg:])
	for a.Next() {
		switch a.Type() {
		case unix.RTA_DST:
			r.Dst = prefix(a.Bytes(), dstBits)
		case unix.RTA_SRC:
			r.Src = prefix(a.Bytes(), srcBits)
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(a.Bytes())
		case unix.RTA_VIA:
			r.Gateway = via(a.Bytes())
		case unix.RTA_OIF:
			r.OutIf = a.Index()
		case unix.RTA_PREFSRC:
			r.PrefSrc, _ = netip.AddrFromSlice(a.Bytes())
		case unix.RTA_TABLE:
			r.Table = a.Uint32()
		case unix.RTA_PRIORITY:
			r.Metric = a.Uint32()
		case unix.RTA_PREF:
			r.Pref = a.Uint8()
		case unix.RTA_EXPIRES:
			r.Expires = a.Uint32()
		case unix.RTA_CACHEINFO:
			// IPv6 reports a lifetime here, in clock ticks of 1/100 s.
			if c := a.Bytes(); len(c) >= 12 && r.Family == unix.AF_INET6 {
				if e := int32(ne.Uint32(c[8:])); e > 0 && r.Expires == 0 {
					r.Expires = uint32(e) / 100
				}
			}
		case rtaNHID:
			r.NextHopID = a.Uint32()
		case unix.RTA_TTL_PROPAGATE:
			r.TTLPropagate = new(a.Uint8() != 0)
		case unix.RTA_METRICS:
			if err := decodeMetrics(a.Nested(), &r.Metrics, in); err != nil {
				return err
			}
		case unix.RTA_MULTIPATH:
			if err := decodeMultipath(a.Bytes(), r); err != nil {
				return err
			}
		}
	}
	return a.Err()
}

func prefix(b []byte, bits int) netip.Prefix {
	ip, ok := netip.AddrFromSlice(b)
	if !ok || bits > ip.BitLen() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(ip, bits)
}

// via reads struct rtvia: family u16 in host order, then the address.
func via(b []byte) netip.Addr {
	if len(b) < 2 {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(b[2:])
	return ip
}

func decodeMetrics(a nl.Attrs, m *Metrics, in *interner) error {
	locks := uint32(0)
	for a.Next() {
		switch a.Type() {
		case unix.RTAX_LOCK:
			locks = a.Uint32()
			m.MTULocked = locks&(1<<unix.RTAX_MTU) != 0
		case unix.RTAX_MTU:
			m.MTU = a.Uint32()
		case unix.RTAX_ADVMSS:
			m.AdvMSS = a.Uint32()
		case unix.RTAX_HOPLIMIT:
			m.HopLimit = a.Uint32()
		case unix.RTAX_INITCWND:
			m.InitCwnd = a.Uint32()
		case unix.RTAX_INITRWND:
			m.InitRwnd = a.Uint32()
		case unix.RTAX_RTO_MIN:
			m.RTOMin = a.Uint32()
		case unix.RTAX_QUICKACK:
			m.QuickAck = a.Uint32() != 0
		case unix.RTAX_FASTOPEN_NO_COOKIE:
			m.FastOpenNoCookie = a.Uint32() != 0
		case unix.RTAX_CC_ALGO:
			m.CongestionControl = in.str(a.Text())
		case unix.RTAX_FEATURES:
			m.Features = a.Uint32()
		}
	}
	if locks&(1<<unix.RTAX_RTO_MIN) == 0 {
		m.RTOMin = 0
	}
	return a.Err()
}

// decodeMultipath reads a run of struct rtnexthop, each followed by attributes.
func decodeMultipath(b []byte, r *Route) error {
	for len(b) >= sizeRtNextHop {
		n := int(ne.Uint16(b))
		if n < sizeRtNextHop || n > len(b) {
			return nl.ErrMalformed
		}
		if len(r.NextHops) == maxNextHops {
			return nil
		}
		h := NextHop{Flags: b[2], Weight: int(b[3]) + 1, OutIf: int(int32(ne.Uint32(b[4:])))}
		a := nl.ParseAttrs(b[sizeRtNextHop:n])
		for a.Next() {
			switch a.Type() {
			case unix.RTA_GATEWAY:
				h.Gateway, _ = netip.AddrFromSlice(a.Bytes())
			case unix.RTA_VIA:
				h.Gateway = via(a.Bytes())
			}
		}
		if a.Err() != nil {
			return a.Err()
		}
		r.NextHops = append(r.NextHops, h)
		b = b[min((n+3)&^3, len(b)):]
	}
	return nil
}
