package link

import (
	"fmt"

	"ibnetworkd/units"
)

// KindVRF is IFLA_INFO_KIND of a VRF, and IFLA_INFO_SLAVE_KIND of the links in it.
const KindVRF = "vrf"

// PlanVRF puts a link into the VRF that its unit names, and makes the VRF where [VRF]
// asks for it. unit gives the unit that is applied to a link. It comes before the
// addresses: the kernel takes the link down and up, and IPv6 addresses go with that.
func PlanVRF(b *Builder, index int, u *units.Unit, unit func(index int) *units.Unit) {
	name, makes := u.VRFName()
	if name == "" {
		return
	}
	l := b.Link(index)
	a, block := joining(b, index, "VRF", name)
	defer func() { b.Attr(index, *a) }()
	on := b.Model.Target(l)
	key := "VRF="
	if makes {
		key = "Name= of [VRF]"
	}
	m, ok := b.Model.snap.LinkByName(name)
	maker := u
	if !makes {
		maker = vrfMaker(b, name, unit)
	}
	switch {
	case l.VRF != nil:
		block(nil, false, Reason{Code: CodeUnsupported, Text: l.Name + " is a VRF, and its unit is one for the links in " + name,
			Next: "write Kind=!vrf in [Match] of that unit"})
		return
	case !ok && maker == nil:
		block(nil, true, Reason{Code: CodeNoDevice, Text: fmt.Sprintf("the VRF %s does not exist", name),
			Next: "make it, or let [VRF] make it: Name=" + name + " and Table="})
		return
	case ok && m.VRF == nil:
		block(nil, false, Reason{Code: CodeNameTaken, Text: fmt.Sprintf("a link %s exists and is not a VRF", name),
			Next: "write another name into " + key})
		return
	case ok && b.Model.snap.Above(l, m):
		block(nil, false, above(l, m))
		return
	}
	if x := b.inOther(l, name); x != nil {
		block(SetMaster{On: on, Master: Target{Link: name}, VRF: true}, false, Reason{Code: CodeRefused,
			Text: fmt.Sprintf("%s is in another link (%s)", l.Name, x.Name), Next: "ip link set " + l.Name + " nomaster"})
		return
	}
	if makes && (!ok || m.VRF.Table != u.VRF.Table.V) {
		if why := tableTaken(b, name, u.VRF.Table.V, unit); why != (Reason{}) {
			block(nil, false, why)
			return
		}
	}
	if ok && maker != nil && m.VRF.Table != maker.VRF.Table.V {
		// The first link deletes it, also where the unit of a later one makes it: or it would join
		// and be released again.
		if why := keepVRF(b, m, maker, unit); why == (Reason{}) {
			if !b.Do(DelLink{On: b.Model.Target(m)}) && makes {
				return
			}
		} else if makes {
			block(nil, false, why)
			return
		}
	}
	if m, ok = b.Model.snap.LinkByName(name); !ok {
		op := AddVRF{On: Target{Link: name}, Table: maker.VRF.Table.V}
		if !b.DoFor(op, &a.Why) {
			return
		}
		m, _ = b.Model.snap.LinkByName(name)
	}
	if e := b.Record.Of(m); maker != nil && !m.Up() && (e == nil || !e.Activated) && unit(m.Index) == nil {
		b.Do(SetUp{On: b.Model.Target(m), Up: true})
	}
	if l.Master == m.Index {
		return
	}
	b.DoFor(SetMaster{On: on, Master: b.Model.Target(m), VRF: true}, &a.Why)
}

// inOther is the link that keeps one out of a VRF, nil for none.
func (b *Builder) inOther(l *Link, vrf string) *Link {
	if x, ok := b.Model.snap.Link(l.Master); ok && l.Master != 0 && x.Name != vrf {
		return x
	}
	return nil
}

// vrfMaker is the unit that makes a VRF: of the links that it is applied to and that can
// join, the one that is planned first, and nil if that one cannot make it.
func vrfMaker(b *Builder, name string, unit func(int) *units.Unit) *units.Unit {
	for l, u := range b.governed(unit) {
		if vrf, makes := u.VRFName(); !makes || vrf != name || l.VRF != nil || b.inOther(l, name) != nil {
			continue
		}
		if tableTaken(b, name, u.VRF.Table.V, unit) != (Reason{}) {
			return nil
		}
		return u
	}
	return nil
}

