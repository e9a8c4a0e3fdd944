package link

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ibnetworkd/units"
)

// leaseFor is the lease of a link whose unit asks for one, nil for none.
func (l *Link) leaseFor(u *units.Unit) *Lease {
	if u == nil || !u.UsesDHCP() || l.DHCP == nil {
		return nil
	}
	return l.DHCP.Lease
}

// lease6For is the same of DHCPv6, for an address or for information alone.
func (l *Link) lease6For(u *units.Unit) *Lease {
	if u == nil || !u.MayUseDHCPv6() || l.DHCP6 == nil {
		return nil
	}
	return l.DHCP6.Lease
}

// leaseOf is the lease that gives a link an address, nil for none.
func (l *Link) leaseOf(u *units.Unit, p netip.Prefix) *Lease {
	for _, x := range []*Lease{l.leaseFor(u), l.lease6For(u)} {
		if x != nil && x.Address == p {
			return x
		}
	}
	return nil
}

func leaseAddresses(l *Link, u *units.Unit) (out []units.Address) {
	if x := l.leaseFor(u); x != nil {
		out = append(out, x.address(u))
	}
	if x := l.lease6For(u); x != nil && x.Address.IsValid() && u.DHCPv6.Get().UseAddress.Or(true) {
		out = append(out, units.Address{Address: units.Value[netip.Prefix]{V: x.Address, Set: true, Pos: u.Network.DHCP.Pos},
			AddPrefixRoute: units.Some(false)})
	}
	return out
}

// DHCPv6Start is how the DHCPv6 client of a link is to begin. byRouter says that it is for
// router advertisements to say.
func DHCPv6Start(l *Link, u *units.Unit) (start units.DHCPv6Start, byRouter bool) {
	if start = u.DHCPv6Start(); start != units.DHCPv6None {
		return start, false
	}
	by := u.DHCPv6ByRouter()
	switch r := l.Router; {
	case by == units.DHCPv6Never:
		return units.DHCPv6None, false
	case r.Managed, r.Seen && by == units.DHCPv6Always:
		return units.DHCPv6Solicit, true
	case r.Other:
		return units.DHCPv6Information, true
	}
	return units.DHCPv6None, true
}

func leaseTable(u *units.Unit) uint32 { return u.DHCPv4.Get().RouteTable.Or(TableMain) }

// address is the address of a lease. The kernel makes the route to its subnet in the
// main table only.
func (l *Lease) address(u *units.Unit) units.Address {
	return units.Address{Address: units.Value[netip.Prefix]{V: l.Address, Set: true, Pos: u.Network.DHCP.Pos},
		RouteMetric: units.Some(u.DHCPMetric()), AddPrefixRoute: units.Some(leaseTable(u) == TableMain)}
}

// leaseRoutes are the routes of a link's lease that its unit uses, in a table where
// RouteTable= names none.
func leaseRoutes(l *Link, u *units.Unit, table uint32) (out []Route) {
	lease := l.leaseFor(u)
	if lease == nil {
		return nil
	}
	own := u.DHCPv4.Get().RouteTable.Or(table)
	apart := own != table || leaseTable(u) != TableMain // the kernel makes no route to the subnet there
	base := Route{Table: own, Metric: u.DHCPMetric(), Type: RouteUnicast, Protocol: ProtoDHCP, PrefSrc: lease.Address.Addr()}
	add := func(dst netip.Prefix, via netip.Addr) {
		r := base
		r.Dst = dst
		if via.IsUnspecified() {
			r.Scope = ScopeLink
		} else {
			r.Gateway, r.OnLink = via, !lease.Address.Contains(via) || apart
		}
		if !slices.ContainsFunc(out, func(o Route) bool { return sameRoute(o, r) }) {
			out = append(out, r)
		}
	}
	if apart && lease.Address.Bits() < 32 {
		add(lease.Address.Masked(), netip.IPv4Unspecified())
	}
	routes := u.DHCPv4.Get().UseRoutes.Or(true)
	if routes {
		for _, r := range lease.Routes {
			add(r.Dst, r.Gateway)
		}
	}
	if lease.Gateway.IsValid() && u.DHCPv4.Get().UseGateway.Or(routes) {
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0), lease.Gateway)
	}
	return out
}

// LeaseMTU is the MTU that a link's lease gives it, if its unit uses it.
func LeaseMTU(l *Link, u *units.Unit) units.Value[units.MTU] {
	const least = 576 // of an IPv4 host; a smaller one is a mistake or an attack
	lease := l.leaseFor(u)
	if lease == nil || !u.DHCPv4.Get().UseMTU.V || lease.MTU < least {
		return units.Value[units.MTU]{}
	}
	return units.Some(units.MTU{Bytes: lease.MTU})
}

