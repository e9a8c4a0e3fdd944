package roce

import (
	"fmt"
	"slices"

	"ibnetworkd/link"
)

// soft plans [SoftRoCE].
func (p *planner) soft() {
	if !p.u.SoftRoCE.Present {
		return
	}
	s := &p.u.SoftRoCE
	name := s.DeviceName(p.l.Name)
	a := link.Attribute{Name: "SoftRoCE", Wanted: s.Driver.V.String() + " " + name}
	st, seen := p.st.Links[p.index]
	if !seen {
		return
	}
	op := AddSoft{On: p.on, Name: name, Driver: s.Driver.V}
	op.On.IBDevice, op.On.Port = "", 0
	// A link has one device of a driver.
	if i := slices.IndexFunc(st.Soft, func(d SoftDevice) bool { return d.Name == name || d.Driver == s.Driver.V }); i >= 0 {
		d := st.Soft[i]
		a.Actual = d.Driver.String() + " " + d.Name
		if a.Actual == a.Wanted {
			p.attr(a)
			return
		}
		if !p.made(link.Made{Kind: kindSoft, Name: d.Name, On: p.index}) {
			p.block(a, op, link.Reason{
				Code: link.CodeNameTaken,
				Text: fmt.Sprintf("%s has the RDMA device %s of %s already, which was not made by ibnetworkd", p.l.Name, d.Name, d.Driver),
				Next: fmt.Sprintf("write Driver=%s and Name=%s in [SoftRoCE], or: rdma link delete %s", d.Driver, d.Name, d.Name),
			})
			return
		}
		if p.stays(a, DelSoft{On: op.On, Name: d.Name, Index: d.Index}) {
			return
		}
	} else if _, taken := p.b.Base.Device(name); taken {
		p.block(a, op, link.Reason{Code: link.CodeNameTaken,
			Text: fmt.Sprintf("an RDMA device %s exists and is not on %s", name, p.l.Name), Next: "write another Name= in [SoftRoCE]"})
		return
	}
	p.reach(a, false, op)
}

// stays reports that a removal of PlanRemovals is delayed, and notes it at the
// attribute of the replacement.
func (p *planner) stays(a link.Attribute, del link.Op) bool {
	why, delayed := p.b.Delayed[link.DelayKey(del)]
	if delayed {
		a.Why = why
		p.attr(a)
	}
	return delayed
}

// made reports whether something is recorded.
func (p *planner) made(m link.Made) bool {
	return p.b.Record != nil && slices.Contains(p.b.Record.Made, m)
}
