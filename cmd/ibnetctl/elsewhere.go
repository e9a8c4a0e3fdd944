package main

import (
	"cmp"
	"fmt"
	"slices"

	"ibnetworkd/daemon/bus/api"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// away is a link of another network namespace, as the setting of the link whose unit asks for it.
type away struct {
	on link.Status
	at link.Attribute
}

// elsewhere finds the links of other network namespaces that have a name there or by their units, of which each
// namespace may have one, or fit a pattern. A link of this namespace takes the place of those of its name.
func elsewhere(links []link.Status, name string) (out []away) {
	here := func(name string) bool {
		return slices.ContainsFunc(links, func(l link.Status) bool { return l.Name == name })
	}
	fits := func(n string) bool {
		return n != "" && !here(n) && (n == name || isPattern(name) && (units.Pattern{Glob: name}).Hits(n))
	}
	for _, l := range links {
		for _, at := range l.Attributes {
			if fits(at.Away.Name) || fits(at.Away.Asked) {
				out = append(out, away{l, at})
			}
		}
	}
	return out
}

// parents replaces the names of links in other network namespaces by those of the links whose
// units ask for them. A pattern that fits others too stays.
func parents(d *api.Description, names []string) (out []string) {
	for _, n := range names {
		found := elsewhere(d.Links, n)
		for _, x := range found {
			out = append(out, x.on.Name)
		}
		if len(found) == 0 || fits(d, n) {
			out = append(out, n)
		}
	}
	return out
}

// fits reports a pattern that fits links of this network namespace, or ports.
func fits(d *api.Description, pattern string) bool {
	return isPattern(pattern) && len(fitting(d.Links, pattern))+len(fittingPorts(d, pattern)) > 0
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
func (a *app) awayDetails(d *api.Description, names []string) (rest []string) {
	var all []away
	for _, n := range names {
		found := elsewhere(d.Links, n)
		all = append(all, found...)
		if len(found) == 0 || fits(d, n) {
			rest = append(rest, n)
		}
	}
	for _, x := range unique(all, func(x away) string { return x.on.Name + "/" + x.at.Away.Name }) {
		a.awayDetail(x)
	}
	return rest
}

func (a *app) awayDetail(l away) {
	x, style := l.at.Away, soso
	if l.at.OK() {
		style = good
	}
	fmt.Fprintf(a.out, "%s %s: %s (%s)\n", a.paint(style, "●"), a.paint(bold, x.Name), x.State, placeOf(x))
	if l.at.Why != (link.Reason{}) {
		a.field("Why", a.paint(bold, l.at.Why.Text))
		a.nextStep(l.at.Why.Next)
	}
	a.field("Unit", cmp.Or(l.on.Unit, "none matches")+", which matches "+l.on.Name)
	kind := x.Kind
	if x.PKey != "" {
		kind += ", P_Key " + x.PKey
	}
	a.field("Type", kind+", on "+l.on.Name)
	if x.MTU != 0 {
		a.field("MTU", fmt.Sprint(x.MTU))
	}
	a.settings([]link.Attribute{l.at}, nil)
	fmt.Fprintln(a.out)
}
