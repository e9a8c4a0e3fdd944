package link

import (
	"cmp"
	"fmt"
	"strings"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// CodeFailover is the reason of a bond whose backup could not take over.
const CodeFailover Code = "failover-would-fail"

// PlanFailover reports for a bond whether each backup could take over, and whether the
// switch of one in mode 802.3ad takes part.
func PlanFailover(b *Builder, index int) {
	l := b.Now(index)
	if l == nil || l.Bond == nil {
		return
	}
	switch units.BondMode(l.Bond.Mode) {
	case units.BondActiveBackup:
	case units.Bond8023AD:
		planPartner(b, l)
		return
	default:
		return
	}
	slaves := b.Base.Slaves(index)
	active, ok := b.Base.Link(l.Bond.Active)
	if ok {
		b.Attr(index, Attribute{Name: "ActiveSlave", Actual: active.Name})
	}
	if len(slaves) < 2 {
		b.Attr(index, Attribute{Name: "Backup", Wanted: "a second slave", Actual: "none", Why: Reason{Code: CodeFailover,
			Text: fmt.Sprintf("%s has %d slaves: a failover is impossible", l.Name, len(slaves)),
			Next: "ibnetctl list; ibnetctl status of the links whose units name " + l.Name}})
	}
	for _, s := range slaves {
		if ok && s.Index == active.Index {
			continue
		}
		a := Attribute{Name: "Backup", Wanted: s.Name + " ready", Actual: s.Name + " ready"}
		if a.Why = notBackup(b.Base, l, active, s); a.Why != (Reason{}) {
			a.Actual = s.Name + " not ready"
		}
		b.Attr(index, a)
	}
	if ok && active.IsInfiniBand() && len(slaves) > 1 {
		b.Attr(index, planSwitches(b.Base, l, slaves))
	}
}

// CodeSameSwitch is the reason of a bond that fails with one switch.
const CodeSameSwitch Code = "same-switch"

// NotChecked is the actual value of an attribute that is not known.
const NotChecked = "not checked"

// planSwitches returns whether the slaves of a bond are connected to several switches.
func planSwitches(s *Snapshot, bond *Link, slaves []*Link) Attribute {
	a := Attribute{Name: "Switches"}
	on := map[ib.GUID]Remote{}
	var ports []string
	for _, l := range slaves {
		_, p := s.PortOf(l)
		if p == nil || p.Remote == (Remote{}) {
			a.Actual = NotChecked
			return a
		}
		if !p.Remote.Switch {
			a.Actual = fmt.Sprintf("%s is cabled to a host, %s", l.Name, cmp.Or(p.Remote.Name, p.Remote.Node.String()))
			return a
		}
		on[p.Remote.Node] = p.Remote
		ports = append(ports, fmt.Sprintf("%s on port %d", l.Name, p.Remote.Port))
	}
	a.Wanted = "two"
	if len(on) > 1 {
		a.Actual = a.Wanted
		return a
	}
	for node, r := range on {
		a.Actual = "one"
		a.Why = Reason{Code: CodeSameSwitch,
			Text: fmt.Sprintf("all slaves of %s are on one switch, %s (%s): %s fails with it", bond.Name,
				strings.TrimSpace(r.Name+" "+node.String()), strings.Join(ports, ", "), bond.Name),
			Next: "cable one of them to another switch"}
	}
	return a
}

// planPartner reports whether the switch of a bond answers LACP. Without it one slave
// works and the others do not.
func planPartner(b *Builder, l *Link) {
	if !l.Carrier() {
		return
	}
	a := Attribute{Name: "LACPPartner", Wanted: "a switch that answers", Actual: "a switch that answers"}
	if !l.Bond.Partner {
		var names []string
		for _, s := range b.Base.Slaves(l.Index) {
			names = append(names, s.Name)
		}
		a.Actual = "none"
		a.Why = Reason{Code: CodeFailover,
			Text: fmt.Sprintf("no switch answers LACP on the slaves of %s (%s): one of them is used alone", l.Name, strings.Join(names, ", ")),
			Next: "make the ports of the switch one port channel with LACP, or write Mode=active-backup"}
	}
	b.Attr(l.Index, a)
}

// notBackup returns why a failover of a bond to a slave would fail, zero if nothing
// speaks against it. active may be nil.
func notBackup(s *Snapshot, bond, active, backup *Link) Reason {
	fails := fmt.Sprintf("a failover of %s to %s would fail: ", bond.Name, backup.Name)
	if why := carrierReason(s, backup); why != (Reason{}) {
		return Reason{Code: CodeFailover, Text: fails + why.Text, Next: why.Next}
	}
	if backup.MTU < bond.MTU {
		return Reason{Code: CodeFailover, Text: fmt.Sprintf("%sits MTU is %d, that of the bond %d", fails, backup.MTU, bond.MTU),
			Next: "give the broadcast groups of both fabrics one MTU, or write MTUBytes= in the unit of " + bond.Name}
	}
	if active == nil {
		return Reason{}
	}
	_, p := s.PortOf(active)
	_, q := s.PortOf(backup)
	if p != nil && q != nil && p.SubnetPrefix != 0 && q.SubnetPrefix != 0 && p.SubnetPrefix != q.SubnetPrefix {
		return Reason{Code: CodeFailover,
			Text: fmt.Sprintf("%sit is on another fabric (subnet prefix 0x%016x, that of %s is 0x%016x)",
				fails, q.SubnetPrefix, active.Name, p.SubnetPrefix),
			Next: "cable both ports to one fabric"}
	}
	return Reason{}
}
