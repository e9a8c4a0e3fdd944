package dhcpclient

import (
	"ibnetworkd/daemon"
	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// identity is what the identifiers of a link are made from.
type identity struct {
	name   string    // of the interface, "" where its hardware address says more
	hwaddr ib.HWAddr // of a port below
	slave  bool      // hwaddr is that of a slave, which is kept when another one is active
}

// identify gives the identity of a link. A bond, and what is above one, has the hardware address of one of its
// slaves, which changes with the active one: its own name counts, and the address of the slave that it has had (kept),
// of the primary one, or of the first by name.
func identify(v daemon.View, l *link.Link, kept ib.HWAddr) identity {
	top := l
	for range 8 { // a VLAN on a bond, and the like; the ends of a veth are each below the other
		below, ok := v.Snapshot.Link(top.Parent)
		if gathers(top) || !ok || top.Parent == 0 {
			break
		}
		top = below
	}
	if !gathers(top) {
		return identity{name: predictable(l), hwaddr: l.HWAddr}
	}
	var first *link.Link
	primary := false
	for i := range v.Snapshot.Links {
		x := &v.Snapshot.Links[i]
		u := v.Governing.UnitOf(x)
		name, _ := u.MasterBond()
		asks := name != "" && name == top.Name
		switch is := top.Bond != nil && top.Bond.Primary == x.Index || asks && u.IsPrimary(x.Name); {
		case x.Index == top.Index || x.Type != top.Type:
		case x.Master != top.Index && !asks:
			if port(x) == kept && x.Broadcast == top.Broadcast && !gathers(x) && u != nil && (name != "" || u.UsesDHCP() || u.MayUseDHCPv6()) {
				kept = ib.HWAddr{} // the port has left, and has a lease of its own or of another bond
			}
		case first == nil || is && !primary || is == primary && x.Name < first.Name:
			first, primary = x, is
		}
	}
	out := identity{name: l.Name, hwaddr: kept, slave: true}
	switch {
	case out.hwaddr.IsValid():
	case first != nil:
		out.hwaddr = port(first)
	default:
		out.hwaddr, out.slave = l.HWAddr, false
	}
	return out
}

// gathers reports whether a link has its hardware address from links that are in it.
func gathers(l *link.Link) bool { return l.Kind == "bond" || l.Kind == "team" || l.Kind == "bridge" }

// port is the hardware address of a link that does not change in a bond or with the driver: of IPoIB, the port GUID.
func port(l *link.Link) ib.HWAddr {
	a := l.HWAddr
	if l.PermAddr.IsValid() && l.PermAddr.Len() == a.Len() && !a.IsIPoIB() {
		return l.PermAddr
	}
	b := a.Bytes()
	if guid, err := ib.HWAddrFrom(b[max(0, len(b)-8):]); err == nil {
		return guid
	}
	return a
}
