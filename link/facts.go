package link

import (
	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// factsOf gathers what [Match] can ask about a link.
func factsOf(s *Snapshot, l *Link) units.Facts {
	f := units.Facts{
		Name:                units.Know(l.Name),
		AltNames:            l.AltNames,
		MACAddress:          units.Know(l.HWAddr),
		PermanentMACAddress: units.Know(l.PermAddr),
		Path:                units.Know(l.Path),
		Driver:              units.Know(l.Driver),
		NetDriver:           units.Know(l.NetDriver),
		Type:                units.Know(typeName(l.Type)),
		Kind:                units.Know(l.Kind),
		IBDevice:            units.Know(l.IBDevice),
		Port:                units.Know(l.Port),
		PortGUID:            units.Know(l.HWAddr.GUID()),
		NodeGUID:            units.Know(ib.GUID(0)),
		BoardID:             units.Know(""),
		LinkLayer:           units.Know(ib.LinkLayerUnspecified),
		PartitionKey:        units.Know(ib.PKey(0)),
		OriginalName:        units.Know(l.Name),
		Host:                &s.Host.Facts,
	}
	if m, ok := s.Link(l.Master); ok && m.Bond != nil && !l.IsInfiniBand() && l.PermAddr != (ib.HWAddr{}) {
		f.MACAddress = units.Know(l.PermAddr) // what it has is the bond's
	}
	if n := l.Udev.Properties["ID_NET_NAME_ORIGINAL"]; n != "" {
		f.OriginalName = units.Know(n)
	}
	if l.Udev.Initialized || !s.Host.Udev {
		f.Properties = units.Know(l.Udev.Properties)
	}
	if l.IPoIB != nil {
		f.PartitionKey = units.Know(l.IPoIB.PKey)
	}
	d, p := s.PortOf(l)
	if d != nil {
		f.NodeGUID, f.BoardID = units.Know(d.NodeGUID), units.Know(d.BoardID)
		if l.Path == "" {
			f.Path = units.Know(d.Path)
		}
		if l.Driver == "" {
			f.Driver = units.Know(d.Driver)
		}
	}
	if p != nil {
		f.LinkLayer = units.Know(p.Layer)
		if p.GUID != 0 {
			f.PortGUID = units.Know(p.GUID)
		}
	}
	return f
}

// factsOfPort gathers what [Match] can ask about an RDMA port that has no
// network interface yet. The interface's own word for its driver is then one of
// the facts that are not known.
func factsOfPort(s *Snapshot, d *Device, p *Port) units.Facts {
	f := units.Facts{
		IBDevice:  units.Know(d.Name),
		Port:      units.Know(p.Num),
		PortGUID:  units.Know(p.GUID),
		NodeGUID:  units.Know(d.NodeGUID),
		BoardID:   units.Know(d.BoardID),
		LinkLayer: units.Know(p.Layer),
		Driver:    units.Know(d.Driver),
		Host:      &s.Host.Facts,
	}
	if d.Path != "" {
		f.Path = units.Know(d.Path)
	}
	return f
}

// typeName is networkd's word for a device type (ARPHRD).
func typeName(t uint16) string {
	switch t {
	case 1:
		return "ether"
	case ARPHRDInfiniBand:
		return "infiniband"
	case ARPHRDLoopback:
		return "loopback"
	case 65534:
		return "none"
	}
	return "other"
}
