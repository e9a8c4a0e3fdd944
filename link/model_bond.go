package link

// BondActiveBackup is BOND_MODE_ACTIVEBACKUP of include/uapi/linux/if_bonding.h.
const BondActiveBackup = 1

// Bond has the attributes of IFLA_INFO_KIND bond that planning uses.
type Bond struct {
	Mode    uint8 `json:"mode"`              // BOND_MODE_*
	MIIMon  int   `json:"miimon,omitempty"`  // milliseconds, 0 for off
	Primary int   `json:"primary,omitempty"` // index of a slave, 0 for none
	Active  int   `json:"active,omitempty"`  // index of a slave, 0 for none
}

// Slaves lists the links whose master is a link, by index.
func (s *Snapshot) Slaves(index int) []*Link {
	var out []*Link
	for i := range s.Links {
		if l := &s.Links[i]; index != 0 && l.Master == index && l.Index != index {
			out = append(out, l)
		}
	}
	return out
}

// BondMTU is the largest MTU in bytes that all slaves of a bond of IPoIB links have,
// 0 for other links and without slaves.
func (s *Snapshot) BondMTU(l *Link) (least int) {
	if l.Bond == nil || !l.IsInfiniBand() {
		return 0
	}
	for _, x := range s.Slaves(l.Index) {
		if least == 0 || x.MTU < least {
			least = x.MTU
		}
	}
	return least
}

func (m *Model) addBond(o AddBond) error {
	if o.On.Link == "" || len(o.On.Link) > 15 {
		return errInvalid
	}
	if _, taken := m.snap.LinkByName(o.On.Link); taken {
		return errExist
	}
	m.last++
	b := Link{
		Index: m.last, Name: o.On.Link, Type: 1, Kind: "bond", Flags: FlagMulti, MTU: cmpOr(o.MTU, 1500), MaxMTU: 65535,
		Bond: &Bond{Mode: BondActiveBackup, MIIMon: o.MIIMon}, Sysctl: map[string]string{},
	}
	m.fresh[b.Index], m.own[b.Index] = true, true
	m.snap.Links = append(m.snap.Links, b)
	return nil
}

// setMaster follows bond_enslave and __bond_release_one: a slave is down before,
// gets the MTU of the bond, and is brought up; released, it is down.
func (m *Model) setMaster(l *Link, o SetMaster) error {
	if o.Release {
		l.Master = 0
		m.setUp(l, false)
		return nil
	}
	b, err := m.find(o.Master)
	if err != nil {
		return err
	}
	slaves := m.snap.Slaves(b.Index)
	switch {
	case b.Bond == nil || b.Index == l.Index, l.IsInfiniBand() && b.Bond.Mode != BondActiveBackup:
		return errInvalid
	case l.Up() || l.Master != 0:
		return errBusy
	case len(slaves) == 0:
		b.Type, b.HWAddr = l.Type, l.HWAddr
	case b.Type != l.Type:
		return errInvalid
	}
	if err := m.setMTU(l, b.MTU); err != nil {
		return err
	}
	l.Master = b.Index
	m.setUp(l, true)
	return nil
}

// setBond carries out the settings of a bond.
func (m *Model) setBond(l *Link, op Op) error {
	if l.Bond == nil {
		return errInvalid
	}
	switch o := op.(type) {
	case SetMIIMon:
		l.Bond.MIIMon = o.MIIMon
	case SetPrimary:
		s, err := m.find(o.Slave)
		if err != nil {
			return err
		}
		l.Bond.Primary = s.Index
	}
	return nil
}

// deleteBond releases the slaves and deletes the bond.
func (m *Model) deleteBond(index int) {
	for _, s := range m.snap.Slaves(index) {
		w := m.write(s.Index)
		w.Master = 0
		m.setUp(w, false)
	}
	m.delete(index)
}
