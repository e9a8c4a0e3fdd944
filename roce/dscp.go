package roce

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// wantedDSCP is the map that a unit asks for: the items of DSCPToPriority=, and
// the unit's own DSCP to its own priority.
func wantedDSCP(r *units.RoCE) map[uint8]uint8 {
	m := map[uint8]uint8{}
	if prio, ok := r.Priority.Get(); ok {
		if tos, ok := r.ToS().Get(); ok {
			m[tos>>2] = prio
		}
	}
	for _, v := range r.DSCPToPriority {
		m[v.V.From] = v.V.To
	}
	return m
}

// dscp plans the map and trust. A driver without a trust table (mlx5; the table
// came with Linux 6.2) trusts DSCP as long as the map has an entry.
func (p *planner) dscp(r *units.RoCE, d *DCB) {
	want := wantedDSCP(r)
	trust, hasTrust := r.Trust.Get()
	if keepsNoDSCP(d.Driver) && (len(want) > 0 || hasTrust && trust == units.TrustDSCP) {
		name, value := "DSCPToPriority", mapText(want)
		if len(want) == 0 {
			name, value = "Trust", trust.String()
		}
		p.cannot(name, value, link.Reason{Code: link.CodeUnsupported,
			Text: fmt.Sprintf("the driver %s of %s has no priorities by DSCP: the kernel keeps such a list and the card does not use it",
				d.Driver, p.l.Name),
			Next: "remove DSCPToPriority=, Priority= and Trust=dscp; use the priority of a VLAN: EgressQOSMaps= in [VLAN]"})
		return
	}
	implied := hasTrust && d.Trust == nil
	if implied && trust == units.TrustDSCP && len(want) == 0 && len(d.DSCP) == 0 {
		want[0] = 0 // one entry is what it takes
	}
	have := maps.Clone(d.DSCP)
	if have == nil {
		have = map[uint8]uint8{}
	}
	if implied && trust == units.TrustPCP {
		if len(want) > 0 {
			why := link.Reason{
				Code: link.CodeUnsupported,
				Text: fmt.Sprintf("the driver of %s trusts DSCP as soon as a DSCP has a priority: Trust=pcp and a map exclude each other", p.l.Name),
				Next: "write Trust=dscp, or remove DSCPToPriority= and Priority=",
			}
			p.cannot("Trust", trust.String(), why)
			return
		}
		if p.clearsDSCP(r, d) {
			p.reach(link.Attribute{Name: "DSCPToPriority", Wanted: "none", Actual: mapText(have)}, false, ClearDSCP{On: p.on})
		}
	}
	for _, dscp := range slices.Sorted(maps.Keys(want)) {
		prio := want[dscp]
		a := link.Attribute{Name: "DSCPToPriority", Wanted: fmt.Sprintf("%d:%d", dscp, prio)}
		old, ok := have[dscp]
		if ok {
			a.Actual = fmt.Sprintf("%d:%d", dscp, old)
		}
		p.reach(a, ok && old == prio, MapDSCP{On: p.on, DSCP: dscp, Priority: prio, Replace: ok})
	}
	if !hasTrust {
		return
	}
	a := link.Attribute{Name: "Trust", Wanted: trust.String()}
	if d.Trust != nil {
		if len(d.Trust) > 0 {
			a.Actual = d.Trust[0].String()
		}
		p.reach(a, len(d.Trust) > 0 && d.Trust[0] == trust, SetTrust{On: p.on, Trust: trust})
		return
	}
	a.Actual = units.TrustPCP.String()
	if len(have) > 0 {
		a.Actual = units.TrustDSCP.String()
	}
	p.attr(a)
}

// clearsDSCP reports whether all DSCPs of the card are removed: with Trust=pcp, where the
// driver has no trust table.
func (p *planner) clearsDSCP(r *units.RoCE, d *DCB) bool {
	trust, ok := r.Trust.Get()
	return ok && trust == units.TrustPCP && d.Trust == nil && len(d.DSCP) > 0 && len(wantedDSCP(r)) == 0
}

// mapText writes a map as FROM:TO pairs, as iproute2 does.
func mapText[T cmp.Ordered](m map[T]T) string {
	var out []string
	for _, from := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%v:%v", from, m[from]))
	}
	return strings.Join(out, " ")
}

// keepsNoDSCP reports whether a driver has no operation for priorities by DSCP
// (ieee_setapp of its dcbnl_rtnl_ops). The kernel's core then keeps the list
// itself, for agents, and answers that all is well (dcbnl_ieee_set).
func keepsNoDSCP(driver string) bool { return driver == "mlx4_core" || driver == "mlx4_en" }
