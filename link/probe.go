package link

import (
	"fmt"
	"net/netip"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// Probe is what ARP probes have found about an IPv4 address (RFC 5227).
type Probe struct {
	Address netip.Addr `json:"address"`
	State   ProbeState `json:"state"`
	// By is the hardware address of the host that uses the address.
	By ib.HWAddr `json:"by,omitzero"`
	// LinkLocal is of the IPv4 link-local address that was chosen for the link (RFC 3927).
	LinkLocal bool `json:"link_local,omitempty"`
	// Lost has the DHCP client give a leased address back.
	Lost bool `json:"lost,omitempty"`
	// Trouble is why packets cannot be sent or received, empty for nothing.
	Trouble string `json:"trouble,omitempty"`
}

// ProbeState is how far the probes of an address are.
type ProbeState string

// The states of probes.
const (
	ProbeStopped  ProbeState = "stopped"  // the link has no carrier
	ProbeProbing  ProbeState = "probing"  // probes are sent
	ProbeFree     ProbeState = "free"     // no host has answered
	ProbeConflict ProbeState = "conflict" // another host uses the address
)

// Probed are the addresses of a unit that are probed on a link, without the link-local one.
func (d Derivation) Probed(s *Snapshot, l *Link, u *units.Unit) (out []netip.Addr) {
	addrs, _ := d.Addresses(s, l, u)
	for _, w := range wantedAddresses(l, u, addrs) {
		if w.probe && !w.linkLocal {
			out = append(out, w.Prefix.Addr())
		}
	}
	return out
}

// ProbedLease is the leased address that is probed on a link, not valid for none.
func ProbedLease(l *Link, u *units.Unit) netip.Addr {
	if x := l.leaseFor(u); x != nil && u.DHCPv4.Get().SendDecline.V && l.probes() {
		return x.Address.Addr()
	}
	return netip.Addr{}
}

// WantsLinkLocal reports whether a unit gives a link an IPv4 link-local address.
func WantsLinkLocal(l *Link, u *units.Unit) bool {
	return u != nil && u.ConfiguresIP() && u.Network.LinkLocalAddressing.Or(units.LinkLocalIPv6).IPv4() && l.probes()
}

// LinkLocal is the IPv4 link-local address that a link has or is to have, not valid if none
// is chosen.
func (l *Link) LinkLocal() netip.Addr {
	for _, p := range l.Probes {
		if p.LinkLocal {
			return p.Address
		}
	}
	// Before the first probe, that of the daemon's last run.
	for _, a := range l.Addresses {
		if ip := a.Prefix.Addr(); a.Scope == ScopeLink && a.Prefix.Bits() == 16 && ip.Is4() && ip.IsLinkLocalUnicast() {
			return ip
		}
	}
	return netip.Addr{}
}

// wantedLinkLocal is the IPv4 link-local address of a link, not valid if none is chosen.
func wantedLinkLocal(l *Link) wantedAddress {
	a := l.LinkLocal()
	if !a.IsValid() {
		return wantedAddress{}
	}
	p := netip.PrefixFrom(a, 16)
	return wantedAddress{Address: Address{Prefix: p, Scope: ScopeLink, Broadcast: lastAddr(p), Metric: linkLocalMetric, Valid: Forever,
		Preferred: Forever}, probe: true, linkLocal: true}
}

// linkLocalMetric is that of systemd-networkd.
const linkLocalMetric = 2048

// planLinkLocal reports that no IPv4 link-local address is chosen yet, or cannot be.
func planLinkLocal(b *Builder, index int, u *units.Unit) {
	l := b.Link(index)
	if !u.Network.LinkLocalAddressing.Or(units.LinkLocalIPv6).IPv4() || WantsLinkLocal(l, u) && l.LinkLocal().IsValid() {
		return
	}
	why, wait := Reason{Code: CodeProbing, Text: fmt.Sprintf("ARP probes show which link-local address is free on %s", l.Name)}, true
	if !WantsLinkLocal(l, u) {
		why, wait = Reason{Code: CodeUnsupported, Text: "IPv4 link-local addresses need ARP, which is for InfiniBand and Ethernet links",
			Next: "write LinkLocalAddressing=ipv6"}, false
	}
	b.Block(b.Model.Target(l), nil, wait, why)
	b.Attr(index, Attribute{Name: "Address", Wanted: "169.254.0.0/16", Why: why})
}

// probes reports whether the unit's addresses can be probed on a link.
func (l *Link) probes() bool {
	return (l.Type == ARPHRDInfiniBand || l.Type == 1) && l.Flags&FlagNoARP == 0
}

func (l *Link) probe(a netip.Addr) Probe {
	for _, p := range l.Probes {
		if p.Address == a {
			return p
		}
	}
	return Probe{Address: a, State: ProbeStopped}
}

// deferral is why an address is not set yet, or should not be.
func (p Probe) deferral(l *Link) *deferral {
	switch {
	case p.State == ProbeConflict:
		return &deferral{why: Reason{Code: CodeAddressConflict, Text: fmt.Sprintf("another host uses %s: %s", p.Address, p.By),
			Next: "remove the address from the other host, or choose another one"}}
	case p.Trouble != "":
		return &deferral{why: Reason{Code: CodeProbing, Text: fmt.Sprintf("%s cannot be probed: %s", p.Address, p.Trouble),
			Next: "systemctl start ibnetworkd-packet.socket; or run ibnetworkd with CAP_NET_RAW; or remove DuplicateAddressDetection="}}
	case p.State == ProbeStopped && !(l.Up() && l.Carrier()):
		return &deferral{Reason{Code: CodeProbing, Text: fmt.Sprintf("%s is probed by ARP when %s has a carrier", p.Address, l.Name)}, true}
	}
	return &deferral{Reason{Code: CodeProbing, Text: fmt.Sprintf("ARP probes show whether another host uses %s", p.Address)}, true}
}
