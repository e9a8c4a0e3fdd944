package roce

import (
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// layerOf is the type that a port has.
func layerOf(p *link.Port) units.PortType {
	if p.Layer == ib.LinkLayerEthernet {
		return units.PortTypeEth
	}
	return units.PortTypeIB
}

func (p *planner) portType() (restarts bool) {
	want, ok := p.u.Port.Type.Get()
	if !ok || p.l.IsChild() {
		return false
	}
	now := units.PortTypeEth
	if p.l.IsInfiniBand() {
		now = units.PortTypeIB
	}
	a := link.Attribute{Name: "Type", Wanted: want.String(), Actual: now.String()}
	var pt *PortType
	if d, ok := p.st.Devices[p.on.IBDevice]; ok {
		pt = d.Ports[p.on.Port].Type
	}
	if pt == nil {
		if want != units.PortTypeAuto && want != now {
			a.Why = p.firmware(want, now)
			p.b.Block(p.on, nil, false, a.Why)
		}
		p.attr(a)
		return false
	}
	a.Actual = pt.Current.String()
	// A port that found the wanted type by itself is left: to fix the type would
	// change what happens at the next cable only.
	if want == pt.Configured || want == pt.Current {
		p.attr(a)
		return false
	}
	op := SetPortType{On: link.Target{Link: p.l.Name, Ifindex: p.l.Index, IBDevice: p.on.IBDevice, Port: p.on.Port}, Port: *pt, Type: want}
	if why, next := p.inUse(pt); why != "" && !p.u.Port.ChangeWhileInUse.V {
		p.block(a, op, link.Reason{Code: CodeInUse, Text: fmt.Sprintf("%s is in use (%s): changing its type would remove it", p.on, why),
			Next: "write ChangeWhileInUse=yes in [Port], or " + next})
		return false
	}
	if !p.b.DoFor(op, &a.Why) {
		p.attr(a)
		return a.Why.Code == link.CodeInProgress // the link goes with the old type
	}
	p.attr(a)
	return true
}

// inUse returns what would be lost with the link and its RDMA device, "" if nothing,
// and how to end it.
func (p *planner) inUse(pt *PortType) (why, next string) {
	next = "end them: rdma resource show cm_id; rdma resource show ctx"
	switch {
	case pt.Connections > 0:
		return fmt.Sprintf("its device has %d RDMA-CM connections or listeners", pt.Connections), next
	case pt.Programs > 0:
		return fmt.Sprintf("%d programs have its device open", pt.Programs), next
	case !p.l.Up():
		return "", ""
	}
	next = "bring the link down: ibnetctl down " + p.l.Name
	if n := len(p.b.Base.Children(p.index)); n > 0 {
		return fmt.Sprintf("it has %d P_Key children", n), next
	}
	for _, a := range p.l.Addresses {
		if !a.Prefix.Addr().IsLinkLocalUnicast() {
			return "it is up and has the address " + a.Prefix.String(), next
		}
	}
	return "", ""
}

// firmware is the sentence for a card whose port type is a setting of its
// firmware, with the command for it. The commands are those of mstflint; a
// function of mlx5 has one port, and the functions of a card are its ports.
func (p *planner) firmware(want, now units.PortType) link.Reason {
	d, _ := p.b.Base.Device(p.on.IBDevice)
	text := fmt.Sprintf("%s is %s, wanted %s", p.on, layerWord(now), layerWord(want))
	if d == nil || d.Driver != "mlx5_core" {
		driver := p.l.Driver
		if d != nil && d.Driver != "" {
			driver = d.Driver
		}
		return link.Reason{
			Code: link.CodeUnsupported,
			Text: fmt.Sprintf("%s: the driver %s cannot change the type of a port", text, driver),
			Next: "remove Type=",
		}
	}
	if d.Virtual || d.Bus == "auxiliary" {
		what := "a virtual function"
		if d.Bus == "auxiliary" {
			what = "a subfunction"
		}
		return link.Reason{
			Code: link.CodeUnsupported,
			Text: fmt.Sprintf("%s: %s is %s, whose type is that of its card's port", text, p.on.IBDevice, what),
			Next: "remove Type=, and write it in the unit of the physical function",
		}
	}
	value := 1
	if want == units.PortTypeEth {
		value = 2
	}
	pci, n := d.Parent, 1
	if i := strings.LastIndexByte(pci, '.'); i >= 0 && i+2 == len(pci) && pci[i+1] >= '0' && pci[i+1] <= '7' {
		n = int(pci[i+1]-'0') + 1
	}
	return link.Reason{
		Code: CodeFirmware, Text: text + ": on this card the type is a setting of the firmware, which takes effect after a reset",
		Next: fmt.Sprintf(
			"mstconfig -d %s set LINK_TYPE_P%d=%d, then mstfwreset -d %s reset, or reboot; "+
				"a board on which mstconfig has no LINK_TYPE_P1 has one type only",
			pci,
			n,
			value,
			pci,
		),
	}
}

func layerWord(t units.PortType) string {
	switch t {
	case units.PortTypeIB:
		return "InfiniBand"
	case units.PortTypeEth:
		return "Ethernet"
	}
	return "auto"
}

func (p *planner) nodeDesc() {
	text, ok := p.u.Port.NodeDescription.Get()
	have := p.st.Devices[p.on.IBDevice].NodeDesc
	if !ok || have == nil || p.l.IsChild() {
		return
	}
	want := units.ExpandNodeDescription(text, p.b.Base.Host.Facts.Hostname, p.on.IBDevice)
	a := link.Attribute{Name: "NodeDescription", Wanted: want, Actual: *have}
	if p.st.NodeDescBy != "" {
		if want != *have {
			a.Why = link.Reason{
				Code: CodeOtherNDD,
				Text: fmt.Sprintf("%s runs and sets the node description of %s: ibnetworkd leaves it unchanged", p.st.NodeDescBy, p.on.IBDevice),
				Next: "systemctl disable --now " + p.st.NodeDescBy,
			}
		}
		p.attr(a)
		return
	}
	p.reach(a, want == *have, SetNodeDesc{On: p.on, Desc: want})
}

// orderTypes puts the changes of both ports of a card in the order that all cards
// accept: some do not take Ethernet on port 1 beside InfiniBand on port 2, not
// even on the way.
func orderTypes(steps []link.Step) {
	at := map[string][]int{}
	for i, s := range steps {
		if p, ok := s.Op.(SetPortType); ok {
			card := p.Port.Bus + "/" + p.Port.Dev
			at[card] = append(at[card], i)
		}
	}
	for _, places := range at {
		var all []link.Step
		for _, i := range places {
			all = append(all, steps[i])
		}
		slices.SortStableFunc(all, func(a, b link.Step) int {
			x, y := a.Op.(SetPortType), b.Op.(SetPortType)
			switch {
			case x.Type != y.Type:
				return 0
			case x.Type == units.PortTypeEth:
				return y.On.Port - x.On.Port
			}
			return x.On.Port - y.On.Port
		})
		for k, i := range places {
			steps[i] = all[k]
		}
	}
}

// planPort plans [Port] for a port without an interface: nothing is lost there
// by a change of its type.
func planPort(b *link.Builder, st *State, d *link.Device, p *link.Port, u *units.Unit) {
	l := &link.Link{Driver: d.Driver, Type: link.ARPHRDInfiniBand, IBDevice: d.Name, Port: p.Num}
	if layerOf(p) == units.PortTypeEth {
		l.Type = 1
	}
	x := &planner{b: b, st: st, l: l, u: u, on: link.Target{IBDevice: d.Name, Port: p.Num}, port: p}
	x.note = b.Port(link.PortName{IBDevice: d.Name, Port: p.Num})
	steps, blocked := len(b.Plan.Steps), len(b.Plan.Blocked)
	if !x.portType() {
		x.nodeDesc()
	}
	for _, s := range b.Plan.Steps[steps:] {
		x.note.Pending = append(x.note.Pending, s.Op.String())
	}
	for _, w := range b.Plan.Blocked[blocked:] {
		x.note.Reasons = append(x.note.Reasons, w.Reason)
	}
}