// keepVRF returns why a VRF that was made with another table, which the kernel cannot change,
// is not deleted for a unit that asks for its own; zero if it is.
func keepVRF(b *Builder, m *Link, u *units.Unit, unit func(int) *units.Unit) Reason {
	if by := b.Model.snap.askedBy(m, unit); by != nil {
		return Reason{Code: CodeRefused,
			Text: fmt.Sprintf("%s has table %d, as the unit of %s has it; this unit has Table=%d", m.Name, m.VRF.Table, by.Name, u.VRF.Table.V),
			Next: fmt.Sprintf("write the same Table= as in %s, or another Name=", unit(by.Index).Path)}
	}
	if !b.Record.MadeMaster(m) {
		return Reason{Code: CodeNameTaken,
			Text: fmt.Sprintf("another program made %s, with table %d", m.Name, m.VRF.Table),
			Next: fmt.Sprintf("ip link delete %s, or write VRF=%s in [Network] instead of [VRF]", m.Name, m.Name)}
	}
	return Reason{}
}

// askedBy is a link in a VRF whose unit asks for it as it is, nil for none.
func (s *Snapshot) askedBy(m *Link, unit func(int) *units.Unit) *Link {
	for _, l := range s.Slaves(m.Index) {
		u := unit(l.Index)
		if name, makes := u.VRFName(); makes && name == m.Name && u.VRF.Table.V == m.VRF.Table {
			return l
		}
	}
	return nil
}

// tableTaken returns the reason if another VRF has the table, zero if none has.
func tableTaken(b *Builder, name string, table uint32, unit func(int) *units.Unit) Reason {
	for i := range b.Model.snap.Links {
		m := &b.Model.snap.Links[i]
		if m.VRF == nil || m.VRF.Table != table || m.Name == name || b.Record.MadeMaster(m) && b.Model.snap.askedBy(m, unit) == nil {
			continue
		}
		return Reason{Code: CodeNameTaken,
			Text: fmt.Sprintf("VRF %s already uses table %d: two VRFs with one table are not separate", m.Name, table),
			Next: "write another Table= in [VRF]"}
	}
	return Reason{}
}

// vrfMissing reports that the VRF of a unit neither exists nor is made by the unit.
func vrfMissing(s *Snapshot, u *units.Unit) bool {
	name, makes := u.VRFName()
	m, ok := s.LinkByName(name)
	return name != "" && (ok && m.VRF == nil || !ok && !makes)
}

// vrfWait returns why nothing of a unit is set before its link is in the VRF, as PlanVRF has
// it, zero if it is: it would be reachable from where it must not be.
func vrfWait(b *Builder, l *Link, u *units.Unit) Reason {
	name, _ := u.VRFName()
	if m, ok := b.Model.snap.LinkByName(name); name == "" || ok && m.VRF != nil && l.Master == m.Index {
		return Reason{}
	}
	for _, a := range b.Attributes(l.Index) {
		if a.Name == "VRF" && a.Why != (Reason{}) {
			return a.Why
		}
	}
	return Reason{Code: CodeNoDevice, Text: fmt.Sprintf("%s is not in the VRF %s", l.Name, name)} // it was not planned
}

// tableOf is the routing table of a unit's routes that name none: that of its VRF, or
// main.
func tableOf(s *Snapshot, u *units.Unit) uint32 {
	name, makes := u.VRFName()
	if makes {
		return u.VRF.Table.V
	}
	if m, ok := s.LinkByName(name); ok && m.VRF != nil {
		return m.VRF.Table
	}
	return TableMain
}

// AddVRF makes a VRF. On names it (Ifindex 0).
type AddVRF struct {
	On
	Table uint32
}

// String prints ip link add NAME type vrf table N.
func (o AddVRF) String() string {
	return fmt.Sprintf("ip link add name %s type vrf table %d", o.On.Link, o.Table)
}

// VRF has the attributes of IFLA_INFO_KIND vrf.
type VRF struct {
	Table uint32 `json:"table"`
}

func (m *Model) addVRF(o AddVRF) error {
	if o.On.Link == "" || len(o.On.Link) > 15 || o.Table == 0 {
		return errInvalid
	}
	if _, taken := m.snap.LinkByName(o.On.Link); taken {
		return errExist
	}
	m.last++
	m.fresh[m.last], m.own[m.last] = true, true
	m.snap.Links = append(m.snap.Links, Link{Index: m.last, Name: o.On.Link, Type: 1, Kind: KindVRF, Flags: FlagNoARP, MTU: 65575,
		VRF: &VRF{Table: o.Table}, Sysctl: map[string]string{}})
	return nil
}

// enterVRF follows do_vrf_add_slave: a link that is up goes down and up.
func (m *Model) enterVRF(l *Link, vrf int) error {
	if l.VRF != nil {
		return errInvalid
	}
	if l.Master != 0 {
		return errBusy
	}
	l.Master, l.SlaveKind = vrf, KindVRF
	m.cycle(l)
	return nil
}

func (m *Model) leaveVRF(l *Link) {
	l.Master, l.SlaveKind = 0, ""
	m.cycle(l)
}

// cycle follows cycle_netdev of drivers/net/vrf.c.
func (m *Model) cycle(l *Link) {
	if l.Up() {
		m.setUp(l, false)
		m.setUp(l, true)
	}
}
