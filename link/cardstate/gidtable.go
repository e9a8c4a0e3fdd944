package cardstate

import (
	"net/netip"
	"slices"

	"ibnetworkd/ib"
)

// The rules of a port's GID table (Linux 6.12, drivers/infiniband/core/cache.c and
// roce_gid_mgmt.c): the first indexes, one for each RoCE version of the port, belong
// to the default GIDs; an address has an entry for each version, v1 first, each at
// the lowest free index above those, unless the table has the entry.

// Versions are the RoCE versions that a port has entries for, in order.
func (p Port) Versions() []int {
	var out []int
	for _, e := range p.GIDs {
		if !slices.Contains(out, e.Version) {
			out = append(out, e.Version)
		}
	}
	slices.Sort(out)
	return out
}

// FirstGID is the lowest index that the entry of an address can have.
func (p Port) FirstGID() int { return len(p.Versions()) }

// GIDOf finds the entry of an address of an interface.
func (p Port) GIDOf(ip netip.Addr, netdev string, version int) (GID, bool) {
	i := slices.IndexFunc(p.GIDs, func(e GID) bool { return e.Version == version && e.is(ip, netdev) })
	if i < 0 {
		return GID{}, false
	}
	return p.GIDs[i], true
}

// GIDAt finds the entry of an index.
func (p Port) GIDAt(index int) (GID, bool) {
	i := slices.IndexFunc(p.GIDs, func(e GID) bool { return e.Index == index })
	if i < 0 {
		return GID{}, false
	}
	return p.GIDs[i], true
}

// IP is the address that a GID was made of.
func (e GID) IP() netip.Addr { return netip.AddrFrom16(e.GID).Unmap() }

// is reports whether an entry is that of an address. Linux names no interface of an
// entry whose interface is in another network namespace.
func (e GID) is(ip netip.Addr, netdev string) bool {
	return e.Netdev == netdev && e.IP() == ip.WithZone("")
}

// EnterGID is the port after an address was added to an interface.
func (p Port) EnterGID(ip netip.Addr, netdev string) Port {
	versions, first := p.Versions(), p.FirstGID()
	p.GIDs = slices.Clone(p.GIDs)
	for _, v := range versions {
		if _, ok := p.GIDOf(ip, netdev, v); ok {
			continue
		}
		i := first
		for ; ; i++ {
			if _, used := p.GIDAt(i); !used {
				break
			}
		}
		if p.GIDSlots != 0 && i >= p.GIDSlots {
			break
		}
		p.GIDs = append(p.GIDs, GID{Index: i, GID: ib.GID(ip.WithZone("").As16()), Version: v, Netdev: netdev})
	}
	slices.SortFunc(p.GIDs, func(a, b GID) int { return a.Index - b.Index })
	return p
}

// RemoveGID is the port after an address was removed from an interface. The default
// GIDs stay.
func (p Port) RemoveGID(ip netip.Addr, netdev string) Port {
	first := p.FirstGID()
	p.GIDs = slices.DeleteFunc(slices.Clone(p.GIDs), func(e GID) bool { return e.Index >= first && e.is(ip, netdev) })
	return p
}
