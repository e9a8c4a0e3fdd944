package daemon

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	"ibnetworkd/link"
)

// ofAddress reports a type of the routes that the kernel makes of addresses, in the table
// local or that of a VRF.
func ofAddress(typ uint8) bool {
	return typ == link.RouteLocal || typ == link.RouteBroadcast || typ == link.RouteAnycast || typ == link.RouteMulticast
}

func (o *Observer) observeRoutes(s *link.Snapshot) error {
	raw, err := o.rt.Routes()
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	by := make(map[int][]link.Route, len(s.Links))
	for i := range raw {
		r := &raw[i]
		if r.Cloned || r.Proto == link.ProtoKernel && (r.Table == link.TableLocal || ofAddress(r.Type)) {
			continue
		}
		x := link.Route{
			Dst: r.Dst, Src: r.Src, Gateway: r.Gateway, PrefSrc: r.PrefSrc, Table: r.Table, Metric: r.Metric, Type: r.Type, Scope: r.Scope,
			Protocol: r.Proto, TOS: r.TOS, Pref: r.Pref, OnLink: r.Flags&unix.RTNH_F_ONLINK != 0,
			MTU: r.Metrics.MTU, AdvMSS: r.Metrics.AdvMSS, HopLimit: r.Metrics.HopLimit, InitCwnd: r.Metrics.InitCwnd, InitRwnd: r.Metrics.InitRwnd,
			RTOMin: r.Metrics.RTOMin, Congestion: r.Metrics.CongestionControl, QuickAck: r.Metrics.QuickAck,
			FastOpenNoCookie: r.Metrics.FastOpenNoCookie, NextHopID: r.NextHopID,
		}
		if x.NextHopID != 0 && x.Type == link.RouteBlackhole {
			x.Type = link.RouteUnicast // the kernel shows the type of a nexthop that discards packets
		}
		if !x.Dst.IsValid() {
			x.Dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if r.Family == unix.AF_INET6 {
				x.Dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
		}
		// A route over several links is on each of them.
		over := []int{r.OutIf}
		for _, h := range r.NextHops {
			dev := ""
			if l, ok := s.Link(h.OutIf); ok {
				dev = l.Name
			}
			x.NextHops = append(x.NextHops, link.NextHop{Gateway: h.Gateway, Ifindex: h.OutIf, Dev: dev, Weight: h.Weight})
			if over[0] == 0 {
				over[0] = h.OutIf
			} else if !slices.Contains(over, h.OutIf) {
				over = append(over, h.OutIf)
			}
		}
		for _, i := range over {
			by[i] = append(by[i], x)
		}
	}
	// Routes that lead nowhere have no link; they are kept with the link.LoopbackIndex,
	// as ip route shows the IPv6 ones.
	by[link.LoopbackIndex] = append(by[link.LoopbackIndex], by[0]...)
	s.Links = replaceEach(s.Links, func(l *link.Link) bool {
		if slices.EqualFunc(l.Routes, by[l.Index], func(a, b link.Route) bool { return reflect.DeepEqual(a, b) }) {
			return false
		}
		l.Routes = by[l.Index]
		return true
	})
	return nil
}
