package roce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Codes that this room adds to those of package link.
const (
	CodeFought   link.Code = "changed-by-other"      // something else keeps setting it back
	CodeFirmware link.Code = "firmware-setting"      // only the firmware can change it
	CodeInUse    link.Code = "in-use"                // a change would interrupt something
	CodeNoRDMACM link.Code = "rdma-cm-not-loaded"    // or configfs is not mounted
	CodeNoDCB    link.Code = "driver-without-dcb"    //
	CodeNoSRIOV  link.Code = "no-virtual-functions"  //
	CodeOtherNDD link.Code = "node-description-kept" // by rdma-ndd
)

// fightLimit is how many times a setting is put right before it is left to
// whoever changes it back.
const fightLimit = 3

type planner struct {
	b     *link.Builder
	st    *State
	index int
	l     *link.Link
	on    link.Target
	u     *units.Unit
	port  *link.Port // of the RDMA device on the link, nil for none
	// roce is the port that RoCE settings are for, with its device's name: as a
	// rule the same one.
	roce   *link.Port
	roceOn link.Target
	// note is that of a port without a link, whose attributes go there; nil for
	// a link.
	note *link.PortNote
}

func (p *planner) attr(a link.Attribute) {
	if p.note != nil {
		p.note.Attributes = append(p.note.Attributes, a)
		return
	}
	p.b.Attr(p.index, a)
}

// layerOf is the type that a port has.
func layerOf(p *link.Port) units.PortType {
	if p.Layer == ib.LinkLayerEthernet {
		return units.PortTypeEth
	}
	return units.PortTypeIB
}

// Plan plans the parts of a unit that concern the card and RoCE for one link
// and notes their attributes. It reports true if the steps so far make the
// link's interfaces anew, so that nothing more can be planned for it now.
func Plan(b *link.Builder, st *State, index int, u *units.Unit) (restarts bool) {
	l := b.Link(index)
	if l == nil || u == nil || st == nil {
		return false
	}
	p := &planner{b: b, st: st, index: index, l: l, u: u, on: link.TargetOf(l)}
	p.findPort()
	if l.Kind == "vlan" {
		// A unit that matches a link's VLANs too does not mean them by the rest.
		p.gids()
		return false
	}
	if p.portType() {
		return true
	}
	p.nodeDesc()
	p.virtualFunctions()
	if l.IsInfiniBand() {
		if !l.IsChild() { // a unit that matches a link's P_Key children too does not mean them
			p.ethernetOnly()
		}
		return false
	}
	p.soft()
	p.vlans()
	if u.RoCE.Present {
		p.defaults()
		p.dcb()
	}
	p.gids()
	return false
}

// ethernetOnly says what an InfiniBand link cannot have.
func (p *planner) ethernetOnly() {
	for _, x := range []struct {
		section, instead string
		is               bool
	}{
		{"RoCE", "take [RoCE] out, or write [Port] Type=eth", p.u.RoCE.Present},
		{"SoftRoCE", "take [SoftRoCE] out: the link has RDMA", p.u.SoftRoCE.Present},
		{"VLAN", "write a [Partition] instead", len(p.u.VLANs) > 0},
	} {
		if x.is {
			p.attr(link.Attribute{Name: x.section, Wanted: "yes", Actual: "InfiniBand", Why: link.Reason{
				Code: link.CodeUnsupported, Text: fmt.Sprintf("%s is an InfiniBand link: [%s] is for Ethernet ports", p.l.Name, x.section), Next: x.instead}})
		}
	}
}

func (p *planner) findPort() {
	if d, q := PortOf(p.b.Base, p.l); q != nil {
		p.port = q
		p.on.IBDevice, p.on.Port = d.Name, q.Num
	}
	p.roceOn = p.on
	if d, q := RoCEPortOf(p.b.Base, p.st, p.l); q != nil {
		p.roce, p.roceOn.IBDevice, p.roceOn.Port = q, d.Name, q.Num
	}
}

// reach plans op if the setting is not as wanted, and notes the attribute.
func (p *planner) reach(a link.Attribute, ok bool, op link.Op) (planned bool) {
	switch {
	case ok:
	case p.st.Fought[FoughtKey(op)] >= fightLimit:
		a.Why = p.fought(a.Name)
		p.b.Block(p.on, op, false, a.Why)
	case !p.b.Do(op):
		a.Why = p.b.Held[link.HoldKey(op)]
	default:
		planned = true
	}
	p.attr(a)
	return planned
}

func (p *planner) fought(name string) link.Reason {
	who, next := "another program", "find it: lldpad, mlnx_qos in a boot script, an agent in a container; stop it, then: ibnetctl reconfigure "+p.l.Name
	if len(p.st.Agents) > 0 {
		who = strings.Join(p.st.Agents, " or ")
		next = "systemctl disable --now " + p.st.Agents[0] + ", then: ibnetctl reconfigure " + p.l.Name
	}
	return link.Reason{Code: CodeFought, Text: fmt.Sprintf("%s changes %s of %s back each time; it is left as it is", who, name, p.on), Next: next}
}

// cannot notes a setting for which there is no operation.
func (p *planner) cannot(name, wanted string, why link.Reason) {
	p.block(link.Attribute{Name: name, Wanted: wanted}, nil, why)
}

