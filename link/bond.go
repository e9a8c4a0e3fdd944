package link

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"ibnetworkd/ib"
	"ibnetworkd/units"
)

// PlanBond makes a link a slave of the bond that its unit names, and makes the bond
// where [Bond] asks for it. unit gives the unit that is applied to a link. It comes
// after the mode and the MTU of the link, which a bond takes from its slaves.
func PlanBond(b *Builder, index int, u *units.Unit, unit func(index int) *units.Unit) {
	name, makes := u.MasterBond()
	if name == "" {
		return
	}
	l := b.Link(index)
	a, block := joining(b, index, "Bond", name)
	defer func() { b.Attr(index, *a) }()
	on := b.Model.Target(l)
	if l.Bond != nil {
		block(nil, false, Reason{Code: CodeUnsupported,
			Text: fmt.Sprintf("%s is a bond, and its unit is one for the slaves of %s", l.Name, name),
			Next: "write Kind=!bond in [Match] of that unit, and a unit with Name=" + l.Name + " for the bond"})
		return
	}
	m, ok := b.Model.snap.LinkByName(name)
	if ok && b.Model.snap.Above(l, m) {
		block(nil, false, above(l, m))
		return
	}
	maker, of := u, l
	if !makes {
		maker, of = bondMaker(b, name, l.Type, unit)
	}
	if !ok && maker == nil {
		block(nil, true, Reason{Code: CodeNoDevice, Text: fmt.Sprintf("the bond %s of Bond= does not exist", name),
			Next: "make it, or write [Bond] with Name=" + name + " instead of Bond="})
		return
	}
	if makes && !bondable(l, u) {
		block(nil, false, Reason{Code: CodeUnsupported,
			Text: fmt.Sprintf("%s is an IPoIB link: the kernel bonds these in mode active-backup with the fail-over policy active only", l.Name),
			Next: "write Mode=active-backup and FailOverMACPolicy=active, or remove both keys"})
		return
	}
	if ok && maker != nil {
		// The first link deletes it, also where the unit of a later one makes it: or it would join
		// and be released again.
		if done, why := remakeBond(b, l, m, unit); !done && makes {
			if why != (Reason{}) {
				block(nil, false, why)
			}
			return
		}
	}
	raise := 0
	if m, ok = b.Model.snap.LinkByName(name); !ok {
		if first, free := bondUnit(b, name, l.Type, unit, func(l *Link) bool { return l.Master == 0 || l.Index == index }); first != nil {
			maker, of = first, free
		}
		op := AddBond{On: Target{Link: name}, MTU: l.MTU, BondOptions: bondOptions(maker, of, nil)}
		if l.IPoIB != nil && l.IPoIB.Mode == ib.ModeDatagram {
			op.MTU = min(op.MTU, b.Model.snap.MaxDatagram(l)) // a new child of a connected link shows that one's until it joins
		}
		if l.IPoIB != nil {
			raise, op.MTU = op.MTU, min(op.MTU, takenMTU(b, l))
		}
		if !b.DoFor(op, &a.Why) {
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
		fitBond(b, l, m, op)
		if why, delayed := b.Delayed[DelayKey(op)]; delayed {
			// The link stays up: this was refused before.
			block(op, why.Code == CodeInProgress, why)
			return
		}
		if l.Up() && !b.Do(SetUp{On: on}) {
			return
		}
		b.Do(op)
		// The kernel has done so; it is recorded that it is not an administrator's doing.
		b.Do(SetUp{On: on, Up: true})
		if m = b.Link(m.Index); raise > m.MTU {
			b.Do(SetMTU{On: b.Model.Target(m), MTU: raise})
		}
	}
	raiseBond(b, l, b.Link(m.Index), unit(m.Index))
	planBondSettings(b, m.Index, makes, unit)
}

// takenMTU is an MTU in bytes that the adapter of an IPoIB link takes: that which the link has,
// or its parent. One that the plan sets may be refused, and with it a bond of that MTU.
func takenMTU(b *Builder, l *Link) int {
	for _, i := range []int{l.Index, l.Parent} {
		now := b.Now(i)
		if now != nil && now.IPoIB != nil && (now.IPoIB.Mode == ib.ModeDatagram || i == l.Index && l.IPoIB.Mode == ib.ModeConnected) {
			return now.MTU
		}
	}
	return 2048 - ib.IPoIBEncap
}

// ConnectedMTUs are the MTUs in bytes that connected mode can take, best first: the limit is the
// receive buffer in pages of 4 KiB, less 16 bytes (ipoib_cm.c, max_cm_mtu), which the kernel
// shows nowhere.
func ConnectedMTUs() (out []int) {
	for _, pages := range [...]int{16, 12, 8, 4, 2} {
		out = append(out, pages*4096-16)
	}
	return out
}

// raiseBond requests the next smaller MTU of a bond of connected links whose adapters refused one,
// unless the unit of the bond or its lease gives the number.
func raiseBond(b *Builder, l, m *Link, u *units.Unit) {
	if l.IPoIB == nil || l.IPoIB.Mode != ib.ModeConnected || l.Master != m.Index ||
		u != nil && (u.Link.MTUBytes.Set && !u.Link.MTUBytes.V.Max || LeaseMTU(m, u).Set) {
		return
	}
	refused := false
	for _, c := range ConnectedMTUs() {
		op := SetMTU{On: b.Model.Target(m), MTU: c}
		switch _, delayed := b.Delayed[DelayKey(op)]; {
		case c <= m.MTU:
			return
		case delayed:
			refused = true
		case refused:
			b.Do(op)
			return
		}
	}
}

// fitBond lowers the MTU of a bond without slaves to that of a link which the kernel refused
// there: an adapter may take less than others in connected mode, which shows when the mode
// is set. A refusal no longer counts when the plan changes the MTU of the bond.
func fitBond(b *Builder, l, m *Link, op SetMaster) {
	if _, refused := b.Delayed[DelayKey(op)]; !refused {
		return
	}
	if m.MTU > l.MTU && b.Record.MadeMaster(m) && len(b.Model.snap.Slaves(m.Index)) == 0 {
		b.Do(SetMTU{On: b.Model.Target(m), MTU: l.MTU})
	}
	if was := b.Now(m.Index); was != nil && was.MTU != b.Link(m.Index).MTU {
		b.Delayed = maps.Clone(b.Delayed)
		delete(b.Delayed, DelayKey(op))
	}
}

// bondMaker returns the unit that makes a bond and the link that it applies to: the one that
// is planned first, or nil if that link is of another type.
func bondMaker(b *Builder, name string, hardware uint16, unit func(int) *units.Unit) (*units.Unit, *Link) {
	for l, u := range b.governed(unit) {
		if asksBond(b, l, u, name) {
			if l.Type != hardware {
				break
			}
			return u, l
		}
	}
	return nil, nil
}

// joining is the attribute of a link that its unit puts into a bond or VRF, and what
// notes there and in the plan why it is not done.
func joining(b *Builder, index int, key, name string) (*Attribute, func(op Op, wait bool, why Reason)) {
	a := &Attribute{Name: key, Wanted: name}
	if now := b.Now(index); now != nil {
		if m, ok := b.Base.Link(now.Master); ok && now.Master != 0 {
			a.Actual = m.Name
		}
	}
	return a, func(op Op, wait bool, why Reason) {
		a.Why = why
		b.Block(b.Model.Target(b.Link(index)), op, wait, why)
	}
}

// CodeNoDevice is the reason of a link that waits for another one to exist.
const CodeNoDevice Code = "no-such-link"

// bondOptions are those that the unit of a slave asks for. What it leaves open is
// as the bond has it, or with nil the default.
func bondOptions(u *units.Unit, slave *Link, has *BondOptions) BondOptions {
	b := &u.Bond
	o := BondOptions{Mode: uint8(units.BondActiveBackup)}
	switch {
	case has != nil:
		o = *has
	case slave.IsInfiniBand():
		o.FailOverMAC = uint8(units.FailOverMACActive)
	}
	pick(&o.Mode, b.Mode)
	pick(&o.FailOverMAC, b.FailOverMACPolicy)
	pick(&o.HashPolicy, b.TransmitHashPolicy)
	pick(&o.LACPRate, b.LACPTransmitRate)
	pick(&o.AdSelect, b.AdSelect)
	pick(&o.MinLinks, b.MinLinks)
	ms := func(to *uint32, v units.Value[time.Duration]) {
		if d, ok := v.Get(); ok {
			*to = uint32(d / time.Millisecond)
		}
	}
	ms(&o.MIIMon, b.MIIMonitorSec)
	if o.MIIMon == 0 {
		o.MIIMon = uint32(units.DefaultMIIMonitor / time.Millisecond)
	}
	ms(&o.UpDelay, b.UpDelaySec)
	ms(&o.DownDelay, b.DownDelaySec)
	// The kernel keeps multiples.
	o.UpDelay -= o.UpDelay % o.MIIMon
	o.DownDelay -= o.DownDelay % o.MIIMon
	return o
}

func pick[F ~uint8 | ~uint32, T ~uint8 | ~int](to *F, v units.Value[T]) {
	if x, ok := v.Get(); ok {
		*to = F(x)
	}
}

// bondUnit returns the unit that applies to a bond and the link that it is for, nil if there
// is none: of the links that count, have the type and have a unit that makes the bond, the
// one whose unit comes first by file name.
func bondUnit(b *Builder, name string, hardware uint16, unit func(int) *units.Unit, counts func(*Link) bool) (first *units.Unit, of *Link) {
	for i := range b.Model.snap.Links {
		l := &b.Model.snap.Links[i]
		u := unit(l.Index)
		if l.Type == hardware && counts(l) && asksBond(b, l, u, name) && (first == nil || u.Name < first.Name) {
			first, of = u, l
		}
	}
	return first, of
}

// asksBond reports whether the unit of a link makes the bond of a name that the link can join.
func asksBond(b *Builder, l *Link, u *units.Unit, name string) bool {
	bond, makes := u.MasterBond()
	if !makes || bond != name || l.Bond != nil || !bondable(l, u) {
		return false
	}
	m, ok := b.Model.snap.LinkByName(name)
	return !ok || !b.Model.snap.Above(l, m)
}

// bondable reports whether a link can be in a bond with the mode of its unit.
func bondable(l *Link, u *units.Unit) bool {
	return !l.IsInfiniBand() || u.Bond.Mode.Or(units.BondActiveBackup) == units.BondActiveBackup &&
		u.Bond.FailOverMACPolicy.Or(units.FailOverMACActive) == units.FailOverMACActive
}

// bondAsked is what the units of links ask of a bond, its own options where none does. The
// links are of the type of its slaves, or of l's while it has none. Those that can be changed at any time are of all links that are free to
// join, or they would change with each that does. For the others the bond is deleted:
// they are of its slaves alone, and stay as they are while the unit of one is not known.
func bondAsked(b *Builder, m, l *Link, unit func(index int) *units.Unit) BondOptions {
	slaves := b.Model.snap.Slaves(m.Index)
	if len(slaves) > 0 {
		l = slaves[0]
	}
	asked := func(counts func(*Link) bool) BondOptions {
		u, of := bondUnit(b, m.Name, l.Type, unit, counts)
		switch {
		case u == nil:
			return m.Bond.BondOptions
		case mayRemake(b, m):
			return bondOptions(u, of, nil)
		}
		return bondOptions(u, of, &m.Bond.BondOptions)
	}
	want := asked(func(l *Link) bool { return l.Master == 0 || l.Master == m.Index })
	switch {
	case len(slaves) == 0:
		return want
	case slices.ContainsFunc(slaves, func(l *Link) bool { return unit(l.Index) == nil }):
		return want.withFixed(m.Bond.BondOptions)
	}
	return want.withFixed(asked(func(l *Link) bool { return l.Master == m.Index }))
}

// remakeBond deletes a bond whose mode and the like are no longer those asked for,
// which the kernel sets on one without slaves only; another program's stays, for the reason
// given. It reports whether the bond is as asked for or deleted.
func remakeBond(b *Builder, l, m *Link, unit func(int) *units.Unit) (bool, Reason) {
	if m.Bond == nil {
		return true, Reason{} // PlanBond says so
	}
	want, has := bondAsked(b, m, l, unit), m.Bond.BondOptions
	if want.fixed() == has.fixed() {
		return true, Reason{}
	}
	if !mayRemake(b, m) {
		return false, Reason{Code: CodeNameTaken,
			Text: fmt.Sprintf("another program made %s, whose options that cannot be changed while it has slaves differ (%s)",
				m.Name, want.differing(has)),
			Next: "ip link delete " + m.Name + ", or write Bond=" + m.Name + " in [Network] instead of [Bond]"}
	}
	return b.Do(DelLink{On: b.Model.Target(m)}), Reason{}
}

// mayRemake reports whether a bond was made for [Bond], or is as the module bonding makes
// one when it is loaded (max_bonds, drivers/net/bonding/bond_main.c): down, empty and
// without any option.
func mayRemake(b *Builder, m *Link) bool {
	return b.Record.MadeMaster(m) ||
		m.Bond.BondOptions == BondOptions{} && !m.Up() && len(m.Addresses) == 0 && len(b.Model.snap.Slaves(m.Index)) == 0
}

// notSlave returns why a link cannot become a slave, zero if it can. It follows
// bond_enslave (drivers/net/bonding/bond_main.c).
func notSlave(s *Snapshot, l, m *Link) Reason {
	slaves := s.Slaves(m.Index)
	switch {
	case m.Bond == nil:
		return Reason{Code: CodeNameTaken, Text: fmt.Sprintf("a link %s exists and is not a bond", m.Name),
			Next: "write another Name= in [Bond]"}
	case l.Master != 0:
		what := fmt.Sprintf("index %d", l.Master)
		if x, ok := s.Link(l.Master); ok {
			what = x.Name
		}
		return Reason{Code: CodeRefused, Text: fmt.Sprintf("%s is a slave of another link (%s)", l.Name, what),
			Next: "ip link set " + l.Name + " nomaster"}
	case s.receiver(l) != nil:
		x := s.receiver(l)
		return Reason{Code: CodeRefused,
			Text: fmt.Sprintf("%s has the %s %s on it, and the kernel refuses such a link as a slave", l.Name, x.Kind, x.Name),
			Next: "ip link delete " + x.Name}
	case l.IsInfiniBand() && m.Bond.Mode != uint8(units.BondActiveBackup):
		return Reason{Code: CodeUnsupported,
			Text: fmt.Sprintf("%s has mode %d: the kernel bonds IPoIB links in mode active-backup only", m.Name, m.Bond.Mode),
			Next: fmt.Sprintf("ip link set %s down; ip link set %s type bond mode active-backup", m.Name, m.Name)}
	case len(slaves) > 0 && slaves[0].Type != l.Type:
		return Reason{Code: CodeUnsupported,
			Text: fmt.Sprintf("%s is a bond of links of another type (%s is %s, %s is %s)",
				m.Name, slaves[0].Name, typeName(slaves[0].Type), l.Name, typeName(l.Type)),
			Next: "write another Name= in [Bond]"}
	case l.IPoIB != nil && l.IPoIB.Mode == 0 && m.MTU > s.MaxDatagram(l):
		return Reason{Code: CodeMTUMode,
			Text: fmt.Sprintf("%s has an MTU of %d, datagram mode of %s takes at most %d", m.Name, m.MTU, l.Name, s.MaxDatagram(l)),
			Next: "write the same Mode= and MTUBytes= in the units of all slaves"}
	}
	return Reason{}
}

// planBondSettings sets what the units of the slaves ask of their bond.
func planBondSettings(b *Builder, bond int, makes bool, unit func(index int) *units.Unit) {
	slaves := b.Model.snap.Slaves(bond)
	if len(slaves) == 0 {
		return
	}
	m := b.Link(bond)
	if want := bondAsked(b, m, slaves[0], unit); makes && want != m.Bond.BondOptions && want.fixed() == m.Bond.fixed() {
		b.Do(SetBond{On: b.Model.Target(m), Has: m.Bond.BondOptions, BondOptions: want})
	}
	if m = b.Link(bond); m.Bond.Mode != uint8(units.BondActiveBackup) {
		return // it has no primary slave
	}
	for _, s := range slaves {
		if u := unit(s.Index); u == nil || !u.IsPrimary(s.Name) {
			continue
		}
		if m.Bond.Primary != s.Index {
			b.Do(SetPrimary{On: b.Model.Target(m), Slave: b.Model.Target(s)})
		}
		return
	}
}

// PlanMasterRemoval releases a link from the bond or VRF that it was put into and that
// its unit no longer names. own is nil for a child that shares its unit with its parent,
// which names no bond for it; both are nil where no unit applies any more.
func PlanMasterRemoval(b *Builder, index int, own, u *units.Unit) {
	b.For(u)
	l := b.Link(index)
	rec := b.Record.Of(l)
	if rec == nil || rec.Enslaved == "" || u == nil && rec.Keep {
		return
	}
	m, ok := b.Model.snap.LinkByName(rec.Enslaved)
	if !ok || l.Master != m.Index {
		return
	}
	bond, _ := own.MasterBond()
	if vrf, _ := u.VRFName(); m.Name == bond || m.Name == vrf && m.VRF != nil {
		return
	}
	down, on := l.Up() && m.Bond != nil, b.Model.Target(l)
	if b.Do(SetMaster{On: on, Master: b.Model.Target(m), VRF: m.VRF != nil, Release: true}) && down {
		b.Do(SetUp{On: on, Up: true})
	}
}

// PlanMasterOrphan deletes a bond or VRF that was made for a [Bond] or [VRF] which no
// unit has any more. It comes after the slaves are released; one with further slaves stays.
func PlanMasterOrphan(b *Builder, index int, asked func(name string) bool) {
	l := b.Link(index)
	if l == nil || !b.Record.MadeMaster(l) || b.Record.Of(l).Keep || asked(l.Name) || len(b.Model.snap.Slaves(index)) > 0 {
		return
	}
	b.Do(DelLink{On: b.Model.Target(l)})
}
