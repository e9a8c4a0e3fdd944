package link

import (
	"fmt"
	"time"

	"ibnetworkd/units"
)

// CodeFailover is the reason of a bond whose backup could not take over.
const CodeFailover Code = "failover-would-fail"

// PlanBond makes a link a slave of the bond that its unit names, and makes the bond
// where [Bond] asks for it. unit gives the unit that is applied to a link. It comes
// after the mode and the MTU of the link, which a bond takes from its slaves.
func PlanBond(b *Builder, index int, u *units.Unit, unit func(index int) *units.Unit) {
	name, makes := u.MasterBond()
	if name == "" {
		return
	}
	l := b.Link(index)
	a := Attribute{Name: "Bond", Wanted: name}
	if now := b.Now(index); now != nil {
		if m, ok := b.Base.Link(now.Master); ok && now.Master != 0 {
			a.Actual = m.Name
		}
	}
	defer func() { b.Attr(index, a) }()
	on := b.Model.Target(l)
	block := func(op Op, wait bool, why Reason) {
		a.Why = why
		b.Block(on, op, wait, why)
	}
	if l.Bond != nil {
		block(nil, false, Reason{Code: CodeUnsupported,
			Text: fmt.Sprintf("%s is a bond, and its unit is one for the slaves of %s", l.Name, name),
			Next: "write Kind=ipoib below [Match] of that unit, and a unit with Name=" + l.Name + " for the bond"})
		return
	}
	m, ok := b.Model.snap.LinkByName(name)
	if !ok && !makes {
		block(nil, true, Reason{Code: CodeNoDevice, Text: fmt.Sprintf("the bond %s of Bond= does not exist", name),
			Next: "make it, or write [Bond] with Name=" + name + " instead of Bond="})
		return
	}
	if !ok {
		op := AddBond{On: Target{Link: name}, MTU: l.MTU, MIIMon: monitor(u)}
		if !b.Do(op) {
			a.Why = b.Delayed[DelayKey(op)]
			return
		}
		m, _ = b.Model.snap.LinkByName(name)
	}
	op := SetMaster{On: on, Master: b.Model.Target(m)}
	if l.Master != m.Index || m.Bond == nil {
		if why := notSlave(b.Model.snap, l, m); why != (Reason{}) {
			block(op, false, why)
			return
		}
		if why, delayed := b.Delayed[DelayKey(op)]; delayed {
			// Not even taken down: it was refused before.
			block(op, why.Code == CodeInProgress, why)
			return
		}
		if l.Up() && !b.Do(SetUp{On: on}) {
			return
		}
		b.Do(op)
		// The kernel has done so; it is recorded that it is not an administrator's doing.
		b.Do(SetUp{On: on, Up: true})
	}
	planBondSettings(b, m.Index, makes, unit)
}

// CodeNoDevice is the reason of a link that waits for another one to exist.
const CodeNoDevice Code = "no-such-link"

// monitor is MIIMonitorSec= in milliseconds.
func monitor(u *units.Unit) int {
	return int(u.Bond.MIIMonitorSec.Or(units.DefaultMIIMonitor) / time.Millisecond)
}