// block notes a setting that op, nil for none, is not to be tried for.
func (p *planner) block(a link.Attribute, op link.Op, why link.Reason) {
	a.Why = why
	p.attr(a)
	p.b.Block(p.on, op, false, why)
}

// portType plans [Port] Type=.
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
		p.block(a, op, link.Reason{Code: CodeInUse, Text: fmt.Sprintf("%s is in use (%s): changing its type would take it away", p.on, why),
			Next: "write ChangeWhileInUse=yes below [Port], or " + next})
		return false
	}
	if !p.b.Do(op) {
		a.Why = p.b.Held[link.HoldKey(op)]
		p.attr(a)
		return false
	}
	p.attr(a)
	return true
}

// inUse says what would be lost with the link and its RDMA device, "" if nothing,
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
	next = "take the link down: ibnetctl down " + p.l.Name
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
	text := fmt.Sprintf("%s is %s, asked %s", p.on, layerWord(now), layerWord(want))
	if d == nil || d.Driver != "mlx5_core" {
		driver := p.l.Driver
		if d != nil && d.Driver != "" {
			driver = d.Driver
		}
		return link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("%s: the driver %s cannot change the type of a port", text, driver), Next: "take Type= out"}
	}
	if d.Virtual || d.Bus == "auxiliary" {
		what := "a virtual function"
		if d.Bus == "auxiliary" {
			what = "a subfunction"
		}
		return link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("%s: %s is %s, whose type is that of its card's port", text, p.on.IBDevice, what), Next: "remove Type=, and write it in the unit of the physical function"}
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
		Next: fmt.Sprintf("mstconfig -d %s set LINK_TYPE_P%d=%d, then mstfwreset -d %s reset, or reboot; a board on which mstconfig knows no LINK_TYPE_P1 has one type only", pci, n, value, pci),
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
			a.Why = link.Reason{Code: CodeOtherNDD, Text: fmt.Sprintf("%s runs and keeps the node description of %s: it is left to it", p.st.NodeDescBy, p.on.IBDevice), Next: "systemctl disable --now " + p.st.NodeDescBy}
		}
		p.attr(a)
		return
	}
	p.reach(a, want == *have, SetNodeDesc{On: p.on, Desc: want})
}

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
			p.block(a, op, link.Reason{Code: link.CodeNameTaken, Text: fmt.Sprintf("%s has the RDMA device %s of %s already, which was not made by ibnetworkd", p.l.Name, d.Name, d.Driver),
				Next: fmt.Sprintf("write Driver=%s and Name=%s below [SoftRoCE], or: rdma link delete %s", d.Driver, d.Name, d.Name)})
			return
		}
		if p.stays(a, DelSoft{On: op.On, Name: d.Name, Index: d.Index}) {
			return
		}
	} else if _, taken := p.b.Base.Device(name); taken {
		p.block(a, op, link.Reason{Code: link.CodeNameTaken, Text: fmt.Sprintf("an RDMA device %s exists and is not on %s", name, p.l.Name), Next: "write another Name= below [SoftRoCE]"})
		return
	}
	p.reach(a, false, op)
}

// vlans plans [VLAN].
func (p *planner) vlans() {
	on := p.on
	on.IBDevice, on.Port = "", 0
	for i := range p.u.VLANs {
		v := &p.u.VLANs[i]
		name := v.ChildName(p.l.Name)
		a := link.Attribute{Name: "VLAN", Wanted: vlanText(name, v)}
		op := AddVLAN{On: on, Name: name, VLAN: *v}
		c, ok := p.b.Base.LinkByName(name)
		if !ok {
			p.reach(a, false, op)
			continue
		}
		if c.Kind != "vlan" || c.Parent != p.index || c.VLAN == nil {
			p.block(a, op, link.Reason{Code: link.CodeNameTaken, Text: fmt.Sprintf("a link %s exists and is not a VLAN of %s", name, p.l.Name), Next: "write another Name= below [VLAN]"})
			continue
		}
		have := vlanAsIs(v, c.VLAN)
		a.Actual = vlanText(name, &have)
		switch {
		case sameTag(v, c.VLAN):
			set := SetVLAN{On: on, Name: name, VLAN: *v, DropIngress: extra(c.VLAN.Ingress, v.IngressQOSMaps), DropEgress: extra(c.VLAN.Egress, v.EgressQOSMaps)}
			p.reach(a, a.Actual == a.Wanted, set)
		case !p.made(link.Made{Kind: kindVLAN, Name: name, On: p.index}):
			why := link.Reason{Code: link.CodeNameTaken, Text: fmt.Sprintf("%s is VLAN %d of %s, asked %d, and was not made by ibnetworkd", name, c.VLAN.ID, p.l.Name, v.Id.V), Next: "ip link delete " + name + ", or write another Name= below [VLAN]"}
			if c.VLAN.ID == v.Id.V {
				why.Text = fmt.Sprintf("%s has tags of another protocol than %s, and was not made by ibnetworkd", name, v.Protocol.Or(units.VLAN8021Q))
			}
			p.block(a, op, why)
		case !p.stays(a, DelVLAN{On: on, Name: name}):
			p.reach(a, false, op)
		}
	}
}

