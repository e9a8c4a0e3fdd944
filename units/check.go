package units

import (
	"fmt"
	"net/netip"

	"ibnetworkd/ib"
)

// finish moves the objects into the unit, checking each by itself and then keys
// against each other. It returns false when the unit cannot be used.
func (p *parser) finish() bool {
	u := p.u
	for _, o := range p.objs {
		if o.dropped || !o.spec.Repeat {
			continue
		}
		p.sec, p.key = o.spec, nil
		if o.lost != "" {
			p.problems[o.lostAt].Kept = fmt.Sprintf("the [%s] is not used, because without %s= it would mean something else",
				o.spec.Name, o.lost)
			continue
		}
		switch x := o.ptr.(type) {
		case *Partition:
			keep(&u.Partitions, x, p.partition(x))
		case *Address:
			keep(&u.Addresses, x, p.address(x, o.shorthand))
		case *Route:
			keep(&u.Routes, x, p.route(x, o.shorthand))
		case *RoutingPolicyRule:
			keep(&u.Rules, x, p.rule(x))
		case *Neighbor:
			keep(&u.Neighbors, x, p.neighbor(x))
		case *NextHopObject:
			keep(&u.NextHops, x, p.nextHop(x))
		case *VLAN:
			keep(&u.VLANs, x, p.vlan(x))
		case *VF:
			keep(&u.VFs, x, p.vf(x))
		}
	}
	for i := range p.problems {
		if pr := &p.problems[i]; pr.Kept == matchesNothing && pr.Section == "Match" && pr.Key != "" &&
			!u.Match.isInvalid(pr.Key) && !u.Match.isInvalid("") {
			pr.Kept = "a later assignment replaces it"
		}
	}
	p.checkMTU()
	p.checkRoCE()
	p.checkEngine()
	p.checkVFs()
	p.checkGateways()
	p.checkNextHops()
	p.checkIPv6()
	p.checkAcceptRA()
	p.checkToken()
	p.checkDHCP()
	p.checkDHCPv6()
	p.checkLink()
	p.checkEthtool()
	slave := p.namesBond()
	p.checkOwnName()
	p.checkBond()
	if !slave {
		p.checkGIDIndex()
	}
	p.checkVRF()
	p.checkVLANs()
	p.sec, p.key = nil, nil
	return p.checkMatch()
}

func keep[T any](list *[]T, x *T, good bool) {
	if good {
		*list = append(*list, *x)
	}
}

// at sets the place in the schema for the next problem.
func (p *parser) at(section, key string) *parser {
	p.sec = sectionByName[section]
	p.key = p.sec.key(key)
	return p
}

func (p *parser) checkMatch() bool {
	u := p.u
	if !u.Match.Empty() {
		return true
	}
	if u.onlyModules() {
		return true
	}
	pos := u.Match.Pos
	if !u.Match.Present {
		pos = PlaceOf(Position{File: u.Path, Line: 1, Column: 1})
	}
	p.problem(pos, Error, "the file is not used",
		"no key in [Match] says which links the unit is for; write Name=* in [Match] if it is for every link")
	return false
}

// onlyModules reports a unit that has [Modules] and nothing that needs a link.
func (u *Unit) onlyModules() bool {
	return u.Modules.Present && !u.Match.Present && !u.Link.Present && !u.IPoIB.Present && len(u.Partitions) == 0 && !u.Bond.Present &&
		!u.VRF.Present && !u.ConfiguresIP() &&
		!u.DHCPv4.Get().Present && !u.DHCPv6.Get().Present && !u.IPv6AcceptRA.Present &&
		!u.SubnetManager.Get().Present && !u.Port.Present && !u.RoCE.Present && len(u.VLANs) == 0 && !u.SoftRoCE.Present &&
		!u.VirtualFunctions.Present && len(u.VFs) == 0
}

const notUsed = "the section is not used"

func (p *parser) partition(x *Partition) bool {
	if !x.PartitionKey.Set {
		p.problem(x.Pos, Warning, notUsed, "[Partition] has no PartitionKey=")
		return false
	}
	for i := range p.u.Partitions {
		o := &p.u.Partitions[i]
		if o.PartitionKey.V.Base() == x.PartitionKey.V.Base() {
			p.at("Partition", "PartitionKey").problem(x.PartitionKey.Pos, Warning, notUsed,
				"P_Key %s is already used by the [Partition] at %s; keys that differ in the membership bit only are the "+
					"same", x.PartitionKey.V, o.Pos)
			return false
		}
		if x.Name.Set && o.Name.Set && o.Name.V == x.Name.V {
			p.at("Partition", "Name").problem(x.Name.Pos, Warning, notUsed,
				"interface name %s is already used by the [Partition] at %s", x.Name.V, o.Pos)
			return false
		}
	}
	if x.Mode.Or(ModeAuto) == ModeDatagram {
		p.at("Partition", "MTUBytes").checkModeMTU(x.MTUBytes)
	} else {
		p.at("Partition", "MTUBytes").checkIPoIBMTU(x.MTUBytes)
	}
	return true
}