// UsesLeaseDNS reports whether a unit has servers or domains of a lease handed to
// systemd-resolved.
func UsesLeaseDNS(u *units.Unit) bool {
	return u != nil && (u.UsesDHCP() && (u.DHCPv4.Get().UseDNS.Or(true) || u.DHCPv4.Get().UseDomains.V != units.UseDomainsNo) ||
		u.MayUseDHCPv6() && (u.DHCPv6.Get().UseDNS.Or(true) || u.DHCPv6.Get().UseDomains.V != units.UseDomainsNo))
}

// addLeased adds to a unit's servers and domains those of the link's leases that it uses,
// and gives what it added.
func addLeased(op *SetDNS, u *units.Unit, l *Link) (added []string) {
	add := func(to *[]string, name string) { added = append(added, addNew(to, name)...) }
	use := func(lease *Lease, dns bool, domains units.UseDomains) {
		if lease == nil {
			return
		}
		if dns {
			for _, s := range lease.DNS {
				add(&op.Servers, s.String())
			}
		}
		prefix := ""
		switch domains {
		case units.UseDomainsNo:
			return
		case units.UseDomainsRoute:
			prefix = "~"
		}
		for _, d := range append([]string{lease.Domain}, lease.Search...) {
			if d != "" {
				add(&op.Domains, prefix+d)
			}
		}
	}
	if u != nil {
		use(l.leaseFor(u), u.DHCPv4.Get().UseDNS.Or(true), u.DHCPv4.Get().UseDomains.V)
		use(l.lease6For(u), u.DHCPv6.Get().UseDNS.Or(true), u.DHCPv6.Get().UseDomains.V)
	}
	return added
}

// planLeases reports how far the DHCP clients of a link are. Of two that a unit asks for the address
// of one is enough for the link to be configured, and it never waits for one that a router asks for.
func planLeases(b *Builder, index int, u *units.Unit, wait Reason, waits bool) {
	l := b.Link(index)
	has := func(d *DHCP) bool { return d != nil && d.Lease != nil }
	four, six := u.UsesDHCP(), u.AsksDHCPv6()
	served := four && has(l.DHCP) || six && has(l.DHCP6) && (!four || l.DHCP6.Lease.Address.IsValid())
	if four {
		planLease(b, l, u, l.DHCP, false, !served, wait, waits)
	}
	if six || l.DHCP6 != nil && u.MayUseDHCPv6() {
		planLease(b, l, u, l.DHCP6, true, six && !served, wait, waits)
	}
}

// planLease reports how far one client is; needed has the link wait for its lease.
func planLease(b *Builder, l *Link, u *units.Unit, d *DHCP, six, needed bool, wait Reason, waits bool) {
	a := Attribute{Name: "DHCP", Wanted: "ipv4"}
	if six {
		a = Attribute{Name: "DHCPv6", Wanted: "ipv6"}
		if !u.AsksDHCPv6() {
			a.Wanted = "as routers advertise"
		}
	}
	if d == nil {
		d = &DHCP{State: DHCPStopped}
	}
	if d.Lease != nil {
		a.Actual = d.text()
	}
	t := b.Model.Target(l)
	var never string
	var no6, local Reason
	if six {
		never, no6, local = u.NeverDHCPv6(), noIPv6(b.Base.Host.NoIPv6, l), noLinkLocal(b.Now(l.Index))
	}
	switch {
	case never != "":
		a.Why = Reason{Code: CodeNoLease, Text: fmt.Sprintf("no DHCPv6 client ever runs on %s: WithoutRA=no leaves it to router advertisements, "+
			"which %s ignores", l.Name, never), Next: "remove WithoutRA=no or " + never}
		b.Block(t, nil, false, a.Why)
	case l.Type != ARPHRDInfiniBand && l.Type != 1:
		a.Why = Reason{Code: CodeUnsupported, Text: fmt.Sprintf("DHCP is for InfiniBand and Ethernet links, and %s is neither", l.Name),
			Next: "remove DHCP="}
		b.Block(t, nil, false, a.Why)
	case no6 != (Reason{}):
		if a.Why = no6; a.Why.Next == "" {
			a.Why.Next = "write DHCP=ipv4"
		}
		b.Block(t, nil, false, a.Why)
	case waits:
		a.Why = wait
		b.Block(t, nil, needed, wait)
	case (d.State == DHCPStopped || d.State == DHCPKept) && local != (Reason{}):
		a.Why = local
		b.Block(t, nil, needed, local)
	case d.Lease == nil || d.Tries > 0 || d.Refusal != "" || d.Trouble != "":
		a.Why = d.reason(l, six)
		if _, byRouter := DHCPv6Start(l, u); six && byRouter && l.DHCP6 == nil {
			a.Why = Reason{Code: CodeNoLease, Text: "no router advertisement asks for DHCPv6",
				Next: "set the managed or the other flag on the router; or remove WithoutRA=no"}
		}
		b.Block(t, nil, needed, a.Why)
	}
	b.Attr(l.Index, a)
}