// stays reports that what Going takes away cannot go now, and notes the attribute
// of what was to come in its place.
func (p *planner) stays(a link.Attribute, del link.Op) bool {
	why, held := p.b.Held[link.HoldKey(del)]
	if held {
		a.Why = why
		p.attr(a)
	}
	return held
}

// vlanText describes a VLAN by what a unit says of it.
func vlanText(name string, v *units.VLAN) string {
	out := fmt.Sprintf("%s id %d", name, v.Id.V)
	if v.Protocol.Set {
		out += " protocol " + v.Protocol.V.String()
	}
	// What is mapped to 0 is not mapped.
	used := *v
	for _, ms := range []*[]units.Value[units.QOSMap]{&used.IngressQOSMaps, &used.EgressQOSMaps} {
		m := qosMap(*ms)
		*ms = slices.DeleteFunc(slices.Clone(*ms), func(x units.Value[units.QOSMap]) bool { return m[x.V.From] == 0 })
	}
	return out + vlanWords(&used, nil, nil)
}

// vlanAsIs is a VLAN as it is, in the keys that a unit sets.
func vlanAsIs(want *units.VLAN, have *link.VLAN) units.VLAN {
	out := units.VLAN{Id: units.Some(have.ID)}
	if want.Protocol.Set {
		out.Protocol = units.Some(units.VLANProtocol(have.Protocol))
	}
	flags := vlanFlags(want)
	for i, f := range []*units.Value[bool]{&out.ReorderHeader, &out.GVRP, &out.MVRP, &out.LooseBinding} {
		if flags[i].want.Set {
			*f = units.Some(have.Flags&flags[i].bit != 0)
		}
	}
	list := func(set bool, m map[uint32]uint32) (out []units.Value[units.QOSMap]) {
		for from, to := range m {
			if set {
				out = append(out, units.Some(units.QOSMap{From: from, To: to}))
			}
		}
		return out
	}
	out.IngressQOSMaps = list(len(want.IngressQOSMaps) > 0, have.Ingress)
	out.EgressQOSMaps = list(len(want.EgressQOSMaps) > 0, have.Egress)
	return out
}

// extra lists what a map has beyond what a unit says of it, if it says anything.
func extra(have map[uint32]uint32, want []units.Value[units.QOSMap]) (out []uint32) {
	if len(want) == 0 {
		return nil
	}
	wanted := qosMap(want)
	for _, from := range slices.Sorted(maps.Keys(have)) {
		if _, ok := wanted[from]; !ok {
			out = append(out, from)
		}
	}
	return out
}

// made reports whether the record says that something is ours.
func (p *planner) made(m link.Made) bool {
	return p.b.Record != nil && slices.Contains(p.b.Record.Made, m)
}

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
		not(false, link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("%s of %s is an iWARP device, for which there is no version of RoCE", d.Name, p.l.Name), Next: next})
		return
	}
	if !p.st.RDMACM {
		not(true, link.Reason{Code: CodeNoRDMACM, Text: "the defaults of RDMA-CM cannot be set: rdma_cm is not loaded or configfs is not mounted", Next: "modprobe rdma_cm; mount -t configfs none /sys/kernel/config"})
		return
	}
	now := p.st.Devices[p.roceOn.IBDevice].Ports[p.roceOn.Port].Defaults
	if now == nil {
		not(true, link.Reason{Code: CodeNoRDMACM, Text: fmt.Sprintf("RDMA-CM does not tell the defaults of %s/%d", p.roceOn.IBDevice, p.roceOn.Port), Next: "rdma link show; dmesg"})
		return
	}
	if v, ok := version.Get(); ok {
		p.reach(link.Attribute{Name: "Version", Wanted: fmt.Sprint(v), Actual: fmt.Sprint(now.Version)}, v == now.Version, SetVersion{On: p.roceOn, Version: v})
	}
	if v, ok := tos.Get(); ok {
		p.reach(link.Attribute{Name: "TypeOfService", Wanted: tosText(v), Actual: tosText(now.ToS)}, v == now.ToS, SetToS{On: p.roceOn, ToS: v})
	}
}

// tosText gives both numbers, because people mix them up.
func tosText(v uint8) string { return fmt.Sprintf("%d (DSCP %d)", v, v>>2) }

// wantsDCB reports whether a unit asks for anything that DCB has.
func wantsDCB(r *units.RoCE) bool {
	return r.PFC.Set || r.Trust.Set || len(r.ETS) > 0 || len(r.PriorityToClass) > 0 || len(r.BufferSize) > 0 || len(r.PriorityToBuffer) > 0 ||
		r.CableLength.Set || len(wantedDSCP(r)) > 0
}

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
		why := link.Reason{Code: CodeNoDCB, Text: fmt.Sprintf("the driver of %s has no data centre bridging: PFC, ETS, trust and buffers cannot be set", p.l.Name), Next: "take these keys out of [RoCE]"}
		p.cannot("PFC", priorities(r.PFC.V), why)
		return
	}
	if !p.host(d) {
		return
	}
	p.ets(r, d)
	p.classesFirst(r, d)
	p.pfc(r, d)
	p.dscp(r, d)
	p.buffers(r, d)
}

