package roce

import (
	"fmt"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// modprobe keeps mlx4's PFC over a reload of its module, where it is a
// parameter and not a setting.
func (p *planner) modprobe(r *units.RoCE) {
	if !r.WriteModprobeFile.V {
		return
	}
	no := func(text, next string) {
		p.attr(link.Attribute{
			Name:   "WriteModprobeFile",
			Wanted: "yes",
			Actual: "no",
			Why:    link.Reason{Code: link.CodeUnsupported, Text: text, Next: next},
		})
	}
	switch {
	case p.l.Driver != "mlx4_en" && p.l.Driver != "mlx4_core":
		no(fmt.Sprintf("the driver of %s takes PFC while it runs: there is no module option for it", p.l.Name), "remove WriteModprobeFile=")
		return
	case !r.PFC.Set:
		no("WriteModprobeFile= keeps PFC=, and there is none", "write PFC= too")
		return
	}
	text := fmt.Sprintf(
		"# Written by ibnetworkd because a unit says WriteModprobeFile=yes. Where the\n"+
			"# initramfs has mlx4_en, rebuild it: update-initramfs -u, or dracut --force.\n"+
			"options mlx4_en pfctx=0x%02x pfcrx=0x%02x\n",
		r.PFC.V,
		r.PFC.V,
	)
	a := link.Attribute{Name: "WriteModprobeFile", Wanted: "yes", Actual: "yes"}
	if p.st.Modprobe != text {
		a.Actual = "no"
	}
	p.reach(a, p.st.Modprobe == text, SetModprobe{On: p.on, Text: text})
}
