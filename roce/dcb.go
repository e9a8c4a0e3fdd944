package roce

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// host plans that the host controls the link's DCB, in IEEE mode, and reports
// whether the settings that follow make sense: a firmware that keeps control
// refuses each of them.
func (p *planner) host(d *DCB) bool {
	const want = DCBXHost | DCBXIEEE
	if d.DCBX == nil || *d.DCBX&want == want {
		return true
	}
	a := link.Attribute{Name: "DCBX", Wanted: "host", Actual: "firmware"}
	if *d.DCBX&DCBXHost != 0 {
		a.Wanted, a.Actual = "IEEE", "CEE"
	}
	// Nothing of CEE is kept: bnxt, ice and mlx4 refuse it beside IEEE.
	op := SetDCBX{On: p.on, Flags: want, Driver: d.Driver}
	p.reach(a, false, op)
	_, delayed := p.b.Delayed[link.DelayKey(op)]
	return !delayed && p.st.Contested[ContestedKey(op)] < flapLimit
}

// wantsDCB reports whether a unit asks for anything that DCB has.
func wantsDCB(r *units.RoCE) bool {
	return r.PFC.Set || r.Trust.Set || len(r.ETS) > 0 || len(r.PriorityToClass) > 0 || len(r.BufferSize) > 0 || len(r.PriorityToBuffer) > 0 ||
		r.CableLength.Set || len(wantedDSCP(r)) > 0
}

func (p *planner) dcb() {
	r := &p.u.RoCE
	if (r.ECN.Set || wantsDCB(r)) && p.bondDCB() {
		return
	}
	p.ecn(r)
	p.modprobe(r)
	if !wantsDCB(r) {
		return
	}
	st, seen := p.st.Links[p.index]
	if !seen {
		return
	}
	d := st.DCB
	if d == nil {
		why := link.Reason{
			Code: CodeNoDCB,
			Text: fmt.Sprintf("the driver of %s has no data centre bridging: PFC, ETS, trust and buffers cannot be set", p.l.Name),
			Next: "remove these keys from [RoCE]",
		}
		p.cannot("PFC", priorities(r.PFC.V), why)
		return
	}
	if !p.host(d) {
		return
	}
	order := []func(*units.RoCE, *DCB){p.ets, p.classesFirst, p.pfc, p.dscp, p.buffers}
	if d.Driver == "ice" { // its first DSCP sets the classes to defaults (ice_dcbnl_setapp)
		order = []func(*units.RoCE, *DCB){p.dscp, p.ets, p.pfc, p.buffers}
	}
	for _, plan := range order {
		plan(r, d)
	}
}