func (p *planner) pfc(r *units.RoCE, d *DCB) {
	if !r.PFC.Set && !r.CableLength.Set {
		return
	}
	if d.PFC == nil {
		p.cannot("PFC", priorities(r.PFC.V), link.Reason{Code: CodeNoDCB, Text: fmt.Sprintf("the driver of %s has no priority flow control", p.l.Name)})
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
			p.block(a, op, link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("asked %d priorities with flow control, %s has %d", n, p.l.Name, d.PFCCap), Next: "write fewer in PFC="})
			return
		}
	}
	p.reach(a, op.Priority == *d.PFC, op)
	p.cable(r, d, op.Priority)
}

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
	for _, m := range r.PriorityToClass {
		want.Class[m.V.From&7] = m.V.To & 7
	}
	a := link.Attribute{Name: "ETS", Wanted: want.String(), Actual: d.ETS.String()}
	op := SetETS{On: p.on, Classes: want}
	// The kernel's handlers want the shares of all classes with ETS to be 100
	// (mlx5e_dbcnl_validate_ets) and answer with a bare EINVAL else.
	sum, any := 0, false
	for i := range Priorities {
		if want.TSA[i] == ETS {
			sum, any = sum+int(want.Percent[i]), true
		}
	}
	if any && sum != 100 {
		p.block(a, op, link.Reason{Code: link.CodeRefused, Text: fmt.Sprintf("the shares of the classes with ETS on %s would add up to %d, not 100: %s", p.l.Name, sum, want), Next: "name all classes in ETS="})
		return
	}
	p.reach(a, want == *d.ETS, op)
}

// String prints classes as 0:60 1:strict ... and the class of each priority.
func (c Classes) String() string {
	var out []string
	for i := range Priorities {
		if c.TSA[i] == ETS {
			out = append(out, fmt.Sprintf("%d:%d", i, c.Percent[i]))
		} else {
			out = append(out, fmt.Sprintf("%d:%s", i, c.TSA[i]))
		}
	}
	for i := range Priorities {
		out = append(out, fmt.Sprintf("%d>%d", i, c.Class[i]))
	}
	return strings.Join(out, " ")
}

// dscp plans the map and trust. A driver without a trust table (mlx5; the table
// came with Linux 6.2) trusts DSCP as long as the map has an entry.
func (p *planner) dscp(r *units.RoCE, d *DCB) {
	want := wantedDSCP(r)
	trust, hasTrust := r.Trust.Get()
	if keepsNoDSCP(d.Driver) && (len(want) > 0 || hasTrust && trust == units.TrustDSCP) {
		name, value := "DSCPToPriority", dscpText(want)
		if len(want) == 0 {
			name, value = "Trust", trust.String()
		}
		p.cannot(name, value, link.Reason{Code: link.CodeUnsupported,
			Text: fmt.Sprintf("the driver %s of %s has no priorities by DSCP: the kernel keeps such a list and the card does not use it", d.Driver, p.l.Name),
			Next: "remove DSCPToPriority=, Priority= and Trust=dscp; use the priority of a VLAN: EgressQOSMaps= below [VLAN]"})
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
			why := link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("the driver of %s trusts DSCP as soon as a DSCP has a priority: Trust=pcp and a map exclude each other", p.l.Name), Next: "write Trust=dscp, or take DSCPToPriority= and Priority= out"}
			p.cannot("Trust", trust.String(), why)
			return
		}
		if len(have) > 0 {
			p.reach(link.Attribute{Name: "DSCPToPriority", Wanted: "none", Actual: dscpText(have)}, false, ClearDSCP{On: p.on})
		}
	}
	for _, dscp := range sortedDSCP(want) {
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

func dscpText(m map[uint8]uint8) string {
	var out []string
	for _, dscp := range sortedDSCP(m) {
		out = append(out, fmt.Sprintf("%d:%d", dscp, m[dscp]))
	}
	return strings.Join(out, " ")
}

func (p *planner) buffers(r *units.RoCE, d *DCB) {
	if len(r.BufferSize) == 0 && len(r.PriorityToBuffer) == 0 {
		return
	}
	if d.Buffer == nil {
		p.cannot("BufferSize", "", link.Reason{Code: CodeNoDCB, Text: fmt.Sprintf("the driver of %s has no receive buffers to set", p.l.Name)})
		return
	}
	want := *d.Buffer
	for _, s := range r.BufferSize {
		want.Size[s.V.Buffer&7] = s.V.Bytes
	}
	for _, m := range r.PriorityToBuffer {
		want.Buffer[m.V.From&7] = m.V.To & 7
	}
	a := link.Attribute{Name: "BufferSize", Wanted: want.String(), Actual: d.Buffer.String()}
	op := SetBuffers{On: p.on, Buffers: want}
	var sum uint64
	for _, s := range want.Size {
		sum += uint64(s)
	}
	if want.Total != 0 && sum > uint64(want.Total) {
		p.block(a, op, link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("the buffers of %s would need %d bytes, it has %d", p.l.Name, sum, want.Total), Next: "write smaller sizes in BufferSize="})
		return
	}
	p.reach(a, taken(d, want), op)
}