// datagramMTU is the largest netdev MTU of datagram mode, on a fabric of 4096.
var datagramMTU = ib.MTU4096.IPoIBDatagram()

func (p *parser) checkModeMTU(mtu Value[MTU]) {
	if mtu.Set && !mtu.V.Max && mtu.V.Bytes > datagramMTU {
		p.problem(mtu.Pos, Warning, fmt.Sprintf("the link gets at most %d", datagramMTU),
			"MTUBytes=%d is impossible in datagram mode, which allows at most %d; write Mode=connected, or "+
				"MTUBytes=max", mtu.V.Bytes, datagramMTU)
	}
}

func (p *parser) checkIPoIBMTU(mtu Value[MTU]) {
	if mtu.Set && !mtu.V.Max && mtu.V.Bytes > ib.ConnectedMTU {
		p.problem(mtu.Pos, Warning, fmt.Sprintf("the link gets at most %d", ib.ConnectedMTU),
			"MTUBytes=%d is impossible on IPoIB, which allows at most %d", mtu.V.Bytes, ib.ConnectedMTU)
	}
}

func (p *parser) checkMTU() {
	u := p.u
	if !u.IPoIB.Present && !u.Link.GUID.Set && !u.Match.wantsIPoIB() {
		return
	}
	p.at("Link", "MTUBytes")
	mtu := u.Link.MTUBytes
	switch {
	case mtu.Set && mtu.V.Bytes > ib.ConnectedMTU:
		p.checkIPoIBMTU(mtu)
	case u.IPoIB.Mode.Set && u.IPoIB.Mode.V == ModeDatagram:
		p.checkModeMTU(mtu)
	case mtu.Set && mtu.V.Bytes > datagramMTU && !u.IPoIB.Mode.Set:
		p.problem(mtu.Pos, Warning, fmt.Sprintf("a link in datagram mode gets at most %d", datagramMTU),
			"MTUBytes=%d needs connected mode; write Mode=connected or Mode=auto in [IPoIB]", mtu.V.Bytes)
	}
}

// wantsIPoIB reports a [Match] that only IPoIB links can fit.
func (m *Match) wantsIPoIB() bool {
	has := func(list []Value[Pattern], word string) bool {
		return len(list) == 1 && !list[0].V.Not && list[0].V.Glob == word
	}
	return has(m.Kind, "ipoib") || has(m.Type, "infiniband")
}

// checkIPv6 finds an MTU that turns IPv6 off on a link that is to have it.
func (p *parser) checkIPv6() {
	u := p.u
	m := u.Link.MTUBytes
	if m.Set && !m.V.Max && m.V.Bytes < 1280 {
		for i := range u.Addresses {
			if u.Addresses[i].Address.V.Addr().Is6() {
				p.at("Link", "MTUBytes").problem(m.Pos, Warning, "the value is kept and the IPv6 addresses cannot be set",
					"MTUBytes=%d is less than 1280, so the kernel turns IPv6 off, but %s is to be set "+
						"(%s)", m.V.Bytes, u.Addresses[i].Address.V, u.Addresses[i].Address.Pos)
				break
			}
		}
	}
	if n := u.Network.IPv6MTUBytes; n.Set && m.Set && !m.V.Max && n.V > m.V.Bytes {
		p.at("Network", "IPv6MTUBytes").problem(n.Pos, Warning, "the value is kept and the kernel will refuse it",
			"IPv6MTUBytes=%d is larger than MTUBytes=%d (%s)", n.V, m.V.Bytes, m.Pos)
	}
}

