package rtnl

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/nl"
)

// AddAddress adds an address; EEXIST if the link has it.
func AddAddress(a Address) Request {
	return address("add", unix.RTM_NEWADDR, netlink.Create|netlink.Excl, a)
}

// ReplaceAddress adds an address or changes its lifetimes, flags and metric.
func ReplaceAddress(a Address) Request {
	return address("set", unix.RTM_NEWADDR, netlink.Create|netlink.Replace, a)
}

// DelAddress removes an address; EADDRNOTAVAIL if the link does not have it.
func DelAddress(a Address) Request { return address("remove", unix.RTM_DELADDR, 0, a) }

func address(verb string, typ uint16, flags netlink.HeaderFlags, a Address) Request {
	what := fmt.Sprintf("%s address %s of link %d", verb, a.Prefix, a.Index)
	if !a.Prefix.IsValid() {
		return Request{What: what, Err: fmt.Errorf("the address has no prefix")}
	}
	local := a.Prefix.Addr()
	at := &rtnetlink.AddressAttributes{
		Local: local.AsSlice(), Address: local.AsSlice(), Label: a.Label, Flags: a.Flags, Priority: a.Metric,
	}
	if a.Peer.IsValid() {
		at.Address = a.Peer.AsSlice()
	}
	if a.Broadcast.IsValid() {
		at.Broadcast = a.Broadcast.AsSlice()
	}
	m := &rtnetlink.AddressMessage{
		Family: family(local), PrefixLength: uint8(a.Prefix.Bits()), Scope: a.Scope, Index: uint32(a.Index),
		Flags: uint8(a.Flags), Attributes: at,
	}
	return encode(what, typ, flags, m, func(w *nl.Builder) {
		if typ == unix.RTM_DELADDR {
			return
		}
		if valid, preferred := a.Valid, a.Preferred; valid != 0 || preferred != 0 {
			b := ne.AppendUint32(nil, preferred)
			b = ne.AppendUint32(b, valid)
			w.Raw(unix.IFA_CACHEINFO, append(b, make([]byte, 8)...))
		}
		if a.Protocol != 0 {
			w.Uint8(ifaProto, a.Protocol)
		}
	})
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// AddRoute adds a route; EEXIST if there is an equal one.
func AddRoute(r Route) Request {
	return route("add", unix.RTM_NEWROUTE, netlink.Create|netlink.Excl, r)
}

// ReplaceRoute adds a route or takes the place of the one with the same
// destination, table and metric.
func ReplaceRoute(r Route) Request {
	return route("set", unix.RTM_NEWROUTE, netlink.Create|netlink.Replace, r)
}

// DelRoute removes the first route that has the given fields.
func DelRoute(r Route) Request { return route("remove", unix.RTM_DELROUTE, 0, r) }

// fam is the family of the route's addresses, or the one that was given.
func (r *Route) fam() uint8 {
	switch {
	case r.Family != 0:
		return r.Family
	case r.Dst.IsValid():
		return family(r.Dst.Addr())
	case r.Gateway.IsValid():
		return family(r.Gateway)
	case len(r.NextHops) > 0 && r.NextHops[0].Gateway.IsValid():
		return family(r.NextHops[0].Gateway)
	case r.PrefSrc.IsValid():
		return family(r.PrefSrc)
	}
	return unix.AF_INET
}

func route(verb string, typ uint16, flags netlink.HeaderFlags, r Route) Request {
	dst := "default"
	if r.Dst.IsValid() && r.Dst.Bits() > 0 {
		dst = r.Dst.String()
	}
	what := fmt.Sprintf("%s route to %s of link %d", verb, dst, r.OutIf)
	m := &rtnetlink.RouteMessage{
		Family: r.fam(), Tos: r.TOS, Protocol: r.Proto, Scope: r.Scope, Type: r.Type, Flags: r.Flags,
		Attributes: rtnetlink.RouteAttributes{OutIface: uint32(r.OutIf), Priority: r.Metric, Expires: nonZero(r.Expires)},
	}
	if m.Type == 0 && typ == unix.RTM_NEWROUTE {
		m.Type = unix.RTN_UNICAST
	}
	table := cmp.Or(r.Table, unix.RT_TABLE_MAIN)
	if table < 256 {
		m.Table = uint8(table)
	} else {
		m.Table, m.Attributes.Table = unix.RT_TABLE_UNSPEC, table
	}
	if r.Dst.IsValid() && r.Dst.Bits() > 0 {
		m.DstLength, m.Attributes.Dst = uint8(r.Dst.Bits()), r.Dst.Masked().Addr().AsSlice()
	}
	if r.PrefSrc.IsValid() {
		m.Attributes.Src = r.PrefSrc.AsSlice() // the library's name for RTA_PREFSRC
	}
	if r.Src.IsValid() && r.Src.Bits() > 0 {
		m.SrcLength = uint8(r.Src.Bits())
	}
	if r.Pref != 0 {
		m.Attributes.Pref = new(r.Pref)
	}
	viaOther := r.Gateway.IsValid() && family(r.Gateway) != m.Family
	if r.Gateway.IsValid() && !viaOther {
		m.Attributes.Gateway = r.Gateway.AsSlice()
	}
	return encode(what, typ, flags, m, func(w *nl.Builder) {
		if r.Src.IsValid() && r.Src.Bits() > 0 {
			w.Raw(unix.RTA_SRC, r.Src.Masked().Addr().AsSlice())
		}
		if viaOther {
			w.Raw(unix.RTA_VIA, viaBytes(r.Gateway))
		}
		if r.NextHopID != 0 {
			w.Uint32(rtaNHID, r.NextHopID)
		}
		if r.TTLPropagate != nil {
			w.Uint8(unix.RTA_TTL_PROPAGATE, uint8(*u16(r.TTLPropagate)))
		}
		if r.Metrics != (Metrics{}) {
			w.Nest(unix.RTA_METRICS|nl.Nested, r.Metrics.encode)
		}
		if len(r.NextHops) > 0 {
			w.Raw(unix.RTA_MULTIPATH, encodeMultipath(r.NextHops, m.Family))
		}
	})
}

func nonZero(v uint32) *uint32 {
	if v == 0 {
		return nil
	}
	return &v
}

func viaBytes(a netip.Addr) []byte {
	return append(ne.AppendUint16(nil, uint16(family(a))), a.AsSlice()...)
}

func (m Metrics) encode(w *nl.Builder) {
	put := func(typ uint16, v uint32) {
		if v != 0 {
			w.Uint32(typ, v)
		}
	}
	locks := uint32(0)
	if m.MTULocked {
		locks = 1 << unix.RTAX_MTU
	}
	if m.RTOMin != 0 {
		locks |= 1 << unix.RTAX_RTO_MIN
	}
	put(unix.RTAX_LOCK, locks)
	put(unix.RTAX_MTU, m.MTU)
	put(unix.RTAX_RTO_MIN, m.RTOMin)
	put(unix.RTAX_ADVMSS, m.AdvMSS)
	put(unix.RTAX_HOPLIMIT, m.HopLimit)
	put(unix.RTAX_INITCWND, m.InitCwnd)
	put(unix.RTAX_FEATURES, m.Features)
	put(unix.RTAX_INITRWND, m.InitRwnd)
	if m.QuickAck {
		w.Uint32(unix.RTAX_QUICKACK, 1)
	}
	if m.CongestionControl != "" {
		w.String(unix.RTAX_CC_ALGO, m.CongestionControl)
	}
	if m.FastOpenNoCookie {
		w.Uint32(unix.RTAX_FASTOPEN_NO_COOKIE, 1)
	}
}

func encodeMultipath(hops []NextHop, fam uint8) []byte {
	var out []byte
	for _, h := range hops {
		w := nl.Build()
		if h.Gateway.IsValid() {
			if family(h.Gateway) == fam {
				w.Raw(unix.RTA_GATEWAY, h.Gateway.AsSlice())
			} else {
				w.Raw(unix.RTA_VIA, viaBytes(h.Gateway))
			}
		}
		attrs, _ := w.Bytes() // an address is never too long
		out = ne.AppendUint16(out, uint16(sizeRtNextHop+len(attrs)))
		out = append(out, h.Flags, uint8(min(max(h.Weight, 1), 256)-1))
		out = ne.AppendUint32(out, uint32(h.OutIf))
		out = append(out, attrs...)
	}
	return out
}
