package roce

import (
	"fmt"
	"slices"

	"ibnetworkd/ib"
	"ibnetworkd/link"
	"ibnetworkd/units"
)

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
		p.reach(link.Attribute{Name: "Autoprobe", Wanted: units.YesNo(v), Actual: units.YesNo(*s.Autoprobe)}, v == *s.Autoprobe,
			SetAutoprobe{On: p.on, Bus: s.Bus, Dev: s.Dev, Probe: v})
	} else if ok {
		p.cannot("Autoprobe", units.YesNo(v), link.Reason{Code: link.CodeUnsupported,
			Text: fmt.Sprintf("%s has no switch for drivers of virtual functions", p.on), Next: "remove Autoprobe="})
	}
	if n, ok := g.Count.Get(); ok && !p.vfCount(s, n) {
		return
	}
	for i := range s.VFs {
		p.vf(s, i)
	}
	for _, f := range p.u.VFs {
		if n := f.VirtualFunction.V; n >= len(s.VFs) {
			p.cannot(fmt.Sprintf("VF %d", n), "there", link.Reason{
				Code: CodeNoSRIOV,
				Text: fmt.Sprintf("%s has no virtual function %d, it has %d of them (the first is 0)", p.on, n, len(s.VFs)),
				Next: fmt.Sprintf("write Count=%d in [VirtualFunctions]", n+1),
			})
		}
	}
}

// vfCount plans the number of functions and reports whether the existing ones stay,
// so that they can be configured.
func (p *planner) vfCount(s *SRIOV, want int) bool {
	have := len(s.VFs)
	a := link.Attribute{Name: "Count", Wanted: fmt.Sprint(want), Actual: fmt.Sprint(have)}
	op := SetVFs{On: p.on, Bus: s.Bus, Dev: s.Dev, Old: have, Count: want}
	switch {
	case have == want:
		p.attr(a)
		return true
	case want > s.Total:
		p.block(
			a,
			op,
			link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("wanted %d virtual functions, %s has at most %d", want, p.on, s.Total),
				Next: fmt.Sprintf("mstconfig -d %s set NUM_OF_VFS=%d, then reboot", s.Dev, want)},
		)
		return true
	}
	for i, v := range s.VFs {
		if v.Busy != "" {
			p.block(a, op, link.Reason{
				Code: CodeInUse,
				Text: fmt.Sprintf("the number of virtual functions of %s changes through 0 only, and function %d is in use (%s)", p.on, i, v.Busy),
				Next: "release the virtual functions, or leave Count= at " + fmt.Sprint(have),
			})
			return true
		}
	}
	if have != 0 && want != 0 && p.st.Contested[ContestedKey(op)] >= rebindLimit {
		// Each try takes the functions that there are away.
		p.block(a, op, link.Reason{
			Code: link.CodeRefused,
			Text: fmt.Sprintf("the number of virtual functions of %s does not stay at %d, it is %d again", p.on, want, have),
			Next: "dmesg has the driver's reason; write another Count=, or try again: ibnetctl reconfigure " + p.l.Name,
		})
		return true
	}
	return !p.reach(a, false, op) && p.b.Delayed[link.DelayKey(op)].Code != link.CodeInProgress
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
		p.cannot(name(key), want, link.Reason{
			Code: link.CodeUnsupported,
			Text: fmt.Sprintf("the driver of %s does not report %s of virtual functions: it has no such setting", p.l.Name, key),
			Next: "remove " + key + "=; ip link show " + p.l.Name + " shows what the driver keeps for its functions",
		})
	}
	node := p.vfGUID(i, "NodeGUID", own.NodeGUID, g.NodeGUID, v.NodeGUID, NodeGUIDFor)
	port := p.vfGUID(i, "PortGUID", own.PortGUID, g.PortGUID, v.PortGUID, PortGUIDFor)
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
		set("Trust", units.YesNo(w), units.YesNo(*v.Trust), w == *v.Trust, VFAttr{Trust: &w})
	} else if ok {
		untold("Trust", units.YesNo(w))
	}
	if w, ok := own.MACSpoofCheck.Get(); ok && v.Spoof != nil {
		set("MACSpoofCheck", units.YesNo(w), units.YesNo(*v.Spoof), w == *v.Spoof, VFAttr{Spoof: &w})
	} else if ok {
		untold("MACSpoofCheck", units.YesNo(w))
	}
	if own.MinRate.Set || own.MaxRate.Set {
		lo, hi := own.MinRate.Or(v.MinRate), own.MaxRate.Or(v.MaxRate)
		set(
			"MaxRate",
			fmt.Sprintf("%d-%d", lo, hi),
			fmt.Sprintf("%d-%d", v.MinRate, v.MaxRate),
			lo == v.MinRate && hi == v.MaxRate,
			VFAttr{MinRate: &lo, MaxRate: &hi},
		)
	}
	if w, ok := own.MACAddress.Get(); ok {
		set("MACAddress", w.String(), v.MAC.String(), w == v.MAC, VFAttr{MAC: w})
	}
	if own.VLANId.Set || own.QualityOfService.Set || own.VLANProtocol.Set {
		id, qos, proto := own.VLANId.Or(v.VLAN), own.QualityOfService.Or(v.QoS), own.VLANProtocol.Or(v.Proto)
		a := VFAttr{VLAN: &id, QoS: qos, Proto: proto}
		set("VLANId", a.String(), a.Of(v).String(), a.Matches(v), a)
	}
}