// notSlave says why a link cannot become a slave, zero if it can. It follows
// bond_enslave (drivers/net/bonding/bond_main.c).
func notSlave(s *Snapshot, l, m *Link) Reason {
	slaves := s.Slaves(m.Index)
	switch {
	case m.Bond == nil:
		return Reason{Code: CodeNameTaken, Text: fmt.Sprintf("a link %s exists and is not a bond", m.Name),
			Next: "write another Name= below [Bond]"}
	case l.Master != 0:
		what := fmt.Sprintf("index %d", l.Master)
		if x, ok := s.Link(l.Master); ok {
			what = x.Name
		}
		return Reason{Code: CodeRefused, Text: fmt.Sprintf("%s is a slave of another link (%s)", l.Name, what),
			Next: "ip link set " + l.Name + " nomaster"}
	case l.IsInfiniBand() && m.Bond.Mode != BondActiveBackup:
		return Reason{Code: CodeUnsupported,
			Text: fmt.Sprintf("%s has another mode than active-backup (%d), the only one that the kernel has for IPoIB", m.Name, m.Bond.Mode),
			Next: fmt.Sprintf("ip link set %s down; ip link set %s type bond mode active-backup", m.Name, m.Name)}
	case len(slaves) > 0 && slaves[0].Type != l.Type:
		return Reason{Code: CodeUnsupported,
			Text: fmt.Sprintf("%s is a bond of links of another type (%s is %s, %s is %s)",
				m.Name, slaves[0].Name, TypeName(slaves[0].Type), l.Name, TypeName(l.Type)),
			Next: "write another Name= below [Bond]"}
	case l.IPoIB != nil && l.IPoIB.Mode == 0 && m.MTU > s.MaxDatagram(l):
		return Reason{Code: CodeMTUMode,
			Text: fmt.Sprintf("%s has an MTU of %d, datagram mode of %s takes at most %d", m.Name, m.MTU, l.Name, s.MaxDatagram(l)),
			Next: "write the same Mode= and MTUBytes= in the units of all slaves"}
	}
	return Reason{}
}

// planBondSettings sets what the units of the slaves ask of their bond; where they
// differ, that of the first slave holds.
func planBondSettings(b *Builder, bond int, makes bool, unit func(index int) *units.Unit) {
	slaves := b.Model.snap.Slaves(bond)
	if len(slaves) == 0 {
		return
	}
	m := b.Link(bond)
	if u := unit(slaves[0].Index); u != nil && makes && u.Bond.Name.V == m.Name && m.Bond.MIIMon != monitor(u) {
		b.Do(SetMIIMon{On: b.Model.Target(m), MIIMon: monitor(u)})
	}
	for _, s := range slaves {
		if u := unit(s.Index); u == nil || !u.IsPrimary(s.Name) {
			continue
		}
		// The index of a link that is still to be made is not known: it is set in the next plan.
		if t := b.Model.Target(s); t.Ifindex != 0 && b.Link(bond).Bond.Primary != s.Index {
			b.Do(SetPrimary{On: b.Model.Target(m), Slave: t})
		}
		return
	}
}

// PlanBondRemoval releases a link from the bond that it was made a slave of and that
// its unit no longer names. u is nil where no unit applies to the link any more.
func PlanBondRemoval(b *Builder, index int, u *units.Unit) {
	b.For(u)
	l := b.Link(index)
	rec := b.Record.Of(l)
	if rec == nil || rec.Enslaved == "" || u == nil && rec.Keep {
		return
	}
	if name, _ := u.MasterBond(); name == rec.Enslaved {
		return
	}
	m, ok := b.Model.snap.LinkByName(rec.Enslaved)
	if !ok || l.Master != m.Index {
		return
	}
	up, on := l.Up(), b.Model.Target(l)
	if b.Do(SetMaster{On: on, Master: b.Model.Target(m), Release: true}) && up {
		b.Do(SetUp{On: on, Up: true})
	}
}

// PlanBondOrphan deletes a bond that was made for a [Bond] which no unit has any
// more. It comes after the slaves are released; one with further slaves stays.
func PlanBondOrphan(b *Builder, index int, asked func(name string) bool) {
	l := b.Link(index)
	if l == nil || !b.Record.MadeBond(l) || b.Record.Of(l).Keep || asked(l.Name) || len(b.Model.snap.Slaves(index)) > 0 {
		return
	}
	b.Do(DelLink{On: b.Model.Target(l)})
}

// PlanFailover says for a bond of IPoIB links whether each backup could take over.
func PlanFailover(b *Builder, index int) {
	l := b.Now(index)
	if l == nil || l.Bond == nil || !l.IsInfiniBand() {
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
}

// notBackup says why a failover of a bond to a slave would fail, zero if nothing
// speaks against it. active may be nil.
func notBackup(s *Snapshot, bond, active, backup *Link) Reason {
	fails := fmt.Sprintf("a failover of %s to %s would fail: ", bond.Name, backup.Name)
	if why := CarrierReason(s, backup); why != (Reason{}) {
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
