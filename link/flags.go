package link

import (
	"strconv"

	"ibnetworkd/units"
)

// PlanLink plans the part of [Link] that every kind of link has, after the
// InfiniBand part and before the IP part: the flags, the token, and up or down.
func PlanLink(b *Builder, index int, u *units.Unit) {
	b.For(u)
	l := b.Link(index)
	t := b.Model.Target(l)
	for _, f := range []struct {
		name string
		want units.Value[bool]
		bit  uint32
		not  bool
	}{
		{"AllMulticast", u.Link.AllMulticast, FlagAllMulti, false},
		{"Multicast", u.Link.Multicast, FlagMulti, false},
		{"Promiscuous", u.Link.Promiscuous, FlagPromisc, false},
		{"ARP", u.Link.ARP, FlagNoARP, true},
	} {
		want, ok := f.want.Get()
		if !ok {
			continue
		}
		a := Attribute{Name: f.name, Wanted: units.YesNo(want), Actual: units.YesNo(nowFlags(b, index)&f.bit != 0 != f.not)}
		if l.Flags&f.bit != 0 != f.not != want {
			op := SetFlag{On: t, Flag: f.bit, Set: want != f.not}
			b.DoFor(op, &a.Why)
		}
		b.Attr(index, a)
	}
	if g, ok := u.Link.Group.Get(); ok {
		a := Attribute{Name: "Group", Wanted: strconv.Itoa(int(g)), Actual: "-"}
		if now := b.Now(index); now != nil {
			a.Actual = strconv.Itoa(int(now.Group))
		}
		if l.Group != g {
			op := SetGroup{On: t, Group: g}
			b.DoFor(op, &a.Why)
		}
		b.Attr(index, a)
	}
	planToken(b, index, u)
	if u.Activation() == units.ActivationBound {
		planBound(b, index, u)
		return
	}
	PlanActivation(b, index, u.Activation())
}

func nowFlags(b *Builder, index int) uint32 {
	if l := b.Now(index); l != nil {
		return l.Flags
	}
	return 0
}
