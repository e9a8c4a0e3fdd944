package roce

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

func (p *planner) pfc(r *units.RoCE, d *DCB) {
	if !r.PFC.Set && !r.CableLength.Set {
		return
	}
	if d.PFC == nil {
		p.cannot("PFC", priorities(r.PFC.V),
			link.Reason{Code: CodeNoDCB, Text: fmt.Sprintf("the driver of %s has no priority flow control", p.l.Name)})
		return
	}
	op := SetPFC{On: p.on, Priority: *d.PFC}
	a := link.Attribute{Name: "PFC", Wanted: priorities(*d.PFC), Actual: priorities(*d.PFC)}
	if v, ok := r.PFC.Get(); ok {
		a.Wanted, op.Priority = priorities(v), v
		n := 0
		for i := range Priorities {
			n += int(v >> i & 1)
		}
		if d.PFCCap != 0 && n > int(d.PFCCap) {
			p.block(a, op, link.Reason{
				Code: link.CodeUnsupported,
				Text: fmt.Sprintf("wanted %d priorities with flow control, %s has %d", n, p.l.Name, d.PFCCap),
				Next: "write fewer in PFC=",
			})
			return
		}
	}
	p.reach(a, op.Priority == *d.PFC, op)
	p.cable(r, d, op.Priority)
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
		a.Why = link.Reason{
			Code: link.CodeUnsupported,
			Text: fmt.Sprintf("the driver %s has no setting for the length of the cable", d.Driver),
			Next: "write BufferSize= instead",
		}
		p.attr(a)
	case d.Buffer == nil:
		a.Why = link.Reason{
			Code: link.CodeUnsupported,
			Text: fmt.Sprintf("%s has no receive buffers to set, and therefore no length of the cable", p.l.Name),
			Next: "remove CableLength=; the firmware sizes the buffers",
		}
		p.attr(a)
	default:
		a.Actual = fmt.Sprintf("%d m", d.Delay)
		p.reach(a, uint16(m) == d.Delay, SetPFC{On: p.on, Priority: pfc, Delay: uint16(m)})
	}
}
