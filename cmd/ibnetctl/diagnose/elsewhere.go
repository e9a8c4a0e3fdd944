package diagnose

import (
	"cmp"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/link"
)

// asksElsewhere reports whether the unit of a link asks for one of a name in another network
// namespace. A link of this namespace takes the place of those of its name.
func (w *walker) asksElsewhere(l *link.Link, name string) bool {
	if _, here := w.in.Snapshot.LinkByName(name); here {
		return false
	}
	st := w.status(l)
	return st != nil && slices.ContainsFunc(st.Attributes, func(a link.Attribute) bool { return a.Away.Has(name) })
}

// elsewhere checks the links in other network namespaces that the unit of a link asks for: that
// they are there, and their partitions. What is configured there cannot be seen from here.
func (w *walker) elsewhere(l *link.Link) {
	st := w.status(l)
	if st == nil {
		return
	}
	for _, a := range st.Attributes {
		x := a.Away
		if x.Name == "" {
			continue
		}
		start := len(w.checks)
		if key, err := ib.ParsePKey(x.PKey); err == nil && w.p != nil {
			w.partition(key)
		}
		if a.OK() {
			w.warn("namespace", "", x.Command("-d address show dev "+x.Name),
				"%s is %s (%s): its carrier, addresses and routes there are not checked", x.Name, x.Place(), x.State)
		} else {
			w.fail("namespace", a.Why.Code, cmp.Or(a.Why.Next, x.Command("-d link show dev "+x.Name)), "%s", a.Why.Text)
		}
		for i := start; i < len(w.checks); i++ {
			w.checks[i].Link = x.Name
		}
	}
}
