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

// leaseTable is the routing table of a lease's routes.
func leaseTable(u *units.Unit) uint32 { return u.DHCPv4.RouteTable.Or(TableMain) }

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
	own := u.DHCPv4.RouteTable.Or(table)
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
	routes := u.DHCPv4.UseRoutes.Or(true)
	if routes {
		for _, r := range lease.Routes {
			add(r.Dst, r.Gateway)
		}
	}
	if lease.Gateway.IsValid() && u.DHCPv4.UseGateway.Or(routes) {
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0), lease.Gateway)
	}
	return out
}

// LeaseMTU is the MTU that a link's lease gives it, if its unit uses it.
func LeaseMTU(l *Link, u *units.Unit) units.Value[units.MTU] {
	const least = 576 // of an IPv4 host; a smaller one is a mistake or an attack
	lease := l.leaseFor(u)
	if lease == nil || !u.DHCPv4.UseMTU.V || lease.MTU < least {
		return units.Value[units.MTU]{}
	}
	return units.Some(units.MTU{Bytes: lease.MTU})
}

// UsesLeaseDNS reports whether a unit has servers or domains of a lease handed to
// systemd-resolved.
func UsesLeaseDNS(u *units.Unit) bool {
	return u != nil && u.UsesDHCP() && (u.DHCPv4.UseDNS.Or(true) || u.DHCPv4.UseDomains.V != units.UseDomainsNo)
}

// addLeased adds to a unit's servers and domains those of the link's lease that it uses,
// and gives what it added.
func addLeased(op *SetDNS, u *units.Unit, l *Link) (added []string) {
	lease := l.leaseFor(u)
	if lease == nil {
		return nil
	}
	add := func(to *[]string, name string) {
		if name != "" && !slices.Contains(*to, name) {
			*to = append(*to, name)
			added = append(added, name)
		}
	}
	if u.DHCPv4.UseDNS.Or(true) {
		for _, s := range lease.DNS {
			add(&op.Servers, s.String())
		}
	}
	prefix := ""
	switch u.DHCPv4.UseDomains.V {
	case units.UseDomainsNo:
		return added
	case units.UseDomainsRoute:
		prefix = "~"
	}
	for _, d := range append([]string{lease.Domain}, lease.Search...) {
		if d != "" {
			add(&op.Domains, prefix+d)
		}
	}
	return added
}

// planLease says how far the DHCP client of a link is.
func planLease(b *Builder, index int, u *units.Unit, wait Reason, waits bool) {
	if !u.UsesDHCP() {
		return
	}
	l := b.Link(index)
	a := Attribute{Name: "DHCP", Wanted: "ipv4"}
	d := l.DHCP
	if d == nil {
		d = &DHCP{State: DHCPStopped}
	}
	if d.Lease != nil {
		a.Actual = d.text()
	}
	switch {
	case l.Type != ARPHRDInfiniBand && l.Type != 1:
		a.Why = Reason{Code: CodeUnsupported, Text: fmt.Sprintf("DHCP is for InfiniBand and Ethernet links, and %s is neither", l.Name),
			Next: "remove DHCP="}
		b.Block(b.Model.Target(l), nil, false, a.Why)
	case waits:
		a.Why = wait
		b.Block(b.Model.Target(l), nil, d.Lease == nil, wait)
	case d.Lease == nil || d.Tries > 0 || d.Trouble != "":
		a.Why = d.reason(l)
		b.Block(b.Model.Target(l), nil, d.Lease == nil, a.Why)
	}
	b.Attr(index, a)
}

// text is a lease as a status shows it.
func (d *DHCP) text() string {
	x := d.Lease
	life := "without an end"
	if x.Lifetime != Forever {
		life = "for " + (time.Duration(x.Lifetime) * time.Second).String()
	}
	s := fmt.Sprintf("%s: %s by %s %s", d.State, x.Address, x.Server, life)
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
func (d *DHCP) reason(l *Link) Reason {
	r := Reason{Code: CodeNoLease}
	joined := "the link has carrier, so it is the server or the network between"
	r.Next = "check the log of the DHCP server, and that it serves the network of " + l.Name
	if l.IPoIB != nil {
		joined = "the group is joined, so it is the server or the P_Key"
		r.Next = fmt.Sprintf("check that a DHCP server serves partition %s, and its log", l.IPoIB.PKey)
	}
	switch {
	case d.Trouble != "":
		r.Text = d.Trouble
		r.Next = "systemctl start ibnetworkd-packet.socket; or run ibnetworkd with CAP_NET_RAW"
	case d.Conflict.IsValid():
		r.Code, r.Text = CodeAddressConflict, fmt.Sprintf("another host uses %s, which the DHCP server gave: it was declined", d.Conflict)
		r.Next = "find the host with: ip neighbour show to " + d.Conflict.String() + "; exclude its address on the server"
	case d.Lease != nil:
		r.Text = fmt.Sprintf("no answer from a DHCP server on %d tries to renew the lease; it is used until it ends", d.Tries)
	case d.Tries >= 4:
		r.Text = fmt.Sprintf("no answer from a DHCP server on %d tries; %s", d.Tries, joined)
	case d.Refused.IsValid():
		r.Text = fmt.Sprintf("DHCP server %s refused the address that %s had; another one is requested", d.Refused, l.Name)
	case d.State == DHCPStopped:
		r.Text = "the DHCP client begins when the link is ready"
	case d.State == DHCPProbing:
		r.Text = "ARP probes show whether another host uses the address that the DHCP server gave"
		r.Next = ""
	case d.State == DHCPRequesting || d.State == DHCPRebooting:
		r.Text = "the DHCP server is asked to confirm an address"
		r.Next = ""
	default:
		r.Text = "a DHCP server is searched for"
	}
	return r
}
