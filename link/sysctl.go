package link

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ibnetworkd/units"
)

// PlanSettings plans the sysctls of a link. It comes before the link is brought
// up, when the kernel makes link-local addresses and asks for routers.
func PlanSettings(b *Builder, index int, u *units.Unit) {
	b.For(u)
	planSysctls(b, index, u)
}

// Sysctls lists the settings that a unit needs, as keys of Link.Sysctl; an observer
// reads no others.
func Sysctls(u *units.Unit) []string {
	var out []string
	for _, s := range wantedSysctls(u, true) {
		out = append(out, s.key)
		if s.key == acceptRA && !u.Network.IPv6Forwarding.Set {
			out = append(out, forwarding6) // shown beside it
		}
	}
	if u != nil && u.RoCE.GIDIndex.Set {
		out = append(out, "ipv4/promote_secondaries") // read before an address is removed
	}
	if u != nil && u.ConfiguresIP() && usesIPv6(u) {
		out = append(out, disableIPv6)
	}
	return out
}

// usesIPv6 reports that a unit sets something that a link without IPv6 refuses.
func usesIPv6(u *units.Unit) bool {
	return u.AsksDHCPv6() || slices.ContainsFunc(u.NextHops, func(n units.NextHopObject) bool { return n.Is6() }) ||
		slices.ContainsFunc(u.Routes, func(r units.Route) bool { return r.Is6() }) ||
		slices.ContainsFunc(u.Addresses, func(a units.Address) bool { return a.Template.Set || a.Address.V.Addr().Is6() })
}

const (
	disableIPv6 = "ipv6/disable_ipv6"
	acceptRA    = "ipv6/accept_ra"
	addrGenMode = "ipv6/addr_gen_mode"
	forwarding6 = "ipv6/forwarding"
	ndiscNotify = "ipv6/ndisc_notify"
)

type sysctl struct {
	name, key, value string
	flag             bool // yes or no in the unit
}

// show is a value as a status has it: in the unit's words where it has some. now is
// the link that has the value, nil for a value that is wanted.
func (s *sysctl) show(now *Link, value string) string {
	switch {
	case s.key == acceptRA && now == nil:
		return units.YesNo(value != "0")
	case s.key == acceptRA && value != "":
		f := now.Sysctl[forwarding6]
		return fmt.Sprintf("%s (accept_ra=%s, forwarding=%s)", units.YesNo(value == "2" || value == "1" && f == "0"), value, f)
	case s.key == addrGenMode && value != "":
		return s.showAddrGen(value)
	case s.name == "RouteMetric":
		return value
	case s.flag && value == "0":
		return "no"
	case s.flag && value == "1":
		return "yes"
	}
	return s.key + "=" + value
}

// showAddrGen is addr_gen_mode in the words of LinkLocalAddressing= or of
// IPv6LinkLocalAddressGenerationMode=.
func (s *sysctl) showAddrGen(value string) string {
	n, err := strconv.ParseUint(value, 10, 8)
	word := units.AddrGen(n).String()
	switch {
	case err != nil:
		return value
	case s.name != "LinkLocalAddressing":
		return word
	case units.AddrGen(n) == units.AddrGenNone:
		return "no IPv6"
	}
	return "IPv6 (" + word + ")"
}

