package roce

import (
	"fmt"
	"slices"
	"strings"

	"ibnetworkd/link"
	"ibnetworkd/units"
)

// Codes that this package adds to those of package link.
const (
	CodeContested link.Code = "changed-by-other"      // something else keeps setting it back
	CodeFirmware  link.Code = "firmware-setting"      // only the firmware can change it
	CodeInUse     link.Code = "in-use"                // a change would interrupt something
	CodeNoRDMACM  link.Code = "rdma-cm-not-loaded"    // or configfs is not mounted
	CodeNoDCB     link.Code = "driver-without-dcb"    //
	CodeNoSRIOV   link.Code = "no-virtual-functions"  //
	CodeOtherNDD  link.Code = "node-description-kept" // by rdma-ndd
)

// flapLimit is how many times a setting that another program changes is set again
// before it is left as contested.
const flapLimit = 3

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

// Plan plans the parts of a unit that concern the card and RoCE for one link
// and notes their attributes. It reports true if the steps so far re-create the
// link's interfaces, so that nothing more can be planned for it now.
func Plan(b *link.Builder, index int, u *units.Unit) (restarts bool) {
	l, st := b.Link(index), b.Base.Card
	if l == nil || u == nil || st == nil {
		return false
	}
	p := &planner{b: b, st: st, index: index, l: l, u: u, on: link.TargetOf(l)}
	p.findPort()
	if link.IsVLAN(l.Kind) {
		// A unit that matches a link's VLANs too does not mean them by the rest.
		p.gids()
		return false
	}
	if p.portType() {
		return true
	}
	p.nodeDesc()
	p.virtualFunctions()
	if !l.IsChild() {
		p.ethtool()
	}
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

// ethernetOnly reports the sections that an InfiniBand link cannot have.
func (p *planner) ethernetOnly() {
	not := func(section, why, instead string) {
		p.attr(link.Attribute{Name: section, Wanted: "yes", Actual: "InfiniBand", Why: link.Reason{Code: link.CodeUnsupported,
			Text: fmt.Sprintf("%s is an InfiniBand link: %s", p.l.Name, why), Next: instead}})
	}
	if p.u.RoCE.Present {
		not("RoCE", "[RoCE] is for Ethernet ports", "remove [RoCE], or write [Port] Type=eth")
	}
	if p.u.SoftRoCE.Present {
		not("SoftRoCE", "[SoftRoCE] is for Ethernet ports", "remove [SoftRoCE]: the link has RDMA")
	}
	for _, k := range units.VLANKinds() {
		if slices.ContainsFunc(p.u.VLANs, func(v units.VLAN) bool { return v.Kind == k }) {
			not(k.Section(), k.RefusedOnIPoIB(), units.InsteadOfVLAN)
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
	if !ok {
		a.Why, planned = p.try(a.Name, op)
	}
	p.attr(a)
	return planned
}

// try plans op unless its setting is contested or it is delayed: why says so.
func (p *planner) try(name string, op link.Op) (why link.Reason, planned bool) {
	if p.st.Contested[ContestedKey(op)] >= flapLimit {
		why = p.contested(name, op)
		p.b.Block(p.on, op, false, why)
		return why, false
	}
	if !p.b.Do(op) {
		return p.b.Delayed[link.DelayKey(op)], false
	}
	return why, true
}

func (p *planner) contested(name string, op link.Op) link.Reason {
	who, find := "another program", "lldpad, mlnx_qos in a boot script, an agent in a container"
	_, queues := op.(SetEthtool)
	if queues {
		find = "tuned, NetworkManager, ethtool in a boot script"
	}
	next := "find it: " + find + "; stop it, then: ibnetctl reconfigure " + p.l.Name
	if len(p.st.Agents) > 0 && !queues {
		who = strings.Join(p.st.Agents, " or ")
		next = "systemctl disable --now " + p.st.Agents[0] + ", then: ibnetctl reconfigure " + p.l.Name
	}
	return link.Reason{
		Code: CodeContested,
		Text: fmt.Sprintf("%s changes %s of %s back each time; it is left as it is", who, name, p.on),
		Next: next,
	}
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
