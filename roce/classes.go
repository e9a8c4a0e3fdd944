package roce

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

func (p *planner) ets(r *units.RoCE, d *DCB) {
	if len(r.ETS) == 0 && len(r.PriorityToClass) == 0 {
		return
	}
	if d.ETS == nil {
		p.cannot("ETS", "", link.Reason{Code: CodeNoDCB, Text: fmt.Sprintf("the driver of %s has no transmission selection", p.l.Name)})
		return
	}
	want := *d.ETS
	for _, e := range r.ETS {
		c := e.V.Class & 7
		if e.V.Strict {
			want.TSA[c], want.Percent[c] = Strict, 0
		} else {
			want.TSA[c], want.Percent[c] = ETS, e.V.Percent
		}
	}
	clears := d.Driver == "ice" && p.clearsDSCP(r, d)
	fixed := d.Driver == "ice" && !clears && (len(d.DSCP) > 0 || len(wantedDSCP(r)) > 0)
	next := "; or write Trust=pcp, which removes the DSCPs of the card"
	if len(wantedDSCP(r)) > 0 {
		next = "; or write Trust=pcp, and remove DSCPToPriority= and Priority="
	}
	for _, m := range r.PriorityToClass {
		if fixed && m.V.From != m.V.To { // ice_dcbnl_setets
			item := fmt.Sprintf("%d:%d", m.V.From, m.V.To)
			p.cannot("PriorityToClass", item, link.Reason{Code: link.CodeUnsupported,
				Text: item + ": ice has each priority in the class of its number while a DSCP has a priority",
				Next: "remove " + item + " of PriorityToClass=" + next})
			continue
		}
		want.Class[m.V.From&7] = m.V.To & 7
	}
	a := link.Attribute{Name: "ETS", Wanted: want.String(), Actual: d.ETS.String()}
	op := SetETS{On: p.on, Classes: want}
	// The kernel requires the shares of all classes with ETS to sum up to 100
	// (mlx5e_dbcnl_validate_ets) and returns EINVAL without a message otherwise.
	sum, any := 0, false
	for i := range Priorities {
		if want.TSA[i] == ETS {
			sum, any = sum+int(want.Percent[i]), true
		}
	}
	if any && sum != 100 {
		p.block(a, op, link.Reason{
			Code: link.CodeRefused,
			Text: fmt.Sprintf("the shares of the classes with ETS on %s would add up to %d, not 100: %s", p.l.Name, sum, want),
			Next: "name all classes in ETS=",
		})
		return
	}
	// The last DSCP that goes sets the classes to defaults (ice_dcbnl_delapp).
	p.reach(a, want == *d.ETS && !clears, op)
}

// classesFirst sets transmission selection as it is before flow control changes:
// bnxt refuses PFC until ETS has been set (bnxt_hwrm_queue_pfc_cfg).
func (p *planner) classesFirst(r *units.RoCE, d *DCB) {
	v, ok := r.PFC.Get()
	if d.Driver == "bnxt_en" && ok && d.PFC != nil && v != *d.PFC && d.ETS != nil && len(r.ETS) == 0 && len(r.PriorityToClass) == 0 {
		p.b.Do(SetETS{On: p.on, Classes: *d.ETS})
	}
}
