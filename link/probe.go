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
	// Trouble is why packets cannot be sent or received, empty for nothing.
	Trouble string `json:"trouble,omitempty"`
}

// ProbeState is how far the probes of an address are.
type ProbeState string

// The states of probes.
const (
	ProbeStopped  ProbeState = "stopped"  // the link has no carrier
	ProbeAsking   ProbeState = "asking"   // probes are sent
	ProbeFree     ProbeState = "free"     // no host has answered
	ProbeConflict ProbeState = "conflict" // another host uses the address
)

// Probed are the addresses of a unit that are probed on a link.
func (d Derivation) Probed(s *Snapshot, l *Link, u *units.Unit) (out []netip.Addr) {
	addrs, _ := d.Addresses(s, l, u)
	for _, w := range wantedAddresses(l, u, addrs) {
		if w.probe {
			out = append(out, w.Prefix.Addr())
		}
	}
	return out
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

// reason is why an address is not on a link yet, or should not be.
func (p Probe) reason(l *Link) (Reason, bool) {
	switch {
	case p.State == ProbeConflict:
		return Reason{Code: CodeAddressConflict, Text: fmt.Sprintf("another host uses %s: %s", p.Address, p.By),
			Next: "remove the address from the other host, or choose another one"}, false
	case p.Trouble != "":
		return Reason{Code: CodeProbing, Text: fmt.Sprintf("%s cannot be probed: %s", p.Address, p.Trouble),
			Next: "systemctl start ibnetworkd-packet.socket; or run ibnetworkd with CAP_NET_RAW; or remove DuplicateAddressDetection="}, false
	case p.State == ProbeStopped:
		return Reason{Code: CodeProbing, Text: fmt.Sprintf("%s is probed when %s has a carrier", p.Address, l.Name)}, true
	}
	return Reason{Code: CodeProbing, Text: fmt.Sprintf("ARP probes show whether another host uses %s", p.Address)}, true
}
