package roce

import (
	"slices"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// PlanRemovals removes what was made for a unit that no longer asks for it as it is.
// It comes before Plan on any link, which makes the replacements: a link has one
// RDMA device of a driver and one VLAN of a number, and a VLAN's number and tag, and the mode
// passthru of a macvlan, cannot be changed. unit gives the unit of a link and whether that is settled: a
// link whose unit is not known yet keeps everything.
func PlanRemovals(b *link.Builder, unit func(index int) (u *units.Unit, settled bool)) {
	if b.Record == nil {
		return
	}
	st := b.Base.Card
	if st == nil {
		st = &State{}
	}
	for _, m := range b.Record.Moved {
		u, settled := unit(m.On)
		l, ok := b.Base.Link(m.On)
		if !settled || !ok || !link.IsVLAN(m.Kind) || m.Namespace == "" {
			continue
		}
		b.For(u)
		if u == nil || !slices.ContainsFunc(u.VLANs, func(v units.VLAN) bool { return isVLAN(m, &v, l.Name) }) {
			b.DropMoved(m)
		}
	}
	for _, m := range b.Record.Made {
		u, settled := unit(m.On)
		l, ok := b.Base.Link(m.On)
		if !settled || !ok {
			continue
		}
		on := link.Target{Link: l.Name, Ifindex: l.Index}
		b.For(u)
		if m.Kind == kindSoft {
			if d, ok := b.Base.Device(m.Name); ok && d.Parent == "" && !wantsSoft(u, l.Name, m.Name, st.Links[m.On].Soft) {
				b.Do(DelSoft{On: on, Name: m.Name, Index: d.Index})
			}
			continue
		}
		for _, k := range units.VLANKinds() {
			if c, ok := b.Base.LinkByName(m.Name); m.Kind == k.String() && ok && c.Kind == m.Kind && c.Parent == m.On && !wantsVLAN(u, l.Name, c) {
				b.Do(DelVLAN{On: on, Name: m.Name, Kind: k})
			}
		}
	}
}

func wantsVLAN(u *units.Unit, parent string, c *link.Link) bool {
	return u != nil && slices.ContainsFunc(u.VLANs, func(v units.VLAN) bool {
		return v.Kind.String() == c.Kind && v.ChildName(parent) == c.Name && !v.NetworkNamespace.Set && (c.VLAN == nil || sameTag(&v, c.VLAN))
	})
}

// sameTag reports whether a VLAN or the like has what cannot be changed as a unit asks for it:
// the number and the tag, or the mode passthru of a macvlan.
func sameTag(v *units.VLAN, c *link.VLAN) bool {
	if m, ok := v.MACVLANMode.Get(); ok || v.Kind != units.KindVLAN {
		return !ok || (m == units.MACVLANPassthru) == (units.MACVLANMode(c.Mode) == units.MACVLANPassthru)
	}
	return c.ID == v.Id.V && (c.Protocol == 0 || c.Protocol == uint16(v.Protocol.Or(units.VLAN8021Q)))
}

func wantsSoft(u *units.Unit, on, name string, there []SoftDevice) bool {
	return u != nil && u.SoftRoCE.Present && u.SoftRoCE.DeviceName(on) == name &&
		!slices.ContainsFunc(there, func(d SoftDevice) bool { return d.Name == name && d.Driver != u.SoftRoCE.Driver.V })
}
