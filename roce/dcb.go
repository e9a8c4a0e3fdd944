package roce

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// keepsNoDSCP reports whether a driver has no operation for priorities by DSCP
// (ieee_setapp of its dcbnl_rtnl_ops). The kernel's core then keeps the list
// itself, for agents, and answers that all is well (dcbnl_ieee_set).
func keepsNoDSCP(driver string) bool { return driver == "mlx4_core" || driver == "mlx4_en" }

// host plans that the host is in charge of the link's DCB, by IEEE, and reports
// whether the settings that follow make sense: a firmware that does not let go
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
	_, held := p.b.Held[link.HoldKey(op)]
	return !held && p.st.Fought[FoughtKey(op)] < fightLimit
}

// classesFirst sets transmission selection as it is before flow control changes:
// bnxt refuses PFC until ETS has been set (bnxt_hwrm_queue_pfc_cfg).
func (p *planner) classesFirst(r *units.RoCE, d *DCB) {
	v, ok := r.PFC.Get()
	if d.Driver == "bnxt_en" && ok && d.PFC != nil && v != *d.PFC && d.ETS != nil && len(r.ETS) == 0 && len(r.PriorityToClass) == 0 {
		p.b.Do(SetETS{On: p.on, Classes: *d.ETS})
	}
}

// cable plans CableLength=, which mlx5 takes as the delay of PFC and uses for the
// thresholds of its receive buffers; without these it takes and forgets it
// (mlx5e_dcbnl_ieee_getpfc).
func (p *planner) cable(r *units.RoCE, d *DCB, pfc uint8) {
	m, set := r.CableLength.Get()
	if !set {
		return
	}
	a := link.Attribute{Name: "CableLength", Wanted: fmt.Sprintf("%d m", m)}
	switch {
	case d.Driver != "mlx5_core":
		a.Why = link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("the driver %s has no setting for the length of the cable", d.Driver), Next: "write BufferSize= instead"}
		p.attr(a)
	case d.Buffer == nil:
		a.Why = link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("%s has no receive buffers to set, and therefore no length of the cable", p.l.Name), Next: "remove CableLength=; the firmware sizes the buffers"}
		p.attr(a)
	default:
		a.Actual = fmt.Sprintf("%d m", d.Delay)
		p.reach(a, uint16(m) == d.Delay, SetPFC{On: p.on, Priority: pfc, Delay: uint16(m)})
	}
}

// taken reports whether the receive buffers are as a unit asks for. Cards round
// sizes, mlx5 down to whole cells: what the driver made of the same request
// counts, and where nothing is known of a request, anything that is less than
// the largest cell away.
func taken(d *DCB, want Buffers) bool {
	have := *d.Buffer
	if have.Buffer != want.Buffer {
		return false
	}
	if d.Asked != nil {
		return have.Size == want.Size || d.Asked.Size == want.Size && d.Asked.Buffer == want.Buffer
	}
	for i := range have.Size {
		if max(have.Size[i], want.Size[i])-min(have.Size[i], want.Size[i]) >= cell {
			return false
		}
	}
	return true
}

// cell is more than any card's unit of receive buffers, in bytes (mlx5: 128 to
// 2048, from SBCAM).
const cell = 4096
