package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"ibnetworkd/link"
)

func (o *Observer) observeAddresses(s *link.Snapshot) error {
	raw, err := o.rt.Addresses()
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	by := make(map[int][]link.Address, len(s.Links))
	for i := range raw {
		a := &raw[i]
		x := link.Address{
			Prefix: a.Prefix, Broadcast: a.Broadcast, Label: a.Label, Scope: a.Scope, Flags: a.Flags,
			Metric: a.Metric, Valid: a.Valid, Preferred: a.Preferred, Protocol: a.Protocol,
		}
		if a.Peer.IsValid() && a.Peer != a.Prefix.Addr() {
			// The kernel keeps one length for both ends: the peer's network.
			x.Peer = netip.PrefixFrom(a.Peer, a.Prefix.Bits())
			x.Prefix = netip.PrefixFrom(a.Prefix.Addr(), a.Prefix.Addr().BitLen())
		}
		by[a.Index] = append(by[a.Index], x)
	}
	s.Links = replaceEach(s.Links, func(l *link.Link) bool {
		if slices.Equal(l.Addresses, by[l.Index]) {
			return false
		}
		l.Addresses = by[l.Index]
		return true
	})
	return nil
}