// wantedSysctls are those of a link; those without a name have no key in the unit.
func wantedSysctls(u *units.Unit, infiniBand bool) []sysctl {
	if u == nil || !u.ConfiguresIP() {
		return nil
	}
	var out []sysctl
	n := &u.Network
	flag := func(name, key string, v units.Value[bool]) {
		if x, ok := v.Get(); ok {
			out = append(out, sysctl{name, key, oneZero(x), true})
		}
	}
	number := func(name, key string, set bool, v int) {
		if set {
			out = append(out, sysctl{name, key, strconv.Itoa(v), false})
		}
	}
	if ll, ok := n.LinkLocalAddressing.Get(); ok {
		mode := int(addrGenOf(n))
		if !ll.IPv6() {
			mode = int(units.AddrGenNone)
		}
		number("LinkLocalAddressing", addrGenMode, true, mode)
	} else {
		gen := n.IPv6LinkLocalAddressGeneration
		number("IPv6LinkLocalAddressGenerationMode", addrGenMode, gen.Set, int(gen.V))
	}
	flag("IPv4Forwarding", "ipv4/forwarding", n.IPv4Forwarding)
	flag("IPv6Forwarding", "ipv6/forwarding", n.IPv6Forwarding)
	if ra, ok := n.IPv6AcceptRA.Get(); ok {
		// 2 also where nothing is forwarded: with 1 the kernel ignores
		// advertisements, and drops the routes of past ones, as soon as anything
		// on the host turns forwarding on (ipv6_accept_ra, rt6_purge_dflt_routers).
		v := 0
		if ra {
			v = 2
		}
		number("IPv6AcceptRA", acceptRA, true, v)
		if r := &u.IPv6AcceptRA; ra {
			flag("UseGateway", "ipv6/accept_ra_defrtr", r.UseGateway)
			flag("UseMTU", "ipv6/accept_ra_mtu", r.UseMTU)
			flag("UseAutonomousPrefix", "ipv6/autoconf", r.UseAutonomousPrefix)
			number("RouteMetric", "ipv6/ra_defrtr_metric", r.RouteMetric.Set, int(r.RouteMetric.V))
		}
	}
	if p, ok := n.IPv6PrivacyExtensions.Get(); ok && p != units.PrivacyKernel {
		number("IPv6PrivacyExtensions", "ipv6/use_tempaddr", true, int(p))
	}
	number("IPv6DuplicateAddressDetection", "ipv6/dad_transmits", n.IPv6DuplicateAddressDetection.Set, n.IPv6DuplicateAddressDetection.V)
	number("IPv6HopLimit", "ipv6/hop_limit", n.IPv6HopLimit.Set, n.IPv6HopLimit.V)
	number("IPv6MTUBytes", "ipv6/mtu", n.IPv6MTUBytes.Set, n.IPv6MTUBytes.V)
	rpf := n.IPv4ReversePathFilter
	number("IPv4ReversePathFilter", "ipv4/rp_filter", rpf.Set, int(rpf.V))
	if rail, ok := n.MultiRail.Get(); ok {
		// ip-sysctl.rst: 1 answers for addresses of the link alone, 2 asks with the
		// best of them; 2 of rp_filter is loose.
		ignore, two := 0, 0
		if rail {
			ignore, two = 1, 2
		}
		number("MultiRail", "ipv4/arp_ignore", true, ignore)
		number("MultiRail", "ipv4/arp_announce", true, two)
		number("MultiRail", "ipv4/rp_filter", !rpf.Set, two)
	}
	flag("IPv4AcceptLocal", "ipv4/accept_local", n.IPv4AcceptLocal)
	flag("IPv4RouteLocalnet", "ipv4/route_localnet", n.IPv4RouteLocalnet)
	flag("IPv4ProxyARP", "ipv4/proxy_arp", n.IPv4ProxyARP)
	flag("IPv4ProxyARPPrivateVLAN", "ipv4/proxy_arp_pvlan", n.IPv4ProxyARPPrivateVLAN)
	flag("IPv6ProxyNDP", "ipv6/proxy_ndp", n.IPv6ProxyNDP)
	if infiniBand {
		// The hardware address has the queue pair number, another one after each restart of
		// the driver: the kernel announces each address with it (addrconf_dad_completed).
		flag("", ndiscNotify, units.Some(true))
	}
	return out
}

// addrGenOf is the generation mode of IPv6 link-local addresses in a unit, EUI-64
// if it sets none; for IPoIB that is the port GUID.
func addrGenOf(n *units.Network) units.AddrGen {
	return n.IPv6LinkLocalAddressGeneration.Or(units.AddrGenEUI64)
}

func oneZero(v bool) string {
	if v {
		return "1"
	}
	return "0"
}

func planSysctls(b *Builder, index int, u *units.Unit) {
	for _, s := range wantedSysctls(u, b.Link(index).IsInfiniBand()) {
		l := b.Link(index)
		if s.name == "" {
			// On a link that is up it is left as it is: others configured it.
			if was := l.Sysctl[s.key]; was != "" && was != s.value && !l.Up() {
				b.Do(SetSysctl{On: b.Model.Target(l), Key: s.key, Value: s.value})
			}
			continue
		}
		a := Attribute{Name: s.name, Wanted: s.show(nil, s.value)}
		if now := b.Now(index); now != nil && now.Sysctl[s.key] != "" {
			a.Actual = s.show(now, now.Sysctl[s.key])
		}
		no6 := noInet6(b.Base.Host.NoIPv6, l)
		switch {
		case strings.HasPrefix(s.key, "ipv6/") && no6 != (Reason{}):
			a.Why = no6
			b.Block(b.Model.Target(l), nil, false, a.Why)
		case s.key == "ipv6/mtu" && u.Network.IPv6MTUBytes.V > l.MTU:
			a.Why = Reason{Code: CodeMTUAdapter, Text: fmt.Sprintf("IPv6MTUBytes=%s is more than the link's MTU %d", s.value, l.MTU)}
			b.Block(b.Model.Target(l), nil, false, a.Why)
		case l.Sysctl[s.key] != s.value:
			op := SetSysctl{On: b.Model.Target(l), Key: s.key, Value: s.value}
			b.DoFor(op, &a.Why)
		}
		b.Attr(index, a)
	}
}

func sysctlName(link, key string) string {
	if strings.HasPrefix(key, "/") {
		return "net" + strings.ReplaceAll(key, "/", ".")
	}
	family, leaf, _ := strings.Cut(key, "/")
	if strings.Contains(link, ".") {
		return "net/" + family + "/conf/" + link + "/" + leaf
	}
	return "net." + family + ".conf." + link + "." + leaf
}
