package card

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ibnetworkd/internal/kernel/rtnl"
	"ibnetworkd/link"
	"ibnetworkd/roce"
	"ibnetworkd/units"
)

// vlanOn is a VLAN of a link; ENODEV also if its name is another link's by now.
func (o *Observer) vlanOn(on link.Target, name string) (rtnl.Link, error) {
	l, err := o.rt.LinkByName(name, false)
	if err == nil && (l.Kind != "vlan" || l.Parent != on.Ifindex) {
		err = fmt.Errorf("%s is another link now: %w", name, unix.ENODEV)
	}
	return l, err
}

// addVLAN makes a VLAN interface, in the network namespace of its unit if it has one: the
// kernel brings it up there with its parent.
func (o *Observer) addVLAN(p roce.AddVLAN) error {
	v := vlan(p.On.Ifindex, p.Name, &p.VLAN)
	path := p.VLAN.Namespace()
	if path == "" {
		return o.rt.Do(rtnl.NewVLAN(v))
	}
	return rtnl.InNamespace(filepath.Join("/", o.root, path), func(fd int) error {
		v.Namespace, v.Up = &fd, true
		if err := o.rt.NumberNamespace(fd); err != nil {
			return err
		}
		err := o.rt.Do(rtnl.NewVLAN(v))
		if errors.Is(err, unix.ENETDOWN) {
			v.Up = false
			err = o.rt.Do(rtnl.NewVLAN(v))
		}
		return err
	})
}

// setVLAN changes what can be changed of a VLAN interface.
func (o *Observer) setVLAN(p roce.SetVLAN) error {
	l, err := o.vlanOn(p.On, p.Name)
	if err != nil {
		return err
	}
	v := vlan(p.On.Ifindex, p.Name, &p.VLAN)
	for _, from := range p.DropIngress {
		v.Ingress = append(v.Ingress, rtnl.QoSMap{From: from})
	}
	for _, from := range p.DropEgress {
		v.Egress = append(v.Egress, rtnl.QoSMap{From: from})
	}
	return o.rt.Do(rtnl.SetVLAN(l.Index, v))
}

func vlan(parent int, name string, v *units.VLAN) rtnl.VLANSpec {
	out := rtnl.VLANSpec{Parent: parent, Name: name, ID: v.Id.V}
	if v.Protocol.Set {
		out.Protocol = uint16(v.Protocol.V)
	}
	if m, ok := v.MTUBytes.Get(); ok && !m.Max {
		out.MTU = m.Bytes
	}
	flag := func(f units.Value[bool]) *bool {
		if !f.Set {
			return nil
		}
		return &f.V
	}
	out.ReorderHeader, out.GVRP, out.MVRP, out.LooseBinding = flag(v.ReorderHeader), flag(v.GVRP), flag(v.MVRP), flag(v.LooseBinding)
	maps := func(ms []units.Value[units.QOSMap]) (out []rtnl.QoSMap) {
		for _, m := range ms {
			out = append(out, rtnl.QoSMap{From: m.V.From, To: m.V.To})
		}
		return out
	}
	out.Ingress, out.Egress = maps(v.IngressQOSMaps), maps(v.EgressQOSMaps)
	return out
}
