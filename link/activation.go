package link

import (
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/units"
)

// planBound takes a link up and down with the carriers of others.
func planBound(b *Builder, index int, u *units.Unit) {
	l := b.Link(index)
	var names, with []string
	for i := range b.Base.Links {
		x := &b.Base.Links[i]
		// A P_Key child has carrier only while its parent is up, and two links
		// that follow each other would never come to rest.
		if x.Index == index || !bindsTo(u, x) || x.IsChild() && x.Parent == index || b.Bound[x.Index] {
			continue
		}
		names = append(names, x.Name)
		if x.Up() && x.Carrier() {
			with = append(with, x.Name)
		}
	}
	a := Attribute{Name: "ActivationPolicy", Wanted: "bound", Actual: upDown(nowFlags(b, index)&FlagUp != 0)}
	defer func() { b.Attr(index, a) }()
	on := b.Model.Target(l)
	if len(names) == 0 {
		var want []string
		for _, p := range u.Network.BindCarrier {
			want = append(want, p.V.Glob)
		}
		a.Why = Reason{
			Code: CodeNoCarrier,
			Text: fmt.Sprintf("BindCarrier=%s matches no link to follow: %s stays %s", strings.Join(want, " "), l.Name, a.Actual),
			Next: "compare BindCarrier= with: ip -br link",
		}
		if len(want) == 0 {
			a.Why = Reason{
				Code: CodeNoCarrier,
				Text: "ActivationPolicy=bound names no links to follow: " + l.Name + " stays " + a.Actual,
				Next: "write BindCarrier= in [Network]",
			}
		}
		b.Block(on, nil, len(want) > 0, a.Why)
		return
	}
	up := len(with) > 0
	if !up {
		a.Why = Reason{
			Code: CodeLinkDown,
			Text: fmt.Sprintf("%s is kept down while no link of BindCarrier= has carrier (%s)", l.Name, strings.Join(names, ", ")),
			Next: "ip -br link show; bring one of them up",
		}
	}
	if l.Up() != up {
		op := SetUp{On: on, Up: up}
		b.DoFor(op, &a.Why)
	}
}

// bindsTo reports whether a unit's BindCarrier= names a link.
func bindsTo(u *units.Unit, l *Link) bool {
	return slices.ContainsFunc(u.Network.BindCarrier, func(p units.Value[units.Pattern]) bool {
		return p.V.Hits(l.Name) || slices.ContainsFunc(l.AltNames, p.V.Hits)
	})
}

// PlanActivation brings a link up or down as ActivationPolicy= asks.
func PlanActivation(b *Builder, index int, p units.ActivationPolicy) {
	l := b.Link(index)
	rec := b.Record.Of(l)
	activated := rec != nil && rec.Activated
	a := Attribute{Name: "ActivationPolicy", Wanted: p.String(), Actual: upDown(nowFlags(b, index)&FlagUp != 0)}
	do := func(up bool) {
		op := SetUp{On: b.Model.Target(l), Up: up}
		b.DoFor(op, &a.Why)
	}
	switch p {
	case units.ActivationUp:
		if !l.Up() {
			if activated {
				a.Why = whyDown(b, l)
				break
			}
			do(true)
		}
	case units.ActivationAlwaysUp:
		if !l.Up() {
			do(true)
		}
	case units.ActivationDown:
		if l.Up() && !activated && !recordKnows(rec) {
			do(false)
		}
	case units.ActivationAlwaysDown:
		if l.Up() {
			do(false)
		}
	}
	b.Attr(index, a)
}

// whyDown returns why a link is down that was brought up once: the kernel takes P_Key
// children down and up with their parent, wherever that is (ipoib_stop, ipoib_open).
func whyDown(b *Builder, l *Link) Reason {
	parent, here := b.Base.Link(l.Parent)
	switch {
	case l.IsChild() && !here:
		return Reason{Code: CodeLinkDown, Text: l.Name + " is down with its parent, which is in another network namespace",
			Next: "ip -n NAMESPACE link set PARENT up, or move it back (netns 1): the child comes up with it"}
	case l.IsChild() && !parent.Up():
		return Reason{Code: CodeLinkDown, Text: fmt.Sprintf("%s is down with its parent %s", l.Name, parent.Name),
			Next: "ibnetctl up " + parent.Name + ": the child comes up with it"}
	}
	return Reason{Code: CodeLinkDown, Text: "the link was brought down by hand; ActivationPolicy=up brings it up once only",
		Next: "ibnetctl up " + l.Name + ", or ActivationPolicy=always-up"}
}

// recordKnows reports that the link has been taken down once already.
func recordKnows(e *LinkRecord) bool { return e != nil && e.Deactivated }

func upDown(up bool) string {
	if up {
		return "up"
	}
	return "down"
}
