package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"ibnetworkd/cmd/ibnetctl/answer"
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

// awayRows are the lines of list for links in other network namespaces that the unit of a link asks for.
func awayRows(l link.Status, port string) (rows [][]cell) {
	for _, at := range l.Attributes {
		if x := at.Away; x.Name != "" {
			rows = append(rows, []cell{{}, {x.Name, bold}, {x.Kind, ""}, {cmp.Or(port, "-"), ""}, {cmp.Or(x.PKey, "-"), ""},
				{x.State, ""}, {"-", ""}, {cmp.Or(at.Why.Text, x.Place()), ""}})
		}
	}
	return rows
}

// apart finds the links in other network namespaces among the named ones, and returns the
// other names.
func apart(d *api.Description, names []string) (rest []string, found []away) {
	for _, n := range names {
		these := elsewhere(d.Links, n)
		found = append(found, these...)
		if len(these) == 0 || fits(d, n) {
			rest = append(rest, n)
		}
	}
	return rest, unique(found, func(x away) string { return x.on.Name + "/" + x.at.Away.Name })
}

// awayDetails prints what is known of the links in other network namespaces among the named
// ones, and returns the other names.
func (a *app) awayDetails(d *api.Description, names []string) []string {
	rest, found := apart(d, names)
	for _, x := range found {
		a.awayDetail(x)
	}
	return rest
}

func (a *app) awayDetail(l away) {
	x, style := l.at.Away, soso
	if l.at.OK() {
		style = good
	}
	fmt.Fprintf(a.out, "%s %s: %s (%s)\n", a.paint(style, "●"), a.paint(bold, x.Name), x.State, x.Place())
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

// completeSeen completes links also of other network namespaces, for commands that change nothing.
func (a *app) completeSeen(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completeFrom(cmd, func(d *api.Description) []string { return append(linkNames(d), awayNames(d)...) })
}

// awayNames are the names of links in other network namespaces, for completion.
func awayNames(d *api.Description) (out []string) {
	for _, x := range elsewhere(ours(d.Links), "*") {
		out = append(out, x.at.Away.Name+"\t"+x.at.Away.State+" "+x.at.Away.Place())
	}
	return out
}

// lacksElsewhere is why a link in another network namespace is not online, as far as it is known.
func lacksElsewhere(x away) string {
	if at := x.at.Away; x.at.OK() {
		return fmt.Sprintf("%s is %s: whether it is online there is not checked; next: %s", at.Name, at.Place(),
			at.Command("address show dev "+at.Name))
	}
	if x.at.Why.Next == "" {
		return x.at.Why.Text
	}
	return x.at.Why.Text + "; next: " + x.at.Why.Next
}

// notCounted are the statistics of links in other network namespaces, whose counters cannot be read here.
func notCounted(found []away) (out []answer.Statistics) {
	for _, x := range found {
		at := x.at.Away
		out = append(out, answer.Statistics{Link: at.Name, Counters: []answer.Counter{},
			NotChecked: "not checked, " + at.Place() + ": " + at.Command("-s link show dev "+at.Name)})
	}
	return out
}