// String prints sizes and map.
func (b Buffers) String() string {
	var out []string
	for i := range Priorities {
		out = append(out, fmt.Sprintf("%d:%d", i, b.Size[i]))
	}
	for i := range Priorities {
		out = append(out, fmt.Sprintf("%d>%d", i, b.Buffer[i]))
	}
	return strings.Join(out, " ")
}

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
		p.cannot("ECN", priorities(want), link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("the driver of %s has no files for ECN", p.l.Name),
			Next: "it is on by default in most firmware; see /sys/kernel/debug/mlx5/*/cc_params"})
		return
	}
	if want == *st.ECN {
		p.attr(link.Attribute{Name: "ECN", Wanted: priorities(want), Actual: priorities(want)})
	}
	for i := range uint8(Priorities) {
		if bit := uint8(1) << i; want&bit != *st.ECN&bit {
			p.reach(link.Attribute{Name: "ECN", Wanted: priorities(want), Actual: priorities(*st.ECN)}, false, SetECN{On: p.on, Priority: i, Enable: want&bit != 0})
		}
	}
}

// modprobe keeps mlx4's PFC over a reload of its module, where it is a
// parameter and not a setting.
func (p *planner) modprobe(r *units.RoCE) {
	if !r.WriteModprobeFile.V {
		return
	}
	no := func(text, next string) {
		p.attr(link.Attribute{Name: "WriteModprobeFile", Wanted: "yes", Actual: "no", Why: link.Reason{Code: link.CodeUnsupported, Text: text, Next: next}})
	}
	switch {
	case p.l.Driver != "mlx4_en" && p.l.Driver != "mlx4_core":
		no(fmt.Sprintf("the driver of %s takes PFC while it runs: there is no module option for it", p.l.Name), "take WriteModprobeFile= out")
		return
	case !r.PFC.Set:
		no("WriteModprobeFile= keeps PFC=, and there is none", "write PFC= too")
		return
	}
	text := fmt.Sprintf("# Written by ibnetworkd because a unit says WriteModprobeFile=yes. Where the\n# initramfs has mlx4_en, rebuild it: update-initramfs -u, or dracut --force.\noptions mlx4_en pfctx=0x%02x pfcrx=0x%02x\n", r.PFC.V, r.PFC.V)
	a := link.Attribute{Name: "WriteModprobeFile", Wanted: "yes", Actual: "yes"}
	if p.st.Modprobe != text {
		a.Actual = "no"
	}
	p.reach(a, p.st.Modprobe == text, SetModprobe{On: p.on, Text: text})
}

// gids notes the GID indexes of the link.
func (p *planner) gids() {
	if p.roce == nil || p.roce.Layer != ib.LinkLayerEthernet {
		return
	}
	p.shown()
	x := Select(p.st.Devices[p.roceOn.IBDevice].Ports[p.roceOn.Port].GIDs, p.l, p.u)
	note := func(name string, e *GID) {
		if e != nil {
			p.attr(link.Attribute{Name: name, Actual: fmt.Sprint(e.Index)})
		}
	}
	note("GIDIndexIPv4", x.V4)
	note("GIDIndexIPv6", x.V6)
}

// virtualFunctions plans [VirtualFunctions] and [VF].
func (p *planner) virtualFunctions() {
	g := &p.u.VirtualFunctions
	if !g.Present && len(p.u.VFs) == 0 || p.l.IsChild() {
		return
	}
	st, seen := p.st.Links[p.index]
	if !seen {
		return
	}
	s := st.SRIOV
	if s == nil {
		p.cannot("VirtualFunctions", fmt.Sprint(g.Count.V), link.Reason{Code: CodeNoSRIOV,
			Text: fmt.Sprintf("%s cannot have virtual functions: its device has no SR-IOV, or the firmware has it off", p.l.Name),
			Next: "mstconfig -d DEVICE set SRIOV_EN=1 NUM_OF_VFS=N, then reboot"})
		return
	}
	if v, ok := g.Autoprobe.Get(); ok && s.Autoprobe != nil {
		p.reach(link.Attribute{Name: "Autoprobe", Wanted: yesNo(v), Actual: yesNo(*s.Autoprobe)}, v == *s.Autoprobe, SetAutoprobe{On: p.on, Bus: s.Bus, Dev: s.Dev, Probe: v})
	} else if ok {
		p.cannot("Autoprobe", yesNo(v), link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("%s has no switch for drivers of virtual functions", p.on), Next: "take Autoprobe= out"})
	}
	if n, ok := g.Count.Get(); ok && !p.vfCount(s, n) {
		return
	}
	for i := range s.VFs {
		p.vf(s, i)
	}
	for _, f := range p.u.VFs {
		if n := f.VirtualFunction.V; n >= len(s.VFs) {
			p.cannot(fmt.Sprintf("VF %d", n), "there", link.Reason{Code: CodeNoSRIOV, Text: fmt.Sprintf("%s has no virtual function %d, it has %d of them (the first is 0)", p.on, n, len(s.VFs)),
				Next: fmt.Sprintf("write Count=%d below [VirtualFunctions]", n+1)})
		}
	}
}