// vfGUID is the GUID that a unit asks for, nil if it asks for none or none is
// possible.
func (p *planner) vfGUID(i int, key string, own, all units.Value[units.VFGUID], have *ib.GUID, auto func(ib.GUID, int) ib.GUID) *ib.GUID {
	w, ok := own.Get()
	if !ok {
		if w, ok = all.Get(); !ok {
			return nil
		}
	}
	if !p.l.IsInfiniBand() {
		p.cannot(fmt.Sprintf("VF %d %s", i, key), w.String(), link.Reason{
			Code: link.CodeUnsupported,
			Text: fmt.Sprintf("%s is Ethernet: its virtual functions have MAC addresses, no GUIDs", p.l.Name),
			Next: "write MACAddress= in [VF]",
		})
		return nil
	}
	if have == nil {
		p.cannot(
			fmt.Sprintf("VF %d %s", i, key),
			w.String(),
			link.Reason{Code: link.CodeUnsupported, Text: fmt.Sprintf("the driver of %s does not report the GUIDs of virtual functions", p.l.Name),
				Next: "remove " + key + "=, and set it where the driver keeps it: " + p.l.Driver},
		)
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
		why, _ := p.try(name("GUIDs"), op)
		note("NodeGUID", node, v.NodeGUID, why)
		note("PortGUID", port, v.PortGUID, why)
		return
	}
	for _, a := range op.Attrs() {
		x := SetVF{On: p.on, VF: i, Attr: a, Old: a.Of(v)}
		var why link.Reason
		p.b.DoFor(x, &why)
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
		block(link.Reason{
			Code: CodeInUse,
			Text: fmt.Sprintf("virtual function %d of %s has its new GUID only after its driver probes again, and it is in use (%s)",
				i, p.on, v.Busy),
			Next: again.String(),
		})
	case p.st.Contested[ContestedKey(again)] >= rebindLimit:
		// A function that does not take its GUID however often it is bound must
		// not lose its users for it again and again.
		block(link.Reason{
			Code: link.CodeRefused,
			Text: fmt.Sprintf("virtual function %d of %s reports the GUID %s after its driver probed again, not %s", i, p.on, v.OwnGUID, want),
			Next: "check the subnet manager (it must run with virtualization on) and at the driver's messages: dmesg",
		})
	default:
		p.b.Do(again)
	}
}

// rebindLimit is how many times a virtual function is bound again for the same
// GUID.
const rebindLimit = 2