// noLinkLocal returns why a link that has IPv6 has no link-local address for DHCPv6, nothing where
// it has one or is about to.
func noLinkLocal(l *Link) (why Reason) {
	if l == nil {
		return Reason{}
	}
	for _, x := range l.Addresses {
		switch a := x.Prefix.Addr(); {
		case !a.Is6() || !a.IsLinkLocalUnicast():
		case x.Flags&AddrDADFailed == 0:
			return Reason{}
		default:
			why = duplicate(x, "find the other host: two ports have one GUID, or two links one hardware address")
		}
	}
	return why
}

// text is a lease as a status shows it.
func (d *DHCP) text() string {
	x := d.Lease
	life, what := "without an end", "information"
	if x.Lifetime != Forever {
		life = "for " + (time.Duration(x.Lifetime) * time.Second).String()
	}
	if x.Address.IsValid() {
		what = x.Address.String()
	}
	s := fmt.Sprintf("%s: %s by %s %s", d.State, what, x.Server, life)
	if len(x.NTP) > 0 {
		var ntp []string
		for _, a := range x.NTP {
			ntp = append(ntp, a.String())
		}
		s += ", NTP " + strings.Join(ntp, " ")
	}
	return s
}

// reason is why a link has no lease, or no answer about the one that it has.
func (d *DHCP) reason(l *Link, six bool) Reason {
	name, ready := "DHCP", "the link is ready"
	if six {
		name, ready = "DHCPv6", "the link is ready and its link-local address may be used"
	}
	r := Reason{Code: CodeNoLease}
	joined := "the link has carrier, so it is the server or the network between"
	r.Next = "check the log of the " + name + " server, and that it serves the network of " + l.Name
	if l.IPoIB != nil {
		joined = "the group is joined, so it is the server or the P_Key"
		r.Next = fmt.Sprintf("check that a %s server serves partition %s, and its log", name, l.IPoIB.PKey)
	}
	tries := fmt.Sprintf("%d tries", d.Tries)
	if d.Tries == 1 {
		tries = "1 try"
	}
	switch {
	case d.Trouble != "":
		r.Text = d.Trouble
		r.Next = "systemctl start ibnetworkd-packet.socket; or run ibnetworkd with CAP_NET_RAW"
	case d.Conflict.IsValid():
		r.Code, r.Text = CodeAddressConflict, fmt.Sprintf("another host uses %s, which the %s server gave: it was declined", d.Conflict, name)
		r.Next = "find the host with: ip neighbour show to " + d.Conflict.String() + "; exclude its address on the server"
	case d.Lease != nil && d.Refusal != "":
		r.Text = fmt.Sprintf("%s server %s does not renew the lease of %s (%s); it is used until it ends", name, d.Refused, l.Name, d.Refusal)
	case d.Lease != nil && d.Tries > 0 && d.Drops.Last != "":
		r.Text = fmt.Sprintf("%s answers do not renew the lease of %s (%s); it is used until it ends", name, l.Name, d.Drops.Last)
		r.Next = "correct the configuration of the " + name + " server"
	case d.Lease != nil && !d.Lease.Address.IsValid():
		r.Text = fmt.Sprintf("no answer from a %s server on %s for newer information; that of its last answer stays in use", name, tries)
	case d.Lease != nil:
		r.Text = fmt.Sprintf("no answer from a %s server on %s to renew the lease; it is used until it ends", name, tries)
	case d.Refusal != "":
		r.Text = fmt.Sprintf("%s server %s gives %s no address (%s)", name, d.Refused, l.Name, d.Refusal)
	case d.Drops.Last != "" && (d.Tries > 0 || d.State == DHCPSelecting):
		r.Text = fmt.Sprintf("%s answers for %s cannot be used (%s)", name, l.Name, d.Drops.Last)
		r.Next = "correct the configuration of the " + name + " server"
	case d.Tries >= 4:
		r.Text = fmt.Sprintf("no answer from a %s server on %s; %s", name, tries, joined)
	case d.Refused.IsValid():
		r.Text = fmt.Sprintf("%s server %s refused the address that %s had; another one is requested", name, d.Refused, l.Name)
	case d.State == DHCPStopped:
		r.Text = fmt.Sprintf("the %s client begins when %s", name, ready)
		r.Next = "ibnetctl diagnose " + l.Name
		if six {
			r.Next = "ip -6 address show dev " + l.Name + " scope link; if it has none, write LinkLocalAddressing=ipv6"
		}
	case d.State == DHCPProbing:
		r.Text = "ARP probes show whether another host uses the address that the DHCP server gave"
		r.Next = ""
	case d.State == DHCPRequesting || d.State == DHCPRebooting:
		r.Text = fmt.Sprintf("requesting the %s server to confirm an address", name)
		r.Next = ""
	default:
		r.Text = fmt.Sprintf("searching for a %s server", name)
	}
	return r
}