func yesNo(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

// vfCount reports whether the functions that are there stay, so that they can be
// looked at.
func (p *planner) vfCount(s *SRIOV, want int) bool {
	have := len(s.VFs)
	a := link.Attribute{Name: "Count", Wanted: fmt.Sprint(want), Actual: fmt.Sprint(have)}
	op := SetVFs{On: p.on, Bus: s.Bus, Dev: s.Dev, Old: have, Count: want}
	switch {
	case have == want:
		p.attr(a)
		return true
	case want > s.Total:
		p.block(a, op, link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("asked %d virtual functions, %s has at most %d", want, p.on, s.Total),
			Next: fmt.Sprintf("mstconfig -d %s set NUM_OF_VFS=%d, then reboot", s.Dev, want)})
		return true
	}
	for i, v := range s.VFs {
		if v.Busy != "" {
			p.block(a, op, link.Reason{Code: CodeInUse, Text: fmt.Sprintf("the number of virtual functions of %s changes through 0 only, and function %d is in use (%s)", p.on, i, v.Busy),
				Next: "give the functions free, or leave Count= at " + fmt.Sprint(have)})
			return true
		}
	}
	if have != 0 && want != 0 && p.st.Fought[FoughtKey(op)] >= rebindLimit {
		// Each try takes the functions that there are away.
		p.block(a, op, link.Reason{Code: link.CodeRefused, Text: fmt.Sprintf("the number of virtual functions of %s does not stay at %d, it is %d again", p.on, want, have),
			Next: "dmesg has the driver's reason; write another Count=, or try again: ibnetctl reconfigure " + p.l.Name})
		return true
	}
	return !p.reach(a, false, op)
}

// vf plans one virtual function.
func (p *planner) vf(s *SRIOV, i int) {
	g, v := &p.u.VirtualFunctions, &s.VFs[i]
	var own units.VF
	if k := slices.IndexFunc(p.u.VFs, func(f units.VF) bool { return f.VirtualFunction.V == i }); k >= 0 {
		own = p.u.VFs[k]
	}
	name := func(key string) string { return fmt.Sprintf("VF %d %s", i, key) }
	set := func(key, want, have string, ok bool, attr VFAttr) {
		p.reach(link.Attribute{Name: name(key), Wanted: want, Actual: have}, ok, SetVF{On: p.on, VF: i, Attr: attr, Old: attr.Of(v)})
	}
	untold := func(key, want string) {
		p.cannot(name(key), want, link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("the driver of %s does not tell %s of virtual functions: it has no such setting", p.l.Name, key),
			Next: "take " + key + "= out; ip link show " + p.l.Name + " tells what the driver keeps for its functions"})
	}
	// guid is the GUID that is wanted, nil if none is or none is possible.
	guid := func(key string, own, all units.Value[units.VFGUID], have *ib.GUID, auto func(ib.GUID, int) ib.GUID) *ib.GUID {
		w, ok := own.Get()
		if !ok {
			if w, ok = all.Get(); !ok {
				return nil
			}
		}
		if !p.l.IsInfiniBand() {
			p.cannot(name(key), w.String(), link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("%s is Ethernet: its virtual functions have MAC addresses, no GUIDs", p.l.Name), Next: "write MACAddress= below [VF]"})
			return nil
		}
		if have == nil {
			p.cannot(name(key), w.String(), link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("the driver of %s does not tell the GUIDs of virtual functions", p.l.Name),
				Next: "take " + key + "= out, and set it where the driver keeps it: " + p.l.Driver})
			return nil
		}
		want := w.GUID
		if w.Auto {
			if p.port == nil || p.port.GUID == 0 {
				return nil // its RDMA device is on its way
			}
			want = auto(p.port.GUID, i)
		}
		return &want
	}
	node := guid("NodeGUID", own.NodeGUID, g.NodeGUID, v.NodeGUID, NodeGUIDFor)
	port := guid("PortGUID", own.PortGUID, g.PortGUID, v.PortGUID, PortGUIDFor)
	p.vfGUIDs(s, i, node, port)

	state := own.LinkState
	if !state.Set {
		state = g.LinkState
	}
	if w, ok := state.Get(); ok && v.LinkState != nil {
		set("LinkState", w.String(), v.LinkState.String(), w == *v.LinkState, VFAttr{LinkState: &w})
	} else if ok {
		untold("LinkState", w.String())
	}
	trust := own.Trust
	if !trust.Set {
		trust = g.Trust
	}
	if w, ok := trust.Get(); ok && v.Trust != nil {
		set("Trust", yesNo(w), yesNo(*v.Trust), w == *v.Trust, VFAttr{Trust: &w})
	} else if ok {
		untold("Trust", yesNo(w))
	}
	if w, ok := own.MACSpoofCheck.Get(); ok && v.Spoof != nil {
		set("MACSpoofCheck", yesNo(w), yesNo(*v.Spoof), w == *v.Spoof, VFAttr{Spoof: &w})
	} else if ok {
		untold("MACSpoofCheck", yesNo(w))
	}
	if own.MinRate.Set || own.MaxRate.Set {
		lo, hi := own.MinRate.Or(v.MinRate), own.MaxRate.Or(v.MaxRate)
		set("MaxRate", fmt.Sprintf("%d-%d", lo, hi), fmt.Sprintf("%d-%d", v.MinRate, v.MaxRate), lo == v.MinRate && hi == v.MaxRate, VFAttr{MinRate: &lo, MaxRate: &hi})
	}
	if w, ok := own.MACAddress.Get(); ok {
		set("MACAddress", w.String(), v.MAC.String(), w == v.MAC, VFAttr{MAC: w})
	}
	if own.VLANId.Set || own.QualityOfService.Set || own.VLANProtocol.Set {
		id, qos, proto := own.VLANId.Or(v.VLAN), own.QualityOfService.Or(v.QoS), own.VLANProtocol.Or(v.Proto)
		a := VFAttr{VLAN: &id, QoS: qos, Proto: proto}
		set("VLANId", a.String(), a.Of(v).String(), a.Holds(v), a)
	}
}

