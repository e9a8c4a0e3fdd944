package link

import (
	"fmt"
	"net/netip"
	"slices"

	"ibnetworkd/units"
)

// Derivation is what derived addresses depend on besides a snapshot.
type Derivation struct {
	// Tables are the address tables that units name, by path.
	Tables map[string]*units.AddressTable
	// Follows reports whether a link has addresses derived from those of other links;
	// nil for none.
	Follows func(*Link) bool
}

// NewDerivation is that of a set of units, nil for none, where unitOf gives the unit of a link, nil
// for none.
func NewDerivation(set *units.Set, unitOf func(*Link) *units.Unit) Derivation {
	if set == nil {
		return Derivation{}
	}
	d := Derivation{Tables: set.Tables}
	if slices.ContainsFunc(set.Units, (*units.Unit).FollowsLinks) {
		d.Follows = func(l *Link) bool {
			u := unitOf(l)
			return u != nil && u.FollowsLinks()
		}
	}
	return d
}

// origins are what the derived addresses of a link are made from.
func (d Derivation) origins(s *Snapshot, l *Link) *units.Origins {
	f := factsOf(s, l)
	o := &units.Origins{Hostname: s.Host.Facts.Hostname, Link: l.Name, GUID: f.PortGUID.V, Tables: d.Tables}
	for i := range s.Links {
		x := &s.Links[i]
		if x.Index == l.Index || x.Type == ARPHRDLoopback {
			continue
		}
		from := units.Origin{Names: append([]string{x.Name}, x.AltNames...), Derives: d.Follows != nil && d.Follows(x)}
		for _, a := range x.Addresses {
			if ip := a.Prefix.Addr(); ip.Is4() && a.Flags&(AddrSecondary|AddrDeprecated) == 0 && a.Scope == ScopeGlobal && !ip.IsLinkLocalUnicast() {
				from.IPv4 = append(from.IPv4, a.Prefix)
			}
		}
		slices.SortFunc(from.IPv4, netip.Prefix.Compare)
		o.Others = append(o.Others, from)
	}
	return o
}

// Addresses are those that a unit, nil for none, gives a link, and those that cannot
// be derived now.
func (d Derivation) Addresses(s *Snapshot, l *Link, u *units.Unit) ([]units.Address, []units.Underived) {
	if u == nil {
		return nil, nil
	}
	addrs, not := u.Addresses, []units.Underived(nil)
	if u.Derives() {
		addrs, not = u.AddressesOn(d.origins(s, l))
	}
	return append(slices.Clip(addrs), leaseAddresses(l, u)...), not
}

// planUnderived reports the addresses that cannot be derived now as blocked.
func planUnderived(b *Builder, index int, not []units.Underived) {
	t := b.Model.Target(b.Link(index))
	for _, x := range not {
		why := Reason{Code: CodeNotDerived, Text: x.Why, Next: x.Next}
		b.Block(t, nil, true, why)
		b.Attr(index, Attribute{Name: "Address", Wanted: x.Text, Why: why})
	}
}

// kept reports whether an address stays because it cannot be derived now.
func kept(not []units.Underived, a Address) bool {
	return slices.ContainsFunc(not, func(x units.Underived) bool { return x.Keeps(a.Prefix) })
}

// sameAddressNotices find links that derive one address, as those of several rails
// that one unit matches.
func sameAddressNotices(s *Snapshot, set *units.Set, g Governing) (out []Notice) {
	if !slices.ContainsFunc(set.Units, (*units.Unit).Derives) {
		return nil
	}
	d := NewDerivation(set, g.UnitOf)
	first := map[netip.Addr]*Link{}
	for i := range s.Links {
		l := &s.Links[i]
		u := g.UnitOf(l)
		if u == nil || !u.Derives() || u.Unmanaged() {
			continue
		}
		addrs, _ := d.Addresses(s, l, u)
		for _, a := range addrs {
			ip := a.Address.V.Addr()
			if was := first[ip]; was == nil {
				first[ip] = l
			} else if len(out) < maxNotices {
				out = append(out, Notice{Unit: u.Path, Reason: Reason{Code: CodeSameDerive,
					Text: fmt.Sprintf("%s and %s get the same address %s (%s)", was.Name, l.Name, ip, a.Address.Pos),
					Next: "put {link} into the address, use HOST/LINK in the table, or match one link"}})
			}
		}
	}
	return out
}
