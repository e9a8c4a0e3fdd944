package roce

import (
	"net/netip"
	"slices"

	"ibnetworkd/link"
)

// PortOf is the RDMA port on a link: the one the observer joined to it, or the
// one whose network interface it is. The port is nil if there is none.
func PortOf(s *link.Snapshot, l *link.Link) (dev *link.Device, port *link.Port) {
	for d, q := range s.Ports() {
		if d.Name == l.IBDevice && q.Num == l.Port || l.IBDevice == "" && q.Netdev == l.Index && l.Index != 0 {
			return d, q
		}
	}
	return nil, nil
}

// PortsOn are the RDMA ports on a link, that of PortOf first: an Ethernet link
// can have soft RoCE beside its card's own. Those of a VLAN are its parent's, those
// of a bond its slaves', which come before one on the bond itself.
func PortsOn(s *link.Snapshot, l *link.Link) (devs []*link.Device, ports []*link.Port) {
	if link.IsVLAN(l.Kind) {
		if up, ok := s.Link(l.Parent); ok && !link.IsVLAN(up.Kind) {
			return PortsOn(s, up)
		}
		return nil, nil
	}
	if isBond(l) {
		for _, x := range slaves(s, l) {
			ds, qs := PortsOn(s, x)
			devs, ports = append(devs, ds...), append(ports, qs...)
		}
	}
	if d, q := PortOf(s, l); q != nil {
		devs, ports = append(devs, d), append(ports, q)
	}
	if l.Index == 0 || l.IsInfiniBand() {
		return devs, ports
	}
	for d, q := range s.Ports() {
		if q.Netdev == l.Index && !slices.Contains(ports, q) {
			devs, ports = append(devs, d), append(ports, q)
		}
	}
	return devs, ports
}

// RoCEPortOf is the RDMA port on a link that applications use: the first of
// PortsOn with GIDs, because a card whose Ethernet side has no RDMA has a port
// too; the first of all where none has any. Of a bond it is the one that has most
// of the bond's addresses: where each slave has a device, that of the active slave.
func RoCEPortOf(s *link.Snapshot, st *State, l *link.Link) (dev *link.Device, port *link.Port) {
	devs, ports := PortsOn(s, l)
	most := -1
	for i, q := range ports {
		gids := st.Devices[devs[i].Name].Ports[q.Num].GIDs
		n := 0
		if len(gids) > 0 {
			n = 1 + entriesOf(gids, l)
		}
		if n > most {
			most, dev, port = n, devs[i], q
		}
	}
	return dev, port
}

// entriesOf counts the addresses of a link that a GID table has.
func entriesOf(table []GID, l *link.Link) (n int) {
	for _, a := range l.Addresses {
		ip := a.Prefix.Addr().WithZone("")
		if slices.ContainsFunc(table, func(e GID) bool {
			return (e.Netdev == "" || e.Netdev == l.Name) && netip.AddrFrom16(e.GID).Unmap() == ip
		}) {
			n++
		}
	}
	return n
}
