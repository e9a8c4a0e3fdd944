package main

import (
	"cmp"
	"fmt"
	"slices"

	"ibnetworkd/link"
)

// elsewhere finds the link of another network namespace that has a name, and the link whose
// unit asks for it. A link of this namespace comes first.
func elsewhere(links []link.Status, name string) (on link.Status, at link.Attribute, ok bool) {
	if slices.ContainsFunc(links, func(l link.Status) bool { return l.Name == name }) {
		return on, at, false
	}
	for _, l := range links {
		for _, at := range l.Attributes {
			if name != "" && at.Away.Name == name {
				return l, at, true
			}
		}
	}
	return on, at, false
}

// parents replaces the names of links in other network namespaces by those of the links whose
// units ask for them.
func parents(links []link.Status, names []string) []string {
	out := slices.Clone(names)
	for i, n := range out {
		if on, _, ok := elsewhere(links, n); ok {
			out[i] = on.Name
		}
	}
	return out
}

func placeOf(x link.Away) string {
	if x.Namespace == "" {
		return "in another network namespace"
	}
	return "in network namespace " + x.Namespace
}

// awayRows are the lines of list for links in other network namespaces that the unit of a link asks for.
func awayRows(l link.Status, port string) (rows [][]cell) {
	for _, at := range l.Attributes {
		if x := at.Away; x.Name != "" {
			rows = append(rows, []cell{{}, {x.Name, bold}, {x.Kind, ""}, {cmp.Or(port, "-"), ""}, {cmp.Or(x.PKey, "-"), ""},
				{x.State, ""}, {"-", ""}, {cmp.Or(at.Why.Text, placeOf(x)), ""}})
		}
	}
	return rows
}

// awayDetails prints what is known of the links in other network namespaces among the named
// ones, and returns the other names.
func (a *app) awayDetails(links []link.Status, names []string) (rest []string) {
	for _, n := range names {
		on, at, ok := elsewhere(links, n)
		if !ok {
			rest = append(rest, n)
			continue
		}
		x := at.Away
		style := soso
		if at.OK() {
			style = good
		}
		fmt.Fprintf(a.out, "%s %s: %s (%s)\n", a.paint(style, "●"), a.paint(bold, x.Name), x.State, placeOf(x))
		if at.Why != (link.Reason{}) {
			a.field("Why", a.paint(bold, at.Why.Text))
			a.nextStep(at.Why.Next)
		}
		a.field("Unit", cmp.Or(on.Unit, "none matches")+", which matches "+on.Name)
		kind := x.Kind
		if x.PKey != "" {
			kind += ", P_Key " + x.PKey
		}
		a.field("Type", kind+", on "+on.Name)
		if x.MTU != 0 {
			a.field("MTU", fmt.Sprint(x.MTU))
		}
		a.settings([]link.Attribute{at}, nil)
		fmt.Fprintln(a.out)
	}
	return rest
}
