package link

import (
	"maps"
	"net/netip"

	"ibnetworkd/link/cardstate"
)

// changeGIDs has the GID tables of the ports below a link follow an address that was
// added or removed.
func (m *Model) changeGIDs(l *Link, ip netip.Addr, removed bool) {
	if m.snap.Card == nil || l.IPoIB != nil {
		return
	}
	for _, x := range lowers(m.snap, l) {
		for i := range m.snap.Devices {
			d := &m.snap.Devices[i]
			for _, q := range d.Ports {
				p, ok := m.snap.Card.Devices[d.Name].Ports[q.Num]
				if !ok || len(p.GIDs) == 0 || q.Netdev != x.Index && (d.Name != x.IBDevice || q.Num != x.Port) {
					continue
				}
				if removed {
					p = p.RemoveGID(ip, l.Name)
				} else {
					p = p.EnterGID(ip, l.Name)
				}
				m.setPort(d.Name, q.Num, p)
			}
		}
	}
}

// setPort replaces a port's part of the card's state in the model's own copy.
func (m *Model) setPort(dev string, num int, p cardstate.Port) {
	st := *m.snap.Card
	st.Devices = maps.Clone(st.Devices)
	d := st.Devices[dev]
	d.Ports = maps.Clone(d.Ports)
	d.Ports[num] = p
	st.Devices[dev] = d
	m.snap.Card = &st
}

// lowers are a link and those below it whose ports have GIDs of its addresses: the
// parent of a VLAN or the like, the slaves of a bond.
func lowers(s *Snapshot, l *Link) []*Link {
	out := []*Link{l}
	for i := range s.Links {
		x := &s.Links[i]
		if IsVLAN(l.Kind) && x.Index == l.Parent && !IsVLAN(x.Kind) {
			out = append(out, lowers(s, x)...)
		}
		if l.Bond != nil && x.Master == l.Index {
			out = append(out, x)
		}
	}
	return out
}