// vfGUIDs plans the GUIDs of one virtual function. It takes them when its driver
// probes, and never again: what it says of itself counts too.
func (p *planner) vfGUIDs(s *SRIOV, i int, node, port *ib.GUID) {
	v := &s.VFs[i]
	name := func(key string) string { return fmt.Sprintf("VF %d %s", i, key) }
	note := func(key string, want, have *ib.GUID, why link.Reason) {
		if want != nil {
			a := link.Attribute{Name: name(key), Wanted: want.String(), Actual: have.String()}
			if *want != *have {
				a.Why = why
			}
			p.attr(a)
		}
	}
	op := SetVFGUIDs{On: p.on, VF: i, Bus: s.Bus, Dev: v.Dev}
	if node != nil && *node != *v.NodeGUID {
		op.Node, op.OldNode = node, v.NodeGUID
	}
	if port != nil && *port != *v.PortGUID {
		op.Port, op.OldPort = port, v.PortGUID
	}
	bound := v.Driver != "" && v.Dev != ""
	changed := op.Node != nil || op.Port != nil
	if changed && bound && v.Busy == "" {
		var why link.Reason
		if p.st.Fought[FoughtKey(op)] >= fightLimit {
			why = p.fought(name("GUIDs"))
			p.b.Block(p.on, op, false, why)
		} else if !p.b.Do(op) {
			why = p.b.Held[link.HoldKey(op)]
		}
		note("NodeGUID", node, v.NodeGUID, why)
		note("PortGUID", port, v.PortGUID, why)
		return
	}
	for _, a := range op.Attrs() {
		x := SetVF{On: p.on, VF: i, Attr: a, Old: a.Of(v)}
		var why link.Reason
		if !p.b.Do(x) {
			why = p.b.Held[link.HoldKey(x)]
		}
		if a.NodeGUID != nil {
			note("NodeGUID", node, v.NodeGUID, why)
		} else {
			note("PortGUID", port, v.PortGUID, why)
		}
	}
	if op.Node == nil {
		note("NodeGUID", node, v.NodeGUID, link.Reason{})
	}
	if op.Port == nil {
		note("PortGUID", port, v.PortGUID, link.Reason{})
	}
	stale := changed || node != nil && v.OwnGUID != 0 && v.OwnGUID != *node
	if !stale || !bound {
		return
	}
	again := RebindVF{On: p.on, VF: i, Bus: s.Bus, Dev: v.Dev}
	want := "the new GUID"
	if node != nil {
		again.Node, want = *node, node.String()
	}
	block := func(why link.Reason) {
		p.attr(link.Attribute{Name: name("GUID"), Wanted: want, Actual: v.OwnGUID.String(), Why: why})
		p.b.Block(p.on, again, false, why)
	}
	switch {
	case v.Busy != "":
		block(link.Reason{Code: CodeInUse, Text: fmt.Sprintf("virtual function %d of %s has its new GUID only after its driver probes again, and it is in use (%s)", i, p.on, v.Busy), Next: again.String()})
	case p.st.Fought[FoughtKey(again)] >= rebindLimit:
		// A function that does not take its GUID however often it is bound must
		// not lose its users for it again and again.
		block(link.Reason{Code: link.CodeRefused, Text: fmt.Sprintf("virtual function %d of %s reports the GUID %s after its driver probed anew, not %s", i, p.on, v.OwnGUID, want),
			Next: "look at the subnet manager (it must run with virtualization on) and at the driver's messages: dmesg"})
	default:
		p.b.Do(again)
	}
}

// rebindLimit is how many times a virtual function is bound again for the same
// GUID.
const rebindLimit = 2

// PortOf is the RDMA port on a link: the one the observer joined to it, or the
// one whose network interface it is. The port is nil if there is none.
func PortOf(s *link.Snapshot, l *link.Link) (dev *link.Device, port *link.Port) {
	for i := range s.Devices {
		d := &s.Devices[i]
		for k := range d.Ports {
			q := &d.Ports[k]
			if d.Name == l.IBDevice && q.Num == l.Port || l.IBDevice == "" && q.Netdev == l.Index && l.Index != 0 {
				return d, q
			}
		}
	}
	return nil, nil
}

