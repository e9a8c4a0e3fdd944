package roce

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

func protoOf(p units.VLANProtocol) units.VLANProtocol {
	if p == 0 {
		return units.VLAN8021Q
	}
	return p
}

// String prints ip link add ... type ....
func (o AddVLAN) String() string {
	out := fmt.Sprintf("ip link add link %s name %s", o.On.Link, o.Name)
	if o.Address.IsValid() {
		out += " address " + o.Address.String()
	}
	if m, ok := o.VLAN.MTUBytes.Get(); ok && !m.Max {
		out += fmt.Sprintf(" mtu %d", m.Bytes)
	}
	if ns := o.VLAN.Namespace(); ns != "" {
		out += " netns " + link.NamespaceName(ns) + " up"
	}
	if out += " type " + o.VLAN.Kind.String(); o.VLAN.Kind != units.KindVLAN {
		return out + vlanWords(&o.VLAN, nil, nil)
	}
	if o.VLAN.Protocol.Or(units.VLAN8021Q) == units.VLAN8021AD {
		out += " protocol 802.1ad"
	}
	return out + fmt.Sprintf(" id %d", o.VLAN.Id.V) + vlanWords(&o.VLAN, nil, nil)
}

// String prints ip link set ... type ...; a priority that is mapped to 0 is not
// mapped any more.
func (o SetVLAN) String() string {
	return "ip link set dev " + o.Name + " type " + o.VLAN.Kind.String() + vlanWords(&o.VLAN, o.DropIngress, o.DropEgress)
}

// vlanWords are mode, flags and maps of a VLAN or the like in the words of ip link, with a
// blank before each.
func vlanWords(v *units.VLAN, dropIngress, dropEgress []uint32) string {
	switch {
	case v.Kind == units.KindIPVLAN:
		return " mode " + strings.ToLower(v.IPVLANMode.V.String()) + " " + v.IPVLANFlags.V.String()
	case v.Kind == units.KindMACVLAN && v.MACVLANMode.Set:
		return " mode " + v.MACVLANMode.V.String()
	case v.Kind == units.KindMACVLAN:
		return ""
	}
	var b strings.Builder
	for _, f := range vlanFlags(v) {
		if f.want.Set {
			b.WriteString(" " + f.word + " " + onOff(f.want.V))
		}
	}
	maps := func(word string, m map[uint32]uint32, drop []uint32) {
		for _, from := range drop {
			m[from] = 0
		}
		if text := mapText(m); text != "" {
			b.WriteString(" " + word + " " + text)
		}
	}
	maps("ingress-qos-map", qosMap(v.IngressQOSMaps), dropIngress)
	maps("egress-qos-map", qosMap(v.EgressQOSMaps), dropEgress)
	return b.String()
}

type vlanFlag struct {
	word string
	want units.Value[bool]
	bit  uint32
}

func vlanFlags(v *units.VLAN) []vlanFlag {
	return []vlanFlag{
		{"reorder_hdr", v.ReorderHeader, link.VLANReorderHeader},
		{"gvrp", v.GVRP, link.VLANGVRP},
		{"mvrp", v.MVRP, link.VLANMVRP},
		{"loose_binding", v.LooseBinding, link.VLANLooseBinding},
	}
}

// qosMap is a unit's map of priorities; of an assignment that is repeated the
// last one counts.
func qosMap(ms []units.Value[units.QOSMap]) map[uint32]uint32 {
	out := map[uint32]uint32{}
	for _, m := range ms {
		out[m.V.From] = m.V.To
	}
	return out
}

// Makes implements link.Maker.
func (o AddVLAN) Makes() (link.Made, bool) {
	return link.Made{Kind: o.VLAN.Kind.String(), Name: o.Name, On: o.On.Ifindex}, false
}

// Sends implements link.Sender.
func (o AddVLAN) Sends() (link.Moved, bool) {
	m, _ := o.Makes()
	return link.Moved{Made: m, NSID: -1, Namespace: o.VLAN.Namespace(), Tag: tagOf(&o.VLAN)}, o.VLAN.NetworkNamespace.Set
}

// ApplyTo implements what link.Model.Apply asks for.
func (o AddVLAN) ApplyTo(m *link.Model) error {
	made, ok := o.Sends()
	if !ok {
		return nil // it is observed after the plan
	}
	return m.Send(made, link.MovedLink{Index: 1, Up: true, VLAN: newVLAN(&o.VLAN)})
}

// newVLAN is what the kernel makes of a unit's section, but for the settings that SetVLAN can set.
func newVLAN(v *units.VLAN) *link.VLAN {
	switch v.Kind {
	case units.KindMACVLAN:
		return &link.VLAN{Mode: uint16(v.MACVLANMode.Or(units.MACVLANVEPA))}
	case units.KindIPVLAN:
		return &link.VLAN{Mode: uint16(v.IPVLANMode.V), Flags: uint32(v.IPVLANFlags.V)}
	}
	return &link.VLAN{ID: v.Id.V, Protocol: uint16(v.Protocol.Or(units.VLAN8021Q)), Flags: link.VLANReorderHeader}
}

// NewVLAN is the operation that makes what a section asks for on a link. A macvlan gets an
// address of its own that is the same each time.
func NewVLAN(on link.Target, parent *link.Link, v *units.VLAN) AddVLAN {
	op := AddVLAN{On: link.On(on), Name: v.ChildName(parent.Name), VLAN: *v}
	if v.Kind == units.KindMACVLAN && v.MACVLANMode.V != units.MACVLANPassthru && parent.HWAddr.IsValid() {
		h := fnv.New64a()
		h.Write(cmp.Or(parent.PermAddr, parent.HWAddr).Bytes())
		h.Write([]byte(op.Name))
		b := h.Sum(nil)[:6]
		b[0] = b[0]&^1 | 2 // one host, locally administered
		op.Address, _ = ib.HWAddrFrom(b)
	}
	return op
}

// Link is the interface that it makes on a link, for units that match it.
func (o AddVLAN) Link(parent *link.Link) link.Link {
	return link.Link{Name: o.Name, Type: parent.Type, Kind: o.VLAN.Kind.String(), Parent: parent.Index, Flags: parent.Flags, MTU: parent.MTU,
		HWAddr: cmp.Or(o.Address, parent.HWAddr), VLAN: newVLAN(&o.VLAN)}
}

// Makes implements link.Maker.
func (o DelVLAN) Makes() (link.Made, bool) {
	return link.Made{Kind: o.Kind.String(), Name: o.Name, On: o.On.Ifindex}, true
}

// String prints ip link delete.
func (o DelVLAN) String() string { return "ip link delete " + o.Name }
