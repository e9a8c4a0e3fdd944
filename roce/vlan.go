package roce

import (
	"fmt"
	"maps"
	"slices"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// vlans plans [VLAN], [MACVLAN] and [IPVLAN].
func (p *planner) vlans() {
	on := p.on
	on.IBDevice, on.Port = "", 0
	for i := range p.u.VLANs {
		v := &p.u.VLANs[i]
		op := NewVLAN(on, p.l, v)
		name, kind, section := op.Name, v.Kind.String(), v.Kind.Section()
		a := link.Attribute{Name: section, Wanted: vlanText(name, v)}
		if v.NetworkNamespace.Set {
			a.Wanted += " in network namespace " + link.NamespaceName(v.Namespace())
		}
		c, ok := p.b.Base.LinkByName(name)
		if ok && p.leaves(c) {
			if c.Kind == kind && c.VLAN != nil {
				have := vlanAsIs(v, c.VLAN)
				a.Actual = vlanText(name, &have)
			}
			if p.stays(a, DelVLAN{On: op.On, Name: name, Kind: v.Kind}) {
				continue
			}
			ok = false
		}
		if !ok {
			if why := p.received(v.Kind); why != (link.Reason{}) {
				p.block(a, op, why)
				continue
			}
			p.vlanElsewhere(a, op)
			continue
		}
		if c.Kind != kind || c.Parent != p.index || c.VLAN == nil {
			p.block(a, op, link.Reason{
				Code: link.CodeNameTaken,
				Text: fmt.Sprintf("a link %s exists and is not of kind %s on %s", name, kind, p.l.Name),
				Next: "write another Name= in [" + section + "]",
			})
			continue
		}
		have := vlanAsIs(v, c.VLAN)
		a.Actual = vlanText(name, &have)
		switch {
		case v.NetworkNamespace.Set:
			p.block(a, op, link.Reason{Code: link.CodeNameTaken,
				Text: fmt.Sprintf("%s was not made by ibnetworkd: it is not moved to a network namespace", name),
				Next: "ip link delete " + name + ", or ip link set " + name + " netns " + link.NamespaceName(v.Namespace())})
		case sameTag(v, c.VLAN):
			set := SetVLAN{
				On:          op.On,
				Name:        name,
				VLAN:        *v,
				DropIngress: extra(c.VLAN.Ingress, v.IngressQOSMaps),
				DropEgress:  extra(c.VLAN.Egress, v.EgressQOSMaps),
			}
			p.reach(a, a.Actual == a.Wanted, set)
		default:
			p.block(a, op, p.otherTag(name, v, c.VLAN))
		}
	}
}

// leaves reports that PlanRemovals deletes an interface, whose name is then free.
func (p *planner) leaves(c *link.Link) bool {
	made := link.Made{Kind: c.Kind, Name: c.Name, On: p.index}
	return link.IsVLAN(c.Kind) && c.Parent == p.index && p.made(made) && !wantsVLAN(p.u, p.l.Name, c)
}

// otherTag is the reason why a VLAN or the like of others cannot become what a unit asks for.
func (p *planner) otherTag(name string, v *units.VLAN, c *link.VLAN) link.Reason {
	why := link.Reason{
		Code: link.CodeNameTaken,
		Text: fmt.Sprintf("%s is VLAN %d of %s, wanted %d, and was not made by ibnetworkd", name, c.ID, p.l.Name, v.Id.V),
		Next: "ip link delete " + name + ", or write another Name= in [" + v.Kind.Section() + "]",
	}
	switch {
	case v.Kind != units.KindVLAN:
		why.Text = fmt.Sprintf("%s has Mode=%s, which the kernel does not change to %s, and was not made by ibnetworkd", name,
			units.MACVLANMode(c.Mode), v.MACVLANMode.V)
	case c.ID == v.Id.V:
		why.Text = fmt.Sprintf("%s has tags of a protocol other than %s, and was not made by ibnetworkd", name, v.Protocol.Or(units.VLAN8021Q))
	}
	return why
}

// received returns the reason if a link gives all its packets to a bond or bridge, so that there can be no
// macvlan or ipvlan on it; zero if it does not.
func (p *planner) received(k units.VLANKind) link.Reason {
	m, ok := p.b.Base.Link(p.l.Master)
	if k == units.KindVLAN || !ok || p.l.SlaveKind == "vrf" {
		return link.Reason{}
	}
	return link.Reason{Code: link.CodeUnsupported,
		Text: fmt.Sprintf("%s is in %s, which gets all its packets: the kernel makes no %s on it", p.l.Name, m.Name, k),
		Next: "write [" + k.Section() + "] into a unit with [Match] Name=" + m.Name}
}

// vlanElsewhere plans a VLAN or the like that does not exist here, or not after PlanRemovals.
func (p *planner) vlanElsewhere(a link.Attribute, op AddVLAN) {
	v := op.VLAN
	made, _ := op.Makes()
	differs := false
	if done := p.b.PlanElsewhere(link.Elsewhere{Parent: p.l, Name: op.Name, Namespace: v.Namespace(),
		Section: v.Kind.Section(), Kind: v.Kind.String(),
		Is: func(m link.Moved) bool { return isVLAN(m, &v, p.l.Name) },
		Clashes: func(m link.Moved) bool {
			return m.Tag != link.VLANTag{} && m.Tag == tagOf(&v) || m.Made == made || m.Name == op.Name && m.Namespace == v.Namespace()
		},
		Text: func(m link.Moved, x *link.MovedLink) string {
			if x == nil || x.VLAN == nil {
				if v.Kind != units.KindVLAN {
					return m.Name
				}
				return vlanText(m.Name, &units.VLAN{Id: units.Some(m.Tag.ID)})
			}
			as := vlanAsIs(&v, x.VLAN)
			differs = vlanText(op.Name, &as) != vlanText(op.Name, &v)
			return vlanText(m.Name, &as)
		},
	}, &a, func(why link.Reason) { a.Why = why }); !done {
		p.reach(a, false, op)
		return
	}
	if a.Why == (link.Reason{}) && differs {
		a.Why = link.Reason{Code: link.CodeMoved,
			Text: fmt.Sprintf("%s has the settings with which it was made in network namespace %s", op.Name, link.NamespaceName(v.Namespace())),
			Next: "to make it again: " + link.InNamespace(v.Namespace(), "link delete "+a.Away.Name) + "; ibnetctl reconfigure " + p.l.Name}
	}
	if a.Why != (link.Reason{}) {
		p.block(a, op, a.Why)
		return
	}
	p.attr(a)
}

// isVLAN reports whether a VLAN that was made in a network namespace is the one that a
// [VLAN] asks for.
func isVLAN(m link.Moved, v *units.VLAN, parent string) bool {
	return v.NetworkNamespace.Set && v.Kind.String() == m.Kind && v.Namespace() == m.Namespace && m.Tag == tagOf(v) &&
		v.ChildName(parent) == m.Name
}

// tagOf is the tag of a VLAN, zero for others.
func tagOf(v *units.VLAN) link.VLANTag {
	if v.Kind != units.KindVLAN {
		return link.VLANTag{}
	}
	return link.VLANTag{ID: v.Id.V, Protocol: uint16(v.Protocol.Or(units.VLAN8021Q))}
}

// vlanText describes a VLAN or the like by what a unit says of it.
func vlanText(name string, v *units.VLAN) string {
	if v.Kind != units.KindVLAN {
		return name + vlanWords(v, nil, nil)
	}
	out := fmt.Sprintf("%s id %d", name, v.Id.V)
	if v.Protocol.Set {
		out += " protocol " + v.Protocol.V.String()
	}
	// What is mapped to 0 is not mapped.
	used := *v
	for _, ms := range []*[]units.Value[units.QOSMap]{&used.IngressQOSMaps, &used.EgressQOSMaps} {
		m := qosMap(*ms)
		*ms = slices.DeleteFunc(slices.Clone(*ms), func(x units.Value[units.QOSMap]) bool { return m[x.V.From] == 0 })
	}
	return out + vlanWords(&used, nil, nil)
}

// vlanAsIs is a VLAN or the like as it is, in the keys that a unit sets.
func vlanAsIs(want *units.VLAN, have *link.VLAN) units.VLAN {
	switch want.Kind {
	case units.KindMACVLAN:
		out := units.VLAN{Kind: want.Kind}
		if want.MACVLANMode.Set {
			out.MACVLANMode = units.Some(units.MACVLANMode(have.Mode))
		}
		return out
	case units.KindIPVLAN:
		return units.VLAN{Kind: want.Kind, IPVLANMode: units.Some(units.IPVLANMode(have.Mode)),
			IPVLANFlags: units.Some(units.IPVLANFlags(have.Flags))}
	}
	out := units.VLAN{Id: units.Some(have.ID)}
	if want.Protocol.Set {
		out.Protocol = units.Some(units.VLANProtocol(have.Protocol))
	}
	flags := vlanFlags(want)
	for i, f := range []*units.Value[bool]{&out.ReorderHeader, &out.GVRP, &out.MVRP, &out.LooseBinding} {
		if flags[i].want.Set {
			*f = units.Some(have.Flags&flags[i].bit != 0)
		}
	}
	list := func(set bool, m map[uint32]uint32) (out []units.Value[units.QOSMap]) {
		for from, to := range m {
			if set {
				out = append(out, units.Some(units.QOSMap{From: from, To: to}))
			}
		}
		return out
	}
	out.IngressQOSMaps = list(len(want.IngressQOSMaps) > 0, have.Ingress)
	out.EgressQOSMaps = list(len(want.EgressQOSMaps) > 0, have.Egress)
	return out
}

// extra lists what a map has beyond what a unit says of it, if it says anything.
func extra(have map[uint32]uint32, want []units.Value[units.QOSMap]) (out []uint32) {
	if len(want) == 0 {
		return nil
	}
	wanted := qosMap(want)
	for _, from := range slices.Sorted(maps.Keys(have)) {
		if _, ok := wanted[from]; !ok {
			out = append(out, from)
		}
	}
	return out
}
