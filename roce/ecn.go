package roce

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

func (p *planner) ecn(r *units.RoCE) {
	want, ok := r.ECN.Get()
	if !ok {
		return
	}
	st, seen := p.st.Links[p.index]
	if !seen {
		return
	}
	if st.ECN == nil {
		p.cannot(
			"ECN",
			priorities(want),
			link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("the driver of %s has no files for ECN", p.l.Name),
				Next: "it is on by default in most firmware; see /sys/kernel/debug/mlx5/*/cc_params"},
		)
		return
	}
	if want == *st.ECN {
		p.attr(link.Attribute{Name: "ECN", Wanted: priorities(want), Actual: priorities(want)})
	}
	for i := range uint8(Priorities) {
		if bit := uint8(1) << i; want&bit != *st.ECN&bit {
			p.reach(link.Attribute{Name: "ECN", Wanted: priorities(want), Actual: priorities(*st.ECN)}, false,
				SetECN{On: p.on, Priority: i, Enable: want&bit != 0})
		}
	}
}
