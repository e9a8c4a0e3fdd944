package card

import (
	"ibnetworkd/ib"
	"ibnetworkd/internal/kernel/devlink"
	"ibnetworkd/internal/kernel/rdmanl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// typeOf is the type of a port, nil for drivers that cannot change it. What a worker
// of the card is changing is as it was before.
func (o *Observer) typeOf(busy bool, d *link.Device, p *link.Port, want units.PortType) *roce.PortType {
	if busy {
		if old := o.lastType(d.Name, p.Num); old != nil {
			return old
		}
	}
	return o.portType(d, p, want)
}

func (o *Observer) portType(d *link.Device, p *link.Port, want units.PortType) *roce.PortType {
	if d.Bus == "" || d.Parent == "" {
		return nil
	}
	file := o.sys.PortTypeFile(d.Bus, d.Parent, p.Num)
	if file == "" {
		return nil
	}
	pt := &roce.PortType{Bus: d.Bus, Dev: d.Parent, File: file}
	now, err := o.sys.PortType(d.Bus, d.Parent, p.Num)
	if err != nil {
		return nil
	}
	words := map[string]units.PortType{"ib": units.PortTypeIB, "eth": units.PortTypeEth, "auto": units.PortTypeAuto}
	pt.Configured, pt.Current = words[now.Configured], words[now.Current]
	if pt.Current == 0 {
		pt.Current = units.PortTypeIB
		if p.Layer == ib.LinkLayerEthernet {
			pt.Current = units.PortTypeEth
		}
	}
	// devlink is the better way where it knows the port: it answers with the
	// driver's own words. While a card is at work its lock would hold up the answer.
	if o.workers.any() {
		if old := o.lastType(d.Name, p.Num); old != nil {
			pt.Index, pt.File = old.Index, old.File
		}
	} else if open(&o.dl, devlink.Dial) == nil {
		ports, err := o.dl.Ports()
		if err == nil {
			for _, q := range ports {
				if q.Bus == d.Bus && q.Dev == d.Parent && int(q.Index) == p.Num && q.Type != devlink.TypeNotSet {
					pt.Index, pt.File = q.Index, ""
				}
			}
		}
	}
	if want != pt.Configured && want != pt.Current && open(&o.rd, rdmanl.Dial) == nil {
		if n, err := o.rd.Users(d.Index); err == nil {
			pt.Programs, pt.Connections = n.Programs, n.Connections
		}
	}
	return pt
}

func (o *Observer) lastType(dev string, port int) *roce.PortType {
	if o.last == nil {
		return nil
	}
	return o.last.Devices[dev].Ports[port].Type
}

func (e *executor) setPortType(p roce.SetPortType) error {
	if p.Port.File != "" {
		return e.sys.SetPortType(p.Port.Bus, p.Port.Dev, portOf(p), p.Type.String())
	}
	if err := open(&e.dl, devlink.Dial); err != nil {
		return err
	}
	types := map[units.PortType]devlink.PortType{units.PortTypeAuto: devlink.TypeAuto, units.PortTypeEth: devlink.TypeEth,
		units.PortTypeIB: devlink.TypeIB}
	return e.dl.Do(e.dl.SetPortType(p.Port.Bus, p.Port.Dev, p.Port.Index, types[p.Type]))
}

func portOf(p roce.SetPortType) int {
	// The attribute's name ends with the number of the port.
	if f := p.Port.File; f != "" {
		if c := f[len(f)-1]; c >= '1' && c <= '9' {
			return int(c - '0')
		}
	}
	if p.Port.Index != 0 {
		return int(p.Port.Index)
	}
	return p.On.Port
}