// checkLink finds keys that need each other and keys that exclude each other.
func (p *parser) checkLink() {
	u := p.u
	a := u.Link.ActivationPolicy
	switch {
	case a.Set && a.V == ActivationBound && len(u.Network.BindCarrier) == 0:
		p.at("Link", "ActivationPolicy").problem(a.Pos, Warning, "the link is neither brought up nor brought down",
			"ActivationPolicy=bound needs BindCarrier= in [Network], the links to follow")
	case a.Set && a.V != ActivationBound && len(u.Network.BindCarrier) > 0:
		p.at("Link", "ActivationPolicy").problem(a.Pos, Warning, "BindCarrier= is followed",
			"ActivationPolicy=%s and BindCarrier= (%s) exclude each other", a.V, u.Network.BindCarrier[0].Pos)
	}
	if rpf := u.Network.IPv4ReversePathFilter; u.Network.MultiRail.Or(false) && rpf.Or(0) == ReversePathStrict && len(u.Rules) == 0 {
		p.at("Network", "IPv4ReversePathFilter").problem(rpf.Pos, Warning, "the value is set as written",
			"strict drops packets whose way back is by another rail, which MultiRail=yes (%s) is to accept; write loose, or give the link a "+
				"[Route] in a table of its own and a [RoutingPolicyRule] with From=", u.Network.MultiRail.Pos)
	}
	if u.wantsInfiniBand() {
		if v := u.Link.Promiscuous; v.Set && v.V {
			p.at("Link", "Promiscuous").problem(v.Pos, Warning, "the flag is set and has no effect", "IPoIB has no promiscuous mode")
		}
		if v := u.Link.ARP; v.Set && !v.V {
			p.at("Link", "ARP").problem(v.Pos, Warning, "the flag is set as written", "IPoIB cannot work without ARP")
		}
	}
}

// wantsInfiniBand reports a unit that is for IPoIB links.
func (u *Unit) wantsInfiniBand() bool {
	return u.IPoIB.Present || len(u.Partitions) > 0 || u.Link.GUID.Set || u.Match.wantsIPoIB()
}

func (p *parser) route(x *Route, shorthand bool) bool {
	if shorthand && !x.Gateway.Set {
		return false
	}
	hops := len(x.MultiPathRoute) > 0
	if !x.Gateway.Set && !x.Destination.Set && !x.Source.Set && !x.PreferredSource.Set && !hops {
		if x.NextHop.Set {
			p.at("Route", "NextHop").problem(x.NextHop.Pos, Warning, notUsed,
				"a route over NextHop=%d needs Destination=; write 0.0.0.0/0 or ::/0 for the default route", x.NextHop.V)
			return false
		}
		p.problem(x.Pos, Warning, notUsed, "[Route] has none of Gateway=, Destination=, Source=, PreferredSource= and MultiPathRoute=")
		return false
	}
	is6 := x.Is6()
	clash := func(key string, pos Place, what any) bool {
		p.at("Route", key).problem(pos, Warning, notUsed, "%s=%v is not of the route's family (%s)", key, what, familyName(is6))
		return false
	}
	if x.Gateway.Set && x.Gateway.V.Is6() != is6 && (is6 || !x.Gateway.V.Is6()) {
		return clash("Gateway", x.Gateway.Pos, x.Gateway.V)
	}
	if x.Source.Set && x.Source.V.Addr().Is6() != is6 {
		return clash("Source", x.Source.Pos, x.Source.V)
	}
	if x.PreferredSource.Set && x.PreferredSource.V.Is6() != is6 {
		return clash("PreferredSource", x.PreferredSource.Pos, x.PreferredSource.V)
	}
	for _, h := range x.MultiPathRoute {
		if h.V.Gateway.Is6() != is6 && is6 {
			return clash("MultiPathRoute", h.Pos, h.V.Gateway)
		}
	}
	if x.NextHop.Set && !p.routeNextHop(x, is6) {
		return false
	}
	if x.Source.Set && !is6 {
		p.at("Route", "Source").problem(x.Source.Pos, Warning, notUsed,
			"the kernel has Source= for IPv6 routes only; write a [RoutingPolicyRule] with From=")
		return false
	}
	if hops && x.Gateway.Set {
		p.at("Route", "Gateway").problem(x.Gateway.Pos, Warning, "Gateway= is ignored",
			"Gateway= and MultiPathRoute= (%s) exclude each other", x.MultiPathRoute[0].Pos)
		x.Gateway = Value[netip.Addr]{}
	}
	switch t := x.Type.Or(RouteUnicast); t {
	case RouteBlackhole, RouteUnreachable, RouteProhibit, RouteThrow:
		if x.Gateway.Set || hops {
			p.at("Route", "Type").problem(x.Type.Pos, Warning, notUsed, "a route of type %s has no gateway", t)
			return false
		}
	}
	if x.IPv6Preference.Set && !is6 {
		p.at("Route", "IPv6Preference").problem(x.IPv6Preference.Pos, Warning, "the key is ignored", "IPv6Preference= is for IPv6 routes")
		x.IPv6Preference = Value[RoutePreference]{}
	}
	if x.Scope.Set && is6 {
		p.at("Route", "Scope").problem(x.Scope.Pos, Warning, "the key is ignored", "IPv6 routes have no scope")
		x.Scope = Value[Scope]{}
	}
	id := routeID{x.dest(), x.Source.V, x.Metric.V, x.Table.V}
	if first, twice := p.routes[id]; twice {
		pos := x.Pos
		if x.Gateway.Set {
			pos = x.Gateway.Pos
		}
		p.problem(pos, Warning, "the second one is not used",
			"a route to %s with the same metric and table already exists at %s; write another Metric= for a backup gateway, "+
				"or MultiPathRoute= to use both", x.dest(), first)
		return false
	}
	if p.routes == nil {
		p.routes = map[routeID]Place{}
	}
	p.routes[id] = x.Pos
	return true
}

