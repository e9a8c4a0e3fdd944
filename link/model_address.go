package link

import (
	"net/netip"
	"slices"
)

func (m *Model) addAddress(l *Link, o AddAddress) error {
	a := o.Address
	is6 := a.Prefix.Addr().Is6()
	if is6 && (m.snap.Host.NoIPv6 || l.Sysctl[disableIPv6] == "1" || l.MTU < 1280) {
		return errInvalid
	}
	for i, x := range l.Addresses {
		if !sameAddress(x, a) {
			continue
		}
		if !o.Replace {
			return errExist
		}
		l.Addresses[i].Valid, l.Addresses[i].Preferred = a.Valid, a.Preferred
		if a.Metric != 0 {
			l.Addresses[i].Metric = a.Metric
		}
		if is6 {
			l.Addresses[i].Flags = x.Flags&^addrFlagsSettable | a.Flags&addrFlagsSettable
		}
		return nil
	}
	if !is6 {
		for _, x := range l.Addresses {
			if SameSubnet(x, a) {
				a.Flags |= AddrSecondary
			}
		}
	}
	l.Addresses = append(l.Addresses, a)
	m.changeGIDs(l, a.Prefix.Addr(), false)
	return nil
}

// SameSubnet reports whether the kernel makes one of two addresses of a link a
// secondary of the other (inet_insert_ifa).
func SameSubnet(a, b Address) bool {
	return a.Prefix.Addr().Is4() && b.Prefix.Addr().Is4() && a.Prefix.Masked() == b.Prefix.Masked()
}

func (m *Model) delAddress(l *Link, a Address) error {
	i := slices.IndexFunc(l.Addresses, func(x Address) bool { return sameAddress(x, a) })
	if i < 0 {
		return errNoAddr
	}
	gone := l.Addresses[i]
	l.Addresses = slices.Delete(l.Addresses, i, i+1)
	m.changeGIDs(l, gone.Prefix.Addr(), true)
	if gone.Prefix.Addr().Is4() && gone.Flags&AddrSecondary == 0 {
		// Without promote_secondaries the secondaries go with their primary.
		l.Addresses = slices.DeleteFunc(l.Addresses, func(x Address) bool {
			return SameSubnet(x, gone) && x.Flags&AddrSecondary != 0 && m.Truth != nil
		})
	}
	has := func(ip netip.Addr) bool {
		return slices.ContainsFunc(l.Addresses, func(x Address) bool { return x.Prefix.Addr() == ip })
	}
	from := func(r Route) bool {
		return r.PrefSrc.IsValid() && r.PrefSrc == gone.Prefix.Addr() && !has(r.PrefSrc)
	}
	l.Routes = slices.DeleteFunc(l.Routes, from)
	m.dropRoutes(from)
	return nil
}
