package roce

import (
	"fmt"

	"ibnetworkd/link"
)

// defaults plans RDMA-CM's version and type of service.
func (p *planner) defaults() {
	r := &p.u.RoCE
	version, tos := r.Version, r.ToS()
	if !version.Set && !tos.Set {
		return
	}
	not := func(wait bool, why link.Reason) {
		if v, ok := version.Get(); ok {
			p.attr(link.Attribute{Name: "Version", Wanted: fmt.Sprint(v), Why: why})
		}
		if v, ok := tos.Get(); ok {
			p.attr(link.Attribute{Name: "TypeOfService", Wanted: tosText(v), Why: why})
		}
		p.b.Block(p.on, nil, wait, why)
	}
	if p.bondSlave(not) {
		return
	}
	if p.roce == nil {
		not(p.u.SoftRoCE.Present, p.noDevice())
		return
	}
	if d, ok := p.b.Base.Device(p.roceOn.IBDevice); ok && d.NodeType == "RNIC" && version.Set {
		next := "remove Version=, DSCP= and TypeOfService= from [RoCE]"
		if rdmaModule(d.Driver) == "irdma" {
			next += "; where the card has a switch for RoCE: devlink dev param show (enable_roce, enable_iwarp)"
		}
		not(false, link.Reason{
			Code: link.CodeUnsupported,
			Text: fmt.Sprintf("%s of %s is an iWARP device, for which there is no version of RoCE", d.Name, p.l.Name),
			Next: next,
		})
		return
	}
	if !p.st.RDMACM {
		not(true, link.Reason{
			Code: CodeNoRDMACM,
			Text: "the defaults of RDMA-CM cannot be set: rdma_cm is not loaded or configfs is not mounted",
			Next: "modprobe rdma_cm; mount -t configfs none /sys/kernel/config",
		})
		return
	}
	now := p.st.Devices[p.roceOn.IBDevice].Ports[p.roceOn.Port].Defaults
	if now == nil {
		not(true, link.Reason{
			Code: CodeNoRDMACM,
			Text: fmt.Sprintf("RDMA-CM does not report the defaults of %s/%d", p.roceOn.IBDevice, p.roceOn.Port),
			Next: "rdma link show; dmesg",
		})
		return
	}
	if v, ok := version.Get(); ok {
		p.reach(link.Attribute{Name: "Version", Wanted: fmt.Sprint(v), Actual: fmt.Sprint(now.Version)}, v == now.Version,
			SetVersion{On: p.roceOn, Version: v})
	}
	if v, ok := tos.Get(); ok {
		p.reach(link.Attribute{Name: "TypeOfService", Wanted: tosText(v), Actual: tosText(now.ToS)}, v == now.ToS, SetToS{On: p.roceOn, ToS: v})
	}
}

// tosText gives both numbers, because people mix them up.
func tosText(v uint8) string { return fmt.Sprintf("%d (DSCP %d)", v, v>>2) }