// routeID is what distinguishes the routes of a link to the kernel.
type routeID struct {
	dest, source  netip.Prefix
	metric, table uint32
}

func familyName(is6 bool) string {
	if is6 {
		return "IPv6"
	}
	return "IPv4"
}

// dest is the destination with its default.
func (r *Route) dest() netip.Prefix {
	if r.Destination.Set {
		return r.Destination.V
	}
	if r.Is6() {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// checkGateways finds IPv4 gateways that none of the unit's own networks
// reaches: the kernel would answer "Nexthop has invalid gateway".
func (p *parser) checkGateways() {
	u := p.u
	reached := func(gw netip.Addr) bool {
		any4 := false
		for i := range u.Addresses {
			a := &u.Addresses[i]
			if !a.Address.V.Addr().Is4() {
				continue
			}
			any4 = true
			if a.Peer.V.Masked().Contains(gw) || a.Address.V.Masked().Contains(gw) {
				return true
			}
		}
		for i := range u.Routes {
			r := &u.Routes[i]
			if r.Destination.Set && !r.Gateway.Set && r.Destination.V.Contains(gw) {
				return true
			}
		}
		// Without an address here, or with one that is not known, others may bring one.
		return !any4 || u.Derives()
	}
	known := map[netip.Addr]bool{}
	for i := range u.Routes {
		r := &u.Routes[i]
		if !r.Gateway.Set || !r.Gateway.V.Is4() || r.GatewayOnLink.Or(false) {
			continue
		}
		ok, asked := known[r.Gateway.V]
		if !asked {
			ok = reached(r.Gateway.V)
			known[r.Gateway.V] = ok
		}
		if !ok {
			p.at("Route", "Gateway").problem(r.Gateway.Pos, Warning, "the route is kept and the kernel may refuse it",
				"gateway %s is in none of the unit's networks; write GatewayOnLink=yes if the link reaches it nevertheless", r.Gateway.V)
		}
	}
}

func (p *parser) rule(x *RoutingPolicyRule) bool {
	if x.From.Set && x.To.Set && x.From.V.Addr().Is4() != x.To.V.Addr().Is4() {
		p.at("RoutingPolicyRule", "To").problem(x.To.Pos, Warning, notUsed, "From=%s and To=%s are of different families", x.From.V, x.To.V)
		return false
	}
	if x.Family.Set && (x.From.Set || x.To.Set) {
		v4, _ := x.Families()
		if x.Family.V == FamilyBoth || (x.Family.V == FamilyIPv4) != v4 {
			p.at("RoutingPolicyRule", "Family").problem(x.Family.Pos, Warning, notUsed,
				"Family=%s does not match the addresses in From= and To=", x.Family.V)
			return false
		}
	}
	if x.Type.Or(RuleTable) == RuleGoTo && !x.GoTo.Set {
		p.at("RoutingPolicyRule", "Type").problem(x.Type.Pos, Warning, notUsed, "Type=goto needs GoTo=")
		return false
	}
	if x.GoTo.Set {
		if x.Type.Set && x.Type.V != RuleGoTo {
			p.at("RoutingPolicyRule", "GoTo").problem(x.GoTo.Pos, Warning, notUsed, "GoTo= needs Type=goto, not Type=%s", x.Type.V)
			return false
		}
		if x.Priority.Set && x.GoTo.V <= x.Priority.V {
			p.at("RoutingPolicyRule", "GoTo").problem(x.GoTo.Pos, Warning, notUsed, "GoTo=%d must be larger than Priority=%d",
				x.GoTo.V, x.Priority.V)
			return false
		}
		x.Type = Value[RuleType]{V: RuleGoTo, Set: true, Pos: x.GoTo.Pos}
	}
	if x.L3MasterDevice.Or(false) && x.Table.Set {
		p.at("RoutingPolicyRule", "Table").problem(x.Table.Pos, Warning, "Table= is ignored",
			"L3MasterDevice=yes takes the table of the VRF")
		x.Table = Value[uint32]{}
	}
	v4, _ := x.Families()
	if x.SuppressPrefixLength.Set && v4 && x.SuppressPrefixLength.V > 32 {
		p.at("RoutingPolicyRule", "SuppressPrefixLength").problem(x.SuppressPrefixLength.Pos, Warning, "the key is ignored",
			"SuppressPrefixLength=%d is more than 32, the length of an IPv4 address", x.SuppressPrefixLength.V)
		x.SuppressPrefixLength = Value[int]{}
	}
	for i := range p.u.Rules {
		o := &p.u.Rules[i]
		if sameRule(o, x) {
			p.problem(x.Pos, Warning, "the second one is not used", "the same rule already exists at %s", o.Pos)
			return false
		}
	}
	return true
}

// sameRule compares what the kernel compares.
func sameRule(a, b *RoutingPolicyRule) bool {
	key := func(r *RoutingPolicyRule) string {
		v4, v6 := r.Families()
		return fmt.Sprint(v4, v6, r.TypeOfService.V, r.From.V, r.To.V, r.FirewallMark.V, r.Table.V, r.Priority.V, r.Priority.Set,
			r.GoTo.V, r.IncomingInterface.V, r.OutgoingInterface.V,
			r.L3MasterDevice.V, r.SourcePort.V, r.DestinationPort.V, r.IPProtocol.V, r.InvertRule.V,
			r.User.Set, r.User.V, r.SuppressPrefixLength.Set, r.SuppressPrefixLength.V,
			r.SuppressInterfaceGroup.Set, r.SuppressInterfaceGroup.V, r.Type.Or(RuleTable))
	}
	return key(a) == key(b)
}

func (p *parser) vf(x *VF) bool {
	if !x.VirtualFunction.Set {
		p.problem(x.Pos, Warning, notUsed, "[VF] has no VirtualFunction=")
		return false
	}
	for i := range p.u.VFs {
		o := &p.u.VFs[i]
		if o.VirtualFunction.V == x.VirtualFunction.V {
			p.at("VF", "VirtualFunction").problem(x.VirtualFunction.Pos, Warning, notUsed,
				"virtual function %d is already described by the [VF] at %s", x.VirtualFunction.V, o.Pos)
			return false
		}
		for _, k := range []struct {
			key  string
			a, b Value[VFGUID]
		}{{"NodeGUID", x.NodeGUID, o.NodeGUID}, {"PortGUID", x.PortGUID, o.PortGUID}} {
			if k.a.Set && k.b.Set && !k.a.V.Auto && k.a.V == k.b.V {
				p.at("VF", k.key).problem(k.a.Pos, Warning, notUsed, "%s=%s is already the GUID of virtual function %d (%s)",
					k.key, k.a.V, o.VirtualFunction.V, k.b.Pos)
				return false
			}
		}
	}
	if x.MinRate.Set && x.MaxRate.Set && x.MaxRate.V != 0 && x.MinRate.V > x.MaxRate.V {
		p.at("VF", "MinRate").problem(x.MinRate.Pos, Warning, "MinRate= is ignored", "MinRate= is larger than MaxRate= (%s)", x.MaxRate.Pos)
		x.MinRate = Value[uint32]{}
	}
	return true
}

func (p *parser) checkVFs() {
	u := p.u
	if !u.VirtualFunctions.Count.Set {
		return
	}
	for i := range u.VFs {
		if v := u.VFs[i].VirtualFunction; v.V >= u.VirtualFunctions.Count.V {
			p.at("VF", "VirtualFunction").problem(v.Pos, Warning, "the section is not used until Count= is larger",
				"VirtualFunction=%d does not exist with Count=%d (%s); the first is "+
					"0", v.V, u.VirtualFunctions.Count.V, u.VirtualFunctions.Count.Pos)
		}
	}
}

func (p *parser) checkRoCE() {
	r := &p.u.RoCE
	if g := p.u.Match.PortGUID; p.u.Port.Type.V == PortTypeEth && len(g) > 0 && !g[0].V.Not {
		p.at("Match", "PortGUID").problem(g[0].Pos, Warning, "the unit applies until the port is Ethernet",
			"an Ethernet port has no port GUID: with Type=eth (%s) match by NodeGUID= and Port=", p.u.Port.Type.Pos)
	}
	if r.DSCP.Set && r.TypeOfService.Set && r.TypeOfService.V>>2 != r.DSCP.V {
		p.at("RoCE", "DSCP").problem(r.DSCP.Pos, Warning, "TypeOfService= is used",
			"DSCP=%d means TypeOfService=%d, but TypeOfService=%d is set (%s)", r.DSCP.V, r.DSCP.V<<2, r.TypeOfService.V, r.TypeOfService.Pos)
	}
	total, shares := 0, false
	seen := map[uint8]Place{}
	keep := r.ETS[:0:0]
	for _, e := range r.ETS {
		if at, dup := seen[e.V.Class]; dup {
			p.at("RoCE", "ETS").problem(e.Pos, Warning, "the item is ignored", "traffic class %d is given at %s already", e.V.Class, at)
			continue
		}
		seen[e.V.Class] = e.Pos
		keep = append(keep, e)
		if !e.V.Strict {
			shares = true
			total += int(e.V.Percent)
		}
	}
	r.ETS = keep
	if shares && total != 100 {
		p.at("RoCE", "ETS").problem(r.ETS[0].Pos, Warning, "the values are kept and the driver may refuse them",
			"the shares of bandwidth make %d percent, not 100", total)
	}
	r.PriorityToClass = p.dedupMap("PriorityToClass", r.PriorityToClass)
	r.DSCPToPriority = p.dedupMap("DSCPToPriority", r.DSCPToPriority)
	r.PriorityToBuffer = p.dedupMap("PriorityToBuffer", r.PriorityToBuffer)
	if len(r.DSCPToPriority) > 0 && r.Trust.Set && r.Trust.V == TrustPCP {
		p.at("RoCE", "DSCPToPriority").problem(r.DSCPToPriority[0].Pos, Warning, "both are kept",
			"DSCPToPriority= has no effect with Trust=pcp (%s), and switches drivers such as mlx5 to dscp", r.Trust.Pos)
	}
}

// dedupMap keeps the last item of each source, as assignments do.
func (p *parser) dedupMap(key string, items []Value[PriorityMap]) []Value[PriorityMap] {
	last := map[uint8]int{}
	for i, m := range items {
		last[m.V.From] = i
	}
	out := items[:0:0]
	for i, m := range items {
		if j := last[m.V.From]; j != i && items[j].V.To != m.V.To {
			p.at("RoCE", key).problem(m.Pos, Warning, "the later one is used", "%s= maps %d twice, to %d here and to %d at %s",
				key, m.V.From, m.V.To, items[j].V.To, items[j].Pos)
			continue
		} else if j != i {
			continue
		}
		out = append(out, m)
	}
	return out
}

// checkEngine reports settings that only the built-in subnet manager has.
func (p *parser) checkEngine() {
	s := p.u.SubnetManager.Get()
	if s.Engine.Or(EngineBuiltin) != EngineOpenSM {
		return
	}
	only := func(key string, set bool, pos Place, instead string) {
		if set {
			p.at("SubnetManager", key).problem(pos, Warning, "it has no effect", "%s= is for Engine=builtin; opensm has %s", key, instead)
		}
	}
	for _, r := range s.Partition {
		only("Partition", true, r.Pos, "PartitionsFile=")
	}
	only("KeyFile", s.KeyFile.Set, s.KeyFile.Pos, "m_key, sm_key and sa_key in /etc/opensm/opensm.conf")
	only("MKeyProtect", s.MKeyProtect.Set, s.MKeyProtect.Pos, "m_key_protection_level in /etc/opensm/opensm.conf")
	only("MKeyLeaseSec", s.MKeyLeaseSec.Set, s.MKeyLeaseSec.Pos, "m_key_lease_period in /etc/opensm/opensm.conf")
	only("PollSec", s.PollSec.Set, s.PollSec.Pos, "sminfo_polling_timeout in /etc/opensm/opensm.conf")
	only("Reregister", s.Reregister.Set, s.Reregister.Pos, "no_clients_rereg in /etc/opensm/opensm.conf")
	only("QoS", s.QoS.Set, s.QoS.Pos, "qos in /etc/opensm/opensm.conf")
}