// PortsOn are the RDMA ports on a link, that of PortOf first: an Ethernet link
// can have soft RoCE beside its card's own. Those of a VLAN are its parent's, those
// of a bond its slaves', which come before one on the bond itself.
func PortsOn(s *link.Snapshot, l *link.Link) (devs []*link.Device, ports []*link.Port) {
	if l.Kind == "vlan" {
		if up, ok := s.Link(l.Parent); ok && up.Kind != "vlan" {
			return PortsOn(s, up)
		}
		return nil, nil
	}
	if isBond(l) {
		for _, x := range slaves(s, l) {
			ds, qs := PortsOn(s, x)
			devs, ports = append(devs, ds...), append(ports, qs...)
		}
	}
	if d, q := PortOf(s, l); q != nil {
		devs, ports = append(devs, d), append(ports, q)
	}
	if l.Index == 0 || l.IsInfiniBand() {
		return devs, ports
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		for k := range d.Ports {
			if q := &d.Ports[k]; q.Netdev == l.Index && !slices.Contains(ports, q) {
				devs, ports = append(devs, d), append(ports, q)
			}
		}
	}
	return devs, ports
}

// RoCEPortOf is the RDMA port on a link that applications use: the first of
// PortsOn with GIDs, because a card whose Ethernet side has no RDMA has a port
// too; the first of all where none has any. Of a bond it is the one that has most
// of the bond's addresses: where each slave has a device, that of the active slave.
func RoCEPortOf(s *link.Snapshot, st *State, l *link.Link) (dev *link.Device, port *link.Port) {
	devs, ports := PortsOn(s, l)
	most := -1
	for i, q := range ports {
		gids := st.Devices[devs[i].Name].Ports[q.Num].GIDs
		n := 0
		if len(gids) > 0 {
			n = 1 + entriesOf(gids, l)
		}
		if n > most {
			most, dev, port = n, devs[i], q
		}
	}
	return dev, port
}

// entriesOf counts the addresses of a link that a GID table has.
func entriesOf(table []GID, l *link.Link) (n int) {
	for _, a := range l.Addresses {
		ip := a.Prefix.Addr().WithZone("")
		if slices.ContainsFunc(table, func(e GID) bool {
			return (e.Netdev == "" || e.Netdev == l.Name) && netip.AddrFrom16(e.GID).Unmap() == ip
		}) {
			n++
		}
	}
	return n
}

// Wants reports whether a unit asks for anything of this package on a link, so
// that the observer looks at the rest of it.
func Wants(s *link.Snapshot, l *link.Link, u *units.Unit) bool {
	if u == nil || l.IsChild() {
		return false
	}
	if l.Kind == "vlan" {
		_, ports := PortsOn(s, l)
		return slices.ContainsFunc(ports, func(p *link.Port) bool { return p.Layer == ib.LinkLayerEthernet })
	}
	if u.Port.Present || u.RoCE.Present || u.SoftRoCE.Present || len(u.VLANs) > 0 || u.VirtualFunctions.Present || len(u.VFs) > 0 {
		return true
	}
	_, ports := PortsOn(s, l)
	return slices.ContainsFunc(ports, func(p *link.Port) bool { return p.Layer == ib.LinkLayerEthernet }) // its GID indexes
}

// WantsDCB reports whether a unit asks for anything that DCB has.
func WantsDCB(u *units.Unit) bool { return u.RoCE.Present && wantsDCB(&u.RoCE) }

// Decode reads what a snapshot keeps of the cards.
func Decode(text []byte) (*State, error) {
	if len(text) == 0 {
		return nil, nil
	}
	st := &State{}
	if err := json.Unmarshal(text, st); err != nil {
		return nil, fmt.Errorf("state of the cards: %w", err)
	}
	return st, nil
}

// Encode is the form that a snapshot keeps; equal states give equal bytes.
func (s *State) Encode() ([]byte, error) { return json.Marshal(s) }

// Changed gives the links for which two encoded states differ; 0 stands for ports
// without a link.
func Changed(old, now []byte) map[int]bool {
	if bytes.Equal(old, now) {
		return nil
	}
	out := map[int]bool{}
	a, errA := Decode(old)
	b, errB := Decode(now)
	if errA != nil || a == nil {
		a = &State{}
	}
	if errB != nil || b == nil {
		b = &State{}
	}
	rest := func(s *State) State {
		c := *s
		c.Links = nil
		return c
	}
	all := !reflect.DeepEqual(rest(a), rest(b))
	if all {
		out[0] = true
	}
	for _, s := range []*State{a, b} {
		for i := range s.Links {
			if all || !reflect.DeepEqual(a.Links[i], b.Links[i]) {
				out[i] = true
			}
		}
	}
	return out
}

// memo keeps the last state that was decoded: a room is called for each link of
// a snapshot. It holds on to the text, so that the same address is the same text.
var memo struct {
	sync.Mutex
	text []byte
	st   *State
	err  error
}

func decodeOnce(text []byte) (*State, error) {
	if len(text) == 0 {
		return nil, nil
	}
	memo.Lock()
	defer memo.Unlock()
	if len(memo.text) != len(text) || &memo.text[0] != &text[0] {
		memo.text = text
		memo.st, memo.err = Decode(text)
	}
	return memo.st, memo.err
}

// Room is the planner of this package for daemon/plan.
func Room(b *link.Builder, index int, u *units.Unit) (stop bool) {
	st, err := decodeOnce(b.Base.Card)
	if err != nil || st == nil {
		return false
	}
	return Plan(b, st, index, u)
}
