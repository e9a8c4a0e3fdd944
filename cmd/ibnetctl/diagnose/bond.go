package diagnose

import (
	"cmp"
	"path"
	"slices"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// bondSettings are the attributes of a bond that say how far it can rely on its
// slaves, and the names of their checks.
var bondSettings = map[string]string{"Backup": "failover", "Switches": "switches", "LACPPartner": "LACP"}

// bondChains returns a chain for each bond that a unit applies to or that the daemon made,
// or for the one named by only: its slaves and its addresses, which belong to no port.
func bondChains(in Input, only string, unit *units.Unit) []Chain {
	var out []Chain
	for i := range in.Snapshot.Links {
		l := &in.Snapshot.Links[i]
		w := walker{in: in, links: []*link.Link{l}, named: true}
		named := l.Name == only || slices.Contains(l.AltNames, only) || w.asksElsewhere(l, only)
		st := w.status(l)
		switch {
		case l.Bond == nil, only != "" && !named:
		case unit != nil && !w.bondOfUnit(l, unit):
		case named, in.All, governed(st):
			w.bond(l, st)
			w.elsewhere(l)
			out = append(out, Chain{On: l.Name, Checks: w.checks})
		}
	}
	return out
}

// bondOfUnit reports whether the unit applies to the bond or to a slave of it.
func (w *walker) bondOfUnit(l *link.Link, u *units.Unit) bool {
	return slices.ContainsFunc(append(w.in.Snapshot.Slaves(l.Index), l), func(x *link.Link) bool {
		st := w.status(x)
		return st != nil && st.Unit != "" && w.in.Units.Unit(path.Base(st.Unit)) == u
	})
}

// bond checks a bond. What would fail later, with a slave or a switch, is a note.
func (w *walker) bond(l *link.Link, st *link.Status) {
	var reason link.Reason
	if st != nil {
		reason = st.Reason()
	}
	active, hasActive := w.in.Snapshot.Link(l.Bond.Active)
	switch {
	case !l.Up():
		why := ""
		if reason.Text != "" {
			why = ": " + reason.Text
		}
		w.fail("interface", cmp.Or(reason.Code, link.CodeLinkDown), cmp.Or(reason.Next, w.upStep(l, st)), "%s is administratively down%s",
			l.Name, why)
		return
	case !l.Carrier():
		w.fail("interface", cmp.Or(reason.Code, link.CodeNoCarrier), cmp.Or(reason.Next, "ibnetctl diagnose"), "%s is up without a carrier: %s",
			l.Name, cmp.Or(reason.Text, "none of its slaves has one"))
		return
	case hasActive:
		w.ok("interface", "%s is up, active slave %s", l.Name, active.Name)
	default:
		w.ok("interface", "%s is up", l.Name)
	}
	if st != nil {
		for _, a := range st.Attributes {
			switch name := bondSettings[a.Name]; {
			case name == "":
			case a.Actual == link.NotChecked:
				w.checks = append(w.checks, Check{Name: name, Result: Unchecked, Text: a.Actual})
			case a.OK():
				w.ok(name, "%s", bondText(a))
			default:
				w.warn(name, a.Why.Code, a.Why.Next, "%s", a.Why.Text)
			}
		}
	}
	w.address(l)
}

// bondText is what a setting of a bond that is as it should be has to say.
func bondText(a link.Attribute) string {
	if a.Name == "Switches" && a.Wanted != "" {
		return "the slaves are cabled to " + a.Actual + " or more switches"
	}
	return a.Actual
}
